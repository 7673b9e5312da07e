"""Code blocks of README and docs, each with the mark above it that says which test runs it, or why none does."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPO = Path(__file__).parents[1]
MARK = re.compile(r"^<!-- (run|not run): (\S.*?) -->$")
FENCE = re.compile(r"^(`{3,})([\w-]*)$")
INDENTED = re.compile(r"^ {4}(agent2|python|make|pip) ")


@dataclass(frozen=True)
class Block:
    """One block; `page` is its path in the repository, `line` that of its first fence."""

    page: str
    line: int
    language: str
    text: str
    is_run: bool | None
    """None without a mark."""
    said: str
    """The test that runs it, or the reason why none does."""

    @property
    def place(self) -> str:
        """Where a reader finds it."""
        return f"{self.page}:{self.line}"


def shell_commands(text: str) -> list[str]:
    """The lines of a shell block, continued lines joined, comments and empty lines left out."""
    lines = text.replace("\\\n", " ").splitlines()
    bare = (re.sub(r"(^|\s)#\s.*$", "", line).strip() for line in lines)
    return [line for line in bare if line]


def blocks_of(page: str, text: str) -> Iterator[Block]:
    """The blocks of a page in order; a fence that is never closed and commands in an indented block are errors."""
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        opened = FENCE.match(lines[at])
        if opened is None:
            assert not lines[at].lstrip().startswith("```"), f"{page}:{at + 1}: a fence that this reader does not know"
            assert not INDENTED.match(lines[at]), (
                f"{page}:{at + 1}: indented commands have no mark; put them in a fence"
            )
            at += 1
            continue
        end = lines.index(opened[1], at + 1)
        mark = MARK.match(lines[at - 1]) if at else None
        body = "".join(f"{line}\n" for line in lines[at + 1 : end])
        is_run, said = (mark[1] == "run", mark[2]) if mark else (None, "")
        yield Block(page, at + 1, opened[2], body, is_run, said)
        at = end + 1


def pages() -> list[Path]:
    """README and every page of docs."""
    return [REPO / "README.md", *sorted((REPO / "docs").glob("**/*.md"))]


def all_blocks() -> list[Block]:
    """The blocks of all pages."""
    found: list[Block] = []
    for path in pages():
        found += blocks_of(str(path.relative_to(REPO)), path.read_text(encoding="utf-8"))
    return found
