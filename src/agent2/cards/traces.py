"""Import of agents' trajectories that other software ran: chat messages, or OpenTelemetry traces.

Messages: a JSON document or JSON lines; a trajectory is a list of messages, or an object with `messages` and, where
known, `id`, `score` (0 to 1) and `reference` (the expected messages or calls, or the right answer as text, or a list of
accepted ones). A message is in OpenAI's layout
(`role`, `content`, `tool_calls`) or LangChain's (`type` human, ai, tool or system; also `{"type", "data"}`).

Traces: OTLP as JSON, one document or one a line, with the attributes of the semantic conventions for generative AI
(`gen_ai.input.messages`, `gen_ai.output.messages`, `gen_ai.usage.*`). A trace is a trajectory: the conversation of its
model call that ended last, with the tokens of all its calls and the time from its first span to its last.

The calls of a trajectory are in its final state, in the form in which environments with tools leave them, so that
`agent2 cards ground` and scorers such as `trajectory_match` and `llm_judge` read them. A trajectory without a score has
a missing one until `agent2 cards rescore` judges it.

Does NOT read traces whose messages are span events (older conventions) or left out.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from agent2.cards.imports.foreign_log import UNKNOWN, UNMETERED, UNSCORED, ForeignLog, logged_score
from agent2.cards.imports.messages import THOUGHT_PARTS, conversation_of
from agent2.errors import ConfigError, Fault
from agent2.files import numbered_lines
from agent2.foreign_files import MAX_LOG_BYTES, read_named
from agent2.records import JsonValue, Rollout, RolloutStatus, Score, ScoredRollout, Usage, token_count
from agent2.texts import parse_json

ROLES: Mapping[str, str] = MappingProxyType({"human": "user", "ai": "assistant", "function": "tool"})
NO_SCORE = "the trajectory has no score; judge it with agent2 cards rescore"
REFERENCE_CALLS = "reference_calls"
"""Key of a final state: the expected calls."""


@dataclass(frozen=True, slots=True)
class _Trajectory:
    """One trajectory in the layout of its file."""

    messages: Sequence[Mapping[str, Any]]
    id: str | None = None
    score: object = None
    reference: Sequence[Mapping[str, Any]] | None = None
    """The expected calls."""
    target: str | list[str] | None = None
    """The right answer, or all accepted ones."""
    usage: Usage = UNMETERED
    model: str | None = None


def read_trajectories(path: Path) -> ForeignLog:
    """The trajectories in a file. Raises ConfigError, with the line, for an entry in neither layout."""
    trajectories = [trajectory for where, value in _documents(path) for trajectory in _trajectories(value, where)]
    if not trajectories:
        raise ConfigError(f"{path}: holds no trajectory: no messages, and no span with gen_ai.input.messages")
    attempts: Counter[str] = Counter()
    records, questions = [], {}
    for number, trajectory in enumerate(trajectories):
        item_id = trajectory.id if trajectory.id is not None else f"{number:05}"
        record = _record(trajectory, item_id, attempts[item_id], f"{path}: trajectory {number + 1}")
        attempts[item_id] += 1
        records.append(record)
        questions[item_id] = "\n\n".join(message.text for message in record.rollout.prompt)
    models = {trajectory.model for trajectory in trajectories} - {None}
    is_scored = any(record.score.value is not None for record in records)
    return ForeignLog(
        harness="trajectories",
        task=f"{path.stem}-v{UNKNOWN}",
        model=str(models.pop()) if len(models) == 1 else path.stem,
        scorer="score" if is_scored else UNSCORED,
        questions=list(questions.items()),
        rollouts=records,
        settings={},
        attempts=max(attempts.values()),
        lock={"file": path.name},
        assumed=("trajectories of one id are attempts at one item", "model: as in the traces, else the file's name"),
    )


def _documents(path: Path) -> Iterator[tuple[str, Any]]:
    """(file or file:line, value) of each JSON document of a file: one, or one a line."""
    try:
        text = read_named(path, MAX_LOG_BYTES).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read ({error}); give a JSON or JSONL file") from error
    try:
        yield str(path), parse_json(text)
        return
    except (ValueError, RecursionError) as error:
        whole = error
    for number, line in numbered_lines(text):
        try:
            if line.strip():
                yield f"{path}:{number}", parse_json(line)
        except (ValueError, RecursionError) as error:
            why = whole if number == 1 else error
            raise ConfigError(f"{path}:{number}: is not JSON ({why})") from error


def _trajectories(value: Any, where: str) -> Iterator[_Trajectory]:
    if isinstance(value, list) and not (value and _is_message(value[0])):
        for number, entry in enumerate(value, start=1):
            yield from _trajectories(entry, f"{where}: item {number}")
    elif isinstance(value, list):
        yield _Trajectory([_message(message, where) for message in value])
    elif isinstance(value, dict) and "resourceSpans" in value:
        yield from _traces(value, where)
    elif isinstance(value, dict) and isinstance(value.get("messages"), list):
        reference = value.get("reference")
        raw_id = value.get("id")
        is_text = isinstance(reference, str) or (
            isinstance(reference, list) and bool(reference) and all(isinstance(text, str) for text in reference)
        )
        yield _Trajectory(
            [_message(message, where) for message in value["messages"]],
            None if raw_id is None else str(raw_id),
            value.get("score"),
            None if reference is None or is_text else _reference(reference, where),
            target=reference if is_text else None,
        )
    else:
        raise ConfigError(
            f"{where}: is neither a trajectory (a list of messages, an object with messages) nor OTLP (resourceSpans)"
        )


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and ("role" in value or "type" in value) and "messages" not in value


def _message(raw: Any, where: str) -> dict[str, Any]:
    """A message as logs of inspect-ai have it: role, content, tool_calls with `function` and `arguments`."""
    if not _is_message(raw):
        raise ConfigError(f"{where}: a message is an object with role (or type) and content, not {str(raw)[:80]!r}")
    body = raw["data"] if isinstance(raw.get("data"), dict) else raw
    raw_role = str(body.get("role") or raw.get("role") or raw.get("type"))
    role = ROLES.get(raw_role, raw_role)
    message: dict[str, Any] = {"role": role, "content": body.get("content") or ""}
    if isinstance(parts := body.get("parts"), list):
        message = {"role": role, **_fields_of_parts(parts)}
    for name in ("reasoning_content", "reasoning"):
        if isinstance(body.get(name), str):
            message[name] = body[name]
    calls = [_call(call, where) for call in body.get("tool_calls") or ()]
    if calls:
        message["tool_calls"] = calls
    answered = body.get("tool_call_id") or message.pop("answered", None)
    return message if answered is None else {**message, "tool_call_id": answered}


def _fields_of_parts(parts: Sequence[Any]) -> dict[str, Any]:
    """The fields of a message of the semantic conventions."""
    texts, thoughts, calls, answered = [], list[str](), [], None
    for part in (part for part in parts if isinstance(part, dict)):
        if part.get("type") == "tool_call":
            calls.append(part)
        elif part.get("type") == "tool_call_response":
            response = part.get("response", part.get("result"))
            texts.append(response if isinstance(response, str) else json.dumps(response, sort_keys=True))
            answered = part.get("id")
        elif part.get("type") == "text":
            texts.append(str(part.get("content", "")))
        elif part.get("type") in THOUGHT_PARTS:
            thoughts.append(str(part.get("content", "")))
    fields: dict[str, Any] = {"reasoning": "\n".join(thoughts)} if thoughts else {}
    fields |= {"content": "\n".join(texts)}
    return {**fields, "tool_calls": [_call(call, "") for call in calls], "answered": answered}


def _call(raw: Any, where: str) -> dict[str, Any]:
    """Name and arguments of a call in any of the layouts."""
    outer: dict[str, Any] = raw if isinstance(raw, dict) else {}
    inner: dict[str, Any] = outer["function"] if isinstance(outer.get("function"), dict) else outer
    if not isinstance(name := inner.get("name"), str):
        raise ConfigError(f"{where}: a call has no name: {str(raw)[:80]!r}")
    arguments = inner.get("arguments", inner.get("args", {}))
    if isinstance(arguments, str):
        try:
            arguments = parse_json(arguments) if arguments.strip() else {}  # servers write no arguments as no text
        except (ValueError, RecursionError):
            arguments = {"": arguments}  # not what a tool takes, and kept as it is
    return {
        "function": name,
        "arguments": arguments if isinstance(arguments, dict) else {"": arguments},
        "id": outer.get("id"),
    }


def _reference(raw: Any, where: str) -> list[dict[str, Any]]:
    """The calls of a reference trajectory, which is messages or calls."""
    if not isinstance(raw, list):
        raise ConfigError(f"{where}: reference is a text, or a list of texts, of messages or of calls")
    if all(
        isinstance(entry, dict) and ("name" in entry or "function" in entry) and "role" not in entry for entry in raw
    ):
        return [_call(call, where) for call in raw]
    return [call for message in raw for call in _message(message, where).get("tool_calls", ())]


def _record(trajectory: _Trajectory, item_id: str, attempt: int, where: str) -> ScoredRollout:
    opening, turns = conversation_of(trajectory.messages)
    if not turns:
        raise ConfigError(f"{where}: has no message of the model (role assistant, type ai)")
    last = trajectory.messages[-1]
    ends_with_answer = last["role"] == "assistant" and not last.get("tool_calls")
    state: dict[str, JsonValue] = {"tool_calls": _calls_of(trajectory.messages)}
    if trajectory.reference is not None:
        state[REFERENCE_CALLS] = [_name_and_arguments(call) for call in trajectory.reference]
    if trajectory.target is not None:
        state["target"] = trajectory.target
    score = Score(None, NO_SCORE, Fault.JUDGE)
    if isinstance(trajectory.score, int | float):
        score = logged_score(float(trajectory.score), "score", "score as stored", {})
    answer = turns[-1].action if ends_with_answer else None
    rollout = Rollout(item_id, attempt, 0, RolloutStatus.COMPLETED, opening, turns, answer, state, trajectory.usage)
    return ScoredRollout(rollout, score)


def _name_and_arguments(call: Mapping[str, Any]) -> dict[str, JsonValue]:
    return {"name": call["function"], "arguments": call["arguments"]}


def _calls_of(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, JsonValue]]:
    """Each call with its turn and its result, which is matched by id where messages state it, else in order."""
    calls: list[dict[str, JsonValue]] = []
    unanswered: list[tuple[object, dict[str, JsonValue]]] = []
    turn = -1
    for message in messages:
        turn += message["role"] == "assistant"
        for call in message.get("tool_calls") or ():
            calls.append({"turn": turn, **_name_and_arguments(call), "result": None, "error": None})
            unanswered.append((call["id"], calls[-1]))
        if message["role"] == "tool" and unanswered:
            answered_id = message.get("tool_call_id")
            position = next((k for k, (call_id, _) in enumerate(unanswered) if call_id == answered_id), 0)
            unanswered.pop(position)[1]["result"] = message["content"]
    return calls


def _traces(document: Mapping[str, Any], where: str) -> Iterator[_Trajectory]:
    """The trajectory of each trace of a document, in the order in which the traces began."""
    spans: dict[str, list[tuple[int, int, dict[str, Any]]]] = defaultdict(list)
    try:
        for resource in document["resourceSpans"]:
            for scope in resource.get("scopeSpans", ()):
                for span in scope.get("spans", ()):
                    ends = int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])
                    attributes = {
                        attribute["key"]: _value(attribute["value"]) for attribute in span.get("attributes", ())
                    }
                    spans[str(span["traceId"])].append((*ends, attributes))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"{where}: is not OTLP as JSON ({error!r}); export the traces again") from error
    for trace_id, members in sorted(spans.items(), key=lambda pair: min(start for start, _, _ in pair[1])):
        model_calls = sorted(
            ((end, attributes) for _, end, attributes in members if "gen_ai.input.messages" in attributes),
            key=lambda pair: pair[0],
        )
        if not model_calls:
            continue
        last: dict[str, Any] = model_calls[-1][1]
        messages = [
            message
            for name in ("gen_ai.input.messages", "gen_ai.output.messages")
            for message in _listed(last.get(name), where)
        ]
        if rules := _listed(last.get("gen_ai.system_instructions"), where):
            messages.insert(0, {"role": "system", "parts": rules})
        n_seconds = (max(end for _, end, _ in members) - min(start for start, _, _ in members)) / 1e9
        counts = [
            [n for _, attributes in model_calls if isinstance(n := attributes.get(f"gen_ai.usage.{kind}_tokens"), int)]
            for kind in ("input", "output")
        ]
        tokens = [sum(stated) if stated else None for stated in counts]
        model = last.get("gen_ai.response.model") or last.get("gen_ai.request.model")
        yield _Trajectory(
            [_message(message, f"{where}: trace {trace_id}") for message in messages],
            trace_id,
            usage=Usage(token_count(tokens[0]), token_count(tokens[1]), n_seconds),
            model=None if model is None else str(model),
        )


def _listed(value: object, where: str) -> list[Any]:
    """Messages of an attribute, which is structured or JSON in a string."""
    if isinstance(value, str):
        try:
            value = parse_json(value)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{where}: messages of a span are not JSON ({error})") from error
    return value if isinstance(value, list) else []


def _value(raw: Mapping[str, Any]) -> Any:
    """An AnyValue of OTLP as plain data."""
    empty: tuple[str, Any] = ("", None)
    kind, value = next(iter(raw.items()), empty)
    if kind == "arrayValue":
        return [_value(element) for element in value.get("values", ())]
    if kind == "kvlistValue":
        return {entry["key"]: _value(entry["value"]) for entry in value.get("values", ())}
    return int(value) if kind == "intValue" else value
