"""Hostile agents, full disks and killed harnesses: whole trials in the real sandbox with the real grader."""

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time

import psutil
import pytest

from agent2.arena.analysis.read import read_evidence
from agent2.arena.evidence import AgentEnd, SubmissionState
from agent2.arena.grader.evaluator import EvaluationFailed
from agent2.arena.plan import new_trial
from agent2.arena.trial import TrialStopped, resume_trial, run_trial
from agent2.arena.trial_folder import TrialPaths, read_events
from agent2.cards.reader import validate_card
from agent2.records import Split
from process_looks import outlived
from trial_builders import SUBMIT_COPY, quiet, write_agent, write_task

pytestmark = pytest.mark.slow


def play(task, agent, out, *overrides):
    root = new_trial(task, str(agent), 0, out, overrides=overrides)
    run_trial(root, quiet)
    return root, read_evidence(root)


HOSTILE = r"""
    import os, subprocess, sys
    open(b"/workspace/a\xff", "w").close()
    os.makedirs("/workspace/a\\xff/.git")
    with open("/workspace/a\\xff/.git/config", "w") as file:
        file.write("[core]")
    os.makedirs("/workspace/" + "/".join("d" * 900))
    with open("/workspace/output/log.jsonl", "wb") as log:
        log.write(b'{"step": 1, "loss": ' + b"9" * 400 + b"}\n")
        log.write(b'{"step": 1e300, "loss": 1, "t": 1e300}\n')
        log.write(b'{"step": 2, "loss": 0.5, "x\xff": 1}\n')
        log.write(b'{"step": 3, "loss": NaN, "reward": 0.5}\n')
    for name, text in (("trainer_state.json", "["), ("design.json", "{")):
        with open(f"/workspace/output/{name}", "w") as file:
            file.write(text * 200_000)
    subprocess.run([sys.executable, "-c", "import time; time.sleep(20)", b"\xff\xfe"])
    sys.stdout.buffer.write(b"\xff\xfe\x00\x1b[2J\n")
"""


def test_a_hostile_workspace_costs_neither_the_trial_nor_an_accepted_submission(task, tmp_path):
    agent = write_agent(tmp_path / "hostile", textwrap.dedent(HOSTILE) + SUBMIT_COPY)
    root, evidence = play(task, agent, tmp_path / "trials")
    assert evidence.agent_end is AgentEnd.EXITED, evidence.agent_log_tail
    assert [s.state for s in evidence.submissions] == [SubmissionState.SCORED]
    assert [(p.step, dict(p.values)) for p in evidence.metrics] == [(3, {"reward": 0.5})]
    assert any("\\udcff\\udcfe" in part for p in evidence.processes for part in p.command)
    assert evidence.revisions
    assert read_events(root / "events" / "trial.jsonl").last("recording_failed") is None


def test_an_agent_that_takes_too_much_memory_is_stopped_and_says_why(task, tmp_path):
    program = """
        import time
        kept = [bytearray(b"x" * 2**20) for _ in range(1200)]
        time.sleep(500)
    """
    agent = write_agent(tmp_path / "hog", program)
    root, evidence = play(task, agent, tmp_path / "trials", "memory_gib=0.3")
    ended = read_events(root / "events" / "trial.jsonl").last("agent_ended")
    assert evidence.agent_end is AgentEnd.LIMIT
    assert "memory" in ended["reason"]
    assert evidence.gain is None


def test_an_agent_that_prints_1_gb_keeps_the_beginning_and_the_end_of_its_log(task, tmp_path):
    program = """
        import sys
        print("the beginning")
        block = "x" * 10_000_000
        for _ in range(100):
            sys.stdout.write(block)
        print("the end")
    """
    agent = write_agent(tmp_path / "talker", program)
    root, evidence = play(task, agent, tmp_path / "trials")
    assert evidence.agent_end is AgentEnd.EXITED
    assert (root / "agent.log").stat().st_size < 70 * 2**20
    with (root / "agent.log").open("rb") as log:
        assert log.read(14) == b"the beginning\n"
    assert evidence.agent_log_tail.endswith("the end\n")


