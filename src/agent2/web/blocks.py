"""Messages of an agent's LLM as a reader of code wants them: commands, files, diffs, outputs, thoughts, text.

A call of a tool is read by the names of its arguments, which agents share (`command`, `path` and `content`,
`old_string` and `new_string`, a patch), whatever the tool is called; what has none of them is shown as its arguments.
All texts stay the model's, cleaned and bounded; colours come from comments, strings and keywords alone, and the page
renders Markdown where nothing of it is lost (`web.markdown`).
"""

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from agent2.llm.messages import CallPart, Content, Part, PicturePart, ResultPart, TextPart, ThoughtPart, readable
from agent2.records import JsonValue
from agent2.reports.text import clean, clean_lines

FOLDED_LINES, FOLDED_CHARACTERS = 16, 1_500
"""Of an output or a file, beyond which it is folded."""
SHOWN_CHARACTERS = 1_200
"""Of a text longer than `FOLDED_CHARACTERS`."""
MOST_EDITED = 200_000
"""Characters of an edit up to which it is shown as a diff."""
COMMANDS = ("command", "cmd", "script", "code", "bash", "shell")
PATHS = ("path", "file_path", "filename", "file", "target_file")
CONTENTS = ("content", "contents", "file_text", "text")
EDITS = (("old_string", "new_string"), ("old_str", "new_str"), ("search", "replace"), ("old", "new"))
_HEREDOC = re.compile(r"<<-?[ \t]*(['\"]?)(\w+)\1")
_WRITTEN = re.compile(r"(?:>|\btee(?:[ \t]+-a)?(?=[ \t]))[ \t]*([^\s<>|&;]+)")
_FENCE = re.compile(r"```([\w+-]*)")
_PATCH = re.compile(r"\A\s*(?:\*\*\* Begin Patch|diff --git |--- \S)")
_PIECE = re.compile(
    r"(?P<comment>(?<![\w$\"'])#[^\n]*)"
    r"|(?P<string>'''.*?'''|\"\"\".*?\"\"\"|'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\")"
    r"|(?P<keyword>\b(?:False|None|True|and|as|assert|async|await|break|class|continue|def|del|elif|else|except|finally|for"
    r"|from|global|if|import|in|is|lambda|not|or|pass|raise|return|try|while|with|yield|do|done|fi|then|esac|case|export"
    r"|echo|cd|function)\b)",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class CodePiece:
    """A piece of a program: comment, string, keyword, or plain (empty kind)."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class DiffPiece:
    """One line of a diff: add, remove, place or same."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class MessageBlock:
    """One part of a message."""

    kind: str
    """text, thought, command, file, diff, code, arguments or output; decides how it looks."""
    title: str
    """Tool, path or language."""
    text: str
    code: tuple[CodePiece, ...] = ()
    """The text of commands, files and code in pieces that are coloured."""
    diff: tuple[DiffPiece, ...] = ()
    is_folded: bool = False

    @property
    def n_lines(self) -> int:
        """Of its text."""
        return self.text.count("\n") + 1

    @property
    def first_text(self) -> str:
        """Of a text, what is not folded: up to the end of a paragraph, where there is one."""
        if len(self.text) <= FOLDED_CHARACTERS:
            return self.text
        end = self.text.rfind("\n\n", SHOWN_CHARACTERS // 3, SHOWN_CHARACTERS)
        return self.text[: end if end > 0 else SHOWN_CHARACTERS]


def blocks_of(content: Content, role: str, limit: int) -> tuple[MessageBlock, ...]:
    """A message in blocks. role: of a tool, its text is an output. limit: characters of all blocks together."""
    parts: tuple[Part, ...] = (TextPart(content),) if isinstance(content, str) else content
    blocks: list[MessageBlock] = []
    remaining = limit
    for part in parts:
        for block in _blocks(part, role, remaining):
            if not block.text.strip():
                continue
            blocks.append(block)
            remaining -= len(block.text)
        if remaining <= 0:
            break
    return tuple(blocks)


def _blocks(part: Part, role: str, remaining: int) -> Iterator[MessageBlock]:
    limit = max(remaining, 200)
    match part:
        case TextPart(text) if role == "tool":
            yield _output(text, limit)
        case TextPart(text):
            yield from _text_blocks(text, limit)
        case ThoughtPart(text):
            cleaned = clean_lines(text, limit)
            yield MessageBlock("thought", f"thought, {len(text):,} characters", cleaned, is_folded=True)
        case ResultPart(content):
            yield _output(readable(content), limit)
        case PicturePart():
            yield MessageBlock("text", "", readable((part,)))
        case CallPart():
            yield from call_blocks(part, limit)


def _output(text: str, limit: int) -> MessageBlock:
    cleaned = clean_lines(text, limit)
    return MessageBlock("output", "output", cleaned, is_folded=_is_long(cleaned))


def _is_long(text: str) -> bool:
    return text.count("\n") >= FOLDED_LINES or len(text) > FOLDED_CHARACTERS


def _text_blocks(text: str, limit: int) -> Iterator[MessageBlock]:
    """Prose, and the code that it fences, in their order."""
    # line by line: a pattern over the whole text would take quadratic time on fences that are never closed
    prose: list[str] = []
    lines = text[: limit + 1].split("\n")
    place = 0
    while place < len(lines):
        fence = _FENCE.match(lines[place])
        closing = (
            next((at for at in range(place + 1, len(lines)) if lines[at].strip() == "```"), None) if fence else None
        )
        if fence is None or closing is None:
            # an opening fence without an end fences nothing, nor does any later one
            prose += lines[place:] if fence is not None else [lines[place]]
            place = len(lines) if fence is not None else place + 1
            continue
        yield MessageBlock("text", "", clean_lines("\n".join(prose).strip("\n"), limit))
        yield _code("code", fence[1] or "code", "\n".join(lines[place + 1 : closing]), limit)
        prose, place = [], closing + 1
    yield MessageBlock("text", "", clean_lines("\n".join(prose).strip("\n"), limit))


def call_blocks(call: CallPart, limit: int) -> Iterator[MessageBlock]:
    """A call of a tool as the command, file or change that it makes; else its arguments by name."""
    name, arguments = clean(call.name, 80), _arguments(call)
    if isinstance(arguments, str):
        kind = "diff" if _PATCH.match(arguments) else "command"
        yield _patch(name, arguments, limit) if kind == "diff" else _code("command", name, arguments, limit)
        return
    path = next((clean(arguments[key], 200) for key in PATHS if isinstance(arguments.get(key), str)), "")
    edit = next((pair for pair in EDITS if all(isinstance(arguments.get(key), str) for key in pair)), None)
    command = next((_command(arguments[key]) for key in COMMANDS if _command(arguments.get(key))), "")
    text = next((arguments[key] for key in CONTENTS if isinstance(arguments.get(key), str)), None)
    patch = next((value for value in arguments.values() if isinstance(value, str) and _PATCH.match(value)), None)
    if edit is not None and path:
        yield _edit(path, str(arguments[edit[0]]), str(arguments[edit[1]]), limit)
    elif patch is not None:
        yield _patch(name, patch, limit)
    elif path and isinstance(text, str):
        yield _code("file", path, text, limit)
    elif command:
        yield from _command_blocks(name, command, limit)
    else:
        rows = [
            f"{clean(key, 80)}: {value if isinstance(value, str) else json.dumps(value)}"
            for key, value in arguments.items()
        ]
        yield MessageBlock("arguments", name, clean_lines("\n".join(rows) or "(no arguments)", limit))


def _arguments(call: CallPart) -> Mapping[str, JsonValue] | str:
    """By name, or the text of a freeform call and of arguments that are no JSON object."""
    if isinstance(call.arguments, Mapping):
        return call.arguments
    if call.is_freeform:
        return call.arguments
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return call.arguments
    return arguments if isinstance(arguments, dict) else call.arguments


def _command(value: object) -> str:
    """A command line of an argument: a text, or a list of words, of which `bash -lc` is remaining out."""
    if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
        is_shell = len(value) == 3 and value[0].rpartition("/")[2] in ("bash", "sh", "zsh") and value[1].startswith("-")
        return str(value[2]) if is_shell else " ".join(value)
    return value if isinstance(value, str) else ""


def _command_blocks(name: str, command: str, limit: int) -> Iterator[MessageBlock]:
    """The command line, and each file that it writes by a here document, in their order."""
    plain: list[str] = []
    lines = command[: limit + 1].split("\n")
    place = 0
    while place < len(lines):
        heredoc, written = _HEREDOC.search(lines[place]), _WRITTEN.search(lines[place])
        ends = range(place + 1, len(lines)) if heredoc is not None and written is not None else ()
        end = next((at for at in ends if heredoc is not None and lines[at].strip() == heredoc[2]), None)
        if heredoc is None or written is None or end is None:
            plain.append(lines[place])
            place += 1
            continue
        if _HEREDOC.sub("", _WRITTEN.sub("", lines[place])).strip() not in ("cat", "tee"):
            plain.append(lines[place])  # it does more than write the file
        if before := "\n".join(plain).strip():
            yield _code("command", name, before, limit)
        yield _code("file", written[1].strip("'\""), "\n".join(lines[place + 1 : end]), limit)
        plain, place = [], end + 1
    if trailing := "\n".join(plain).strip():
        yield _code("command", name, trailing, limit)


def _code(kind: str, title: str, text: str, limit: int) -> MessageBlock:
    cleaned = clean_lines(text, limit)
    return MessageBlock(
        kind, clean(title, 200), cleaned, tuple(_pieces(cleaned)), is_folded=kind == "file" and _is_long(cleaned)
    )


def _pieces(text: str) -> Iterator[CodePiece]:
    end = 0
    for match in _PIECE.finditer(text):
        if match.start() > end:
            yield CodePiece("", text[end : match.start()])
        yield CodePiece(match.lastgroup or "", match[0])
        end = match.end()
    if end < len(text):
        yield CodePiece("", text[end:])


def _edit(path: str, old: str, new: str, limit: int) -> MessageBlock:
    if len(old) + len(new) > MOST_EDITED:
        return _code("file", path, new, limit)
    lines = [*difflib.unified_diff(old.split("\n"), new.split("\n"), lineterm="", n=3)][2:]
    return _patch(path, "\n".join(lines), limit)


def _patch(title: str, text: str, limit: int) -> MessageBlock:
    cleaned = clean_lines(text, limit)
    kinds = {"+": "add", "-": "remove", "@": "place", "*": "place"}
    lines = tuple(DiffPiece(kinds.get(line[:1], "same"), line) for line in cleaned.split("\n"))
    return MessageBlock("diff", clean(title, 200), cleaned, diff=lines)
