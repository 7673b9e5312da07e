"""What a recording must hold to be whole."""

import pytest

from agent2.arena.plan import new_trial
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
    assert "1 line(s) are torn" in recording_cut(trial)


def test_a_trial_that_is_no_replay_has_nothing_to_be_compared_with(trial):
    with pytest.raises(ConfigError, match="is not a replay"):
        compare_replay(trial.root)
