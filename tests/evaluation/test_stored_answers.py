"""Files of stored answers, scored without a model."""

import json

import pytest

from agent2.analysis.compare import compare_cards
from agent2.analysis.unread import unread_answers
from agent2.benchmarks import load_benchmark
from agent2.cards.reader import find_rollouts, iter_rollouts, read_header, read_summary, validate_card
from agent2.errors import ConfigError, Fault
from agent2.evaluation.rescoring import rescore
from agent2.evaluation.stored_answers import STORED_ANSWERS, StoredRequest, score_stored
from agent2.installation import access_log, read_access_log
from agent2.records import Split
from agent2.scorers import load_scorer

LETTERS = "ABCD"
N = 40


@pytest.fixture(autouse=True)
def workplace(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def quiz(workplace):
    """Forty questions whose right letters take turns."""
    folder = workplace / "quiz"
    folder.mkdir()
    rows = [
        {"n": k, "question": f"Question {k}?", "options": ["red", "blue", "tin", "oak"], "right": LETTERS[k % 4]}
        for k in range(N)
    ]
    write(folder / "test.jsonl", rows)
    (folder / "benchmark.yaml").write_text(
        'name: quiz\nversion: "1.0"\nfiles: {test: test.jsonl}\nid: n\nprompt: "{question}\\n{options}"\n'
        "options: options\nanswer: {field: right, option_by: letter}\nscorer: choice\n"
    )
    return load_benchmark("./quiz")


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def right(k):
    return f"The answer is ({LETTERS[k % 4]})."


def score(benchmark, path, **settings):
    card, result = score_stored(StoredRequest(benchmark, path, **settings))
    assert validate_card(card) == []
    return card, result


def test_both_halves_of_the_test_set_are_scored_in_one_card(quiz, workplace):
    file = write(workplace / "answers.jsonl", [{"id": k, "response": right(k if k < 30 else k + 1)} for k in range(N)])
    card, result = score(quiz, file)
    header, summary = read_header(card), read_summary(card)
    assert (summary.score.value, summary.n_items, summary.n_missing, result.attempts) == (0.75, N, 0, 1)
    assert header.checkpoint_name == "answers"
    assert header.lock[STORED_ANSWERS]["items"] == "whole set"
    assert any("max_tokens" in line for line in header.lock["assumed"])
    assert header.protocol.split is Split.TEST_PRIVATE, "half of the items are private"
    assert [entry["checkpoint"].split()[:2] for entry in read_access_log(access_log())] == [[str(N), "items"]]


def test_items_are_named_by_prompt_where_there_is_no_id(quiz, workplace):
    whole = next(named.item for named in quiz.named_set(None, None).items if named.ids[-1] == "7")
    rows = [{"prompt": f"Question  {k}?", "output": right(k)} for k in range(N)]
    rows[7]["prompt"] = whole.prompt
    _, result = score(quiz, write(workplace / "a.jsonl", rows))
    assert result.summary.score.value == 1.0


def test_one_right_answer_under_all_ids_gains_nothing(quiz, workplace):
    file = write(workplace / "same.jsonl", [{"id": k, "answer": right(2)} for k in range(N)])
    _, result = score(quiz, file)
    assert result.summary.score.value == 0.25, "what its letter is worth, and no more"
    assert "40 of 40 answers are the same text" in result.notes[0]


def test_leaving_out_wrong_answers_is_refused_and_then_counted(quiz, workplace):
    file = write(workplace / "half.jsonl", [{"id": k, "answer": right(k)} for k in range(0, N, 2)])
    with pytest.raises(
        ConfigError, match=r"20 of 40 items of quiz have no answer: quiz-1, quiz-3, quiz-5, .*--partial"
    ):
        score(quiz, file)
    card, result = score(quiz, file, is_partial=True)
    assert (result.summary.n_missing, result.n_absent) == (20, 20)
    assert len(result.summary.items_missing) == 20
    ((_, absent),) = find_rollouts(card, "quiz-1")
    assert (absent.score.value, absent.score.fault) == (None, Fault.INFRASTRUCTURE)
    assert "half.jsonl has no answer to this item" in absent.score.reason


def test_an_answer_of_null_is_absent_and_an_empty_one_is_wrong(quiz, workplace):
    rows = [{"id": k, "answer": right(k)} for k in range(N)]
    rows[0]["answer"], rows[1]["answer"] = None, ""
    file = write(workplace / "a.jsonl", rows)
    with pytest.raises(ConfigError, match="1 of 40 items of quiz have no answer: quiz-0"):
        score(quiz, file)
    _, result = score(quiz, file, is_partial=True)
    assert (result.summary.item_scores["quiz-0"], result.summary.item_scores["quiz-1"]) == (None, 0.0)


def test_several_rows_or_a_list_of_answers_are_attempts(quiz, workplace):
    rows = [{"id": k, "answer": right(k + wrong)} for k in range(N) for wrong in (0, 1)]
    card, result = score(quiz, write(workplace / "rows.jsonl", rows))
    listed = [{"id": k, "answer": [right(k), right(k + 1)]} for k in range(N)]
    _, from_lists = score(quiz, write(workplace / "lists.jsonl", listed))
    assert result.summary.score.value == from_lists.summary.score.value == 0.5
    assert read_header(card).protocol.attempts == result.attempts == 2
    assert [record.rollout.attempt for record in iter_rollouts(card)][:2] == [0, 1]


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([{"id": "q9", "answer": "A"}], r"1 of 1 rows name no item of quiz by id \(id\): 'q9' \(line 1\).*--split"),
        ([{"prompt": "Who?", "answer": "A"}], r"no item of quiz by prompt \(prompt\): 'Who\?'.*'Question 0\?'"),
        ([{"n": 3, "text": "A"}], "no row has a field answer, output, .*; its fields are 'n', 'text'"),
        ([{"n": 3, "answer": "C", "response": "A"}], "has the fields answer and response.*--answer response"),
        ([{"answer": "A"}], "no row says which item it answers.*add the field 'id'"),
        ([{"id": 0, "answer": {"text": "A"}}], r"answer is \{'text': 'A'\}, neither text.*--answer answer.FIELD"),
        ([{"id": 0, "prompt": "Question 1?", "answer": "A"}], "that of 'quiz-0', and the prompt that of 'quiz-1'"),
    ],
)  # fmt: skip
def test_rows_that_cannot_be_placed_are_refused_with_what_to_do(quiz, workplace, rows, problem):
    with pytest.raises(ConfigError, match=problem):
        score(quiz, write(workplace / "a.jsonl", rows))


