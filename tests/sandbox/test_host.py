"""Hosts that refuse to contain anything: one sentence that says what to do."""

import errno
import os
from pathlib import Path

import pytest

from agent2.errors import SandboxError
from agent2.sandbox.backends import Bubblewrap
from agent2.sandbox.host import bwrap_version, explain_refusal, in_memory, probe, uid_for
from agent2.sandbox.spec import SandboxSpec

NO_NAMESPACES = (
    "bwrap: No permissions to create new namespace, likely because the kernel does not allow non-privileged user "
    "namespaces. On e.g. debian this can be enabled with 'sysctl kernel.unprivileged_userns_clone=1'."
)


def _bwrap(folder: Path, version: str = "bubblewrap 0.8.0", refusal: str = NO_NAMESPACES) -> str:
    program = folder / "bwrap"
    program.write_text(
        f'#!/bin/sh\nif [ "$1" = --version ]; then echo "{version}"; exit; fi\necho "{refusal}" >&2\nexit 1\n'
    )
    program.chmod(0o755)
    return str(program)


def _settings(folder: Path, **values: str):
    for name, value in values.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(value + "\n")
    return folder.joinpath


@pytest.mark.parametrize("as_root", [True, False])
def test_a_refusing_host_gets_one_sentence_with_the_way_out(tmp_path, as_root):
    sandbox = Bubblewrap(_bwrap(tmp_path), as_root=as_root)
    (tmp_path / "w").mkdir()
    with pytest.raises(
        SandboxError, match=r"this host refuses namespaces \(bwrap: No perm.*--set sandbox=none"
    ) as caught:
        sandbox.start(SandboxSpec(("true",), tmp_path / "w", tmp_path / "log"))
    assert "\n" not in str(caught.value)


def test_a_missing_bubblewrap_names_the_package():
    with pytest.raises(SandboxError, match=r"not installed .*apt install bubblewrap.*--set sandbox=none"):
        Bubblewrap("/no/such/bwrap").require()


def test_an_old_bubblewrap_names_the_version_that_is_needed(tmp_path):
    with pytest.raises(SandboxError, match=r"version 0\.6\.1, 0\.7 or newer"):
        Bubblewrap(_bwrap(tmp_path, "bubblewrap 0.6.1")).require()


def test_a_program_that_is_no_bubblewrap_is_not_trusted(tmp_path):
    with pytest.raises(SandboxError, match="--version said"):
        bwrap_version(_bwrap(tmp_path, "hello"))


def test_a_working_host_passes_the_probe(make_sandbox):
    make_sandbox(False)
    probe("bwrap", as_root=False)


def test_each_setting_has_its_own_advice(tmp_path):
    clone = _settings(tmp_path / "a", kernel__unprivileged_userns_clone="0")
    assert "kernel.unprivileged_userns_clone=1" in explain_refusal(NO_NAMESPACES, clone)
    armor = _settings(tmp_path / "b", kernel__apparmor_restrict_unprivileged_userns="1")
    assert "apparmor" in explain_refusal("bwrap: setting up uid map: Permission denied", armor)
    none = _settings(tmp_path / "c", user__max_user_namespaces="0")
    assert "user.max_user_namespaces" in explain_refusal("bwrap: Creating new namespace failed", none)
    open_host = _settings(tmp_path / "d", user__max_user_namespaces="1000")
    assert "seccomp=unconfined" in explain_refusal("bwrap: Creating new namespace failed", open_host)
    masked = "bwrap: Can't mount proc on /newroot/proc: Operation not permitted"
    assert "systempaths=unconfined" in explain_refusal(masked, open_host)


def test_a_workspace_keeps_its_user_and_others_have_another(tmp_path):
    assert uid_for(tmp_path / "a") == uid_for(tmp_path / "." / "a")
    assert uid_for(tmp_path / "a") != uid_for(tmp_path / "b")


def test_input_is_given_where_files_in_memory_are_refused(monkeypatch):
    def refused(*_):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(os, "memfd_create", refused)
    descriptor = in_memory("stdin", b"job" * 100_000)
    assert os.lseek(descriptor, 0, os.SEEK_CUR) == 0
    assert os.read(descriptor, 400_000) == b"job" * 100_000
    os.close(descriptor)
