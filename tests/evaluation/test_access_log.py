import json

import pytest

from agent2.errors import ConfigError
from agent2.evaluation.access_log import Access, access_log, check_access_log, log_access


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))


def access(**changes):
    fields = {"is_granted": True, "split": "test_private", "role": "candidate", "suite": "s-v1.0"}
    rest = {"suite_digest": "d", "checkpoint": "new", "baseline": "old", "out": "somewhere"}
    return Access(**{**fields, **rest, **changes})


def entries():
    return [json.loads(line) for line in access_log().read_text().splitlines()]


def test_every_request_is_one_more_line_granted_or_not():
    log_access(access())
    log_access(access(is_granted=False, role="dev", reason="needs --role candidate"))
    first, second = entries()
    assert (first["is_granted"], first["checkpoint"], first["split"]) == (True, "new", "test_private")
    assert (second["is_granted"], second["reason"]) == (False, "needs --role candidate")
    assert first["at"] <= second["at"] and first["user"]
    assert check_access_log(access_log()) == []


def test_only_the_user_may_read_the_log():
    assert log_access(access()).stat().st_mode & 0o077 == 0


def test_a_changed_a_missing_and_a_torn_line_show():
    for name in ("a", "b", "c"):
        log_access(access(checkpoint=name))
    lines = access_log().read_bytes().splitlines(keepends=True)
    access_log().write_bytes(lines[0].replace(b'"checkpoint": "a"', b'"checkpoint": "x"') + lines[1] + lines[2])
    assert check_access_log(access_log()) == [f"{access_log()}:2: does not follow the line before it"]
    access_log().write_bytes(lines[0] + lines[2])
    assert check_access_log(access_log()) == [f"{access_log()}:2: does not follow the line before it"]
    access_log().write_bytes(lines[0] + lines[1][:20])
    log_access(access())
    assert check_access_log(access_log()) == [f"{access_log()}:2: is no entry"]


def test_no_log_has_no_problems(tmp_path):
    assert check_access_log(tmp_path / "none") == []


def test_without_its_log_nothing_may_be_shown(tmp_path):
    access_log().mkdir()
    with pytest.raises(ConfigError, match="private items need their access log"):
        log_access(access())
