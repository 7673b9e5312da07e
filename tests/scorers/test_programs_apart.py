"""Programs of one batch, in the real sandbox: none sees another one, what is expected, or what another one left."""

import json
import time

import pytest

from agent2.errors import Fault
from agent2.scorers import program_batches
from red_team.program_attacks import (
    EACH_FOLDER,
    FOLDERS,
    KILLS,
    LEAVES,
    LOOKS,
    NEIGHBOUR,
    PAYLOADS,
    VALUES,
    leaving,
    program_runner,
    results_of,
    returning,
    scores_of,
)

pytestmark = pytest.mark.slow


@pytest.fixture
def runner():
    with program_runner() as sandbox_runner:
        yield sandbox_runner


def test_the_worker_holds_nothing_but_the_pipe_for_its_own_results(runner):
    program = """
import os
def f():
    targets = []
    for name in os.listdir("/proc/self/fd"):
        try:
            targets.append(os.readlink(f"/proc/self/fd/{name}").partition(":")[0])
        except OSError:
            pass
    return sorted(target for target in targets if not target.startswith("/proc"))
"""
    ((kind, text),) = results_of(runner, program)
    assert (kind, text) == ("value", '["list", ["/dev/null", "/dev/null", "/dev/null", "pipe"]]')


REFUSED = {
    "message queue": (
        "import ctypes\nlibc = ctypes.CDLL(None)\nassert libc.mq_open(b'/left', 0o102, 0o600, None) < 0\n"
    ),
    "segment of System V": (
        "import ctypes\nlibc = ctypes.CDLL(None)\nassert libc.shmget(77, 4096, 0o1600) < 0\n"
        "assert libc.semget(77, 1, 0o1600) < 0 and libc.msgget(77, 0o1600) < 0\n"
    ),
}


@pytest.mark.parametrize("left", [*LEAVES, *REFUSED])
def test_a_program_ran_that_leaves_something_and_the_next_one_sees_what_the_first_one_saw(left, runner):
    before, left_it, after = results_of(runner, LOOKS, leaving((LEAVES | REFUSED)[left]), LOOKS)
    assert left_it == ("value", '"has left it"') and before[0] == "value"
    assert len(before[1]) > 100 and after == before


def test_a_folder_that_was_written_and_emptied_again_looks_like_one_that_was_not(runner):
    sees = f"{FOLDERS}\ndef f():\n    return [os.stat(path).st_mtime_ns for path in FOLDERS]"
    writes = EACH_FOLDER % "os.mkdir(folder + '/left'); os.rmdir(folder + '/left')"
    moved = []
    for top in ("", "import os; os.mkdir('/workspace/left'); os.rmdir('/workspace/left')", writes):
        before, _, after = (text for _, text in results_of(runner, sees, leaving(top), sees))
        moved.append([a != b for a, b in zip(json.loads(before)[1], json.loads(after)[1], strict=True)])
    assert len(moved[0]) >= 3
    assert moved[1:] == [moved[0], moved[0]]


def test_a_program_that_kills_server_and_monitor_is_wrong_and_its_neighbours_are_not_harmed(runner):
    kills = KILLS.format(signal="SIGKILL", pause=30)
    assert results_of(runner, NEIGHBOUR, kills, NEIGHBOUR) == [
        ("value", "1"),
        "ended the harness, or its time was over",
        ("value", "1"),
    ]


def test_a_program_that_stops_server_and_monitor_is_ended_from_outside_once_its_time_is_over(runner, monkeypatch):
    monkeypatch.setattr(program_batches, "END_S", 8.0)
    started = time.monotonic()
    stops = KILLS.format(signal="SIGSTOP", pause=600)
    assert results_of(runner, stops, NEIGHBOUR, timeout_s=2.0) == [
        "ended the harness, or its time was over",
        ("value", "1"),
    ]
    assert time.monotonic() - started < 300.0, "twice four times its time and END_S, about 32 s where nothing else runs"


