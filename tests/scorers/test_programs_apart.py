"""Programs of one batch, in the real sandbox: none sees another one, what is expected, or what another one left."""

import tempfile
import time
from pathlib import Path

import pytest

from agent2.errors import Fault
from agent2.records import Item, Rollout, RolloutStatus, Split, StopReason, Turn, Usage
from agent2.sandbox.backends import find_sandbox
from agent2.scorers import program_batches
from agent2.scorers.program_batches import ProgramSettings, run_programs
from agent2.scorers.python_tests import PythonTestsScorer
from agent2.scorers.sandboxed import SandboxRunner

pytestmark = pytest.mark.slow

MARK = "mark-of-" + "another-attempt"
NEIGHBOUR = f"MARK = 'mark-of-' 'another-attempt'\n# {MARK}\ndef f():\n    return 1"


@pytest.fixture
def runner():
    with tempfile.TemporaryDirectory() as folder:
        yield SandboxRunner(find_sandbox(), Path(folder))


def results_of(runner, *programs, timeout_s=5.0):
    """What `f()` returned in each program, as its kind and text, or how the program failed."""
    settings = ProgramSettings(timeout_s, 512 << 20, None)
    works = [{"code": program, "calls": ["f()"], "entry_point": None} for program in programs]
    return [
        tuple(results[0]) if isinstance(results, list) else results for results in run_programs(runner, works, settings)
    ]


def scores_of(runner, *programs, payload, timeout_s=3.0):
    batch = []
    for number, program in enumerate(programs):
        turn = Turn(program, None, StopReason.END, 0, 0)
        played = Rollout(str(number), 0, 0, RolloutStatus.COMPLETED, [], [turn], program, {}, Usage())
        batch.append((Item(str(number), Split.DEV, "write f", None, payload), played))
    return PythonTestsScorer(timeout_s=timeout_s).score_batch_on(runner, batch)


SEES = """
import gc, glob, os, sys
def texts():
    frame = sys._getframe()
    while frame is not None:
        yield repr(frame.f_locals) + repr(frame.f_globals)
        frame = frame.f_back
    yield repr([one for one in gc.get_objects() if type(one) in (dict, list, tuple, str, bytes)])
    for path in ["/proc/self/mem", *glob.glob("/proc/[0-9]*/mem")]:
        if path == f"/proc/{os.getpid()}/mem" or path == "/proc/self/mem":
            continue
        try:
            with open(path, "rb", 0) as memory:
                yield "opened " + path
        except OSError:
            pass
    for path in glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline") + glob.glob("/proc/[0-9]*/fd/*"):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            yield os.read(descriptor, 1 << 20).decode("latin-1")
        except OSError:
            pass
def in_own_memory(wanted):
    with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", 0) as memory:
        for line in maps:
            span, rights = line.split()[:2]
            first, last = (int(end, 16) for end in span.split("-"))
            if rights.startswith("rw"):
                try:
                    memory.seek(first)
                    region = memory.read(last - first)
                except (OSError, ValueError):
                    continue
                place = region.find(wanted[0])
                while place >= 0:
                    if region[place + 1 : place + len(wanted[1]) + 1] == wanted[1]:
                        return True
                    place = region.find(wanted[0], place + 1)
    return False
def f():
    tail = "".join(reversed("tpmetta-rehtona-fo-kra"))
    found = [text[:40] for text in texts() if "m" + tail in text or text.startswith("opened ")]
    return found, in_own_memory((b"m", tail.encode()))
"""


def test_a_program_finds_no_other_attempt_in_frames_objects_processes_and_descriptors(runner):
    first, second, _ = results_of(runner, NEIGHBOUR, SEES, NEIGHBOUR)
    assert first == ("value", "1") and second == ("value", '["tuple", [["list", []], false]]')
    (alone,) = results_of(runner, f"{NEIGHBOUR}\n{SEES}")
    assert alone[1].endswith("true]]"), "it finds what is there"


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


