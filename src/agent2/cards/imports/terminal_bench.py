"""Results of Terminal-Bench (its own harness, `tb run`): `results.json`, with `run_metadata.json` beside it.

A trial is an attempt at its task; resolved is 1, not resolved 0. Missing are trials that the harness lost: without a
verdict (its tests ran out of time or could not be parsed), with an agent that could not be installed or crashed, and
those of an unknown failure; Terminal-Bench counts them as not resolved. An agent that ran out of time, context or
output, or wrote what could not be parsed, has the verdict of the tests. The share of passed tests is a view. Turns are
not in the file.
"""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any

import msgspec

from agent2.cards.imports.foreign_log import UNKNOWN, ForeignLog, stated_score
from agent2.cards.imports.source import NO_CHOICE, LogChoice, LogSource, document_of, require_metric, shaped
from agent2.errors import ConfigError, Fault
from agent2.records import Message, Rollout, RolloutStatus, Score, ScoredRollout, Usage, token_count

RESOLVED, TESTS = "is_resolved", "tests_passed"
LOST = MappingProxyType(
    {
        "unknown": Fault.INFRASTRUCTURE,
        "unknown_agent_error": Fault.INFRASTRUCTURE,
        "agent_installation_failed": Fault.INFRASTRUCTURE,
        "test_timeout": Fault.JUDGE,
        "parse_error": Fault.JUDGE,
    }
)
"""Modes of failure in which a trial says nothing about the model."""


class TerminalBenchTrial(msgspec.Struct):
    """What is read of a trial."""

    task_id: str
    trial_name: str
    instruction: str = ""
    is_resolved: bool | None = None
    failure_mode: str = "unset"
    parser_results: dict[str, str] | None = None
    total_input_tokens: int | None = None
    total_output_tokens: int | None = None
    agent_started_at: str | None = None
    agent_ended_at: str | None = None


class _TerminalBenchResults(msgspec.Struct):
    results: list[TerminalBenchTrial]


class _TerminalBenchRun(msgspec.Struct):
    agent_name: str = UNKNOWN
    model_name: str | None = None
    dataset_name: str | None = None
    dataset_version: str | None = None
    dataset_size: int | None = None
    n_attempts: int | None = None
    commit_hash: str | None = None
    start_time: str | None = None
    end_time: str | None = None


def recognises(source: LogSource) -> bool:
    """Whether a source has results whose rows state a trial and a mode of failure."""
    document = source.head
    rows = document.get("results") if isinstance(document, dict) else None
    return (
        isinstance(rows, list)
        and bool(rows)
        and isinstance(rows[0], dict)
        and {"trial_name", "is_resolved"} <= rows[0].keys()
    )


def read(source: LogSource, choice: LogChoice = NO_CHOICE) -> ForeignLog:
    """The trials of a run. Raises ConfigError for another layout, and for a trial that is there twice."""
    path = source.path
    trials = shaped(source.document, _TerminalBenchResults, str(path)).results
    if not trials:
        raise ConfigError(f"{path}: holds no trials; the run ended before the first one")
    names = Counter((trial.task_id, trial.trial_name) for trial in trials)
    if doubled := [trial_name for (_, trial_name), n in names.items() if n > 1]:
        raise ConfigError(f"{path}: has trial {doubled[0]} more than once; remove the copies")
    metric = require_metric(choice, [RESOLVED, TESTS], path)
    metadata = path.with_name("run_metadata.json")
    stated = document_of(metadata) if metadata.is_file() else {}
    run = shaped(stated, _TerminalBenchRun, str(metadata))
    attempts: Counter[str] = Counter()
    records = []
    for trial in trials:
        records.append(_record(trial, attempts[trial.task_id], metric))
        attempts[trial.task_id] += 1
    return ForeignLog(
        harness=f"terminal-bench, agent {run.agent_name}",
        task=f"{run.dataset_name or 'terminal-bench'}-v{run.dataset_version or UNKNOWN}",
        model=run.model_name or (run.agent_name if stated else path.parent.name),
        scorer=metric,
        questions=list({trial.task_id: trial.instruction for trial in trials}.items()),
        rollouts=records,
        settings={},
        attempts=max(attempts.values()),
        lock={"agent": run.agent_name, "commit_hash": run.commit_hash},
        assumed=_assumed(run, stated, len(trials)),
    )


def _assumed(run: _TerminalBenchRun, stated: Mapping[str, Any], n_trials: int) -> list[str]:
    assumed = ["attempts: the trials of a task, in the order of the file"]
    if not stated:
        return [*assumed, "model: the name of the folder; run_metadata.json is not beside the file"]
    planned = (run.dataset_size or 0) * (run.n_attempts or 1)
    if n_trials < planned or (run.start_time is not None and run.end_time is None):
        assumed.append(f"the run is not complete: {n_trials} of {planned or 'an unknown number of'} trials")
    return assumed


def _record(trial: TerminalBenchTrial, attempt: int, metric: str) -> ScoredRollout:
    score = _score(trial, metric)
    is_failed = score.value is None and score.fault is Fault.INFRASTRUCTURE
    is_timeout = trial.failure_mode == "agent_timeout"
    status = RolloutStatus.TIME_CAP if is_timeout else RolloutStatus.COMPLETED
    rollout = Rollout(
        item_id=trial.task_id,
        attempt=attempt,
        seed=0,
        status=RolloutStatus.FAILED if is_failed else status,
        prompt=[Message("user", trial.instruction)] if trial.instruction else [],
        turns=[],
        answer=None,
        state={"trial": trial.trial_name, "failure_mode": trial.failure_mode},
        usage=Usage(token_count(trial.total_input_tokens), token_count(trial.total_output_tokens), _seconds(trial)),
        fault=Fault.INFRASTRUCTURE if is_failed else None,
        reason=score.reason if is_failed else "",
    )
    return ScoredRollout(rollout, score)


def _score(trial: TerminalBenchTrial, metric: str) -> Score:
    tests = list((trial.parser_results or {}).values())
    values = {
        RESOLVED: None if trial.is_resolved is None else float(trial.is_resolved),
        TESTS: tests.count("passed") / len(tests) if tests else None,
    }
    if trial.failure_mode in LOST:
        return Score(None, f"the trial ended with {trial.failure_mode}", LOST[trial.failure_mode])
    if trial.is_resolved is None:
        return Score(None, f"the trial has no verdict (failure mode {trial.failure_mode})", Fault.INFRASTRUCTURE)
    passed = f"{tests.count('passed')} of {len(tests)} tests passed"
    ended = "" if trial.failure_mode in ("none", "unset") else f", {trial.failure_mode}"
    return stated_score(values, metric, f"{passed}{ended}")


def _seconds(trial: TerminalBenchTrial) -> float:
    if trial.agent_started_at is None or trial.agent_ended_at is None:
        return 0.0
    try:
        began, ended = (datetime.fromisoformat(time) for time in (trial.agent_started_at, trial.agent_ended_at))
        return max(0.0, (ended - began).total_seconds())
    except (ValueError, TypeError):
        return 0.0
