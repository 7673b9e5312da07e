"""Writes a report: the fields that people know, what stands behind them, and the decision with its gates.

Promises: the same evidence and decision give the same bytes (no times, no paths of this machine); what is written
can be read back by `contract.report_file`, which recomputes the decision; exact values stand under
`evidence:`, rounded ones in the fields.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from agent2.contract.changes import tell_change, tell_value
from agent2.contract.decision import Decision
from agent2.contract.evidence import Evidence, MetricEvidence
from agent2.contract.findings import Finding, told
from agent2.contract.metrics import MetricSpec, primary_of
from agent2.contract.rules import worsening
from agent2.files import atomic_write
from agent2.stats.estimates import PairedDifference

TOP_BADCASES = 10


def report_dict(metrics: Sequence[MetricSpec], evidence: Evidence, decision: Decision) -> dict[str, Any]:
    """The whole report as plain data, in the order in which it is written."""
    report: dict[str, Any] = {}
    if evidence.suite is not None:
        report["suite"] = evidence.suite
    report["checkpoint"] = evidence.checkpoint
    report["baseline"] = evidence.baseline
    for key, value in (("role", evidence.role), ("split", evidence.split)):
        if value is not None:
            report[key] = value
    report |= _changes(metrics, evidence.metrics)
    if evidence.badcases is not None:
        report["badcase_top"] = [{name: f"{count} cases"} for name, count in _top(evidence.badcases)]
    report["release_decision"] = decision.release
    report["training_action"] = decision.training_action.value
    report["next_actions"] = list(decision.next_data)
    report["decision"] = decision_dict(decision)
    if evidence.badcases is not None:
        report["badcases"] = dict(sorted(evidence.badcases.items()))
        if evidence.declared_labels is not None:
            report["declared_labels"] = sorted(evidence.declared_labels)
    report["evidence"] = {name: _metric(found) for name, found in evidence.metrics.items()}
    if evidence.private_metrics:
        report["private"] = _changes(metrics, evidence.private_metrics)
        report["private_evidence"] = {name: _metric(found) for name, found in evidence.private_metrics.items()}
    return report | _context(evidence)


def round_report_dict(metrics: Sequence[MetricSpec], evidence: Evidence, decision: Decision) -> dict[str, Any]:
    """The report of one training round: checkpoint, primary_metric, regressions, badcase_clusters, next_actions."""
    primary = primary_of(metrics)
    found = evidence.metrics.get(primary.name)
    regressions = []
    for metric in metrics:
        other = evidence.metrics.get(metric.name)
        is_known = metric.name != primary.name and other is not None and other.is_complete
        if is_known and other is not None and worsening(metric, other) > 0:
            regressions.append({metric.name: _change_only(metric, other)})
    value, change = (None, "") if found is None else (found.new, _change_only(primary, found))
    return {
        "checkpoint": evidence.checkpoint,
        "primary_metric": f"{primary.name} = {tell_value(value, primary.unit)}" + (f" ({change})" if change else ""),
        "regressions": regressions,
        "badcase_clusters": [{name: f"{count} cases"} for name, count in _top(evidence.badcases or {})],
        "next_actions": [*decision.next_data, *([] if decision.passes else [decision.answers.may_be_deployed])],
    }


def decision_dict(decision: Decision) -> dict[str, Any]:
    """The decision with every gate that was looked at, as plain data."""
    answers = decision.answers
    return {
        "release": decision.release,
        "training_action": decision.training_action.value,
        "next_data": list(decision.next_data),
        "reasons": list(decision.reasons),
        "would_change": list(decision.would_change),
        "also_fired": list(decision.also),
        "basis": decision.basis,
        "evidence_gate": {
            "outcome": "fired" if decision.problems else "passed",
            "rule": decision.evidence_rule,
            "problems": list(decision.problems),
        },
        "release_gate": {"outcome": "not met" if decision.lacking else "met", "lacking": list(decision.lacking)},
        "questions": {
            "did capabilities improve": answers.capabilities_improved,
            "are preferences aligned": answers.preferences_aligned,
            "is the reward distorted": answers.reward_distorted,
            "may training go on": answers.may_continue_training,
            "may it be deployed": answers.may_be_deployed,
            "where should the next data come from": answers.next_data_from,
        },
        "gates": [finding_dict(finding) for finding in decision.findings],
        "notes": list(decision.notes),
    }


def write_report(path: Path, report: Mapping[str, Any]) -> None:
    """Write a report as YAML, or as JSON where the name ends so. Equal reports give equal bytes."""
    if path.suffix == ".json":
        text = json.dumps(report, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    else:
        text = yaml.safe_dump(dict(report), sort_keys=False, allow_unicode=True, width=120)
    atomic_write(path, text.encode())


def _changes(metrics: Sequence[MetricSpec], found: Mapping[str, MetricEvidence]) -> dict[str, str]:
    return {
        metric.name: told(metric, found[metric.name]).removeprefix(f"{metric.name} ")
        for metric in metrics
        if metric.name in found
    }


def _change_only(metric: MetricSpec, found: MetricEvidence) -> str:
    """`+3.1` for rates, `+22.0%` for the rest; empty if a side is missing or nothing relative can be said."""
    told_change = tell_change(found.old, found.new, metric.unit)
    _, bracket, change = told_change.rpartition(" (")
    return change.removesuffix(")") if bracket and not change.startswith("no ") else ""


def _top(badcases: Mapping[str, int]) -> list[tuple[str, int]]:
    ranked = sorted(badcases.items(), key=lambda pair: (-pair[1], pair[0]))
    return [(name, count) for name, count in ranked if count > 0][:TOP_BADCASES]


def _metric(found: MetricEvidence) -> dict[str, Any]:
    plain: dict[str, Any] = {"old": found.old, "new": found.new}
    for key in ("n_items", "clean_old", "clean_new", "noise"):
        if getattr(found, key) is not None:
            plain[key] = getattr(found, key)
    if found.n_items is not None:
        plain |= {"n_missing_old": found.n_missing_old, "n_missing_new": found.n_missing_new}
    if found.paired is not None:
        plain["paired"] = _paired(found.paired)
    plain["source"] = found.source
    return plain | ({"problem": found.problem} if found.problem else {})


def _paired(pair: PairedDifference) -> dict[str, Any]:
    """As `report_file.PairedRecord` reads it."""
    change = pair.change
    plain: dict[str, Any] = {"n": change.n, "delta": change.value, "low": change.low, "high": change.high}
    plain["p_value"] = pair.p_value
    if pair.n_won is not None:
        plain |= {"n_won": pair.n_won, "n_lost": pair.n_lost}
    if pair.sd is not None:
        plain["sd"] = pair.sd
    return plain | {"method": change.method}


def _context(evidence: Evidence) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    if evidence.history:
        plain["history"] = {name: list(values) for name, values in evidence.history.items()}
    signals = {}
    for name in ("reward", "kl", "entropy"):
        change = getattr(evidence.training, name)
        if change is not None:
            signals[name] = f"{change.old:.17g} -> {change.new:.17g}"
    if signals:
        plain["training"] = signals
    if evidence.confirmed_actions:
        plain["confirmed_actions"] = dict(evidence.confirmed_actions)
    if evidence.spot_check is not None:
        check = evidence.spot_check
        plain["spot_check"] = {"by": check.by, "n": check.n, "n_agree": check.n_agree, "note": check.note}
    if evidence.incomparable:
        plain["incomparable"] = list(evidence.incomparable)
    if evidence.broken:
        plain["broken"] = list(evidence.broken)
    return plain | ({"notes": list(evidence.notes)} if evidence.notes else {})


def finding_dict(finding: Finding) -> dict[str, Any]:
    """One gate that was looked at, as plain data."""
    plain: dict[str, Any] = {
        "gate": finding.gate,
        "kind": finding.kind,
        "outcome": finding.state.value,
        "on": finding.on,
        "inputs": list(finding.inputs),
        "rule": finding.rule,
        "evidence": finding.evidence,
    }
    if finding.would_change:
        plain["would_change"] = finding.would_change
    if finding.problems:
        plain["problems"] = list(finding.problems)
    if finding.fired:
        plain["effects"] = {"training": finding.effects.training.value, "release": finding.effects.release}
    return plain