def test_a_program_that_stops_only_the_monitor_ends_its_sandbox_at_once(runner):
    stops = """
import os, signal, time
for name in os.listdir("/proc"):
    if name.isdigit() and int(name) != os.getpid():
        with open(f"/proc/{name}/stat") as file:
            if int(file.read().rpartition(")")[2].split()[1]) == os.getppid():
                os.kill(int(name), signal.SIGSTOP)
time.sleep(6000)
"""
    started = time.monotonic()
    assert results_of(runner, stops, NEIGHBOUR, timeout_s=600.0) == [
        "ended the harness, or its time was over",
        ("value", "1"),
    ]
    assert time.monotonic() - started < 500.0


def test_values_go_through_descriptors_of_the_program_only(runner):
    """It cannot send its own descriptors to the monitor, which reads a pipe."""
    sends = """
import array, os, socket
def f():
    sent = 0
    for descriptor in range(3, 64):
        try:
            with socket.socket(fileno=os.dup(descriptor)) as channel:
                channel.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0]))])
                sent += 1
        except OSError:
            pass
    return sent
"""
    assert results_of(runner, sends, NEIGHBOUR) == [("value", "0"), ("value", "1")]


def test_a_loop_in_c_that_ignores_signals_does_not_outlive_its_time(runner):
    loop = (
        "import re, signal\nfor number in range(1, 65):\n    try: signal.signal(number, signal.SIG_IGN)\n"
        "    except (OSError, ValueError): pass\ndef f():\n    return re.match('(a+)+$', 'a' * 64 + 'b')"
    )
    started = time.monotonic()
    looping, neighbour = results_of(runner, loop, NEIGHBOUR, timeout_s=3.0)
    assert looping[0] in ("timeout", "raised") and neighbour == ("value", "1")
    assert time.monotonic() - started < 300.0


PLAINLY_WRONG = {
    "no number": "float('nan')",
    "an object that cannot be pickled": "(lambda: 1)",
    "keys with one hash": "{(2**61 - 1) * n: n for n in range(2000)}",
}


@pytest.mark.parametrize("payload", PAYLOADS, ids=["tests", "check"])
def test_values_that_cannot_be_compared_printed_or_sent_are_wrong_and_an_honest_neighbour_is_right(payload, runner):
    values = VALUES | PLAINLY_WRONG
    *scores, honest = scores_of(runner, *map(returning, values.values()), returning("[x]"), payload=payload)
    assert {name: score.value for name, score in zip(values, scores, strict=True)} == dict.fromkeys(values, 0.0)
    assert honest.value == 1.0


DEPENDENT = {
    "test": "def check(candidate):\n    n = candidate(2)\n    assert candidate(n) == 6\n",
    "entry_point": "f",
    "program": "def f(x):\n    return x + 2",
}
CHANGING = {
    "test": "import time\ndef check(candidate):\n"
    "    assert candidate(time.perf_counter_ns())\n    assert candidate(1) == 1",
    "entry_point": "f",
    "program": "def f(x):\n    return x",
}


def test_a_check_whose_calls_follow_from_answers_is_wrong_where_the_model_led_it_astray(runner):
    right, wrong = "def f(x):\n    return x + 2", "def f(x):\n    return x + 3"
    payload = {"check": DEPENDENT}
    scores = scores_of(runner, right, wrong, right + "  # again", payload=payload)
    assert [(score.value, score.fault) for score in scores] == [(1.0, None), (0.0, None), (1.0, None)]
    assert "other calls" in scores[1].reason


def test_a_check_that_makes_other_calls_each_time_is_the_judges_fault(runner):
    (score,) = scores_of(runner, "def f(x):\n    return x", payload={"check": CHANGING})
    assert (score.value, score.fault) == (None, Fault.JUDGE) and "other calls each time" in score.reason


def test_a_check_that_values_lead_into_an_endless_loop_is_wrong_and_others_are_judged(runner):
    check = {
        "test": "def check(candidate):\n    n = candidate(1)\n    while n != 1:\n        pass\n    assert n == 1\n",
        "entry_point": "f",
        "program": "def f(x):\n    return x",
    }
    programs = ["def f(x):\n    return 1", "def f(x):\n    return 2", "def f(x):\n    return x"]
    scores = scores_of(runner, *programs, payload={"check": check}, timeout_s=2.0)
    assert [score.value for score in scores] == [1.0, 0.0, 1.0] and "do not end" in scores[1].reason
