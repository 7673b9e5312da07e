import os
import subprocess
import sys
import threading

import pytest

from agent2.errors import ConfigError, MachineError
from agent2.executors import gpu_shares
from agent2.executors.gpu_shares import GpuShares, lock_folder, owning, scoring_on, try_lock


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


def no_wait(sentence):
    raise AssertionError(sentence)


def test_a_trial_that_was_started_by_hand_owns_its_gpus_while_its_agent_runs(tmp_path):
    shares = GpuShares((0, 1, 2), tmp_path)
    with owning((0, 2), no_wait, tmp_path):
        assert shares.take(1).numbers == (1,) and shares.try_these((0,)) is None is shares.try_these((2,))
    assert shares.take(2).numbers == (0, 2)


def test_a_trial_waits_for_gpus_of_another_one_and_says_so(tmp_path):
    held, sentences = GpuShares((0, 1), tmp_path).take(1), []

    def note(sentence):
        sentences.append(sentence)
        held.release()

    with owning((1, 0), note, tmp_path):
        pass
    assert sentences == ["GPU 1, 0: waits until the trial that owns it has ended"]


def test_a_trial_of_a_sweep_has_the_locks_that_its_process_inherited(tmp_path):
    share = GpuShares((0,), tmp_path).take(1)
    (descriptor,) = share.descriptors
    os.set_inheritable(descriptor, True)  # as in the process of a job
    with owning((0,), no_wait, tmp_path):
        pass
    assert try_lock(tmp_path / "0.lock") is None, "kept until the process of the job ends"
    share.release()


def test_an_inherited_file_without_the_lock_does_not_count_as_ownership(tmp_path):
    held, sentences = GpuShares((0,), tmp_path).take(1), []
    with (tmp_path / "0.lock").open() as file:
        os.set_inheritable(file.fileno(), True)

        def note(sentence):
            sentences.append(sentence)
            held.release()

        with owning((0,), note, tmp_path):
            assert len(sentences) == 1


def test_each_machine_of_a_shared_home_has_locks_of_its_own(home, monkeypatch):
    names = set()
    for machine in ("node-1", "node-2", "a/../b"):
        monkeypatch.setattr(gpu_shares.socket, "gethostname", lambda machine=machine: machine)
        names.add(lock_folder().name)
        assert lock_folder().parent.name == "gpus"
    assert len(names) == 3


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_what_lies_in_the_place_of_a_lock_is_refused_and_no_lock_is_kept(tmp_path, kind):
    place, elsewhere = tmp_path / "1.lock", tmp_path / "elsewhere"
    {"link": lambda: place.symlink_to(elsewhere), "pipe": lambda: os.mkfifo(place), "folder": place.mkdir}[kind]()
    with pytest.raises(MachineError, match=r"1\.lock: cannot be used for the locks of GPUs"):
        GpuShares((0, 1), tmp_path).take(2)
    assert not elsewhere.exists()
    assert GpuShares((0,), tmp_path).take(1).numbers == (0,)


def test_a_lock_whose_file_was_removed_while_it_was_taken_is_taken_anew(tmp_path, monkeypatch):
    real, removed = gpu_shares.fcntl.flock, []

    def flock(descriptor, operation):
        if not removed:
            removed.append((tmp_path / "0.lock").unlink())
        real(descriptor, operation)

    monkeypatch.setattr(gpu_shares.fcntl, "flock", flock)
    first = try_lock(tmp_path / "0.lock")
    assert try_lock(tmp_path / "0.lock") is None
    os.close(first)


def test_a_file_system_without_locks_is_said(tmp_path, monkeypatch):
    def flock(descriptor, operation):
        raise OSError(37, "No locks available")

    monkeypatch.setattr(gpu_shares.fcntl, "flock", flock)
    with pytest.raises(MachineError, match="No locks available"):
        try_lock(tmp_path / "0.lock")


def test_more_gpus_than_there_are_and_one_that_is_named_twice_are_not_waited_for(tmp_path):
    shares = GpuShares((0, 0, 1), tmp_path)
    with pytest.raises(ConfigError, match="3 GPUs are asked for at once, and 2"):
        shares.take(3)
    assert shares.take_these((1, 1)).numbers == (1,)


def test_a_killed_process_leaves_its_gpu_free(tmp_path):
    program = (
        "import sys, time; from pathlib import Path; from agent2.executors.gpu_shares import try_lock\n"
        "try_lock(Path(sys.argv[1]) / '0.lock'); print('has it', flush=True); time.sleep(600)"
    )
    owner = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert owner.stdout.readline() == "has it\n"
        assert try_lock(tmp_path / "0.lock") is None
    finally:
        owner.kill()
        owner.communicate()
    assert GpuShares((0,), tmp_path).take(1).numbers == (0,)
