import pytest
from msgspec import structs

from agent2.analysis.thinking_marks import checks_itself, reconsiders, thought_characters
from agent2.records import ScoredRollout, StopReason, Thought, Turn
from contract_card_builders import make_scored


def says(text, thought=None):
    record = make_scored("a", 1.0)
    turn = Turn(text, None, StopReason.END, 5, 2)
    if thought is not None:
        turn = structs.replace(turn, thought=Thought(thought, "<think>", "</think>"))
    return ScoredRollout(structs.replace(record.rollout, turns=[turn]), record.score)


@pytest.mark.parametrize(
    "text",
    [
        "17 + 5 = 22. Let me verify: 22 - 5 = 17.",
        "I'll double-check it.",
        "Verification: 3 * 4 = 12",
        "Check: yes",
    ],
)
def test_an_answer_that_checks_itself_is_counted(text):
    assert checks_itself(says(text)) and checks_itself(says("22", thought=text))


@pytest.mark.parametrize(
    "text",
    [
        "So it is 4. Wait, I forgot the carry.",
        "Hmm, no.",
        "That's wrong: 7 is prime.",
        "Let me try a different way.",
    ],
)
def test_an_answer_that_thinks_again_is_counted(text):
    assert reconsiders(says(text)) and reconsiders(says("22", thought=text))


@pytest.mark.parametrize(
    "text",
    [
        "Wait for the bus at the next stop, and check in at the counter.",
        "Cheques are verified by the bank. Actually, most people pay by card.",
        "The answer is 42.",
        "To test a cake, push a needle into it. I will check in tomorrow.",
        "",
    ],
)
def test_ordinary_answers_bear_no_mark(text):
    assert not checks_itself(says(text)) and not reconsiders(says(text))


@pytest.mark.parametrize("text", ["\n" * 100_000, "wait" * 50_000, "let me " * 50_000, ". " * 50_000])
def test_a_hostile_text_costs_little(text):
    assert not checks_itself(says(text)) and not reconsiders(says(text))


def test_thoughts_are_as_long_as_they_are():
    assert thought_characters(says("22", thought="17 + 5")) == 6
    assert thought_characters(says("22")) == 0
