"""What is checked about an agent's driver before anything starts, and what its gateway is told."""

import json
import time
from pathlib import Path

import pytest
import yaml

from agent2.arena.agent_phase import sandbox_spec
from agent2.arena.agents import load_agent
from agent2.arena.assignment import InsidePaths, assignment_json, assignment_text
from agent2.arena.driver import ARENA_VOLATILE, gateway_settings, llm_inside
from agent2.arena.plan import new_trial, replay_trial, resolve_trial
from agent2.arena.spec import Mode, TrialConfig, config_digest
from agent2.arena.trial_folder import EventLog, TrialPaths, read_config
from agent2.benchmarks import load_benchmark
from agent2.errors import ConfigError
from agent2.llm.gateway.answers import Masker
from agent2.llm.records import WireProtocol
from agent2.records import digest_of
from llm_builders import KEY, KEY_VARIABLE, MODEL, write_chat_agent, write_driver, write_prices
from trial_builders import write_agent, write_task

INSIDE = InsidePaths(workspace="/workspace", base_model="/model", agent="/agent", grading_port=8000, llm_port=8001)


@pytest.fixture
def task(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    return str(write_task(tmp_path))


@pytest.fixture
def chatty(tmp_path):
    return str(write_chat_agent(tmp_path / "chatty"))


@pytest.fixture
def driver(tmp_path):
    return f"driver={write_driver(tmp_path, 'http://127.0.0.1:9')}"


def test_a_driver_is_kept_resolved_and_without_its_key(task, chatty, driver, tmp_path):
    root = new_trial(task, chatty, 0, tmp_path / "trials", overrides=[driver, "mode=rl-only"])
    config = read_config(root / "trial.json")
    assert (config.driver, config.driver_record.model, config.mode) == ("scripted", MODEL, Mode.RL_ONLY)
    assert config.llm_key.startswith("sk-agent2-")
    assert KEY not in (root / "trial.json").read_text()


def test_an_agent_that_is_driven_by_an_llm_wants_a_driver(task, chatty, tmp_path):
    with pytest.raises(ConfigError, match="agent chatty is driven by an LLM; pass one, as in --driver"):
        new_trial(task, chatty, 0, tmp_path / "trials")
    assert not (tmp_path / "trials").exists()


def test_an_agent_without_an_llm_wants_none(task, driver):
    with pytest.raises(ConfigError, match="agent nop is driven by no LLM"):
        resolve_trial(task, "nop", 0, overrides=[driver])


def test_a_key_that_is_not_set_is_named(task, chatty, driver, monkeypatch):
    monkeypatch.delenv(KEY_VARIABLE)
    with pytest.raises(ConfigError, match=f"the variable {KEY_VARIABLE} is not set"):
        resolve_trial(task, chatty, 0, overrides=[driver])


def test_an_agent_that_would_get_the_real_key_is_refused(task, tmp_path, driver):
    nosy = write_chat_agent(tmp_path / "nosy", pass_environment=[KEY_VARIABLE])
    with pytest.raises(ConfigError, match=f"pass_environment lets the key in {KEY_VARIABLE} into the sandbox"):
        resolve_trial(task, str(nosy), 0, overrides=[driver])


def test_an_agent_that_would_get_the_real_key_under_another_name_is_refused(task, tmp_path, driver, monkeypatch):
    monkeypatch.setenv("ANOTHER_NAME", f"Bearer {KEY}")
    nosy = write_chat_agent(tmp_path / "nosy", pass_environment=["ANOTHER_NAME"])
    with pytest.raises(ConfigError, match="pass_environment lets the key in ANOTHER_NAME into the sandbox") as refused:
        resolve_trial(task, str(nosy), 0, overrides=[driver])
    assert KEY not in str(refused.value)


def test_a_driver_that_does_not_speak_the_agents_protocol_is_refused(task, tmp_path, driver):
    gemini = write_chat_agent(tmp_path / "other", llm="gemini")
    with pytest.raises(ConfigError, match="speaks openai-chat, the agent needs gemini"):
        resolve_trial(task, str(gemini), 0, overrides=[driver])


def test_a_budget_of_dollars_wants_a_price(task, chatty, driver, tmp_path):
    budget = "budget.llm_dollars=1"
    with pytest.raises(ConfigError, match=r"budget\.llm_dollars=1 cannot be held: the price of 'scripted-1'"):
        resolve_trial(task, chatty, 0, overrides=[driver, budget])
    priced = resolve_trial(task, chatty, 0, overrides=[driver, budget, f"prices={write_prices(tmp_path)}"])
    assert priced.prices == str(tmp_path / "prices.yaml")


def test_an_agent_system_that_is_not_installed_stops_before_anything_is_made(task, tmp_path, driver):
    install = {"npm": {"package": "nothing", "version": "1.2.3", "program": "nothing/bin"}}
    agent = write_chat_agent(tmp_path / "absent", install=install)
    with pytest.raises(
        ConfigError, match=r"version 1\.2\.3 is pinned, it is not installed; run: agent2 agents install"
    ):
        new_trial(task, str(agent), 0, tmp_path / "trials", overrides=[driver])
    assert not (tmp_path / "trials").exists()


def test_an_unknown_mode_is_refused(task):
    with pytest.raises(ConfigError, match="mode 'rl'"):
        resolve_trial(task, "nop", 0, overrides=["mode=rl"])


@pytest.mark.parametrize("mode", Mode)
def test_the_mode_is_told_in_words_and_for_programs(task, mode):
    config = resolve_trial(task, "nop", 0, overrides=[f"mode={mode}"])
    sampling = load_benchmark("arithmetic").sampling
    assignment = assignment_json(config, INSIDE, sampling)
    assert assignment["mode"] == mode.value
    assert assignment["rules"][0] in assignment_text(config, INSIDE, sampling)


def test_the_llm_budget_is_told_to_agents_with_a_driver_only(task, chatty, driver):
    sampling = load_benchmark("arithmetic").sampling
    driven = resolve_trial(task, chatty, 0, overrides=[driver, "budget.llm_tokens=50000"])
    assert "Your own LLM calls: 50,000 tokens" in assignment_text(driven, INSIDE, sampling)
    alone = resolve_trial(task, "nop", 0, overrides=["budget.llm_tokens=50000"])
    assert "LLM" not in assignment_text(alone, INSIDE, sampling)


def test_the_gateway_gets_the_key_and_the_agent_a_dummy(task, chatty, driver, tmp_path):
    config = resolve_trial(task, chatty, 0, overrides=[driver, "budget.llm_tokens=7"])
    agent = load_agent(chatty)
    settings = gateway_settings(agent, config, config.driver_record, TrialPaths(tmp_path), INSIDE)
    (endpoint,) = settings.endpoints
    assert endpoint.api_key.get_secret_value() == KEY
    assert KEY not in repr(settings)
    assert (settings.model, settings.dummy_key, settings.max_tokens) == (MODEL, config.llm_key, 7)
    inside = llm_inside(agent, config, INSIDE)
    assert (inside.url, inside.key, inside.model) == ("http://127.0.0.1:8001", config.llm_key, MODEL)


def test_what_an_agent_says_cannot_make_a_replay_think_for_ever():
    began = time.monotonic()
    Masker(ARENA_VOLATILE).masked("\\" * 200_000)
    assert time.monotonic() - began < 100


def test_a_trial_json_from_before_there_were_drivers_is_read_and_keeps_its_digest(task, tmp_path):
    root = new_trial(task, "nop", 0, tmp_path / "trials")
    record = json.loads((root / "trial.json").read_text())
    later = "driver_record llm_key prices mode replay reproduces data judge_draw quick after_crash"
    for name in later.split():
        del record[name]
    del record["budget"]["judgements"], record["task"]["budget"]["judgements"]
    del record["task"]["held_out"], record["task"]["assignment"]
    del record["scoring"]["engine"], record["scoring"]["engine_version"]
    (root / "trial.json").write_text(json.dumps(record))
    config = read_config(root / "trial.json")
    assert (config.mode, config.driver_record, config.replay) == (Mode.FREE, None, None)
    of_old = digest_of({key: value for key, value in record.items() if key not in {"trial_id", "containment"}})
    assert config_digest(config) == of_old
    assert config_digest(config.model_copy(update={"mode": Mode.RL_ONLY})) != of_old


def test_a_trial_without_recorded_traffic_cannot_be_replayed(task, tmp_path):
    root = new_trial(task, str(write_agent(tmp_path / "mine", "print(1)")), 0, tmp_path / "trials")
    with pytest.raises(ConfigError, match="contains no recorded LLM traffic to replay"):
        replay_trial(root, tmp_path / "again")
    with pytest.raises(ConfigError, match=r"no trial\.json there"):
        replay_trial(tmp_path, tmp_path / "again")


def test_a_recording_cannot_choose_to_be_replayed_without_a_sandbox(task, chatty, driver, tmp_path):
    root = new_trial(task, chatty, 0, tmp_path / "trials", sandbox="none", overrides=[driver])
    (root / "llm").mkdir()
    (root / "llm" / "exchanges.jsonl").touch()
    with pytest.raises(ConfigError, match=r"recorded without a sandbox.*add --set sandbox=bubblewrap"):
        replay_trial(root, tmp_path / "again")
    base = f"base_model={read_config(root / 'trial.json').base_model}"
    replay = replay_trial(root, tmp_path / "again", overrides=["sandbox=none", base])
    assert read_config(replay / "trial.json").sandbox == "none"


def test_a_recording_gives_conversations_and_no_permission(task, chatty, driver, tmp_path, monkeypatch):
    root = new_trial(task, chatty, 0, tmp_path / "trials", overrides=[driver])
    (root / "llm").mkdir()
    (root / "llm" / "exchanges.jsonl").touch()
    record = json.loads((root / "trial.json").read_text())
    base = record["base_model"]
    hostile = {
        "network": "open",
        "packages": {"registries": [{"name": "mine", "origin": "https://example.org", "prefix": "/"}]},
        "gpus": [0],
        "data": "/root",
        "scoring": {"gpu": 0},
        "memory_gib": 500.0,
        "disk_gib": 500.0,
        "processes": 100_000,
        "threads": 64,
        "evaluation_timeout_s": 1e9,
    }
    (root / "trial.json").write_text(json.dumps(record | hostile))
    spec = yaml.safe_load((root / "agent" / "agent.yaml").read_text())
    (root / "agent" / "agent.yaml").write_text(yaml.safe_dump(spec | {"pass_environment": ["SOME_TOKEN"]}))
    monkeypatch.setenv("SOME_TOKEN", "worth-something")

    with pytest.raises(ConfigError, match=r"names .* as its base model; .*--set base_model="):
        replay_trial(root, tmp_path / "again")
    again = replay_trial(root, tmp_path / "again", overrides=[f"base_model={base}"])
    config = read_config(again / "trial.json")
    fresh = read_config(new_trial(task, chatty, 0, tmp_path / "fresh", overrides=[driver]) / "trial.json")
    assert {name: getattr(config, name) for name in hostile} == {name: getattr(fresh, name) for name in hostile}
    paths, agent = TrialPaths(again), load_agent(str(again / "agent"))
    sandboxed = sandbox_spec(config, paths, agent, Path(base), INSIDE)
    assert "worth-something" not in str(sandboxed.environment)

    granted = replay_trial(root, tmp_path / "granted", overrides=[f"base_model={base}", "network=open", "disk_gib=500"])
    config = read_config(granted / "trial.json")
    assert (config.network.value, config.disk_gib, config.memory_gib) == ("open", 500.0, fresh.memory_gib)


def test_a_task_that_asks_for_a_billion_items_is_refused(task, chatty, driver, tmp_path):
    with pytest.raises(ConfigError, match="1000000"):
        new_trial(task, chatty, 0, tmp_path / "trials", overrides=[driver, "task.n_items.train=1000000000"])


ANSWER = (
    '{"submission_id":1,"timestamp":"2026-01-01T10:00:00.123456+00:00","score":%s,"elapsed_seconds":%s,'
    '"error":null} left: {"start_time": %s, "remaining": %s}'
)


def test_what_the_grading_api_says_of_time_is_no_difference_and_its_score_is(task, chatty, driver, tmp_path):
    source = resolve_trial(task, chatty, 0, overrides=[driver])
    EventLog(TrialPaths(tmp_path / "rec").trial_log).append("agent_started", workspace="/workspace")
    replay = {"replay": {"trial": str(tmp_path / "rec"), "strict": True}}
    config = TrialConfig.model_validate(source.model_dump(mode="json") | replay)
    settings = gateway_settings(load_agent(chatty), config, config.driver_record, TrialPaths(tmp_path), INSIDE)
    masker = Masker(settings.replay.volatile)

    def text(*numbers):
        body = {"messages": [{"role": "tool", "content": ANSWER % numbers}]}
        return masker.text(WireProtocol.OPENAI_CHAT, json.dumps(body).encode())

    assert text(41.5, 7.3, 1790000000.1, 55.2) == text(41.5, 17.0, 1790009999.9, 3.0)
    assert text(41.5, 7.3, 1790000000.1, 55.2) != text(42.5, 7.3, 1790000000.1, 55.2)
