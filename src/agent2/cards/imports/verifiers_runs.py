"""Evaluations with verifiers: `results.jsonl` with `metadata.json` beside it, or `traces.jsonl` (its v1 interface).

A rollout of an example is an attempt, its reward the score, each metric a view or, if chosen, the score. A rollout that
ended with an error is missing, since verifiers stores reward 0 for it, except for errors that the model's own output
caused: a call that could not be parsed, a prompt that outgrew the context. Rewards are sums of weighted parts and may
lie outside 0 to 1: then choose a metric.

`traces.jsonl`: an episode is a rollout; one with the traces of several agents is refused.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from agent2.cards.imports.foreign_log import UNKNOWN, ForeignLog, stated_score
from agent2.cards.imports.messages import conversation_of, first_line, logged_message
from agent2.cards.imports.source import NO_CHOICE, LogChoice, LogSource, document_of, require_metric, shaped
from agent2.errors import ConfigError, Fault
from agent2.records import Rollout, RolloutStatus, Score, ScoredRollout, StopReason, Usage, token_count

OWN_ERRORS = frozenset({"ToolParseError", "OverlongPromptError"})
"""Errors that the model's output caused, and no machine."""
REWARD = "reward"
RESULTS, TRACES, METADATA = "results.jsonl", "traces.jsonl", "metadata.json"
ROW_FIELDS = frozenset({REWARD, "example_id", "id", "generation_ms", "scoring_ms", "total_ms"})
"""Numbers of a row that are no metrics."""


class _VerifiersRow(msgspec.Struct):
    prompt: str | list[Any] | None
    completion: str | list[Any] | None
    reward: float | None
    example_id: int | str | None = None
    id: int | str | None = None
    answer: Any = None
    error: Any = None
    metrics: dict[str, float | None] | None = None
    timing: dict[str, Any] | None = None
    total_ms: float | None = None
    is_truncated: bool = False
    stop_condition: str | None = None
    token_usage: dict[str, Any] | None = None

    @property
    def item_id(self) -> str:
        return str(self.id if self.example_id is None else self.example_id)


class _VerifiersRun(msgspec.Struct):
    env_id: str | None = None
    env: str | None = None
    model: str | None = None
    num_examples: int | None = None
    rollouts_per_example: int | None = None
    sampling_args: dict[str, Any] | None = None
    version_info: dict[str, Any] | None = None


class _VerifiersReward(msgspec.Struct):
    score: float
    weight: float = 1.0


class _VerifiersError(msgspec.Struct):
    type: str
    message: str = ""


class _VerifiersNode(msgspec.Struct):
    message: dict[str, Any]
    parent: int | None = None
    sampled: bool = False


class _VerifiersTask(msgspec.Struct):
    type: str = ""
    data: Any = None
    key: str | None = None
    hash: str | None = None


class _VerifiersTrace(msgspec.Struct):
    nodes: list[_VerifiersNode] = []
    rewards: dict[str, _VerifiersReward | None] = {}
    metrics: dict[str, float | None] = {}
    errors: list[_VerifiersError] = []
    ok: bool = True
    is_timeout: bool = False
    stop_condition: str | None = None
    agent: dict[str, Any] = {}
    num_input_tokens: int | None = None
    num_output_tokens: int | None = None


class _VerifiersEpisode(msgspec.Struct):
    task: _VerifiersTask
    traces: list[_VerifiersTrace]
    ok: bool = True
    is_timeout: bool = False
    errors: list[_VerifiersError] = []
    env: dict[str, Any] = {}


def recognises(source: LogSource) -> bool:
    """Whether a source is, or holds, rows with prompt, completion and reward, or episodes."""
    if source.path.is_dir():
        return (source.path / RESULTS).is_file() or (source.path / TRACES).is_file()
    row = source.head
    if not isinstance(row, dict):
        return False
    return {"prompt", "completion", REWARD} <= row.keys() or {"traces", "task"} <= row.keys()


def read(source: LogSource, choice: LogChoice = NO_CHOICE) -> ForeignLog:
    """The rollouts of an evaluation. Raises ConfigError for another layout, and for more rollouts than planned."""
    path = source.path
    if path.is_dir():
        path = path / (RESULTS if (path / RESULTS).is_file() else TRACES)
        source = LogSource(path)
    if isinstance(source.head, dict) and "traces" in source.head:
        return _of_episodes(source, choice)
    return _of_results(source, choice)


