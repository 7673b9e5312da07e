"""The program that runs inside a sandbox before the agent's: opens the ports, gives up root, sets limits, runs it.

    python forward.py LINK

LINK is the number of an inherited socket, or the path of a unix socket to connect to. Over it comes one JSON object
(`Plan`, after its length in 8 bytes); it answers "ready", waits for "go", and only then starts the command. It
exits with the command's status (128 + n for signal n) and passes SIGTERM on to the command's process group. Where
another process joins the namespaces and runs the command there (`fork_server`), it starts nothing, and exits with the
status that comes over LINK. Bound read-only as a single file, so it imports the standard library only.

Does not contain anything by itself beyond the resource limits: the namespaces are the caller's work.
"""

import contextlib
import ctypes
import functools
import json
import os
import resource
import select
import signal
import socket
import sys
from typing import NoReturn, TypedDict

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_SECCOMP = 22
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
SECCOMP_MODE_FILTER = 2
LAST_CAPABILITY = 63
CAPABILITY_VERSION_3 = 0x20080522
BACKLOG = 128
MAX_SOCKET_PATH = 107
"""Bytes, of a unix socket."""


class Plan(TypedDict):
    """What to do."""

    command: list[str]
    directory: str
    environment: dict[str, str]
    """All of it, except for PWD."""
    ports: dict[str, str]
    """Loopback port -> unix socket."""
    uid: int | None
    """User and group to become; None: stay who we are."""
    rlimits: dict[str, int]
    """Name below `resource.RLIMIT_` -> value, soft and hard."""
    die_with_parent: bool
    """Where no namespace does it: be killed when the parent dies, and kill what the command leaves running."""
    leash: bool
    """Where the harness is not an ancestor: end with everything when the other side of the link closes."""
    calls: str | None
    """System call filter in hexadecimal, where it is not set yet; None: none is set here."""
    joined: bool
    """The command is run by a process that joins the namespaces of this one."""


def main(arguments: list[str]) -> int:
    """Carry out the plan; returns the command's status."""
    link = _open_link(arguments[0])
    size = int.from_bytes(_receive(link, 8), "big")
    plan: Plan = json.loads(_receive(link, size))
    if plan["die_with_parent"]:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        prctl(PR_SET_CHILD_SUBREAPER, 1)
    listeners = [(_listen(int(port)), path) for port, path in plan["ports"].items()]
    if plan["uid"] is not None:
        become(plan["uid"])
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    if plan["calls"] is not None:
        filter_calls(bytes.fromhex(plan["calls"]))  # before the first fork: a process without it could be traced
    link.sendall(b"ready")
    if link.recv(2) != b"go":  # by now the harness has put this process into its control group
        return 125
    # A program with our user could trace this process, open its standard streams, and stay in it after its own end.
    prctl(PR_SET_DUMPABLE, 0)
    if plan["joined"]:
        if os.getpid() == 1:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for orphans
        status_byte = link.recv(1)
        return status_byte[0] if status_byte else 128 + signal.SIGKILL  # the process that joined was killed
    if not plan["leash"]:
        link.close()
    for name, value in plan["rlimits"].items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))
    if listeners:
        _fork_forwarder(listeners, dies_with_parent=plan["die_with_parent"])
    for listener, _ in listeners:
        listener.close()
    command = _fork_command(plan)
    signal.signal(signal.SIGTERM, lambda *_: _terminate_group(command))
    status = _wait_on_leash(command, link) if plan["leash"] else _wait(command)
    if plan["die_with_parent"]:
        _end_leftovers()
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code


def _open_link(address: str) -> socket.socket:
    """The link by its descriptor's number or its path."""
    if address.isdigit():
        link = socket.socket(fileno=int(address))
    else:
        link = socket.socket(socket.AF_UNIX)
        link.connect(address)
    link.set_inheritable(False)
    return link


