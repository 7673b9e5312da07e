"""Training and measuring of the base model of the embedded `arithmetic` task.

The package ships its weights: `agent2.models.tiny.make` writes that folder, which is unpacked on use, so the base is
the same on every machine. `build` pre-trains it (a minute or two on one core); on another CPU or version of torch that
gives other weights, because floats are added in another order.

The probe plays dev items under the benchmark's own protocol; the accuracy in `made.json` is measured afterwards on
other dev items, so that stopping at a lucky reading does not flatter it.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent2.benchmarks.arithmetic import Arithmetic, CorpusSettings, pretraining_corpus, verify
from agent2.errors import ConfigError
from agent2.models.hf import HfSampler
from agent2.models.loading import no_progress_bars
from agent2.models.tiny import build_tiny
from agent2.models.tiny_recipe import BaseModel, OnProgress, TinyRecipe
from agent2.records import Item, JsonValue, Message, Split, derive_seed

N_PROBE_ITEMS = 400
N_MEASURED_ITEMS = 800


def build(entry: BaseModel, out_dir: Path, on_progress: OnProgress) -> dict[str, JsonValue]:
    """Pre-train in out_dir; returns what `made.json` says.

    Raises ConfigError if the entry's recipe or corpus is not one of arithmetic, or the target is not reached.
    """
    recipe, settings = entry.recipe, entry.corpus
    if not isinstance(recipe, TinyRecipe) or not isinstance(settings, CorpusSettings):
        raise ConfigError("tiny-arithmetic is made from pairs of arithmetic; see agent2.benchmarks.BASES")
    benchmark = Arithmetic(settings.difficulty)
    dev = benchmark.items(Split.DEV, N_PROBE_ITEMS + N_MEASURED_ITEMS, None)
    # other items than the probe stops by, so that stopping at a lucky reading does not flatter the figure
    probed, measured = dev[N_MEASURED_ITEMS:], dev[:N_MEASURED_ITEMS]
    on_progress(f"drawing {settings.n_examples} examples")
    corpus = pretraining_corpus(settings)
    n_probes = 0
    last: tuple[Any, Any] = (None, None)

    def probe(model: Any, tokenizer: Any) -> float:
        nonlocal n_probes, last
        n_probes += 1
        # another seed each time: a lucky draw is not seen twice
        score = accuracy(model, tokenizer, probed, seed=n_probes)
        on_progress(f"pre-training: {100 * score:.0f}% of dev items, stops at {100 * recipe.target:.0f}%")
        last = model, tokenizer
        return score

    with no_progress_bars():
        report = build_tiny(recipe, corpus, probe, out_dir)
    return {
        "parameters": report.n_parameters,
        "steps": report.steps,
        "seconds": round(report.seconds, 1),
        "base_accuracy": {
            "value": accuracy(*last, measured, seed=0),
            "n_items": len(measured),
            "split": Split.DEV.value,
            "temperature": benchmark.sampling.temperature,
            "top_p": benchmark.sampling.top_p,
        },
    }


def accuracy(model: Any, tokenizer: Any, items: Sequence[Item], seed: int) -> float:
    """Share of items that a model in memory answers rightly under the benchmark's protocol, one draw each."""
    sampling = Arithmetic.sampling
    sampler = HfSampler.from_model(model, tokenizer, max_batch=len(items))
    for index, item in enumerate(items):
        settings = replace(sampling, seed=derive_seed("tiny arithmetic", seed, item.id))
        sampler.submit(index, [Message("user", item.prompt)], settings)
    n_right, n_done = 0.0, 0
    while n_done < len(items):
        for index, completion in sampler.collect():
            n_right += verify(completion.text, items[index].reference or "")
            n_done += 1
    return n_right / len(items)
