import re

import pytest
from pydantic import ValidationError

from agent2.arena.agents import InstallSpec, NpmPackage, TranscriptSpec, program_path
from agent2.errors import ConfigError

NPM = {"package": "tool", "version": "1.2.3", "program": "tool/bin/tool"}
PYTHON = {"package": "tool", "version": "1.2.3", "module": "tool"}


@pytest.mark.parametrize("sources", [{}, {"npm": NPM, "python": PYTHON}])
def test_exactly_one_source_is_named(sources):
    with pytest.raises(ValidationError, match="exactly one of npm and python"):
        InstallSpec.model_validate(sources)


def test_a_version_range_is_no_pin():
    with pytest.raises(ValidationError, match="version"):
        InstallSpec.model_validate({"npm": NPM | {"version": "^1.2.3"}})


@pytest.mark.parametrize(
    ("output", "is_pinned"),
    [
        ("tool 1.2.3", True),
        ("v1.2.3.", True),
        ("1.2.3 (Tool)", True),
        ("1.2.30", False),
        ("11.2.3", False),
        ("1.2.3.4", False),
    ],
)
def test_the_pinned_version_must_be_in_what_the_program_says(output, is_pinned):
    pattern = InstallSpec.model_validate({"npm": NPM}).version_pattern
    assert bool(re.search(pattern, output)) is is_pinned


def test_a_program_can_differ_between_machines():
    package = NpmPackage.model_validate(NPM | {"program": {"x86_64": "tool-x64/tool"}})
    assert program_path(package, "x86_64") == "tool-x64/tool"
    with pytest.raises(ConfigError, match=r"tool 1\.2\.3: has no program for riscv64; known: x86_64"):
        program_path(package, "riscv64")


def test_an_unknown_transcript_format_is_refused():
    with pytest.raises(ValidationError, match="format"):
        TranscriptSpec.model_validate({"format": "shorthand"})
