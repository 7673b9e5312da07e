"""Radar charts: raw numbers brought to axes of 0 to 100 where higher is better, drawn, and read for what to do next.

Three rules. One direction: on every axis, further out is better (`Scale`). One scale: every axis is 0 to 100. The raw
numbers stay beside the figure, as CSV and in a Markdown page. A missing number is a gap in its polygon, never a zero; a
number beyond its axis is drawn at the end, and the figure says so.

Two figures ship as files that can be copied: `mmbench` (20 abilities) and `agentbench` (8 environments), both with
hypothetical numbers. Does NOT test differences: a radar has no intervals, so a change counts as one only beyond
`min_change`, and what follows from a shape is a hint where to look.
"""

import csv
import io
import json
import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

from matplotlib.figure import Figure
from matplotlib.projections.polar import PolarAxes
from pydantic import BeforeValidator, Field, ValidationError, model_validator

from agent2.config import StrictModel, first_problem, parse_yaml, read_yaml_text
from agent2.errors import ConfigError, shown
from agent2.files import write_text
from agent2.reports.style import DASHES, INK, MARKERS, MUTED, SERIES_COLOURS, check_formats, drawing, save_figure
from agent2.reports.text import clean, markdown

LOWEST, HIGHEST = 0.0, 100.0
MIN_AXES, MAX_AXES, MAX_SERIES = 3, 40, 8
MAX_LEVEL_LABELS = 20
"""More axes have their names written along them."""
MIN_CHANGE = 2.0
"""Points of the axis within which a change counts as none, unless the file says otherwise."""
SHORT_SHARE = 0.25
"""The shortest axes of a series: this share of them, rounded up."""
MAX_NOTES = 4
"""Lines below a figure; the rest is in its page and CSV."""
REFERENCES = {"mmbench": "mmbench.yaml", "agentbench": "agentbench.yaml"}
Number = Annotated[float, Field(allow_inf_nan=False)]


class RadarStyle(StrEnum):
    """How the polygons are told apart."""

    SAFE = "safe"
    """Colour-blind-safe hues, and markers and dashes as well."""
    REFERENCE = "reference"
    """The four colours of the reference figures, all with round markers and full lines."""


class Scale(StrEnum):
    """How a raw number becomes 0 to 100, higher is better."""

    SCORE = "score"
    """It is that already."""
    RATE = "rate"
    """A rate of 0 to 1: times 100."""
    BAD_RATE = "bad_rate"
    """A rate of something bad: 100 * (1 - rate / max_bad_rate), not below 0."""
    RANGE = "range"
    """`worst` is 0 and `best` is 100; for costs `best` is the lower number."""
    MIN_MAX = "min_max"
    """The worst series is 0 and the best is 100."""
    RELATIVE = "relative"
    """100 * value / best: the best series on this axis, or the number given as `best`."""


class RadarAxis(StrictModel):
    """One axis."""

    name: str = Field(min_length=1)
    label: str = ""
    """As drawn, line breaks included; default: the name, wrapped."""
    scale: Scale = Scale.SCORE
    unit: str = ""
    """Of the raw numbers, for the table."""
    max_bad_rate: float | None = Field(default=None, gt=0.0, le=1.0)
    worst: Number | None = None
    best: Number | None = None
    lower_is_better: bool = False
    """With `min_max`."""

    @model_validator(mode="after")
    def _has_what_its_scale_needs(self) -> "RadarAxis":
        needs = {Scale.BAD_RATE: ("max_bad_rate",), Scale.RANGE: ("worst", "best")}.get(self.scale, ())
        allowed = {*needs, *(("best",) if self.scale is Scale.RELATIVE else ())}
        for name in ("max_bad_rate", "worst", "best"):
            if name in needs and getattr(self, name) is None:
                raise ValueError(f"axis {self.name!r}: scale {self.scale.value} needs {name}")
            if name not in allowed and getattr(self, name) is not None:
                raise ValueError(f"axis {self.name!r}: scale {self.scale.value} has no {name}; remove it")
        if self.lower_is_better and self.scale is not Scale.MIN_MAX:
            raise ValueError(f"axis {self.name!r}: lower_is_better belongs to scale min_max; use range or bad_rate")
        if self.scale is Scale.RANGE and self.worst == self.best:
            raise ValueError(f"axis {self.name!r}: worst and best are both {self.best}; there is no scale between them")
        if self.scale is Scale.RELATIVE and self.best is not None and self.best <= 0:
            raise ValueError(f"axis {self.name!r}: best={self.best} must be above 0")
        return self


