"""Training on stored rows, with TRL's trainers: supervised fine-tuning (SFT), and preferences by DPO, IPO or KTO.

SFT imitates answers, or the assistant's messages of conversations. Rows are {"prompt", "answer"}: each becomes a user
message and an assistant message in the model's own chat template, and the loss is on the answer and its end only. Or
they are {"messages": [{"role", "content"}, ...]}: the loss is on assistant messages, except for those with `"learn":
false`, which are context (a clumsy action and its result). The model's own tokens are those that its chat template
marks with {% generation %}. A template without marks that TRL knows (Qwen2.5's, Llama 3's, ...) is replaced by TRL's
marked one when the rows are encoded, and nowhere else: the tokenizer keeps its own. Those marks may be wider than what
a model generates, so the rest of the generation prompt before a message, and what follows its end token, are not
learned.

The log (`running`) and TRL's trainer state are written beside out_dir. One torch thread unless $AGENT2_THREADS says
more; a CUDA device is used if present. Does NOT pack, quantise, or hold out data. Does NOT cut long conversations: one
that does not fit is refused, because a cut one teaches to stop half-way. Does NOT compare TRL's text with the model's
own: for Qwen2.5 it is the same, for models that think it may add an empty thought.

DPO raises what was preferred above what was not. Pairs are {"prompt": messages, "chosen": messages, "rejected":
messages}, in the model's own chat template. The reference model is the one that training begins with; the loss is that
of Rafailov et al. 2023 (arXiv:2305.18290, eq. 7), or with `loss="ipo"` that of Azar et al. 2023 (arXiv:2310.12036, eq.
17), which raises the margin to 1 / (2 beta) nats a token and no further. KTO needs no pairs, but answers called
good or bad: {"prompt": messages, "completion": messages, "is_good": bool}; its loss is that of Ethayarajh et al. 2024
(arXiv:2402.01306, eq. 7), the rarer kind weighted so that both count alike. Does NOT compare episodes.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from datasets import Dataset
from transformers import set_seed
from trl import DPOConfig, DPOTrainer, KTOConfig, KTOTrainer, SFTConfig, SFTTrainer, get_training_chat_template
from trl.chat_template_utils import has_generation_markers

from agent2.errors import ConfigError
from agent2.training.running import (
    LogWriter,
    OnLog,
    TimeLimit,
    TrainReport,
    load_for_training,
    log_path,
    require_rows,
    run_and_save,
    trainer_arguments,
    use_threads,
)

NO_LABEL = -100
"""Label of a token that is not learned."""
PAIR_FIELDS = frozenset({"prompt", "chosen", "rejected"})
JUDGED_FIELDS = frozenset({"prompt", "completion", "is_good"})


def labelled_chats(
    rows: Sequence[Mapping[str, Any]], tokenizer: Any, max_tokens: int, recipe: str
) -> list[dict[str, list[int]]]:
    """Token ids and labels of each conversation, as trainers of transformers take them.

    recipe: for messages. Raises ConfigError naming the first row that has no usable messages, nothing to learn, or
    more than max_tokens tokens, and for a template without generation marks that TRL does not know either.
    """
    marks = _marks(tokenizer, recipe)
    return [_labelled(row, index, marks, max_tokens, recipe) for index, row in enumerate(rows)]


@dataclass(frozen=True, slots=True)
class _Marks:
    """How a tokenizer's chat template marks the model's messages."""

    tokenizer: Any
    template: str | None
    """TRL's, in place of the tokenizer's own; None: its own has marks."""
    prompt: Sequence[int] = ()
    """Token ids of the generation prompt; only with TRL's template."""

    def encode(self, messages: Sequence[Mapping[str, Any]]) -> tuple[list[int], list[tuple[int, int]]]:
        """Token ids of a conversation, and (first, end) of each stretch that the model is to generate."""
        encoded = self.tokenizer.apply_chat_template(
            [{"role": message["role"], "content": message["content"]} for message in messages],
            chat_template=self.template,
            return_dict=True,
            return_assistant_tokens_mask=True,
        )
        ids = list(encoded["input_ids"])
        spans = _spans(encoded["assistant_masks"])
        return ids, spans if self.template is None else [self._trimmed(ids, first, end) for first, end in spans]

    def _trimmed(self, ids: Sequence[int], first: int, end: int) -> tuple[int, int]:
        """A stretch without the part of the generation prompt that reaches into it, and up to its end token."""
        length = len(self.prompt)
        for n_inside in range(length):
            start = first - length + n_inside
            if start >= 0 and list(ids[start : first + n_inside]) == list(self.prompt):
                first += n_inside
                break
        ends = [index for index in range(first, end) if ids[index] == self.tokenizer.eos_token_id]
        return first, ends[-1] + 1 if ends else end


