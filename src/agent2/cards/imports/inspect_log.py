"""Reads a log of inspect-ai: its JSON form directly, its `.eval` form through inspect-ai itself (extra `inspect`).

An epoch is an attempt; a sample that ended with an error is a failed rollout with a missing score; verdicts read as
inspect-ai reads them (C 1, P 0.5, I and N 0). The first scorer becomes the score unless another is named; the
others become views. Does NOT keep images, tool definitions or events.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from agent2.cards.imports.writing import ForeignLog, unit_score
from agent2.errors import ConfigError, Fault, unknown_name
from agent2.installation import extra_words
from agent2.records import (
    Message,
    Rollout,
    RolloutStatus,
    Score,
    ScoredRollout,
    StopReason,
    Turn,
    Usage,
)

LETTERS: MappingProxyType[str, float] = MappingProxyType({"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0})
_STOPS = MappingProxyType({"max_tokens": StopReason.LENGTH, "model_length": StopReason.LENGTH})


def read_inspect(path: Path, metric: str | None = None) -> ForeignLog:
    """The evaluation in a log file. metric: name of the scorer that counts; None: the first.

    Raises ConfigError if the file is no such log, is incomplete, or for an unknown metric.
    """
    log = _load(path)
    try:
        spec, samples = log["eval"], log.get("samples") or []
        version = spec.get("packages", {}).get("inspect_ai", "of unknown version")
        names = _scorers(samples)
        chosen = metric or (names[0] if names else None)
        if chosen is None:
            raise ConfigError(f"{path}: no sample has a score; the run ended as {log.get('status')!r}")
        if chosen not in names:
            raise unknown_name("metric", chosen, names, f"{path}: --metric")
        return ForeignLog(
            harness=f"inspect-ai {version}",
            task=f"{spec['task']}-v{spec.get('task_version', 0)}",
            model=spec["model"],
            scorer=chosen,
            questions=sorted({(str(s["id"]), json.dumps([s["input"], s["target"]], sort_keys=True)) for s in samples}),
            rollouts=[_record(sample, chosen, f"{path}: sample {sample['id']!r}") for sample in samples],
            settings=spec.get("model_generate_config", {}),
            attempts=max((int(sample["epoch"]) for sample in samples), default=1),
            lock={
                "status": log.get("status"),
                "created": spec.get("created"),
                "packages": spec.get("packages", {}),
                "solvers": [step.get("solver") for step in log.get("plan", {}).get("steps", [])],
            },
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path}: is no complete inspect-ai log ({error!r}); export it again") from error


def _load(path: Path) -> dict[str, Any]:
    if path.suffix == ".eval":
        return _through_inspect(path)
    try:
        log = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); check the path") from error
    except ValueError as error:
        raise ConfigError(f"{path}: is no JSON ({error}); give the .json or .eval file of an inspect-ai run") from error
    if not isinstance(log, dict) or "eval" not in log:
        raise ConfigError(f"{path}: has no `eval` part; give the .json or .eval file of an inspect-ai run")
    return log


def _through_inspect(path: Path) -> dict[str, Any]:
    try:
        from inspect_ai.log import read_eval_log  # the extra is needed for this form only
    except ImportError as error:
        raise ConfigError(
            f"{path}: reading .eval needs inspect-ai; {extra_words('inspect')}, or convert the file where it is "
            "installed: inspect log convert --to json"
        ) from error
    loaded: dict[str, Any] = read_eval_log(str(path)).model_dump(mode="json")
    return loaded


def _scorers(samples: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of scorers, in the order in which samples first show them."""
    return list(dict.fromkeys(name for sample in samples for name in (sample.get("scores") or {})))


