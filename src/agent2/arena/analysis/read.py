"""Reads a finished trial's folder into `TrialEvidence`.

Reads what the harness wrote (trial.json, lock.json, events, grader.db, revisions.git, the gateway's record, agent.log)
and nothing from the workspace itself; what an agent wrote comes from the recorder's copies. Damaged lines are left out,
counted, and reported among the warnings. Unknown keys are ignored: newer harnesses may write more.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any, TypeVar

import msgspec
from pydantic import ValidationError

from agent2.arena.agents import load_agent
from agent2.arena.analysis.result import read_by_type
from agent2.arena.evidence import (
    AgentEnd,
    CommandLine,
    HeldOutScore,
    Intervention,
    LlmCall,
    LlmRecord,
    MetricPoint,
    NoiseBand,
    ProcessSample,
    Revision,
    TrialEvidence,
    read_assignment_verdict,
)
from agent2.arena.gpu_use import read_gpu_hours
from agent2.arena.recorder import RevisionReader, open_revisions
from agent2.arena.reproduction_log import read_reproductions
from agent2.arena.retention_log import read_retention
from agent2.arena.spec import Mode, TaskSpec
from agent2.arena.submissions import read_submissions_of
from agent2.arena.trial_folder import HELD_OUT_SCORED, ActiveTime, Events, TrialPaths, interruptions, read_events
from agent2.cards.reader import read_totals
from agent2.errors import CardError, ConfigError
from agent2.foreign_files import read_limited, read_tail
from agent2.integrity import IntegrityRecord
from agent2.llm.gateway.recording import DIFFERENCES, Exchange, ExchangeOutcome, read_exchanges, totals
from agent2.records import JsonValue, Split
from agent2.stats.estimates import Estimate
from agent2.stats.stored import read_difference, read_estimate
from agent2.texts import counted

LOG_TAIL_CHARACTERS = 20_000
DESIGN_FILE = "output/design.json"
MAX_AGENT_FILE_BYTES = 200_000
_UNANSWERED = frozenset({ExchangeOutcome.LOST, ExchangeOutcome.OPEN})
_RESUME = "let it finish, or resume it: agent2 resume TRIAL"

RecordT = TypeVar("RecordT", ProcessSample, MetricPoint, CommandLine)
_Row = dict[str, JsonValue]


def read_llm(paths: TrialPaths, config: Mapping[str, JsonValue]) -> LlmRecord | None:
    """The agent's LLM calls; None for an agent without a driver."""
    if config.get("driver") is None:
        return None
    exchanges = read_exchanges(paths.llm)
    budget, replay = config.get("budget") or {}, config.get("replay")
    return LlmRecord(
        totals=totals(exchanges),
        calls=tuple(_call(exchange) for exchange in exchanges),
        max_tokens=budget.get("llm_tokens"),
        max_dollars=budget.get("llm_dollars"),
        replay_of=PurePath(str(replay.get("trial"))).name if isinstance(replay, dict) else None,
        n_differences=len(read_events(paths.llm / DIFFERENCES).rows),
    )


def _call(exchange: Exchange) -> LlmCall:
    return LlmCall(
        number=exchange.id,
        t=exchange.started_at,
        seconds=exchange.latency_s,
        protocol=exchange.protocol.value,
        asked_model=exchange.asked_model,
        model=exchange.model,
        outcome=exchange.outcome.value,
        status=exchange.status,
        tokens=exchange.tokens,
        is_counted=exchange.counted and exchange.outcome not in _UNANSWERED,
        dollars=exchange.dollars,
        retries=exchange.retries,
        fault=exchange.fault,
    )


def read_interventions(paths: TrialPaths, warnings: list[str]) -> tuple[Intervention, ...]:
    """The interventions that people reported."""
    events = read_events(paths.interventions_log)
    if events.n_torn:
        warnings.append(f"events/interventions.jsonl: {counted(events.n_torn, 'damaged line')} left out.")
    return tuple(Intervention(float(row["t"]), str(row.get("note", "")), str(row.get("by", ""))) for row in events.rows)


