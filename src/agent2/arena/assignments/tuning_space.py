"""The space of `tune-hyperparameters`, and what its points are worth: the grid that an installation measures once.

Every point is trained on for real, a quarter of the rows and all of them, and answers dev and private items; which
answers were right is kept, so that a search costs seconds. What is trained here never leaves the grader: a search is
told shares of right dev answers. The window of step sizes and their unit are drawn for each trial, so neither the best
index nor a step size from elsewhere can be written into a program.
"""

import hashlib
import hmac
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources

import numpy as np
from numpy.typing import NDArray

from agent2.arena.assignments.programs import BrokenBench
from agent2.arena.assignments.records import Bench
from agent2.benchmarks import load_benchmark
from agent2.errors import ConfigError
from agent2.evaluation.engine import score_answers
from agent2.files import write_json
from agent2.records import Item, JsonValue, Split, digest_of

RECIPE = "train.py"
POINTS = "points.json"
QUESTIONS = "questions.json"
STEP_SIZE = "step_size"
"""Axis whose values are shown in a unit of the trial."""
STEP_SIZES = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
OTHER_AXES: Mapping[str, tuple[float, ...]] = {
    "batch_size": (64.0, 16.0),
    "momentum": (0.5, 0.9),
    "label_smoothing": (0.3, 0.0),
}
WINDOW = 5
"""Neighbouring step sizes that a trial shows."""
UNIT_DECADES = 2.0
"""The unit lies between 10 to the minus and 10 to the plus this."""
MAX_POINTS = 200
SHARES = (0.25, 1.0)
"""Of the rows that a run of a search may take; it costs as much of a run."""
GRID_SEED, AGAIN_SEED = 0, 1
"""Of the order of the rows: of the grid, and of the training that the grader repeats at the end."""

Right = NDArray[np.bool_]
Point = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Space:
    """Points as a search sees them, and what they are for the recipe."""

    axes: Mapping[str, tuple[float, ...]]
    """Values by name, as shown."""
    unit: float
    """Shown step sizes are so many times the real ones."""

    @property
    def points(self) -> list[dict[str, float]]:
        """All of them, as shown; the last axis changes fastest."""
        return [dict(zip(self.axes, values, strict=True)) for values in itertools.product(*self.axes.values())]

    @property
    def default(self) -> dict[str, float]:
        """The first point: what the recipe is set to before a search."""
        return self.points[0]

    def real(self, point: Point) -> dict[str, float]:
        """A shown point with the step size of the recipe, rounded as it is measured."""
        return {**point, STEP_SIZE: float(f"{point[STEP_SIZE] / self.unit:.4g}")}

    def index_of(self, point: object) -> int:
        """The number in `points` of what a program named. Raises ValueError with what is wrong with it."""
        if not isinstance(point, dict):
            raise ValueError(f"a point is an object with {', '.join(self.axes)}; this is {_shown(point)}")
        if set(point) != set(self.axes):
            raise ValueError(f"a point names {', '.join(self.axes)}; this one names {_shown(sorted(point))}")
        index = 0
        for name, values in self.axes.items():
            value = point[name]
            if isinstance(value, bool) or not isinstance(value, int | float) or not _is_finite(value):
                raise ValueError(f"{name} is no finite number: {_shown(value)}")
            near = [number for number, allowed in enumerate(values) if math.isclose(value, allowed, rel_tol=1e-6)]
            if not near:
                raise ValueError(f"{name} is outside the space: {_shown(value)}")
            index = index * len(values) + near[0]
        return index


@dataclass(frozen=True, slots=True)
class Grid:
    """Which answers were right after training on each point of a space."""

    space: Space
    dev: Mapping[float, Right]
    """By share of the rows: points x dev items."""
    private: Right
    """Points x private items, trained on all rows."""


def draw_space(bench: Bench) -> Space:
    """The space of a trial: that of its task file as it stands, or a window of the package's.

    Raises ConfigError for a task file's space without a choice, too large, or with an axis that the recipe hasn't got.
    """
    if bench.spec.space is not None:
        return Space(_checked_axes(bench.spec.space), 1.0)
    digest = hmac.digest(bench.secret, f"tune-hyperparameters {bench.config.seed}".encode(), hashlib.sha256)
    rng = np.random.default_rng(int.from_bytes(digest[:16], "big"))
    first = int(rng.integers(len(STEP_SIZES) - WINDOW + 1))
    unit = float(f"{10 ** rng.uniform(-UNIT_DECADES, UNIT_DECADES):.3g}")
    sizes = tuple(float(f"{value * unit:.6g}") for value in STEP_SIZES[first : first + WINDOW])
    return Space({STEP_SIZE: sizes, **OTHER_AXES}, unit)


