"""The back end that contains nothing, and says so."""

import os
import socket
import threading
import time
from pathlib import Path

import psutil
import pytest

from agent2.errors import SandboxError
from agent2.sandbox.backends import Unsandboxed, free_port
from agent2.sandbox.process import SandboxProcess
from agent2.sandbox.spec import Limits, Mount, SandboxSpec, Strength
from process_looks import outlived
from socket_paths import short_path


def _start(folder, *command: str, **parts) -> SandboxProcess:
    (folder / "workspace").mkdir(exist_ok=True)
    return Unsandboxed().start(SandboxSpec(command, folder / "workspace", folder / "log", **parts))


def test_every_promise_is_none():
    rows = Unsandboxed().containment(Limits())
    assert len(rows) == 9
    assert {row.strength for row in rows} == {Strength.NONE}


def test_the_environment_is_still_an_allow_list(tmp_path, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-private")
    _start(tmp_path, "env", environment={"TASK": "arithmetic"}).wait(120)
    names = {line.split("=")[0] for line in (tmp_path / "log").read_text().splitlines()}
    assert names == {"HOME", "LANG", "LOGNAME", "PATH", "PWD", "SHELL", "TASK", "TMPDIR", "USER"}


def test_inside_paths_become_host_paths(tmp_path):
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "config.json").write_text("{}")
    process = _start(
        tmp_path,
        *("sh", "-c", "pwd; echo $OUT; cat $1", "sh", "/models/base/config.json"),
        environment={"OUT": "/workspace/output"},
        mounts=(Mount(tmp_path / "base", "/models/base"),),
    )
    process.wait(120)
    workspace = tmp_path / "workspace"
    assert (tmp_path / "log").read_text() == f"{workspace}\n{workspace}/output\n{{}}"
    assert Unsandboxed().visible_path(workspace, "/workspace") == str(workspace)


@pytest.mark.parametrize("folder", ["run", "f" * 120], ids=["short", "longer-than-a-socket-path-may-be"])
def test_a_listed_port_answers_on_loopback(tmp_path, monkeypatch, folder):
    path = tmp_path / folder / "grader.sock"
    path.parent.mkdir()
    port = free_port()
    with socket.socket(socket.AF_UNIX) as server:
        monkeypatch.chdir(path.parent)  # a path of a socket has at most 107 bytes
        server.bind(path.name)
        server.listen()
        threading.Thread(target=lambda: server.accept()[0].sendall(b"score 1\n"), daemon=True).start()
        program = f"import socket; print(socket.create_connection(('127.0.0.1', {port}), 100).recv(100))"
        _start(tmp_path, "python", "-c", program, ports={port: path}).wait(120)
    assert (tmp_path / "log").read_text() == "b'score 1\\n'\n"


def test_a_server_that_is_gone_is_named_in_the_log(tmp_path):
    """The program sees a closed connection only; why is on its standard error."""
    path = tmp_path / "grader.sock"
    port = free_port()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(short_path(path))  # and never listens
        program = f"import socket; print(socket.create_connection(('127.0.0.1', {port}), 100).recv(100))"
        _start(tmp_path, "python", "-c", program, ports={port: path}).wait(120)
    assert "the server behind a port cannot be reached: [Errno 111]" in (tmp_path / "log").read_text()


def test_a_free_port_is_none_that_a_client_of_the_host_can_be_given():
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = {free_port() for _ in range(20)}
    assert len(ports) > 10
    assert all(1024 <= port < max(first, 2048) for port in ports)


def test_a_taken_port_is_an_error_that_names_it(tmp_path):
    path = tmp_path / "grader.sock"
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.socket(socket.AF_UNIX) as server:
        server.bind(short_path(path))
        port = taken.getsockname()[1]
        with pytest.raises(SandboxError, match=rf"port {port}.*in use"):
            _start(tmp_path, "true", ports={port: path})


def test_exit_codes_pass_through_and_leftovers_end(tmp_path):
    process = _start(tmp_path, "sh", "-c", "setsid sleep 613 & echo $!; exit 5")
    end = process.wait(120)
    assert end is not None and end.code == 5
    pid = int((tmp_path / "log").read_text())
    assert not os.path.exists(f"/proc/{pid}")


def test_stop_kills_a_program_that_ignores_sigterm(tmp_path):
    process = _start(tmp_path, "sh", "-c", "trap '' TERM; touch up; while :; do sleep 0.05; done")
    deadline = time.monotonic() + 120
    while not (tmp_path / "workspace" / "up").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    end = process.stop(0.3)
    assert end.code == 137 and "killed" in end.reason


def test_what_serves_the_ports_ends_with_a_killed_parent(tmp_path):
    program = "print('up', flush=True); import time; time.sleep(600)"
    path = tmp_path / "grader.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(short_path(path))
        process = _start(tmp_path, "python", "-c", program, ports={free_port(): path})
        try:
            while "up" not in (tmp_path / "log").read_text():
                assert process.wait(0.1) is None, (tmp_path / "log").read_text()
            outer = psutil.Process(process.pid)
            children = outer.children()
            assert len(children) == 2, "the program, and what serves its port"
            outer.kill()  # as its own end with the harness would
            assert not outlived(children)
        finally:
            process.stop(0)