class ActionRule(StrictModel):
    """What to do when axes look like this: of each list given, at least one axis has to."""

    rose: list[str] = Field(default_factory=list)
    fell: list[str] = Field(default_factory=list)
    flat: list[str] = Field(default_factory=list)
    """Did not rise."""
    short: list[str] = Field(default_factory=list)
    """Among the shortest axes of the series."""
    do: str = Field(min_length=1)

    @model_validator(mode="after")
    def _asks_something(self) -> "ActionRule":
        if not self.conditions:
            raise ValueError(f"the action {self.do!r} has no condition; name axes under rose, fell, flat or short")
        return self

    @property
    def conditions(self) -> dict[str, list[str]]:
        """Those that are given."""
        found = {"rose": self.rose, "fell": self.fell, "flat": self.flat, "short": self.short}
        return {name: axes for name, axes in found.items() if axes}


def _as_axis(value: object) -> object:
    return {"name": value} if isinstance(value, str) else value


class Radar(StrictModel):
    """A radar chart as somebody writes it down: axes in their order, and the raw numbers of each series."""

    title: str = Field(min_length=1)
    subtitle: str = ""
    source: str = ""
    """Where axes or numbers are from; printed small below the figure."""
    file: str = Field(default="", pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]*)?$")
    """Name of the figure's files, without ending; default: that of the file it is read from."""
    style: RadarStyle = RadarStyle.SAFE
    axes: list[Annotated[RadarAxis, BeforeValidator(_as_axis)]] = Field(min_length=MIN_AXES)
    series: dict[str, list[Number | None] | dict[str, Number | None]] = Field(min_length=1)
    """Name -> raw numbers in the order of the axes, or by name of the axis; null: missing."""
    overall: bool = False
    """Also draw a bar chart of each series' mean over the axes."""
    steps: bool = False
    """Each series is trained from the one before, so that axes rise and fall between them."""
    min_change: float = Field(default=MIN_CHANGE, ge=0.0, allow_inf_nan=False)
    excerpt: dict[str, str] = Field(default_factory=dict)
    """Columns of a short table: heading -> axis."""
    actions: list[ActionRule] = Field(default_factory=list)

    @model_validator(mode="after")
    def _fits_together(self) -> "Radar":
        names = [axis.name for axis in self.axes]
        if len(names) > MAX_AXES:
            raise ValueError(f"{len(names)} axes cannot be read; draw at most {MAX_AXES} and split the rest by subject")
        if len(self.series) > MAX_SERIES:
            raise ValueError(
                f"{len(self.series)} series hide each other in a radar; choose at most {MAX_SERIES} (--only)"
            )
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"axis {twice[0]!r} is there twice; give each a name of its own")
        for name, values in self.series.items():
            if isinstance(values, list) and len(values) != len(names):
                raise ValueError(f"series {name!r} has {len(values)} numbers for {len(names)} axes; null is a gap")
            if isinstance(values, dict):
                self._check_names(f"series {name!r}", values)
        for rule in self.actions:
            for axes in rule.conditions.values():
                self._check_names(f"the action {rule.do!r}", axes)
        self._check_names("the excerpt", self.excerpt.values())
        return self

    def _check_names(self, what: str, found: Any) -> None:
        names = [axis.name for axis in self.axes]
        for name in found:
            if name not in names:
                raise ValueError(f"{what} names the axis {shown(name)}, which is not there; axes: {', '.join(names)}")

    def raw(self, series: str) -> list[float | None]:
        """The numbers of a series in the order of the axes."""
        values = self.series[series]
        return [values.get(axis.name) for axis in self.axes] if isinstance(values, dict) else list(values)


@dataclass(frozen=True, slots=True)
class RadarPoint:
    """One series on one axis."""

    raw: float | None
    value: float | None
    """On the axis, 0 to 100 unless it is beyond; None: missing, or there is no scale."""
    note: str = ""
    """Why it is drawn elsewhere, or not at all."""

    @property
    def drawn(self) -> float | None:
        """Where it is drawn: inside the axis."""
        return None if self.value is None else min(max(self.value, LOWEST), HIGHEST)


