"""Trains the tiny base models from scratch, and packs the weights that the package ships.

A tiny model is a small Llama (half a million weights) with a BPE tokenizer and a chat template with generation marks,
written in Hugging Face layout (safetensors). Matrices are trained with Muon, which needs a third of AdamW's steps here;
the rest with AdamW. There are two ways to train one:

`build_tiny` takes (prompt, answer) pairs, in well under a minute. Each digit is a token of its own, words are cut into
fragments. Training stops when the caller's probe reaches the recipe's target, never at a fixed step: small models learn
in jumps, so a step count that is right on one machine is far off on another.

`build_on_chats` takes whole chats of several turns, from several benchmarks. Every assistant message of a chat is
learned, a word is one token wherever it occurs, frequent strings such as the frame of a JSON call are one token
(`pieces`), batches hold chats of similar length, and training runs in stages of a fixed number of steps, in each of
which the learning rate falls to zero, so that the model ends up imitating its corpus as well as it can. How good it is
at a benchmark is then decided by the share of mistakes in the corpus. Between stages weights are rounded to half
precision, so that a stage can start from a stored model.

Shipped weights: `make` trains from the recipe, and `pack` writes the folder: weights of under 2 MB in half precision,
and `made.json` with the digests of the recipe, of a sample of the corpus, and of the weights
(`agent2.models.packaged` unpacks them).

Promises: the same recipe, corpus, probe and number of threads give the same weights, bit for bit, on one machine and
one version of torch. Does NOT promise equal trained weights across
machines or versions of torch (float order differs), and such a model is NOT a stand-in for a pre-trained one: it knows
what its corpus holds and nothing else.
"""

import hashlib
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from torch.nn import functional
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

from agent2.errors import ConfigError
from agent2.models.loading import no_progress_bars
from agent2.models.packaged import MADE, WEIGHTS
from agent2.models.tiny_recipe import (
    BaseModel,
    BuildReport,
    ChatRecipe,
    OnProgress,
    ProbePoint,
    TinyRecipe,
    named_function,
)
from agent2.records import JsonValue, Message, digest_of

CorpusT = TypeVar("CorpusT")

PAD, SYSTEM, USER, ASSISTANT, END = "<|pad|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'assistant' %}<|assistant|>"
    "{% generation %}{{ message['content'] + '<|end|>' }}{% endgeneration %}"
    "{% else %}{{ '<|' + message['role'] + '|>' + message['content'] }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)

Probe = Callable[[PreTrainedModel, PreTrainedTokenizerFast], float]
"""Measures a model while it is in evaluation mode; 0 to 1, higher is better. Must not train it."""

NO_LABEL = -100
"""Label of a token that is not to be learned; the one that torch's cross entropy ignores."""
_WORD = Regex(r"\p{L}+|\p{N}|[^\p{L}\p{N}]+")
_BUCKETS = 64
"""So many batches' worth of chats are sorted by length together."""

TokenRow = tuple[list[int], list[int]]
"""Token ids and labels of one chat."""
OnStep = Callable[[int, float], None]
"""Called every `report_every_steps` with the step and the mean loss in nats a learned token since the last call."""
Prepare = Callable[[LlamaForCausalLM, PreTrainedTokenizerFast], None]
"""Changes a fresh model, such as the first vectors of tokens that are alike."""


def build_tiny(recipe: TinyRecipe, corpus: Sequence[tuple[str, str]], probe: Probe, out_dir: Path) -> BuildReport:
    """Train a model on (prompt, answer) pairs until the probe reaches the target, and save it in out_dir.

    Raises ConfigError if the corpus is empty, a pair does not fit the context, or the target is not reached.
    """
    if not corpus:
        raise ConfigError("tiny model: the corpus is empty; give at least one (prompt, answer) pair")
    started = time.perf_counter()
    with threads(recipe.threads):
        tokenizer = build_tokenizer(corpus, recipe)
        model = build_model(tokenizer, recipe)
        input_ids_NT, labels_NT = _encode(tokenizer, corpus, recipe.context_tokens)
        history = _train(model, tokenizer, (input_ids_NT, labels_NT), probe, recipe)
    model.save_pretrained(out_dir)
    tokenizer.save_pretrained(out_dir)
    return BuildReport(
        n_parameters=sum(parameter.numel() for parameter in model.parameters()),
        steps=history[-1].step,
        score=history[-1].score,
        seconds=time.perf_counter() - started,
        history=history,
    )


