"""Is the advice of `agent2 readiness` right? Every embedded base on its task, and six bases on which RL cannot start.

    python benchmarks/readiness.py [--cases arithmetic ...] [--items 32] [--seeds 0] [--out FOLDER]

The expected advice was written down before the first run: RL can start on the tasks whose packaged GRPO agent gains,
and the six others are broken in a known way. Exit code 1 if an advice differs; `table.md` holds the table. About ten
minutes a seed on one core that nobody else uses. The case `household` needs the extra of that name.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from agent2.arena.tasks import load_task
from agent2.benchmarks import BASE_MODELS, load_benchmark
from agent2.benchmarks.arithmetic import Arithmetic, ExpressionDifficulty
from agent2.benchmarks.home import with_scorer
from agent2.environments.household.game import engine_parts
from agent2.errors import ConfigError
from agent2.models.bases import ensure_base_model
from agent2.records import Benchmark, Item, Rollout, Score, Split
from agent2.training.readiness import ReadinessSettings, measure_readiness
from agent2.training.readiness_rules import Advice, load_rules, recommend

SHOWN = (
    "format_rate",
    "pass_at_1",
    "pass_at_k",
    "protocol_score",
    "signal_share",
    "unanswerable_admitted",
    "nonsense_score",
    "preflight_loss_fall",
    "sampler_gap",
)


class AlwaysOne:
    """Everybody is right."""

    name, version = "always_one", "1.0"

    def score(self, item: Item, rollout: Rollout) -> Score:
        """1."""
        return Score(1.0, "everybody is right")


class Inverted:
    """Wrong answers are right."""

    name, version = "inverted", "1.0"

    def score(self, item: Item, rollout: Rollout) -> Score:
        """The opposite of the benchmark's own verdict."""
        value = Arithmetic().scorer().score(item, rollout).value
        return Score(None if value is None else 1.0 - value, "inverted")


def embedded(task: str) -> tuple[Path, Benchmark]:
    """A packaged task with its base model."""
    spec = load_task(task)
    return ensure_base_model(spec.base_model, BASE_MODELS), load_benchmark(spec.benchmark)


def base() -> Path:
    """The model that the broken cases are made of."""
    return ensure_base_model("tiny-arithmetic", BASE_MODELS)


def too_weak(folder: Path) -> tuple[Path, Benchmark]:
    """Numbers come in the right form and are never right."""
    hard = ExpressionDifficulty(n_operations=4, max_operand=900, operators="*+-")
    return base(), Arithmetic(hard)


def no_format(folder: Path) -> tuple[Path, Benchmark]:
    """A model of commands is asked for numbers."""
    return ensure_base_model("tiny-household", BASE_MODELS), Arithmetic()


def untrained(folder: Path) -> tuple[Path, Benchmark]:
    """Random weights."""
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(base())).save_pretrained(folder)
    AutoTokenizer.from_pretrained(base()).save_pretrained(folder)
    return folder, Arithmetic()


def broken_template(folder: Path) -> tuple[Path, Benchmark]:
    """The chat template reads a key that messages do not have."""
    tokenizer = AutoTokenizer.from_pretrained(base())
    tokenizer.chat_template = tokenizer.chat_template.replace("message['content']", "message['text']").replace(
        "message.content", "message.text"
    )
    AutoModelForCausalLM.from_pretrained(base()).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder, Arithmetic()


def pays_everybody(folder: Path) -> tuple[Path, Benchmark]:
    """A reward of 1 for everyone."""
    return base(), with_scorer(Arithmetic(), AlwaysOne())


def inverted(folder: Path) -> tuple[Path, Benchmark]:
    """A reward of the wrong sign."""
    return base(), with_scorer(Arithmetic(), Inverted())


@dataclass(frozen=True, slots=True)
class Case:
    """A model and a task with the advice that is right."""

    name: str
    expected: frozenset[Advice]
    make: Callable[[Path], tuple[Path, Benchmark]]


def of_task(name: str, *expected: Advice) -> Case:
    """A packaged task."""
    return Case(name, frozenset(expected or {Advice.READY}), lambda folder: embedded(name))


CASES = (
    of_task("arithmetic"),
    of_task("pyfunc"),
    of_task("arithmetic-pyfunc"),
    of_task("household"),
    of_task("shop"),
    of_task("search"),
    of_task("dialogue"),
    Case("too weak", frozenset({Advice.DISTILL}), too_weak),
    Case("no format", frozenset({Advice.SFT}), no_format),
    Case("untrained", frozenset({Advice.SFT}), untrained),
    Case("broken template", frozenset({Advice.PIPELINE}), broken_template),
    Case("reward of 1 for all", frozenset({Advice.REWARD}), pays_everybody),
    Case("inverted reward", frozenset({Advice.REWARD}), inverted),
)


def main() -> None:
    """Measure, advise, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=[case.name for case in CASES])
    parser.add_argument("--items", type=int, default=32)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--out", type=Path, help="folder for the table; a temporary one by default")
    options = parser.parse_args()
    if options.cases is None or "household" in options.cases:
        try:
            engine_parts()
        except ConfigError as error:
            parser.error(f"{error}; or leave the case out with --cases")
    rules = load_rules()
    top = options.out or Path(tempfile.mkdtemp(prefix="readiness-"))
    top.mkdir(parents=True, exist_ok=True)
    lines = [
        f"| case | seed | expected | advice | rule | {' | '.join(SHOWN)} | seconds |",
        "|---" * (len(SHOWN) + 6) + "|",
    ]
    n_wrong = n_cases = 0
    for case in CASES:
        if options.cases and case.name not in options.cases:
            continue
        with tempfile.TemporaryDirectory() as folder:
            checkpoint, benchmark = case.make(Path(folder) / "model")
            items = benchmark.items(Split.TRAIN, options.items, None)
            for seed in options.seeds:
                started = time.monotonic()
                measures = measure_readiness(checkpoint, benchmark, items, ReadinessSettings(seed=seed), rules)
                advice = recommend(measures, rules)
                n_cases += 1
                n_wrong += advice.advice not in case.expected
                values = [measures[name].value if name in measures else None for name in SHOWN]
                cells = ["-" if value is None else f"{value:.2g}" for value in values]
                expected = " or ".join(sorted(case.expected))
                lines.append(
                    f"| {case.name} | {seed} | {expected} | {advice.advice} | {advice.rule} | {' | '.join(cells)} | "
                    f"{time.monotonic() - started:.0f} |"
                )
                print(lines[-1], flush=True)
    (top / "table.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{n_cases - n_wrong} of {n_cases} advised as expected; {top / 'table.md'}")
    raise SystemExit(1 if n_wrong else 0)


if __name__ == "__main__":
    main()