@dataclass(frozen=True, slots=True)
class ScaledRadar:
    """A radar on its axes."""

    radar: Radar
    points: Mapping[str, Sequence[RadarPoint]]
    """Series -> one for each axis."""

    @property
    def notes(self) -> list[str]:
        """What a reader of the figure has to know."""
        gaps = [
            f"no value: {name} on {', '.join(missing)}"
            for name, points in self.points.items()
            if (missing := [a.name for a, p in zip(self.radar.axes, points, strict=True) if p.value is None])
        ]
        scales = [
            f"{name} on {axis.name}: {point.note}"
            for name, points in self.points.items()
            for axis, point in zip(self.radar.axes, points, strict=True)
            if point.note and (point.value is not None or point.raw is not None)
        ]
        return [*gaps, *scales]

    def overall(self, series: str) -> float | None:
        """Mean over the axes, values beyond one counting as its end; None if any is missing."""
        values = [point.drawn for point in self.points[series]]
        known = [value for value in values if value is not None]
        return math.fsum(known) / len(known) if len(known) == len(values) else None

    def shortest(self, series: str) -> list[tuple[str, float]]:
        """The shortest quarter of a series' axes (rounded up, of those with a value), shortest first."""
        known = [
            (axis.name, point.drawn)
            for axis, point in zip(self.radar.axes, self.points[series], strict=True)
            if point.drawn is not None
        ]
        return sorted(known, key=lambda one: one[1])[: math.ceil(SHORT_SHARE * len(known))]

    def changes(self, series: str) -> dict[str, tuple[float, float]]:
        """Axis -> (before, now) against the series before it; empty where there is none."""
        names = list(self.points)
        if not self.radar.steps or names.index(series) == 0:
            return {}
        before = self.points[names[names.index(series) - 1]]
        pairs = zip(self.radar.axes, before, self.points[series], strict=True)
        return {
            axis.name: (old.drawn, new.drawn)
            for axis, old, new in pairs
            if old.drawn is not None and new.drawn is not None
        }


def read_radar(source: str) -> Radar:
    """A radar file (YAML or JSON), a CSV table (first column: series, others: axes, 0 to 100), or a shipped reference.

    Raises ConfigError with file and line for what is none of them.
    """
    if source in REFERENCES:
        text = (resources.files("agent2.reports") / "radars" / REFERENCES[source]).read_text(encoding="utf-8")
        return parse_yaml(text, Radar, source)
    path = Path(source)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        known = ", ".join(REFERENCES)
        raise ConfigError(
            f"{source}: no such file; pass a radar file, a CSV table, a leaderboard's JSON, or one of: {known}"
        ) from None
    except UnicodeDecodeError:
        raise ConfigError(f"{source}: is not text; pass a radar file (YAML, JSON) or a CSV table") from None
    if path.suffix.lower() == ".csv":
        return _from_csv(text, path)
    data = read_yaml_text(text, source).data
    if data.get("format", "") == "agent2-leaderboard-1":
        return _from_leaderboard(data, source)
    radar = parse_yaml(text, Radar, source)
    return radar if radar.file else radar.model_copy(update={"file": _file_name(path.stem)})


def only(radar: Radar, wanted: Sequence[str]) -> Radar:
    """The radar with these series, in this order. Raises ConfigError for one that is not there."""
    for name in wanted:
        if name not in radar.series:
            raise ConfigError(f"--only {name!r}: there is no such series; it has {', '.join(radar.series)}")
    return radar.model_copy(update={"series": {name: radar.series[name] for name in wanted}}) if wanted else radar


def _made(fields: Mapping[str, Any], where: str) -> Radar:
    try:
        return Radar.model_validate(fields)
    except ValidationError as error:
        raise ConfigError(f"{where}: {first_problem(error, Radar)[1]}") from None


def _from_csv(text: str, path: Path) -> Radar:
    rows = [row for row in csv.reader(io.StringIO(text)) if any(cell.strip() for cell in row)]
    if len(rows) < 2:
        raise ConfigError(f"{path}: has no row of numbers; the first line names the axes, each further one is a series")
    head, *body = rows
    series: dict[str, list[float | None]] = {}
    for number, row in enumerate(body, start=2):
        if len(row) != len(head):
            raise ConfigError(f"{path}: row {number} has {len(row)} cells, the first one {len(head)}; fill the gaps")
        if row[0] in series:
            raise ConfigError(f"{path}: row {number}: series {shown(row[0])} is there twice")
        series[row[0]] = [_cell_number(cell, f"{path}: row {number}, {head[at]}") for at, cell in enumerate(row) if at]
    title = path.stem.replace("_", " ").replace("-", " ")
    return _made({"title": title, "file": _file_name(path.stem), "axes": head[1:], "series": series}, str(path))


def _cell_number(cell: str, where: str) -> float | None:
    if not cell.strip():
        return None
    try:
        value = float(cell)
    except ValueError:
        raise ConfigError(f"{where}: {shown(cell)} is not a number; leave a missing one empty") from None
    if not math.isfinite(value):
        raise ConfigError(f"{where}: {shown(cell)} is not finite; leave a missing one empty")
    return value


