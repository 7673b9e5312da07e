"""Chat completions on the wire: what is sent to an OpenAI-compatible endpoint, and how its answer is read.

Promises: an answer either becomes a completion or a `WireProblem` that says who failed and whether another try can
help; nothing broken that a server sends becomes an empty answer of the model. Knows no sockets.

Tools that are offered natively travel as the protocol's own `tools` and `tool_calls`; on our side a call stays the text
that worlds read, `{"name": ..., "arguments": {...}}`, so that a card says the same whichever way was used.

Does NOT cover: streaming, tool calls that a server takes out of the text without being asked to (a problem that says
what to change), words beside a native call (they are dropped), several choices an answer,
log-probabilities where the server's and ours would mean different distributions.
"""

import email.utils
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from agent2.errors import Fault, shown
from agent2.records import Completion, JsonValue, Message, SamplingSettings, StopReason

PASSING_STATUS = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})
"""HTTP codes of a state that may pass: busy, restarting, overloaded."""
SEED_BITS = 31
"""Seeds are cut to what every server takes."""
_CALLED = {"tool_calls": StopReason.END, "function_call": StopReason.END}
STOP_REASONS = {"stop": StopReason.END, "length": StopReason.LENGTH, "eos": StopReason.END}
CONTEXT_WORDS = ("context_length_exceeded", "maximum context length", "context window", "max_model_len")
"""How servers say that a prompt does not fit the model."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """Which optional parts of the protocol a server takes."""

    limit_name: str = "max_tokens"
    """The field that limits new tokens; newer models of one provider only know `max_completion_tokens`."""
    logprobs: bool = True
    """Log-probabilities may be asked for."""
    seed: bool = True
    """A seed may be sent; whether the server draws by it is the server's affair."""


DIALECTS = (
    Dialect(),
    Dialect(logprobs=False),
    Dialect("max_completion_tokens", logprobs=False),
    Dialect("max_completion_tokens", logprobs=False, seed=False),
)
"""In the order in which they are tried."""


class Silence(StrEnum):
    """How a server gave no HTTP answer at all."""

    UNREACHABLE = "unreachable"
    """Nobody took the connection."""
    TIMEOUT = "timeout"
    """The connection was taken, and no whole answer came in time."""


@dataclass(frozen=True, slots=True)
class WireProblem:
    """Why there is no completion."""

    reason: str
    fault: Fault
    may_pass: bool
    """Another try can help."""
    wait_s: float | None = None
    """How long the server asks to wait before it."""
    silence: Silence | None = None
    """Set exactly when nothing that the server said is at fault, since it said nothing."""


def request_body(
    model: str,
    messages: Sequence[Message],
    settings: SamplingSettings,
    dialect: Dialect,
    tools: Sequence[Mapping[str, JsonValue]] = (),
) -> dict[str, JsonValue]:
    """The JSON body of one request. tools: what is offered natively; earlier calls are then sent natively too."""
    plain = [{"role": message.role, "content": message.content} for message in messages]
    body: dict[str, JsonValue] = {
        "model": model,
        "messages": _with_native_calls(messages) if tools else plain,
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        dialect.limit_name: settings.max_tokens,
    }
    if dialect.seed:
        body["seed"] = settings.seed & ((1 << SEED_BITS) - 1)
    if dialect.logprobs and means_the_same(settings):
        body["logprobs"] = True
    if tools:
        body["tools"] = [dict(tool) for tool in tools]
    return body


def _with_native_calls(messages: Sequence[Message]) -> list[dict[str, JsonValue]]:
    """The messages with our calls and their results in the protocol's own form."""
    sent: list[dict[str, JsonValue]] = []
    waiting: list[str] = []
    for number, message in enumerate(messages):
        calls = _calls_in(message.content) if message.role == "assistant" else []
        if calls:
            waiting = [f"call_{number}_{place}" for place in range(len(calls))]
            native = [
                {"id": name, "type": "function", "function": {**call, "arguments": json.dumps(call["arguments"])}}
                for name, call in zip(waiting, calls, strict=True)
            ]
            sent.append({"role": "assistant", "content": None, "tool_calls": native})
        elif waiting and message.role == "user":
            results = _results_in(message.content, len(waiting))
            sent += [
                {"role": "tool", "tool_call_id": name, "content": result}
                for name, result in zip(waiting, results, strict=True)
            ]
            waiting = []
        else:
            sent.append({"role": message.role, "content": message.content})
    return sent


def _calls_in(text: str) -> list[dict[str, Any]]:
    """The calls that a message of the model holds in our form; none if it is anything else."""
    try:
        value = json.loads(text) if text.lstrip()[:1] in ("{", "[") else None
    except (ValueError, RecursionError):
        return []
    entries: list[Any] = value if isinstance(value, list) else [value]
    calls = [one for one in entries if isinstance(one, dict) and set(one) == {"name", "arguments"}]
    return calls if len(calls) == len(entries) else []


def _results_in(text: str, n: int) -> list[str]:
    """The world's answer to each of n calls; where it cannot be divided, the whole for the first."""
    if n > 1:
        try:
            parts = json.loads(text)
        except (ValueError, RecursionError):
            parts = None
        if isinstance(parts, list) and len(parts) == n:
            return [json.dumps(part) for part in parts]
    return [text, *[""] * (n - 1)]


