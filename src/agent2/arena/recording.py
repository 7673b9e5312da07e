"""Recordings of finished trials that can be shared, and the comparison of a replay with its source.

A recording is enough to read a trial's report and to replay it: `agent2 share TRIAL OUT`.

Included: configuration and lock, the agent's files, LLM traffic, events, code revisions, the log, and submissions.json
(state, digests and public scores of the submissions); the command computes the report from these. Left out: the
grader's database, all cards (they hold hidden items), snapshots of checkpoints, the workspace, and host paths in the
configuration.

A replay is compared with its source by the text files of the workspace at each submission (without data, logs and what
libraries write, which carry times), the digest of each checkpoint's weights, and the number of LLM calls. Scores are
not compared: with another machine's installation secret the hidden items are others.

Promises: neither the installation secret nor a key that is set now, in the driver's variable or in one whose name says
so (..._KEY, ..._TOKEN, ...), is in any file (compressed ones included); else nothing is written. Does NOT look for
secrets that the agent itself made up or brought along, and keeps what the logs of a trial without a sandbox say about
this machine's folders.
"""

import os
import re
import shutil
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path, PurePath

import msgspec
import zstandard
from dulwich.repo import Repo

from agent2 import installation
from agent2.arena.evidence import AgentEnd, SubmissionRecord
from agent2.arena.grader.store import read_submissions
from agent2.arena.recorder import file_digests, open_revisions, revision_files, tree_digest
from agent2.arena.spec import TrialConfig
from agent2.arena.trial_folder import TrialPaths, read_config, read_events
from agent2.errors import ConfigError
from agent2.files import write_json
from agent2.llm.gateway.recording import DIFFERENCES, ExchangeOutcome, read_exchanges
from agent2.records import JsonValue

SHARED_FILES = ("lock.json", "agent.log", "integrity.json")
SHARED_FOLDERS = ("agent", "llm", "events", "revisions.git")
PRICES = "prices.yaml"
NO_ADDRESS = "https://recorded.invalid"
"""In place of the provider's addresses; nothing is ever sent there."""
_SECRET_NAME = re.compile(r"(^|_)(API_?KEY|KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS)$", re.IGNORECASE)
"""Usual names of variables that hold keys."""
MIN_SECRET_CHARS = 8
"""A shorter key would be found by chance."""


def share_trial(source: Path, out: Path) -> Path:
    """Write the recording of a finished trial to the new folder `out`; returns it.

    Raises ConfigError if the source is not a finished trial, `out` exists, or a secret was found.
    """
    paths, shared = TrialPaths(source.resolve()), TrialPaths(out.resolve())
    config = read_config(paths.trial_json)
    if read_events(paths.trial_log).last("finished") is None:
        raise ConfigError(
            f"{source}: is not finished; let it finish, or resume it with: {TrialPaths(source).resume_command}"
        )
    if shared.root.exists():
        raise ConfigError(f"{out}: already exists; pass a new folder")
    draft = TrialPaths(shared.root.with_name(f".{shared.root.name}.{os.getpid()}"))
    draft.root.mkdir(parents=True)
    try:
        _copy(paths, draft)
        if config.prices is not None and Path(config.prices).is_file():
            shutil.copyfile(config.prices, draft.root / PRICES)
        write_json(draft.shared_submissions, read_submissions_of(paths))
        write_json(draft.trial_json, _without_host_paths(config).model_dump(mode="json"))
        _require_clean(draft.root, _secrets(config))
        draft.root.rename(shared.root)
    finally:
        shutil.rmtree(draft.root, ignore_errors=True)
    return shared.root


def read_submissions_of(paths: TrialPaths) -> tuple[SubmissionRecord, ...]:
    """The submissions of a trial, from the grader's database or, of a shared recording, from submissions.json.

    Raises ConfigError if the latter is damaged.
    """
    if paths.grader_db.exists():
        return tuple(read_submissions(paths.grader_db))
    if not paths.shared_submissions.exists():
        return ()
    try:
        return msgspec.json.decode(paths.shared_submissions.read_bytes(), type=tuple[SubmissionRecord, ...])
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{paths.shared_submissions}: {error}; it is machine-written, restore it") from error


