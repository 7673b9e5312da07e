"""Trajectories of LangChain, OpenAI and OpenTelemetry become cards that are judged without a benchmark."""

import json
import sys

import pytest

from agent2.cards.imports.foreign_log import write_foreign
from agent2.cards.reader import iter_rollouts, read_header, read_summary, validate_card
from agent2.cards.traces import NO_SCORE, read_trajectories
from agent2.cli import main
from agent2.errors import ConfigError, Fault
from agent2.evaluation.rescoring import rescore
from agent2.records import Split
from agent2.scorers import load_scorer

FIND = {"name": "find", "arguments": {"city": "Oslo"}}
BOOK = {"name": "book", "arguments": {"hotel": "Nord"}}


def openai(*calls, end="Booked."):
    """A trajectory in OpenAI's layout: a call and its result each, then words."""
    messages = [{"role": "user", "content": "A hotel in Oslo"}]
    for number, call in enumerate(calls):
        function = {"name": call["name"], "arguments": json.dumps(call["arguments"])}
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [{"id": f"c{number}", "function": function}]},
            {"role": "tool", "tool_call_id": f"c{number}", "content": f"result {number}"},
        ]
    return [*messages, {"role": "assistant", "content": end}]


def langchain(*calls, as_data=False):
    messages = [{"type": "human", "content": "A hotel in Oslo"}]
    for number, call in enumerate(calls):
        tool_call = {"name": call["name"], "args": call["arguments"], "id": f"c{number}"}
        messages += [
            {"type": "ai", "content": "", "tool_calls": [tool_call]},
            {"type": "tool", "tool_call_id": f"c{number}", "content": f"result {number}"},
        ]
    messages.append({"type": "ai", "content": "Booked."})
    return [{"type": message["type"], "data": message} for message in messages] if as_data else messages


def attribute(key, value):
    kind = "intValue" if isinstance(value, int) else "stringValue"
    return {"key": key, "value": {kind: str(value)}}


def span(start, end, trace="t1", **attributes):
    return {
        "traceId": trace,
        "startTimeUnixNano": str(start * 10**9),
        "endTimeUnixNano": str(end * 10**9),
        "attributes": [attribute(f"gen_ai.{key.replace('__', '.')}", value) for key, value in attributes.items()],
    }


def otlp(*calls):
    """A trace of three model calls; the last one has the whole conversation."""
    parts = [{"role": "user", "parts": [{"type": "text", "content": "A hotel in Oslo"}]}]
    spans = []
    for number, call in enumerate(calls):
        message = {"role": "assistant", "parts": [{"type": "tool_call", "id": f"c{number}", **call}]}
        spans.append(
            span(
                2 * number, 2 * number + 1, input__messages=json.dumps(parts), output__messages=json.dumps([message]),
                usage__input_tokens=10, usage__output_tokens=2, request__model="m-1",
            )
        )  # fmt: skip
        response = {"type": "tool_call_response", "id": f"c{number}", "response": f"result {number}"}
        parts = [*parts, message, {"role": "tool", "parts": [response]}]
        spans.append(span(2 * number + 1, 2 * number + 2, operation__name="execute_tool"))
    reply = [{"role": "assistant", "parts": [{"type": "text", "content": "Booked."}], "finish_reason": "stop"}]
    spans.append(
        span(
            8, 9, input__messages=json.dumps(parts), output__messages=json.dumps(reply), request__model="m-1",
            usage__input_tokens=10, usage__output_tokens=2,
        )
    )  # fmt: skip
    return {"resourceSpans": [{"scopeSpans": [{"spans": spans[::-1]}]}]}


