"""`agent2 skill`: what it prints names what exists, and its program works as it stands."""

import json
import re

import pytest
import typer
from typer.testing import CliRunner

from agent2.cli import app
from agent2.cli.skill import KEYWORDS, NAME, commands_of
from trial_builders import write_agent, write_task

N_ITEMS = {"dev": 10, "test_public": 20, "test_private": 20}

FOLLOWER = """
import re

skill = open("/agent/SKILL.md", encoding="utf-8").read()
(section,) = re.findall(r"## In a workspace\\n(.*?)\\n## ", skill, re.S)
(program,) = re.findall(r"```python\\n(.*?)```", section, re.S)
exec(compile(program, "SKILL.md", "exec"))
"""
"""An agent that does what the skill says, and nothing else."""


@pytest.fixture(scope="module")
def skill() -> str:
    return CliRunner().invoke(app, ["skill"]).stdout


def test_it_has_the_name_and_the_words_that_call_for_it(skill):
    header = skill.split("---")[1]
    assert f"\nname: {NAME}\n" in header
    assert "\ndescription: " in header
    assert [word for word in KEYWORDS if word not in skill] == []


def test_its_table_has_every_command_once_and_no_other(skill):
    named = re.findall(r"^\| `agent2 ([^`]+)` \|", skill, re.M)
    program = typer.main.get_command(app)
    assert isinstance(program, typer.core.TyperGroup)
    assert named == [name for name, _ in commands_of(program)]
    assert len(named) == len(set(named)) > 60
    assert {"run", "suite list", "skill"} <= set(named)


def test_it_is_written_into_a_folder_of_skills_and_again(tmp_path, skill):
    for _ in range(2):
        written = CliRunner().invoke(app, ["skill", "--out", str(tmp_path)])
        assert written.exit_code == 0
    path = tmp_path / NAME / "SKILL.md"
    assert written.stdout.strip() == str(path)
    assert path.read_text(encoding="utf-8") == skill


def test_another_skill_of_that_folder_is_kept(tmp_path):
    path = tmp_path / NAME / "SKILL.md"
    path.parent.mkdir()
    path.write_text("---\nname: mine\n---\n", encoding="utf-8")
    refused = CliRunner().invoke(app, ["skill", "--out", str(tmp_path)])
    assert refused.exit_code
    assert "is another skill" in str(refused.exception)
    assert path.read_text(encoding="utf-8") == "---\nname: mine\n---\n"


@pytest.mark.slow
def test_an_agent_that_follows_it_hands_in_a_scored_submission(tmp_path, skill):
    agent = write_agent(tmp_path / "follower", FOLLOWER, SKILL__md=skill)
    task = write_task(tmp_path, base_model="tiny-arithmetic", n_items={**N_ITEMS, "train": 100})
    out = tmp_path / "trials"
    ran = CliRunner().invoke(app, ["run", str(task), "--agent", str(agent), "--out", str(out)])
    assert ran.exit_code == 0, ran.output
    (trial,) = out.iterdir()
    record = json.loads((trial / "report" / "report.json").read_text(encoding="utf-8"))["trial"]
    assert [submission["state"] for submission in record["submissions"]] == ["scored"]
    assert record["design"]["algorithm"].startswith("rejection sampling")