def build_tokenizer(corpus: Sequence[tuple[str, str]], recipe: TinyRecipe) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer trained on the corpus; every digit is a token, any text can be encoded."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=recipe.max_vocabulary,
        special_tokens=[PAD, SYSTEM, USER, ASSISTANT, END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator((text for pair in corpus[:5000] for text in pair), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=[SYSTEM, USER, ASSISTANT],
        padding_side="left",
        model_max_length=recipe.context_tokens,
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def build_model(tokenizer: PreTrainedTokenizerFast, recipe: TinyRecipe) -> LlamaForCausalLM:
    """A freshly initialised Llama of the recipe's size, float32."""
    config = LlamaConfig(
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
    with torch.random.fork_rng(devices=[]):  # the caller's random state stays as it is
        torch.manual_seed(recipe.seed)
        model = LlamaForCausalLM(config)
    model.generation_config = GenerationConfig(
        do_sample=True, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    return model


def _train(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    examples: tuple[Tensor, Tensor],
    probe: Probe,
    recipe: TinyRecipe,
) -> list[ProbePoint]:
    """Steps of AdamW on the answers, until the probe is satisfied."""
    optimizers = optimizers_of(model, recipe)
    schedules = [
        torch.optim.lr_scheduler.LinearLR(
            optimizer, start_factor=1 / recipe.warmup_steps, total_iters=recipe.warmup_steps
        )
        for optimizer in optimizers
    ]
    batches = _batches(examples, recipe)
    history: list[ProbePoint] = []
    losses: list[float] = []
    model.train()
    for step in range(1, recipe.max_steps + 1):
        losses.append(train_step(model, optimizers, next(batches)))
        for schedule in schedules:
            schedule.step()
        if step % recipe.probe_every_steps:
            continue
        model.eval()
        history.append(ProbePoint(step, probe(model, tokenizer), sum(losses) / len(losses)))
        losses.clear()
        if history[-1].score >= recipe.target:
            return history
        model.train()
    best = max((point.score for point in history), default=float("nan"))
    raise ConfigError(
        f"tiny model: the probe reached {best:.3f} of {recipe.target:.3f} in {recipe.max_steps} steps; "
        "lower the target, raise max_steps or make the corpus easier"
    )


def optimizers_of(model: LlamaForCausalLM, recipe: TinyRecipe) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the layers, AdamW for the rest."""
    matrices = [parameter for parameter in model.model.layers.parameters() if parameter.ndim == 2]
    matrix_ids = {id(parameter) for parameter in matrices}  # tensors compare by value, so not `in matrices`
    remaining = [parameter for parameter in model.parameters() if id(parameter) not in matrix_ids]
    return [
        torch.optim.Muon(matrices, lr=recipe.muon_learning_rate, weight_decay=0.01),
        torch.optim.AdamW(remaining, lr=recipe.adamw_learning_rate, weight_decay=0.01, betas=(0.9, 0.98)),
    ]


def train_step(
    model: LlamaForCausalLM, optimizers: Sequence[torch.optim.Optimizer], batch: tuple[Tensor, Tensor]
) -> float:
    """One step on token ids and labels, both examples x tokens; returns the mean loss in nats a labelled token."""
    input_ids_BT, labels_BT = batch
    states_BTD = model.model(input_ids=input_ids_BT).last_hidden_state[:, :-1]
    targets_BT = labels_BT[:, 1:]
    is_answer_BT = targets_BT != NO_LABEL
    # The head computes logits for labelled positions only; the rest would be most of the work.
    loss = functional.cross_entropy(model.lm_head(states_BTD[is_answer_BT]), targets_BT[is_answer_BT])
    for optimizer in optimizers:
        optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in optimizers:
        optimizer.step()
    return float(loss.detach())


def _batches(examples: tuple[Tensor, Tensor], recipe: TinyRecipe) -> Iterator[tuple[Tensor, Tensor]]:
    """Endless shuffled batches; every example once before any appears twice."""
    generator = torch.Generator().manual_seed(recipe.seed)
    n_examples = examples[0].shape[0]
    while True:
        order = torch.randperm(n_examples, generator=generator)
        for start in range(0, n_examples, recipe.batch_size):
            rows_B = order[start : start + recipe.batch_size]
            yield examples[0][rows_B], examples[1][rows_B]


def _encode(
    tokenizer: PreTrainedTokenizerFast, corpus: Sequence[tuple[str, str]], context_tokens: int
) -> tuple[Tensor, Tensor]:
    """Token ids and labels, both examples x tokens, padded on the right; only answers and their end are labelled."""
    prompts = tokenizer([f"{USER}{prompt}{ASSISTANT}" for prompt, _ in corpus], add_special_tokens=False)["input_ids"]
    answers = tokenizer([f"{answer}{END}" for _, answer in corpus], add_special_tokens=False)["input_ids"]
    longest = max(len(prompt) + len(answer) for prompt, answer in zip(prompts, answers, strict=True))
    if longest > context_tokens:
        raise ConfigError(
            f"tiny model: the longest pair has {longest} tokens, the context {context_tokens}; "
            "raise context_tokens or shorten the corpus"
        )
    pad = tokenizer.pad_token_id
    ids, labels = [], []
    for prompt, answer in zip(prompts, answers, strict=True):
        n_pads = longest - len(prompt) - len(answer)
        ids.append(prompt + answer + [pad] * n_pads)
        labels.append([NO_LABEL] * len(prompt) + answer + [NO_LABEL] * n_pads)
    return torch.tensor(ids), torch.tensor(labels)


@contextmanager
def threads(n: int) -> Iterator[None]:
    """Run with n torch threads; the previous number is restored afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True, slots=True)
class ChatReport:
    """How a training went."""

    n_parameters: int
    n_tokens: int
    """Read in training, padding aside."""
    loss: float
    """Mean of the last tenth of the steps, in nats a learned token."""
    seconds: float


@dataclass(frozen=True, slots=True)
class StageOptions:
    """How the stages of a corpus are trained on, where that differs from the recipe."""

    n_read_whole: int = 0
    """First stages in which every token is learned, not the assistant's alone."""
    n_tokenizer_chats: int | None = None
    """Chats of the first stage that the vocabulary comes from; None: all."""
    rates: tuple[float, ...] = ()
    """A factor of both learning rates for each stage; empty: 1."""


DEFAULT_STAGES = StageOptions()


def build_on_chats(
    recipe: ChatRecipe,
    stages: Sequence[Sequence[Sequence[Message]]],
    out_dir: Path,
    on_step: OnStep | None = None,
    *,
    prepare: Prepare | None = None,
    stage_options: StageOptions = DEFAULT_STAGES,
) -> ChatReport:
    """Train a model on the chats of each stage and save it in out_dir: float32, rounded to half precision.

    prepare: changes the fresh model. Raises ConfigError if a stage has no chats, a chat does not fit the context, or
    the recipe has another number of stages.
    """
    if len(stages) != len(recipe.steps) or not all(stages):
        raise ConfigError(
            f"tiny model: {[len(chats) for chats in stages]} chats for stages of {list(recipe.steps)} steps; "
            "give every stage at least one chat"
        )
    started = time.perf_counter()
    n_tokens, loss = 0, 0.0
    with threads(recipe.model.threads):
        tokenizer = build_word_tokenizer(stages[0][: stage_options.n_tokenizer_chats], recipe)
        model = build_model(tokenizer, recipe.model)
        if prepare is not None:
            prepare(model, tokenizer)
        for stage, chats in enumerate(stages):
            rows = encode_chats(tokenizer, chats)
            losses, n_read = train_stage(
                model,
                all_learned(rows) if stage < stage_options.n_read_whole else rows,
                _with_scaled_rates(recipe, stage_options.rates[stage]) if stage_options.rates else recipe,
                stage,
                on_step,
            )
            n_tokens += n_read
            tail = losses[-max(1, len(losses) // 10) :]
            loss = sum(tail) / len(tail)
    model.eval()
    model.save_pretrained(out_dir)
    tokenizer.save_pretrained(out_dir)
    n_parameters = sum(parameter.numel() for parameter in model.parameters())
    return ChatReport(n_parameters, n_tokens, loss, time.perf_counter() - started)


def build_chat_base(
    entry: BaseModel,
    out_dir: Path,
    on_progress: OnProgress,
    corpus: type[CorpusT],
    draw: Callable[[CorpusT], Sequence[Sequence[Sequence[Message]]]],
    **options: Any,
) -> dict[str, JsonValue]:
    """Build a base for the builder of a benchmark's home: `build_on_chats` with progress; returns manifest fields.

    corpus: the class that the settings must have, from which `draw` makes the stages. options: of `build_on_chats`.
    Raises ConfigError for a recipe of another kind.
    """
    recipe, settings = chat_recipe(entry, corpus)
    on_progress("drawing the corpus")
    stages, steps = draw(settings), " and ".join(map(str, recipe.steps))

    def report_step(step: int, loss: float) -> None:
        on_progress(f"step {step} of {steps}: loss {loss:.3f}")

    with no_progress_bars():
        report = build_on_chats(recipe, stages, out_dir, report_step, **options)
    return {
        "parameters": report.n_parameters,
        "steps": list(recipe.steps),
        "tokens": report.n_tokens,
        "loss": round(report.loss, 4),
        "seconds": round(report.seconds, 1),
    }


def chat_recipe(entry: BaseModel, corpus: type[CorpusT]) -> tuple[ChatRecipe, CorpusT]:
    """Recipe and settings of a base that is trained on chats of one corpus. Raises ConfigError for any other entry."""
    if not isinstance(entry.recipe, ChatRecipe) or not isinstance(entry.corpus, corpus):
        raise ConfigError(f"only recipes with {corpus.__name__} can be made here; see agent2.benchmarks.BASES")
    return entry.recipe, entry.corpus


def _with_scaled_rates(recipe: ChatRecipe, rate: float) -> ChatRecipe:
    model = recipe.model
    scaled = replace(
        model,
        adamw_learning_rate=rate * model.adamw_learning_rate,
        muon_learning_rate=rate * model.muon_learning_rate,
    )
    return replace(recipe, model=scaled)


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
    texts = (_without(message.text, recipe.pieces) for chat in chats for message in chat)
    tokenizer.train_from_iterator(texts, trainer)
    # Added after training: they are matched in the text before it is split into words.
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


def encode_chats(tokenizer: PreTrainedTokenizerFast, chats: Sequence[Sequence[Message]]) -> list[TokenRow]:
    """Token ids and labels of each chat; labelled are the assistant's messages and their ends."""
    messages = [message for chat in chats for message in chat]
    texts = [f"{m.text}{END}" if m.role == "assistant" else f"<|{m.role}|>{m.text}" for m in messages]
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


def all_learned(rows: Sequence[TokenRow]) -> list[TokenRow]:
    """The same token ids with every token but the first as a label."""
    return [(ids, [NO_LABEL, *ids[1:]]) for ids, _ in rows]


def _without(text: str, pieces: Sequence[str]) -> str:
    for piece in pieces:
        text = text.replace(piece, "\n")
    return text


def train_stage(
    model: LlamaForCausalLM, rows: Sequence[TokenRow], recipe: ChatRecipe, stage: int, on_step: OnStep | None = None
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
    batches = _chat_batches(rows, recipe.batch_tokens, recipe.model.seed + stage)
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


def _chat_batches(rows: Sequence[TokenRow], batch_tokens: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Endless batches of about batch_tokens, each of chats of similar length; every chat once before any twice."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        order = torch.randperm(len(rows), generator=generator).tolist()
        mean = sum(len(rows[index][0]) for index in order) / len(order)
        n_together = max(1, round(_BUCKETS * batch_tokens / mean))
        for start in range(0, len(order), n_together):
            members = sorted(order[start : start + n_together], key=lambda index: len(rows[index][0]))
            batches = list(_cut(members, rows, batch_tokens))
            for number in torch.randperm(len(batches), generator=generator).tolist():
                yield _padded([rows[index] for index in batches[number]])


def _cut(members: Sequence[int], rows: Sequence[TokenRow], max_tokens: int) -> Iterator[list[int]]:
    """Batches of neighbours; the number of rows times the longest stays within max_tokens. members: by length."""
    batch: list[int] = []
    for index in members:
        if batch and (len(batch) + 1) * len(rows[index][0]) > max_tokens:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def _padded(rows: Sequence[TokenRow]) -> tuple[Tensor, Tensor]:
    longest = max(len(ids) for ids, _ in rows)
    ids_BT = torch.zeros((len(rows), longest), dtype=torch.long)  # the padding token has id 0
    labels_BT = torch.full((len(rows), longest), NO_LABEL)
    for index, (ids, labels) in enumerate(rows):
        ids_BT[index, : len(ids)] = torch.tensor(ids)
        labels_BT[index, : len(labels)] = torch.tensor(labels)
    return ids_BT, labels_BT


def make(entry: BaseModel, folder: Path, on_progress: OnProgress) -> dict[str, JsonValue]:
    """Train from the recipe and write the folder that the package ships; returns what `made.json` says.

    Raises ConfigError as the builder of the entry does.
    """
    with tempfile.TemporaryDirectory() as draft:
        trained: dict[str, JsonValue] = named_function(entry.builder)(entry, Path(draft), on_progress)
        return pack(Path(draft), folder, entry, trained)


def corpus_sample_digest(entry: BaseModel) -> str:
    """Digest of the first part of the corpus: differs when the code of the corpus has changed."""
    assert entry.sample is not None, "every base that is shipped has one"
    return digest_of(entry.sample(entry.corpus))


def pack(trained: Path, folder: Path, entry: BaseModel, fields: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Write what the package ships: the trained folder with weights in half precision, and `made.json`.

    fields: of `made.json`, beside the digests and the versions; returns all of them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for file in trained.iterdir():
        if file.name != WEIGHTS:
            shutil.copyfile(file, folder / file.name)
    halves = {name: tensor.half() for name, tensor in load_file(trained / WEIGHTS).items()}
    save_file(halves, folder / WEIGHTS, metadata={"format": "pt"})
    record: dict[str, JsonValue] = {
        "recipe_digest": entry.digest,
        "corpus_sample_digest": corpus_sample_digest(entry),
        **fields,
        "weights_sha256": hashlib.sha256((folder / WEIGHTS).read_bytes()).hexdigest(),
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
    }
    (folder / MADE).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return record
