"""The loop that runs jobs, on a cluster in this process that loses nodes on cue."""

import pytest

from agent2.errors import Fault
from agent2.executors.jobs import MAX_LOSSES, JobEnd, fault_of, run_jobs
from executor_fakes import PHASES, FakeCluster, job

JOBS = [job("a"), job("b"), job("c")]


@pytest.mark.parametrize("phase", range(len(PHASES)))
def test_a_node_lost_in_any_phase_costs_what_ran_there_and_nothing_is_done_twice(phase):
    cluster = FakeCluster(losses={("b", 1): phase})
    retried = []
    ends = list(run_jobs(cluster, JOBS, retried.append))
    assert sorted((end.name, end.exit_code) for end in ends) == [("a", 0), ("b", 0), ("c", 0)]
    assert cluster.disk == {name: list(PHASES) for name in "abc"}
    assert [(end.name, end.attempt) for end in retried] == [("b", 1)]


def test_ends_that_are_reported_twice_or_late_count_once():
    cluster = FakeCluster(losses={("a", 1): 2, ("b", 1): 0, ("b", 2): 3}, doubled=True)
    ends = list(run_jobs(cluster, JOBS))
    assert sorted(end.name for end in ends) == ["a", "b", "c"]
    assert all(end.fault is None for end in ends)
    assert cluster.disk == {name: list(PHASES) for name in "abc"}


def test_a_job_that_takes_down_every_node_is_given_up_and_the_others_finish():
    cluster = FakeCluster(losses={("a", attempt): 1 for attempt in range(1, 100)})
    ends = {end.name: end for end in run_jobs(cluster, JOBS)}
    assert ends["a"].attempt == MAX_LOSSES + 1
    assert (ends["a"].fault, ends["a"].is_lost) == (Fault.INFRASTRUCTURE, True)
    assert ends["b"].fault is ends["c"].fault is None


@pytest.mark.parametrize(("code", "attempts"), [(4, 2), (-9, 2), (2, 1), (3, 1), (130, 1)])
def test_what_is_tried_again_follows_the_fault_table(code, attempts):
    cluster = FakeCluster(codes={("a", attempt): code for attempt in range(1, 5)})
    (end,) = run_jobs(cluster, [job("a")])
    assert (end.attempt, end.exit_code) == (attempts, code)
    assert end.fault is fault_of(code)


def test_a_result_of_an_attempt_that_was_believed_lost_is_accepted_and_its_repetition_ignored():
    class Slow(FakeCluster):
        def collect(self):
            if (ends := {1: self._lost, 2: self._both}.get(self._queue[0][1])) is not None:
                return ends()
            raise AssertionError("a third attempt")

        def _lost(self):
            self._queue.pop(0)
            return [JobEnd("a", 1, None, Fault.INFRASTRUCTURE, "was lost", is_lost=True)]

        def _both(self):
            self._queue.pop(0)
            return [JobEnd("a", 1, 0), JobEnd("a", 2, 2, Fault.SUBMITTER, "was run already")]

    assert [(end.attempt, end.fault) for end in run_jobs(Slow(), [job("a")])] == [(1, None)]


def test_no_more_jobs_are_submitted_than_the_executor_has_room_for():
    cluster = FakeCluster(capacity=2)
    assert len(list(run_jobs(cluster, [job(str(number)) for number in range(7)]))) == 7
    assert cluster.most_at_once == 2


def test_stopping_early_interrupts_what_runs():
    cluster = FakeCluster()
    ends = run_jobs(cluster, JOBS)
    next(ends)
    ends.close()
    assert cluster.interrupted == ["b", "c"]
