"""Limits by systemd: the exact command, and that the sandbox runs behind it. systemd itself is a stand-in here."""

import json
import os
import shutil

import pytest

from agent2.sandbox.backends import Bubblewrap
from agent2.sandbox.limits import SystemdScope, enforced_by, scopes_unusable
from agent2.sandbox.spec import Limits, SandboxSpec, Strength


@pytest.fixture
def systemd(tmp_path, monkeypatch):
    """A systemd-run that writes down what it was asked, and becomes the program, as the real one does."""
    program = tmp_path / "bin" / "systemd-run"
    program.parent.mkdir()
    program.write_text(
        "#!/usr/bin/env python3\nimport json, os, sys\n"
        f"json.dump(sys.argv[1:], open({str(tmp_path / 'asked')!r}, 'w'))\n"
        "rest = sys.argv[sys.argv.index('--') + 1:]\nos.execvp(rest[0], rest)\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    manager = tmp_path / "manager"
    manager.mkdir()
    monkeypatch.setattr("agent2.sandbox.limits.MANAGER", manager)
    monkeypatch.setenv("AGENT2_CGROUP", "/no-such-group")
    return manager


def test_without_systemd_there_is_no_scope(tmp_path):
    assert scopes_unusable(tmp_path / "no-manager") == "systemd does not run this machine"


def test_as_root_the_systems_manager_is_asked(systemd):
    assert scopes_unusable(systemd, as_root=True) is None
    scope = SystemdScope(Limits(memory_gib=2, processes=100), as_root=True)
    argv = scope.command()
    assert argv[:4] == ("systemd-run", "--scope", "--quiet", "--collect")
    assert argv[4].startswith("--unit=agent2-")
    assert argv[5:] == ("-p", "MemoryMax=2147483648", "-p", "MemorySwapMax=0", "-p", "TasksMax=104", "--")
    assert SystemdScope(Limits(), as_root=False).command()[:2] == ("systemd-run", "--user")


def test_a_user_without_a_manager_is_told_how_to_get_one(systemd, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "none"))
    assert "enable-linger" in str(scopes_unusable(systemd, as_root=False))
    (tmp_path / "none" / "systemd").mkdir(parents=True)
    monkeypatch.setattr("os.getuid", lambda: 4_000_001)
    assert "Delegate=memory pids" in str(scopes_unusable(systemd, as_root=False))


def test_a_program_runs_in_a_scope_where_groups_are_not_ours(systemd, tmp_path, make_sandbox):
    make_sandbox(False)
    sandbox = Bubblewrap()
    if not sandbox.drops_user:
        pytest.skip("the user's manager cannot be stood in for")
    assert enforced_by(True) == {"memory": "systemd scope", "pids": "systemd scope"}
    rows = {row.aspect: row for row in sandbox.containment(Limits(memory_gib=3))}
    assert (rows["memory"].strength, rows["memory"].how) == (Strength.HARD, "systemd scope of 3 GiB")
    sandbox.prepare_workspace(tmp_path / "workspace")
    process = sandbox.start(SandboxSpec(("sh", "-c", "echo up; exit 3"), tmp_path / "workspace", tmp_path / "log"))
    end = process.wait(120)
    assert end is not None and end.code == 3
    assert (tmp_path / "log").read_text() == "up\n"
    argv = json.loads((tmp_path / "asked").read_text())
    assert "--scope" in argv and "MemoryMax=8589934592" in argv


def test_counters_are_read_while_they_are_there(tmp_path):
    scope = SystemdScope(Limits(), as_root=True)
    scope._folder = tmp_path
    scope.look()
    assert scope.broke() is None
    (tmp_path / "memory.events").write_text("low 0\noom_kill 2\n")
    scope.look()
    shutil.rmtree(tmp_path)
    scope.look()
    assert scope.broke() == "memory"
