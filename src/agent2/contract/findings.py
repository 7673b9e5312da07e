"""What one gate found: its inputs, its rule, the evidence behind it, and what would change the outcome."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from agent2.contract.changes import tell_change
from agent2.contract.evidence import Evidence, MetricEvidence
from agent2.contract.gates import BLOCK, BLOCK_FOR, Effects, EvidenceNeeds
from agent2.contract.metrics import MetricSpec, Role

NOTHING = Effects()
SLACK = 1e-9
"""Float noise of differences; a drop of exactly the tolerance is within it."""


class GateState(StrEnum):
    """What came of a gate."""

    PASSED = "passed"
    FIRED = "fired"
    INCONCLUSIVE = "inconclusive"
    """The items can show neither a regression nor its absence; no pass."""
    NOT_EVALUATED = "not evaluated"
    """What the rule reads is not there."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One gate applied to one metric (or to training signals, or to badcases)."""

    gate: str
    kind: str
    state: GateState
    on: str
    """Which numbers: a split, "training log", "badcases"."""
    inputs: tuple[str, ...]
    """What was read, as text: `ifeval_prompt_accuracy 63.0% -> 57.2% (-5.8)`."""
    rule: str
    """When the gate fires."""
    evidence: str
    """What stands behind the inputs, and how the rule was applied."""
    would_change: str = ""
    """What would have to be different for another outcome; empty for a pass."""
    metric: str | None = None
    effects: Effects = NOTHING
    """What follows from this finding; nothing unless it fired."""
    problems: tuple[str, ...] = ()
    """Why the evidence is not good enough for a yes; independent of the state."""

    @property
    def fired(self) -> bool:
        """The rule said no."""
        return self.state is GateState.FIRED


@dataclass(frozen=True, slots=True)
class View:
    """What rules look at: the evidence of one split and the suite's words for it."""

    specs: Sequence[MetricSpec]
    by_name: Mapping[str, MetricSpec]
    """Aliases included."""
    metrics: Mapping[str, MetricEvidence]
    on: str
    """Name of the split."""
    is_main: bool
    """False: the private numbers kept beside the main ones; metrics that were not played there are passed over."""
    evidence: Evidence
    needs: EvidenceNeeds

    def spec(self, name: str) -> MetricSpec:
        """The metric of that name or alias."""
        return self.by_name[name]

    def found(self, name: str) -> MetricEvidence | None:
        """Its evidence; None if there is nothing at all."""
        return self.metrics.get(self.by_name[name].name)


def told(spec: MetricSpec, found: MetricEvidence | None) -> str:
    """`name old -> new (change)`."""
    old, new = (None, None) if found is None else (found.old, found.new)
    return f"{spec.name} {tell_change(old, new, spec.unit)}"


def scoped(effects: Effects, spec: MetricSpec) -> Effects:
    """The effects of a gate when this metric fires it: a block is limited to the metric's scope, if it has one."""
    if effects.release == BLOCK and spec.scope is not None and spec.role is not Role.PRIMARY:
        return effects.model_copy(update={"release": f"{BLOCK_FOR}{spec.scope}"})
    return effects
