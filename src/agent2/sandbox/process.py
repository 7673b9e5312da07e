"""A sandboxed program while it runs: started, watched, logged, stopped as a whole.

Three daemon threads belong to each program. The keeper starts it and waits for it; it must live as long
as the program, because the kernel's "die with the parent" means the thread that started it. The pump copies its
output into a log of limited size. The watch looks at the limits that the kernel does not hold.

Promises: `stop` and a normal end leave no process of the program behind; when the harness is killed, the kernel
ends the program (whole namespace under bubblewrap; without a sandbox only forward.py and the command itself).
"""

import json
import logging
import os
import signal
import socket
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

from agent2.errors import SandboxError
from agent2.sandbox.forward import Plan
from agent2.sandbox.limits import OWN_PROCESSES, ControlGroup
from agent2.sandbox.logs import CappedLog
from agent2.sandbox.spec import MIB, Limits, SandboxExit
from agent2.sandbox.watchdog import Breach, Watchdog, family

logger = logging.getLogger(__name__)

FORWARDER = Path(__file__).with_name("forward.py")
"""Runs inside, before the program."""
READY_TIMEOUT_S = 60.0
LOOK_INTERVAL_S = 0.5
REAP_TIMEOUT_S = 30.0
OUTPUT_KEPT = 4096
"""Of the first output, for the message when the sandbox itself does not start."""


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start one program."""

    argv: tuple[str, ...]
    """The outermost program; the descriptors of plan and link are appended."""
    plan: Plan
    pass_fds: tuple[int, ...]
    """Closed here once the program has them."""
    limits: Limits
    workspace: Path
    log: Path
    group: ControlGroup | None
    depth: int
    """Generations between the outermost process and forward.py."""
    watched: bool
    """Whether the soft limits are enforced."""

    def abandon(self) -> None:
        """Give back what was taken for a program that will not be started."""
        for descriptor in self.pass_fds:
            os.close(descriptor)
        if self.group is not None:
            self.group.remove()


class SandboxProcess:
    """One running program; made by `Sandbox.start`."""

    def __init__(self, launch: Launch) -> None:
        """Start it. Raises SandboxError if it does not come as far as the command."""
        self._launch = launch
        try:
            self._log = CappedLog(launch.log, int(launch.limits.log_mib * MIB))
        except SandboxError:
            launch.abandon()
            raise
        self._first_output = b""
        self._born = threading.Event()
        self._output_done = threading.Event()
        self._over = threading.Event()
        self._ending = threading.Lock()
        self._breach: Breach | None = None
        self._stop_sentence: str | None = None
        self._exit: SandboxExit | None = None
        self._family: list[psutil.Process] = []
        self._popen: subprocess.Popen[bytes] | None = None
        self._start_error: OSError | None = None
        self._root: psutil.Process
        memory_is_hard = launch.group is not None and "memory" in launch.group.controllers
        self._watchdog = Watchdog(launch.limits, launch.workspace, memory_is_hard=memory_is_hard)
        here, there = socket.socketpair()
        with here:
            threading.Thread(target=self._keep, args=(there,), name="sandbox-keeper", daemon=True).start()
            self._born.wait()
            self._await_ready(here)
        if launch.watched:
            threading.Thread(target=self._watch, name="sandbox-watch", daemon=True).start()

    @property
    def pid(self) -> int:
        """The outermost process on the host; the program and its children are its descendants."""
        return self._root.pid

    def poll(self) -> SandboxExit | None:
        """How it ended; None while it runs."""
        return self._exit

    def wait(self, timeout_s: float | None = None) -> SandboxExit | None:
        """Wait for the end; None if it still runs after `timeout_s`."""
        self._over.wait(timeout_s)
        return self._exit

    def stop(self, grace_s: float = 5.0) -> SandboxExit:
        """End the program and everything it started: first asked (SIGTERM), after `grace_s` killed.

        Returns at once if it has ended already. Raises SandboxError if the kernel does not let it go.
        """
        if self._exit is None:
            self._stop_sentence = self._stop_sentence or "it was stopped by the harness"
            self._ask()
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

    def _keep(self, link: socket.socket) -> None:
        launch = self._launch
        plan_fd = os.memfd_create("plan")
        try:
            os.write(plan_fd, json.dumps(launch.plan).encode())
            os.lseek(plan_fd, 0, os.SEEK_SET)
            self._popen = subprocess.Popen(
                [*launch.argv, str(plan_fd), str(link.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={"PATH": os.environ.get("PATH", "/usr/bin:/bin")},
                pass_fds=(plan_fd, link.fileno(), *launch.pass_fds),
                start_new_session=True,
                cwd="/",
            )
            self._root = psutil.Process(self._popen.pid)  # before anybody collects it
        except OSError as error:
            self._start_error = error
            return
        finally:
            link.close()
            for descriptor in (plan_fd, *launch.pass_fds):
                os.close(descriptor)
            self._born.set()
        assert self._popen.stdout is not None
        threading.Thread(target=self._pump, args=(self._popen.stdout,), name="sandbox-log", daemon=True).start()
        self._finish(self._popen.wait())

    def _await_ready(self, link: socket.socket) -> None:
        """Until forward.py is about to start the command; puts the processes into their control group."""
        if self._popen is None:
            self._log.close()
            if self._launch.group is not None:
                self._launch.group.remove()
            raise SandboxError(f"{self._launch.argv[0]} cannot be started: {self._start_error}; is it installed?")
        link.settimeout(READY_TIMEOUT_S)
        try:
            if link.recv(5) == b"ready":
                self._family = family(self._root)
                if self._launch.group is not None:
                    self._launch.group.adopt([process.pid for process in self._family])
                link.sendall(b"go")
                return
        except SandboxError:
            self._abort()
            raise
        except OSError as error:
            logger.warning("the sandbox is not ready: %s", error)
        self._abort()
        said = self._first_output.decode(errors="replace").strip() or f"it said nothing for {READY_TIMEOUT_S:g} s"
        advice = "`agent2 doctor` tells what is missing" if self._launch.depth else "free what it names"
        raise SandboxError(f"the sandbox did not start: {said.splitlines()[-1]}; {advice}")

    def _abort(self) -> None:
        _kill_all([*family(self._root)[::-1], self._root])
        self._over.wait(REAP_TIMEOUT_S)

    def _pump(self, stream: IO[bytes]) -> None:
        with stream:
            while data := os.read(stream.fileno(), 1 << 16):
                if len(self._first_output) < OUTPUT_KEPT:
                    self._first_output += data[:OUTPUT_KEPT]
                self._log.write(data)
        self._log.close()
        self._output_done.set()

    def _watch(self) -> None:
        while not self._over.wait(LOOK_INTERVAL_S):
            try:
                breach = self._watchdog.look(self._root, time.monotonic())
            except Exception as error:  # boundary: without its watch a program has no soft limits, so it is stopped
                logger.exception("the watch of process %d failed", self.pid)
                breach = Breach("watch", f"was stopped because its limits could not be watched ({error})")
            if breach is not None and not self._over.is_set():
                self._breach = breach
                self._kill()
                return

    def _finish(self, code: int) -> None:
        """After the outermost process: wait until the rest has gone, then say how it ended."""
        if not _await_end(self._family[1:], REAP_TIMEOUT_S):
            logger.warning("processes of the sandbox %s are still ending", [p.pid for p in self._family[1:]])
        if not self._output_done.wait(REAP_TIMEOUT_S):
            logger.warning("%s: a process outside the sandbox's reach keeps the log open", self._launch.log)
        self._exit = self._describe(128 - code if code < 0 else code)
        if self._launch.group is not None:
            self._launch.group.remove()
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
        limits, group = self._launch.limits, self._launch.group
        if self._breach is not None:
            return self._breach.limit, None
        enforced = group.broke() if group is not None else None
        if enforced == "memory":
            return "memory", f"it ran into its limit of {limits.memory_gib:g} GiB of memory"
        seen = self._watchdog.peak_processes - OWN_PROCESSES
        if enforced == "processes" or (self._launch.watched and seen >= limits.processes):
            return "processes", f"it ran into its limit of {limits.processes} processes; more were refused"
        if self._launch.watched and code == 128 + signal.SIGXFSZ:
            return "file size", f"a file reached the limit of {limits.file_size_gib:g} GiB"
        return None, None

    def _ask(self) -> None:
        """SIGTERM to forward.py, which passes it to the command's group."""
        generation = [self._root]
        try:
            for _ in range(self._launch.depth):
                generation = [child for process in generation for child in process.children()]
            for process in generation[:1]:
                process.terminate()
        except psutil.NoSuchProcess:
            return  # it ended just now

    def _kill(self) -> None:
        with self._ending:
            if self._launch.depth:
                _kill_all([*self._family[1:2], self._root])  # the first process of the namespace takes all with it
            else:
                _kill_all([*family(self._root)[::-1], self._root])


def _await_end(processes: list[psutil.Process], timeout_s: float) -> bool:
    """Whether all have ended in time; one that only waits to be collected by its parent has."""
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