def read_evidence(trial_root: Path) -> TrialEvidence:
    """Everything that is known about one finished trial.

    Raises ConfigError if the folder contains no trial or the trial is not finished.
    """
    paths = TrialPaths(trial_root)
    config = _json_object(paths.trial_json)
    for name in ("trial_id", "agent", "seed", "sandbox"):
        if config.get(name) is None:
            raise ConfigError(f"{paths.trial_json}: contains no {name!r}; it is machine-written, restore it")
    lock = _json_object(paths.lock_json)
    events = read_events(paths.trial_log)
    warnings = [f"events/trial.jsonl: {counted(events.n_torn, 'damaged line')} left out."] if events.n_torn else []
    warnings += [str(row.get("reason", "")) for row in events.rows if row.get("event") == "recording_failed"]
    started, ended = _required(events, "agent_started", paths), _required(events, "agent_ended", paths)
    final, noise = _required(events, "final_scored", paths), _required(events, "noise_measured", paths)
    submissions = read_submissions_of(paths)
    revisions = _revisions(paths, warnings)
    processes = _records(paths.processes_log, ProcessSample, warnings)
    agent_end = AgentEnd(ended["end"])
    interventions = read_interventions(paths, warnings)
    stops = [float(row["t"]) for row in events.rows if row.get("event") == "agent_interrupted"]
    pauses = interruptions(events)
    clock = ActiveTime(pauses)
    # all of these happen only while the agent works
    signs_of_life = [*stops, *(s.received_at for s in submissions), *(r.t for r in revisions)]
    signs_of_life += [*(p.last_seen for p in processes), *(i.t for i in interventions)]
    integrity, problem = _integrity(paths, events.last("audited"))
    warnings += [problem] if problem else []
    evidence = TrialEvidence(
        trial_id=str(config["trial_id"]),
        task=_task(config, paths),
        agent=str(config["agent"]).rstrip("/").rpartition("/")[2],
        driver=config.get("driver"),
        seed=int(config["seed"]),
        sandbox=str(config["sandbox"]),
        containment=tuple(config.get("containment", ())),
        started_at=float(started["t"]),
        ended_at=clock(_end_time(agent_end, started, ended, signs_of_life)),
        deadline=float(started["deadline"]),
        agent_end=agent_end,
        agent_exit_code=ended.get("exit_code"),
        n_judgements=ended.get("judgements"),
        agent_log_tail=_tail(paths.agent_log),
        base_weights_digest=str(lock.get("base_model", {}).get("weights_digest", "")),
        base_public=_base_public(events, paths),
        base_private=_base_score(events, Split.TEST_PRIVATE),
        final_private=read_estimate(final.get("score")),
        gain=read_difference(final.get("gain")),
        final_submission=final.get("submission"),
        train_score=read_estimate((train := events.last("train_scored") or {}).get("score")),
        train_scored=train.get("submission"),
        noise=_noise_band(noise),
        submissions=submissions,
        revisions=revisions,
        agent_end_reason=str(ended.get("reason", "")),
        mode=Mode(str(config.get("mode", Mode.FREE.value))),
        llm=read_llm(paths, config),
        commands=_records(paths.commands_log, CommandLine, warnings, _untimed),
        interventions=interventions,
        reproductions=read_reproductions(paths, str(config["trial_id"]), warnings),
        retention=read_retention(paths, str(config["trial_id"]), warnings),
        base_answer_tokens=_answer_tokens(paths, "base"),
        final_answer_tokens=_answer_tokens(paths, "final"),
        assignment=read_assignment_verdict(events.last("assignment_judged")),
        reproduces=config.get("reproduces"),
        gpu_hours=read_gpu_hours(paths),
        processes=processes,
        metrics=_records(paths.metrics_log, MetricPoint, warnings),
        design=_design(revisions),
        lock=lock,
        agent_files=_agent_files(paths.agent, lock, warnings),
        integrity=integrity,
        integrity_problem=problem,
        by_type=read_by_type(paths),
        train_kinds=frozenset(map(str, kinds)) if (kinds := final.get("train_kinds")) is not None else None,
        held_out=_held_out(events),
        warnings=tuple(warnings),
        interruptions=pauses,
        is_quick=config.get("quick") is True,
    )
    return _without_pauses(evidence, clock) if pauses else evidence


def _without_pauses(evidence: TrialEvidence, clock: ActiveTime) -> TrialEvidence:
    """The evidence with every time on a clock that excludes the agent's interruptions."""

    def active(t: float | None) -> float | None:
        return None if t is None else clock(t)

    llm = evidence.llm
    if llm is not None:
        llm = replace(llm, calls=tuple(replace(call, t=clock(call.t)) for call in llm.calls))
    return replace(
        evidence,
        submissions=[
            replace(s, received_at=clock(s.received_at), finished_at=active(s.finished_at))
            for s in evidence.submissions
        ],
        revisions=[replace(revision, t=clock(revision.t)) for revision in evidence.revisions],
        processes=[
            replace(p, first_seen=clock(p.first_seen), last_seen=clock(p.last_seen)) for p in evidence.processes
        ],
        metrics=[replace(point, t=clock(point.t)) for point in evidence.metrics],
        commands=[replace(command, t=active(command.t)) for command in evidence.commands],
        interventions=[replace(intervention, t=clock(intervention.t)) for intervention in evidence.interventions],
        llm=llm,
    )


