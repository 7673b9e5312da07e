"""The report of a monitored run: monitor.json for programs, monitor.md and monitor.html for people."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agent2.contract.gates import Finding
from agent2.contract.report_file import finding_dict
from agent2.files import write_json, write_text
from agent2.monitor.pulls import Pull, RewardedRollout
from agent2.monitor.signals import Signal
from agent2.monitor.watch import TrainingVerdict, Watch
from agent2.reports.charts import monitor_svg, panel_svgs, standalone
from agent2.reports.pages import render
from agent2.reports.text import Column, Table, clean, clean_lines

FORMAT = "agent2-monitor-2"
"""Version 1 had the gates in words."""
MAX_TEXT = 400
"""Characters of a pulled rollout."""


@dataclass(frozen=True, slots=True)
class MonitorPaths:
    """The files of a monitor report."""

    json: Path
    markdown: Path
    html: Path
    figure: Path


def write_monitor_report(
    watch: Watch, verdict: TrainingVerdict, pull: Pull | None, suite: str, out_dir: Path
) -> MonitorPaths:
    """Write all files into `out_dir` (made if missing). pull: None where no rollouts were given."""
    out_dir.mkdir(parents=True, exist_ok=True)
    paths = MonitorPaths(*(out_dir / f"monitor.{ending}" for ending in ("json", "md", "html", "svg")))
    fields = {
        "title": clean(f"Training monitor: {watch.log.name}"),
        "subtitle": f"suite {suite}, {len(watch.log.series)} series up to step {watch.log.last_step}",
        "verdict": verdict,
        "panels": panel_svgs(watch),
        "signals": signal_table(watch),
        "gates": gate_table(verdict),
        "not_watched": {danger.value: names for danger, names in sorted(watch.not_watched.items())},
        "pull": pull,
        "pulled": pull_table(pull),
        "notes": [clean(note) for note in watch.log.notes],
    }
    write_text(paths.figure, standalone(monitor_svg(watch)))
    write_json(paths.json, monitor_record(watch, verdict, pull, suite))
    write_text(paths.markdown, render("monitor.md.j2", fields))
    write_text(paths.html, render("monitor.html.j2", fields))
    return paths


def monitor_record(watch: Watch, verdict: TrainingVerdict, pull: Pull | None, suite: str) -> dict[str, Any]:
    """Everything that the pages show, as plain JSON values."""
    series = {
        name: {"n_points": len(one), "first": float(one.values[0]), "last": float(one.values[-1])}
        for name, one in sorted(watch.log.series.items())
    }
    return {
        "format": FORMAT,
        "log": watch.log.name,
        "suite": suite,
        "last_step": watch.log.last_step,
        "training_action": verdict.action.value,
        "reasons": list(verdict.reasons),
        "signals": [asdict(signal) for signal in watch.signals],
        "present": [danger.value for danger in watch.present],
        "not_watched": {danger.value: names for danger, names in watch.not_watched.items()},
        "gates": [finding_dict(finding) for finding in verdict.findings],
        "series": series,
        "notes": list(watch.log.notes),
        "pull": asdict(pull) if pull is not None else None,
    }


def signal_table(watch: Watch) -> Table[Signal]:
    """One row for each danger that was raised."""
    return Table(
        (
            Column("step", lambda one: str(one.step)),
            Column("danger", lambda one: one.danger.value),
            Column("at the end", lambda one: "still present" if one.danger in watch.present else "passed"),
            Column("evidence", lambda one: clean(one.evidence)),
            Column("what to do", lambda one: one.advice),
        ),
        watch.signals,
    )


def gate_table(verdict: TrainingVerdict) -> Table[Finding]:
    """One row for each gate of the suite that speaks about training."""
    return Table(
        (
            Column("gate", lambda one: one.gate),
            Column("state", lambda one: one.state.value),
            Column("inputs", lambda one: ", ".join(one.inputs)),
            Column("rule", lambda one: one.rule),
            Column("evidence", lambda one: one.evidence),
            Column("asks for", lambda one: one.effects.training.value if one.fired else "-"),
        ),
        verdict.findings,
    )


def pull_table(pull: Pull | None) -> Table[RewardedRollout]:
    """The pulled rollouts."""
    return Table(
        (
            Column("rollout", lambda one: clean(f"{one.id} #{one.attempt}")),
            Column("reward", lambda one: f"{one.reward:.4g}"),
            Column("score", lambda one: f"{one.score:.4g}"),
            Column("what the model wrote", lambda one: clean_lines(one.text, MAX_TEXT)),
        ),
        pull.pulled if pull is not None else (),
    )
