import os

import pytest

from agent2.arena.gpu_use import (
    MAX_GAP_S,
    RECORD_PERIOD_S,
    GpuBudget,
    GpuRecorder,
    NvidiaDriver,
    charged_seconds,
    read_gpu_hours,
)
from agent2.arena.trial_folder import EventLog, TrialPaths, read_events
from nvml_fakes import Device, FakeNvml

ME, FOREIGN = os.getpid(), 1
ELSEWHERE = 2**30
"""A process id that does not exist here."""


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Recorded:
    """A recorder over described GPUs, and its clock."""

    def __init__(self, paths, *devices, own_gpus=()):
        self.clock = Clock()
        self.recorder = GpuRecorder(ME, paths.gpu_log, own_gpus, NvidiaDriver(FakeNvml(*devices)), self.clock)

    def at(self, *moments):
        for moment in moments:
            self.clock.now = moment
            self.recorder.sample()
        return self


@pytest.fixture
def paths(tmp_path):
    return TrialPaths(tmp_path)


def last(paths):
    return read_events(paths.gpu_log).last("gpu_use")


def test_the_time_in_which_a_process_of_the_agent_held_a_gpu_is_added_up(paths):
    devices = Device(0, {ME}), Device(1, {FOREIGN}), Device(2, {ME, FOREIGN})
    Recorded(paths, *devices).at(1, 3, 4).recorder.stop()
    assert last(paths)["seconds"] == [4, 0, 4]
    assert read_gpu_hours(paths) == 8 / 3600


def test_gpus_go_by_the_number_of_their_device_file_and_not_by_the_order_of_the_driver(paths):
    Recorded(paths, Device(3, {ME}), Device(1), Device(None)).at(2).recorder.stop()
    row = last(paths)
    assert dict(zip(row["numbers"], row["seconds"], strict=True)) == {3: 2, 1: 0, 2: 0}


def test_memory_and_load_are_sampled_while_the_agent_holds_a_gpu(paths):
    device = Device(0, {ME}, used_bytes=2 * 2**30, gpu_percent=50)
    recorded = Recorded(paths, device).at(1)
    device.used_bytes, device.gpu_percent = 6 * 2**30, 100
    recorded.at(2)
    device.pids, device.used_bytes, device.gpu_percent = set(), 70 * 2**30, 0
    recorded.at(3).recorder.stop()
    assert (last(paths)["peak_gib"], last(paths)["load"]) == ([6.0], [0.75])


def test_a_machine_that_slept_between_two_looks_is_not_counted(paths):
    Recorded(paths, Device(0, {ME})).at(1, 1 + MAX_GAP_S + 1, 13).recorder.stop()
    assert last(paths)["seconds"] == [2]


def test_processes_of_another_name_space_make_the_time_unknown_and_not_zero(paths):
    Recorded(paths, Device(0, {ELSEWHERE})).at(1).recorder.stop()
    assert last(paths)["seconds"] is None
    assert read_gpu_hours(paths) is None


def test_gpus_that_stood_idle_are_a_measured_zero(paths):
    Recorded(paths, Device(0), own_gpus=(0,)).at(1).recorder.stop()
    assert read_gpu_hours(paths) == 0.0 == charged_seconds(paths)


def test_without_gpus_nothing_is_written(paths):
    Recorded(paths).at(1).recorder.stop()
    assert not paths.gpu_log.exists()
    assert read_gpu_hours(paths) is None


def test_a_machine_without_a_driver_has_no_gpus():
    assert NvidiaDriver(FakeNvml(Device(0), has_driver=False)).look() == {}
    assert all(look is None or look.load <= 1 for look in NvidiaDriver().look().values())


def test_a_gpu_that_falls_off_is_named_and_the_others_are_counted_on(paths):
    lost, other = Device(0, {ME}), Device(1, {ME})
    recorded = Recorded(paths, lost, other).at(2)
    lost.has_fallen_off = True
    recorded.at(4, 6).recorder.stop()
    assert (last(paths)["seconds"], last(paths)["lost"]) == ([2, 6], [0])


def test_what_cannot_be_measured_counts_as_the_time_for_which_the_agent_had_its_gpus(paths):
    unseen = Recorded(paths, Device(0, {ELSEWHERE}), own_gpus=(0, 1)).at(5)
    assert unseen.recorder.charged_s == 10
    assert Recorded(paths, own_gpus=(0,)).at(7).recorder.charged_s == 7
    assert Recorded(paths).at(7).recorder.charged_s == 0


def test_a_context_for_graphics_holds_a_gpu_too(paths):
    assert Recorded(paths, Device(0, graphics_pids={ME})).at(3).recorder.charged_s == 3


