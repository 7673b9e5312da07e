import fcntl

import pytest

from agent2.arena.analysis.read import read_interventions
from agent2.arena.trial_folder import MAX_NOTE, EventLog, TrialPaths, record_intervention
from agent2.errors import ConfigError


@pytest.fixture
def paths(tmp_path):
    trial_paths = TrialPaths(tmp_path)
    trial_paths.trial_json.write_text("{}")
    EventLog(trial_paths.trial_log).append("agent_started")
    return trial_paths


@pytest.fixture
def harness(paths):
    with paths.harness_lock.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle


def test_interventions_are_appended_while_the_agent_works(paths, harness):
    record_intervention(paths, "I freed the disk", by="operator")
    record_intervention(paths, "I told it to stop")
    warnings = []
    reported = read_interventions(paths, warnings)
    assert [(intervention.note, intervention.by) for intervention in reported] == [
        ("I freed the disk", "operator"),
        ("I told it to stop", ""),
    ]
    assert warnings == []


def test_without_a_harness_nothing_is_recorded(paths):
    with pytest.raises(ConfigError, match="no agent is at work there now"):
        record_intervention(paths, "too late")
    assert not paths.interventions_log.exists()


def test_after_the_agents_phase_nothing_is_recorded(paths, harness):
    EventLog(paths.trial_log).append("agent_ended")
    with pytest.raises(ConfigError, match="no agent is at work there now"):
        record_intervention(paths, "too late")


@pytest.mark.parametrize("note", ["", "  ", "x" * (MAX_NOTE + 1)])
def test_a_note_says_something_and_not_too_much(paths, harness, note):
    with pytest.raises(ConfigError, match="--note has"):
        record_intervention(paths, note)


def test_a_folder_that_is_no_trial_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"no trial\.json there"):
        record_intervention(TrialPaths(tmp_path / "none"), "hello")
