import json
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest

from agent2.arena.assignments.searches import (
    SearchFailed,
    dev_scores,
    mean_regret,
    play_search,
    random_search,
    successive_halving,
)
from agent2.arena.assignments.tuning_space import Grid, Space
from agent2.records import JsonValue

SPACE = Space({"step_size": (1.0, 2.0, 3.0), "batch_size": (16.0, 64.0)}, 1.0)
QUALITY = np.array([0.2, 0.3, 0.5, 0.8, 0.4, 0.6])
BEST = {"step_size": 2.0, "batch_size": 64.0}


def marks(quality: np.ndarray, n_items: int) -> np.ndarray:
    """Right where an item is easier than the point is good."""
    return (np.arange(n_items) * 0.6180339887 % 1)[None, :] < quality[:, None]


GRID = Grid(SPACE, {0.25: marks(QUALITY / 2, 100), 1.0: marks(QUALITY, 100)}, marks(QUALITY, 300))
TOLD = {share: right.mean(1) for share, right in GRID.dev.items()}


def asked(
    propose: Callable[[Mapping[str, JsonValue], Sequence[JsonValue]], object], choice: object
) -> tuple[Callable[[str, Mapping[str, JsonValue], Sequence[JsonValue]], object], list[JsonValue]]:
    """A program of these answers, and the history that it was shown last."""
    shown: list[JsonValue] = []

    def ask(function: str, space: Mapping[str, JsonValue], history: Sequence[JsonValue]) -> object:
        shown[:] = history
        return propose(space, history) if function == "propose" else choice

    return ask, shown


def test_a_search_is_told_scores_and_its_choice_counts():
    ask, shown = asked(lambda space, history: {"point": SPACE.points[len(history)]}, BEST)
    played = play_search(ask, GRID, TOLD, 4.0)
    assert (played.chosen, played.n_runs, played.n_errors, played.reason) == (3, 4, 0, "")
    assert [run["score"] for run in shown] == pytest.approx(QUALITY[:4], abs=0.02)  # type: ignore[index,call-overload]
    assert played.dev_share == pytest.approx(0.8, abs=0.02)


def test_short_runs_cost_their_share_and_the_budget_ends_the_search():
    ask, shown = asked(lambda space, history: {"point": BEST, "share": 0.25}, BEST)
    played = play_search(ask, GRID, TOLD, 2.0)
    assert (played.n_runs, played.n_repeated, played.dev_share) == (8, 7, None)
    too_much, shown = asked(lambda space, history: {"point": BEST, "share": 1.0 if history else 0.25}, BEST)
    assert play_search(too_much, GRID, TOLD, 1.0).n_errors == 1
    assert "0.75 is left" in str(shown[-1])


@pytest.mark.parametrize(
    "proposal",
    [
        {"point": {"step_size": 9.0, "batch_size": 16.0}},
        {"point": {"step_size": math.nan, "batch_size": 16.0}},
        {"point": {"step_size": math.inf, "batch_size": 16.0}},
        {"point": {"step_size": 10**400, "batch_size": 16.0}},
        {"point": {"step_size": "1.0", "batch_size": 16.0}},
        {"point": {"step_size": True, "batch_size": 16.0}},
        {"point": {"step_size": [1.0], "batch_size": 16.0}},
        {"point": {"step_size": 1.0}},
        {"point": {"step_size": 1.0, "batch_size": 16.0, "secret": 1}},
        {"point": BEST, "share": 0.01},
        {"point": BEST, "share": math.nan},
        {"point": BEST, "share": [1.0]},
        {"point": BEST, "share": True},
        {"point": BEST, "score": 1.0},
        {"point": 3},
        BEST,
        [],
        "best",
        7,
    ],
)
def test_a_proposal_that_is_none_costs_a_run_and_its_fault_is_told(proposal: object):
    ask, shown = asked(lambda space, history: proposal, BEST)
    played = play_search(ask, GRID, TOLD, 3.0)
    assert (played.n_runs, played.n_errors, played.chosen) == (3, 3, 3)
    assert all(set(run) == {"error", "share"} for run in shown)  # type: ignore[arg-type]
    json.dumps(shown)


@pytest.mark.parametrize("choice", [None, "best", {"step_size": 9.0, "batch_size": 16.0}, {"step_size": math.nan}, 3])
def test_a_choice_outside_the_space_is_none(choice: object):
    ask, _ = asked(lambda space, history: None, choice)
    played = play_search(ask, GRID, TOLD, 3.0)
    assert played.chosen is None and played.reason.startswith("choose: ")


def test_a_program_that_does_not_answer_has_chosen_nothing():
    def ask(function: str, space: Mapping[str, JsonValue], history: Sequence[JsonValue]) -> object:
        raise SearchFailed("propose: it did not end within 60 s")

    assert play_search(ask, GRID, TOLD, 3.0).reason == "propose: it did not end within 60 s"


def test_searches_see_other_samples_of_dev_items_and_never_a_private_one():
    first, second = (dev_scores(GRID, np.random.default_rng(seed)) for seed in (0, 1))
    assert (first[1.0] != second[1.0]).any()
    blind = Grid(SPACE, GRID.dev, np.zeros((6, 300), bool))
    assert (dev_scores(blind, np.random.default_rng(0))[1.0] == first[1.0]).all()


def test_known_searches_have_the_regret_that_counting_gives():
    # two of six points without replacement: the mean of the better one's regret over the fifteen pairs
    pairs = [max(QUALITY[i], QUALITY[j]) for i in range(6) for j in range(i)]
    assert mean_regret(random_search, GRID, 2.0) == pytest.approx(0.8 - np.mean(pairs), abs=0.03)
    assert mean_regret(random_search, GRID, 6.0) == pytest.approx(0.0, abs=1e-9)
    # all six on short runs, then the best of them
    assert mean_regret(successive_halving, GRID, 4.0) == pytest.approx(0.0, abs=1e-9)
    assert mean_regret(random_search, GRID, 4.0) > 0.0