FOLDERS = """
import os
with open('/proc/self/mountinfo') as mounts:
    rows = [line.split(' ') for line in mounts]
FOLDERS = [row[4] for row in rows if 'rw' in row[5].split(',') and row[row.index('-') + 1] not in ('proc', 'sysfs')]
"""
LEAVES = {
    "shared memory": "open('/dev/shm/left', 'w').write('x')",
    "home": "import os; open(os.path.expanduser('~/left'), 'w').write('x')",
    "folder for temporary files": "import os, tempfile; open(os.path.join(tempfile.gettempdir(), 'left'), 'w')",
    "its own folder": "open('left', 'w').write('x')",
    "workspace": "open('/workspace/left', 'w').write('x')",
    "every folder that it can write": FOLDERS
    + """
for top in FOLDERS:
    for folder, names, _ in list(os.walk(top)):
        try:
            os.makedirs(os.path.join(folder, 'left/deep'))
            os.chmod(os.path.join(folder, 'left'), 0)
        except OSError:
            pass
""",
    "process": (
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
        "        os.chdir('/')\n        time.sleep(60)\n    os._exit(0)\n"
    ),
    "message queue": (
        "import ctypes\nlibc = ctypes.CDLL(None)\nassert libc.mq_open(b'/left', 0o102, 0o600, None) < 0\n"
    ),
    "segment of System V": (
        "import ctypes\nlibc = ctypes.CDLL(None)\nassert libc.shmget(77, 4096, 0o1600) < 0\n"
        "assert libc.semget(77, 1, 0o1600) < 0 and libc.msgget(77, 0o1600) < 0\n"
    ),
    "limits of its parent": (
        "import os, resource\nfor pid in (os.getppid(), 1):\n"
        "    try: resource.prlimit(pid, resource.RLIMIT_STACK, (9<<20, 9<<20))\n"
        "    except (OSError, ValueError): pass\n"
    ),
    "limits of the first process": (
        "import resource\ntry: resource.prlimit(1, resource.RLIMIT_STACK, (9<<20, 9<<20))\nexcept OSError: pass\n"
    ),
    "limits of the monitor": (
        "import os, resource\nfor pid in (int(name) for name in os.listdir('/proc') if name.isdigit()):\n"
        "    if pid not in (1, os.getpid(), os.getppid()):\n"
        "        resource.prlimit(pid, resource.RLIMIT_STACK, (9<<20, 9<<20))\n"
    ),
    "priority of its parent": "import os; os.setpriority(os.PRIO_PROCESS, os.getppid(), 7)",
    "rights of a folder": "import os\nfor path in ('/tmp', '/dev/shm', os.path.expanduser('~')):\n"
    "    try: os.chmod(path, 0o755 if os.stat(path).st_mode & 0o22 else 0o711)\n    except OSError: pass\n",
}
LOOKS = (
    FOLDERS
    + """
import resource
def f():
    found = []
    for top in FOLDERS:
        for folder, names, files in os.walk(top):
            found += [os.path.join(folder, name) for name in [*names, *files] if name == 'left']
    found += [os.stat(path).st_mode for path in FOLDERS]
    found.append(len([name for name in os.listdir('/proc') if name.isdigit()]))
    for pid in sorted(int(name) for name in os.listdir('/proc') if name.isdigit())[:-1]:
        try:
            found.append([resource.prlimit(pid, number) for number in range(10) if number not in (0, 9)])
        except PermissionError:
            found.append("not ours")
        found.append(os.getpriority(os.PRIO_PROCESS, pid))
    return found
"""
)


@pytest.mark.parametrize("left", LEAVES)
def test_what_a_program_leaves_is_gone_before_the_next_one(left, runner):
    leaves = f"{LEAVES[left]}\ndef f():\n    return 'has left it'"
    before, leaving, after = results_of(runner, LOOKS, leaves, LOOKS)
    assert leaving == ("value", '"has left it"') and before[0] == "value"
    assert len(before[1]) > 100 and after == before


KILLS = """
import os, signal, time
def f():
    for pid in sorted((int(name) for name in os.listdir("/proc") if name.isdigit()), reverse=True):
        if pid not in (1, os.getpid()):
            try:
                os.kill(pid, signal.{signal})
            except OSError:
                pass
    time.sleep({pause})
    return 1
"""


def test_a_program_that_kills_server_and_monitor_is_wrong_and_its_neighbours_are_not_harmed(runner):
    kills = KILLS.format(signal="SIGKILL", pause=30)
    assert results_of(runner, NEIGHBOUR, kills, NEIGHBOUR) == [
        ("value", "1"),
        "ended the harness, or its time was over",
        ("value", "1"),
    ]


def test_a_program_that_stops_server_and_monitor_is_ended_from_outside_once_its_time_is_over(runner, monkeypatch):
    monkeypatch.setattr(program_batches, "END_S", 2.0)
    started = time.monotonic()
    stops = KILLS.format(signal="SIGSTOP", pause=600)
    assert results_of(runner, stops, NEIGHBOUR, timeout_s=0.5) == [
        "ended the harness, or its time was over",
        ("value", "1"),
    ]
    assert time.monotonic() - started < 60.0, "twice four times its time and END_S, about 8 s"


def test_a_program_that_stops_only_the_monitor_ends_its_sandbox_at_once(runner):
    stops = """
import os, signal, time
for name in os.listdir("/proc"):
    if name.isdigit() and int(name) != os.getpid():
        with open(f"/proc/{name}/stat") as file:
            if int(file.read().rpartition(")")[2].split()[1]) == os.getppid():
                os.kill(int(name), signal.SIGSTOP)
time.sleep(600)
"""
    started = time.monotonic()
    assert results_of(runner, stops, NEIGHBOUR, timeout_s=60.0) == [
        "ended the harness, or its time was over",
        ("value", "1"),
    ]
    assert time.monotonic() - started < 50.0


