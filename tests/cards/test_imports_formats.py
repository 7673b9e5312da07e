import copy
import json

import pytest

from agent2.cards.imports.foreign_log import write_foreign
from agent2.cards.imports.formats import FORMATS, read_log
from agent2.cards.imports.source import LogChoice
from agent2.cards.reader import iter_rollouts, validate_card
from agent2.errors import Agent2Error, ConfigError, Fault
from agent2.records import RolloutStatus, Split
from foreign_log_builders import (
    TRAJECTORY,
    VERIFIERS_METADATA,
    WRITERS,
    annotation,
    bfcl_answer,
    harbor_trial,
    simulation,
    swe_report,
    tau2_results,
    terminal_bench_results,
    terminal_bench_trial,
    verifiers_row,
    write_bfcl,
    write_job,
    write_json,
    write_rows,
)


def values(log):
    return [record.score.value for record in log.rollouts]


def reasons(log):
    return [record.score.reason for record in log.rollouts]


@pytest.mark.parametrize("name", WRITERS)
def test_a_log_is_recognised_and_becomes_a_card(tmp_path, name):
    log = read_log(WRITERS[name](tmp_path / "log"))
    summary = write_foreign(log, tmp_path / "card", Split.DEV)
    assert validate_card(tmp_path / "card") == []
    if name == "atif":
        assert (summary.score, summary.n_missing) == (None, 1)
    else:
        assert (summary.score.value, summary.n_missing) == (0.5, 0)
    assert all("\ud835" not in turn.written for r in iter_rollouts(tmp_path / "card") for turn in r.rollout.turns)


@pytest.mark.parametrize("name", WRITERS)
def test_a_log_under_the_name_of_another_format_is_one_line(tmp_path, name):
    path = WRITERS[name](tmp_path / "log")
    for other in FORMATS.keys() - {name}:
        with pytest.raises(ConfigError) as refused:
            read_log(path, LogChoice(), other)
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", WRITERS)
def test_a_log_that_is_cut_off_is_one_line(tmp_path, name):
    path = WRITERS[name](tmp_path / "log")
    text = path.read_text()
    for share in (0.0, 0.3, 0.9):
        path.write_text(text[: int(len(text) * share)].rstrip())
        with pytest.raises(Agent2Error) as refused:
            read_log(path)
            pytest.fail(f"{name} cut to {share} was read")
        assert "\n" not in str(refused.value) and path.name in str(refused.value)


def paths_of(value, path=()):
    yield path
    for key, part in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from paths_of(part, (*path, key))


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("wrong", [None, "wrong", 7, [], {}, [None], {"wrong": 1}], ids=str)
def test_a_value_of_a_wrong_type_is_read_or_one_line(tmp_path, name, wrong):
    path = WRITERS[name](tmp_path / "log")
    documents = [json.loads(line) for line in path.read_text().splitlines()]
    for number, place in enumerate(place for k, d in enumerate(documents) for place in paths_of(d, (k,))):
        changed = copy.deepcopy(documents)
        parent = changed
        for key in place[:-1]:
            parent = parent[key]
        parent[place[-1]] = wrong
        write_rows(path, changed)
        try:
            write_foreign(read_log(path, LogChoice(), name), tmp_path / f"card-{number}", Split.DEV)
        except Agent2Error as refused:
            assert "\n" not in str(refused), place


def test_an_unknown_file_is_told_the_formats(tmp_path):
    with pytest.raises(ConfigError) as refused:
        read_log(write_json(tmp_path / "other.json", {"a": 1}))
    assert all(log_format.files in str(refused.value) for log_format in FORMATS.values())


def test_an_unknown_metric_lists_those_that_are_there(tmp_path):
    with pytest.raises(ConfigError, match="known: COMMUNICATE, DB, reward"):
        read_log(WRITERS["tau2-bench"](tmp_path), LogChoice("zzz"))
    assert values(read_log(WRITERS["tau2-bench"](tmp_path), LogChoice("COMMUNICATE"))) == [1, 1]


