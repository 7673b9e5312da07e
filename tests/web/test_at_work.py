"""Whether a process works on a result."""

import fcntl

from agent2.web import at_work
from agent2.web.catalog import Catalog
from agent2.web.entries import EntryState
from web_builders import write_trial

STARTED = ({"event": "base_scored", "split": "test_public", "score": {"value": 0.5}}, {"event": "agent_started"})


def test_a_running_trial_is_known_by_the_lock_of_its_harness(tmp_path):
    path = write_trial(tmp_path / "trial", *STARTED)
    catalog = Catalog(tmp_path)
    (entry,) = catalog.scan().entries.values()
    assert catalog.summary(entry).state is EntryState.STOPPED
    with (path / "harness.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        at_work._locks_read = (0.0, frozenset())
        assert catalog.summary(entry).state is EntryState.RUNNING
    at_work._locks_read = (0.0, frozenset())
    assert catalog.summary(entry).state is EntryState.STOPPED
