"""Where radars come from: files, tables, leaderboards, evaluations, cards, and two shipped references.

`mmbench` (20 abilities) and `agentbench` (8 environments) are files that can be copied; their numbers are hypothetical.

Of evaluations, the axes are the rates of their suite that have a direction, and the series are baseline and checkpoint.
Of cards of one benchmark the axes are the kinds of its items (`task_type`, such as MMBench's abilities), of cards of
several benchmarks these; the series are checkpoints. Numbers are computed again from the rollouts. What was not played
is a gap. Checkpoints whose items, scorer or sampling differ are refused, not drawn beside each other.
"""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from agent2.arena.analysis.result import UNTOLD, kinds_of
from agent2.cards.aggregate import summarize
from agent2.cards.folder import card_exists
from agent2.cards.reader import iter_rollouts, read_header, validate_card
from agent2.config import parse_yaml, read_yaml_text
from agent2.contract.metrics import Direction, MetricSpec, Unit
from agent2.errors import ConfigError, shown
from agent2.evaluation.outcome import SuiteOutcome, read_outcome
from agent2.evaluation.suite_folder import IDENTITY_FILE
from agent2.records import EvaluationProtocol
from agent2.reports.radar import MIN_AXES, Radar, made_radar

REFERENCES = {"mmbench": "mmbench.yaml", "agentbench": "agentbench.yaml"}
NO_INTERVALS = "no intervals: a radar decides nothing"


def read_radar(*sources: str) -> Radar:
    """The radar of a file, or of folders with evaluations of one suite, or with cards.

    A file is a radar file (YAML or JSON), a CSV table (first column: series, others: axes, 0 to 100), a leaderboard's
    JSON, or a shipped reference. Raises ConfigError with file and line for what is none of them.
    """
    folders = [Path(source) for source in sources if Path(source).is_dir()]
    if folders:
        return _from_folders(folders, [source for source in sources if not Path(source).is_dir()])
    if len(sources) != 1:
        raise ConfigError(f"{', '.join(sources)}: several sources are several folders; pass one radar file or table")
    (source,) = sources
    if source in REFERENCES:
        text = (resources.files("agent2.reports") / "radars" / REFERENCES[source]).read_text(encoding="utf-8")
        return parse_yaml(text, Radar, source)
    path = Path(source)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        known = ", ".join(REFERENCES)
        raise ConfigError(
            f"{source}: no such file; pass a radar file, a CSV table, a leaderboard's JSON, folders of evaluations or "
            f"cards, or one of: {known}"
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
    return made_radar({"title": title, "file": _file_name(path.stem), "axes": head[1:], "series": series}, str(path))


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
    return made_radar(
        {"title": "Stacks by task", "subtitle": subtitle, "file": "stacks-by-task", "axes": axes, "series": series},
        source,
    )


def _file_name(stem: str) -> str:
    found = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "._-") else "-" for letter in stem)
    return found.lstrip("._-") or "radar"


def _from_folders(folders: Sequence[Path], others: Sequence[str]) -> Radar:
    """Evaluations, or cards."""
    evaluations = [folder for folder in folders if (folder / IDENTITY_FILE).is_file()]
    cards = [folder for folder in folders if card_exists(folder)]
    for wanted, read in ((evaluations, _from_evaluations), (cards, _from_cards)):
        if wanted and len(wanted) == len(folders) and not others:
            return read(wanted)
    odd = [str(folder) for folder in folders if folder not in evaluations and folder not in cards]
    raise ConfigError(
        f"{', '.join([*odd, *others]) or ', '.join(map(str, folders))}: pass folders of evaluations, or folders of "
        "cards, and nothing else beside them; agent2 leaderboard ranks trials"
    )


