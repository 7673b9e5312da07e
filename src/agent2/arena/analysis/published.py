"""Published figures of other sources: shown beside our leaderboard, labelled as theirs, never pooled with ours.

`read_published` imports a `published.yaml` (`PublishedFile`) with figures copied from a paper, or the tables of the
PostTrainBench website (`scores.json` of its repository). PostTrainBench's aggregate of an agent is the mean over base
models of the weighted mean over benchmarks, with the published weights. Where several runs exist, the interval is
Student's from the published standard deviation over runs, and ranks come from Welch tests between such rows (Holm over
all pairs); with one run there is no interval and no rank interval. Cells that the publishers filled with the base
model's score, because nothing was stored or the evaluation failed, are counted.

Does NOT verify anything: there are no rollouts behind these numbers.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec
from pydantic import Field

from agent2.benchmarks import task_files
from agent2.config import StrictModel, parse_yaml
from agent2.errors import ConfigError
from agent2.foreign_files import MAX_TEXT_BYTES, read_limited
from agent2.stats.estimates import Estimate, PairedDifference
from agent2.stats.ranking import RankInterval, rank_intervals
from agent2.texts import printable

SCORES_FILE, FIGURES_FILE = "scores.json", "published.yaml"
PUBLISHED_FILES = (FIGURES_FILE, SCORES_FILE)
ROUNDING = 0.02
"""Percentage points by which a published aggregate may differ from that of its cells (both are rounded)."""
REFERENCES: Mapping[str, str] = {
    "base-model": "base models, zero shot",
    "base-model-fewshot": "base models, few shot",
    "human": "instruction-tuned by the models' makers",
}
"""Rows of PostTrainBench that are not agents, and their titles."""


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
    place: RankInterval | None
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


class PublishedFigure(StrictModel):
    """One line of a `published.yaml`; scores in percent, as papers print them."""

    name: str = Field(min_length=1)
    score: float = Field(ge=0, le=100)
    base: float | None = Field(default=None, ge=0, le=100)
    """Score of the base model that the same source gives."""
    runs: int = Field(default=1, ge=1)
    std: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Over runs, in points; with several runs it gives the interval."""
    note: str = ""


class PublishedFile(StrictModel):
    """Figures of one source."""

    title: str = Field(min_length=1)
    source: str = Field(min_length=1)
    """Paper and table, or address."""
    note: str = ""
    rows: list[PublishedFigure] = Field(min_length=1)


def is_published(folder: Path) -> bool:
    """Whether `read_published` reads the folder."""
    if (folder / "trial.json").exists():
        return False
    scores = folder / SCORES_FILE
    if (folder / FIGURES_FILE).is_file():
        return True
    try:
        return b'"modelBenchmarkData"' in read_limited(scores, MAX_TEXT_BYTES)
    except OSError:  # none, or nothing that is read
        return False


def read_published(folder: Path, *, follow: bool = False) -> PublishedBoard:
    """The figures of a folder. Raises ConfigError for a file of another layout.

    follow: also a file that is a link, as installers make them; in a folder of others it may lead to any file.
    """
    path = folder / FIGURES_FILE
    if not path.is_file():
        return read_posttrainbench(folder)
    try:
        text = read_limited(path, MAX_TEXT_BYTES, follow=follow).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{path}: cannot be read ({reason}); put the file itself there") from error
    file = parse_yaml(text, PublishedFile, str(path))
    rows = {}
    for figure in file.rows:
        base = None if figure.base is None else figure.base / 100
        score, runs = _score(figure.score, figure.runs, figure.std, 0)
        rows[figure.name] = PublishedRow(figure.name, score, base, runs, None, True, figure.note)
    return _board(file.title, file.source, rows, {figure.name: figure.std for figure in file.rows}, file.note)


def published_of_tasks(tasks: Iterable[str]) -> list[PublishedBoard]:
    """Published figures in the homes of those tasks that are packaged."""
    files = task_files()
    homes = dict.fromkeys(files[task].parent.parent for task in tasks if task in files)
    return [read_published(home, follow=True) for home in homes if (home / FIGURES_FILE).is_file()]


