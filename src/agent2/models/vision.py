"""The in-process sampler of models that see pictures: any image-text-to-text model of transformers with a processor.

The checkpoint's processor makes tokens and pixels from a chat, and `model.generate` answers a few chats at a time. Each
request samples with its own random stream, as in the sampler of texts (`hf`), so what it is answered with does not
depend on what it shared a batch with, up to float noise.

Loads safetensors only, never runs code from the folder, never uses the network. Does NOT keep anything computed for the
next turn or the next question about the same picture, and has no continuous batching: a batch ends with its longest
answer, so it is much slower than `hf` on texts. Does NOT cover several devices and video. Measured on a CPU only.
"""

import gc
import io
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from transformers import (
    AutoModelForImageTextToText,
    AutoProcessor,
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
)

from agent2.errors import CheckpointError, ConfigError, Fault, SamplerFailed
from agent2.models.checkpoint import template_digest
from agent2.models.decoding import TextDecoder
from agent2.models.loading import context_length, end_tokens, first_line, load_model
from agent2.models.slots import BatchSampling, sample_tokens, seed_key, uniforms
from agent2.pictures import prepared
from agent2.records import Completion, JsonValue, Message, Prompt, SamplingSettings, StopReason

MAX_BATCH = 8
"""Chats answered at once, unless a setting says otherwise: their pixels take memory, too."""
MAX_SIDE = 8192
"""Longest side that a processor may make of a picture: as numbers, a square of it takes 0.8 GB."""
MAX_ENLARGED = 1 << 20
"""Pixels up to which a processor that counts pixels may enlarge a picture."""
MAX_PICTURE_TOKENS = 1 << 17
"""Tokens of one picture: a processor writes each of them into the prompt as text, before anything can be too long."""


@dataclass(slots=True, eq=False)
class PicturedRequest:
    """A chat to be answered, and its answer as far as it is known."""

    id: int
    chat: Sequence[Message]
    settings: SamplingSettings
    n_prompt: int = 0
    limit: int = 0
    """Most new tokens: the settings' maximum or what the context leaves."""
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    is_done: bool = False

    def start_again(self) -> None:
        """Forget the answer so far."""
        self.tokens, self.logprobs, self.is_done = [], [], False


class _OwnDraws(LogitsProcessor):  # type: ignore[misc]
    """Draws the next token of every row by the rules of its own request, and leaves `generate` no other choice."""

    def __init__(self, requests: Sequence[PicturedRequest], ends: NDArray[np.int64]) -> None:
        self._requests, self._ends = requests, set(ends.tolist())
        self._filler = int(ends[0]) if len(ends) else 0
        self._keys = np.array([seed_key(request.settings.seed) for request in requests], dtype=np.uint64)
        self._n_drawn = 0

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        numbers = uniforms(self._keys, np.full(len(self._requests), self._n_drawn))
        sampled = sample_tokens(scores, numbers, _batch_sampling(self._requests, scores.device))
        self._n_drawn += 1
        chosen = torch.full_like(scores, -torch.inf)
        for row, request in enumerate(self._requests):
            if not request.is_done:
                token = int(sampled.tokens[row])
                request.tokens.append(token)
                request.logprobs.append(float(sampled.logprobs[row]))
                is_broken = np.isnan(request.logprobs[-1])
                request.is_done = is_broken or token in self._ends or len(request.tokens) >= request.limit
                chosen[row, token] = 0.0
            else:
                chosen[row, self._filler] = 0.0
        return chosen


class _AllDone(transformers.StoppingCriteria):  # type: ignore[misc]
    """Ends a batch when every answer in it has ended."""

    def __init__(self, requests: Sequence[PicturedRequest]) -> None:
        self._requests = requests

    def __call__(self, input_ids: Tensor, scores: Tensor, **kwargs: Any) -> Tensor:
        is_over = all(request.is_done for request in self._requests)
        return torch.full((input_ids.shape[0],), is_over, device=input_ids.device, dtype=torch.bool)


