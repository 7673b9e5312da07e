"""The package's own source for tests that read all of it: parsed once in each test process."""

import ast
import functools
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "agent2"


@functools.cache
def sources() -> dict[Path, str]:
    """The text of every Python file, programs of agents included."""
    return {path: path.read_text("utf-8") for path in sorted(SOURCE.rglob("*.py"))}


@functools.cache
def trees() -> dict[Path, ast.Module]:
    """The syntax tree of every Python file. Shared: don't change them."""
    return {path: ast.parse(text) for path, text in sources().items()}


def module_name(path: Path) -> str:
    """The dotted name of a file below src/."""
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
