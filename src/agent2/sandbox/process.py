"""A sandboxed program while it runs: started, watched, logged, stopped as a whole.

Three daemon threads belong to each program. The first starts it and waits for it; it must live as long as the
program, because the kernel's "die with the parent" means the thread that started it. The pump copies its output
into a log of limited size. The watch looks at the limits that the kernel does not hold.

Promises: `stop` and a normal end leave no process of the program behind; when the harness is killed, the kernel
ends the program (whole namespace under bubblewrap; without a sandbox only forward.py and the command itself).
"""

import json
import logging
import os
import signal
import socket
import struct
import subprocess
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

from agent2.errors import SandboxError
from agent2.sandbox.fork_server import ForkRefused, ForkServer, JoiningProcess, Streams
from agent2.sandbox.forward import Plan
from agent2.sandbox.host import in_memory
from agent2.sandbox.limits import OWN_PROCESSES, Launch
from agent2.sandbox.processor_time import ProcessorMeter
from agent2.sandbox.spec import MIB, SandboxExit, SandboxSpec
from agent2.sandbox.watchdog import Breach, Watchdog, descendants, process_tree

logger = logging.getLogger(__name__)

MAX_TAIL = 256 * 1024
"""Most bytes of a log's end that are held in memory until the program ends."""
READY_TIMEOUT_S = 60.0
LOOK_INTERVAL_S = 0.1
"""Between two looks at the soft limits."""
REAP_TIMEOUT_S = 30.0
"""For killed processes to leave, which a device of the host may delay."""
PASSED_ON = ("PATH", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "DOCKER_HOST")
"""Variables of ours that the outermost program gets; the programs inside see none of them."""
OOM_FIRST = "1000"
"""The highest value of /proc/<pid>/oom_score_adj: killed before any other process."""
OUTPUT_KEPT = 4096
"""Of the first output, for the message when the sandbox itself does not start."""


