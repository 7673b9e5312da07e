"""Trajectories in ATIF, the agent trajectory interchange format, which Harbor and its agents write.

A step of the agent is a turn, its observation the reply; what a trajectory copied from an earlier one for context, and
the trajectories of subagents inside it, are left out. A file alone has no score: it is judged with `agent2 cards
rescore`. A trajectory that goes on in another file is read with it.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from agent2.cards.imports.foreign_log import UNKNOWN, UNSCORED, ForeignLog
from agent2.cards.imports.messages import conversation_of
from agent2.cards.imports.source import NO_CHOICE, LogChoice, LogSource, document_of, require_metric, shaped
from agent2.errors import ConfigError, Fault
from agent2.records import Message, Rollout, RolloutStatus, Score, ScoredRollout, Turn, Usage, token_count

NO_SCORE = "a trajectory has no score; judge it with agent2 cards rescore"
MAX_PARTS = 100
"""Most files that a trajectory goes on in."""


class _AtifCall(msgspec.Struct):
    function_name: str
    tool_call_id: str = ""
    arguments: Any = None


class _AtifResult(msgspec.Struct):
    content: str | list[dict[str, Any]] | None = None
    source_call_id: str | None = None


class _AtifObservation(msgspec.Struct):
    results: list[_AtifResult] = []


class _AtifMetrics(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _AtifStep(msgspec.Struct):
    source: str
    message: str | list[dict[str, Any]] | None = None
    reasoning_content: str | None = None
    tool_calls: list[_AtifCall] | None = None
    observation: _AtifObservation | None = None
    metrics: _AtifMetrics | None = None
    is_copied_context: bool | None = None


class _AtifAgent(msgspec.Struct):
    name: str
    version: str = UNKNOWN
    model_name: str | None = None


class _AtifTotals(msgspec.Struct):
    total_prompt_tokens: int | None = None
    total_completion_tokens: int | None = None


class AtifTrajectory(msgspec.Struct):
    """What is read of a trajectory."""

    schema_version: str
    agent: _AtifAgent
    steps: list[_AtifStep]
    session_id: str | None = None
    trajectory_id: str | None = None
    final_metrics: _AtifTotals | None = None
    continued_trajectory_ref: str | None = None


def recognises(source: LogSource) -> bool:
    """Whether a source names a version of the format."""
    document = source.head
    return isinstance(document, dict) and str(document.get("schema_version", "")).startswith("ATIF-")


def read(source: LogSource, choice: LogChoice = NO_CHOICE) -> ForeignLog:
    """The trajectory in a file, without a score. Raises ConfigError for another layout."""
    require_metric(choice, [UNSCORED], source.path)
    if not recognises(source):
        raise ConfigError(f"{source.path}: is no trajectory in ATIF (its schema_version does not begin with ATIF-)")
    trajectory = trajectory_of(source.path, source.document)
    item_id = trajectory.trajectory_id or trajectory.session_id or source.path.stem
    opening, turns = conversation(trajectory)
    if not turns:
        raise ConfigError(f"{source.path}: has no step of the agent")
    rollout = Rollout(
        item_id=item_id,
        attempt=0,
        seed=0,
        status=RolloutStatus.COMPLETED,
        prompt=opening,
        turns=turns,
        answer=answer_of(trajectory, turns),
        state={},
        usage=usage_of(trajectory, 0.0),
    )
    return ForeignLog(
        harness=f"{trajectory.agent.name} {trajectory.agent.version}",
        task=f"{source.path.stem}-v{UNKNOWN}",
        model=trajectory.agent.model_name or trajectory.agent.name,
        scorer=UNSCORED,
        questions=[(item_id, json.dumps([message.text for message in opening]))],
        rollouts=[ScoredRollout(rollout, Score(None, NO_SCORE, Fault.JUDGE))],
        settings={},
        attempts=1,
        lock={"format": trajectory.schema_version},
        assumed=("seconds: 0, they are not read",),
    )


def trajectory_of(path: Path, document: Any = None) -> AtifTrajectory:
    """The trajectory in a file and in those that it goes on in. Raises ConfigError."""
    first = shaped(document_of(path) if document is None else document, AtifTrajectory, str(path))
    part, files = first, {path.resolve()}
    steps = [*first.steps]
    while part.continued_trajectory_ref is not None and len(files) < MAX_PARTS:
        file = path.parent / Path(part.continued_trajectory_ref).name
        if file.resolve() in files or not file.is_file():
            break
        files.add(file.resolve())
        part = shaped(document_of(file), AtifTrajectory, str(file))
        steps += part.steps
    return msgspec.structs.replace(first, steps=steps, final_metrics=part.final_metrics)


def conversation(trajectory: AtifTrajectory) -> tuple[list[Message], list[Turn]]:
    """Opening messages and turns of a trajectory."""
    return conversation_of([message for step in _own_steps(trajectory) for message in _messages(step)])


def answer_of(trajectory: AtifTrajectory, turns: Sequence[Turn]) -> str | None:
    """What the agent wrote last, if it called nothing after it."""
    agent_steps = [step for step in _own_steps(trajectory) if step.source == "agent"]
    return turns[-1].action if agent_steps and turns and not agent_steps[-1].tool_calls else None


def usage_of(trajectory: AtifTrajectory, seconds: float) -> Usage:
    """Tokens of a trajectory as it sums them, else those of its steps; None where neither states them."""
    totals = trajectory.final_metrics or _AtifTotals()
    prompt, completion = totals.total_prompt_tokens, totals.total_completion_tokens
    metrics = [step.metrics for step in _own_steps(trajectory) if step.metrics is not None]
    if prompt is None:
        prompt = _sum([step.prompt_tokens for step in metrics])
    if completion is None:
        completion = _sum([step.completion_tokens for step in metrics])
    return Usage(token_count(prompt), token_count(completion), seconds)


def _sum(counts: Sequence[int | None]) -> int | None:
    stated = [count for count in counts if count is not None]
    return sum(stated) if stated and len(stated) == len(counts) else None


def _own_steps(trajectory: AtifTrajectory) -> list[_AtifStep]:
    return [step for step in trajectory.steps if not step.is_copied_context]


def _messages(step: _AtifStep) -> list[Mapping[str, Any]]:
    """A step as messages: what was said, and what came back."""
    role = "assistant" if step.source == "agent" else step.source
    calls = [{"function": call.function_name, "arguments": call.arguments} for call in step.tool_calls or ()]
    message: dict[str, Any] = {"role": role, "content": step.message, "tool_calls": calls}
    if step.reasoning_content:
        message["reasoning_content"] = step.reasoning_content
    results = [] if step.observation is None else step.observation.results
    return [message, *({"role": "tool", "content": result.content} for result in results)]
