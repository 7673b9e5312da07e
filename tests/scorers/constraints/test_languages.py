from pathlib import Path

import pytest
import yaml

from agent2.scorers.constraints.checks import response_language
from agent2.scorers.constraints.languages import (
    LANGUAGES,
    detect_language,
    is_in,
    language_probabilities,
    plain_language,
)

TEXTS = yaml.safe_load((Path(__file__).parents[3] / "benchmarks" / "scorer_texts.yaml").read_text(encoding="utf-8"))[
    "languages"
]


@pytest.mark.parametrize(("code", "text"), [(code, text) for code, texts in TEXTS.items() for text in texts])
def test_everyday_sentences_in_thirty_languages_are_told_apart(code, text):
    others = [other for other in TEXTS if other != code and is_in(text, other)]
    assert is_in(text, code) and is_in(text.upper(), code)
    assert others == [] or detect_language(text) != code  # a short sentence may be of two languages


def test_every_language_that_the_published_rows_ask_for_is_known():
    codes = "ar bg bn de fa fi gu hi it kn ko mr ne pa pt ru sw ta te th ur vi en es fr ja he pl uk ml"
    assert set(codes.split()) <= LANGUAGES
    assert len(TEXTS) == 30


@pytest.mark.parametrize("text", ["", "12345", "3.14 = ", "!!!", "Xyzzy", "😀"])
def test_what_speaks_for_no_language_has_none(text):
    assert detect_language(text) is None


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("the cat is red", "en"),
        ("die Katze ist rot", "de"),
        ("el gato es rojo y viejo", "es"),
        ("Kissa nukkuu sohvalla koko päivän", "fi"),
        ("Tre gatti dormono", "it"),
        ("Chúng tôi đi", "vi"),
        ("crimson maple\nslow rain on the slate\nan owl, a lantern, a silver thaw\nhushed rivers listen", "en"),
        ("OPTION C NEEDS PARTNERS", "en"),
        ("widgetware analytics co.", "en"),
        ("gold apples", "en"),
        ("YES", "en"),
        ("1. Clara\n2. Hugo\n3. Marlene\n4. Otto", "en"),
        ("HENRY ALICE, GEORGE SMITH, EDITH, WALTER", "en"),
    ],
)
def test_short_texts_poems_and_names_are_in_the_language_that_was_asked_for(text, code):
    assert is_in(text, code)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Der Hund schläft im Garten und träumt von der Katze.", "en"),
        ("el gato es rojo y viejo", "pt"),
        ("The dog is asleep in the garden.", "de"),
        ("der hund, die katze, das pferd, die maus und der vogel", "en"),
        ("Мы дома", "en"),
        ("dort", "ru"),
    ],
)
def test_another_language_is_not_taken_for_the_one_that_was_asked_for(text, code):
    assert not is_in(text, code)


def test_the_same_text_always_has_the_same_language():
    text = "Sijui treni ya Nairobi inaondoka"
    assert len({str(language_probabilities(text)) for _ in range(20)}) == 1


@pytest.mark.parametrize(
    ("text", "language", "followed"),
    [
        ("Hola", "es", True),
        ("42", "hi", True),
        ("Hola", "hi", False),
        ("我喜欢猫", "zh", True),
        ("我喜欢猫", "zh-cn", True),
        ("この猫が好きです", "zh", False),
        ("Мы дома", "en", False),
    ],
)
def test_what_cannot_be_told_counts_as_followed_only_in_a_script_of_the_language(text, language, followed):
    assert response_language(text, {"language": language}).followed is followed


GERMAN = "Wir rechnen die Summe aus und das ist in der Küche ein Preis, den wir nicht mit dem anderen vergleichen."


def test_a_text_full_of_everyday_words_needs_no_detector():
    assert plain_language(GERMAN) == "de" == detect_language(GERMAN)


@pytest.mark.parametrize(
    "text",
    [
        "The cosets of 4Z in 2Z are 4Z, 2 + 4Z, 6 + 4Z, 8 + 4Z, 10 + 4Z, 12 + 4Z, 14 + 4Z, 16 + 4Z, 18 + 4Z, 20 + 4Z",
        "O my best friend, o how are you doing, o I hope all is well with you, o I miss you and o come over to us soon",
        "We add the sum of the two numbers and so the answer is that there are ten apples in the baskets of a man",
        "Der die das.",
        "",
    ],
)
def test_no_text_is_plainly_in_another_language_because_of_a_letter_or_two(text):
    assert plain_language(text) in (None, "en")