def test_a_simulation_that_tau2_bench_lost_is_missing_and_a_failed_one_is_zero(tmp_path):
    ended = ["user_stop", "max_steps", "too_many_errors", "infrastructure_error", "timeout", "user_error"]
    runs = [simulation(str(n), 0, float(n == 0), reason) for n, reason in enumerate(ended)]
    broken = {"reward": 0.0, "info": {"error": "KeyError: 'x'"}}
    runs += [simulation("6", 0, 0.0, reward_info=broken), simulation("7", 0, 0.0, reward_info=None)]
    log = read_log(write_json(tmp_path / "run.json", tau2_results(runs)))
    assert values(log) == [1, 0, 0, None, None, None, None, None]
    assert "infrastructure_error" in reasons(log)[3] and "KeyError" in reasons(log)[6]
    assert log.rollouts[1].rollout.status is RolloutStatus.TURN_CAP
    first = log.rollouts[0].rollout
    assert [message.role for message in first.prompt] == ["system"] and len(first.turns) == 3
    assert (first.usage.prompt_tokens, first.usage.completion_tokens) == (30, 11)
    assert not any("phone" in (turn.observation or "") for turn in first.turns)
    assert first.turns[-1].thought.text == "5?" and first.answer.endswith("4")


def test_simulations_in_a_folder_are_read_and_a_lost_file_is_noticed(tmp_path):
    runs = [simulation("0", 0, 1.0), simulation("1", 0, 0.0)]
    index = [{"id": run["id"], "task_id": run["task_id"], "trial": 0} for run in runs]
    write_json(tmp_path / "results.json", tau2_results(runs) | {"simulations": [], "simulation_index": index})
    for run in runs:
        write_json(tmp_path / "simulations" / f"{run['id']}.json", run)
    assert values(read_log(tmp_path)) == [1, 0]
    (tmp_path / "simulations" / "s-1-0.json").unlink()
    with pytest.raises(ConfigError, match=r"lacks 1 of the 2 simulations"):
        read_log(tmp_path)


def test_an_attempt_that_is_there_twice_is_refused_before_a_card_is_begun(tmp_path):
    path = write_json(tmp_path / "run.json", tau2_results([simulation("0", 0, 1.0), simulation("0", 0, 0.0)]))
    with pytest.raises(ConfigError, match=r"more than once \(0 attempt 0\)"):
        write_foreign(read_log(path), tmp_path / "card", Split.DEV)
    assert not (tmp_path / "card").exists()


def test_a_trial_of_harbor_without_a_valid_reward_is_missing(tmp_path):
    trials = [
        harbor_trial("a", "a__1", {"reward": 1.0}, "AgentTimeoutError"),
        harbor_trial("b", "b__2", {"reward": 0.0}, "ApiRateLimitError"),
        harbor_trial("c", "c__3", None, "VerifierTimeoutError"),
        harbor_trial("d", "d__4", {"reward": 0.0}),
        harbor_trial("e", "e__5", {"reward": 0.0}, "AgentTimeoutError", reward_valid=False),
    ]
    write_job(tmp_path / "job", trials, n_total=7)
    write_json(tmp_path / "job" / "f__6" / "config.json", {"task": {"path": "tasks/f"}})
    log = read_log(tmp_path / "job")
    assert values(log) == [1, None, None, 0, None, None]
    assert log.rollouts[0].rollout.status is RolloutStatus.TIME_CAP and log.rollouts[0].rollout.usage.seconds == 20
    assert "ApiRateLimitError: why" in reasons(log)[1] and log.rollouts[2].score.fault is Fault.JUDGE
    assert log.rollouts[-1].rollout.item_id == "f" and "cut off" in reasons(log)[-1]
    assert "the job is not complete: 6 of 7 trials" in log.assumed and log.model == "p/m"
    (turn, last) = log.rollouts[0].rollout.turns
    assert (turn.thought.text, turn.observation, last.action) == ("5?", "4", "4")
    assert values(read_log(tmp_path / "job" / "d__4" / "result.json")) == [0]


def test_a_job_of_two_models_is_read_one_at_a_time(tmp_path):
    other = {"name": "terminus-2", "version": "2.0", "model_info": {"name": "n", "provider": "p"}}
    write_job(tmp_path, [harbor_trial("a", "a__1", {"r": 1}), harbor_trial("a", "a__2", {"r": 0}, agent_info=other)])
    with pytest.raises(ConfigError, match=r"choose one with --filter: terminus-2/m@terminal-bench, terminus-2/n@"):
        read_log(tmp_path)
    assert values(read_log(tmp_path, LogChoice(None, "terminus-2/n@terminal-bench"))) == [0]


