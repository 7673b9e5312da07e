"""Takes in a submitted folder: a private copy, and the checks that it must pass before it is scored.

The agent may change, swap or link anything in its workspace at any moment, so the way down is walked one directory at
a time by descriptor, links are never followed, sizes are summed before a byte is read, and after the copy everything
is compared with what was opened. From then on only the copy counts. Only top-level files that a checkpoint may
consist of are copied; the others are named as skipped, and so are shards beside a whole file of weights. Holes of
sparse files stay holes; `drop_ballast` removes files that the checkpoint turned out not to need. A writer with the
file mapped into memory, or within the same tick of the file system's clock, may change bytes unnoticed during the
copy; the copy still has one fixed content with one digest.

A copy is admitted if it is complete, safe to load and of the base model's kind. Only the tensors are used: config,
tokenizer, chat template and generation settings are the base model's, and the agent is informed where its own differ.
`ContainedAdmission` runs this check as a program in a sandbox with limits on memory and time, because a grader does
not parse hostile files itself. Weights that are not numbers are found by the child before it plays. Every refusal is
one sentence for the agent, without paths of the host.
"""

import errno
import hashlib
import os
import resource
import stat
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from agent2.errors import CheckpointError, SubmissionError
from agent2.files import remove_tree, sync_folder
from agent2.models.adapters import lora_settings
from agent2.models.architecture import require_same_architecture
from agent2.models.checkpoint import (
    ADAPTER_CONFIG,
    ALLOWED_FILES,
    INDEX,
    PICKLE_SUFFIXES,
    SHARD_NAME,
    WEIGHTS,
    CheckpointInfo,
    inspect_checkpoint,
    read_json,
)
from agent2.records import JsonValue
from agent2.sandbox.backends import Contained, ContainedEnd, EndedBy, Sandbox, find_sandbox, inside, run_contained
from agent2.sandbox.spec import GIB, MIB, Limits, Mount

INSIDE_ROOT = "/workspace"
"""Where the agent sees its workspace inside the sandbox."""
CHUNK_BYTES = 4 << 20
TIMES_BASE = 4
"""From two bytes a parameter to eight."""
SPARE_BYTES = 256 << 20
"""For what is not a weight."""
CHANGED = "changed while the snapshot was taken; submit again when writing has finished"
NOT_USED = {
    "tokenizer.json": ("tokenizer", {"padding", "truncation"}),
    "generation_config.json": ("generation config", {"transformers_version", "_from_model_config"}),
}
"""Files that scoring takes from the base model: what they are, and entries that saving alone may change."""
MAX_SKIPPED_SHOWN = 5
PARSED_SPARE_BYTES = 1 << 20
"""Text of a submission beyond twice the base model's; parsed, it may take thirty times that in memory."""
SLOWEST_READ = 50 * MIB
"""Bytes of weights a second that the slowest disk and processor read and digest."""
# never through a symbolic link (O_NOFOLLOW), and without waiting at a FIFO that has no writer (O_NONBLOCK)
_OPEN_DIR = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class SnapshotLimits:
    """What a submitted folder may hold."""

    max_bytes: int = 20 << 30
    """Of the files that count together, by their length (a sparse file counts in full)."""
    max_files: int = 500
    """Files that count."""
    max_entries: int = 10_000
    """Names in the folder, skipped ones included."""
    accept_host_paths: bool = False
    """Also take the host's path of the workspace; only where no sandbox gives it another name."""


def snapshot_limits(base: Path, *, accept_host_paths: bool = False) -> SnapshotLimits:
    """Limits fit for checkpoints of one base model: `TIMES_BASE` its size, so that no sparse file fills the disk."""
    size = sum(entry.stat().st_size for entry in base.iterdir() if entry.is_file())
    return SnapshotLimits(max_bytes=TIMES_BASE * size + SPARE_BYTES, accept_host_paths=accept_host_paths)


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """What was copied."""

    path: Path
    files: Mapping[str, str]
    """Name -> SHA-256 (hex) of the bytes copied."""
    size_bytes: int
    skipped: tuple[str, ...]
    """Names in the submitted folder that were left aside; folders end in a slash."""


@dataclass(frozen=True, slots=True)
class _Opened:
    name: str
    handle: int
    status: os.stat_result


