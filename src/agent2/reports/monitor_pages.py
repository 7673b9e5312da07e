"""The report of a monitored run: monitor.json for programs, monitor.md and monitor.html for people."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agent2.monitor.pulls import Pull
from agent2.monitor.watch import TrainingVerdict, Watch
from agent2.reports.charts import monitor_svg, panel_svgs, standalone
from agent2.reports.pages import render, write_json, write_text
from agent2.reports.text import clean, clean_lines

FORMAT = "agent2-monitor-1"
MAX_TEXT = 400
"""Characters of a pulled rollout."""
Table = tuple[Sequence[str], Sequence[Sequence[str]]]


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
        "not_watched": [(danger.value, ", ".join(names)) for danger, names in sorted(watch.not_watched.items())],
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
        "gates": [dict(zip(gate_table(verdict)[0], row, strict=True)) for row in gate_table(verdict)[1]],
        "series": series,
        "notes": list(watch.log.notes),
        "pull": asdict(pull) if pull is not None else None,
    }


def signal_table(watch: Watch) -> Table:
    """One row for each danger that was raised."""
    rows = [
        [
            str(signal.step),
            signal.danger.value,
            "still present" if signal.danger in watch.present else "passed",
            clean(signal.evidence),
            signal.advice,
        ]
        for signal in watch.signals
    ]
    return ["step", "danger", "at the end", "evidence", "what to do"], rows


def gate_table(verdict: TrainingVerdict) -> Table:
    """One row for each gate of the suite that speaks about training."""
    rows = [
        [f.gate, f.state.value, ", ".join(f.inputs), f.rule, f.evidence, f.effects.training.value if f.fired else "-"]
        for f in verdict.findings
    ]
    return ["gate", "state", "inputs", "rule", "evidence", "asks for"], rows


def pull_table(pull: Pull | None) -> Table:
    """The pulled rollouts."""
    head = ["rollout", "reward", "score", "what the model wrote"]
    if pull is None:
        return head, []
    return head, [
        [clean(f"{one.id} #{one.attempt}"), f"{one.reward:.4g}", f"{one.score:.4g}", clean_lines(one.text, MAX_TEXT)]
        for one in pull.pulled
    ]