def _marks(tokenizer: Any, recipe: str) -> _Marks:
    own_template = getattr(tokenizer, "chat_template", None)
    if own_template and has_generation_markers(own_template):
        return _Marks(tokenizer, None)
    try:
        template = get_training_chat_template(tokenizer) if own_template else None
    except ValueError:  # TRL raises it for a template that it does not know
        template = None
    if template is None:
        raise ConfigError(
            f"{recipe}: the chat template marks no {{% generation %}}, so assistant tokens cannot be "
            "distinguished from others, and TRL knows no marked one for it; add the marks around assistant content in "
            "the model's chat template"
        )
    return _Marks(tokenizer, template, _generation_prompt(tokenizer))


def _generation_prompt(tokenizer: Any) -> list[int]:
    """Token ids between a user message and the model's."""
    chat = [{"role": "user", "content": "a"}]
    plain, prompted = (
        tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=add) for add in (False, True)
    )
    ids: list[int] = tokenizer(prompted.removeprefix(plain), add_special_tokens=False)["input_ids"]
    return ids


def _labelled(row: Mapping[str, Any], index: int, marks: _Marks, max_tokens: int, recipe: str) -> dict[str, list[int]]:
    messages = _messages(row, index, recipe)
    ids, spans = marks.encode(messages)
    if len(ids) > max_tokens:
        raise ConfigError(
            f"{recipe}: row {index} has {len(ids)} tokens, max_tokens is {max_tokens}; raise it or drop the row"
        )
    assistant_messages = [message for message in messages if message["role"] == "assistant"]
    if len(spans) != len(assistant_messages):
        raise ConfigError(
            f"{recipe}: row {index} has {len(assistant_messages)} assistant messages, the chat template marks "
            f"{len(spans)} stretches; put other messages between them and mark each one with {{% generation %}}"
        )
    labels = [NO_LABEL] * len(ids)
    for (first, end), message in zip(spans, assistant_messages, strict=True):
        if message.get("learn", True):
            labels[first:end] = ids[first:end]
    return {"input_ids": ids, "labels": labels}


def _messages(row: Mapping[str, Any], index: int, recipe: str) -> Sequence[Mapping[str, Any]]:
    messages = row.get("messages")
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        raise ConfigError(f"{recipe}: row {index} has no messages; it has {sorted(row)}")
    for number, message in enumerate(messages):
        missing = {"role", "content"} - set(message)
        if missing:
            raise ConfigError(f"{recipe}: row {index}, message {number} has no {' and no '.join(sorted(missing))}")
    if not any(message["role"] == "assistant" and message.get("learn", True) for message in messages):
        raise ConfigError(f"{recipe}: row {index} has no assistant message to learn from; drop it")
    return messages


def _spans(mask: Sequence[int]) -> list[tuple[int, int]]:
    """(first, end) of each stretch of ones."""
    padded = [0, *mask, 0]
    starts = [i for i in range(len(mask)) if padded[i + 1] and not padded[i]]
    ends = [i + 1 for i in range(len(mask)) if padded[i + 1] and not padded[i + 2]]
    return list(zip(starts, ends, strict=True))


@dataclass(frozen=True, slots=True)
class SftSettings:
    """Hyperparameters of supervised fine-tuning; the defaults fit the tiny models."""

    epochs: float = 4.0
    batch_size: int = 64
    learning_rate: float = 2e-3
    warmup_steps: int = 10
    max_tokens: int = 256
    """Longest row, prompt and answer together; TRL cuts longer ones, a longer conversation is refused."""
    log_every_steps: int = 10
    max_seconds: float | None = None
    """No step but the first begins that would end later, wherever the learning rate is; None: no limit."""
    lora_rank: int = 0
    """Of an adapter that is trained instead of the weights; 0: all weights are trained."""
    seed: int = 0


