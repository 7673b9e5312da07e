"""What a program reaches under each network policy; the registry is a small server of this test."""

import contextlib
import hashlib
import http.server
import io
import json
import socket
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import psutil
import pytest
from pydantic import ValidationError

from agent2.errors import SandboxError
from agent2.sandbox.network import PORT, OpenLaunch, ProxyRefusal, _destination, is_public
from agent2.sandbox.spec import DEFAULT_REGISTRIES, Network, PackageSettings, Registry, find_target, inside_address
from socket_paths import short_path

WHEEL = "greeting-1.0-py3-none-any.whl"


def _wheel() -> bytes:
    info = "greeting-1.0.dist-info"
    files = {
        "greeting.py": "WORDS = 'hello from the index'\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return packed.getvalue()


class _Index(http.server.BaseHTTPRequestHandler):
    """A package index, a file store, and places where no program from inside may come."""

    requests: list[str]

    def do_GET(self) -> None:
        self.requests.append(f"{self.command} {self.path}")
        wheel, origin = _wheel(), f"http://{self.headers['Host']}"
        digest = hashlib.sha256(wheel).hexdigest()
        page = f'<a href="{origin}/packages/{WHEEL}#sha256={digest}">{WHEEL}</a>'.encode()
        if self.path == "/simple/greeting/":
            self._answer(200, page, "text/html")
        elif self.path == f"/packages/{WHEEL}":
            self._answer(200, wheel, "application/octet-stream")
        elif self.path == "/packages/large":
            self._answer(200, bytes(3_000_000), "application/octet-stream")
        elif self.path.startswith("/packages/moved"):
            self._redirect("/packages/large" if self.path.endswith("in") else "/private/answers")
        elif self.path == "/private/answers":
            self._answer(200, b"hidden", "text/plain")
        else:
            self._answer(404, b"", "text/plain")

    do_HEAD = do_GET

    def do_POST(self) -> None:
        self.requests.append(f"{self.command} {self.path}")
        self._answer(200, b"uploaded", "text/plain")

    do_PUT = do_DELETE = do_POST

    def _redirect(self, place: str) -> None:
        self.send_response(302)
        self.send_header("Location", place)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _answer(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def index():
    """(origin, requests seen so far)."""
    requests: list[str] = []
    handler = type("Index", (_Index,), {"requests": requests})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", requests
    server.shutdown()
    server.server_close()


def _settings(origin: str, **parts) -> PackageSettings:
    registries = (
        Registry(name="pypi", origin=origin, prefix="/simple/", is_index=True),
        Registry(name="pypi-files", origin=origin, prefix="/packages/"),
    )
    return PackageSettings(registries=registries, **parts)


ASK = """
import http.client, sys, urllib.request, urllib.error
for word in sys.argv[1:]:
    method, _, path = word.partition(" ")
    request = urllib.request.Request("http://127.0.0.1:8431" + path, method=method)
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            print(answer.status, len(answer.read()))
    except urllib.error.HTTPError as error:
        print(error.code, error.read().decode()[:150])
    except (OSError, http.client.HTTPException) as error:
        print(type(error).__name__)
"""


@pytest.mark.slow
def test_pip_installs_from_an_allowed_index_and_the_record_says_what(runner, index):
    origin, _ = index
    script = (
        "python -m pip install -q --no-input --target /workspace/lib greeting && "
        "PYTHONPATH=/workspace/lib python -c 'import greeting; print(greeting.WORDS)'"
    )
    outcome = runner.run("sh", "-c", script, network=Network.PACKAGES, packages=_settings(origin))
    assert outcome.log.endswith("hello from the index\n"), outcome.log
    rows = _record(runner.log)
    assert [(row["method"], row["url"].removeprefix(origin), row["status"]) for row in rows] == [
        ("GET", "/simple/greeting/", 200),
        ("GET", f"/packages/{WHEEL}", 200),
    ]
    assert rows[1]["bytes"] == len(_wheel())


def test_without_the_policy_pip_reaches_nothing(default_runner, index):
    _, requests = index
    outcome = default_runner.run("sh", "-c", "python -m pip install -q --no-input --retries 0 greeting")
    assert outcome.end.code != 0
    assert requests == []


def test_only_reading_below_an_allowed_prefix_is_possible(default_runner, index):
    origin, requests = index
    attempts = [
        "GET /pypi-files/large",
        "POST /pypi/greeting/",
        "PUT /pypi-files/x",
        "DELETE /pypi-files/large",
        "GET /private/answers",
        "GET /pypi/../private/answers",
        "GET /pypi/%2e%2e/private/answers",
        "GET /pypi-files/moved-out",
        "GET /pypi-files/moved-in",
        "HEAD /pypi-files/large",
    ]
    outcome = default_runner.python_with(ASK, attempts, network=Network.PACKAGES, packages=_settings(origin))
    lines = outcome.log.splitlines()
    assert [line.split()[0] for line in lines] == ["200", "405", "405", "405", "403", "403", "403", "403", "200", "200"]
    assert "redirects to" in lines[7]
    assert not [line for line in requests if "private" in line or not line.startswith(("GET", "HEAD"))]
    refused = [row for row in _record(default_runner.log) if "refused" in row]
    assert len(refused) == 7


def test_an_answer_beyond_the_limit_is_refused(default_runner, index):
    origin, _ = index
    settings = _settings(origin, max_file_mib=1.0)
    outcome = default_runner.python_with(ASK, ["GET /pypi-files/large"], network=Network.PACKAGES, packages=settings)
    assert outcome.log.startswith("403") and "more than the limit" in outcome.log


def test_all_answers_together_are_limited(default_runner, index):
    origin, _ = index
    settings = _settings(origin, max_total_gib=0.004)
    attempts = ["GET /pypi-files/large"] * 3
    outcome = default_runner.python_with(ASK, attempts, network=Network.PACKAGES, packages=settings)
    lines = outcome.log.splitlines()
    assert lines[0] == "200 3000000"
    assert not lines[1].startswith("200 3000000")
    assert lines[2].startswith("403")


def test_loopback_of_the_host_stays_out_of_reach_under_every_policy(default_runner, index):
    origin, requests = index
    program = f"""
import urllib.request
for proxies in [{{}}, {{"http": "http://127.0.0.1:{PORT}"}}]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler(proxies))
    try:
        print(opener.open("{origin}/private/answers", timeout=120).read())
    except OSError as error:
        print("refused")
"""
    for policy in Network:
        outcome = default_runner.python(program, network=policy, packages=_settings(origin))
        assert outcome.log == "refused\nrefused\n", policy
    assert requests == []


def test_an_open_network_tells_programs_its_proxy_and_records_hosts(default_runner):
    program = f"""
import os, socket
print(os.environ["HTTPS_PROXY"], os.environ["no_proxy"])
for head in [b"CONNECT 10.0.0.1:443 HTTP/1.1", b"CONNECT 169.254.169.254:80 HTTP/1.1", b"GET / HTTP/1.1", b"x"]:
    with socket.create_connection(("127.0.0.1", {PORT}), 120) as link:
        link.sendall(head + b"\\r\\n\\r\\n")
        print(link.recv(1000).split(b"\\r\\n")[0].decode())
"""
    outcome = default_runner.python(program, network=Network.OPEN)
    assert outcome.log.splitlines() == [
        f"http://127.0.0.1:{PORT} 127.0.0.1,localhost",
        "HTTP/1.1 403 Forbidden",
        "HTTP/1.1 403 Forbidden",
        "HTTP/1.1 400 Bad Request",
        "HTTP/1.1 400 Bad Request",
    ]
    assert [row["host"] for row in _record(default_runner.log)][:2] == ["10.0.0.1", "169.254.169.254"]


def test_the_open_proxy_tunnels_and_forwards_and_counts(index, tmp_path):
    """With private addresses allowed, which no policy does, as nothing else can be reached in a test."""
    origin, _ = index
    host = origin.removeprefix("http://")
    launch = OpenLaunch(socket=tmp_path / "s", record=tmp_path / "record", allow_private=True)
    command = [sys.executable, "-m", "agent2.sandbox.network"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as proxy:
        assert proxy.stdin is not None and proxy.stdout is not None
        proxy.stdin.write(launch.model_dump_json().encode() + b"\n")
        proxy.stdin.flush()
        assert proxy.stdout.readline() == b"ready\n"
        plain = _ask(tmp_path / "s", f"GET {origin}/simple/greeting/ HTTP/1.0\r\nHost: {host}\r\n\r\n")
        assert plain.startswith(b"HTTP/1.0 200") and WHEEL.encode() in plain
        tunnel = f"CONNECT {host} HTTP/1.1\r\n\r\nGET /simple/greeting/ HTTP/1.0\r\nHost: {host}\r\n\r\n"
        assert WHEEL.encode() in _ask(tmp_path / "s", tunnel)
        proxy.stdin.close()
        assert proxy.wait(120) == 0
    rows = [json.loads(line) for line in (tmp_path / "record").read_text().splitlines()]
    assert [row["host"] for row in rows] == ["127.0.0.1", "127.0.0.1"]
    assert all(row["received"] > 100 and "refused" not in row for row in rows)


def _ask(path: Path, text: str) -> bytes:
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(120)
        link.connect(short_path(path))
        link.sendall(text.encode())
        answer = b""
        while data := link.recv(65536):
            answer += data
    return answer


def test_a_policy_leaves_no_proxy_behind(default_runner):
    default_runner.run("true", network=Network.OPEN)
    leftovers = [p for p in psutil.Process().children(recursive=True) if "agent2.sandbox.network" in _command(p)]
    assert leftovers == []


def _command(process: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.NoSuchProcess):  # other tests may leave some that end by themselves
        return process.cmdline()
    return []


def test_the_port_of_the_policy_cannot_be_taken(default_runner, tmp_path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(short_path(tmp_path / "s"))
        with pytest.raises(SandboxError, match="port 8431 is the one of the network policy packages"):
            default_runner.start("true", ports={PORT: tmp_path / "s"}, network=Network.PACKAGES)


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("8.8.8.8", True),
        ("127.0.0.1", False),
        ("10.1.2.3", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("224.0.0.1", False),
        ("::1", False),
        ("::ffff:127.0.0.1", False),
        ("64:ff9b::7f00:1", False),
        ("2002:7f00:1::", False),
        ("fe80::1%eth0", False),
        ("2606:4700:4700::1111", True),
        ("not an address", False),
    ],
)
def test_public_addresses_are_told_from_others(address, public):
    assert is_public(address) is public


def test_addresses_inside_and_outside_map_onto_each_other():
    inside = find_target("/pypi/torch/", "", DEFAULT_REGISTRIES)
    assert not isinstance(inside, str) and inside.url == "https://pypi.org/simple/torch/"
    file = "https://files.pythonhosted.org/packages/a/b/c.whl"
    assert inside_address(file, "http://x", DEFAULT_REGISTRIES) == "http://x/pypi-files/a/b/c.whl"
    assert inside_address("https://pypi.org/legacy/", "http://x", DEFAULT_REGISTRIES) is None
    assert "no registry 'conda' is allowed" in str(find_target("/conda/x", "", DEFAULT_REGISTRIES))


@pytest.mark.parametrize("tail", ["../legacy/", "..%2flegacy/", "a/%2e%2e/%2E%2e/b", "%2e./b", "a%5cb", "a\\b"])
def test_no_path_leads_out_of_a_registrys_folder(tail):
    assert find_target(f"/pypi/{tail}", "", DEFAULT_REGISTRIES) == "the path leaves its folder"


@pytest.mark.parametrize("line", [b"CONNECT [::1 HTTP/1.1", b"CONNECT host:port HTTP/1.1", b"GET http://[x/ HTTP/1.1"])
def test_an_address_that_is_none_is_refused(line):
    with pytest.raises(ProxyRefusal, match="is not an address"):
        _destination(line + b"\r\n\r\n")


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "x", "origin": "https://pypi.org/simple"},
        {"name": "x", "origin": "file:///etc"},
        {"name": "x", "origin": "https://user:password@host"},
        {"name": "X y", "origin": "https://pypi.org"},
        {"name": "x", "origin": "https://pypi.org", "prefix": "/a/../"},
    ],
)
def test_unusable_registries_are_refused(wrong):
    with pytest.raises(ValidationError):
        Registry(**wrong)


def _record(log: Path) -> list[dict]:
    return [json.loads(line) for line in log.with_name(f"{log.name}.network.jsonl").read_text().splitlines()]
