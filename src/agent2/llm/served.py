"""The served sampler: any OpenAI-compatible endpoint (chat completions), with many requests in flight.

One thread for each request in flight, all on one connection pool. A transient problem (busy, restarting, a dropped
connection, an unreadable answer) is retried as the fault table allows for the infrastructure, waiting as long as the
server asks; what still fails becomes a completion with a fault: a missing score, never a zero. A request that timed
out is not retried, and after a few timeouts in a row the endpoint counts as gone: `collect` raises, and nothing of it
is put on a card.

Promises: each submitted request is answered exactly once, also after `close`; keys are sent to the endpoint and
appear nowhere else; no broken response becomes an empty answer of the model; a refused field is left out where that
changes nothing, else the sampler fails with the field and how to set it. Opening asks the endpoint for
one token, so that a wrong address, key or model name is an error at once; a server that takes no chats, as for a base
model without a template, is opened if it gives likelihoods (`served_likelihoods`). Tools that are offered natively are
sent as the protocol's own `tools` and `tool_calls`; on our side a call stays the text that worlds read,
`{"name": ..., "arguments": {...}}`, so that a card is the same either way.

Does NOT promise that one seed gives one answer: the seed is sent, and the server decides how to use it (`transformers
serve` seeds its whole process). Which weights answer only the server knows. Prompts must be chats. Not covered:
streaming, tool calls that a server parses out of the text unasked (reported), text beside a native call
(dropped), several choices per response, log-probabilities where the server's and ours would be of
different distributions.
"""

import json
import logging
import queue
import re
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from agent2.errors import ConfigError, EndpointFailed, Fault, SamplerFailed, quoted
from agent2.llm.endpoints import KEY_VARIABLE, Endpoint, EndpointClient, public_url
from agent2.llm.messages import CallPart, ChatAnswer, ChatMessage, ResultPart, ThoughtPart
from agent2.llm.openai_chat import OpenAiChat, build_messages, likeliest_tokens, logprobs_of
from agent2.llm.served_likelihoods import CHAT_COMPLETIONS, ServedLikelihoods
from agent2.llm.server_words import CALL_REASONS, FINISH_REASONS, FinishKind, error_text, is_unfinished, read_refusal
from agent2.llm.untrusted import as_object, decode
from agent2.llm.wire_problems import ConnectionFailure, WireProblem, fault_completion, malformed
from agent2.pictures import content_parts, read_picture, white_square
from agent2.records import (
    AnswerOffer,
    Completion,
    JsonValue,
    Message,
    Prompt,
    SamplingSettings,
    StopReason,
    Thought,
    token_count,
)

logger = logging.getLogger(__name__)

OPENAI_CHAT = OpenAiChat()
SEED_BITS = 31
"""Seeds are cut to what every server takes."""
STOP_REASONS = {FinishKind.END: StopReason.END, FinishKind.LENGTH: StopReason.LENGTH}
MAX_UNANSWERED = 3
"""So many requests without any HTTP answer, and none answered in between, mean that the endpoint is gone."""
_TIMEOUT_ADVICE = "give it longer with --endpoint timeout_s=SECONDS"
_HOW_TO_SET = {
    "temperature": "--set protocol.sampling.temperature=VALUE, or =unset to leave it out (of a judge: temperature)",
    "top_p": "--set protocol.sampling.top_p=VALUE, or =unset to leave it out",
    "max_tokens": "--set protocol.sampling.max_tokens=N",
    "max_completion_tokens": "--set protocol.sampling.max_tokens=N",
    "tools": "--endpoint native_tools=false",
}
_PROBE_TOOL = {"type": "function", "function": {"name": "noop", "parameters": {"type": "object", "properties": {}}}}


@dataclass(frozen=True, slots=True)
class Dialect:
    """Which optional parts of the protocol a server takes."""

    limit_name: str = "max_tokens"
    """The field that limits new tokens; newer models of one provider only know `max_completion_tokens`."""
    logprobs: bool = True
    """Log-probabilities may be asked for."""
    seed: bool = True
    """A seed may be sent; whether it is used is up to the server."""
    temperature: bool = True
    """A temperature may be sent; without it only 1 can be had, the default everywhere."""
    top_p: bool = True
    """The same of top_p."""


