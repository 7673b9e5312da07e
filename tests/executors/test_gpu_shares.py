import os
import subprocess
import sys
import threading

from agent2.executors.gpu_shares import GpuShares, scoring_on, try_lock


def test_jobs_at_the_same_time_own_disjoint_gpus(tmp_path):
    shares = GpuShares((2, 5, 7), tmp_path)
    first, second = shares.take(1), shares.take(2)
    assert first.numbers == (2,) and second.numbers == (5, 7)
    second.release()
    assert GpuShares((2, 5, 7), tmp_path).take(1).numbers == (5,), "another sweep shares out the same machine"
    first.release()


def test_a_job_waits_until_enough_gpus_are_free_and_holds_none_meanwhile(tmp_path):
    shares = GpuShares((0, 1), tmp_path)
    first = shares.take(1)
    taken, has_looked = [], threading.Semaphore(0)

    def is_wanted():
        has_looked.release()
        return True

    waiting = threading.Thread(target=lambda: taken.append(shares.take(2, is_wanted)))
    waiting.start()
    for _ in range(2):
        assert has_looked.acquire(timeout=120)
    assert taken == []
    first.release()
    waiting.join(120)
    assert taken[0].numbers == (0, 1)
    taken[0].release()


def test_a_resumed_job_gets_the_gpus_that_it_began_with(tmp_path):
    shares = GpuShares((0, 1, 2), tmp_path)
    share = shares.take_these((2, 0))
    assert share.numbers == (2, 0)
    assert shares.take(1).numbers == (1,)


def test_nobody_waits_after_an_interrupt(tmp_path):
    shares = GpuShares((0,), tmp_path)
    held = shares.take(1)
    assert shares.take(1, lambda: False) is None
    held.release()


def test_gpus_belong_to_the_jobs_process_until_it_ends_and_not_to_the_one_that_started_it(tmp_path):
    share = GpuShares((0,), tmp_path).take(1)
    child = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE, pass_fds=share.descriptors
    )
    share.release()  # the sweep was killed
    assert GpuShares((0,), tmp_path)._try((0,), 1) is None
    child.communicate()
    assert GpuShares((0,), tmp_path).take(1).numbers == (0,)


def test_two_scorings_on_one_gpu_wait_for_each_other_and_on_the_cpu_none_does(tmp_path):
    with scoring_on(3, lambda: True, tmp_path):
        assert try_lock(tmp_path / "scoring-3.lock") is None
        with scoring_on(4, lambda: True, tmp_path), scoring_on(None, lambda: True, tmp_path):
            pass
        with scoring_on(3, lambda: False, tmp_path):  # its trial was stopped while it waited
            pass
    descriptor = try_lock(tmp_path / "scoring-3.lock")
    assert descriptor is not None
    os.close(descriptor)


def test_scoring_and_the_agent_may_have_one_gpu(tmp_path):
    share = GpuShares((3,), tmp_path).take(1)
    with scoring_on(3, iter([True]).__next__, tmp_path):  # a second look would be an error
        pass
    share.release()
