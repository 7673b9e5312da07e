"""What is shared of a trial, what is refused, and what others can verify of it."""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
import zstandard

from agent2.arena.analysis.pool import read_pool
from agent2.arena.evidence import MarkState
from agent2.arena.host_folders import HostFolders
from agent2.arena.plan import new_trial
from agent2.arena.sharing import share_trial
from agent2.arena.spec import config_digest
from agent2.arena.trial_folder import EventLog, TrialPaths, read_config
from agent2.arena.trial_mark import is_own_lock, read_mark
from agent2.cards.folder import file_digest, header_digests, load_card, store_card
from agent2.cli.run import play_new_trial
from agent2.errors import ConfigError
from pool_builders import mark_as_own, simulation


@pytest.fixture
def trial(task, tmp_path):
    return TrialPaths(new_trial(task, "nop", 0, tmp_path / "trials", trial_id="one"))


def test_a_trial_that_is_not_finished_is_not_shared(trial, tmp_path):
    with pytest.raises(ConfigError, match=r"is not finished; let it finish, or resume it with: agent2 resume"):
        share_trial(trial.root, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_trial_whose_agent_was_shown_a_hidden_request_is_shared_only_with_those_who_may_know_it(tmp_path, home):
    trial = TrialPaths(new_trial("build-page", "nop", 0, tmp_path / "trials", trial_id="page"))
    EventLog(trial.trial_log).append("finished")
    with pytest.raises(ConfigError, match=r"was shown a hidden request.*--with-cards"):
        share_trial(trial.root, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_folder_that_exists_is_not_written_over(trial, tmp_path):
    EventLog(trial.trial_log).append("finished")
    (tmp_path / "out").mkdir()
    with pytest.raises(ConfigError, match="already exists; pass a new folder"):
        share_trial(trial.root, tmp_path / "out")


def test_what_cannot_be_unpacked_is_not_shared(trial, tmp_path):
    EventLog(trial.trial_log).append("finished")
    (trial.llm / "bodies").mkdir(parents=True)
    (trial.llm / "bodies" / "000001.request.zst").write_bytes(b"no zstd at all")
    with pytest.raises(ConfigError, match=r"000001\.request\.zst: cannot be unpacked"):
        share_trial(trial.root, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["trials"]


@pytest.mark.parametrize("name", ["SOMEBODYS_API_KEY", "HF_TOKEN", "password"])
def test_a_key_that_is_not_the_drivers_is_found_too(trial, tmp_path, monkeypatch, name):
    EventLog(trial.trial_log).append("finished")
    monkeypatch.setenv(name, "hunter2-hunter2")
    trial.agent_log.write_text("+ export X=hunter2-hunter2\n")
    with pytest.raises(ConfigError, match=rf"agent\.log: contains the key in {name}; nothing was written"):
        share_trial(trial.root, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A finished trial with cards."""
    module, out = simulation(), tmp_path_factory.mktemp("written")
    module.write_sweep(module.simulate(np.random.default_rng(3), n_stacks=1, n_runs=1, n_items=20), out)
    return out / "static-1-stack-00-0"


@pytest.fixture
def finished(written, tmp_path, monkeypatch):
    """The same in a folder of its own, of an installation of its own."""
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    return Path(shutil.copytree(written, tmp_path / "trials" / "one"))


def verified(folder):
    (pooled,) = read_pool([folder]).trials
    return pooled


def test_with_its_cards_a_trial_is_verified_by_others_and_without_them_it_is_not(finished, tmp_path, monkeypatch):
    mark_as_own(finished)
    whole = share_trial(finished, tmp_path / "whole", with_cards=True)
    short = share_trial(finished, tmp_path / "short")
    assert verified(whole).mark is verified(short).mark is MarkState.OWN
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "elsewhere"))
    pooled = verified(whole)
    assert pooled.trial.is_verified and pooled.trial.is_counted and pooled.mark is MarkState.FOREIGN
    assert pooled.identity == verified(finished).identity
    assert verified(short).trial.marks == ("unverified: no cards (a recording made to be shared has none)",)


def test_what_was_edited_is_shared_without_a_mark(finished, tmp_path):
    mark_as_own(finished)
    log = finished / "events" / "trial.jsonl"
    log.write_text(log.read_text().replace('"t":1001.0', '"t":1000.0'))
    assert read_mark(TrialPaths(share_trial(finished, tmp_path / "out"))).state is MarkState.NONE


def everything(folder):
    """Bytes of every file, unpacked."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = path.read_bytes()
        yield path, zstandard.decompress(content) if path.suffix == ".zst" else content


def name_folders(root, text):
    """Writes a text wherever a trial without a sandbox would have folders of this machine."""
    log = EventLog(root / "events" / "processes.jsonl")
    log.append("process", command=[text], exe=text)
    log.close()
    (root / "agent.log").write_text(f"File {text}, line 3\n")
    (root / "llm" / "bodies").mkdir(parents=True)
    (root / "llm" / "bodies" / "000001.request.zst").write_bytes(zstandard.compress(text.encode()))
    audit = (root / "integrity.json").read_text().replace("nothing", f"nothing in {text}")
    (root / "integrity.json").write_text(audit)
    log = root / "events" / "trial.jsonl"
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    rows[-2]["digest"] = file_digest(root / "integrity.json")
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    card = root / "cards" / "final-test_private"
    (card / "card.json").chmod(0o644)
    loaded = load_card(card)
    store_card(card, replace(loaded, header=replace(loaded.header, lock={"worlds": text})))
    store_card(card, replace(load_card(card), header_digest=header_digests(card)[0]))
    config = read_config(root / "trial.json").model_copy(update={"agent": f"{text}/stack-00", "data": text})
    (root / "trial.json").write_bytes(msgspec.json.encode(config.model_dump(mode="json")))
    lock = json.loads((root / "lock.json").read_text())
    (root / "lock.json").write_text(json.dumps({**lock, "config_digest": config_digest(config), "seen": text}))


@pytest.mark.parametrize("place", ["the trial", "python", "the home"])
def test_no_folder_of_this_machine_is_in_what_is_shared(finished, tmp_path, place):
    folder = {"the trial": finished, "python": Path(sys.prefix), "the home": tmp_path / "home"}[place]
    name_folders(finished, f"{folder}/bin/x.py")
    assert verified(finished).trial.is_verified
    mark_as_own(finished)
    shared = share_trial(finished, tmp_path / "out", with_cards=True)
    found = [path for path, content in everything(shared) if str(folder).encode() in content]
    assert found == []
    assert sum(b"/bin/x.py" in content for _, content in everything(shared)) == 6, "as words, and nothing else is lost"
    assert verified(shared).trial.is_verified and verified(shared).mark is MarkState.OWN
    assert is_own_lock(json.loads((shared / "lock.json").read_text()))


def test_rollouts_that_name_a_folder_are_not_shared(finished, tmp_path, monkeypatch):
    monkeypatch.setattr(HostFolders, "occur_in", lambda self, line: b"an answer" in line)
    share_trial(finished, tmp_path / "short")
    with pytest.raises(ConfigError, match=r"cards/.*: its rollouts name a folder .*share the trial without cards"):
        share_trial(finished, tmp_path / "out", with_cards=True)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_played_trial_is_shared_without_folders_of_this_machine(task, home, tmp_path):
    root = play_new_trial(task, "base-copy", 0, tmp_path / "trials")
    shared = share_trial(root, tmp_path / "out", with_cards=True)
    for folder in (tmp_path, home, Path(sys.prefix), Path.home()):
        assert [path for path, content in everything(shared) if f"{folder}/".encode() in content] == []
    assert verified(shared).trial.is_verified
    assert (read_mark(TrialPaths(root)).state, read_mark(TrialPaths(shared)).state) == (MarkState.OWN, MarkState.OWN)