def test_a_trial_of_terminal_bench_that_the_harness_lost_is_missing(tmp_path):
    modes = ["unset", "agent_timeout", "context_length_exceeded", "test_timeout", "unknown_agent_error", "unset"]
    resolved = [True, False, False, None, False, None]
    trials = [terminal_bench_trial("a", f"a.{n}", r, m) for n, (r, m) in enumerate(zip(resolved, modes, strict=True))]
    path = write_json(tmp_path / "results.json", terminal_bench_results(trials))
    write_json(
        tmp_path / "run_metadata.json", {"agent_name": "t", "model_name": "m", "dataset_size": 1, "n_attempts": 9}
    )
    log = read_log(path)
    assert values(log) == [1, 0, 0, None, None, None] and log.attempts == 6
    assert any("6 of 9 trials" in line for line in log.assumed)
    write_json(path, terminal_bench_results([trials[0], trials[0]]))
    with pytest.raises(ConfigError, match="more than once"):
        read_log(path)


def test_a_trajectory_alone_has_no_score_and_copied_steps_are_left_out(tmp_path):
    steps = [{"step_id": 0, "source": "agent", "message": "old", "is_copied_context": True}, *TRAJECTORY["steps"]]
    (record,) = read_log(write_json(tmp_path / "t.json", TRAJECTORY | {"steps": steps})).rollouts
    assert record.score.value is None and "rescore" in record.score.reason
    assert [turn.action.partition("\n")[0] for turn in record.rollout.turns] == ["half \ufffd", "4"]
    assert (record.rollout.usage.prompt_tokens, record.rollout.answer) == (8, "4")


def test_an_empty_patch_is_zero_and_an_error_of_swe_bench_is_missing(tmp_path):
    report = swe_report(
        resolved=["a"],
        unresolved=["b", "c"],
        empty_patch=["d"],
        error=["e", "f"],
        incomplete=["g"],
        infra_failure=["c"],
        failure_reasons={"c": "out_of_memory"},
    )
    path = write_json(tmp_path / "org__m.run1.json", report)
    logs = tmp_path / "logs" / "run_evaluation" / "run1" / "org__m" / "f"
    logs.mkdir(parents=True)
    (logs / "run_instance.log").write_text(">>>>> Patch Apply Failed:\nerror: corrupt patch")
    (logs / "patch.diff").write_text("diff")
    log = read_log(path)
    by_id = {record.rollout.item_id: record.score.value for record in log.rollouts}
    assert by_id == {"a": 1, "b": 0, "c": None, "d": 0, "e": None, "f": 0, "g": None} and log.model == "org/m"
    assert {r.rollout.item_id: r.rollout.answer for r in log.rollouts}["f"] == "diff"
    for change in ({"resolved_instances": 2}, {"resolved_ids": ["b"]}):
        with pytest.raises(ConfigError, match="restore the report"):
            read_log(write_json(path, report | change))


def test_reports_of_single_instances_are_read_from_their_folder(tmp_path):
    folder = tmp_path / "run1" / "m"
    tests = {"FAIL_TO_PASS": {"success": ["t"], "failure": ["u"]}, "PASS_TO_PASS": {"success": [], "failure": []}}
    applied = {"patch_is_None": False, "patch_exists": True, "patch_successfully_applied": True}
    write_json(folder / "a" / "report.json", {"a": {**applied, "resolved": True}})
    write_json(folder / "b" / "report.json", {"b": {**applied, "resolved": False, "tests_status": tests}})
    write_json(folder / "c" / "report.json", {"c": {**applied, "resolved": False, "infra_failure": True}})
    (folder / "d").mkdir()
    (folder / "d" / "run_instance.log").write_text("Test timed out after 1800 seconds.")
    log = read_log(folder)
    assert values(log) == [1, 0, None, None] and log.rollouts[1].score.views["fail_to_pass"] == 0.5


