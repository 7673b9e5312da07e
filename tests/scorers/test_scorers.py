"""Every scorer says what it may emit, and emits nothing else."""

import importlib

import numpy as np
import pytest

from agent2.benchmarks import load_benchmark
from agent2.benchmarks.home import reference_answer
from agent2.benchmarks.mini import apis, repo
from agent2.benchmarks.mini.repo import MiniRepo
from agent2.environments.tools.toolboxes import DANGERS
from agent2.environments.tools.world import FaultSettings, WorldSettings
from agent2.records import DANGER_PREFIX, ScorerOutput, Split, declared_output
from agent2.scorers import SCORERS, declared
from agent2.scorers.household import HouseholdScorer
from household_builders import household_item, lost_rollout
from tool_builders import ALL, ToolRules, call_text, play_with, random_call

RNG = np.random.default_rng(0)
DESTRUCTIVE = (
    ("delete", {"file": "tests.calc"}),
    ("edit", {"file": "ci.yml", "line": 1, "text": "exit 0"}),
    ("edit", {"file": "tests.calc", "line": 1, "text": "area(1,1)=1"}),
    ("test", {"skip": "area"}),
    ("grant", {"permission": "all"}),
)


def destructive(item, messages):
    place = len(messages) // 2
    return call_text(*DESTRUCTIVE[place]) if place < len(DESTRUCTIVE) else call_text("submit")


def babbler(item, messages):
    """Calls that are malformed, unknown, unfit or repeated, and words."""
    kinds = ['{"name": "read"', call_text("fly"), call_text("read", {"file": "nowhere"}), "done", call_text("list")]
    return str(RNG.choice(kinds))


PLAYERS = {
    "mini_repo": [
        destructive,
        babbler,
        lambda item, messages: repo.oracle(item, messages),
        lambda item, messages: repo.random_player(item, messages, RNG),
        lambda item, messages: repo.mistaken_action(item, messages, RNG),
    ],
    "mini_functions": [
        babbler,
        reference_answer,
        lambda item, messages: random_call(item, RNG),
    ],
    "mini_apis": [
        babbler,
        apis.oracle,
        lambda item, messages: apis.random_player(item, messages, RNG),
        lambda item, messages: apis.mistaken_action(item, messages),
    ],
    "mini_knowledge": [reference_answer, lambda item, messages: "The answer is (B)."],
    "mini_math": [lambda item, messages: "#### 1", lambda item, messages: "1"],
    "mini_ifeval": [lambda item, messages: "", lambda item, messages: "a, b. THE c! *x* 1"],
}


def undeclared(scores, emits):
    views = {view for score in scores for view in score.views} - emits.views
    return views | ({label for score in scores for label in score.labels} - emits.labels)


@pytest.mark.parametrize("name", PLAYERS)
def test_whatever_is_played_nothing_undeclared_is_emitted(name):
    benchmark = load_benchmark(name)
    items = benchmark.items(Split.DEV, 40, None)
    scores = [record.score for player in PLAYERS[name] for record in play_with(benchmark, items, player)]
    emits = declared_output(benchmark.scorer())
    assert undeclared(scores, emits) == set()
    assert emits.views == {view for score in scores for view in score.views} | {
        view for view in emits.views if view.startswith("chose_")
    }, "a declared view that no rollout has is a phantom"


def test_every_dangerous_action_of_the_repository_is_declared_and_happens():
    class Open(MiniRepo):
        max_turns = 9

    benchmark = Open(WorldSettings(ToolRules(ALL), FaultSettings()))
    scores = [record.score for record in play_with(benchmark, benchmark.items(Split.DEV, 5, None), destructive)]
    emitted = {label for score in scores for label in score.labels if label.startswith("safety_")}
    declared_dangers = {
        label for label in declared_output(benchmark.scorer()).labels if label.startswith(DANGER_PREFIX)
    }
    assert emitted == declared_dangers == {f"{DANGER_PREFIX}{kind}" for kind in DANGERS}


@pytest.mark.engine
def test_lost_and_won_household_games_emit_what_is_declared():
    item = household_item()
    scores = [
        HouseholdScorer().score(item, lost_rollout("a", "b", "b", "b", n_invalid=3, n_faults=1)),
        HouseholdScorer().score(item, lost_rollout("look", won=True)),
    ]
    assert undeclared(scores, HouseholdScorer.emits) == set()
    assert {view for score in scores for view in score.views} == HouseholdScorer.emits.views


@pytest.mark.parametrize("name", SCORERS)
def test_the_table_names_scorers_that_declare(name):
    module, _, attribute = SCORERS[name].partition(":")
    scorer = getattr(importlib.import_module(module), attribute)
    assert scorer.name == name
    assert declared(f"{name}-v{scorer.version}") == declared(name) == scorer.emits


def test_a_foreign_scorer_declares_nothing():
    assert declared("somebody_elses-v1.0") is None
    assert declared_output(object()) is None
    assert (ScorerOutput(frozenset("a")) | ScorerOutput(frozenset("b"), frozenset("c"))) == ScorerOutput(
        frozenset("ab"), frozenset("c")
    )
