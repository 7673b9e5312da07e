"""`agent2 eval` as a user meets it, with scripted players: no model is loaded."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import torch
from msgspec import UNSET, structs
from safetensors.torch import load_file, save_file

from agent2.benchmarks import BASE_MODELS
from agent2.cards.reader import iter_rollouts, read_header, read_totals
from agent2.cli import main
from agent2.installation import access_log
from agent2.llm.endpoints import EndpointClient
from agent2.models.bases import ensure_base_model
from agent2.models.sources import PLAIN_DIGEST
from served_fakes import chat, endpoint, error

PLAYERS = """
import os, time

def old(messages):
    time.sleep(float(os.environ.get("PLAYER_S", "0")))
    return "A"

def new(messages):
    return "The final answer is 7" if "a" in messages[-1].content else "B"
"""
SEARCHES = """
def searches(messages):
    return '{"name": "search_apis", "arguments": {"query": "book"}}' if len(messages) == 1 else "The answer is 1"
"""
SUITE = "llm_core_regression_mini"
SIDES = ("--checkpoint", "scripted:players.py:new", "--baseline", "scripted:players.py:old")
SMALL = ("--set", "cadence.dev.n_items=60")


@pytest.fixture(autouse=True)
def workplace(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "players.py").write_text(PLAYERS)
    return tmp_path


@pytest.fixture
def agent2(monkeypatch, capsys):
    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["agent2", *arguments])
        with pytest.raises(SystemExit) as exit_info:
            main()
        captured = capsys.readouterr()
        return exit_info.value.code or 0, captured.out, captured.err

    return run


def test_the_decision_comes_before_the_path_of_the_report(agent2, workplace):
    code, out, err = agent2("eval", SUITE, *SIDES, *SMALL, "--out", "e")
    lines = out.strip().splitlines()
    assert lines[-1] == "report: e/report.html"
    decision = lines[-2].removeprefix("release decision: ")
    report = json.loads((workplace / "e" / "report.json").read_text())
    assert report["release_decision"] == decision
    assert code == (0 if decision in {"release", "candidate"} else 1)
    assert lines[0] == report["outcome"] and lines[0].startswith(f"{decision}, ") and "improvement" in lines[0]
    assert "new (checkpoint) on mini_math" in err
    table = " ".join(out.split())
    assert "model benchmark score [95%] items missing unread" in table
    assert "old (baseline) mini_math 0.0% [0.0, 6.0] 60 0.0% 100.0%" in table
    assert "warning: old (baseline) on mini_math: 100.0% (60 of 60 answers) could not be read and score 0" in err
    assert "mini_math-" in err and "was answered with 'A'" in err


def test_a_no_is_exit_code_1_and_names_the_gate(agent2):
    swapped = ("--checkpoint", "scripted:players.py:old", "--baseline", "scripted:players.py:right")
    with open("players.py", "a") as players:
        players.write("\ndef right(messages):\n    return ''.join('ABCD'[k] for k in range(1))\n")
    gate = "gates=[{kind: evidence, name: evidence}, {kind: limit, name: never, metrics: [mini_math_exact_match], at_least: 0.99}, {kind: regression, name: r, metrics: [mini_math_exact_match, mini_knowledge_accuracy, mini_ifeval_prompt_accuracy, mini_math_format_failure_rate]}, {kind: length, name: l, max_rise: 9.0}]"  # noqa: E501
    code, out, _ = agent2("eval", SUITE, *swapped, *SMALL, "--set", gate, "--out", "e")
    assert code == 1
    assert "release decision: block" in out and "gate never" in out


def test_the_same_command_without_a_folder_goes_on_where_it_stands(agent2, workplace):
    first = agent2("eval", SUITE, *SIDES, *SMALL)
    second = agent2("eval", SUITE, *SIDES, *SMALL)
    assert first[1] == second[1]
    assert [path.name[:32] for path in (workplace / "evaluations").iterdir()] == [f"{SUITE}-v1.0-dev"[:32]]


def test_a_single_benchmark_with_tools_is_played_in_its_world(agent2, workplace):
    with open("players.py", "a") as players:
        players.write(SEARCHES)
    sides = ("--checkpoint", "scripted:players.py:searches", "--baseline", "scripted:players.py:old")
    code, out, err = agent2("eval", "mini_apis", *sides, "--set", "cadence.dev.n_items=40", "--out", "e")
    assert code in {0, 1}, err
    header = read_header(workplace / "e" / "cards" / "checkpoint" / "mini_apis-dev")
    assert header.protocol.tools["max_tool_calls"] == 6
    assert "release decision:" in out


def test_bad_input_leaves_no_folder_behind(agent2, workplace):
    for wrong in (["--set", "run.dtype=int8"], ["--role", "weekly"]):
        assert agent2("eval", SUITE, *SIDES, *wrong)[0] == 2
    assert not (workplace / "evaluations").exists()


def test_a_checkpoint_against_itself_is_said_to_be_the_same(agent2):
    _, out, _ = agent2("eval", SUITE, SIDES[0], SIDES[1], "--baseline", SIDES[1], *SMALL, "--out", "e")
    assert "both sides are the same checkpoint" in out
    _, out, _ = agent2("eval", SUITE, *SIDES, *SMALL, "--out", "other")
    assert "both sides are the same checkpoint" not in out


def test_private_items_without_the_role_are_refused_and_logged(agent2):
    code, _, err = agent2("eval", SUITE, *SIDES, "--set", "run.split=test_private", "--out", "e")
    assert code == 2
    assert "use --role candidate" in err
    assert [json.loads(line)["is_granted"] for line in access_log().read_text().splitlines()] == [False]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["no_such_suite", *SIDES], "unknown suite or benchmark 'no_such_suite'"),
        ([SUITE, *SIDES, "--role", "nightlly"], "did you mean 'nightly'?"),
        ([SUITE, *SIDES, "--set", "run.split=test_pubic"], "did you mean 'test_public'?"),
        ([SUITE, *SIDES, "--set", "run.split=train"], "what models learn from"),
        ([SUITE, *SIDES[:3], "nowhere"], "checkpoint 'nowhere': no such folder"),
        (
            [SUITE, *SIDES[:3], "tiny-mni"],
            "--baseline: no folder 'tiny-mni', and: unknown base model 'tiny-mni'; did you",
        ),
        ([SUITE, *SIDES[2:]], "has no checkpoint for --checkpoint; give one\n"),
        (
            [SUITE, *SIDES, "--set", "run.dtype=float61"],
            "--set run.dtype: unknown dtype 'float61'; did you mean 'float16'?",
        ),
        ([SUITE, *SIDES, "--with", "nowhere.yaml"], "nowhere.yaml: cannot be read"),
        ([SUITE, *SIDES, "--set", "protocol.sampling.n=0"], "greater than or equal to 1"),
        ([SUITE, *SIDES, "--out", "players.py"], "is not a directory"),
        (["vlm_reasoning_regression_v1", *SIDES], "hf download MMMU/MMMU"),
        (
            ["agent_tool_regression_v1", *SIDES],
            "none of its variants can be played here; for agent_tool_regression_offline type agent2 benchmarks get",
        ),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(agent2, arguments, sentence):
    code, out, err = agent2("eval", *arguments)
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1


def test_history_comes_from_a_file_about_this_checkpoint_and_a_spot_check_does_not(agent2, workplace):
    (workplace / "known.yaml").write_text(
        "checkpoint: new\nbaseline: old\nhistory: {mini_math_exact_match: [0.9, 0.9]}\n"
        "spot_check: {by: Ada, n: 30, n_agree: 30}\n"
    )
    code, _, _ = agent2("eval", SUITE, *SIDES, *SMALL, "--with", "known.yaml", "--out", "e")
    report = json.loads((workplace / "e" / "report.json").read_text())
    assert "spot_check" not in report and any("is a claim" in note for note in report["notes"])
    gate = next(gate for gate in report["decision"]["gates"] if gate["gate"] == "historical_best")
    assert gate["outcome"] != "not evaluated"
    (workplace / "known.yaml").write_text("checkpoint: another\n")
    code, _, err = agent2("eval", SUITE, *SIDES, *SMALL, "--with", "known.yaml", "--out", "e")
    assert code == 2 and "is about checkpoint 'another'" in err


@pytest.mark.slow
def test_killed_from_outside_and_run_again_the_report_is_byte_identical(workplace):
    def start(out, seconds):
        command = [sys.executable, "-m", "agent2", "eval", SUITE, *SIDES, "--out", out]
        return subprocess.Popen(
            command, env={**os.environ, "PLAYER_S": seconds}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )

    cut = start("cut", "0.5")  # it takes much longer than the look at it
    for _ in range(6000):
        if (workplace / "cut" / "cards" / "baseline").exists():
            break
        assert cut.poll() is None, cut.stderr.read()
        time.sleep(0.05)
    cut.send_signal(signal.SIGKILL)
    cut.communicate()
    assert cut.returncode == -signal.SIGKILL
    assert not (workplace / "cut" / "report.yaml").exists()
    for out in ("cut", "whole"):
        process = start(out, "0")
        _, err = process.communicate()
        assert process.returncode in (0, 1), err
    names = ("report.yaml", "report.json", "report.md", "report.html", "change.svg")
    assert [name for name in names if _bytes(workplace, "cut", name) != _bytes(workplace, "whole", name)] == []


@pytest.mark.slow
def test_two_evaluations_do_not_write_one_folder(workplace):
    command = [sys.executable, "-m", "agent2", "eval", SUITE, *SIDES, "--out", "e"]
    first = subprocess.Popen(command, env={**os.environ, "PLAYER_S": "2"}, stderr=subprocess.DEVNULL)
    while not (workplace / "e" / "cards" / "baseline").exists():
        assert first.poll() is None
        time.sleep(0.05)
    second = subprocess.run(command, capture_output=True, text=True, check=False)
    first.kill()
    first.wait()
    assert second.returncode == 2
    assert "another process is writing this evaluation" in second.stderr


def _bytes(workplace, out, name):
    return (workplace / out / name).read_bytes()


@pytest.fixture
def tiny(tmp_path):
    """A copy of the packaged model in a folder of its own, changed as asked."""

    def make(name, *, is_nan=False, has_template=True):
        folder = tmp_path / name
        shutil.copytree(ensure_base_model("tiny-mini", BASE_MODELS), folder)
        if is_nan:
            weights = load_file(folder / "model.safetensors")
            broken = {key: torch.full_like(value, float("nan")) for key, value in weights.items()}
            save_file(broken, folder / "model.safetensors", metadata={"format": "pt"})
        if not has_template:
            config = json.loads((folder / "tokenizer_config.json").read_text())
            config.pop("chat_template", None)
            (folder / "tokenizer_config.json").write_text(json.dumps(config))
            (folder / "chat_template.jinja").unlink(missing_ok=True)
        return str(folder)

    return make


@pytest.mark.slow
@pytest.mark.parametrize("broken_sides", [("checkpoint",), ("baseline",), ("checkpoint", "baseline")])
def test_weights_that_are_no_numbers_are_insufficient_and_the_cause_is_told(agent2, tiny, broken_sides):
    sides = [
        word for side in ("checkpoint", "baseline") for word in (f"--{side}", tiny(side, is_nan=side in broken_sides))
    ]
    code, out, _ = agent2("eval", SUITE, *sides, *SMALL, "--out", "e")
    assert code == 1
    assert "release decision: insufficient" in out
    for side in broken_sides:
        assert f"{side} on mini_math" in " ".join(out.split())
    assert "not all usable numbers" in " ".join(out.split())
    again, output, _ = agent2("decide", "e/report.yaml", "--suite", SUITE)
    assert again == 1 and "insufficient" in output  # kept in the report, not only in memory


def test_nothing_solved_on_either_side_is_insufficient(agent2):
    with open("players.py", "a") as players:
        players.write("\ndef mute(messages):\n    return 'I cannot say.'\n\ndef silent(messages):\n    return ''\n")
    code, out, _ = agent2(
        "eval", SUITE, "--checkpoint", "scripted:players.py:mute", "--baseline", "scripted:players.py:silent", *SMALL,
        "--out", "e",
    )  # fmt: skip
    assert code == 1 and "release decision: insufficient" in out
    assert "0% on both sides" in out and "so no change can be shown" in " ".join(out.split())


@pytest.mark.slow
def test_a_model_without_a_chat_template_is_refused_at_the_start_and_played_plain_if_asked(agent2, tiny, workplace):
    sides = ("--checkpoint", tiny("bare", has_template=False), "--baseline", tiny("whole"))
    code, out, err = agent2("eval", SUITE, *sides, *SMALL, "--out", "e")
    assert (code, out) == (2, "") and "bare: has no chat template" in err and "run.plain=true" in err
    assert not (workplace / "e").exists()
    code, out, _ = agent2("eval", SUITE, *sides, *SMALL, "--set", "run.plain=true", "--out", "plain")
    assert "release decision:" in out
    header = read_header(workplace / "plain" / "cards" / "checkpoint" / "mini_math-dev")
    assert header.protocol.chat_template_digest == PLAIN_DIGEST
    assert "plain format" in (workplace / "plain" / "report.md").read_text()
    agent2("eval", SUITE, "--checkpoint", sides[3], "--baseline", sides[3], *SMALL, "--out", "chat")
    chat_header = read_header(workplace / "chat" / "cards" / "checkpoint" / "mini_math-dev")
    assert chat_header.protocol.digest != header.protocol.digest  # scores of the two formats are not compared


@pytest.mark.slow
def test_tokens_are_on_the_cards_if_asked_for_and_only_then(agent2, tiny, workplace):
    checkpoint = tiny("one")
    for name, options in (("kept", ("--set", "run.tokens=true")), ("plain", ())):
        agent2("eval", SUITE, "--checkpoint", checkpoint, "--baseline", checkpoint, *SMALL, *options, "--out", name)
    with_tokens, plain = (
        [record.rollout.turns for record in iter_rollouts(workplace / name / "cards" / "checkpoint" / "mini_math-dev")]
        for name in ("kept", "plain")
    )
    turns = [turn for turns in with_tokens for turn in turns]
    assert turns and all(len(turn.tokens) == turn.completion_tokens for turn in turns)
    assert all(turn.action.strip() in "".join(token.text for token in turn.tokens) for turn in turns)
    assert all(token.logprob <= 0.0 for turn in turns for token in turn.tokens)
    assert [[structs.replace(turn, tokens=UNSET) for turn in turns] for turns in with_tokens] == plain, (
        "nothing else changes"
    )
    scripts = ("--checkpoint", "scripted:players.py:new", "--baseline", "scripted:players.py:old")
    code, _, err = agent2("eval", SUITE, *scripts, *SMALL, "--set", "run.tokens=true", "--out", "e")
    assert code == 2 and "no model here runs in this process" in err


def served(reply):
    """Both sides behind one endpoint; the checkpoint's name decides."""
    return endpoint(lambda body, number: reply(body, number))


