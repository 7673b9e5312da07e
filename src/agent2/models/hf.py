"""The in-process sampler: any causal language model of transformers, with continuous batching.

Each request owns a slot of the key-value cache; a request that ends is replaced before the next step, and
nothing of the others is computed again. The slot of a request that ended stays as it is until it is needed: the
next turn of a conversation, as messages or as token ids, continues there, and only its new tokens are computed
(`rows`). Equal prompts that start together are computed once, and so are the first tokens that unequal ones share
(`shared_prefixes`); a long prompt is computed in chunks. Each decoding step is one pass of the ordinary model
class and one vectorised sampling step; each request samples with its own random stream (`slots`), so batch 1 and
batch 64 give the same tokens up to float noise. Memory follows the number and the length of the running requests.

transformers' own continuous batching (generate_batch, 5.23) was tried first. It runs on a CPU, but 64 requests
took it 11 times as long as `model.generate` (540-600 against 6,500 tokens/s), it reserves gigabytes for its
pages, and all requests of a call share one length limit and one random stream. `benchmarks/sampler.py`
compares this sampler with `model.generate`, and with generate_batch on demand.

Does NOT cover: sliding windows shorter than the context, recurrent or hybrid layers (refused with a reason by
`loading`), encoder-decoders, a model spread over several devices. Written for any torch device, measured on a CPU
only.

`Likelihoods` are numbers that a local model gives without generating text: how likely it finds each of some answers.
"""

import gc
import json
import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
import transformers
from torch import Tensor

from agent2.errors import CheckpointError, ConfigError, Fault, SamplerFailed
from agent2.models.answer_likelihoods import answer_likelihoods
from agent2.models.checkpoint import template_digest
from agent2.models.decoding import TextDecoder
from agent2.models.loading import (
    context_length,
    end_tokens,
    fingerprint,
    load_model,
    load_tokenizer,
    make_cache,
    require_slots_work,
)
from agent2.models.packed_linears import pack_linears
from agent2.models.rows import Request, RowIndex, Rows, assign_slots
from agent2.models.shared_prefixes import shared_prefixes
from agent2.models.slots import TracedDecoder, decode, extend, prefill, sample_tokens
from agent2.records import AnswerOffer, Completion, JsonValue, Message, Prompt, SamplingSettings, StopReason

PREFILL_TOKENS = 8192
"""Most tokens of one prefill pass, padding included; one longer prompt goes alone."""
CHUNK_TOKENS = 2048
"""Most tokens of one pass over a prompt that goes alone."""
PASS_COLUMNS = 262_144
"""Most positions that one prefill pass looks at, over all its prompts."""
MIN_FILL = 0.6
"""Prompts shorter than this share of the longest one do not go into the same pass ..."""
PADDING = 48
"""... unless the padding of the whole pass stays below so many tokens, which cost less than another pass."""
ADMITTED_SHARE = 16
"""On a GPU a pass for few prompts costs as much as one for many: prompts wait until there is one for so many running
rows ..."""
GPU_PATIENCE = 16
"""... or until so many decoding steps have passed."""
RENDERED_PROMPTS = 4096
"""How many rendered prompts are remembered."""


@dataclass(slots=True, eq=False)
class PromptPass:
    """A prompt that is computed once, for all the rows that have it."""

    tokens: tuple[int, ...]
    rows: list[int]
    """It is computed in the slot of the first one."""
    n_cached: int = 0
    """How many of its first tokens that slot holds."""
    followers: list["PromptPass"] = field(default_factory=list)
    """Prompts that copy their first tokens from that slot."""

    @property
    def n_new(self) -> int:
        """Tokens to compute."""
        return len(self.tokens) - self.n_cached


