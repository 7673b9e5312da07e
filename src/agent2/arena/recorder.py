"""The recorder: code revisions and processes, watched from outside the sandbox (GPUs: `gpu_use`).

All that it reads was written by the agent, so it is evidence and never state: files are opened without following links,
reads are capped, and nothing that it finds can change a score. What agents write about their own work, command lines
and training metrics, is read by `agent2.arena.agent_files`.

A revision is every small text file of the workspace, one commit for each change. Blobs and trees are written straight
into a bare repository outside the workspace, so a nested .git, an ignore file or a hook of the agent hides nothing. The
kernel notifies of changed files (`RevisionWatch`), so that a revision is taken within a second of a change; one is also
taken every few seconds in case it did not, and always when a submission arrives. A revision that could not hold
everything says so (`is_complete`), and names the code that it does not hold (`not_kept`): files that are too large or
packed. `RevisionReader` reads revisions back without data, logs and what libraries write: they carry times and say
nothing about the agent's code, and a replay compares the remaining files.

Processes are sampled about once a second.

Does NOT see a change that is undone within a second, nor every process that lives shorter than that: what it records
is a lower bound. Does NOT verify command lines: they are what the process says about itself.
"""

import hashlib
import logging
import math
import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import psutil
from dulwich.errors import NotGitRepository
from dulwich.object_store import iter_tree_contents
from dulwich.objects import Blob, Commit, Tree
from dulwich.repo import Repo

from agent2.arena.agent_files import MAX_FILES, walk_files
from agent2.arena.evidence import MAX_COMMAND_CHARS, ProcessSample
from agent2.arena.trial_folder import EventLog
from agent2.records import digest_of

logger = logging.getLogger(__name__)

MAX_FILE_BYTES = 256 * 1024
CHECKPOINT_ENDINGS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".npy", ".npz", ".arrow", ".parquet")
ARENA_FILES = frozenset({"data", "ASSIGNMENT.md", "assignment.json", ".grader"})
"""Top-level names that the arena writes; they are left out of revisions."""
CODE_ENDINGS = (".py", ".pyc", ".pyz", ".so", ".sh", ".ipynb")
PACKED_ENDINGS = (*CODE_ENDINGS, ".zip", ".whl", ".egg", ".tar", ".tgz", ".gz", ".xz", ".bz2")
"""A file with such an ending that is too large, or is not text, is code that is not kept."""
INSTALLED = ("site-packages/", "dist-packages/", "__pycache__/")
"""Folders whose files are third-party, or generated from the text."""
MAX_NOT_KEPT = 20
"""Named in the log, in each revision."""
UNWATCHED_ENDINGS = (*CHECKPOINT_ENDINGS, ".jsonl", ".csv", ".tsv", ".log", ".lock", ".tmp", ".pyc")
"""A change of such a file alone does not trigger a revision at once."""
BRANCH = b"refs/heads/main"
AUTHOR = b"agent2 recorder <recorder@localhost>"
POLL_S = 1.0
"""Between two looks where files cannot be watched."""
STEP_MS, DEBOUNCE_MS = 50, 400
"""A look is taken when nothing has changed for the first, at the latest after the second."""
MOST_CHANGES, AFTER_A_FLOOD_S = 20_000, 30.0
"""If more names change between two looks, files are polled every `POLL_S` for this long instead of watched."""
REGULAR_FILE = 0o100644
FOLDER = 0o040000

DATA_ENDINGS = (".jsonl", ".csv", ".tsv", ".log", ".lock")
CHECKPOINT_FILES = frozenset(
    {
        "tokenizer.json",
        "tokenizer_config.json",
        "vocab.json",
        "merges.txt",
        "special_tokens_map.json",
        "added_tokens.json",
        "generation_config.json",
        "trainer_state.json",
        "model.safetensors.index.json",
    }
)
"""Written by libraries, not by the agent."""
MAX_ENTRIES = 500_000
"""Files that one reader lists, over all revisions; a file counts in each revision that has it."""
MAX_TEXT = 256 * 2**20
"""Bytes of distinct files that one reader decodes."""

MAX_PROCESSES = 10_000

_Folder = dict[bytes, object]
"""Name -> id of a blob, or the folder below."""


@dataclass(frozen=True, slots=True)
class RevisionLimits:
    """How much is recorded; a revision that lacks something says so."""

    revision_bytes: int = 64 * 1024 * 1024
    """Of file contents in one revision."""
    stored_bytes: int = 1024 * 1024 * 1024
    """Of file contents stored since the recorder was opened; what comes later is not kept."""


