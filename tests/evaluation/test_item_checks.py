"""Players that read no question, and splits that can decide, on data of the kinds that people have."""

import json
from dataclasses import replace

import pytest

from agent2.benchmarks import load_benchmark
from agent2.contract.gates import EvidenceNeeds
from agent2.evaluation.check import check_benchmark
from agent2.evaluation.item_checks import Guess, guesses, items_to_decide, smallest_difference
from agent2.records import Split
from plugin_builders import write_rows

BLIND = "players that read no question do not win"
LARGE = "splits are large enough to decide"
CHOICE = """\
name: choices
version: "1"
files: {test: rows.jsonl}
prompt: "{question}\\n{options}"
options: choices
answer: answer
scorer: choice
"""
TEXTS = """\
name: texts
version: "1"
files: {test: rows.jsonl}
prompt: "{question}"
answer: answer
scorer: exact
"""


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))


def findings(folder, text, rows):
    (folder / "benchmark.yaml").write_text(text)
    write_rows(folder / "rows.jsonl", rows)
    report = check_benchmark(load_benchmark(str(folder)))
    return report, {finding.name: finding for finding in report.checks}


def choice(k, right, longest=None):
    options = [f"option {k} {place}" for place in range(4)]
    if longest is not None:
        options[longest] += " with much more to say"
    return {"question": f"Which of {k}?", "choices": options, "answer": "ABCD"[right]}


