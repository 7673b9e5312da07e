"""Which rows of a data set share text with evaluation items: for whoever cleans data before training.

Unlike `leaks` there is no control and no verdict: every shared run of n words and every whole short item is listed,
row by row, so that the rows can be looked at or left out. Paraphrases are listed apart, by retrieval, as suspects.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agent2.errors import ConfigError
from agent2.integrity.leaks import N_WORDS, NgramIndex, Retrieval, ShortIndex
from agent2.integrity.texts import NOT_TEXT, ReadLimits, TextReading, joined, read_units
from agent2.records import Item, JsonValue, Split

QUESTION_FIELDS = ("prompt", "question", "instruction", "problem", "input", "text")
"""Of a row in a file of items, the first of these that it has; a row without one counts with all its strings."""
SUSPECT = 0.5
"""Retrieval score from which on a row is listed as a suspect."""


@dataclass(frozen=True, slots=True)
class SharedRow:
    """One row that shares text with an item."""

    row: str
    """File and row."""
    item: str
    """Id of the item."""
    share: float
    """Of the item's runs of n words, 0 to 1; 1 for a whole short item; the score for a suspect."""
    how: str
    """`run`, `whole` or `resembles`."""


@dataclass(frozen=True, slots=True)
class Contamination:
    """What a search found."""

    rows: tuple[SharedRow, ...]
    """Runs and whole short items, in the order of the data."""
    suspects: tuple[SharedRow, ...]
    """Nearest rows of items that no row shares text with, best first."""
    n_items: int
    n_short: int
    """Items without any run of n words, looked for as a whole."""
    reading: TextReading

    @property
    def met(self) -> frozenset[str]:
        """Ids of items that share text with some row."""
        return frozenset(shared.item for shared in self.rows)

    @property
    def unsearched(self) -> int:
        """Files that may hold text and could not be read (too large, damaged, links); weights and images aside."""
        return sum(n for why, n in self.reading.not_read.items() if why != NOT_TEXT)

    @property
    def dirty(self) -> frozenset[str]:
        """Rows that share text with some item."""
        return frozenset(shared.row for shared in self.rows)


def items_from(path: Path) -> list[Item]:
    """The items in a file or folder, one a row, with the row as id. Raises ConfigError if there are none."""
    if not path.exists():
        raise ConfigError(f"{path}: there is no such file; give a file of items, or benchmark:split")
    reading = TextReading()
    items = [
        Item(id=unit.where, split=Split.DEV, prompt=unit.text)
        for unit in read_units(path, ReadLimits(), reading, question_of)
    ]
    if not items:
        raise ConfigError(f"{path}: contains no items ({reading.words()}); give rows with a {QUESTION_FIELDS[0]!r}")
    return items


def find_contamination(
    data: Path, items: Sequence[Item], *, n: int = N_WORDS, with_retrieval: bool = False
) -> Contamination:
    """Search a file or folder for items. Raises ConfigError if there is nothing to read."""
    if not data.exists():
        raise ConfigError(f"{data}: there is no such file or folder")
    texts = [item.prompt for item in items]
    index = NgramIndex(texts, n=n)
    unseen = index.unseen
    short = ShortIndex([texts[position] for position in unseen])
    retrieval = Retrieval(texts if with_retrieval else [])
    reading, rows = TextReading(), []
    for unit in read_units(data, ReadLimits(), reading):
        for hit in index.search(unit.text):
            rows.append(SharedRow(unit.where, items[hit.item].id, hit.n_runs / index.n_runs[hit.item], "run"))
        rows += [SharedRow(unit.where, items[unseen[at]].id, 1.0, "whole") for at in short.search(unit.text)]
        if with_retrieval:
            retrieval.add(unit)
    if not reading.n_units:
        raise ConfigError(f"{data}: nothing to search ({reading.words()})")
    met = {shared.item for shared in rows}
    suspects = []
    if with_retrieval:
        nearest = retrieval.nearest()
        suspects = [
            SharedRow(near.where, item.id, near.score, "resembles")
            for item, near in zip(items, nearest, strict=True)
            if near.score >= SUSPECT and item.id not in met
        ]
    suspects.sort(key=lambda shared: -shared.share)
    return Contamination(tuple(rows), tuple(suspects), len(items), len(unseen), reading)


def write_clean(data: Path, dirty: frozenset[str], out: Path) -> int:
    """Copy a .jsonl file without the dirty rows; returns how many were left out. Raises ConfigError for other files."""
    if data.suffix not in (".jsonl", ".ndjson") or not data.is_file():
        raise ConfigError(f"{data}: only a single .jsonl file can be written without its dirty rows")
    if out.exists() and out.samefile(data):
        raise ConfigError(f"{out}: is the data itself; pass another file")
    n_left_out = 0
    with data.open("rb") as source, out.open("wb") as target:
        for number, line in enumerate(source, start=1):  # of a binary file: ends at a line feed, as in `texts`
            if f"{data.name}:{number}" in dirty:
                n_left_out += 1
            else:
                target.write(line)
    return n_left_out


def question_of(row: JsonValue) -> str:
    """The question in a row of items; all its strings if none of `QUESTION_FIELDS` is there."""
    if isinstance(row, dict):
        for name in QUESTION_FIELDS:
            if isinstance(row.get(name), str):
                return str(row[name])
    return joined(row)