class RevisionRecorder:
    """Takes revisions of one workspace; safe to call from several threads."""

    def __init__(self, workspace: Path, repository: Path, log: EventLog, limits: RevisionLimits | None = None):
        self._workspace = workspace
        self._limits = limits or RevisionLimits()
        self._log = log
        self._lock = threading.Lock()
        self._repo = _open_repository(repository)
        self._is_complete = True
        self._not_kept: list[str] = []
        self._stored_bytes = 0

    def capture(self, submission: int | None = None) -> str | None:
        """Commit what the workspace holds now.

        submission: the number that the revision is taken for; then an unchanged tree is logged as well.
        Returns the id of the current revision, None while there has been none.
        """
        with self._lock:
            tree = self._write_tree()
            head = bytes(self._repo.refs[BRANCH]) if BRANCH in self._repo.refs else None
            # equal content gives an equal tree id, so an unchanged workspace needs no comparison of files
            changed = tree is not None and (head is None or bytes(self._repo[head].tree) != tree)
            if changed and tree is not None:
                head = self._commit(tree, head, submission)
            revision = head.decode() if head else None
            if revision and (changed or submission is not None):
                self._log.append(
                    "revision",
                    id=revision,
                    submission=submission,
                    is_complete=self._is_complete,
                    not_kept=self._not_kept,
                )
            return revision

    def _write_tree(self) -> bytes | None:
        """Store the text files; the id of their tree, None when there is none or no more room."""
        root: _Folder = {}
        n_files = n_bytes = 0
        not_kept: list[str] = []

        def leave_out(path: str, size: int) -> None:
            if path.endswith(PACKED_ENDINGS) and not any(folder in path for folder in INSTALLED):
                not_kept.append(f"{path[:300]} ({size} bytes)")

        for file in walk_files(self._workspace, MAX_FILE_BYTES, skip=ARENA_FILES, on_large=leave_out):
            n_files += 1
            n_bytes += file.size
            if n_bytes > self._limits.revision_bytes:
                break
            if b"\0" in file.data:  # not text
                leave_out(file.path, file.size)
                continue
            blob = Blob.from_string(file.data)
            if blob.id not in self._repo.object_store:
                self._stored_bytes += file.size
                if self._stored_bytes > self._limits.stored_bytes:
                    self._is_complete = False
                    return None
                self._repo.object_store.add_object(blob)
            _put(root, file.raw_path.split(b"/"), bytes(blob.id))
        self._not_kept = not_kept[:MAX_NOT_KEPT]
        if len(not_kept) > MAX_NOT_KEPT:
            self._not_kept.append(f"{len(not_kept) - MAX_NOT_KEPT} more files")
        is_all = n_files < MAX_FILES and n_bytes <= self._limits.revision_bytes
        self._is_complete = is_all and not not_kept
        return self._store_folder(root) if root else None

    def _store_folder(self, folder: Mapping[bytes, object]) -> bytes:
        tree = Tree()
        for name, entry in folder.items():
            if isinstance(entry, dict):
                tree.add(name, FOLDER, self._store_folder(entry))
            else:
                tree.add(name, REGULAR_FILE, entry)
        self._repo.object_store.add_object(tree)
        return bytes(tree.id)

    def _commit(self, tree: bytes, parent: bytes | None, submission: int | None) -> bytes:
        commit = Commit()
        commit.tree = tree
        commit.parents = [parent] if parent else []
        commit.author = commit.committer = AUTHOR
        commit.author_time = commit.commit_time = int(time.time())
        commit.author_timezone = commit.commit_timezone = 0
        commit.encoding = b"UTF-8"
        commit.message = (f"submission {submission}" if submission is not None else "revision").encode()
        self._repo.object_store.add_object(commit)
        self._repo.refs[BRANCH] = commit.id
        return bytes(commit.id)

    def close(self) -> None:
        """Release the repository."""
        self._repo.close()


class Ticker:
    """Calls a function every few seconds until stopped; an error does not end it, `stop` returns the first."""

    def __init__(self, call: Callable[[], object], period_s: float):
        self._call = call
        self._period_s = period_s
        self._halt = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._thread.start()

    def stop(self) -> Exception | None:
        """End the thread; the first error of a call, if any."""
        self._halt.set()
        self._thread.join()
        return self._error

    def _run(self) -> None:
        while not self._halt.wait(self._period_s):
            self._look()

    def _look(self) -> float:
        """Call once; returns the processor seconds that it took."""
        began = time.thread_time()
        try:
            self._call()
        except Exception as error:  # boundary: it reads what the agent wrote; `stop` returns the error
            self._error = self._error or error
        return time.thread_time() - began


