"""Solved examples before every item: from train, the same for all, and part of what makes two scores comparable."""

import pytest

from agent2.benchmarks import load_benchmark
from agent2.errors import ConfigError
from agent2.evaluation.engine import score_messages
from agent2.records import Split
from plugin_builders import GSM_YAML, worked, write_gsm, write_rows

FEW_SHOT = GSM_YAML + "few_shot: 4\n"


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))


def load(folder, text=FEW_SHOT):
    return load_benchmark(str(write_gsm(folder, text)))


def members(benchmark, split):
    return benchmark.items(split, benchmark.count(split, None), None)


def test_examples_stand_before_every_item_with_the_worked_answer(tmp_path):
    benchmark = load(tmp_path)
    (first, second) = benchmark.items(Split.DEV, 2, None)
    shown = benchmark.environment().reset(first, 0)
    assert [message.role for message in shown] == ["user", "assistant"] * 4 + ["user"]
    assert shown[-1].text == first.prompt and all("#### " in message.text for message in shown[1::2])
    assert shown[0].text.endswith("End with a line #### and the number.")
    assert benchmark.environment().reset(second, 0)[:8] == shown[:8]
    assert score_messages(benchmark, first, [first.reference]).value == 1.0


def test_examples_are_train_items_and_no_longer_among_them(tmp_path):
    plain, benchmark = load(tmp_path / "plain", GSM_YAML), load(tmp_path / "few")
    shown = {
        message.text for message in benchmark.environment().reset(benchmark.items(Split.DEV, 1, None)[0], 0)[:-1:2]
    }
    prompts = {item.prompt for item in members(plain, Split.TRAIN)}
    assert len(shown) == 4 and shown <= prompts
    assert {item.prompt for item in members(benchmark, Split.TRAIN)} == prompts - shown
    assert [item.prompt for item in members(benchmark, Split.DEV)] == [i.prompt for i in members(plain, Split.DEV)]


def test_other_examples_are_another_version_and_none_keep_the_old_one(tmp_path):
    versions = [load(tmp_path / str(n), GSM_YAML + f"few_shot: {n}\n").version for n in (1, 2)]
    plain = load(tmp_path / "plain", GSM_YAML)
    assert len({*versions, plain.version}) == 3
    digests = [load(tmp_path / str(n), GSM_YAML + f"few_shot: {n}\n").prompt_digest for n in (1, 2)]
    assert len({*digests, plain.prompt_digest}) == 3


def test_a_sealed_file_brings_its_examples_and_needs_no_data(tmp_path):
    benchmark = load(tmp_path / "own")
    (item,) = benchmark.items(Split.DEV, 1, None)
    sealed = tmp_path / "sealed.yaml"
    sealed.write_text(benchmark.sealed(lambda location: location.name))
    elsewhere = load_benchmark(str(sealed))
    assert elsewhere.environment().reset(item, 0) == benchmark.environment().reset(item, 0)
    assert elsewhere.version == benchmark.version


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GSM_YAML + "few_shot: 400\n", "benchmark.yaml:8: 400 examples are asked for, train has"),
        (GSM_YAML + "few_shot: 0\n", "greater than or equal to 1"),
        (
            GSM_YAML.replace("train: train.jsonl, ", "") + "few_shot: 2\n",
            "examples come from 'train', and no file holds",
        ),
        (
            FEW_SHOT + "environment: ./world.py:World\n",
            "'few_shot' is for questions, and the world is './world.py:World'",
        ),
    ],
)
def test_examples_that_do_not_exist_are_refused(tmp_path, text, message):
    with pytest.raises(ConfigError) as refused:
        load(tmp_path, text)
    assert message in str(refused.value) and "\n" not in str(refused.value)


def test_examples_of_a_divided_file_are_never_items_that_are_asked(tmp_path):
    write_rows(tmp_path / "rows.jsonl", [worked(k) for k in range(120)])
    text = FEW_SHOT.replace("{train: train.jsonl, test: test.jsonl}", "{all: rows.jsonl}")
    (tmp_path / "benchmark.yaml").write_text(text)
    benchmark = load_benchmark(str(tmp_path))
    examples = {message.text for message in benchmark.environment().reset(members(benchmark, Split.DEV)[0], 0)[:-1:2]}
    secret = b"s" * 32
    asked = [item for split in Split for item in benchmark.items(split, benchmark.count(split, secret), secret)]
    assert len(asked) == 116 and not examples & {item.prompt for item in asked}


CHAT_ROWS = [
    {"messages": [{"role": "user", "content": f"{k}?"}, {"role": "assistant", "content": f"a{k}"}]} for k in range(9)
]
CHOICE_ROWS = [{"question": f"{k}?", "choices": [f"x{k}", f"y{k}"], "answer": "AB"[k % 2]} for k in range(40)]


@pytest.mark.parametrize(
    ("keys", "rows"),
    [
        ("chat: messages\nsystem: Be kind.\nscorer: exact\n", CHAT_ROWS),
        (
            'prompt: "{question}"\noptions: choices\nanswer: answer\nfew_shot: 2\n'
            "environment: {name: likelihood, by: bytes}\nscorer: likelihood\n",
            CHOICE_ROWS,
        ),
    ],
)
def test_a_sealed_chat_and_a_sealed_comparison_are_played_as_before(tmp_path, keys, rows):
    write_rows(tmp_path / "rows.jsonl", rows)
    (tmp_path / "benchmark.yaml").write_text(f'name: own\nversion: "1"\nfiles: {{all: rows.jsonl}}\n{keys}')
    benchmark = load_benchmark(str(tmp_path))
    (item,) = benchmark.items(Split.TRAIN, 1, None)
    (tmp_path / "sealed.yaml").write_text(benchmark.sealed(lambda location: location.name))
    worlds = [each.environment() for each in (benchmark, load_benchmark(str(tmp_path / "sealed.yaml")))]
    assert worlds[0].reset(item, 0) == worlds[1].reset(item, 0)
    if hasattr(worlds[0], "offered_answers"):
        assert worlds[0].offered_answers() == worlds[1].offered_answers()
    assert load_benchmark(str(tmp_path / "sealed.yaml")).version == benchmark.version
