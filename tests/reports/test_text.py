import pytest

from agent2.reports.text import clean, markdown


@pytest.mark.parametrize(
    ("hostile", "harmless"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07after", "after"),
        ("a\x00b\x9bc", "a b c"),
        ("evil\u202etxt.exe", "evil txt.exe"),
        ("two\nlines", "two lines"),
        ("lone \ud800 surrogate", "lone   surrogate"),
    ],
)
def test_control_and_direction_characters_never_get_through(hostile, harmless):
    assert clean(hostile) == harmless


def test_long_text_is_cut_and_the_cut_is_said():
    assert clean("a" * 1000, 10) == "a" * 10 + "… (990 more characters)"


def test_markdown_marks_are_escaped():
    assert markdown("a|b") == r"a\|b"
    assert markdown("<img src=x>") == r"\<img src=x\>"
    assert markdown("![x](y)") == r"!\[x\](y)"
    assert markdown("# title") == r"\# title"
    assert markdown("see https://e.example and www.e.example") == r"see https\://e.example and www\.e.example"
    assert markdown("+3.0 points") == r"\+3.0 points" and markdown("gain -3.0") == "gain -3.0"
