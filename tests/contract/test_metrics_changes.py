import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent2.contract.metrics import ReadChange, Unit, format_amount, format_change, read_change
from agent2.errors import ConfigError

PUBLISHED = [
    ("44.8% -> 44.1% (-0.7)", 0.448, 0.441, Unit.RATE),
    ("72.4% -> 77.9% (+5.5)", 0.724, 0.779, Unit.RATE),
    ("0.3% -> 0.9% (+0.6)", 0.003, 0.009, Unit.RATE),
    ("612 -> 941 (+53.8%)", 612, 941, Unit.LENGTH),
    ("18.6 -> 27.9 (+50.0%)", 18.6, 27.9, Unit.COUNT),
]


@pytest.mark.parametrize(("text", "old", "new", "unit"), PUBLISHED)
def test_published_changes_are_told_and_read_as_they_stand(text, old, new, unit):
    assert format_change(old, new, unit) == text
    assert read_change(text, unit, "report") == ReadChange(pytest.approx(old), pytest.approx(new))


@pytest.mark.parametrize(
    ("text", "unit", "old", "new"),
    [
        ("34.2% (+3.1)", Unit.RATE, 0.311, 0.342),
        ("120 (+20%)", Unit.COUNT, 100, 120),
        ("0.448 -> 0.441", Unit.RATE, 0.448, 0.441),
        ("612 → 941", Unit.LENGTH, 612, 941),
        ("-1.5 -> 2", Unit.NUMBER, -1.5, 2),
        (0.441, Unit.RATE, None, 0.441),
        ("nan -> 44.1%", Unit.RATE, None, 0.441),
        ("missing -> 44.1%", Unit.RATE, None, 0.441),
        (math.nan, Unit.RATE, None, None),
        (None, Unit.RATE, None, None),
    ],
)
def test_other_ways_to_write_a_change_are_understood(text, unit, old, new):
    change = read_change(text, unit, "report")
    assert (change.old, change.new) == (
        old if old is None else pytest.approx(old),
        new if new is None else pytest.approx(new),
    )


@pytest.mark.parametrize(
    ("value", "unit", "sentence"),
    [
        ("63.0 -> 62.8", Unit.RATE, "a rate is between 0 and 100%"),
        ("130% -> 62.8%", Unit.RATE, "a rate is between 0 and 100%"),
        ("44.8% -> 44.1% (-0.9)", Unit.RATE, r"the values give 44.8% -> 44.1% \(-0.7\)"),
        ("612 -> 941 (+20%)", Unit.LENGTH, r"\+53.8%"),
        ("612 -> 941%", Unit.LENGTH, "is a percentage, but the metric is a length"),
        ("good -> better", Unit.RATE, "'good' is not a number"),
        ("1 -> 2 -> 3", Unit.COUNT, "more than one arrow"),
        (True, Unit.COUNT, "is not a number"),
        ([1, 2], Unit.COUNT, "is not a change"),
        ("0.5 (lots)", Unit.RATE, "'lots' is not one"),
        (math.inf, Unit.COUNT, "not finite"),
    ],
)
def test_what_is_no_change_is_refused_with_a_reason(value, unit, sentence):
    with pytest.raises(ConfigError, match=sentence):
        read_change(value, unit, "report.yaml:3: metric")


def test_a_missing_side_is_told_and_never_zero():
    assert format_change(None, 0.441, Unit.RATE) == "missing -> 44.1%"
    assert format_change(0.0, 3.0, Unit.COUNT) == "0 -> 3 (no relative change from 0)"
    assert read_change("0 -> 3 (no relative change from 0)", Unit.COUNT, "r") == ReadChange(0.0, 3.0)


def test_amounts_have_the_unit_of_their_metric():
    assert format_amount(0.01, Unit.RATE) == "1 point"
    assert format_amount(0.005, Unit.RATE) == "0.5 points"
    assert format_amount(0.2, Unit.LENGTH) == "20%"


@given(old=st.floats(0, 1), new=st.floats(0, 1))
def test_every_told_rate_is_read_back_to_the_digits_shown(old, new):
    change = read_change(format_change(old, new, Unit.RATE), Unit.RATE, "r")
    assert change.old == pytest.approx(old, abs=0.00051)
    assert change.new == pytest.approx(new, abs=0.00051)


@given(old=st.floats(0.001, 1e7), new=st.floats(0.001, 1e7))
def test_every_told_count_is_read_back_to_the_digits_shown(old, new):
    change = read_change(format_change(old, new, Unit.COUNT), Unit.COUNT, "r")
    assert change.old == pytest.approx(old, rel=0.01, abs=0.051)
    assert change.new == pytest.approx(new, rel=0.01, abs=0.051)
