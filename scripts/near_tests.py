"""Prints, or runs, the tests near a change: `python scripts/near_tests.py [--since REVISION] [--run] [FILE...]`.

Without files: what differs from the revision (HEAD by default), new files included.

- A changed test file is near itself, a changed builder (`tests/*.py`) is near the test files that import it.
- A changed module of the package is near the test files that import it, or only those that bear its name if more than
  `MOST_FILES` import it. Of a module that no test imports, the tests of the modules that import it are near.
- Packaged data (YAML, prompts, templates) count as a change of the modules that name the file or, if none does, of all
  modules in the nearest folder that has some.
- Any other file (a script, a page of docs/) is near the test files that name it.
- Tests of the house (`tests/test_*.py` that read every module) are near every change of the package.

Near is not all: what a module does to others through its importers is left to `make test-fast` and `make test`.
"""

import argparse
import ast
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MOST_FILES = 40
HOUSE = ("test_layers.py", "test_names.py")
MOST_PROCESSES = 4
"""Each test process imports the libraries again, so more are not always faster."""


def module_name(path: Path, root: Path = ROOT) -> str:
    """The dotted name of a file below src/ or tests/."""
    parts = path.relative_to(root).with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_names(source: str) -> set[str]:
    """Every dotted name that could be a module in an import statement of the source."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def changed_files(since: str) -> list[Path]:
    """Files that differ from the revision, and files that git does not know yet."""
    names: list[str] = []
    for command in (["diff", "--name-only", since], ["ls-files", "--others", "--exclude-standard"]):
        output = subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        names += output.splitlines()
    return [ROOT / name for name in names]


def modules_of_data(path: Path, root: Path = ROOT) -> set[str]:
    """Modules of the package that a change of a packaged file touches."""
    folder = path.parent
    while not any(folder.glob("*.py")) and folder != root / "src":
        folder = folder.parent
    sources = list(folder.glob("*.py"))
    naming = [source for source in sources if path.name in source.read_text("utf-8")]
    return {module_name(source, root) for source in naming or sources}


def changed_modules(changed: Iterable[Path], root: Path = ROOT) -> set[str]:
    """Modules of the package and builders of the tests that a change of these files touches."""
    modules = set()
    for path in changed:
        if path.suffix == ".py" and (root / "src" in path.parents or path.parent == root / "tests"):
            modules.add(module_name(path, root))
        elif root / "src" in path.parents:
            modules |= modules_of_data(path, root)
    return modules


def near_modules(modules: set[str], tests: Mapping[Path, set[str]], sources: Mapping[str, set[str]]) -> list[Path]:
    """The test files that import one of the modules, those of the least imported module first.

    tests, sources: each test file, each module of the package, with what it imports.
    """
    near: list[Path] = []
    importers: dict[str, list[Path]] = {}
    pending, seen = set(modules), set()
    while pending:
        module = pending.pop()
        seen.add(module)
        importers[module] = [test for test, names in tests.items() if module in names]
        if not importers[module]:
            pending |= {source for source, names in sources.items() if module in names} - seen
    for module, files in sorted(importers.items(), key=lambda entry: (len(entry[1]), entry[0])):
        stem = module.rpartition(".")[2]
        mirrors = [test for test in files if test.stem == f"test_{stem}" or test.stem.startswith(f"test_{stem}_")]
        near += [test for test in (files if len(files) <= MOST_FILES else mirrors) if test not in near]
    return near


def near_tests(changed: Iterable[Path], root: Path = ROOT) -> list[Path]:
    """The test files near a change of these files."""
    changed = list(changed)
    texts = {path: path.read_text("utf-8") for path in sorted((root / "tests").rglob("test_*.py"))}
    near = {path: None for path in changed if path in texts}  # in this order, each once
    if modules := changed_modules(changed, root):
        tests = {path: imported_names(text) for path, text in texts.items()}
        package = (root / "src").rglob("*.py")
        sources = {module_name(path, root): imported_names(path.read_text("utf-8")) for path in package}
        near |= dict.fromkeys(near_modules(modules, tests, sources))
        near |= dict.fromkeys(root / "tests" / name for name in HOUSE if root / "tests" / name in texts)
    for path in changed:
        if not {root / "src", root / "tests"} & set(path.parents):
            near |= dict.fromkeys(test for test, text in texts.items() if _names_file(text, path))
    return list(near)


def _names_file(text: str, path: Path) -> bool:
    """Whether a test names a file, or all pages where it is one."""
    return f'"{path.name}"' in text or f"/{path.name}" in text or (path.suffix == ".md" and '"*.md"' in text)


def run(tests: list[Path]) -> int:
    """Run the tests that are not slow; returns pytest's exit code, 0 where none of them is fast."""
    processes = min(len(tests), os.cpu_count() or 1, MOST_PROCESSES)
    command = [sys.executable, "-m", "pytest", "-m", "not slow", *map(str, tests)]
    if processes > 1:
        command += ["--numprocesses", str(processes), "--dist", "loadfile"]
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    return 0 if code == 5 else code  # 5: all were deselected


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", nargs="*", type=Path, help="changed files; default: ask git")
    parser.add_argument("--since", default="HEAD", help="revision to compare with")
    parser.add_argument("--run", action="store_true", help="run the tests that are not slow")
    options = parser.parse_args()
    near = near_tests([path.resolve() for path in options.files] or changed_files(options.since))
    for path in near:
        print(path.relative_to(ROOT), flush=True)
    if not options.run:
        return 0
    if not near:
        print(f"no test file is near what changed since {options.since}; make test-fast runs all")
        return 0
    return run(near)


if __name__ == "__main__":
    sys.exit(main())
