"""One engine as a child process: started, waited for until it is healthy, asked whether it still is, stopped.

Promises: `stop`, the end of this process and `kill -9` of it leave no process of the engine behind (`keeper`); no
server but the one that was started counts as healthy, since it must list the random name that the model was given;
what the engine prints is in a file whose last line of substance is in every error.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from agent2.engines import keeper
from agent2.errors import EndpointFailed
from agent2.foreign_files import last_lines

START_S = 900.0
"""Longest wait for an engine to load its model, on a busy machine."""
LOOK_S = 0.2
STOP_S = keeper.PATIENCE_S + 10
HEALTH_S = 10.0
TAIL_BYTES = 64_000
PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "OMP_NUM_THREADS")
"""Variables of ours that an engine gets: no keys."""
_CAUSE = re.compile(r"error|exception|illegal|killed|memory|address already in use|denied", re.IGNORECASE)


class EngineChild:
    """A server in a child process."""

    def __init__(self, command: Sequence[str], variables: Mapping[str, str], url: str, name: str, log: Path) -> None:
        """Start nothing yet. url: up to /v1. name: of the model, which the server must list."""
        self.url, self.name, self.log = url, name, log
        self._command = list(command)
        self._variables = {key: os.environ[key] for key in PASSED_ON if key in os.environ} | dict(variables)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Of the keeper; None: not running."""
        return None if self._process is None or self._process.poll() is not None else self._process.pid

    def start(self, key: str, wait_s: float = START_S) -> None:
        """Start it and wait until it lists the model. Raises EndpointFailed if it ends before, or takes too long."""
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, keeper.__file__, *self._command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self._variables,
            )
        deadline = time.monotonic() + wait_s
        while time.monotonic() < deadline:
            names = self.listed(key)
            if self._process.poll() is not None:
                code = self._process.returncode
                self.stop()
                raise EndpointFailed(f"the engine ended with code {code} while it started: {self.last_words()}")
            if names is not None and self.name in names:
                return
            if names is not None:
                self.stop()
                raise EndpointFailed(
                    f"{self.url}: another server answers there, with other models than were asked for; "
                    f"{self.last_words()}"
                )
            time.sleep(LOOK_S)
        self.stop()
        raise EndpointFailed(f"the engine was not ready after {wait_s:g} s: {self.last_words()}")

    def listed(self, key: str) -> list[str] | None:
        """The models that the server lists; None: it does not answer."""
        import httpx

        try:
            answer = httpx.get(
                f"{self.url}/models", headers={"authorization": f"Bearer {key}"}, timeout=HEALTH_S, trust_env=False
            )
            return [str(entry["id"]) for entry in answer.raise_for_status().json()["data"]]
        except (httpx.HTTPError, ValueError, LookupError, TypeError):
            return None

    def is_healthy(self, key: str) -> bool:
        """Whether it runs and lists the model."""
        return self.pid is not None and self.name in (self.listed(key) or ())

    def stop(self) -> None:
        """End it and everything that it started."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            with suppress(BrokenPipeError):
                process.stdin.close()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def last_words(self) -> str:
        """The last line that names a cause, or the last one, of what the engine printed, and where all of it is."""
        lines = last_lines(self.log, TAIL_BYTES)
        causes = [line for line in lines if _CAUSE.search(line)]
        last = (causes or lines or ["it printed nothing"])[-1]
        return f"{last[-300:]} ({self.log})"
