"""The gateway's process as its owner sees it: started, watched, started again when it dies, ended.

The listening socket belongs to the owner and is handed to each process, so an agent that connects while a killed
gateway is being restarted waits instead of being refused. Without the owner the gateway ends.
"""

import contextlib
import http.client
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from types import TracebackType

from pydantic import SecretStr

from agent2.errors import Agent2Error, ConfigError, Fault
from agent2.llm.gateway.answers import Masker
from agent2.llm.gateway.proxy import GRACE_S, GatewayLaunch
from agent2.llm.gateway.settings import GatewaySettings, load_prices
from agent2.sandbox.network import unix_listener

logger = logging.getLogger(__name__)

LOG = "gateway.log"
START_S = 180.0
BACKLOG = 1024
QUICK_S = 5.0
"""A process that lives shorter than this failed to start."""
MAX_QUICK_DEATHS = 5
"""In a row; after these the gateway is given up."""


class GatewayError(Agent2Error):
    """The gateway cannot be started or kept alive."""

    fault = Fault.INFRASTRUCTURE


class Gateway:
    """A running gateway. Use as a context manager or call `stop`."""

    def __init__(self, settings: GatewaySettings):
        """Bind the socket; use `start`."""
        self._settings = settings
        try:
            self._listener = unix_listener(settings.socket)
        except OSError as error:
            raise GatewayError(
                f"{settings.socket}: the socket cannot be bound ({error.strerror}); check the folder"
            ) from error
        self._listener.listen(BACKLOG)
        self._process: subprocess.Popen[bytes] | None = None
        self._is_stopping = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._watch, name="llm-gateway", daemon=True)
        self.n_restarts = 0
        """How often a process that died was replaced."""
        self.failure: str | None = None
        """Why the gateway was given up; None while it runs or is being started again."""

    @classmethod
    def start(cls, settings: GatewaySettings) -> "Gateway":
        """Start the process and wait until it answers; a process that dies is started again until `stop`.

        Raises ConfigError for settings that cannot work (a budget of dollars for a model without a price, a bad
        price file or pattern), GatewayError if the process does not come up.
        """
        _check(settings)
        gateway = cls(settings)
        gateway._thread.start()
        try:
            gateway._wait_until_ready()
        except BaseException:
            gateway.stop()
            raise
        return gateway

    def __enter__(self) -> "Gateway":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def permanent_failure(self) -> str | None:
        """One sentence once the gateway was given up; None while it runs or is being started again."""
        return None if self.failure is None else f"{self.failure} (not the agent's doing)"

    @property
    def pid(self) -> int | None:
        """Of the present process."""
        return self._process.pid if self._process is not None else None

    def stop(self) -> None:
        """End the process: open calls get a few seconds, and what they brought is recorded. May be called twice."""
        self._is_stopping.set()
        with self._lock:
            process = self._process
        if process is not None:
            _end(process)
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join()
        self._listener.close()
        self._settings.socket.unlink(missing_ok=True)

    def _watch(self) -> None:
        quick_deaths = 0
        while not self._is_stopping.is_set():
            began = time.monotonic()
            with self._lock:
                if self._is_stopping.is_set():
                    return
                try:
                    self._process = process = self._spawn()
                except OSError as error:
                    self._give_up(f"the LLM gateway cannot be started ({error}); see {self._settings.record / LOG}")
                    return
            status = process.wait()
            if self._is_stopping.is_set():
                return
            quick_deaths = quick_deaths + 1 if time.monotonic() - began < QUICK_S else 1
            if status == 2 or quick_deaths >= MAX_QUICK_DEATHS:  # 2: an Agent2Error, which a restart would repeat
                self._give_up(
                    f"the LLM gateway ended with {status}, {quick_deaths} times in a row; see "
                    f"{self._settings.record / LOG}"
                )
                return
            logger.warning("the LLM gateway died (%d) and is started again", status)
            self.n_restarts += 1
            self._is_stopping.wait(0.05 * 2 ** (quick_deaths - 1))

    def _give_up(self, reason: str) -> None:
        self.failure = reason
        logger.error("%s", reason)
        self._listener.close()  # a client that connects now is refused instead of waiting for ever

    def _spawn(self) -> subprocess.Popen[bytes]:
        settings = self._settings
        settings.record.mkdir(parents=True, exist_ok=True)
        keys = tuple(endpoint.api_key.get_secret_value() for endpoint in settings.endpoints)
        redact = tuple(text.get_secret_value() for text in settings.redact)
        # No key on the command line, in the environment or in a file: they go through the standard input.
        without_keys = settings.model_copy(
            update={
                "endpoints": tuple(
                    endpoint.model_copy(update={"api_key": SecretStr("")}) for endpoint in settings.endpoints
                ),
                "redact": (),
            }
        )
        launch = GatewayLaunch(settings=without_keys, keys=keys, redact=redact, listener=self._listener.fileno())
        environment = {
            name: value for name, value in os.environ.items() if not any(key and key in value for key in keys)
        }
        with (settings.record / LOG).open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "agent2.llm.gateway.proxy"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=environment,
                pass_fds=[self._listener.fileno()],
            )
        if process.stdin is None:
            raise OSError("the process has no standard input")
        with contextlib.suppress(BrokenPipeError):  # it died at once, which its status shows
            process.stdin.write(launch.model_dump_json().encode() + b"\n")
            process.stdin.flush()
        return process

    def _wait_until_ready(self) -> None:
        ends_at = time.monotonic() + START_S
        while time.monotonic() < ends_at:
            if self.failure is not None:
                raise GatewayError(f"{self.failure}: {self._last_log_line()}")
            if self._answers():
                return
            time.sleep(0.02)
        raise GatewayError(f"the LLM gateway did not answer within {START_S:g} seconds: {self._last_log_line()}")

    def _answers(self) -> bool:
        try:
            with contextlib.closing(_UnixConnection(self._settings)) as connection:
                connection.request("GET", "/health")
                return connection.getresponse().status == 200
        except OSError:
            return False  # not yet; the caller has a deadline

    def _last_log_line(self) -> str:
        path = self._settings.record / LOG
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
        return lines[-1] if lines else "its log is empty"


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over the gateway's socket, for the harness's health check."""

    def __init__(self, settings: GatewaySettings):
        super().__init__("localhost", timeout=START_S)
        self._socket_path = settings.socket

    def connect(self) -> None:
        """Connect through the folder's descriptor; a socket's path may be longer than the kernel takes."""
        folder = os.open(self._socket_path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.sock.settimeout(self.timeout)
            self.sock.connect(f"/proc/self/fd/{folder}/{self._socket_path.name}")
        finally:
            os.close(folder)


def _check(settings: GatewaySettings) -> None:
    prices = load_prices(settings.prices)
    if settings.replay is not None:
        Masker(settings.replay.volatile)
        return
    if not settings.endpoints:
        raise ConfigError("the LLM gateway needs an endpoint or a recording to replay; pass a driver")
    if settings.max_dollars is not None and prices.find(settings.model) is None:
        raise ConfigError(
            f"the price of {settings.model!r} is unknown, so a budget of ${settings.max_dollars:g} cannot be kept; "
            "give its price in a price file (docs/llm-gateway.md), or set a budget of tokens instead"
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    """Let the gateway end by itself, which it does when its standard input closes; else terminate, then kill it."""
    if process.stdin is not None:
        with contextlib.suppress(BrokenPipeError):  # it is dead already
            process.stdin.close()
    for send_signal in (process.terminate, process.kill):
        try:
            process.wait(GRACE_S + 4.0)
            return
        except subprocess.TimeoutExpired:
            logger.warning("the LLM gateway does not end by itself")
            send_signal()
    process.wait()
