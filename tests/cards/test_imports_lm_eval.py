import json

import pytest

from agent2.cards.imports.foreign_log import write_foreign
from agent2.cards.imports.formats import read_log
from agent2.cards.imports.source import LogChoice
from agent2.cards.reader import iter_rollouts, read_header, validate_card
from agent2.errors import ConfigError, Fault
from agent2.evaluation.rescoring import rescore
from agent2.records import Split
from agent2.scorers import load_scorer


def read_lm_eval(path, metric=None, filter_name=None):
    return read_log(path, LogChoice(metric, filter_name), "lm-eval")


TIME = "2026-11-21T01-23-24.206080"


def row(doc_id, text, value, filter_name="strict-match", **changes):
    """As lm-eval 0.4.13 writes it."""
    return {
        "doc_id": doc_id,
        "doc": {"q": "2+2"},
        "target": "4",
        "arguments": {
            "gen_args_0": {"arg_0": "2+2 =", "arg_1": {"until": ["\n"], "do_sample": False, "max_gen_toks": 8}}
        },
        "resps": [[text]],
        "filtered_resps": [text],
        "filter": filter_name,
        "metrics": ["exact_match"],
        "doc_hash": f"hash-{doc_id}",
        "exact_match": value,
    } | changes


RESULTS = {
    "results": {"sums": {"exact_match,strict-match": 0.5}},
    "configs": {"sums": {"num_fewshot": 5, "generation_kwargs": {"until": ["\n"]}}},
    "versions": {"sums": 3.0},
    "n-shot": {"sums": 5},
    "config": {"model": "hf", "model_args": "pretrained=x", "random_seed": 0},
    "model_name": "x",
    "lm_eval_version": "0.4.13",
}


def write(tmp_path, rows, results=RESULTS):
    path = tmp_path / f"samples_sums_{TIME}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    if results is not None:
        (tmp_path / f"results_{TIME}.json").write_text(json.dumps(results))
    return path


def test_a_samples_file_becomes_a_card_with_the_same_number(tmp_path):
    rows = [row(0, "4", 1.0), row(1, "5", 0.0)]
    rows += [row(0, "4", 1.0, "flexible-extract"), row(1, "5", 1.0, "flexible-extract")]
    log = read_lm_eval(write(tmp_path, rows))
    summary = write_foreign(log, tmp_path / "card", Split.TEST_PUBLIC)
    assert summary.score.value == 0.5 and summary.n_items == 2
    assert validate_card(tmp_path / "card") == []
    header = read_header(tmp_path / "card")
    assert header.protocol.benchmark == "sums-v3.0" and header.protocol.scorer == "exact_match@strict-match"
    assert header.protocol.sampling.temperature == 0.0 and header.protocol.sampling.max_tokens == 8
    assert header.checkpoint_name == "x" and header.lock["n_shot"] == 5
    second = list(iter_rollouts(tmp_path / "card"))[1]
    assert second.score.views == {"exact_match@flexible-extract": 1.0}
    assert [
        r.score.value for r in read_lm_eval(tmp_path / f"samples_sums_{TIME}.jsonl", None, "flexible-extract").rollouts
    ] == [1, 1]


def test_responses_that_lm_eval_never_scored_are_missing(tmp_path):
    log = read_lm_eval(write(tmp_path, [row(0, "4", 1.0, resps=[["4", "5", "6"]])]))
    assert [record.score.value for record in log.rollouts] == [1.0, None, None]
    assert log.rollouts[1].score.fault is Fault.JUDGE and "only the first" in log.rollouts[1].score.reason
    assert [record.rollout.turns[0].action for record in log.rollouts] == ["4", "5", "6"]
    assert log.attempts == 3


def counted(n_effective, n_original=100):
    return RESULTS | {"n-samples": {"sums": {"original": n_original, "effective": n_effective}}}


def test_items_that_a_stopped_run_did_not_log_are_missing_with_the_reason(tmp_path):
    path = write(tmp_path, [row(0, "4", 1.0), row(2, "5", 0.0)], counted(4))
    log = read_lm_eval(path)
    missing = {record.rollout.item_id: record.score.reason for record in log.rollouts if record.score.value is None}
    reason = "the samples file has 2 of the 4 items that the results file counts"
    assert missing == {"sums-1": reason, "sums-3": reason}
    assert any(reason in line for line in log.assumed)
    summary = write_foreign(log, tmp_path / "card", Split.TEST_PUBLIC)
    assert (summary.score.n, summary.score.n_missing) == (2, 2) and validate_card(tmp_path / "card") == []


