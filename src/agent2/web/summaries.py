"""Each kind of result in one line: state, title, result with its interval and colour, time and cost."""

import math
import os
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from agent2.arena.submissions import read_submissions_of
from agent2.arena.trial_folder import TrialPaths
from agent2.cards import folder as card_folder
from agent2.cards.card import CardFile
from agent2.contract.gates import BLOCK, PASSES
from agent2.errors import Agent2Error
from agent2.evaluation.suite_folder import read_identity
from agent2.foreign_files import open_regular
from agent2.llm.gateway.recording import read_exchanges, totals
from agent2.reports.text import DASH, clean
from agent2.stats.estimates import PERCENT, POINTS, Estimate
from agent2.stats.stored import read_difference
from agent2.texts import counted
from agent2.web.at_work import folders_in, is_held, is_swept
from agent2.web.entries import CatalogEntry, EntryKind, EntryState, EntrySummary, last_events, read_object


def _trial_summary(entry: CatalogEntry) -> EntrySummary:
    config = read_object(entry.path / "trial.json")
    task = config["task"]["name"] if isinstance(config["task"], dict) else config["task"]
    agent = str(config["agent"]).rstrip("/").rpartition("/")[2]
    driver = f" driven by {config['driver']}" if config.get("driver") else ""
    summary = EntrySummary(
        entry, EntryState.FINISHED, clean(f"{agent}{driver} on {task}", 160), "", clean(f"seed {config['seed']}"),
        subject=clean(task, 80), player=clean(f"{agent}{driver}", 80),
    )  # fmt: skip
    if driver:
        summary = replace(summary, has_llm=True, dollars=_llm_dollars(TrialPaths(entry.path)))
    events = last_events(TrialPaths(entry.path).trial_log)
    names = [row.get("event") for row in events]
    if "finished" in names:
        return _finished_trial(summary, {str(row.get("event")): row for row in events})
    if is_held(entry.path, EntryKind.TRIAL):
        phase = _phase(names)
        started = next((row for row in events if row.get("event") == "agent_started"), {})
        deadline = started.get("deadline") if phase == "agent phase" else None
        message = f"in its {phase}{_submitted(TrialPaths(entry.path))}"
        until = float(deadline) if isinstance(deadline, int | float) else None
        return replace(summary, state=EntryState.RUNNING, message=clean(message), deadline=until)
    command = TrialPaths(entry.path).resume_command
    interruption = next((row for row in reversed(events) if row.get("event") == "agent_interrupted"), None)
    if interruption is not None and names[-1] == "agent_interrupted":
        return replace(
            summary, state=EntryState.STOPPED, message=clean(str(interruption.get("reason", ""))), command=command
        )
    if names[-1:] == ["agent_ended"] and events[-1].get("end") == "crashed" and _n_submitted(entry.path) == 0:
        message = "its agent crashed before it submitted anything; not scored"
        return replace(summary, state=EntryState.STOPPED, message=message, command=command)
    message = f"killed in its {_phase(names)}" if names else "killed before its first event, or never started"
    return replace(summary, state=EntryState.STOPPED, message=message, command=command)


def _n_submitted(trial: Path) -> int | None:
    """Number of a trial's submissions; None if that cannot be read."""
    try:
        return len(read_submissions_of(TrialPaths(trial)))
    except Exception:  # boundary: a grader's file may be damaged
        return None


def _llm_dollars(paths: TrialPaths) -> float | None:
    """What the calls of a trial's LLM cost so far; None if that is not known."""
    try:
        return totals(read_exchanges(paths.llm)).dollars
    except (Agent2Error, OSError):
        return None


def _submitted(paths: TrialPaths) -> str:
    """Number of an agent's submissions and the best public score."""
    try:
        records = read_submissions_of(paths)
    except Exception:  # boundary: the grader may be making its file
        return ""
    scores = [record.score for record in records if record.score is not None]
    best = f", the best {PERCENT.estimate(max(scores, key=lambda score: score.value))}" if scores else ""
    return f"; {counted(len(records), 'submission')}{best}" if records else "; no submission yet"


