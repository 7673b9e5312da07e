"""What the copy of a submission must be before it is scored: complete, safe to load, of the base's kind.

Looks at files and headers only, and parses none that is much larger than the base model's; weights that are not
numbers are found by the child before it plays. Scoring
takes nothing but the tensors from a submission: config, tokenizer, chat template and generation settings
are the base model's, and where the submitted ones differ the agent is told so.

A grader does not parse a stranger's files itself: `ContainedAdmission` runs this module as a program in a sandbox,
with limits on memory and time, and a folder that breaks them is refused.
"""

import os
import resource
import shutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from agent2.arena.grader.snapshot import SnapshotInfo, shown
from agent2.errors import CheckpointError, SubmissionError
from agent2.models.adapters import lora_settings
from agent2.models.checkpoint import (
    PICKLE_SUFFIXES,
    CheckpointInfo,
    inspect_checkpoint,
    read_json,
    require_same_architecture,
)
from agent2.records import JsonValue
from agent2.sandbox.backends import Contained, ContainedEnd, EndedBy, Sandbox, find_sandbox, inside, run_contained
from agent2.sandbox.spec import GIB, MIB, Limits, Mount

NOT_USED = {
    "tokenizer.json": ("tokenizer", {"padding", "truncation"}),
    "generation_config.json": ("generation config", {"transformers_version", "_from_model_config"}),
}
"""Files that scoring takes from the base model: what they are, and entries that saving alone may change."""
MAX_SKIPPED_SHOWN = 5
SPARE_BYTES = 1 << 20
"""Text of a submission beyond twice the base model's; parsed, it may take thirty times that in memory."""
SLOWEST_READ = 50 * MIB
"""Bytes of weights a second that the slowest disk and processor read and digest."""


@dataclass(frozen=True, slots=True)
class Admission:
    """A submission that may be scored."""

    weights_digest: str
    content_digest: str
    is_base_copy: bool
    """Its tensors equal the base model's. False for an adapter until it is merged."""
    remarks: tuple[str, ...]
    """What the agent should know, one sentence each."""
    files: tuple[str, ...]
    """Names of the files that a checkpoint of this kind needs."""


Admit = Callable[[SnapshotInfo, CheckpointInfo, str], Admission]
"""Checks a copy, as `admit` does."""


@dataclass(frozen=True, slots=True)
class AdmissionJob:
    """What the contained program is asked; paths as it sees them."""

    snapshot: SnapshotInfo
    base: CheckpointInfo
    model_path: str


@dataclass(frozen=True, slots=True)
class AdmissionAnswer:
    """What it answers: one of the two."""

    admission: Admission | None = None
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class ContainedAdmission:
    """Checks copies in a sandbox."""

    sandbox: Sandbox = field(default_factory=find_sandbox)
    hidden: tuple[Path, ...] = ()
    """Host paths that must never be shown to the child."""
    memory_gib: float = 4.0
    timeout_s: float = 120.0
    """Beside the time that it takes to read the weights."""

    def __call__(self, snapshot: SnapshotInfo, base: CheckpointInfo, model_path: str) -> Admission:
        """Check one copy.

        Raises SubmissionError with a sentence for the agent, SandboxError if nothing could be run.
        """
        scratch = snapshot.path.with_name(".admission")
        request = Contained(
            command=("python", "-P", "-m", "agent2.arena.grader.admission", str(int(self.memory_gib * GIB))),
            scratch=scratch,
            log=snapshot.path.with_name(".admission.log"),
            mounts=(Mount(base.path, "/grading/base"), Mount(snapshot.path, "/grading/checkpoint")),
            stdout_bytes=4 * MIB,
            limits=Limits(memory_gib=self.memory_gib, processes=64, file_size_gib=0.1, disk_gib=0.1),
            hidden=self.hidden,
        )
        try:
            job = AdmissionJob(
                replace(snapshot, path=inside(request, self.sandbox, snapshot.path)),
                replace(base, path=inside(request, self.sandbox, base.path)),
                model_path,
            )
            request = replace(request, stdin=msgspec.json.encode(job, enc_hook=str))
            timeout_s = self.timeout_s + snapshot.size_bytes / SLOWEST_READ
            end = run_contained(request, self.sandbox, timeout_s=timeout_s)
            log = request.log.read_text(errors="replace") if request.log.exists() else ""
            return self._answer(end, timeout_s, log)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
            request.log.unlink(missing_ok=True)

    def _answer(self, end: ContainedEnd, timeout_s: float, log: str) -> Admission:
        if end.ended_by is EndedBy.ITSELF and end.code == 0 and not end.dropped:
            try:
                answer = msgspec.json.decode(end.stdout, type=AdmissionAnswer)
            except msgspec.MsgspecError:
                answer = AdmissionAnswer()
            if answer.admission is not None:
                return answer.admission
            if answer.refusal:
                raise SubmissionError(answer.refusal)
        if end.ended_by is EndedBy.ITSELF and end.broke is None and end.code in (0, 1):
            raise RuntimeError(f"the checking program failed: {end.reason}; {log[-500:]}")  # a bug or a host of ours
        raise SubmissionError(
            f"the folder could not be checked within {timeout_s:.0f} seconds and {self.memory_gib:g} GiB of memory "
            f"({end.reason}); save the model again with save_pretrained"
        )


