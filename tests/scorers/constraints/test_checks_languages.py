from pathlib import Path

import pytest
import yaml

from agent2.scorers.constraints.checks import LANGUAGES, detect_language, is_english, response_language

TEXTS = yaml.safe_load((Path(__file__).parents[3] / "benchmarks" / "scorer_texts.yaml").read_text(encoding="utf-8"))[
    "languages"
]


@pytest.mark.parametrize(("code", "text"), [(code, text) for code, texts in TEXTS.items() for text in texts])
def test_everyday_sentences_in_thirty_languages_are_told_apart(code, text):
    assert detect_language(text) == code
    assert detect_language(text.upper()) == code


def test_every_language_that_the_published_rows_ask_for_is_known():
    codes = "ar bg bn de fa fi gu hi it kn ko mr ne pa pt ru sw ta te th ur vi en es fr ja he pl uk ml"
    assert set(codes.split()) <= LANGUAGES
    assert len(TEXTS) == 30


@pytest.mark.parametrize("text", ["", "12345", "3.14 = ", "!!!", "Xyzzy", "😀"])
def test_what_speaks_for_no_language_has_none(text):
    assert detect_language(text) is None


def test_five_words_are_enough():
    assert [detect_language(text) for text in ("the cat is red", "die Katze ist rot", "el gato es rojo y viejo")] == [
        "en",
        "de",
        "es",
    ]


def test_unknown_plain_words_are_taken_for_english_if_there_are_some():
    assert detect_language("gold apples shining") == "en"
    assert detect_language("gold apples") is None
    assert is_english("gold apples")


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