def _from_leaderboard(data: Mapping[str, Any], source: str) -> Radar:
    """Tasks as axes and stacks as series: mean private score of the counted trials; no score is a gap."""
    try:
        tasks = {str(task["task"]): {one["stack"]: one["final"] for one in task["standings"]} for task in data["tasks"]}
    except (KeyError, TypeError):
        raise ConfigError(f"{source}: is no leaderboard of this version; write it again with --format json") from None
    if len(tasks) < MIN_AXES:
        raise ConfigError(
            f"{source}: a radar needs {MIN_AXES} axes, the leaderboard has {len(tasks)} tasks; "
            "agent2 chart gains draws any number"
        )
    stacks = list(dict.fromkeys(stack for standings in tasks.values() for stack in standings))
    series = {stack: {task: found.get(stack) for task, found in tasks.items()} for stack in stacks}
    axes = [{"name": task, "scale": "rate", "unit": "private score"} for task in tasks]
    subtitle = "Mean score on private items, percent; no intervals (agent2 leaderboard has them)."
    return _made(
        {"title": "Stacks by task", "subtitle": subtitle, "file": "stacks-by-task", "axes": axes, "series": series},
        source,
    )


def _file_name(stem: str) -> str:
    found = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "._-") else "-" for letter in stem)
    return found.lstrip("._-") or "radar"


def scaled(radar: Radar) -> ScaledRadar:
    """Every number on its axis. Raises ConfigError for a rate outside 0 to 1 and a negative number to be relative."""
    columns = {name: radar.raw(name) for name in radar.series}
    points: dict[str, list[RadarPoint]] = {name: [] for name in columns}
    for place, axis in enumerate(radar.axes):
        raws = {name: values[place] for name, values in columns.items()}
        for name, raw in raws.items():
            _check_raw(axis, name, raw)
        known = [raw for raw in raws.values() if raw is not None]
        for name, raw in raws.items():
            points[name].append(_point(axis, raw, known))
    return ScaledRadar(radar, points)


def _check_raw(axis: RadarAxis, series: str, raw: float | None) -> None:
    if raw is None:
        return
    if axis.scale in {Scale.RATE, Scale.BAD_RATE} and not 0.0 <= raw <= 1.0:
        raise ConfigError(
            f"{series!r} has {raw:g} on axis {axis.name!r}, which is a rate of 0 to 1; write 0.74 for 74%"
        )
    if axis.scale is Scale.RELATIVE and raw < 0.0:
        raise ConfigError(
            f"{series!r} has {raw:g} on axis {axis.name!r}; a negative number has no share of the best: use scale range"
        )


def _point(axis: RadarAxis, raw: float | None, known: Sequence[float]) -> RadarPoint:
    """known: the raw numbers of all series on this axis."""
    if raw is None:
        return RadarPoint(None, None, "missing")
    match axis.scale:
        case Scale.SCORE:
            value = raw
        case Scale.RATE:
            value = 100.0 * raw
        case Scale.BAD_RATE:
            value = safety_score(raw, axis.max_bad_rate or 1.0)
        case Scale.RANGE:
            value = _between(raw, axis.worst or 0.0, axis.best or 0.0)
        case Scale.MIN_MAX:
            ends = (max(known), min(known)) if axis.lower_is_better else (min(known), max(known))
            if ends[0] == ends[1]:
                return RadarPoint(raw, None, f"all series have {raw:g}, so min_max has no scale")
            value = _between(raw, *ends)
        case Scale.RELATIVE:
            best = axis.best if axis.best is not None else max(known)
            if best == 0.0:
                return RadarPoint(raw, None, "the best is 0, so there is no scale")
            value = 100.0 * raw / best
    if LOWEST <= value <= HIGHEST:
        return RadarPoint(raw, value)
    end = LOWEST if value < LOWEST else HIGHEST
    return RadarPoint(raw, value, f"{raw:g} is beyond the axis ({value:.1f}), drawn at {end:g}")


def safety_score(violation_rate: float, max_bad_rate: float) -> float:
    """100 * (1 - rate / max_bad_rate): 100 without a violation, 0 at the worst rate allowed, negative beyond."""
    return 100.0 * (1.0 - violation_rate / max_bad_rate)


def _between(raw: float, worst: float, best: float) -> float:
    return 100.0 * (raw - worst) / (best - worst)


@dataclass(frozen=True, slots=True)
class RadarAction:
    """What a shape suggests for the next round of one series."""

    series: str
    why: str
    do: str


