"""Decontamination of training data: which rows of a data set share text with evaluation items.

Unlike `leaks` there is no control and no verdict: every shared run of n words and every whole short item is listed,
row by row, so that the rows can be inspected or removed. What many rows share with an item, and each goes on otherwise,
is a template of the data and not listed. Paraphrases are listed apart, by retrieval, as suspects.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent2.errors import ConfigError
from agent2.integrity.leaks import N_WORDS, NgramIndex, Retrieval, ShortIndex
from agent2.integrity.texts import NOT_TEXT, ReadLimits, TextReading, joined, read_units
from agent2.records import Item, JsonValue, Split

QUESTION_FIELDS = ("prompt", "question", "instruction", "problem", "input", "text")
"""The question of a row in a file of items is the first of these fields that it has, or else all its strings."""
MAX_PARTS = 5
"""Rows with a part of one item; in more of them it is a template, such as an instruction."""
SUSPECT = 0.5
"""Least retrieval score of a row that is listed as a suspect."""


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
    """`run` (all of the item's runs), `part` (some of them: what the row adds or leaves out is another problem, or an
    edited copy), `whole` or `resembles`."""


@dataclass(frozen=True, slots=True)
class Contamination:
    """The result of a search for items in a data set."""

    rows: tuple[SharedRow, ...]
    """Runs and whole short items, in the order of the data."""
    suspects: tuple[SharedRow, ...]
    """Nearest rows of items that no row shares text with, best first."""
    n_items: int
    templates: Mapping[str, int]
    """Item -> how many rows share a part with it, where they are more than `MAX_PARTS`; these are in no list."""
    n_short: int
    """Items without any run of n words, searched for as a whole."""
    reading: TextReading

    @property
    def contaminated_items(self) -> frozenset[str]:
        """Ids of items that share text with some row."""
        return frozenset(shared.item for shared in self.rows)

    @property
    def contaminated_rows(self) -> frozenset[str]:
        """Rows that share text with some item."""
        return frozenset(shared.row for shared in self.rows)

    @property
    def n_unsearched(self) -> int:
        """Files that may hold text and could not be read (too large, damaged, links); weights and images excluded."""
        return sum(n_files for reason, n_files in self.reading.not_read.items() if reason != NOT_TEXT)


def items_from(path: Path) -> list[Item]:
    """The items in a file or folder, one a row, with the row as id. Raises ConfigError if there are none."""
    if not path.exists():
        raise ConfigError(f"{path}: no such file; give a file of items, or benchmark:split")
    reading = TextReading()
    items = [
        Item(id=unit.where, split=Split.DEV, prompt=unit.text)
        for unit in read_units(path, ReadLimits(), reading, question_of)
    ]
    if not items:
        raise ConfigError(f"{path}: contains no items ({reading.summary()}); give rows with a {QUESTION_FIELDS[0]!r}")
    return items


def find_contamination(
    data: Path, items: Sequence[Item], *, n: int = N_WORDS, with_retrieval: bool = False
) -> Contamination:
    """Search a file or folder for items. Raises ConfigError if there is nothing to read."""
    if not data.exists():
        raise ConfigError(f"{data}: there is no such file or folder")
    texts = [item.prompt for item in items]
    index = NgramIndex(texts, n=n)
    short_items = index.items_without_runs
    short_index = ShortIndex([texts[position] for position in short_items])
    retrieval = Retrieval(texts if with_retrieval else [])
    reading, rows = TextReading(), []
    for unit in read_units(data, ReadLimits(), reading):
        for hit in index.search(unit.text):
            share = hit.n_runs / index.n_runs[hit.item]
            rows.append(SharedRow(unit.where, items[hit.item].id, share, "run" if share == 1.0 else "part"))
        for position in short_index.search(unit.text):
            rows.append(SharedRow(unit.where, items[short_items[position]].id, 1.0, "whole"))
        if with_retrieval:
            retrieval.add(unit)
    if not reading.n_units:
        raise ConfigError(f"{data}: nothing to search ({reading.summary()})")
    n_parts = Counter(shared.item for shared in rows if shared.how == "part")
    templates = {item: n_rows for item, n_rows in n_parts.items() if n_rows > MAX_PARTS}
    rows = [shared for shared in rows if shared.how != "part" or shared.item not in templates]
    contaminated = {shared.item for shared in rows}
    suspects = []
    if with_retrieval:
        nearest = retrieval.nearest()
        suspects = [
            SharedRow(near.where, item.id, near.score, "resembles")
            for item, near in zip(items, nearest, strict=True)
            if near.score >= SUSPECT and item.id not in contaminated
        ]
    suspects.sort(key=lambda shared: -shared.share)
    return Contamination(tuple(rows), tuple(suspects), len(items), templates, len(short_items), reading)


def write_clean(data: Path, contaminated_rows: frozenset[str], out: Path) -> int:
    """Copy a .jsonl file without its contaminated rows; returns how many were removed.

    Raises ConfigError for other files.
    """
    if data.suffix not in (".jsonl", ".ndjson") or not data.is_file():
        raise ConfigError(f"{data}: only a single .jsonl file can be written without its contaminated rows")
    if out.exists() and out.samefile(data):
        raise ConfigError(f"{out}: is the data itself; pass another file")
    n_removed = 0
    with data.open("rb") as source, out.open("wb") as target:
        # A binary file ends its lines at line feeds only, as `texts` numbers them; text mode would also count "\r".
        for number, line in enumerate(source, start=1):
            if f"{data.name}:{number}" in contaminated_rows:
                n_removed += 1
            else:
                target.write(line)
    return n_removed


def question_of(row: JsonValue) -> str:
    """The question in a row of items; all its strings if it has none of `QUESTION_FIELDS`."""
    if isinstance(row, dict):
        for name in QUESTION_FIELDS:
            if isinstance(row.get(name), str):
                return str(row[name])
    return joined(row)
