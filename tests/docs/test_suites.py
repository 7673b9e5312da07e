"""The examples of docs/suites.md are what they say."""

import re
from pathlib import Path

from agent2.config import read_yaml_text
from agent2.contract.suite_files import expand, suite_names
from agent2.scorers.task_set import parse_task_set

PAGE = (Path(__file__).parents[2] / "docs" / "suites.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_suite_of_the_page_is_sound_with_and_without_its_own_gates():
    suite, gates = blocks("yaml")
    assert expand(read_yaml_text(suite, "page")).suite.id == "my_math-v2.0"
    assert len(expand(read_yaml_text(suite + gates, "page")).suite.gates) == 6


def test_the_task_set_of_the_page_can_be_read():
    (tasks,) = blocks("json")
    assert parse_task_set(tasks, "page").warnings == ()


def test_every_packaged_suite_has_its_row():
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) >= set(suite_names())
