"""Variants of a benchmark: `NAME-faulty`, `NAME-steady`, and `NAME-condensed`.

The items, their order and their scorer are those of the benchmark, so a model's two scores can be paired item by item:
what they differ by is the price of faults (`agent2 cards recovery FAULTY --against STEADY`). `-faulty` breaks one of
the first three calls of every episode, in one of the five ways of `environments.faults`, and allows three calls and
turns more; `-steady` breaks none, also where the benchmark itself would. `-condensed` sends less of the past: the rules
and the newest turns in full, of earlier ones the action and a sentence (`drop_observations`, docs/long-episodes.md);
beside the benchmark itself it shows what a full context is worth.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from agent2.environments.faults import ALL_FAULTS, SPARE_CALLS, with_faults
from agent2.environments.tools.world import FaultSettings
from agent2.records import Benchmark, Environment, Item, JsonValue, Scorer, Split, digest_of

VARIANTS: Mapping[str, FaultSettings | None] = MappingProxyType(
    {"faulty": ALL_FAULTS, "steady": FaultSettings(), "condensed": None}
)
"""Variant -> its faults; None: those of the benchmark."""
CONDENSED = "drop_observations"
"""The context policy of `-condensed`."""


def split_variant(name: str) -> tuple[str, str] | None:
    """The benchmark and the variant that a name means; None: it means no variant."""
    base, dash, variant = name.rpartition("-")
    return (base, variant) if dash and base and variant in VARIANTS else None


class BenchmarkVariant:
    """A benchmark with other faults or another context; whatever else it brings is passed on."""

    def __init__(self, benchmark: Benchmark, variant: str) -> None:
        self._benchmark, self._faults, self._variant = benchmark, VARIANTS[variant], variant
        self.name = f"{benchmark.name}-{variant}"
        self.version = benchmark.version
        self.primary_metric = benchmark.primary_metric
        self.max_turns = benchmark.max_turns + (SPARE_CALLS if self._is_broken else 0)
        self.sampling = benchmark.sampling
        self.attempts = benchmark.attempts
        rules: Mapping[str, JsonValue] = getattr(benchmark, "tool_protocol", {})
        self.tool_protocol = {**rules, **self._fault_rules(rules)} if rules else {}
        self.context: str = CONDENSED if variant == "condensed" else getattr(benchmark, "context", "full")

    @property
    def _is_broken(self) -> bool:
        return self._faults is not None and self._faults.rate > 0

    def __getattr__(self, name: str) -> Any:
        """What the benchmark brings beside what every one has; players are those of the benchmark itself."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._benchmark, name)

    def items(self, split: Split, n: int, secret: bytes | None) -> list[Item]:
        """The benchmark's own. Raises as it does."""
        return self._benchmark.items(split, n, secret)

    def environment(self) -> Environment:
        """A fresh world, with its faults."""
        world = self._benchmark.environment()
        return world if self._faults is None else with_faults(world, self._faults)

    def scorer(self) -> Scorer:
        """The benchmark's own."""
        return self._benchmark.scorer()

    def environment_version(self) -> str:
        """That of the benchmark; with faults changed, the variant and a digest of them too."""
        if self._faults is None:
            return self._benchmark.environment_version()
        return f"{self._benchmark.environment_version()}+{self._variant}-{digest_of(self._faults)[:8]}"

    def _fault_rules(self, rules: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        if self._faults is None:
            return {}
        told: dict[str, JsonValue] = {
            "fault_rate": self._faults.rate,
            "fault_kinds": [str(kind) for kind in self._faults.kinds] if self._faults.rate > 0 else [],
        }
        if isinstance(most := rules.get("max_tool_calls"), int) and self._faults.rate > 0:
            told["max_tool_calls"] = most + SPARE_CALLS
        return told
