import copy
import json
import math
import sys

import pytest

from agent2.cards.imports.foreign_log import write_foreign
from agent2.cards.imports.formats import read_log
from agent2.cards.imports.source import LogChoice
from agent2.cards.reader import iter_rollouts, read_header, validate_card
from agent2.errors import CardError, ConfigError, Fault
from agent2.records import RolloutStatus, Split, StopReason
from agent2.scorers.process.statistics import process_of


def read_inspect(path, metric=None):
    return read_log(path, LogChoice(metric), "inspect")


def sample(name, epoch, text, verdict, **changes):
    """As inspect-ai 0.3.285 writes it, without events."""
    messages = [
        {"id": "m1", "role": "user", "content": "2+2?", "source": "input"},
        {"id": "m2", "role": "assistant", "content": text, "source": "generate", "model": "mockllm/model"},
    ]
    standard = {
        "id": name,
        "epoch": epoch,
        "input": "2+2?",
        "target": "4",
        "messages": messages,
        "output": {"choices": [{"message": messages[1], "stop_reason": "stop"}], "completion": text},
        "scores": {
            "match": {"value": verdict, "answer": text, "explanation": text, "history": []},
            "f1": {"value": 0.25, "history": []},
        },
        "model_usage": {"mockllm/model": {"input_tokens": 8, "output_tokens": 3, "total_tokens": 11}},
        "total_time": 0.5,
    }
    return standard | changes


LOG = {
    "version": 2,
    "status": "success",
    "eval": {
        "task": "sums",
        "task_version": 3,
        "model": "mockllm/model",
        "created": "2026-11-21T01:22:54+00:00",
        "packages": {"inspect_ai": "0.3.285"},
        "model_generate_config": {"temperature": 0.7, "max_tokens": 64},
    },
    "plan": {"steps": [{"solver": "generate", "params": {}}]},
    "samples": [sample("a", 1, "4", "C"), sample("a", 2, "5", "I"), sample("b", 1, "four", "P")],
}


def write(tmp_path, log):
    path = tmp_path / "log.json"
    path.write_text(json.dumps(log))
    return path


def test_a_log_becomes_a_card_with_the_same_number(tmp_path):
    log = read_inspect(write(tmp_path, LOG))
    summary = write_foreign(log, tmp_path / "card", Split.TEST_PUBLIC)
    assert summary.score.value == pytest.approx((0.5 + 0.5) / 2)  # a: mean of two epochs, b: partial
    assert summary.n_rollouts == 3 and summary.tokens == 33 and summary.n_missing == 0
    assert validate_card(tmp_path / "card") == []
    header = read_header(tmp_path / "card")
    assert header.checkpoint_name == "mockllm/model" and header.protocol.benchmark == "sums-v3"
    assert header.protocol.environment == "inspect-ai 0.3.285" and header.protocol.scorer == "match"
    assert header.protocol.sampling.temperature == 0.7 and header.protocol.attempts == 2
    first = next(iter(iter_rollouts(tmp_path / "card")))
    assert first.rollout.turns[0].action == "4" and first.score.views == {"f1": 0.25}


def test_another_scorer_can_count_and_an_unknown_one_is_named(tmp_path):
    path = write(tmp_path, LOG)
    assert [record.score.value for record in read_inspect(path, "f1").rollouts] == [0.25] * 3
    with pytest.raises(ConfigError, match="did you mean 'match'"):
        read_inspect(path, "mach")


def test_a_sample_that_ended_with_an_error_is_missing_not_zero(tmp_path):
    broken = sample("c", 1, "", "I", error={"message": "ConnectionError('x')\nmore", "traceback": ""}, scores={})
    log = copy.deepcopy(LOG)
    log["samples"].append(broken)
    record = read_inspect(write(tmp_path, log)).rollouts[-1]
    assert record.score.value is None and record.score.fault is Fault.INFRASTRUCTURE
    assert record.rollout.status is RolloutStatus.FAILED and record.rollout.reason == "ConnectionError('x')"


def test_limits_and_cut_answers_are_kept_apart(tmp_path):
    capped = sample("c", 1, "x", "I", limit={"type": "message", "limit": 4})
    slow = sample("d", 1, "x", "I", limit={"type": "time", "limit": 60})
    spent = sample("f", 1, "x", "I", limit={"type": "token", "limit": 900})
    cut = sample("e", 1, "x", "I")
    cut["output"]["choices"][0]["stop_reason"] = "max_tokens"
    records = read_inspect(write(tmp_path, LOG | {"samples": [capped, slow, cut, spent]})).rollouts
    assert [r.rollout.status for r in records] == [
        RolloutStatus.TURN_CAP,
        RolloutStatus.TIME_CAP,
        RolloutStatus.COMPLETED,
        RolloutStatus.TOKEN_CAP,
    ]
    assert records[2].rollout.turns[-1].stop_reason is StopReason.LENGTH


