"""The page of environment variables against what the source reads."""

import re
from pathlib import Path

from agent2.llm.gateway.settings import PROVIDERS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "environment-variables.md").read_text()


def test_every_variable_of_ours_in_the_source_is_on_the_page_and_no_other():
    files = [*(ROOT / "src").rglob("*.py"), *(ROOT / "src").rglob("*.yaml")]
    in_source = {name for path in files for name in re.findall(r"\bAGENT2_[A-Z_]+\b", path.read_text())}
    assert set(re.findall(r"\bAGENT2_[A-Z_]+\b", PAGE)) == in_source


def test_every_variable_that_the_source_reads_by_a_plain_name_is_on_a_page():
    read = re.compile(r"os\.environ(?:\.get\(|\[)\s*f?\"([A-Z][A-Z0-9_]+)\"")
    in_source = {name for path in (ROOT / "src").rglob("*.py") for name in read.findall(path.read_text())}
    assert in_source >= {"AGENT2_HOME", "MODEL_PATH", "DOCKER_HOST"}
    pages = PAGE + (ROOT / "docs" / "how-to" / "add-an-agent.md").read_text()
    not_ours = {"HOME", "PYTHONPATH"}  # of the machine and of Python, not settings of agent2
    assert {name for name in in_source - not_ours if f"`{name}`" not in pages and f"${name}" not in pages} == set()


def test_the_keys_of_all_providers_are_on_the_page():
    assert {f"`{known.api_key_env}`" for known in PROVIDERS.values()} <= set(re.findall(r"`[A-Z_]+`", PAGE))
