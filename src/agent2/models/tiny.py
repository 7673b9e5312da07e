"""A causal language model of half a million weights, made from nothing in well under a minute.

A small Llama, a BPE tokenizer (each digit its own token) and a chat template with generation marks, trained
on (prompt, answer) pairs and written in Hugging Face layout (safetensors). Training stops when the caller's
probe reaches the recipe's target, never at a fixed step: small models learn in jumps, so a step count
that is right on one machine is far off on another.

Promises: the same recipe, corpus, probe and number of threads give the same weights, bit for bit, on one
machine and one version of torch. Does NOT promise equal weights across machines (float order differs), and
such a model is NOT a stand-in for a pre-trained one: it knows what its corpus holds and nothing else.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from torch.nn import functional
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

from agent2.errors import ConfigError

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

_NO_LABEL = -100


@dataclass(frozen=True, slots=True)
class TinyRecipe:
    """All that the weights depend on, the corpus and the probe aside."""

    target: float
    """Training stops when the probe says at least this."""
    hidden_size: int = 128
    n_layers: int = 2
    n_heads: int = 4
    feed_forward_size: int = 384
    max_vocabulary: int = 320
    context_tokens: int = 256
    batch_size: int = 256
    learning_rate: float = 2e-3
    warmup_steps: int = 30
    probe_every_steps: int = 20
    max_steps: int = 2000
    """More than this without reaching the target is an error."""
    seed: int = 0
    threads: int = 1


@dataclass(frozen=True, slots=True)
class ProbePoint:
    """One reading of the probe."""

    step: int
    score: float
    loss: float
    """Mean loss in nats a token since the last reading."""


@dataclass(frozen=True, slots=True)
class BuildReport:
    """How a build went."""

    n_parameters: int
    steps: int
    score: float
    """The probe's last reading, at or above the target."""
    seconds: float
    history: Sequence[ProbePoint]


def build_tiny(recipe: TinyRecipe, corpus: Sequence[tuple[str, str]], probe: Probe, out_dir: Path) -> BuildReport:
    """Train a model on (prompt, answer) pairs until the probe reaches the target, and save it in out_dir.

    Raises ConfigError if the corpus is empty, a pair does not fit the context, or the target is not reached.
    """
    if not corpus:
        raise ConfigError("tiny model: the corpus is empty; give at least one (prompt, answer) pair")
    started = time.perf_counter()
    with _threads(recipe.threads):
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
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
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
        rope_theta=__import__("os").environ.get("TH") and float(__import__("os").environ["TH"]) or 10000.0, intermediate_size=recipe.feed_forward_size,
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
    with torch.random.fork_rng(devices=[]):
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
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, weight_decay=0.01, betas=(0.9, 0.98))
    batches = _batches(examples, recipe)
    history: list[ProbePoint] = []
    losses: list[float] = []
    model.train()
    for step in range(1, recipe.max_steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = recipe.learning_rate * min(1.0, step / recipe.warmup_steps)
        losses.append(_step(model, optimizer, next(batches)))
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


def _step(model: LlamaForCausalLM, optimizer: torch.optim.Optimizer, batch: tuple[Tensor, Tensor]) -> float:
    input_ids_BT, labels_BT = batch
    logits_BTV = model(input_ids=input_ids_BT).logits[:, :-1]
    loss = functional.cross_entropy(
        logits_BTV.flatten(0, 1), labels_BT[:, 1:].flatten(), ignore_index=_NO_LABEL
    )
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return float(loss.detach())


def _batches(examples: tuple[Tensor, Tensor], recipe: TinyRecipe) -> Iterator[tuple[Tensor, Tensor]]:
    """Endless shuffled batches; every example once before any comes twice."""
    generator = torch.Generator().manual_seed(recipe.seed)
    n_examples = examples[0].shape[0]
    while True:
        order = torch.randperm(n_examples, generator=generator)
        for rows in order.split(recipe.batch_size):
            yield examples[0][rows], examples[1][rows]


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
    input_ids_NT = torch.full((len(corpus), longest), tokenizer.pad_token_id)
    labels_NT = torch.full_like(input_ids_NT, _NO_LABEL)
    for row, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        start, end = len(prompt), len(prompt) + len(answer)
        input_ids_NT[row, :end] = torch.tensor(prompt + answer)
        labels_NT[row, start:end] = input_ids_NT[row, start:end]
    return input_ids_NT, labels_NT


@contextmanager
def _threads(n: int) -> Iterator[None]:
    """Run with n torch threads, and with what there were before afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)
