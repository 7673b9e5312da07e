"""A real trial, verified from its cards, and what is made of one that lies."""

import json
import shutil

import pytest

from agent2.arena.analysis.pool import find_trials, read_pool
from agent2.cli.run import play_new_trial
from agent2.errors import ConfigError


def test_what_an_agent_left_in_a_workspace_is_no_trial(tmp_path):
    for place in ("a", "a/workspace/b", ".hidden/c"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "trial.json").write_text("{}")
    assert list(find_trials(tmp_path)) == [tmp_path / "a"]
    pool = read_pool([tmp_path])
    assert pool.trials == []
    assert pool.left_out[0].folder == str((tmp_path / "a").resolve())


def test_a_folder_without_trials_is_refused_with_what_could_be_there(tmp_path):
    with pytest.raises(ConfigError, match="contains no trial"):
        read_pool([tmp_path])
    with pytest.raises(ConfigError, match="is not a directory"):
        read_pool([tmp_path / "none"])


@pytest.mark.slow
def test_a_trial_is_verified_from_its_cards_and_a_changed_one_is_not(task, tmp_path):
    honest = play_new_trial(task, "base-copy", 0, tmp_path / "honest")
    (found,) = read_pool([tmp_path / "honest"]).trials
    assert found.trial.is_verified and found.trial.is_counted
    assert len(found.base) == 20 and found.final == found.base

    def changed(name):
        shutil.copytree(honest, tmp_path / name, symlinks=True)
        return tmp_path / name

    told = changed("told")
    log = told / "events" / "trial.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if line["event"] == "base_scored" and line["split"] == "test_private":
            line["score"]["value"] += 0.5
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))

    other_items = changed("items")
    lock = json.loads((other_items / "lock.json").read_text())
    lock["items"]["test_private"] = "0" * 64
    (other_items / "lock.json").write_text(json.dumps(lock))

    card = changed("card") / "cards" / "base-test_private" / "card.json"
    stored = json.loads(card.read_text())
    stored["summary"]["value"] = 0.9
    card.chmod(0o644)
    card.write_text(json.dumps(stored))

    shutil.rmtree(changed("recording") / "cards")

    unfinished = changed("unfinished") / "events" / "trial.jsonl"
    unfinished.write_text(unfinished.read_text().splitlines()[0] + "\n")

    for name, why in (
        ("told", "the base score that the trial reports"),
        ("items", "of other items than the lock names"),
        ("card", "card.json"),
        ("recording", "no cards"),
    ):
        (found,) = read_pool([tmp_path / name]).trials
        assert not found.trial.is_verified and not found.trial.is_counted, name
        assert why in found.trial.marks[0], name
    assert "not finished" in read_pool([tmp_path / "unfinished"]).left_out[0].why
