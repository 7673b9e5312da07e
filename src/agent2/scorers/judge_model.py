"""The model behind a judge: many prompts at once, answers cached by content, verdicts read strictly.

Guarantees: a call that failed is a completion with a fault, and its cost is counted like any other's; an answer without
a verdict, cut off, or with two verdicts that differ raises UnreadableVerdict. A verdict that the judged text contains
is not one of the judge's, and a text that speaks of verdicts cannot make its own one unreadable: then the last counts.
Does NOT know what a verdict means.
"""

import importlib
import json
import math
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import structs

from agent2 import installation
from agent2.errors import Agent2Error, ConfigError, Fault, SamplerFailed, quoted
from agent2.llm.endpoints import read_endpoint_options
from agent2.llm.thoughts import split_thought
from agent2.models.sources import CheckpointSource, LoadSettings, SourceKind, find_checkpoint, require_whole_model
from agent2.records import (
    COST_PREFIX,
    Completion,
    JsonValue,
    Message,
    Sampler,
    SamplingSettings,
    StopReason,
    digest_of,
)
from agent2.sampling_keys import UNSET, if_set

COSTS = tuple(COST_PREFIX + name for name in ("prompt_tokens", "completion_tokens", "dollars", "cached_calls"))
"""Views of every verdict: tokens as the endpoint reports them, dollars where prices are set, answers from the cache."""
TOP_LOGPROBS = 20
"""Alternatives that are requested for each token; OpenAI's limit."""
PAUSE_S = 30.0
"""An endpoint that fails gets no prompts for this long: a batch would wait for the failure of each of them."""
MOST_TOKENS = 16_384
"""Of an answer of the judge that is given more room than its setting."""
MIN_LOST = 3
"""An endpoint fails if at least this many of the prompts of one batch, and at least half of them, are lost."""
LOCAL_START = '{"verdict": "'
"""The beginning of an answer that is given to a local checkpoint whose probabilities are read."""

_OBJECT = re.compile(r"\{\s*+\"")
_LAST_COMMA = re.compile(r"(?P<quoted>\"(?:[^\"\\]|\\.)*\")|,\s{0,200}(?P<bracket>[}\]])", re.DOTALL)


class Purpose(StrEnum):
    """What a prompt is sent for."""

    VERDICT = "verdict"
    FORM = "form"
    """There is no verdict, and the same text is shown again: sent while the endpoint is paused, too, and a request that
    times out is no sign that the endpoint is gone."""
    CONTROL = "control"
    """The same for another text, to find out whether the judge works: never answered from the cache."""
    PROBE = "probe"
    """A control that tells whether the endpoint answers at all; if it doesn't, no probe is sent for a while."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Dollars per million tokens."""

    prompt: float
    completion: float


@dataclass(frozen=True, slots=True)
class JudgeAnswer:
    """What the judging model wrote, and what that cost."""

    completion: Completion
    views: Mapping[str, float | None]
    """The costs, by the names of `COSTS`."""