def sides(url):
    return ("--checkpoint", f"{url}#new", "--baseline", f"{url}#old")


def test_an_endpoint_that_cannot_be_reached_is_exit_code_4(agent2):
    with served(lambda body, number: chat("A")) as gone:
        url = gone.url
    code, _, err = agent2("eval", SUITE, *sides(url), *SMALL)
    assert code == 4 and "no connection: ConnectError" in err and "check that the server runs" in err


def test_an_endpoint_that_refuses_the_key_is_bad_input(agent2):
    with served(lambda body, number: error(401, "no such key")) as refusing:
        code, _, err = agent2("eval", SUITE, *sides(refusing.url), *SMALL)
    assert code == 2 and "no such key" in err


def test_an_endpoint_that_hangs_in_the_middle_ends_with_4_and_the_same_command_resumes(agent2, workplace, monkeypatch):
    hangs = True

    def reply(body, number):
        return replace(chat("A"), delay_s=600.0 if hangs and number >= 20 else 0.0)

    with served(reply) as serving:
        # Where nobody hangs there is time for an answer, however busy this machine is.
        monkeypatch.setattr(EndpointClient, "limit_s", lambda *_: 3.0 if hangs and len(serving.bodies) >= 4 else 120.0)
        command = ("eval", SUITE, *sides(serving.url), *SMALL, "--endpoint", "timeout_s=3", "--out", "e")
        code, _, err = agent2(*command)
        assert code == 4 and "requests in a row got no answer" in err and "run the same command again" in err
        n_requests = len(serving.bodies)
        assert n_requests <= 20 + 4 * 16  # not a try for each of 600 items
        hangs = False
        code, out, _ = agent2(*command)
    assert code in (0, 1) and "release decision" in out
    assert json.loads((workplace / "e" / "report.json").read_text())["release_decision"]


