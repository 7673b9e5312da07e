"""From one small model to a release decision: an SFT baseline, a GRPO checkpoint, and their evaluation.

Run it with `python examples/evaluate_checkpoint.py`; it needs no download and no GPU, and takes a few minutes on two
cores. Both models learn from visible items of `mini_ifeval`; the suite asks other items, knowledge and arithmetic
besides, and does not take the reward's word for it.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from agent2.arena.base_models import ensure_base_model
from agent2.benchmarks import load_benchmark
from agent2.records import Item, Rollout, RolloutStatus, Split, Usage
from agent2.training.grpo import GrpoSettings, Reward, train_grpo
from agent2.training.sft import SftSettings, train_sft

SUITE, BENCHMARK = "llm_core_regression_mini", "mini_ifeval"
N_ROWS = 256


def reward_of(items: Sequence[Item]) -> Reward:
    """1 where every instruction of the item is followed, else 0; a row's "answer" is its item's id."""
    by_id, scorer = {item.id: item for item in items}, load_benchmark(BENCHMARK).scorer()

    def reward(completions: list[str], ids: list[str]) -> list[float]:
        pairs = zip(completions, ids, strict=True)
        scores = [scorer.score(by_id[item_id], _single_turn(item_id, text)) for text, item_id in pairs]
        return [score.value or 0.0 for score in scores]

    return reward


def _single_turn(item_id: str, text: str) -> Rollout:
    return Rollout(item_id, 0, 0, RolloutStatus.COMPLETED, [], [], text, {"answer": text}, Usage())


def main(out: Path = Path("checkpoints"), grpo_steps: int = 30) -> int:
    """Train both models, evaluate, and return the exit code of `agent2 eval`: 0 candidate or release, 1 a no."""
    base = ensure_base_model("tiny-mini", print)
    items = load_benchmark(BENCHMARK).items(Split.TRAIN, N_ROWS, None)
    examples = [{"prompt": item.prompt, "answer": item.reference or ""} for item in items]
    sft = train_sft(base, examples, out / "sft", SftSettings(epochs=1, learning_rate=5e-4, warmup_steps=2))
    print(f"sft: {sft.steps} steps in {sft.seconds:.0f} s")
    questions = [{"prompt": item.prompt, "answer": item.id} for item in items]
    settings = GrpoSettings(steps=grpo_steps, prompts_per_step=16, max_completion_tokens=32)
    grpo = train_grpo(sft.checkpoint, questions, reward_of(items), out / "grpo", settings)
    print(f"grpo: {grpo.steps} steps in {grpo.seconds:.0f} s")
    command = ["eval", SUITE, "--checkpoint", str(grpo.checkpoint), "--baseline", str(sft.checkpoint)]
    print("agent2", *command)
    return subprocess.run([sys.executable, "-m", "agent2", *command], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
