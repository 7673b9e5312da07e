"""Trajectories of tau-bench: a JSON list with `task_id`, `trial`, `reward` and `traj`.

A trial is an attempt, the stored reward the score; the database behind it is not in the file, so nothing is judged
again. A trial that ended with an error is a missing score.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import structs

from agent2.cards.imports.foreign_log import UNKNOWN, UNMETERED, ForeignLog, logged_score
from agent2.cards.imports.messages import call_arguments, conversation_of, first_line
from agent2.cards.imports.source import NO_CHOICE, LogChoice, LogSource, require_metric
from agent2.errors import ConfigError, Fault
from agent2.records import Rollout, RolloutStatus, Score, ScoredRollout


def recognises(source: LogSource) -> bool:
    """Whether a source is a list whose rows have a trial, a reward and a trajectory."""
    rows = source.head
    return isinstance(rows, list) and bool(rows) and isinstance(rows[0], dict) and "traj" in rows[0]


def read(source: LogSource, choice: LogChoice = NO_CHOICE) -> ForeignLog:
    """The trajectories in a file. Raises ConfigError if a row is not in tau-bench's layout."""
    path, rows = source.path, source.document
    require_metric(choice, ["reward"], path)
    records, questions = [], {}
    for number, row in enumerate(rows if isinstance(rows, list) else []):
        try:
            record, instruction = _trajectory(row)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError(
                f"{path}: trajectory {number} is not in tau-bench's layout ({error!r}); restore the published file"
            ) from error
        records.append(record)
        questions[record.rollout.item_id] = instruction
    if not records:
        raise ConfigError(f"{path}: holds no trajectories; give tau-bench's file, a JSON list")
    return ForeignLog(
        harness="tau-bench",
        task=f"tau_bench-{path.stem}-v{UNKNOWN}",
        model=path.stem,
        scorer="reward",
        questions=list(questions.items()),
        rollouts=records,
        settings={},
        attempts=1 + max(record.rollout.attempt for record in records),
        lock={"file": path.name},
        assumed=("model: the name of the file", "seconds: 0, the file does not state them"),
    )


def _trajectory(row: Mapping[str, Any]) -> tuple[ScoredRollout, str]:
    messages = [
        {
            **message,
            "tool_calls": [
                {**call["function"], "function": call["function"]["name"]} for call in message.get("tool_calls") or ()
            ],
        }
        for message in row["traj"]
    ]
    for message in messages:
        for call in message["tool_calls"]:
            call["arguments"] = call_arguments(call["arguments"])
    opening, turns = conversation_of(messages)
    ends_with_answer = bool(turns) and messages[-1].get("role") != "tool" and not messages[-1]["tool_calls"]
    rollout = Rollout(
        item_id=str(row["task_id"]),
        attempt=int(row["trial"]),
        seed=0,
        status=RolloutStatus.COMPLETED,
        prompt=opening,
        turns=turns,
        answer=turns[-1].action if ends_with_answer else None,
        state={"actions": (row.get("info") or {}).get("task", {}).get("actions")},
        usage=UNMETERED,
    )
    info = row.get("info") or {}
    score = logged_score(float(row["reward"]), "reward", "reward as stored", {})
    if info.get(
        "error"
    ):  # of the provider or of tau-bench itself; the reward of such a trial is 0, whatever was played
        reason = f"the trial ended with an error: {first_line(str(info['error']))}"
        rollout = structs.replace(rollout, status=RolloutStatus.FAILED, fault=Fault.INFRASTRUCTURE, reason=reason)
        score = Score(None, reason, Fault.INFRASTRUCTURE)
    return ScoredRollout(rollout, score), str((info.get("task") or {}).get("instruction", ""))