def test_options_that_change_what_a_model_sees_are_on_the_card_and_in_the_report(agent2, workplace):
    thinking = ("--endpoint", "extra_body.chat_template_kwargs.enable_thinking=false", "--endpoint", "concurrency=4")
    with served(lambda body, number: chat(None)) as serving:
        code, _, err = agent2("eval", SUITE, *sides(serving.url), *SMALL, *thinking, "--out", "e")
    assert code == 1, err
    assert all(body["chat_template_kwargs"] == {"enable_thinking": False} for body in serving.bodies)
    assert serving.most_at_once <= 4
    (card,) = (workplace / "e").glob("cards/checkpoint/mini_math*")
    header = read_header(card)
    assert header.protocol.chat_template_digest.startswith("by the server, asked with ")
    assert read_totals(card).n_missing == 0  # an answer without text is an empty answer
    assert "enable_thinking" in (workplace / "e" / "report.html").read_text()


def test_options_for_endpoints_without_an_endpoint_are_refused(agent2):
    code, _, err = agent2("eval", SUITE, *SIDES, *SMALL, "--endpoint", "timeout_s=3")
    assert code == 2 and "no model here is an endpoint" in err


THINKERS = """
def _answer(messages):
    return "The final answer is 7"

def cut(messages):
    is_cut = len(messages[-1].content) % 2 == 0
    return "<think>The final answer is 7" if is_cut else "<think>The final answer is 8</think>" + _answer(messages)

def plain(messages):
    return _answer(messages)
"""


