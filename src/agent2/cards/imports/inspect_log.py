"""Reads a log of inspect-ai: its JSON form directly, its `.eval` form through inspect-ai itself (extra `inspect`).

An epoch is an attempt; a sample that ended with an error is a failed rollout with a missing score. Verdicts are read as
inspect-ai's `value_to_float` reads them (C, yes, true 1; P 0.5; I, N, no, false 0; "0.7" 0.7), but what it turns into 0
with a warning, and NaN, is a missing score with its reason. A scorer that gives several measures counts as one scorer
each, named `scorer/key`. The first scorer becomes the score unless another is named; the others become views.
Does NOT keep images, tool definitions or events.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from agent2.cards.imports.writing import ForeignLog, finite_or_none, unit_score
from agent2.errors import ConfigError, Fault, shown, unknown_name
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
WORDS: MappingProxyType[str, float] = MappingProxyType({"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0})
UNSCORED = "unscored"
"""Scorer of a log that names none."""
_STOPS = MappingProxyType({"max_tokens": StopReason.LENGTH, "model_length": StopReason.LENGTH})


def read_inspect(path: Path, metric: str | None = None) -> ForeignLog:
    """The evaluation in a log file. metric: the scorer that counts, or `scorer/key` of several; None: the first.

    A log whose samples nobody scored is read: all its scores are missing. Raises ConfigError if the file is no such
    log, is incomplete, for an unknown metric, and for a scorer of several measures if none of them is chosen.
    """
    log = _load(path)
    try:
        spec, samples = log["eval"], log.get("samples") or []
        version = spec.get("packages", {}).get("inspect_ai", "of unknown version")
        if not samples:
            raise ConfigError(f"{path}: contains no samples; the run ended as {log.get('status')!r}")
        chosen = _chosen(samples, log, metric, str(path))
        return ForeignLog(
            harness=f"inspect-ai {version}",
            task=f"{spec['task']}-v{spec.get('task_version', 0)}",
            model=spec["model"],
            scorer=chosen,
            questions=sorted({(str(s["id"]), json.dumps([s["input"], s["target"]], sort_keys=True)) for s in samples}),
            rollouts=[_record(sample, chosen, f"{path}: sample {sample['id']!r}") for sample in samples],
            settings=spec.get("model_generate_config", {}),
            attempts=max(int(sample["epoch"]) for sample in samples),
            lock={
                "status": log.get("status"),
                "created": spec.get("created"),
                "packages": spec.get("packages", {}),
                "solvers": [step.get("solver") for step in log.get("plan", {}).get("steps", [])],
            },
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path}: is not a complete inspect-ai log ({error!r}); export it again") from error


def _load(path: Path) -> dict[str, Any]:
    if path.suffix == ".eval":
        return _through_inspect(path)
    try:
        log = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); check the path") from error
    except ValueError as error:
        raise ConfigError(
            f"{path}: is not JSON ({error}); give the .json or .eval file of an inspect-ai run"
        ) from error
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


def _chosen(samples: Sequence[Mapping[str, Any]], log: Mapping[str, Any], metric: str | None, where: str) -> str:
    """Name of the measure that becomes the score."""
    scorers = {name: list[str]() for sample in samples for name in _scores(sample)}
    for sample in samples:
        for name, one in _scores(sample).items():
            if isinstance(one.get("value"), dict):
                scorers[name] += [f"{name}/{key}" for key in one["value"] if f"{name}/{key}" not in scorers[name]]
    stated = [one.get("name") for one in (log.get("results") or {}).get("scores") or []]
    first = next(iter(scorers), None) or next(iter(stated), None) or UNSCORED
    names = [measure for name, measures in scorers.items() for measure in measures or [name]] or [first]
    asked = metric or first
    measures = scorers.get(asked) or [asked]
    if len(measures) > 1:
        raise ConfigError(
            f"{where}: scorer {asked!r} gives several measures; choose one with --metric: {', '.join(measures)}"
        )
    if measures[0] not in names:
        raise unknown_name("metric", asked, names, f"{where}: --metric")
    return measures[0]


def _scores(sample: Mapping[str, Any]) -> Mapping[str, Any]:
    """Scores of a sample by scorer; logs before inspect-ai 0.3.6 have one without a name."""
    scores = sample.get("scores")
    if scores is None and isinstance(sample.get("score"), dict):
        return {"score": sample["score"]}
    return scores or {}


def _measures(sample: Mapping[str, Any]) -> dict[str, object]:
    """What scorers said of a sample, as logged; a mapping is one measure for each key."""
    said: dict[str, object] = {}
    for name, one in _scores(sample).items():
        value = one.get("value")
        said.update(
            {f"{name}/{key}": part for key, part in value.items()} if isinstance(value, dict) else {name: value}
        )
    return said


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
    said = _measures(sample)
    views = {name: _number(value) for name, value in said.items() if name != metric}
    if sample.get("error"):
        reason = _first_line(sample["error"].get("message", "")) or "the sample ended with an error"
        return Score(None, reason, Fault.INFRASTRUCTURE, views)
    if metric not in said:
        whole = next((name for name in said if metric.startswith(f"{name}/")), None)
        reason = f"{whole} is {_shown(said[whole])} without {metric}" if whole else f"the log has no score of {metric}"
        return Score(None, reason, Fault.JUDGE, views)
    value = _number(said[metric])
    if value is None:
        return Score(None, f"{metric} is {_shown(said[metric])}, not a number", Fault.JUDGE, views)
    one = next(one for name, one in _scores(sample).items() if metric == name or metric.startswith(f"{name}/"))
    explanation, answer = _first_line(one.get("explanation") or ""), one.get("answer")
    extracted = answer if isinstance(answer, str) else None
    return Score(
        unit_score(value, metric, where), explanation or f"{metric} as logged", None, views, extracted=extracted
    )


def _number(value: object) -> float | None:
    """A verdict as a number, by the words of inspect-ai's `value_to_float`; None where that finds none, and for NaN."""
    if isinstance(value, str):
        word = LETTERS.get(value, WORDS.get(value.lower()))
        if word is not None:
            return word
        try:
            value = float(value)
        except ValueError:
            return None
    return finite_or_none(value) if isinstance(value, int | float) else None


def _shown(value: object) -> str:
    """A verdict that is not a number, for a reason."""
    if isinstance(value, list | dict):
        return f"a {'list' if isinstance(value, list) else 'mapping'} of {len(value)}"
    return shown(value) if not isinstance(value, float) or math.isfinite(value) else str(value)


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