def actions_of(found: ScaledRadar) -> list[RadarAction]:
    """What follows for each series from its shortest axes, and from those that moved since the series before.

    Rules of the file come first; what fell, and the shortest axes of the last series, get a general line where no rule
    speaks of them.
    """
    names = list(found.points)
    suggested = []
    for name in names:
        covered: set[str] = set()
        changes, shortest = found.changes(name), dict(found.shortest(name))
        for rule in found.radar.actions:
            reasons = _reasons(rule, changes, shortest, found.radar.min_change)
            if reasons:
                covered |= set().union(*(axes for axes, _ in reasons))
                suggested.append(RadarAction(name, "; ".join(why for _, why in reasons), rule.do))
        fell = {axis: pair for axis, pair in changes.items() if pair[1] - pair[0] < -found.radar.min_change}
        for axis, pair in fell.items():
            if axis not in covered:
                suggested.append(RadarAction(name, _moved("fell", axis, pair), f"see which items of {axis} were lost"))
        left = [axis for axis in shortest if axis not in covered]
        if name == names[-1] and left:
            why = ", ".join(f"{axis} {shortest[axis]:.3g}" for axis in left)
            suggested.append(RadarAction(name, f"shortest: {why}", "look at failures there first, then add data"))
    return suggested


def _reasons(
    rule: ActionRule, changes: Mapping[str, tuple[float, float]], shortest: Mapping[str, float], least: float
) -> list[tuple[set[str], str]]:
    """(axes, in words) of each condition; empty unless all of them hold."""
    reasons = []
    for condition, axes in rule.conditions.items():
        if condition == "short":
            met = {axis: f"{axis} {shortest[axis]:.3g}" for axis in axes if axis in shortest}
            words = f"short: {', '.join(met.values())}"
        else:
            moves = {axis: changes[axis][1] - changes[axis][0] for axis in axes if axis in changes}
            holds = {
                "rose": {axis for axis, move in moves.items() if move > least},
                "fell": {axis for axis, move in moves.items() if move < -least},
                "flat": {axis for axis, move in moves.items() if move <= least},
            }[condition]
            met = {axis: _moved("", axis, changes[axis]) for axis in axes if axis in holds}
            words = f"{'did not rise' if condition == 'flat' else condition}: {', '.join(met.values())}"
        if not met:
            return []
        reasons.append((set(met), words))
    return reasons


def _moved(how: str, axis: str, pair: tuple[float, float]) -> str:
    return f"{how + ': ' if how else ''}{axis} {pair[0]:.3g} -> {pair[1]:.3g} ({pair[1] - pair[0]:+.3g})"


@dataclass(frozen=True, slots=True)
class RadarLook:
    """The values of a radar's style: inches, points and colours."""

    size: tuple[float, float] = (7.6, 6.4)
    """Of a figure with up to 20 axes."""
    face: str = "#fbfbfd"
    rings: tuple[int, ...] = (20, 40, 60, 80, 100)
    ring_colour: str = "#64748b"
    ring_size: float = 8.0
    label_size: float = 9.0
    grid_colour: str = "#cbd5e1"
    grid_width: float = 0.9
    rim_colour: str = "#94a3b8"
    line_width: float = 2.4
    marker_size: float = 3.2
    fill_alpha: float = 0.08
    title_size: float = 13.0
    subtitle_size: float = 9.0
    subtitle_colour: str = "#475569"
    legend_columns: int = 3
    colours: tuple[str, ...] = SERIES_COLOURS
    markers: tuple[str, ...] = MARKERS
    dashes: tuple[Any, ...] = DASHES


LOOKS = {
    RadarStyle.SAFE: RadarLook(line_width=2.0, marker_size=5.0),
    RadarStyle.REFERENCE: RadarLook(
        colours=("#2b6cb0", "#c53030", "#2f855a", "#6b46c1"), markers=("o",), dashes=("-",)
    ),
}


def draw_radar(axes: PolarAxes, found: ScaledRadar) -> None:
    """Draw one radar: first axis at the top, clockwise, each series a closed polygon with gaps where values lack."""
    radar, look = found.radar, LOOKS[found.radar.style]
    angles = [2.0 * math.pi * place / len(radar.axes) for place in range(len(radar.axes))]
    axes.set_facecolor(look.face)
    axes.set_theta_offset(math.pi / 2.0)
    axes.set_theta_direction(-1)
    axes.set_ylim(LOWEST, HIGHEST)
    axes.set_yticks(list(look.rings), [str(ring) for ring in look.rings], fontsize=look.ring_size)
    axes.tick_params(axis="y", labelcolor=look.ring_colour)
    _write_labels(axes, angles, radar.axes, look)
    axes.grid(color=look.grid_colour, linewidth=look.grid_width)
    axes.spines["polar"].set_color(look.rim_colour)
    for number, (name, points) in enumerate(found.points.items()):
        _draw_polygon(axes, angles, points, number, name, look)