def train_sft(
    model_path: Path,
    rows: Sequence[Mapping[str, Any]],
    out_dir: Path,
    settings: SftSettings,
    on_log: OnLog | None = None,
) -> TrainReport:
    """Fine-tune the model in model_path on rows and save it in out_dir.

    rows: all pairs or all conversations. Randomness: all of it from settings.seed. Raises ConfigError if there are
    no rows or one cannot be used.
    """
    started = time.monotonic()
    are_chats = bool(rows) and "messages" in rows[0]
    if not are_chats:
        require_rows("train_sft", rows)
    use_threads()
    set_seed(settings.seed)
    model, tokenizer = load_for_training(model_path, settings.lora_rank)
    if are_chats:
        examples: list[dict[str, Any]] = [*labelled_chats(rows, tokenizer, settings.max_tokens, "train_sft")]
    else:
        examples = [_conversation(row) for row in rows]
    trainer = SFTTrainer(
        model=model,
        args=_arguments(settings, out_dir, are_chats=are_chats),
        train_dataset=Dataset.from_list(examples),
        processing_class=tokenizer,
        callbacks=[LogWriter(log_path(out_dir), "sft", on_log), TimeLimit(started, settings.max_seconds)],
    )
    return run_and_save(trainer, model_path, out_dir, started, "sft", settings)


def _conversation(row: Mapping[str, Any]) -> dict[str, list[dict[str, str]]]:
    return {
        "prompt": [{"role": "user", "content": row["prompt"]}],
        "completion": [{"role": "assistant", "content": row["answer"]}],
    }


def _arguments(settings: SftSettings, out_dir: Path, *, are_chats: bool) -> SFTConfig:
    return SFTConfig(
        **trainer_arguments(out_dir, settings.learning_rate, settings.seed),
        num_train_epochs=settings.epochs,
        per_device_train_batch_size=settings.batch_size,
        lr_scheduler_type="cosine",
        warmup_steps=settings.warmup_steps,
        max_length=settings.max_tokens,
        completion_only_loss=not are_chats,
        dataset_kwargs={"skip_prepare_dataset": True} if are_chats else None,
        train_sampling_strategy="group_by_length" if are_chats else "random",
        packing=False,
        logging_steps=settings.log_every_steps,
    )


@dataclass(frozen=True, slots=True)
class DpoSettings:
    """Hyperparameters of DPO; the defaults fit the tiny models."""

    epochs: float = 2.0
    batch_size: int = 64
    """Pairs a step."""
    rows_per_pass: int | None = None
    """Pairs whose activations are in memory at once, a divisor of batch_size; None: all of a step."""
    learning_rate: float = 3e-4
    beta: float = 0.1
    """How strongly the model is held to the reference."""
    loss: Literal["sigmoid", "ipo"] = "sigmoid"
    """DPO's own, or IPO's."""
    warmup_steps: int = 5
    max_tokens: int = 256
    """Longest pair, prompt and completion together; longer ones are cut."""
    log_every_steps: int = 10
    lora_rank: int = 0
    """Of an adapter that is trained instead of the weights; 0: all weights are trained."""
    seed: int = 0