class JudgeModel:
    """The judging model: opened at the first prompt, many prompts in flight, answers cached by content."""

    def __init__(  # noqa: PLR0913 - one setting of a judge each
        self,
        model: str,
        *,
        max_tokens: int = 512,
        temperature: float | str = 0.0,
        seed: int = 0,
        cache: bool = True,
        prices: Mapping[str, float] | None = None,
        endpoint: Mapping[str, Any] | None = None,
        options: Sequence[str] = (),
    ) -> None:
        """Open nothing yet.

        temperature: `unset` sends none to an endpoint. options: the verdicts whose probabilities are read; empty: none
        are. Raises ConfigError or CheckpointError for a model that does not exist and for a wrong setting.
        """
        if not isinstance(endpoint, Mapping | None):
            raise ConfigError(
                f"judge: endpoint is {quoted(endpoint)}; give options, such as {{timeout_s: 60}}, and the address as "
                "model: http://HOST/v1#NAME"
            )
        endpoint_options = read_endpoint_options(
            [f"{key}={json.dumps(value)}" for key, value in (endpoint or {}).items()]
        )
        self.source: CheckpointSource = find_checkpoint(
            model, LoadSettings(endpoint=endpoint_options, top_logprobs=TOP_LOGPROBS if options else 0)
        )
        if options:
            require_whole_model(self.source)
        if max_tokens < 1 or not (temperature == UNSET or _is_temperature(temperature)):
            raise ConfigError(
                f"judge: max_tokens={max_tokens} and temperature={temperature}; give at least 1 and 0 (or {UNSET})"
            )
        if prices is not None and set(prices) != {"prompt", "completion"}:
            raise ConfigError("judge: prices are {prompt: DOLLARS, completion: DOLLARS}, per million tokens")
        self.settings = SamplingSettings(temperature=if_set(temperature), max_tokens=max_tokens, seed=seed)
        self.prices = None if prices is None else Prices(float(prices["prompt"]), float(prices["completion"]))
        played_by = [self.source.dtype] if self.source.kind is SourceKind.ENGINE else []
        self.digest = digest_of(
            [self.source.digest, max_tokens, temperature, seed, dict(endpoint or {}), *options, *played_by]
        )
        self._options = tuple(options)
        self._likelihoods: Any = None
        self._cache = AnswerCache(installation.home() / "judge-answers.sqlite") if cache else None
        self._sampler: Sampler | None = None
        self._lost = Completion("")
        """The answer to every prompt while the endpoint is paused."""
        self._paused_until = -math.inf
        self._down_until = -math.inf
        """Until then no probe is sent either."""
        self._lock = threading.Lock()

    def ask_for_verdicts(
        self,
        prompts: Sequence[Sequence[Message]],
        judged: Sequence[str],
        room: int = 1,
        purpose: Purpose = Purpose.VERDICT,
    ) -> list[JudgeAnswer]:
        """Like `ask`, where an answer is usable if it has a verdict. judged: the texts that each prompt presents.

        room: times `max_tokens` for each answer, up to `MOST_TOKENS`.
        """
        return self._ask(prompts, [partial(has_verdict, judged=text) for text in judged], room, purpose)

    def ask(
        self,
        prompts: Sequence[Sequence[Message]],
        is_usable: Callable[[Completion], bool],
        room: int = 1,
        purpose: Purpose = Purpose.VERDICT,
    ) -> list[JudgeAnswer]:
        """One answer for each prompt, in order; a call that failed is a completion with a fault.

        is_usable: whether an answer may be cached. room: as in `ask_for_verdicts`.
        """
        return self._ask(prompts, [is_usable] * len(prompts), room, purpose)

    def _ask(
        self,
        prompts: Sequence[Sequence[Message]],
        checks: Sequence[Callable[[Completion], bool]],
        room: int,
        purpose: Purpose,
    ) -> list[JudgeAnswer]:
        most_tokens = max(self.settings.max_tokens, min(room * self.settings.max_tokens, MOST_TOKENS))
        settings = replace(self.settings, max_tokens=most_tokens)
        judge = self.digest if settings == self.settings else digest_of([self.digest, most_tokens])
        keys = [digest_of([judge, [_shown(message) for message in prompt]]) for prompt in prompts]
        cached = {} if self._cache is None or purpose in (Purpose.CONTROL, Purpose.PROBE) else self._cache.read(keys)
        new_keys = dict.fromkeys(key for key in keys if key not in cached)  # equal prompts are sent once
        by_key = dict(zip(keys, prompts, strict=True))
        with self._lock:  # a sampler's queue belongs to one thread at a time
            completions = self._complete([by_key[key] for key in new_keys], settings, purpose)
        new = dict(zip(new_keys, completions, strict=True))
        if self._cache is not None:
            is_usable = dict(zip(keys, checks, strict=True))
            self._cache.write({key: completion for key, completion in new.items() if is_usable[key](completion)})
        unpaid = set(new_keys)
        answers = []
        for key in keys:
            is_cached = key not in unpaid
            unpaid.discard(key)  # the second of two equal prompts costs nothing
            completion = cached.get(key) or new[key]
            answers.append(JudgeAnswer(completion, self._costs(completion, is_cached=is_cached)))
        return answers

    def _rank_options(self, prompts: Sequence[Sequence[Message]]) -> list[Completion]:
        """The likeliest option of a local model for each prompt, with the probabilities of all."""
        completions = []
        for prompt in prompts:
            try:
                if self._likelihoods is None:
                    module = importlib.import_module("agent2.models.hf")  # brings torch
                    self._likelihoods = module.Likelihoods(self.source.folder, self.source.dtype)
                logprobs, n_read = self._likelihoods.of(prompt, LOCAL_START, self._options)
            except Agent2Error as error:
                completions.append(
                    Completion("", stop_reason=StopReason.FAULT, fault=Fault.JUDGE, reason=str(error), n_tokens=0)
                )
                continue
            best = max(self._options, key=lambda option: logprobs[option])
            tokens: list[tuple[str, Mapping[str, float]]] = [(LOCAL_START, {}), (best, logprobs), ('"}', {})]
            text = "".join(token for token, _ in tokens)
            completions.append(Completion(text, prompt_tokens=n_read, n_tokens=0, alternatives=tokens))
        return completions

    def _complete(
        self, prompts: Sequence[Sequence[Message]], settings: SamplingSettings, purpose: Purpose
    ) -> list[Completion]:
        if self._options and self.source.kind is SourceKind.HF:
            return self._rank_options(prompts)
        is_check = purpose is not Purpose.VERDICT
        paused_until = {Purpose.VERDICT: self._paused_until, Purpose.PROBE: self._down_until}.get(purpose, -math.inf)
        if time.monotonic() < paused_until:
            return [self._lost] * len(prompts)
        done: dict[int, Completion] = {}
        queue = iter(enumerate(prompts))
        in_flight = 0
        try:
            if self._sampler is None and prompts:
                self._sampler = self.source.open()
            if any(message.pictures for prompt in prompts for message in prompt):
                self._require_sight()
            if self._sampler is not None and hasattr(self._sampler, "is_patient"):
                self._sampler.is_patient = is_check
            while len(done) < len(prompts):
                assert self._sampler is not None
                while in_flight < self._sampler.capacity and (request := next(queue, None)) is not None:
                    self._sampler.submit(request[0], request[1], settings)
                    in_flight += 1
                arrived = self._sampler.collect()
                if not arrived:
                    raise SamplerFailed("the judging model returned nothing")
                in_flight -= len(arrived)
                done.update(arrived)
        except Agent2Error as error:
            is_down = is_check or self._sampler is None
            if self._sampler is not None:
                self._sampler.close()
            self._sampler = None  # what was in flight is lost with the queue; the next call opens it again
            lost_call = Completion("", stop_reason=StopReason.FAULT, fault=Fault.INFRASTRUCTURE, reason=str(error))
            self._pause(lost_call, is_down=is_down)
            return [done.get(number, self._lost) for number in range(len(prompts))]
        lost = [completion for completion in done.values() if completion.fault is Fault.INFRASTRUCTURE]
        if is_check and len(lost) < len(done):
            self._paused_until = -math.inf
        elif lost and purpose is Purpose.PROBE:
            self._pause(lost[-1], is_down=True)
        elif not is_check and len(lost) >= max(MIN_LOST, len(done) / 2):
            self._pause(lost[-1], is_down=False)
        return [done[number] for number in range(len(prompts))]

    def _require_sight(self) -> None:
        """Raise ConfigError for a model of texts alone; an endpoint is asked with the first picture."""
        if not getattr(self._sampler, "takes_pictures", False):
            raise ConfigError(f"judge: {self.source.name} reads texts alone; name a model that sees pictures")

    def _pause(self, lost: Completion, *, is_down: bool) -> None:
        """Answer every prompt with the same loss for `PAUSE_S`, at no cost. is_down: probes, too."""
        self._lost = structs.replace(lost, prompt_tokens=0, n_tokens=0)
        self._paused_until = time.monotonic() + PAUSE_S
        if is_down:
            self._down_until = self._paused_until

    def _costs(self, completion: Completion, *, is_cached: bool) -> dict[str, float | None]:
        n_read, n_new = (0, 0) if is_cached else (completion.prompt_tokens, completion.completion_tokens)
        dollars = None
        if self.prices is not None and n_read is not None and n_new is not None:
            dollars = (n_read * self.prices.prompt + n_new * self.prices.completion) / 1e6
        tokens = [None if n is None else float(n) for n in (n_read, n_new)]
        values = (*tokens, dollars, float(is_cached))
        return dict(zip(COSTS, values, strict=True))


