"""The assignment kind `tune`: a search for hyperparameters, which the grader plays against results measured before.

The agent hands in two functions. They are called in a sandbox without model and rows, once for each run of a budget,
and told what the recipe reached on a sample of the dev items; the chosen point counts by private items, against the
point that the recipe is set to and the best of the grid, and beside random search and successive halving at the same
budget. Then the grader trains with the chosen point once more, rows in another order. Does NOT know what an agent found
out about such recipes in its own time: unit and window of the step sizes, which it cannot know, are what is hidden.
"""

import json
import time
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path

import numpy as np

from agent2.arena.assignments.programs import PATIENCE, judge_gain, known_run, read_program
from agent2.arena.assignments.records import Bench, Scores
from agent2.arena.assignments.searches import (
    PlayedSearch,
    SearchFailed,
    Shares,
    dev_scores,
    mean_regret,
    play_search,
    random_search,
    successive_halving,
)
from agent2.arena.assignments.tuning_space import AGAIN_SEED, Grid, draw_space, measured_grid, recipe_files
from agent2.arena.evidence import AssignmentPart, AssignmentVerdict
from agent2.records import JsonValue

PLACE = Path("code") / "search"
PROGRAM = "search.py"
ANSWERING = "answer_search.py"
QUESTION = "question.json"
RUNS = 8
"""Budget of a search in whole runs."""
N_SEARCHES = 3
"""Played by the grader, each with a dev sample of its own."""
ENOUGH = 0.8
"""Share of what the grid's best gains over the default with which a search passes, found and trained again."""


class TuneHyperparameters:
    """Gives out a search that stands still, and judges what the agent made of it."""

    def prepare(self, bench: Bench) -> None:
        """Write the search that always takes the default, and the space. Raises ConfigError for a space without one."""
        space = draw_space(bench)
        target = bench.workspace / PLACE
        target.mkdir(parents=True)
        (target / PROGRAM).write_bytes(_own_file(PROGRAM))
        visible = {"axes": space.axes, "default": space.default, "budget": _budget(bench)}
        (target / "space.json").write_text(json.dumps(visible, indent=2) + "\n", encoding="utf-8")

    def judge(self, bench: Bench, scores: Scores) -> AssignmentVerdict:
        """The verdict: what the searches chose, and that choice trained with once more."""
        try:
            files = read_program(bench.workspace, PLACE, PROGRAM)
        except (OSError, ValueError) as error:
            reason = f"the search cannot be played: {error}"
            return _verdict([AssignmentPart(name, 0.0, reason) for name in ("search", "again")], {})
        grid = measured_grid(bench, draw_space(bench))
        searches, default_shares = _play(bench, files, grid)
        figures: dict[str, JsonValue] = {
            "n_points": len(grid.space.points),
            "budget": _budget(bench),
            "noise": scores.noise,
        }
        search = judge_searches(searches, grid, scores.noise, figures)
        compared = compare_regret(searches, grid, _budget(bench), figures)
        again = self._judge_again(bench, scores, searches[0], grid, figures)
        parts = [search, again, compared, describe_overfit(searches, grid, default_shares, figures)]
        return _verdict(parts, figures)

    def _judge_again(
        self, bench: Bench, scores: Scores, search: PlayedSearch, grid: Grid, figures: dict[str, JsonValue]
    ) -> AssignmentPart:
        """Credit for the first search's choice, trained with by the grader; adds to the figures."""
        if search.chosen is None:
            return AssignmentPart("again", 0.0, f"nothing to train with: {search.reason}")
        points, best = grid.space.points, int(np.argmax(grid.private.mean(1)))
        gains: dict[str, float] = {}
        for name, point in (("chosen", points[search.chosen]), ("default", grid.space.default), ("best", points[best])):
            run = known_run(bench, recipe_files([grid.space.real(point)], AGAIN_SEED), f"recipe-{name}")
            assert run.checkpoint is not None
            gains[name] = scores.gain(run.checkpoint, name).change.value
        figures |= {f"{name}_gain": gain for name, gain in gains.items()}
        above = {name: gain - gains["default"] for name, gain in gains.items()}
        return judge_gain("again", "the grid's best over the default", above["chosen"], above["best"], scores.noise)


def _play(bench: Bench, files: Mapping[str, bytes], grid: Grid) -> tuple[list[PlayedSearch], list[float]]:
    """The searches, and what each was told of the default after all rows."""
    allowed_s = bench.spec.run_s * bench.config.threads
    ends_at = time.monotonic() + PATIENCE * bench.spec.run_s
    used_s = 0.0
    program = {**files, ANSWERING: _own_file(ANSWERING)}

    def ask(function: str, space: Mapping[str, JsonValue], history: Sequence[JsonValue]) -> object:
        nonlocal used_s
        if used_s > allowed_s or time.monotonic() > ends_at:
            raise SearchFailed(f"the searches did not end within {allowed_s:.0f} s of processor time")
        question = json.dumps({"function": function, "space": space, "history": list(history)}).encode()
        answer = bench.call({**program, QUESTION: question}, ANSWERING, bench.folder / "search")
        used_s += answer.cpu_s
        if answer.reason:
            raise SearchFailed(f"{function}: {answer.reason}")
        try:
            return json.loads(answer.content)["answer"]
        except (ValueError, RecursionError, TypeError, KeyError):
            raise SearchFailed(f"{function}: what it wrote is not the answer of {PROGRAM}") from None

    searches, default_shares = [], []
    for number in range(N_SEARCHES):
        dev_shares = dev_scores(grid, np.random.default_rng([bench.config.seed, number]))
        searches.append(play_search(ask, grid, dev_shares, _budget(bench)))
        default_shares.append(float(dev_shares[1.0][0]))
    return searches, default_shares


