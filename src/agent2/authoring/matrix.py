"""The capability matrix: how many items of which task type and difficulty a benchmark is to have, and has."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent2.authoring.task_cards import DIFFICULTIES, TaskCard
from agent2.config import read_yaml
from agent2.errors import ConfigError


@dataclass(frozen=True, slots=True)
class CellCount:
    """One cell of the matrix."""

    task_type: str
    difficulty: str
    target: int
    n_cards: int

    @property
    def deficit(self) -> int:
        """Cards that are missing."""
        return max(0, self.target - self.n_cards)


@dataclass(frozen=True, slots=True)
class CapabilityMatrix:
    """Targets by task type and difficulty."""

    targets: Mapping[str, Mapping[str, int]]

    @property
    def total(self) -> int:
        """Items of the whole matrix."""
        return sum(sum(row.values()) for row in self.targets.values())

    def cells(self, cards: Sequence[TaskCard]) -> list[CellCount]:
        """Every cell in the order of the file, then the task types of cards that it does not have (target 0)."""
        counts: Counter[tuple[str, str]] = Counter((card.task_type, card.difficulty) for card in cards)
        extra = dict.fromkeys(card.task_type for card in cards if card.task_type not in self.targets)
        rows = {**self.targets, **{task_type: {} for task_type in extra}}
        return [
            CellCount(task_type, difficulty, row.get(difficulty, 0), counts[task_type, difficulty])
            for task_type, row in rows.items()
            for difficulty in DIFFICULTIES
        ]


def read_matrix(path: Path) -> CapabilityMatrix:
    """A matrix file: `task type: {easy: 30, medium: 40, hard: 20}` or `task type: 30/40/20`, perhaps below `matrix`.

    Raises ConfigError for a row without any target, an unknown difficulty, or a count that is none.
    """
    return matrix_of(read_yaml(path).data, str(path))


def matrix_of(record: Any, where: str) -> CapabilityMatrix:
    """The matrix of a mapping. Raises ConfigError naming the row."""
    rows = record.get("matrix", record) if isinstance(record, dict) else None
    if not isinstance(rows, dict) or not rows:
        raise ConfigError(f"{where}: a matrix has a row a task type, as in 'bug fix: 30/40/20'; add rows")
    return CapabilityMatrix({str(name): _row(name, row, where) for name, row in rows.items()})


def _row(name: object, row: object, where: str) -> dict[str, int]:
    if isinstance(row, str) and row.count("/") == len(DIFFICULTIES) - 1:
        row = dict(zip(DIFFICULTIES, (part.strip() for part in row.split("/")), strict=True))
    if not row:
        raise ConfigError(f"{where}: row {name!r} is empty; give targets, as in 30/40/20 (easy/medium/hard)")
    if not isinstance(row, dict) or set(row) - set(DIFFICULTIES):
        raise ConfigError(f"{where}: row {name!r} is {row!r}; give easy, medium and hard, as in 30/40/20")
    counts: dict[str, int] = {}
    for difficulty, count in row.items():
        if isinstance(count, bool) or not str(count).isdecimal():
            raise ConfigError(f"{where}: row {name!r}: {difficulty} is {count!r}; give a number of items")
        counts[difficulty] = int(str(count))
    if not any(counts.values()):
        raise ConfigError(f"{where}: row {name!r} asks for no item; give it a target, or delete the row")
    return counts
