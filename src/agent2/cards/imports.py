"""Import of other harnesses' logs into rollout cards, so that they can be regraded, compared and queried.

Promises: nothing is invented. What the log does not state and a card's header needs is listed in the card's lock under
`assumed`; a sample without a verdict is a missing score with the reason that the log gives. Thought and answer are told
apart as in an evaluation (`llm.thoughts`); a stored score stays as it is.

inspect-ai: its JSON form directly, its `.eval` form through inspect-ai itself (extra `inspect`). An epoch is an
attempt; a sample that ended with an error is a failed rollout with a missing score. Verdicts are read as inspect-ai's
`value_to_float` reads them (C, yes, true 1; P 0.5; I, N, no, false 0; "0.7" 0.7), but what it turns into 0 with a
warning, and NaN, is a missing score with its reason. A scorer that gives several measures counts as one scorer each,
named `scorer/key`. The first scorer becomes the score unless another is named; the remaining ones become views.
Images, tool definitions and events are not kept.

lm-eval (`--log_samples`): `samples_<task>_<time>.jsonl`, with `results_<time>.json` beside it. One line is one item
under one filter: the chosen filter gives the score, other filters and metrics become views named `metric@filter`. A
value that is a list (one verdict for each instruction) counts as its mean. Several lines of an item under one filter
are its attempts.
lm-eval scores only the first of several responses to an item; later ones are kept as rollouts with a missing score that
says so. Tokens and seconds are not known: lm-eval does not log them.

tau-bench: a JSON list of trajectories with `task_id`, `trial`, `reward` and `traj`. A trial is an attempt, the stored
reward the score; the database behind it is not in the file, so nothing is judged again. A trial that ended with an
error is a missing score.
"""

import contextlib
import json
import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import structs

from agent2.cards.card import IMPORTED, CardHeader, CardSummary, ReportingRule
from agent2.cards.writer import CardWriter
from agent2.errors import ConfigError, Fault, quoted, unknown_name
from agent2.files import numbered_lines
from agent2.installation import install_hint
from agent2.llm.thoughts import AUTO, split_thought
from agent2.records import (
    EvaluationProtocol,
    JsonValue,
    Message,
    Rollout,
    RolloutStatus,
    SamplingSettings,
    Score,
    ScoredRollout,
    Split,
    StopReason,
    Thought,
    Turn,
    Usage,
    digest_of,
)
from agent2.texts import parse_json

