"""Trials of an agent that is driven by an LLM: recorded, counted, replayed, shared, and with everything going wrong."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest
import zstandard
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from agent2 import installation
from agent2.arena.analysis.read import read_evidence
from agent2.arena.analysis.result import analyse
from agent2.arena.analysis.verdicts import FailureKind
from agent2.arena.evidence import AgentEnd
from agent2.arena.plan import new_trial
from agent2.arena.recording import compare_replay
from agent2.arena.scoring import LoadedTask
from agent2.arena.sharing import share_trial
from agent2.arena.trial import run_trial
from agent2.arena.trial_folder import TrialPaths, read_config, read_events, record_intervention
from agent2.benchmarks import load_benchmark
from agent2.cards.reader import iter_rollouts
from agent2.errors import ConfigError
from agent2.llm.gateway.recording import read_exchanges
from agent2.records import HIDDEN_SPLITS
from agent2.reports.pages import write_report
from llm_builders import (
    CACHED,
    CHAT_AGENT,
    DOLLARS,
    INPUT,
    KEY,
    KEY_VARIABLE,
    OUTPUT,
    REASONING,
    STEPS,
    scripted_llm,
    write_chat_agent,
    write_driver,
    write_prices,
)
from trial_builders import SUBMIT_COPY, quiet

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def key(home, monkeypatch):
    monkeypatch.setenv(KEY_VARIABLE, KEY)


@pytest.fixture
def recorded(task, shared, home):
    """One finished trial for all tests of the module; somebody stepped in while its agent worked."""
    root = shared / "trials" / "recorded"
    if not root.exists():
        agent = write_chat_agent(shared / "chatty")
        with scripted_llm() as url:
            chosen = [
                f"driver={write_driver(shared, url)}",
                f"prices={write_prices(shared)}",
                "budget.wall_clock_s=3000",
            ]
            new_trial(task, str(agent), 0, shared / "trials", overrides=chosen, trial_id="recorded")
            helper = threading.Thread(target=step_in, args=(TrialPaths(root),))
            helper.start()
            run_trial(root, quiet)
            helper.join()
    return root


def step_in(paths):
    when(lambda: read_events(paths.trial_log).last("agent_started") is not None)
    record_intervention(paths, "I looked at it", by="operator")


def when(holds, timeout_s=300):
    ends_at = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < ends_at, "it did not happen in time"
        time.sleep(0.05)


def play(task, agent, tmp_path, url, *overrides):
    chosen = [f"driver={write_driver(tmp_path, url)}", *overrides]
    root = new_trial(task, str(agent), 0, tmp_path / "trials", overrides=chosen)
    run_trial(root, quiet)
    return read_evidence(root)


def agent2(*arguments):
    command = [sys.executable, "-m", "agent2", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)


def test_tokens_dollars_and_calls_are_those_of_the_script_in_evidence_and_report(recorded, tmp_path):
    evidence = read_evidence(recorded)
    totals = evidence.llm.totals
    tokens = totals.tokens
    assert (tokens.input, tokens.output, tokens.cached_input, tokens.reasoning) == (INPUT, OUTPUT, CACHED, REASONING)
    assert totals.calls == len(evidence.llm.calls) == len(STEPS)
    assert totals.dollars == pytest.approx(DOLLARS)
    assert (totals.n_unknown_cost, totals.n_failed) == (0, 0)
    call = evidence.llm.calls[1]
    assert (call.asked_model, call.model, call.tokens.input) == (
        "small-helper",
        "scripted-1",
        STEPS[1]["usage"]["input"],
    )
    assert [call.t for call in evidence.llm.calls] == sorted(call.t for call in evidence.llm.calls)
    written = write_report(evidence, analyse(evidence), tmp_path)
    record = json.loads(written.json.read_text())
    totals = record["headline"]["llm"]["totals"]
    assert (totals["tokens"]["input"], totals["tokens"]["output"]) == (7500, 420)
    assert record["trial"]["llm"]["totals"]["tokens"]["input"] == INPUT
    page = written.html.read_text()
    assert "small-helper → scripted-1" in page
    assert "<h2>LLM</h2>" in page
    assert (tmp_path / "llm.svg").exists()
    assert "| input tokens | 7,500 (200 of them cached) |" in written.markdown.read_text()


def test_two_revisions_two_submissions_and_every_command_line_are_recorded(recorded):
    evidence = read_evidence(recorded)
    assert [s.number for s in evidence.submissions] == [1, 2]
    assert len({s.weights_digest for s in evidence.submissions}) == 2
    by_id = {revision.id: revision.files["code/train.py"] for revision in evidence.revisions}
    assert ["scale, out = 0.01" in by_id[s.revision] for s in evidence.submissions] == [True, False]
    assert [c.command for c in evidence.commands] == [step["run"] for step in STEPS[:-1]]
    assert [c.exit_code for c in evidence.commands] == [0, 0, 2, 0, 0]
    recovery = analyse(evidence).recovery
    assert (recovery.n_failed_commands, recovery.n_followed_by_success) == (1, 1)


def test_an_intervention_while_the_agent_worked_is_in_the_report_and_ends_autonomy(recorded):
    evidence = read_evidence(recorded)
    assert [(intervention.note, intervention.by) for intervention in evidence.interventions] == [
        ("I looked at it", "operator")
    ]
    autonomy = analyse(evidence).autonomy
    assert autonomy.n_interventions == 1
    assert not autonomy.is_shown  # this agent only talks: what it submits was trained by nobody
    assert not autonomy.is_autonomous
    late = agent2("intervene", recorded, "--note", "afterwards")
    assert late.returncode == 2
    assert "no agent is at work there now" in late.stderr


def test_the_key_is_in_no_file_of_the_trial(recorded):
    paths = [path for path in recorded.rglob("*") if path.is_file() and KEY.encode() in unpacked(path)]
    assert paths == []


def unpacked(path):
    data = path.read_bytes()
    if path.suffix != ".zst":
        return data
    return zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True).read()


def test_a_shared_recording_has_no_key_no_secret_no_hidden_item_and_is_replayed_strictly(
    recorded, tmp_path, monkeypatch
):
    shared = share_trial(recorded, tmp_path / "shown")
    for name in ("grader.db", "cards", "submissions", "workspace", "run"):
        assert not (shared / name).exists()
    config = read_config(recorded / "trial.json")
    loaded = LoadedTask(config.task, load_benchmark("arithmetic"), installation.secret())
    hidden = [item.prompt.encode() for split in HIDDEN_SPLITS for item in loaded.items(split)]
    prompts = {
        message.content.encode()
        for scored in iter_rollouts(recorded / "cards" / "base-test_private")
        for message in scored.rollout.prompt
    }
    assert prompts & set(hidden)
    for path in (path for path in shared.rglob("*") if path.is_file()):
        data = unpacked(path)
        assert KEY.encode() not in data
        assert installation.secret() not in data
        assert not any(prompt in data for prompt in hidden), path
    assert str(recorded.parent.parent) not in (shared / "trial.json").read_text()
    assert read_evidence(shared).submissions == read_evidence(recorded).submissions
    monkeypatch.delenv(KEY_VARIABLE)  # nothing is asked of a provider
    base = f"base_model={config.base_model}"
    ended = agent2("replay", shared, "--strict", "--set", base, "--out", tmp_path / "again")
    assert ended.returncode == 0, ended.stderr + ended.stdout
    assert "6 LLM calls replayed, 6 recorded, all as recorded" in ended.stdout
    assert "replay: the same" in ended.stdout
    (again,) = (tmp_path / "again").iterdir()
    report = json.loads((again / "replay.json").read_text())
    trees = [(submission["recorded_tree"], submission["replayed_tree"]) for submission in report["submissions"]]
    assert [before == after is not None for before, after in trees] == [True, True]
    assert [s.weights_digest for s in read_evidence(again).submissions] == [
        s.weights_digest for s in read_evidence(recorded).submissions
    ]
    assert read_evidence(again).llm.replay_of == "shown"


def test_a_recording_that_holds_a_key_is_not_shared(recorded, tmp_path):
    leaky = tmp_path / "leaky"
    shutil.copytree(recorded, leaky, symlinks=True)
    body = read_exchanges(leaky / "llm")[0].request
    body.write_bytes(zstandard.compress(f"my key is {KEY}".encode()))
    with pytest.raises(ConfigError, match=rf"llm/bodies/{body.name}: contains the key in {KEY_VARIABLE}"):
        share_trial(leaky, tmp_path / "shown")
    assert not (tmp_path / "shown").exists()
    assert list(tmp_path.iterdir()) == [leaky]


@pytest.mark.thorough
def test_a_changed_answer_is_shown_as_a_diff_and_the_replay_goes_on(recorded, tmp_path):
    changed = tmp_path / "changed"
    shutil.copytree(recorded, changed, symlinks=True)
    body = read_exchanges(changed / "llm")[4].response
    answer = unpacked(body).replace(b"s/0.01/0.02/", b"s/0.01/0.03/")
    body.write_bytes(zstandard.compress(answer))
    base = f"base_model={read_config(recorded / 'trial.json').base_model}"
    ended = agent2("replay", changed, "--set", base, "--out", tmp_path / "again")
    assert ended.returncode == 1, ended.stderr
    assert "replay: NOT the same as the recording" in ended.stdout
    assert "code/train.py" in ended.stdout
    lines = ended.stdout.splitlines()
    assert any(line.startswith("  -") and "s/0.01/0.02/" in line for line in lines)
    assert any(line.startswith("  +") and "s/0.01/0.03/" in line for line in lines)
    (again,) = (tmp_path / "again").iterdir()
    report = compare_replay(again)
    assert [submission.is_same_tree for submission in report.submissions] == [True, False]
    assert [submission.is_same_checkpoint for submission in report.submissions] == [True, False]
    assert report.submissions[1].changed_files == ("code/train.py",)
    assert report.n_replayed_calls == 6
    (difference,) = report.differences
    assert "s/0.01/0.03/" in difference["diff"]
    assert difference["served"]


@pytest.mark.thorough
def test_a_recording_that_was_cut_in_the_middle_is_replayed_as_far_as_it_goes_and_says_so(recorded, tmp_path):
    cut = tmp_path / "cut"
    shutil.copytree(recorded, cut, symlinks=True)
    log = cut / "llm" / "exchanges.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[: len(lines) // 2]) + lines[len(lines) // 2][:20])
    base = f"base_model={read_config(recorded / 'trial.json').base_model}"
    ended = agent2("replay", cut, "--set", base, "--out", tmp_path / "again")
    assert ended.returncode == 1
    assert "the recording is cut" in ended.stderr
    assert "the recording is cut" in ended.stdout
    (again,) = (tmp_path / "again").iterdir()
    report = compare_replay(again)
    assert report.cut is not None
    assert not report.is_same
    assert read_evidence(again).agent_end is AgentEnd.CRASHED  # it was told that there is no further answer


def test_a_spent_budget_ends_the_calls_and_an_unknown_cost_stays_unknown(task, tmp_path):
    agent = write_chat_agent(tmp_path / "spender")
    with scripted_llm() as url:
        evidence = play(task, agent, tmp_path, url, "budget.llm_tokens=4000")
    totals = evidence.llm.totals
    assert 0 < totals.calls < len(STEPS)
    assert totals.tokens.total <= 4000
    assert totals.n_refused == 1
    assert totals.dollars is None
    assert totals.n_unknown_cost == totals.calls
    analysis = analyse(evidence)
    assert FailureKind.LLM_BUDGET in {failure.kind for failure in analysis.failures}
    assert any("is unknown and not included in any total" in warning for warning in analysis.warnings)


def test_a_provider_that_answers_nothing_is_named_and_not_the_agents_failure(task, tmp_path):
    app = FastAPI()

    @app.post("/{path:path}")
    async def refuse(path: str, request: Request):
        return JSONResponse({"error": {"message": "no such model: scripted-1", "type": "invalid_request_error"}}, 404)

    with scripted_llm(app=app) as url:
        evidence = play(task, write_chat_agent(tmp_path / "unlucky"), tmp_path, url)
    assert evidence.llm.totals.n_failed == evidence.llm.totals.calls == 1
    assert "no such model" in evidence.agent_log_tail
    analysis = analyse(evidence)
    assert analysis.warnings[0] == "None of 1 LLM calls was answered: the result says nothing about the agent."
    assert FailureKind.LLM_FAILED in {failure.kind for failure in analysis.failures}


@pytest.mark.thorough
def test_a_gateway_that_is_dead_for_good_ends_the_phase_as_a_fault_of_ours(task, tmp_path):
    patient = SUBMIT_COPY + "import time\ntime.sleep(600)\n"
    agent = write_chat_agent(tmp_path / "patient", patient)
    with scripted_llm() as url, kill_gateways() as killed:
        started = time.monotonic()
        evidence = play(task, agent, tmp_path, url)
    assert len(killed) >= 3
    assert time.monotonic() - started < 500
    assert evidence.agent_end is AgentEnd.INFRASTRUCTURE
    assert "the LLM gateway" in evidence.agent_end_reason
    assert "not the agent's doing" in evidence.agent_end_reason
    assert FailureKind.GATEWAY_LOST in {failure.kind for failure in analyse(evidence).failures}


@contextlib.contextmanager
def kill_gateways():
    """Kill -9 every gateway of this process once an agent is at work; gives the list of those killed."""
    killed, is_over = [], threading.Event()

    def kill():
        while not is_over.wait(0.1):
            for process in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    command = " ".join(process.cmdline())
                    if "/agent/main.py" in command:
                        agents.append(process.pid)
                    if agents and "agent2.llm.gateway.proxy" in command:
                        process.send_signal(signal.SIGKILL)
                        killed.append(process.pid)

    agents = []
    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield killed
    finally:
        is_over.set()
        thread.join()


@pytest.mark.thorough
def test_an_agent_that_ignores_its_deadline_in_the_middle_of_a_call_is_stopped(task, tmp_path):
    ignoring = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + CHAT_AGENT
    slow = [{"say": "Hm.", "usage": {"input": 10, "output": 1}, "delay_s": 600}]
    with scripted_llm(slow) as url:
        started = time.monotonic()
        evidence = play(task, write_chat_agent(tmp_path / "deaf", ignoring), tmp_path, url, "budget.wall_clock_s=40")
    assert time.monotonic() - started < 400
    assert evidence.agent_end is AgentEnd.DEADLINE
    (call,) = evidence.llm.calls
    assert call.outcome != "ok"