def test_an_error_in_verifiers_is_missing_unless_the_model_caused_it(tmp_path):
    def error(name):
        return {"error": name, "error_chain_repr": f"{name}('x')", "error_chain_str": f"{name} -> x"}

    rows = [
        verifiers_row(0, 1.0),
        verifiers_row(1, 0.0, error=error("SandboxError")),
        verifiers_row(2, 0.0, error=error("ToolParseError")),
        verifiers_row(3, 0.0, error="ModelError('overloaded')"),
        verifiers_row(4, float("nan")),
    ]
    write_json(tmp_path / "metadata.json", VERIFIERS_METADATA | {"num_examples": 9})
    log = read_log(write_rows(tmp_path / "results.jsonl", rows))
    assert values(log) == [1, None, 0, None, None] and log.rollouts[0].score.views["length"] == 37
    assert "the run is not complete: 5 of 9 rollouts" in log.assumed and log.settings["temperature"] == 0.5
    assert log.rollouts[0].rollout.turns[0].thought.text == "5?"
    with pytest.raises(ConfigError, match=r"2 rollouts of example 0, metadata.json plans 1"):
        read_log(write_rows(tmp_path / "results.jsonl", [rows[0], rows[0]]))


def test_rewards_beyond_1_are_refused_with_the_metrics_to_choose_from(tmp_path):
    path = write_rows(tmp_path / "results.jsonl", [verifiers_row(0, 3.0, metrics={"correct": 1.0})])
    with pytest.raises(ConfigError, match="choose another --metric: correct"):
        write_foreign(read_log(path), tmp_path / "card", Split.DEV)
    assert values(read_log(path, LogChoice("correct"))) == [1]


def test_episodes_of_verifiers_are_read(tmp_path):
    nodes = [
        {"message": {"role": "user", "content": "2+2?"}},
        {"parent": 0, "message": {"role": "assistant", "content": "4"}, "sampled": True},
    ]
    trace = {"nodes": nodes, "rewards": {"right": {"score": 1.0, "weight": 0.5}}, "metrics": {"n": 2.0}, "ok": True}
    lost = {**trace, "ok": False, "errors": [{"type": "SandboxError", "message": "gone"}]}
    task = {"type": "Sum", "data": {}, "key": "sum-1"}
    rows = [{"id": "e", "task": task, "traces": [one], "ok": one["ok"], "env": {"id": "sums"}} for one in (trace, lost)]
    log = read_log(write_rows(tmp_path / "traces.jsonl", rows))
    assert values(log) == [0.5, None] and log.attempts == 2 and "SandboxError: gone" in reasons(log)[1]
    assert log.rollouts[0].rollout.answer == "4" and log.rollouts[0].score.views == {"right": 1.0, "n": 2.0}


def test_entries_of_bfcl_that_did_not_fail_are_right_and_lost_ones_are_missing(tmp_path):
    answers = [bfcl_answer("simple_python_0"), bfcl_answer("simple_python_1"), bfcl_answer("simple_python_2")]
    answers[2] |= {"result": "Error during inference: timeout", "traceback": "..."}
    path = write_bfcl(tmp_path, answers, n_right=2)
    log = read_log(path)
    assert values(log) == [1, 0, None] and "value_error:others: Invalid value" in reasons(log)[1]
    assert (log.task, log.model) == ("bfcl_simple_python-v4", "m")
    result = tmp_path / "result" / "m" / "non_live" / "BFCL_v4_simple_python_result.json"
    assert values(read_log(result)) == [1, 0, None]
    write_bfcl(tmp_path, answers, n_right=3)
    with pytest.raises(ConfigError, match="different runs"):
        read_log(path)
    path.unlink()
    assert values(read_log(result)) == [None, None, None]
    write_bfcl(tmp_path)
    result.unlink()
    with pytest.raises(ConfigError, match=r"put BFCL_v4_simple_python_result.json beside it"):
        read_log(path)


def test_preferences_of_alpaca_eval_are_the_win_rate(tmp_path):
    preferences = [2.0, 1.25, 1.5, 0, None]
    rows = [annotation(f"q{n}", preference) for n, preference in enumerate(preferences)]
    log = read_log(write_json(tmp_path / "annotations.json", rows))
    assert values(log) == [1, 0.25, 0.5, 0.5, None] and log.model == "m"
    for other in (annotation("q9", 1.0, generator_2="n"), annotation("q0", 1.0)):
        with pytest.raises(ConfigError, match=r"keep those of one|remove the copies"):
            read_log(write_json(tmp_path / "annotations.json", [*rows, other]))
