"""Every attack on the hidden judge of replies: its control works, the attempt does not."""

import pytest

from red_team.taste_attacks import TASTE_ATTACKS


@pytest.mark.parametrize("attack", TASTE_ATTACKS, ids=lambda attack: attack.name.replace(" ", "-"))
def test_the_control_knows_the_judge_and_the_attempt_does_not(attack):
    assert attack.control(None).succeeded, "the control proves nothing"
    assert not attack.attempt(None).succeeded
