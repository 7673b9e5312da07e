"""Which test files `make test-near` runs, on a small tree of files."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "near_tests.py"


def load():
    spec = importlib.util.spec_from_file_location("near_tests_script", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


near_tests = load()

TREE = {
    "src/agent2/shapes/area.py": "import math",
    "src/agent2/shapes/inner.py": "",
    "src/agent2/shapes/outline.py": "from agent2.shapes import area, inner\nPAGE = 'outline.html.j2'",
    "src/agent2/shapes/templates/outline.html.j2": "",
    "src/agent2/shapes/templates/style.css": "",
    "src/agent2/colours.py": "",
    "tests/builders.py": "",
    "tests/test_layers.py": "",
    "tests/shapes/test_area.py": "from agent2.shapes.area import area_of",
    "tests/shapes/test_area_limits.py": "import agent2.shapes.area\nfrom builders import make",
    "tests/shapes/test_outline.py": "from agent2.shapes import outline",
    "tests/test_colours.py": "from agent2 import colours",
    "tests/docs/test_pages.py": 'PAGES = ROOT.glob("*.md")',
    "tests/scripts/test_paint.py": 'SCRIPT = ROOT / "scripts" / "paint.py"',
    "scripts/paint.py": "",
    "docs/shapes.md": "",
    "pyproject.toml": "",
}


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    root = tmp_path_factory.mktemp("tree")
    for name, text in TREE.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def near(tree, *changed):
    return [
        path.relative_to(tree).as_posix() for path in near_tests.near_tests([tree / name for name in changed], tree)
    ]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ("src/agent2/shapes/area.py", ["shapes/test_area.py", "shapes/test_area_limits.py", "test_layers.py"]),
        ("src/agent2/shapes/inner.py", ["shapes/test_outline.py", "test_layers.py"]),  # only its importer has a test
        ("src/agent2/colours.py", ["test_colours.py", "test_layers.py"]),
        ("src/agent2/shapes/templates/outline.html.j2", ["shapes/test_outline.py", "test_layers.py"]),
        ("tests/builders.py", ["shapes/test_area_limits.py", "test_layers.py"]),
        ("tests/shapes/test_area.py", ["shapes/test_area.py"]),
        ("scripts/paint.py", ["scripts/test_paint.py"]),
        ("docs/shapes.md", ["docs/test_pages.py"]),
        ("pyproject.toml", []),
    ],
)
def test_what_is_near_one_changed_file(tree, changed, expected):
    assert near(tree, changed) == [f"tests/{name}" for name in expected]


def test_data_that_no_module_names_count_for_all_modules_of_the_nearest_folder(tree):
    assert near(tree, "src/agent2/shapes/templates/style.css") == [
        "tests/shapes/test_outline.py",
        "tests/shapes/test_area.py",
        "tests/shapes/test_area_limits.py",
        "tests/test_layers.py",
    ]


def test_of_a_module_that_very_many_test_files_import_only_those_that_bear_its_name_are_near():
    tests = {Path(f"tests/test_{number}.py"): {"agent2.errors"} for number in range(near_tests.MOST_FILES)}
    tests[Path("tests/test_errors_exit.py")] = {"agent2.errors"}
    assert near_tests.near_modules({"agent2.errors"}, tests, {}) == [Path("tests/test_errors_exit.py")]
    tests.popitem()
    assert len(near_tests.near_modules({"agent2.errors"}, tests, {})) == near_tests.MOST_FILES


def test_modules_that_import_each_other_in_a_circle_end_the_search():
    sources = {"agent2.one": {"agent2.two"}, "agent2.two": {"agent2.one"}}
    assert near_tests.near_modules({"agent2.one"}, {}, sources) == []


def test_new_and_changed_files_are_asked_of_git():
    command = [sys.executable, str(SCRIPT), "--since", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert all((ROOT / line).is_file() for line in done.stdout.splitlines())
    (near,) = subprocess.run(
        [sys.executable, str(SCRIPT), "tests/scripts/test_install.py"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    ).stdout.splitlines()
    assert near == "tests/scripts/test_install.py"