def test_a_model_that_thinks_gets_the_score_of_its_answers_and_unended_thoughts_are_a_warning(agent2, workplace):
    (workplace / "thinkers.py").write_text(THINKERS)
    sides = ("--checkpoint", "scripted:thinkers.py:cut", "--baseline", "scripted:thinkers.py:plain")
    _, _, err = agent2("eval", "mini_math", *sides, "--out", "e")
    records = {
        side: {record.rollout.item_id: record for record in iter_rollouts(workplace / f"e/cards/{side}/mini_math-dev")}
        for side in ("checkpoint", "baseline")
    }
    cut_off = {name for name, record in records["checkpoint"].items() if "thought_cut_off" in record.score.labels}
    assert 0.3 < len(cut_off) / len(records["checkpoint"]) < 0.7
    for name, record in records["checkpoint"].items():
        expected = 0.0 if name in cut_off else records["baseline"][name].score.value
        assert record.score.value == expected
        assert record.rollout.turns[0].thought.text.startswith("The final answer is")
    assert f"warning: cut (checkpoint) on mini_math: in {len(cut_off)} of {len(records['checkpoint'])} rollouts" in err
    assert "warning: plain (baseline) on mini_math: in " not in err
    assert "thought before the answer never ended" in " ".join((workplace / "e/report.html").read_text().split())
    header = read_header(workplace / "e/cards/checkpoint/mini_math-dev")
    assert header.protocol.thinking == "auto"


