"""The submissions of a trial, from its database or a shared recording."""

import pytest

from agent2.arena.plan import new_trial
from agent2.arena.submissions import read_submissions_of
from agent2.arena.trial_folder import TrialPaths
from agent2.errors import ConfigError


@pytest.fixture
def trial(task, tmp_path):
    return TrialPaths(new_trial(task, "nop", 0, tmp_path / "trials", trial_id="one"))


def test_damaged_submissions_of_a_recording_are_named(trial):
    trial.shared_submissions.write_text('[{"number": "one"}]')
    with pytest.raises(ConfigError, match=r"submissions\.json: .*machine-written"):
        read_submissions_of(trial)


def test_a_trial_that_handed_nothing_in_has_no_submissions(trial):
    assert read_submissions_of(trial) == ()
