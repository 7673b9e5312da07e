"""Every attack of the red team, for real: its control succeeds, and the attempt does not go unpunished."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from red_team.frame import Attack, Verdict, find_attacks, play
from red_team.moves import judge_loot
from red_team.scene import ProgramRun, set_scene

pytestmark = pytest.mark.slow

ATTACKS = find_attacks()
LONG = {
    "body of empty objects",
    "body of a gigabyte",
    "foreign model through a whole trial",
    "model that never stops",
    "slow clients",
    "template that loops",
    "recording of a billion items",
    "recording with a bomb",
    "ten thousand submissions",
    "weights that are no numbers",
}
"""Mostly because their controls have to hang for a while; `make red-team` plays them too."""
PLAYED = [
    pytest.param(attack, id=attack.name.replace(" ", "-"), marks=[pytest.mark.long_attack] * (attack.name in LONG))
    for attack in ATTACKS
]


@pytest.fixture(scope="module")
def scene():
    with TemporaryDirectory(prefix="red-") as place, pytest.MonkeyPatch.context() as patch:
        root = Path(place)  # short: it holds unix sockets, whose paths end at 107 characters
        root.chmod(0o755)  # sandboxes run as other users
        patch.setenv("AGENT2_HOME", str(root / "home"))
        with set_scene(root) as red_scene:
            yield red_scene


@pytest.mark.parametrize("attack", PLAYED)
def test_the_control_succeeds_and_the_attempt_does_not_escape(attack: Attack, scene):
    row = play(attack, scene)
    assert row.control.succeeded, f"the control proves nothing: {row.control.detail}"
    assert row.verdict is not Verdict.ESCAPED, row.attempt.detail


def test_a_program_that_breaks_down_says_nothing_about_the_defence(scene):
    with pytest.raises(RuntimeError, match="broke down"):
        judge_loot(scene, ProgramRun(None, "Traceback (most recent call last):\nValueError", 0.1))


def test_the_threat_model_lists_every_attack_and_no_other():
    page = (Path(__file__).parents[2] / "docs" / "threat-model.md").read_text()
    table = page.partition("## The red team's list")[2].partition("\n|---|---|---|\n")[2].partition("\n\n")[0]
    listed = [name.strip() for line in table.splitlines() for name in line.split("|")[1].split(",")]
    assert sorted(listed) == sorted(attack.name for attack in ATTACKS)
    assert len(ATTACKS) >= 90
