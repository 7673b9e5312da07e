"""The household benchmark: generated games on the ALFWorld engine, won or not.

Three sizes under three names: `household` (tiny; a model of under a million weights learns it in minutes),
`household_small` and `household_full` (as large as the published games). Every item is one game with its opening;
splits share no room with the same goal, and hidden ones derive from the installation secret. Completions are drawn
at temperature 1, one attempt a game, as the policy that is trained is sampled.

Two further names play the games of `household` otherwise: in `household_faulty` a command now and then fails on
purpose, so that recovery can be measured; in `household_listed` every observation ends with the possible commands.

Promises: no item holds a walkthrough or anything else that was made by solving its game. Does NOT compare with
published ALFWorld scores: rooms, texts and models are our own.
"""

from collections.abc import Mapping, Sequence

from agent2.benchmarks.home import Players
from agent2.benchmarks.household.generate import game_of, opening, source_of
from agent2.benchmarks.household.layout import Layout
from agent2.benchmarks.household.players import HOUSEHOLD_PLAYERS, first_commands
from agent2.benchmarks.household.rows import item_of_row, row_of
from agent2.benchmarks.household.worlds import size_of
from agent2.environments.household.faults import HouseholdFaults
from agent2.environments.household.world import NAME, VERSION, HouseholdSettings, HouseholdWorld
from agent2.records import Environment, Item, JsonValue, SamplingSettings, Scorer, Split
from agent2.scorers.household import HouseholdScorer

NO_FAULTS = HouseholdFaults()
SOME_FAULTS = HouseholdFaults(rate=0.3)
"""As often as calls fail in `mini_apis`; all kinds alike, among the first four possible commands of a game."""


class Household:
    """Generated games of the tiny size in four disjoint splits."""

    name = "household"
    version = "1.0"
    primary_metric = "success"
    sampling = SamplingSettings(temperature=1.0, max_tokens=12)
    attempts = 1
    size_name = "tiny"
    faults = NO_FAULTS
    show_admissible = False

    def __init__(self) -> None:
        self._size = size_of(self.size_name)
        self._source = source_of(self._size)
        self.max_turns = self._size.max_turns
        self.settings = HouseholdSettings(self.show_admissible, self.faults, max_turns=self.max_turns)
        self.tool_protocol = self.settings.as_protocol()

    def items(self, split: Split, n: int, secret: bytes | None) -> list[Item]:
        """The first n games of a split. Raises ConfigError without the secret for a hidden one, or if it has fewer."""
        return [self._item(layout, split, secret) for layout in self._source.first(split, n, secret)]

    def environment(self) -> Environment:
        """A fresh household."""
        return HouseholdWorld(self.settings)

    def scorer(self) -> Scorer:
        """Won or not."""
        return HouseholdScorer()

    def environment_version(self) -> str:
        """Name and version of the world, and what its settings are."""
        return f"{NAME}-v{VERSION}+{self.settings.digest}"

    def players(self) -> Players:
        """Who brackets the games."""
        return HOUSEHOLD_PLAYERS

    def static_answers(self, items: Sequence[Item], seed: int) -> list[str]:
        """A first command that each opening allows."""
        return first_commands(items, seed)

    def visible_row(self, item: Item) -> dict[str, JsonValue]:
        """A visible item as a row of train.jsonl: enough to play it, nothing that solves it."""
        return row_of(item)

    def item_of(self, row: Mapping[str, JsonValue]) -> Item:
        """The item of a row of train.jsonl or dev.jsonl. Raises ConfigError for another kind of row."""
        return item_of_row(row)

    def _item(self, layout: Layout, split: Split, secret: bytes | None) -> Item:
        return Item(
            id=self._source.item_id(layout, split, secret),
            split=split,
            prompt=opening(layout),
            payload={"game": game_of(layout).as_payload(), "task_type": layout.task_type},
        )


class HouseholdSmall(Household):
    """Generated games of the small size: 8 to 13 receptacles, all six task types."""

    name = "household_small"
    size_name = "small"
    sampling = SamplingSettings(temperature=1.0, max_tokens=32)


class HouseholdFull(Household):
    """Generated games of the full size: as large as the published ones."""

    name = "household_full"
    size_name = "full"
    sampling = SamplingSettings(temperature=1.0, max_tokens=32)


class HouseholdFaulty(Household):
    """The games of `household`; in three of ten a command meets a timeout, a denial or an empty reply, by the seed."""

    name = "household_faulty"
    faults = SOME_FAULTS


class HouseholdListed(Household):
    """The games of `household` with the possible commands after every observation."""

    name = "household_listed"
    show_admissible = True
    context = "drop_admissible"
    """Old lists are not sent again in an evaluation; all of them can be longer than the tiny model's context."""
