"""Cards of the base model: from the installation's cache, or played. Apart from `scoring`, which pages read too."""

from collections.abc import Callable
from pathlib import Path

from agent2.arena.scoring import LoadedTask, fetch_cached, store_cached
from agent2.benchmarks.trial_judge import draws_judge
from agent2.evaluation.runner import played_beside, score_beside
from agent2.records import Split


def fill_base_card(card: Path, task: LoadedTask, split: Split, key: str, play: Callable[[], object]) -> None:
    """Fill a card of the base model: copied from the installation's cache, or played and cached.

    key: from `card_key`. play: writes the card. What the cache has with the verdicts of another judge is judged by the
    trial's own.
    """
    cached = played_beside(card) if draws_judge(task.benchmark) else card
    if not fetch_cached(key, cached):
        play()
        store_cached(key, card)
    elif cached != card:
        score_beside(task.benchmark, task.items(split), card)