def _of_results(source: LogSource, choice: LogChoice) -> ForeignLog:
    path, metadata = source.path, source.path.with_name(METADATA)
    rows = [(number, raw, shaped(raw, _VerifiersRow, f"{path}:{number}")) for number, raw in source.rows]
    for number, _, row in rows:
        if row.example_id is None and row.id is None:
            raise ConfigError(f"{path}:{number}: names no example (example_id, in old files id)")
    if not rows:
        raise ConfigError(f"{path}: holds no rollouts; the run ended before the first one")
    stated = document_of(metadata) if metadata.is_file() else {}
    run = shaped(stated, _VerifiersRun, str(metadata))
    names = dict.fromkeys(name for _, raw, row in rows for name in _metrics(raw, row))
    metric = require_metric(choice, [REWARD, *names], path)
    attempts: Counter[str] = Counter()
    records = []
    for _, raw, row in rows:
        records.append(_record(raw, row, attempts[row.item_id], metric))
        attempts[row.item_id] += 1
    n_attempts = max(attempts.values())
    if run.rollouts_per_example is not None and n_attempts > run.rollouts_per_example:
        doubled = next(item_id for item_id, n in attempts.items() if n == n_attempts)
        raise ConfigError(
            f"{path}: has {n_attempts} rollouts of example {doubled}, {METADATA} plans {run.rollouts_per_example}; "
            "remove the rows that are double"
        )
    planned = (run.num_examples or 0) * (run.rollouts_per_example or 1)
    return ForeignLog(
        harness="verifiers",
        task=f"{run.env_id or run.env or path.parent.name}-v{(run.version_info or {}).get('env_version') or UNKNOWN}",
        model=run.model or "not stated",
        scorer=metric,
        questions=list({record.rollout.item_id: _question(record) for record in records}.items()),
        rollouts=records,
        settings=run.sampling_args or {},
        attempts=n_attempts,
        lock={"version_info": run.version_info},
        assumed=[
            *([f"the run is not complete: {len(records)} of {planned} rollouts"] if len(records) < planned else []),
            *([] if stated else [f"model and sampling: not known, {METADATA} is not beside the file"]),
        ],
    )


def _metrics(raw: Mapping[str, Any], row: _VerifiersRow) -> dict[str, float | None]:
    """The metrics of a row; before version 0.1.10 they stand in it beside the reward."""
    if row.metrics is not None:
        return row.metrics
    return {
        name: float(value)
        for name, value in raw.items()
        if isinstance(value, int | float) and name not in ROW_FIELDS and not isinstance(value, bool)
    }


def _question(record: ScoredRollout) -> str:
    return json.dumps([message.text for message in record.rollout.prompt])


def _record(raw: Mapping[str, Any], row: _VerifiersRow, attempt: int, metric: str) -> ScoredRollout:
    prompt = [{**message, "source": "input"} for message in _messages(row.prompt, "user")]
    logged = _messages(row.completion, "assistant")
    opening, turns = conversation_of([*prompt, *logged])
    if turns and row.is_truncated:
        turns[-1] = msgspec.structs.replace(turns[-1], stop_reason=StopReason.LENGTH)
    score = _score(raw, row, metric)
    is_failed = score.fault is Fault.INFRASTRUCTURE
    is_capped = row.stop_condition in ("max_turns_reached", "max_total_completion_tokens_reached")
    ends_with_answer = bool(logged) and logged[-1]["role"] == "assistant" and not logged[-1].get("tool_calls")
    tokens = row.token_usage or {}
    rollout = Rollout(
        item_id=row.item_id,
        attempt=attempt,
        seed=0,
        status=RolloutStatus.FAILED if is_failed else RolloutStatus.TURN_CAP if is_capped else RolloutStatus.COMPLETED,
        prompt=opening,
        turns=turns,
        answer=turns[-1].action if turns and ends_with_answer else None,
        state={"target": row.answer, "stop_condition": row.stop_condition},
        usage=Usage(token_count(tokens.get("input_tokens")), token_count(tokens.get("output_tokens")), _seconds(row)),
        fault=Fault.INFRASTRUCTURE if is_failed else None,
        reason=score.reason if is_failed else "",
    )
    return ScoredRollout(rollout, score)


def _messages(logged: str | list[Any] | None, role: str) -> list[dict[str, Any]]:
    if isinstance(logged, str):
        return [{"role": role, "content": logged, "tool_calls": []}]
    return [logged_message(raw) for raw in logged or ()]


def _score(raw: Mapping[str, Any], row: _VerifiersRow, metric: str) -> Score:
    if row.error is not None:
        name, text = _error(row.error)
        if name not in OWN_ERRORS:
            return Score(None, f"the rollout ended with {text}", Fault.INFRASTRUCTURE)
    return stated_score({REWARD: row.reward, **_metrics(raw, row)}, metric, f"{metric} as stored")


def _error(error: Any) -> tuple[str, str]:
    """(name of the class, text) of an error, which older versions store as its repr."""
    if isinstance(error, dict):
        text = first_line(str(error.get("error_chain_str") or error.get("error_chain_repr") or error.get("error")))
        return str(error.get("error")), text
    text = first_line(str(error))
    name = re.match(r"\w+", text)
    return (name[0] if name else ""), text


