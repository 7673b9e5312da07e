"""Each check of the audit ends alone: one that hangs, dies or breaks takes nothing from the others."""

import os
import time

import pytest

from agent2.arena import audit_child
from agent2.arena.audit_child import _contained, _Part
from agent2.errors import CheckpointError
from agent2.integrity import Effect, IntegrityCheck


def hang():
    time.sleep(600)


def die():
    os.kill(os.getpid(), 9)


def refuse():
    raise CheckpointError("x: no model")


def divide():
    return [1 / 0]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (hang, "did not end within 1 seconds"),
        (die, "the process of this check died (signal 9)"),
        (refuse, "submission 2 cannot be read: x: no model"),
        (divide, "this check broke (ZeroDivisionError"),
    ],
)
def test_a_check_that_does_not_end_says_so_and_clears_nothing(make, reason):
    (check,) = _contained(_Part("provenance", "submission 2", 60, make), 1.0 if make is hang else 60.0)
    (finding,) = check.findings
    assert not check.is_complete and reason in finding.words
    assert (finding.name, finding.effect, finding.subject) == (
        "provenance not checked",
        Effect.UNCLEARED,
        "submission 2",
    )


def test_a_check_that_a_result_does_not_need_leaves_it_cleared_where_it_fails():
    (check,) = _contained(_Part("direction", "submission 2", 60, refuse, is_needed=False), 60.0)
    assert (check.findings, check.is_complete, check.subject) == ((), False, "submission 2")
    assert "submission 2 cannot be read: x: no model" in check.looked_at


def test_the_time_of_the_audit_is_shared_and_what_comes_too_late_is_told(monkeypatch):
    quick = _Part("provenance", "submission 1", 60, lambda: [IntegrityCheck("provenance", "looked")])
    late = _Part("drift", "submission 9", 60, lambda: [IntegrityCheck("drift", "looked")])
    monkeypatch.setattr(audit_child, "_parts", lambda job: iter([quick, late]))
    assert [check.name for check in audit_child.run(None)] == ["provenance", "drift"]
    monkeypatch.setattr(audit_child, "CHECKING_S", 0.0)
    findings = [finding for check in audit_child.run(None) for finding in check.findings]
    assert [(f.effect, f.subject) for f in findings] == [
        (Effect.UNCLEARED, "submission 1"),
        (Effect.UNCLEARED, "submission 9"),
    ]
