import math

import msgspec
import pytest

from agent2.stats.comparisons import verdict_difference
from agent2.stats.estimates import Estimate, PairedDifference, wilson
from agent2.stats.stored import UNRECORDED, read_difference, read_estimate

FLAT = {"value": 0.5, "low": 0.25, "high": 0.75, "n_items": 8, "n_missing": 1, "card": "cards/base"}


def through_json(record):
    return msgspec.json.decode(msgspec.json.encode(record))


@pytest.mark.parametrize(
    "estimate", [wilson(3, 7), Estimate(1 / 3, None, None, 1, 2, "no interval"), Estimate(0.1 + 0.2, -math.pi, 9.0, 4)]
)
def test_an_estimate_comes_back_as_it_was(estimate):
    assert read_estimate(through_json(estimate)) == estimate


def test_a_paired_difference_comes_back_as_it_was():
    for pair in (
        verdict_difference(40, 9, 2, 3),
        PairedDifference(Estimate(0.1, 0.0, 0.2, 5, 0, "paired t"), 0.04, "items and training seeds", sd=0.3),
    ):
        assert read_difference(through_json(pair)) == pair


def test_flat_fields_of_an_earlier_version_are_the_same_numbers_and_invent_no_method():
    assert read_estimate(FLAT) == Estimate(0.5, 0.25, 0.75, 8, 1, UNRECORDED)
    gain = {"delta": 0.5, "low": 0.25, "high": 0.75, "n_items": 8, "n_missing": 1, "p_value": 0.01}
    assert read_difference(gain) == PairedDifference(Estimate(0.5, 0.25, 0.75, 8, 1, UNRECORDED), 0.01)


def test_a_stored_method_is_kept():
    assert read_estimate({**FLAT, "method": "Wilson"}).method == "Wilson"


def test_nothing_stored_is_nothing():
    assert (read_estimate(None), read_estimate({}), read_difference(None)) == (None, None, None)


@pytest.mark.parametrize("damage", [{"value": None}, {"value": "0.5"}, {"low": 0.9}, {"low": None}, {"n_items": 0.5}])
def test_a_number_that_cannot_be_is_an_error(damage):
    with pytest.raises(ValueError):
        read_estimate({**FLAT, **damage})
    with pytest.raises(ValueError):
        read_difference({**FLAT, **damage, "p_value": 0.5})


def test_a_missing_field_is_an_error():
    with pytest.raises(ValueError, match="n"):
        read_estimate({"value": 0.5, "low": 0.25, "high": 0.75})
