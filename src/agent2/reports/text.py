"""Text that agents wrote, made safe to show: no control characters, no direction tricks, a bounded length.

This is not HTML escaping; templates escape on top of it.
"""

import re

MAX_CHARACTERS = 400
_ESCAPE_SEQUENCE = re.compile(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|[@-_])")
_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # controls
    "\u00ad\u061c\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # invisible, or turning the direction
    "\ud800-\udfff\U000e0000-\U000e007f]"  # lone surrogates, tags
)
_MARKDOWN = re.compile(r"[\\`*_\[\]|<>~&]|^[#+-]")
_BARE_LINK = re.compile(r"(?:https?|ftp)(?=://)|www(?=\.)", re.IGNORECASE)


def clean(value: object, limit: int = MAX_CHARACTERS) -> str:
    """One line of harmless text; what goes beyond `limit` characters is cut, and the cut is said."""
    text = _ESCAPE_SEQUENCE.sub("", str(value)[: 20 * limit])
    text = _UNSEEN.sub(" ", text).strip()
    return text if len(text) <= limit else f"{text[:limit]}… ({len(str(value)) - limit} more characters)"


def markdown(value: object, limit: int = MAX_CHARACTERS) -> str:
    """Harmless text for a Markdown cell or sentence: marks are escaped, so nothing is rendered or linked."""
    return _BARE_LINK.sub(r"\g<0>\\", _MARKDOWN.sub(r"\\\g<0>", clean(value, limit)))
