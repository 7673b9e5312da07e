"""Benchmarks of ours as environments of verifiers, played by a loop like that of its `MultiTurnEnv`."""

import importlib
import sys

import pytest

import verifiers_fakes
from agent2.benchmarks import load_benchmark
from agent2.errors import ConfigError, Fault
from agent2.records import Score, Split

MODULE = "agent2.evaluation.verifiers_environment"


@pytest.fixture
def module(monkeypatch):
    """The module as it is with verifiers installed."""
    monkeypatch.setitem(sys.modules, "verifiers", verifiers_fakes.as_module())
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    yield importlib.import_module(MODULE)
    sys.modules.pop(MODULE, None)


def test_references_are_rewarded_and_other_words_are_not(module):
    environment = module.load_environment("mini_math", n_items=6)
    assert (len(environment.dataset), len(environment.eval_dataset)) == (6, 6)
    items = {item.prompt: item for item in load_benchmark("mini_math").items(Split.DEV, 6, None)}
    assert {row["prompt"][-1]["content"] for row in environment.eval_dataset} == set(items)
    right = environment.play(lambda chat: items[chat[-1]["content"]].reference)
    assert [state["reward"] for state in right] == [1.0] * 6 and not any(state["error"] for state in right)
    wrong = environment.play(lambda chat: "I do not know.")
    assert [state["reward"] for state in wrong] == [0.0] * 6
    assert all(state[module.VERDICT]["reason"] and state[module.VERDICT]["labels"] for state in wrong)
    assert environment._episodes == {}


def test_a_world_answers_until_it_ends_the_episode(module):
    environment = module.load_environment("household_small", n_items=2)
    limit = load_benchmark("household_small").max_turns
    for state in environment.play(lambda chat: "look"):
        roles = [message["role"] for message in state["chat"][len(state["prompt"]) :]]
        assert roles[:3] == ["assistant", "user", "assistant"] and roles.count("assistant") <= limit
        assert (state["reward"], state["error"], state["final_env_response"]) == (0.0, None, [])


def test_every_rollout_of_an_item_begins_in_the_same_state(module):
    environment = module.load_environment("household_small", n_items=2)
    first, second = (environment.play(lambda chat: "inventory", n_answers=1) for _ in range(2))
    assert [state["chat"] for state in first] == [state["chat"] for state in second]
    assert environment._episodes == {}, "an episode that was cut off is let go"


class Unjudged:
    """A scorer without verdicts."""

    name, version = "unjudged", "1.0"

    def score(self, item, rollout):
        return Score(None, "nobody can say", Fault.JUDGE)


class Broken:
    """A world that breaks after its opening."""

    def __init__(self):
        self._world = load_benchmark("mini_math").environment()

    def reset(self, item, seed):
        return self._world.reset(item, seed)

    def step(self, message):
        raise SystemExit("no world")


class Changed:
    """mini_math with another scorer or world."""

    def __init__(self, **parts):
        self._source, self._parts = load_benchmark("mini_math"), parts

    def __getattr__(self, name):
        return self._parts.get(name) or getattr(self._source, name)


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [({"scorer": Unjudged}, "the verdict is missing: nobody can say"), ({"environment": Broken}, "the episode broke")],
)
def test_what_has_no_verdict_is_an_error_of_the_rollout(module, parts, sentence):
    source = Changed(**parts)
    items = source.items(Split.DEV, 2, None)
    environment = module.BenchmarkEnvironment(source, items, items)
    states = environment.play(lambda chat: "5")
    assert len(states) == 2 and all(sentence in str(state["error"]) for state in states)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"name": "mini_math", "split": "test_private"}, "hidden and a trainer would see its items"),
        ({"name": "mini_math", "eval_split": "test_public"}, "hidden and a trainer would see its items"),
        ({"name": "mini_math", "split": "trian"}, "did you mean 'train'"),
        ({"name": "mini_maths"}, "unknown benchmark 'mini_maths'"),
        ({"name": "mini_shapes"}, "has pictures or compares likelihoods"),
    ],
)
def test_what_cannot_be_an_environment_is_refused_in_one_line(module, arguments, sentence):
    with pytest.raises(ConfigError, match=sentence):
        module.load_environment(**arguments)


def test_texts_are_read_from_mappings_records_and_parts(module):
    class Record:
        content = "a record"

    class Part(dict):
        pass

    parts = [{"type": "text", "text": "two "}, {"type": "image_url"}, Part(type="text", text="parts")]
    assert module._text({"content": "a mapping"}) == "a mapping" and module._text(Record()) == "a record"
    assert module._text({"content": parts}) == "two parts" and module._text({"content": None}) == ""


def test_a_version_without_multi_turn_environments_is_refused(monkeypatch):
    package = verifiers_fakes.as_module()
    del package.MultiTurnEnv
    monkeypatch.setitem(sys.modules, "verifiers", package)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    with pytest.raises(ConfigError, match="has no MultiTurnEnv"):
        importlib.import_module(MODULE)
