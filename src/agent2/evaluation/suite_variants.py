"""Variants in whose form a packaged suite is played where the suite itself wants more than one machine has.

`agent_tool_regression_v1` is decided on reports; its data sets, or others in their places, are played by three stated
variants, each a packaged suite with a name, a digest and a history of its own. Which of them can be played is looked
for here: files are read up to their first item, bridges are found without starting them.

Promises: the first variant that is ready is chosen, so the same machine always plays the same one. Scores of a variant
are never those of the suite. Does NOT start or install anything.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from agent2.benchmarks import load_benchmark
from agent2.benchmarks.bridges import split_bridged
from agent2.benchmarks.named import named_benchmarks
from agent2.benchmarks.named.setup import first_visible
from agent2.contract.suite_files import load_suite
from agent2.errors import ConfigError


@dataclass(frozen=True, slots=True)
class SuiteVariant:
    """One form of a suite."""

    suite: str
    """Name of a packaged suite."""
    difference: str
    """From the suite that it is a variant of."""


VARIANTS: Mapping[str, tuple[SuiteVariant, ...]] = MappingProxyType(
    {
        "agent_tool_regression_v1": (
            SuiteVariant("agent_tool_regression_files", "its three data sets, each item answered in one message"),
            SuiteVariant(
                "agent_tool_regression_episodes",
                "BFCL's episodes of several turns, tau2.retail in API-Bank's place and mini_repo in SWE-bench's, all "
                "with tools",
            ),
            SuiteVariant(
                "agent_tool_regression_offline", "BFCL, mini_apis in API-Bank's place and mini_repo in SWE-bench's"
            ),
        )
    }
)
"""Suite -> its variants, the nearest first."""


@dataclass(frozen=True, slots=True)
class VariantReadiness:
    """Whether a variant can be played here."""

    variant: SuiteVariant
    missing: tuple[str, ...] = ()
    """Benchmarks whose data or package is not here, in the order of the suite."""
    commands: tuple[str, ...] = ()
    """What to type for each of them; words in capitals are the user's."""

    @property
    def is_ready(self) -> bool:
        """Whether nothing is missing."""
        return not self.missing


def look_at_variants(suite: str) -> list[VariantReadiness]:
    """How far each variant of a suite is from being played on this machine; empty: the suite has none."""
    return [_look_at(variant) for variant in VARIANTS.get(suite, ())]


def ready_variant(suite: str) -> SuiteVariant | None:
    """The variant in whose form a suite is played here; None: the suite is played as it is.

    Raises ConfigError, with what to type, for a suite of whose variants none can be played.
    """
    looked_at = look_at_variants(suite)
    if not looked_at:
        return None
    chosen = next((readiness.variant for readiness in looked_at if readiness.is_ready), None)
    if chosen is not None:
        return chosen
    nearest = min(looked_at, key=lambda readiness: len(readiness.missing))
    raise ConfigError(
        f"suite {suite}: none of its variants can be played here; for {nearest.variant.suite} type "
        f"{' && '.join(nearest.commands)} and repeat the command (agent2 suite check {suite} lists the others)"
    )


def _look_at(variant: SuiteVariant) -> VariantReadiness:
    missing, commands = [], []
    for entry in load_suite(variant.suite).in_order():
        try:
            benchmark = load_benchmark(entry.name)
            if split_bridged(entry.name) is None:  # a bridge would start its package
                first_visible(benchmark)
        except ConfigError:
            missing.append(entry.name)
            commands.append(_command_for(entry.name))
    return VariantReadiness(variant, tuple(missing), tuple(dict.fromkeys(commands)))


def _command_for(benchmark: str) -> str:
    """What brings a benchmark's data or package."""
    if (bridged := split_bridged(benchmark)) is not None:
        return f"agent2 benchmarks install {bridged[0]}"
    row = named_benchmarks().get(benchmark)
    if row is not None and row.package is not None:
        return f"agent2 benchmarks get {benchmark}"
    return f"export {benchmark.upper()}_DATA=FOLDER"
