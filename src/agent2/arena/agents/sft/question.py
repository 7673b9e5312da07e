"""Post-trains the base model by imitating the answers of the train rows, and submits it once."""

import dataclasses
import os

from agent2.benchmarks.arithmetic.rewards import verify
from agent2.training.agent_main import run_recipe
from agent2.training.logs import LogLine
from agent2.training.participant import Participant, evaluation_words
from agent2.training.sft import SftSettings, train_sft

SETTINGS = SftSettings(seed=int(os.environ.get("AGENT2_SEED", "0")))


def run(me: Participant) -> None:
    """Plan, measure, train, measure again, submit."""
    me.write_design(
        {
            "algorithm": "SFT",
            "hyperparameters": dataclasses.asdict(SETTINGS),
            "data_preprocessing": f"all {len(me.train)} train rows as a user and an assistant message; loss on the "
            "answer only",
            "evaluation_protocol": evaluation_words(me, ["before training", "after it"]),
        }
    )
    print(f"base model: {100 * me.evaluate_on_dev(me.base, verify):.1f}% of {len(me.dev)} dev items")
    report = train_sft(me.base, me.train, me.output / "model", SETTINGS, print_line)
    after = me.evaluate_on_dev(report.checkpoint, verify)
    print(f"after {report.steps} steps in {report.seconds:.0f} s: {100 * after:.1f}% of dev items")
    answer = me.submit(report.checkpoint, f"sft, {report.steps} steps, dev {100 * after:.1f}%")
    print(f"submission {answer['submission_id']}: {answer['score']:.1f} (base model {answer['baseline_score']:.1f})")


def print_line(line: LogLine) -> None:
    """One line of the training log."""
    print(f"step {line['step']}: loss {line['loss']:.3f}")


if __name__ == "__main__":
    run_recipe(run)
