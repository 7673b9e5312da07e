import os
import subprocess
import sys
import time

import pytest

from agent2.sandbox.backends import Contained, EndedBy, run_contained
from agent2.sandbox.processor_time import ProcessorLimit, ProcessorMeter


def test_a_limit_counts_processor_time_and_ends_what_stands_idle():
    limit = ProcessorLimit(cpu_s=60, idle_s=100)
    assert limit.passed_by(59.9, 5_000) is None, "a busy machine: eighty times as long on the clock"
    assert limit.passed_by(60.0, 61) == "it used 60 s of processor time"
    assert limit.passed_by(0.0, 99) is None
    assert limit.passed_by(0.9, 100) == "it was idle: 0.9 s of processor time in 100 s"
    assert limit.passed_by(1.1, 100) is None
    assert limit.passed_by(None, 5_000) is None, "not measured: the clock alone decides"


def test_a_meter_counts_children_that_ended_and_never_less_than_before():
    meter = ProcessorMeter()
    assert meter.look([]) is None and meter.used_s is None
    before = meter.look([os.getpid()])
    assert before is not None
    subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.3: pass"], check=True)
    after = meter.look([os.getpid()])
    assert after is not None and after >= before + 0.2
    assert meter.look([2**22 + 1]) == after, "all of its processes are gone"


def _contained(folder, program: str) -> Contained:
    return Contained(("python", "-c", program), folder / "scratch", folder / "log")


SPINS_IN_A_CHILD = """
import os
if os.fork():
    os.wait()
while True:
    pass
"""


@pytest.mark.parametrize("as_root", [pytest.param(True, id="own-user"), pytest.param(False, id="user-namespace")])
def test_processor_time_ends_a_program_by_what_its_children_use(make_sandbox, tmp_path, as_root):
    limit = ProcessorLimit(cpu_s=0.5, idle_s=1e6)
    end = run_contained(_contained(tmp_path, SPINS_IN_A_CHILD), make_sandbox(as_root), timeout_s=600, processor=limit)
    assert end.ended_by is EndedBy.PROCESSOR
    assert end.reason == "the program was killed because it used 0.5 s of processor time"
    assert end.used_s is not None and end.used_s >= 0.5


def test_a_program_that_sleeps_for_ever_is_ended(make_sandbox, tmp_path):
    # what a start of Python takes is a share of it that falls with the time, so it ends at the latest after a minute
    limit = ProcessorLimit(cpu_s=1e6, idle_s=1)
    program = _contained(tmp_path, "import time; time.sleep(1e6)")
    end = run_contained(program, make_sandbox(True), timeout_s=600, processor=limit)
    assert end.ended_by is EndedBy.PROCESSOR and "it was idle" in end.reason


STOPS_ITSELF = """
import os, signal, time
program = os.getpid()
if os.fork() == 0:
    time.sleep(4)
    while os.getppid() == program:
        os.kill(program, signal.SIGCONT)
        time.sleep(0.1)
    os._exit(0)
os.kill(os.getpid(), signal.SIGSTOP)
print("went on")
"""


def test_a_program_that_was_made_to_wait_for_longer_than_its_limit_keeps_its_time(make_sandbox, tmp_path):
    limit = ProcessorLimit(cpu_s=3.9, idle_s=600)
    started = time.monotonic()
    end = run_contained(_contained(tmp_path, STOPS_ITSELF), make_sandbox(True), timeout_s=600, processor=limit)
    assert time.monotonic() - started > limit.cpu_s, "as long as on a busy machine"
    assert (end.ended_by, end.code, end.stdout) == (EndedBy.ITSELF, 0, b"went on\n"), end.reason
