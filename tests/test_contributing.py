"""CONTRIBUTING.md and the workflow of CI name what is there: files, targets of the Makefile, Python versions."""

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yaml").read_text("utf-8"))
TARGETS = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))


def section(title):
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def named_files(text):
    """Paths of the checkout in code marks and links; names in capitals stand for any."""
    paths = re.findall(r"`([\w./-]+/[\w./-]*)`|\]\(([\w./-]+)\)|`(\w+\.(?:py|toml|txt|md))`", text)
    return [path for groups in paths for path in groups if path and not re.search(r"\b(ROOM|MODULE)", path)]


def test_every_file_that_the_page_names_is_there():
    rooms = ROOT / "src" / "agent2"
    gone = [name for name in named_files(PAGE) if not (ROOT / name).exists() and not (rooms / name).exists()]
    assert gone == []
    assert len(named_files(section("Adding things"))) > 20


def test_the_table_has_a_row_for_every_room_with_a_page_and_tests():
    rows = [line.split("|")[1:4] for line in section("Where to begin").splitlines() if line.startswith("| `")]
    listed = {name.rstrip("/") for subjects, _, _ in rows for name in re.findall(r"`([\w./]+)`", subjects)}
    rooms = {
        path.name
        for path in (ROOT / "src" / "agent2").iterdir()
        if not path.name.startswith("__") and path.name != "py.typed"
    }
    assert listed == rooms
    for subjects, pages, tests in rows:
        assert "](docs/" in pages and "`tests/" in tests, subjects


def test_things_to_add_are_named_with_their_files_docs_and_tests():
    steps = re.findall(r"^- \*\*(A (?:gate|detector|scorer|page))\*\*(.*?)(?=^- \*\*)", PAGE, re.MULTILINE | re.DOTALL)
    assert [name for name, _ in steps] == ["A gate", "A detector", "A scorer", "A page"]
    for name, text in steps:
        files = named_files(text)
        assert any(file.startswith("src/agent2/") for file in files) and any("tests/" in file for file in files), name
        assert any(file.startswith("docs/") for file in files), name


def test_commands_of_the_page_are_targets_of_the_makefile():
    named = set(re.findall(r"make ([a-z][\w-]*)", PAGE))
    assert named >= {"test-near", "check", "test-fast", "test"} and named <= TARGETS


def test_the_workflow_runs_on_every_supported_python_what_ci_runs():
    (job,) = WORKFLOW["jobs"].values()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    classifiers = [line.rpartition(" ")[2] for line in project["classifiers"] if "Python :: 3." in line]
    assert job["strategy"]["matrix"]["python"] == classifiers == ["3.11", "3.12", "3.13"]
    commands = [step["run"] for step in job["steps"] if step.get("run", "").startswith("make ")]
    run = [line for line in (ROOT / ".ci" / "run").read_text("utf-8").splitlines() if line.startswith("make ")]
    assert [command.replace(" PYTHON=python", "") for command in commands] == run
    assert {command.split()[1] for command in commands} <= TARGETS
