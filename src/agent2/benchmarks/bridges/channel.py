"""The process behind a bridge: started in a sandbox, asked one question at a time, ended when it misbehaves.

A question and its answer are a line of JSON each (`workers/serve.py`), over a socket that is the process's standard
input and output. The process sees its environment and the worker, read-only, no network, no variable and no file of
ours; it ends with this process, kill -9 included.

Promises: an answer that is late, too long, to another question or no answer at all ends the process and is one error
with the last line that it printed; the next question starts a fresh one. What the package prints never becomes an
answer. What it prints is kept in a temporary folder while it runs, and nowhere later: it may show hidden items.
"""

import contextlib
import json
import socket
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agent2.benchmarks.bridges import BRIDGES
from agent2.errors import MachineError, quoted
from agent2.files import remove_tree
from agent2.foreign_files import last_lines
from agent2.records import JsonValue
from agent2.sandbox.backends import Sandbox, sandbox_here
from agent2.sandbox.process import SandboxProcess
from agent2.sandbox.spec import Limits, Mount, SandboxSpec

WORKERS = Path(__file__).parent / "workers"
ENVIRONMENT_INSIDE, WORKERS_INSIDE, DATA_INSIDE = "/bridge", "/bridge-workers", "/bridge-data"
VARIABLES = {
    "PYTHONHASHSEED": "0",  # items must not depend on the order of a set
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "DO_NOT_TRACK": "1",
}
LIMITS = Limits(memory_gib=4.0, processes=64, file_size_gib=0.25, disk_gib=0.5, tmp_gib=0.5, log_mib=4.0)
START_S = 180.0
"""For the first answer of a process, which imports the package, on a busy machine."""
ANSWER_S = 60.0
MAX_LINE_BYTES = 1 << 24
"""Of one answer."""
MAX_NOISE_BYTES = 1 << 20
"""Of lines that are no answer, between a question and its answer."""
LAST_LINE_CHARACTERS = 200
TAIL_BYTES = 20_000
CHUNK_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Patience:
    """Longest waits, in seconds."""

    start_s: float = START_S
    """For the first answer of a process."""
    answer_s: float = ANSWER_S
    """For each later one."""


class BridgeFailed(MachineError):
    """The process behind a bridge hung, crashed or did not keep to the protocol; it is gone."""


class BridgeRaised(MachineError):
    """The bridged package raised an error over a question; its process runs on."""


