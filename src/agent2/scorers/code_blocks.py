"""Which part of an answer is its program.

An answer is prose with fenced blocks, one of them the program: the others are drafts, examples of its use, or what it
prints. An answer without fences is a program as a whole.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass

_FENCE = re.compile(r"(?P<indent>[ \t]*+)(?P<marks>`{3,}+|~{3,}+)(?P<info>[^`\n]*+)$")
"""Possessive: a line of 10^5 spaces or tildes is read once, not once for each of them."""
_BEGINS_AS_CODE = re.compile(r"\s{0,100}(?:import|from|def|class|async[ \t]+def)[ \t]")
_DEFINED = re.compile(r"^(?:(?:async[ \t]+)?def|class)[ \t]+(\w+)|^(\w+)[ \t]*(?::[^=\n]+)?=(?!=)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class CodeBlock:
    """A fenced block of an answer."""

    language: str
    """The first word behind the fence, lower case; empty: none."""
    code: str
    """Its lines without the indentation of the fence, each with a line break."""


def code_of(answer: str, names: Collection[str] = frozenset()) -> str:
    """The program of an answer: the last block of Python, or of no language, that defines most of `names`.

    names: what the tests call. Where no block defines any, the last one that defines something; then the last block of
    Python, then of no language. Where none defines anything and the answer begins as a program does,
    the text before the first fence. Empty if all blocks are of other languages.
    """
    blocks, before = code_blocks(answer)
    if not blocks and before is None:
        return answer
    blocks = [block for block in blocks if block.language in ("python", "py", "python3", "py3", "ipython", "")]
    if before and _BEGINS_AS_CODE.match(before) and not any(defined_in(block.code) for block in blocks):
        return before  # the prompt had opened the fence
    if not blocks:
        return ""

    def rank(block: CodeBlock) -> tuple[int, bool, bool]:
        defined = defined_in(block.code)
        return len(defined.intersection(names)), bool(defined), bool(block.language)

    return max(reversed(blocks), key=rank).code


def code_blocks(answer: str) -> tuple[list[CodeBlock], str | None]:
    """The fenced blocks of a text, and what is before the first fence; None: there is no fence.

    A fence with a language ends an open block, too: models forget to close one. The last block may be open.
    """
    blocks: list[CodeBlock] = []
    before: str | None = None
    opened: re.Match[str] | None = None
    lines: list[str] = []

    def close() -> None:
        if opened is not None:
            language = opened["info"].strip("{}. \t").split(" ")[0].lower()
            blocks.append(CodeBlock(language, "".join(f"{line}\n" for line in lines)))

    for line in answer.split("\n"):
        fence = _FENCE.match(line)
        if fence is None or (opened is not None and not _ends(opened, fence)):
            indent = opened["indent"] if opened is not None else ""
            lines.append(line.removeprefix(indent))
            continue
        if before is None:
            before = "\n".join(lines)
        close()
        opened = fence if opened is None or fence["info"].strip() else None
        lines = []
    if opened is not None and lines and not lines[-1]:
        lines.pop()  # the line break at the end of the text
    close()
    return blocks, before


def _ends(opened: re.Match[str], fence: re.Match[str]) -> bool:
    is_same_kind = fence["marks"][0] == opened["marks"][0] and len(fence["marks"]) >= len(opened["marks"])
    return is_same_kind or bool(fence["info"].strip())


def defined_in(code: str) -> set[str]:
    """The functions, classes and variables that a program defines at its top level, by its text."""
    return {match[1] or match[2] for match in _DEFINED.finditer(code)}
