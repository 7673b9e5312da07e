"""The process that looks at what an agent left behind: `python -m agent2.arena.audit_child`, in a sandbox.

Reads an `AuditJob` (JSON) on standard input, prints each `Check` (JSON, one a line) as soon as it is made, so that
hostile data which break it take nothing back that was found before. Everything that it parses (weights, tables,
texts, rollouts) may be hostile, which is why it has no network and no secret.
"""

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from agent2.arena.audit_job import AuditedSubmission, AuditJob, failed_check
from agent2.cards.reader import iter_rollouts
from agent2.errors import Agent2Error
from agent2.integrity.drift import drift_check
from agent2.integrity.finding import Check
from agent2.integrity.hard_coded import HardCoded
from agent2.integrity.leaks import asked_of, leak_check
from agent2.integrity.provenance import provenance_check
from agent2.integrity.signatures import signature_check
from agent2.integrity.texts import Reading, ReadLimits, Unit, read_units
from agent2.models.adapters import as_played
from agent2.models.checkpoint import inspect_checkpoint
from agent2.records import Rollout


def main() -> None:
    """Run the job on standard input."""
    answer = os.dup(1)
    os.dup2(2, 1)  # what libraries print is no answer
    job = AuditJob.model_validate_json(sys.stdin.buffer.read())
    with os.fdopen(answer, "wb", buffering=0) as file:
        for check in run(job):
            file.write(msgspec.json.encode(check) + b"\n")


def run(job: AuditJob) -> Iterator[Check]:
    """Make every check; one that breaks is recorded as not made, the others go on."""
    for submission in job.submissions:
        yield from _guarded(f"weights of submission {submission.number}", partial(_weights, job, submission))
    yield from _guarded("training data", partial(_data, job))
    yield from _guarded("reward-hack signatures", partial(_signatures, job))


def _guarded(name: str, make: Callable[[], list[Check]]) -> list[Check]:
    try:
        return make()
    except Exception as error:  # boundary: hostile input may break anything; the record says that it did
        return [failed_check(name, f"this check broke ({type(error).__name__}: {str(error)[:200]})")]


def _weights(job: AuditJob, submission: AuditedSubmission) -> list[Check]:
    subject = f"submission {submission.number}"
    base = inspect_checkpoint(job.base)
    try:
        candidate = inspect_checkpoint(submission.snapshot)
        with TemporaryDirectory(dir=Path.cwd()) as scratch:
            played = as_played(candidate, base, Path(scratch) / "merged")
            provenance = provenance_check(played, base, subject)
    except Agent2Error as error:
        return [failed_check("provenance", f"{subject} cannot be read: {error}")]
    return [provenance, drift_check(candidate, base, subject)]


def _data(job: AuditJob) -> list[Check]:
    """One pass over the files for leaks and written-down answers."""
    splits = {split.value: items for split, items in job.hidden.items()}
    hidden = [item for items in job.hidden.values() for item in items]
    looking = HardCoded(splits, job.familiar)
    reading = Reading(not_read=Counter(job.not_copied), examples=list(job.not_copied_such_as))

    def watched() -> Iterator[Unit]:
        for unit in read_units(job.files, ReadLimits(), reading):
            looking.look(unit)
            yield unit

    leaks = leak_check(watched(), asked_of(hidden, job.control, job.familiar), reading)
    return [leaks, looking.check()]


def _signatures(job: AuditJob) -> list[Check]:
    if job.final is None or job.final_card is None or job.base_card is None:
        return []
    return [signature_check(_rollouts(job.final_card), _rollouts(job.base_card), f"submission {job.final}")]


def _rollouts(card: Path) -> Iterator[Rollout]:
    return (scored.rollout for scored in iter_rollouts(card))


if __name__ == "__main__":
    main()
