"""What tokens cost: a dated table in a file, and dollars from token counts.

The packaged table (`prices.yaml`) says when and where each price was read. `--prices FILE` goes before it,
model by model. Promises: a model that is in neither has no price, so its cost is None, never 0.

Does NOT know discounts of an account, batch or priority tiers, regional surcharges, or fees of the
provider's own tools.
"""

import re
from dataclasses import dataclass
from datetime import date
from importlib import resources
from pathlib import Path

from pydantic import Field

from agent2.arena.gateway.settings import TokenCounts
from agent2.config import StrictModel, load_yaml, parse_yaml

PER = 1_000_000
"""Prices are dollars for this many tokens."""
_SUFFIX = re.compile(r"(-latest|-\d{8}|-\d{4}-\d{2}-\d{2}|-\d{2}-\d{2}|-\d{3})$")


class Rates(StrictModel):
    """Dollars for a million tokens."""

    input: float = Field(ge=0)
    output: float = Field(ge=0)
    """Reasoning included."""
    cached_input: float | None = Field(default=None, ge=0)
    """Absent: no discount, a cached token costs what any input token costs."""
    cache_write: float | None = Field(default=None, ge=0)
    """Absent: no surcharge."""
    cache_write_1h: float | None = Field(default=None, ge=0)
    """Absent: as `cache_write`."""

    def dollars(self, tokens: TokenCounts) -> float:
        """What one call costs."""
        write = self.input if self.cache_write is None else self.cache_write
        write_1h = write if self.cache_write_1h is None else self.cache_write_1h
        cached = self.input if self.cached_input is None else self.cached_input
        plain = max(0, tokens.input - tokens.cached_input - tokens.cache_write - tokens.cache_write_1h)
        total = (
            plain * self.input
            + tokens.cached_input * cached
            + tokens.cache_write * write
            + tokens.cache_write_1h * write_1h
            + tokens.output * self.output
        )
        return total / PER


class LongRates(Rates):
    """The rates of a call whose input is longer than `above`; all of its tokens cost these."""

    above: int = Field(gt=0)


class ModelPrice(Rates):
    """One model."""

    long: LongRates | None = None
    source: str = Field(min_length=1)
    """Where the price was read."""
    read: date | None = None
    """When, where it differs from the table's date."""


class PriceFile(StrictModel):
    """A price file."""

    date: date
    """When the prices were read."""
    note: str = ""
    models: dict[str, ModelPrice] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PriceTable:
    """The packaged prices below those of the user's file."""

    files: tuple[PriceFile, ...]
    """The first that knows a model decides."""

    def find(self, model: str) -> ModelPrice | None:
        """The price of a model: by its name, then without a date or version at its end.

        A name such as `gpt-x-mini` is never priced as `gpt-x`.
        """
        name = model.removeprefix("models/")
        for candidate in (name, _SUFFIX.sub("", name)):
            for file in self.files:
                if candidate in file.models:
                    return file.models[candidate]
        return None

    def cost(self, model: str, tokens: TokenCounts) -> float | None:
        """Dollars of one call, or None if the price of the model is unknown.

        Per call, not of a sum: a long call may have rates of its own.
        """
        price = self.find(model)
        if price is None:
            return None
        if price.long is not None and tokens.input > price.long.above:
            return price.long.dollars(tokens)
        return price.dollars(tokens)

    def read_on(self, model: str) -> date | None:
        """When the price of a model was read; None if it is unknown."""
        price = self.find(model)
        if price is None:
            return None
        return price.read or next(file.date for file in self.files if price in file.models.values())


def load_prices(path: Path | None = None) -> PriceTable:
    """The packaged table, below a user's file if there is one. Raises ConfigError for a bad file."""
    packaged = resources.files("agent2.arena.gateway") / "prices.yaml"
    table = parse_yaml(packaged.read_text(encoding="utf-8"), PriceFile, "prices.yaml")
    return PriceTable((table,) if path is None else (load_yaml(path, PriceFile), table))
