"""What the catalog of a folder finds, and how its results are named."""

import os
from pathlib import Path

from agent2.web.catalog import Catalog
from agent2.web.entries import entry_id
from web_builders import write_card, write_trial

STARTED = ({"event": "base_scored", "split": "test_public", "score": {"value": 0.5}}, {"event": "agent_started"})


def test_the_root_itself_is_a_result_under_its_own_name(tmp_path):
    trial = write_trial(tmp_path / "mine", *STARTED)
    (entry,) = Catalog(trial).scan().entries.values()
    assert entry.display_path == "mine" and Catalog(trial).at(trial) == entry


def test_ids_are_of_the_path_below_the_folder_however_it_is_named(tmp_path, monkeypatch):
    for name in ("sweeps/many/trials/Übung 1", "b"):
        write_trial(tmp_path / name, *STARTED)
    write_card(tmp_path / "b" / "cards" / "base-test_public", n=2)
    monkeypatch.chdir(tmp_path)
    relative_to = {}
    for root in (tmp_path, Path(), Path("../") / tmp_path.name):
        scan = Catalog(root).scan()
        relative_to[str(root)] = {(entry.id, entry.display_path, entry.kind) for entry in scan.entries.values()}
        for entry in scan.entries.values():
            below = os.path.relpath(entry.path, root)
            assert entry.id == entry_id(os.fsencode(below), entry.path.name) and entry.display_path == below
    assert len({frozenset(entries) for entries in relative_to.values()}) == 1 and len(relative_to[str(tmp_path)]) == 3


def test_logs_and_report_of_a_trial_are_not_entered_and_other_folders_of_these_names_are(tmp_path):
    trial = write_trial(tmp_path / "trial", *STARTED)
    for folder in (trial / "events", trial / "report", trial / "cards", tmp_path / "events", tmp_path / "report"):
        write_card(folder / "card", n=1)
    shown = {entry.display_path for entry in Catalog(tmp_path).scan().entries.values()}
    assert shown == {"trial", "trial/cards/card", "events/card", "report/card"}


def test_a_change_of_what_grows_is_a_change_of_the_result(tmp_path):
    trial = write_trial(tmp_path / "trial", *STARTED)
    write_card(trial / "cards" / "open", n=1, is_open=True)
    for growing in (trial / "events" / "trial.jsonl", trial / "cards" / "open" / "rollouts.jsonl"):
        os.utime(growing, (4e9, 4e9))
    assert {entry.changed for entry in Catalog(tmp_path).scan().entries.values()} == {4e9}
