"""A finished card judged or played again: its kept rollouts, a scorer or a world as it is now, no model.

Promises: the card that is judged again is never changed; the new one says from which card it comes, by which scorer
and settings; its protocol names them, so that it is comparable only with cards judged the same way. To count the same
verdicts otherwise, see `cards.reader.regrade`. `play_again` compares observations and final state with a world of
today; it does NOT compare what the model was sent under a context policy.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from agent2 import __version__, installation
from agent2.benchmarks import load_benchmark
from agent2.cards.card import CardHeader, CardSummary
from agent2.cards.folder import CARD_JSON, card_exists, file_digest, load_card
from agent2.cards.reader import iter_rollouts
from agent2.errors import CardError, ConfigError, shown
from agent2.evaluation.engine import Attempt, play_by
from agent2.evaluation.runner import UNSCORED, software_lock
from agent2.evaluation.scoring import Progress, ScoringPlace, require_scorer, score_card
from agent2.records import (
    HIDDEN_SPLITS,
    Benchmark,
    Environment,
    Item,
    JsonValue,
    Rollout,
    RolloutStatus,
    Scorer,
    digest_of,
)

RESCORED = "rescored"
"""Key of the lock under which a rescored card says where it comes from."""


def rescore(
    source: Path,
    target: Path,
    scorer: Scorer | None = None,
    settings: Mapping[str, JsonValue] | None = None,
    benchmark: Benchmark | None = None,
    *,
    place: ScoringPlace | None = None,
    on_progress: Progress | None = None,
) -> CardSummary:
    """Judge a finished card's rollouts again and write them, with the new verdicts, on another card.

    scorer: None: the benchmark's own. settings: what the scorer was made with, for the record. benchmark: None: the one
    that the card names. A `target` that this began and did not finish is resumed.
    Raises CardError for a card that is open, damaged or of another format, and for a `target` that is taken;
    ConfigError for items that are not those of the card any more, and for a scorer of another kind or one that judges
    by a state that the rollouts do not hold; what `score_card` raises.
    """
    header = finished_header(source)
    benchmark = benchmark if benchmark is not None else benchmark_of(source, header)
    scorer = scorer if scorer is not None else benchmark.scorer()
    require_scorer(scorer, place)
    require_state(source, header, scorer)
    items = items_of(source, header, benchmark)
    new = rescored_header(source, header, scorer, settings or {})
    _require_free(target, new)
    return score_card(source, target, new, items, scorer, place=place, on_progress=on_progress)


def play_again(item: Item, rollout: Rollout, make_environment: Callable[[], Environment]) -> str:
    """Give a rollout's actions to a fresh world; the first difference as a sentence, empty if there is none.

    The opening, each observation, the end and the parts of the final state are compared; of a rollout that failed, what
    it holds. Raises ConfigError if the rollout is of another item.
    """
    if rollout.item_id != item.id:
        raise ConfigError(f"the rollout is of item {rollout.item_id!r}, not {item.id!r}; pass the item that was played")
    actions = iter([turn.action for turn in rollout.turns])
    attempts = [Attempt(item, rollout.attempt, rollout.seed)]
    max_turns = max(1, len(rollout.turns))
    ((_, again),) = play_by(lambda *_: next(actions, ""), attempts, make_environment, max_turns, retries=0)
    if again.prompt and (was := list(rollout.prompt)) != (now := list(again.prompt)):
        return f"the opening was {shown(was)}, and is {shown(now)} now"
    for number, turn in enumerate(rollout.turns, 1):
        if number > len(again.turns):
            return f"turn {number}: {again.reason or 'the episode is over before it'}"
        if (reply := again.turns[number - 1].observation) != turn.observation:
            return f"turn {number}: the observation was {shown(turn.observation)}, and is {shown(reply)} now"
    if rollout.status is RolloutStatus.FAILED:
        return ""
    if (rollout.status is RolloutStatus.COMPLETED) != (again.status is RolloutStatus.COMPLETED):
        return f"the episode ended with status {rollout.status}, and with {again.status} now"
    for name in sorted({*rollout.state, *again.state}):
        if (before := rollout.state.get(name)) != (after := again.state.get(name)):
            return f"the final state's {name} was {shown(before)}, and is {shown(after)} now"
    return ""


def finished_header(card: Path) -> CardHeader:
    """The header of a finished card. Raises CardError for one that is not, or cannot be read."""
    found = load_card(card)
    if found.state != "closed":
        raise CardError(f"{card}: is not finished, so some rollouts may be missing; resume its evaluation first")
    return found.header


def benchmark_of(card: Path, header: CardHeader) -> Benchmark:
    """The benchmark that a card names. Raises ConfigError if it is not installed here."""
    name = header.protocol.benchmark.rpartition("-v")[0] or header.protocol.benchmark
    try:
        return load_benchmark(name)
    except ConfigError as error:
        raise ConfigError(
            f"{card}: its items come from {header.protocol.benchmark!r}, and that cannot be loaded ({error}); name the "
            "benchmark with --benchmark"
        ) from error


def items_of(card: Path, header: CardHeader, benchmark: Benchmark) -> dict[str, Item]:
    """The items that a card was played on, by id. Raises ConfigError if the benchmark has others now."""
    protocol = header.protocol
    planned = header.planned_rollouts
    if planned is None or planned % protocol.attempts:
        n_items = len({record.rollout.item_id for record in iter_rollouts(card)})
    else:
        n_items = planned // protocol.attempts
    secret = installation.secret() if protocol.split in HIDDEN_SPLITS else None
    items = benchmark.items(protocol.split, n_items, secret)
    if digest_of(list(items)) != protocol.items_digest:
        why = " or were chosen under another installation's secret" if secret is not None else ""
        raise ConfigError(
            f"{card}: was played on {n_items} items of {protocol.benchmark} {protocol.split.value}, and "
            f"{benchmark.name}-v{benchmark.version} gives others now: they were selected otherwise{why}; use the "
            "version and installation that played it, or name the benchmark with --benchmark"
        )
    return {item.id: item for item in items}


def require_state(card: Path, header: CardHeader, scorer: object) -> None:
    """Raises ConfigError if a scorer judges by a world's final state that a card's rollouts do not hold."""
    needed: frozenset[str] = getattr(scorer, "needs_state", frozenset())
    for record in iter_rollouts(card) if needed else ():
        if record.rollout.fault is None and (lacking := sorted(needed - record.rollout.state.keys())):
            raise ConfigError(
                f"{card}: scorer {getattr(scorer, 'name', '')} judges by the final state of a world "
                f"({', '.join(lacking)}), and this card's, {header.protocol.environment}, left none: item "
                f"{record.rollout.item_id!r}; choose another scorer"
            )


def rescored_header(source: Path, header: CardHeader, scorer: Scorer, settings: Mapping[str, JsonValue]) -> CardHeader:
    """The header of a rescored card."""
    protocol = replace(
        header.protocol,
        scorer=f"{scorer.name}-v{scorer.version}",
        judge_digest=digest_of(dict(settings)) if settings else "",
    )
    provenance = {
        **card_identity(source, header),
        "scorer": protocol.scorer,
        "settings": dict(settings),
        "agent2": __version__,
        "software": software_lock(),
    }
    return replace(header, protocol=protocol, lock={**header.lock, RESCORED: provenance}, created_at=time.time())


def card_identity(card: Path, header: CardHeader) -> dict[str, JsonValue]:
    """How another card names this one: by content, and by its name for people."""
    return {
        "card": card.name,
        "card_digest": file_digest(card / CARD_JSON),
        "checkpoint_name": header.checkpoint_name,
        "checkpoint_digest": header.checkpoint_digest,
        "protocol_digest": header.protocol.digest,
        "was_scored_by": header.protocol.scorer if header.protocol.scorer != UNSCORED else None,
    }


def _require_free(target: Path, header: CardHeader) -> None:
    """Raises CardError for a card that is finished, or was begun from another one."""
    if not card_exists(target):
        return
    stored = load_card(target)
    if stored.state == "closed":
        raise CardError(f"{target}: holds a finished card already, and none is overwritten; choose another folder")
    begun = stored.header.lock.get(RESCORED, {})
    if begun.get("card_digest") != header.lock[RESCORED]["card_digest"]:
        raise CardError(f"{target}: holds an unfinished card that is not made from this one; choose another folder")