def take_snapshot(
    workspace: Path,
    model_path: str,
    target: Path,
    limits: SnapshotLimits,
    on_copied: Callable[[], None] | None = None,
) -> SnapshotInfo:
    """Copy the submitted folder to `target`, which appears whole or not at all.

    workspace: the host's path of the workspace; trusted. model_path: what the agent sent; relative to the
    workspace or beneath `INSIDE_ROOT`. on_copied: called between the copy and the check for changes.
    Raises SubmissionError with a sentence for the agent, OSError if the grader's own disk fails.
    """
    parts = _parts_below(model_path, _roots(workspace, limits))
    draft = target.with_name(f".{target.name}.partial")
    remove_folder(draft)
    with ExitStack() as stack:
        folder = _open_folder(workspace, parts, stack)
        names, skipped = _list_folder(folder, limits)
        opened = [_open_file(folder, name, stack) for name in names]
        _require_fits(opened, limits)
        draft.mkdir(parents=True)
        try:
            # read by descriptor: another file under the same name, put there meanwhile, is not what was checked above
            digests = {file.name: _copy(file, draft / file.name) for file in opened}
            if on_copied is not None:
                on_copied()
            _require_unchanged(folder, names, opened, limits)
            sync_folder(draft)
            os.rename(draft, target)  # after a kill there is either no snapshot or a whole one
        except BaseException:
            remove_folder(draft)
            raise
    sync_folder(target.parent)
    return SnapshotInfo(target, digests, sum(file.status.st_size for file in opened), skipped)


def drop_ballast(snapshot: SnapshotInfo, needed: Collection[str]) -> list[str]:
    """Remove the files of a snapshot that its checkpoint does not need; a remark for the agent if there were any."""
    ballast = sorted(set(snapshot.files) - set(needed))
    for name in ballast:
        (snapshot.path / name).unlink()
    if not ballast:
        return []
    more = f" and {len(ballast) - 1} more" if len(ballast) > 1 else ""
    return [f"not needed by the checkpoint and not kept: {quote_name(ballast[0])}{more}"]


def remove_folder(folder: Path) -> None:
    """Remove a folder if it is there, however deep its folders are nested; of a symbolic link, only the link."""
    if os.path.lexists(folder):
        remove_tree(folder)


def quote_name(name: str) -> str:
    """A name that an agent chose, quoted for a message: valid text of limited length."""
    text = _as_text(name)
    return repr(text if len(text) <= 200 else text[:200] + "...")


def _as_text(name: str) -> str:
    """A name whose bytes may be any, as text that JSON can hold."""
    return name.encode("utf-8", "backslashreplace").decode()


def _roots(workspace: Path, limits: SnapshotLimits) -> tuple[str, ...]:
    if not limits.accept_host_paths:
        return (INSIDE_ROOT,)
    return (INSIDE_ROOT, str(workspace.absolute()), str(workspace.resolve()))