def judge_searches(
    searches: Sequence[PlayedSearch], grid: Grid, noise: float, figures: dict[str, JsonValue]
) -> AssignmentPart:
    """Credit for the mean share of the best point's private gain over the default; adds to the figures.

    noise: half width of the noise band, a share. A search that chose nothing counts as the default.
    """
    private = grid.private.mean(1)
    room = float(private.max() - private[0])
    figures |= {"default": float(private[0]), "best": float(private.max())}
    if room <= noise:
        reason = f"the best point is {100 * room:.1f} points above the default, noise {100 * noise:.1f}: no choice here"
        return AssignmentPart("search", None, reason)
    shares = [_gain_share(search, private, room) for search in searches]
    figures["shares"] = list(shares)
    credit = max(0.0, sum(shares) / len(shares))
    reason = (
        f"{100 * sum(shares) / len(shares):.0f}% of what the grid's best gains over the default "
        f"({100 * room:+.1f} points), by search {', '.join(f'{100 * share:.0f}%' for share in shares)}"
    )
    faults = sorted({search.reason for search in searches if search.reason})
    n_errors, n_repeated = (sum(getattr(search, name) for search in searches) for name in ("n_errors", "n_repeated"))
    faults += [f"{n_errors} proposals were none"] * (n_errors > 0)
    faults += [f"{n_repeated} runs repeated an earlier one"] * (n_repeated > 0)
    return AssignmentPart("search", credit, "; ".join([reason, *faults]))


def _gain_share(search: PlayedSearch, private: Shares, room: float) -> float:
    return 0.0 if search.chosen is None else float(private[search.chosen] - private[0]) / room


def compare_regret(
    searches: Sequence[PlayedSearch], grid: Grid, budget: float, figures: dict[str, JsonValue]
) -> AssignmentPart:
    """Mean regret of the searches beside the known ones, in one sentence; no credit. Adds to the figures."""
    private = grid.private.mean(1)
    regret = float(np.mean([private.max() - private[search.chosen or 0] for search in searches]))
    at_random, halving = (mean_regret(search, grid, budget) for search in (random_search, successive_halving))
    figures |= {"regret": regret, "random_regret": at_random, "halving_regret": halving}
    others = f"random search {100 * at_random:.1f}, successive halving {100 * halving:.1f}"
    return AssignmentPart(
        "regret", None, f"{100 * regret:.1f} points below the grid's best; at the same budget {others}"
    )


def describe_overfit(
    searches: Sequence[PlayedSearch], grid: Grid, default_shares: Sequence[float], figures: dict[str, JsonValue]
) -> AssignmentPart:
    """How much better the choice looked on its dev sample than on private items, beside the default; no credit."""
    private = grid.private.mean(1)
    excess = [
        (search.dev_share - private[search.chosen]) - (default - private[0])
        for search, default in zip(searches, default_shares, strict=True)
        if search.chosen is not None and search.dev_share is not None
    ]
    if not excess:
        return AssignmentPart("overfit", None, "not known: no search chose a point that it had run on all rows")
    overfit = figures["overfit"] = float(np.mean(excess))
    reason = f"the choice gained {100 * overfit:+.1f} points more on the dev sample than on private items"
    return AssignmentPart("overfit", None, f"{reason}; mean of {len(excess)}")


def _budget(bench: Bench) -> float:
    return float(bench.spec.runs or RUNS)


def _own_file(name: str) -> bytes:
    return (resources.files("agent2.arena.assignments") / "tune_program" / f"{name}.txt").read_bytes()


def _verdict(parts: Sequence[AssignmentPart], figures: Mapping[str, JsonValue]) -> AssignmentVerdict:
    """The mean of `search` and `again`; passed with enough of each, and less regret than random search."""
    credits = [part.credit for part in parts[:2]]
    measured = [credit for credit in credits if credit is not None]
    credit = sum(measured) / 2 if len(measured) == 2 else None
    is_enough = len(measured) == 2 and min(measured) >= ENOUGH
    regret, random_regret = figures.get("regret"), figures.get("random_regret")
    is_better = isinstance(regret, float) and isinstance(random_regret, float) and regret <= random_regret
    return AssignmentVerdict("tune", is_enough and is_better, credit, tuple(parts), figures)