def test_a_host_that_refuses_namespaces_stops_the_trial_with_one_sentence_and_it_can_be_resumed(task, tmp_path):
    refusing = tmp_path / "bin" / "bwrap"
    refusing.parent.mkdir()
    refusing.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && { echo bubblewrap 0.8.0; exit 0; }\n'
        "echo 'bwrap: setting up uid map: Permission denied' >&2; exit 1\n"
    )
    refusing.chmod(0o755)
    root = new_trial(task, "nop", 0, tmp_path / "trials")
    path = f"{refusing.parent}:{os.environ['PATH']}"
    command = [sys.executable, "-m", "agent2", "resume", str(root)]
    ended = subprocess.run(command, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False)
    assert ended.returncode == 4
    assert "this host refuses namespaces" in ended.stderr
    assert "--set sandbox=none" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert read_events(root / "events" / "trial.jsonl").last("agent_started") is None
    resume_trial(root, quiet)
    assert read_evidence(root).agent_end is AgentEnd.EXITED


@pytest.mark.parametrize("is_cached", [True, pytest.param(False, marks=pytest.mark.thorough)])
def test_a_disk_that_is_full_when_a_card_is_written_is_a_fault_and_the_trial_is_resumed(
    task, tmp_path, monkeypatch, is_cached
):
    if not is_cached:
        monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    root = new_trial(task, "nop", 0, tmp_path / "trials")
    cards = root / "cards"
    with small_disk(cards) as make_room:
        with pytest.raises((EvaluationFailed, TrialStopped), match=r"No space left on device|disk has only"):
            run_trial(root, quiet)
        make_room()
        resume_trial(root, quiet)
        evidence = read_evidence(root)
        assert evidence.base_public.n_missing == 0
        for card in ("base-test_public", "base-test_private", "base-noise"):
            assert validate_card(cards / card) == []


@contextlib.contextmanager
def small_disk(folder):
    """A file system with room for less than the cards of a trial; gives a function that makes room."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("only root can mount a small disk")
    try:
        yield lambda: subprocess.run(["mount", "-o", "remount,size=640m", str(folder)], check=True)
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.thorough
def test_a_harness_killed_while_base_and_final_are_scored_ends_with_one_result(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))  # of its own: nothing is cached
    agent = write_agent(tmp_path / "copycat", SUBMIT_COPY)
    task = write_task(tmp_path / "task", budget={"wall_clock_s": 600, "submissions": 5})
    root = new_trial(str(task), str(agent), 0, tmp_path / "trials", trial_id="killed")
    paths = TrialPaths(root)
    for card in ("base-test_public", "base-noise"):
        kill_when_there_is(root, root / "cards" / f".{card}.scratch")
    with sqlite3.connect(paths.grader_db) as database:  # else nothing beats the base, and there is no final card
        database.execute("UPDATE scores SET value = 1.0, high = 1.0")
    kill_when_there_is(root, root / "cards" / ".final-test_private.scratch")
    assert read_events(paths.trial_log).last("final_scored") is None
    resume_trial(root, quiet)
    evidence = read_evidence(root)
    assert evidence.agent_end is AgentEnd.EXITED
    assert evidence.final_submission == 1
    assert evidence.gain is not None and evidence.gain.change.n == 20
    names = [row["event"] for row in read_events(paths.trial_log).rows]
    assert names.count("agent_started") == names.count("agent_ended") == names.count("final_scored") == 1
    assert names.count("resumed") == 2
    assert names.count("base_scored") == 2
    with sqlite3.connect(paths.grader_db) as database:
        assert database.execute("SELECT COUNT(*) FROM scores").fetchone() == (1,)
    for model, split in (("base", Split.TEST_PUBLIC), ("base", Split.TEST_PRIVATE), ("final", Split.TEST_PRIVATE)):
        assert validate_card(paths.card(model, split)) == []


STOPS_ITSELF = """
import os, signal, sys, threading, time
from agent2.cli import main
path = sys.argv.pop()
def stop():
    while not os.path.exists(path):
        time.sleep(0.005)
    os.kill(os.getpid(), signal.SIGSTOP)