UNKNOWN = "unknown"
OUTSIDE = "outside 0 to 1"
MAX_OUTSIDE = 0.1
"""Up to this share of scores outside 0 to 1, they are missing; above it, the metric is refused as one of another scale.
"""
VERDICT_LETTERS: MappingProxyType[str, float] = MappingProxyType({"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0})
VERDICT_WORDS: MappingProxyType[str, float] = MappingProxyType({"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0})
UNMETERED = Usage(None, None)
"""Of a log that states no tokens."""
THOUGHT_PARTS = frozenset({"reasoning", "thinking"})
"""Types of parts of a message that are no part of its text."""
OPTIONS = "options"
"""Key of a rollout's state, and of an item's payload: the options of a question."""
FORMATS = (
    "read are inspect-ai's .json and .eval, lm-eval's samples_*.jsonl, tau-bench's trajectories, and messages or "
    "OpenTelemetry traces with --trajectories; score other answers with: agent2 score BENCHMARK ANSWERS.jsonl"
)
UNSCORED = "unscored"
"""Scorer of a log that names none."""
_STOPS = MappingProxyType({"max_tokens": StopReason.LENGTH, "model_length": StopReason.LENGTH})
_SAMPLES_NAME = re.compile(r"samples_(?P<task>.+)_(?P<time>\d{4}-\d{2}-\d{2}T[\d.-]+)\.jsonl$")
ONLY_FIRST = "lm-eval scores only the first response to an item"


@dataclass(frozen=True, slots=True)
class ForeignLog:
    """One evaluation that another harness logged, in our records."""

    harness: str
    """Name and version, "inspect-ai 0.3.285"."""
    task: str
    model: str
    scorer: str
    """Name of the metric that became the score."""
    questions: Sequence[tuple[str, str]]
    """(item id, prompt and target) of every item, for the digest of the items."""
    rollouts: Sequence[ScoredRollout]
    settings: Mapping[str, JsonValue]
    """Generation settings as logged; part of the protocol, so that other settings are incomparable."""
    attempts: int
    lock: Mapping[str, JsonValue]
    """Further facts that the log states about its run."""
    assumed: Sequence[str] = field(default_factory=tuple)
    """What the log does not state."""


def write_foreign(log: ForeignLog, out: Path, split: Split) -> CardSummary:
    """Write the card of a foreign log.

    Raises CardError if `out` holds a card, ConfigError for an empty log or a metric that is not on a scale of 0 to 1.
    """
    if not log.rollouts:
        raise ConfigError(f"{log.harness} log of {log.task}: contains no samples; log them (lm-eval: --log_samples)")
    _require_unit_scale(log)
    with CardWriter(out, _header(log, split)) as writer:
        for record in log.rollouts:
            writer.append(record)
        return writer.close()


def finite_or_none(value: float) -> float | None:
    """The value as it was logged; None (missing) for NaN and infinities, which say that nothing could be computed."""
    return float(value) if math.isfinite(value) else None


def logged_score(
    value: float, metric: str, reason: str, views: Mapping[str, float | None], extracted: str | None = None
) -> Score:
    """A score as it was logged; a missing one, with its reason, for a value outside 0 to 1."""
    if not 0.0 <= value <= 1.0:
        return Score(None, f"{metric} is {value:g}, {OUTSIDE}", Fault.JUDGE, views, extracted=extracted)
    return Score(value, reason, None, views, extracted=extracted)


def _require_unit_scale(log: ForeignLog) -> None:
    """Refuse a metric of another scale, of which some values are between 0 and 1 by chance."""
    outside = [
        record for record in log.rollouts if record.score.value is None and record.score.reason.endswith(OUTSIDE)
    ]
    n_scored = len(outside) + sum(record.score.value is not None for record in log.rollouts)
    if len(outside) > MAX_OUTSIDE * n_scored:
        first = "; ".join(f"{record.rollout.item_id}: {record.score.reason}" for record in outside[:5])
        raise ConfigError(
            f"{log.harness} log of {log.task}: {len(outside)} of {n_scored} scores are {OUTSIDE} ({first}); choose "
            "another --metric"
        )


def _header(log: ForeignLog, split: Split) -> CardHeader:
    temperature, top_p, max_tokens = (log.settings.get(name) for name in ("temperature", "top_p", "max_tokens"))
    sampling = SamplingSettings(
        temperature=float(temperature) if temperature is not None else 1.0,
        top_p=float(top_p) if top_p is not None else 1.0,
        max_tokens=int(max_tokens) if max_tokens is not None else 0,
    )
    assumed = [*log.assumed]
    assumed += ["temperature and top_p: 1.0, the providers' default"] if temperature is None and top_p is None else []
    assumed += ["max_tokens: 0 means not stated"] if max_tokens is None else []
    protocol = EvaluationProtocol(
        benchmark=log.task,
        split=split,
        items_digest=digest_of(sorted(log.questions)),
        sampling=sampling,
        attempts=log.attempts,
        max_turns=max((len(record.rollout.turns) for record in log.rollouts), default=0),
        environment=log.harness,
        scorer=log.scorer,
        dtype=UNKNOWN,
        chat_template_digest=UNKNOWN,
        tools={"logged_settings": dict(log.settings)},
        thinking=AUTO,
    )
    return CardHeader(
        checkpoint_name=log.model,
        checkpoint_digest=f"{UNKNOWN}: the log names the model only",
        protocol=protocol,
        reporting=ReportingRule(),
        lock={IMPORTED: log.harness, "assumed": assumed, **log.lock},
        created_at=time.time(),
        planned_rollouts=len(log.rollouts),
    )


def read_inspect(path: Path, metric: str | None = None) -> ForeignLog:
    """The evaluation in a log file. metric: the scorer that counts, or `scorer/key` of several; None: the first.

    A log of unscored samples is read: all its scores are missing. Raises ConfigError if the file is no such
    log, is incomplete, for an unknown metric, and for a scorer of several measures if none of them is chosen.
    """
    log = _load(path)
    try:
        spec, samples = log["eval"], log.get("samples") or []
        version = spec.get("packages", {}).get("inspect_ai", "of unknown version")
        if not samples:
            raise ConfigError(f"{path}: contains no samples; the run ended as {log.get('status')!r}")
        chosen = _chosen_measure(samples, log, metric, str(path))
        return ForeignLog(
            harness=f"inspect-ai {version}",
            task=f"{spec['task']}-v{spec.get('task_version', 0)}",
            model=spec["model"],
            scorer=chosen,
            questions=sorted(
                {
                    (str(sample["id"]), json.dumps([sample["input"], sample["target"]], sort_keys=True))
                    for sample in samples
                }
            ),
            rollouts=[_record(sample, chosen) for sample in samples],
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
        return _load_with_inspect(path)
    try:
        log = parse_json(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); check the path") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: is not JSON ({error}); {FORMATS}") from error
    if not isinstance(log, dict) or "eval" not in log:
        raise ConfigError(f"{path}: is no log of inspect-ai (it has no `eval` part); {FORMATS}")
    return log


def _load_with_inspect(path: Path) -> dict[str, Any]:
    try:
        from inspect_ai.log import read_eval_log  # the extra is needed for this form only
    except ImportError as error:
        raise ConfigError(
            f"{path}: reading .eval needs inspect-ai; {install_hint('inspect')}, or convert the file where it is "
            "installed: inspect log convert --to json"
        ) from error
    loaded: dict[str, Any] = read_eval_log(str(path)).model_dump(mode="json")
    return loaded


def _chosen_measure(
    samples: Sequence[Mapping[str, Any]], log: Mapping[str, Any], metric: str | None, where: str
) -> str:
    """Name of the measure that becomes the score."""
    scorers = {name: list[str]() for sample in samples for name in _scores(sample)}
    for sample in samples:
        for name, score in _scores(sample).items():
            if isinstance(score.get("value"), dict):
                scorers[name] += [f"{name}/{key}" for key in score["value"] if f"{name}/{key}" not in scorers[name]]
    stated = [entry.get("name") for entry in (log.get("results") or {}).get("scores") or []]
    first = next(iter(scorers), None) or next(iter(stated), None) or UNSCORED
    names = [measure for name, measures in scorers.items() for measure in measures or [name]] or [first]
    requested = metric or first
    measures = scorers.get(requested) or [requested]
    if len(measures) > 1:
        raise ConfigError(
            f"{where}: scorer {requested!r} gives several measures; choose one with --metric: {', '.join(measures)}"
        )
    if measures[0] not in names:
        raise unknown_name("metric", requested, names, f"{where}: --metric")
    return measures[0]


def _scores(sample: Mapping[str, Any]) -> Mapping[str, Any]:
    """Scores of a sample by scorer; logs before inspect-ai 0.3.6 have one without a name."""
    scores = sample.get("scores")
    if scores is None and isinstance(sample.get("score"), dict):
        return {"score": sample["score"]}
    return scores or {}


def _measures(sample: Mapping[str, Any]) -> dict[str, object]:
    """The scorers' values for a sample, as logged; a mapping is one measure for each key."""
    measures: dict[str, object] = {}
    for name, score in _scores(sample).items():
        value = score.get("value")
        measures.update(
            {f"{name}/{key}": part for key, part in value.items()} if isinstance(value, dict) else {name: value}
        )
    return measures


def _record(sample: Mapping[str, Any], metric: str) -> ScoredRollout:
    opening, turns = conversation_of(sample.get("messages") or [])
    usage = [entry for entry in (sample.get("model_usage") or {}).values() if isinstance(entry, dict)]
    error, stop = sample.get("error"), _stop_of(sample)
    if turns:
        turns[-1] = structs.replace(turns[-1], stop_reason=stop)
    answer = (sample.get("output") or {}).get("completion")
    rollout = Rollout(
        item_id=str(sample["id"]),
        attempt=int(sample["epoch"]) - 1,
        seed=0,
        status=RolloutStatus.FAILED if error else _status_of(sample),
        prompt=opening,
        turns=turns,
        answer=split_thought(answer)[1] if isinstance(answer, str) else None,
        state={"target": sample.get("target"), "limit": sample.get("limit"), **_options(sample.get("choices"))},
        usage=Usage(
            sum(entry.get("input_tokens") or 0 for entry in usage) if usage else None,
            sum(entry.get("output_tokens") or 0 for entry in usage) if usage else None,
            float(sample.get("total_time") or 0.0),
        ),
        fault=Fault.INFRASTRUCTURE if error else None,
        reason=_first_line((error or {}).get("message", "")),
        retries=len(sample.get("error_retries") or []),
    )
    return ScoredRollout(rollout, _score(sample, metric))


def _status_of(sample: Mapping[str, Any]) -> RolloutStatus:
    limit = sample.get("limit") or {}
    kind = limit.get("type") if isinstance(limit, dict) else None
    if kind in ("time", "working"):
        return RolloutStatus.TIME_CAP
    return RolloutStatus.TURN_CAP if kind is not None else RolloutStatus.COMPLETED


def _stop_of(sample: Mapping[str, Any]) -> StopReason:
    choices = (sample.get("output") or {}).get("choices") or [{}]
    return _STOPS.get(str(choices[0].get("stop_reason")), StopReason.END)


def _score(sample: Mapping[str, Any], metric: str) -> Score:
    measures = _measures(sample)
    views = {name: _number(value) for name, value in measures.items() if name != metric}
    if sample.get("error"):
        reason = _first_line(sample["error"].get("message", "")) or "the sample ended with an error"
        return Score(None, reason, Fault.INFRASTRUCTURE, views)
    if metric not in measures:
        whole = next((name for name in measures if metric.startswith(f"{name}/")), None)
        reason = (
            f"{whole} is {_verdict_text(measures[whole])} without {metric}"
            if whole
            else f"the log has no score of {metric}"
        )
        return Score(None, reason, Fault.JUDGE, views)
    value = _number(measures[metric])
    if value is None:
        return Score(None, f"{metric} is {_verdict_text(measures[metric])}, not a number", Fault.JUDGE, views)
    score = next(score for name, score in _scores(sample).items() if metric == name or metric.startswith(f"{name}/"))
    explanation, answer = _first_line(score.get("explanation") or ""), score.get("answer")
    extracted = answer if isinstance(answer, str) else None
    return logged_score(value, metric, explanation or f"{metric} as logged", views, extracted)


def _number(value: object) -> float | None:
    """A verdict as a number, as inspect-ai's `value_to_float` reads it; None for NaN and where that gives no number."""
    if isinstance(value, str):
        word = VERDICT_LETTERS.get(value, VERDICT_WORDS.get(value.lower()))
        if word is not None:
            return word
        try:
            value = float(value)
        except ValueError:
            return None
    return finite_or_none(value) if isinstance(value, int | float) else None


def _verdict_text(value: object) -> str:
    """A verdict that is not a number, as text for the reason of a score."""
    if isinstance(value, list | dict):
        return f"a {'list' if isinstance(value, list) else 'mapping'} of {len(value)}"
    return quoted(value) if not isinstance(value, float) or math.isfinite(value) else str(value)


def conversation_of(messages: Sequence[Mapping[str, Any]]) -> tuple[list[Message], list[Turn]]:
    """Opening messages, then one turn for each assistant message with the observations that follow it."""
    first = next((index for index, message in enumerate(messages) if _is_generated(message)), len(messages))
    opening = [Message(str(message.get("role")), _text(message)) for message in messages[:first]]
    turns: list[Turn] = []
    for message in messages[first:]:
        if message.get("role") == "assistant":
            turns.append(_turn(_text(message), _thought(message)))
        elif turns:
            last = turns[-1]
            observation = "\n".join(part for part in (last.observation, _text(message)) if part)
            turns[-1] = structs.replace(last, observation=observation)
    return opening, turns


def _turn(text: str, logged: str = "") -> Turn:
    """A turn of a log, whose thought is apart in the log, or is told apart here."""
    thought, answer = split_thought(text)
    if logged:
        thought = Thought(logged, closing="" if answer.strip() else None)
    return Turn(answer, None, StopReason.END, None, None, thought=msgspec.UNSET if thought is None else thought)


def _thought(message: Mapping[str, Any]) -> str:
    """The thought that a log keeps apart from the text of a message."""
    thought = message.get("reasoning_content") or message.get("reasoning")
    if isinstance(thought, str):
        return thought
    content = message.get("content")
    parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    return "\n".join(str(part.get("reasoning") or part.get(part["type"]) or "") for part in parts if _is_thought(part))


def _is_thought(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") in THOUGHT_PARTS


def _is_generated(message: Mapping[str, Any]) -> bool:
    # inspect-ai marks assistant messages that the sample's input contained: they are part of the prompt
    return message.get("role") == "assistant" and message.get("source") != "input"


def _text(message: Mapping[str, Any]) -> str:
    """The text of a message and its tool calls; other content by its type only."""
    return "\n".join(_parts(message))


def _parts(message: Mapping[str, Any]) -> Iterator[str]:
    content = message.get("content")
    if isinstance(content, str):
        if content:
            yield content
    else:
        for part in content or []:
            if _is_thought(part):
                continue
            yield part.get("text") or f"[{part.get('type')}]"
    for call in message.get("tool_calls") or []:
        yield json.dumps({"tool": call.get("function"), "arguments": call.get("arguments")}, sort_keys=True)
    if message.get("error"):
        yield f"error: {message['error'].get('message', '')}"


def _first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0][:300]


def is_tau_bench(path: Path) -> bool:
    """Whether a file looks like trajectories of tau-bench: a JSON list with `trial` near its end."""
    try:
        with path.open("rb") as file:
            start = file.read(1).strip() or file.read(64).strip()
            size = file.seek(0, 2)
            file.seek(max(0, size - 200))  # rows of tau-bench end with `trial`: the tail is enough
            return start[:1] == b"[" and b'"trial"' in file.read()
    except OSError:
        return False


def read_tau_bench(path: Path) -> ForeignLog:
    """The trajectories in a file. Raises ConfigError if a row is not in tau-bench's layout."""
    try:
        rows = parse_json(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: cannot be read ({error}); give tau-bench's file of trajectories") from error
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
            call["arguments"] = _arguments(call["arguments"])
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
        reason = f"the trial ended with an error: {_first_line(str(info['error']))}"
        rollout = structs.replace(rollout, status=RolloutStatus.FAILED, fault=Fault.INFRASTRUCTURE, reason=reason)
        score = Score(None, reason, Fault.INFRASTRUCTURE)
    return ScoredRollout(rollout, score), str((info.get("task") or {}).get("instruction", ""))


def _arguments(text: Any) -> Any:
    """Arguments of a call, which are JSON in a string; anything else is returned unchanged."""
    if isinstance(text, str):
        with contextlib.suppress(ValueError, RecursionError):
            return parse_json(text)
    return text


def read_lm_eval(path: Path, metric: str | None = None, filter_name: str | None = None) -> ForeignLog:
    """The evaluation in a samples file. metric, filter_name: which score counts; None: the first that is logged.

    Raises ConfigError if the file is no such log or for an unknown metric or filter.
    """
    rows = _rows(path)
    named = _SAMPLES_NAME.search(path.name)
    filters = list(dict.fromkeys(str(row.get("filter", "none")) for row in rows))
    metrics = list(dict.fromkeys(name for row in rows for name in row.get("metrics", [])))
    if not metrics:
        raise ConfigError(f"{path}: no line names its `metrics`; give a samples file of lm-eval 0.4 or later")
    chosen, chosen_filter = metric or metrics[0], filter_name or filters[0]
    if chosen not in metrics:
        raise unknown_name("metric", chosen, metrics, f"{path}: --metric")
    if chosen_filter not in filters:
        raise unknown_name("filter", chosen_filter, filters, f"{path}: --filter")
    task = named["task"] if named else path.stem
    results = _results(path, named["time"] if named else "")
    items: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        items.setdefault(f"{task}-{row['doc_id']}", []).append(row)
    records = [
        record
        for item_id, group in items.items()
        for record in _records_of_item(item_id, group, chosen, chosen_filter, path)
    ]
    config = results.get("config", {})
    return ForeignLog(
        harness=f"lm-eval {results.get('lm_eval_version', 'of unknown version')}",
        task=f"{task}-v{results.get('versions', {}).get(task, 'unknown')}",
        model=str(results.get("model_name") or config.get("model") or "not stated"),
        scorer=f"{chosen}@{chosen_filter}",
        questions=[(item_id, str(group[0].get("doc_hash", ""))) for item_id, group in items.items()],
        rollouts=records,
        settings=_settings(rows[0], results, task),
        attempts=1 + max(record.rollout.attempt for record in records),
        lock={"config": config, "git_hash": results.get("git_hash"), "n_shot": results.get("n-shot", {}).get(task)},
        assumed=("seconds: 0, lm-eval does not log them",),
    )


def _rows(path: Path) -> list[dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); check the path") from error
    rows = []
    for number, line in numbered_lines(text):
        try:
            row = parse_json(line)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{path}:{number}: is not JSON ({error}); the file is cut or no lm-eval log") from error
        if not isinstance(row, dict) or "doc_id" not in row or "resps" not in row:
            raise ConfigError(f"{path}:{number}: is no line of lm-eval (it has no `doc_id` and `resps`); {FORMATS}")
        rows.append(row)
    if not rows:
        raise ConfigError(f"{path}: is empty; give a samples file of lm-eval (--log_samples)")
    return rows


def _results(path: Path, time: str) -> dict[str, Any]:
    """The results file of the same run; empty if it is not there."""
    file = path.with_name(f"results_{time}.json")
    if not file.is_file():
        return {}
    try:
        results = parse_json(file.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file}: is not JSON ({error}); restore it or remove it") from error
    return results if isinstance(results, dict) else {}


def _settings(row: Mapping[str, Any], results: Mapping[str, Any], task: str) -> dict[str, Any]:
    configured = results.get("configs", {}).get(task, {})
    requested = _first_request(row).get("arg_1")
    settings = {**configured.get("generation_kwargs", {}), **(requested if isinstance(requested, dict) else {})}
    if "max_gen_toks" in settings:
        settings["max_tokens"] = settings["max_gen_toks"]
    if settings.get("do_sample") is False:
        settings["temperature"] = 0.0
    return {**settings, "num_fewshot": configured.get("num_fewshot")}


def _first_request(row: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of the first request that was made for an item; empty if they were not logged."""
    arguments = row.get("arguments")
    first = next(iter(arguments.values()), None) if isinstance(arguments, dict) else None
    return first if isinstance(first, dict) else {}


def _records_of_item(
    item_id: str, group: Sequence[Mapping[str, Any]], metric: str, filter_name: str, path: Path
) -> list[ScoredRollout]:
    """The rollouts of one item. An item with several lines under one filter was asked several times: its attempts.

    Raises ConfigError for an item whose filters have different numbers of lines.
    """
    by_filter: dict[str, list[Mapping[str, Any]]] = {}
    for line in group:
        by_filter.setdefault(str(line.get("filter", "none")), []).append(line)
    counts = {name: len(lines) for name, lines in by_filter.items()}
    if len(set(counts.values())) > 1:
        stated = ", ".join(f"{count} under {name}" for name, count in counts.items())
        raise ConfigError(f"{path}: doc_id {group[0]['doc_id']} has lines {stated}; remove those that are double")
    records: list[ScoredRollout] = []
    for lines_of_attempt in zip(*by_filter.values(), strict=True):
        for record in _records(item_id, lines_of_attempt, metric, filter_name):
            rollout = structs.replace(record.rollout, attempt=len(records))
            records.append(ScoredRollout(rollout, record.score))
    return records


def _records(item_id: str, group: Sequence[Mapping[str, Any]], metric: str, filter_name: str) -> list[ScoredRollout]:
    row = next((line for line in group if str(line.get("filter", "none")) == filter_name), group[0])
    views = {
        f"{name}@{line.get('filter', 'none')}": None
        if (value := _mean_of(line.get(name))) is None
        else finite_or_none(value)
        for line in group
        for name in line.get("metrics", [])
        if _mean_of(line.get(name)) is not None and (name, str(line.get("filter", "none"))) != (metric, filter_name)
    }
    texts = _responses(row["resps"])
    first = ScoredRollout(_rollout(item_id, 0, row, texts[0]), _lm_eval_score(row, metric, filter_name, views))
    unscored = [
        ScoredRollout(_rollout(item_id, n, row, text), Score(None, ONLY_FIRST, Fault.JUDGE))
        for n, text in enumerate(texts[1:], start=1)
    ]
    return [first, *unscored]


def _responses(resps: Any) -> list[str]:
    """Texts of the responses: several to one request, or one text for the likelihoods of several choices."""
    if isinstance(resps, list) and len(resps) == 1 and isinstance(resps[0], list):
        texts = [response for response in resps[0] if isinstance(response, str)]
        if texts and len(texts) == len(resps[0]):
            return texts
    return [json.dumps(resps)]


def _rollout(item_id: str, attempt: int, row: Mapping[str, Any], text: str) -> Rollout:
    filtered = row.get("filtered_resps") or [None]
    answer = filtered[0] if isinstance(filtered, list) and attempt == 0 and isinstance(filtered[0], str) else None
    return Rollout(
        item_id=item_id,
        attempt=attempt,
        seed=0,
        status=RolloutStatus.COMPLETED,
        prompt=_prompt(_first_request(row).get("arg_0", "")),
        turns=[_turn(text)],
        answer=None if answer is None else split_thought(answer)[1],
        state={"target": row.get("target"), **_options(_choices_of(row.get("doc")))},
        usage=UNMETERED,
    )


def _choices_of(document: object) -> object:
    """The options of an lm-eval document, by the names that tasks usually have for them."""
    if not isinstance(document, dict):
        return None
    choices = document.get("choices", document.get("options"))
    return choices.get("text") if isinstance(choices, dict) else choices


def _options(choices: object) -> dict[str, list[str]]:
    """Options of a question as part of a rollout's state, for a scorer that judges again; empty: it has none."""
    if not isinstance(choices, list) or not choices or not all(isinstance(choice, str) for choice in choices):
        return {}
    return {OPTIONS: choices}


def _prompt(logged: Any) -> list[Message]:
    """The messages of a chat, which lm-eval logs as JSON in a string in a list; another prompt as one user message."""
    logged = logged[0] if isinstance(logged, list) and len(logged) == 1 and isinstance(logged[0], str) else logged
    chat = logged
    if isinstance(logged, str) and logged.startswith("["):
        with contextlib.suppress(ValueError, RecursionError):  # a prompt may begin with a bracket
            chat = parse_json(logged)
    if isinstance(chat, list) and chat and all(_is_message(message) for message in chat):
        return [Message(message["role"], _content_text(message["content"])) for message in chat]
    return [Message("user", logged if isinstance(logged, str) else json.dumps(logged, ensure_ascii=False))]


def _is_message(value: Any) -> bool:
    return (
        isinstance(value, dict) and isinstance(value.get("role"), str) and isinstance(value.get("content"), str | list)
    )


def _content_text(content: str | list[Any]) -> str:
    """The text of a message; parts that are not text by their type only."""
    if isinstance(content, str):
        return content
    parts = (part if isinstance(part, dict) else {"text": str(part)} for part in content)
    return "\n".join(str(part.get("text") or f"[{part.get('type')}]") for part in parts)


def _mean_of(value: object) -> float | None:
    """A logged value; of a list, as IFEval logs one verdict for each instruction, the mean; None: neither."""
    if isinstance(value, list):
        parts = [float(part) for part in value if isinstance(part, int | float)]
        return sum(parts) / len(parts) if parts and len(parts) == len(value) else None
    return float(value) if isinstance(value, int | float) else None


def _lm_eval_score(row: Mapping[str, Any], metric: str, filter_name: str, views: Mapping[str, float | None]) -> Score:
    value = _mean_of(row.get(metric))
    if value is None or str(row.get("filter", "none")) != filter_name:
        return Score(None, f"the log has no {metric} under filter {filter_name}", Fault.JUDGE, views)
    if not math.isfinite(value):
        return Score(None, f"{metric} is {value}, not a number from 0 to 1", Fault.JUDGE, views)
    return logged_score(float(value), metric, f"{metric} as logged, filter {filter_name}", views)
