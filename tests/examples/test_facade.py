import runpy
from pathlib import Path

import pytest

from trial_builders import write_task

EXAMPLE = Path(__file__).parents[2] / "examples" / "facade.py"


@pytest.mark.slow
def test_the_facade_example_trains_and_reads_its_feedback(common_home, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("AGENT2_HOME", str(common_home))
    feedback = runpy.run_path(str(EXAMPLE))["main"](str(write_task(tmp_path)), tmp_path / "trials")
    assert feedback["agent_end"] == "exited", feedback["log_tail"]
    assert [submission["state"] for submission in feedback["submissions"]] == ["scored"]
    assert feedback["route"] == "SFT only"
    assert "gain on private items" in capsys.readouterr().out