def test_tool_calls_and_their_results_become_turns(tmp_path):
    messages = [
        {"role": "system", "content": "be brief"},
        {
            "role": "user",
            "content": [{"type": "text", "text": "hi"}, {"type": "image", "image": "x"}],
            "source": "input",
        },
        {"role": "assistant", "content": "", "tool_calls": [{"function": "bash", "arguments": {"cmd": "ls"}}]},
        {"role": "tool", "content": "a.txt", "error": {"type": "timeout", "message": "slow"}},
        {"role": "assistant", "content": "done", "source": "generate"},
    ]
    rollout = (
        read_inspect(write(tmp_path, LOG | {"samples": [sample("a", 1, "done", "C", messages=messages)]}))
        .rollouts[0]
        .rollout
    )
    assert [message.content for message in rollout.prompt] == ["be brief", "hi\n[image]"]
    assert '"tool": "bash"' in rollout.turns[0].action
    assert rollout.turns[0].observation == "error: timeout: slow\na.txt"
    assert process_of(rollout).errors == {"timeout": 1}
    assert rollout.turns[1].action == "done" and rollout.turns[1].observation is None


def test_a_temperature_that_the_log_does_not_state_is_listed_as_assumed(tmp_path):
    log = copy.deepcopy(LOG)
    log["eval"]["model_generate_config"] = {}
    write_foreign(read_inspect(write(tmp_path, log)), tmp_path / "card", Split.DEV)
    assert any("temperature" in line for line in read_header(tmp_path / "card").lock["assumed"])


def test_other_generation_settings_are_another_protocol(tmp_path):
    changed_log = copy.deepcopy(LOG)
    changed_log["eval"]["model_generate_config"]["seed"] = 7
    for name, log in (("one", LOG), ("two", changed_log)):
        write_foreign(read_inspect(write(tmp_path, log)), tmp_path / name, Split.DEV)
    assert read_header(tmp_path / "one").protocol.digest != read_header(tmp_path / "two").protocol.digest


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("{}", "no `eval` part"),
        ('{"eval": {"packages": {}}, "samples": []}', "contains no samples"),
    ],
)
def test_a_file_that_is_no_log_is_refused(tmp_path, text, message):
    path = tmp_path / "log.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_inspect(path)


def test_a_metric_outside_0_to_1_is_no_score(tmp_path):
    """One odd row is a missing score that says so; a metric of another scale is refused with rows that show it."""
    samples = [sample(f"s{n}", 1, "4", "C") for n in range(19)]
    log = read_inspect(write(tmp_path, LOG | {"samples": [*samples, sample("odd", 1, "4", 37)]}))
    summary = write_foreign(log, tmp_path / "card", Split.DEV)
    assert (summary.score.value, summary.n_missing) == (1.0, 1)
    (lost,) = [record for record in log.rollouts if record.score.value is None]
    assert (lost.rollout.item_id, lost.score.reason) == ("odd", "match is 37, outside 0 to 1")
    samples = [sample(f"s{n}", 1, "4", n) for n in range(10)]
    with pytest.raises(ConfigError, match=r"8 of 10 scores are outside 0 to 1 \(s2: match is 2, outside 0 to 1; s3: "):
        write_foreign(read_inspect(write(tmp_path, LOG | {"samples": samples})), tmp_path / "other", Split.DEV)


def test_the_zipped_form_needs_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "inspect_ai", None)
    monkeypatch.setitem(sys.modules, "inspect_ai.log", None)
    with pytest.raises(ConfigError, match=r"install the extra inspect: .*convert the file"):
        read_inspect(tmp_path / "log.eval")


def test_a_folder_with_a_card_is_not_written_again(tmp_path):
    log = read_inspect(write(tmp_path, LOG))
    write_foreign(log, tmp_path / "card", Split.DEV)
    with pytest.raises(CardError, match="contains a card already"):
        write_foreign(log, tmp_path / "card", Split.DEV)


def graded(name, value):
    return sample(name, 1, "4", "C", scores={"grader": {"value": value}})


@pytest.mark.parametrize(
    ("logged", "value"),
    [("yes", 1), ("True", 1), ("NO", 0), ("false", 0), ("0.7", 0.7), ("1e-1", 0.1), (True, 1), ("P", 0.5), ("N", 0)],
)
def test_a_verdict_in_words_reads_as_inspect_reads_it(tmp_path, logged, value):
    (record,) = read_inspect(write(tmp_path, LOG | {"samples": [graded("a", logged)]})).rollouts
    assert record.score.value == value