def _shown(message: Message) -> list[JsonValue]:
    """A message as the key of its answer has it."""
    pictures = [[picture.digest, picture.at, picture.prepared] for picture in message.pictures or ()]
    return [message.role, message.content, *([pictures] if pictures else [])]


def _is_temperature(value: object) -> bool:
    return isinstance(value, int | float) and 0.0 <= value < math.inf


class AnswerCache:
    """Answers by the digest of model, settings and prompt, in one SQLite file that several processes may use."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with closing(self._open()) as store:
            store.execute("CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, answer TEXT NOT NULL)")
            store.commit()

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=60.0)

    def read(self, keys: Sequence[str]) -> dict[str, Completion]:
        """The stored answers among these keys."""
        with closing(self._open()) as store:
            rows = ((key, store.execute("SELECT answer FROM answers WHERE key = ?", (key,)).fetchone()) for key in keys)
            return {key: _completion(row[0]) for key, row in rows if row is not None}

    def write(self, answers: Mapping[str, Completion]) -> None:
        """Store answers; one that is stored already stays."""
        rows = [
            (
                key,
                json.dumps(
                    [
                        answer.text,
                        answer.stop_reason,
                        answer.prompt_tokens,
                        answer.completion_tokens,
                        answer.alternatives,
                    ]
                ),
            )
            for key, answer in answers.items()
        ]
        with closing(self._open()) as store:
            # IGNORE: another process may have stored an answer to the same prompt since `read`.
            store.executemany("INSERT OR IGNORE INTO answers VALUES (?, ?)", rows)
            store.commit()


def _completion(stored: str) -> Completion:
    text, stop, n_prompt, n_new, *further = json.loads(stored)
    alternatives = further[0] if further else None  # rows of older versions have none
    return Completion(
        text, stop_reason=StopReason(stop), prompt_tokens=n_prompt, n_tokens=n_new, alternatives=alternatives
    )


class UnreadableVerdict(ValueError):
    """The judge's answer is not a verdict."""

    def __init__(self, message: str, fault: Fault = Fault.JUDGE) -> None:
        super().__init__(message)
        self.fault = fault