def _seconds(row: _VerifiersRow) -> float:
    total = (row.timing or {}).get("total")
    if isinstance(total, int | float):
        return float(total)
    milliseconds = (row.timing or {}).get("total_ms", row.total_ms)
    return milliseconds / 1000 if isinstance(milliseconds, int | float) else 0.0


def _of_episodes(source: LogSource, choice: LogChoice) -> ForeignLog:
    path = source.path
    episodes = [shaped(raw, _VerifiersEpisode, f"{path}:{number}") for number, raw in source.rows]
    for (number, _), episode in zip(source.rows, episodes, strict=True):
        if len(episode.traces) > 1:
            raise ConfigError(
                f"{path}:{number}: has {len(episode.traces)} traces; an episode of several agents has no single reward"
            )
    traces = [trace for episode in episodes for trace in episode.traces]
    names = dict.fromkeys(name for trace in traces for name in (*trace.rewards, *trace.metrics))
    metric = require_metric(choice, [REWARD, *(name for name in names if name != REWARD)], path)
    attempts: Counter[str] = Counter()
    records = []
    for episode in episodes:
        item_id = episode.task.key or episode.task.hash or episode.task.type
        records.append(_episode_record(episode, item_id, attempts[item_id], metric))
        attempts[item_id] += 1
    configs = [config for trace in traces if isinstance(config := trace.agent.get("config"), dict)]
    models = {str(config["model"]) for config in configs if config.get("model")}
    environments = {str(episode.env.get("id") or UNKNOWN) for episode in episodes}
    return ForeignLog(
        harness="verifiers",
        task=f"{' + '.join(sorted(environments))}-v{UNKNOWN}",
        model=" + ".join(sorted(models)) or "not stated",
        scorer=metric,
        questions=list({record.rollout.item_id: _question(record) for record in records}.items()),
        rollouts=records,
        settings={},
        attempts=max(attempts.values()),
        lock={"file": path.name},
        assumed=("seconds: 0, they are not read", "episodes of one task are attempts at it"),
    )


def _episode_record(episode: _VerifiersEpisode, item_id: str, attempt: int, metric: str) -> ScoredRollout:
    trace = episode.traces[0] if episode.traces else _VerifiersTrace()
    messages = _main_branch(trace.nodes)
    opening, turns = conversation_of(messages)
    score = _episode_score(episode, trace, metric)
    is_failed = score.fault is Fault.INFRASTRUCTURE
    ends_with_answer = bool(messages) and messages[-1]["role"] == "assistant" and not messages[-1]["tool_calls"]
    rollout = Rollout(
        item_id=item_id,
        attempt=attempt,
        seed=0,
        status=RolloutStatus.FAILED if is_failed else RolloutStatus.COMPLETED,
        prompt=opening,
        turns=turns,
        answer=turns[-1].action if turns and ends_with_answer else None,
        state={"stop_condition": trace.stop_condition},
        usage=Usage(token_count(trace.num_input_tokens), token_count(trace.num_output_tokens)),
        fault=Fault.INFRASTRUCTURE if is_failed else None,
        reason=score.reason if is_failed else "",
    )
    return ScoredRollout(rollout, score)


def _episode_score(episode: _VerifiersEpisode, trace: _VerifiersTrace, metric: str) -> Score:
    errors = [*episode.errors, *trace.errors]
    is_ok = episode.ok and trace.ok and bool(episode.traces)
    if not is_ok and not (errors and errors[-1].type in OWN_ERRORS):
        text = f"{errors[-1].type}: {first_line(errors[-1].message)}" if errors else "no result"
        is_timeout = episode.is_timeout or trace.is_timeout
        return Score(None, f"the rollout ended with {'a time limit' if is_timeout else text}", Fault.INFRASTRUCTURE)
    parts = {name: None if reward is None else reward.score for name, reward in trace.rewards.items()}
    stated = [reward for reward in trace.rewards.values() if reward is not None]
    is_judged = bool(stated) and len(stated) == len(trace.rewards)
    total = sum(reward.score * reward.weight for reward in stated) if is_judged else None
    return stated_score({**trace.metrics, **parts, REWARD: total}, metric, f"{metric} as stored")


def _main_branch(nodes: Sequence[_VerifiersNode]) -> list[dict[str, Any]]:
    """The messages from the root to the message that was written last; those that no model wrote are its input."""
    position: int | None = next((k for k in reversed(range(len(nodes))) if nodes[k].sampled), len(nodes) - 1)
    branch: list[dict[str, Any]] = []
    visited: set[int] = set()
    while position is not None and 0 <= position < len(nodes) and position not in visited:
        visited.add(position)
        node = nodes[position]
        message = logged_message(node.message)
        branch.insert(0, message if node.sampled else {**message, "source": "input"})
        position = node.parent
    return branch