class BridgeChannel:
    """Questions to one bridge; thread-safe, one question at a time."""

    def __init__(
        self,
        name: str,
        environment: Path,
        worker: str,
        *,
        data: Path | None = None,
        sandbox: Sandbox | None = None,
        program: Sequence[str] | None = None,
        patience: Patience = Patience(),
    ) -> None:
        """Start nothing yet.

        name: of the bridge. environment: its folder. worker: module of `workers`. data: a folder that the package
        reads. program: in place of Python and `serve.py`, for tests.
        """
        self.name = name
        self._mounts: tuple[Mount, ...] = (Mount(environment, ENVIRONMENT_INSIDE), Mount(WORKERS, WORKERS_INSIDE))
        if data is not None:
            self._mounts += (Mount(data, DATA_INSIDE),)
        self._program = tuple(
            program or (f"{ENVIRONMENT_INSIDE}/bin/python", f"{WORKERS_INSIDE}/serve.py", worker, DATA_INSIDE)
        )
        self._sandbox = sandbox
        self._patience = patience
        self._lock = threading.Lock()
        self._process: SandboxProcess | None = None
        self._link: socket.socket | None = None
        self._folder: Path | None = None
        self._unread = bytearray()
        self._n_asked = 0
        self.n_starts = 0

    def ask(self, method: str, **arguments: JsonValue) -> Any:
        """The answer to a question.

        Raises BridgeRaised if the package raised, BridgeFailed if its process is gone, and SandboxError where the host
        cannot contain it.
        """
        with self._lock:
            is_first = self._process is None
            if is_first:
                self._start()
            limit_s = self._patience.start_s if is_first else self._patience.answer_s
            deadline = time.monotonic() + limit_s
            self._n_asked += 1
            number = self._n_asked
            try:
                self._send({"id": number, "method": method, "arguments": arguments}, deadline)
                answer = self._receive(number, deadline)
            except TimeoutError as error:
                raise self._failed(f"did not answer {method!r} within {limit_s:g} s") from error
            except OSError as error:
                raise self._failed(f"ended while it was asked {method!r}") from error
            except BaseException:
                self._stop()
                raise
        if "error" in answer:
            raise BridgeRaised(f"bridge {self.name}: the package raised {quoted(str(answer['error']))}")
        return answer["result"]

    def close(self) -> None:
        """End the process; the next question starts another one."""
        with self._lock:
            self._stop()

    def _start(self) -> None:
        # not a TemporaryDirectory, which the end of Python would remove before the process that uses it is stopped
        self._folder = Path(tempfile.mkdtemp(prefix="agent2-bridge-"))
        scratch = self._folder / "work"
        self._link, theirs = socket.socketpair()
        sandbox = self._sandbox or sandbox_here()
        try:
            sandbox.prepare_workspace(scratch)
            self._process = sandbox.start(
                SandboxSpec(
                    command=self._program,
                    workspace=scratch,
                    log=self._log,
                    mounts=self._mounts,
                    environment=VARIABLES,
                    limits=replace(LIMITS, processes=BRIDGES[self.name].processes),
                    python=False,
                    channel=theirs,
                )
            )
        except BaseException:
            self._stop()
            raise
        finally:
            theirs.close()
        self._unread = bytearray()
        self.n_starts += 1

    @property
    def _log(self) -> Path:
        assert self._folder is not None
        return self._folder / "printed.txt"

    def _send(self, question: dict[str, JsonValue], deadline: float) -> None:
        assert self._link is not None
        self._link.settimeout(max(0.001, deadline - time.monotonic()))
        self._link.sendall(json.dumps(question).encode() + b"\n")

    def _receive(self, number: int, deadline: float) -> dict[str, Any]:
        """The answer to a question. Raises TimeoutError, BridgeFailed and OSError."""
        assert self._link is not None
        n_noise = 0
        while True:
            end = self._unread.find(b"\n")
            if end >= 0:
                line = bytes(self._unread[:end])
                del self._unread[: end + 1]
                answer = _as_answer(line)
                if answer is not None and answer["id"] == number:
                    return answer
                if answer is not None:
                    raise self._failed(f"answered question {quoted(answer['id'])}, and was asked {number}")
                n_noise += len(line) + 1  # an empty line is noise, too
                if n_noise > MAX_NOISE_BYTES:
                    raise self._failed(f"wrote more than {MAX_NOISE_BYTES} bytes that are no answer")
                continue
            if len(self._unread) > MAX_LINE_BYTES:
                raise self._failed(f"wrote a line of more than {MAX_LINE_BYTES} bytes")
            if time.monotonic() > deadline:  # a process that writes all the time never lets `recv` run out of it
                raise TimeoutError
            self._link.settimeout(max(0.001, deadline - time.monotonic()))
            chunk = self._link.recv(CHUNK_BYTES)
            if not chunk:
                raise self._failed("ended before it answered")
            self._unread += chunk

    def _failed(self, reason: str) -> BridgeFailed:
        """The error for a process that is ended now."""
        process = self._process
        end = process.stop(0) if process is not None else None
        limit = f" (limit on {end.broke})" if end is not None and end.broke else ""
        last_line = self._last_line()
        self._stop()
        return BridgeFailed(f"bridge {self.name}: its process {reason}{limit}; it last printed: {last_line}")

    def _last_line(self) -> str:
        lines = last_lines(self._log, TAIL_BYTES)
        return quoted(lines[-1][-LAST_LINE_CHARACTERS:]) if lines else "nothing"

    def _stop(self) -> None:
        process, link, folder = self._process, self._link, self._folder
        self._process = self._link = self._folder = None
        if process is not None:
            process.stop(0)
        if link is not None:
            link.close()
        if folder is not None:
            with contextlib.suppress(OSError):
                remove_tree(folder)


def _as_answer(line: bytes) -> dict[str, Any] | None:
    """A line as an answer; None for anything else."""
    if not line.startswith(b"{"):
        return None
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    has_form = isinstance(record, dict) and "id" in record and len(record.keys() & {"result", "error"}) == 1
    return record if has_form else None
