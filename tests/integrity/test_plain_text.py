import pytest

from agent2.integrity.leaks import NgramIndex, ShortIndex
from agent2.integrity.plain_text import normalized_words, undisguised

QUESTION = "A baker sells twelve rye loaves and six buns before noon, how many pieces are gone by then in all?"
SHORT = "Who painted the great wave?"


def between_letters(mark):
    return "".join(character + mark if character.isalpha() else character for character in QUESTION)


LOOK_ALIKE = str.maketrans(
    {
        "a": "\u0430",
        "e": "\u0435",
        "o": "\u03bf",
        "p": "\u0440",
        "s": "\u0455",
        "i": "\u0456",
        "y": "\u04af",
        "n": "\u0578",
        "g": "\u0261",
    }
)
DISGUISES = {
    "zero-width spaces": between_letters("\u200b"),
    "joiners": between_letters("\u2060"),
    "soft hyphens": between_letters("\u00ad"),
    "marks of direction": "\u202e".join(QUESTION),
    "variation selectors": between_letters("\ufe0e"),
    "tags": between_letters("\U000e0061"),
    "strokes": between_letters("\u0336"),
    "accents": QUESTION.replace("a", "\u00e1").replace("e", "\u00ea"),
    "Cyrillic, Greek, Armenian": QUESTION.translate(LOOK_ALIKE),
    "capitals": QUESTION.upper().replace("H", "\u0397").replace("N", "\u039d").replace("M", "\u041c"),
    "small capitals": QUESTION.replace("l", "\u029f").replace("r", "\u0280").replace("b", "\u0299"),
    "full width": "".join(chr(ord(c) + 0xFEE0) if c.isalpha() else c for c in QUESTION),
    "bold": "".join(chr(0x1D41A + ord(c) - 97) if "a" <= c <= "z" else c for c in QUESTION),
    "boxes": "".join(chr(0x1F170 + ord(c) - 97) if "a" <= c <= "z" else c for c in QUESTION),
    "named entities": QUESTION.replace(" ", "&nbsp;").replace("e", "&#101;"),
    "entities twice": QUESTION.replace(" ", "&amp;nbsp;"),
    "entities in hexadecimal": QUESTION.replace("a", "&#x61;"),
    "tags within words": QUESTION.replace("rye", "r<b>y</b>e").replace("noon", "no<!-- x -->on").replace(" ", "<br/>"),
    "line separators": QUESTION.replace(" ", "\u2028"),
    "curly punctuation": QUESTION.replace("noon,", "\u201cnoon\u201d\u2026"),
}


@pytest.mark.parametrize("disguise", DISGUISES)
def test_a_disguised_copy_shares_all_runs_with_its_item(disguise):
    index = NgramIndex([QUESTION])
    (hit,) = index.search(f"Question: {DISGUISES[disguise]} Answer: 18")
    assert hit.n_runs == index.n_runs[0]


@pytest.mark.parametrize(
    "text", ["Wh\u03bf p\u0430inted the\u00a0great w\u200bave?", "Who painted&#32;the great w&#97;ve?"]
)
def test_a_disguised_short_item_is_found(text):
    assert ShortIndex([SHORT, "Name a river in Peru."]).search(text) == [0]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("\u0412\u041e\u041b\u0413\u0410", "\u0432\u043e\u043b\u0433\u0430"),
        ("\u039d\u0397\u03a3\u039f\u03a3", "\u03bd\u03b7\u03c3\u03bf\u03c3"),
        ("STRASSE", "stra\u00dfe"),
    ],
)
def test_case_is_no_difference_in_other_scripts(first, second):
    assert undisguised(first) == undisguised(second)


def test_what_is_another_question_stays_one():
    for first, second in [("a \u2260 b", "a = b"), ("x &lt; 3", "x &gt; 3"), ("\u0928\u0932", "\u0928\u0940\u0932")]:
        assert undisguised(first) != undisguised(second)
    assert undisguised("R&D at AT&T; x & y") == "r&d at at&t; x & y"
    assert normalized_words("\u4ec0\u4e48\uff0c\u597d\u3002") == [c.encode() for c in "\u4ec0\u4e48\u597d"]
