"""API-Bank and ACEBench on small files of our own in the official layouts."""

import json

import pytest

from agent2.benchmarks import load_benchmark
from agent2.benchmarks.api_calls import wrong_answers
from agent2.errors import ConfigError
from agent2.evaluation.engine import score_messages
from agent2.records import Split

SECRET = b"s" * 32
FUNCTION = {
    "name": "AddAlarm",
    "description": "Sets an alarm.",
    "input_parameters": {"token": {"type": "str"}, "time": {"type": "str"}},
    "output_parameters": {"status": {"type": "str"}},
}


def api_row(number):
    return {
        "file": "AddAlarm-level-1-1.jsonl",
        "id": 0,
        "instruction": f"Generate an API request.\nAPI descriptions:\n{json.dumps(FUNCTION)}",
        "input": f"User: Wake me at {number}, my token is x{number}.\nGenerate API Request:\n",
        "expected_output": f"API-Request: [AddAlarm(token='x{number}', time='2023-03-01 0{number}:00:00')]",
    }


def every(benchmark):
    return [item for split in Split for item in benchmark.items(split, benchmark.count(split, SECRET), SECRET)]


def values(benchmark, item, *answers):
    return [score_messages(benchmark, item, [answer]).value for answer in answers]


def api_bank(folder, rows):
    folder.mkdir(exist_ok=True)
    for level in (1, 2):
        own = [row | {"input": f"Level {level}. {row['input']}"} for row in rows]
        (folder / f"level-{level}-api.json").write_text(json.dumps(own))
    return load_benchmark("api_bank", folder)


def test_api_bank_compares_the_request_that_the_dialogue_asks_for(tmp_path):
    benchmark = api_bank(tmp_path, [api_row(k) for k in range(5)])
    items = every(benchmark)
    assert len(items) == 10 and {item.payload["task_type"] for item in items} == {"level-1-api", "level-2-api"}
    item = next(item for item in items if "Wake me at 3" in item.prompt)
    shown = benchmark.environment().reset(item, 0)
    assert [message.role for message in shown] == ["system", "user"] and "API descriptions" in shown[0].text
    assert item.payload["tools"][0]["function"]["parameters"]["required"] == ["token", "time"]
    right = "API-Request: [AddAlarm(time='2023-03-01 03:00:00', token='X3')]->success\nAI: Done."
    late = "[AddAlarm(token='x3', time='2023-03-01 04:00:00')]"
    assert values(benchmark, item, item.reference, right, late, "I have set it.", "") == [1, 1, 0, 0, 0]
    assert all(values(benchmark, item, *wrong_answers(item)) == [0.0] * len(wrong_answers(item)) for item in items)


def test_a_request_that_is_no_call_is_refused_with_its_place(tmp_path):
    rows = [api_row(0), api_row(1) | {"expected_output": "API-Request: none"}]
    with pytest.raises(ConfigError, match=r"level-1-api.json:2: field 'expected_calls' is missing or not list"):
        every(api_bank(tmp_path, rows))


def test_a_list_in_quotes_that_its_texts_have_too_is_read_as_published(tmp_path):
    quoted = "API-Request: [AddAlarm(token='x', time='[{'name': 'pulse', 'value': '80'}]')]"
    benchmark = api_bank(tmp_path, [api_row(k) | {"expected_output": quoted} for k in range(3)])
    item = every(benchmark)[0]
    plain, text, other = (
        f"[AddAlarm(token='x', time={value})]"
        for value in (
            "[{'name': 'pulse', 'value': 80}]",
            "\"[{'name': 'pulse', 'value': '80'}]\"",
            "[{'name': 'pulse', 'value': 81}]",
        )
    )
    assert values(benchmark, item, quoted, plain, text, other) == [1.0, 1.0, 1.0, 0.0]


def ace_row(number, category):
    function = {
        "name": "planner.plan",
        "description": "Plans.",
        "parameters": {"type": "object", "properties": {"days": {"type": "integer"}, "where": {"type": "object"}}},
    }
    return {"id": f"{category}_{number}", "question": f"user: Plan {number} days.\n", "function": [function]}


def acebench(folder):
    (folder / "possible_answer").mkdir(parents=True, exist_ok=True)
    truths = {
        "normal_atom_bool": lambda k: {"planner.plan": {"days": k, "where": {"city": "Bern", "seen": [True]}}},
        "normal_single_turn_parallel_function": lambda k: {
            "planner.plan_1": {"days": k},
            "planner.plan_2": {"days": k + 1},
        },
        "special_irrelevant": lambda k: "Due to the limitations of the function, I cannot solve this problem.",
    }
    for category, truth in truths.items():
        rows = [ace_row(k, category) for k in range(10)]
        answers = [{"id": row["id"], "ground_truth": truth(k)} for k, row in enumerate(rows)]
        for path, lines in ((folder, rows), (folder / "possible_answer", answers)):
            (path / f"data_{category}.json").write_text("".join(json.dumps(row) + "\n" for row in lines))
    return load_benchmark("acebench", folder)


def test_acebench_reads_questions_with_their_answers(tmp_path):
    benchmark = acebench(tmp_path)
    items = {item.payload["task_type"]: item for item in every(benchmark)}
    assert len(every(benchmark)) == 30 and len(items) == 3
    item = items["normal_single_turn_parallel_function"]
    days = [call["arguments"]["days"] for call in item.payload["expected_calls"]]
    both = [f"planner.plan(days={n})" for n in days]
    texts = (f"[{both[1]}, {both[0]}]", f"[{both[0]}]", f"[{', '.join([*both, both[0]])}]", "planner.plan")
    assert values(benchmark, item, *texts) == [1.0, 0.0, 0.0, 0.0]
    nested = items["normal_atom_bool"]
    (call,) = nested.payload["expected_calls"]
    texts = ("{'city': 'bern', 'seen': [True]}", "{'city': 'Bern', 'seen': [False]}", "{'city': 'Bern'}")
    answers = [f"[planner.plan(days={call['arguments']['days']}.0, where={text})]" for text in texts]
    assert values(benchmark, nested, *answers) == [1.0, 0.0, 0.0]
    irrelevant = items["special_irrelevant"]
    assert values(benchmark, irrelevant, "None fits.", "[planner.plan(days=1)]") == [1.0, 0.0]


def test_questions_without_their_answers_say_what_to_bring(tmp_path):
    benchmark = acebench(tmp_path)
    (tmp_path / "possible_answer" / "data_normal_atom_bool.json").unlink()
    with pytest.raises(
        ConfigError, match=r"possible_answer/data_normal_atom_bool.json: is missing; take possible_answer"
    ):
        every(benchmark)
