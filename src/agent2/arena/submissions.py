"""The submissions of a trial, wherever it has them."""

import msgspec

from agent2.arena.evidence import SubmissionRecord
from agent2.arena.grader.store import read_submissions
from agent2.arena.trial_folder import TrialPaths
from agent2.errors import ConfigError
from agent2.foreign_files import read_limited


def read_submissions_of(paths: TrialPaths) -> tuple[SubmissionRecord, ...]:
    """The submissions of a trial, from the grader's database or, of a shared recording, from submissions.json.

    Raises ConfigError if the latter is damaged.
    """
    if paths.grader_db.exists():
        return tuple(read_submissions(paths.grader_db))
    if not paths.shared_submissions.exists():
        return ()
    try:
        return msgspec.json.decode(read_limited(paths.shared_submissions), type=tuple[SubmissionRecord, ...])
    except (OSError, msgspec.MsgspecError, RecursionError) as error:
        raise ConfigError(f"{paths.shared_submissions}: {error}; it is machine-written, restore it") from error
