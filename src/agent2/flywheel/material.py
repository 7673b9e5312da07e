"""What of an evaluation may leave it: visible items that their benchmark vouches for, and rollouts at them.

Hidden items never leave, in whatever field they are. So a card's own word is not enough: its header must have its
digests, its benchmark must be installed in the version that was played, and an item counts only if the benchmark itself
gives it for a visible split, without the installation secret, and the model was shown what the benchmark shows. A card
from another program's log has no benchmark here; its rollouts leave if its split is visible, marked as unchecked.

Does NOT protect against a reader of the cards, which hold the hidden items of their evaluation.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agent2.benchmarks import is_known, load_benchmark
from agent2.cards.folder import header_digests, load_card
from agent2.errors import Agent2Error, ConfigError, EnvironmentFailed
from agent2.flywheel.cards import CaseRef, EvaluatedCard, read_cases
from agent2.flywheel.cases import Cases
from agent2.plugins import is_code, relative_to
from agent2.records import HIDDEN_SPLITS, Benchmark, Item, Message, ScoredRollout, Split

MAX_REASON = 160
"""Characters of the reason why items cannot be made."""


@dataclass(frozen=True, slots=True)
class CardMaterial:
    """What of one card may leave."""

    card: EvaluatedCard
    benchmark: Benchmark | None
    """None: it cannot be used here, see `reason`."""
    items: Mapping[str, Item] = field(default_factory=dict)
    """Visible items by id."""
    reason: str = ""
    """Why nothing, or no item, may leave; a sentence that follows the card's name."""
    leaves_rollouts: bool = False
    """Whether rollouts at other than those items may leave: of a card from another program."""
    name: str = ""
    """How the benchmark is named from the round's folder."""


class Material:
    """What of all cards of a round may leave."""

    def __init__(self, cases: Cases, sources: Mapping[str, str], out: Path) -> None:
        """sources: benchmark -> where it is, for one of the user's own that the evaluation does not name."""
        self.of_card: dict[str, CardMaterial] = {
            key: _material_of(card, cases, sources.get(card.benchmark), out) for key, card in cases.cards.items()
        }
        self.left_out: dict[str, int] = {}
        """Why a rollout did not leave -> how many, over all questions."""
        self._cases = cases

    @property
    def withheld(self) -> list[str]:
        """One sentence for each card of which nothing, or no item, leaves."""
        return [f"{material.card.place}: {material.reason}" for material in self.of_card.values() if material.reason]

    def leaves_whole(self, card: str) -> bool:
        """Whether everything on a card may leave."""
        material = self.of_card[card]
        return material.leaves_rollouts or (
            bool(material.items) and self._cases.item_ids(card) <= material.items.keys()
        )

    def item_of(self, case: CaseRef) -> Item | None:
        """The item of a rollout, where it may leave."""
        return self.of_card[case.card].items.get(case.item_id)

    def rollouts(
        self, cases: Sequence[CaseRef], others: Mapping[str, EvaluatedCard] | None = None
    ) -> Iterator[tuple[CaseRef, ScoredRollout]]:
        """The rollouts that may leave, in the order of the references; the others are counted in `left_out`.

        others: cards of the baseline; what may leave of one is what may leave of the checkpoint's on the same items.
        """
        places = {**(others or {}), **self._cases.cards}
        allowed = [case for case in cases if self._may_leave(case, places)]
        records = dict(read_cases(allowed, places))
        for case in allowed:
            if self._is_as_shown(case, records[case], places):
                yield case, records[case]

    def _material(self, case: CaseRef, places: Mapping[str, EvaluatedCard]) -> CardMaterial | None:
        if case.card in self.of_card:
            return self.of_card[case.card]
        protocol = places[case.card].header.protocol
        twins = [
            material for material in self.of_card.values() if material.card.header.protocol.digest == protocol.digest
        ]
        return twins[0] if twins else None

    def _may_leave(self, case: CaseRef, places: Mapping[str, EvaluatedCard]) -> bool:
        material = self._material(case, places)
        if material is None or places[case.card].is_hidden:
            return self._refuse("its card may not leave")
        if material.leaves_rollouts or case.item_id in material.items:
            return True
        return self._refuse(material.reason or "its item is none of the visible ones of its benchmark")

    def _is_as_shown(self, case: CaseRef, record: ScoredRollout, places: Mapping[str, EvaluatedCard]) -> bool:
        material = self._material(case, places)
        if material is None or material.benchmark is None:
            return True
        try:
            opening = material.benchmark.environment().reset(material.items[case.item_id], record.rollout.seed)
        except EnvironmentFailed as error:
            return self._refuse(f"its world cannot be opened: {error}")
        if [*opening] == [*record.rollout.prompt]:
            return True
        return self._refuse("its prompt is not that of the item")

    def _refuse(self, why: str) -> bool:
        self.left_out[why] = self.left_out.get(why, 0) + 1
        return False


def opening_of(benchmark: Benchmark, item: Item) -> Sequence[Message]:
    """What a model is shown first of an item. Raises EnvironmentFailed."""
    return benchmark.environment().reset(item, 0)


def _material_of(card: EvaluatedCard, cases: Cases, source: str | None, out: Path) -> CardMaterial:
    split = card.header.protocol.split
    if split in HIDDEN_SPLITS:
        return CardMaterial(
            card,
            None,
            reason=f"its items are hidden ({split.value}) and stay there; evaluate dev for exports, which "
            "needs `dev: FILE` in an own benchmark",
        )
    stored = load_card(card.path)
    if header_digests(card.path) != (stored.header_digest, stored.protocol_digest):
        return CardMaterial(card, None, reason="its header was changed after it was written; evaluate again")
    if card.is_imported:
        return CardMaterial(
            card,
            None,
            reason="it comes from another program's log, so its items are not checked and no benchmark is made of them",
            leaves_rollouts=True,
        )
    where = source or card.source or card.benchmark
    if source is None and is_code(where):
        return CardMaterial(
            card, None, reason=f"its benchmark is code; allow it with --set sources.{card.benchmark}=FILE.py:NAME"
        )
    try:
        benchmark = load_benchmark(where)
        installed = f"{benchmark.name}-v{benchmark.version}"
        if installed != card.header.protocol.benchmark:
            raise ConfigError(f"{card.header.protocol.benchmark} was played, {installed} is installed")
        items = _visible_items(benchmark, split, cases.n_items(str(card.path)))
    except Agent2Error as error:
        return CardMaterial(card, None, reason=f"its items cannot be made here ({_without_list(error)})")
    return CardMaterial(card, benchmark, {item.id: item for item in items}, name=_portable_name(where, out))


def _without_list(error: Agent2Error) -> str:
    """The start of a message: the names that it goes on to list stand on the terminal once for each card otherwise."""
    message = str(error)
    return message if len(message) <= MAX_REASON else f"{message[:MAX_REASON].rpartition(' ')[0]} ..."


def _visible_items(benchmark: Benchmark, split: Split, n: int) -> list[Item]:
    """The items of a visible split as the benchmark gives them without the secret. Raises ConfigError."""
    count = getattr(benchmark, "count", None)
    return benchmark.items(split, n if count is None else min(n, count(split, None)), None)


def _portable_name(name: str, out: Path) -> str:
    if is_known(name) or is_code(name):
        return name
    path = os.path.relpath(relative_to(name, Path()), out.resolve())
    return path if path.startswith(".") else f"./{path}"
