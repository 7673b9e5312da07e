from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent2.errors import NotEnoughData
from agent2.stats.answers import numeric_accuracy, parse_quantity, same_number


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("42", "42", None),
        ("The answer is 42.", "42", None),
        ("1,234.50", "1234.5", None),
        ("1.234,5", "1234.5", None),
        ("1 234.5", "1234.5", None),
        ("1\u202f234", "1234", None),
        ("1'234'567", "1234567", None),
        ("1.234.567,89", "1234567.89", None),
        ("12,345,678", "12345678", None),
        ("1,234", "1234", None),
        ("1.234", "1.234", None),
        ("0,5", "0.5", None),
        ("0,123", "0.123", None),
        (".5", "0.5", None),
        ("1.5e-2", "0.015", None),
        ("-5", "-5", None),
        ("\u22125", "-5", None),
        ("(1,234.5)", "-1234.5", None),
        ("-$5", "-5", "$"),
        ("$-5", "-5", "$"),
        ("1234.5 dollars", "1234.5", "$"),
        ("100 €", "100", "€"),
        ("45%", "45", "%"),
        ("45 percent", "45", "%"),
        ("3.5 million", "3500000", None),
        ("$1.2 billion", "1200000000", "$"),
        ("2k", "2000", None),
        ("$5m", "5000000", "$"),
        ("5M", "5000000", None),
        ("5m", "5", "m"),
        ("5m²", "5", "m²"),
        ("5 kilometres", "5", "km"),
        ("60 km/h", "60", "km/h"),
        ("20 °C", "20", "°c"),
        ("about 42 dogs", "42", None),
        ("１２．５", "12.5", None),
    ],
)
def test_a_number_is_read_however_it_is_written(text, value, unit):
    found = parse_quantity(text)
    assert found is not None
    assert (found.value, found.unit) == (Fraction(value), unit)


@pytest.mark.parametrize(
    "text",
    ["", "yes", "nan", "inf", "1e999", "3 apples and 4 pears", "2019-2020", "10:30", "1/2", "Q3", "COVID-19",
     "4th", "3D", "5G", "a1", "1,234,56", "1.2.3", "1" * 201, "²"],
)  # fmt: skip
def test_what_is_not_one_number_is_not_read(text):
    assert parse_quantity(text) is None


def same(answer, reference, tolerance=0.0):
    left, right = parse_quantity(answer), parse_quantity(reference)
    assert left is not None and right is not None
    return same_number(left, right, tolerance)


def test_units_may_be_left_out_but_not_differ():
    assert same("5 kg", "5") and same("5", "5 kg") and same("5 kilograms", "5 kg")
    assert not same("5 kg", "5 km", 0.5)


def test_a_percentage_equals_either_reading_of_a_bare_number():
    assert same("45%", "45") and same("45%", "0.45") and same("0.45", "45%") and same("45", "45%")
    assert not same("45%", "4.5")


def test_the_edge_of_the_tolerance_is_exact():
    assert same("105", "100", 0.05) and same("95", "100", 0.05)
    assert same("0.105", "0.1", 0.05) and not same("0.10500001", "0.1", 0.05)
    assert same("130", "100", 0.3)  # the float 0.3 is a little less
    assert same("-95", "-100", 0.05) and not same("95", "-100", 0.05)


def test_a_reference_of_zero_allows_only_zero():
    assert same("0.0", "0", 0.05) and not same("0.001", "0", 0.05)


def test_the_two_layers_are_reported_apart():
    found = numeric_accuracy(
        ["5 kg", "1,000", "104", "106", "about ten", None, "YES "], ["5", "1000", "100", "100", "10", "4", "yes"]
    )
    assert found.exact.value == pytest.approx(3 / 6)
    assert found.relaxed.value == pytest.approx(4 / 6)
    assert (found.exact.n, found.exact.n_missing) == (6, 1)
    assert (found.n_text, found.n_unreadable) == (1, 1)
    assert str(found).startswith("exact 0.5000 [") and "relaxed to 5% 0.6667 [" in str(found)


def test_any_reference_may_match():
    assert numeric_accuracy(["7", "n/a"], [["6", "7"], ["12", "N/A"]]).exact.value == 1.0


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="tolerance"):
        numeric_accuracy(["1"], ["1"], 5.0)
    with pytest.raises(ValueError, match="2 answers for 1"):
        numeric_accuracy(["1", "2"], ["1"])
    for nothing in (([], []), ([None], ["1"])):
        with pytest.raises(NotEnoughData):
            numeric_accuracy(*nothing)


@given(st.integers(-(10**9), 10**9), st.integers(0, 999))
@settings(max_examples=100, deadline=None)
def test_every_format_of_a_number_is_the_same_number(whole, thousandths):
    value = Fraction(abs(whole)) + Fraction(thousandths, 1000)
    sign = "-" if whole < 0 else ""
    for text in (f"{abs(whole):,}.{thousandths:03d}", f"{abs(whole)}.{thousandths:03d}0"):
        found = parse_quantity(sign + text)
        assert found is not None and found.value == (-value if whole < 0 else value)
    swapped = f"{abs(whole):,}".replace(",", ".") + f",{thousandths:03d}"
    if abs(whole) >= 1000:
        found = parse_quantity(sign + swapped)
        assert found is not None and abs(found.value) == value


@given(st.text(max_size=250))
@settings(max_examples=150, deadline=None)
def test_no_text_breaks_the_reading(text):
    parse_quantity(text)


@given(st.lists(st.tuples(st.integers(-50, 50), st.integers(-50, 50)), min_size=1, max_size=10))
@settings(max_examples=60, deadline=None)
def test_relaxed_is_never_below_exact(pairs):
    found = numeric_accuracy([str(a) for a, _ in pairs], [str(r) for _, r in pairs])
    assert 0.0 <= found.exact.value <= found.relaxed.value <= 1.0
