import pytest

from agent2.benchmarks.arithmetic import verify
from agent2.errors import ConfigError


def test_the_exact_reward_is_one_for_the_same_rational_only():
    assert verify("14/6", "7/3") == 1.0
    assert verify("2.33", "7/3") == 0.0
    assert verify("seven thirds", "7/3") == 0.0


def test_a_reference_that_is_no_number_is_an_error_of_the_item():
    with pytest.raises(ConfigError, match="reference 'ten'"):
        verify("10", "ten")
