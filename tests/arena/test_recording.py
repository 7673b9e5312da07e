"""What a recording must hold to be whole."""

import json

import pytest

from agent2.arena.plan import new_trial
from agent2.arena.recorder import RevisionRecorder
from agent2.arena.recording import compare_replay, recording_cut
from agent2.arena.trial_folder import EventLog, TrialPaths
from agent2.errors import ConfigError


@pytest.fixture
def trial(task, tmp_path):
    return TrialPaths(new_trial(task, "nop", 0, tmp_path / "trials", trial_id="one"))


@pytest.mark.parametrize(
    ("ended", "sentence"),
    [
        ({}, "the end of the agent's phase is not in it"),
        ({"end": "interrupted", "reason": "the harness died"}, "the harness died"),
        ({"end": "infrastructure", "reason": "the gateway died"}, "the gateway died"),
    ],
)
def test_a_recording_whose_agent_was_cut_short_says_so(trial, ended, sentence):
    log = EventLog(trial.trial_log)
    log.append("agent_started")
    if ended:
        log.append("agent_ended", **ended)
    assert recording_cut(trial) == f"the recording is cut: {sentence}"


def test_a_recording_with_a_torn_line_says_so(trial):
    EventLog(trial.trial_log).append("agent_ended", end="exited")
    assert recording_cut(trial) is None
    trial.llm.mkdir()
    (trial.llm / "exchanges.jsonl").write_text('{"event": "started", "t": 1.0, "torn_bytes": 0}\n{"event": "beg')
    assert "1 line torn" in recording_cut(trial)


def test_a_trial_that_is_no_replay_has_nothing_to_be_compared_with(trial):
    with pytest.raises(ConfigError, match="is not a replay"):
        compare_replay(trial.root)


def left_behind(task, folder, text, source=None):
    """A trial whose agent ended with this program in its workspace; source: what it replays."""
    paths = TrialPaths(new_trial(task, "nop", 0, folder, trial_id="one" if source is None else "again"))
    record = json.loads(paths.trial_json.read_text())
    record["replay"] = None if source is None else {"trial": str(source), "strict": False}
    paths.trial_json.write_text(json.dumps(record))
    program = paths.workspace / "code" / "search" / "search.py"
    program.parent.mkdir(parents=True)
    recorder = RevisionRecorder(paths.workspace, paths.revisions_git, EventLog(paths.revisions_log))
    for content in ("unfinished\n", text):
        program.write_text(content)
        recorder.capture()
    recorder.close()
    EventLog(paths.trial_log).append("agent_ended", end="exited")
    return paths.root


@pytest.mark.parametrize(("text", "changed"), [("a\n", ()), ("b\n", ("code/search/search.py",))])
def test_a_replayed_assignment_is_compared_by_what_is_left_in_the_workspace(home, tmp_path, text, changed):
    source = left_behind("tune-hyperparameters", tmp_path, "a\n")
    report = compare_replay(left_behind("tune-hyperparameters", tmp_path, text, source))
    assert report.workspace.changed_files == changed
    assert report.is_same == report.workspace.is_same == (changed == ())


def test_a_replay_of_a_task_without_an_assignment_is_compared_by_submissions_alone(task, tmp_path):
    source = left_behind(task, tmp_path, "a\n")
    report = compare_replay(left_behind(task, tmp_path, "b\n", source))
    assert report.workspace is None and report.is_same


def test_a_recording_without_code_revisions_is_not_the_same_as_its_replay(home, tmp_path):
    source = left_behind("tune-hyperparameters", tmp_path, "a\n")
    TrialPaths(source).revisions_log.unlink()
    assert not compare_replay(left_behind("tune-hyperparameters", tmp_path, "a\n", source)).is_same
