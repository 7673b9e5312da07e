"""The evidence gate: whether what stands behind a metric is good enough for any gate to say yes.

Promises: it looks at counts, missing scores and clean shares only, never at whether the numbers are good, so a
worse score cannot make evidence better. A report without any counts is judged by point thresholds unless the
suite asks for items; the decision says so.
"""

import functools

from agent2.contract.changes import tell_value
from agent2.contract.evidence import MetricEvidence
from agent2.contract.gates import EvidenceNeeds
from agent2.contract.metrics import MetricSpec, Role, Unit
from agent2.contract.rollout_numbers import parse_measure
from agent2.errors import NotEnoughData
from agent2.stats.power import detectable_difference

NO_COUNTS = "no item counts: point rule used"
NO_PAIRS = "item counts but no pairs: point rule used"
BY_ITEM = (Role.PRIMARY, Role.REGRESSION_GATE)
"""Roles whose regressions are judged item by item."""


def problems_of(spec: MetricSpec, found: MetricEvidence | None, needs: EvidenceNeeds) -> tuple[str, ...]:
    """Why the evidence of a metric is not good enough, one sentence each with what would fix it; empty if it is."""
    if found is None or not found.is_complete:
        return (_missing_side(spec, found),)
    problems = []
    if found.n_items is None:
        if needs.needs_items:
            problems.append(f"{spec.name}: no item counts, the suite asks for them; give them under `evidence:`")
    else:
        is_by_item = spec.role in BY_ITEM and parse_measure(spec.measure).is_paired
        if needs.needs_items and is_by_item and found.paired is None:
            problems.append(f"{spec.name}: item counts but no pairs, the suite asks for them; evaluate from cards")
        problems += _too_few(spec, found, found.n_items, needs)
        problems += _missing_scores(spec, found, found.n_items, needs)
    return (*problems, *_not_clean(spec, found, needs))


def rule_of(needs: EvidenceNeeds) -> str:
    """What the evidence gate asks for, in words."""
    asked = [
        f"at least {needs.min_items} items behind a metric that has counts",
        f"at most {tell_value(needs.max_missing, Unit.RATE)} of them without a score on either side",
        f"at least {tell_value(needs.min_clean_share, Unit.RATE)} clean rollouts on each side",
        f"clean shares no more than {100 * needs.max_clean_difference:.3g} points apart",
        "both sides of every required metric, under one protocol, and a control group",
    ]
    if needs.max_detectable is not None:
        asked.append(f"counted rates without pairs able to show {100 * needs.max_detectable:.3g} points")
    if needs.needs_items:
        asked.append("item counts, and pairs for primary and regression metrics")
    return "; ".join(asked)


def basis_of(found: MetricEvidence) -> str:
    """What stands behind a metric, in words."""
    if found.paired is not None:
        pair = found.paired
        counts = "" if pair.n_lost is None else f", {pair.n_won} won and {pair.n_lost} lost"
        basis = f"n={pair.n} paired items{counts} ({pair.method})"
    elif found.n_items is not None:
        basis = f"n={found.n_items}; {NO_PAIRS}"
    else:
        basis = NO_COUNTS
    missing = found.n_missing_old + found.n_missing_new
    told = [basis, f"{found.n_missing_old} + {found.n_missing_new} missing" if missing else ""]
    if found.noise is not None:
        told.append(f"noise band +-{found.noise:.3g}")
    return "; ".join(part for part in told if part)


def _missing_side(spec: MetricSpec, found: MetricEvidence | None) -> str:
    if found is not None and found.problem:
        return f"{spec.name}: {found.problem}"
    if found is None or (found.old is None and found.new is None):
        return f"{spec.name}: no number on either side; evaluate it on both"
    side = "baseline" if found.old is None else "checkpoint"
    hint = "a score without its control is not evidence of improvement" if side == "baseline" else "evaluate it"
    return f"{spec.name}: no number for the {side}; {hint}"


def _too_few(spec: MetricSpec, found: MetricEvidence, n_items: int, needs: EvidenceNeeds) -> list[str]:
    if n_items < needs.min_items:
        return [f"{spec.name}: {n_items} items, at least {needs.min_items} are needed; evaluate more items"]
    if needs.max_detectable is None or spec.unit is not Unit.RATE or found.paired is not None:
        return []
    detectable = _detectable(n_items, needs.assumed_discordance)
    if detectable is None or detectable > needs.max_detectable:
        seen = "nothing" if detectable is None else f"differences from {100 * detectable:.1f} points up"
        return [
            f"{spec.name}: {n_items} items show {seen}, {100 * needs.max_detectable:.3g} points must be seen "
            f"(power 0.8, discordance {needs.assumed_discordance:g}); evaluate more items"
        ]
    return []


@functools.lru_cache(maxsize=256)
def _detectable(n_items: int, discordance: float) -> float | None:
    try:
        return detectable_difference(n_items, discordance).difference
    except NotEnoughData:
        return None  # not even the largest difference is seen: the caller reports that


def _missing_scores(spec: MetricSpec, found: MetricEvidence, n_items: int, needs: EvidenceNeeds) -> list[str]:
    problems = []
    for side, missing in (("baseline", found.n_missing_old), ("checkpoint", found.n_missing_new)):
        asked = max(n_items + missing, 1)
        if missing / asked > needs.max_missing:
            problems.append(
                f"{spec.name}: {missing} of {asked} items have no score for the {side}, at most "
                f"{tell_value(needs.max_missing, Unit.RATE)} may be missing; score or play them again"
            )
    return problems


def _not_clean(spec: MetricSpec, found: MetricEvidence, needs: EvidenceNeeds) -> list[str]:
    problems = []
    for side, clean in (("baseline", found.clean_old), ("checkpoint", found.clean_new)):
        if clean is not None and clean < needs.min_clean_share:
            problems.append(
                f"{spec.name}: {tell_value(clean, Unit.RATE)} of the rollouts are clean for the {side}, at least "
                f"{tell_value(needs.min_clean_share, Unit.RATE)} are needed; fix what failed and play again"
            )
    if found.clean_old is not None and found.clean_new is not None:
        difference = abs(found.clean_old - found.clean_new)
        if difference > needs.max_clean_difference + 1e-9:
            problems.append(
                f"{spec.name}: clean shares differ by {100 * difference:.1f} points between the sides, at most "
                f"{100 * needs.max_clean_difference:.3g} are accepted; the side that failed more is not comparable"
            )
    return problems
