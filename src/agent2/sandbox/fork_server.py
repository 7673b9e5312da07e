"""A process that imports modules once, and forks itself for each program that would have to import them again.

    python -P -m agent2.sandbox.fork_server CONTROL EXECUTABLE MODULE...

CONTROL is the number of a socket to the harness, EXECUTABLE that of the file that this interpreter was started from.
The server is outside of every sandbox, as the harness is. It reads nothing but its arguments and the modules; of a
program it gets a socket, unread. Its fork reads the plan there (`forward.Plan`), joins the namespaces of a sandbox that
was made for this program alone, takes its user, limits and system call filter, and forks once more: that process, the
first one inside the process namespace, runs the program. The other one waits for it and reports its status.

Promises: a program that was forked has the sandbox that it would have had as a process of its own (mounts, user,
namespaces, limits, environment, directory, standard streams), and no other descriptor. Nothing that it does reaches the
server: they share no writable memory, no file that either can write, no process namespace, and where we are root no
user. The server forks only while it has a single thread and no writable shared mapping or stray descriptor; it ends
with the harness. The interpreter is started from a sealed copy in memory, because the kernel shows a process the file
that it runs (/proc/self/exe) with the rights of the place where it was opened, here outside of the sandbox.

What forks of one server have in common and separate processes would not: addresses (ASLR), the secret of Python's
hashes, stack canaries. A program that learns them can use them against a later fork, of which it needs a hole of its
own. Does NOT serve programs with GPUs, ports or a network, and other commands than `python -P -m MODULE` and
`python -P SCRIPT`.
"""

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import logging
import os
import resource
import runpy
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from agent2.errors import SandboxError
from agent2.sandbox.forward import (
    PR_SET_DUMPABLE,
    PR_SET_NO_NEW_PRIVS,
    PR_SET_PDEATHSIG,
    Plan,
    become,
    filter_calls,
    prctl,
    stay,
)
from agent2.sandbox.host import in_memory, interpreter, toolkit_path
from agent2.sandbox.spec import BASE_ENVIRONMENT, Network, SandboxSpec

logger = logging.getLogger(__name__)

READY_TIMEOUT_S = 180.0
"""For the imports, on a busy machine with a cold cache."""
JOIN_TIMEOUT_S = 30.0
MAX_STARTS = 3
"""A server that dies again and again is not started any more."""
MAX_MESSAGE = 1 << 17
MAX_PROBLEM_CHARS = 2_000
MAX_DESCRIPTORS = 1 << 16
"""More than the server opens; all but the standard streams are closed before a program runs."""
PR_SET_NAME = 15
MAX_NAME_CHARS = 15
"""Of a process."""
NAMESPACE_FLAGS = {
    "mnt": 0x00020000,
    "cgroup": 0x02000000,
    "uts": 0x04000000,
    "ipc": 0x08000000,
    "user": 0x10000000,
    "pid": 0x20000000,
    "net": 0x40000000,
}
"""Name below /proc/<pid>/ns -> flag of setns."""


class ForkRefused(SandboxError):
    """The server cannot fork this program, or its fork could not join the sandbox; a process of its own can run it."""


@dataclass(frozen=True, slots=True)
class JoiningProcess:
    """A fork that has joined the sandbox and waits to run the program."""

    pid: int
    """On the host, of the process that waits for the program; it ends with it."""
    channel: socket.socket

    def go(self) -> None:
        """Let it run the program. Raises OSError if it is gone."""
        with self.channel:
            self.channel.sendall(b"go")


@dataclass(frozen=True, slots=True)
class Streams:
    """The standard streams of a program; its ends of the pipes."""

    stdin: int
    stdout: int
    stderr: int

    def close(self) -> None:
        """Close each once."""
        for descriptor in {self.stdin, self.stdout, self.stderr}:
            os.close(descriptor)


