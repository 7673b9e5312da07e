"""How likely the model behind an endpoint finds texts: log-probabilities of the prompt's own tokens.

Servers give them in one of two forms, the first of which is taken where both are offered:

    prompt_logprobs     vLLM's own field, in completions and in chat completions
    echo                `echo` and `logprobs` of completions (SGLang, llama-cpp-python, older models of OpenAI)

Asking for one more token is part of both. Which form a server has is found out with a short text whose tokens have to
spell it. An answer's tokens are those of text and answer together from the first that text alone does not have, as for
a model in this process (`models.answer_likelihoods`).

Does NOT cover: chats rendered with the server's template in the form `echo`, servers that shorten a prompt silently.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial

from agent2.errors import ConfigError, EndpointFailed, Fault, quoted
from agent2.llm.endpoints import EndpointClient
from agent2.llm.server_words import read_refusal
from agent2.llm.untrusted import as_object, decode
from agent2.llm.wire_problems import WireProblem, malformed
from agent2.records import AnswerOffer, Completion, JsonValue, Message

PROBE_TEXT = "The quick brown fox jumps over the lazy dog."
COMPLETIONS, CHAT_COMPLETIONS = "completions", "chat/completions"


class LikelihoodForm(StrEnum):
    """How a server gives the log-probabilities of a prompt."""

    PROMPT_LOGPROBS = "prompt_logprobs"
    ECHO = "echo"


@dataclass(frozen=True, slots=True)
class ScoredText:
    """The tokens of a text as the server has them; the first has no log-probability."""

    tokens: Sequence[str]
    """Ids where the server tells them, else texts."""
    texts: Sequence[str]
    logprobs: Sequence[float | None]
    """In nats."""
    is_likeliest: Sequence[bool]


class ServedLikelihoods:
    """Compares answers by likelihood through an endpoint; for several threads."""

    def __init__(self, client: EndpointClient) -> None:
        """Ask the endpoint for the likelihoods of a short text in each form, until one is understood.

        Raises EndpointFailed if it does not answer, ConfigError with each form's reason if it has none of them.
        """
        self._client = client
        self.form = self._find_form()

    def compare(self, chat: Sequence[Message], offer: AnswerOffer) -> Completion | WireProblem:
        """The message of likelihoods (`records.LikelihoodSampler`), or why there is none."""
        text = offer.text
        if text is None:
            score: Callable[[str | None], ScoredText | WireProblem] = partial(self._score_chat, chat)
        else:
            score = partial(self._score_continuation, text)
        alone = score(None)
        if isinstance(alone, WireProblem):
            return alone
        record: dict[str, list[JsonValue]] = {"logprobs": [], "n_tokens": [], "is_greedy": []}
        n_tokens = len(alone.tokens)
        for answer in offer.answers:
            scored = score(answer)
            if isinstance(scored, WireProblem):
                return scored
            n_tokens += len(scored.tokens)
            start = _n_shared(alone.tokens, scored.tokens)
            logprobs = [logprob for logprob in scored.logprobs[start:] if logprob is not None]
            if not 0 < start < len(scored.tokens):
                why = f"the answer {quoted(answer)} adds no token to its prompt, or the prompt has none"
                return WireProblem(why, Fault.MODEL, may_pass=False)
            if len(logprobs) < len(scored.tokens) - start or not all(map(math.isfinite, logprobs)):
                return WireProblem("the log-probabilities are not all usable numbers", Fault.MODEL, may_pass=False)
            record["logprobs"].append(round(sum(logprobs), 6))
            record["n_tokens"].append(len(logprobs))
            record["is_greedy"].append(all(scored.is_likeliest[start:]))
        return Completion(json.dumps(record), prompt_tokens=n_tokens)

    def require_chats(self) -> None:
        """Raise ConfigError for a server that gives no likelihoods of chats."""
        if self.form is not LikelihoodForm.PROMPT_LOGPROBS:
            raise ConfigError(
                f"{self._client.name} gives likelihoods of texts and not of chats in its template (prompt_logprobs, as "
                "vLLM has it); leave out chat: true of the benchmark's environment, or name a model's FOLDER"
            )

    def _score_continuation(self, text: str, answer: str | None) -> ScoredText | WireProblem:
        return self._score(self.form, COMPLETIONS, {"prompt": text + (answer or "")})

    def _score_chat(self, chat: Sequence[Message], answer: str | None) -> ScoredText | WireProblem:
        messages: list[JsonValue] = [{"role": message.role, "content": message.text} for message in chat]
        if answer is None:
            ending = {"add_generation_prompt": True}
        else:
            messages.append({"role": "assistant", "content": answer})
            ending = {"add_generation_prompt": False, "continue_final_message": True}
        return self._score(self.form, CHAT_COMPLETIONS, {"messages": messages, **ending})

    def _score(self, form: LikelihoodForm, path: str, prompt: Mapping[str, JsonValue]) -> ScoredText | WireProblem:
        fields: dict[str, JsonValue] = (
            {"prompt_logprobs": 1} if form is LikelihoodForm.PROMPT_LOGPROBS else {"echo": True, "logprobs": 1}
        )
        body = {"model": self._client.endpoint.model, **prompt, "max_tokens": 1, "temperature": 0.0, **fields}
        return self._client.exchange(path, body, self._client.limit_s(1), partial(read_scored_text, form))

    def _find_form(self) -> LikelihoodForm:
        reasons = []
        for form in LikelihoodForm:
            scored = self._score(form, COMPLETIONS, {"prompt": PROBE_TEXT})
            if isinstance(scored, WireProblem):
                if scored.connection_failure is not None:
                    raise EndpointFailed(f"{self._client.name}: {scored.reason}; check that the server runs")
                reasons.append(f"{form.value}: {scored.reason}")
            elif _letters(PROBE_TEXT.partition(" ")[2]) not in _letters(
                "".join(scored.texts)
            ):  # the first may have no text
                reasons.append(
                    f"{form.value}: the tokens spell {quoted(''.join(scored.texts))}, not the text asked for"
                )
            else:
                return form
        raise ConfigError(
            f"{self._client.name} says of no text how likely it is, so answers cannot be compared "
            f"({'; '.join(reasons)}); serve the model with vLLM or SGLang, or name its FOLDER"
        )


def read_scored_text(
    form: LikelihoodForm, status: int, headers: Mapping[str, str], content: bytes
) -> ScoredText | WireProblem:
    """The tokens of the prompt in an answer to a request of that form."""
    if status != 200:
        return read_refusal(status, headers, content, datetime.now(UTC))
    try:
        body = decode(content)
        if form is LikelihoodForm.PROMPT_LOGPROBS:
            return _read_prompt_logprobs(body)
        return _read_echo(body)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        return malformed(f"{type(error).__name__} in {quoted(content[:200])}", "completion")


def _read_prompt_logprobs(body: JsonValue) -> ScoredText | WireProblem:
    """vLLM: one object a token, its own entry first, then the likeliest one where that is another."""
    listed = body.get("prompt_logprobs")
    places = body["choices"][0].get("prompt_logprobs") if listed is None else listed
    if not places:
        return _absent("the answer has no prompt_logprobs")
    entries = [(next(iter(place)), list(place.values())) if place else ("", []) for place in places]
    return ScoredText(
        tokens=[token for token, _ in entries],
        texts=[str(values[0].get("decoded_token") or "") if values else "" for _, values in entries],
        logprobs=[float(values[0]["logprob"]) if values else None for _, values in entries],
        is_likeliest=[bool(values) and _is_first(values) for _, values in entries],
    )


def _is_first(values: Sequence[Mapping[str, JsonValue]]) -> bool:
    rank = values[0].get("rank")
    if rank is not None:
        return bool(rank == 1)
    return all(values[0]["logprob"] >= value["logprob"] for value in values)


def _read_echo(body: JsonValue) -> ScoredText | WireProblem:
    """Lists over the tokens of the prompt and the one that was written."""
    logprobs = as_object(body["choices"][0].get("logprobs"))
    texts, values, tops = (logprobs.get(key) for key in ("tokens", "token_logprobs", "top_logprobs"))
    if not texts or not values or not tops:
        return _absent("the answer has no logprobs with tokens, token_logprobs and top_logprobs")
    written = as_object(body.get("usage")).get("completion_tokens")
    n_prompt = len(texts) - (written if isinstance(written, int) else 1)
    if n_prompt < 1:
        return _absent("the answer has log-probabilities of the written token alone, not of the prompt (echo)")
    if not len(texts) == len(values) == len(tops):
        raise ValueError("lists of different lengths")
    return ScoredText(
        tokens=texts[:n_prompt],
        texts=texts[:n_prompt],
        logprobs=[None if value is None else float(value) for value in values[:n_prompt]],
        is_likeliest=[
            value is not None and all(value >= logprob for logprob in as_object(top).values())
            for value, top in zip(values[:n_prompt], tops[:n_prompt], strict=True)
        ],
    )


def _absent(reason: str) -> WireProblem:
    return WireProblem(reason, Fault.INFRASTRUCTURE, may_pass=False)


def _n_shared(first: Sequence[str], second: Sequence[str]) -> int:
    """How many tokens two texts begin with in common."""
    n = 0
    while n < min(len(first), len(second)) and first[n] == second[n]:
        n += 1
    return n


def _letters(text: str) -> str:
    return "".join(character for character in text if character.isalpha())
