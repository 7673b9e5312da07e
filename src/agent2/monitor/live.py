"""Watches a run while it goes: takes what is logged, keeps the series, and says after each log what to do.

Promises: the same signals as `watch` raises on the finished log. A signal counts while its danger is present, so
a run whose KL has come back is not paused for a spike long past; `raised` remembers every one.
"""

from collections.abc import Mapping

from agent2.monitor.detectors import detect
from agent2.monitor.series import Reading, TrainingLog, assemble, is_summary, measurements
from agent2.monitor.signals import Danger, Signal
from agent2.monitor.verdict import Rules, TrainingVerdict, verdict


class LiveMonitor:
    """The monitor of one run."""

    def __init__(self, rules: Rules, name: str = "run") -> None:
        self.rules = rules
        self.raised: dict[Danger, Signal] = {}
        self._name = name
        self._readings: list[Reading] = []

    @property
    def log(self) -> TrainingLog:
        """What was logged so far."""
        return assemble(self._name, self._readings)

    def add(self, step: int, values: Mapping[str, float]) -> TrainingVerdict:
        """Take one log of the trainer or of an evaluation, and judge."""
        if not is_summary(values):
            for logged, number in values.items():
                for name, value in measurements(logged, float(number), self.rules.names()):
                    self._readings.append(Reading(step, name, value, f"step {step}"))
        log = self.log
        present = detect(self.rules.watched(log))
        for signal in present:
            self.raised.setdefault(signal.danger, signal)
        return verdict(log, present, self.rules)
