"""An agent whose harness was interrupted: what it had used, and a real trial in which it is started again."""

import os
import signal
import subprocess
import sys
import time

import pytest

from agent2.arena.analysis.read import read_evidence
from agent2.arena.analysis.result import analyse
from agent2.arena.analysis.verdicts import FailureKind
from agent2.arena.evidence import AgentEnd, SubmissionState
from agent2.arena.plan import new_trial
from agent2.arena.trial import resume_trial
from agent2.arena.trial_folder import (
    ActiveTime,
    EventLog,
    TrialPaths,
    clock_wait,
    interruptions,
    read_events,
    stopped_at,
    time_used,
)
from trial_builders import SUBMIT_COPY_AND_GO_ON, quiet, write_agent, write_task

START = 1_000_000.0


def write_log(root, *rows):
    paths = TrialPaths(root)
    log = EventLog(paths.trial_log)
    for event, t, fields in rows:
        log.append(event, t=t, **fields)
    log.close()
    return read_events(paths.trial_log), paths


def started(t=START, budget=120.0):
    return ("agent_started", t, {"deadline": t + budget})


def restarted(t, left_s, stopped):
    return ("agent_restarted", t, {"deadline": t + left_s, "stopped_at": stopped})


def test_an_agent_that_was_never_started_has_used_nothing(tmp_path):
    events, paths = write_log(tmp_path, ("base_scored", START, {}))
    assert (time_used(events, paths), stopped_at(events, paths), interruptions(events)) == (0.0, None, ())


def test_ctrl_c_is_known_to_the_second(tmp_path):
    events, paths = write_log(tmp_path, started(), ("agent_interrupted", START + 12, {"reason": "x"}))
    assert time_used(events, paths) == 12.0


def test_of_a_killed_harness_the_last_touch_counts_and_never_more_than_the_budget(tmp_path):
    events, paths = write_log(tmp_path, started())
    assert time_used(events, paths) == 0.0  # no sign of life at all
    paths.alive.touch()
    for touched, used in ((START + 30, 30.0), (START + 500, 120.0), (START - 5, 0.0)):
        os.utime(paths.alive, (touched, touched))
        assert time_used(events, paths) == used


def test_two_interruptions_add_up_and_their_pauses_count_for_nobody(tmp_path):
    events, paths = write_log(
        tmp_path,
        started(),
        ("agent_interrupted", START + 12, {"reason": "interrupted by a person"}),
        restarted(START + 1000, 108, START + 12),
        ("agent_interrupted", START + 1030, {"reason": "the machine failed: full"}),
        restarted(START + 5000, 78, START + 1030),
        ("agent_interrupted", START + 5008, {"reason": "x"}),
    )
    assert time_used(events, paths) == 12 + 30 + 8
    pauses = interruptions(events)
    assert [(pause.used_s, pause.reason) for pause in pauses] == [
        (12.0, "interrupted by a person"),
        (42.0, "the machine failed: full"),
    ]
    clock = ActiveTime(pauses)
    moments = (START, START + 12, START + 500, START + 1000, START + 1010, START + 3000, START + 5001)
    assert [clock(t) - START for t in moments] == [0, 12, 12, 12, 22, 42, 43]


def test_a_node_whose_clock_is_a_minute_behind_gives_the_agent_no_time_back(tmp_path):
    events, paths = write_log(
        tmp_path,
        started(),
        ("agent_interrupted", START + 30, {"reason": "x"}),
        restarted(START - 60, 90, START + 30),
        ("agent_interrupted", START - 50, {"reason": "x"}),
    )
    assert time_used(events, paths) == 30 + 10
    (pause,) = interruptions(events)
    assert (pause.used_s, pause.stopped_at, pause.restarted_at) == (30.0, START - 60, START - 60)


def test_a_node_waits_until_its_clock_reaches_the_last_record_and_not_for_one_that_was_set(tmp_path):
    events, paths = write_log(tmp_path, started())
    paths.alive.touch()
    os.utime(paths.alive, (START + 40, START + 40))
    waits = {now: clock_wait(events, paths, START + now) for now in (-20, 39, 40, 500, -3600)}
    assert waits == {-20: 60.0, 39: 1.0, 40: 0.0, 500: 0.0, -3600: 0.0}
    assert clock_wait(*write_log(tmp_path / "empty"), START) == 0.0


SUBMITS_ONCE_AND_WORKS_ON = """
import os, time
if os.path.exists("/workspace/output/model"):
    print("the second life", flush=True)
    open("/workspace/output/second", "w").close()
else:
    print("the first life", flush=True)
"""
PROGRAM = SUBMITS_ONCE_AND_WORKS_ON + "".join(f"    {line}\n" for line in SUBMIT_COPY_AND_GO_ON.strip().splitlines())
PROGRAM += "    time.sleep(5000)\n"


@pytest.mark.slow
@pytest.mark.parametrize("how", [pytest.param(signal.SIGINT, marks=pytest.mark.thorough), signal.SIGKILL])
def test_an_interrupted_agent_is_started_again_with_the_time_that_is_left(how, home, tmp_path):
    """The agent submits and sleeps; the harness is stopped; the resumed trial lets it end by itself."""
    agent = write_agent(tmp_path / "twice", PROGRAM)
    task = write_task(tmp_path / "task", budget={"wall_clock_s": 3600, "submissions": 5})
    root = new_trial(str(task), str(agent), 0, tmp_path / "trials", trial_id="cut")
    paths = TrialPaths(root)
    harness = subprocess.Popen(
        [sys.executable, "-m", "agent2", "resume", str(root)],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    stderr_lines = iter(harness.stderr)
    while not paths.alive.exists() or "accepted" not in paths.agent_log.read_text():  # its use of time is known, too
        assert harness.poll() is None, list(stderr_lines)
        try:
            harness.wait(0.2)
        except subprocess.TimeoutExpired:
            continue
    harness.send_signal(how)
    stderr = harness.communicate()[1]
    assert how == signal.SIGKILL or f"resume with: {paths.resume_command}" in stderr
    before = read_events(paths.trial_log)
    if how == signal.SIGKILL:  # on a machine whose clock is ahead of this one's
        ahead = time.time() + 3
        os.utime(paths.alive, (ahead, ahead))
    used = time_used(before, paths)
    assert 0 < used < 3600
    resume_trial(root, quiet)

    evidence = read_evidence(root)
    assert evidence.agent_end is AgentEnd.EXITED
    assert (paths.workspace / "output" / "second").exists()
    assert [s.state for s in evidence.submissions] == [SubmissionState.SCORED]  # the accepted one stays, once
    (cut,) = evidence.interruptions
    assert cut.used_s == pytest.approx(used)
    row = read_events(paths.trial_log).last("agent_restarted")
    assert row["deadline"] - row["t"] == pytest.approx(3600 - used)
    assert evidence.deadline - evidence.started_at == pytest.approx(3600)
    pause = cut.restarted_at - cut.stopped_at
    assert pause >= 0
    ended = read_events(paths.trial_log).last("agent_ended")["t"]
    assert evidence.ended_at == pytest.approx(ended - pause)  # the pause counts for nobody
    assert all(evidence.started_at <= s.received_at <= evidence.ended_at for s in evidence.submissions)
    failure = next(f for f in analyse(evidence).failures if f.kind is FailureKind.INTERRUPTED)
    assert "the agent was started again" in failure.detail
    assert "the first life" in (root / "agent.1.log").read_text()
    assert "the second life" in evidence.agent_log_tail
