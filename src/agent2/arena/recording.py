"""The comparison of a replay with the recording that it replays, and what a recording must hold to be whole.

A replay is compared with its source by the text files of the workspace at each submission (without data, logs and what
libraries write, which carry times), the digest of each checkpoint's weights, and the number of LLM calls. An assignment
with a verdict of its own is judged by what is left in the workspace, so that is compared as well. Scores are not
compared: with another machine's installation secret the hidden items are others.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from dulwich.repo import Repo

from agent2.arena.evidence import AgentEnd, SubmissionRecord
from agent2.arena.recorder import file_digests, open_revisions, revision_files, tree_digest
from agent2.arena.submissions import read_submissions_of
from agent2.arena.trial_folder import TrialPaths, read_config, read_events
from agent2.errors import ConfigError
from agent2.files import write_json
from agent2.llm.gateway.recording import DIFFERENCES, ExchangeOutcome, read_exchanges
from agent2.records import JsonValue
from agent2.texts import counted


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
class WorkspaceReplay:
    """What the agent left in the source and in the replay."""

    recorded_tree: str | None
    """Digest of the workspace's text files; None if no revision of it can be read."""
    replayed_tree: str | None
    changed_files: tuple[str, ...]

    @property
    def is_same(self) -> bool:
        """Both exist and are equal."""
        return self.recorded_tree is not None and self.recorded_tree == self.replayed_tree


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
    workspace: WorkspaceReplay | None = None
    """None: the task has no assignment of its own, and only what was submitted counts."""

    @property
    def is_same(self) -> bool:
        """Nothing differs and nothing is missing."""
        return (
            self.cut is None
            and (self.workspace is None or self.workspace.is_same)
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
        workspace=None if config.task.assignment is None else _compare_workspaces(source, replay),
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
            f", {counted(n_torn, 'line')} torn" if n_torn else ""
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


def _compare_workspaces(source: TrialPaths, replay: TrialPaths) -> WorkspaceReplay:
    before, after = _last_files(source), _last_files(replay)
    return WorkspaceReplay(
        recorded_tree=None if before is None else tree_digest(before),
        replayed_tree=None if after is None else tree_digest(after),
        changed_files=_changed(before or {}, after or {}),
    )


def _last_files(paths: TrialPaths) -> Mapping[str, str] | None:
    """Path -> digest of the last revision, which is taken when the agent's phase ends; None if it cannot be read."""
    revision = read_events(paths.revisions_log).last("revision")
    repository = open_revisions(paths.revisions_git)
    if repository is None:
        return None
    try:
        files = None if revision is None else revision_files(repository, str(revision["id"]), {})
    finally:
        repository.close()
    return None if files is None else file_digests(files)


def _changed(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(path for path in sorted(before.keys() | after.keys()) if before.get(path) != after.get(path))


def _compare_submission(number: int, before: _SubmissionContent, after: _SubmissionContent) -> SubmissionReplay:
    return SubmissionReplay(
        number=number,
        recorded_tree=before.tree,
        replayed_tree=after.tree,
        changed_files=_changed(before.files, after.files),
        recorded_weights=before.weights,
        replayed_weights=after.weights,
    )


def _n_calls(paths: TrialPaths) -> int:
    return sum(exchange.outcome is not ExchangeOutcome.REFUSED for exchange in read_exchanges(paths.llm))
