"""What does an animal say? One question, one word.

agent2 tasks check examples/sounds/task.yaml --model MODEL
agent2 eval ./examples/sounds/sounds.py:Sounds --checkpoint A --baseline B
"""

import hashlib
import hmac

from agent2.environments import QuestionEnvironment
from agent2.errors import ConfigError
from agent2.records import HIDDEN_SPLITS, Item, SamplingSettings, Score, Split

SOUNDS = {"cow": "moo", "cat": "meow", "dog": "woof", "duck": "quack"}


class LastWord:
    """1.0 for exactly the right word."""

    name, version = "last_word", "1.0"

    def score(self, item, rollout):
        """A score with its reason."""
        said = (rollout.answer or "").strip()
        return Score(float(said == item.reference), f"said {said!r}, right is {item.reference!r}", extracted=said)


class Sounds:
    """Animals up to number 9,999; a hash divides them among the splits, the secret chooses the hidden ones."""

    name, version, primary_metric = "sounds", "1.0", "accuracy"
    max_turns, attempts = 1, 1
    sampling = SamplingSettings(temperature=1.0, max_tokens=4)

    def items(self, split, n, secret):
        """The first n items of a split; hidden ones follow from the secret."""
        if split in HIDDEN_SPLITS and not secret:
            raise ConfigError("sounds: hidden items need the installation secret")
        key = secret if split in HIDDEN_SPLITS else b"visible"
        numbers = [number for number in range(10_000) if self._is_of(number, split, key)]
        numbers.sort(key=lambda number: hmac.new(key, str(number).encode(), "sha256").digest())
        if n > len(numbers):
            raise ConfigError(f"sounds: {n} items of {split.value} were asked for, there are {len(numbers)}")
        return [self._item(number, split) for number in numbers[:n]]

    def _is_of(self, number, split, key):
        pool = hashlib.sha256(f"sounds {number}".encode()).digest()[0] % 4
        if split in HIDDEN_SPLITS:
            side = hmac.new(key, f"side {number}".encode(), "sha256").digest()[0] % 2
            return pool > 1 and (side == 0) == (split is Split.TEST_PUBLIC)
        return pool == (0 if split is Split.TRAIN else 1)

    def _item(self, number, split):
        animal = sorted(SOUNDS)[hashlib.sha256(f"animal {number}".encode()).digest()[0] % len(SOUNDS)]
        return Item(f"sounds-{number}", split, f"Number {number} is a {animal}. What does it say?", SOUNDS[animal])

    def environment(self):
        """A fresh environment for one rollout."""
        return QuestionEnvironment()

    def scorer(self):
        """What judges a rollout."""
        return LastWord()

    def environment_version(self):
        """What identifies the environment in the protocol."""
        return "question-v1.0"

    def players(self):
        """Who has to win, and who must not."""
        from agent2.benchmarks.home import Players, foreign_answers, reference_answer

        return Players(reference_answer, foreign_answers, floor_at_most=0.35)  # one guess in four is right