def _checked_axes(axes: Mapping[str, Sequence[float]]) -> dict[str, tuple[float, ...]]:
    names = (STEP_SIZE, *OTHER_AXES)
    if set(axes) != set(names):
        raise ConfigError(
            f"assignment.space names {', '.join(axes) or 'no axis'}; give values of {', '.join(names)}, one value "
            "where an axis stays fixed"
        )
    n_points = math.prod(len(set(axes[name])) for name in names)
    if not 2 <= n_points <= MAX_POINTS:
        raise ConfigError(
            f"assignment.space has {n_points} point{'' if n_points == 1 else 's'}; a search needs 2 to {MAX_POINTS}: "
            "give or take values"
        )
    for name in names:
        limit = {STEP_SIZE: 10.0, "batch_size": 4096.0}.get(name, 0.999)
        lowest = 1.0 if name == "batch_size" else 0.0
        for value in axes[name]:
            if not (_is_finite(value) and lowest <= value <= limit):
                raise ConfigError(f"assignment.space: {name} is {value}; it must be from {lowest:g} to {limit:g}")
    return {name: tuple(dict.fromkeys(float(value) for value in axes[name])) for name in names}


def recipe_files(points: Sequence[Point], seed: int) -> dict[str, bytes]:
    """The program that trains, with real points. seed: of the order of the rows."""
    program = resources.files("agent2.arena.assignments") / "tune_program" / f"{RECIPE}.txt"
    plan = json.dumps({"points": list(points), "seed": seed}).encode()
    return {RECIPE: program.read_bytes(), POINTS: plan}


def measured_grid(bench: Bench, space: Space) -> Grid:
    """What each point of the space is worth; what this installation has measured before is not measured again.

    Raises BrokenBench if the recipe does not run to its end.
    """
    task = bench.config.task
    benchmark = load_benchmark(task.benchmark)
    dev = benchmark.items(Split.DEV, task.n_items.dev, secret=None)
    private = benchmark.items(Split.TEST_PRIVATE, task.n_items.test_private, secret=bench.secret)
    questions: dict[str, JsonValue] = {
        "dev": [item.prompt for item in dev],
        "private": [item.prompt for item in private],
        "max_tokens": bench.max_tokens,
    }
    points = [space.real(point) for point in space.points]
    rows: list[dict[str, str]] = []
    n = len(points) // len(space.axes[STEP_SIZE])  # a file for each step size: windows of other trials share them
    for start in range(0, len(points), n):
        part = points[start : start + n]
        files = {**recipe_files(part, GRID_SEED), QUESTIONS: json.dumps(questions).encode()}
        contents: list[JsonValue] = [content.decode() for _, content in sorted(files.items())]
        settings: list[JsonValue] = [bench.config.base_model, task.n_items.train, bench.config.threads]
        key = digest_of([hmac.digest(bench.secret, b"tuning grid", hashlib.sha256).hex(), *contents, *settings])
        cached = bench.cache / f"grid-{key[:32]}.json"
        if not cached.is_file():
            write_json(cached, _measure(bench, files, len(part), dev, private))
        rows += json.loads(cached.read_text(encoding="utf-8"))
    columns = {name: np.array([[mark == "1" for mark in row[name]] for row in rows]) for name in rows[0]}
    by_share = {share: columns[f"dev_{round(4 * share)}"] for share in SHARES}
    return Grid(space, by_share, columns["private"])


def _measure(
    bench: Bench, files: Mapping[str, bytes], n_points: int, dev: Sequence[Item], private: Sequence[Item]
) -> list[dict[str, str]]:
    """A 1 for each right answer and a 0 for each wrong one, by point and set of items."""
    answer = bench.ask(files, RECIPE, bench.folder / "grid")
    if answer.reason:
        raise BrokenBench(f"the recipe of tune-hyperparameters did not run to its end: {answer.reason}")
    measured = json.loads(answer.content)
    items = {f"dev_{round(4 * share)}": dev for share in SHARES} | {"private": private}
    benchmark = load_benchmark(bench.config.task.benchmark)
    rows = []
    for texts in measured:
        row = {}
        for name, questions in items.items():
            pairs = [(item, [text]) for item, text in zip(questions, texts[name], strict=True)]
            row[name] = "".join("1" if score.value == 1.0 else "0" for score in score_answers(benchmark, pairs))
        rows.append(row)
    if len(rows) != n_points:
        raise BrokenBench(f"the recipe of tune-hyperparameters answered for {len(rows)} points of {n_points}")
    return rows


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer that no float can hold
        return False


def _shown(value: object) -> str:
    return repr(value)[:80]
