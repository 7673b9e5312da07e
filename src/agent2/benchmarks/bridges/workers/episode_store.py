"""What the workers of episodes share: the package's files, the item that is meant, and episodes between two messages.

Every request carries all moves of an episode. An episode that has carried out all but the last is kept, up to a number
of them; others are played again from their beginning, so nothing is lost where this process is started again.
"""

import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

Move = dict[str, Any]
"""`{"calls": [{"name", "arguments"}, ...]}`, or `{"words": TEXT}`."""


class AppliesMoves(Protocol):
    """The world of one item, and where its dialogue is."""

    def apply(self, move: Move) -> dict[str, Any]:
        """What comes back for a message."""


Episode = TypeVar("Episode", bound=AppliesMoves)


class EpisodeStore(Generic[Episode]):
    """Episodes by set, item and moves."""

    def __init__(self, begin: Callable[[str, int], Episode], n_kept: int) -> None:
        """begin: makes a fresh episode of a set's item. n_kept: episodes that are kept; the oldest leave first."""
        self._begin, self._n_kept = begin, n_kept
        self._kept: OrderedDict[str, Episode] = OrderedDict()

    def take(self, name: str, number: int, moves: list[Move]) -> Episode:
        """The episode after these moves; it is kept no longer, since the caller may change it."""
        episode = self._kept.pop(_key(name, number, moves), None) if moves else None
        if episode is None:
            episode = self._begin(name, number)
            for move in moves:
                episode.apply(move)
        return episode

    def advance(self, name: str, portion: str, number: int, moves: list[Move]) -> dict[str, Any]:
        """What comes back for the last of these moves: results of calls, or the user's next message."""
        episode = self.take(name, number, moves[:-1])
        reply = episode.apply(moves[-1])
        self._kept[_key(name, number, moves)] = episode
        while len(self._kept) > self._n_kept:
            self._kept.popitem(last=False)
        return reply


def _key(name: str, number: int, moves: list[Move]) -> str:
    return hashlib.sha256(json.dumps([name, number, moves]).encode()).hexdigest()


def package_folder(name: str) -> Path:
    """Where a package is installed. Raises RuntimeError if it is not."""
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        raise RuntimeError(f"{name} is not installed")
    return Path(spec.origin).parent


def require_prompt(name: str, prompt: str, prompt_sha256: str) -> None:
    """Raise RuntimeError if the prompt at this place of a set is another than the one that was asked."""
    if hashlib.sha256(prompt.encode()).hexdigest() != prompt_sha256:
        raise RuntimeError(f"{name} gives another item at this place in this process")
