"""Real children of tiny-arithmetic and foreign models of its shape, for `benchmarks/provenance.py`.

    children   SFT, GRPO, SFT then GRPO, merged LoRA, long training, full fine-tuning with the pre-training optimiser,
               small and large learning rates
    foreign    the base's recipe with other seeds, other corpora, fine-tuned afterwards on the same rows
    siblings   the base's own initial weights, trained on something else: neither child nor stranger

Each model lies in a folder of its own below `<folder>/<kind>/`; one that is there is not made again.
"""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import datasets
import torch
from peft import LoraConfig, get_peft_model
from transformers.utils import logging as transformers_logging

from agent2.benchmarks import BASE_MODELS
from agent2.benchmarks.arithmetic import Arithmetic, verify
from agent2.benchmarks.recipes.arithmetic import CorpusSettings, pretraining_corpus
from agent2.benchmarks.recipes.arithmetic import build as build_base
from agent2.models.bases import ensure_base_model
from agent2.models.tiny import _encode, optimizers_of, train_step
from agent2.models.tiny_recipe import BaseModel, TinyRecipe
from agent2.records import Split
from agent2.training.grpo import GrpoSettings, train_grpo
from agent2.training.offline import SftSettings, train_sft
from agent2.training.running import load_for_training, save_checkpoint

N_ROWS = 1500
Make = Callable[[Path, Path], None]
"""Base model and target folder."""


def rows() -> list[dict[str, str]]:
    """What an agent is given to train on."""
    return [
        {"prompt": item.prompt, "answer": item.reference or ""}
        for item in Arithmetic().items(Split.TRAIN, N_ROWS, None)
    ]


def reward(completions: list[str], answers: list[str]) -> list[float]:
    """1 for the exact value."""
    return [verify(completion, answer) for completion, answer in zip(completions, answers, strict=True)]


def sft(learning_rate: float = 2e-3, epochs: float = 3.0, seed: int = 0) -> Make:
    """Supervised fine-tuning."""
    settings = SftSettings(epochs=epochs, learning_rate=learning_rate, seed=seed)
    return lambda base, out: _keep(train_sft(base, rows(), out, settings).checkpoint, out)


def grpo(learning_rate: float = 5e-4, steps: int = 25, seed: int = 0) -> Make:
    """Reinforcement learning."""
    settings = GrpoSettings(steps=steps, prompts_per_step=16, learning_rate=learning_rate, seed=seed)
    return lambda base, out: _keep(train_grpo(base, rows(), reward, out, settings).checkpoint, out)


def sft_grpo(base: Path, out: Path) -> None:
    """One after the other."""
    between = out.with_name(out.name + "-sft")
    sft()(base, between)
    grpo()(between, out)
    shutil.rmtree(between)


def lora(rank: int, learning_rate: float, steps: int = 60) -> Make:
    """A LoRA adapter trained on the rows, merged into the base."""

    def make(base: Path, out: Path) -> None:
        torch.manual_seed(rank)
        model, tokenizer = load_for_training(base)
        targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
        wrapped = get_peft_model(model, LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=targets))
        pairs = [(row["prompt"], row["answer"]) for row in rows()]
        ids, labels = _encode(tokenizer, pairs, 256)
        optimizer = torch.optim.AdamW([p for p in wrapped.parameters() if p.requires_grad], lr=learning_rate)
        for step in range(steps):
            at = torch.arange(step * 64, step * 64 + 64) % ids.shape[0]
            loss = wrapped(input_ids=ids[at], labels=labels[at]).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        save_checkpoint(wrapped.merge_and_unload(), base, out)

    return make


