from agent2.reports.text import duration, p_words, percent, points, score_words, size
from builders import make_score


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
