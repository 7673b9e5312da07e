"""Simulations of tau2-bench: its results file, or the folder of `results.json` and `simulations/`.

A trial is an attempt; `reward_info.reward` is the score, and each part of `reward_breakdown` (DB, COMMUNICATE, ...) a
view or, if chosen, the metric. Missing are simulations that the harness lost: those that ended with an infrastructure
error, an unexpected error, an error of the simulated user, its time limit, or the end of the context window, and those
whose evaluation failed. tau2-bench itself leaves only the first and, in newer versions, the last out of its average and
counts the others as 0. Messages between the simulated user and its own tools are left out: the agent never saw them.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from agent2.cards.imports.foreign_log import UNKNOWN, ForeignLog, stated_score
from agent2.cards.imports.messages import conversation_of, first_line, logged_message
from agent2.cards.imports.source import NO_CHOICE, LogChoice, LogSource, document_of, require_metric, shaped
from agent2.errors import ConfigError, Fault
from agent2.records import Message, Rollout, RolloutStatus, Score, ScoredRollout, Usage, token_count

LOST = MappingProxyType(
    {
        "infrastructure_error": Fault.INFRASTRUCTURE,
        "unexpected_error": Fault.INFRASTRUCTURE,
        "user_error": Fault.ENVIRONMENT,
        "timeout": Fault.INFRASTRUCTURE,
        "context_window_exceeded": Fault.INFRASTRUCTURE,
    }
)
"""Reasons of termination after which there is nothing to judge."""


class _Tau2Agent(msgspec.Struct):
    llm: str | None = None
    llm_args: dict[str, Any] | None = None
    implementation: str = ""


class _Tau2Environment(msgspec.Struct):
    domain_name: str = UNKNOWN
    policy: str | None = None


class _Tau2Info(msgspec.Struct):
    agent_info: _Tau2Agent
    environment_info: _Tau2Environment
    git_commit: str = UNKNOWN
    num_trials: int = 1
    max_steps: int | None = None
    user_info: dict[str, Any] = {}


class _Tau2Reward(msgspec.Struct):
    reward: float
    reward_breakdown: dict[str, float] | None = None
    info: dict[str, Any] | None = None


class _Tau2Simulation(msgspec.Struct):
    task_id: str | int
    termination_reason: str
    trial: int | None = None
    seed: int | None = None
    duration: float | None = None
    reward_info: _Tau2Reward | None = None
    messages: list[dict[str, Any]] | None = None
    policy: str | None = None
    info: dict[str, Any] | None = None


class _Tau2Results(msgspec.Struct):
    info: _Tau2Info
    tasks: list[dict[str, Any]]
    simulations: list[_Tau2Simulation] | UnsetType = UNSET
    simulation_index: list[dict[str, Any]] | None = None


def recognises(source: LogSource) -> bool:
    """Whether a source has tasks, and simulations or an index of them."""
    path = _results_path(source)
    results = document_of(path) if source.path.is_dir() and path.is_file() else source.head
    return (
        isinstance(results, dict) and "tasks" in results and ("simulations" in results or "simulation_index" in results)
    )


def read(source: LogSource, choice: LogChoice = NO_CHOICE) -> ForeignLog:
    """The simulations of a run. Raises ConfigError for another layout, and for a folder that lacks simulations."""
    path = _results_path(source)
    results = shaped(document_of(path) if source.path.is_dir() else source.document, _Tau2Results, str(path))
    simulations = _simulations(results, path)
    breakdown = {name for simulation in simulations for name in _rewards(simulation)}
    metric = require_metric(choice, ["reward", *sorted(breakdown - {"reward"})], path)
    records = []
    attempts: dict[str, int] = {}
    for simulation in simulations:
        item_id = str(simulation.task_id)
        attempt = attempts.get(item_id, 0) if simulation.trial is None else simulation.trial
        attempts[item_id] = attempt + 1
        policy = simulation.policy or results.info.environment_info.policy
        records.append(_record(simulation, attempt, metric, policy))
    if not records:
        raise ConfigError(f"{path}: holds no simulations; run tau2-bench first")
    task_ids = set(attempts)
    planned = results.info.num_trials * len(results.tasks)
    return ForeignLog(
        harness="tau2-bench",
        task=f"tau2_bench-{results.info.environment_info.domain_name}-v{results.info.git_commit}",
        model=results.info.agent_info.llm or results.info.agent_info.implementation or path.stem,
        scorer=metric,
        questions=[
            (str(task.get("id")), json.dumps(task, sort_keys=True))
            for task in results.tasks
            if str(task.get("id")) in task_ids
        ],
        rollouts=records,
        settings=results.info.agent_info.llm_args or {},
        attempts=1 + max(record.rollout.attempt for record in records),
        lock={
            "agent": results.info.agent_info.implementation,
            "simulated_user": results.info.user_info.get("llm"),
            "max_steps": results.info.max_steps,
            "git_commit": results.info.git_commit,
        },
        assumed=(
            [f"the run is not complete: {len(records)} of {planned} simulations are in it"]
            if len(records) < planned
            else []
        ),
    )


def _results_path(source: LogSource) -> Path:
    return source.path / "results.json" if source.path.is_dir() else source.path


def _simulations(results: _Tau2Results, path: Path) -> Sequence[_Tau2Simulation]:
    """The simulations of a results file, or of the folder beside it, which must have those that the index lists."""
    if results.simulations is not UNSET and results.simulations:
        return results.simulations
    folder = path.parent / "simulations"
    files = sorted(folder.glob("*.json")) if folder.is_dir() else []
    listed = {str(entry.get("id")) for entry in results.simulation_index or ()}
    if lost := sorted(listed - {file.stem for file in files}):
        raise ConfigError(
            f"{folder}: lacks {len(lost)} of the {len(listed)} simulations that {path.name} lists, {lost[0]}.json for "
            "one; restore the whole folder"
        )
    return [shaped(document_of(file), _Tau2Simulation, str(file)) for file in files]


def _rewards(simulation: _Tau2Simulation) -> Mapping[str, float]:
    stated = simulation.reward_info
    return {} if stated is None else {**(stated.reward_breakdown or {}), "reward": stated.reward}


def _record(simulation: _Tau2Simulation, attempt: int, metric: str, policy: str | None) -> ScoredRollout:
    logged = [message for message in simulation.messages or () if _is_seen(message)]
    opening, turns = conversation_of([logged_message(message) for message in logged])
    if policy and not any(message.role == "system" for message in opening):
        opening = [Message("system", policy), *opening]
    last: Mapping[str, Any] = next((message for message in reversed(logged) if message.get("role") != "user"), {})
    ends_with_answer = last.get("role") == "assistant" and not last.get("tool_calls")
    score, fault = _score(simulation, metric), LOST.get(simulation.termination_reason)
    status = RolloutStatus.TURN_CAP if simulation.termination_reason == "max_steps" else RolloutStatus.COMPLETED
    rollout = Rollout(
        item_id=str(simulation.task_id),
        attempt=attempt,
        seed=simulation.seed or 0,
        status=status if fault is None else RolloutStatus.FAILED,
        prompt=opening,
        turns=turns,
        answer=turns[-1].action if turns and ends_with_answer else None,
        state={"termination_reason": simulation.termination_reason},
        usage=_usage(logged, simulation.duration or 0.0),
        fault=fault,
        reason="" if fault is None else score.reason,
    )
    return ScoredRollout(rollout, score)


def _is_seen(message: Mapping[str, Any]) -> bool:
    """Whether the agent saw or wrote a message."""
    if message.get("role") == "tool":
        return bool(message.get("requestor", "assistant") == "assistant")
    return not (message.get("role") == "user" and message.get("tool_calls"))


def _score(simulation: _Tau2Simulation, metric: str) -> Score:
    reason, rewards = simulation.termination_reason, _rewards(simulation)
    if reason in LOST:
        error = (simulation.info or {}).get("error")
        why = f"the simulation ended with {reason}{': ' + first_line(str(error)) if error else ''}"
        return Score(None, why, LOST[reason])
    if simulation.reward_info is None:
        return Score(None, f"the simulation (ended with {reason}) was not evaluated", Fault.JUDGE)
    # An evaluation that raised is graded 0 by tau2-bench, so that it cannot end the run.
    if error := (simulation.reward_info.info or {}).get("error"):
        return Score(None, f"the evaluation failed: {first_line(str(error))}", Fault.JUDGE)
    if metric not in rewards and reason not in ("user_stop", "agent_stop"):
        return Score(0.0, f"the simulation ended with {reason}", None, rewards)
    return stated_score(rewards, metric, f"{metric} as stored, ended with {reason}")


def _usage(messages: Sequence[Mapping[str, Any]], seconds: float) -> Usage:
    """Tokens of the agent's messages, the greeting aside, which no model writes; None where one does not state them."""
    usages = [message.get("usage") for message in messages[1:] if message.get("role") == "assistant"]
    counts = [
        [usage.get(name) for usage in usages if isinstance(usage, dict)]
        for name in ("prompt_tokens", "completion_tokens")
    ]
    totals = []
    for numbers in counts:
        stated = [number for number in numbers if isinstance(number, int)]
        totals.append(sum(stated) if stated and len(stated) == len(usages) else None)
    return Usage(token_count(totals[0]), token_count(totals[1]), seconds)
