"""Figures that others published: shown beside our leaderboard, labelled as theirs, never pooled with ours.

`read_posttrainbench` imports the tables of the PostTrainBench website (`scores.json` of its repository, beside a folder
`data` with the CSV files that it is made from). The aggregate of an agent is the mean over base models of the weighted
mean over benchmarks, with the published weights. Where several runs exist, the interval is Student's from the published
standard deviation of that aggregate over runs, and ranks come from Welch tests between such agents (Holm over all
pairs); with one run there is no interval and no rank interval. Cells that the publishers filled with the base model's
score, because nothing was stored or the evaluation failed, are counted.

Does NOT verify anything: there are no rollouts behind these numbers.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec

from agent2.errors import ConfigError
from agent2.stats.estimates import Estimate, PairedDifference
from agent2.stats.standings import Place, places

SCORES_FILE = "scores.json"
ROUNDING = 0.02
"""Percentage points by which a published aggregate may differ from that of its cells (both are rounded)."""


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """One published figure."""

    name: str
    score: Estimate
    """0-1; `n` runs; `n_missing` cells that are not the agent's own result. Without an interval for one run."""
    base: float | None
    """The published score of the base model, 0-1; None: not published."""
    runs: str
    """`3 runs`, or `one run`."""
    place: Place | None
    """Among the agents with several runs of the same board; None: one run, or no agent."""
    is_agent: bool
    """False: a reference, such as the base models themselves."""
    note: str = ""


@dataclass(frozen=True, slots=True)
class PublishedBoard:
    """The figures of one source, best first."""

    title: str
    source: str
    rows: Sequence[PublishedRow]
    note: str


REFERENCES: Mapping[str, str] = {
    "base-model": "base models, zero shot",
    "base-model-fewshot": "base models, few shot",
    "human": "instruction-tuned by the models' makers",
}


def is_posttrainbench(folder: Path) -> bool:
    """Whether the folder has the layout that `read_posttrainbench` reads."""
    return (folder / SCORES_FILE).is_file() and not (folder / "trial.json").exists()


def read_posttrainbench(folder: Path) -> PublishedBoard:
    """The board of a folder with PostTrainBench's `scores.json`.

    Raises ConfigError for a file of another layout, weights that do not sum to 1, or a published aggregate that its own
    cells do not give.
    """
    file = folder / SCORES_FILE
    try:
        stored = msgspec.json.decode(file.read_bytes())
        weights = {str(name): float(weight) for name, weight in stored["benchmarkWeights"].items()}
        agents: dict[str, Any] = stored["modelBenchmarkData"]
        aggregates: dict[str, Any] = stored["aggregatedScores"]
        cells = {name: [_cell(cell) for cell in _cells(agent, weights)] for name, agent in agents.items()}
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read ({error.strerror}); pass the folder that contains it") from error
    except (msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(
            f"{file}: is not the scores.json of PostTrainBench ({type(error).__name__}: {error}); take it unchanged "
            "from the website's repository"
        ) from error
    if not math.isclose(sum(weights.values()), 1.0, abs_tol=1e-6):
        raise ConfigError(f"{file}: benchmarkWeights sum to {sum(weights.values()):.6g}, they must sum to 1")
    rows = {
        name: _row(name, found, list(weights.values()), aggregates.get(name), file) for name, found in cells.items()
    }
    base = rows["base-model"].score.value if "base-model" in rows else None
    placed = _welch_places({name: row.score for name, row in rows.items() if row.score.low is not None}, aggregates)
    shown = [
        PublishedRow(row.name, row.score, base, row.runs, placed.get(name), row.is_agent, row.note)
        for name, row in rows.items()
    ]
    n_models = len(next(iter(agents.values()), {}))
    return PublishedBoard(
        title="PostTrainBench, as published",
        source=f"PostTrainBench ({file.name} of its website)",
        rows=tuple(sorted(shown, key=lambda row: -row.score.value)),
        note=f"Mean over {n_models} base models of the weighted mean over {len(weights)} benchmarks.",
    )


def _cells(agent: Mapping[str, Any], weights: Mapping[str, float]) -> list[Any]:
    """Base model by base model, in each the benchmarks in the order of the weights."""
    if not agent:
        raise ValueError("an agent without base models")
    return [scores[benchmark] for scores in agent.values() for benchmark in weights]


def _cell(cell: Any) -> tuple[float, bool]:
    """Score in percent, and whether it is the agent's own."""
    return float(cell["value"]), not cell["fallbackType"]


def _row(
    name: str, cells: Sequence[tuple[float, bool]], weights: Sequence[float], published: Any, file: Path
) -> PublishedRow:
    n_models = len(cells) // len(weights)
    value = math.fsum(cell[0] * weights[at % len(weights)] for at, cell in enumerate(cells)) / n_models
    n_filled = sum(not is_own for _, is_own in cells)
    note = f"{n_filled} of {len(cells)} cells are the base model's score" if n_filled else ""
    is_agent = name not in REFERENCES
    shown = name if is_agent else REFERENCES[name]
    if not published or int(published["n"]) < 2:
        one = Estimate(value / 100, None, None, 1, n_filled, "one run, no interval")
        return PublishedRow(shown, one, None, "one run", None, is_agent, note)
    if abs(float(published["avg"]) - value) > ROUNDING:
        raise ConfigError(
            f"{file}: the published aggregate of {name} is {published['avg']}, its cells give {value:.3f}; the file "
            "was changed or is incomplete: take it unchanged from the website's repository"
        )
    from scipy import stats

    n, std = int(published["n"]), float(published["std"])
    half = float(stats.t.ppf(0.975, n - 1)) * std / math.sqrt(n)
    low, high = (value - half) / 100, (value + half) / 100
    several = Estimate(value / 100, low, high, n, n_filled, f"Student t over {n} runs, published standard deviation")
    return PublishedRow(shown, several, None, f"{n} runs", None, is_agent, note)


def _welch_places(scores: Mapping[str, Estimate], aggregates: Mapping[str, Any]) -> dict[str, Place]:
    """Places of the agents with several runs, from Welch tests of all pairs."""
    from scipy import stats

    names = list(scores)
    pairs = {}
    for (a, one), (b, other) in combinations(enumerate(names), 2):
        sides = [(100 * scores[name].value, float(aggregates[name]["std"]), scores[name].n) for name in (one, other)]
        if not any(std for _, std, _ in sides):
            continue
        p_value = float(stats.ttest_ind_from_stats(*sides[0], *sides[1], equal_var=False).pvalue)
        delta = scores[one].value - scores[other].value
        pairs[a, b] = PairedDifference(Estimate(delta, None, None, min(n for *_, n in sides)), p_value, "runs")
    return dict(zip(names, places(len(names), pairs), strict=True))