class HfSampler:
    """A records.Sampler over a model in this process."""

    _decode: Any
    """From the last token and the position of each row to logits: an ordinary step, or a recorded one."""
    _traced: TracedDecoder | None
    """None: the weights belong to another owner or are packed, so no step is recorded."""
    _weights: tuple[object, ...] | None
    """Fingerprint of the weights with which the parked slots were filled; None: this sampler alone holds the model."""
    source: str
    """Where the model came from, for messages and cards."""
    returns_pieces: bool = False
    """Whether completions have the text of each token."""
    prefilled_tokens: int
    """Prompt tokens computed so far; those of `Completion.prompt_tokens` beyond them came from the cache."""

    def __init__(
        self,
        checkpoint: Path,
        max_batch: int = 64,
        dtype: str = "float32",
        device: str = "cpu",
        context_length: int | None = None,
        chat_template: str | None = None,
    ) -> None:
        """Load a checkpoint.

        max_batch: most requests that run at once. dtype: "float32", "bfloat16" or "float16". context_length: most
        tokens of prompt and completion together, where that is less than the model's own limit. chat_template:
        used in place of the checkpoint's own.
        Raises CheckpointError if the checkpoint cannot be loaded or its architecture cannot be served.
        """
        model = load_model(checkpoint, dtype, device)
        tokenizer = load_tokenizer(checkpoint)
        if chat_template is not None:
            tokenizer.chat_template = chat_template
        is_packed = pack_linears(model)
        self._set_up(model, tokenizer, max_batch)
        self._context: int = min(self._context, context_length or self._context)
        if not is_packed:  # what was packed cannot be recorded, and has numbers that cost more than the Python
            self._traced = TracedDecoder(model, self._cache)
            self._decode = self._traced.decode
        self._weights = None
        self.source = str(checkpoint)

    @classmethod
    def from_model(cls, model: Any, tokenizer: Any, max_batch: int = 64) -> Self:
        """Sample from a model that another owner holds, such as a trainer; nothing is copied.

        The weights may change whenever no request is in flight. What earlier requests left in the cache is then
        dropped: a `collect` that starts with nothing running compares the fingerprint of the weights (address in
        memory, torch's count of changes in place, a sample of the values of each), which detects every optimiser
        step, `load_state_dict` and a merged adapter. It cannot detect an adapter that was switched on or off, or a
        change through `.data` of a few values only: call `forget` after such a change. Calling it after every
        update is right too. Each `collect` puts the model into evaluation mode and restores its mode afterwards.
        """
        sampler = cls.__new__(cls)
        sampler.source = "in memory"
        with _evaluating(model):
            sampler._set_up(model, tokenizer, max_batch)
        sampler._weights = fingerprint(model)
        return sampler

    def _set_up(self, model: Any, tokenizer: Any, max_batch: int) -> None:
        if max_batch < 1:
            raise ConfigError(f"max_batch {max_batch}: a sampler needs room for at least one request")
        self.capacity = max_batch
        self._model, self._tokenizer = model, tokenizer
        self._cache = make_cache(model)
        require_slots_work(model)
        self._traced = None
        self._decode = partial(decode, model, self._cache)
        config = model.config.get_text_config(decoder=True)
        self._context = context_length(config)
        self._vocabulary = int(model.get_input_embeddings().weight.shape[0])
        ends = end_tokens(model, tokenizer)
        # The output head may have more rows than the tokenizer has tokens: any of them can be sampled.
        self._is_end = np.isin(np.arange(max(self._vocabulary, int(config.vocab_size))), ends)
        self._rows = Rows(max_batch)
        self.patience = 0 if model.device.type == "cpu" else GPU_PATIENCE
        self._steps_waited = 0
        self.prefilled_tokens = 0
        self._waiting: deque[Request] = deque()
        self._done: list[tuple[int, Completion]] = []
        self._in_flight: set[int] = set()
        self._decoder = TextDecoder(tokenizer)
        # Per instance: a cache on the method would be shared, and keep closed samplers with their models alive.
        self._rendered = lru_cache(maxsize=RENDERED_PROMPTS)(self._render)

    def submit(self, request_id: int, prompt: Prompt, settings: SamplingSettings) -> None:
        """Queue one request. Raises SamplerFailed for an id in flight, senseless settings or a closed sampler."""
        if self._model is None:
            raise SamplerFailed(f"request {request_id}: the sampler of {self.source} is closed; make a new one")
        if request_id in self._in_flight:
            raise SamplerFailed(f"request {request_id} is in flight already; give each request its own id")
        if settings.max_tokens < 1 or settings.model_temperature < 0 or not 0 < settings.model_top_p <= 1:
            raise SamplerFailed(f"request {request_id}: {settings} cannot be sampled; see SamplingSettings for ranges")
        self._in_flight.add(request_id)
        tokens, problem = self._tokens_of(prompt)
        room = self._context - len(tokens)
        if not problem and room < 1:
            problem = (
                f"the prompt has {len(tokens)} tokens, the context of {self._context} leaves no room for an answer"
            )
        if problem:
            self._done.append((request_id, _fault_completion(problem, len(tokens))))
            return
        self._waiting.append(Request(request_id, tokens, min(settings.max_tokens, room), settings))

    def submit_answers(self, request_id: int, prompt: Prompt, offer: AnswerOffer) -> None:
        """Compare answers by likelihood, at once. Raises SamplerFailed for an id in flight or a closed sampler."""
        if self._model is None:
            raise SamplerFailed(f"request {request_id}: the sampler of {self.source} is closed; make a new one")
        if request_id in self._in_flight:
            raise SamplerFailed(f"request {request_id} is in flight already; give each request its own id")
        self._in_flight.add(request_id)
        self._done.append((request_id, self._compared(prompt, offer)))

    def _compared(self, prompt: Prompt, offer: AnswerOffer) -> Completion:
        text, is_raw = offer.text, offer.text is not None
        if text is None:
            tokens, problem = self._tokens_of(prompt)
            if problem:
                return _fault_completion(problem, len(tokens))
            chat = [{"role": part.role, "content": part.content} for part in prompt if isinstance(part, Message)]
            text = self._tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
        try:
            with _evaluating(self._model):
                likelihoods, n_tokens = answer_likelihoods(
                    self._model, self._tokenizer, self._context, text, offer.answers, with_special_tokens=is_raw
                )
        except SamplerFailed as error:
            return _fault_completion(str(error), 0)
        logprobs = [round(likelihood.logprob, 6) for likelihood in likelihoods]
        record = {
            "logprobs": logprobs,
            "n_tokens": [likelihood.n_tokens for likelihood in likelihoods],
            "is_greedy": [likelihood.is_greedy for likelihood in likelihoods],
        }
        if not all(map(math.isfinite, logprobs)):
            return _fault_completion("the log-probabilities are not all usable numbers", n_tokens)
        return Completion(json.dumps(record), prompt_tokens=n_tokens)

    def collect(self) -> list[tuple[int, Completion]]:
        """Block until at least one request is done; return all that are. Empty only when none is in flight.

        Raises SamplerFailed when memory runs out; what was in flight is lost then.
        """
        if not self._done and self._in_flight:
            with torch.inference_mode(), _evaluating(self._model):
                try:
                    self._run_until_one_is_done()
                except torch.OutOfMemoryError as error:
                    n_lost = len(self._in_flight)
                    self._drop_in_flight()
                    raise SamplerFailed(
                        f"{self.source}: out of memory with {n_lost} requests in flight; lower max_batch"
                    ) from error
        done, self._done = self._done, []
        self._in_flight.difference_update(request_id for request_id, _ in done)
        return done

    def forget(self) -> None:
        """Compute every later prompt from its first token: nothing that earlier requests left in the cache is used.

        For weights that changed in a way that `from_model` cannot see. Requests in flight are not touched.
        """
        for row in self._rows.parked().tolist():
            self._rows.drop(row)

    def describe(self) -> dict[str, JsonValue]:
        """What the lock of a card needs."""
        return {
            "kind": "hf",
            "model": self.source,
            "architecture": type(self._model).__name__,
            "dtype": str(self._model.dtype).removeprefix("torch."),
            "device": self._model.device.type,
            "max_batch": self.capacity,
            "chat_template_digest": template_digest(getattr(self._tokenizer, "chat_template", None)),
            "torch": str(torch.__version__),  # its own class, which JSON encoders do not know
            "transformers": transformers.__version__,
        }

    def close(self) -> None:
        """Drop the model and the cache; requests in flight are lost."""
        if self._traced is not None:
            self._traced.close()
        self._traced = self._model = self._tokenizer = self._decode = None
        self._cache.layers.clear()
        self._rendered.cache_clear()
        self._drop_in_flight()
        gc.collect()

    def _drop_in_flight(self) -> None:
        self._rows = Rows(self.capacity)
        self._waiting.clear()
        self._done.clear()
        self._in_flight.clear()

    def _run_until_one_is_done(self) -> None:
        rows = self._rows
        if rows.n == 0 and self._weights is not None and (weights := fingerprint(self._model)) != self._weights:
            self._weights = weights
            self.forget()
        while not self._done:
            if self._is_time_to_admit():
                self._steps_waited = 0
                self._admit()
                continue
            self._steps_waited += bool(self._waiting)
            self._cache.swap(rows.compact())  # a decoding step computes rows 0 to n - 1
            running = slice(0, rows.n)
            logits = self._decode(rows.last[running], rows.lengths[running])
            rows.lengths[running] += 1
            self._sample(logits, running)

    def _is_time_to_admit(self) -> bool:
        n_running = self._rows.n
        n_admitted = min(len(self._waiting), self.capacity - n_running)
        if not n_admitted:
            return False
        return self._steps_waited >= self.patience or n_admitted * ADMITTED_SHARE >= n_running

    def _admit(self) -> None:
        """Give every free slot to a waiting request."""
        n = min(self.capacity - self._rows.n, len(self._waiting))
        slots = assign_slots(self._rows, [self._waiting.popleft() for _ in range(n)])
        self._cache.reserve(self._rows.peak, max(len(slot.request.tokens) for slot in slots) + 1)
        for slot in slots:  # all copies first: what is computed afterwards may overwrite their sources
            if slot.copied_from is not None:
                self._cache.move(slot.copied_from, slot.row, slot.n_cached)
        same_prompt: dict[tuple[int, ...], list[int]] = {}
        for slot in slots:
            if not slot.n_cached:
                same_prompt.setdefault(slot.request.tokens, []).append(slot.row)
        continued = [PromptPass(slot.request.tokens, [slot.row], slot.n_cached) for slot in slots if slot.n_cached]
        passes = [PromptPass(tokens, rows) for tokens, rows in same_prompt.items()]
        for index, prefix in shared_prefixes([prompt.tokens for prompt in passes]).items():
            passes[index].n_cached = prefix.n_tokens
            passes[prefix.source].followers.append(passes[index])
        for group in _groups([prompt for prompt in passes if not prompt.n_cached]):
            self._compute(group)
        for group in _groups([*continued, *(prompt for prompt in passes if prompt.n_cached)]):
            self._compute(group)

    def _compute(self, group: Sequence[PromptPass]) -> None:
        """Compute what the slot of each prompt does not hold yet, copy it to the rows that need it, and sample."""
        self.prefilled_tokens += sum(prompt.n_new for prompt in group)
        logits = self._in_chunks(group[0]) if len(group) == 1 else self._logits_after(group)
        rows = [row for prompt in group for row in prompt.rows]
        for prompt in group:
            for row in prompt.rows[1:]:
                self._cache.move(prompt.rows[0], row, len(prompt.tokens))
            for follower in prompt.followers:  # before sampling, which may empty the slot
                self._cache.move(prompt.rows[0], follower.rows[0], follower.n_cached)
        if len(rows) > len(group):
            prompt_of_row = np.repeat(np.arange(len(group)), [len(prompt.rows) for prompt in group])
            logits = logits[torch.from_numpy(prompt_of_row).to(logits.device)]
        self._sample(logits, np.array(rows))

    def _in_chunks(self, prompt: PromptPass) -> Tensor:
        """The logits after one prompt, in passes that take no more memory than those of short prompts."""
        tokens, n_cached = prompt.tokens, prompt.n_cached
        for end in range(n_cached + CHUNK_TOKENS, len(tokens), CHUNK_TOKENS):
            self._logits_after([PromptPass(tokens[:end], prompt.rows, n_cached)])
            n_cached = end
        return self._logits_after([PromptPass(tokens, prompt.rows, n_cached)])

    def _logits_after(self, group: Sequence[PromptPass]) -> Tensor:
        """One pass over prompts of which the cache holds either nothing or the first tokens of each."""
        rows = [prompt.rows[0] for prompt in group]
        if not group[0].n_cached:
            return prefill(self._model, self._cache, [prompt.tokens for prompt in group], rows)
        suffixes = [prompt.tokens[prompt.n_cached :] for prompt in group]
        return extend(self._model, self._cache, suffixes, [prompt.n_cached for prompt in group], rows)

    def _sample(self, logits: Tensor, index: RowIndex) -> None:
        """Sample one token for each of some rows, and release the rows that are done."""
        rows = self._rows
        settings = rows.batch_sampling(index, logits.device)
        sampled = sample_tokens(logits, rows.numbers(index), settings)
        for row in rows.record(index, sampled, self._is_end).tolist():
            self._finish(row)

    def _finish(self, row: int) -> None:
        """Park the row; one whose numbers are not finite is emptied."""
        rows, completion = self._rows, self._completion(row)
        self._done.append((rows.request(row).id, completion))
        if completion.fault is None:
            rows.park(row)
        else:  # a NaN that stays in the cache would poison masked columns of later requests
            rows.drop(row)
            self._cache.clear(row)

    def _completion(self, row: int) -> Completion:
        request, generated = self._rows.request(row), self._rows.generated(row)
        tokens, n_prompt = generated.tokens, len(request.tokens)
        if np.isnan(generated.logprobs[-1]):
            return _fault_completion(f"the logits for new token {len(tokens)} are not all usable numbers", n_prompt)
        has_ended = bool(self._is_end[tokens[-1]])
        return Completion(
            text=self._decoder.text_of(request.tokens, tokens[:-1] if has_ended else tokens),
            token_ids=tuple(tokens),
            logprobs=tuple(generated.logprobs),
            stop_reason=StopReason.END if has_ended else StopReason.LENGTH,
            prompt_tokens=n_prompt,
            pieces=self._tokenizer.batch_decode([[token] for token in tokens]) if self.returns_pieces else None,
        )

    def require_rendering(self) -> None:
        """Raise CheckpointError where the chat template cannot render a plain question: no prompt could be played.

        A model without a template is not refused here: comparing answers by likelihood needs none.
        """
        if not getattr(self._tokenizer, "chat_template", None):
            return
        _, problem = self._tokens_of([Message("user", "What is 1 + 1?")])
        if problem:
            raise CheckpointError(
                f"{self.source}: cannot be asked a plain question: {problem}; give it a chat template that needs no "
                "tools or documents, or add --set run.plain=true for both sides"
            )

    def _tokens_of(self, prompt: Prompt) -> tuple[tuple[int, ...], str]:
        """Token ids of a prompt, and why they cannot be used ("" if they can)."""
        if prompt and isinstance(prompt[0], Message):
            tokens, problem = self._rendered(tuple(prompt))
        else:
            tokens, problem = tuple(int(token) for token in prompt), ""  # type: ignore[arg-type]
        if not problem and not tokens:
            problem = "the prompt has no tokens"
        if not problem and (min(tokens) < 0 or max(tokens) >= self._vocabulary):
            problem = f"the prompt has a token outside the model's vocabulary of {self._vocabulary}"
        return tokens, problem

    def _render(self, messages: tuple[Message, ...]) -> tuple[tuple[int, ...], str]:
        if not getattr(self._tokenizer, "chat_template", None):
            return (), "the checkpoint has no chat template, so messages cannot be rendered"
        chat = [{"role": message.role, "content": message.content} for message in messages]
        try:
            tokens = self._tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
        except Exception as error:  # boundary: the template is code of the checkpoint; what it raises is its fault
            return (), f"the chat template failed: {type(error).__name__}: {error}"
        return tuple(tokens), ""


