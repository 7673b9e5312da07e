"""From one small model to a release decision: an SFT baseline, a GRPO checkpoint, and their evaluation.

Run it with `python examples/evaluate_checkpoint.py`; it needs no download and no GPU, and takes a minute or two on two
cores that nobody else uses; nearly all of it are the steps of GRPO, which end after `--grpo-seconds` at the latest. The
baseline learns from worked examples of instructions (`mini_ifeval`), the checkpoint then by trial from
arithmetic (`mini_math`); the suite asks other items of both, and knowledge besides, and does not take the reward's
word for it.
"""

import argparse
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agent2.benchmarks import BASE_MODELS, load_benchmark
from agent2.models.bases import ensure_base_model
from agent2.records import Item, Rollout, RolloutStatus, Split, Usage
from agent2.training.grpo import GrpoHooks, GrpoSettings, Reward, train_grpo
from agent2.training.offline import SftSettings, train_sft

SUITE = "llm_core_regression_mini"
SHOWN, TRIED = "mini_ifeval", "mini_math"
"""Benchmarks whose train items are shown with answers (SFT), and tried for a reward (GRPO)."""
N_SHOWN, N_TRIED = 256, 1000


def reward_of(items: Sequence[Item]) -> Reward:
    """The scorer's verdict on each completion; a row's "answer" is its item's id."""
    by_id, scorer = {item.id: item for item in items}, load_benchmark(TRIED).scorer()

    def reward(completions: list[str], ids: list[str]) -> list[float]:
        pairs = zip(completions, ids, strict=True)
        scores = [scorer.score(by_id[item_id], _single_turn(item_id, text)) for text, item_id in pairs]
        return [score.value or 0.0 for score in scores]

    return reward


def _single_turn(item_id: str, text: str) -> Rollout:
    return Rollout(item_id, 0, 0, RolloutStatus.COMPLETED, [], [], text, {"answer": text}, Usage())


def print_step(row: Mapping[str, Any]) -> None:
    """Progress: the step that has ended and its mean reward."""
    if "reward" in row:
        print(f"grpo: step {row['step']}, reward {row['reward']:.2f}", flush=True)


def main(out: Path = Path("checkpoints"), grpo_steps: int = 30, grpo_seconds: float = 300.0) -> int:
    """Train both models, evaluate, and return the exit code of `agent2 eval`: 0 candidate or release, 1 a no."""
    base = ensure_base_model("tiny-mini", BASE_MODELS, print)
    items = load_benchmark(SHOWN).items(Split.TRAIN, N_SHOWN, None)
    examples = [{"prompt": item.prompt, "answer": item.reference or ""} for item in items]
    print(f"sft: trains on {len(examples)} answers of {SHOWN}", flush=True)
    sft = train_sft(base, examples, out / "sft", SftSettings(epochs=1, learning_rate=5e-4, warmup_steps=2))
    print(f"sft: {sft.steps} steps in {sft.seconds:.0f} s")
    tried = load_benchmark(TRIED).items(Split.TRAIN, N_TRIED, None)
    questions = [{"prompt": item.prompt, "answer": item.id} for item in tried]
    settings = GrpoSettings(
        steps=grpo_steps, prompts_per_step=16, max_completion_tokens=40, log_every_steps=1, max_seconds=grpo_seconds
    )
    print(f"grpo: up to {grpo_steps} steps and {grpo_seconds:g} s on {TRIED}", flush=True)
    grpo = train_grpo(sft.checkpoint, questions, reward_of(tried), out / "grpo", settings, GrpoHooks(on_log=print_step))
    stopped = f" of {grpo_steps}, stopped by --grpo-seconds" if grpo.steps < grpo_steps else ""
    print(f"grpo: {grpo.steps} steps{stopped}, {grpo.seconds:.0f} s", flush=True)
    command = ["eval", SUITE, "--checkpoint", str(grpo.checkpoint), "--baseline", str(sft.checkpoint)]
    print("agent2", *command)
    return subprocess.run([sys.executable, "-m", "agent2", *command], check=False).returncode


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("checkpoints"), help="folder of both checkpoints")
    parser.add_argument("--grpo-steps", type=int, default=30, help="fewer are faster and gain less")
    parser.add_argument("--grpo-seconds", type=float, default=300.0, help="no further step begins after so long")
    options = parser.parse_args()
    sys.exit(main(options.out, options.grpo_steps, options.grpo_seconds))
