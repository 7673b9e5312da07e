"""Details of lighteval: tables of both layouts, the results of the run beside them, and what is refused."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agent2.cards.imports.foreign_log import write_foreign
from agent2.cards.imports.formats import read_log
from agent2.cards.imports.source import LogChoice
from agent2.cards.reader import read_header, validate_card
from agent2.errors import ConfigError
from agent2.evaluation.rescoring import rescore
from agent2.records import Message, Split
from agent2.scorers import load_scorer

TIME = "2026-11-01T10-00-00.123456"
TASK = "sums|5"
RESULTS = {
    "config_general": {
        "lighteval_sha": "0123456789abcdef0123",
        "model_name": "org/m",
        "max_samples": 2,
        "model_config": {"generation_parameters": {"temperature": 0.6, "top_p": None, "max_new_tokens": 64}},
    },
    "results": {TASK: {"extractive_match": 0.5}},
    "versions": {TASK: 2},
}


def sample(number, reply, value, **changes):
    """As lighteval 0.13 writes it; changes: of the response."""
    response = {
        "input": f"Add.\n{number} + 1?",
        "input_tokens": [1, 2, 3],
        "text": [f"<think>hm</think>{reply}"],
        "output_tokens": [[4, 5]],
        "text_post_processed": [reply],
        "reasonings": None,
        "logprobs": [],
    } | changes
    doc = {"query": f"{number} + 1?", "choices": [str(number + 1)], "gold_index": 0, "id": str(number)}
    doc |= {"instruction": "Add.\n", "generation_size": 32}
    return {"doc": doc, "model_response": response, "metric": {"extractive_match": value, "words": 1.0}}


def write(folder, rows, results=RESULTS, task=TASK):
    details = folder / "out/details/org/m" / TIME
    details.mkdir(parents=True, exist_ok=True)
    path = details / f"details_{task}_{TIME}.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path)
    if results is not None:
        (folder / "out/results/org/m").mkdir(parents=True, exist_ok=True)
        (folder / f"out/results/org/m/results_{TIME}.json").write_text(json.dumps(results))
    return path


def test_a_table_of_details_becomes_a_card_with_the_same_number(tmp_path):
    path = write(tmp_path, [sample(0, "1", 1), sample(1, "3", 0)])
    log = read_log(path)
    summary = write_foreign(log, tmp_path / "card", Split.TEST_PUBLIC)
    assert summary.score.value == 0.5 and validate_card(tmp_path / "card") == []
    header = read_header(tmp_path / "card")
    assert (header.checkpoint_name, header.protocol.benchmark) == ("org/m", f"{TASK}-v2")
    assert header.protocol.scorer == "extractive_match" and header.protocol.environment[:14] == "lighteval 0123"
    assert (header.protocol.sampling.temperature, header.protocol.sampling.max_tokens) == (0.6, 64)
    first = log.rollouts[0].rollout
    assert first.answer == "1" and first.turns[0].thought.text == "hm"
    assert first.prompt == [Message("user", "Add.\n0 + 1?")]
    assert (first.usage.prompt_tokens, first.usage.completion_tokens) == (3, 2)
    assert log.rollouts[0].score.views == {"words": 1.0}


def test_the_folder_of_one_task_is_read_and_of_several_one_is_asked_for(tmp_path):
    path = write(tmp_path, [sample(0, "1", 1)])
    assert len(read_log(path.parent).rollouts) == 1
    write(tmp_path, [sample(0, "1", 1)], task="other|0")
    with pytest.raises(ConfigError, match=r"details of 2 tasks; give one of them: details_other\|0"):
        read_log(path.parent)


def test_answers_are_judged_again_by_the_logs_own_references(tmp_path):
    write_foreign(read_log(write(tmp_path, [sample(0, "1", 0), sample(1, "3", 1)])), tmp_path / "card", Split.DEV)
    rescore(tmp_path / "card", tmp_path / "again", scorer=load_scorer("exact"))
    assert validate_card(tmp_path / "again") == []


def test_options_are_compared_by_log_probabilities_and_keep_the_right_one(tmp_path):
    row = sample(0, "", 1.0, text=[], text_post_processed=None, logprobs=[-2.5, -0.5])
    row["doc"] |= {"choices": ["red", "blue"], "gold_index": [1]}
    (record,) = read_log(write(tmp_path, [row])).rollouts
    assert record.rollout.answer is None and "-2.5" in record.rollout.turns[0].action
    assert record.rollout.state == {"target": 1, "options": ["red", "blue"]}


def test_several_responses_are_one_rollout_since_their_metric_is_one_number(tmp_path):
    row = sample(0, "1", 0.5, text=["1", "2"], text_post_processed=["1", "2"])
    (record,) = read_log(write(tmp_path, [row])).rollouts
    assert record.score.value == 0.5 and record.score.reason == "extractive_match as logged, over 2 responses"
    assert record.rollout.state["responses"] == ["1", "2"] and record.rollout.answer == "1"


def test_samples_that_are_there_twice_are_attempts(tmp_path):
    log = read_log(write(tmp_path, [sample(0, "1", 1), sample(0, "2", 0)]))
    assert [record.rollout.attempt for record in log.rollouts] == [0, 1] and log.attempts == 2


def test_a_sample_without_a_number_is_missing_and_never_zero(tmp_path):
    log = read_log(write(tmp_path, [sample(0, "1", 1.0), sample(1, "3", None), sample(2, "4", float("nan"))]))
    assert [record.score.value for record in log.rollouts] == [1.0, None, None]
    assert log.rollouts[1].score.reason == "the log states no extractive_match"


def test_a_chat_is_read_message_by_message(tmp_path):
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "0 + 1?"}]
    (record,) = read_log(write(tmp_path, [sample(0, "1", 1, input=chat)])).rollouts
    assert record.rollout.prompt == [Message("system", "Be brief."), Message("user", "0 + 1?")]


FLAT = {
    "example": "0 + 1?",
    "instruction": "",
    "full_prompt": "Q: 0 + 1?",
    "predictions": ["1"],
    "gold": ["1"],
    "choices": [],
    "gold_index": [],
    "input_tokens": [7, 8],
    "cont_tokens": [[9]],
    "metrics": {"qem": 1.0},
}


@pytest.mark.parametrize("as_text", [False, True])
def test_the_flat_layout_of_earlier_versions_is_read(tmp_path, as_text):
    row = {name: str(value) if as_text and isinstance(value, list | dict) else value for name, value in FLAT.items()}
    (record,) = read_log(write(tmp_path, [row], results=None)).rollouts
    assert (record.score.value, record.rollout.answer) == (1.0, "1")
    assert record.rollout.prompt == [Message("user", "Q: 0 + 1?")] and record.rollout.state["target"] == ["1"]


def test_without_the_results_file_what_is_unknown_is_said_to_be(tmp_path):
    log = read_log(write(tmp_path, [sample(0, "1", 1)], results=None))
    assert (log.model, log.task) == ("org/m", f"{TASK}-vunknown") and log.harness == "lighteval of unknown version"
    assert log.settings == {"max_tokens": 32}


def test_another_metric_is_chosen_by_name(tmp_path):
    path = write(tmp_path, [sample(0, "1", 0)])
    assert read_log(path, LogChoice("words")).rollouts[0].score.value == 1.0
    with pytest.raises(ConfigError, match="unknown metric 'word'; did you mean 'words'"):
        read_log(path, LogChoice("word"))


def test_results_alone_and_other_tables_are_refused_with_what_to_give(tmp_path):
    write(tmp_path, [sample(0, "1", 1)])
    with pytest.raises(ConfigError, match=r"no samples; give details_\*\.parquet of the run \(--save-details\)"):
        read_log(tmp_path / f"out/results/org/m/results_{TIME}.json")
    table = tmp_path / "other.parquet"
    pq.write_table(pa.table({"x": [1]}), table)
    with pytest.raises(ConfigError, match="in no format that can be imported"):
        read_log(table)
    with pytest.raises(ConfigError, match="no table of lighteval's details"):
        read_log(table, format_name="lighteval")
    table.write_bytes(b"PAR1 and nothing else")
    with pytest.raises(ConfigError, match="not a readable Parquet file"):
        read_log(table)