class ForkServer:
    """The harness's side: starts the server when it is first needed, and again if it was killed."""

    def __init__(self, modules: Sequence[str], environment: Mapping[str, str]) -> None:
        """modules: imported in this order; one that cannot be imported is left to the programs.

        environment: what the modules may read when they are imported, with the values that it has in the programs.
        """
        self.modules = tuple(modules)
        self.environment = {**BASE_ENVIRONMENT, **environment}
        self._lock = threading.Lock()
        self._run: _ServerRun | None = None
        self._n_starts = 0
        self._why_not: str | None = None
        self._is_closed = False

    def start(self) -> None:
        """Begin to import, unless that was done; returns at once."""
        with self._lock:
            if self._is_closed or self._why_not is not None or (self._run is not None and self._run.is_alive):
                return
            if self._n_starts == MAX_STARTS:
                self._why_not = f"it ended {MAX_STARTS} times"
                return
            self._n_starts += 1
            self._run = _ServerRun(self.modules, {"PATH": toolkit_path(), **self.environment})

    @property
    def pid(self) -> int | None:
        """Of the server; None while there is none."""
        return self._run.pid if self._run is not None and self._run.is_alive else None

    def has_settled(self, timeout_s: float) -> bool:
        """Whether it is known, after at most so many seconds, if the server can fork; starts it if need be."""
        self.start()
        return self._run is None or self._run.settled.wait(timeout_s)

    def runs(self, spec: SandboxSpec) -> bool:
        """Whether a program is of the kind that can be forked, and the modules have seen its environment."""
        if self._why_not is not None or spec.gpus or spec.ports or spec.network is not Network.NONE or not spec.python:
            return False
        has_form = spec.command[:2] == ("python", "-P") and len(spec.command) > 2 and spec.command[2] != "-c"
        environment = {**BASE_ENVIRONMENT, **spec.environment}
        return has_form and all(environment.get(name) == value for name, value in self.environment.items())

    def join(self, plan: Plan, sandbox: int, link: socket.socket, streams: Streams) -> JoiningProcess:
        """Fork a process that joins the namespaces of the process `sandbox` and then waits.

        link: over which that process is told the program's status. Raises ForkRefused.
        """
        run = self._run
        if run is None or not run.settled.is_set() or run.problem is not None or not run.is_alive:
            if run is not None and run.problem is not None:
                self.give_up(run.problem)
            raise ForkRefused(f"the fork server does not run ({(run and run.problem) or 'it was killed'})")
        channel, far_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with far_end, _pidfd(sandbox) as pidfd:
                channel.settimeout(JOIN_TIMEOUT_S)
                socket.send_fds(run.control, [b"fork"], [far_end.fileno()])
                handed_over = [pidfd, link.fileno(), streams.stdin, streams.stdout, streams.stderr]
                socket.send_fds(channel, [json.dumps(plan).encode()], handed_over)
            answer = json.loads(channel.recv(MAX_MESSAGE) or b'{"refused": "it was killed"}')
            if "refused" in answer:
                self.give_up(answer["refused"])
                raise ForkRefused(f"the fork did not join the sandbox: {answer['refused']}")
            return JoiningProcess(answer["joined"], channel)
        except BaseException as error:
            channel.close()
            if isinstance(error, OSError | ValueError):
                raise ForkRefused(f"the fork server does not answer ({error})") from error
            raise

    def close(self) -> None:
        """End the server; what it forked ends with it."""
        with self._lock:
            self._is_closed = True
            run, self._run = self._run, None
        if run is not None:
            run.end()

    def give_up(self, reason: str) -> None:
        """Fork no more programs: each is started, as without a server."""
        if self._why_not is None:
            logger.warning("programs are not forked but started, each with its own imports: %s", reason)
            self._why_not = reason
        self.close()


@contextlib.contextmanager
def _pidfd(pid: int) -> Iterator[int]:
    descriptor = os.pidfd_open(pid)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


