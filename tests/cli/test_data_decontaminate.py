import json

import pytest

from cli_builders import run_agent2
from encoder_builders import install_encoder

QUESTION = "Tom has two red apples and buys two more green apples at the market today so how many"


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "train.jsonl"
    path.write_text(json.dumps({"text": f"Q: {QUESTION}?"}) + "\n" + json.dumps({"text": "clean"}) + "\n")
    (tmp_path / "items.jsonl").write_text(json.dumps({"question": QUESTION}) + "\n")
    return path


def run(*arguments, home):
    return run_agent2("decontaminate", *arguments, home=home)


def test_shared_rows_are_listed_left_out_and_give_exit_code_one(data, tmp_path):
    out = tmp_path / "clean.jsonl"
    ended = run(data, "--against", tmp_path / "items.jsonl", "--out", out, home=tmp_path)
    assert ended.returncode == 1 and "train.jsonl:1" in ended.stdout and "1 of 1 item shares text" in ended.stdout
    assert out.read_text() == '{"text": "clean"}\n' and ended.stdout.strip().endswith(out.name)


def test_clean_data_against_a_benchmark_give_exit_code_zero_and_json(data, tmp_path):
    ended = run(data, "--against", "mini_math:dev", "--items", 20, "--json", home=tmp_path)
    assert ended.returncode == 0, ended.stderr
    record = json.loads(ended.stdout)
    assert (record["rows"], record["n_items"], record["is_complete"]) == ([], 20, True)


def test_several_named_sources_make_one_report(data, tmp_path):
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "judge.txt").write_text("Say which answer is better.")
    (tmp_path / "a=b.jsonl").write_text(json.dumps({"chosen": f"{QUESTION}: four", "rejected": "none"}) + "\n")
    words = ("prompts=prompts", "reward=train.jsonl", "a=b.jsonl", "--against", "items.jsonl")
    ended = run(*words, "--json", home=tmp_path)
    record = json.loads(ended.stdout)
    assert (ended.returncode, record["n_items"], record["n_items_met"]) == (1, 1, 1), ended.stderr
    counts = {source["source"]: source["n_items_met"] for source in record["sources"]}
    assert counts == {"prompts": 0, "reward": 1, "a=b.jsonl": 1}
    shown = run(*words, home=tmp_path).stdout
    assert "--- reward" in shown and "1 of 1 item in one of the sources or more" in shown
    twice = run("x=train.jsonl", "x=prompts", "--against", "items.jsonl", home=tmp_path)
    assert (twice.returncode, "'x' is named twice" in twice.stderr) == (2, True)
    cleaned = run(*words, "--out", "clean.jsonl", home=tmp_path)
    assert (cleaned.returncode, (tmp_path / "clean.jsonl").exists()) == (2, False)
    missing = run("x=nothing.jsonl", "--against", "items.jsonl", home=tmp_path)
    assert (missing.returncode, "nothing.jsonl" in missing.stderr) == (2, True)


SHORT = ["Who wrote the third letter?", "Which bridge was closed in May?", "What did the baker forget?"]
INSTRUCTION = "Answer the question below in one word, on a line of its own, and write nothing else after that line."


def write_own_benchmark(folder, template):
    folder.mkdir()
    (folder / "benchmark.yaml").write_text(
        f"name: mine\nversion: '1'\nfiles: {{dev: rows.jsonl}}\nprompt: {json.dumps(template)}\nanswer: answer\n"
        "scorer: exact\n"
    )
    rows = [{"question": question, "answer": f"word {number}"} for number, question in enumerate(SHORT)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_a_short_question_is_found_without_the_instruction_that_the_benchmark_puts_around_it(tmp_path):
    write_own_benchmark(tmp_path / "mine", INSTRUCTION + "\n\n{question}\n\nThink before you write the word down.")
    path = tmp_path / "train.jsonl"
    texts = [SHORT[1], "Which bridge is the oldest?", f"{INSTRUCTION} What is heavier than lead?"]
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    ended = run(path, "--against", f"{tmp_path / 'mine'}:dev", "--json", home=tmp_path)
    record = json.loads(ended.stdout)
    assert [(row["row"], row["how"]) for row in record["rows"]] == [("train.jsonl:1", "whole")], ended.stderr
    assert (ended.returncode, record["n_items"]) == (1, 3)


@pytest.mark.parametrize(
    ("against", "message"),
    [
        ("mini_mth:dev", "did you mean 'mini_math'"),
        ("mini_math:developer", "unknown split 'developer'"),
        ("mini_math:test_pivate", "did you mean 'test_private'?"),
        ("gone.jsonl", "no such file"),
        ("alfworld:test_public", "--against alfworld:test_public: ALFWorld: no official games in"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_two(data, tmp_path, against, message):
    ended = run(data, "--against", against, home=tmp_path)
    assert ended.returncode == 2 and message in ended.stderr and len(ended.stderr.splitlines()) == 1


def test_a_file_that_cannot_be_searched_is_not_passed_as_clean(tmp_path, data):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "a.jsonl").write_text('{"text": "clean"}\n')
    (tmp_path / "set" / "bad.parquet").write_bytes(b"PAR1 damaged")
    ended = run(tmp_path / "set", "--against", tmp_path / "items.jsonl", home=tmp_path)
    assert ended.returncode == 1 and "not searched in full" in ended.stdout


def test_embeddings_list_rows_that_say_an_item_in_another_order(data, tmp_path):
    words = QUESTION.split()
    data.write_text(json.dumps({"text": " ".join(reversed(words))}) + "\n")
    install_encoder(tmp_path / "agent2", QUESTION)
    ended = run(data, "--against", tmp_path / "items.jsonl", "--embeddings", home=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "suspects (meaning): 1" in ended.stdout and "a cosine above 0.850" in ended.stdout
    record = json.loads(
        run(data, "--against", tmp_path / "items.jsonl", "--embeddings", "--json", home=tmp_path).stdout
    )
    assert [row["how"] for row in record["suspects"]] == ["meaning"] and record["meaning"]["score"] == 0.85


def test_a_row_that_shares_text_is_not_named_again_for_its_meaning(data, tmp_path):
    install_encoder(tmp_path / "agent2", QUESTION)
    ended = run(data, "--against", tmp_path / "items.jsonl", "--embeddings", home=tmp_path)
    assert ended.returncode == 1 and "suspects" not in ended.stdout


def test_embeddings_without_the_encoder_are_one_line_with_the_command(data, tmp_path):
    for options, message in (
        (["--embeddings"], "agent2 models get minilm"),
        (["--unrelated", data], "--unrelated sets the threshold of --embeddings"),
    ):
        ended = run(data, "--against", tmp_path / "items.jsonl", *options, home=tmp_path)
        assert ended.returncode == 2 and message in ended.stderr and len(ended.stderr.splitlines()) == 1
