import pytest

from agent2.errors import SandboxError
from agent2.sandbox.process import CappedLog


def _written(path, limit: int, *parts: bytes) -> bytes:
    log = CappedLog(path, limit)
    for part in parts:
        log.write(part)
    log.close()
    assert log.fault is None
    return path.read_bytes()


def test_what_fits_is_kept_whole(tmp_path):
    assert _written(tmp_path / "log", 10, b"abc", b"", b"defghij") == b"abcdefghij"


@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_the_middle_is_dropped_and_counted(tmp_path, size):
    text = bytes(range(100))
    parts = [text[i : i + size] for i in range(0, 100, size)]
    written = _written(tmp_path / "log", 20, *parts)
    assert written == text[:10] + b"\n[agent2: 80 bytes left out here]\n" + text[-10:]


def test_the_beginning_is_on_disk_before_the_end(tmp_path):
    log = CappedLog(tmp_path / "log", 1000)
    log.write(b"alive")
    assert (tmp_path / "log").read_bytes() == b"alive"
    log.close()


def test_a_full_disk_is_told_and_does_not_stop_the_program():
    from pathlib import Path

    log = CappedLog(Path("/dev/full"), 1000)
    log.write(b"x")
    log.close()
    assert log.fault == "the log could not be written: No space left on device"


def test_a_log_in_a_missing_folder_is_refused(tmp_path):
    with pytest.raises(SandboxError, match="create its folder"):
        CappedLog(tmp_path / "none" / "log", 1000)