def write(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize(
    "layout", [openai, langchain, lambda *calls: langchain(*calls, as_data=True), otlp], ids=["a", "b", "c", "d"]
)
def test_each_layout_gives_the_same_episode(tmp_path, layout):
    log = read_trajectories(write(tmp_path / "runs.json", layout(FIND, BOOK)))
    (record,) = log.rollouts
    rollout = record.rollout
    assert [message.content for message in rollout.prompt] == ["A hotel in Oslo"]
    assert [
        (call["name"], call["arguments"], call["result"], call["turn"]) for call in rollout.state["tool_calls"]
    ] == [
        ("find", {"city": "Oslo"}, "result 0", 0),
        ("book", {"hotel": "Nord"}, "result 1", 1),
    ]
    assert (len(rollout.turns), rollout.answer, rollout.turns[0].observation) == (3, "Booked.", "result 0")
    assert (record.score.value, record.score.fault, record.score.reason) == (None, Fault.JUDGE, NO_SCORE)


def test_a_trace_has_its_model_its_tokens_and_its_time(tmp_path):
    log = read_trajectories(write(tmp_path / "runs.jsonl", otlp(FIND, BOOK), otlp(FIND)))
    usage = log.rollouts[0].rollout.usage
    assert (log.model, usage.prompt_tokens, usage.completion_tokens, usage.seconds) == ("m-1", 30, 6, 9.0)
    assert [record.rollout.attempt for record in log.rollouts] == [0, 1] and log.attempts == 2


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "holds no trajectory"),
        ("{", "runs.json:1: is not JSON"),
        ("[]", "holds no trajectory"),
        ('{"a": 1}', "neither a trajectory"),
        ('[[{"role": "user", "content": "x"}]]', "trajectory 1: has no message of the model"),
        ('[[{"role": "user", "content": "x"}, 3]]', "a message is an object"),
        ('[{"role": "assistant", "tool_calls": [{"id": "a"}]}]', "a call has no name"),
        ('{"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "t"}]}]}]}', "is not OTLP"),
        ('{"resourceSpans": []}', "holds no trajectory"),
        ('{"messages": [{"role": "assistant", "content": "x"}], "reference": 3}', "reference is a text, or a list"),
    ],
)
def test_what_is_no_trajectory_is_named_with_its_place(tmp_path, text, why):
    path = tmp_path / "runs.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=why):
        read_trajectories(path)


