from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent2.scorers.answers import parse_quantity, same_number


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
        ("**42**", "42", None),
        ("`42`", "42", None),
        ("*42*", "42", None),
        ("__42__ apples", "42", None),
        (r"\boxed{42}", "42", None),
        (r"$\boxed{\text{42}}$", "42", None),
        (r"The answer is **$5**.", "5", "$"),
        (r"\$5", "5", "$"),
        (r"45\%", "45", "%"),
        ("$42$", "42", None),
        ("<b>42</b>", "42", None),
        ("1/2", "1/2", None),
        ("-3 / 4", "-3/4", None),
        ("2 1/2", "5/2", None),
        ("2½", "5/2", None),
        ("½", "1/2", None),
        (r"$\frac{1}{2}$", "1/2", None),
        ("about 1/2 of it", "1/2", None),
    ],
)
def test_a_number_is_read_however_it_is_written(text, value, unit):
    quantity = parse_quantity(text)
    assert quantity is not None
    assert (quantity.value, quantity.unit) == (Fraction(value), unit)


@pytest.mark.parametrize(
    "text",
    ["", "yes", "nan", "inf", "1e999", "3 apples and 4 pears", "2019-2020", "10:30", "1/2/2020", "1/0", "1/2 or 3",
     "5*3", "Q3", "COVID-19",
     "4th", "3D", "5G", "a1", "1,234,56", "1.2.3", "1" * 201, "²"],
)  # fmt: skip
def test_what_is_not_one_number_is_not_read(text):
    assert parse_quantity(text) is None


def same(answer, reference, tolerance=0.0):
    answer_quantity, reference_quantity = parse_quantity(answer), parse_quantity(reference)
    assert answer_quantity is not None and reference_quantity is not None
    return same_number(answer_quantity, reference_quantity, tolerance)


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


@given(st.integers(-(10**9), 10**9), st.integers(0, 999))
@settings(max_examples=100, deadline=None)
def test_every_format_of_a_number_is_the_same_number(whole, thousandths):
    value = Fraction(abs(whole)) + Fraction(thousandths, 1000)
    sign = "-" if whole < 0 else ""
    for text in (f"{abs(whole):,}.{thousandths:03d}", f"{abs(whole)}.{thousandths:03d}0"):
        quantity = parse_quantity(sign + text)
        assert quantity is not None and quantity.value == (-value if whole < 0 else value)
    swapped = f"{abs(whole):,}".replace(",", ".") + f",{thousandths:03d}"
    if abs(whole) >= 1000:
        quantity = parse_quantity(sign + swapped)
        assert quantity is not None and abs(quantity.value) == value


@given(st.text(max_size=250))
@settings(max_examples=150, deadline=None)
def test_no_text_breaks_the_reading(text):
    parse_quantity(text)
