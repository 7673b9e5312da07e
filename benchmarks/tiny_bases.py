"""Makes the weights of the tiny base models that the package ships, and shows what they and trained ones score.

    python benchmarks/tiny_bases.py make NAME             train from the recipe; writes the folder that is shipped
    python benchmarks/tiny_bases.py scores NAME [FOLDER]  scores on dev items, and those of a checkpoint trained from it
    python benchmarks/tiny_bases.py grpo OUT              GRPO on mini_math, then the six scores before and after

NAME: tiny-arithmetic, tiny-household, tiny-mini or tiny-search. Everything runs on one torch thread of a CPU. `make`
takes two or three minutes for arithmetic, six to fifteen for household and search, half an hour for the mini
benchmarks; `grpo` about a minute.
"""

import sys
import time
from importlib import import_module
from pathlib import Path

from agent2.arena.tasks import BASE_MODELS, ensure_base_model
from agent2.benchmarks.mini.corpus import MiniCorpusSettings
from agent2.benchmarks.mini.math import MiniMath
from agent2.records import Split
from agent2.scorers.answers import reference_value, strict_answer
from agent2.training.grpo import GrpoHooks, GrpoSettings, train_grpo
from agent2.training.running import use_threads
from agent2.training.visible import dev_scores

HOMES = Path(__file__).parent.parent / "src" / "agent2" / "benchmarks"
SOURCES = {
    name: name.removeprefix("tiny-") for name in ("tiny-arithmetic", "tiny-household", "tiny-mini", "tiny-search")
}
"""Base model -> folder of its home."""
RECIPES = {home: f"agent2.benchmarks.{home}.base" for home in SOURCES.values()} | {
    "mini": "agent2.benchmarks.mini.corpus"
}
BENCHMARKS = {
    "tiny-arithmetic": ("arithmetic",),
    "tiny-household": ("household",),
    "tiny-mini": MiniCorpusSettings().benchmarks,
    "tiny-search": ("search",),
}
SETTINGS = GrpoSettings(steps=30, prompts_per_step=16, max_completion_tokens=40)


def exact_match(completions: list[str], answers: list[str]) -> list[float]:
    """1.0 for a strictly read final answer that is the reference's."""
    rewards = []
    for text, answer in zip(completions, answers, strict=True):
        value = strict_answer(text).value
        rewards.append(float(value is not None and value == reference_value(answer)))
    return rewards


def make(name: str) -> None:
    """Train from the recipe, over the folder that is shipped."""
    home = SOURCES[name]
    made = import_module(f"agent2.benchmarks.{home}.{'corpus' if home == 'mini' else 'base'}").make(
        BASE_MODELS[name], HOMES / home / name, print
    )
    print(made)


def show_scores(name: str, folders: dict[str, Path]) -> None:
    """One row for each benchmark and view; a column for each checkpoint, greedy and at temperature 1."""
    columns = {
        f"{label} T={temperature:g}": dev_scores(folder, BENCHMARKS[name], 300, temperature)
        for label, folder in folders.items()
        for temperature in (0.0, 1.0)
    }
    print(f"{'300 dev items of each':44}" + "".join(f"{label:>14}" for label in columns))
    first, *_ = columns.values()
    for benchmark in BENCHMARKS[name]:
        for view in first[benchmark]:
            values = [found[benchmark].get(view) for found in columns.values()]
            cells = "".join(f"{'':>14}" if value is None else f"{value:14.3f}" for value in values)
            print(f"{benchmark + ' ' + view:44}" + cells)


def grpo(out: Path) -> None:
    """Train on mini_math and compare."""
    base = ensure_base_model("tiny-mini", print)
    items = MiniMath().items(Split.TRAIN, 1000, None)
    rows = [{"prompt": item.prompt, "answer": item.reference or ""} for item in items]
    started = time.perf_counter()
    report = train_grpo(base, rows, exact_match, out / "model", SETTINGS, GrpoHooks(on_log=print))
    print(f"GRPO: {report.steps} steps in {report.seconds:.0f} s ({time.perf_counter() - started:.0f} s in all)")
    show_scores("tiny-mini", {"base": base, "grpo": report.checkpoint})


def main(arguments: list[str]) -> None:
    """Run one of the three."""
    use_threads()
    match arguments:
        case ["make", name] if name in SOURCES:
            make(name)
        case ["scores", name] if name in SOURCES:
            show_scores(name, {"base": ensure_base_model(name, print)})
        case ["scores", name, folder] if name in SOURCES:
            show_scores(name, {"base": ensure_base_model(name, print), folder[-9:]: Path(folder)})
        case ["grpo", folder]:
            grpo(Path(folder))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