class VisionSampler:
    """A records.Sampler over a model in this process that sees pictures."""

    takes_pictures = True
    source: str
    """Where the model came from, for messages and cards."""
    returns_pieces: bool = False
    """Whether completions have the text of each token."""

    def __init__(
        self,
        checkpoint: Path,
        max_batch: int = MAX_BATCH,
        dtype: str = "float32",
        device: str = "cpu",
        context_length: int | None = None,
    ) -> None:
        """Load a checkpoint.

        max_batch: most chats that are answered at once. dtype: "float32", "bfloat16" or "float16". context_length: most
        tokens of prompt and completion together, where that is less than the model's own limit.
        Raises CheckpointError if the checkpoint has no processor or cannot be loaded.
        """
        if max_batch < 1:
            raise ConfigError(f"max_batch {max_batch}: a sampler needs room for at least one request")
        self._processor = load_processor(checkpoint)
        self._model = load_model(checkpoint, dtype, device, AutoModelForImageTextToText)
        self._set_up(max_batch, context_length)
        self.source = str(checkpoint)

    def _set_up(self, max_batch: int, most_tokens: int | None) -> None:
        self.capacity = max_batch
        tokenizer = self._processor.tokenizer
        tokenizer.padding_side = "left"  # `generate` continues at the right end
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token
        own_limit = context_length(self._model.config.get_text_config(decoder=True))
        self._context = min(own_limit, most_tokens or own_limit)
        ends = end_tokens(self._model, tokenizer)
        self._ends = np.array(ends, dtype=np.int64)
        # what a folder's generation_config.json asks for beside its ends (penalties, beams, a time limit) would change
        # how answers are drawn, which the protocol alone decides
        proposed = self._model.generation_config
        starts = {name: getattr(proposed, name, None) for name in ("bos_token_id", "decoder_start_token_id")}
        self._model.generation_config = GenerationConfig(eos_token_id=ends or None, **starts)
        self._decoder = TextDecoder(tokenizer)
        self._waiting: deque[PicturedRequest] = deque()
        self._done: list[tuple[int, Completion]] = []

    def submit(self, request_id: int, prompt: Prompt, settings: SamplingSettings) -> None:
        """Queue one chat. Raises SamplerFailed for an id in flight, token ids, senseless settings or once closed."""
        if self._model is None:
            raise SamplerFailed(f"request {request_id}: the sampler of {self.source} is closed; make a new one")
        if any(request.id == request_id for request in self._waiting) or any(
            id_ == request_id for id_, _ in self._done
        ):
            raise SamplerFailed(f"request {request_id} is in flight already; give each request its own id")
        if settings.max_tokens < 1 or settings.model_temperature < 0 or not 0 < settings.model_top_p <= 1:
            raise SamplerFailed(f"request {request_id}: {settings} cannot be sampled; see SamplingSettings for ranges")
        chat = [message for message in prompt if isinstance(message, Message)]
        if not chat or len(chat) != len(prompt):
            raise SamplerFailed("a model that sees pictures is asked with messages, not token ids; submit a chat")
        self._waiting.append(PicturedRequest(request_id, chat, settings))

    def collect(self) -> list[tuple[int, Completion]]:
        """Answer the next batch; return what is done. Empty only when nothing waits.

        Raises SamplerFailed when memory runs out; what was in the batch is lost then.
        """
        while self._waiting and not self._done:
            batch = [self._waiting.popleft()]
            sees = _has_pictures(batch[0])
            while self._waiting and len(batch) < self.capacity and _has_pictures(self._waiting[0]) == sees:
                batch.append(self._waiting.popleft())
            try:
                self._answer(batch)
            except torch.OutOfMemoryError as error:
                raise SamplerFailed(
                    f"{self.source}: out of memory with {len(batch)} chats at once; lower --set run.max_in_flight"
                ) from error
        done, self._done = self._done, []
        return done

    def describe(self) -> dict[str, JsonValue]:
        """What the lock of a card needs."""
        return {
            "kind": "hf",
            "model": self.source,
            "architecture": type(self._model).__name__,
            "processor": type(self._processor).__name__,
            "dtype": str(self._model.dtype).removeprefix("torch."),
            "device": self._model.device.type,
            "max_batch": self.capacity,
            "chat_template_digest": template_digest(_template_of(self._processor)),
            "torch": str(torch.__version__),  # its own class, which JSON encoders do not know
            "transformers": transformers.__version__,
        }

    def close(self) -> None:
        """Drop the model; requests in flight are lost."""
        self._model = self._processor = None
        self._waiting.clear()
        self._done.clear()
        gc.collect()

    def require_rendering(self) -> None:
        """Raise CheckpointError where the chat template cannot render a plain question: no prompt could be played."""
        try:
            self._inputs_of([[Message("user", "What is 1 + 1?")]])
        except Exception as error:  # boundary: the template is code of the checkpoint; what it raises is its fault
            raise CheckpointError(
                f"{self.source}: cannot be asked a plain question ({first_line(error)}); save a processor with a chat "
                "template: processor.save_pretrained"
            ) from error

    def _answer(self, batch: Sequence[PicturedRequest]) -> None:
        """Answer some chats together, or one after the other where the processor cannot take them together."""
        try:
            inputs = self._inputs_of([request.chat for request in batch])
        except ConfigError:  # a picture that is not on this machine any more: not the model's fault
            raise
        except Exception as error:  # boundary: template and processor are the checkpoint's, and may raise anything
            if len(batch) == 1:
                self._fail(batch[0], f"the processor failed: {type(error).__name__}: {first_line(error)}")
                return
            for request in batch:
                self._answer([request])
            return
        for request, n_prompt in zip(batch, inputs["attention_mask"].sum(dim=1).tolist(), strict=True):
            request.n_prompt = int(n_prompt)
            request.limit = min(request.settings.max_tokens, self._context - request.n_prompt)
        too_long = [request for request in batch if request.limit < 1]
        for request in too_long:
            self._fail(
                request,
                f"the prompt has {request.n_prompt} tokens, pictures included; the context of {self._context} leaves "
                "no room for an answer",
            )
        if too_long:
            remaining = [request for request in batch if request.limit >= 1]
            if remaining:
                self._answer(remaining)
            return
        try:
            self._generate(inputs, batch)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # boundary: a model and a processor that do not fit make the library raise anything
            for request in batch:
                request.start_again()
            if len(batch) == 1:
                self._fail(batch[0], f"the model failed: {type(error).__name__}: {first_line(error)}")
                return
            for request in batch:
                self._answer([request])
            return
        self._done += [(request.id, self._completion(request, inputs, row)) for row, request in enumerate(batch)]

    @torch.inference_mode()
    def _generate(self, inputs: Any, batch: Sequence[PicturedRequest]) -> None:
        self._model.generate(
            **inputs,
            do_sample=False,  # the draws are made where the logits are read
            num_beams=1,
            max_new_tokens=max(request.limit for request in batch),
            logits_processor=LogitsProcessorList([_OwnDraws(batch, self._ends)]),
            stopping_criteria=transformers.StoppingCriteriaList([_AllDone(batch)]),
            pad_token_id=self._processor.tokenizer.pad_token_id,
        )

    def _inputs_of(self, chats: Sequence[Sequence[Message]]) -> Any:
        """What the model reads of some chats, padded on the left."""
        texts = [
            self._processor.apply_chat_template(_as_parts(chat), add_generation_prompt=True, tokenize=False)
            for chat in chats
        ]
        images = [[_image(picture) for message in chat for picture in message.pictures or ()] for chat in chats]
        first = self._processor.tokenizer.bos_token
        has_start = bool(first) and texts[0].startswith(first)
        inputs = self._processor(
            text=texts,
            **({"images": images} if any(images) else {}),
            padding=True,
            return_tensors="pt",
            add_special_tokens=not has_start,
        )
        return inputs.to(self._model.device, self._model.dtype)

    def _completion(self, request: PicturedRequest, inputs: Any, row: int) -> Completion:
        tokens = request.tokens
        if np.isnan(request.logprobs[-1]):
            return _fault_completion(
                f"the logits for new token {len(tokens)} are not all usable numbers", request.n_prompt
            )
        has_ended = tokens[-1] in self._ends
        prompt = inputs["input_ids"][row, -request.n_prompt :].tolist()
        return Completion(
            text=self._decoder.text_of(prompt, tokens[:-1] if has_ended else tokens),
            token_ids=tuple(tokens),
            logprobs=tuple(request.logprobs),
            stop_reason=StopReason.END if has_ended else StopReason.LENGTH,
            prompt_tokens=request.n_prompt,
            pieces=(
                self._processor.tokenizer.batch_decode([[token] for token in tokens]) if self.returns_pieces else None
            ),
        )

    def _fail(self, request: PicturedRequest, reason: str) -> None:
        self._done.append((request.id, _fault_completion(reason, request.n_prompt)))


