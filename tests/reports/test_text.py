import pytest

from agent2.reports.text import (
    attempt_words,
    breakable,
    clean,
    clean_lines,
    duration,
    markdown,
    markdown_lines,
    p_words,
    percent,
    points,
    score_words,
    size,
)
from builders import make_score


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
    assert markdown("<img src=x>") == r"\<img src=x>"
    assert markdown("![x](y)") == r"!\[x\](y)"
    assert markdown("# title") == r"\# title"
    assert markdown("see https://e.example and www.e.example") == r"see https\://e.example and www\.e.example"
    assert markdown("+3.0 points") == "+3.0 points" and markdown("gain -3.0") == "gain -3.0"
    assert markdown("+ item") == r"\+ item" and markdown("---") == r"\---" and markdown("> quote") == r"\> quote"
    assert markdown("my_metric -> 3") == "my_metric -> 3" and markdown("_em_ __b__") == r"\_em\_ \_\_b\_\_"
    assert markdown("+15.4 [+5.9, -24.9]; 64.6% [56.1%, 72]") == "+15.4 [+5.9, -24.9]; 64.6% [56.1%, 72]"
    for link in ("[1, 2](https://e.example)", "[1, 2]: x", "[1, 2][x]", "[x, 2]", "[1, 2, 3]"):
        assert markdown(link).startswith(r"\["), link
    assert markdown("R&D &lt;b&gt; &#60;") == r"R&D \&lt;b\&gt; \&#60;"


def test_lines_and_indentation_are_kept_and_nothing_else_that_could_harm():
    assert clean_lines("\n one\n\ttwo \x1b[31m\r\nthree\u202e\n\n") == " one\n    two\nthree"
    assert clean_lines("a" * 1000, 10) == "a" * 10 + "… (990 more characters)"


def test_a_word_may_be_broken_at_its_joints_and_a_short_one_never():
    assert breakable("finished beyond test_private") == "finished beyond test_private"
    assert breakable("reward_benchmark_divergence") == "reward_<wbr>benchmark_<wbr>divergence"
    assert breakable("llm_regression_mini-v1.0") == "llm_<wbr>regression_<wbr>mini-v1.0", "a number in one piece"
    assert breakable("a" * 60) == f"{'a' * 28}<wbr>{'a' * 28}<wbr>aaaa"
    assert breakable("<b>_aaaaaaaaaaaaaaaaaaaa&") == "&lt;b&gt;_<wbr>aaaaaaaaaaaaaaaaaaaa&amp;"
    assert breakable("0.2 -> 0.3") == "0.2 → 0.3"


def test_lines_in_markdown_stay_lines_of_one_list_item():
    assert markdown_lines("a|b\n\n<i>", 2) == "a\\|b\\\n  \u00a0\\\n  \\<i>"


def test_what_is_missing_is_a_dash_and_never_a_zero():
    assert {percent(None), points(None), duration(None), size(None), p_words(None)} == {"–"}
    assert score_words(None) == "not measured"


def test_numbers_read_as_a_person_would_say_them():
    assert percent(0.3333) == "33.3%"
    assert (points(28.04), points(-0.01), points(-3)) == ("+28.0", "0.0", "-3.0")
    assert (duration(5), duration(75), duration(600), duration(36_000)) == ("5.0 s", "75 s", "10.0 min", "10.0 h")
    assert (size(2**21), size(3 * 2**30)) == ("2 MiB", "3.00 GiB")
    assert (p_words(1e-9), p_words(0.004), p_words(0.5)) == ("p < 0.0001", "p = 0.0040", "p = 0.50")


def test_missing_items_are_part_of_a_score():
    assert score_words(make_score(0.5, 100, n_missing=2)) == "50.0% [40.2, 59.8] (n = 100, 2 missing)"


def test_attempts_are_counted_from_one_and_a_single_one_is_called_so():
    assert attempt_words(0, 1) == "only attempt"
    assert (attempt_words(0, 3), attempt_words(2, 3)) == ("attempt 1 of 3", "attempt 3 of 3")
    assert attempt_words(0) == "attempt 1"
    assert attempt_words(4, 2) == "attempt 5", "others of the item are missing"