@pytest.mark.parametrize(
    ("logged", "reason"),
    [
        (math.nan, "grader is nan, not a number"),
        (math.inf, "grader is inf"),
        ("nan", "'nan'"),
        ("maybe", "'maybe'"),
        (None, "None"),
        ([1, 0], "a list of 2"),
    ],
)
def test_a_score_that_is_no_number_is_missing_and_the_others_stay(tmp_path, logged, reason):
    log = read_inspect(write(tmp_path, LOG | {"samples": [graded("a", "C"), graded("b", logged)]}))
    summary = write_foreign(log, tmp_path / "card", Split.DEV)
    assert (summary.score.value, summary.n_missing) == (1.0, 1)
    broken = log.rollouts[1].score
    assert broken.value is None and broken.fault is Fault.JUDGE and reason in broken.reason


def test_a_scorer_of_several_measures_is_imported_by_key(tmp_path):
    values = [{"exact": "C", "f1": 0.5}, {"exact": "I", "f1": math.nan}, math.nan]
    path = write(tmp_path, LOG | {"samples": [graded(name, value) for name, value in zip("abc", values, strict=True)]})
    with pytest.raises(ConfigError, match=r"several measures.*--metric: grader/exact, grader/f1"):
        read_inspect(path)
    with pytest.raises(ConfigError, match="did you mean 'grader/f1'"):
        read_inspect(path, "grader/f2")
    exact = [record.score for record in read_inspect(path, "grader/exact").rollouts]
    assert [score.value for score in exact] == [1, 0, None]
    assert [dict(score.views) for score in exact] == [{"grader/f1": 0.5}, {"grader/f1": None}, {"grader": None}]
    assert exact[2].reason == "grader is nan without grader/exact"
    assert [record.score.value for record in read_inspect(path, "grader/f1").rollouts] == [0.5, None, None]


def test_a_scorer_with_one_key_needs_no_choice(tmp_path):
    path = write(tmp_path, LOG | {"samples": [graded("a", {"exact": True})]})
    assert [read_inspect(path, name).rollouts[0].score.value for name in (None, "grader", "grader/exact")] == [1] * 3


def test_a_log_that_nobody_scored_is_read_with_all_scores_missing(tmp_path):
    stated = {"scores": [{"name": "includes", "scorer": "includes", "metrics": {}}]}
    log = read_inspect(write(tmp_path, LOG | {"results": stated, "samples": [sample("a", 1, "4", "C", scores={})]}))
    summary = write_foreign(log, tmp_path / "card", Split.DEV)
    assert (log.scorer, summary.score, summary.n_missing) == ("includes", None, 1)


def test_the_one_score_of_an_old_log_is_read(tmp_path):
    old = sample("a", 1, "4", "C", score={"value": "C"})
    del old["scores"]
    assert read_inspect(write(tmp_path, LOG | {"samples": [old]})).rollouts[0].score.value == 1


def test_a_thought_is_kept_beside_its_message_in_each_layout(tmp_path):
    parts = [{"type": "reasoning", "reasoning": "5?"}, {"type": "text", "text": "4"}]
    logged = sample("a", 1, "4", "C")
    logged["messages"][1]["content"] = parts
    log = {**LOG, "samples": [logged, sample("b", 1, "<think>5?</think>4", "C")]}
    for record in read_inspect(write(tmp_path, log)).rollouts:
        (turn,) = record.rollout.turns
        assert (turn.action, record.rollout.answer, turn.thought.text) == ("4", "4", "5?")
        assert record.score.value == 1.0


@pytest.mark.parametrize("status", ["cancelled", "error", "started"])
def test_samples_that_a_run_did_not_come_to_are_missing(tmp_path, status):
    spec = {**LOG["eval"], "dataset": {"sample_ids": ["a", "b"]}, "config": {"epochs": 2}}
    log = {**LOG, "status": status, "eval": spec, "samples": [graded("a", "C")]}
    read_back = read_inspect(write(tmp_path, log))
    assert [record.score.value for record in read_back.rollouts] == [1, None, None, None]
    assert read_back.rollouts[-1].score.reason == f"the run ended as '{status}' before this sample"
    assert write_foreign(read_back, tmp_path / "card", Split.DEV).n_missing == 3
    log["status"] = "success"
    assert len(read_inspect(write(tmp_path, log)).rollouts) == 1


def test_a_sample_that_was_invalidated_is_missing(tmp_path):
    taken_back = {**graded("b", "C"), "invalidation": {"author": "me", "reason": "wrong sandbox"}}
    log = read_inspect(write(tmp_path, {**LOG, "invalidated": True, "samples": [graded("a", "C"), taken_back]}))
    assert [record.score.value for record in log.rollouts] == [1, None]
    assert "wrong sandbox" in log.rollouts[1].score.reason and log.lock["invalidated"]
