"""Finished cards of evaluated models, kept below AGENT2_HOME, so that a baseline is played once and not every night.

Promises: a card is used again only for the same model (by the digest of its files), items, protocol, seed and version
of agent2, never for one with missing scores; the copy in an evaluation's folder stands alone. Only
models in this process are kept: of an endpoint or a script nobody knows whether it is still the same.
"""

import shutil
import tempfile
from pathlib import Path

from agent2 import __version__, installation
from agent2.cards.folder import is_finished
from agent2.cards.reader import read_totals, validate_card
from agent2.errors import CardError
from agent2.evaluation.plan import EvaluationPlan
from agent2.evaluation.runner import finished_summary, planned_header
from agent2.models.sources import CheckpointSource, SourceKind
from agent2.records import digest_of


def stored_card(plan: EvaluationPlan) -> Path:
    """Where the card of a plan is kept; it may not exist."""
    return installation.home() / "sides" / digest_of([planned_header(plan).identity(), __version__])


def is_kept(source: CheckpointSource) -> bool:
    """Whether cards of this checkpoint are used again."""
    return source.kind is SourceKind.HF


def take_stored(plan: EvaluationPlan, card: Path) -> bool:
    """Copy the kept card of a plan to a folder that does not exist; False: none is kept, or it is damaged."""
    stored = stored_card(plan)
    try:
        if card.exists() or not is_finished(stored) or validate_card(stored):
            return False
        finished_summary(plan, stored)
    except CardError:
        return False
    _copy(stored, card)
    return True


def keep(plan: EvaluationPlan, card: Path) -> None:
    """Keep the finished card of a plan, unless some of its scores are missing: playing again may give them."""
    stored = stored_card(plan)
    if stored.exists() or read_totals(card).n_missing:
        return
    _copy(card, stored)


def _copy(card: Path, target: Path) -> None:
    """Copy a card, whole or not at all; where another process was faster, its copy stays."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".copy-", dir=target.parent) as scratch:
        copied = Path(scratch) / "card"
        shutil.copytree(card, copied)
        if not target.exists():
            copied.rename(target)
