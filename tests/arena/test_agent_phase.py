"""Watching a program to its end, without a sandbox and without a grader."""

import shutil
import time

import pytest

from agent2.arena.agent_phase import AgentLimits, watch_agent
from agent2.arena.evidence import AgentEnd
from agent2.arena.gpu_use import GpuBudget, charged_seconds
from agent2.arena.recorder import RevisionRecorder
from agent2.arena.spec import Deadline
from agent2.arena.trial_folder import EventLog, TrialPaths, read_events
from agent2.sandbox.backends import Unsandboxed
from agent2.sandbox.spec import SandboxSpec


@pytest.fixture
def paths(tmp_path):
    trial_paths = TrialPaths(tmp_path / "trial")
    (trial_paths.workspace / "output").mkdir(parents=True)
    return trial_paths


def watch(paths, script, clock=time.time, gone=lambda: None, **of_gpus):
    revisions = RevisionRecorder(paths.workspace, paths.revisions_git, EventLog(paths.revisions_log))
    spec = SandboxSpec(("sh", "-c", script), paths.workspace, paths.agent_log, python=False)
    reports = []
    deadline = Deadline(clock(), 300.0, clock)  # before the program can do what its clock looks at
    process = Unsandboxed().start(spec)
    if "break the recorder" in script:
        shutil.rmtree(paths.revisions_git)
    limits = AgentLimits(deadline, **of_gpus)
    outcome = watch_agent(process, paths, revisions, limits, lambda left_s: None, reports.append, gone)
    return outcome, reports


@pytest.mark.parametrize(
    ("script", "end", "code"),
    [("exit 0", AgentEnd.EXITED, 0), ("exit 3", AgentEnd.CRASHED, 3), ("kill -9 $$", AgentEnd.CRASHED, 137)],
)
def test_an_end_is_told_with_its_code(paths, script, end, code):
    outcome, reports = watch(paths, script)
    assert (outcome.end, outcome.exit_code) == (end, code)
    assert reports == []


def test_at_the_deadline_the_agent_is_stopped_and_what_it_left_is_recorded(paths):
    script = """echo 'x = 1' > train.py; echo '{"step": 1, "loss": 0.5}' > output/log.jsonl; sleep 600"""
    started = time.monotonic()
    log = paths.workspace / "output" / "log.jsonl"

    def clock() -> float:
        """Its time is over when it has written what it writes, however long that takes."""
        return 1_000.0 * (log.exists() and log.read_text().endswith("\n"))

    outcome, reports = watch(paths, script, clock)
    assert time.monotonic() - started < 200
    assert (outcome.end, outcome.exit_code) == (AgentEnd.DEADLINE, None)
    assert reports == []
    assert read_events(paths.revisions_log).last("revision") is not None
    assert read_events(paths.metrics_log).last("metric")["values"] == {"loss": 0.5}


def test_a_recorder_that_fails_is_told_and_changes_nothing_about_the_end(paths):
    outcome, reports = watch(paths, "sleep 0.3; echo 'x = 1' > train.py # break the recorder")
    assert outcome.end is AgentEnd.EXITED
    assert reports[-1].startswith("last code revision: not recorded in full")
    assert all(sentence.startswith("code revisions: ") for sentence in reports[:-1]), "where the watch had looked, too"


@pytest.mark.parametrize("script", ["sleep 600", "exit 3"])
def test_what_the_agent_needs_and_is_gone_for_good_ends_its_phase_as_our_fault(paths, script):
    outcome, _ = watch(paths, script, gone=lambda: "the gateway died")
    assert (outcome.end, outcome.reason) == (AgentEnd.INFRASTRUCTURE, "the gateway died")


def test_what_remains_falls_to_zero_and_no_further():
    now = [100.0]
    deadline = Deadline(started_at=100.0, wall_clock_s=60.0, clock=lambda: now[0])
    assert (deadline.ends_at, deadline.remaining(), deadline.is_over) == (160.0, 60.0, False)
    now[0] = 160.0
    assert (deadline.remaining(), deadline.is_over) == (0.0, True)
    now[0] = 1000.0
    assert deadline.remaining() == 0.0


def test_gpu_hours_that_are_used_up_end_the_phase_as_the_wall_clock_does(paths):
    """No driver knows GPU 0 here, so the time for which the agent has it counts."""
    outcome, reports = watch(paths, "sleep 600", gpus=(0,), gpu_budget=GpuBudget(0.5 / 3600))
    assert (outcome.end, outcome.exit_code, reports) == (AgentEnd.DEADLINE, None, [])
    assert "GPU hours: 0.000138889 were allowed" in outcome.reason
    assert charged_seconds(paths) >= 0.5


def test_an_agent_without_gpus_is_not_stopped_for_them(paths):
    assert watch(paths, "sleep 1", gpu_budget=GpuBudget(0.0))[0].end is AgentEnd.EXITED