def _text_of_calls(calls: Sequence[Any]) -> str:
    """Native calls as the text that worlds read; arguments that are not JSON stay as they are, a malformed call."""
    texts = []
    for call in calls:
        function = call["function"]
        name, arguments = function["name"], function.get("arguments") or "{}"
        written = arguments if isinstance(arguments, str) else json.dumps(arguments)
        texts.append(f'{{"name": {json.dumps(name)}, "arguments": {written}}}')
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def means_the_same(settings: SamplingSettings) -> bool:
    """Whether a server's log-probabilities are of the distribution that was drawn from.

    Servers report the model's own; with a temperature or a nucleus that is another distribution.
    """
    return settings.temperature == 0.0 or (settings.temperature == 1.0 and settings.top_p == 1.0)


def read_answer(
    status: int,
    headers: Mapping[str, str],
    content: bytes,
    now: datetime | None = None,
    *,
    takes_calls: bool = False,
) -> Completion | WireProblem:
    """The completion in an HTTP answer, or what is wrong with it.

    headers: names in lower case. takes_calls: tools were offered, so a native call is an answer.
    now: to which a date in Retry-After is compared; None: the present.
    """
    if status != 200:
        return _refusal(status, headers, content, now or datetime.now(UTC))
    try:
        answer = json.loads(content)
        choice = answer["choices"][0]
        message = choice["message"]
        text, finish, calls = message.get("content"), choice.get("finish_reason"), message.get("tool_calls")
        if calls and takes_calls:
            text = _text_of_calls(calls)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        return _malformed(f"{type(error).__name__} in {shown(content[:200])}")
    if calls and not takes_calls:
        return WireProblem(
            "the server took a tool call out of the text; start it without a tool-call parser, or offer tools natively "
            "where the benchmark has some (--endpoint native_tools=true)",
            Fault.INFRASTRUCTURE,
            may_pass=False,
        )
    if finish == "content_filter":
        return WireProblem("the endpoint's content filter withheld the answer", Fault.INFRASTRUCTURE, may_pass=False)
    stops = {**STOP_REASONS, **_CALLED} if calls else STOP_REASONS
    if text is None and finish in STOP_REASONS:
        # No words: reasoning that is not part of the answer took all, the model ended at once, or it refused.
        text = message.get("refusal") or ""
    if not isinstance(text, str) or finish not in stops:
        return _malformed(f"content {shown(text)}, finish_reason {shown(finish)}")
    completion = Completion(text, stop_reason=stops[finish], logprobs=_logprobs(choice))
    return _with_usage(completion, answer.get("usage"))


def _with_usage(completion: Completion, usage: Any) -> Completion:
    """Token counts where the server tells them; a server that does not is not a fault."""
    if not isinstance(usage, dict):
        return completion
    prompt, new = usage.get("prompt_tokens"), usage.get("completion_tokens")
    return replace(
        completion,
        prompt_tokens=prompt if isinstance(prompt, int) and prompt >= 0 else 0,
        n_tokens=new if isinstance(new, int) and new >= 0 else None,
    )


def _logprobs(choice: Any) -> tuple[float, ...] | None:
    """One number for each new token; None if the server sent none, or something else."""
    block = choice.get("logprobs")
    entries = block.get("content") if isinstance(block, dict) else None
    if not isinstance(entries, list):
        return None
    values = [entry.get("logprob") if isinstance(entry, dict) else None for entry in entries]
    if not all(isinstance(value, int | float) and not math.isnan(value) for value in values):
        return None
    return tuple(float(value) for value in values if value is not None)


def _malformed(what: str) -> WireProblem:
    return WireProblem(f"the endpoint's answer is not a chat completion: {what}", Fault.INFRASTRUCTURE, may_pass=True)


def _refusal(status: int, headers: Mapping[str, str], content: bytes, now: datetime) -> WireProblem:
    said = _error_text(content)
    reason = f"the endpoint answered HTTP {status}: {shown(said)}"
    if status in {400, 413, 422} and any(words in said for words in CONTEXT_WORDS):
        return WireProblem(f"the prompt does not fit the model's context ({reason})", Fault.MODEL, may_pass=False)
    may_pass = status in PASSING_STATUS
    return WireProblem(reason, Fault.INFRASTRUCTURE, may_pass, _wait_s(headers.get("retry-after"), now))


def _error_text(content: bytes) -> str:
    """What a server says of an error: the message and code of its JSON, or its text."""
    try:
        error = json.loads(content)
        error = error.get("error", error.get("detail", error))
        if isinstance(error, dict):
            return " ".join(str(error[key]) for key in ("message", "code") if error.get(key))
        return str(error)
    except (ValueError, AttributeError, RecursionError):
        return content[:400].decode(errors="replace")


def _wait_s(value: str | None, now: datetime) -> float | None:
    """Seconds of a Retry-After header, which holds a number or a date; None if it holds neither."""
    if value is None:
        return None
    try:
        seconds = float(value)
        return max(0.0, seconds) if math.isfinite(seconds) else None
    except ValueError:
        pass  # a date
    try:
        at = email.utils.parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, (at - now).total_seconds()) if at.tzinfo is not None else None
