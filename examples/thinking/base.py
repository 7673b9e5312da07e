"""A tiny base model that thinks before it answers: `./examples/thinking/base.py:BASE`.

It is trained on sums of the benchmark `arithmetic` and is right about as often as `tiny-arithmetic`. Before its answer,
between `<think>` and `</think>`, stands another number, which nothing may take for the answer. Training takes a few
minutes on one core, once.

agent2 eval arithmetic --checkpoint ./examples/thinking/base.py:BASE
agent2 run arithmetic --agent grpo --model ./examples/thinking/base.py:BASE
"""

from pathlib import Path
from typing import Any

import numpy as np

from agent2.benchmarks.arithmetic import Arithmetic
from agent2.benchmarks.recipes.arithmetic import CorpusSettings, pretraining_corpus
from agent2.models.tiny_recipe import BaseModel, OnProgress, TinyRecipe
from agent2.records import JsonValue, Split, derive_seed

N_PROBE_ITEMS = 300


def thinking_corpus(settings: CorpusSettings) -> list[tuple[str, str]]:
    """(prompt, thought and answer) pairs; the number in a thought is never the answer after it."""
    rng = np.random.default_rng([settings.seed, 0x7])
    return [
        (prompt, f"<think>\nIs it {int(answer) + int(rng.integers(1, 10))}?\n</think>\n\n{answer}")
        for prompt, answer in pretraining_corpus(settings)
    ]


def build(entry: BaseModel, out_dir: Path, on_progress: OnProgress) -> dict[str, JsonValue]:
    """Train in `out_dir`; returns what the manifest says. Raises ConfigError if the target is not reached."""
    from agent2.evaluation.engine import Attempt, PlaySettings, play
    from agent2.models.hf import HfSampler
    from agent2.models.loading import no_progress_bars
    from agent2.models.tiny import build_tiny

    benchmark = Arithmetic()
    items = benchmark.items(Split.DEV, N_PROBE_ITEMS, None)
    n_probes = 0

    def share_right(model: Any, tokenizer: Any) -> float:
        nonlocal n_probes
        n_probes += 1
        attempts = [Attempt(item, 0, derive_seed("thinking", n_probes, item.id)) for item in items]
        sampler = HfSampler.from_model(model, tokenizer, max_batch=len(items))
        settings = PlaySettings(benchmark.sampling, benchmark.max_turns)
        played = play(attempts, sampler, benchmark.environment, benchmark.scorer(), settings)
        share = sum(scored.score.value or 0.0 for scored in played) / len(items)
        on_progress(f"training: {100 * share:.0f}% of dev items, stops at {100 * entry.recipe.target:.0f}%")
        return share

    assert isinstance(entry.recipe, TinyRecipe)
    with no_progress_bars():
        report = build_tiny(entry.recipe, thinking_corpus(entry.corpus), share_right, out_dir)
    return {"parameters": report.n_parameters, "steps": report.steps, "dev_accuracy": report.score}


BASE = BaseModel(version="1", recipe=TinyRecipe(target=0.27), corpus=CorpusSettings(), builder=build)
