"""Replays a training log step by step and tells when each danger could be known first.

Promises: the same signals at the same steps as a live callback sees them, because both run the same detectors on
what was logged until then; what could not be watched is listed with the series that are missing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from agent2.monitor.detectors import DETECTORS, detect, missing_series
from agent2.monitor.series import TrainingLog
from agent2.monitor.signals import Danger, Signal
from agent2.monitor.watched import Watched


@dataclass(frozen=True, slots=True)
class Watch:
    """What a log shows."""

    log: TrainingLog
    benchmarks: Sequence[str]
    signals: Sequence[Signal]
    """Each danger once, at the first step at which it could be known; in order of the steps."""
    present: Sequence[Danger]
    """Those that still hold at the end of the log."""
    not_watched: dict[Danger, list[str]]
    """Detectors without data, and the series they lack."""


def watch(watched: Watched) -> Watch:
    """Every danger of a whole log."""
    log = watched.log
    raised: dict[Danger, Signal] = {}
    broken = np.array([reading.step for reading in log.not_finite], dtype=np.int64)
    steps = np.unique(np.concatenate([broken, *(series.steps for series in log.series.values())]))
    for step in steps:
        so_far = replace(watched, log=log.until(int(step)))
        for signal in detect(so_far, [danger for danger in DETECTORS if danger not in raised]):
            raised[signal.danger] = signal
    return Watch(
        log=log,
        benchmarks=tuple(watched.benchmarks),
        signals=sorted(raised.values(), key=lambda signal: signal.step),
        present=[signal.danger for signal in detect(watched)],
        not_watched=missing_series(watched),
    )
