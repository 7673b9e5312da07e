"""Who changes a module finds its tests under its name: test files mirror modules, or are on the list of topics."""

from pathlib import Path

TESTS = Path(__file__).parent
ROOT = TESTS.parent
TOPICS = TESTS / "topics.txt"
ELSEWHERE = {"docs": ["docs", "docs/how-to"], "examples": ["examples"], "scripts": ["scripts", "benchmarks"]}
"""Folders of tests that mirror no room of the package."""


def subjects(folder: Path, root: Path = ROOT) -> set[str]:
    """Names that test files in a folder below tests/ may bear: its modules, its subpackages and its own."""
    first, *inner = folder.parts or [""]
    if first in ELSEWHERE:
        files = (file for name in ELSEWHERE[first] for file in (root / name).iterdir())
        return {file.stem.replace("-", "_") for file in files if file.suffix in {".py", ".md"}}
    room = root / "src" / "agent2" / first / Path(*inner)
    modules = {path.stem for path in room.glob("*.py")} - {"__init__"}
    packages = {path.parent.name for path in room.glob("*/__init__.py")}
    return modules | packages | ({folder.name} if (room / "__init__.py").is_file() else set())


def mirrors(test: Path, root: Path = ROOT) -> bool:
    """Whether a test file, relative to tests/, is named after what it tests, with or without a topic."""
    name = test.stem.removeprefix("test_")
    return any(name == subject or name.startswith(f"{subject}_") for subject in subjects(test.parent, root))


def test_every_test_file_bears_the_name_of_a_module_or_is_on_the_list_of_topics():
    topics = {line.split()[0] for line in TOPICS.read_text("utf-8").splitlines() if not line.startswith("#")}
    others = {
        path.relative_to(TESTS).as_posix() for path in TESTS.rglob("test_*.py") if not mirrors(path.relative_to(TESTS))
    }
    assert sorted(others - topics) == [], "name it test_<module>.py or test_<module>_<topic>.py, in its room's folder"
    assert sorted(topics - others) == [], f"on the list in {TOPICS.name}, but gone or named after a module"


def test_a_file_of_a_module_that_is_gone_or_elsewhere_is_noticed(tmp_path):
    for name in ("src/agent2/stats/__init__.py", "src/agent2/stats/gains.py", "src/agent2/stats/deep/__init__.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    for name in ("stats/test_gains", "stats/test_gains_few_items", "stats/test_deep", "stats/test_stats"):
        assert mirrors(Path(f"{name}.py"), tmp_path), name
    for name in (
        "stats/test_measure",
        "stats/test_gainsay",
        "test_gains",
        "stats/deep/test_gains",
        "stats/test___init__",
    ):
        assert not mirrors(Path(f"{name}.py"), tmp_path), name
