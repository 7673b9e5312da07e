import pytest

from agent2.reports.text import breakable, clean, clean_lines, markdown, markdown_lines


@pytest.mark.parametrize(
    ("hostile", "harmless"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07after", "after"),
        ("a\x00b\x9bc", "a b c"),
        ("evil\u202etxt.exe", "evil txt.exe"),
        ("two\nlines", "two lines"),
        ("lone \ud800 surrogate", "lone   surrogate"),
        ("one\u2028two\u2029three", "one two three"),
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


def test_lines_and_indentation_are_kept_and_nothing_else_that_could_harm():
    assert clean_lines("\n one\n\ttwo \x1b[31m\r\nthree\u202e\n\n") == " one\n    two\nthree"
    assert clean_lines("a" * 1000, 10) == "a" * 10 + "… (990 more characters)"


def test_a_word_may_be_broken_at_its_joints_and_a_short_one_never():
    assert breakable("finished beyond test_private") == "finished beyond test_private"
    assert breakable("reward_benchmark_divergence") == "reward_<wbr>benchmark_<wbr>divergence"
    assert breakable("a" * 60) == f"{'a' * 28}<wbr>{'a' * 28}<wbr>aaaa"
    assert breakable("<b>_aaaaaaaaaaaaaaaaaaaa&") == "&lt;b&gt;_<wbr>aaaaaaaaaaaaaaaaaaaa&amp;"
    assert breakable("0.2 -> 0.3") == "0.2 → 0.3"


def test_lines_in_markdown_stay_lines_of_one_list_item():
    assert markdown_lines("a|b\n\n<i>", 2) == "a\\|b\\\n  \u00a0\\\n  \\<i\\>"