def load_processor(folder: Path) -> Any:
    """What makes tokens and pixels from chats. Raises CheckpointError if the folder has none that can be loaded."""
    try:
        processor = AutoProcessor.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except Exception as error:  # boundary: an untrusted config can make the library raise anything
        raise CheckpointError(f"{folder}: transformers cannot load the processor: {first_line(error)}") from error
    if getattr(processor, "image_processor", None) is None or getattr(processor, "tokenizer", None) is None:
        raise CheckpointError(
            f"{folder}: its processor is a {type(processor).__name__}, which prepares no pictures; save that of the "
            "model: processor.save_pretrained"
        )
    _require_modest_sizes(folder, processor.image_processor)
    _require_modest_lengths(folder, processor)
    if not _template_of(processor):
        raise CheckpointError(f"{folder}: has no chat template, so no prompt can be made for it; save one with it")
    return processor


def _require_modest_sizes(folder: Path, image_processor: Any) -> None:
    """Raise CheckpointError for one that would make so large a picture of any that memory runs out."""
    counts_pixels = hasattr(image_processor, "merge_size")  # as that of Qwen2-VL: its edges are numbers of pixels
    for setting in ("size", "crop_size", "pad_size", "min_image_size", "max_image_size"):
        sides = getattr(image_processor, setting, None)
        named = {setting: sides} if isinstance(sides, int) else dict(sides or {})
        for name, side in named.items():
            if counts_pixels and name.endswith("_edge"):
                limit = MAX_ENLARGED if name == "shortest_edge" else None
            else:
                limit = MAX_SIDE
            if limit is not None and isinstance(side, int | float) and side > limit:
                raise CheckpointError(
                    f"{folder}: its processor makes pictures of {setting} {name} {side:g}, and {limit} is the most; "
                    "save it with a smaller size"
                )


