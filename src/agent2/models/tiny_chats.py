"""A tiny model trained on whole chats: several turns, several benchmarks, one vocabulary of whole words.

Beside `agent2.models.tiny` (pairs of prompt and answer, a vocabulary of fragments, stops at a target): here every
assistant message of a chat is learned, a word is one token wherever it stands, frequent strings such as the frame
of a JSON call are one token (`pieces`), batches hold chats of similar length, and training runs in stages of a fixed
number of steps, in each of which the learning rate falls to zero, so that the model ends up imitating its corpus as
well as it can. How good it is at a benchmark is then decided by the share of mistakes in the corpus. Between stages
weights are rounded to half precision, so that a stage can be begun from a stored model.

Promises: the same recipe, chats and number of threads give the same weights, bit for bit, on one machine and one
version of torch.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from agent2.errors import ConfigError
from agent2.models.tiny import (
    ASSISTANT,
    CHAT_TEMPLATE,
    END,
    NO_LABEL,
    PAD,
    SYSTEM,
    USER,
    build_model,
    optimizers_of,
    threads,
    train_step,
)
from agent2.models.tiny_recipe import ChatRecipe
from agent2.records import Message

_WORD = Regex(r"\p{L}+|\p{N}|[^\p{L}\p{N}]+")
_BUCKETS = 64
"""So many batches' worth of chats are sorted by length together."""

Row = tuple[list[int], list[int]]
"""Token ids and labels of one chat."""

OnStep = Callable[[int, float], None]
"""Told, every `report_every_steps`, the step and the mean loss in nats a learned token since the last time."""


@dataclass(frozen=True, slots=True)
class ChatReport:
    """How a training went."""

    n_parameters: int
    n_tokens: int
    """Read in training, padding aside."""
    loss: float
    """Mean of the last tenth of the steps, in nats a learned token."""
    seconds: float