def test_a_reference_in_words_is_the_answer_that_scorers_compare_with(tmp_path):
    def said(answer, reference):
        messages = [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": answer}]
        return json.dumps({"messages": messages, "reference": reference})

    path = tmp_path / "runs.jsonl"
    path.write_text(
        "\n".join([said("4", "4"), said("5", "4"), said("four", ["4", "four"]), said("six", ["4", "four"])])
    )
    write_foreign(read_trajectories(path), tmp_path / "card", Split.DEV)
    rescore(tmp_path / "card", tmp_path / "judged", scorer=load_scorer("exact"))
    assert [record.score.value for record in iter_rollouts(tmp_path / "judged")] == [1.0, 0.0, 1.0, 0.0]


RUNS = {
    "same": [FIND, BOOK],
    "turned": [BOOK, FIND],
    "less": [FIND],
    "more": [FIND, BOOK, BOOK],
    "other": [FIND, {**BOOK, "arguments": {"hotel": "Sud"}}],
}


@pytest.mark.parametrize(
    ("settings", "right"),
    [
        ({}, {"same"}),
        ({"mode": "unordered"}, {"same", "turned"}),
        ({"mode": "superset"}, {"same", "turned", "more"}),
        ({"mode": "subset"}, {"same", "turned", "less"}),
        ({"arguments": False}, {"same", "other"}),
    ],
)
def test_calls_are_held_against_a_reference_without_a_benchmark(tmp_path, settings, right):
    rows = [{"id": name, "messages": openai(*calls), "reference": [FIND, BOOK]} for name, calls in RUNS.items()]
    write_foreign(read_trajectories(write(tmp_path / "runs.jsonl", *rows)), tmp_path / "card", Split.DEV)
    assert validate_card(tmp_path / "card") == []
    assert read_header(tmp_path / "card").protocol.scorer == "unscored"
    scorer = load_scorer("trajectory_match", settings)
    summary = rescore(tmp_path / "card", tmp_path / "new", scorer, settings)
    assert {name for name, value in summary.item_scores.items() if value == 1.0} == right
    labels = {record.rollout.item_id: record.score.labels for record in iter_rollouts(tmp_path / "new")}
    if not settings:
        assert labels == {
            "same": (), "turned": ("call_order",), "less": ("missing_call",), "more": ("extra_call",),
            "other": ("missing_call", "extra_call"),
        }  # fmt: skip


def test_arguments_are_equal_by_value_and_none_may_be_written_as_no_text(tmp_path):
    texts = {"number": '{"a": 5.0}', "null": '{"a": 5, "b": null}', "cut": '{"a": 5', "other": '{"a": 6}', "none": ""}
    rows = []
    for name, text in texts.items():
        messages = openai({"name": "f", "arguments": {}})
        messages[1]["tool_calls"][0]["function"]["arguments"] = text
        reference = {"name": "f", "arguments": {} if name == "none" else {"a": 5}}
        rows.append({"id": name, "messages": messages, "reference": [reference]})
    write_foreign(read_trajectories(write(tmp_path / "runs.jsonl", *rows)), tmp_path / "card", Split.DEV)
    summary = rescore(tmp_path / "card", tmp_path / "new", load_scorer("trajectory_match"))
    assert summary.item_scores == {"number": 1.0, "null": 1.0, "cut": 0.0, "other": 0.0, "none": 1.0}


def test_a_stored_score_is_kept_and_one_outside_the_scale_is_missing(tmp_path):
    rows = [{"id": str(k), "messages": openai(FIND), "score": score} for k, score in enumerate((1, 0.5, 0))]
    summary = write_foreign(read_trajectories(write(tmp_path / "r.jsonl", *rows)), tmp_path / "card", Split.DEV)
    assert summary.score.value == 0.5
    with pytest.raises(ConfigError, match="outside 0 to 1"):
        bad = [{"messages": openai(FIND), "score": 7}]
        write_foreign(read_trajectories(write(tmp_path / "b.jsonl", *bad)), tmp_path / "bad", Split.DEV)


JUDGE = """
from agent2.records import Completion

def careful(messages):
    text = messages[-1].content
    return Completion('{"quote": "result 1", "verdict": %d}' % (10 if "RETURNED 2: result 1" in text else 1))
"""


def test_the_commands_import_and_have_a_judge_read_the_whole_episode(tmp_path, monkeypatch, capsys):
    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["agent2", "cards", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit_info:
            main()
        captured = capsys.readouterr()
        return exit_info.value.code or 0, captured.out, captured.err

    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "judge.py").write_text(JUDGE)
    write(tmp_path / "runs.jsonl", openai(FIND, BOOK), openai(FIND, end="Done: result 1"))
    code, out, err = run("import", "runs.jsonl", "card", "--trajectories", "--split", "dev")
    assert code == 0 and f"missing: 2 x {NO_SCORE}" in out, err
    judge = ("--scorer", "llm_judge", "--settings", "model=scripted:judge.py:careful", "--settings", "transcript=true")
    code, out, err = run("rescore", "card", *judge, "--out", "judged")
    assert code == 0, err
    assert read_summary(tmp_path / "judged").item_scores == {"00000": 1.0, "00001": 0.0}
    assert "+transcript" in read_header(tmp_path / "judged").protocol.scorer
    code, _, err = run("rescore", "card")
    assert code == 2 and "cannot be loaded" in err
    code, _, err = run("import", "runs.jsonl", "other", "--trajectories", "--metric", "x")
    assert code == 2 and "remove --metric" in err


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": "4", "reasoning_content": "5?"},
        {"role": "assistant", "content": "<think>5?</think>4"},
        {"role": "assistant", "parts": [{"type": "reasoning", "content": "5?"}, {"type": "text", "content": "4"}]},
    ],
)
def test_a_thought_is_kept_beside_its_message_in_each_layout(tmp_path, message):
    log = read_trajectories(write(tmp_path / "runs.json", {"messages": [{"role": "user", "content": "2+2"}, message]}))
    (turn,) = log.rollouts[0].rollout.turns
    assert (turn.action, log.rollouts[0].rollout.answer, turn.thought.text) == ("4", "4", "5?")
