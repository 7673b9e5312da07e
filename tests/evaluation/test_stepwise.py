import threading
import time

from agent2.evaluation.stepwise import StepwiseEpisode
from agent2.records import ScoredRollout, Split
from suite_fakes import Sums


class Alone:
    """A world of Sums that notices another one at work."""

    def __init__(self, world, at_work):
        self._world, self._at_work = world, at_work

    def __getattr__(self, name):
        return getattr(self._world, name)

    def _work(self, call, *arguments):
        self._at_work.append(1)
        time.sleep(0.01)
        n_at_work = len(self._at_work)
        step = call(*arguments)
        self._at_work.pop()
        assert n_at_work == 1, "two worlds at once"
        return step

    def reset(self, item, seed):
        return self._work(self._world.reset, item, seed)

    def act(self, action):
        return self._work(self._world.act, action)


class AloneSums(Sums):
    def __init__(self):
        super().__init__()
        self.at_work = []

    def environment(self):
        return Alone(super().environment(), self.at_work)


def test_worlds_of_several_episodes_work_one_at_a_time_and_wait_side_by_side():
    benchmark = AloneSums()
    items = benchmark.items(Split.DEV, 4, None)
    episodes = [StepwiseEpisode(benchmark, item, 0) for item in items]
    openings = [episode.next() for episode in episodes]  # all wait at once
    assert [opening[-1].text for opening in openings] == [item.prompt for item in items]
    events = {}

    def finish(number):
        events[number] = episodes[number].send(str(items[number].reference))

    threads = [threading.Thread(target=finish, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(isinstance(events[number], ScoredRollout) for number in range(4)), events
    assert [events[number].score.value for number in range(4)] == [1.0] * 4


def test_an_abandoned_and_a_broken_episode_leave_the_others_free():
    benchmark = Sums()
    (item,) = benchmark.items(Split.DEV, 1, None)
    abandoned = StepwiseEpisode(benchmark, item, 0)
    abandoned.next()
    abandoned.abandon()

    class Broken(Sums):
        def environment(self):
            raise SystemExit("no world")

    assert isinstance(StepwiseEpisode(Broken(), item, 0).next(), SystemExit)
    episode = StepwiseEpisode(benchmark, item, 0)
    episode.next()
    assert isinstance(episode.send(str(item.reference)), ScoredRollout)
