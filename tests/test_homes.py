"""Nothing outside a benchmark's home names it: the table of what ships is the one place that does."""

import ast

from agent2.benchmarks import BASES, BENCHMARKS, task_files
from package_source import SOURCE, trees

HOMES = SOURCE / "benchmarks"
ORDINARY = {"dialogue", "instructions", "math", "search"}
"""Benchmarks whose name is an ordinary word (`re.search`, `import math`) are looked for among imports alone."""
NAMES = {name.replace("-", "_") for name in (*BENCHMARKS, *BASES, *task_files())} - ORDINARY
TABLE = "benchmarks/__init__.py"
SHARED = ("environments/household/", "scorers/household.py", "environments/shop.py")
"""What household and alfworld share, and shop and webshop, bears the first one's name."""
EXCEPTIONS = {
    # the table of scorers: the module of a shared one; published scorers bear the name of their benchmark
    "scorers/__init__.py": {"household", "mathvista", "mmmu"},
    "scorers/vision_answers.py": {"mathvista", "mmmu"},
    "scorers/option_orders.py": {"mmbench"},
    "reports/radar.py": {"mmbench"},  # the reference figure of its paper
    # the reports of another harness, which bears the name of its benchmark
    "cards/imports/formats.py": {"swe_bench"},
    "cards/imports/swe_bench.py": {"swe_bench"},
}
"""What names a benchmark besides, all of it."""


def named(source: ast.AST) -> set[str]:
    """Benchmarks, tasks and base models that code names: identifiers, parts of modules, and strings that are a name."""
    names: set[str] = set()
    for node in ast.walk(source):
        parts: list[str] = []
        if isinstance(node, ast.Import):
            parts = [part for alias in node.names for part in alias.name.split(".")]
        elif isinstance(node, ast.ImportFrom):
            parts = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
        elif isinstance(node, ast.Name):
            parts = [node.id]
        elif isinstance(node, ast.Attribute):
            parts = [node.attr]
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            parts = [node.name]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 100:
            parts = node.value.replace(":", ".").split(".") if " " not in node.value else []
        if isinstance(node, ast.ImportFrom | ast.Import):
            names |= {name for name in ORDINARY if f"agent2.benchmarks.{name}" in ast.unparse(node)}
        names |= {name for part in parts if (name := part.replace("-", "_")) in NAMES}
    return names


def homes() -> set[str]:
    """The folders of the homes, `mini` with what six of them share."""
    return {target.partition(":")[0].split(".")[2] for target in (*BENCHMARKS.values(), *BASES.values())}


def test_no_module_outside_the_homes_names_a_benchmark_but_two_tables_and_what_two_share():
    strangers = {}
    for path, tree in trees().items():
        place = path.relative_to(SOURCE).as_posix()
        is_home = HOMES in path.parents and path.relative_to(HOMES).parts[0] in homes()
        if is_home or place == TABLE or place.startswith(SHARED):
            continue
        if names := named(tree):
            strangers[place] = names
    assert strangers == EXCEPTIONS


def test_reference_agents_name_no_task_in_any_file():
    for path in (SOURCE / "arena" / "agents").rglob("*"):
        if path.suffix in {".py", ".yaml"}:
            text = path.read_text(encoding="utf-8").lower().replace("-", "_")
            assert [name for name in NAMES if name in text and not name.startswith("mini_swe")] == [], path


def named_in(text: str) -> set[str]:
    return named(ast.parse(text))


def test_a_name_in_an_import_an_identifier_or_a_string_is_noticed():
    assert named_in("from agent2.benchmarks.household import expert") == {"household"}
    assert named_in("import agent2.benchmarks.alfworld") == {"alfworld"}
    assert named_in("task = 'arithmetic'") == named_in("arithmetic = 1") == {"arithmetic"}
    assert named_in("model = 'tiny-household'") == {"tiny_household"}
    assert named_in("'agent2.benchmarks.alfworld:Alfworld'") == {"alfworld"}
    assert named_in("'one household game'") == set()
