import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent2.scorers.answers import (
    answer_similarity,
    plain_words,
    token_f1,
)

WORDS = st.text(alphabet="ab the.,", max_size=20)


def test_plain_words_are_without_case_articles_and_punctuation():
    assert plain_words("  The Eiffel-Tower, in a  city. ") == "eiffeltower in city"


def test_token_f1_of_a_hand_computed_case():
    # words: {cat, sat, mat} and {cat, sat, on, mat}: precision 1, recall 3/4
    assert token_f1("The cat sat. Mat", "the cat sat on mat") == pytest.approx(2 * 3 / 7)
    assert token_f1("a a b b", "b") == pytest.approx(2 / 3)
    assert token_f1("", "") == 1.0
    assert token_f1("the", "a") == 1.0
    assert token_f1("", "cat") == 0.0


@given(WORDS, WORDS)
@settings(max_examples=100, deadline=None)
def test_similarities_are_symmetric_bounded_and_1_for_the_same_text(left, right):
    for similarity in (token_f1, answer_similarity):
        assert 0.0 <= similarity(left, right) <= 1.0
        assert similarity(left, right) == pytest.approx(similarity(right, left))
        assert similarity(left, left) == 1.0
    assert token_f1(left, right) >= float(plain_words(left) == plain_words(right))


def test_anls_forgives_small_slips_and_nothing_from_the_threshold_on():
    assert answer_similarity("Hello  World", "hello world ") == 1.0
    assert answer_similarity("helo", "hello") == pytest.approx(0.8)
    assert answer_similarity("ab", "ac") == 0.0  # distance 1 of 2 is the threshold
    assert answer_similarity("", "") == 1.0


def test_a_hostile_answer_costs_nothing():
    assert answer_similarity("x" * 5_000_000, "hello") == 0.0