def _groups(prompts: Sequence[PromptPass]) -> Iterator[list[PromptPass]]:
    """Cut prompts into passes that waste little on padding, those with the most tokens to compute first."""
    group: list[PromptPass] = []
    longest = padding = columns = 0
    for prompt in sorted(prompts, key=lambda prompt: prompt.n_new, reverse=True):
        n_new = prompt.n_new
        is_full = (len(group) + 1) * longest > PREFILL_TOKENS or columns > PASS_COLUMNS
        if group and (is_full or (n_new < MIN_FILL * longest and padding + longest - n_new > PADDING)):
            yield group
            group = []
        if not group:
            longest, padding, columns = n_new, 0, 0
        padding += longest - n_new
        columns += len(prompt.tokens)
        group.append(prompt)
    if group:
        yield group


def _fault_completion(reason: str, prompt_tokens: int) -> Completion:
    return Completion(
        text="", stop_reason=StopReason.FAULT, prompt_tokens=prompt_tokens, fault=Fault.MODEL, reason=reason
    )


@contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    """Evaluation mode inside the context; the mode of every module is restored afterwards."""
    training = [module for module in model.modules() if module.training] if model.training else []
    if training:
        model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


class Likelihoods:
    """How likely a causal language model finds each of some beginnings of its answer."""

    def __init__(self, folder: Path, dtype: str = "float32", device: str = "cpu") -> None:
        """Raises CheckpointError if the folder is not a complete causal LM with a chat template."""
        self._model, self._tokenizer = load_model(folder, dtype, device), load_tokenizer(folder)
        self._context = context_length(self._model.config.get_text_config(decoder=True))
        if not getattr(self._tokenizer, "chat_template", None):
            raise CheckpointError(f"{folder}: has no chat template, so no prompt can be made for it")

    @torch.inference_mode()
    def of(self, chat: Sequence[Message], before: str, options: Sequence[str]) -> tuple[Mapping[str, float], int]:
        """Log-probability of each option, in nats, right after `before`, with which the answer begins; tokens computed.

        An option of several tokens has the sum of theirs. Raises SamplerFailed if the chat does not fit the context.
        """
        messages = [{"role": message.role, "content": message.content} for message in chat]
        text = self._tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False) + before
        rows = [self._tokenizer(text + option, add_special_tokens=False)["input_ids"] for option in options]
        n_tokens, longest = sum(map(len, rows)), max(map(len, rows))
        if longest > self._context:
            raise SamplerFailed(f"the prompt of {longest} tokens does not fit the model's context of {self._context}")
        # Options are compared as tokens of the whole text: a tokenizer may merge an option with what is before it.
        first = _first_difference(rows)
        if all(len(row) == first + 1 for row in rows):  # one token each: one pass for all of them
            logprobs_V = self._logprobs(rows[0][:-1])[-1]
            return {option: float(logprobs_V[row[-1]]) for option, row in zip(options, rows, strict=True)}, first
        logprobs = {}
        for option, row in zip(options, rows, strict=True):
            logprobs_TV = self._logprobs(row[:-1])
            logprobs[option] = float(sum(logprobs_TV[t - 1, row[t]] for t in range(first, len(row))))
        return logprobs, n_tokens

    def _logprobs(self, tokens: Sequence[int]) -> Tensor:
        logits_TV = self._model(input_ids=torch.tensor([tokens], device=self._model.device)).logits[0]
        return torch.log_softmax(logits_TV.float(), dim=-1)


def _first_difference(rows: Sequence[Sequence[int]]) -> int:
    """The first position at which the rows differ; at least 1."""
    for position, tokens in enumerate(zip(*rows, strict=False)):
        if len(set(tokens)) > 1:
            return max(1, position)
    return max(1, min(map(len, rows)) - 1)