class _ServerRun:
    """One process of the server, from its start to its end."""

    def __init__(self, modules: Sequence[str], environment: Mapping[str, str]) -> None:
        self.settled = threading.Event()
        """It is known whether the server can fork."""
        self.problem: str | None = None
        """Why it cannot."""
        self.control, self._far_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._popen: subprocess.Popen[bytes] | None = None
        self._started = threading.Event()
        # the kernel ends the server with the thread that started it, so that thread stays
        self._thread = threading.Thread(
            target=self._run, args=(modules, dict(environment)), name="fork-server", daemon=True
        )
        self._thread.start()
        self._started.wait()

    @property
    def is_alive(self) -> bool:
        return self._popen is not None and self._popen.returncode is None and self._thread.is_alive()

    @property
    def pid(self) -> int:
        assert self._popen is not None
        return self._popen.pid

    def end(self) -> None:
        if self._popen is not None:
            self._popen.kill()
        self._thread.join()

    def _run(self, modules: Sequence[str], environment: dict[str, str]) -> None:
        with tempfile.TemporaryFile() as output, self.control:
            try:
                self._popen = _start(modules, environment, self._far_end, output.fileno())
            except OSError as error:
                self.problem = f"it cannot be started ({error.strerror})"
                return
            finally:
                self._far_end.close()
                self._started.set()
                if self._popen is None:
                    self.settled.set()
            self.control.settimeout(READY_TIMEOUT_S)
            try:
                self.problem = self.control.recv(MAX_MESSAGE).decode() or self._last_words(output.fileno())
            except OSError as error:
                self.problem = f"it is not ready ({error})"
            self.problem = None if self.problem == "ready" else self.problem
            self.settled.set()
            if self.problem is not None:
                self._popen.kill()
            self._popen.wait()

    def _last_words(self, output: int) -> str:
        size = os.fstat(output).st_size
        printed = os.pread(output, MAX_PROBLEM_CHARS, max(0, size - MAX_PROBLEM_CHARS)).decode(errors="replace")
        return f"it ended before it was ready: {(printed.strip().splitlines() or ['nothing was printed'])[-1]}"


def _start(
    modules: Sequence[str], environment: dict[str, str], control: socket.socket, output: int
) -> subprocess.Popen[bytes]:
    executable = in_memory("python", interpreter().read_bytes())
    if sysconfig.get_config_var("Py_ENABLE_SHARED"):  # found beside the file that is run, elsewhere
        environment["LD_LIBRARY_PATH"] = f"{sys.base_prefix}/lib"
    numbers = [str(control.fileno()), str(executable)]
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "agent2.sandbox.fork_server", *numbers, *modules],
            executable=f"/proc/self/fd/{executable}",
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            pass_fds=(control.fileno(), executable),
            start_new_session=True,
            cwd="/",
        )
    finally:
        os.close(executable)


def main(arguments: Sequence[str]) -> None:
    """Import, then fork until the harness hangs up. In a fork: run its program; does not return."""
    control, harness = socket.socket(fileno=int(arguments[0])), os.getppid()
    os.close(int(arguments[1]))
    _end_with(harness)
    for name in arguments[2:]:
        # a module that is missing or broken is found by the program that needs it
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # the collector writes into what it looks at, and a page that is written is no longer shared
    own_descriptors = {0, 1, 2, control.fileno()}
    control.send((_why_not_to_fork(own_descriptors) or "ready").encode())
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 16, 1)
        if not message or not descriptors:
            return
        with socket.socket(fileno=descriptors[0]) as channel:
            problem = _why_not_to_fork(own_descriptors | {channel.fileno()})
            if problem is not None:
                channel.sendall(json.dumps({"refused": problem}).encode())
            elif os.fork() == 0:
                control.close()
                _be_fork(channel)