def test_a_divided_gpu_that_does_not_tell_its_load_is_measured(paths):
    recorder = Recorded(paths, Device(0, {ME}, gpu_percent=None)).at(3).recorder
    recorder.stop()
    assert recorder.charged_s == 3 and (last(paths)["load"], last(paths)["lost"]) == ([None], [])


def test_a_gpu_of_ones_own_that_does_not_answer_is_charged(paths):
    device = Device(0, {ME})
    recorded = Recorded(paths, device, own_gpus=(0,)).at(2)
    device.has_fallen_off = True
    assert recorded.at(4, 6).recorder.charged_s == 6
    others = Recorded(paths, Device(0, has_fallen_off=True))
    assert others.at(5).recorder.charged_s == 0, "not the agent's"


def test_an_agent_that_computes_while_nobody_looks_is_charged(paths):
    """Its programs come and go between the looks, or the driver shows no processes, as in many containers."""
    device = Device(0, {ME})
    recorded = Recorded(paths, device, own_gpus=(0,)).at(1)
    device.pids, device.gpu_percent = set(), 90
    assert recorded.at(2, 3, 4).recorder.charged_s == 1 + 2, "from the second look on"
    hidden = Recorded(paths, Device(0, gpu_percent=90), own_gpus=(0,)).at(1, 2, 3)
    hidden.recorder.stop()
    assert hidden.recorder.charged_s == 3
    assert last(paths)["seconds"] is None, "not measured"


def test_what_a_scoring_leaves_of_its_load_is_not_charged(paths):
    device = Device(0, {FOREIGN}, gpu_percent=90)
    recorded = Recorded(paths, device, own_gpus=(0,)).at(1)
    device.pids = set()
    recorded.at(2)
    device.gpu_percent = 0
    recorded.at(3, 4).recorder.stop()
    assert recorded.recorder.charged_s == 0 and last(paths)["seconds"] == [0]


def test_the_load_of_a_gpu_that_is_not_the_agents_is_not_charged(paths):
    assert Recorded(paths, Device(0), Device(1, gpu_percent=90), own_gpus=(0,)).at(1, 2, 3).recorder.charged_s == 0


def test_time_in_which_the_machine_was_too_busy_to_look_is_charged(paths):
    recorded = Recorded(paths, Device(0, {ME}), own_gpus=(0,)).at(1, 1 + MAX_GAP_S + 1, 13)
    recorded.recorder.stop()
    assert recorded.recorder.charged_s == 13 and last(paths)["seconds"] == [2]


def test_a_gpu_of_ones_own_that_the_driver_does_not_list_is_charged(paths):
    assert Recorded(paths, Device(0), own_gpus=(0, 5)).at(4).recorder.charged_s == 4


def test_the_budget_holds_over_all_starts_of_an_agent_those_whose_harness_was_killed_too(paths):
    """The first start left only what was written meanwhile; the second reaches the limit with it."""
    first = Recorded(paths, Device(0, {ME}))
    first.at(*range(5, 41, 5))
    assert RECORD_PERIOD_S < 40 and last(paths) is None, "killed: no last row"
    assert charged_seconds(paths) == RECORD_PERIOD_S
    assert read_gpu_hours(paths) == RECORD_PERIOD_S / 3600
    budget = GpuBudget(50 / 3600, charged_seconds(paths))
    second = Recorded(paths, Device(0, {ME}))
    second.recorder._start = first.recorder._start + 1  # another moment, whatever this machine's clock says
    assert budget.used_up(second.at(5, 10, 15).recorder) is None
    assert budget.used_up(second.at(20).recorder) == "stopped after 0.0139 GPU hours: 0.0138889 were allowed"
    second.recorder.stop()
    assert charged_seconds(paths) == RECORD_PERIOD_S + 20


def test_an_agent_that_used_no_gpu_has_used_none_up(paths):
    assert GpuBudget(0.0).used_up(Recorded(paths, Device(0), own_gpus=(0,)).at(100).recorder) is None
    assert GpuBudget(None).used_up(Recorded(paths, Device(0, {ME})).at(5).recorder) is None
    assert GpuBudget(0.0).used_up(Recorded(paths, Device(0, {ME})).at(5).recorder) is not None


def test_records_of_earlier_versions_are_read(paths):
    log = EventLog(paths.gpu_log)
    log.append("gpu_use", seconds=[3600.0, 0.0], n_gpus=2)
    log.append("gpu_use", seconds=[1800.0, 0.0], n_gpus=2)
    log.close()
    assert read_gpu_hours(paths) == 1.5
