"""Benchmarks of ours as tasks of Inspect, played by its own loop with its mock model."""

import math

import pytest

from agent2.benchmarks import load_benchmark
from agent2.errors import ConfigError, Fault
from agent2.records import Score, Split

inspect_ai = pytest.importorskip("inspect_ai")
from inspect_ai.model import ModelOutput, ModelUsage, get_model  # noqa: E402 - only with the extra

from agent2.evaluation.inspect_task import VERDICT, benchmark, play_episode  # noqa: E402


def run(tmp_path, task, reply):
    """The log of a task whose model answers by a function of the chat."""

    def answer(messages, tools, tool_choice, config):
        output = ModelOutput.from_content("mockllm/model", reply(messages))
        output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)  # else it counts with a tokenizer
        return output

    (log,) = inspect_ai.eval(
        task,
        model=get_model("mockllm/model", custom_outputs=answer),
        log_dir=str(tmp_path / "logs"),
        display="none",
        log_format="json",
    )
    return log


def mean_of(log):
    return log.results.scores[0].metrics["mean"].value


def test_references_score_one_and_other_words_nothing_by_our_scorer(tmp_path):
    items = load_benchmark("mini_math").items(Split.DEV, 8, None)
    references = {item.prompt: item.reference for item in items}
    log = run(tmp_path, benchmark("mini_math", n_items=8), lambda messages: references[messages[-1].text])
    assert (log.status, mean_of(log)) == ("success", 1.0)
    assert {sample.id for sample in log.samples} == {item.id for item in items}
    assert log.eval.metadata["scorer"].startswith(load_benchmark("mini_math").scorer().name)
    verdict = log.samples[0].scores["our_verdict"]
    assert verdict.explanation and verdict.metadata["labels"] == []
    wrong = run(tmp_path, benchmark("mini_math", n_items=8), lambda messages: "I do not know.")
    assert mean_of(wrong) == 0.0 and wrong.samples[0].scores["our_verdict"].metadata["labels"]


def test_a_world_answers_until_it_ends_the_episode(tmp_path):
    log = run(tmp_path, benchmark("household_small", n_items=2), lambda messages: "look")
    turns = [message.role for message in log.samples[0].messages if message.role != "system"]
    assert log.status == "success" and mean_of(log) == 0.0
    assert turns[:4] == ["user", "assistant", "user", "assistant"]
    assert turns.count("assistant") <= load_benchmark("household_small").max_turns


class Unjudged:
    """A scorer without verdicts."""

    name, version = "unjudged", "1.0"

    def score(self, item, rollout):
        return Score(None, "nobody can say", Fault.JUDGE)


class Broken:
    """A world that cannot be begun."""

    def reset(self, item, seed):
        raise SystemExit("no world")


class Changed:
    """mini_math with another scorer or world."""

    def __init__(self, **parts):
        self._source, self._parts = load_benchmark("mini_math"), parts

    def __getattr__(self, name):
        return self._parts.get(name) or getattr(self._source, name)


def task_of(source):
    items = source.items(Split.DEV, 2, None)
    task = benchmark("mini_math", n_items=2)
    task.solver = play_episode(source, items)
    return task


def test_a_missing_verdict_is_unscored_and_no_zero(tmp_path):
    log = run(tmp_path, task_of(Changed(scorer=Unjudged)), lambda messages: "5")
    assert log.status == "success" and log.results.scores[0].unscored_samples == 2
    assert math.isnan(log.samples[0].scores["our_verdict"].value)
    assert log.samples[0].metadata[VERDICT]["fault"] == "judge"


def test_a_world_that_breaks_is_an_error_of_the_sample(tmp_path):
    log = run(tmp_path, task_of(Changed(environment=Broken)), lambda messages: "5")
    assert log.status == "error" and "the episode broke" in log.error.message


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"name": "mini_math", "split": "test_private"}, "hidden and Inspect would log its items"),
        ({"name": "mini_math", "split": "devv"}, "did you mean 'dev'"),
        ({"name": "mini_maths"}, "unknown benchmark 'mini_maths'"),
        ({"name": "mini_shapes"}, "has pictures or compares likelihoods"),
    ],
)
def test_what_cannot_be_a_task_is_refused_in_one_line(arguments, sentence):
    with pytest.raises(ConfigError, match=sentence):
        benchmark(**arguments)
