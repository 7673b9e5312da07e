"""What benchmarks of published data share: files that users download, and the split of what everybody can have.

The visible part is divided by place (every nth item is dev), the scored part by the installation secret, into
test_public and test_private. So an agent that knows the data set still does not know which items decide. The hidden
items are hidden from its workspace and nothing more: anybody can download them, and a base model may have read them.
Therefore a trial on such a task compares the agent's data with fixed shares and not with control items (which everybody
has, too), and its report warns where the network policy let the agent reach them.

Does NOT download.
"""

import hashlib
import hmac
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent2.benchmarks.data_files import Row, read_rows
from agent2.environments.question import NAME, VERSION, QuestionEnvironment
from agent2.errors import ConfigError
from agent2.records import HIDDEN_SPLITS, Environment, Item, JsonValue, SamplingSettings, Split


@dataclass(frozen=True, slots=True)
class OfficialFile:
    """One published file that users download themselves."""

    benchmark: str
    names: Sequence[str]
    """What it may be called; the first one that exists is read."""
    source: str
    """Where it is published."""
    fields: Mapping[str, type]
    """What each row holds."""

    @property
    def variable(self) -> str:
        """Environment variable that may name its folder."""
        return f"{self.benchmark.upper()}_DATA"

    def path(self, folder: Path | None) -> Path:
        """Where it is: in the given folder, in that of the variable, or in the cache.

        Raises ConfigError if it is in none of them.
        """
        named = os.environ.get(self.variable)
        place = (folder or (Path(named) if named else Path.home() / ".cache" / self.benchmark)).expanduser()
        for name in self.names:
            if (place / name).is_file():
                return place / name
        raise ConfigError(
            f"{self.benchmark}: {place} contains no {' or '.join(self.names)}; download it from {self.source} and set "
            f"{self.variable} to its folder (agent2 run and agent2 tasks also take --data)"
        )

    def rows(self, folder: Path | None) -> list[Row]:
        """Its rows. Raises ConfigError naming the line that is not in the published layout."""
        rows = read_rows(self.path(folder))
        for row in rows:
            for name, kind in self.fields.items():
                if not isinstance(row.values.get(name), kind):
                    raise ConfigError(
                        f"{row.where}: field {name!r} is missing or not {kind.__name__}; restore the file as it is "
                        f"published at {self.source}"
                    )
        return rows


@dataclass(frozen=True, slots=True)
class PublishedItem:
    """One published problem."""

    id: str
    where: str
    """File and line."""
    prompt: str
    reference: str | None
    payload: Mapping[str, JsonValue]


class PublishedBenchmark(ABC):
    """A benchmark of questions from official files."""

    name: str
    version = "1.0"
    primary_metric: str
    max_turns = 1
    sampling: SamplingSettings
    attempts = 1
    public_share = 0.5
    """Of the scored items, the part that is test_public."""

    def __init__(self, data: Path | None = None) -> None:
        """data: folder with the official files."""
        self.data = data

    @abstractmethod
    def visible(self, split: Split) -> list[PublishedItem]:
        """The items of train or dev. Raises ConfigError for files that are not there or not as published."""

    @abstractmethod
    def scored(self) -> list[PublishedItem]:
        """The items of both hidden splits. Raises ConfigError as `visible`."""

    def items(self, split: Split, n: int, secret: bytes | None) -> list[Item]:
        """The first n items of a split.

        Raises ConfigError without the secret for a hidden one, if there are fewer, if an id appears twice, and if a
        file is not there or not as published.
        """
        found = self._members(split, secret)
        if n > len(found):
            raise ConfigError(
                f"{self.name}: {n} items of split {split.value!r} were asked for, there are {len(found)}; ask for "
                "fewer, and check that the file is complete"
            )
        return [Item(one.id, split, one.prompt, one.reference, one.payload) for one in found[:n]]

    def count(self, split: Split, secret: bytes | None) -> int:
        """How many items a split has. Raises ConfigError as `items`."""
        return len(self._members(split, secret))

    def environment(self) -> Environment:
        """A fresh question."""
        return QuestionEnvironment()

    def environment_version(self) -> str:
        """Name and version of the world."""
        return f"{NAME}-v{VERSION}"

    def _members(self, split: Split, secret: bytes | None) -> list[PublishedItem]:
        if split not in HIDDEN_SPLITS:
            return _distinct(self.visible(split))
        if not secret:
            raise ConfigError(f"split {split.value!r} of {self.name} is hidden; only the grader may ask for it")

        def place(one: PublishedItem) -> bytes:
            return hmac.new(secret, f"{self.name} order\0{one.id}".encode(), hashlib.sha256).digest()

        ordered = sorted(_distinct(self.scored()), key=place)
        n_public = math.ceil(self.public_share * len(ordered) - 0.5)  # the odd item is private
        return ordered[:n_public] if split is Split.TEST_PUBLIC else ordered[n_public:]


def divided(visible: Sequence[PublishedItem], split: Split, dev_every: int) -> list[PublishedItem]:
    """Train or dev of visible items of which every nth one is dev."""
    return [one for place, one in enumerate(visible) if (place % dev_every == dev_every - 1) == (split is Split.DEV)]


def _distinct(items: list[PublishedItem]) -> list[PublishedItem]:
    seen: dict[str, str] = {}
    for one in items:
        if one.id in seen:
            raise ConfigError(f"{one.where}: id {one.id} also appears at {seen[one.id]}; restore the published file")
        seen[one.id] = one.where
    return items