def _from_evaluations(folders: Sequence[Path]) -> Radar:
    outcomes = [read_outcome(folder) for folder in folders]
    first = outcomes[0]
    for folder, outcome in zip(folders, outcomes, strict=True):
        if (outcome.suite, outcome.identity.split) != (first.suite, first.identity.split):
            raise ConfigError(
                f"{folder}: is of another suite or split than {folders[0]}; a radar needs evaluations of one suite"
            )
        if outcome.evidence.incomparable:
            raise ConfigError(f"{folder}: its two sides are not comparable: {'; '.join(outcome.evidence.incomparable)}")
    metrics = [one for one in first.suite.metrics if one.unit is Unit.RATE and one.direction is not Direction.NONE]
    left_out = [one.name for one in first.suite.metrics if one not in metrics]
    _require_axes(len(metrics), f"{folders[0]}: the suite has {len(metrics)} rates with a direction")
    series: dict[str, list[float | None]] = {}
    for outcome in outcomes:
        for name, values in _sides(outcome, metrics):
            _add(series, name, values)
    subtitle = f"Suite {first.suite.name}, {first.identity.split}; {NO_INTERVALS}."
    subtitle += f" Not on the figure: {', '.join(left_out)}." if left_out else ""
    axes = [
        {"name": one.name, "scale": "rate"}
        if one.direction is Direction.HIGHER
        else {"name": one.name, "scale": "bad_rate", "max_bad_rate": 1.0}
        for one in metrics
    ]
    fields = {"title": f"Checkpoints on {first.suite.name}", "subtitle": subtitle, "axes": axes, "series": series}
    return made_radar({**fields, "file": "evaluations", "steps": len(series) == 2}, str(folders[0]))


def _sides(outcome: SuiteOutcome, metrics: Sequence[MetricSpec]) -> list[tuple[str, list[float | None]]]:
    """Baseline, then checkpoint: name and values in the order of the metrics; a metric that was not played is a gap."""
    found = [outcome.evidence.metrics.get(one.name) for one in metrics]
    sides = [(outcome.evidence.checkpoint, [one.new if one is not None else None for one in found])]
    if outcome.evidence.baseline is not None:
        sides.insert(0, (outcome.evidence.baseline, [one.old if one is not None else None for one in found]))
    return sides


def _add(series: dict[str, list[float | None]], name: str, values: list[float | None]) -> None:
    """The same checkpoint in several evaluations is one series; another one of its name gets a number."""
    number, told = 1, name
    while told in series and series[told] != values:
        number += 1
        told = f"{name} ({number})"
    series[told] = values


def _from_cards(folders: Sequence[Path]) -> Radar:
    series: dict[str, dict[str, float | None]] = {}
    protocols: dict[str, EvaluationProtocol] = {}
    digests: dict[str, str] = {}
    kinds_only = len({read_header(folder).protocol.benchmark for folder in folders}) == 1
    for folder in folders:
        if problems := validate_card(folder, columns=False):
            raise ConfigError(f"{folder}: {problems[0]}")
        header, records = read_header(folder), list(iter_rollouts(folder))
        known = protocols.setdefault(header.protocol.benchmark, header.protocol)
        parts = ("split", "items_digest", "scorer", "sampling", "attempts", "max_turns", "environment")
        for part in parts:
            if getattr(known, part) != getattr(header.protocol, part):
                raise ConfigError(
                    f"{folder}: has another {part.replace('_', ' ')} than the other card of {known.benchmark}; a radar "
                    "needs cards of one protocol"
                )
        name = header.checkpoint_name
        if digests.setdefault(name, header.checkpoint_digest) != header.checkpoint_digest:
            raise ConfigError(f"{folder}: is of another checkpoint that is called {shown(name)} too; pass cards of one")
        kinds = kinds_of(records) if kinds_only else {}
        by_axis: dict[str, list[Any]] = {}
        for record in records:
            axis = kinds.get(record.rollout.item_id, UNTOLD) if kinds_only else header.protocol.benchmark
            by_axis.setdefault(axis, []).append(record)
        mine = series.setdefault(name, {})
        for axis, members in by_axis.items():
            if axis in mine:
                raise ConfigError(f"{folder}: is the second card of checkpoint {shown(name)} on {axis}; pass one")
            mine[axis] = summarize(members, header.reporting).value
    names = sorted({axis for values in series.values() for axis in values})
    what = "kinds of items" if kinds_only else "benchmarks"
    _require_axes(len(names), f"{folders[0]}: the cards have {len(names)} {what}")
    where = ", ".join(f"{one.benchmark} ({one.split.value})" for one in protocols.values())
    fields = {"title": f"Checkpoints by {what}", "subtitle": f"{where}; {NO_INTERVALS}.", "file": "cards"}
    axes = [{"name": name, "scale": "rate"} for name in names]
    return made_radar({**fields, "axes": axes, "series": series}, str(folders[0]))


def _require_axes(n: int, what: str) -> None:
    if n < MIN_AXES:
        raise ConfigError(f"{what}; a radar needs {MIN_AXES} axes: agent2 compare tells two checkpoints apart")