def _draw_polygon(
    axes: PolarAxes, angles: Sequence[float], points: Sequence[RadarPoint], number: int, name: str, look: RadarLook
) -> None:
    values = [math.nan if point.drawn is None else point.drawn for point in points]
    style: dict[str, Any] = {
        "color": look.colours[number % len(look.colours)],
        "linewidth": look.line_width,
        "linestyle": look.dashes[number % len(look.dashes)],
        "marker": look.markers[number % len(look.markers)],
        "markersize": look.marker_size,
    }
    axes.plot([*angles, angles[0]], [*values, values[0]], label=clean(name, 60), clip_on=False, **style)
    for turn, reach in _pieces(angles, values):
        axes.fill(turn, reach, color=style["color"], alpha=look.fill_alpha)


def _pieces(angles: Sequence[float], values: Sequence[float]) -> Iterator[tuple[list[float], list[float]]]:
    """Areas to fill: the whole polygon, or a wedge from the centre for each run of neighbours that have values."""
    there = [not math.isnan(value) for value in values]
    if all(there):
        yield [*angles, angles[0]], [*values, values[0]]
        return
    n = len(values)
    for start in range(n):
        if not there[start] or there[start - 1]:
            continue
        run = [start]
        while there[(run[-1] + 1) % n]:
            run.append((run[-1] + 1) % n)
        if len(run) > 1:
            turns = [angles[start], *(angles[place] for place in run), angles[run[-1]]]
            yield turns, [0.0, *(values[place] for place in run), 0.0]


def _write_labels(axes: PolarAxes, angles: Sequence[float], radar_axes: Sequence[RadarAxis], look: RadarLook) -> None:
    """Name the axes outside the rim, where labels begin, so that long ones do not cover it; many follow their axes."""
    labels = [_label(axis) for axis in radar_axes]
    if len(labels) <= MAX_LEVEL_LABELS:
        axes.set_xticks(angles, labels, fontsize=look.label_size)
        axes.tick_params(axis="x", labelcolor=INK, pad=-3)
        for text, angle in zip(axes.get_xticklabels(), angles, strict=True):
            across, up = math.sin(angle), math.cos(angle)
            text.set_horizontalalignment("center" if abs(across) < 0.1 else "left" if across > 0 else "right")
            text.set_verticalalignment("center" if abs(up) < 0.5 else "bottom" if up > 0 else "top")
        return
    axes.set_xticks(angles, [""] * len(angles))
    for label, angle in zip(labels, angles, strict=True):
        is_right = angle <= math.pi
        degrees = math.degrees(math.pi / 2.0 - angle) + (0.0 if is_right else 180.0)
        axes.text(
            angle, 103.0, label, rotation=degrees, rotation_mode="anchor", ha="left" if is_right else "right",
            va="center", fontsize=look.label_size - 2.0, color=INK,
        )  # fmt: skip


def _label(axis: RadarAxis) -> str:
    if axis.label:
        return "\n".join(clean(line, 40) for line in axis.label.split("\n")[:3])
    lines = textwrap.wrap(clean(axis.name, 200), 16)
    return "\n".join([*lines[:2], lines[2] + ("…" if len(lines) > 3 else "")] if len(lines) > 2 else lines)


def _write_words(axes: PolarAxes, found: ScaledRadar, *, shows_source: bool) -> None:
    """Title and subtitle above what is drawn; legend, gaps, values beyond their axis and source below it.

    Where that is follows from the labels, so the layout has to be settled.
    """
    radar, look = found.radar, LOOKS[found.radar.style]
    drawn, to_axes = axes.get_tightbbox(), axes.transAxes.inverted()
    if drawn is None:
        return
    middle: dict[str, Any] = {"ha": "center", "transform": axes.transAxes}
    top, bottom = (float(to_axes.transform((0.0, y))[1]) for y in (drawn.y1, drawn.y0))
    if radar.subtitle:
        words = "\n".join(textwrap.wrap(clean(radar.subtitle, 300), 90))
        size, colour = look.subtitle_size, look.subtitle_colour
        below = axes.text(0.5, top + 0.02, words, va="bottom", fontsize=size, color=colour, **middle)
        top = float(to_axes.transform((0.0, below.get_window_extent().y1))[1])
    title = "\n".join(textwrap.wrap(clean(radar.title, 200), 60))
    axes.text(0.5, top + 0.02, title, va="bottom", fontsize=look.title_size, fontweight="bold", **middle)
    columns = min(look.legend_columns, len(found.points))
    legend = axes.legend(loc="upper center", bbox_to_anchor=(0.5, bottom), ncol=columns, frameon=False)
    lines = found.notes[:MAX_NOTES]
    lines += [f"and {len(found.notes) - MAX_NOTES} more, in the table"] if len(found.notes) > MAX_NOTES else []
    lines += [radar.source] if radar.source and shows_source else []
    if lines:
        words = "\n".join(part for line in lines for part in textwrap.wrap(clean(line, 300), 110))
        under = float(to_axes.transform((0.0, legend.get_window_extent().y0))[1])
        axes.text(0.5, under - 0.01, words, va="top", fontsize=8, color=MUTED, **middle)


