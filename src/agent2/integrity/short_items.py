"""Items too short for runs of words: met as a whole piece of a text, or as a long string inside one.

Compared without blanks (but "5 5" is never 55) and case, punctuation kept (in "3 - 4" it is the question). The words
that all items begin or end with ("Calculate") are left off on both sides. A piece is a string, cell, line, quoted
literal, or what stands between chat markers, equality signs, arrows and colons. Inside a longer text an item is found
from `LONG` characters on, or behind the words that all items begin with.

Practice on the same kind of question meets some short items by chance. That is not told apart here but by comparing
with items that nobody was ever asked (see `leaks`).
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

LONG = 24
"""Characters without blanks."""
_GRAM = 10
_STRIDE = LONG - _GRAM + 1
_BLANKS = re.compile(r"\s+")
_BETWEEN_DIGITS = re.compile(r"(?<=\d)\s+(?=\d)")
_APART = "\0"
"""Stands between two numbers that only blanks part: "0 + 5" and a line "5" are not "0 + 55"."""
_BOUNDARY = re.compile(r"<\|[^|>\n]{1,40}\|>|\[/?INST\]|</?s>|\\n|[\n\t\r\"'`=]|->|=>|:\s|[?:,]\s*(?=$)")
MIN_PIECE = 3
MIN_PREFIX = 6
"""Characters of a common beginning that is looked for inside texts."""


def squeezed(text: str) -> str:
    """A text without blanks, in lower case; two numbers stay two."""
    return _BLANKS.sub("", _BETWEEN_DIGITS.sub(_APART, text)).casefold()


class ShortIndex:
    """Short items, to be looked for in texts."""

    def __init__(self, items: Sequence[str], familiar: Iterable[str] = ()) -> None:
        """items: their texts. familiar: texts that everybody is given, the affixes of which are left off as well."""
        whole = [squeezed(text) for text in items]
        known = [squeezed(text) for text in familiar]
        self._prefix, self._suffix = _affixes([*whole, *known])
        self._pieces: dict[str, list[int]] = {}
        self._grams: dict[str, set[int]] = {}
        self._long: dict[int, str] = {}
        self._lengths: set[int] = set()
        """Of pieces that are looked for behind the common beginning; empty if that is too short to be looked for."""
        cores = [self._core(text) for text in whole]
        common = Counter(gram for core in [*cores, *map(self._core, known)] for gram in set(_grams(core)))
        long_enough = len(self._prefix) >= MIN_PREFIX
        given = {self._core(text) for text in known}
        for index, core in enumerate(cores):
            if core in given or len(core) < MIN_PIECE:
                continue
            if len(core) >= LONG and any(core in text for text in known):
                continue  # part of what everybody is given
            self._pieces.setdefault(core, []).append(index)
            if long_enough:
                self._lengths.add(len(core))
            if len(core) >= LONG:
                self._long[index] = core
                for gram in _rarest(core, common):
                    self._grams.setdefault(gram, set()).add(index)

    def __len__(self) -> int:
        """How many distinct pieces are looked for."""
        return len(self._pieces)

    def search(self, text: str) -> list[int]:
        """The items that a text holds, by position in the list that the index was made from."""
        if not self._pieces:
            return []
        found: set[int] = set()
        for raw in _BOUNDARY.split(text):
            piece = squeezed(raw)
            if len(piece) >= MIN_PIECE:
                owners = self._pieces.get(self._core(piece)) or self._pieces.get(piece)
                if owners:
                    found.update(owners)
        if self._grams or self._lengths:
            whole = squeezed(text)
            found |= self._inside(whole)
            found |= self._after_prefix(whole)
        return sorted(found)

    def _inside(self, text: str) -> set[int]:
        found: set[int] = set()
        for at in range(0, len(text) - _GRAM + 1, _STRIDE):
            owners = self._grams.get(text[at : at + _GRAM])
            if owners:
                found.update(index for index in owners if index not in found and self._long[index] in text)
        return found

    def _after_prefix(self, text: str) -> set[int]:
        """Items behind the words that all of them begin with, wherever those stand."""
        found: set[int] = set()
        at = text.find(self._prefix) if self._lengths else -1
        while at >= 0:
            start = at + len(self._prefix)
            for length in self._lengths:
                core = text[start : start + length]
                is_cut = core[-1:].isdigit() and text[start + length : start + length + 1].isdigit()
                if core in self._pieces and not is_cut:
                    found.update(self._pieces[core])
            at = text.find(self._prefix, start)
        return found

    def _core(self, text: str) -> str:
        return text.removeprefix(self._prefix).removesuffix(self._suffix)


def _affixes(texts: Sequence[str]) -> tuple[str, str]:
    """What all texts begin and end with; a number is not cut in two."""
    if len(texts) < 2:
        return "", ""
    prefix = _shared_start(texts).rstrip("0123456789-(")
    suffix = _shared_start([text[len(prefix) :][::-1] for text in texts])[::-1].lstrip("0123456789)")
    return prefix, suffix


def _shared_start(texts: Sequence[str]) -> str:
    first, last = min(texts), max(texts)  # whatever these two share, all in between do
    return first[: next((at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))]


def _grams(core: str) -> Iterable[str]:
    return (core[at : at + _GRAM] for at in range(len(core) - _GRAM + 1))


def _rarest(core: str, common: Counter[str]) -> list[str]:
    """Of all stretches in which some gram falls on every stride, the one whose grams are the least common."""
    grams = list(_grams(core))
    starts = range(len(grams) - _STRIDE + 1)
    best = min(starts, key=lambda start: max(common[gram] for gram in grams[start : start + _STRIDE]))
    return grams[best : best + _STRIDE]