def read_verdict(completion: Completion, judged: str = "") -> Mapping[str, Any]:
    """The JSON object with which a judge's answer ends. judged: the texts that it was shown.

    Objects that are in those texts are quotations, unless there are no others and the answer ends with one. Raises
    UnreadableVerdict if there is no verdict, and if there are several that differ although no judged text speaks of
    verdicts.
    """
    if completion.fault is not None:
        # A filter that withheld the verdict was provoked by what it reads; another try would choose among verdicts.
        is_judges = completion.fault is Fault.MODEL or completion.is_final
        fault = Fault.JUDGE if is_judges else completion.fault
        raise UnreadableVerdict(f"the judge gave no answer: {completion.reason}", fault)
    thought, answer = split_thought(completion.text)  # what a judge thinks is no verdict
    if thought is not None and thought.closing is None:
        raise UnreadableVerdict("the judge's thought never ended, so there is no verdict; raise max_tokens")
    objects = list(_verdict_objects(answer)) or list(_verdict_objects(_without_last_commas(answer)))
    if not objects:
        cut = ", cut off at its token limit" if completion.stop_reason is StopReason.LENGTH else ""
        raise UnreadableVerdict(f"the judge's answer has no verdict{cut}: {quoted(completion.text[-200:])}")
    verdicts = _without_quoted(objects, judged)
    if not verdicts:
        if not answer.rstrip("`\n\t ").endswith(objects[-1][1]):
            raise UnreadableVerdict("the judge's answer quotes verdicts and does not end with one")
        return objects[-1][0]
    if any(verdict != verdicts[0] for verdict in verdicts) and not _speaks_of_verdicts(judged):
        raise UnreadableVerdict(f"the judge's answer has {len(verdicts)} verdicts that differ")
    return verdicts[-1]


def has_verdict(completion: Completion, judged: str = "") -> bool:
    """Whether an answer has a verdict that can be read."""
    try:
        read_verdict(completion, judged)
    except UnreadableVerdict:
        return False
    return True


def _without_quoted(objects: Sequence[tuple[dict[str, Any], str]], judged: str) -> list[dict[str, Any]]:
    """The objects (with their text) that are not in the judged texts, white space aside.

    An object whose entries begin one of those texts' objects is quoted, too.
    """
    squeezed = "".join(judged.split())
    own_verdicts = []
    for verdict, text in objects:
        beginning = "".join(text.split())[:-1]
        if f"{beginning}}}" not in squeezed and f"{beginning}," not in squeezed:
            own_verdicts.append(verdict)
    return own_verdicts


def _speaks_of_verdicts(judged: str) -> bool:
    return "verdict" in judged.lower() or _OBJECT.search(judged) is not None


def _without_last_commas(text: str) -> str:
    """The text without commas before a closing bracket, which JSON forbids; those in quoted texts stay."""
    return _LAST_COMMA.sub(lambda match: match["quoted"] or match["bracket"], text)


def _verdict_objects(text: str) -> Iterator[tuple[dict[str, Any], str]]:
    """The JSON objects in a text that have the key `verdict` or an object inside, each with its text; outermost only.

    Line breaks within quoted texts, which models write and JSON forbids, are read.
    """
    decoder, start = json.JSONDecoder(strict=False), 0
    while (start := text.find("{", start)) >= 0:
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            start += 1
            continue
        if isinstance(value, dict) and ("verdict" in value or any(isinstance(part, dict) for part in value.values())):
            yield value, text[start:end]
        start = end