def _finished_trial(summary: EntrySummary, events: dict[str, dict[str, Any]]) -> EntrySummary:
    ended, final = events.get("agent_ended", {}), events.get("final_scored", {})
    gain = read_difference(final.get("gain"))
    assignment = _assignment(events.get("assignment_judged"))
    if gain is None and assignment is not None:
        message = f"assignment {assignment.sentence}"
    elif gain is None:
        n = len(read_submissions_of(TrialPaths(summary.entry.path)))
        message = f"no result: {f'no submission of {n} could be scored' if n else 'the agent submitted nothing'}"
    else:
        message = f"gain {POINTS.estimate(gain.change)} points on private items"
    end = str(ended.get("end", ""))
    is_broken = end in ("crashed", "infrastructure", "limit")
    state = EntryState.FAILED if gain is None and assignment is None else EntryState.FINISHED
    note = f"; the agent's phase ended as: {end}" if is_broken else ""
    times = [row["t"] for row in events.values() if isinstance(row.get("t"), int | float)]
    summary = replace(summary, seconds=max(times) - min(times) if times else None)
    if gain is not None:
        n_findings = events.get("audited", {}).get("findings")
        remark = "" if n_findings == 0 else ", not audited" if n_findings is None else ", integrity findings"
        summary = replace(
            summary,
            result=clean(f"{POINTS.number(gain.change.value)} points{remark}{note}"),
            interval=POINTS.interval(gain.change),
            value=gain.change.value,
            estimate=gain.change,
            # what the audit found may void the gain, which the trial's page decides
            verdict="unknown" if remark or note else _verdict_of(gain.change),
        )
    elif assignment is not None:
        colour = "pass" if assignment.is_passed else "fail"
        result = clean(f"{assignment.sentence}{note}")
        summary = replace(summary, result=result, value=assignment.credit, verdict=colour)
    return replace(summary, state=state, message=clean(f"{message}{note}"))


@dataclass(frozen=True, slots=True)
class _AssignmentResult:
    """Of a trial whose task asks for more than a checkpoint."""

    sentence: str
    is_passed: bool
    credit: float | None


def _assignment(row: dict[str, Any] | None) -> _AssignmentResult | None:
    if row is None:
        return None
    # listing thousands of other trials must not wait for these imports
    from agent2.arena.evidence import read_assignment_verdict

    verdict = read_assignment_verdict(row)
    assert verdict is not None
    return _AssignmentResult(verdict.summary, verdict.passed, verdict.credit)


def _verdict_of(change: Estimate) -> str:
    """The colour of a difference by its interval."""
    if change.low is None or change.high is None or change.low <= 0.0 <= change.high:
        return "unknown"
    return "pass" if change.low > 0.0 else "fail"


def _phase(names: list[Any]) -> str:
    """The phase of a trial that is not finished, by its last events."""
    phases = (
        ("final_scored", "integrity audit"),
        ("graded", "final evaluation"),
        ("agent_ended", "evaluation of its submissions"),
        ("agent_restarted", "agent phase"),
        ("agent_started", "agent phase"),
    )
    return next((phase for event, phase in phases if event in names), "evaluation of the base model")


def _evaluation_summary(entry: CatalogEntry) -> EntrySummary:
    identity = read_identity(entry.path)
    sides = identity.sides
    summary = EntrySummary(
        entry,
        EntryState.FINISHED,
        clean(f"{sides['checkpoint'].name} against {sides['baseline'].name}", 200),
        "",
        clean(f"{identity.suite}, role {identity.role}, split {identity.split}"),
        subject=clean(identity.suite, 80),
        player=clean(sides["checkpoint"].name, 80),
    )
    if (entry.path / "report.json").is_file():
        report = read_object(entry.path / "report.json")
        summary = replace(summary, message=clean(f"release decision: {stated_outcome(report)}"))
        return replace(_with_decision(summary, report), seconds=_played_seconds(entry.path))
    if is_held(entry.path, EntryKind.EVALUATION):
        return replace(summary, state=EntryState.RUNNING, message="rollouts are being played")
    return replace(summary, state=EntryState.STOPPED, message="not finished; the same `agent2 eval` command resumes it")