def radar_figure(found: ScaledRadar, figure: Figure, beside: ScaledRadar | None = None) -> None:
    """Draw a radar, or two side by side (the other one on the left), into an empty figure of `figure_size`."""
    every = [found] if beside is None else [beside, found]
    panels = figure.subplots(1, len(every), squeeze=False, subplot_kw={"projection": "polar"})[0]
    for axes, one in zip(panels, every, strict=True):
        draw_radar(axes, one)
    figure.tight_layout(pad=2.0)
    for axes, one in zip(panels, every, strict=True):
        _write_words(axes, one, shows_source=beside is not None or one.radar.style is RadarStyle.SAFE)


def figure_size(found: ScaledRadar, beside: ScaledRadar | None = None) -> tuple[float, float]:
    """Inches; many axes get more room."""
    width, height = LOOKS[found.radar.style].size
    factor = 1.0 + 0.35 * max(0, len(found.radar.axes) - 20) / 20
    return width * factor * (1 if beside is None else 2), height * factor


def overall_figure(found: ScaledRadar, figure: Figure) -> None:
    """Bars of the mean over all axes; a series that lacks one has no bar and says which."""
    look = LOOKS[found.radar.style]
    axes = figure.add_subplot()
    axes.set_facecolor(look.face)
    names = list(found.points)
    for place, name in enumerate(names):
        mean = found.overall(name)
        if mean is None:
            n_lacking = sum(point.value is None for point in found.points[name])
            words = f"no mean: no value on {n_lacking} of {len(found.radar.axes)} axes"
            axes.annotate(words, (0, place), xytext=(4, 0), textcoords="offset points", va="center", color=MUTED)
            continue
        axes.barh(place, mean, height=0.62, color=look.colours[place % len(look.colours)])
        axes.annotate(f"{mean:.1f}", (mean, place), xytext=(4, 0), textcoords="offset points", va="center", color=INK)
    axes.set_yticks(range(len(names)), [clean(name, 40) for name in names])
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.invert_yaxis()
    axes.set_xlim(LOWEST, HIGHEST)
    axes.grid(axis="x", color=look.grid_colour)
    axes.set_axisbelow(True)
    axes.set_xlabel(f"mean over {len(found.radar.axes)} axes, 0 to 100")
    subtitle = "\n".join(textwrap.wrap(clean(found.radar.subtitle, 300), 100))
    figure.suptitle(subtitle or " ", fontsize=look.subtitle_size, color=look.subtitle_colour)
    title = clean(f"{found.radar.title}: overall", 120)
    figure.text(0.5, 1.0, title, ha="center", va="bottom", fontsize=look.title_size, fontweight="bold")


def write_radar(radar: Radar, out: Path, formats: Sequence[str], beside: Radar | None = None) -> list[Path]:
    """Write figure, raw table (CSV) and page (Markdown: tables, notes, actions) into a folder; returns the paths.

    beside: another radar of the same axes, on the left of the same figure. Raises ConfigError if its axes are others.
    """
    found, other = scaled(radar), None
    if beside is not None:
        if [axis.name for axis in beside.axes] != [axis.name for axis in radar.axes]:
            raise ConfigError(
                f"--beside: {beside.title!r} has other axes than {radar.title!r}; two radars are comparable "
                "only with the same axes in the same order"
            )
        other = scaled(beside)
    out.mkdir(parents=True, exist_ok=True)
    with drawing(*figure_size(found, other), is_file=True, layout=None) as figure:
        radar_figure(found, figure, other)
        written = save_figure(figure, out / radar.file, formats)
    if radar.overall:
        with drawing(7.6, 1.5 + 0.42 * len(radar.series), is_file=True) as figure:
            overall_figure(found, figure)
            written += save_figure(figure, out / f"{radar.file}-overall", formats)
    table, page = out / f"{radar.file}.csv", out / f"{radar.file}.md"
    write_text(table, radar_csv([found] if other is None else [other, found]))
    write_text(page, radar_page(found))
    return [*written, table, page]


