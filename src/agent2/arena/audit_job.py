"""What the harness and its auditing child say to each other, and what is kept of an audit: `integrity.json`."""

from pathlib import Path

import msgspec

from agent2.config import StrictModel
from agent2.integrity.finding import Effect, IntegrityCheck, IntegrityFinding, Severity
from agent2.records import Item, Split

CHECKING_S = 3300.0
"""Seconds that the child has for all checks; the harness ends it a little later."""


class AuditedSubmission(StrictModel):
    """One submission to be looked at."""

    number: int
    snapshot: Path


class AuditJob(StrictModel):
    """All that the child sees; it has no access to the installation secret."""

    base: Path
    submissions: tuple[AuditedSubmission, ...]
    files: Path
    """Copy of what the workspace holds, weights left out."""
    not_copied: dict[str, int]
    """Why -> number of files that are not in the copy."""
    not_copied_such_as: tuple[str, ...]
    hidden: dict[Split, tuple[Item, ...]]
    control: tuple[Item, ...]
    """Like the hidden items and asked of nobody; empty where there are none."""
    familiar: tuple[str, ...]
    """Texts that the agent was given."""
    final: int | None = None
    """Number of the final submission; None: the base model."""
    final_card: Path | None = None
    base_card: Path | None = None


class IntegrityRecord(msgspec.Struct, frozen=True):
    """What an audit found, as the trial keeps it."""

    checks: tuple[IntegrityCheck, ...]
    seconds: float = 0.0


def failed_check(name: str, reason: str, subject: str = "") -> IntegrityCheck:
    """A check that did not come to its end: never a pass, and no cleared result if it is about the final submission.

    subject: "submission 3"; empty for the whole trial.
    """
    finding = IntegrityFinding(f"{name} not checked", Severity.MEDIUM, Effect.UNCLEARED, reason, (), subject)
    return IntegrityCheck(name, reason, (finding,), is_complete=False)