DIALECTS = (
    Dialect(),
    Dialect(logprobs=False),
    Dialect("max_completion_tokens", logprobs=False),
    Dialect("max_completion_tokens", logprobs=False, seed=False),
)
"""In the order in which they are tried."""


def request_body(
    model: str,
    messages: Sequence[Message],
    settings: SamplingSettings,
    dialect: Dialect,
    tools: Sequence[Mapping[str, JsonValue]] = (),
) -> dict[str, JsonValue]:
    """The JSON body of one request. tools: what is offered natively; earlier calls are then sent natively too.

    Not sent: what is unset, top_p where the draw is greedy, and a 1 where the dialect does without the field.
    """
    chat = _with_native_calls(messages) if tools else [ChatMessage(sent.role, sent.text) for sent in messages]
    built = build_messages(chat)
    for place, sent in enumerate(messages):
        if sent.pictures:  # never beside native tools: `submit` refuses that
            built[place]["content"] = content_parts(sent)
    body: dict[str, JsonValue] = {
        "model": model,
        "messages": built,
        dialect.limit_name: settings.max_tokens,
    }
    if settings.temperature is not None and (dialect.temperature or settings.temperature != 1.0):
        body["temperature"] = settings.temperature
    # Sent also where it is 1, since some servers default to what the model's own configuration says.
    if settings.top_p is not None and settings.temperature != 0.0 and (dialect.top_p or settings.top_p != 1.0):
        body["top_p"] = settings.top_p
    if dialect.seed:
        body["seed"] = settings.seed & ((1 << SEED_BITS) - 1)
    if dialect.logprobs and logprobs_are_comparable(settings):
        body["logprobs"] = True
    if tools:
        body["tools"] = [dict(tool) for tool in tools]
    return body


def _with_native_calls(messages: Sequence[Message]) -> list[ChatMessage]:
    """The messages with our calls and their results as parts of their own."""
    chat: list[ChatMessage] = []
    pending_ids: list[str] = []
    for number, message in enumerate(messages):
        calls = _calls_in(message.text) if message.role == "assistant" else []
        if calls:
            pending_ids = [f"call_{number}_{index}" for index in range(len(calls))]
            named = zip(pending_ids, calls, strict=True)
            parts = tuple(CallPart(call["name"], json.dumps(call["arguments"]), name) for name, call in named)
            chat.append(ChatMessage("assistant", parts))
        elif pending_ids and message.role == "user":
            results = zip(_results_in(message.text, len(pending_ids)), pending_ids, strict=True)
            chat.append(ChatMessage("tool", tuple(ResultPart(result, name) for result, name in results)))
            pending_ids = []
        else:
            chat.append(ChatMessage(message.role, message.text))
    return chat


def _calls_in(text: str) -> list[dict[str, Any]]:
    """The calls that a message of the model holds in our form; none if it is anything else."""
    try:
        value = json.loads(text) if text.lstrip()[:1] in ("{", "[") else None
    except (ValueError, RecursionError):
        return []
    entries: list[Any] = value if isinstance(value, list) else [value]
    calls = [entry for entry in entries if isinstance(entry, dict) and set(entry) == {"name", "arguments"}]
    return calls if len(calls) == len(entries) else []


def _results_in(text: str, n: int) -> list[str]:
    """The world's answer to each of n calls; where it cannot be divided, the whole for the first."""
    if n > 1:
        try:
            parts = json.loads(text)
        except (ValueError, RecursionError):
            parts = None
        if isinstance(parts, list) and len(parts) == n:
            return [part if isinstance(part, str) else json.dumps(part) for part in parts]
    return [text, *[""] * (n - 1)]


