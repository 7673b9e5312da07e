"""Small logs in the layout that other harnesses write, one builder for each format."""

import json

SAID = [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "<think>5?</think>half \ud835 4"}]


def write_json(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def write_rows(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def simulation(task_id, trial, reward, ended="user_stop", **changes):
    return {
        "id": f"s-{task_id}-{trial}",
        "task_id": task_id,
        "start_time": "2026-11-01T00:00:00",
        "end_time": "2026-11-01T00:00:09",
        "duration": 9.0,
        "termination_reason": ended,
        "trial": trial,
        "reward_info": {"reward": reward, "reward_breakdown": {"DB": reward, "COMMUNICATE": 1.0}, "info": {}},
        "messages": [
            {"role": "assistant", "content": "Hi! How can I help you today?"},
            {"role": "user", "content": "Cancel R-1."},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c", "name": "cancel", "arguments": {"id": "R-1"}, "requestor": "assistant"}],
                "usage": {"prompt_tokens": 10, "completion_tokens": 5},
            },
            {"role": "tool", "id": "c", "content": "cancelled", "requestor": "assistant"},
            {"role": "user", "tool_calls": [{"id": "u", "name": "look", "arguments": {}, "requestor": "user"}]},
            {"role": "tool", "id": "u", "content": "the user's phone", "requestor": "user"},
            {
                "role": "assistant",
                "content": SAID[1]["content"],
                "usage": {"prompt_tokens": 20, "completion_tokens": 6},
            },
        ],
    } | changes


def tau2_results(simulations, **changes):
    return {
        "timestamp": "2026-11-01",
        "info": {
            "git_commit": "abc",
            "num_trials": 1,
            "max_steps": 100,
            "max_errors": 10,
            "user_info": {"implementation": "user_simulator", "llm": "u"},
            "agent_info": {"implementation": "llm_agent", "llm": "m", "llm_args": {"temperature": 0.0}},
            "environment_info": {"domain_name": "airline", "policy": "Be kind."},
        },
        "tasks": [{"id": task_id, "user_scenario": {}} for task_id in dict.fromkeys(s["task_id"] for s in simulations)],
        "simulations": simulations,
    } | changes


def write_tau2(folder):
    return write_json(folder / "run.json", tau2_results([simulation("0", 0, 1.0), simulation("1", 0, 0.0)]))


TRAJECTORY = {
    "schema_version": "ATIF-v1.6",
    "session_id": "session",
    "agent": {"name": "terminus-2", "version": "2.0", "model_name": "m"},
    "steps": [
        {"step_id": 1, "source": "user", "message": "2+2?"},
        {
            "step_id": 2,
            "source": "agent",
            "message": "half \ud835",
            "reasoning_content": "5?",
            "tool_calls": [{"tool_call_id": "c", "function_name": "sum", "arguments": {"of": [2, 2]}}],
            "observation": {"results": [{"source_call_id": "c", "content": "4"}]},
            "metrics": {"prompt_tokens": 3, "completion_tokens": 2},
        },
        {"step_id": 3, "source": "agent", "message": "4", "metrics": {"prompt_tokens": 5, "completion_tokens": 1}},
    ],
}


def write_atif(folder):
    return write_json(folder / "trajectory.json", TRAJECTORY)


def harbor_trial(task, name, rewards, error=None, **changes):
    exception = None
    if error is not None:
        exception = {"exception_type": error, "exception_message": "why\nmore", "exception_traceback": "..."}
    return {
        "id": "00000000-0000-0000-0000-000000000000",
        "task_name": task,
        "trial_name": name,
        "trial_uri": f"file:///jobs/{name}",
        "task_id": {"path": f"tasks/{task}"},
        "source": "terminal-bench",
        "task_checksum": f"sum-of-{task}",
        "config": {"task": {"path": f"tasks/{task}"}},
        "agent_info": {"name": "terminus-2", "version": "2.0", "model_info": {"name": "m", "provider": "p"}},
        "agent_result": {"n_input_tokens": 10, "n_output_tokens": 4},
        "verifier_result": None if rewards is None else {"rewards": rewards},
        "exception_info": exception,
        "started_at": f"2026-11-01T00:00:0{name[-1]}Z",
        "finished_at": "2026-11-01T00:01:00Z",
        "agent_execution": {"started_at": "2026-11-01T00:00:10Z", "finished_at": "2026-11-01T00:00:30Z"},
    } | changes


def write_job(folder, trials, n_total=None):
    for trial in trials:
        place = folder / trial["trial_name"]
        write_json(place / "result.json", trial)
        write_json(place / "config.json", trial["config"])
        write_json(place / "agent" / "trajectory.json", TRAJECTORY)
    stats = {"n_completed_trials": len(trials), "n_errored_trials": 0, "evals": {}}
    job = {"id": "0", "started_at": "2026-11-01T00:00:00Z", "n_total_trials": n_total or len(trials), "stats": stats}
    return write_json(folder / "result.json", job)


def write_harbor(folder):
    return write_job(folder, [harbor_trial("a", "a__1", {"reward": 1.0}), harbor_trial("b", "b__2", {"reward": 0})])


def terminal_bench_trial(task, name, resolved, mode="unset", tests=None):
    return {
        "id": "00000000-0000-0000-0000-000000000000",
        "trial_name": name,
        "task_id": task,
        "instruction": f"half \ud835 {task}",
        "is_resolved": resolved,
        "failure_mode": mode,
        "parser_results": tests,
        "recording_path": None,
        "total_input_tokens": 10,
        "total_output_tokens": 4,
        "agent_started_at": "2026-11-01T00:00:00+00:00",
        "agent_ended_at": "2026-11-01T00:00:20+00:00",
    }


def terminal_bench_results(trials):
    return {"id": "0", "results": trials, "pass_at_k": {}, "n_resolved": 1, "resolved_ids": [], "unresolved_ids": []}


def write_terminal_bench(folder):
    trials = [
        terminal_bench_trial("a", "a.1-of-1", True, tests={"t": "passed"}),
        terminal_bench_trial("b", "b.1-of-1", False, tests={"t": "passed", "u": "failed"}),
    ]
    return write_json(folder / "results.json", terminal_bench_results(trials))


def swe_report(**lists):
    names = ("resolved", "unresolved", "error", "empty_patch")
    ids = {f"{name}_ids": lists.get(name, []) for name in names}
    counts = {f"{name}_instances": len(lists.get(name, [])) for name in names}
    submitted = sorted(instance for name in names for instance in lists.get(name, []))
    rest = {f"{name}_ids": ids for name, ids in lists.items() if name not in names and name != "failure_reasons"}
    reasons = {"failure_reasons": lists.get("failure_reasons", {})}
    return {"schema_version": 2, **counts, **ids, "submitted_ids": submitted, **rest, **reasons}


def write_swe(folder):
    return write_json(folder / "org__m.run1.json", swe_report(resolved=["a-1"], unresolved=["b-2"]))


def verifiers_row(example_id, reward, **changes):
    return {
        "example_id": example_id,
        "prompt": SAID[:1],
        "completion": SAID[1:],
        "answer": "4",
        "reward": reward,
        "error": None,
        "timing": {"total": 2.0},
        "is_completed": True,
        "is_truncated": False,
        "stop_condition": "max_turns_reached",
        "metrics": {"correct": reward, "length": 37.0},
        "token_usage": {"input_tokens": 9.0, "output_tokens": 3.0},
        "correct": reward,
    } | changes


VERIFIERS_METADATA = {
    "env_id": "sums",
    "model": "m",
    "num_examples": 2,
    "rollouts_per_example": 1,
    "sampling_args": {"temperature": 0.5, "max_tokens": 64},
    "avg_reward": 0.5,
}


def write_verifiers(folder):
    write_json(folder / "metadata.json", VERIFIERS_METADATA)
    return write_rows(folder / "results.jsonl", [verifiers_row(0, 1.0), verifiers_row(1, 0.0)])


def bfcl_answer(entry_id, result="[sum(a=2, b=2)]", **changes):
    return {"id": entry_id, "result": result, "input_token_count": 9, "output_token_count": 3, "latency": 2.0} | changes


def bfcl_failure(entry_id):
    return {
        "id": entry_id,
        "model_name": "m",
        "test_category": "simple_python",
        "valid": False,
        "error": ["Invalid value for parameter 'a'."],
        "error_type": "value_error:others",
        "prompt": {},
        "model_result_raw": "[sum(a=1)]",
    }


def write_bfcl(folder, answers=None, failures=None, n_right=1):
    answers = answers or [bfcl_answer("simple_python_0"), bfcl_answer("simple_python_1")]
    failures = [bfcl_failure("simple_python_1")] if failures is None else failures
    header = {"accuracy": n_right / len(answers), "correct_count": n_right, "total_count": len(answers)}
    write_rows(folder / "result" / "m" / "non_live" / "BFCL_v4_simple_python_result.json", answers)
    return write_rows(folder / "score" / "m" / "non_live" / "BFCL_v4_simple_python_score.json", [header, *failures])


def annotation(instruction, preference, **changes):
    return {
        "instruction": instruction,
        "output_1": "four",
        "generator_1": "baseline",
        "dataset": "helpful_base",
        "output_2": SAID[1]["content"],
        "generator_2": "m",
        "annotator": "weighted",
        "preference": preference,
        "raw_completion": None,
    } | changes


def write_annotations(folder):
    return write_json(folder / "annotations.json", [annotation("2+2?", 2.0), annotation("3+3?", 1.0)])


WRITERS = {
    "tau2-bench": write_tau2,
    "harbor": write_harbor,
    "terminal-bench": write_terminal_bench,
    "atif": write_atif,
    "swe-bench": write_swe,
    "verifiers": write_verifiers,
    "bfcl": write_bfcl,
    "alpaca-eval": write_annotations,
}
