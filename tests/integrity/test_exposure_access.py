import json
import time

import pytest

from agent2.installation import ARENA_ROLE, Access, access_log, log_access
from agent2.integrity import Effect
from agent2.integrity.exposure import access_check


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path))


def ask(checkpoint, granted=True, role="candidate"):
    log_access(Access(granted, "test_private", role, "arithmetic", "d", checkpoint, "base", "/out"))


def check(trial_id="trial-1"):
    now = time.time()
    result = access_check(access_log(), now - 60, now + 60, trial_id)
    return {finding.name: finding.effect for finding in result.findings}


def test_a_whole_chain_with_the_trials_own_entry_is_clean():
    assert check() == {}
    ask("trial-1")
    ask("someone", granted=False)
    assert check() == {}


def test_items_given_out_for_something_else_meanwhile_are_noted():
    ask("trial-1")
    ask("my-checkpoint")
    assert check() == {"private items given out": Effect.NOTE}
    now = time.time()
    (finding,) = access_check(access_log(), now - 60, now + 60, "trial-1").findings
    assert "given out once for something else (arithmetic) while" in finding.words


def test_other_trials_of_a_sweep_are_counted_and_not_held_against_this_one():
    for trial in ("trial-1", "trial-2", "trial-3"):
        ask(trial, role=ARENA_ROLE)
    now = time.time()
    result = access_check(access_log(), now - 60, now + 60, "trial-1")
    assert result.findings == () and "2 of other trials that were scored meanwhile" in result.looked_at
    ask("trial-1")  # a person who asks under a trial's name is not a trial
    ask("me")
    assert check() == {"private items given out": Effect.NOTE}


def test_a_line_taken_out_is_flagged():
    for checkpoint in ("trial-1", "trial-1", "trial-1"):
        ask(checkpoint)
    lines = access_log().read_bytes().splitlines(keepends=True)
    access_log().write_bytes(lines[0] + lines[2])
    assert check() == {"access log broken": Effect.FLAG}


def test_a_line_that_was_changed_is_flagged():
    ask("trial-1")
    ask("trial-1")
    first, second = access_log().read_text().splitlines()
    access_log().write_text(json.dumps(json.loads(first) | {"checkpoint": "other"}) + "\n" + second + "\n")
    assert check()["access log broken"] is Effect.FLAG
