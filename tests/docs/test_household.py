"""The examples of docs/household.md, followed to the letter."""

import re
from pathlib import Path

import pytest

from agent2.analysis.outcome import read_outcome
from agent2.benchmarks import BENCHMARKS
from agent2.cli import main
from agent2.contract.suite_files import load_suite
from agent2.evaluation.suite_plan import SuiteRequest
from agent2.evaluation.suite_run import run_suite
from agent2.models.sources import find_checkpoint

PAGE = (Path(__file__).parents[2] / "docs" / "household.md").read_text(encoding="utf-8")
PLAYERS = """
from agent2.benchmarks.household import expert

DENIED = "Permission denied: look around first."


def careful(chat):
    if len(chat) > 3 and chat[-3].content == DENIED:
        return chat[-4].content
    return "look" if chat[-1].content in (DENIED, "") else expert(None, chat)


def stunned(chat):
    is_broken = any(m.content == "" or m.content.startswith(("Timeout", "Perm")) for m in chat)
    return "dance" if is_broken else expert(None, chat)
"""


def block(language, containing):
    """The one block of a language that contains a text."""
    (found,) = [text for text in re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL) if containing in text]
    return found


def test_every_benchmark_has_its_row():
    rows = set(re.findall(r"^\| `(household\w*)` \|", PAGE, re.MULTILINE))
    assert rows == {name for name in BENCHMARKS if name.startswith("household")}


@pytest.mark.engine
def test_the_suite_of_the_page_measures_recovery_and_its_card_can_be_played_again(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "players.py").write_text(PLAYERS)
    (tmp_path / "household_recovery.yaml").write_text(block("yaml", "household_recovery"))
    out = Path("evaluations/recovery")
    request = SuiteRequest(
        suite=load_suite("household_recovery.yaml"),
        baseline=find_checkpoint("scripted:players.py:stunned"),
        checkpoint=find_checkpoint("scripted:players.py:careful"),
        out=out,
    )
    run_suite(request)
    recovery = read_outcome(out).evidence.metrics["recovery_rate"]
    assert (recovery.old, recovery.new) == (0.0, 1.0)
    (line,) = re.findall(r"^agent2 (cards replay .* --check)$", PAGE, re.MULTILINE)
    monkeypatch.setattr("sys.argv", ["agent2", *line.replace("--id ITEM", "--n 1").split()])
    with pytest.raises(SystemExit) as left:
        main()
    assert (left.value.code or 0) == 0
    assert "played again: the same opening, observations and final state" in capsys.readouterr().out