def test_doubled_rows_of_a_few_items_are_refused(quiz, workplace):
    rows = [{"id": k, "answer": right(k)} for k in range(N)]
    with pytest.raises(ConfigError, match=r"39 items have 1 answer each, 1 have another number: 'quiz-5' 2"):
        score(quiz, write(workplace / "a.jsonl", [*rows, rows[5]]))


def test_a_split_can_be_scored_alone_and_names_the_items_that_are_not_its_own(workplace):
    benchmark = load_benchmark("arithmetic")
    items = benchmark.items(Split.DEV, 12, None)
    rows = [{"id": item.id, "completion": item.reference} for item in items]
    card, result = score(benchmark, write(workplace / "a.jsonl", rows), split=Split.DEV)
    assert result.summary.score.value == 1.0
    assert "every answer is the reference itself" not in "".join(result.notes), "too few items to say"
    assert read_header(card).protocol.split is Split.DEV
    with pytest.raises(ConfigError, match="has no published set of items; name the split that was answered"):
        score(benchmark, write(workplace / "a.jsonl", rows))


def test_episodes_cannot_be_scored_from_answers(workplace):
    with pytest.raises(ConfigError, match=r"its items are episodes.*cards import --trajectories"):
        score(load_benchmark("household"), write(workplace / "a.jsonl", [{"id": "x", "answer": "y"}]), split=Split.DEV)