def _parts_below(model_path: str, roots: tuple[str, ...]) -> list[str]:
    """The folder's names from the workspace down. Purely textual; links are dealt with while walking."""
    if not model_path.strip() or "\0" in model_path or len(model_path) > 4096:
        raise SubmissionError("model_path is empty, too long or holds a zero byte; pass a folder in the workspace")
    inside = model_path
    if model_path.startswith("/"):
        root = next((root for root in roots if model_path == root or model_path.startswith(root + "/")), None)
        if root is None:
            raise SubmissionError(
                f"model_path {quote_name(model_path)} is outside the workspace; submit a folder below {INSIDE_ROOT}"
            )
        inside = model_path[len(root) :]
    parts = [part for part in inside.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise SubmissionError(f"model_path {quote_name(model_path)} contains '..'; pass the folder without it")
    return parts


def _open_folder(workspace: Path, parts: list[str], stack: ExitStack) -> int:
    folder = os.open(workspace, _OPEN_DIR)
    stack.callback(os.close, folder)
    for depth, part in enumerate(parts, start=1):
        walked = quote_name("/".join(parts[:depth]))
        try:
            folder = os.open(part, _OPEN_DIR, dir_fd=folder)
        except OSError as error:
            raise SubmissionError(_why_not_opened(error, folder, part, walked)) from error
        stack.callback(os.close, folder)
    return folder


def _why_not_opened(error: OSError, parent: int, part: str, walked: str) -> str:
    if error.errno == errno.ENOENT:
        return f"model_path {walked} does not exist in the workspace; save the model there first"
    if error.errno in (errno.ENOTDIR, errno.ELOOP):
        try:
            is_link = stat.S_ISLNK(os.stat(part, dir_fd=parent, follow_symlinks=False).st_mode)
        except OSError:
            return f"model_path {walked} {CHANGED}"
        if is_link:
            return f"model_path {walked} is a symbolic link, which is never followed; submit the folder itself"
        return f"model_path {walked} is not a folder; submit the folder that save_pretrained wrote"
    if error.errno == errno.ENAMETOOLONG:
        return f"model_path {walked} has a name that is too long; use a shorter one"
    return f"model_path {walked} cannot be opened ({os.strerror(error.errno or 0)}); make it readable"


def _list_folder(folder: int, limits: SnapshotLimits) -> tuple[list[str], tuple[str, ...]]:
    """Names that count, sorted, and names left aside. Refuses anything but regular files and folders."""
    names: list[str] = []
    skipped: list[str] = []
    with os.scandir(folder) as entries:
        for count, entry in enumerate(entries, start=1):
            if count > limits.max_entries:
                raise SubmissionError(
                    f"the folder holds more than {limits.max_entries} entries; submit a separate folder for the model"
                )
            if entry.is_dir(follow_symlinks=False):
                skipped.append(_as_text(entry.name) + "/")
            elif entry.is_symlink():
                raise SubmissionError(
                    f"{quote_name(entry.name)} is a symbolic link; put the file itself into the folder"
                )
            elif not entry.is_file(follow_symlinks=False):
                raise SubmissionError(f"{quote_name(entry.name)} is not a regular file; remove it from the folder")
            elif entry.name in ALLOWED_FILES or SHARD_NAME.fullmatch(entry.name):
                names.append(entry.name)
            else:
                skipped.append(_as_text(entry.name))
    if WEIGHTS in names and ADAPTER_CONFIG not in names:  # transformers would not look at shards beside it
        ballast = [name for name in names if name == INDEX or (SHARD_NAME.fullmatch(name) and name != WEIGHTS)]
        names = [name for name in names if name not in ballast]
        skipped += ballast
    if not names and not skipped:
        raise SubmissionError("the submitted folder is empty; save the model and its tokenizer there")
    if len(names) > limits.max_files:
        raise SubmissionError(f"the folder holds {len(names)} model files, at most {limits.max_files} are allowed")
    return sorted(names), tuple(sorted(skipped))


def _open_file(folder: int, name: str, stack: ExitStack) -> _Opened:
    try:
        handle = os.open(name, _OPEN_FILE, dir_fd=folder)
    except PermissionError as error:
        raise SubmissionError(f"{quote_name(name)} cannot be read; make it readable") from error
    except OSError as error:
        raise SubmissionError(f"{quote_name(name)} {CHANGED}") from error
    stack.callback(os.close, handle)
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        raise SubmissionError(f"{quote_name(name)} is not a regular file; remove it from the folder")
    return _Opened(name, handle, status)


def _require_fits(opened: list[_Opened], limits: SnapshotLimits) -> None:
    total = sum(file.status.st_size for file in opened)
    if total > limits.max_bytes:
        largest = max(opened, key=lambda file: file.status.st_size)
        raise SubmissionError(
            f"the model files have {total} bytes together ({quote_name(largest.name)} alone "
            f"{largest.status.st_size}), at most {limits.max_bytes} are allowed; submit a smaller checkpoint"
        )


def _copy(file: _Opened, target: Path) -> str:
    """Copy exactly as many bytes as the file had when it was opened; returns their digest."""
    digest = hashlib.sha256()
    n_left = file.status.st_size
    with _new_file(target) as output:
        while n_left:
            chunk = os.read(file.handle, min(n_left, CHUNK_BYTES))
            if not chunk:
                raise SubmissionError(f"{quote_name(file.name)} {CHANGED}")
            digest.update(chunk)
            if chunk.count(0) == len(chunk):  # a sparse file must not cost us more than its author
                os.lseek(output, len(chunk), os.SEEK_CUR)
            else:
                _write_all(output, chunk)
            n_left -= len(chunk)
        os.ftruncate(output, file.status.st_size)
        os.fsync(output)
    return digest.hexdigest()


@contextmanager
def _new_file(path: Path) -> Iterator[int]:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444)
    try:
        yield handle
    finally:
        os.close(handle)


def _write_all(handle: int, chunk: bytes) -> None:
    view = memoryview(chunk)
    while view:
        view = view[os.write(handle, view) :]


