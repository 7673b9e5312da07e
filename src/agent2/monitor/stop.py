"""A run that stops itself: the hook for recipes that take `stop=`, for programs without a suite of their own.

    OnlineGrpoHooks(stop=stop_at(Danger.FORMAT_COLLAPSE))

Promises: the signals of `watch` on the same log, at the same step. Does NOT save or roll back anything: the caller
knows which checkpoint is the last good one. For a suite's gates, pauses and rollbacks see `monitor.callback`.
"""

from collections.abc import Callable, Mapping

from agent2.monitor.detectors import detect
from agent2.monitor.series import Reading, assemble, measurements
from agent2.monitor.signals import Danger, MonitorSettings
from agent2.monitor.watched import Watched

Stop = Callable[[Mapping[str, float | str]], str | None]
"""From a line of a training log, with its `step`, to why training should end; None: it should go on."""


def stop_at(*dangers: Danger, settings: MonitorSettings | None = None) -> Stop:
    """The watch over one run, which it must be told from the first line; make a new one for the next run."""
    settings = settings or MonitorSettings()
    readings: list[Reading] = []

    def stop(line: Mapping[str, float | str]) -> str | None:
        step = int(line["step"])
        for logged, number in line.items():
            if isinstance(number, int | float) and logged != "step":
                for name, value in measurements(logged, float(number)):
                    readings.append(Reading(step, name, value, f"step {step}"))
        found = detect(Watched(assemble("run", readings), settings, ()), dangers)
        return "; ".join(f"{signal.danger.value}: {signal.evidence}" for signal in found) or None

    return stop