def test_the_references_themselves_are_noticed(quiz, workplace):
    rows = [{"id": k, "answer": LETTERS[k % 4]} for k in range(N)]
    _, result = score(quiz, write(workplace / "a.jsonl", rows))
    assert "every answer is the reference itself" in result.notes[0]


def test_two_files_are_compared_and_a_card_is_scored_again(quiz, workplace):
    weak = write(workplace / "weak.jsonl", [{"id": k, "answer": right(k if k < 10 else k + 1)} for k in range(N)])
    strong = write(workplace / "strong.jsonl", [{"id": k, "answer": right(k if k < 30 else k + 1)} for k in range(N)])
    cards = [score(quiz, file)[0] for file in (weak, strong)]
    comparison = compare_cards(*cards)
    assert (len(comparison.won), len(comparison.lost)) == (20, 0)
    again = rescore(cards[1], workplace / "again", benchmark=quiz)
    assert again.score.value == 0.75


def test_the_same_call_reads_the_card_that_is_there(quiz, workplace):
    file = write(workplace / "a.jsonl", [{"id": k, "answer": right(k)} for k in range(N)])
    first, _ = score(quiz, file)
    written = (first / "card.json").read_bytes()
    second, result = score(quiz, file)
    assert (second, result.summary.score.value, (first / "card.json").read_bytes()) == (first, 1.0, written)


def test_a_character_that_utf_8_has_not_costs_nothing(quiz, workplace):
    rows = [{"id": k, "answer": right(k)} for k in range(N)]
    rows[3]["answer"] = "\ud835 The answer is (D)."
    _, result = score(quiz, write(workplace / "a.jsonl", rows))
    assert result.summary.score.value == 1.0


def test_unread_answers_are_counted_with_one_as_an_example(quiz, workplace):
    rows = [{"id": k, "answer": right(k) if k % 2 else f"no idea {k}"} for k in range(N)]
    card, _ = score(quiz, write(workplace / "a.jsonl", rows))
    unread = unread_answers(card)
    assert (unread.n, unread.n_unread, unread.share, unread.is_high) == (N, 20, 0.5, True)
    assert unread.expected == "the letter of an option, as in 'The answer is (C)'"
    assert unread.example.startswith("no idea")
    assert unread.example_item.startswith("quiz-")


def test_programs_are_run_and_wrong_ones_fail(workplace):
    benchmark = load_benchmark("pyfunc")
    items = benchmark.items(Split.DEV, 4, None)
    rows = [{"id": item.id, "completion": f"```python\n{item.reference}\n```"} for item in items]
    rows[3]["completion"] = "```python\ndef nothing():\n    return 1\n```"
    _, result = score(benchmark, write(workplace / "a.jsonl", rows), split=Split.DEV)
    assert [result.summary.item_scores[item.id] for item in items] == [1.0, 1.0, 1.0, 0.0]


JUDGE = """
from agent2.records import Score, ScoringMode, ScoringWork

class Judge:
    name, version = "polite", "1.0"
    work = ScoringWork(ScoringMode.BATCH, batch_size=8, concurrency=2)

    def score_batch(self, batch):
        return [Score(float("please" in rollout.answer), "judged") for _, rollout in batch]
"""


def test_a_judge_that_works_in_batches_judges_stored_answers(quiz, workplace):
    (workplace / "judge.py").write_text(JUDGE)
    scorer = load_scorer("./judge.py:Judge")
    rows = [{"id": k, "answer": "yes please" if k % 4 else "yes"} for k in range(N)]
    card, result = score(quiz, write(workplace / "a.jsonl", rows), scorer=scorer, scorer_settings={"tone": "any"})
    assert result.summary.score.value == 0.75
    assert read_header(card).protocol.scorer.startswith("polite-v1.0")
    assert read_header(card).protocol.judge_digest


def test_a_thought_before_the_answer_is_not_the_answer(quiz, workplace):
    rows = [{"id": k, "answer": f"<think>The answer is (A).</think>\n{right(k)}"} for k in range(N)]
    _, result = score(quiz, write(workplace / "a.jsonl", rows))
    assert result.summary.score.value == 1.0