def _require_unchanged(folder: int, names: list[str], opened: list[_Opened], limits: SnapshotLimits) -> None:
    """Each file is still the one that was opened, untouched, under its name; and none has come or gone."""
    for file in opened:
        try:
            named = os.stat(file.name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError as error:
            raise SubmissionError(f"{quote_name(file.name)} {CHANGED}") from error
        for now in (named, os.fstat(file.handle)):
            if _identity(now) != _identity(file.status):
                raise SubmissionError(f"{quote_name(file.name)} {CHANGED}")
    if _list_folder(folder, limits)[0] != names:
        raise SubmissionError(f"the list of model files {CHANGED}")


def _identity(status: os.stat_result) -> tuple[int, ...]:
    # the time of the last change of the inode as well: a writer can set the modification time back, but not that one
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


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
    """Input of the contained program; paths as it sees them."""

    snapshot: SnapshotInfo
    base: CheckpointInfo
    model_path: str


@dataclass(frozen=True, slots=True)
class AdmissionAnswer:
    """Output of the contained program: an admission or a refusal."""

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
            command=("python", "-P", "-m", "agent2.arena.grader.submission", str(int(self.memory_gib * GIB))),
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
            with suppress(OSError):
                remove_folder(scratch)
            request.log.unlink(missing_ok=True)

    def _answer(self, end: ContainedEnd, timeout_s: float, log: str) -> Admission:
        if end.ended_by is EndedBy.ITSELF and end.code == 0 and not end.dropped:
            try:
                answer = msgspec.json.decode(end.stdout, type=AdmissionAnswer)
            except (msgspec.MsgspecError, RecursionError):
                answer = AdmissionAnswer()
            if answer.admission is not None:
                return answer.admission
            if answer.refusal:
                raise SubmissionError(answer.refusal)
        if end.ended_by is EndedBy.ITSELF and end.broke is None and end.code in (0, 1):
            raise RuntimeError(f"the checking program failed: {end.reason}; {log[-500:]}")  # not the submitter's fault
        raise SubmissionError(
            f"the folder could not be checked within {timeout_s:.0f} seconds and {self.memory_gib:g} GiB of memory "
            f"({end.reason}); save the model again with save_pretrained"
        )


def main() -> None:
    """Answer the job on standard input. Argument: bytes of memory."""
    limit = int(sys.argv[1])
    # beyond this limit is a MemoryError, which becomes a sentence below; beyond the sandbox's would be a kill
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    answer_handle = os.dup(1)
    os.dup2(2, 1)  # what libraries print is not an answer
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=AdmissionJob, dec_hook=lambda kind, value: kind(value))
    try:
        answer = AdmissionAnswer(admit(job.snapshot, job.base, job.model_path))
    except SubmissionError as error:
        answer = AdmissionAnswer(refusal=str(error))
    except MemoryError:
        refusal = f"the folder could not be checked within {limit / GIB:.2g} GiB of memory; save the model again"
        answer = AdmissionAnswer(refusal=f"{refusal} with save_pretrained")
    with os.fdopen(answer_handle, "wb") as file:
        file.write(msgspec.json.encode(answer))


def admit(snapshot: SnapshotInfo, base: CheckpointInfo, model_path: str) -> Admission:
    """Check the copy. model_path: what messages call it. Raises SubmissionError with a sentence for the agent."""
    has_weights = any(name.endswith(".safetensors") for name in snapshot.files)
    pickles = [name for name in snapshot.skipped if Path(name).suffix in PICKLE_SUFFIXES]
    if pickles and not has_weights:
        raise SubmissionError(
            f"{quote_name(pickles[0])} holds pickle weights, which are never loaded; save safetensors with "
            "model.save_pretrained"
        )
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


def _refuse_bloated(snapshot: SnapshotInfo, base: CheckpointInfo) -> None:
    """Refuse text, headers of weights included, that would explode when it is parsed: here, in the harness."""
    room = PARSED_SPARE_BYTES + 2 * sum(_text_bytes(base.path / name) for name in base.files)
    total = 0
    for name in sorted(snapshot.files):
        size = _text_bytes(snapshot.path / name)
        total += size
        if size > room or total > 2 * room:
            raise SubmissionError(
                f"{quote_name(name)} holds {size} bytes of settings, vocabulary or tensor names, far more than the "
                "base model's; save the tokenizer and the model again with save_pretrained"
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
    names = ", ".join(quote_name(name) for name in snapshot.skipped[:MAX_SKIPPED_SHOWN])
    more = len(snapshot.skipped) - MAX_SKIPPED_SHOWN
    return [f"left aside: {names}" + (f" and {more} more" if more > 0 else "")]


def _remarks_on_differences(snapshot: SnapshotInfo, info: CheckpointInfo, base: CheckpointInfo) -> list[str]:
    remarks = []
    brings_template = any(name in snapshot.files for name in ("chat_template.jinja", "tokenizer_config.json"))
    if brings_template and info.chat_template_digest != base.chat_template_digest:
        remarks.append("its chat template differs from the base model's; scoring uses the base model's")
    for name, (label, incidental) in NOT_USED.items():
        if name in snapshot.files and _content(info.path / name, incidental) != _content(base.path / name, incidental):
            remarks.append(f"its {label} differs from the base model's; scoring uses the base model's")
    return remarks


def _content(path: Path, incidental: set[str]) -> dict[str, JsonValue]:
    """Entries of a JSON file but for the incidental ones; none if there is no such file."""
    if not path.is_file():
        return {}
    return {key: value for key, value in read_json(path).items() if key not in incidental}


if __name__ == "__main__":
    main()