def train_dpo(
    model_path: Path,
    pairs: Sequence[Mapping[str, Any]],
    out_dir: Path,
    settings: DpoSettings,
    on_log: OnLog | None = None,
) -> TrainReport:
    """Train the model in model_path on preference pairs and save it in out_dir.

    Randomness: all of it from settings.seed. Raises ConfigError if there are no pairs, one lacks a field, or a pass
    does not divide a step.
    """
    started = time.monotonic()
    rows_per_pass = settings.rows_per_pass or settings.batch_size
    if settings.batch_size % rows_per_pass:
        raise ConfigError(
            f"train_dpo: batch_size {settings.batch_size} is no multiple of rows_per_pass {rows_per_pass}"
        )
    if not pairs:
        raise ConfigError("train_dpo: there are no pairs; give at least one {'prompt', 'chosen', 'rejected'}")
    for index, pair in enumerate(pairs):
        if missing := PAIR_FIELDS - set(pair):
            raise ConfigError(f"train_dpo: pair {index} has no {' and no '.join(sorted(missing))}")
    use_threads()
    set_seed(settings.seed)
    model, tokenizer = load_for_training(model_path, settings.lora_rank)
    recipe = "ipo" if settings.loss == "ipo" else "dpo"
    reference = None if settings.lora_rank else load_for_training(model_path)[0]  # an adapter's is the model without it
    trainer = DPOTrainer(
        model=model,
        ref_model=reference,
        args=DPOConfig(
            **trainer_arguments(out_dir, settings.learning_rate, settings.seed),
            num_train_epochs=settings.epochs,
            per_device_train_batch_size=rows_per_pass,
            gradient_accumulation_steps=settings.batch_size // rows_per_pass,
            lr_scheduler_type="cosine",
            warmup_steps=settings.warmup_steps,
            beta=settings.beta,
            loss_type=settings.loss,
            max_length=settings.max_tokens,
            logging_steps=settings.log_every_steps,
        ),
        train_dataset=Dataset.from_list([{name: pair[name] for name in sorted(PAIR_FIELDS)} for pair in pairs]),
        processing_class=tokenizer,
        callbacks=[LogWriter(log_path(out_dir), recipe, on_log)],
    )
    return run_and_save(trainer, model_path, out_dir, started, recipe, settings)


@dataclass(frozen=True, slots=True)
class KtoSettings:
    """Hyperparameters of KTO; the defaults fit the tiny models."""

    epochs: float = 2.0
    batch_size: int = 64
    """Answers a step, two at least: the distance from the reference is estimated over a batch."""
    learning_rate: float = 3e-4
    beta: float = 0.1
    """How strongly the model is held to the reference."""
    warmup_steps: int = 5
    max_tokens: int = 256
    """Longest row, prompt and completion together; longer ones are cut."""
    log_every_steps: int = 10
    lora_rank: int = 0
    """Of an adapter that is trained instead of the weights; 0: all weights are trained."""
    seed: int = 0


def train_kto(
    model_path: Path,
    rows: Sequence[Mapping[str, Any]],
    out_dir: Path,
    settings: KtoSettings,
    on_log: OnLog | None = None,
) -> TrainReport:
    """Train the model in model_path on answers that are good or bad and save it in out_dir.

    Randomness: all of it from settings.seed. Raises ConfigError if a row lacks a field, all are of one kind, or a step
    has less than two.
    """
    started = time.monotonic()
    if settings.batch_size < 2:
        raise ConfigError(f"train_kto: batch_size is {settings.batch_size}; two answers a step are the least")
    for index, row in enumerate(rows):
        if missing := JUDGED_FIELDS - set(row):
            raise ConfigError(f"train_kto: row {index} has no {' and no '.join(sorted(missing))}")
    n_good = sum(bool(row["is_good"]) for row in rows)
    n_bad = len(rows) - n_good
    if not n_good or not n_bad:
        raise ConfigError(f"train_kto: {n_good} good and {n_bad} bad answers; give at least one of each")
    use_threads()
    set_seed(settings.seed)
    model, tokenizer = load_for_training(model_path, settings.lora_rank)
    # TRL pairs each prompt with its neighbour's answer once and for all, so rows are shuffled here, not by the trainer
    order = np.random.default_rng(settings.seed).permutation(len(rows))
    examples = [
        {"prompt": row["prompt"], "completion": row["completion"], "label": bool(row["is_good"])}
        for row in (rows[index] for index in order)
    ]
    trainer = KTOTrainer(
        model=model,
        ref_model=None if settings.lora_rank else load_for_training(model_path)[0],
        args=KTOConfig(
            **trainer_arguments(out_dir, settings.learning_rate, settings.seed),
            num_train_epochs=settings.epochs,
            per_device_train_batch_size=settings.batch_size,
            lr_scheduler_type="cosine",
            warmup_steps=settings.warmup_steps,
            beta=settings.beta,
            desirable_weight=max(1.0, n_bad / n_good),
            undesirable_weight=max(1.0, n_good / n_bad),
            max_length=settings.max_tokens,
            logging_steps=settings.log_every_steps,
        ),
        train_dataset=Dataset.from_list(examples),
        processing_class=tokenizer,
        callbacks=[LogWriter(log_path(out_dir), "kto", on_log)],
    )
    return run_and_save(trainer, model_path, out_dir, started, "kto", settings)
