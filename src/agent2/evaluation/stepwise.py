"""One episode whose messages come from outside, one at a time: for harnesses that ask their model themselves.

The loop of `evaluation.engine` runs in a thread, and its player waits for each message, so an episode has the turn
limit, the reading of messages and the scorer of an evaluation. Promises: whatever breaks the world reaches the one who
waits, as an event; of all episodes of this process one world works at a time, as in an evaluation, since the engines
behind worlds are not safe in several threads. Does NOT limit the time that the world or the scorer takes.
"""

import queue
import threading
from collections.abc import Sequence

from agent2.errors import ConfigError, unknown_name
from agent2.evaluation.engine import Attempt, play_by
from agent2.evaluation.scoring import score_played
from agent2.records import (
    HIDDEN_SPLITS,
    Benchmark,
    Environment,
    Item,
    Message,
    ScoredRollout,
    ScoringMode,
    Split,
    work_of,
)

EpisodeEvent = Sequence[Message] | ScoredRollout | BaseException
"""The messages since the last ones, the scored end, or the error that broke the episode."""


_WORLDS = threading.Lock()
"""Held while a world works, and released while an episode waits for its next message."""


def visible_split(split: str, why: str) -> Split:
    """The split of that name, if its items may leave. why: of a hidden one, what would happen.

    Raises ConfigError for a hidden or an unknown one.
    """
    if split in HIDDEN_SPLITS:
        raise ConfigError(f"split {split!r} is hidden and {why}; take dev or train")
    names = [member.value for member in Split if member not in HIDDEN_SPLITS]
    if split not in names:
        raise unknown_name("split", split, names)
    return Split(split)


class _EpisodeAbandoned(Exception):
    """The one who sends messages disconnected, or began another episode."""


class StepwiseEpisode:
    """An episode that has begun."""

    def __init__(self, benchmark: Benchmark, item: Item, seed: int) -> None:
        """seed: of the world."""
        self._events: queue.Queue[EpisodeEvent] = queue.Queue()
        self._messages: queue.Queue[str | None] = queue.Queue()
        """Of the model; None: the episode is abandoned."""
        self._n_sent = 0
        """Messages of the chat that were handed over, the model's last one included."""
        self._thread = threading.Thread(target=self._play, args=(benchmark, Attempt(item, 0, seed)), daemon=True)
        self._thread.start()

    def send(self, message: str) -> EpisodeEvent:
        """Hand over the model's message; returns the next event."""
        self._messages.put(message)
        return self.next()

    def next(self) -> EpisodeEvent:
        """Wait for the next event."""
        event = self._events.get()
        if isinstance(event, ScoredRollout | BaseException):
            return event
        new_messages = event[self._n_sent :]
        self._n_sent = len(event) + 1
        return new_messages

    def abandon(self) -> None:
        """End the episode without a score."""
        self._messages.put(None)

    def _play(self, benchmark: Benchmark, attempt: Attempt) -> None:
        def player(attempt: Attempt, world: Environment, chat: Sequence[Message]) -> str:
            self._events.put(chat)
            _WORLDS.release()
            message = self._messages.get()
            _WORLDS.acquire()
            if message is None:
                raise _EpisodeAbandoned
            return message

        try:
            with _WORLDS:
                rollouts = list(play_by(player, [attempt], benchmark.environment, benchmark.max_turns, retries=0))
                scorer = benchmark.scorer()
                is_inline = work_of(scorer).mode is ScoringMode.INLINE
                scored = list(score_played(rollouts, scorer)) if is_inline else []
            # other scorers ask a judge or run sandboxes, which takes its time and is made for several threads
            for record in scored if is_inline else score_played(rollouts, scorer):
                self._events.put(record)
        except _EpisodeAbandoned:
            pass
        except BaseException as error:  # boundary: a world of a plug-in can raise anything, SystemExit too,
            self._events.put(error)  # and the one who waits for an event has to get one