def _receive(link: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = link.recv(size - len(data))
        if not part:
            _quit(125, "the harness hung up before it said what to run")
        data += part
    return data


def _wait(command: int) -> int:
    """The wait status of the command; as the first process of a namespace this one collects orphans as well."""
    while True:
        ended, status = os.waitpid(-1 if os.getpid() == 1 else command, 0)
        if ended == command:
            return status


def _wait_on_leash(command: int, link: socket.socket) -> int:
    """Wait for the command as the first process of a namespace, which has to collect orphans as well.

    Returns its wait status, or that of a kill if the other side of the link closed first; everything ends with the
    first process.
    """
    wakeup_reader, wakeup_writer = os.pipe()
    os.set_blocking(wakeup_writer, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # a handler is needed for Python to write to the wakeup pipe
    signal.set_wakeup_fd(wakeup_writer, warn_on_full_buffer=False)
    while True:
        while True:
            try:
                ended, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if ended == command:
                return status
            if ended == 0:
                break
        ready, _, _ = select.select([wakeup_reader, link.fileno()], [], [])
        if link.fileno() in ready and not link.recv(64):
            return signal.SIGKILL
        if wakeup_reader in ready:
            os.read(wakeup_reader, 4096)


def become(uid: int) -> None:
    """Change user and group for good: no groups, no capabilities, and no way to get any again.

    The kernel ignores the limit on processes for root and for holders of CAP_SYS_RESOURCE.
    """
    _limit_capabilities()
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    _drop_capabilities()  # the inheritable ones outlive the change of user


def stay() -> None:
    """Keep user and group, give up all capabilities, and with them any way to get some again."""
    _limit_capabilities()
    _drop_capabilities()


def _limit_capabilities() -> None:
    for capability in range(LAST_CAPABILITY + 1):
        if _libc().prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            break  # past the last one that this kernel knows


def _drop_capabilities() -> None:
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    if _libc().capset(header, (ctypes.c_uint32 * 6)()) != 0:
        raise OSError(ctypes.get_errno(), "capset was refused")


class _CallFilter(ctypes.Structure):
    """`struct sock_fprog`."""

    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def filter_calls(code: bytes) -> None:
    """Refuse system calls in this process and all that it starts; ends the process if the kernel does not take it."""
    program = _CallFilter(len(code) // 8, code)
    if _libc().prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0) != 0:
        _quit(125, f"the system call filter was refused: {os.strerror(ctypes.get_errno())}")


def _listen(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
    except OSError as error:
        _quit(1, f"port {port} of loopback cannot be opened: {error.strerror}")
    listener.listen(BACKLOG)
    return listener


def _fork_command(plan: Plan) -> int:
    child = os.fork()
    if child:
        return child
    program = plan["command"][0]
    try:
        os.setsid()
        if plan["die_with_parent"]:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and what is ignored is inherited
            signal.signal(number, signal.SIG_DFL)
        os.chdir(plan["directory"])
        os.execvpe(program, plan["command"], {**plan["environment"], "PWD": plan["directory"]})
    except OSError as error:
        _quit(127, f"cannot start {program!r} in {plan['directory']}: {error.strerror}")


def _fork_forwarder(listeners: list[tuple[socket.socket, str]], *, dies_with_parent: bool) -> None:
    parent = os.getpid()
    if os.fork():
        return
    if dies_with_parent:  # a fork does not inherit it
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            _quit(1, "the program's parent ended")
    try:
        _serve(listeners)
    except OSError as error:
        _quit(1, f"the ports closed: {error}")
    _quit(1, "the ports closed")


def _serve(listeners: list[tuple[socket.socket, str]]) -> None:
    """Copy bytes between ports and sockets until killed."""
    import asyncio  # here: it takes longer than all other imports together, and only this process needs it

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()

    async def connect(path: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            upstream_reader, upstream = await asyncio.open_unix_connection(path)
        except OSError as error:  # without this line the program would only see its connection reset
            os.write(2, f"agent2 sandbox: the server behind a port cannot be reached: {error}\n".encode())
            writer.close()
            return
        try:
            await asyncio.gather(copy(reader, upstream), copy(upstream_reader, writer))
        except OSError:
            pass  # one side hung up: the other notices by the closed connection
        finally:
            writer.close()
            upstream.close()

    async def run() -> None:
        for listener, path in listeners:
            listener.setblocking(False)
            await asyncio.start_server(functools.partial(connect, _connectable(path)), sock=listener)
        await asyncio.Event().wait()

    asyncio.run(run())


def _connectable(path: str) -> str:
    """A path that fits into a socket's address: one that is too long, by its folder's descriptor, which stays open."""
    if len(os.fsencode(path)) <= MAX_SOCKET_PATH:
        return path
    folder = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY)
    return f"/proc/self/fd/{folder}/{os.path.basename(path)}"


def _end_leftovers() -> None:
    """Kill all remaining descendants; as a subreaper we inherit every orphan."""
    while children := _children():
        for child in children:
            os.kill(child, signal.SIGKILL)
        for child in children:
            os.waitpid(child, 0)


def _children() -> list[int]:
    own_pid = os.getpid()
    children = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                    parent = int(file.read().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue  # it ended meanwhile
            if parent == own_pid:
                children.append(int(name))
    return children


def _terminate_group(command: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has ended already
        os.killpg(command, signal.SIGTERM)


def prctl(option: int, value: int) -> None:
    """Change a property of this process. Raises OSError if the kernel refuses."""
    if _libc().prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value}) was refused")


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _quit(status: int, sentence: str) -> NoReturn:
    os.write(2, f"agent2 sandbox: {sentence}\n".encode())
    os._exit(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