class CappedLog:
    """Writes up to a number of bytes; what does not fit is dropped from the middle, and a line says so."""

    def __init__(self, path: Path, limit: int) -> None:
        """path: replaced. limit: bytes. Raises SandboxError if the file cannot be made."""
        try:
            self._file = path.open("wb", buffering=0)
        except OSError as error:
            raise SandboxError(f"log {path} cannot be written ({error.strerror}); create its folder") from error
        self._tail_limit = min(limit // 2, MAX_TAIL)
        self._head_left = limit - self._tail_limit
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self._dropped = 0
        self.fault: str | None = None
        """Why the file could not be written, if so; the program runs on."""

    def write(self, data: bytes) -> None:
        """Take in what was printed."""
        head, beyond_head = data[: self._head_left], data[self._head_left :]
        if head:
            self._head_left -= len(head)
            self._put(head)
        if beyond_head:
            self._tail.append(beyond_head)
            self._tail_size += len(beyond_head)
        while self._tail and self._tail_size - len(self._tail[0]) >= self._tail_limit:
            n_dropped = len(self._tail.popleft())
            self._tail_size -= n_dropped
            self._dropped += n_dropped

    def close(self) -> None:
        """Write the end and close the file."""
        end = b"".join(self._tail)
        extra = max(0, len(end) - self._tail_limit)
        if self._dropped + extra:
            self._put(f"\n[agent2: {self._dropped + extra} bytes left out here]\n".encode())
        self._put(end[extra:])
        self._file.close()

    def _put(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[self._file.write(view) :]
        except OSError as error:
            self.fault = f"the log could not be written: {error.strerror}"


class CapturedOutput:
    """The beginning of what a program printed; one thread writes, others may read meanwhile."""

    def __init__(self, limit: int) -> None:
        """limit: bytes."""
        self._limit = limit
        self._data = bytearray()
        self.dropped = 0
        """Bytes that came after the limit."""

    @property
    def data(self) -> bytes:
        """What was kept."""
        return bytes(self._data)

    @property
    def n_written(self) -> int:
        """Bytes that were printed, kept or not."""
        return len(self._data) + self.dropped

    def write(self, data: bytes) -> None:
        """Take in what was printed."""
        fitting = data[: self._limit - len(self._data)]
        self._data += fitting
        self.dropped += len(data) - len(fitting)


@dataclass(frozen=True, slots=True)
class Fork:
    """A program that is forked from a server instead of started."""

    server: ForkServer
    plan: Plan
    """As in `Launch`, with the user, limits and filter that the sandbox itself would have set."""


class SandboxProcess:
    """One running program; made by `Sandbox.start`."""

    def __init__(self, launch: Launch, fork: Fork | None = None) -> None:
        """Start it. fork: what runs the command instead of a process that the sandbox starts.

        Raises SandboxError if it does not come as far as the command, ForkRefused if that is up to the fork alone.
        """
        self._launch = launch
        self._fork = fork
        self._streams: Streams | None = None
        try:
            self._log = CappedLog(launch.spec.log, int(launch.spec.limits.log_mib * MIB))
        except SandboxError:
            launch.abandon()
            raise
        self._first_output = b""
        self._started = threading.Event()
        self._captured = None if launch.spec.capture_bytes is None else CapturedOutput(launch.spec.capture_bytes)
        self._pumps: list[threading.Thread] = []
        self._over = threading.Event()
        self._ending = threading.Lock()
        self._breach: Breach | None = None
        self._stop_sentence: str | None = None
        self._exit: SandboxExit | None = None
        self._processes: list[psutil.Process] = []
        self._joined: psutil.Process | None = None
        """The process that joined the sandbox and waits there for the program; not a descendant of the outermost."""
        self._popen: subprocess.Popen[bytes] | None = None
        self._start_error: Exception | None = None
        self._link: socket.socket | None = None
        self._forwarder: psutil.Process | None = None
        self._root: psutil.Process
        memory_is_hard = launch.enforcer is not None and "memory" in launch.enforcer.controllers
        folders = (launch.spec.workspace, *launch.also_watched)
        self._meter = ProcessorMeter()
        self._watchdog = Watchdog(launch.spec.limits, folders, memory_is_hard=memory_is_hard)
        harness_end, forwarder_end = (None, None) if launch.listener is not None else socket.socketpair()
        threading.Thread(target=self._run_to_end, args=(forwarder_end,), name="sandbox-run", daemon=True).start()
        self._started.wait()
        self._link = self._await_ready(harness_end)
        if launch.watched:
            threading.Thread(target=self._watch, name="sandbox-watch", daemon=True).start()

    @property
    def pid(self) -> int:
        """The outermost process on the host; the program and its children are its descendants."""
        return self._root.pid

    @property
    def captured(self) -> CapturedOutput:
        """Standard output so far. Raises SandboxError if the spec did not ask to keep it."""
        if self._captured is None:
            raise SandboxError("standard output went to the log; set capture_bytes in the spec to keep it apart")
        return self._captured

    @property
    def used_s(self) -> float | None:
        """Processor seconds of all its processes so far, at its end those at the last look; None: not measured."""
        if self._over.is_set():
            return self._meter.used_s
        joined = () if self._joined is None else (self._joined.pid,)
        return self._meter.look([self.pid, *descendants(self.pid, *joined), *joined])

    def wait(self, timeout_s: float | None = None) -> SandboxExit | None:
        """Wait for the end; None if it still runs after `timeout_s`."""
        self._over.wait(timeout_s)
        return self._exit

    def stop(self, grace_s: float = 5.0) -> SandboxExit:
        """End the program and everything it started: by SIGTERM, and by SIGKILL after `grace_s`.

        Returns at once if it has ended already. Raises SandboxError if the kernel does not let it go.
        """
        if self._exit is None:
            self._stop_sentence = self._stop_sentence or "it was stopped by the harness"
            self._terminate()
            if self.wait(grace_s) is None:
                self._stop_sentence = f"it was stopped by the harness and killed after {grace_s:g} s of grace"
                self._kill()
        ended = self.wait(REAP_TIMEOUT_S)
        if ended is None:
            raise SandboxError(
                f"process {self.pid} does not end although it was killed; it waits for a device of the host: "
                "look at dmesg and at its state in ps"
            )
        return ended

    def _run_to_end(self, link: socket.socket | None) -> None:
        """Start the program, wait for it, and record how it ended. link: forward.py's end, closed here."""
        launch = self._launch
        links = [] if link is None else [link.fileno()]
        streams: Streams | None = None
        outputs: list[IO[bytes]] = []
        try:
            pipes = [os.pipe() for _ in range(1 if self._captured is None else 2)]
            outputs = [os.fdopen(reading, "rb", buffering=0) for reading, _ in pipes]
            streams = _streams(launch.spec, [writing for _, writing in pipes])
            popen = subprocess.Popen(
                [*launch.argv, *map(str, links)],
                stdin=streams.stdin,
                stdout=streams.stdout,
                stderr=streams.stderr,
                env={name: os.environ[name] for name in PASSED_ON if name in os.environ},
                pass_fds=(*links, *launch.pass_fds),
                start_new_session=True,
                cwd="/",
            )
            self._root = psutil.Process(popen.pid)  # before it is collected: psutil refuses one that is gone
            self._popen = popen
        except Exception as error:  # boundary: `__init__` waits for this thread and raises the error there
            self._start_error = error
            for output in outputs:
                output.close()
            return
        finally:
            if link is not None:
                link.close()
            for descriptor in launch.pass_fds:
                os.close(descriptor)
            if self._fork is not None and self._popen is not None:
                self._streams = streams  # the fork gets them once the sandbox is ready
            elif streams is not None:
                streams.close()
            self._started.set()
        self._start_pumps(outputs)
        self._finish(popen.wait())

    def _start_pumps(self, outputs: list[IO[bytes]]) -> None:
        pumps = [threading.Thread(target=self._pump, args=(outputs[-1],), name="sandbox-log", daemon=True)]
        if self._captured is not None:
            pumps.append(threading.Thread(target=self._capture, args=(outputs[0], self._captured), daemon=True))
        for pump in pumps:
            pump.start()
        self._pumps = pumps

    def _await_ready(self, link: socket.socket | None) -> socket.socket | None:
        """Wait until forward.py is about to start the command; puts the processes into their control group.

        Returns the link if it has to stay open: the program ends when the harness, and with it the link, is gone.
        """
        if self._popen is None:
            if link is not None:
                link.close()
            self._log.close()
            self._launch.release()
            advice = "is it installed?" if isinstance(self._start_error, FileNotFoundError) else "fix what it names"
            raise SandboxError(f"{self._launch.argv[0]} cannot be started: {self._start_error}; {advice}")
        try:
            try:
                link = self._accept() if link is None else link
                if link is not None and self._hand_over_plan(link):
                    if self._launch.plan["leash"]:
                        return link
                    link.close()
                    return None
            finally:
                if self._streams is not None:  # else the program's output would never end, and an abort waits for it
                    self._streams.close()
        except SandboxError:
            self._abort()
            raise
        except OSError as error:
            logger.warning("the sandbox is not ready: %s", error)
        self._abort()
        message = self._first_output.decode(errors="replace").strip() or f"no output for {READY_TIMEOUT_S:g} s"
        advice = "`agent2 doctor` shows what is missing" if self._launch.watched else "free what it names"
        raise SandboxError(f"the sandbox did not start: {message.splitlines()[-1]}; {advice}")

    def _accept(self) -> socket.socket | None:
        """The connection of forward.py; None if the sandbox ends before."""
        listener = self._launch.listener
        assert listener is not None
        listener.settimeout(0.1)
        ends_at = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < ends_at and not self._over.is_set():
            try:
                link = listener.accept()[0]
                listener.close()  # the program could reach it
                return link
            except TimeoutError:
                continue
        return None

    def _hand_over_plan(self, link: socket.socket) -> bool:
        """Send the plan, wait until the sandbox is ready, start the program. Raises SandboxError, OSError."""
        plan = json.dumps(self._launch.plan).encode()
        link.settimeout(READY_TIMEOUT_S)
        link.sendall(len(plan).to_bytes(8, "big") + plan)
        if link.recv(5) != b"ready":
            return False
        if self._launch.listener is not None:
            self._identify_forwarder(link)
        self._processes = process_tree(self._root)
        if self._launch.enforcer is not None:
            self._launch.enforcer.adopt([process.pid for process in self._processes])
        joining = self._join(self._fork, link) if self._fork is not None else None
        if self._launch.watched:
            _prefer_for_oom_kill(self._processes)
        link.sendall(b"go")  # last: the command must not run before its limits hold
        if joining is not None:
            joining.go()
        return True

    def _join(self, fork: Fork, link: socket.socket) -> JoiningProcess:
        """Have a process forked that joined the sandbox and its limits; it waits. Raises ForkRefused."""
        assert self._streams is not None
        joining = fork.server.join(fork.plan, self._processes[-1].pid, link, self._streams)
        try:
            self._joined = psutil.Process(joining.pid)
            self._processes.append(self._joined)
            if self._launch.enforcer is not None:
                self._launch.enforcer.adopt_fork(joining.pid)
        except (SandboxError, psutil.Error) as error:
            joining.channel.close()  # ends it
            fork.server.give_up(str(error))
            raise ForkRefused(str(error)) from error
        return joining

    def _identify_forwarder(self, link: socket.socket) -> None:
        """Find forward.py, which connected; if an engine started it, it is not a descendant of our process."""
        pid = struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        if pid == 0:
            return  # it is in a process namespace that we cannot see into
        self._forwarder = psutil.Process(pid)
        if self._forwarder not in process_tree(self._root):
            self._root = self._forwarder

    def _abort(self) -> None:
        self._kill()
        self._over.wait(REAP_TIMEOUT_S)

    def _pump(self, stream: IO[bytes]) -> None:
        with stream:
            while data := os.read(stream.fileno(), 1 << 16):
                if len(self._first_output) < OUTPUT_KEPT:
                    self._first_output += data[:OUTPUT_KEPT]
                self._log.write(data)
        self._log.close()

    def _capture(self, stream: IO[bytes], captured: CapturedOutput) -> None:
        with stream:
            while data := os.read(stream.fileno(), 1 << 16):
                captured.write(data)

    def _watch(self) -> None:
        while not self._over.wait(LOOK_INTERVAL_S):
            try:
                if self._launch.enforcer is not None:
                    self._launch.enforcer.look()
                joined = () if self._joined is None else (self._joined.pid,)
                breach = self._watchdog.look(self._root, time.monotonic(), joined)
            except Exception as error:  # boundary: without its watch a program has no soft limits, so it is stopped
                if self._over.is_set():  # its folders may be gone by now
                    return
                logger.exception("the watch of process %d failed", self.pid)
                breach = Breach("watch", f"was stopped because its limits could not be watched ({error})")
            if breach is not None and not self._over.is_set():
                self._breach = breach
                self._kill()
                return

    def _finish(self, code: int) -> None:
        """After the end of the outermost process: wait for the others and record how the program ended."""
        if not _await_end(self._processes[1:], REAP_TIMEOUT_S):
            logger.warning("processes of the sandbox %s are still ending", [p.pid for p in self._processes[1:]])
        for pump in self._pumps:
            pump.join(REAP_TIMEOUT_S)
            if pump.is_alive():
                logger.warning("%s: a process outside the sandbox's reach keeps the output open", self._launch.spec.log)
        try:
            self._exit = self._describe(128 - code if code < 0 else code)
            if self._link is not None:
                self._link.close()
            self._launch.release()
        finally:
            self._over.set()

    def _describe(self, code: int) -> SandboxExit:
        broke, note = self._broken_limit(code)
        if self._breach is not None:
            sentence = f"the program {self._breach.sentence}"
        elif self._stop_sentence is not None:
            sentence = self._stop_sentence + (f"; before, {note}" if note else "")
        else:
            sentence = f"the program ended with status {code}" + (f"; {note}" if note else "")
        if self._log.fault is not None:
            sentence += f"; {self._log.fault}"
        return SandboxExit(code, broke, sentence)

    def _broken_limit(self, code: int) -> tuple[str | None, str | None]:
        limits, enforcer = self._launch.spec.limits, self._launch.enforcer
        if self._breach is not None:
            return self._breach.limit, None
        enforced = enforcer.broke() if enforcer is not None else None
        if enforced == "memory":
            return "memory", f"it ran into its limit of {limits.memory_gib:g} GiB of memory"
        peak = self._watchdog.peak_processes - OWN_PROCESSES
        if enforced == "processes" or (self._launch.watched and peak >= limits.processes):
            return "processes", f"it ran into its limit of {limits.processes} processes; more were refused"
        if self._launch.watched and code == 128 + signal.SIGXFSZ:
            return "file size", f"a file reached the limit of {limits.file_size_gib:g} GiB"
        return None, None

    def _terminate(self) -> None:
        """Send SIGTERM to forward.py, which passes it to the command's process group."""
        generation = [self._forwarder or self._root]
        try:
            for _ in range(self._launch.depth):
                generation = [child for process in generation for child in process.children()]
            for process in generation[:1]:
                process.terminate()
        except psutil.NoSuchProcess:
            return  # it ended just now

    def _kill(self) -> None:
        with self._ending:
            if self._launch.enforcer is not None:
                self._launch.enforcer.kill()
            if self._launch.depth and self._processes:
                # the first process of the namespace takes all with it
                _kill_all([*self._processes[1:2], *self._processes[self._launch.depth + 1 :], self._root])
            else:
                _kill_all([*process_tree(self._root)[::-1], self._root])


def _streams(spec: SandboxSpec, outputs: Sequence[int]) -> Streams:
    """The program's ends of its standard streams. outputs: for standard output, where it has its own, and error."""
    if spec.channel is None:
        return Streams(in_memory("stdin", spec.stdin), outputs[0], outputs[-1])
    channel = os.dup(spec.channel.fileno())
    return Streams(channel, channel, outputs[-1])


def _prefer_for_oom_kill(processes: list[psutil.Process]) -> None:
    """Let the kernel kill these, and what they start, before anything else when the host is out of memory.

    The program cannot undo it if we hold CAP_SYS_RESOURCE; otherwise it can.
    """
    for process in processes:
        try:
            Path(f"/proc/{process.pid}/oom_score_adj").write_text(OOM_FIRST)
        except OSError as error:
            logger.info("oom_score_adj of %d stays as it is: %s", process.pid, error.strerror)


def _await_end(processes: list[psutil.Process], timeout_s: float) -> bool:
    """Whether all have ended in time; a zombie counts as ended."""
    deadline = time.monotonic() + timeout_s
    while any(_is_alive(process) for process in processes):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _kill_all(processes: list[psutil.Process]) -> None:
    for process in processes:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue  # gone already
