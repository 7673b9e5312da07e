"""The live screen: what it shows of a trial's folder, and that it degrades."""

import io
import json
import os
import pty
import subprocess
import sys
from types import SimpleNamespace

from rich.console import Console

from agent2.cli.live import ScreenState, SweepScreen, TrialScreen, gpu_line, gpu_lines, llm_line, look_at_trial
from agent2.errors import ConfigError
from builders import make_score
from web_builders import HOSTILE, write_trial

PROGRAM = """
import sys
from pathlib import Path
from agent2.cli.live import live_trial, live_sweep
live = live_trial if sys.argv[1] == "trial" else live_sweep
with live(Path(sys.argv[2])) as steps:
    steps("base model")
    steps("agent x (seconds)", 30, 300)
    steps("trials", 1, 2)
"""


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def rendered(screen, width=120):
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(screen.render())
    return console.file.getvalue()


def totals(**changes):
    fields = {"calls": 3, "tokens": SimpleNamespace(total=1200), "dollars": 0.5, "n_unknown_cost": 0, "n_failed": 0}
    return SimpleNamespace(**(fields | changes))


def test_the_screen_shows_phase_time_left_submissions_spending_and_gpus():
    state = ScreenState(
        title="codex driven by gpt on arithmetic, seed 0", base=make_score(0.25), submissions=["2  57.8%", "1  49.8%"],
        n_submissions=2, max_submissions=10, llm=totals(), max_tokens=5000, max_dollars=2.0, gpus=["0: 87%"],
    )  # fmt: skip
    clock = Clock()
    screen = TrialScreen("root", lambda root: state, clock)
    assert "preparing the trial" in rendered(TrialScreen("root", lambda root: ScreenState(), clock))
    screen("agent codex (seconds)", 30, 300)
    clock.now = 65.0
    output = rendered(screen)
    for text in (
        "codex driven by gpt on arithmetic", "agent codex, 65 s", "30 s of 5.0 min, 4.5 min left", "2 of 10",
        "2  57.8%", "25.0% on public items", "3 calls, 1,200 tokens of 5,000, $0.5000 of $2.0000", "0: 87%",
    ):  # fmt: skip
        assert text in output, text
    screen("final checkpoint on test_private")
    assert "min left" not in rendered(screen)
    screen("base model: 3 files", 1, 4)
    assert "1 of 4" in rendered(screen)


def test_what_cannot_be_read_leaves_what_was_seen_before():
    looks = iter([ScreenState(title="first"), ConfigError("half written"), OSError("gone"), KeyError("x")])

    def look(root):
        state = next(looks)
        if isinstance(state, Exception):
            raise state
        return state

    clock = Clock()
    screen = TrialScreen("root", look, clock)
    for clock.now in (0.0, 10.0, 20.0, 30.0):
        assert "first" in rendered(screen)
    assert next(looks, None) is None, "it has looked each time"


def test_an_unknown_cost_is_no_zero():
    assert "unknown + 3 calls of unknown cost" in llm_line(totals(dollars=None, n_unknown_cost=3), None, None)
    assert "0 calls" in llm_line(totals(calls=0, dollars=None), None, None)
    assert "$0.0000 of $1.0000" in llm_line(totals(calls=0, dollars=None), None, 1.0)
    assert "2 failed" in llm_line(totals(n_failed=2), None, None)


def test_gpus_are_told_where_they_are_given_and_can_be_asked():
    assert gpu_lines([]) == []
    assert gpu_line(1, 87, 2**30, 80 * 2**30) == "1: 87%, 1.0 of 80.0 GiB"


def test_a_trials_folder_is_read_while_it_grows(tmp_path):
    score = {"value": 0.25, "low": 0.2, "high": 0.3, "n_items": 100, "n_missing": 0}
    trial = write_trial(
        tmp_path / "t", {"event": "base_scored", "split": "test_public", "score": score}, {"event": "agent_started"}
    )
    config = json.loads((trial / "trial.json").read_text())
    config["task"]["budget"] = {"submissions": 5}
    (trial / "trial.json").write_text(json.dumps(config))
    state = look_at_trial(trial)
    assert state.base is not None and state.base.value == 0.25
    assert state.max_submissions == 5 and state.n_submissions == 0 and state.llm is None
    assert "arithmetic" in state.title and "\x1b" not in state.title and "\u202e" not in state.title
    assert HOSTILE not in rendered(TrialScreen(trial))


def test_a_sweep_shows_running_and_ended_trials_and_no_more_than_fit(tmp_path):
    for number in range(20):
        write_trial(tmp_path / "s" / "trials" / f"t{number}", {"event": "agent_started"})
    (tmp_path / "s" / "sweep.json").write_text('{"name": "s"}')
    clock = Clock()
    screen = SweepScreen(tmp_path / "s", clock)
    screen("trials", 3, 20)
    output = rendered(screen)
    assert (
        "sweep s: 3 of 20 trials ended" in output and "and 4 more" in output and "killed in its agent phase" in output
    )
    assert "trials ended" in rendered(SweepScreen(tmp_path / "none", clock)), "nothing is there yet"


def test_without_a_terminal_there_are_plain_lines(tmp_path):
    for kind in ("trial", "sweep"):
        command = [sys.executable, "-c", PROGRAM, kind, str(tmp_path / "none")]
        ended = subprocess.run(command, capture_output=True, text=True, check=True)
        lines = [line[9:] for line in ended.stderr.splitlines()]
        assert lines == ["base model", "agent x (seconds) 30/300", "trials 1/2"] and ended.stdout == ""


def test_a_terminal_gets_the_screen(tmp_path):
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", PROGRAM, "trial", str(tmp_path / "none")]
    program = subprocess.Popen(command, stderr=theirs, env=os.environ | {"TERM": "xterm", "COLUMNS": "100"})
    os.close(theirs)
    output = b""
    try:
        while part := os.read(ours, 65536):
            output += part
    except OSError:  # the program has closed the terminal
        pass
    os.close(ours)
    assert program.wait() == 0
    assert b"preparing the trial" in output and b"trials" in output