def radar_csv(radars: Sequence[ScaledRadar]) -> str:
    """One row for each series and axis: the raw number, the one on the axis, where it is drawn; empty: missing."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["chart", "series", "axis", "raw", "unit", "scale", "value", "drawn", "note"])
    for found in radars:
        for name, points in found.points.items():
            for axis, point in zip(found.radar.axes, points, strict=True):
                settings = axis.model_dump(include={"max_bad_rate", "worst", "best"}, exclude_none=True)
                rule = axis.scale.value + (f" {json.dumps(settings)}" if settings else "")
                cells = [found.radar.title, name, axis.name, point.raw, axis.unit, rule, point.value, point.drawn]
                writer.writerow([csv_cell(cell) for cell in [*cells, point.note]])
    return text.getvalue()


def csv_cell(value: object) -> object:
    """Text that a spreadsheet would take for a formula is made text."""
    if not isinstance(value, str):
        return value
    text = clean(value, len(value) + 1)
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def radar_page(found: ScaledRadar) -> str:
    """The numbers behind the figure, what to know of them, and what to do next, as Markdown."""
    radar = found.radar
    lines = [f"# {markdown(radar.title, 200)}", ""]
    lines += [f"{markdown(text, 400)}\n" for text in (radar.subtitle, radar.source) if text]
    names = [axis.name for axis in radar.axes]
    if radar.excerpt:
        columns = {heading: names.index(axis) for heading, axis in radar.excerpt.items()}
        lines += [*_markdown_table(found, columns), ""]
    lines += ["## All axes, as drawn (0 to 100, higher is better)", ""]
    head = " | ".join(markdown(name) for name in found.points)
    lines += [f"| axis | {head} |", f"|---|{'---:|' * len(found.points)}"]
    for place, axis in enumerate(radar.axes):
        cells = " | ".join(_cell(points[place]) for points in found.points.values())
        lines.append(f"| {markdown(axis.name)} | {cells} |")
    if any(axis.scale is not Scale.SCORE for axis in radar.axes):
        lines += ["", "Raw numbers and scales are in the CSV file."]
    if found.notes:
        lines += ["", "## Notes", "", *(f"- {markdown(note, 400)}" for note in found.notes)]
    suggested = actions_of(found)
    if suggested:
        lines += ["", "## From the figure to the next round", ""]
        lines += [f"- **{markdown(a.series)}** ({markdown(a.why, 400)}): {markdown(a.do, 400)}." for a in suggested]
    return "\n".join(lines) + "\n"


def _markdown_table(found: ScaledRadar, columns: Mapping[str, int]) -> list[str]:
    rows = [f"| Model | {' | '.join(markdown(heading) for heading in columns)} |", f"|---|{'---:|' * len(columns)}"]
    for name, points in found.points.items():
        rows.append(f"| {markdown(name)} | {' | '.join(_cell(points[place]) for place in columns.values())} |")
    return rows


def _cell(point: RadarPoint) -> str:
    if point.value is None:
        return "missing" if point.raw is None else "no scale"
    return f"{point.value:g}" if point.note == "" else f"{point.drawn:g} ({point.value:.1f})"


def plot_paper_radar(
    title: str,
    metrics: Sequence[str],
    series: Mapping[str, Sequence[float | None]],
    output_path: str | Path,
    subtitle: str | None = None,
) -> None:
    """Draw one radar in the style of the reference figures; the file's ending says the format.

    metrics: the axes, first one at the top, clockwise. series: name -> a number of 0 to 100 for each axis; None is a
    gap. Raises ConfigError for numbers that do not fit the axes, or another ending than png, svg or pdf.
    """
    path = Path(output_path)
    axes = [{"name": metric.replace("\n", " "), "label": metric} for metric in metrics]
    fields = {"title": title, "subtitle": subtitle or "", "style": "reference", "axes": axes}
    radar = _made({**fields, "series": {name: list(values) for name, values in series.items()}}, str(path))
    found = scaled(radar)
    path.parent.mkdir(parents=True, exist_ok=True)
    with drawing(*figure_size(found), is_file=True, layout=None) as figure:
        radar_figure(found, figure)
        save_figure(figure, path.with_suffix(""), check_formats([path.suffix.removeprefix(".")]))