def build_on_chats(
    recipe: ChatRecipe, stages: Sequence[Sequence[Sequence[Message]]], out_dir: Path, on_step: OnStep | None = None
) -> ChatReport:
    """Train a model on the chats of each stage and save it in out_dir: float32, rounded to half precision.

    The vocabulary comes from the first stage. Raises ConfigError if a stage has no chats, a chat does not fit the
    context, or the recipe has another number of stages.
    """
    if len(stages) != len(recipe.steps) or not all(stages):
        raise ConfigError(
            f"tiny model: {[len(chats) for chats in stages]} chats for stages of {list(recipe.steps)} steps; "
            "give every stage at least one chat"
        )
    started = time.perf_counter()
    n_tokens, loss = 0, 0.0
    with threads(recipe.model.threads):
        tokenizer = build_word_tokenizer(stages[0], recipe)
        model = build_model(tokenizer, recipe.model)
        for stage, chats in enumerate(stages):
            losses, n_read = train_stage(model, encode_chats(tokenizer, chats), recipe, stage, on_step)
            n_tokens += n_read
            tail = losses[-max(1, len(losses) // 10) :]
            loss = sum(tail) / len(tail)
    model.eval()
    model.save_pretrained(out_dir)
    tokenizer.save_pretrained(out_dir)
    n_parameters = sum(parameter.numel() for parameter in model.parameters())
    return ChatReport(n_parameters, n_tokens, loss, time.perf_counter() - started)


def build_word_tokenizer(chats: Sequence[Sequence[Message]], recipe: ChatRecipe) -> PreTrainedTokenizerFast:
    """Byte-level BPE within words, digits and runs of other characters; any text can be encoded and comes back."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(_WORD, behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=recipe.model.max_vocabulary,
        special_tokens=[PAD, SYSTEM, USER, ASSISTANT, END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    texts = (_without(message.content, recipe.pieces) for chat in chats for message in chat)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens([AddedToken(piece, normalized=False) for piece in recipe.pieces])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=[SYSTEM, USER, ASSISTANT],
        padding_side="left",
        model_max_length=recipe.model.context_tokens,
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def encode_chats(tokenizer: PreTrainedTokenizerFast, chats: Sequence[Sequence[Message]]) -> list[Row]:
    """Token ids and labels of each chat; labelled are the assistant's messages and their ends."""
    messages = [message for chat in chats for message in chat]
    texts = [f"{m.content}{END}" if m.role == "assistant" else f"<|{m.role}|>{m.content}" for m in messages]
    encoded = iter(tokenizer(texts, add_special_tokens=False)["input_ids"])
    mark = tokenizer.convert_tokens_to_ids(ASSISTANT)
    rows = []
    for chat in chats:
        ids: list[int] = []
        labels: list[int] = []
        for message in chat:
            body = next(encoded)
            is_learned = message.role == "assistant"
            ids += [mark, *body] if is_learned else body
            labels += [NO_LABEL, *body] if is_learned else [NO_LABEL] * len(body)
        rows.append((ids, labels))
    return rows


def _without(text: str, pieces: Sequence[str]) -> str:
    for piece in pieces:
        text = text.replace(piece, "\n")
    return text


def train_stage(
    model: LlamaForCausalLM, rows: Sequence[Row], recipe: ChatRecipe, stage: int, on_step: OnStep | None = None
) -> tuple[list[float], int]:
    """Train on the rows of one stage; returns the loss of every step and the number of tokens read.

    Raises ConfigError if a row does not fit the context.
    """
    longest = max(len(ids) for ids, _ in rows)
    if longest > recipe.model.context_tokens:
        raise ConfigError(
            f"tiny model: the longest chat has {longest} tokens, the context {recipe.model.context_tokens}; "
            "raise context_tokens or shorten the corpus"
        )
    n_steps = recipe.steps[stage]
    optimizers = optimizers_of(model, recipe.model)
    schedules = [
        torch.optim.lr_scheduler.LambdaLR(
            optimizer, partial(_rate, n_steps=n_steps, n_warmup=recipe.model.warmup_steps)
        )
        for optimizer in optimizers
    ]
    losses: list[float] = []
    n_tokens = 0
    batches = _batches(rows, recipe.batch_tokens, recipe.model.seed + stage)
    model.train()
    for step in range(1, n_steps + 1):
        batch = next(batches)
        n_tokens += int((batch[0] != model.config.pad_token_id).sum())
        losses.append(train_step(model, optimizers, batch))
        for schedule in schedules:
            schedule.step()
        if on_step is not None and step % recipe.report_every_steps == 0:
            on_step(step, sum(losses[-recipe.report_every_steps :]) / recipe.report_every_steps)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.half())
    return losses, n_tokens


def _rate(step: int, n_steps: int, n_warmup: int) -> float:
    """Factor of the learning rate: a short rise, a plateau, a straight fall to zero over the last half."""
    return min(1.0, (step + 1) / n_warmup, max(0.0, 2 * (n_steps - step) / n_steps))


def _batches(rows: Sequence[Row], batch_tokens: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Endless batches of about batch_tokens, each of chats of similar length; every chat once before any twice."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        order = torch.randperm(len(rows), generator=generator).tolist()
        mean = sum(len(rows[index][0]) for index in order) / len(order)
        n_together = max(1, round(_BUCKETS * batch_tokens / mean))
        for start in range(0, len(order), n_together):
            members = sorted(order[start : start + n_together], key=lambda index: len(rows[index][0]))
            batches = list(_cut(members, rows, batch_tokens))
            for place in torch.randperm(len(batches), generator=generator).tolist():
                yield _padded([rows[index] for index in batches[place]])


def _cut(members: Sequence[int], rows: Sequence[Row], most: int) -> Iterator[list[int]]:
    """Neighbours whose number times the longest stays within most tokens."""
    batch: list[int] = []
    for index in members:
        if batch and (len(batch) + 1) * len(rows[index][0]) > most:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def _padded(rows: Sequence[Row]) -> tuple[Tensor, Tensor]:
    longest = max(len(ids) for ids, _ in rows)
    ids_BT = torch.zeros((len(rows), longest), dtype=torch.long)  # the padding token has id 0
    labels_BT = torch.full((len(rows), longest), NO_LABEL)
    for place, (ids, labels) in enumerate(rows):
        ids_BT[place, : len(ids)] = torch.tensor(ids)
        labels_BT[place, : len(labels)] = torch.tensor(labels)
    return ids_BT, labels_BT