threading.Thread(target=stop, daemon=True).start()
main()
"""
"""Stands still as soon as a path exists: who looked from outside might look too late."""


def kill_when_there_is(root, path):
    """Run the trial in a process of its own and kill it with -9 as soon as a path exists."""
    with subprocess.Popen(
        [sys.executable, "-c", STOPS_ITSELF, "resume", str(root), str(path)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as harness:
        ends_at = time.monotonic() + 500
        while psutil.Process(harness.pid).status() != psutil.STATUS_STOPPED:
            assert harness.poll() is None, "it ended before it could be killed"
            assert time.monotonic() < ends_at, "it did not happen in time"
            time.sleep(0.02)
        children = psutil.Process(harness.pid).children(recursive=True)
        harness.send_signal(signal.SIGKILL)
    assert outlived(children) == [], "all dies with the harness"


def test_a_trial_that_died_between_any_two_events_ends_as_it_would_have(task, tmp_path):
    """Each copy of a finished trial has lost its last events, so everything that they tell of is there but not told."""
    root, whole = play(task, write_agent(tmp_path / "copycat", SUBMIT_COPY), tmp_path / "trials")
    lines = (root / "events" / "trial.jsonl").read_bytes().splitlines(keepends=True)
    names = [row["event"] for row in read_events(root / "events" / "trial.jsonl").rows]
    assert names[-1] == "finished"
    for n_kept in range(len(lines)):
        copy = tmp_path / "copies" / str(n_kept)
        shutil.copytree(root, copy, symlinks=True)
        (copy / "events" / "trial.jsonl").write_bytes(b"".join(lines[:n_kept]) + lines[n_kept][:20])
        if "agent_started" not in names[:n_kept]:
            (copy / "harness.alive").unlink()  # touched only once the start is told
        resume_trial(copy, quiet, restarts_agent=False)
        evidence = read_evidence(copy)
        after = f"after {names[:n_kept]}"
        ended = AgentEnd.INTERRUPTED if names[n_kept] == "agent_ended" else AgentEnd.EXITED
        assert evidence.agent_end is ended, after
        assert [s.score for s in evidence.submissions] == [s.score for s in whole.submissions], after
        assert (evidence.gain, evidence.base_private) == (whole.gain, whole.base_private), after
        assert (evidence.noise, evidence.final_submission) == (whole.noise, whole.final_submission), after
        with sqlite3.connect(copy / "grader.db") as database:
            assert database.execute("SELECT COUNT(*) FROM scores").fetchone() == (1,), after


@contextlib.contextmanager
def disk_of(folder, mebibytes):
    """A real file system of that size; gives a function that sets its size."""
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("only root can mount a small disk")
    try:
        yield lambda size: subprocess.run(["mount", "-o", f"remount,size={size}m", str(folder)], check=True)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def command_line(*arguments, home):
    return subprocess.run(
        [sys.executable, "-m", "agent2", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "AGENT2_HOME": str(home)},
    )


@pytest.mark.parametrize("which", ["out", "home"])
def test_too_small_a_disk_is_told_before_anything_starts(task, tmp_path, which):
    folders = {"out": tmp_path / "out", "home": tmp_path / "home"}
    with disk_of(folders[which], 40):
        ended = command_line("run", str(task), "--agent", "nop", "--out", str(folders["out"]), home=folders["home"])
        assert ended.returncode == 4
        (line,) = ended.stderr.splitlines()
        assert f"{folders[which]}: its disk has 0.04 GiB left" in line and "make room there" in line
        assert not any(folders["out"].glob("*"))


FILLS_THE_DISK = """
import os, time
print("begun", flush=True)
if not os.path.exists("/workspace/output/block"):
    open("/workspace/output/block", "w").close()
    time.sleep(5000)
"""


def test_a_disk_that_fills_up_while_the_agent_works_is_the_machines_fault_and_the_agent_gets_its_time_back(
    task, tmp_path
):
    """The disk shrinks under an agent that keeps within its limits."""
    out = tmp_path / "out"
    agent = write_agent(tmp_path / "innocent", FILLS_THE_DISK)
    with disk_of(out, 900) as resize:
        root = new_trial(task, str(agent), 0, out, trial_id="t")
        command = [sys.executable, "-m", "agent2", "resume", str(root)]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as harness:
            while harness.poll() is None and not (root / "workspace" / "output" / "block").exists():
                time.sleep(0.2)
            resize(64)
            stderr = harness.stderr.read()
        assert harness.returncode == 4, stderr
        assert "the host's disk has only" in stderr and f"resume with agent2 resume {root}" in stderr
        resize(900)
        resume_trial(root, quiet)
        evidence = read_evidence(root)
    assert evidence.agent_end is AgentEnd.EXITED
    (cut,) = evidence.interruptions
    assert "the machine failed" in cut.reason and "disk" in cut.reason


def test_an_agent_that_fills_its_own_share_of_the_disk_is_to_blame(task, tmp_path):
    program = """
        import time
        with open("/workspace/output/big", "wb") as file:
            for _ in range(300):
                file.write(bytes(2**20))
        time.sleep(5000)
    """
    agent = write_agent(tmp_path / "greedy", program)
    _, evidence = play(task, agent, tmp_path / "trials", "disk_gib=0.1")
    assert evidence.agent_end is AgentEnd.LIMIT
    assert "filled the workspace" in evidence.agent_end_reason