def _end_with(parent: int) -> None:
    """Be killed when the parent ends; to be called again after each change of user, which undoes it."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _why_not_to_fork(descriptors: set[int]) -> str | None:
    """What a fork would break or share; None if there is nothing. descriptors: that may be open."""
    if (n_threads := len(os.listdir("/proc/self/task"))) > 1:
        return f"an import started {n_threads - 1} threads"
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.split()[1][1::2] == "ws":
            return f"an import made a shared mapping: {line}"
    for number in map(int, os.listdir("/proc/self/fd")):
        if number not in descriptors:
            with contextlib.suppress(FileNotFoundError):  # of this listing
                return f"an import opened {os.readlink(f'/proc/self/fd/{number}')}"
    return None


def _be_fork(channel: socket.socket) -> NoReturn:
    """Join the sandbox and fork the process that runs the program; report its status."""
    server = os.getppid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        message, descriptors, flags, _ = socket.recv_fds(channel, MAX_MESSAGE, 5)
        if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC) or len(descriptors) != 5:
            os._exit(1)
        plan: Plan = json.loads(message)
        sandbox, link, *streams = descriptors
        _join(sandbox, plan)
        _end_with(server)
        channel.sendall(json.dumps({"joined": os.getpid()}).encode())
    except OSError as error:
        with contextlib.suppress(OSError):
            channel.sendall(json.dumps({"refused": str(error)}).encode())
        os._exit(1)
    if channel.recv(2) != b"go":  # by now the harness has put this process into the sandbox's control group
        os._exit(1)
    for name, value in plan["rlimits"].items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))
    program = os.fork()
    if program == 0:
        _be_program(plan, streams)
    for descriptor in (channel.fileno(), *streams):  # the pump waits until nobody can write
        os.close(descriptor)
    _, status = os.waitpid(program, 0)
    code = os.waitstatus_to_exitcode(status)
    os.write(link, bytes([128 - code if code < 0 else code]))
    os._exit(0)


def _join(sandbox: int, plan: Plan) -> None:
    """Enter all namespaces of a process and take the user and the filter that programs have there. Raises OSError.

    Of the process namespace only the children of this process become members, so nothing in it can see this one.
    """
    own_user = plan["uid"] is not None  # no user namespace then
    flags = sum(
        flag
        for name, flag in NAMESPACE_FLAGS.items()
        if os.path.exists(f"/proc/self/ns/{name}") and not (own_user and name == "user")
    )
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(sandbox, flags) != 0:
        raise OSError(ctypes.get_errno(), f"setns was refused: {os.strerror(ctypes.get_errno())}")
    os.close(sandbox)
    if plan["uid"] is not None:
        become(plan["uid"])
    else:
        stay()
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    if plan["calls"] is not None:
        filter_calls(bytes.fromhex(plan["calls"]))


def _be_program(plan: Plan, streams: Sequence[int]) -> NoReturn:
    """Take the program's environment and run it as `python -P` would."""
    prctl(PR_SET_DUMPABLE, 1)  # as after an exec: its own /proc entries belong to it; the waiting process stays closed
    os.setsid()
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
    os.closerange(3, MAX_DESCRIPTORS)
    os.chdir(plan["directory"])
    os.environ.clear()
    os.environ.update(plan["environment"], PWD=plan["directory"])
    sys.path[:0] = [entry for entry in os.environ.get("PYTHONPATH", "").split(":") if entry]
    tempfile.tempdir = None  # chosen by the environment
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()  # Python's own generators see that this is a fork, this one does not
    code = _run_command(plan["command"][2:])
    threading._shutdown()  # type: ignore[attr-defined]  # the end of an interpreter, without its taking apart
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _run_command(command: Sequence[str]) -> int:
    """Run `-m MODULE ARGUMENTS` or `SCRIPT ARGUMENTS` as the main module; returns the exit status."""
    is_module = command[0] == "-m"
    name, *arguments = command[1:] if is_module else command
    process_name = name.removeprefix("agent2.").removeprefix("arena.") if is_module else Path(name).stem
    ctypes.CDLL(None).prctl(PR_SET_NAME, process_name[-MAX_NAME_CHARS:].encode(), 0, 0, 0)
    sys.argv = [name, *arguments]
    try:
        if is_module:
            sys.modules.pop(name, None)  # it is the main module now, as it would be in a process of its own
            runpy.run_module(name, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(name, run_name="__main__")
        return 0
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return (end.code or 0) & 0xFF
        print(end.code, file=sys.stderr)  # noqa: T201  # as the interpreter does
        return 1
    except BaseException:  # the boundary of the process: as the interpreter does
        traceback.print_exc()
        return 1


if __name__ == "__main__":
    main(sys.argv[1:])