def test_items_beyond_a_limit_that_the_user_set_are_not_missing(tmp_path):
    log = read_lm_eval(write(tmp_path, [row(0, "4", 1.0), row(1, "5", 0.0)], counted(2)))
    assert [record.score.value for record in log.rollouts] == [1.0, 0.0]


def test_chosen_items_that_were_not_logged_are_counted_without_a_number(tmp_path):
    log = read_lm_eval(write(tmp_path, [row(7, "4", 1.0), row(90, "5", 0.0)], counted(3)))
    assert [record.rollout.item_id for record in log.rollouts] == ["sums-7", "sums-90", "sums-unlogged-0"]


@pytest.mark.parametrize(("ids", "n_missing"), [((7, 90), 0), ((0, 1), 2)])
def test_an_old_count_is_believed_only_of_the_first_items_since_others_may_have_been_chosen(tmp_path, ids, n_missing):
    results = counted(4) | {"lm_eval_version": "0.4.9.1"}
    log = read_lm_eval(write(tmp_path, [row(doc_id, "4", 1.0) for doc_id in ids], results))
    assert sum(record.score.value is None for record in log.rollouts) == n_missing


def test_more_items_than_the_run_counts_are_refused(tmp_path):
    rows = [row(number, "4", 1.0) for number in range(3)]
    with pytest.raises(ConfigError, match=r"has 3 items, and the results file beside it counts 2.*the same run"):
        read_lm_eval(write(tmp_path, rows, counted(2)))


def test_likelihoods_of_choices_are_kept_as_one_rollout(tmp_path):
    choice = row(0, "", 1.0, resps=[[[-1.5, False]], [[-2.5, True]]], filtered_resps=[[-1.5, False], [-2.5, True]])
    log = read_lm_eval(write(tmp_path, [choice]))
    assert len(log.rollouts) == 1 and "-1.5" in log.rollouts[0].rollout.turns[0].action
    assert log.rollouts[0].rollout.answer is None


def test_without_the_results_file_what_is_unknown_is_said_to_be(tmp_path):
    log = read_lm_eval(write(tmp_path, [row(0, "4", 1.0)], results=None))
    assert log.harness == "lm-eval of unknown version" and log.task == "sums-vunknown" and log.model == "not stated"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"metric": "acc"}, "unknown metric 'acc'"),
        ({"filter_name": "strict"}, "did you mean 'strict-match'"),
    ],
)
def test_an_unknown_metric_or_filter_is_named(tmp_path, change, message):
    with pytest.raises(ConfigError, match=message):
        read_lm_eval(write(tmp_path, [row(0, "4", 1.0)]), **change)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ('{"doc_id": 0}\n', ":1: is no line of lm-eval"),
        ('{"doc_id": 0, "resps": []}\n{', ":2: is not JSON"),
    ],
)
def test_a_file_that_is_no_log_is_refused_with_its_line(tmp_path, text, message):
    path = tmp_path / "samples.jsonl"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_lm_eval(path)


def test_line_separators_inside_an_answer_do_not_end_its_line(tmp_path):
    text = "a\u2028b\u0085c\u2029d\x0be\x0cf\x1cg"
    path = write(tmp_path, [row(0, text, 1.0), row(1, "5", 0.0)])
    rows = [json.dumps(row(0, text, 1.0), ensure_ascii=False), json.dumps(row(1, "5", 0.0))]
    path.write_text("\r\n".join(rows) + "\r\n\r\n", encoding="utf-8", newline="")
    assert [record.rollout.turns[0].action for record in read_lm_eval(path).rollouts] == [text, "5"]


def test_a_score_that_is_nan_is_missing_and_the_others_stay(tmp_path):
    rows = [row(0, "4", float("nan"), acc=float("inf"), metrics=["exact_match", "acc"]), row(1, "4", 1.0)]
    log = read_lm_eval(write(tmp_path, rows))
    summary = write_foreign(log, tmp_path / "card", Split.DEV)
    assert (summary.score.value, summary.n_missing) == (1.0, 1)
    score = log.rollouts[0].score
    assert score.fault is Fault.JUDGE and score.reason == "exact_match is nan, not a number from 0 to 1"
    assert score.views == {"acc@strict-match": None}


CHAT = [{"role": "system", "content": "be brief"}, {"role": "user", "content": [{"type": "text", "text": "2+2?"}]}]


