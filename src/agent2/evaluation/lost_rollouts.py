"""Plays again what the infrastructure lost of a finished card, and judges again what it left without a verdict.

`play_lost` does both for a card that a plan filled; `judge_lost` judges again on any card of verdicts (rescored ones,
judgements of two cards, scored answers), and plays nothing.

Promises: rollouts that have a score, or a fault that is not the infrastructure's, stay byte by byte what they were; the
seed of an attempt is the same, so a model draws what it would have drawn; what a model's own output provoked (a filter
that withheld an answer) is never played again, or a score would be chosen among its outputs. The finished card stays
as it is until the new one is finished too, also through a kill; then the new one takes its place, with a note.

Does NOT ask a judge again whose own answer was no verdict: `agent2 cards rescore` onto a new card does.
"""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from agent2.cards import folder
from agent2.cards.card import CardSummary
from agent2.cards.reader import iter_rollouts, read_header, read_totals
from agent2.errors import Fault
from agent2.evaluation.plan import EvaluationPlan
from agent2.evaluation.runner import UNSCORED, evaluate, played_beside
from agent2.evaluation.scoring import Progress, open_card
from agent2.records import PENDING, Sampler, ScoredRollout, ScoringMode, work_of
from agent2.texts import counted


def count_lost(card: Path) -> int:
    """How many rollouts of a finished card `play_lost` would play or judge again."""
    return _count(card, is_lost)


def count_unjudged(card: Path) -> int:
    """How many rollouts of a finished card `judge_lost` would judge again."""
    return _count(card, is_unjudged)


def is_lost(record: ScoredRollout) -> bool:
    """Whether the infrastructure lost a rollout, or its verdict."""
    rollout = record.rollout
    if rollout.fault is not None:
        return rollout.fault is Fault.INFRASTRUCTURE and rollout.is_final is not True
    return is_unjudged(record)


def is_unjudged(record: ScoredRollout) -> bool:
    """Whether a rollout was played and the infrastructure lost its verdict."""
    return record.rollout.fault is None and record.score.fault is Fault.INFRASTRUCTURE


def _count(card: Path, is_meant: Callable[[ScoredRollout], bool]) -> int:
    folder.restore_replaced(card)
    if not folder.is_finished(card) or not read_totals(card).faults.get(Fault.INFRASTRUCTURE.value):
        return 0
    return sum(map(is_meant, iter_rollouts(card)))


def play_lost(
    plan: EvaluationPlan,
    sampler: Sampler,
    card: Path,
    on_progress: Progress | None = None,
    give_up_after: int | None = None,
) -> CardSummary:
    """Play and judge what is lost on the finished card of a plan, and put the whole card in its place.

    Raises as `runner.evaluate` does, and leaves the card as it is then; what was played is resumed by the next call.
    """
    again = _beside(card)
    n_lost = count_lost(card)
    is_inline = work_of(plan.benchmark.scorer()).mode is ScoringMode.INLINE
    sound_records = [record for record in iter_rollouts(card) if not is_lost(record)]
    lost = f"{counted(n_lost, 'rollout')} that the infrastructure had lost {'was' if n_lost == 1 else 'were'}"
    _begin(again, card, sound_records, f"{lost} played or judged again")
    if not is_inline and not folder.is_finished(again):
        played_records = [
            record for record in iter_rollouts(card) if record.rollout.fault is None or not is_lost(record)
        ]
        _begin(played_beside(again), card, list(_pending(played_records)), "", scorer=UNSCORED)
    summary = evaluate(plan, sampler, again, on_progress, give_up_after)
    folder.replace_card(card, again)
    return summary


def judge_lost(card: Path, finish: Callable[[Path], CardSummary]) -> int:
    """Judge again what is lost of a finished card's verdicts, and put the whole card in its place.

    finish: completes the card in a folder, as the call that made this one. Returns how many verdicts were lost. Raises
    what `finish` raises, and leaves the card as it is then; what was judged is resumed by the next call.
    """
    n_lost = count_unjudged(card)
    if not n_lost:
        return 0
    again = _beside(card)
    judged_records = [record for record in iter_rollouts(card) if not is_unjudged(record)]
    _begin(again, card, judged_records, f"verdicts that the infrastructure had lost, asked for again: {n_lost}")
    if not folder.is_finished(again):
        finish(again)
    folder.replace_card(card, again)
    return n_lost


def _beside(card: Path) -> Path:
    """Where the new card is made; empty if it was begun for a card that has been deleted since."""
    again = card.with_name(f".{card.name}.again")
    if folder.card_exists(again) and read_header(again).created_at != read_header(card).created_at:
        shutil.rmtree(again)
        shutil.rmtree(played_beside(again), ignore_errors=True)
    return again


def _begin(target: Path, card: Path, records: list[ScoredRollout], note: str, scorer: str | None = None) -> None:
    """An open card like a finished one, with some of its rollouts; one that was begun before is completed."""
    header = read_header(card)
    if scorer is not None:
        header = replace(header, protocol=replace(header.protocol, scorer=scorer))
    writer, done = open_card(target, header)
    if writer is None:
        return
    with writer:
        for record in records:
            if (record.rollout.item_id, record.rollout.attempt) not in done:
                writer.append(record)
    stored = folder.load_card(target)
    if note and note not in stored.notes:
        folder.store_card(target, replace(stored, notes=[*folder.load_card(card).notes, *stored.notes, note]))


def _pending(records: list[ScoredRollout]) -> Iterator[ScoredRollout]:
    for record in records:
        yield record if record.rollout.fault is not None else ScoredRollout(record.rollout, PENDING)
