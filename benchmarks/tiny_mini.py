"""Makes the weights of `tiny-mini` that the package ships, and shows how reinforcement learning moves its scores.

    python benchmarks/tiny_mini.py make              train from the recipe; writes src/agent2/benchmarks/mini/tiny-mini
    python benchmarks/tiny_mini.py scores [FOLDER]   scores of a checkpoint on dev items of the six mini benchmarks
    python benchmarks/tiny_mini.py grpo OUT          GRPO on mini_math, then all six scores before and after

Everything runs on one torch thread of a CPU. `make` takes about half an hour, `grpo` about a minute.
"""

import sys
import time
from pathlib import Path

from agent2.arena.base_models import BASE_MODELS, ensure_base_model
from agent2.benchmarks.mini.base import make
from agent2.benchmarks.mini.corpus import MiniCorpusSettings
from agent2.benchmarks.mini_math.benchmark import MiniMath
from agent2.records import Split
from agent2.scorers.answers import reference_value, strict_answer
from agent2.training.grpo import GrpoHooks, GrpoSettings, train_grpo
from agent2.training.running import use_threads
from agent2.training.visible import dev_scores

ENTRY = BASE_MODELS["tiny-mini"]
PACKAGED = Path(__file__).parent.parent / "src" / "agent2" / "benchmarks" / "mini" / "tiny-mini"
BENCHMARKS = MiniCorpusSettings().benchmarks
VIEWS = (
    "answer_parsed",
    "ast_match",
    "response_exact",
    "tool_calls",
    "tool_errors",
    "tool_errors_recovered",
    "safety_violations",
)
SETTINGS = GrpoSettings(steps=30, prompts_per_step=16, max_completion_tokens=40)


def exact_match(completions: list[str], answers: list[str]) -> list[float]:
    """1.0 for a strictly read final answer that is the reference's."""
    rewards = []
    for text, answer in zip(completions, answers, strict=True):
        value = strict_answer(text).value
        rewards.append(float(value is not None and value == reference_value(answer)))
    return rewards


def show_scores(folders: dict[str, Path]) -> None:
    """One row for each benchmark, one column for each checkpoint."""
    scores = {name: dev_scores(folder, BENCHMARKS) for name, folder in folders.items()}
    print(f"{'dev items: 200 each, greedy':40}" + "".join(f"{name:>10}" for name in scores))
    for benchmark in BENCHMARKS:
        for view in ("score", *VIEWS):
            values = [found[benchmark].get(view) for found in scores.values()]
            if values[0] is not None:
                print(f"{benchmark + ' ' + view:40}" + "".join(f"{value:10.3f}" for value in values))


def grpo(out: Path) -> None:
    """Train on mini_math and compare."""
    base = ensure_base_model("tiny-mini", print)
    items = MiniMath().items(Split.TRAIN, 1000, None)
    rows = [{"prompt": item.prompt, "answer": item.reference or ""} for item in items]
    started = time.perf_counter()
    report = train_grpo(base, rows, exact_match, out / "model", SETTINGS, GrpoHooks(on_log=print))
    print(f"GRPO: {report.steps} steps in {report.seconds:.0f} s ({time.perf_counter() - started:.0f} s in all)")
    show_scores({"base": base, "grpo": report.checkpoint})


def main(arguments: list[str]) -> None:
    """Run one of the three."""
    use_threads()
    match arguments:
        case ["make"]:
            print(make(ENTRY, PACKAGED, print))
        case ["scores"]:
            show_scores({"base": ensure_base_model("tiny-mini", print)})
        case ["scores", folder]:
            show_scores({folder[-9:]: Path(folder)})
        case ["grpo", folder]:
            grpo(Path(folder))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
