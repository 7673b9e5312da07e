import pytest
from pydantic import ValidationError

from agent2.arena.sweep import (
    SweepSpec,
    all_trials,
    compare_agents,
    decide_sweep,
    final_scores,
    plan_trials,
    run_sweep,
    shared_gpus,
    sweep_rows,
)
from agent2.arena.sweep_records import Axis, pair_effects, summarise_agents
from agent2.arena.trial_folder import EventLog
from agent2.errors import ConfigError
from llm_builders import KEY, KEY_VARIABLE, scripted_llm, write_chat_agent, write_driver, write_prices
from trial_builders import SUBMIT_COPY, quiet, write_agent


def spec(task, agents, seeds=(0,), **changes):
    return SweepSpec(name="s", tasks=[task], agents=list(agents), seeds=list(seeds), **changes)


def test_a_plan_goes_seed_by_seed_and_names_trials_by_task_agent_and_seed(task):
    planned = plan_trials(spec(task, ["nop", "sft"], seeds=[0, 1]))
    assert [trial.trial_id for trial in planned] == [
        "arithmetic-nop-s0",
        "arithmetic-sft-s0",
        "arithmetic-nop-s1",
        "arithmetic-sft-s1",
    ]


def test_an_unknown_agent_stops_a_sweep_before_anything_runs(task, tmp_path):
    with pytest.raises(ConfigError, match="did you mean 'nop'"):
        run_sweep(spec(task, ["nopp"]), tmp_path / "out", quiet)
    assert not (tmp_path / "out").exists()


def shares(task, known=(0, 1, 2, 3), **changes):
    plan = spec(task, ["nop"], sandbox="none", **changes)
    return shared_gpus(plan, plan_trials(plan), known)


def test_trials_share_out_all_gpus_but_those_that_score(task):
    asks = {"resources": {"gpus": 1}}
    assert shares(task, **asks) == (0, 1, 2, 3)
    assert shares(task, set=["scoring.gpu=3"], **asks) == (0, 1, 2)
    assert shares(task, gpus=[2, 1], **asks) == (2, 1)
    assert shares(task) == shares(task, gpus=[2, 1]) == (), "none asks for any"
    assert shares(task, set=["gpus=[0]"], **asks) == (), "the file names them"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"set": ["scoring.gpu=1"], "gpus": [0, 1]}, "GPU 1 is under gpus and scores submissions"),
        ({"gpus": [0, 0]}, "those to share out are 0, 0; list enough of them under gpus, each once"),
        ({"gpus": []}, "those to share out are none"),
        ({"resources": {"gpus": 5}}, "asks for 5 GPUs, and those to share out are 0, 1, 2, 3"),
    ],
)
def test_gpus_that_cannot_be_shared_out_are_refused_before_anything_runs(task, changes, message):
    with pytest.raises(ConfigError, match=message):
        shares(task, **{"resources": {"gpus": 1}, **changes})


@pytest.mark.slow
def test_a_sweep_runs_compares_and_is_not_run_twice(task, tmp_path):
    copy = write_agent(tmp_path / "copycat", SUBMIT_COPY)
    plan = spec(task, ["nop", "base-copy", str(copy)], parallel=2)
    root, failures = run_sweep(plan, tmp_path / "out", quiet)
    assert failures == []
    rows = {row.agent: row for row in sweep_rows(plan, root)}
    assert rows["nop"].gain.value == 0.0 and rows["nop"].result == "no_submission"
    assert rows["base-copy"].gain.value == rows["copycat"].gain.value == 0.0
    comparisons = compare_agents(plan, root)  # nop counts with the base model's scores
    assert {frozenset({pair.agent_a, pair.agent_b}) for pair in comparisons} == {
        frozenset(pair) for pair in (("nop", "base-copy"), ("nop", "copycat"), ("base-copy", "copycat"))
    }
    assert all(pair.difference.change.value == 0.0 and pair.difference.change.n == 20 for pair in comparisons)
    logs = {path: path.stat().st_mtime_ns for path in (root / "logs").iterdir()}
    assert len(logs) == 3
    assert run_sweep(plan, tmp_path / "out", quiet) == (root, [])
    assert logs == {path: path.stat().st_mtime_ns for path in (root / "logs").iterdir()}
    report = root / "trials" / "arithmetic-nop-s0" / "report" / "report.html"
    report.unlink()  # as if killed after the last event
    assert run_sweep(plan, tmp_path / "out", quiet) == (root, [])
    assert report.exists()
    with pytest.raises(ConfigError, match="contains a sweep with another agents"):
        run_sweep(spec(task, ["nop"]), tmp_path / "out", quiet)
    (copy / "main.py").write_text("print('another agent')")
    with pytest.raises(ConfigError, match=r"copycat/main\.py was changed since this sweep began.*restore what it was"):
        run_sweep(plan, tmp_path / "out", quiet)


