import threading

import pytest
import torch

from agent2.errors import EnvironmentFailed
from agent2.training.asynchronous import PlayAhead, PlayingStopped, StoppableSampler


def weights_of(number):
    return {"weight": torch.tensor(float(number))}


def played_by(number, weights, check):
    return number, int(weights["weight"])


def run(lag, n_batches=6, play=played_by):
    """Batches as (number, version that played it, batches behind), as a trainer takes them."""
    ahead = PlayAhead(play, n_batches, lag)
    try:
        taken = []
        for number in range(n_batches):
            ahead.publish(number, weights_of(number))
            done = ahead.take()
            taken.append((*done.batch, done.batches_behind))
        return taken
    finally:
        ahead.close()


def test_without_a_lag_every_batch_is_played_with_the_weights_as_they_are():
    assert run(0) == [(number, number, 0) for number in range(6)]


@pytest.mark.parametrize("lag", [1, 2, 4])
def test_a_batch_is_played_with_the_weights_of_exactly_so_many_batches_before(lag):
    taken = run(lag)
    assert taken == [(number, max(0, number - lag), min(number, lag)) for number in range(6)]
    assert max(behind for _, _, behind in taken) == lag


def test_no_more_than_the_lag_is_played_ahead_however_long_the_trainer_takes():
    played, has_played = [], threading.Semaphore(0)

    def play(number, weights, check):
        played.append(number)
        has_played.release()
        return number, 0

    ahead = PlayAhead(play, 10, 2)
    ahead.publish(0, weights_of(0))
    for _ in range(3):
        assert has_played.acquire(timeout=120)
    assert not has_played.acquire(timeout=0.2)
    ahead.close()
    assert played == [0, 1, 2], "the batch that is needed and two ahead of it"


def test_what_ends_the_thread_is_raised_after_its_finished_batches_were_taken():
    def play(number, weights, check):
        if number == 1:
            raise EnvironmentFailed("the world burned down")
        return number, 0

    ahead = PlayAhead(play, 4, 1)
    ahead.publish(0, weights_of(0))
    assert ahead.take().batch == (0, 0)
    ahead.publish(1, weights_of(1))
    for _ in range(2):
        with pytest.raises(EnvironmentFailed, match="the world burned down"):
            ahead.take()
    ahead.close()


@pytest.mark.parametrize("error", [SystemExit("out of here"), MemoryError("no memory"), KeyboardInterrupt()])
def test_a_thread_that_is_told_to_exit_ends_the_trainer_too(error):
    def play(number, weights, check):
        raise error

    with pytest.raises(type(error)):
        run(0, play=play)


def test_closing_ends_a_batch_that_is_being_played_and_waits_for_the_thread():
    is_playing = threading.Event()

    class Endless:
        capacity = 1

        def submit(self, request_id, prompt, settings):
            raise AssertionError("nothing is submitted here")

        def collect(self):
            is_playing.set()
            return []

    ended = []

    def play(number, weights, check):
        sampler = StoppableSampler(Endless(), check)
        try:
            while True:
                sampler.collect()
        except PlayingStopped:
            ended.append(number)
            raise

    ahead = PlayAhead(play, 4, 1)
    ahead.publish(0, weights_of(0))
    assert is_playing.wait(120)
    ahead.close()
    assert ended == [0]
    assert "agent2-plays-ahead" not in {thread.name for thread in threading.enumerate()}


def test_a_run_that_never_began_can_be_closed():
    PlayAhead(played_by, 4, 1).close()