def _require_modest_lengths(folder: Path, processor: Any) -> None:
    """Raise CheckpointError for one that would write a picture as more tokens than any context holds."""
    for owner in (processor, processor.image_processor):
        for name, n_tokens in vars(owner).items():
            counts_tokens = ("token" in name or "seq_len" in name) and not name.endswith(("_id", "_ids"))
            if counts_tokens and isinstance(n_tokens, int | float) and n_tokens > MAX_PICTURE_TOKENS:
                raise CheckpointError(
                    f"{folder}: its processor has {name} {n_tokens:g}, and {MAX_PICTURE_TOKENS} tokens of one picture "
                    "are the most; save it with fewer"
                )
    patch = getattr(processor, "patch_size", None)  # Llava's and its kin: a token for each patch
    sides = [side for side in _fixed_sides(processor.image_processor) if isinstance(side, int | float)]
    if isinstance(patch, int) and patch > 0 and sides and (max(sides) / patch) ** 2 > MAX_PICTURE_TOKENS:
        raise CheckpointError(
            f"{folder}: its processor has patches of {patch} pixels in pictures of {max(sides):g}, which makes more "
            f"than {MAX_PICTURE_TOKENS} tokens of one; save it with larger patches"
        )


def _fixed_sides(image_processor: Any) -> list[Any]:
    """Width and height of the pictures that it makes, as far as they do not depend on the picture."""
    if hasattr(image_processor, "merge_size"):
        return []
    sizes = (getattr(image_processor, name, None) for name in ("size", "crop_size"))
    return [side for size in sizes for side in ([size] if isinstance(size, int) else dict(size or {}).values())]


def _template_of(processor: Any) -> Any:
    return getattr(processor, "chat_template", None) or getattr(processor.tokenizer, "chat_template", None)


def _has_pictures(request: PicturedRequest) -> bool:
    return any(message.pictures for message in request.chat)


def _image(picture: Any) -> Image.Image:
    _, content = prepared(picture)
    with Image.open(io.BytesIO(content)) as image:
        return image.convert("RGB")


def _as_parts(chat: Sequence[Message]) -> list[dict[str, Any]]:
    """A chat as templates of such models read it: the texts and the places of the pictures."""
    return [{"role": message.role, "content": _parts_of(message)} for message in chat]


def _parts_of(message: Message) -> list[dict[str, str]]:
    parts: list[dict[str, str]] = []
    end = 0
    for picture in message.pictures or ():
        if message.content[end : picture.at]:
            parts.append({"type": "text", "text": message.content[end : picture.at]})
        parts.append({"type": "image"})
        end = max(end, picture.at)
    if message.content[end:] or not parts:
        parts.append({"type": "text", "text": message.content[end:]})
    return parts


def _batch_sampling(requests: Sequence[PicturedRequest], device: torch.device) -> BatchSampling:
    temperatures = np.array([request.settings.model_temperature for request in requests], dtype=np.float32)
    is_greedy = temperatures == 0
    if is_greedy.all():
        return BatchSampling(all_greedy=True)
    top_ps = np.array([request.settings.model_top_p for request in requests], dtype=np.float32)
    return BatchSampling(
        temperatures=torch.from_numpy(np.where(is_greedy, np.float32(1), temperatures)).to(device),
        top_ps=None if (top_ps == 1).all() else torch.from_numpy(top_ps).to(device),
        is_greedy=torch.from_numpy(is_greedy).to(device) if is_greedy.any() else None,
    )


def _fault_completion(reason: str, prompt_tokens: int) -> Completion:
    return Completion(
        text="", stop_reason=StopReason.FAULT, prompt_tokens=prompt_tokens, fault=Fault.MODEL, reason=reason
    )