class RevisionWatch(Ticker):
    """Takes a revision as soon as files change."""

    def __init__(self, workspace: Path, capture: Callable[[], object], period_s: float):
        """Start watching. period_s: longest time between two looks, whatever the kernel reports."""
        self._workspace = workspace
        super().__init__(capture, period_s)

    def _run(self) -> None:
        try:
            while not self._halt.is_set():
                self._watch()
                self._poll(AFTER_A_FLOOD_S)
        except Exception as error:  # boundary: too many folders to watch, or names that the watch cannot take
            if isinstance(error, ImportError):
                self._error = self._error or error
            logger.warning("files are looked at every %g s instead of watched: %s", POLL_S, error)
            self._poll(math.inf)

    def _watch(self) -> None:
        """Look when the kernel reports changes, until the end or a flood of changes.

        The library holds the changed names in memory until they are taken, which a flood could fill.
        """
        from watchfiles import watch  # an installation without it polls, and says so

        for changes in watch(
            self._workspace,
            watch_filter=_is_watched,
            debounce=DEBOUNCE_MS,
            step=STEP_MS,
            stop_event=self._halt,
            rust_timeout=round(self._period_s * 1000),
            yield_on_timeout=True,  # a look every period even without a notice
            raise_interrupt=False,
            ignore_permission_denied=True,  # the agent may take away the right to read one of its folders
        ):
            spent = self._look()
            if len(changes) > MOST_CHANGES:
                return
            if changes:  # a large workspace takes longer to read: at most a fifth of a core goes into it
                self._halt.wait(min(self._period_s, 4 * spent))

    def _poll(self, seconds: float) -> None:
        ends_at = time.monotonic() + seconds
        while time.monotonic() < ends_at and not self._halt.wait(min(self._period_s, POLL_S)):
            self._look()


def _is_watched(change: object, path: str) -> bool:
    return not path.endswith(UNWATCHED_ENDINGS) and "/__pycache__" not in path


def _open_repository(path: Path) -> Repo:
    """The repository, created atomically if there is none; locks that a killed harness left are removed."""
    if not (path / "HEAD").exists():  # there is none, or its creation was cut short
        draft = path.with_name(f".{path.name}.draft")
        for leftover in (draft, path):
            if leftover.exists():
                shutil.rmtree(leftover)
        draft.mkdir(parents=True)
        with Repo.init_bare(str(draft)) as repo:
            repo.refs.set_symbolic_ref(b"HEAD", BRANCH)
        os.rename(draft, path)
    for lock in path.rglob("*.lock"):  # only one harness runs the trial, so none of them is in use
        lock.unlink()
    return Repo(str(path))


def _put(root: _Folder, parts: list[bytes], blob: bytes) -> None:
    """Add a file and the folders above it; a name that is both a file and a folder stays what it was first."""
    folder = root
    for part in parts[:-1]:
        inner = folder.setdefault(part, {})
        if not isinstance(inner, dict):
            return
        folder = inner
    folder.setdefault(parts[-1], blob)


class RevisionReader:
    """Reads the revisions of one trial, up to `MAX_ENTRIES` files and `MAX_TEXT` bytes."""

    def __init__(self, repository: Repo) -> None:
        self._repository = repository
        self._texts: dict[bytes, str] = {}
        self._files: dict[str, dict[str, str] | None] = {}
        self._entries_left = MAX_ENTRIES
        self._n_characters = 0
        self.n_left_out = 0
        """Revisions that were not read because the limits were reached before."""

    def files(self, revision: str) -> dict[str, str] | None:
        """Path -> text of one revision; None if the commit is missing or is left out."""
        if revision in self._files:
            return self._files[revision]
        if self._entries_left < 0 or self._n_characters > MAX_TEXT:
            self.n_left_out += 1
            return None
        n_texts = len(self._texts)
        files = revision_files(self._repository, revision, self._texts)
        self._entries_left -= len(files or ())
        self._n_characters += sum(len(text) for text in islice(self._texts.values(), n_texts, None))
        self._files[revision] = files
        return files


