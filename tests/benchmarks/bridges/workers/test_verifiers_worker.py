"""The worker of the bridge to verifiers, with a stand-in for the package."""

import asyncio
import contextlib
import hashlib
import logging
import runpy
import sys
from types import ModuleType, SimpleNamespace

import pytest

from agent2.benchmarks.bridges.channel import WORKERS

ENVIRONMENT = """
import verifiers as vf

def right(completion, answer, **kwargs):
    return float(completion[-1]["content"] == answer)

def short(completion, **kwargs):
    return float(len(completion[-1]["content"]) < 9)

def picky(completion, **kwargs):
    return 1 / len(completion[-1]["content"])

def together(states):
    return [0.0] * len(states)

def rows(start, n):
    return [{"prompt": f"{number} + 1?", "answer": str(number + 1)} for number in range(start, start + n)]

def load_environment():
    return vf.SingleTurnEnv(rows(0, 3), rubric=vf.Rubric([right, picky], [1.0, 0.1]))

def watched():
    return vf.SingleTurnEnv(rows(0, 3), rubric=vf.Rubric([right, picky], [1.0, 0.0]))

def weighted():
    return vf.SingleTurnEnv(rows(0, 3), rows(9, 2), vf.Group([vf.Rubric([right]), vf.Rubric([short])]))

def grouped():
    return vf.SingleTurnEnv(rows(0, 3), rubric=vf.Rubric([together]))

def tooled():
    return vf.SingleTurnEnv(rows(0, 3), rubric=vf.Rubric([right]), oai_tools=[{"name": "add"}])

def long():
    return vf.MultiTurnEnv(rows(0, 3), rubric=vf.Rubric([right]))
"""


class Rubric:
    """Rewards as the package calls them: what they raise is logged and counts as nothing."""

    def __init__(self, funcs, weights=None):
        self.funcs, self.weights = funcs, weights or [1.0] * len(funcs)

    def _get_group_reward_funcs(self):
        return [func for func in self.funcs if func.__name__ == "together"]

    async def score_rollout(self, state, score_sem):
        state["reward"] = 0.0
        async with score_sem:
            for func, weight in zip(self.funcs, self.weights, strict=True):
                try:
                    state["reward"] += weight * func(**state)
                except ZeroDivisionError as error:
                    logging.getLogger("verifiers.rubrics").error(f"Error calling {func.__name__}: {error}")


class Group:
    """Several rubrics, whose rewards are added."""

    def __init__(self, rubrics):
        self.rubrics = rubrics

    async def score_rollout(self, state, score_sem):
        total = 0.0
        for rubric in self.rubrics:
            await rubric.score_rollout(state, score_sem)
            total += state["reward"]
        state["reward"] = total


class MultiTurnEnv:
    """Rows and a rubric."""

    def __init__(self, dataset, eval_dataset=None, rubric=None, oai_tools=None):
        self.dataset, self.eval_dataset, self.rubric, self.oai_tools = dataset, eval_dataset, rubric, oai_tools
        self.message_type, self.sampling_args = "chat", {"max_tokens": 7}
        self.parser = SimpleNamespace(parse_answer=lambda completion: completion[-1]["content"])

    async def init_state(self, row, client, model):
        await asyncio.sleep(0)
        return dict(row)


class SingleTurnEnv(MultiTurnEnv):
    """Asks once."""


@pytest.fixture
def worker(tmp_path, monkeypatch):
    package = ModuleType("verifiers")
    for kind in (Rubric, Group, MultiTurnEnv, SingleTurnEnv):
        setattr(package, kind.__name__, kind)
    monkeypatch.setitem(sys.modules, "verifiers", package)
    (tmp_path / "sums.py").write_text(ENVIRONMENT)
    monkeypatch.setattr(sys, "argv", ["serve.py", "verifiers_worker", str(tmp_path)])
    monkeypatch.setattr(sys, "path", list(sys.path))
    with contextlib.chdir(tmp_path):
        yield runpy.run_path(str(WORKERS / "verifiers_worker.py"))


def reward(worker, name, number, message, prompt=None):
    question = worker["items"](name, "test", 0)[number]["prompt"] if prompt is None else prompt
    return worker["score"](name, "test", number, hashlib.sha256(question.encode()).hexdigest(), message)


def test_rows_are_items_and_the_rubric_judges(worker):
    opened = worker["open_set"]("sums.py")
    assert (opened["max_tokens"], opened["portions"]) == (7, {"test": 3, "train": 0})
    first = worker["items"]("sums.py", "test", 0)[0]
    assert first == {"prompt": "0 + 1?", "reference": "1", "messages": [{"role": "user", "content": "0 + 1?"}]}
    assert reward(worker, "sums.py", 0, "1") == {"value": 1.0, "extracted": "1"}
    assert reward(worker, "sums.py", 0, "2") == {"value": pytest.approx(0.1 / 1.1), "extracted": "2"}
    with pytest.raises(RuntimeError, match="gives another item"):
        reward(worker, "sums.py", 0, "1", prompt="8 + 1?")


def test_a_reward_that_raises_is_an_error_and_no_wrong_answer(worker):
    with pytest.raises(ValueError, match="division by zero"):
        reward(worker, "sums.py", 0, "")
    assert reward(worker, "sums.py", 0, "1")["value"] == 1.0
    assert reward(worker, "sums.py@watched", 0, "") == {"value": 0.0, "extracted": None}


def test_the_evaluation_set_is_what_counts_and_several_rewards_add_up_to_one(worker):
    assert worker["open_set"]("sums.py@weighted")["portions"] == {"test": 2, "train": 3}
    assert [reward(worker, "sums.py@weighted", 0, text)["value"] for text in ("10", "no", "no, never")] == [1.0, 0.5, 0]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("sums.py@grouped", "compares a group of answers"),
        ("sums.py@tooled", "gives the model tools"),
        ("sums.py@long", "is a MultiTurnEnv"),
        ("sums.py@none", "defines no function none"),
    ],
)
def test_what_a_bridge_does_not_play_is_refused(worker, name, reason):
    with pytest.raises(ValueError, match=reason):
        worker["open_set"](name)
