import os

from agent2.arena.analysis.read import read_gpu_hours
from agent2.arena.recorder import MAX_GAP_S, GpuRecorder, NvidiaDriver
from agent2.arena.trial_folder import TrialPaths, read_events


class FakeGpus:
    """GPUs whose processes are told."""

    def __init__(self, *gpus):
        self.gpus = [set(pids) for pids in gpus]

    def count(self):
        return len(self.gpus)

    def processes(self):
        return self.gpus


def record(paths, gpus, times):
    moments = iter(times)
    recorder = GpuRecorder(os.getpid(), paths.gpu_log, gpus, clock=lambda: next(moments))
    for _ in times:
        recorder.sample()
    recorder.stop()


def test_the_time_in_which_a_process_of_the_agent_held_a_gpu_is_added_up(tmp_path):
    paths = TrialPaths(tmp_path)
    record(paths, FakeGpus({os.getpid()}, {1}, {os.getpid(), 1}), [0, 1, 3, 4])
    assert read_events(paths.gpu_log).last("gpu_use")["seconds"] == [4, 0, 4]
    assert read_gpu_hours(paths) == 8 / 3600


def test_a_machine_that_slept_between_two_looks_is_not_counted(tmp_path):
    paths = TrialPaths(tmp_path)
    record(paths, FakeGpus({os.getpid()}), [0, 1, 1 + MAX_GAP_S + 1, 13])
    assert read_events(paths.gpu_log).last("gpu_use")["seconds"] == [2]


def test_processes_of_another_name_space_make_the_time_unknown_and_not_zero(tmp_path):
    paths = TrialPaths(tmp_path)
    record(paths, FakeGpus({2**30}), [0, 1])
    assert read_events(paths.gpu_log).last("gpu_use")["seconds"] is None
    assert read_gpu_hours(paths) is None


def test_gpus_that_stood_idle_are_a_measured_zero(tmp_path):
    paths = TrialPaths(tmp_path)
    record(paths, FakeGpus(set()), [0, 1])
    assert read_gpu_hours(paths) == 0.0


def test_without_gpus_nothing_is_written(tmp_path):
    paths = TrialPaths(tmp_path)
    record(paths, FakeGpus(), [0, 1])
    assert not paths.gpu_log.exists()
    assert read_gpu_hours(paths) is None


def test_a_machine_without_a_driver_has_no_gpus():
    driver = NvidiaDriver()
    assert len(driver.processes()) == driver.count()