def main() -> None:
    """Answer the job on standard input. Argument: bytes of memory."""
    limit = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    answer = os.dup(1)
    os.dup2(2, 1)  # what libraries print is not an answer
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=AdmissionJob, dec_hook=lambda kind, value: kind(value))
    try:
        said = AdmissionAnswer(admit(job.snapshot, job.base, job.model_path))
    except SubmissionError as error:
        said = AdmissionAnswer(refusal=str(error))
    except MemoryError:
        refusal = f"the folder could not be checked within {limit / GIB:.2g} GiB of memory; save the model again"
        said = AdmissionAnswer(refusal=f"{refusal} with save_pretrained")
    with os.fdopen(answer, "wb") as file:
        file.write(msgspec.json.encode(said))


def admit(snapshot: SnapshotInfo, base: CheckpointInfo, model_path: str) -> Admission:
    """Check the copy. model_path: what messages call it. Raises SubmissionError with a sentence for the agent."""
    _refuse_pickle_only(snapshot)
    _refuse_bloated(snapshot, base)
    try:
        info = inspect_checkpoint(snapshot.path)
        if info.is_adapter:
            lora_settings(info, base)
        else:
            require_same_architecture(info, base)
        remarks = [*_remarks_on_skipped(snapshot), *_remarks_on_differences(snapshot, info, base)]
    except CheckpointError as error:
        raise SubmissionError(without_host_paths(str(error), [(snapshot.path, model_path)], base.path)) from error
    if info.is_adapter:
        remarks.append("the adapter is merged into the base model before scoring")
    is_copy = not info.is_adapter and info.weights_digest == base.weights_digest
    if is_copy:
        remarks.append("the weights equal the base model's; nothing was trained")
    return Admission(info.weights_digest, info.content_digest, is_copy, tuple(remarks), info.files)


def without_host_paths(text: str, names: Iterable[tuple[Path, str]], base: Path) -> str:
    """A message fit for the agent: each path replaced by the name that it knows."""
    for path, name in [*names, (base, "the base model")]:
        text = text.replace(str(path), name)
    return text


def _refuse_pickle_only(snapshot: SnapshotInfo) -> None:
    has_weights = any(name.endswith(".safetensors") for name in snapshot.files)
    pickles = [name for name in snapshot.skipped if Path(name).suffix in PICKLE_SUFFIXES]
    if pickles and not has_weights:
        raise SubmissionError(
            f"{shown(pickles[0])} holds pickle weights, which are never loaded; save safetensors with "
            "model.save_pretrained"
        )


def _refuse_bloated(snapshot: SnapshotInfo, base: CheckpointInfo) -> None:
    """Refuse text, headers of weights included, that would explode when it is parsed: here, in the harness."""
    room = SPARE_BYTES + 2 * sum(_text_bytes(base.path / name) for name in base.files)
    total = 0
    for name in sorted(snapshot.files):
        size = _text_bytes(snapshot.path / name)
        total += size
        if size > room or total > 2 * room:
            raise SubmissionError(
                f"{shown(name)} holds {size} bytes of settings, vocabulary or tensor names, far more than the base "
                "model's; save the tokenizer and the model again with save_pretrained"
            )


def _text_bytes(path: Path) -> int:
    """How much of a file is parsed as text: of weights the header, as long as the file says it is."""
    size = path.stat().st_size
    if path.suffix != ".safetensors":
        return size
    with path.open("rb") as file:
        return min(size, int.from_bytes(file.read(8), "little"))


def _remarks_on_skipped(snapshot: SnapshotInfo) -> list[str]:
    if not snapshot.skipped:
        return []
    names = ", ".join(shown(name) for name in snapshot.skipped[:MAX_SKIPPED_SHOWN])
    more = len(snapshot.skipped) - MAX_SKIPPED_SHOWN
    return [f"left aside: {names}" + (f" and {more} more" if more > 0 else "")]


def _remarks_on_differences(snapshot: SnapshotInfo, info: CheckpointInfo, base: CheckpointInfo) -> list[str]:
    remarks = []
    brings_template = any(name in snapshot.files for name in ("chat_template.jinja", "tokenizer_config.json"))
    if brings_template and info.chat_template_digest != base.chat_template_digest:
        remarks.append("its chat template differs from the base model's; scoring uses the base model's")
    for name, (what, incidental) in NOT_USED.items():
        if name in snapshot.files and _content(info.path / name, incidental) != _content(base.path / name, incidental):
            remarks.append(f"its {what} differs from the base model's; scoring uses the base model's")
    return remarks


def _content(path: Path, incidental: set[str]) -> dict[str, JsonValue]:
    if not path.is_file():
        return {}
    return {key: value for key, value in read_json(path).items() if key not in incidental}


if __name__ == "__main__":
    main()
