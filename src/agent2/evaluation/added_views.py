"""Puts views beside the scores of a finished card, which stay what they are.

Promises: the card's lock names what gave the views; a card is replaced whole or not at all, so a killed run leaves the
one that was there.
"""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from msgspec import structs

from agent2.cards.folder import load_card, replace_card, store_card
from agent2.cards.reader import finished_header, iter_rollouts, read_header
from agent2.cards.writer import CardWriter
from agent2.pictures import copy_beside
from agent2.records import RolloutStatus, ScoredRollout

EVERY = 50
"""Rollouts between two reports of progress."""

ViewsOf = Callable[[ScoredRollout], Mapping[str, float | None]]


class ViewProgress(Protocol):
    """Called with the progress of the views."""

    def __call__(self, message: str, done: int | None = None, total: int | None = None) -> None:
        """Done and total in rollouts."""


def lacks_view(card: Path, name: str) -> bool:
    """Whether a rollout has not got a view, such as one that was played after the others got theirs."""
    return any(
        name not in record.score.views and record.rollout.status is not RolloutStatus.FAILED
        for record in iter_rollouts(card)
    )


def add_views(card: Path, source: tuple[str, Mapping[str, Any]], views_of: ViewsOf, on_progress: ViewProgress) -> None:
    """Write a finished card anew with the views of each rollout that did not fail.

    source: key of the card's lock, and what it says there about what gave the views.
    """
    key, identity = source
    header = finished_header(card)
    again = card.with_name(f".{card.name}.{key}")
    shutil.rmtree(again, ignore_errors=True)  # left by a kill
    copy_beside(card, again)
    message = f"{key.replace('_', ' ')} of {read_header(card).checkpoint_name}"
    with CardWriter(again, replace(header, lock={**header.lock, key: dict(identity)})) as writer:
        for record in iter_rollouts(card):
            if record.rollout.status is not RolloutStatus.FAILED:
                views = {**record.score.views, **views_of(record)}
                record = structs.replace(record, score=structs.replace(record.score, views=views))
            writer.append(record)
            if writer.n_rollouts % EVERY == 0:
                on_progress(message, writer.n_rollouts, header.planned_rollouts)
        writer.close()
    store_card(again, replace(load_card(again), notes=load_card(card).notes))
    replace_card(card, again)
