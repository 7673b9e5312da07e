"""What differs between two suites, and whether scores made under them may still be compared.

Every differing field is named with both values and with what it changes: *scores* (all of them, or those of one
benchmark), *decisions* (metrics, gates, who sees what), or *neither* (text, names). Scores stay comparable where
nothing differs that changes scores; a gate may change without a single rollout being played again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from agent2.contract.protocol import ORDER, FieldDifference, field_differences
from agent2.contract.suite import Suite


class Reach(StrEnum):
    """What a differing field changes."""

    SCORES = "scores"
    DECISIONS = "decisions"
    NEITHER = "neither"


NEUTRAL_FIELDS = frozenset({"name", "version", "track", "description", "model", "task_distribution"})
SCORE_FIELDS_OF_BENCHMARK = frozenset({"version", "max_tokens", "scorer", "split", "n_items"})
SCORE_FIELDS_OF_METRIC = frozenset({"benchmark", "measure", "split", "unit"})
SCORE_FIELDS_OF_AGENT = frozenset({"initial_environment", "success_criteria", "budget"})


@dataclass(frozen=True, slots=True)
class SuiteDifference:
    """One field that differs, and what follows."""

    field: FieldDifference
    reach: Reach
    benchmark: str | None
    """Whose scores it changes; None: those of all, or no scores."""


@dataclass(frozen=True, slots=True)
class SuiteDiff:
    """All differences of two suites."""

    left: str
    right: str
    """Names with versions."""
    differences: tuple[SuiteDifference, ...]
    comparable: tuple[str, ...]
    """Benchmarks of both suites whose scores may be compared."""
    incomparable: tuple[str, ...]
    """Benchmarks of both suites whose scores may not."""
    one_sided: tuple[str, ...]
    """Benchmarks of one suite alone."""

    @property
    def scores_stay_comparable(self) -> bool:
        """Whether every score of either suite has a comparable one in the other."""
        return not self.incomparable and not self.one_sided

    @property
    def verdict(self) -> str:
        """One sentence."""
        if not self.differences:
            return "the suites are equal"
        if self.scores_stay_comparable:
            return "scores stay comparable: nothing differs that changes a score"
        parts = []
        if self.incomparable:
            parts.append(f"scores on {', '.join(self.incomparable)} are incomparable")
        if self.one_sided:
            parts.append(f"{', '.join(self.one_sided)}: in one suite only")
        if self.comparable:
            parts.append(f"scores on {', '.join(self.comparable)} stay comparable")
        return "; ".join(parts)


def diff_suites(left: Suite, right: Suite) -> SuiteDiff:
    """Every differing field of two suites, in the order of the fields."""
    ours, theirs = ({entry.name for entry in suite.benchmarks} for suite in (left, right))
    found = field_differences(left.model_dump(mode="json"), right.model_dump(mode="json"))
    differences = tuple(_judged(difference, (left, right)) for difference in found)
    shared = [entry.name for entry in left.benchmarks if entry.name in theirs]
    changed = {one.benchmark for one in differences if one.reach is Reach.SCORES}
    everywhere = None in changed
    return SuiteDiff(
        left=left.id,
        right=right.id,
        differences=differences,
        comparable=tuple(name for name in shared if not everywhere and name not in changed),
        incomparable=tuple(name for name in shared if everywhere or name in changed),
        one_sided=tuple(sorted(ours ^ theirs)),
    )


def _judged(difference: FieldDifference, suites: Sequence[Suite]) -> SuiteDifference:
    top, name, part = _taken_apart(difference.field)
    if top == "protocol":
        return SuiteDifference(difference, Reach.SCORES, None)
    if difference.field.endswith(ORDER):
        return SuiteDifference(difference, Reach.NEITHER, None)
    if top == "benchmarks" and (part is None or part in SCORE_FIELDS_OF_BENCHMARK):
        return SuiteDifference(difference, Reach.SCORES, name)
    if top == "benchmarks" and part == "urls":
        return SuiteDifference(difference, Reach.NEITHER, None)
    if top == "metrics" and part in SCORE_FIELDS_OF_METRIC:
        owners = {metric.benchmark for suite in suites for metric in suite.metrics if metric.name == name}
        return SuiteDifference(difference, Reach.SCORES, owners.pop() if len(owners) == 1 else None)
    if top == "agent" and (part is None or part in SCORE_FIELDS_OF_AGENT):
        return SuiteDifference(difference, Reach.SCORES, None)
    if top in NEUTRAL_FIELDS:
        return SuiteDifference(difference, Reach.NEITHER, None)
    return SuiteDifference(difference, Reach.DECISIONS, None)


def _taken_apart(field: str) -> tuple[str, str | None, str | None]:
    """`benchmarks[gsm8k].scorer.name` -> ("benchmarks", "gsm8k", "scorer")."""
    head, bracket, rest = field.removesuffix(ORDER).partition("[")
    if not bracket:
        top, _, below = head.partition(".")
        return top, None, below.partition(".")[0] or None
    name, _, below = rest.partition("]")
    return head, name, below.lstrip(".").partition(".")[0] or None
