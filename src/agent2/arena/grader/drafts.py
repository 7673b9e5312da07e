"""The card while an evaluating child writes it, and how it becomes the grader's own.

The child may write one folder, the draft beside the card's place; a draft that was cut short is continued by the
next child. What a child left is a stranger's: it is taken over only once the child is gone, and only if it is a
finished, undamaged card of the evaluation that was asked for, made of plain files. Does NOT prove that the answers
on the card are what the model said: a child that was taken over by what it loaded can write any answer.
"""

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from agent2.arena.grader.job import EvaluationJob, EvaluationOutcome
from agent2.cards.folder import CARD_JSON, is_finished
from agent2.cards.reader import read_header, read_summary, validate_card
from agent2.errors import CardError
from agent2.records import digest_of

INSIDE_DRAFT = "card"
"""The child's card, in the draft."""
MAX_CARD_BYTES = 8 << 30
MAX_CARD_FILES = 100
MAX_FACTS_BYTES = 256 << 20
"""Of card.json, which is read in one piece."""
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def draft_of(card: Path) -> Path:
    """Where the child writes."""
    return card.with_name(f".{card.name}.draft")


def take_up(job: EvaluationJob) -> Path:
    """The draft that the child goes on with: what an earlier one left, or an empty folder."""
    draft = draft_of(job.card)
    if job.discard_card:
        _remove(job.card)
        _remove(draft)
    draft.mkdir(parents=True, exist_ok=True)
    if job.card.exists():  # finished, and its score was not recorded: read again, not played again
        _remove(draft / INSIDE_DRAFT)
        os.rename(job.card, draft / INSIDE_DRAFT)
    return draft


def hand_over(job: EvaluationJob, outcome: EvaluationOutcome) -> None:
    """Move a finished card from the draft to its place.

    outcome: what the child said. Call it when the child is gone. Raises CardError, and moves nothing, for anything
    but a sound card of this job that says the same.
    """
    draft = draft_of(job.card)
    made = draft / INSIDE_DRAFT
    _adopt(made)
    problems = validate_card(made)
    if problems:
        raise CardError(f"{problems[0]}; the evaluation has to be made again")
    header = read_header(made)
    asked = (job.name, job.split, digest_of(list(job.items)), job.seed)
    if (header.checkpoint_name, header.protocol.split, header.protocol.items_digest, header.seed) != asked:
        raise CardError(f"{made}: is the card of another evaluation; the evaluation has to be made again")
    if outcome.value is not None:
        card = read_summary(made)
        said = (outcome.value, outcome.low, outcome.high, outcome.n_items, outcome.n_missing)
        if (card.value, card.low, card.high, card.n_items, card.n_missing) != said:
            raise CardError(f"{made}: does not say what the child said ({said}); the evaluation has to be made again")
    os.rename(made, job.card)
    _remove(draft)


def has_finished_card(job: EvaluationJob) -> bool:
    """Whether the draft holds a card that was closed; a damaged one is none."""
    made = draft_of(job.card) / INSIDE_DRAFT
    try:
        folder, facts = made.lstat(), (made / CARD_JSON).lstat()
        if not stat.S_ISDIR(folder.st_mode) or not stat.S_ISREG(facts.st_mode) or facts.st_size > MAX_FACTS_BYTES:
            return False
        return is_finished(made)
    except (OSError, CardError):
        return False


def _adopt(made: Path) -> None:
    """Make a folder of plain files ours; nothing in it is followed. Raises CardError for anything else."""
    total = 0
    for count, (name, status) in enumerate(_own(made), start=1):
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
            raise CardError(f"{made}: {name!r} is not a plain file; the evaluation has to be made again")
        total += status.st_size
        is_long = name == CARD_JSON and status.st_size > MAX_FACTS_BYTES
        if is_long or count > MAX_CARD_FILES or total > MAX_CARD_BYTES:
            raise CardError(f"{made}: is larger than any card; the evaluation has to be made again")


def _own(made: Path) -> Iterator[tuple[str, os.stat_result]]:
    try:
        folder = os.open(made, _OPEN | os.O_DIRECTORY)
    except OSError as error:
        raise CardError(f"{made}: is not a directory; the evaluation has to be made again") from error
    try:
        os.fchown(folder, os.geteuid(), os.getegid())
        os.fchmod(folder, 0o755)
        for name in sorted(os.listdir(folder)):
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            yield name, status
            handle = os.open(name, _OPEN, dir_fd=folder)
            try:
                os.fchown(handle, os.geteuid(), os.getegid())
                os.fchmod(handle, 0o644)
            finally:
                os.close(handle)
    finally:
        os.close(folder)


def _remove(folder: Path) -> None:
    if folder.is_symlink():
        folder.unlink()
    elif folder.exists():
        shutil.rmtree(folder)
