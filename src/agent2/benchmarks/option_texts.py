"""Options of a question in one text: "A) red B) blue", "a ) 3 , b ) 4", and lists as Python and numpy print them.

A text that is not wholly of one of these forms holds no options: marks that are not A, B, C ... in this order, one
option alone, or anything between the entries of a list but blanks and commas.
"""

import ast
import re
from string import ascii_uppercase

_MARK = re.compile(r"(?:^|(?<=[\s,;|]))\(?([A-Za-z]) ?[).:](?=\s)")
_ENTRY = re.compile(r"""\s*('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\s*,?""", re.DOTALL)
_SEPARATORS = ",;|"


def options_in_text(text: str) -> list[str]:
    """The options in a text; none if it is not of a known form."""
    text = text.strip()
    return _entries(text[1:-1]) if text.startswith("[") and text.endswith("]") else _lettered(text)


def _lettered(text: str) -> list[str]:
    marks = list(_MARK.finditer(text))
    letters = "".join(mark[1] for mark in marks)
    if len(marks) < 2 or marks[0].start() != 0 or letters.upper() != ascii_uppercase[: len(marks)]:
        return []
    if letters not in (letters.upper(), letters.lower()):
        return []
    ends = [*(mark.start() for mark in marks[1:]), len(text)]
    options = [text[mark.end() : end].strip() for mark, end in zip(marks, ends, strict=True)]
    separator = options[0][-1:]
    if separator and separator in _SEPARATORS and all(option.endswith(separator) for option in options[:-1]):
        options = [option.removesuffix(separator).rstrip() for option in options]
    return options if all(options) else []


def _entries(text: str) -> list[str]:
    """The quoted texts of a list; literal_eval of the whole would join texts between which numpy prints no comma."""
    entries, place = [], 0
    while place < len(text.rstrip()):
        entry = _ENTRY.match(text, place)
        if entry is None:
            return []
        try:
            entries.append(str(ast.literal_eval(entry[1])))
        except (ValueError, SyntaxError):  # a broken escape, or a line break inside quotes
            return []
        place = entry.end()
    return entries
