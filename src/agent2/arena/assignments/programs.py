"""What the kinds of assignment share: programs that an agent wrote, runs of the package's own, credit for a gain."""

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from agent2 import __version__
from agent2.arena.assignments.records import Bench, ProgramRun
from agent2.arena.evidence import AssignmentPart
from agent2.errors import Agent2Error, Fault
from agent2.foreign_files import read_limited
from agent2.records import digest_of

MAX_BYTES = 64 << 10
"""Of all files of a program together: a program, not weights."""
MAX_FILES = 40
PATIENCE = 6.0
"""Time limit on the clock, in times of the one on processor time: for what never ends, on a busy machine too."""
LONGEST = 3.0
"""Processor time of an agent's program in times of the one that is known to work; longer is more than is allowed."""


class BrokenBench(Agent2Error):
    """A program as the package has it did not run: the machine's fault or ours, never the agent's."""

    fault = Fault.INFRASTRUCTURE


def read_program(workspace: Path, place: Path, entry: str = "train.py") -> dict[str, bytes]:
    """The program files directly in a folder that an agent could write.

    workspace: the agent's. place: the folder in it. Raises ValueError if they are too many, too large, or without the
    entry; OSError if one is not a plain file.
    """
    folder = workspace / place
    for part in (folder.parent, folder):
        if part.is_symlink() or not part.is_dir():
            raise ValueError(f"{place} is not a folder any more")
    names = sorted(file.name for file in os.scandir(folder) if re.fullmatch(r"[A-Za-z_]\w*\.(py|json)", file.name))
    if entry not in names:
        raise ValueError(f"{place}/{entry} is gone")
    if len(names) > MAX_FILES:
        raise ValueError(f"{len(names)} files, {MAX_FILES} are allowed")
    files: dict[str, bytes] = {}
    bytes_left = MAX_BYTES
    for name in names:
        if (folder / name).lstat().st_size > bytes_left:
            raise ValueError(f"its files have more than {MAX_BYTES >> 10} KiB together")
        files[name] = read_limited(folder / name, bytes_left)
        bytes_left -= len(files[name])
    return files


def judge_gain(part: str, healthy: str, gain: float, healthy_gain: float, noise: float) -> AssignmentPart:
    """Credit for the share of the gain of a program that is known to work.

    part: what is credited. healthy: what that program is called. Gains and the half width of the noise band are shares
    of 1.
    """
    figures = f"{100 * gain:+.1f} points, {healthy} {100 * healthy_gain:+.1f}, noise {100 * noise:.1f}"
    if healthy_gain <= noise:
        return AssignmentPart(part, None, f"{healthy} itself shows no gain here: {figures}")
    if gain <= noise:
        return AssignmentPart(part, 0.0, f"no gain outside the noise band: {figures}")
    share = min(1.0, gain / healthy_gain)
    return AssignmentPart(part, share, f"{100 * gain / healthy_gain:.0f}% of the gain of {healthy}: {figures}")


def judge_effort(
    part: str,
    bench: Bench,
    judged: tuple[Mapping[str, bytes], ProgramRun],
    healthy: tuple[Mapping[str, bytes], ProgramRun],
) -> AssignmentPart | None:
    """No credit for a program that takes much longer than one that works, as with more steps; None: it does not.

    part: what is credited. judged, healthy: the agent's program and the one that works, each with its run. Times are
    processor times, which a busy machine lengthens as well, by less: where a run was long, both are run again, one
    after the other, and the shorter time of the one counts against the longer one of the other.
    """
    (program, run), (healthy_program, healthy_run) = judged, healthy
    if run.cpu_s <= LONGEST * healthy_run.cpu_s:
        return None
    slowest = max(healthy_run.cpu_s, bench.run(healthy_program, bench.folder / "known-again").cpu_s)
    if run.cpu_s <= LONGEST * slowest:
        return None
    quickest = min(run.cpu_s, bench.run(program, bench.folder / "judged-again").cpu_s)
    if quickest <= LONGEST * slowest:
        return None
    times = f"{quickest:.0f} s of processor time, where one that works takes {slowest:.0f} s"
    return AssignmentPart(part, 0.0, f"it does more than the budget allows: {times}")


def known_run(bench: Bench, files: Mapping[str, bytes], name: str, *, may_leave_base: bool = False) -> ProgramRun:
    """A run of files of the package's own; made once for each installation, set of files and seed.

    may_leave_base: it may have left the base model as it is, which makes no checkpoint, but a log. Raises BrokenBench
    if it makes no checkpoint otherwise.
    """
    config = bench.config
    contents = {file: content.decode() for file, content in files.items()}
    key = digest_of(
        ["cpu", __version__, contents, config.base_model, config.task.n_items.train, config.seed, config.threads]
    )
    cached = bench.cache / key[:32]
    if not cached.is_dir():
        run = bench.run(files, bench.folder / name)
        if run.checkpoint is None and not (may_leave_base and run.log):
            raise BrokenBench(f"the {name} program made no checkpoint: {run.reason}")
        draft = cached.with_name(f".{cached.name}.{os.getpid()}")
        shutil.rmtree(draft, ignore_errors=True)  # of a harness that was killed: in a container the next has its number
        draft.mkdir(parents=True)
        if run.checkpoint is not None:
            shutil.copytree(run.checkpoint, draft / "checkpoint")
        (draft / "train.jsonl").write_bytes(run.log)
        (draft / "cpu_s").write_text(f"{run.cpu_s:.1f}", encoding="utf-8")
        try:
            draft.rename(cached)
        except OSError:  # another trial was faster
            shutil.rmtree(draft, ignore_errors=True)
    cpu_s = float((cached / "cpu_s").read_text(encoding="utf-8"))
    checkpoint = cached / "checkpoint"
    is_there = checkpoint.is_dir()
    log = (cached / "train.jsonl").read_bytes()
    return ProgramRun(
        checkpoint if is_there else None, "" if is_there else "it left the base model as it is", cpu_s, log
    )