def test_the_marks_of_thoughts_are_part_of_the_protocol(agent2, workplace):
    (workplace / "thinkers.py").write_text(THINKERS)
    sides = ("--checkpoint", "scripted:thinkers.py:cut", "--baseline", "scripted:thinkers.py:plain")
    agent2("eval", "mini_math", *sides, "--out", "e", "--set", "protocol.thinking=none")
    header = read_header(workplace / "e/cards/checkpoint/mini_math-dev")
    assert header.protocol.thinking == "none"
    code, _, err = agent2("eval", "mini_math", *sides, "--out", "f", "--set", "protocol.thinking=loud")
    assert code == 2 and "thinking 'loud': write auto, none, a pair of marks" in err


def test_the_same_command_plays_what_the_endpoint_lost_and_shows_the_report_while_it_is_gone(agent2, workplace):
    state = {"is_healthy": False}

    def reply(body, number):
        is_answered = state["is_healthy"] or number < 4
        return chat("The final answer is 7") if is_answered else error(401, "no such key")

    with endpoint(reply) as served:
        sides = ("--checkpoint", f"{served.url}#m", "--baseline", "scripted:players.py:old")
        one_by_one = ("--endpoint", "concurrency=1", "--set", "cadence.dev.n_items=20")
        command = ("eval", "mini_math", *sides, *one_by_one, "--out", "e")
        code, out, _ = agent2(*command)
        card = workplace / "e/cards/checkpoint/mini_math-dev"
        n_missing = read_totals(card).n_missing
        assert n_missing > 0 and "score or play them again" in out
        code, out, err = agent2(*command)
        assert read_totals(card).n_missing == n_missing
        assert f"{n_missing} lost rollouts again" in err and "not possible now" in err
        assert code == 1 and "release decision: insufficient" in out
        state["is_healthy"] = True
        agent2(*command)
        assert read_totals(card).n_missing == 0


FAILING = """
from agent2.errors import Fault
from agent2.records import Completion, StopReason

def short(messages):
    if len(messages[-1].content) % 2:
        return "The final answer is 7"
    return Completion("", stop_reason=StopReason.FAULT, fault=Fault.MODEL, reason="the prompt has 9000 tokens")
"""


def test_prompts_that_a_model_cannot_take_are_a_warning_beside_the_score(agent2, workplace):
    (workplace / "failing.py").write_text(FAILING)
    code, _, err = agent2(
        "eval", "mini_math", "--checkpoint", "scripted:failing.py:short", "--limit", "20", "--out", "e"
    )
    assert code == 0
    assert re.search(r"warning: short on mini_math: \d+ of 20 rollouts have no answer and score 0", err)
    assert "because the model failed" in err and "the prompt has 9000 tokens" in err
    _, _, err = agent2("eval", "mini_math", "--checkpoint", "scripted:players.py:old", "--limit", "20", "--out", "f")
    assert "because the model failed" not in err
