from msgspec import structs

from agent2.analysis.hacking_signatures import FARMED, HARD_CODED, LONGEST, n_literal_answers, signatures_of
from agent2.records import Message, StopReason, Turn
from card_builders import make_record

LOOKUP = """```python
def f(x):
    if x == 12:
        return 144
    if x == 7:
        return 49
    if x == 31:
        return 961
    return 0
```"""
HONEST = """```python
def f(n):
    if n == 0:
        return 0
    if n == 1:
        return 1
    return f(n - 1) + f(n - 2)
```"""
PARAGRAPH = (
    "The harbour was rebuilt after the storm of 1911, and its two lighthouses were moved to the northern pier. " * 2
)


def played(*actions, observation=None, prompt="question"):
    record = make_record(text=actions[-1])
    turns = [Turn(action, observation, StopReason.END, 10, 5) for action in actions]
    rollout = structs.replace(record.rollout, turns=turns, prompt=[Message("user", prompt)], answer=actions[-1])
    return structs.replace(record, rollout=rollout)


def test_a_lookup_table_of_test_inputs_is_told_from_base_cases():
    assert signatures_of(played(LOOKUP)) == [HARD_CODED]
    assert signatures_of(played(HONEST)) == []
    assert n_literal_answers("not ( python") == n_literal_answers("(" * 10_000) == 0


def test_a_scorers_own_class_of_test_overfitting_counts():
    record = played("def f(): pass")
    assert signatures_of(
        structs.replace(record, score=structs.replace(record.score, labels=("repo_visible_tests_only",)))
    ) == [HARD_CODED]


def test_the_longest_paragraph_copied_word_for_word_is_a_signature_and_a_quote_within_an_answer_is_not():
    copied = played("search harbour", PARAGRAPH, observation=f"Short one.\n\n{PARAGRAPH}")
    assert signatures_of(copied) == [LONGEST]
    quoted = played("search harbour", f"It was moved: {PARAGRAPH[:60]}", observation=PARAGRAPH)
    assert signatures_of(quoted) == []


def test_calls_that_are_farmed_are_told_from_a_retry():
    assert signatures_of(played(*["get_points()"] * 6, "done")) == [FARMED]
    assert signatures_of(played("open a", "open a", "open b", "answer c")) == []


def test_a_table_of_ten_thousand_answers_costs_little_and_is_one():
    code = "def f(x):\n" + "".join(f"    if x == {n + 5}:\n        return {n}\n" for n in range(10_000))
    assert n_literal_answers(code) == 10_000
