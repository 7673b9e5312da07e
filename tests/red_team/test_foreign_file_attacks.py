"""Every attack by a stranger's file: its control reads it and is harmed, the command is not."""

import pytest

from red_team.foreign_file_attacks import FOREIGN_FILE_ATTACKS

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("attack", FOREIGN_FILE_ATTACKS, ids=lambda attack: attack.name.replace(" ", "-"))
def test_the_control_is_harmed_and_the_command_is_not(attack):
    control, attempt = attack.control(None), attack.attempt(None)
    assert control.succeeded, f"the control proves nothing: {control.detail}"
    assert not attempt.succeeded, attempt.detail


def test_there_are_enough_of_them_and_their_names_differ():
    assert len({attack.name for attack in FOREIGN_FILE_ATTACKS}) == len(FOREIGN_FILE_ATTACKS) >= 20
