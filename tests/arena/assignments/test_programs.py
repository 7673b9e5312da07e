from pathlib import Path

import pytest

from agent2.arena.assignments.programs import judge_gain, read_program

PLACE = Path("code") / "pipeline"


def test_weights_links_and_a_missing_entry_are_no_program(tmp_path: Path):
    folder = tmp_path / PLACE
    folder.mkdir(parents=True)
    with pytest.raises(ValueError, match=r"train\.py is gone"):
        read_program(tmp_path, PLACE)
    (folder / "train.py").write_text("pass")
    (folder / "model.safetensors").write_bytes(b"0" * 100_000)
    assert list(read_program(tmp_path, PLACE)) == ["train.py"]
    (folder / "weights.json").write_text("0" * 70_000)
    with pytest.raises(ValueError, match="64 KiB"):
        read_program(tmp_path, PLACE)
    (folder / "weights.json").unlink()
    (folder / "weights.json").symlink_to("/etc/hostname")
    with pytest.raises(OSError):
        read_program(tmp_path, PLACE)
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="not a folder"):
        read_program(tmp_path, PLACE)


def test_the_gain_has_to_leave_the_noise_band_and_a_healthy_one_too():
    assert judge_gain("repair", "the healthy pipeline", 0.02, 0.2, 0.03).credit == 0.0
    assert judge_gain("repair", "the healthy pipeline", -0.1, 0.2, 0.03).credit == 0.0
    assert judge_gain("repair", "the healthy pipeline", 0.1, 0.2, 0.03).credit == pytest.approx(0.5)
    assert judge_gain("repair", "the healthy pipeline", 0.3, 0.2, 0.03).credit == 1.0
    assert (
        judge_gain("repair", "the healthy pipeline", 0.1, 0.02, 0.03).credit is None
    )  # nothing to compare with: not a zero