def _copy(paths: TrialPaths, draft: TrialPaths) -> None:
    for name in SHARED_FILES:
        if (paths.root / name).is_file():
            shutil.copyfile(paths.root / name, draft.root / name)
    for name in SHARED_FOLDERS:
        if (paths.root / name).is_dir():
            # links stay links: one that the agent made must not bring a file of this host into the recording
            shutil.copytree(paths.root / name, draft.root / name, symlinks=True)


def _without_host_paths(config: TrialConfig) -> TrialConfig:
    """The configuration without folders and addresses of this machine."""
    driver = config.driver_record
    if driver is not None:
        driver = driver.model_copy(update={"endpoints": dict.fromkeys(driver.endpoints, NO_ADDRESS)})
    replay = config.replay
    if replay is not None:
        replay = replay.model_copy(update={"trial": PurePath(replay.trial).name})
    task = config.task.model_copy(update={"base_model": PurePath(config.task.base_model).name})
    return config.model_copy(
        update={
            "task": task,
            "agent": PurePath(config.agent).name,
            "base_model": PurePath(config.base_model).name,
            "prices": PRICES if config.prices is not None else None,
            "driver_record": driver,
            "replay": replay,
        }
    )


def _secrets(config: TrialConfig) -> dict[str, bytes]:
    """Name -> bytes that must not be in a recording."""
    secret = installation.secret()
    secrets = {"the installation secret": secret, "the installation secret in hexadecimal": secret.hex().encode()}
    driver_variable = config.driver_record.api_key_env if config.driver_record is not None else ""
    for name, value in os.environ.items():
        if (name == driver_variable or _SECRET_NAME.search(name)) and len(value) >= MIN_SECRET_CHARS:
            secrets[f"the key in {name}"] = os.fsencode(value)
    return secrets


def _require_clean(folder: Path, secrets: dict[str, bytes]) -> None:
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()):
        for data in _contents(path):
            for label, secret in secrets.items():
                if secret in data:
                    raise ConfigError(
                        f"{path.relative_to(folder)}: contains {label}; nothing was written: find out how it got "
                        "there, and do not share this trial"
                    )


def _contents(path: Path) -> Iterator[bytes]:
    """The bytes of a file and, of a compressed file or git object, of its content."""
    data = path.read_bytes()
    yield data
    try:
        if path.suffix == ".zst":
            with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as stream:
                yield stream.read()
        elif path.parent.parent.name == "objects":  # a loose object of revisions.git
            yield zlib.decompress(data)
    except (zstandard.ZstdError, zlib.error) as error:
        raise ConfigError(f"{path}: cannot be unpacked ({error}), so its content is unknown; restore it") from error


@dataclass(frozen=True, slots=True)
class SubmissionReplay:
    """One submission in the source and in the replay."""

    number: int
    recorded_tree: str | None
    """Digest of the workspace's text files; None if there was no such submission, or no revision of it."""
    replayed_tree: str | None
    changed_files: tuple[str, ...]
    recorded_weights: str | None
    """Digest of the checkpoint's weights."""
    replayed_weights: str | None

    @property
    def is_same_tree(self) -> bool:
        """Both exist and are equal."""
        return self.recorded_tree is not None and self.recorded_tree == self.replayed_tree

    @property
    def is_same_checkpoint(self) -> bool:
        """Equal, also if both were refused before they had a digest."""
        return self.recorded_weights == self.replayed_weights


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """A replay compared with its source."""

    source: str
    submissions: tuple[SubmissionReplay, ...]
    n_recorded_calls: int
    n_replayed_calls: int
    differences: tuple[Mapping[str, JsonValue], ...]
    """Requests that were not the recorded ones."""
    cut: str | None
    """What is missing from the recording; None: it is complete."""

    @property
    def is_same(self) -> bool:
        """Nothing differs and nothing is missing."""
        return (
            self.cut is None
            and not self.differences
            and self.n_recorded_calls == self.n_replayed_calls
            and all(submission.is_same_tree and submission.is_same_checkpoint for submission in self.submissions)
        )


