"""Whether a replay came to the same as its source: code at each submission, and the checkpoints handed in.

Compared are the text files of the workspace at each submission (without data, logs and what libraries write, which
carry times), the digest of each checkpoint's weights, and whether the agent asked for the same number of answers.
Scores are not compared: another machine's installation secret asks other hidden items.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from dulwich.repo import Repo

from agent2.arena.assignment import TrialConfig
from agent2.arena.config_file import read_config, write_json
from agent2.arena.eventlog import read_events
from agent2.arena.evidence import AgentEnd, SubmissionRecord
from agent2.arena.gateway.read import Outcome, read_exchanges
from agent2.arena.paths import TrialPaths
from agent2.arena.recorder.revision_files import file_digests, revision_files, tree_digest
from agent2.arena.recording import read_submissions_of
from agent2.errors import ConfigError
from agent2.records import JsonValue

DIFFERENCES = "differences.jsonl"


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
        """Both are there and equal."""
        return self.recorded_tree is not None and self.recorded_tree == self.replayed_tree

    @property
    def is_same_checkpoint(self) -> bool:
        """Equal; two that were both refused before they had a digest are."""
        return self.recorded_weights == self.replayed_weights


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """A replay beside its source."""

    source: str
    submissions: tuple[SubmissionReplay, ...]
    n_recorded_calls: int
    n_replayed_calls: int
    differences: tuple[Mapping[str, JsonValue], ...]
    """Requests that were not the recorded ones."""
    cut: str | None
    """What is missing of the recording; None: it is whole."""

    @property
    def is_same(self) -> bool:
        """Nothing at all differs and nothing is missing."""
        return (
            self.cut is None
            and not self.differences
            and self.n_recorded_calls == self.n_replayed_calls
            and all(one.is_same_tree and one.is_same_checkpoint for one in self.submissions)
        )


def compare_replay(replayed: Path) -> ReplayReport:
    """Compare a finished replay with its source, and keep what was found in its replay.json.

    Raises ConfigError if it is not a replay or its source is gone.
    """
    after = TrialPaths(replayed.resolve())
    config = read_config(after.trial_json)
    before = _source(after, config)
    one, other = _submission_facts(before), _submission_facts(after)
    report = ReplayReport(
        source=str(before.root),
        submissions=tuple(_pair(number, one.get(number), other.get(number)) for number in sorted(one | other)),
        n_recorded_calls=_n_calls(before),
        n_replayed_calls=_n_calls(after),
        differences=tuple(read_events(after.llm / DIFFERENCES).rows),
        cut=recording_cut(before),
    )
    write_json(after.replay_json, asdict(report) | {"is_same": report.is_same})
    return report


def recording_cut(paths: TrialPaths) -> str | None:
    """What is missing of a recording, in one sentence; None if it is whole."""
    ended = read_events(paths.trial_log).last("agent_ended")
    if ended is None:
        return "the recording is cut: the end of the agent's phase is not in it"
    if ended.get("end") in {AgentEnd.INTERRUPTED, AgentEnd.INFRASTRUCTURE}:
        return f"the recording is cut: {ended.get('reason') or ended['end']}"
    if read_events(paths.trial_log).last("agent_restarted") is not None:
        return "the recording is cut: the agent was interrupted and started again"
    n_torn = read_events(paths.llm / "exchanges.jsonl").n_torn
    exchanges = read_exchanges(paths.llm)
    lost = [exchange.id for exchange in exchanges if exchange.outcome in {Outcome.OPEN, Outcome.LOST}]
    if lost or n_torn:
        return f"the recording is cut: {len(lost)} of {len(exchanges)} LLM calls have no whole answer" + (
            f", {n_torn} line(s) are torn" if n_torn else ""
        )
    gone = [e.id for e in exchanges if e.outcome is Outcome.OK and (e.response is None or not e.response.is_file())]
    return f"the recording is cut: the answer to LLM call {gone[0]} is not in it" if gone else None


@dataclass(frozen=True, slots=True)
class _Facts:
    tree: str | None
    files: Mapping[str, str]
    weights: str | None


def _source(after: TrialPaths, config: TrialConfig) -> TrialPaths:
    if config.replay is None:
        raise ConfigError(f"{after.root}: is not a replay; nothing to compare it with")
    before = TrialPaths(Path(config.replay.trial))
    if not before.trial_json.is_file():
        raise ConfigError(f"{before.root}: the recording is gone; restore it to compare {after.root} with it")
    return before


def _submission_facts(paths: TrialPaths) -> dict[int, _Facts]:
    submissions = read_submissions_of(paths)
    if not paths.revisions_git.is_dir():
        return {s.number: _Facts(None, {}, s.weights_digest) for s in submissions}
    repository = Repo(str(paths.revisions_git))
    try:
        texts: dict[bytes, str] = {}
        return {s.number: _facts(repository, s, texts) for s in submissions}
    finally:
        repository.close()


def _facts(repository: Repo, submission: SubmissionRecord, texts: dict[bytes, str]) -> _Facts:
    files = revision_files(repository, submission.revision, texts) if submission.revision else None
    if files is None:
        return _Facts(None, {}, submission.weights_digest)
    digests = file_digests(files)
    return _Facts(tree_digest(digests), digests, submission.weights_digest)


def _pair(number: int, one: _Facts | None, other: _Facts | None) -> SubmissionReplay:
    before, after = one or _Facts(None, {}, None), other or _Facts(None, {}, None)
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
    return sum(exchange.outcome is not Outcome.REFUSED for exchange in read_exchanges(paths.llm))
