import pytest

from agent2.benchmarks.arithmetic.benchmark import continuous_reward, verify
from agent2.errors import ConfigError


def test_the_exact_reward_is_one_for_the_same_rational_only():
    assert verify("14/6", "7/3") == 1.0
    assert verify("2.33", "7/3") == 0.0
    assert verify("seven thirds", "7/3") == 0.0


@pytest.mark.parametrize(
    ("answer", "reference", "expected"),
    [
        ("10", "10", 1.0),
        ("10.5", "10", 1 - 0.25 - 0.5 * 0.05),
        ("15", "10", 1 - 0.5 - 0.25),
        ("100", "10", 0.0),
        ("0", "0", 1.0),
        ("1", "0", 0.0),
        ("words", "10", 0.0),
    ],
)
def test_the_continuous_reward_follows_its_formula(answer, reference, expected):
    assert continuous_reward(answer, reference) == pytest.approx(expected, abs=1e-7)


def test_a_reference_that_is_no_number_is_an_error_of_the_item():
    with pytest.raises(ConfigError, match="reference 'ten'"):
        verify("10", "ten")
    with pytest.raises(ConfigError, match="reference 'ten'"):
        continuous_reward("10", "ten")