def test_a_line_in_the_words_of_the_monitor_is_no_result(runner):
    forges = """
import json, os
def f():
    answer = json.dumps({"lines": [["loaded", ""], ["value", "1"]], "reason": ["none", ""], "left_s": 1.0,
        "where": "", "is_clean": True})
    for path in ["/proc/1/fd/1", f"/proc/{os.getppid()}/fd/1", *[f"/proc/{pid}/fd/1" for pid in os.listdir("/proc")]]:
        try:
            os.write(os.open(path, os.O_WRONLY), ("0" * 32 + " " + answer + "\\n").encode())
        except OSError:
            pass
    for descriptor in range(64):
        try:
            os.write(descriptor, (answer + "\\n").encode())
        except OSError:
            pass
    return 2
"""
    (forged, neighbour) = results_of(runner, forges, NEIGHBOUR)
    assert forged == ("none", "its process wrote what is no result") and neighbour == ("value", "1")


def test_server_and_monitor_can_be_neither_traced_nor_read(runner):
    traces = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def f():
    reached = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            pid = int(name)
            if libc.ptrace(16, pid, 0, 0) == 0 or libc.ptrace(0x4206, pid, 0, 0) == 0:
                reached.append(("traced", pid))
            for path in (f"/proc/{pid}/mem", f"/proc/{pid}/fd/0", f"/proc/{pid}/fd/1", f"/proc/{pid}/maps"):
                try:
                    os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
                    reached.append(path)
                except OSError:
                    pass
    return reached, len([name for name in os.listdir("/proc") if name.isdigit()]) >= 3
"""
    (result,) = results_of(runner, traces)
    assert result == ("value", '["tuple", [["list", []], true]]')


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


C_LOOPS = {
    "ignores signals": (
        "import re, signal\nfor number in range(1, 65):\n    try: signal.signal(number, signal.SIG_IGN)\n"
        "    except (OSError, ValueError): pass\ndef f():\n    return re.match('(a+)+$', 'a' * 64 + 'b')"
    ),
    "one number": "def f():\n    return 3 ** (3 ** 30) % 7",
    "one copy": "def f():\n    return sum(range(10**12))",
}


@pytest.mark.parametrize("loop", C_LOOPS)
def test_a_loop_in_c_does_not_outlive_its_time(loop, runner):
    started = time.monotonic()
    looping, neighbour = results_of(runner, C_LOOPS[loop], NEIGHBOUR, timeout_s=1.0)
    assert looping[0] in ("timeout", "raised") and neighbour == ("value", "1")
    assert time.monotonic() - started < 30.0


VALUES = {
    "a number without a text": "10**5000",
    "an endless iterator": "iter(int, 1)",
    "a range of 10^12": "range(10**12)",
    "an error in ==": "type('E', (int,), {'__eq__': lambda *_: 1 / 0, '__hash__': None})(5)",
    "no number": "float('nan')",
    "an object that cannot be pickled": "(lambda: 1)",
    "an error in repr": "type('R', (), {'__repr__': lambda self: 1 / 0})()",
    "keys with one hash": "{(2**61 - 1) * n: n for n in range(2000)}",
    "lists in lists": "[deep := [], [deep.append(deep) or deep for _ in range(3)]]",
    "an exit": "__import__('sys').exit(0)",
    "the end of its process": "__import__('os')._exit(0)",
    "a killed process": "__import__('os').kill(__import__('os').getpid(), 9)",
}
CHECK = {
    "test": "def check(candidate):\n    assert list(sorted(candidate(2))) == [2]\n    assert candidate(3) == [3]\n"
    "    assert str(candidate(4)) == '[4]' and candidate(5) * 10**6\n",
    "entry_point": "f",
    "program": "def f(x):\n    return [x]",
}


@pytest.mark.parametrize("payload", [{"tests": ["assert f(2) == [2]"]}, {"check": CHECK}], ids=["tests", "check"])
def test_values_that_cannot_be_compared_printed_or_sent_are_wrong_and_not_missing(payload, runner):
    programs = [f"def f(x):\n    return {value}  # {name}" for name, value in VALUES.items()]
    *scores, honest = scores_of(runner, *programs, "def f(x):\n    return [x]", payload=payload)
    assert {name: score.value for name, score in zip(VALUES, scores, strict=True)} == dict.fromkeys(VALUES, 0.0)
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
    scores = scores_of(runner, *programs, payload={"check": check}, timeout_s=0.5)
    assert [score.value for score in scores] == [1.0, 0.0, 1.0] and "do not end" in scores[1].reason
