"""How a run went over its steps or its time: the series of a training log, the public scores of a trial's submissions.

A sparkline of the home page and the overlaid figures of several runs are drawn from the same values.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from agent2.arena.submissions import read_submissions_of
from agent2.arena.trial_folder import TrialPaths, read_events
from agent2.reports.text import clean
from agent2.stats.estimates import PERCENT
from agent2.web.entries import CatalogEntry, EntryKind, read_object
from agent2.web.plots import PlotValue

LEADING = ("reward", "kl", "entropy", "length")
"""Series of a training log that are looked at first, in this order."""
PUBLIC_SCORE = "public score of the submissions, by minutes of work"
Curves = Mapping[str, Sequence[PlotValue]]
"""Series of a run -> its values by step or minute."""


def training_series(report: Mapping[str, Any]) -> dict[str, list[PlotValue]]:
    """Series of a training report -> values by step; series without points are left out.

    Order: benchmarks, then `LEADING`, then those in which a danger was seen, then the others by name.
    """
    watched = {name for signal in report.get("signals") or () for name in signal.get("series", ())}
    series = report["series"]

    def order(name: str) -> tuple[bool, int, bool, str]:
        rank = LEADING.index(name) if name in LEADING else len(LEADING)
        return not series[name].get("is_benchmark"), rank, name not in watched, name

    values = {
        name: [PlotValue(float(step), value) for step, value in series[name].get("points", ())]
        for name in sorted(series, key=order)
    }
    return {name: points for name, points in values.items() if points}


def leads(report: Mapping[str, Any], name: str) -> bool:
    """Whether a series is shown before the rest: a benchmark, one of `LEADING`, or one in which a danger was seen."""
    watched = {watched for signal in report.get("signals") or () for watched in signal.get("series", ())}
    return name in LEADING or name in watched or bool(report["series"][name].get("is_benchmark"))


def series_group(name: str) -> str:
    """What a series is listed under: the part of its name before the first slash; empty for a name without one."""
    return name.partition("/")[0] if "/" in name else ""


def submission_scores(paths: TrialPaths) -> list[PlotValue]:
    """Public scores of a trial's submissions, by minutes since the agent started; None for one without a score."""
    submissions = sorted(read_submissions_of(paths), key=lambda submission: submission.number)
    started = read_events(paths.trial_log).last("agent_started")
    begin = float(started["t"]) if started is not None else submissions[0].received_at if submissions else 0.0
    values = []
    for submission in submissions:
        score = submission.score
        interval = None if score is None or score.low is None else score.interval
        text = PERCENT.estimate(score, submission.state.value)
        values.append(
            PlotValue(
                round(max(0.0, submission.received_at - begin) / 60, 2),
                None if score is None else score.value,
                interval,
                clean(f"submission {submission.number}: {text}", 200),
            )
        )
    return values


def curves_of(entry: CatalogEntry) -> Curves:
    """The series of a training log or a trial, the most telling first; other results have none.

    Raises Agent2Error or OSError for a result whose files cannot be read.
    """
    if entry.kind is EntryKind.TRAINING:
        return {
            clean(name, 60): values
            for name, values in training_series(read_object(entry.path / "monitor.json")).items()
        }
    if entry.kind is EntryKind.TRIAL:
        scores = submission_scores(TrialPaths(entry.path))
        return {PUBLIC_SCORE: scores} if scores else {}
    return {}


def first_curve(entry: CatalogEntry) -> tuple[str, list[float | None]]:
    """(name, values) of the series that stands for a run in a list; of a result without one: empty.

    Raises nothing: a result that cannot be read has no curve, and its own page shows why.
    """
    try:
        curves = curves_of(entry)
    except Exception:  # boundary: the files of a trial or of a training log are anybody's
        return "", []
    name = next(iter(curves), "")
    return name, [point.value for point in curves.get(name, ())]
