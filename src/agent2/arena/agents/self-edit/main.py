"""Post-trains the base model on its own answers, edited by rules until the verifier accepts them; then again.

Of the answers of a small model few follow a constraint that it hardly ever meets by itself, so that rejection sampling
and policy gradients learn that one late or never; an edited answer shows it at once, and keeps what was written.
"""

import dataclasses
import os
import time
from pathlib import Path

from edits import LEAST_WORDS, edits, length_without_repetition, plain_tokens

from agent2.errors import ConfigError
from agent2.records import Item, ScoredRollout
from agent2.training.offline import SftSettings, train_sft
from agent2.training.participant import DataRow, Participant, print_progress, run_recipe
from agent2.training.rounds import timed_rounds
from agent2.training.visible import AttemptSettings, VisibleTask, print_log_line, read_visible

SEED = int(os.environ.get("AGENT2_SEED", "0"))
DRAWS = AttemptSettings(rounds=4, attempts=1, items=160, temperature=0.7, seed=SEED)
IMITATION = SftSettings(
    epochs=2, batch_size=8, learning_rate=1e-3, warmup_steps=2, log_every_steps=5, lora_rank=16, seed=SEED
)
LAST_STEP = 0.85
"""Of the assignment's wall clock, after which no step begins; the rest is for measuring and the submission."""


def run(me: Participant) -> None:
    """Plan and measure; in each round answer, edit, imitate and submit."""
    started = time.monotonic()
    task = read_visible(me)
    if any("instruction_id_list" not in item.payload for item in task.train):
        raise ConfigError(
            f"self-edit knows the constraints of the benchmark instructions, not of {me.benchmark}; use best-of-n"
        )
    settings = dataclasses.replace(IMITATION, max_tokens=task.context)
    me.write_design(
        {
            "algorithm": "SFT on the model's own answers, edited by rules until the verifier accepts them",
            "hyperparameters": {"draws": dataclasses.asdict(DRAWS), "sft": dataclasses.asdict(settings)},
            "data_preprocessing": f"one answer to each of {task.n_attempted(DRAWS)} train items in each of up to "
            f"{DRAWS.rounds} rounds; as it is where it is accepted, else its longest edit that is",
            "evaluation_protocol": task.describe_evaluation(["before training", "after each round"]),
        }
    )
    print_progress(f"base model: {task.evaluate_on_dev(me.base)} of {len(task.dev)} dev items")
    checkpoint = me.base
    for this in timed_rounds(me, DRAWS.rounds, started):
        rows, description = accepted(task, checkpoint, dataclasses.replace(DRAWS, share=this.share), this.number)
        out = me.output / f"round-{this.number}" / "model"
        in_time = dataclasses.replace(settings, max_seconds=me.seconds_until(LAST_STEP, started))
        checkpoint = train_sft(checkpoint, rows, out, in_time, print_log_line).checkpoint
        task.check_and_submit(checkpoint, f"round {this.number}, {description}")


def accepted(task: VisibleTask, checkpoint: Path, draws: AttemptSettings, number: int) -> tuple[list[DataRow], str]:
    """Rows to imitate, and where they come from. Raises ConfigError if the verifier accepts nothing."""
    items = {item.id: item for item in task.train}
    answers = [scored for group in task.sample_attempts(checkpoint, draws, number) for scored in group]
    rows: list[DataRow] = []
    n_as_written = 0
    for scored in answers:
        item = items[scored.rollout.item_id]
        written = scored.rollout.turns[0].written
        if is_good(scored):
            rows.append({"prompt": item.prompt, "answer": written})
            n_as_written += 1
        elif (edited := first_accepted(task, item, written)) is not None:
            rows.append({"prompt": item.prompt, "answer": edited})
    if not rows:
        raise ConfigError(f"none of {len(answers)} answers, edited or not, is accepted; nothing can be imitated")
    description = f"{len(rows)} of {len(answers)} answers accepted, {n_as_written} as written"
    print_progress(f"round {number}: {description}")
    return rows, description


def is_good(scored: ScoredRollout) -> bool:
    """Whether an answer is accepted as written, has more than a few words and does not repeat itself."""
    tokens = plain_tokens(scored.rollout.turns[0].written)
    return scored.score.value == 1.0 and len(tokens) >= LEAST_WORDS and length_without_repetition(tokens) == len(tokens)


def first_accepted(task: VisibleTask, item: Item, written: str) -> str | None:
    """The longest edit of an answer that the verifier accepts; None: there is none."""
    names, arguments = item.payload["instruction_id_list"], item.payload["kwargs"]
    candidates = edits(written, dict(zip(names, arguments, strict=True)))
    return next((text for text in candidates if task.reward([text], [item.id]) == [1.0]), None)


if __name__ == "__main__":
    run_recipe(run)
