"""Who is killed and when: moments that follow from a seed, found by watching a trial's folder and processes.

The grader and the recorder are threads of the harness, so to kill one of them is to kill the harness while that one
is at work: in the middle of a snapshot, between a card and its score, between a commit and its log line.
"""

import contextlib
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import psutil

from agent2.arena.trial_folder import TrialPaths, read_events
from agent2.records import Split
from chaos.agent import N_SUBMISSIONS

LOOK_S = 0.001


class Victim(StrEnum):
    """Who is killed."""

    HARNESS = "harness"
    GRADER = "grader"
    CHILD = "evaluation child"
    RECORDER = "recorder"
    SERVER = "fork server"

    @property
    def is_replaced(self) -> bool:
        """The harness lives on and starts another one."""
        return self in (Victim.CHILD, Victim.SERVER)


@dataclass(frozen=True, slots=True)
class Moment:
    """When."""

    name: str
    has_come: Callable[[TrialPaths], bool]
    delay_s: float
    """From then to the kill."""


def choose(victim: Victim, rng: random.Random, trial_s: float) -> Moment:
    """A moment for a victim. trial_s: how long an undisturbed trial takes."""
    if victim is Victim.HARNESS:
        return Moment("any time", lambda paths: True, rng.uniform(0.05, 0.95 * trial_s))
    if victim.is_replaced:
        return Moment("any time of its life", lambda paths: True, rng.uniform(0.0, 0.8))
    name, has_come, longest_s = rng.choice(_grader(rng) if victim is Victim.GRADER else _recorder(rng))
    return Moment(name, has_come, rng.uniform(0, longest_s))


_Choice = tuple[str, Callable[[TrialPaths], bool], float]


def _grader(rng: random.Random) -> Sequence[_Choice]:
    number = rng.randint(1, N_SUBMISSIONS)
    return (
        ("snapshot", lambda paths: paths.submission(number).exists(), 0.01),
        ("snapshot, before the record", lambda paths: paths.snapshot(number).exists(), 0.02),
        ("evaluation", lambda paths: (paths.submission(number) / ".card.scratch").exists(), 0.6),
        ("card, before the score", lambda paths: paths.submission_card(number).exists(), 0.005),
        ("base", lambda paths: _scratch(paths, "base-test_public"), 0.4),
        ("private base", lambda paths: _scratch(paths, f"base-{Split.TEST_PRIVATE.value}"), 0.4),
        ("noise", lambda paths: _scratch(paths, "base-noise"), 0.8),
        ("final", lambda paths: _scratch(paths, f"final-{Split.TEST_PRIVATE.value}"), 0.4),
        ("final card", lambda paths: paths.card("final", Split.TEST_PRIVATE).exists(), 0.01),
    )


def _recorder(rng: random.Random) -> Sequence[_Choice]:
    n_lines, n_objects, n_events = rng.randint(1, N_SUBMISSIONS), rng.randint(3, 12), rng.randint(1, 6)
    return (
        ("repository made", lambda paths: (paths.revisions_git / "HEAD").exists(), 0.01),
        ("revision logged", lambda paths: _lines(paths.revisions_log) >= n_lines, 0.005),
        ("objects written", lambda paths: _entries(paths.revisions_git / "objects") >= n_objects, 0.005),
        ("processes sampled", lambda paths: _lines(paths.processes_log) >= 1, 1.0),
        ("event logged", lambda paths: _lines(paths.trial_log) >= n_events, 0.005),
    )


def _scratch(paths: TrialPaths, card: str) -> bool:
    return (paths.root / "cards" / f".{card}.scratch").exists()


def _lines(path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _entries(path) -> int:
    return sum(1 for _ in path.iterdir()) if path.exists() else 0


def kill_harness(pid: int, paths: TrialPaths, moment: Moment, is_alive: Callable[[], bool]) -> list[psutil.Process]:
    """Kill it at the moment; what was below it, or nothing if it ended before."""
    while not moment.has_come(paths):
        if not is_alive():
            return []
        time.sleep(LOOK_S)
    time.sleep(moment.delay_s)
    with contextlib.suppress(psutil.NoSuchProcess):
        harness = psutil.Process(pid)
        below = harness.children(recursive=True)
        if is_alive():
            harness.kill()
            return [harness, *below]
    return []


def kill_child(pid: int, victim: Victim, script: str, nth: int, moment: Moment, is_alive: Callable[[], bool]) -> bool:
    """Kill the nth evaluating child of a harness, some time after it began; false if it did not live that long.

    victim: the child, or the server that forked it.
    """
    seen_pids: list[int] = []
    while is_alive():
        for process in _evaluating(pid, script):
            if process.pid not in seen_pids:
                seen_pids.append(process.pid)
                if len(seen_pids) == nth:
                    time.sleep(moment.delay_s)
                    with contextlib.suppress(psutil.NoSuchProcess):
                        if process.is_running() and victim is Victim.SERVER:
                            process = process.parent().parent()  # between them is the one that waits
                        process.kill()
                        return True
                    return False
        time.sleep(0.01)
    return False


def _evaluating(pid: int, script: str) -> list[psutil.Process]:
    """The innermost processes that run the script."""
    evaluating = []
    with contextlib.suppress(psutil.NoSuchProcess):
        for process in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                started = script in process.cmdline() and process.name().startswith("python")
                if started or process.name() == Path(script).stem:  # the name of one that was forked
                    evaluating.append(process)
    return evaluating


def phase_of(paths: TrialPaths) -> str:
    """The last thing that the trial's own log tells."""
    rows = read_events(paths.trial_log).rows
    return str(rows[-1]["event"]) if rows else "nothing"
