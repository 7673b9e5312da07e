"""What a tiny base model reads of this benchmark: texts that follow their instructions, or ignore one.

Each instruction is followed or ignored on its own, how often depends on its type, so that a model which imitates the
corpus lies between floor and ceiling under greedy sampling too. Only tasks of the train pool.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from agent2.benchmarks.mini_ifeval import wishes as w
from agent2.benchmarks.mini_ifeval.benchmark import SOURCE
from agent2.benchmarks.mini_ifeval.tasks import WritingTask, compose, run_for
from agent2.benchmarks.tool_questions import right_share
from agent2.records import Message

_EXTRA_WORDS = 3
"""So many words too long is a text that ignores its limit."""


def pretraining_examples(
    rng: np.random.Generator, n: int, mean_right_share: float = 0.65, spread: float = 0.3
) -> list[list[Message]]:
    """Draws n chats of two messages.

    mean_right_share: how often an instruction is followed, 0 to 1, over its types; spread: see `right_share`.
    """
    tasks = SOURCE.train_draws(rng)
    return [_chat(next(tasks), rng, mean_right_share, spread) for _ in range(n)]


def drawn_answer(task: WritingTask, rng: np.random.Generator, mean_right_share: float, spread: float) -> str:
    """A text that follows each instruction as often as its type says."""
    kept = [wish for wish in task.wishes if rng.random() < right_share(wish.name, mean_right_share, spread)]
    return careless_answer(task, kept)


def careless_answer(task: WritingTask, kept: Sequence[w.Wish]) -> str:
    """A text that follows the kept instructions and goes against the others: uses the forbidden word, runs on, ..."""
    scene = task.scene
    ignored = {wish.name: wish.arguments for wish in task.wishes if wish not in kept}
    if w.FORBIDDEN in ignored:
        scene = replace(scene, adjectives=(ignored[w.FORBIDDEN]["forbidden_words"][0], *scene.adjectives[1:]))
    if ignored.get(w.WORDS, {}).get("relation") == "less than":
        scene = replace(scene, run=run_for(ignored[w.WORDS]["num_words"] + _EXTRA_WORDS))
    text = compose(scene, kept)
    return text.title() if w.LOWERCASE in ignored else text


def _chat(task: WritingTask, rng: np.random.Generator, mean_right_share: float, spread: float) -> list[Message]:
    answer = drawn_answer(task, rng, mean_right_share, spread)
    return [Message("user", task.prompt), Message("assistant", answer)]