def _noise_band(row: Mapping[str, Any]) -> NoiseBand:
    band = NoiseBand(float(row["half_width"]), int(row["n_replicates"]))
    return replace(band, over=str(row["over"])) if "over" in row else band


def _base_public(events: Events, paths: TrialPaths) -> Estimate:
    """The base model's score on test_public. Raises ConfigError if it was not scored."""
    score = _base_score(events, Split.TEST_PUBLIC)
    if score is None:
        raise ConfigError(f"{paths.trial_log}: contains no score of the base model on test_public; {_RESUME}")
    return score


def _json_object(path: Path) -> dict[str, JsonValue]:
    try:
        value = msgspec.json.decode(read_limited(path))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); pass the folder of a finished trial") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: is not JSON ({error}); it is machine-written, restore it") from error
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: contains a {type(value).__name__}, an object is needed; restore the file")
    return value


def _required(events: Events, name: str, paths: TrialPaths) -> dict[str, JsonValue]:
    row = events.last(name)
    if row is None:
        raise ConfigError(f"{paths.trial_log}: contains no {name!r}, the trial is not finished; {_RESUME}")
    return row


def _task(config: Mapping[str, JsonValue], paths: TrialPaths) -> TaskSpec:
    fields = {key: value for key, value in config["task"].items() if key in TaskSpec.model_fields}
    fields["budget"] = config.get("budget", fields.get("budget"))  # the trial's budget, not the task's default
    try:
        return TaskSpec.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(
            f"{paths.trial_json}: task.{'.'.join(map(str, first['loc']))}: {first['msg']}; restore the file"
        ) from error


def _base_score(events: Events, split: Split) -> Estimate | None:
    rows = [row for row in events.rows if row.get("event") == "base_scored" and row.get("split") == split.value]
    return read_estimate(rows[-1].get("score")) if rows else None


def _answer_tokens(paths: TrialPaths, model: str) -> float | None:
    """Mean tokens of a model's rollouts on private items, from its card; None where that is not there or not known."""
    try:
        totals = read_totals(paths.card(model, Split.TEST_PRIVATE))
    except (CardError, OSError):
        return None
    tokens = totals.completion_tokens
    return None if tokens is None or not totals.n_rollouts else tokens / totals.n_rollouts


def _held_out(events: Events) -> tuple[HeldOutScore, ...]:
    """One for each task that was scored, in order."""
    return tuple(
        HeldOutScore(
            task=str(row["task"]),
            benchmark=str(row.get("benchmark", "")),
            base=read_estimate(row.get("base")),
            final=read_estimate(row.get("final")),
            change=read_difference(row.get("change")),
            problem=str(row.get("problem", "")),
            seconds=float(row.get("seconds", 0.0)),
        )
        for row in events.rows
        if row.get("event") == HELD_OUT_SCORED
    )


def _end_time(
    end: AgentEnd, started: Mapping[str, JsonValue], ended: Mapping[str, JsonValue], signs_of_life: Iterable[float]
) -> float:
    """When the agent's phase ended; after an interruption the last sign of life, so that downtime does not count."""
    closed_at = float(ended["t"])
    if end is not AgentEnd.INTERRUPTED:
        return closed_at
    return min(closed_at, max([float(started["t"]), *signs_of_life]))


def _untimed(row: _Row) -> _Row:
    """The row of a command, without the time that the log gave it if the agent's record has none."""
    return row if row.get("is_timed") else {**row, "t": None}


def _records(
    path: Path, kind: type[RecordT], warnings: list[str], change: Callable[[_Row], _Row] = lambda row: row
) -> tuple[RecordT, ...]:
    """The rows of a log as records; rows that do not fit are counted as damaged."""
    events = read_events(path)
    records: list[RecordT] = []
    n_bad = events.n_torn
    for row in events.rows:
        try:
            records.append(msgspec.convert(change(row), kind, strict=False))
        except msgspec.ValidationError:
            n_bad += 1
    if n_bad:
        warnings.append(f"events/{path.name}: {counted(n_bad, 'damaged line')} left out.")
    return tuple(records)