@pytest.mark.parametrize(
    ("logged", "prompt"),
    [
        ([json.dumps(CHAT)], [("system", "be brief"), ("user", "2+2?")]),
        (json.dumps(CHAT), [("system", "be brief"), ("user", "2+2?")]),
        (CHAT, [("system", "be brief"), ("user", "2+2?")]),
        ("[INST] 2+2? [/INST]", [("user", "[INST] 2+2? [/INST]")]),
        ('["role"]', [("user", '["role"]')]),
        (["2+2 ="], [("user", "2+2 =")]),
    ],
)
def test_a_chat_prompt_is_read_as_its_messages(tmp_path, logged, prompt):
    log = read_lm_eval(write(tmp_path, [row(0, "4", 1.0, arguments={"gen_args_0": {"arg_0": logged, "arg_1": {}}})]))
    assert [(message.role, message.content) for message in log.rollouts[0].rollout.prompt] == prompt


def test_a_thought_is_told_apart_and_the_stored_score_stays(tmp_path):
    rows = [row(0, "<think>5?</think>4", 0.0), row(1, "<think>4", 1.0), row(2, "4", 1.0)]
    records = read_lm_eval(write(tmp_path, rows)).rollouts
    assert [record.rollout.turns[0].action for record in records] == ["4", "", "4"]
    assert [record.rollout.answer for record in records] == ["4", "", "4"]
    assert records[0].rollout.turns[0].thought.text == "5?"
    assert [record.rollout.turns[0].is_thought_cut_off for record in records] == [False, True, False]
    assert [record.score.value for record in records] == [0.0, 1.0, 1.0]


def test_several_lines_of_an_item_under_one_filter_are_its_attempts(tmp_path):
    log = read_lm_eval(write(tmp_path, [row(0, "4", 1.0), row(1, "4", 1.0), row(0, "5", 0.0), row(1, "5", 0.0)]))
    assert log.attempts == 2
    assert [(record.rollout.attempt, record.score.value) for record in log.rollouts] == [(0, 1.0), (1, 0.0)] * 2
    assert write_foreign(log, tmp_path / "card", Split.TEST_PUBLIC).score.value == 0.5


def test_an_item_with_more_lines_under_one_filter_than_under_another_is_refused(tmp_path):
    rows = [row(0, "4", 1.0), row(0, "5", 0.0), row(0, "4", 1.0, "flexible-extract")]
    with pytest.raises(ConfigError, match="doc_id 0 has lines 2 under strict-match, 1 under flexible-extract"):
        read_lm_eval(write(tmp_path, rows))


def test_a_list_of_verdicts_counts_as_its_mean(tmp_path):
    metrics = ["exact_match", "inst_acc"]
    rows = [row(0, "4", 1.0, metrics=metrics, inst_acc=[True, False]), row(1, "4", 1.0, metrics=metrics, inst_acc=[])]
    log = read_lm_eval(write(tmp_path, rows), metric="inst_acc")
    assert [record.score.value for record in log.rollouts] == [0.5, None]
    log = read_lm_eval(write(tmp_path, rows))
    assert [record.score.views for record in log.rollouts] == [{"inst_acc@strict-match": 0.5}, {}]


def test_an_imported_log_is_judged_again_by_its_own_targets_and_options(tmp_path):
    choices = {"doc": {"choices": ["red", "blue"]}, "target": 1}
    rows = [row(0, "4", 0.0), row(1, "5", 0.0, target=["6", "5"]), row(2, "The answer is B", 0.0, **choices)]
    write_foreign(read_lm_eval(write(tmp_path, rows)), tmp_path / "card", Split.TEST_PUBLIC)
    rescore(tmp_path / "card", tmp_path / "exact", load_scorer("exact"))
    assert {r.rollout.item_id: r.score.value for r in iter_rollouts(tmp_path / "exact")} == {
        "sums-0": 1.0,
        "sums-1": 1.0,
        "sums-2": 0.0,
    }
    rescore(tmp_path / "card", tmp_path / "choice", load_scorer("choice"))
    assert [r.score.value for r in iter_rollouts(tmp_path / "choice")] == [None, None, 1.0]  # two have no options


def test_half_characters_and_a_byte_order_mark_cost_no_import(tmp_path):
    path = write(tmp_path, [row(0, "half \ud835 4", 1.0)])
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    write_foreign(read_lm_eval(path), tmp_path / "card", Split.DEV)
    (record,) = iter_rollouts(tmp_path / "card")
    assert record.rollout.turns[0].action == "half \ufffd 4" and record.score.value == 1.0