def _played_seconds(evaluation: Path) -> float | None:
    """How long both sides were played, by the evaluation's cards; None where one of them does not say."""
    seconds: list[float | None] = []
    for path in sorted((evaluation / "cards").glob(f"*/*/{card_folder.CARD_JSON}")):
        try:
            seconds.append(card_folder.load_card(path.parent).wall_clock_s)
        except Agent2Error:
            return None
    known_seconds = [taken for taken in seconds if taken is not None]
    return sum(known_seconds) if seconds and len(known_seconds) == len(seconds) else None


def _with_decision(summary: EntrySummary, report: dict[str, Any]) -> EntrySummary:
    """The summary with the decision that a report states, and the change of the primary metric with its interval."""
    release = str(report.get("release_decision", ""))
    decided = (report.get("decision") or {}).get("numbers") or {}
    is_better = release in PASSES and decided.get("improvement") == "shown"
    verdict = "fail" if release.startswith(BLOCK) else "pass" if is_better else "unknown"
    summary = replace(summary, result=stated_outcome(report), verdict=verdict)
    suite = read_object(summary.entry.path / "suite.json")
    primary = next((metric["name"] for metric in suite.get("metrics") or () if metric.get("role") == "primary"), "")
    numbers = (report.get("evidence") or {}).get(primary) or {}
    pair = read_difference(numbers.get("paired"))
    if pair is None or numbers.get("unit") != "rate":
        return summary
    return replace(summary, interval=POINTS.estimate(pair.change), value=pair.change.value, estimate=pair.change)


def stated_outcome(report: dict[str, Any]) -> str:
    """The outcome that an evaluation's report states; reports of earlier versions state the release decision alone."""
    return clean(report.get("outcome") or report.get("release_decision", "not stated"))


def _card_summary(entry: CatalogEntry) -> EntrySummary:
    card = card_folder.load_card(entry.path)
    score = card.summary.score if card.summary is not None else None
    return EntrySummary(
        entry,
        EntryState.FINISHED if card.state == "closed" else EntryState.STOPPED,
        clean(f"{card.header.checkpoint_name} on {card.header.protocol.benchmark}", 200),
        card_words(card, _open_lines.count(entry.path / card_folder.OPEN_ROLLOUTS) if card.state == "open" else 0),
        clean(card.header.protocol.split.value),
        subject=clean(card.header.protocol.benchmark, 80),
        player=clean(card.header.checkpoint_name, 80),
        result="no score" if score is None else PERCENT.number(score.value),
        interval="" if score is None or score.low is None else PERCENT.interval(score),
        value=None if score is None else score.value,
        estimate=score,
        seconds=card.wall_clock_s,
    )


class LineCounter:
    """Counts lines of files that only grow, reading only what is new; safe to use from several threads."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[int, int, int]] = {}
        """File -> its inode, the bytes read and the lines in them."""
        self._lock = threading.Lock()

    def count(self, path: Path) -> int:
        """Whole lines of the file; 0 where there is none."""
        with self._lock:
            try:
                with open_regular(path) as stream:
                    inode = os.fstat(stream.fileno()).st_ino
                    known_inode, offset, n = self._known.get(path, (inode, 0, 0))
                    if known_inode != inode or os.fstat(stream.fileno()).st_size < offset:
                        offset = n = 0  # another file by this name, or one that was cut
                    stream.seek(offset)
                    while block := stream.read(1 << 20):
                        offset, n = offset + len(block), n + block.count(b"\n")
            except OSError:
                return 0
            self._known[path] = (inode, offset, n)
            return n


_open_lines = LineCounter()


def card_words(card: CardFile, n_open: int) -> str:
    """A card's score in one sentence. n_open: rollouts so far, of one that is open."""
    if card.summary is None:
        planned = card.header.planned_rollouts
        return f"open: {n_open:,}{f' of {planned:,}' if planned else ''} rollouts so far"
    summary = card.summary
    missing = f", {summary.n_missing} without a score" if summary.n_missing else ""
    return (
        f"{PERCENT.estimate(summary.score, 'no score')} over {counted(summary.n_items, 'item')}, "
        f"{counted(summary.n_rollouts, 'rollout')}{missing}"
    )


