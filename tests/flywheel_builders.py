"""Evaluations by scripted players on `arithmetic`, for tests of rounds: no model, seconds."""

import json
from pathlib import Path

from cli_builders import run_agent2

PLAYERS = '''
def parts(messages):
    left, sign, right = messages[-1].content.removeprefix("Calculate ").split()
    return int(left), sign, int(right)


def solved(messages):
    left, sign, right = parts(messages)
    return str(left + right if sign == "+" else left - right)


def weak(messages):
    """Wrong at every subtraction, and without an answer to some sums."""
    left, sign, right = parts(messages)
    if sign == "-":
        return str(left + right)
    return "I do not know" if left > 70 else solved(messages)


def trained(messages):
    """As `weak`, and right at subtractions."""
    left, sign, right = parts(messages)
    return "I do not know" if sign == "+" and left > 70 else solved(messages)


def trained_elsewhere(messages):
    """As `weak`, and right at the sums."""
    left, sign, right = parts(messages)
    return weak(messages) if sign == "-" else solved(messages)


def scattered(messages):
    """Most often without an answer, by lot; else wrong at subtractions."""
    left, sign, right = parts(messages)
    return "I do not know" if (left * 7919 + right * 104729) % 97 < 45 else str(left + right)


def nearly(messages):
    """Wrong at the two hardest subtractions, and without an answer to one sum in ten."""
    left, sign, right = parts(messages)
    if sign == "-":
        return "0.5" if left - right > 60 else solved(messages)
    return "I do not know" if left % 10 == 3 else solved(messages)


def lost(messages):
    """Never right."""
    return "0.5"
'''


def play(folder: Path, checkpoint: str, out: str, *options: str, baseline: str = "solved") -> Path:
    """The folder of an evaluation of a scripted player; the installation is `folder / agent2`."""
    (folder / "players.py").write_text(PLAYERS)
    sides = ("--checkpoint", f"scripted:players.py:{checkpoint}", "--baseline", f"scripted:players.py:{baseline}")
    finished = run_agent2("eval", "arithmetic", *sides, "--out", out, *options, home=folder)
    assert (folder / out / "report.json").is_file(), finished.stderr
    return folder / out


def rows(file: Path) -> list[dict]:
    """The rows of an export."""
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]
