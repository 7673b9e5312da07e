"""Answers of hidden items written down: lists of answers in the order of the hidden items, and tables in code.

A list is found as a run of values that equals a run of reference answers. How long a run must be follows from how
often two answers agree by chance: p = sum of squared shares; with N values, n answers and any place for either, N n
p^k such runs of length k are expected, and k is the smallest for which that is below `EXPECTED_BY_CHANCE`. A benchmark
whose answers are nearly all the same cannot be checked this way, and the check says so.

Questions with their answers are found by `leaks`; here they are named when they stand in a program or a chat
template. Does NOT see encoded or encrypted tables, or answers inside weights.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from agent2.integrity.finding import MAX_PROOFS, Effect, IntegrityCheck, IntegrityFinding, Severity, proof
from agent2.integrity.leaks import NgramIndex, ShortIndex
from agent2.integrity.texts import TextUnit
from agent2.records import Item

EXPECTED_BY_CHANCE = 1e-6
MOST_VALUES = 10_000_000
LONGEST_RUN = 200
"""A list that needs a longer run is not looked for."""
CODE_SUFFIXES = frozenset({".py", ".pyx", ".sh", ".js", ".ts", ".jinja", ".ipynb", ".rs", ".c", ".cpp", ".go"})
FEW_IN_CODE = 3
_VALUE = re.compile(r"\"((?:[^\"\\\n]|\\.){1,80})\"|'((?:[^'\\\n]|\\.){1,80})'|(-?\d[\d/.]*)|([A-Za-z]{1,20})")


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive values that are the reference answers of consecutive hidden items."""

    where: str
    length: int
    first_item: str
    """Id of the item that the run begins with."""


class AnswerRuns:
    """Reference answers of one list of hidden items in their order."""

    def __init__(self, items: Sequence[Item]) -> None:
        """items: of one split, in the order in which they are asked."""
        self._ids = [item.id for item in items]
        self._answers = [_plain(item.reference or "") for item in items]
        self.length = shortest_run(self._answers)
        """Values in a row that chance does not explain; None: chance explains any."""
        self._places: dict[tuple[str, ...], int] = {}
        if self.length is not None:
            for start in range(len(self._answers) - self.length + 1):
                self._places.setdefault(tuple(self._answers[start : start + self.length]), start)

    def search(self, unit: TextUnit) -> list[Run]:
        """The runs in one unit, each as long as it goes."""
        if self.length is None or not self._places:
            return []
        values = [_plain(value) for value in values_of(unit.text)]
        found, at = [], 0
        while at <= len(values) - self.length:
            start = self._places.get(tuple(values[at : at + self.length]))
            if start is None:
                at += 1
                continue
            length = self.length
            while (
                at + length < len(values)
                and start + length < len(self._answers)
                and values[at + length] == self._answers[start + length]
            ):
                length += 1
            found.append(Run(unit.where, length, self._ids[start]))
            at += length
        return found


def shortest_run(answers: Sequence[str]) -> int | None:
    """Length of a run of answers that chance does not explain; None if it would be longer than `LONGEST_RUN`."""
    if len(answers) < 2:
        return None
    same = sum((n / len(answers)) ** 2 for n in Counter(answers).values())
    if same >= 1:
        return None
    needed = math.ceil(math.log(len(answers) * MOST_VALUES / EXPECTED_BY_CHANCE) / -math.log(same))
    return needed if needed <= min(LONGEST_RUN, len(answers)) else None


def values_of(text: str) -> Iterator[str]:
    """Numbers, words and short quoted strings, in order."""
    for match in _VALUE.finditer(text):
        yield match[1] or match[2] or match[3] or match[4]


class HardCoded:
    """Looks through units for written-down answers of hidden items."""

    def __init__(self, splits: Mapping[str, Sequence[Item]], familiar: Sequence[str] = ()) -> None:
        """splits: hidden items by split, in the order in which they are asked."""
        self._runs = {split: AnswerRuns(items) for split, items in splits.items()}
        self._items = [item for items in splits.values() for item in items]
        texts = [item.prompt for item in self._items]
        self._index = NgramIndex(texts, familiar)
        self._short = ShortIndex([texts[index] for index in self._index.unseen], familiar)
        self.found: list[tuple[str, Run]] = []
        self.in_code: dict[int, str] = {}
        """Item -> program that holds its question."""
        self.n_units = 0

    def look(self, unit: TextUnit) -> None:
        """Search one unit."""
        self.n_units += 1
        for split, runs in self._runs.items():
            self.found += [(split, run) for run in runs.search(unit)]
        if PurePosixPath(unit.where.rpartition(":")[0]).suffix.lower() in CODE_SUFFIXES:
            unseen = self._index.unseen
            items = [hit.item for hit in self._index.search(unit.text)]
            for item in (*items, *(unseen[position] for position in self._short.search(unit.text))):
                self.in_code.setdefault(item, unit.where)

    def check(self) -> IntegrityCheck:
        """What follows from what was met."""
        findings = []
        if self.found:
            longest = max(run.length for _, run in self.found)
            words = f"{len(self.found)} lists hold the answers of hidden items in their order, up to {longest} in a row"
            proofs = tuple(
                proof(run.where, f"{run.length} answers of {split} from {run.first_item} on")
                for split, run in self.found[:MAX_PROOFS]
            )
            findings.append(IntegrityFinding("answers of hidden items", Severity.HIGH, Effect.VOID, words, proofs))
        if self.in_code:
            n = len(self.in_code)
            effect = Effect.FLAG if n >= FEW_IN_CODE else Effect.NOTE
            places = list(self.in_code.items())[:MAX_PROOFS]
            proofs = tuple(proof(self._items[item].id, f"its question appears in {where}") for item, where in places)
            words = f"the questions of {n} hidden items appear in programs"
            findings.append(IntegrityFinding("hidden items in programs", Severity.MEDIUM, effect, words, proofs))
        lengths = ", ".join(
            f"{split}: {'any run could be chance' if runs.length is None else f'{runs.length} in a row'}"
            for split, runs in self._runs.items()
        )
        return IntegrityCheck(
            "hard-coded answers", f"{self.n_units} rows and texts; a list counts from ({lengths})", tuple(findings)
        )


def _plain(value: str) -> str:
    return value.strip().casefold()
