"""Errors and faults: what can go wrong, what is to blame, and what follows from it.

One table (`FAULT_POLICY`) says for each kind of fault whether it is worth a retry and whether it counts
against the model. Nothing else in the code decides that. Every message has three parts: what is wrong
with which value, where it came from, and what to do.
"""

import difflib
import errno
import re
import reprlib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

SIMILARITY = 0.6
"""Least similarity (difflib's ratio) of a name that is proposed; at 0.5 `device` would be taken for `prices`."""
MIN_PREFIX = 3
"""Letters that the beginning of a name must have to match it."""
MAX_SHOWN = 300
_MACHINE_ERRNOS = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENODEV}
)
_MACHINE_WORDS = re.compile(
    r"no space left on device|disk is full|disk i/o error|disk quota exceeded|cannot allocate memory|out of memory"
    r"|not enough memory|too many open files|file too large \(os error",
    re.IGNORECASE,
)
"""How libraries say the same in errors of their own (safetensors, sqlite3, torch, pyarrow)."""
_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = 120
_repr.maxlevel = 2


class Fault(StrEnum):
    """What failed when a result could not be produced as requested."""

    MODEL = "model"
    """The checkpoint itself: logits that are not numbers, an answer that never ends."""
    ENVIRONMENT = "environment"
    """The world that the item is played in."""
    JUDGE = "judge"
    """The scorer or the judge model."""
    INFRASTRUCTURE = "infrastructure"
    """The harness, the machine or the endpoint failed: there is no answer to judge."""
    SUBMITTER = "submitter"
    """What an agent submitted cannot be evaluated."""


@dataclass(frozen=True, slots=True)
class FaultPolicy:
    """What follows from one kind of fault."""

    retry: bool
    """Worth repeating the same request, once and visibly."""
    counts_against_model: bool
    """The attempt is a failure of the model (score 0 with this reason), not a missing score."""


FAULT_POLICY: MappingProxyType[Fault, FaultPolicy] = MappingProxyType(
    {
        Fault.MODEL: FaultPolicy(retry=False, counts_against_model=True),
        Fault.ENVIRONMENT: FaultPolicy(retry=True, counts_against_model=False),
        Fault.JUDGE: FaultPolicy(retry=True, counts_against_model=False),
        Fault.INFRASTRUCTURE: FaultPolicy(retry=True, counts_against_model=False),
        Fault.SUBMITTER: FaultPolicy(retry=False, counts_against_model=False),
    }
)


class Agent2Error(Exception):
    """Base of every error that a user can act on; the command line prints its one line and exits with 2.

    With 4 if the machine is to blame: `is_machine_failure`.
    """


class ConfigError(Agent2Error):
    """A file, flag or name given by the user is not usable."""


class CheckpointError(Agent2Error):
    """A directory of weights cannot be used."""

    fault = Fault.SUBMITTER


class SubmissionError(Agent2Error):
    """A submission was refused; the sentence says what to change."""

    fault = Fault.SUBMITTER


class SandboxError(Agent2Error):
    """The host cannot sandbox a program as requested."""

    fault = Fault.INFRASTRUCTURE


class MachineError(Agent2Error):
    """The machine lacks the disk space or memory that a command needs, or the harness itself failed."""

    fault = Fault.INFRASTRUCTURE


class CardError(Agent2Error):
    """A rollout card cannot be written, read or trusted."""


class EnvironmentFailed(Agent2Error):
    """A world broke while an item was being played; the rollout gets an environment fault."""

    fault = Fault.ENVIRONMENT


class SamplerFailed(Agent2Error):
    """Generation broke; the rollout gets an infrastructure fault."""

    fault = Fault.INFRASTRUCTURE


class EndpointFailed(Agent2Error):
    """A served model cannot be reached or has stopped answering; the evaluation ends and can be resumed."""

    fault = Fault.INFRASTRUCTURE


class NotEnoughData(Agent2Error):
    """A statistic was requested of fewer observations than its definition needs."""


def is_machine_failure(error: BaseException) -> bool:
    """Whether the machine failed (disk, memory, sandbox) rather than the input: by the error or one that caused it."""
    link: BaseException | None = error
    while link is not None:
        if getattr(link, "fault", None) is Fault.INFRASTRUCTURE or isinstance(link, MemoryError):
            return True
        if isinstance(link, OSError) and link.errno is not None:
            if link.errno in _MACHINE_ERRNOS:
                return True
        elif not isinstance(link, ConfigError) and _MACHINE_WORDS.search(str(link)):
            return True
        link = link.__cause__
    return False


def first_line_of(error: BaseException) -> str:
    """The first line of an error's message; its type where it has none."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def quoted(value: object) -> str:
    """An untrusted value made safe for a message: its repr, cut short, lone surrogates escaped."""
    try:
        text = _repr.repr(value)
    except ValueError:  # a whole number with too many digits
        text = f"a {type(value).__name__} that cannot be shown"
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."


def nearest_name(name: str, candidates: Iterable[str], similarity: float = SIMILARITY) -> str | None:
    """The known name that was probably meant: the most similar, or one that begins with it; None if none is near."""
    names = sorted(candidates)
    similar = difflib.get_close_matches(name, names, n=1, cutoff=similarity)
    completions = [candidate for candidate in names if len(name) >= MIN_PREFIX and candidate.startswith(name)]
    return next(iter([*similar, *completions]), None)


def unknown_name(kind: str, name: str, candidates: Iterable[str], where: str = "") -> ConfigError:
    """The error for a name that is in no table: names the nearest known one, or lists all of them.

    kind: what the name should have been ("task"). where: file and line, or flag, it came from.
    """
    names = sorted(candidates)
    near = nearest_name(name, names)
    hint = f"did you mean {str(near)!r}?" if near is not None else f"known: {', '.join(names) or 'none'}"
    return ConfigError(f"{where + ': ' if where else ''}unknown {kind} {name!r}; {hint}")