def revision_files(repository: Repo, revision: str, texts: dict[bytes, str]) -> dict[str, str] | None:
    """Path -> text of one revision, in the order of paths; None if any part of it is missing.

    texts: blobs that were decoded already; revisions share equal files.
    """
    files: dict[str, str] = {}
    try:
        tree = repository[revision.encode()].tree
        for entry in iter_tree_contents(repository.object_store, tree):
            path = entry.path.decode(errors="backslashreplace")
            if path.endswith(DATA_ENDINGS) or path.rpartition("/")[2] in CHECKPOINT_FILES:
                continue
            if entry.sha not in texts:
                texts[entry.sha] = repository[entry.sha].data.decode(errors="replace")
            files[path] = texts[entry.sha]
    except Exception:  # boundary: dulwich and zlib have no common error for objects that are damaged
        return None
    return files


def open_revisions(path: Path) -> Repo | None:
    """The repository of a trial's revisions, for reading; None if there is none or it is damaged."""
    try:
        return Repo(str(path)) if path.is_dir() else None
    except (NotGitRepository, OSError, ValueError):
        return None


def file_digests(files: Mapping[str, str]) -> dict[str, str]:
    """Path -> SHA-256 (hex) of its text."""
    return {path: hashlib.sha256(text.encode(errors="replace")).hexdigest() for path, text in sorted(files.items())}


def tree_digest(digests: Mapping[str, str]) -> str:
    """One digest of all paths and texts, from the digests of `file_digests`."""
    return digest_of(sorted(digests.items()))


@dataclass(frozen=True, slots=True)
class _ProcessKey:
    """Identity of a process: the kernel reuses pids."""

    pid: int
    created: float


class ProcessRecorder:
    """Samples the descendants of one process until stopped."""

    def __init__(self, root_pid: int, log: EventLog):
        self._root_pid = root_pid
        self._log = log
        self._samples: dict[_ProcessKey, ProcessSample] = {}
        self._written: set[_ProcessKey] = set()

    def sample(self) -> None:
        """Sample once; processes that have ended are written to the log."""
        now = time.time()
        alive: set[_ProcessKey] = set()
        try:
            children = psutil.Process(self._root_pid).children(recursive=True)
        except psutil.NoSuchProcess:
            children = []
        for process in children[:MAX_PROCESSES]:
            try:
                key = _ProcessKey(process.pid, process.create_time())
                self._samples[key] = _sample_process(process, self._samples.get(key), now)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue  # it ended meanwhile
            alive.add(key)
        for key in [key for key in self._samples if key not in alive]:
            self._write(key)

    def stop(self) -> None:
        """Write the processes that still run."""
        for key in list(self._samples):
            self._write(key)

    def _write(self, key: _ProcessKey) -> None:
        sample = self._samples.pop(key)
        if key in self._written or len(self._written) >= MAX_PROCESSES:
            return
        self._written.add(key)
        self._log.append(
            "process",
            pid=sample.pid,
            command=list(sample.command),
            first_seen=sample.first_seen,
            last_seen=sample.last_seen,
            cpu_s=sample.cpu_s,
            max_rss_bytes=sample.max_rss_bytes,
            exe=sample.exe,
        )


def _sample_process(process: psutil.Process, before: ProcessSample | None, now: float) -> ProcessSample:
    """The process as it is now, merged with its earlier sample. Raises psutil.NoSuchProcess if it has ended."""
    with process.oneshot():
        command = _shortened(process.cmdline())
        times = process.cpu_times()
        rss = process.memory_info().rss
        exe = _exe(process)
    cpu_s = times.user + times.system
    if before is None:
        return ProcessSample(process.pid, command, now, now, cpu_s, rss, exe)
    return replace(
        before,
        command=command or before.command,
        last_seen=now,
        cpu_s=max(cpu_s, before.cpu_s),
        max_rss_bytes=max(rss, before.max_rss_bytes),
        exe=exe or before.exe,
    )


def _exe(process: psutil.Process) -> str:
    """The program file, as the process itself would see its path."""
    try:
        return _shortened([process.exe()])[0]
    except (psutil.AccessDenied, OSError, IndexError):
        return ""


def _shortened(command: list[str]) -> tuple[str, ...]:
    """The arguments as valid text, up to `MAX_COMMAND_CHARS` together."""
    arguments: list[str] = []
    n_chars_left = MAX_COMMAND_CHARS
    for part in command:
        if n_chars_left <= 0:
            break
        text = part[:n_chars_left].encode("utf-8", "backslashreplace").decode()[:n_chars_left]
        arguments.append(text)
        n_chars_left -= max(1, len(text))
    return tuple(arguments)
