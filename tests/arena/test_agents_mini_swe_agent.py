"""The program around mini-swe-agent, with a stand-in that writes a trajectory as mini-swe-agent does."""

import json
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from agent2.arena.agents import load_agent

pytestmark = pytest.mark.slow

STAND_IN = """
    import json, pathlib, sys, time
    output = pathlib.Path(sys.argv[sys.argv.index("--output") + 1])
    messages = []
    for number in range(3):
        messages += [{"role": "assistant", "n": number}, {"role": "tool", "n": number}]
        output.write_text(json.dumps({"info": {}, "messages": messages}, indent=2))
        time.sleep(float(sys.argv[1]))
    print("over")
    sys.exit(int(sys.argv[2]))
"""


def start(tmp_path, *arguments):
    stand_in = tmp_path / "stand_in.py"
    stand_in.write_text(textwrap.dedent(STAND_IN))
    program = load_agent("mini-swe-agent").folder / "main.py"
    command = [sys.executable, str(program), sys.executable, str(stand_in), *arguments]
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def messages(text):
    rows = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return [message for row in rows for message in row["messages"]]


@pytest.mark.parametrize("pause", ["0", "1"])
def test_every_message_is_printed_once_and_the_status_passed_on(tmp_path, pause):
    process = start(tmp_path, pause, "3")
    text, _ = process.communicate(timeout=240)
    assert process.returncode == 3
    assert [(m["role"], m["n"]) for m in messages(text)] == [(r, n) for n in range(3) for r in ("assistant", "tool")]


def test_what_was_done_before_a_stop_is_printed(tmp_path):
    process = start(tmp_path, "600", "0")
    trajectory = tmp_path / "trajectory.json"
    while not (trajectory.exists() and trajectory.read_text().endswith("}")):
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    text, _ = process.communicate(timeout=240)
    assert process.returncode == 128 + signal.SIGTERM
    assert [m["n"] for m in messages(text)] == [0, 0]