def go_on(steps: int, seed: int = 5, right_share: float = 1.0) -> Make:
    """Long training of every weight with the optimiser and rates of pre-training, on another corpus."""

    def make(base: Path, out: Path) -> None:
        model, tokenizer = load_for_training(base)
        recipe = TinyRecipe(target=1.0)
        corpus = pretraining_corpus(CorpusSettings(n_examples=12_000, right_share=right_share, seed=seed))
        ids, labels = _encode(tokenizer, corpus, recipe.context_tokens)
        optimizers = optimizers_of(model, recipe)
        model.train()
        for step in range(steps):
            at = torch.arange(step * recipe.batch_size, (step + 1) * recipe.batch_size) % ids.shape[0]
            train_step(model, optimizers, (ids[at], labels[at]))
        save_checkpoint(model, base, out)

    return make


def foreign(seed: int, corpus_seed: int = 0, target: float = 0.15) -> Make:
    """The recipe of the base with another seed, or another corpus."""

    def make(base: Path, out: Path) -> None:
        entry = BASE_MODELS["tiny-arithmetic"]
        corpus = CorpusSettings(seed=corpus_seed, n_examples=20_000, right_share=0.9)
        recipe = TinyRecipe(target=target, seed=seed, probe_every_steps=40)
        build_base(BaseModel(entry.version, recipe, corpus, entry.builder), out, lambda news: None)

    return make


def foreign_sft(seed: int) -> Make:
    """A foreign model that was then fine-tuned on the agent's rows."""

    def make(base: Path, out: Path) -> None:
        between = out.with_name(out.name + "-before")
        foreign(seed)(base, between)
        sft(epochs=1.0)(between, out)
        shutil.rmtree(between)

    return make


CHILDREN: Mapping[str, Make] = {
    "sft-lr1e-5": sft(1e-5, 1.0),
    "sft-lr2e-4": sft(2e-4),
    "sft-lr2e-3": sft(),
    "sft-lr1e-2": sft(1e-2),
    "sft-long-15-epochs": sft(epochs=15.0),
    "grpo-lr5e-5": grpo(5e-5),
    "grpo-lr5e-4": grpo(),
    "grpo-lr2e-3": grpo(2e-3),
    "sft-then-grpo": sft_grpo,
    "lora-r8-merged": lora(8, 5e-3),
    "lora-r64-lr2e-2-merged": lora(64, 2e-2),
    "pretraining-40-steps-more": go_on(40),
    "pretraining-160-steps-more": go_on(160),
    "pretraining-400-steps-more": go_on(400),
}
FOREIGN: Mapping[str, Make] = {
    **{f"seed-{seed}": foreign(seed) for seed in range(1, 8)},
    "seed-8-corpus-8": foreign(8, corpus_seed=8),
    "seed-9-corpus-9": foreign(9, corpus_seed=9),
    "seed-10-corpus-10": foreign(10, corpus_seed=10),
    "seed-11-then-sft": foreign_sft(11),
    "seed-12-then-sft": foreign_sft(12),
}
SIBLINGS: Mapping[str, Make] = {
    "same-seed-corpus-13": foreign(0, corpus_seed=13),
    "same-seed-corpus-14": foreign(0, corpus_seed=14),
}
KINDS: Mapping[str, Mapping[str, Make]] = {"children": CHILDREN, "foreign": FOREIGN, "siblings": SIBLINGS}


def make_all(folder: Path, tell: Callable[[str], None]) -> Path:
    """Make what is missing; returns the base model. tell: hears the name of each model before it is made."""
    datasets.disable_progress_bars()
    transformers_logging.disable_progress_bar()
    torch.set_num_threads(1)
    base = ensure_base_model("tiny-arithmetic", BASE_MODELS)
    for kind, models in KINDS.items():
        for name, make in models.items():
            out = folder / kind / name
            if (out / "model.safetensors").exists():
                continue
            shutil.rmtree(out, ignore_errors=True)
            out.parent.mkdir(parents=True, exist_ok=True)
            tell(f"{kind}/{name}")
            make(base, out)
    return base


def _keep(path: Path, out: Path) -> None:
    """Recipes write logs beside the checkpoint; nothing else is needed."""
    if path != out:
        raise RuntimeError(f"{path}: not {out}")
