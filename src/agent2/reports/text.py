"""Text that agents wrote, made safe to show: no control characters, no direction tricks, a bounded length.

This is not HTML escaping; templates escape on top of it.
"""

import re

from markupsafe import Markup

MAX_CHARACTERS = 400
_ESCAPE_SEQUENCE = re.compile(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|[@-_])")
_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # controls
    "\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # invisible, line ends, directions
    "\ud800-\udfff\U000e0000-\U000e007f]"  # lone surrogates, tags
)
_MARKDOWN = re.compile(r"[\\`*_\[\]|<>~&]|^[#+-]")
_LONG_WORD = re.compile(r"\S{17,}")
_JOINT = re.compile(r"(?<=[_/.:=@])(?=[^\s_/.:=@])")
_PIECE = 28
_BARE_LINK = re.compile(r"(?:https?|ftp)(?=://)|www(?=\.)", re.IGNORECASE)


def clean(value: object, limit: int = MAX_CHARACTERS) -> str:
    """One line of harmless text; what goes beyond `limit` characters is cut, and the cut is said."""
    text = _ESCAPE_SEQUENCE.sub("", str(value)[: 20 * limit])
    text = _UNSEEN.sub(" ", text).strip()
    return text if len(text) <= limit else f"{text[:limit]}… ({len(str(value)) - limit} more characters)"


def clean_lines(value: object, limit: int = MAX_CHARACTERS) -> str:
    """Harmless text with its line ends and indentation kept; a tab is four spaces. Cut as `clean` cuts."""
    text = _ESCAPE_SEQUENCE.sub("", str(value)[: 20 * limit])
    text = "\n".join(_UNSEEN.sub(" ", line.replace("\t", "    ")).rstrip() for line in text.splitlines()).strip("\n")
    return text if len(text) <= limit else f"{text[:limit]}… ({len(str(value)) - limit} more characters)"


def breakable(value: object) -> Markup:
    """HTML of a text in which a long word may be broken where a reader expects it: after `_`, `/`, `.`, `:`.

    Cells of tables are never broken inside a word otherwise, so that `finished` stays in one piece.
    """
    text = str(value).replace("\0", " ").replace(" -> ", " → ")

    def broken(match: re.Match[str]) -> str:
        parts = [part[at : at + _PIECE] for part in _JOINT.split(match[0]) for at in range(0, len(part), _PIECE)]
        return "\0".join(parts)

    return Markup("<wbr>").join(_LONG_WORD.sub(broken, text).split("\0"))


def markdown_lines(value: object, indent: int = 0) -> str:
    """Harmless text of several lines in Markdown, each ended by a hard break, below a list item."""
    lines = [markdown(line, 10_000) for line in str(value).split("\n")]
    return ("\\\n" + " " * indent).join(line or "\u00a0" for line in lines)


def markdown(value: object, limit: int = MAX_CHARACTERS) -> str:
    """Harmless text for a Markdown cell or sentence: marks are escaped, so nothing is rendered or linked."""
    return _BARE_LINK.sub(r"\g<0>\\", _MARKDOWN.sub(r"\\\g<0>", clean(value, limit)))
