"""The programs of the page on training: what they name is there, and what they use is made by an earlier one."""

import ast
import builtins
import importlib
import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "online-training.md").read_text()
PROGRAMS = [ast.parse(block) for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)]


def test_every_import_of_the_page_can_be_made():
    found = [node for program in PROGRAMS for node in ast.walk(program) if isinstance(node, ast.ImportFrom)]
    assert {node.module for node in found} >= {"agent2.training.offline", "agent2.training.online_grpo"}
    for node in found:
        for name in node.names:
            assert hasattr(importlib.import_module(node.module), name.name), f"{node.module}.{name.name}"


def test_the_first_two_programs_use_nothing_that_they_did_not_make():
    made = set(dir(builtins))
    for program in PROGRAMS[:2]:
        for node in ast.walk(program):
            if isinstance(node, ast.ImportFrom):
                made |= {name.asname or name.name for name in node.names}
        names = [node for node in ast.walk(program) if isinstance(node, ast.Name)]
        made |= {node.id for node in names if isinstance(node.ctx, ast.Store)}
        assert {node.id for node in names if isinstance(node.ctx, ast.Load)} <= made


def test_the_recipes_of_the_table_are_in_their_modules():
    rows = re.findall(r"^\| `(train_\w+)` \| `(agent2\.[\w.]+)` \|", PAGE, re.MULTILINE)
    assert len(rows) == 6
    for recipe, module in rows:
        assert callable(getattr(importlib.import_module(module), recipe))
