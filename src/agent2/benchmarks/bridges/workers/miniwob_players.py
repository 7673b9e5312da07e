"""Players of MiniWoB++ tasks that read only the task's sentence and the accessibility tree, and solve what they read.

Each is a generator of calls for one task; it looks at the page again where it has to. `Outline` reads the tree that
Playwright writes.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Call = tuple[str, dict[str, Any]]
_LINE = re.compile(r'^( *)- ([\w-]+)(?: "((?:[^"\\]|\\.)*)")?((?: \[[^\]]*\])*)(?:: *(.*)|:)?$')
_QUOTED_KEY = re.compile(r"^( *)- '((?:[^']|'')*)'(.*)$")
_REF = re.compile(r"\[ref=(\w+)\]")


@dataclass(frozen=True)
class Node:
    """One line of the tree."""

    depth: int
    role: str
    name: str
    """The label, or the text where there is none."""
    ref: str
    attributes: str


def _plain(text: str) -> str:
    """A text that may be quoted as in JSON."""
    if not text.startswith('"'):
        return text
    try:
        return str(json.loads(text))
    except ValueError:
        return text


class Outline:
    """The lines of an accessibility tree."""

    def __init__(self, tree: str) -> None:
        self.nodes = [node for line in tree.splitlines() if (node := _node(line)) is not None]

    def find(self, role: str | None = None, name: str | None = None, number: int = 0) -> str:
        """The reference of the so-manieth element with that role and name. Raises LookupError."""
        matching = [
            node.ref
            for node in self.nodes
            if node.ref and role in (None, node.role) and (name is None or node.name.strip() == name)
        ]
        if number >= len(matching):
            raise LookupError(f"no {role or 'element'} named {name!r}")
        return matching[number]

    def texts(self) -> list[str]:
        """What stands on the page, line by line."""
        return [node.name for node in self.nodes if node.name]


def _node(line: str) -> Node | None:
    if quoted := _QUOTED_KEY.match(line):
        indent, key, tail = quoted.groups()
        line = f"{indent}- {key.replace(chr(39) * 2, chr(39))}{tail}"
    match = _LINE.match(line)
    if match is None:
        return None
    indent, role, label, attributes, text = match.groups()
    ref = _REF.search(attributes)
    name = _plain(f'"{label}"') if label is not None else _plain(text or "")
    return Node(len(indent) // 2, role, name, ref[1] if ref else "", attributes)


Look = Callable[[], Outline]
Player = Callable[[str, Look], Iterator[Call]]


def _click(ref: str) -> Call:
    return "click", {"ref": ref}


def _type(ref: str, text: str) -> Call:
    return "type", {"ref": ref, "text": text}


def _quoted(utterance: str) -> list[str]:
    return re.findall(r'"([^"]*)"', utterance)


def _named_button(utterance: str, look: Look) -> Iterator[Call]:
    yield _click(look().find("button", _quoted(utterance)[0]))


def _only_button(utterance: str, look: Look) -> Iterator[Call]:
    yield _click(look().find("button"))


def _close_button(utterance: str, look: Look) -> Iterator[Call]:
    yield _click(look().find("button", "Close"))


def _chosen(utterance: str) -> list[str]:
    between = re.fullmatch(r"Select (.*?)(?: from the list)? and click Submit\.", utterance)
    assert between is not None
    return [] if between[1] == "nothing" else between[1].split(", ")


def _checkboxes(utterance: str, look: Look) -> Iterator[Call]:
    outline = look()
    for name in _chosen(utterance):
        yield _click(outline.find("checkbox", name))
    yield _click(outline.find("button", "Submit"))


def _option(utterance: str, look: Look) -> Iterator[Call]:
    outline = look()
    yield _click(outline.find("radio", _chosen(utterance)[0]))
    yield _click(outline.find("button", "Submit"))


def _list(utterance: str, look: Look) -> Iterator[Call]:
    outline = look()
    yield "select", {"ref": outline.find("combobox"), "option": _chosen(utterance)[0]}
    yield _click(outline.find("button", "Submit"))


def _collapsible(utterance: str, look: Look) -> Iterator[Call]:
    yield _click(look().find("tab"))
    yield _click(look().find("button", "Submit"))


def _tab(utterance: str, look: Look) -> Iterator[Call]:
    name = re.search(r"Tab #\d", utterance)
    assert name is not None
    yield _click(look().find("link", name[0]))


def _tree(utterance: str, look: Look) -> Iterator[Call]:
    """Opens each folder in turn until the name can be seen."""
    name = _quoted(utterance)[0]
    opened: set[str] = set()
    for _ in range(12):
        outline = look()
        entries = [node for node in outline.nodes if node.role == "generic" and node.name and node.name != utterance]
        matching = [node.ref for node in entries if node.name == name]
        folders = [
            entry.ref
            for entry, before in zip(outline.nodes[1:], outline.nodes, strict=False)
            if entry in entries and before.role == "generic" and not before.name and entry.ref not in opened
        ]
        target = (matching or folders or [""])[0]
        if not target:
            return
        opened.add(target)
        yield _click(target)


def _focus(utterance: str, look: Look) -> Iterator[Call]:
    yield _click(look().find("textbox"))


def _submit(look: Look, *texts: str) -> Iterator[Call]:
    """Fill the text fields in their order, and press the button."""
    outline = look()
    for number, text in enumerate(texts):
        yield _type(outline.find("textbox", number=number), text)
    yield _click(look().find("button"))


def _enter_text(utterance: str, look: Look) -> Iterator[Call]:
    yield from _submit(look, _quoted(utterance)[0])


def _enter_password(utterance: str, look: Look) -> Iterator[Call]:
    password = _quoted(utterance)[0]
    yield from _submit(look, password, password)


def _log_in(utterance: str, look: Look) -> Iterator[Call]:
    yield from _submit(look, *_quoted(utterance)[:2])


def _read_table(utterance: str, look: Look) -> Iterator[Call]:
    key = utterance.removeprefix("Enter the value of ").removesuffix(" into the text field and press Submit.")
    cells = [node.name for node in look().nodes if node.role == "cell"]
    yield from _submit(look, cells[cells.index(key) + 1])


def _arithmetic(utterance: str, look: Look) -> Iterator[Call]:
    (sum_text,) = [text for text in look().texts() if re.fullmatch(r"\d [-+x] \d =", text.strip())]
    first, operator, second = sum_text.split()[:3]
    results = {"+": int(first) + int(second), "-": int(first) - int(second), "x": int(first) * int(second)}
    yield from _submit(look, str(results[operator]))


def _find_word(utterance: str, look: Look) -> Iterator[Call]:
    place = re.search(r"the (\d+)\w\w word", utterance)
    assert place is not None
    paragraph = next(node.name for node in look().nodes if node.role == "paragraph")
    yield from _submit(look, re.sub(r"[^a-zA-Z]", "", paragraph.split()[int(place[1]) - 1]))


def _guess(utterance: str, look: Look) -> Iterator[Call]:
    low, high = 0, 9
    while low <= high:
        guess = (low + high) // 2
        outline = look()
        yield _type(outline.find("spinbutton"), str(guess))
        yield _click(outline.find("button", "Submit"))
        if any("lower than" in text for text in look().texts()):
            high = guess - 1
        else:
            low = guess + 1


def _last_word(utterance: str, look: Look) -> Iterator[Call]:
    outline = look()
    text = next(node.name for node in outline.nodes if node.role == "textbox" and node.name)
    fields = [node.ref for node in outline.nodes if node.role == "textbox" and node.ref and not node.name]
    yield "scroll", {"ref": outline.find("textbox", text.strip()), "direction": "down"}
    yield _type(fields[0], text.split()[-1].strip(".,"))
    yield _click(outline.find("button", "Submit"))


def _autocomplete(utterance: str, look: Look) -> Iterator[Call]:
    outline, parts = look(), _quoted(utterance)
    start, end = parts[0], parts[1] if len(parts) > 1 else ""
    field = outline.find("textbox")
    yield _type(field, start)
    names = [node for node in look().nodes if node.ref and node.name.startswith(start) and node.name.endswith(end)]
    yield _click(next(node for node in names if node.role not in ("textbox", "listitem")).ref)
    yield _click(look().find("button", "Submit"))


PLAYERS: Mapping[str, Player] = {
    "click-test": _only_button,
    "click-button": _named_button,
    "click-dialog": _close_button,
    "click-checkboxes": _checkboxes,
    "click-option": _option,
    "click-collapsible": _collapsible,
    "click-tab": _tab,
    "choose-list": _list,
    "navigate-tree": _tree,
    "focus-text": _focus,
    "enter-text": _enter_text,
    "enter-text-dynamic": _enter_text,
    "enter-password": _enter_password,
    "login-user": _log_in,
    "read-table": _read_table,
    "simple-arithmetic": _arithmetic,
    "find-word": _find_word,
    "guess-number": _guess,
    "scroll-text": _last_word,
    "use-autocomplete": _autocomplete,
}
"""Task -> its player."""