def compare_replay(replayed: Path) -> ReplayReport:
    """Compare a finished replay with its source, and write the result to its replay.json.

    Raises ConfigError if it is not a replay or its source is missing.
    """
    replay = TrialPaths(replayed.resolve())
    config = read_config(replay.trial_json)
    if config.replay is None:
        raise ConfigError(f"{replay.root}: is not a replay; nothing to compare it with")
    source = TrialPaths(Path(config.replay.trial))
    if not source.trial_json.is_file():
        raise ConfigError(f"{source.root}: the recording is gone; restore it to compare {replay.root} with it")
    before, after = _submission_contents(source), _submission_contents(replay)
    report = ReplayReport(
        source=str(source.root),
        submissions=tuple(
            _compare_submission(number, before.get(number, _NO_CONTENT), after.get(number, _NO_CONTENT))
            for number in sorted(before | after)
        ),
        n_recorded_calls=_n_calls(source),
        n_replayed_calls=_n_calls(replay),
        differences=tuple(read_events(replay.llm / DIFFERENCES).rows),
        cut=recording_cut(source),
    )
    write_json(replay.replay_json, asdict(report) | {"is_same": report.is_same})
    return report


def recording_cut(paths: TrialPaths) -> str | None:
    """What is missing from a recording, in one sentence; None if it is complete."""
    ended = read_events(paths.trial_log).last("agent_ended")
    if ended is None:
        return "the recording is cut: the end of the agent's phase is not in it"
    if ended.get("end") in {AgentEnd.INTERRUPTED, AgentEnd.INFRASTRUCTURE}:
        return f"the recording is cut: {ended.get('reason') or ended['end']}"
    if read_events(paths.trial_log).last("agent_restarted") is not None:
        return "the recording is cut: the agent was interrupted and started again"
    n_torn = read_events(paths.llm / "exchanges.jsonl").n_torn
    exchanges = read_exchanges(paths.llm)
    lost = [exchange.id for exchange in exchanges if exchange.outcome in {ExchangeOutcome.OPEN, ExchangeOutcome.LOST}]
    if lost or n_torn:
        return f"the recording is cut: {len(lost)} of {len(exchanges)} LLM calls have no whole answer" + (
            f", {n_torn} line(s) are torn" if n_torn else ""
        )
    missing = [
        e.id for e in exchanges if e.outcome is ExchangeOutcome.OK and (e.response is None or not e.response.is_file())
    ]
    return f"the recording is cut: the answer to LLM call {missing[0]} is not in it" if missing else None


@dataclass(frozen=True, slots=True)
class _SubmissionContent:
    """What is compared of one submission."""

    tree: str | None
    """Digest of the workspace's text files; None: no revision of it could be read."""
    files: Mapping[str, str]
    """Path -> digest."""
    weights: str | None


_NO_CONTENT = _SubmissionContent(None, {}, None)


def _submission_contents(paths: TrialPaths) -> dict[int, _SubmissionContent]:
    submissions = read_submissions_of(paths)
    repository = open_revisions(paths.revisions_git)
    if repository is None:
        return {s.number: _SubmissionContent(None, {}, s.weights_digest) for s in submissions}
    try:
        texts: dict[bytes, str] = {}
        return {s.number: _submission_content(repository, s, texts) for s in submissions}
    finally:
        repository.close()


def _submission_content(repository: Repo, submission: SubmissionRecord, texts: dict[bytes, str]) -> _SubmissionContent:
    files = revision_files(repository, submission.revision, texts) if submission.revision else None
    if files is None:
        return _SubmissionContent(None, {}, submission.weights_digest)
    digests = file_digests(files)
    return _SubmissionContent(tree_digest(digests), digests, submission.weights_digest)


def _compare_submission(number: int, before: _SubmissionContent, after: _SubmissionContent) -> SubmissionReplay:
    paths = sorted(before.files.keys() | after.files.keys())
    return SubmissionReplay(
        number=number,
        recorded_tree=before.tree,
        replayed_tree=after.tree,
        changed_files=tuple(path for path in paths if before.files.get(path) != after.files.get(path)),
        recorded_weights=before.weights,
        replayed_weights=after.weights,
    )


def _n_calls(paths: TrialPaths) -> int:
    return sum(exchange.outcome is not ExchangeOutcome.REFUSED for exchange in read_exchanges(paths.llm))