def test_a_balanced_set_passes_and_the_players_are_named(tmp_path):
    report, by_name = findings(tmp_path, CHOICE, [choice(k, k % 4, (k // 4) % 4) for k in range(200)])
    assert report.is_sound and by_name[BLIND].ok
    for player in ("the first option 25%", "the last option 25%", "the longest option 25%", "any option "):
        assert player in by_name[BLIND].detail
    assert "blind guessing 25%" in by_name[BLIND].detail


@pytest.mark.parametrize(
    ("rows", "winner"),
    [
        ([choice(k, 0) for k in range(200)], "always A wins without the question: shuffle"),
        ([choice(k, 3) for k in range(200)], "always D wins"),
        ([choice(k, 0 if k % 2 else k % 4) for k in range(200)], "always A wins"),
        ([choice(k, k % 4, k % 4) for k in range(200)], "the longest option wins"),
        (
            [
                choice(k, k % 4) | {"choices": [f"{k}a", f"{k}b", f"{k}c", f"{k}d"][: k % 4 + 1] + ["x"] * (k % 4 == 0)}
                for k in range(200)
            ],
            "the last option wins",
        ),
    ],
)
def test_a_player_that_wins_without_the_question_fails_the_check(tmp_path, rows, winner):
    report, by_name = findings(tmp_path, CHOICE, rows)
    assert not report.is_sound and by_name[BLIND].ok is False and winner in by_name[BLIND].detail


def test_classes_may_be_unbalanced_a_little_and_one_answer_for_all_fails(tmp_path):
    rows = [{"question": f"{k}?", "answer": "yes" if k % 5 < 3 else "no"} for k in range(300)]
    report, by_name = findings(tmp_path, TEXTS, rows)
    assert report.is_sound and "always 'yes' 60%" in by_name[BLIND].detail and "guessing 50%" in by_name[BLIND].detail
    rows = [{"question": f"{k}?", "answer": "yes" if k % 5 < 4 else "no"} for k in range(300)]
    assert findings(tmp_path, TEXTS, rows)[1][BLIND].ok is False
    rows = [{"question": f"{k}?", "answer": f"answer {k}" if k % 5 < 2 else "unknown"} for k in range(300)]
    assert "always 'unknown' 60%" in findings(tmp_path, TEXTS, rows)[1][BLIND].detail
    assert findings(tmp_path, TEXTS, rows)[1][BLIND].ok is False


def test_words_that_all_answers_share_are_named_with_a_stricter_scorer(tmp_path):
    rows = [{"question": f"{k}?", "answer": f"the new city of {k}"} for k in range(200)]
    report, by_name = findings(tmp_path, TEXTS.replace("exact", "token_f1"), rows)
    assert not report.is_sound and "take a scorer that gives nothing for words" in by_name[BLIND].detail
    assert findings(tmp_path, TEXTS, rows)[0].is_sound


def test_chats_that_mostly_ask_for_words_are_won_by_a_player_that_never_calls(tmp_path):
    call = [{"name": "look", "arguments": {}}]
    rows = [{"query": f"{k}?", "tools": call, "answers": "No." if k % 5 else json.dumps(call)} for k in range(200)]
    text = TEXTS.replace('prompt: "{question}"', "chat: {messages: query, tools: tools}").replace("exact", "chat_calls")
    report, by_name = findings(tmp_path, text.replace("answer: answer", "answer: answers"), rows)
    assert not report.is_sound and "words in place of calls 80%" in by_name[BLIND].detail


def test_luck_in_a_small_set_is_no_fault():
    assert not Guess("always A", 0.45, 20, 0.25).wins
    assert not Guess("any option", 0.43, 60, 0.25).wins
    assert Guess("always A", 0.45, 200, 0.25).wins
    assert not Guess("always A", 0.38, 2_000, 0.25).wins
    assert not Guess("always 'x'", 0.45, 500, None).wins and Guess("always 'x'", 0.55, 500, None).wins


def test_items_without_a_reference_are_not_guessed():
    benchmark = load_benchmark("mini_ifeval")
    items = [replace(item, reference=None) for item in benchmark.items(Split.DEV, 5, None)]
    assert guesses(benchmark, items) == []


def test_the_sizes_follow_from_the_gate_by_hand():
    needs = EvidenceNeeds()
    # (1.96 + 0.842)^2 * 0.2 / 0.12^2 = 109.02
    assert items_to_decide(0.12, needs) == 110 - (109.02 < 109)
    assert items_to_decide(0.5, needs) == needs.min_items == 50
    assert smallest_difference(109, needs) == pytest.approx(0.12, abs=1e-3)
    assert smallest_difference(1, needs) == 1.0


def test_two_hundred_rows_in_one_file_for_all_are_warned_about_with_two_ways_out(tmp_path):
    rows = [{"question": f"{k}?", "answer": f"a{k}"} for k in range(200)]
    report, by_name = findings(tmp_path, TEXTS.replace("test:", "all:"), rows)
    finding = by_name[LARGE]
    assert report.is_sound and finding.warning and finding.ok is None
    assert "needs about 110 items, 50 at least" in finding.detail
    assert "{test: rows.jsonl} for 100 and 100, or files: {test_public: rows.jsonl} for 200" in finding.detail
    _, by_name = findings(tmp_path, TEXTS.replace("test:", "test_public:"), rows)
    assert by_name[LARGE].ok is True and "test_public 200 (shows a difference of 9 points)" in by_name[LARGE].detail


def test_plain_numbers_for_a_scorer_that_reads_a_marked_one_name_the_way(tmp_path):
    rows = [{"question": f"{k} + 1?", "answer": str(k + 1)} for k in range(40)]
    text = TEXTS.replace("exact", "final_answer")
    report, by_name = findings(tmp_path, text, rows)
    assert not report.is_sound
    assert "write answer: {field: answer, form: '#### {answer}'}" in by_name["reference answers score 1.0"].detail
    fixed = text.replace("answer: answer", "answer: {field: answer, form: '#### {answer}'}")
    assert findings(tmp_path, fixed, rows)[0].is_sound


def test_accepted_answers_are_played_and_a_scorer_that_reads_one_is_named(tmp_path):
    rows = [{"question": f"{k}?", "answer": [f"{k}", f"{k}.0"]} for k in range(20)]
    name = "further accepted answers score 1.0"
    assert findings(tmp_path, TEXTS, rows)[1][name].detail == "20 of 20"
    report, by_name = findings(tmp_path, TEXTS.replace("exact", "./one.py:First"), rows)
    assert not report.is_sound and "take a scorer that reads several (exact, token_f1)" in by_name[name].detail


@pytest.fixture(autouse=True)
def own_scorer(tmp_path):
    (tmp_path / "one.py").write_text(
        "from agent2.records import Score\n\n\nclass First:\n    name, version = 'first', '1'\n\n"
        "    def score(self, item, rollout):\n"
        "        return Score(float(rollout.answer == item.reference), 'compared')\n"
    )