def read_posttrainbench(folder: Path) -> PublishedBoard:
    """The board of a folder with PostTrainBench's `scores.json`.

    Raises ConfigError for a file of another layout, weights that do not sum to 1, or a published aggregate that its own
    cells do not give.
    """
    file = folder / SCORES_FILE
    try:
        stored = msgspec.json.decode(read_limited(file, MAX_TEXT_BYTES))
        weights = {str(name): float(weight) for name, weight in stored["benchmarkWeights"].items()}
        agents: dict[str, Any] = stored["modelBenchmarkData"]
        aggregates: dict[str, Any] = stored["aggregatedScores"]
        cells = {name: _agent_cells(agent, weights) for name, agent in agents.items()}
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read ({error.strerror}); pass the folder that contains it") from error
    except (msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ConfigError(
            f"{file}: is not the scores.json of PostTrainBench ({type(error).__name__}: {error}); take it unchanged "
            "from the website's repository"
        ) from error
    if not math.isclose(sum(weights.values()), 1.0, abs_tol=1e-6):
        raise ConfigError(f"{file}: benchmarkWeights sum to {sum(weights.values()):.6g}, they must sum to 1")
    rows = {
        name: _row(name, agent_cells, list(weights.values()), aggregates.get(name), file)
        for name, agent_cells in cells.items()
    }
    base = rows["base-model"].score.value if "base-model" in rows else None
    stds = {name: float(aggregate["std"]) for name, aggregate in aggregates.items() if name in rows and aggregate}
    n_models = len(next(iter(agents.values()), {}))
    return _board(
        "PostTrainBench, as published",
        f"PostTrainBench ({file.name} of its website)",
        {name: replace(row, base=base) for name, row in rows.items()},
        stds,
        f"Mean over {n_models} base models of the weighted mean over {len(weights)} benchmarks.",
    )


def _board(
    title: str, source: str, rows: Mapping[str, PublishedRow], stds: Mapping[str, float | None], note: str
) -> PublishedBoard:
    """Rows best first, those with several runs with their rank intervals."""
    ranks = _welch_ranks({name: row.score for name, row in rows.items() if row.score.low is not None}, stds)
    rows_with_ranks = [replace(row, place=ranks.get(name)) for name, row in rows.items()]
    places = tuple(sorted(rows_with_ranks, key=lambda row: -row.score.value))
    return PublishedBoard(_line(title), _line(source), places, _line(note))


def _line(text: str) -> str:
    """A text of the file as one line for terminals and pages."""
    return " ".join(printable(text).split())


def _score(value: float, n_runs: int, std: float | None, n_filled: int) -> tuple[Estimate, str]:
    """A published percentage with Student's interval over its runs, and the number of runs in words."""
    from scipy import stats  # slow to import, and needed for published figures only

    runs = "one run" if n_runs == 1 else f"{n_runs} runs"
    if n_runs < 2 or std is None:
        return Estimate(value / 100, None, None, n_runs, n_filled, f"{runs}, no interval"), runs
    half = float(stats.t.ppf(0.975, n_runs - 1)) * std / math.sqrt(n_runs)
    low, high = (value - half) / 100, (value + half) / 100
    method = f"Student t over {n_runs} runs, published standard deviation"
    return Estimate(value / 100, low, high, n_runs, n_filled, method), runs


def _agent_cells(agent: Mapping[str, Any], weights: Mapping[str, float]) -> list[tuple[float, bool]]:
    """(score in percent, whether it is the agent's own and not the base model's) of each cell.

    Base model by base model, each in the order of the weights.
    """
    if not agent:
        raise ValueError("an agent without base models")
    cells = [scores[benchmark] for scores in agent.values() for benchmark in weights]
    return [(float(cell["value"]), not cell["fallbackType"]) for cell in cells]


def _row(
    name: str, cells: Sequence[tuple[float, bool]], weights: Sequence[float], published: Any, file: Path
) -> PublishedRow:
    n_models = len(cells) // len(weights)
    value = math.fsum(cell[0] * weights[at % len(weights)] for at, cell in enumerate(cells)) / n_models
    n_filled = sum(not is_own for _, is_own in cells)
    note = f"{n_filled} of {len(cells)} cells are the base model's score" if n_filled else ""
    is_agent = name not in REFERENCES
    title = name if is_agent else REFERENCES[name]
    n_runs, std = (int(published["n"]), float(published["std"])) if published else (1, None)
    if n_runs > 1 and abs(float(published["avg"]) - value) > ROUNDING:
        raise ConfigError(
            f"{file}: the published aggregate of {name} is {published['avg']}, its cells give {value:.3f}; the file "
            "was changed or is incomplete: take it unchanged from the website's repository"
        )
    score, runs = _score(value, n_runs, std, n_filled)
    return PublishedRow(title, score, None, runs, None, is_agent, note)


def _welch_ranks(scores: Mapping[str, Estimate], stds: Mapping[str, float | None]) -> dict[str, RankInterval]:
    """Rank intervals of the rows with several runs, from Welch tests of all pairs."""
    from scipy import stats

    names = list(scores)
    pairs = {}
    for (a, name_a), (b, name_b) in combinations(enumerate(names), 2):
        sides = [(100 * scores[name].value, stds[name] or 0.0, scores[name].n) for name in (name_a, name_b)]
        if not any(std for _, std, _ in sides):  # no spread at all: the test is not defined
            continue
        p_value = float(stats.ttest_ind_from_stats(*sides[0], *sides[1], equal_var=False).pvalue)
        delta = scores[name_a].value - scores[name_b].value
        pairs[a, b] = PairedDifference(Estimate(delta, None, None, min(n for *_, n in sides)), p_value, "runs")
    return dict(zip(names, rank_intervals(len(names), pairs), strict=True))