def _sweep_summary(entry: CatalogEntry) -> EntrySummary:
    plan = read_object(entry.path / "sweep.json")
    n_trials = sum(1 for _ in folders_in(entry.path / "trials"))
    has_report = (entry.path / "report" / "sweep.json").is_file()
    planned = _planned_trials(plan)
    progress = f"{n_trials} of {planned} trials started" if planned else counted(n_trials, "trial")
    message = counted(n_trials, "trial") if has_report else f"{progress}; no report yet"
    is_running = is_swept(entry.path)
    state = EntryState.RUNNING if is_running else EntryState.FINISHED if has_report else EntryState.STOPPED
    title = clean(f"sweep {plan.get('name', entry.path.name)}")
    subject = clean(plan.get("name", entry.path.name), 80)
    return EntrySummary(entry, state, title, message, subject=subject, result=message)


def _planned_trials(plan: dict[str, Any]) -> int:
    """Number of trials of a sweep's plan; 0 where it stops early or has drivers, so that the number is not known."""
    if plan.get("until_decided") or plan.get("drivers"):
        return 0
    sizes = [len(plan[name]) for name in ("tasks", "agents", "modes", "seeds") if isinstance(plan.get(name), list)]
    return math.prod(sizes) if len(sizes) == 4 else 0


@dataclass(frozen=True, slots=True)
class SweepGrid:
    """How far a sweep is: agents by tasks."""

    tasks: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]
    """(agent, what there is of each task)."""


def sweep_grid(entry: CatalogEntry, trials: Sequence[EntrySummary]) -> SweepGrid:
    """Agents by tasks: those of the plan first, then others that have trials."""
    plan = read_object(entry.path / "sweep.json")
    # A path says nothing of the name that its trials bear.
    is_planned = _planned_trials(plan) > 0 and not any("/" in str(name) for name in (*plan["tasks"], *plan["agents"]))
    names = {
        key: [PurePosixPath(str(name)).name.removesuffix(".yaml") for name in plan[key]] if is_planned else []
        for key in ("tasks", "agents")
    }
    tasks = dict.fromkeys([*names["tasks"], *(trial.subject for trial in trials)])
    agents = dict.fromkeys([*names["agents"], *(trial.player for trial in trials)])
    per_cell = len(plan["seeds"]) * len(plan["modes"]) if is_planned else 0
    states = Counter((trial.player, trial.subject, trial.state.value) for trial in trials)

    def cell(agent: str, task: str) -> str:
        counts = {state.value: states[agent, task, state.value] for state in EntryState}
        n_to_come = per_cell - sum(counts.values()) if agent in names["agents"] and task in names["tasks"] else 0
        parts = [f"{n} {state}" for state, n in {**counts, "to come": n_to_come}.items() if n > 0]
        return ", ".join(parts) or DASH

    rows = tuple((clean(agent, 80), tuple(cell(agent, task) for task in tasks)) for agent in agents)
    return SweepGrid(tuple(clean(task, 80) for task in tasks), rows)


USUAL_LOGS = ("train_log", "trainer_state")
"""Names of training logs that say nothing about the run."""


def _training_summary(entry: CatalogEntry) -> EntrySummary:
    report = read_object(entry.path / "monitor.json")
    signals = report.get("signals") or []
    action, n_signals = report.get("training_action", "no verdict"), counted(len(signals), "danger signal")
    message = f"{action}, {n_signals}, step {report.get('last_step')}"
    verdict = {"continue": "", "no verdict": ""}.get(str(action), "fail")
    log = clean(report.get("log", ""), 80)
    # most logs have the name that the trainer gives every log: the folder of the report tells two of them apart
    title = f"training log {clean(entry.path.name, 80) if log in USUAL_LOGS else log}"
    return EntrySummary(
        entry, EntryState.FINISHED, title, clean(message), subject=log, result=clean(message), verdict=verdict
    )


SUMMARIES: dict[EntryKind, Callable[[CatalogEntry], EntrySummary]] = {
    EntryKind.TRIAL: _trial_summary,
    EntryKind.EVALUATION: _evaluation_summary,
    EntryKind.CARD: _card_summary,
    EntryKind.SWEEP: _sweep_summary,
    EntryKind.TRAINING: _training_summary,
}
