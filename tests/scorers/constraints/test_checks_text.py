import pytest

from agent2.scorers.constraints.checks import capital_words, count_sentences, count_words, loose_variants


@pytest.mark.parametrize(
    ("text", "n"),
    [
        ("", 0),
        ("   ", 0),
        ("no mark", 1),
        ("One. Two.", 2),
        ("One! Two? Three", 3),
        ("One.\nTwo.", 2),
        ("One\nTwo", 1),
        ("Dr. Who met Mr. X. They left.", 2),
        ("I met J. R. Smith. He left.", 2),
        ("He lives in the U.S. She does not.", 2),
        ("The U.S. Senate met.", 1),
        ("It cost 3.50. It was 2.5 more.", 2),
        ("On the 3. floor", 1),
        ("Well... yes.", 1),
        ("Wait... What? No!", 3),
        ('He said "Go." She went.', 2),
        ("Bring a hat, i.e. this one.", 1),
        ("We need pens, etc. Buy them. Buy pens etc. now.", 3),
        ("So do I. You too.", 2),
        ("Yes!! No?! Maybe.", 3),
    ],
)
def test_sentences_end_where_a_reader_says_so(text, n):
    assert count_sentences(text) == n


@pytest.mark.parametrize(
    ("text", "n"),
    [("", 0), ("don't go", 3), ("well-known", 2), ("1,000", 2), ("snake_case", 1), ("... !", 0), ("हिन्दी भाषा", 2)],
)
def test_words_are_runs_of_letters_with_their_marks(text, n):
    assert count_words(text) == n


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("NASA and I", ["NASA", "I"]),
        ("DON'T", ["DO", "N'T"]),
        ("CANNOT, GONNA", ["CAN", "NOT", "GON", "NA"]),
        ("X-RAY", ["X-RAY"]),
        ("END:NOW, OK?", ["END", "NOW", "OK"]),
        ("R&D", ["R", "D"]),
        ("A1 B2b 42", ["A1"]),
        ("“YES”", ["YES"]),
    ],
)
def test_capital_words_are_counted_as_the_published_tokeniser_splits_them(text, expected):
    assert capital_words(text) == expected


def test_the_loose_variants_are_the_eight_published_ones():
    assert loose_variants("*a*\nb\n*c*") == ["*a*\nb\n*c*", "b\n*c*", "*a*\nb", "b", "a\nb\nc", "b\nc", "a\nb"]
    assert loose_variants("one") == ["one", ""]