def _revisions(paths: TrialPaths, warnings: list[str]) -> tuple[Revision, ...]:
    log = read_events(paths.revisions_log)
    rows = [row for row in log.rows if isinstance(row.get("id"), str)]
    n_bad = log.n_torn + len(log.rows) - len(rows)
    revisions: list[Revision] = []
    repository = open_revisions(paths.revisions_git) if rows else None
    if repository is not None:
        try:
            reader = RevisionReader(repository)
            # the last one and those of submissions first: they matter most, and the reader has limits
            earlier = sorted(rows[:-1], key=lambda row: row.get("submission") is None)
            for row in [*rows[-1:], *earlier]:
                files = reader.files(row["id"])
                if files is None:
                    n_bad += 1
                    continue
                revisions.append(_revision(row, files))
            n_bad -= reader.n_left_out
            if reader.n_left_out:
                warnings.append(
                    f"events/revisions.jsonl: {reader.n_left_out} of {len(rows)} revisions were not read: they contain "
                    "more files or text than is read for a report."
                )
        finally:
            repository.close()
    else:
        n_bad += len(rows)
    if n_bad:
        warnings.append(f"events/revisions.jsonl: {counted(n_bad, 'revision')} could not be read.")
    return tuple(sorted(revisions, key=lambda revision: revision.t))


def _revision(row: _Row, files: dict[str, str]) -> Revision:
    not_kept = row.get("not_kept")
    return Revision(
        t=float(row["t"]),
        id=row["id"],
        submission=row.get("submission"),
        files=files,
        not_kept=tuple(map(str, not_kept)) if isinstance(not_kept, list) else (),
        is_complete=row.get("is_complete") is not False,
    )


def _design(revisions: tuple[Revision, ...]) -> Mapping[str, JsonValue] | None:
    text = revisions[-1].files.get(DESIGN_FILE) if revisions else None
    if text is None:
        return None
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):  # the agent's file may contain anything, deep nesting too
        return None
    return value if isinstance(value, dict) else None


def _integrity(paths: TrialPaths, audited: Mapping[str, JsonValue] | None) -> tuple[IntegrityRecord | None, str]:
    """The audit's record, and what is wrong with it; a record that is damaged or was changed is not used.

    audited: the log's last entry of an audit. It has a digest; in trials of earlier versions, counts alone.
    """
    if not paths.integrity.exists():
        return None, "" if audited is None else "integrity.json: is missing, although the log has an audit."
    try:
        data = read_limited(paths.integrity)
        record = msgspec.json.decode(data, type=IntegrityRecord)
    except OSError as error:
        return None, f"integrity.json: cannot be read ({error.strerror}); judged without an audit."
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return None, f"integrity.json: is damaged ({error}); judged without an audit."
    if audited is None:
        return None, "integrity.json: is of an audit that is not in the log; judged without it."
    stored = {
        "digest": hashlib.sha256(data).hexdigest(),
        "checks": len(record.checks),
        "findings": sum(len(check.findings) for check in record.checks),
        "seconds": record.seconds,
    }
    # a name that the log does not have is not compared: earlier versions logged no digest
    if any(audited.get(name, value) != value for name, value in stored.items()):
        return None, "integrity.json: was changed since the audit wrote it; judged without an audit."
    return record, ""


def _tail(path: Path) -> str:
    n_bytes = 4 * LOG_TAIL_CHARACTERS  # a character takes at most four
    try:
        return read_tail(path, n_bytes).decode(errors="replace")[-LOG_TAIL_CHARACTERS:]
    except OSError:  # no log, or something else in its place
        return ""


def _agent_files(folder: Path, lock: Mapping[str, JsonValue], warnings: list[str]) -> dict[str, str]:
    """Text files of the agent as it ran; none if they are no longer those of the lock."""
    try:
        agent = load_agent(str(folder))
    except ConfigError:
        agent = None
    if agent is None or agent.digest != lock.get("agent_digest"):  # edited after the trial: not evidence of what ran
        warnings.append("The agent's files in the trial's folder are not those that ran; judged without them.")
        return {}
    files = {}
    for path in sorted(agent.folder.rglob("*")):
        if "__pycache__" in path.parts:
            continue
        with suppress(OSError):  # a folder, a large file, or a link, which may lead to any file of this machine
            data = read_limited(path, MAX_AGENT_FILE_BYTES)
            files[str(path.relative_to(agent.folder))] = data.decode("utf-8", "replace")
    return files
