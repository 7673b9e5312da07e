"""Post-trains the base model on its own answers, edited until the verifier accepts them; then again.

Of the answers of a small model few have a form that it hardly ever writes by itself, so that rejection sampling and
policy gradients learn that one late or never; an edited answer shows it at once, and keeps what was written. The edits
are tried blindly (`edits`, `search`): the verifier says which help. Where none does, this is rejection sampling.
"""

import dataclasses
import os
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from edits import LEAST_WORDS, length_without_repetition, plain_tokens
from search import Credit, EditSearch, credit_of

from agent2.errors import ConfigError
from agent2.evaluation.engine import scored_answers
from agent2.records import Item, Message, ScoredRollout
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
    if task.is_interactive:
        raise ConfigError(
            f"benchmark {me.benchmark}: its items are episodes, and self-edit edits single answers; use an agent that "
            "plays (best-of-n, grpo)"
        )
    settings = dataclasses.replace(IMITATION, max_tokens=task.context)
    me.write_design(
        {
            "algorithm": "SFT on the model's own answers, edited until the verifier accepts them",
            "hyperparameters": {"draws": dataclasses.asdict(DRAWS), "sft": dataclasses.asdict(settings)},
            "data_preprocessing": f"one answer to each of {task.n_attempted(DRAWS)} train items in each of up to "
            f"{DRAWS.rounds} rounds; as it is where it is accepted, else with the edits that a search finds for it",
            "evaluation_protocol": task.describe_evaluation(["before training", "after each round"]),
        }
    )
    print_progress(f"base model: {task.evaluate_on_dev(me.base)} of {len(task.dev)} dev items")
    checkpoint, search = me.base, EditSearch()
    for this in timed_rounds(me, DRAWS.rounds, started):
        rows, description = accepted(
            task, checkpoint, search, dataclasses.replace(DRAWS, share=this.share), this.number
        )
        if not rows:
            if checkpoint == me.base:
                raise ConfigError(f"{description}, edited or not; nothing can be imitated")
            return
        out = me.output / f"round-{this.number}" / "model"
        in_time = dataclasses.replace(settings, max_seconds=me.seconds_until(LAST_STEP, started))
        checkpoint = train_sft(checkpoint, rows, out, in_time, print_log_line).checkpoint
        task.check_and_submit(checkpoint, f"round {this.number}, {description}")


def accepted(
    task: VisibleTask, checkpoint: Path, search: EditSearch, draws: AttemptSettings, number: int
) -> tuple[list[DataRow], str]:
    """Rows to imitate, none where the verifier accepts nothing, and where they come from."""
    items = {item.id: item for item in task.train}
    answers = [scored for group in task.sample_attempts(checkpoint, draws, number) for scored in group]
    usual = median(len(plain_tokens(scored.rollout.turns[0].action)) for scored in answers) if answers else 0
    # Where answers are a number or a word, fewer words are not degenerate.
    least_words = min(LEAST_WORDS, round(usual))
    rows: list[DataRow] = []
    n_as_written, n_calls, started = 0, search.n_calls, time.monotonic()
    for scored in answers:
        item, turn = items[scored.rollout.item_id], scored.rollout.turns[0]
        if is_good(scored, least_words):
            rows.append(row_of(item, scored, turn.written))
            n_as_written += 1
        # A verdict that is bought is not spent on a search.
        elif task.participant.judgements is None:
            edited = search.find(item.prompt, turn.action, verifier_of(task, item))
            if edited is not None:
                rows.append(row_of(item, scored, edited))
    description = f"{len(rows)} of {len(answers)} answers accepted, {n_as_written} as written"
    seconds = time.monotonic() - started
    print_progress(f"round {number}: {description}; {search.n_calls - n_calls} verdicts in {seconds:.0f} s")
    helped = ", ".join(f"{edit} {n}" for edit, n in search.helped.most_common())
    print_progress(f"edits that helped so far: {helped or 'none'}")
    return rows, description


def is_good(scored: ScoredRollout, least_words: int) -> bool:
    """Whether an answer is accepted as written, has no fewer words and does not repeat itself."""
    tokens = plain_tokens(scored.rollout.turns[0].written)
    return scored.score.value == 1.0 and len(tokens) >= least_words and length_without_repetition(tokens) == len(tokens)


def verifier_of(task: VisibleTask, item: Item) -> Callable[[str], Credit]:
    """What the task's scorer says of a text as the answer to an item."""

    def verify(text: str) -> Credit:
        (scored,) = scored_answers(task.benchmark, [(item, [text])])
        return credit_of(scored.score)

    return verify


def row_of(item: Item, scored: ScoredRollout, answer: str) -> DataRow:
    """A pair where the item opens with its bare prompt, else a conversation."""
    opening = list(scored.rollout.prompt)
    if opening == [Message("user", item.prompt)]:
        return {"prompt": item.prompt, "answer": answer}
    rows = [{"role": message.role, "content": message.content} for message in opening]
    return {"messages": [*rows, {"role": "assistant", "content": answer}]}


if __name__ == "__main__":
    run_recipe(run)
