"""What a trial lends to its assignment."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from agent2.arena.spec import AssignmentSpec, TrialConfig
from agent2.records import Item, Score
from agent2.stats.estimates import PairedDifference


@dataclass(frozen=True, slots=True)
class ProgramRun:
    """One run of a training program by the grader."""

    checkpoint: Path | None
    """What it made, admitted as a submission is; None: nothing that can be scored."""
    reason: str
    """Why it made nothing; empty otherwise."""
    cpu_s: float
    """Processor seconds of all its processes."""
    log: bytes = b""
    """The program's logs/train.jsonl; empty where there is none."""


@dataclass(frozen=True, slots=True)
class ProgramAnswer:
    """What a program wrote to $OUTPUT_DIR/answers.json when the grader ran it."""

    content: bytes
    """Not to be trusted; empty where there is none."""
    reason: str
    """Why there is none; empty otherwise."""
    cpu_s: float = 0.0
    """Processor seconds of all its processes."""


AskProgram = Callable[[Mapping[str, bytes], str, Path], ProgramAnswer]
"""Runs one of a set of files (name -> content), named second, as `RunProgram` does, for an answer and no checkpoint."""
RunProgram = Callable[[Mapping[str, bytes], Path], ProgramRun]
"""Runs `train.py` of a set of files (name -> content) on the train rows, in a sandbox; leaves all in the folder."""


LookAtPage = Callable[[Item, Mapping[str, str], Path], Score]
"""Opens the files of a page (name -> text) in a sandbox for the verdict on an item; leaves pictures in the folder."""


@dataclass(frozen=True, slots=True)
class Bench:
    """Places, the secret, and a way to run programs."""

    config: TrialConfig
    spec: AssignmentSpec
    secret: bytes
    max_tokens: int
    """Of a completion, as the benchmark samples."""
    workspace: Path
    """The agent's; what is in it is not to be trusted."""
    folder: Path
    """For the assignment alone, outside the workspace."""
    cache: Path
    """Folder of the installation for results that every trial would get alike."""
    run: RunProgram
    ask: AskProgram
    call: AskProgram
    """As `ask`, without base model and train rows, and for a short time."""
    look: LookAtPage


@dataclass(frozen=True, slots=True)
class Scores:
    """Private scores, by the trial's grader."""

    gain: Callable[[Path, str], PairedDifference]
    """Of a checkpoint over the base model; second: what its card is called."""
    noise: float
    """Half width of the noise band, a share."""
