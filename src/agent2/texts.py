"""Text that is not quite text, made whole once at the edge where it comes in: answers of models, logs, data of users.

A lone surrogate is half a character: JSON can name one, and no UTF-8 file can hold it. It becomes the replacement
character; two halves that belong together become their character. Everything else (NUL, byte-order marks, zero-width
characters, other normal forms) can be stored and stays as it is; `canonical` is for comparing texts.
"""

import json
import re
import unicodedata
from typing import Any

_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPE_SEQUENCE = re.compile(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|[@-_])")
_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # controls
    "\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # invisible, line ends, directions
    "\ud800-\udfff\U000e0000-\U000e007f]"  # lone surrogates, tags
)
_INVISIBLE = re.compile("[\u200b\u2060\ufeff\u00ad]")
"""Zero-width space, word joiner, byte-order mark, soft hyphen; not the joiners that letters and emoji are made with."""
_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")
_PLAIN_NUMBER = re.compile(r"'*[+-]?\d[\d.,]*(?:[eE][+-]?\d+)?%?")


def storable(value: Any) -> Any:
    """The value with the lone surrogates in its texts replaced; of plain data: texts, numbers, lists and mappings."""
    if isinstance(value, str):
        if _SURROGATE.search(value) is None:
            return value
        # By way of UTF-16, where two halves of one character find each other.
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, dict):
        return {storable(key): storable(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [storable(part) for part in value]
    return value


def parse_json(text: str) -> Any:
    """The value of a JSON text, which may begin with a byte-order mark. Raises ValueError or RecursionError.

    Lone surrogates are replaced (`storable`).
    """
    value = json.loads(text.removeprefix("\ufeff"))
    return storable(value) if "\\ud" in text or "\\uD" in text or _SURROGATE.search(text) is not None else value


def canonical(text: str) -> str:
    """The text in the normal form NFC and without characters that nobody sees, to be compared with another one."""
    return text if text.isascii() else _INVISIBLE.sub("", unicodedata.normalize("NFC", text))


def without_escapes(text: str) -> str:
    """The text without the escape sequences of terminals."""
    return _ESCAPE_SEQUENCE.sub("", text)


def as_csv_cell(value: Any) -> Any:
    """The value, as a cell of a CSV file; a text that a spreadsheet would take for a formula gets an apostrophe.

    Plain numbers (`-3`) stay as they are. So that the text can be had back, one that is such a text behind apostrophes
    gets one more.
    """
    if not isinstance(value, str) or _FORMULA.match(value) is None or _PLAIN_NUMBER.fullmatch(value) is not None:
        return value
    return f"'{value}"


def visible(text: str) -> str:
    """The text with a blank for each control, invisible or direction character and half character."""
    return _UNSEEN.sub(" ", text)


def printable(text: str) -> str:
    """Text of others as lines that no terminal or page takes for more than text; a tab becomes four spaces."""
    lines = without_escapes(text).replace("\t", "    ").split("\n")
    return "\n".join(map(visible, lines))


def cut_middle(text: str, max_chars: int) -> str:
    """The text without what exceeds `max_chars` characters in its middle, and with lone surrogates replaced."""
    text = text.encode("utf-8", "replace").decode()
    if len(text) <= max_chars:
        return text
    half = max_chars // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} characters left out]\n{text[-half:]}"


def counted(n: int, noun: str) -> str:
    """How many of something: `1 task`, `2 tasks`."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"
