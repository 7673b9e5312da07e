import os
import subprocess
import sys
from pathlib import Path

import pytest

import agent2
from agent2.errors import SandboxError
from agent2.sandbox import host


def test_the_toolkit_covers_interpreter_packages_and_this_package():
    import agent2

    binds = [Path("/usr"), *host.toolkit_binds()]
    for needed in (sys.prefix, sys.base_prefix, host.interpreter(), psutil_folder(), Path(agent2.__file__).parent):
        assert any(Path(needed).is_relative_to(bind) for bind in binds), needed


def psutil_folder() -> Path:
    import psutil

    return Path(psutil.__file__).parent


def test_no_bind_lies_in_another():
    binds = host.toolkit_binds()
    assert not [(a, b) for a in binds for b in binds if a != b and a.is_relative_to(b)]


def test_a_toolkit_installed_into_the_home_folder_itself_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path))
    with pytest.raises(SandboxError, match="install agent2 into a virtual environment"):
        host.interpreter_binds()


def test_private_files_in_a_bind_are_refused_and_links_are_not_followed(tmp_path):
    tmp_path.chmod(0o755)
    (tmp_path / "link").symlink_to("/etc/shadow")
    (tmp_path / "open").write_text("x")
    (tmp_path / "open").chmod(0o644)
    host.refuse_unreadable([tmp_path], "a mount")
    (tmp_path / "weights").write_text("x")
    (tmp_path / "weights").chmod(0o600)
    with pytest.raises(SandboxError, match=r"weights: mode 0600 .*\(a mount\); run: chmod -R o\+rX"):
        host.refuse_unreadable([tmp_path], "a mount")


def test_the_system_is_named_folders_and_a_few_files_of_etc():
    paths = [path for _, path in host.system_binds()]
    assert "/usr" in paths
    assert "/etc" not in paths and "/etc/shadow" not in paths
    assert "root" not in host.etc_files(1000)["/etc/passwd"]


def test_an_environment_below_the_temporary_folder_is_seen_inside(make_sandbox, tmp_path):
    """Checkouts under /tmp are common; /tmp itself is another, empty one inside."""
    environment = tmp_path / "deep" / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    tmp_path.joinpath("beside.txt").write_text("not for the program")
    for folder in (tmp_path, tmp_path / "deep"):
        folder.chmod(0o755)
    program = f"""
import sys
from pathlib import Path
from agent2.sandbox.backends import Bubblewrap
from agent2.sandbox.spec import SandboxSpec
work = Path({str(tmp_path / "work")!r})
sandbox = Bubblewrap()
sandbox.prepare_workspace(work)
look = "import os, sys; print(sys.prefix, os.listdir({str(tmp_path)!r}))"
process = sandbox.start(SandboxSpec(("python", "-c", look), work, Path({str(tmp_path / "log")!r})))
sys.exit(process.wait(120).code)
"""
    packages = os.pathsep.join([str(Path(agent2.__file__).parent.parent), *(p for p in sys.path if "-packages" in p)])
    ended = subprocess.run(
        [environment / "bin" / "python", "-c", program], env={**os.environ, "PYTHONPATH": packages}, check=False
    )
    assert (tmp_path / "log").read_text() == f"{environment} ['deep']\n"
    assert ended.returncode == 0