def _render_calls(calls: Sequence[CallPart]) -> str:
    """Native calls as the text that worlds read; arguments that are not JSON stay as they are, a malformed call."""
    texts = [f'{{"name": {json.dumps(call.name)}, "arguments": {call.arguments_text or "{}"}}}' for call in calls]
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def logprobs_are_comparable(settings: SamplingSettings) -> bool:
    """Whether a server's log-probabilities are of the distribution that was sampled from.

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
        if is_unfinished(status, error_text(content)):
            return Completion("", stop_reason=StopReason.LENGTH, thought=Thought("", closing=None))
        return read_refusal(status, headers, content, now or datetime.now(UTC))
    try:
        body = decode(content)
        answer = OPENAI_CHAT.parse_answer(body)
        if not all(call.name for call in answer.calls) and takes_calls:
            raise ValueError("a call without a name")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        return malformed(f"{type(error).__name__} in {quoted(content[:200])}")
    if answer.calls and not takes_calls:
        return WireProblem(
            "the server took a tool call out of the text; start it without a tool-call parser, or offer tools natively "
            "where the benchmark has some (--endpoint native_tools=true)",
            Fault.INFRASTRUCTURE,
            may_pass=False,
        )
    ending = _ending_of(answer)
    if ending is FinishKind.FILTERED:
        why = "the endpoint's content filter withheld the answer"
        return WireProblem(why, Fault.INFRASTRUCTURE, may_pass=False, is_final=True)
    if ending is FinishKind.ABORTED:
        return WireProblem(f"the endpoint gave up (finish_reason {quoted(answer.stop)})", Fault.INFRASTRUCTURE, True)
    if ending is None:
        return malformed(f"content {quoted(answer.text)}, finish_reason {quoted(answer.stop)}")
    choice, usage = body["choices"][0], OPENAI_CHAT.usage_in(body)
    text = _render_calls(answer.calls) if answer.calls else answer.text
    n_hidden = _count(as_object(usage.get("completion_tokens_details")), "reasoning_tokens") or 0
    thought = _thought_of(answer, text, n_hidden)
    n_lost = (_count(usage, "completion_tokens") or 0) - n_hidden
    # One token is the one that ends a message.
    if not text and thought is None and choice["message"].get("content") is None and n_lost > 1:
        return WireProblem(
            f"the server dropped {n_lost} tokens that the model wrote: content is null, and there is no thought; look "
            "at its reasoning parser and tool-call parser",
            Fault.INFRASTRUCTURE,
            may_pass=False,
            n_dropped=n_lost,
        )
    return Completion(
        text,
        thought=thought,
        stop_reason=STOP_REASONS[ending],
        logprobs=logprobs_of(choice),
        alternatives=likeliest_tokens(choice),
        prompt_tokens=_count(usage, "prompt_tokens"),
        n_tokens=_count(usage, "completion_tokens"),
    )


def _ending_of(answer: ChatAnswer) -> FinishKind | None:
    """Why an answer ended; None: in no word that is known."""
    reason = (answer.stop or "").lower()
    if reason in CALL_REASONS and (answer.calls or answer.text):
        return FinishKind.END
    return FINISH_REASONS.get(reason)


def _thought_of(answer: ChatAnswer, text: str, n_hidden: int) -> Thought | None:
    """What the server keeps apart from the answer; cut off where nothing follows it.

    n_hidden: tokens of a thought that the server may keep to itself.
    """
    thoughts = [part.text for part in answer.parts if isinstance(part, ThoughtPart)] or [""][: n_hidden > 0]
    return Thought("\n".join(thoughts), closing="" if text.strip() else None) if thoughts else None


def _count(usage: Mapping[str, JsonValue], name: str) -> int | None:
    """A token count of the server; None where it reports none, which is no fault."""
    value = usage.get(name)
    return token_count(value) if isinstance(value, int) else None


def simpler_dialect(dialect: Dialect, refused: Sequence[str], settings: SamplingSettings) -> Dialect | None:
    """The dialect without one of the refused fields; None: none can be left out without an effect."""
    if "top_p" in refused and dialect.top_p and settings.top_p == 1.0:
        return replace(dialect, top_p=False)
    if "temperature" in refused and dialect.temperature and settings.temperature == 1.0:
        return replace(dialect, temperature=False)
    if "seed" in refused and dialect.seed:
        return replace(dialect, seed=False)
    if "logprobs" in refused and dialect.logprobs:
        return replace(dialect, logprobs=False)
    return None


class ServedSampler:
    """A records.Sampler over an endpoint."""

    def __init__(self, endpoint: Endpoint) -> None:
        """Open an endpoint.

        Raises EndpointFailed if it cannot be reached or does not answer, ConfigError if it refuses or does not know the
        model.
        """
        self.capacity = endpoint.max_in_flight
        self.is_patient = False
        """True: requests that get no answer are no sign that the endpoint is gone."""
        self.takes_tools = endpoint.native_tools
        self.takes_pictures = True
        """Unless the server refuses the first one."""
        self._pictures_are_taken = False
        self._endpoint = endpoint
        self._client = EndpointClient(endpoint)
        self._done: queue.SimpleQueue[tuple[int, Completion]] = queue.SimpleQueue()
        self._in_flight: set[int] = set()
        self._lock = threading.Lock()
        self._n_unanswered, self._answered_at = 0, time.monotonic()
        self._has_answered = False
        self._gone: EndpointFailed | ConfigError | None = None
        self._dialect = Dialect()
        self._chat_problem: ConfigError | None = None
        self._likelihoods: ServedLikelihoods | None = None
        try:
            self._open()
        except BaseException:
            self._client.close()
            raise
        self._waiting: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        for number in range(endpoint.max_in_flight):  # daemons: a server that never answers must not hold the exit up
            threading.Thread(target=self._work, name=f"served-{number}", daemon=True).start()

    def submit(
        self, request_id: int, prompt: Prompt, settings: SamplingSettings, tools: Sequence[Mapping[str, JsonValue]] = ()
    ) -> None:
        """Queue one request. tools: offered natively.

        Raises SamplerFailed for an id in flight, for token ids and when closed, EndpointFailed when the endpoint is
        gone, ConfigError when it refuses a setting, chats, or pictures (asked with a white square, once).
        """
        if self._chat_problem is not None:
            raise self._chat_problem
        if not self._pictures_are_taken and any(isinstance(sent, Message) and sent.pictures for sent in prompt):
            self._require_pictures(tools)
        self._put(request_id, prompt, settings, tools)

    def _require_pictures(self, tools: Sequence[Mapping[str, JsonValue]]) -> None:
        """Raise ConfigError if the endpoint refuses a picture; it is asked once, before any item's is sent."""
        if tools:
            raise ConfigError(
                f"{self._client.name}: pictures are not sent beside native tools; set --endpoint native_tools=false"
            )
        square = read_picture(white_square(), "a white square")
        question = Message("user", "What is this?", (square,))
        probe = _Request(0, [question], SamplingSettings(temperature=1.0, max_tokens=1), ())
        answer = self._ask_as_taken(probe)
        if isinstance(answer, WireProblem) and not answer.may_pass and "HTTP 4" in answer.reason:
            raise ConfigError(
                f"{self._client.name}: refuses pictures: {answer.reason}; serve a model that takes them, or play a "
                "benchmark of texts"
            )
        self._pictures_are_taken = True  # what else goes wrong is counted and retried with the first item's picture

    def submit_answers(self, request_id: int, prompt: Prompt, offer: AnswerOffer) -> None:
        """Queue one comparison of answers (`records.LikelihoodSampler`).

        Raises as `submit` does, and ConfigError if the endpoint says of no text how likely it is.
        """
        if self._likelihoods is None:
            self._likelihoods = ServedLikelihoods(self._client)
        if offer.text is None:
            self._likelihoods.require_chats()
        self._put(request_id, prompt, SamplingSettings(max_tokens=1), offer=offer)

    def _put(
        self,
        request_id: int,
        prompt: Prompt,
        settings: SamplingSettings,
        tools: Sequence[Mapping[str, JsonValue]] = (),
        offer: AnswerOffer | None = None,
    ) -> None:
        if self._gone is not None:
            raise self._gone
        if self._client.closing.is_set():
            raise SamplerFailed(f"request {request_id}: the sampler of {self._endpoint.url} is closed; make a new one")
        if request_id in self._in_flight:
            raise SamplerFailed(f"request {request_id} is in flight already; give each request a unique id")
        messages = [message for message in prompt if isinstance(message, Message)]
        if len(messages) != len(prompt):
            raise SamplerFailed("a served sampler sends messages, not token ids; submit a chat")
        self._in_flight.add(request_id)
        self._waiting.put(_Request(request_id, messages, settings, tools, offer))

    def collect(self) -> list[tuple[int, Completion]]:
        """Block until at least one request is done; return all that are. Empty only when none is in flight.

        Raises EndpointFailed when the endpoint has stopped answering, ConfigError when it refuses a field of the first
        requests that cannot be left out: what is in flight is lost then.
        """
        if not self._in_flight:
            return []
        done = [self._done.get()]
        if self._gone is not None:
            raise self._gone
        while not self._done.empty():
            done.append(self._done.get())
        self._in_flight.difference_update(request_id for request_id, _ in done)
        return done

    def describe(self) -> dict[str, JsonValue]:
        """What the lock of a card needs; never the key."""
        return {
            "kind": "served",
            "model": self._endpoint.model,
            "endpoint": public_url(self._endpoint.url),
            "server": self._client.server,
            "max_in_flight": self.capacity,
            "timeout_s": self._endpoint.timeout_s,
            "extra_body": dict(self._endpoint.extra_body),
            "native_tools": self._endpoint.native_tools,
            "limit_name": self._dialect.limit_name,
            "logprobs_offered": self._dialect.logprobs,
            "seed_sent": self._dialect.seed,
            "temperature_sent": self._dialect.temperature,
            "top_p_sent": self._dialect.top_p,
            "likelihood_form": self._likelihoods.form.value if self._likelihoods is not None else None,
        }

    def close(self) -> None:
        """End waiting and running requests; what was not collected is lost."""
        if not self._client.closing.is_set():
            self._client.closing.set()
            for _ in range(self.capacity):  # one for each thread
                self._waiting.put(None)
        self._client.close()
        self._in_flight.clear()

    def _open(self) -> None:
        """Find out what the endpoint takes: chats in some dialect, or else texts of which it gives likelihoods."""
        try:
            self._dialect = self._find_dialect()
        except ConfigError as problem:
            if re.search(r"HTTP 40[13]\b", str(problem)):
                raise
            try:
                self._likelihoods = ServedLikelihoods(self._client)
            except ConfigError:
                raise problem from None
            self._chat_problem = problem

    def _find_dialect(self) -> Dialect:
        """Ask for one token in each dialect until one is accepted."""
        problem = None
        probe = _Request(
            0,
            [Message("user", "Hello")],
            SamplingSettings(temperature=1.0, max_tokens=1),  # 1: no value of ours is refused before any is needed
            [_PROBE_TOOL][: self.takes_tools],
        )
        for dialect in DIALECTS:
            answer = self._ask(probe, replace(dialect, temperature=False, top_p=False))
            if isinstance(answer, Completion):
                return replace(dialect, logprobs=answer.logprobs is not None)
            if answer.n_dropped:  # the address is right, and which answers are lost is for the card to say
                return replace(dialect, logprobs=False)
            problem = problem or answer
            if answer.may_pass or "HTTP 4" not in answer.reason:
                break  # another dialect would change nothing
        prefix = f"{self._client.name}: {problem.reason if problem else 'no answer'}; check that"
        if problem is not None and problem.may_pass:
            is_slow = problem.connection_failure is ConnectionFailure.TIMEOUT
            longer = f", or {_TIMEOUT_ADVICE} if it loads the model on its first request" if is_slow else ""
            raise EndpointFailed(f"{prefix} the server runs and the address is right{longer}")
        raise ConfigError(
            f"{prefix} the address ends in /v1, the model's name is the server's, {KEY_VARIABLE} holds its key if it "
            "needs one, and it knows the fields that --endpoint adds"
        )

    def _work(self) -> None:
        """One thread: answer queued requests until the sampler is closed."""
        while (request := self._waiting.get()) is not None and not self._client.closing.is_set():
            if self._gone is None:
                self._answer(request)
            else:  # what still waits is not sent: `collect` has raised by now, or will
                gone = WireProblem(str(self._gone), Fault.INFRASTRUCTURE, False)
                self._done.put((request.id, fault_completion(gone)))

    def _answer(self, request: "_Request") -> None:
        try:
            if request.offer is not None and self._likelihoods is not None:
                answer = self._likelihoods.compare(request.messages, request.offer)
            else:
                answer = self._ask_as_taken(request)
        except Exception as error:  # boundary: a request whose thread dies would be waited for without end
            logger.exception("request %d to %s failed", request.id, self._endpoint.model)
            answer = WireProblem(f"the client failed: {type(error).__name__}: {error}", Fault.INFRASTRUCTURE, False)
        # In this order: `collect` reads `_gone` after it has taken something from the queue.
        self._record_outcome(answer, self._client.limit_s(request.settings.max_tokens))
        self._done.put((request.id, answer if isinstance(answer, Completion) else fault_completion(answer)))

    def _record_outcome(self, answer: Completion | WireProblem, limit_s: float) -> None:
        """Count unanswered requests; a few in a row mean that the endpoint is gone."""
        with self._lock:
            if isinstance(answer, Completion) or answer.connection_failure is None:
                self._n_unanswered, self._answered_at = 0, time.monotonic()
                self._has_answered = self._has_answered or isinstance(answer, Completion)
                if not isinstance(answer, Completion) and answer.refused and not self._has_answered:
                    self._gone = self._gone or self._refusal_of(answer)
                return
            if self.is_patient:
                return
            self._n_unanswered += 1
            # Of many slow requests several may time out together while others are still answered: the endpoint is gone
            # only if none has been answered for the whole time limit.
            is_silent = (
                answer.connection_failure is ConnectionFailure.UNREACHABLE
                or time.monotonic() - self._answered_at >= limit_s
            )
            if self._n_unanswered >= MAX_UNANSWERED and is_silent and not self._client.closing.is_set():
                self._gone = self._gone or EndpointFailed(
                    f"{self._client.name}: {self._n_unanswered} requests in a row got no answer, the last one because: "
                    f"{answer.reason}; check the server, {_TIMEOUT_ADVICE} if it is only slow, and run the same "
                    "command again: what was played is kept"
                )

    def _refusal_of(self, problem: WireProblem) -> ConfigError:
        """What to change where the server refuses a setting; later on, one request may be refused for its content."""
        names = " and ".join(problem.refused)
        how = "; ".join(dict.fromkeys(_HOW_TO_SET.get(name, f"leave {name} out") for name in problem.refused))
        return ConfigError(
            f"{self._client.name}: refuses {names} as the suite sets it: {problem.reason}; change it: {how}"
        )

    def _ask_as_taken(self, request: "_Request") -> Completion | WireProblem:
        """Ask; leave out what the server refuses and has no effect; ask for fewer tokens where the context is short."""
        dialect = self._dialect
        while True:
            answer = self._ask(request, dialect)
            if isinstance(answer, Completion):
                return answer
            simpler = simpler_dialect(dialect, answer.refused, request.settings)
            if simpler is not None:
                logger.info("%s: left out from now on: %s", self._endpoint.model, ", ".join(answer.refused))
                self._dialect = dialect = simpler
            elif answer.room is not None and 0 < answer.room < request.settings.max_tokens:
                request = replace(request, settings=replace(request.settings, max_tokens=answer.room))
            else:
                return answer

    def _ask(self, request: "_Request", dialect: Dialect) -> Completion | WireProblem:
        body = request_body(self._endpoint.model, request.messages, request.settings, dialect, request.tools)
        if self._endpoint.top_logprobs and body.get("logprobs"):
            body["top_logprobs"] = self._endpoint.top_logprobs
        reader = partial(read_answer, takes_calls="tools" in body)
        return self._client.exchange(CHAT_COMPLETIONS, body, self._client.limit_s(request.settings.max_tokens), reader)


@dataclass(frozen=True, slots=True)
class _Request:
    """One request in the queue of the threads."""

    id: int
    messages: Sequence[Message]
    settings: SamplingSettings
    tools: Sequence[Mapping[str, JsonValue]]
    offer: AnswerOffer | None = None
    """Answers to be compared, in place of an answer to be written."""
