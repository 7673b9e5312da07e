"""What a trial's mark vouches for: an edit or a move to another trial loses it; other installations cannot tell."""

import json
import shutil

import numpy as np
import pytest

from agent2 import installation
from agent2.arena.evidence import MarkState
from agent2.arena.trial_folder import EventLog, TrialPaths, read_events
from agent2.arena.trial_mark import is_own_lock, marked_lock, read_mark
from agent2.cards.folder import header_digests
from agent2.cli.run import play_new_trial
from pool_builders import mark_as_own, simulation


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    module, out = simulation(), tmp_path_factory.mktemp("written")
    module.write_sweep(module.simulate(np.random.default_rng(3), n_stacks=1, n_runs=2, n_items=20), out)
    return out


@pytest.fixture
def trials(written, tmp_path):
    """Two trials with marks of this installation."""
    folders = [tmp_path / f"trial-{seed}" for seed in (0, 1)]
    for seed, folder in enumerate(folders):
        shutil.copytree(written / f"static-1-stack-00-{seed}", folder)
        (folder / "llm").mkdir()
        (folder / "llm" / "exchanges.jsonl").write_text('{"event": "started"}\n')
        (folder / "agent.log").write_text("hello\n")
        mark_as_own(folder)
    return folders


def state(folder):
    return read_mark(TrialPaths(folder)).state


def rewrite(file, old, new):
    def edit(folder):
        path = folder / file
        path.chmod(0o644)
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))

    return edit


def edited_header(folder):
    """The time of the card's header, with its digest made right again."""
    card = folder / "cards" / "final-test_private"
    rewrite("cards/final-test_private/card.json", '"created_at": 1.0', '"created_at": 2.0')(folder)
    stored = json.loads((card / "card.json").read_text())
    (card / "card.json").write_text(json.dumps({**stored, "header_digest": header_digests(card)[0]}))


def linked_log(folder):
    (folder / "events" / "trial.jsonl").rename(folder / "elsewhere")
    (folder / "events" / "trial.jsonl").symlink_to(folder / "elsewhere")


EDITS = {
    "a time": rewrite("events/trial.jsonl", '"t":1001.0', '"t":1000.5'),
    "the seed": rewrite("trial.json", '"seed":0', '"seed":7'),
    "the trial's name": rewrite("trial.json", '"trial_id":"static', '"trial_id":"other'),
    "the lock": rewrite("lock.json", '"agent_digest": "', '"agent_digest": "x'),
    "the audit": rewrite("integrity.json", "nothing", "no thing"),
    "the submissions": rewrite("submissions.json", "1030.0", "1031.0"),
    "a card's header": edited_header,
    "a card taken away": lambda folder: shutil.rmtree(folder / "cards" / "base-noise"),
    "a card added": lambda folder: shutil.copytree(folder / "cards" / "base-noise", folder / "cards" / "more"),
    "an answer of the LLM": rewrite("llm/exchanges.jsonl", "started", "stopped"),
    "the agent's log": rewrite("agent.log", "hello", "goodbye"),
    "a log added": lambda folder: (folder / "events" / "processes.jsonl").write_text("{}\n"),
    "a log behind a link": linked_log,
    "a closing line that says more": lambda folder: EventLog(folder / "events" / "trial.jsonl").append(
        "finished", end="exited"
    ),
    "no mark": lambda folder: (folder / "mark.json").write_text("{"),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=[name.replace(" ", "-") for name in EDITS])
def test_an_edited_trial_has_lost_its_mark(trials, edit):
    assert state(trials[0]) is MarkState.OWN
    edit(trials[0])
    assert state(trials[0]) is MarkState.CHANGED


def test_reports_and_reproductions_come_later_and_take_nothing_away(trials):
    (trials[0] / "report").mkdir()
    (trials[0] / "report" / "report.md").write_text("x")
    (trials[0] / "events" / "reproductions.jsonl").write_text("{}\n")
    EventLog(trials[0] / "events" / "trial.jsonl").append("finished")
    assert state(trials[0]) is MarkState.OWN


def test_the_mark_of_another_trial_is_none_of_this_one(trials):
    shutil.copyfile(trials[0] / "mark.json", trials[1] / "mark.json")
    assert state(trials[1]) is MarkState.CHANGED


def test_only_a_holder_of_the_secret_can_make_or_check_a_mark(trials, tmp_path, monkeypatch):
    secret = (tmp_path / "home" / "secret").read_bytes()
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "elsewhere"))
    assert state(trials[0]) is MarkState.FOREIGN, "an installation without a secret"
    installation.secret()
    assert state(trials[0]) is MarkState.FOREIGN
    forged = json.loads((trials[0] / "mark.json").read_text())
    forged["installation"] = installation.own_secret_digest()
    (trials[1] / "mark.json").write_text(json.dumps(forged))
    assert state(trials[1]) is MarkState.CHANGED
    (tmp_path / "elsewhere" / "secret").write_bytes(secret)
    assert state(trials[0]) is MarkState.OWN, "another grader of the same organiser"


def test_a_trial_of_an_earlier_version_has_none(trials):
    (trials[0] / "mark.json").unlink()
    assert state(trials[0]) is MarkState.NONE


def test_a_lock_in_the_name_of_this_installation_needs_its_secret(tmp_path, monkeypatch):
    lock = marked_lock({"benchmark": "b", "items": {"dev": "0" * 64}, "installation_secret_digest": "s"})
    assert is_own_lock(lock)
    assert not is_own_lock({**lock, "items": {"dev": "1" * 64}})
    assert not is_own_lock({name: part for name, part in lock.items() if name != "installation_mark"})
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "elsewhere"))
    assert not is_own_lock(lock)


@pytest.mark.slow
def test_a_played_trial_is_marked_before_its_log_is_closed(task, home, tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(home))
    root = play_new_trial(task, "base-copy", 0, tmp_path / "trials")
    assert state(root) is MarkState.OWN
    assert is_own_lock(json.loads((root / "lock.json").read_text()))
    assert read_events(TrialPaths(root).trial_log).rows[-1]["event"] == "finished"
