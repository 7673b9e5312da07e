"""The page on agents with an LLM: its sweep is planned, and its commands take the options that it names."""

import re
from pathlib import Path

from typer.testing import CliRunner

from agent2.arena.sweep import SweepSpec, plan_trials
from agent2.cli import app
from agent2.config import parse_yaml

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "run-agents-with-an-llm.md").read_text()


def test_the_sweep_of_the_page_is_planned_as_it_says():
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    planned = plan_trials(parse_yaml(text, SweepSpec, "the page"))
    assert len(planned) == 3 * (2 * 2 + 1)
    assert {trial.driver_name for trial in planned if trial.agent_name == "grpo"} == {None}


def test_every_option_of_the_page_is_one_of_its_command():
    commands = re.findall(r"agent2 ((?:agents )?[a-z]+)\b([^\n`]*)", PAGE)
    assert {name for name, _ in commands} >= {"run", "intervene", "share", "agents install"}
    for name, rest in commands:
        words = name.split() if name.startswith("agents") else [name]
        known = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"})
        assert known.exit_code == 0, name
        for option in re.findall(r"--[a-z-]+", rest):
            assert option in known.output, f"{name} {option}"
