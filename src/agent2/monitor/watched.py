"""What every detector is told, and the questions that many of them ask of a series."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from agent2.monitor.series import TrainingLog
from agent2.monitor.signals import MonitorSettings, Signal
from agent2.monitor.trends import Trend, median_before_end, reference, trend


@dataclass(frozen=True, slots=True)
class Watched:
    """What a detector is told."""

    log: TrainingLog
    settings: MonitorSettings
    benchmarks: Sequence[str]
    """Series that are benchmark scores; the primary metric first."""
    lower_is_better: Collection[str] = ()
    """Those of them that are better when they are smaller."""
    win_rates: Sequence[str] = ("win_rate",)
    """Series that are win rates."""


Detector = Callable[[Watched], Signal | None]


def trend_of(watched: Watched, name: str, *, since_start: bool = False) -> Trend | None:
    """The trend of a series, within the settings' window or since the run began; None if there is none to test."""
    series = watched.log.get(name)
    if series is None:
        return None
    return trend(series, len(series) if since_start else watched.settings.trend_window)


def last_step(watched: Watched, name: str) -> int:
    """The last step of a series; 0 if it was not logged."""
    series = watched.log.get(name)
    return int(series.steps[-1]) if series is not None else 0


def change_since_start(watched: Watched, name: str) -> tuple[float, float, int] | None:
    """(start, now, step) of a positive quantity, both as running medians; None while there is too little."""
    series, settings = watched.log.get(name), watched.settings
    start = reference(series, settings.reference) if series is not None else None
    if series is None or start is None or start <= 0 or len(series) <= settings.reference:
        return None
    return start, median_before_end(series, settings.smoothing), int(series.steps[-1])


def recent(watched: Watched, name: str, n_points: int = 3) -> float | None:
    """Median of the last n_points of a series; None while there are fewer."""
    series = watched.log.get(name)
    return None if series is None or len(series) < n_points else median_before_end(series, n_points)