@pytest.mark.slow
def test_a_sweep_with_a_draw_of_judges_is_resumed_beside_a_folder_with_an_agents_name(task, tmp_path, monkeypatch):
    (tmp_path / "nop").mkdir()
    monkeypatch.chdir(tmp_path)
    plan = spec(task, ["nop"], judge_draw="drawn-before")
    root, failures = run_sweep(plan, tmp_path / "out", quiet)
    assert failures == [] and run_sweep(plan, tmp_path / "out", quiet) == (root, [])
    with pytest.raises(ConfigError, match="contains a sweep with another judge_draw"):
        run_sweep(spec(task, ["nop"], judge_draw="another"), tmp_path / "out", quiet)


@pytest.mark.slow
def test_a_trial_that_cannot_run_is_reported_and_does_not_stop_the_others(task, tmp_path):
    large = write_agent(tmp_path / "large", "print(1)")
    with (large / "weights").open("wb") as file:
        file.truncate(300 * 2**20)
    broken = spec(task, [str(large), "nop"])
    root, failures = run_sweep(broken, tmp_path / "out", quiet)
    states = {row.agent: row.state for row in sweep_rows(broken, root)}
    assert states == {"large": "not started", "nop": "finished"}
    (failure,) = failures
    assert failure.startswith("arithmetic-large-s0: ended with exit code 2")
    assert "contains 300 MiB" in failure


@pytest.mark.slow
def test_a_sweep_under_slurm_has_the_results_of_one_that_runs_here(task, tmp_path):
    pytest.importorskip("submitit")
    copy = write_agent(tmp_path / "copycat", SUBMIT_COPY)
    plan = spec(task, ["nop", str(copy)], parallel=2)
    rows = {}
    for executor, address in (("local", None), ("slurm", "local")):
        root, failures = run_sweep(plan, tmp_path / executor, quiet, executor, address)
        assert failures == []
        rows[executor] = [(row.trial, row.result, row.base, row.gain, row.private) for row in sweep_rows(plan, root)]
    assert rows["local"] == rows["slurm"]
    assert not list((tmp_path / "slurm" / "s" / "executor").glob("driver-*"))


def test_an_executor_that_is_not_there_stops_a_sweep_before_anything_runs(task, tmp_path):
    with pytest.raises(ConfigError, match="did you mean 'slurm'"):
        run_sweep(spec(task, ["nop"]), tmp_path / "out", quiet, "slurn")
    assert not (tmp_path / "out").exists()


