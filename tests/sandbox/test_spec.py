import socket

import pytest

from agent2.errors import SandboxError
from agent2.sandbox.spec import Limits, Mount, SandboxSpec, check_spec, refuse_hidden
from socket_paths import short_path


def _spec(folder, **parts) -> SandboxSpec:
    return SandboxSpec(**{"command": ("true",), "workspace": folder, "log": folder / "log", **parts})


def test_a_sound_spec_passes(tmp_path):
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(short_path(path))
        check_spec(_spec(tmp_path, ports={8000: path}, mounts=(Mount(tmp_path, "/models/base"),)))


@pytest.mark.parametrize(
    "inside", ["models", "/", "/models/../etc", "/workspace/base", "/proc/x", "/run/agent2", "/usr"]
)
def test_a_mount_at_a_place_that_is_taken_or_no_path_is_refused(tmp_path, inside):
    with pytest.raises(SandboxError, match=r"choose another|write it as"):
        check_spec(_spec(tmp_path, mounts=(Mount(tmp_path, inside),)))


@pytest.mark.parametrize("folder", ["/usr/lib/python3/dist-packages/agent2", "/tmp/agent2", "/home/agent/.venv"])
def test_only_a_mount_that_covers_what_is_shown_may_be_where_an_environment_may_be(tmp_path, folder):
    check_spec(_spec(tmp_path, mounts=(Mount(tmp_path, folder, covers=True),)))
    with pytest.raises(SandboxError, match="which is taken"):
        check_spec(_spec(tmp_path, mounts=(Mount(tmp_path, folder),)))
    with pytest.raises(SandboxError, match="which is taken"):
        check_spec(_spec(tmp_path, mounts=(Mount(tmp_path, "/workspace/agent2", covers=True),)))


def test_parts_that_do_not_exist_are_named(tmp_path):
    with pytest.raises(SandboxError, match=r"gone does not exist"):
        check_spec(_spec(tmp_path, mounts=(Mount(tmp_path / "gone", "/models/base"),)))
    with pytest.raises(SandboxError, match=r"gone is not a directory"):
        check_spec(_spec(tmp_path / "gone"))
    with pytest.raises(SandboxError, match=r"port 8000: .*gone is not a unix socket"):
        check_spec(_spec(tmp_path, ports={8000: tmp_path / "gone"}))


def test_an_empty_command_a_privileged_port_and_a_broken_variable_are_refused(tmp_path):
    with pytest.raises(SandboxError, match="empty command"):
        check_spec(_spec(tmp_path, command=()))
    with pytest.raises(SandboxError, match="port 80 "):
        check_spec(_spec(tmp_path, ports={80: tmp_path}))
    with pytest.raises(SandboxError, match="'A=B'"):
        check_spec(_spec(tmp_path, environment={"A=B": "x"}))


@pytest.mark.parametrize("value", [0, -1.0, float("nan")])
def test_a_limit_must_be_above_zero(value):
    with pytest.raises(SandboxError, match="memory_gib"):
        Limits(memory_gib=value)


def test_a_hidden_file_is_found_behind_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(SandboxError, match="would show"):
        refuse_hidden(tmp_path / "real", (tmp_path / "link" / "secret",))
    refuse_hidden(tmp_path / "real", (tmp_path / "other",))
