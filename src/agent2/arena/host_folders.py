"""Folders of this machine, taken out of what is published: each becomes a word in angle brackets.

    <trial>         the folder of the trial
    <agent2-home>   the home of the installation
    <python>        the Python environment
    <agent2>        the checkout that agent2 runs from
    <home>          the home of the user

A replay masks these words, and its own machine's folders, when it compares requests with the recorded ones. Folders of
other machines, or of an installation that is gone, are not known and stay.
"""

import html
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import agent2
from agent2 import installation

MIN_PARTS = 2
"""Of a folder that is replaced: `/` alone is in every path."""
BREAK = b"<wbr>"
"""What pages put into long words."""


class HostFolders:
    """Replaces this machine's folders in texts."""

    def __init__(self, trial: Path | None = None, more: Mapping[Path, str] | None = None) -> None:
        """trial: its folder, which counts as one of them. more: further folders and the words for them."""
        checkout = Path(agent2.__file__).parents[2]
        named = {
            Path.home(): "<home>",
            Path(sys.prefix): "<python>",
            Path(sys.base_prefix): "<python>",
            installation.home(): "<agent2-home>",
            **({checkout: "<agent2>"} if (checkout / "pyproject.toml").is_file() else {}),
            **({trial: "<trial>"} if trial is not None else {}),
            **(more or {}),
        }
        paths = {path: word for folder, word in named.items() for path in {str(folder), os.path.realpath(folder)}}
        self._words = {os.fsencode(path): word.encode() for path, word in paths.items() if _is_telling(Path(path))}
        # longest first: one may be inside another
        names = sorted(self._words, key=len, reverse=True)
        alternatives = b"|".join(map(re.escape, names)) or b"(?!)"
        self._pattern = re.compile(rb"(?<![\w.-])(" + alternatives + rb")(?![\w-])")

    def replaced(self, data: bytes) -> bytes:
        """The text with its folders of this machine as words."""
        return self._pattern.sub(lambda match: self._words[match[1]], data)

    def replaced_in_page(self, page: str) -> str:
        """An HTML page with its folders of this machine as words, wherever long words are broken."""
        names = sorted(self._words, key=len, reverse=True)
        escaped = {html.escape(name.decode("utf-8", "replace")).encode(): self._words[name] for name in names}
        may_break = b"(?:" + BREAK + b")?"
        parts = (may_break.join(re.escape(bytes([byte])) for byte in name) for name in escaped)
        pattern = re.compile(rb"(?<![\w.-])(" + (b"|".join(parts) or b"(?!)") + rb")(?![\w-])")

        def word(match: re.Match[bytes]) -> bytes:
            return html.escape(escaped[match[1].replace(BREAK, b"")].decode()).encode()

        return pattern.sub(word, page.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

    def occur_in(self, data: bytes) -> bool:
        """Whether the text has one of them."""
        return self._pattern.search(data) is not None

    def volatile(self) -> Sequence[str]:
        """Regular expressions that a replay masks: these folders, and the words for those of other machines."""
        return (r"<(?:trial|agent2-home|python|agent2|home)>", self._pattern.pattern.decode("utf-8", "surrogateescape"))


def _is_telling(path: Path) -> bool:
    # /usr and /usr/local are everywhere and say nothing about a machine
    return len(path.parts) >= MIN_PARTS and path not in {Path("/usr"), Path("/usr/local")}