def test_an_unusable_override_or_sandbox_stops_a_sweep_before_anything_runs(task, tmp_path):
    for changes, sentence in (
        ({"set": ["budget.wall=1"]}, "wall_clock_s"),
        ({"sandbox": "nine"}, "did you mean 'none'"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            run_sweep(spec(task, ["nop"], **changes), tmp_path / "out", quiet)
    assert not (tmp_path / "out").exists()


def test_a_trial_planned_twice_is_refused_before_anything_runs(task, tmp_path):
    twins = [str(write_agent(tmp_path / folder / "twin", "print(1)")) for folder in ("a", "b")]
    for plan in (spec(task, twins), spec(task, ["nop"], seeds=[0, 0]), spec(task, ["nop", "nop"])):
        with pytest.raises(ConfigError, match="is planned 2 times; list each task, agent and seed once"):
            run_sweep(plan, tmp_path / "out", quiet)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["..", ".", "a/b", ".hidden"])
def test_a_sweep_is_named_by_a_plain_folder_name(task, name):
    with pytest.raises(ValidationError, match="name"):
        SweepSpec(name=name, tasks=[task], agents=["nop"], seeds=[0])


def test_a_damaged_trial_is_a_row_that_says_so_and_hides_no_other(task, tmp_path):
    plan = spec(task, ["nop", "sft"])
    EventLog(tmp_path / "trials" / "arithmetic-nop-s0" / "events" / "trial.jsonl").append("finished")
    first, second = sweep_rows(plan, tmp_path)
    assert first.state.startswith("failed: ")
    assert "cannot be read" in first.state
    assert first.gain is None
    assert second.state == "not started"
    assert compare_agents(plan, tmp_path) == []


@pytest.mark.thorough
@pytest.mark.slow
def test_a_sweep_until_decided_adds_seeds_up_to_its_cap_and_compares_over_all_of_them(task, tmp_path):
    twin = write_agent(tmp_path / "twin", SUBMIT_COPY)
    plan = spec(task, ["base-copy", str(twin)], until_decided={"seeds_per_round": 2, "max_seeds": 2}, parallel=2)
    root, failures = run_sweep(plan, tmp_path / "out", quiet)
    assert failures == []
    rows = sweep_rows(plan, root)
    assert sorted((row.agent, row.seed) for row in rows) == [(a, s) for a in ("base-copy", "twin") for s in (0, 1)]
    decision = decide_sweep(plan, root)
    assert decision.needs == ()
    assert "0 of 1 pairs differ" in str(decision)
    (comparison,) = compare_agents(plan, root)
    assert comparison.n_seeds == 2


def test_a_sweep_that_does_not_ask_has_no_decision(task, tmp_path):
    assert decide_sweep(spec(task, ["nop"]), tmp_path) is None


def test_agents_with_an_llm_run_with_each_driver_and_the_others_once_in_every_mode(task, tmp_path):
    chatty = write_chat_agent(tmp_path / "chatty")
    drivers = [str(write_driver(tmp_path, "http://127.0.0.1:9", name)) for name in ("one/fast", "two")]
    planned = plan_trials(spec(task, [str(chatty), "nop"], drivers=drivers, modes=["free", "rl-only"]))
    assert [trial.stack for trial in planned] == [
        "chatty+one/fast",
        "chatty+one/fast (rl-only)",
        "chatty+two",
        "chatty+two (rl-only)",
        "nop",
        "nop (rl-only)",
    ]
    assert planned[1].trial_id == "arithmetic-chatty-one-fast-rl-only-s0"
    assert planned[1].overrides == ["mode=rl-only", f"driver={drivers[0]}"]
    assert len({trial.trial_id for trial in planned}) == 6


def test_an_agent_that_needs_a_driver_and_has_none_stops_a_sweep_before_anything_runs(task, tmp_path):
    chatty = write_chat_agent(tmp_path / "chatty")
    with pytest.raises(ConfigError, match="agent chatty is driven by an LLM; list its drivers under drivers:"):
        run_sweep(spec(task, [str(chatty)]), tmp_path / "out", quiet)
    assert not (tmp_path / "out").exists()


def test_a_driver_whose_key_is_not_set_stops_a_sweep_before_anything_runs(task, tmp_path, monkeypatch):
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    chatty, driver = write_chat_agent(tmp_path / "chatty"), write_driver(tmp_path, "http://127.0.0.1:9")
    with pytest.raises(ConfigError, match=f"the variable {KEY_VARIABLE} is not set"):
        run_sweep(spec(task, [str(chatty)], drivers=[str(driver)]), tmp_path / "out", quiet)
    assert not (tmp_path / "out").exists()


CALL_ONCE = """
url, key = os.environ["LLM_URL"], os.environ["LLM_KEY"]
body = {"model": "any", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 20, "tools": [
    {"type": "function", "function": {"name": "bash", "parameters": {"type": "object", "properties": {}}}}]}
print(httpx.post(url + "/v1/chat/completions", json=body, headers={"authorization": "Bearer " + key}, timeout=300).text)
"""


@pytest.mark.slow
@pytest.mark.thorough
def test_a_sweep_over_drivers_tells_what_a_driver_is_worth_and_what_it_cost(task, tmp_path, monkeypatch):
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    program = SUBMIT_COPY + CALL_ONCE
    chatty = write_chat_agent(tmp_path / "chatty", program)
    with scripted_llm([{"say": "Done.", "usage": {"input": 100, "output": 10}}]) as url:
        drivers = [str(write_driver(tmp_path, url, name)) for name in ("one", "two")]
        overrides = [f"prices={write_prices(tmp_path)}"]
        plan = spec(task, [str(chatty)], drivers=drivers, parallel=2, set=overrides)
        root, failures = run_sweep(plan, tmp_path / "out", quiet)
    assert failures == []
    rows = sweep_rows(plan, root)
    assert [(row.agent, row.scaffold, row.driver) for row in rows] == [
        ("chatty+one", "chatty", "one"),
        ("chatty+two", "chatty", "two"),
    ]
    assert [(row.llm_calls, row.llm_tokens) for row in rows] == [(1, 110), (1, 110)]
    assert rows[0].llm_dollars == pytest.approx((100 * 2 + 10 * 8) / 1e6)
    assert [row.is_autonomous for row in rows] == [False, False]  # the base model handed back completes nothing
    (pair,) = pair_effects(all_trials(plan, root), final_scores(plan, root))
    assert (pair.axis, pair.fixed, pair.difference.change.value) == (Axis.DRIVER, "chatty", 0.0)
    (summary, _) = summarise_agents(rows)
    assert summary.autonomy.value == 0.0
    assert summary.llm_tokens == 110
