"""Asynchronous rollouts: a thread plays the coming batches while the trainer learns from the last one.

The weights that play a batch are a copy whose age is bounded: batch `n` is played with the weights as they were before
batch `n - lag`, or with the initial ones. That age is a rule and not a race, so a run is a function of its settings,
however fast either side is; with `lag` 0 the two sides take turns and the run is the synchronous one. At most `lag`
batches are played and not yet learned from, which bounds the buffer, and as many copies of the weights and one more
are kept.

A thread, not a process: the world needs no pickling and a GPU is shared, but in Python code only one side runs at a
time. Whatever ends the thread is raised where the trainer asks for the next batch.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from torch import Tensor

from agent2.errors import SamplerFailed
from agent2.records import Completion, Prompt, Sampler, SamplingSettings
from agent2.training.running import use_threads

Weights = Mapping[str, Tensor]
Played = TypeVar("Played")

LOOK_EVERY_S = 1.0
"""How often a waiting trainer checks that the thread is alive."""
CLOSE_S = 60.0
"""How long `close` waits for the thread, which ends at its next message."""


class PlayingStopped(Exception):
    """The batch that is being played is not wanted any more."""


@dataclass(frozen=True, slots=True)
class BatchPlayedAhead(Generic[Played]):
    """A batch that the thread has played, and what either side waited."""

    batch: Played
    batches_behind: int
    """Batches that were learned from between the weights that played it and its own first update."""
    trainer_idle_s: float
    """The trainer waited for it."""
    player_idle_s: float
    """The thread waited for the weights that play it."""


@dataclass(frozen=True, slots=True)
class _Finished(Generic[Played]):
    batch: Played
    batches_behind: int
    idle_s: float


class PlayAhead(Generic[Played]):
    """Plays numbered batches in a thread, each with the weights of `lag` batches before it."""

    def __init__(self, play: Callable[[int, Weights, Callable[[], None]], Played], n_batches: int, lag: int) -> None:
        """Nothing is played before the first `publish`.

        play: from the number of a batch (from 0), weights, and a check that raises PlayingStopped once the batch is
        not wanted any more, to the batch; runs in the thread. lag: at least 0.
        """
        self._play, self._n_batches, self._lag = play, n_batches, lag
        self._weights: dict[int, Weights] = {}
        self._finished: deque[_Finished[Played]] = deque()
        self._failure: BaseException | None = None
        self._is_closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="agent2-plays-ahead", daemon=True)

    def publish(self, number: int, weights: Weights) -> None:
        """Hand over the weights as they are before batch `number` is learned from; they must not change any more."""
        with self._changed:
            self._weights[number] = weights
            self._changed.notify_all()
        if number == 0:
            self._thread.start()

    def take(self) -> BatchPlayedAhead[Played]:
        """The next batch, in order; waits for it. Raises what ended the thread, once its finished batches are taken."""
        began = time.perf_counter()
        with self._changed:
            while not self._finished:
                if self._failure is not None:
                    raise self._failure
                if not self._thread.is_alive():
                    raise SamplerFailed(
                        "the thread that plays episodes is not running; there is no batch to learn from"
                    )
                self._changed.wait(LOOK_EVERY_S)
            finished = self._finished.popleft()
        return BatchPlayedAhead(finished.batch, finished.batches_behind, time.perf_counter() - began, finished.idle_s)

    def close(self) -> None:
        """End the thread; what it has played is dropped."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(CLOSE_S)

    def _run(self) -> None:
        try:
            use_threads()  # torch's number of threads is set for each thread of Python
            for number in range(self._n_batches):
                version = max(0, number - self._lag)
                began = time.perf_counter()
                weights = self._wait_for(version)
                idle_s = time.perf_counter() - began
                batch = self._play(number, weights, self._check)
                with self._changed:
                    self._finished.append(_Finished(batch, number - version, idle_s))
                    self._changed.notify_all()
        except PlayingStopped:
            return
        except BaseException as error:  # the boundary of the thread: `take` raises it in the trainer's
            with self._changed:
                self._failure = error
                self._changed.notify_all()

    def _wait_for(self, version: int) -> Weights:
        with self._changed:
            while version not in self._weights:
                self._check()
                self._changed.wait()
            for older in [number for number in self._weights if number < version]:
                del self._weights[older]
            return self._weights[version]

    def _check(self) -> None:
        if self._is_closed:
            raise PlayingStopped


class StoppableSampler:
    """A sampler that runs a check before each message."""

    def __init__(self, sampler: Sampler, check: Callable[[], None]) -> None:
        self.capacity = sampler.capacity
        self._sampler, self._check = sampler, check

    def submit(self, request_id: int, prompt: Prompt, settings: SamplingSettings) -> None:
        """As the wrapped sampler's."""
        self._sampler.submit(request_id, prompt, settings)

    def collect(self) -> list[tuple[int, Completion]]:
        """As the wrapped sampler's; raises what the check raises."""
        self._check()
        return self._sampler.collect()
