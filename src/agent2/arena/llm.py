"""The driver of a trial: checked before anything starts, reached through a gateway while the agent works.

The gateway is a process of its own that holds the key and listens on a unix socket alone in its folder; inside the
sandbox it is a loopback port beside that of the grading API. The agent has a dummy key. The listening socket belongs to
the harness and is handed to each process, so an agent that connects while a killed gateway is being restarted waits
instead of being refused. Without the harness the gateway ends.

Does NOT check that the provider knows the model: its first answer shows it.
"""

import contextlib
import http.client
import logging
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from pydantic import SecretStr

from agent2.arena.agents import Agent
from agent2.arena.assignment import InsidePaths, TrialConfig
from agent2.arena.gateway.answers import Masker
from agent2.arena.gateway.proxy import GRACE_S, GatewayLaunch
from agent2.arena.gateway.settings import Driver, GatewaySettings, ReplaySettings, TokenCounts, load_prices
from agent2.arena.systems import LlmInside
from agent2.arena.trial_folder import TrialPaths, read_events, unix_listener
from agent2.errors import Agent2Error, ConfigError, Fault

logger = logging.getLogger(__name__)

LOG = "gateway.log"
START_S = 180.0
BACKLOG = 1024
QUICK_S = 5.0
"""A process that lives shorter than this failed to start."""
MAX_QUICK_DEATHS = 5
"""In a row; after these the gateway is given up."""
LLM_PORT = 8001
"""Loopback port of the gateway inside a sandbox."""
LATE_S = 120.0
"""The gateway begins no call this long after the agent's time must be over; the agent is stopped before."""
MIN_KEY_CHARS = 8
"""A shorter key would be found by chance in other variables."""
ARENA_VOLATILE = (
    r'(?<!\\)\\*"(timestamp|elapsed_seconds|start_time|end_time|last_submit_time|now|remaining)\\*"\s*:\s*\\*"?[^,}\s"\\]+',
    r"\b19[0-9]{8}\b",
)
"""What differs from run to run: times in the grading API's answers, and the sandbox's user id."""


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
                [sys.executable, "-P", "-m", "agent2.arena.gateway.proxy"],
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


def require_driver(agent: Agent, config: TrialConfig) -> None:
    """Require that the driver fits the agent, that its key is set, and that the budget can be enforced.

    Raises ConfigError.
    """
    protocol, driver = agent.spec.llm, config.driver_record
    if protocol is None:
        if driver is not None:
            raise ConfigError(
                f"agent {agent.spec.name} is driven by no LLM (its agent.yaml has no key llm); remove --driver"
            )
        return
    if driver is None:
        raise ConfigError(f"agent {agent.spec.name} is driven by an LLM; pass one, as in --driver openai/gpt-5.2")
    leak = _leak_of(driver, agent)
    if leak is not None:
        raise ConfigError(
            f"agent {agent.spec.name}: pass_environment lets the key in {leak} into the sandbox; take it "
            "out of its agent.yaml: the agent has {{llm_url}} and {{llm_key}} in its place"
        )
    if config.replay is not None:
        return
    driver.require(protocol)
    driver.resolved()
    dollars = config.budget.llm_dollars
    if dollars is not None and load_prices(_prices(config)).cost(driver.model, TokenCounts(1, 1)) is None:
        raise ConfigError(
            f"budget.llm_dollars={dollars:g} cannot be held: the price of {driver.model!r} is not known; pass a price "
            "file with --set prices=FILE, or set budget.llm_tokens instead"
        )


def _leak_of(driver: Driver, agent: Agent) -> str | None:
    """A variable that the agent would get and that holds the driver's key, under whatever name."""
    key = os.environ.get(driver.api_key_env, "") if driver.api_key_env else ""
    for name in agent.spec.pass_environment:
        if name == driver.api_key_env or (len(key) >= MIN_KEY_CHARS and key in os.environ.get(name, "")):
            return name
    return None


def _prices(config: TrialConfig) -> Path | None:
    return Path(config.prices) if config.prices is not None else None


@contextmanager
def open_gateway(agent: Agent, config: TrialConfig, paths: TrialPaths, inside: InsidePaths) -> Iterator[Gateway | None]:
    """A gateway for the agent's phase; None for an agent without a driver.

    Raises ConfigError as `require_driver`, and if it does not start.
    """
    require_driver(agent, config)
    if agent.spec.llm is None or config.driver_record is None:
        yield None
        return
    paths.llm_socket.parent.mkdir(parents=True, exist_ok=True)
    gateway = Gateway.start(gateway_settings(agent, config, config.driver_record, paths, inside))
    try:
        yield gateway
    finally:
        gateway.stop()


def llm_inside(agent: Agent, config: TrialConfig, inside: InsidePaths) -> LlmInside | None:
    """The driver as the agent sees it; None for an agent without one."""
    if agent.spec.llm is None or config.driver_record is None:
        return None
    return LlmInside(url=inside.llm_url, key=config.llm_key, model=config.driver_record.model)


def gateway_settings(
    agent: Agent, config: TrialConfig, driver: Driver, paths: TrialPaths, inside: InsidePaths
) -> GatewaySettings:
    """What the gateway of a trial is configured with."""
    replay = None
    if config.replay is not None:
        source = TrialPaths(Path(config.replay.trial))
        volatile = (*agent.spec.volatile, *ARENA_VOLATILE, *_host_patterns(source, inside))
        replay = ReplaySettings(source=source.llm, strict=config.replay.strict, volatile=volatile)
    budget = config.budget
    return GatewaySettings(
        socket=paths.llm_socket,
        record=paths.llm,
        endpoints=driver.resolved() if replay is None else (),
        model=driver.model,
        dummy_key=config.llm_key,
        prices=_prices(config),
        max_tokens=budget.llm_tokens,
        max_dollars=budget.llm_dollars,
        deadline=time.time() + budget.wall_clock_s + LATE_S,
        replay=replay,
    )


def _host_patterns(source: TrialPaths, inside: InsidePaths) -> tuple[str, ...]:
    """Patterns for the workspaces and ports of both trials, which differ where there is no sandbox; else none."""
    recorded = read_events(source.trial_log).last("agent_started") or {}
    workspaces = {inside.workspace, str(recorded.get("workspace", inside.workspace))}
    if len(workspaces) == 1:  # both are /workspace, so the ports are the fixed ones, too
        return ()
    ports = {inside.grading_port, inside.llm_port}
    ports |= {recorded[key] for key in ("grading_port", "llm_port") if isinstance(recorded.get(key), int)}
    # longest first: one workspace may be a prefix of the other
    folders = (re.escape(workspace) for workspace in sorted(workspaces, key=len, reverse=True))
    return (*folders, *(rf"127\.0\.0\.1:{port}\b" for port in sorted(ports)))
