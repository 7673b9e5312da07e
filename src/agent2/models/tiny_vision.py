"""Trains the tiny vision model: a small encoder of pictures before a small Llama, put together as a Llava.

The encoder (a CLIP vision transformer) sees a picture as 16 patches, the projector turns them into 16 vectors among the
tokens of the question, and the Llama answers. Pictures, questions and answers come from the caller's stream, so nothing
is stored; answers alone are learned. Matrices are trained with Muon, the rest with AdamW, as in `agent2.models.tiny`.

Promises: what is saved is read back by `AutoProcessor` and `AutoModelForImageTextToText`, and the processor makes the
very numbers that the model was trained on. Does NOT promise equal weights across machines or versions of torch.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import AddedToken
from torch import Tensor
from torch.nn import functional
from transformers import (
    CLIPImageProcessorPil,
    CLIPVisionConfig,
    GenerationConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    PreTrainedTokenizerFast,
)

from agent2.models.tiny import ASSISTANT, END, NO_LABEL, USER, build_word_tokenizer
from agent2.models.tiny_recipe import ChatRecipe, TinyRecipe, VisionRecipe
from agent2.records import Message

IMAGE = "<image>"
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' }}"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<image>{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}"
    "{% if message['role'] == 'assistant' %}<|end|>{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
MEAN = SPREAD = 0.5
"""Of the colours, each 0 to 1: the model is shown -1 to 1."""


@dataclass(frozen=True, slots=True)
class SeenExample:
    """A picture (height x width x 3, 0 to 255), and questions with the answers to be learned."""

    pixels: NDArray[np.uint8]
    turns: Sequence[tuple[str, str]]
    """Question and answer of each turn of the chat; the picture stands before the first one."""
    cells: Sequence[Sequence[str]] = ()
    """What each patch shows, in words that are tokens; empty words are not learned."""


@dataclass(frozen=True, slots=True)
class VisionStage:
    """What is learned in some steps."""

    n_steps: int
    names: bool = False
    """The encoder learns to name what each patch shows, instead of the answers."""
    rate: float = 1.0
    """A factor of the learning rates."""


def build_processor(questions: Sequence[str], answers: Sequence[str], recipe: VisionRecipe) -> LlavaProcessor:
    """A tokenizer of these texts in which every piece of the recipe is a token, and what prepares pictures."""
    size = TinyRecipe(target=0.0, max_vocabulary=recipe.max_vocabulary, context_tokens=recipe.context_tokens)
    chats = [[Message("user", text)] for text in (*questions, *answers)]
    tokenizer = build_word_tokenizer(chats, ChatRecipe(size, steps=(), pieces=recipe.pieces))
    tokenizer.add_tokens([AddedToken(IMAGE, special=True, normalized=False)], special_tokens=True)
    tokenizer.chat_template = CHAT_TEMPLATE
    pictures = CLIPImageProcessorPil(
        size={"height": recipe.side, "width": recipe.side},
        do_center_crop=False,
        image_mean=[MEAN] * 3,
        image_std=[SPREAD] * 3,
    )
    return LlavaProcessor(
        image_processor=pictures,
        tokenizer=tokenizer,
        patch_size=recipe.patch,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=CHAT_TEMPLATE,
        image_token=IMAGE,
    )


def build_model(tokenizer: PreTrainedTokenizerFast, recipe: VisionRecipe) -> LlavaForConditionalGeneration:
    """A freshly initialised model of the recipe's size, float32."""
    vision = CLIPVisionConfig(
        hidden_size=recipe.hidden_size,
        intermediate_size=2 * recipe.hidden_size,
        num_hidden_layers=recipe.n_encoder_layers,
        num_attention_heads=recipe.n_heads,
        image_size=recipe.side,
        patch_size=recipe.patch,
        projection_dim=recipe.hidden_size,
    )
    text = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=recipe.hidden_size,
        intermediate_size=recipe.feed_forward_size,
        num_hidden_layers=recipe.n_layers,
        num_attention_heads=recipe.n_heads,
        num_key_value_heads=recipe.n_heads,
        max_position_embeddings=recipe.context_tokens,
        tie_word_embeddings=True,
        initializer_range=0.05,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    config = LlavaConfig(
        vision_config=vision,
        text_config=text,
        image_token_index=tokenizer.convert_tokens_to_ids(IMAGE),
        vision_feature_layer=-1,
        vision_feature_select_strategy="default",
        tie_word_embeddings=True,
    )
    with torch.random.fork_rng(devices=[]):  # the caller's random state stays as it is
        torch.manual_seed(recipe.seed)
        model = LlavaForConditionalGeneration(config)
    model.generation_config = GenerationConfig(
        do_sample=True, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    return model


def optimizers_of(model: Any, recipe: VisionRecipe, rate: float = 1.0) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the layers of both halves, AdamW for the others. rate: a factor of both rates."""
    layers = [*model.model.language_model.layers.parameters(), *model.model.vision_tower.encoder.layers.parameters()]
    matrices = [parameter for parameter in layers if parameter.ndim == 2]
    matrix_ids = {id(parameter) for parameter in matrices}  # tensors compare by value, so not `in matrices`
    remaining = [parameter for parameter in model.parameters() if id(parameter) not in matrix_ids]
    return [
        torch.optim.Muon(matrices, lr=rate * recipe.muon_learning_rate, weight_decay=0.01),
        torch.optim.AdamW(remaining, lr=rate * recipe.adamw_learning_rate, weight_decay=0.01, betas=(0.9, 0.98)),
    ]


def encode(tokenizer: PreTrainedTokenizerFast, examples: Sequence[SeenExample], n_patches: int) -> dict[str, Tensor]:
    """Token ids and labels, examples x tokens, padded on the right, and pictures as the processor makes them."""
    texts: list[str] = []
    for example in examples:
        for turn, (question, answer) in enumerate(example.turns):
            image_tokens = IMAGE * n_patches if turn == 0 else ""
            texts += [f"{USER}{image_tokens}{question}{ASSISTANT}", f"{answer}{END}"]
    encoded = iter(tokenizer(texts, add_special_tokens=False)["input_ids"])
    rows: list[tuple[list[int], list[int]]] = []
    for example in examples:
        ids: list[int] = []
        labels: list[int] = []
        for _ in example.turns:
            prompt, answer_ids = next(encoded), next(encoded)
            ids += prompt + answer_ids
            labels += [NO_LABEL] * len(prompt) + answer_ids
        rows.append((ids, labels))
    longest = max(len(ids) for ids, _ in rows)
    ids_BT = torch.full((len(rows), longest), tokenizer.pad_token_id)
    labels_BT = torch.full((len(rows), longest), NO_LABEL)
    for number, (ids, labels) in enumerate(rows):
        ids_BT[number, : len(ids)] = torch.tensor(ids)
        labels_BT[number, : len(labels)] = torch.tensor(labels)
    return {"input_ids": ids_BT, "labels": labels_BT, "pixel_values": pixel_values_of(examples)}


def pixel_values_of(examples: Sequence[SeenExample]) -> Tensor:
    """Pictures as the processor makes them, examples x colours x height x width."""
    pixels = np.stack([example.pixels for example in examples]).astype(np.float32) / 255
    return torch.from_numpy((pixels - MEAN) / SPREAD).permute(0, 3, 1, 2).contiguous()


def answer_loss(model: Any, batch: dict[str, Tensor], weights_B: Tensor | None = None) -> Tensor:
    """Mean loss in nats a token of the answers; weights_B: of each example, such as an advantage."""
    states_BTD = model.model(input_ids=batch["input_ids"], pixel_values=batch["pixel_values"]).last_hidden_state[:, :-1]
    targets_BT = batch["labels"][:, 1:]
    is_answer_BT = targets_BT != NO_LABEL
    losses = functional.cross_entropy(
        model.lm_head(states_BTD[is_answer_BT]), targets_BT[is_answer_BT], reduction="none"
    )
    if weights_B is None:
        return losses.mean()
    return (losses * weights_B[is_answer_BT.nonzero()[:, 0]]).mean()


def name_loss(model: Any, tokenizer: PreTrainedTokenizerFast, examples: Sequence[SeenExample]) -> Tensor:
    """How badly the vectors of patches name what they show: cross entropy with the embeddings of the words, in nats."""
    pixels_BCHW = pixel_values_of(examples)
    states_BPD = model.model.vision_tower(pixel_values=pixels_BCHW).last_hidden_state[:, 1:]
    vectors_BPD = model.model.multi_modal_projector(states_BPD)
    logits_BPV = vectors_BPD @ model.get_input_embeddings().weight.T
    targets_BPV = torch.zeros_like(logits_BPV)
    for row, example in enumerate(examples):
        for patch, names in enumerate(example.cells):
            for token in tokenizer.convert_tokens_to_ids(list(names)):
                targets_BPV[row, patch, token] = 1.0 / len(names)
    is_named_BP = targets_BPV.sum(-1) > 0
    return functional.cross_entropy(logits_BPV[is_named_BP], targets_BPV[is_named_BP])


def train(
    model: Any,
    tokenizer: PreTrainedTokenizerFast,
    batches: Iterator[Sequence[SeenExample]],
    recipe: VisionRecipe,
    stage: VisionStage,
    on_step: Callable[[int, float], None] | None = None,
) -> float:
    """Train for some steps; the learning rate rises, stays, and falls to zero. Returns the loss of the last tenth."""
    optimizers, n_steps = optimizers_of(model, recipe, stage.rate), stage.n_steps

    def factor(step: int) -> float:
        return min(1.0, (step + 1) / recipe.warmup_steps, 2 * (n_steps - step) / n_steps)

    schedules = [torch.optim.lr_scheduler.LambdaLR(optimizer, factor) for optimizer in optimizers]
    n_patches = (recipe.side // recipe.patch) ** 2
    losses: list[float] = []
    model.train()
    for step in range(1, n_steps + 1):
        examples = next(batches)
        if stage.names:
            loss = name_loss(model, tokenizer, examples)
        else:
            loss = answer_loss(model, encode(tokenizer, examples, n_patches))
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer, schedule in zip(optimizers, schedules, strict=True):
            optimizer.step()
            schedule.step()
        losses.append(float(loss.detach()))
        if on_step is not None and step % recipe.report_every_steps == 0:
            on_step(step, sum(losses[-recipe.report_every_steps :]) / recipe.report_every_steps)
    model.eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.half())
    tail = losses[-max(1, n_steps // 10) :]
    return sum(tail) / len(tail)


def save(model: Any, processor: LlavaProcessor, out_dir: Path) -> None:
    """Write model, tokenizer and what prepares pictures."""
    model.save_pretrained(out_dir)
    processor.save_pretrained(out_dir)


@dataclass(frozen=True, slots=True)
class VisionReport:
    """How a training went."""

    n_parameters: int
    loss: float
    """Mean of the last tenth of the steps, in nats a learned token."""
    seconds: float


def build_on_pictures(
    recipe: VisionRecipe,
    texts: tuple[Sequence[str], Sequence[str]],
    batches: Iterator[Sequence[SeenExample]],
    out_dir: Path,
    on_step: Callable[[int, float], None] | None = None,
) -> VisionReport:
    """Train a model on a stream of batches and save it in out_dir. texts: questions and answers for the vocabulary."""
    started = time.perf_counter()
    processor = build_processor(*texts, recipe)
    model = build_model(processor.tokenizer, recipe)
    train(model, processor.tokenizer, batches, recipe, VisionStage(recipe.naming_steps, names=True), on_step)
    loss = train(model, processor.tokenizer, batches, recipe, VisionStage(recipe.steps), on_step)
    save(model, processor, out_dir)
    n_parameters = sum(parameter.numel() for parameter in model.parameters())
    return VisionReport(n_parameters, loss, time.perf_counter() - started)
