"""The statistics page names functions that are there."""

import re
from importlib import import_module
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "statistics.md").read_text()
NAMED = re.findall(r"`(?!agent2\.)([a-z_0-9]+)\.([a-z_0-9]+|\*)`", PAGE)
"""Module and function; * for all of a module."""


def test_every_function_on_the_page_exists():
    modules = {module: import_module(f"agent2.stats.{module}") for module, _ in NAMED}
    assert len(NAMED) > 30
    assert [f"{m}.{name}" for m, name in NAMED if name != "*" and not hasattr(modules[m], name)] == []


def test_every_module_for_a_question_is_on_the_page():
    inner = {"estimates", "stored", "__init__"}
    files = {path.stem for path in Path(import_module("agent2.stats").__file__).parent.glob("*.py")}
    assert files - inner <= {module for module, _ in NAMED}
