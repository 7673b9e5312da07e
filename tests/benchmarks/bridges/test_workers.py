import ast
import hashlib
import runpy
from importlib import resources

import pytest

from agent2.benchmarks.bridges import BRIDGES
from agent2.benchmarks.bridges.channel import WORKERS

NEUTRAL = {"serve"}
"""Modules that decide nothing about items and verdicts."""


@pytest.fixture
def store_module():
    return runpy.run_path(str(WORKERS / "episode_store.py"))


class Counter:
    """Adds what calls name; words raise."""

    begun = 0

    def __init__(self):
        Counter.begun += 1
        self.total = 0

    def apply(self, move):
        if "words" in move:
            raise ValueError("no words")
        self.total += sum(move["calls"])
        return {"total": self.total}


@pytest.mark.parametrize("bridge", BRIDGES.values(), ids=lambda bridge: bridge.name)
def test_a_bridges_version_covers_every_module_that_its_worker_imports(bridge):
    folder = resources.files("agent2.benchmarks.bridges").joinpath("workers")
    beside = {path.name.removesuffix(".py") for path in folder.iterdir() if path.name.endswith(".py")}
    seen, unread = set(), [bridge.worker]
    while unread:
        module = unread.pop()
        seen.add(module)
        for node in ast.walk(ast.parse(folder.joinpath(f"{module}.py").read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            unread += [name for name in names if name in beside and name not in seen]
    assert seen - {bridge.worker} - NEUTRAL == set(bridge.shared)


def test_an_episode_that_is_kept_carries_out_its_last_move_alone(store_module):
    store = store_module["EpisodeStore"](lambda name, number: Counter(), 2)
    before = Counter.begun
    moves = [{"calls": [2]}, {"calls": [3]}, {"calls": [4]}]
    assert [store.advance("a", "test", 0, moves[:n])["total"] for n in (1, 2, 3)] == [2, 5, 9]
    assert Counter.begun == before + 1
    assert store.take("a", 0, moves).total == 9
    assert store.take("a", 0, moves).total == 9  # taken out, so played again
    assert Counter.begun == before + 2


def test_episodes_that_left_or_broke_are_played_again_with_the_same_answer(store_module):
    store = store_module["EpisodeStore"](lambda name, number: Counter(), 1)
    first, second = [{"calls": [1]}], [{"calls": [1]}, {"calls": [5]}]
    store.advance("a", "test", 0, first)
    store.advance("a", "test", 1, first)  # the only place
    assert store.advance("a", "test", 0, second) == {"total": 6}
    with pytest.raises(ValueError, match="no words"):
        store.advance("a", "test", 0, [*second, {"words": ""}])
    assert store.advance("a", "test", 0, [*second, {"calls": [1]}]) == {"total": 7}
    assert store.advance("b", "test", 0, second) == {"total": 6}


def test_another_item_at_the_same_place_is_refused(store_module):
    require = store_module["require_prompt"]
    require("base", "What?", hashlib.sha256(b"What?").hexdigest())
    with pytest.raises(RuntimeError, match="base gives another item"):
        require("base", "What else?", hashlib.sha256(b"What?").hexdigest())


def test_where_a_package_is_missing_the_worker_says_so(store_module):
    assert store_module["package_folder"]("json").name == "json"
    with pytest.raises(RuntimeError, match="no_such_package is not installed"):
        store_module["package_folder"]("no_such_package")


@pytest.mark.parametrize(
    "arguments",
    [
        {"a": 1, "b_2": ["x"]},
        {"a=fail(), b": 1},
        {"a) or fail(": 1},
        {"**fail()": {}, "class": "'"},
        {"a": "'); fail() #", "": {"')": "\\"}},
    ],
)
def test_a_call_that_bfcl_evaluates_runs_nothing_that_a_model_wrote(monkeypatch, arguments):
    monkeypatch.syspath_prepend(str(WORKERS))
    written = runpy.run_path(str(WORKERS / "bfcl_worker.py"))["_written"]({"name": "call", "arguments": arguments})
    names = {"__builtins__": {}, "call": lambda **received: received, "fail": lambda: pytest.fail("it was run")}
    assert eval(written, names) == arguments