def _record(sample: Mapping[str, Any], metric: str, where: str) -> ScoredRollout:
    opening, turns = _conversation(sample.get("messages") or [])
    usage = [one for one in (sample.get("model_usage") or {}).values() if isinstance(one, dict)]
    error, stop = sample.get("error"), _stop_of(sample)
    if turns:
        turns[-1] = Turn(turns[-1].action, turns[-1].observation, stop, 0, 0)
    answer = (sample.get("output") or {}).get("completion")
    rollout = Rollout(
        item_id=str(sample["id"]),
        attempt=int(sample["epoch"]) - 1,
        seed=0,
        status=RolloutStatus.FAILED if error else _status_of(sample),
        prompt=opening,
        turns=turns,
        answer=answer if isinstance(answer, str) else None,
        state={"target": sample.get("target"), "limit": sample.get("limit")},
        usage=Usage(
            sum(one.get("input_tokens") or 0 for one in usage),
            sum(one.get("output_tokens") or 0 for one in usage),
            float(sample.get("total_time") or 0.0),
        ),
        fault=Fault.INFRASTRUCTURE if error else None,
        reason=_first_line((error or {}).get("message", "")),
        retries=len(sample.get("error_retries") or []),
    )
    return ScoredRollout(rollout, _score(sample, metric, where))


def _status_of(sample: Mapping[str, Any]) -> RolloutStatus:
    limit = sample.get("limit") or {}
    kind = limit.get("type") if isinstance(limit, dict) else None
    if kind in ("time", "working"):
        return RolloutStatus.TIME_CAP
    return RolloutStatus.TURN_CAP if kind is not None else RolloutStatus.COMPLETED


def _stop_of(sample: Mapping[str, Any]) -> StopReason:
    choices = (sample.get("output") or {}).get("choices") or [{}]
    return _STOPS.get(str(choices[0].get("stop_reason")), StopReason.END)


def _score(sample: Mapping[str, Any], metric: str, where: str) -> Score:
    scores = sample.get("scores") or {}
    views = {name: _number(one.get("value")) for name, one in scores.items() if name != metric}
    if sample.get("error"):
        reason = _first_line(sample["error"].get("message", "")) or "the sample ended with an error"
        return Score(None, reason, Fault.INFRASTRUCTURE, views)
    value = _number(scores[metric].get("value")) if metric in scores else None
    if value is None:
        return Score(None, f"scorer {metric} gave no number", Fault.JUDGE, views)
    explanation = _first_line(scores[metric].get("explanation") or "")
    answer = scores[metric].get("answer")
    extracted = answer if isinstance(answer, str) else None
    return Score(
        unit_score(value, metric, where), explanation or f"{metric} as logged", None, views, extracted=extracted
    )


def _number(value: object) -> float | None:
    """A verdict as a number; None for one that is a text, a list or a mapping."""
    if isinstance(value, str):
        return LETTERS.get(value)
    return float(value) if isinstance(value, int | float) else None


def _conversation(messages: Sequence[Mapping[str, Any]]) -> tuple[list[Message], list[Turn]]:
    """Opening messages, then one turn for each assistant message with what came back."""
    first = next((i for i, message in enumerate(messages) if _is_generated(message)), len(messages))
    opening = [Message(str(m.get("role")), _text(m)) for m in messages[:first]]
    turns: list[Turn] = []
    for message in messages[first:]:
        if message.get("role") == "assistant":
            turns.append(Turn(_text(message), None, StopReason.END, 0, 0))
        elif turns:
            last = turns[-1]
            seen = "\n".join(part for part in (last.observation, _text(message)) if part)
            turns[-1] = Turn(last.action, seen, last.stop_reason, 0, 0)
    return opening, turns


def _is_generated(message: Mapping[str, Any]) -> bool:
    return message.get("role") == "assistant" and message.get("source") != "input"


def _text(message: Mapping[str, Any]) -> str:
    """The words of a message and its tool calls; other content by its kind only."""
    return "\n".join(_parts(message))


def _parts(message: Mapping[str, Any]) -> Iterator[str]:
    content = message.get("content")
    if isinstance(content, str):
        if content:
            yield content
    else:
        for part in content or []:
            yield part.get("text") or f"[{part.get('type')}]"
    for call in message.get("tool_calls") or []:
        yield json.dumps({"tool": call.get("function"), "arguments": call.get("arguments")}, sort_keys=True)
    if message.get("error"):
        yield f"error: {message['error'].get('message', '')}"


def _first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0][:300]
