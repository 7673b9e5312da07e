"""The program that runs inside a sandbox for `python_tests`: it runs untrusted programs, or applies tests to values.

    python -I -S -B -c "$(texts of sandbox_state.py and program_runner.py)" '{"folder": "/tmp", "is_contained": true}'

Requests come on standard input, one after the other, and are answered on standard output, by three processes:

    server     forks a worker when the monitor asks for one, and hands the monitor its ends of the worker's pipes; when
               the worker has ended, ends what it left running, puts every writable folder back as it was, and says so;
               ends, and with it the sandbox, where that fails. Never reads a request or a result
    monitor    reads a request, hands the work to a worker, keeps time, collects what the worker wrote, and answers;
               each line begins with the token of its request
    worker     runs one program, or some checks; as a fork of the server it has never held a token, another request,
               or a way to either of the streams

So in the memory that a program inherits, in the processes that it can look into, and in the files that it finds, there
is nothing of another program, and it leaves nothing for the next. It may stop or kill the other two, which have its
user; then the sandbox ends, and the caller (`program_batches`), which holds the programs outside, starts another.
Two kinds of work, never in the same sandbox: `run`, an untrusted program with calls, without
the expected values; and `examine`, a `check` function of a benchmark with values that came out of the first kind.
Standard library only: the two texts are all that the sandbox gets.
"""

import ast
import builtins
import contextlib
import copy
import ctypes
import functools
import gc
import json
import marshal
import math
import os
import random
import re
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from types import CodeType
from typing import Any, NoReturn

from agent2.scorers.sandbox_state import SandboxState, remove

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
MAX_ITERATED = 100_000
"""Elements of a generator or another iterator that are taken as its value."""
MAX_DEPTH = 100
"""Levels of nesting of a value."""
LIBC = ctypes.CDLL(None, use_errno=True)
PATIENCE = 4
"""On a busy machine a program may take this many times its seconds."""
SWEEP_S = 5.0
"""For everything that a program started to be gone."""
CLEAN_S = 12.0
"""For the server to end what a worker started, and to put the sandbox back as it was."""
PREFIX_BYTES = 16
"""Before each request: the lengths of its header and of its work, 8 hexadecimal digits each."""
TRACE_S = 0.5
"""For a worker to say where it is."""
TRACE_BYTES = 4_096
LOADED = ["loaded", ""]
TIMEOUT = ["timeout", ""]
ENDED = ["none", "its process ended before it had a value"]
TOO_MUCH = ["none", "its values are too long together"]
NO_MONITOR, NOT_CLEAN, NOT_SWEPT = 8, 9, 10
"""Exit codes: no monitor; a program left something that cannot be undone; or a process that cannot be ended."""
READY, FORK = b"r", b"f"
"""Between server and monitor: the sandbox is as it was at first; start a worker."""


def encode_value(value: Any, depth: int = 0) -> Any:
    """A value as tagged JSON, data only; an instance of a subclass becomes what it extends.

    Raises TypeError for a value of another kind, RecursionError for one nested deeper than `MAX_DEPTH`.
    """
    if depth > MAX_DEPTH:
        raise RecursionError(f"a value nested deeper than {MAX_DEPTH} levels")
    depth += 1
    kind = type(value)
    if value is None or kind in (bool, float, str):
        return value
    # Methods are those of the base class: a program's subclass could return anything from its own.
    if isinstance(value, int):
        number = int.__add__(value, 0)
        return number if -(2**63) < number < 2**63 else ["int", hex(number)]
    if isinstance(value, float):
        return float.__add__(value, 0.0)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, complex):
        return ["complex", [value.real, value.imag]]
    if isinstance(value, bytes):
        return ["bytes", bytes.hex(value)]
    if isinstance(value, dict):
        return ["dict", [[encode_value(key, depth), encode_value(entry, depth)] for key, entry in dict.items(value)]]
    for base in (list, tuple, set, frozenset):
        if isinstance(value, base):
            return [base.__name__, [encode_value(element, depth) for element in base.__iter__(value)]]  # type: ignore[arg-type]
    if kind is range:
        return ["range", [value.start, value.stop, value.step]]
    if hasattr(kind, "__next__"):
        elements = (element for element, _ in zip(value, range(MAX_ITERATED), strict=False))
        return ["iterator", [encode_value(element, depth) for element in elements]]
    raise TypeError("returned a " + kind.__name__)


def decode_value(tree: Any) -> Any:
    """The value that `encode_value` wrote. Raises ValueError, TypeError or KeyError for anything else."""
    if not isinstance(tree, list):
        if isinstance(tree, dict):
            raise ValueError("an object without a tag")
        return tree
    tag, parts = tree
    if tag == "dict":
        return {decode_value(key): decode_value(value) for key, value in parts}
    makers: Mapping[str, Callable[[Any], Any]] = {
        "bytes": bytes.fromhex,
        "int": lambda text: int(text, 16),
        "complex": lambda pair: complex(*pair),
        "range": lambda ends: range(*ends),
    }
    if tag in makers:
        return makers[tag](parts)
    collections: Mapping[str, Callable[[Iterator[Any]], Any]] = {
        "list": list,
        "tuple": tuple,
        "set": set,
        "frozenset": frozenset,
        "iterator": lambda values: iter(list(values)),
    }
    return collections[tag](decode_value(part) for part in parts)


def serve(folder: str, is_contained: bool, monitor: int, channel: socket.socket) -> NoReturn:
    """Start a worker for each message of the monitor until it ends, or the sandbox cannot be used any more.

    folder: in which each program gets an empty one. is_contained: the sandbox is ours, so that all of it is emptied.
    """
    first_state = SandboxState() if is_contained else None
    first_names = frozenset(os.listdir(folder))
    work_folder = os.path.join(folder, "program")
    channel.sendall(READY)
    while channel.recv(1) == FORK:
        os.mkdir(work_folder)
        (work_end, work), (result_end, result), (trace_end, trace) = os.pipe(), os.pipe(), os.pipe()
        pid = os.fork()
        if pid == 0:
            channel.close()
            for descriptor in (work, result_end, trace_end):
                os.close(descriptor)
            worker_main(work_folder, work_end, result, trace)
        for descriptor in (work_end, result, trace):
            os.close(descriptor)
        socket.send_fds(channel, [b"%8d" % pid], [work, result_end, trace_end])
        for descriptor in (work, result_end, trace_end):
            os.close(descriptor)
        await_end(pid, monitor)
        sweep(monitor)
        if first_state is not None:
            if not first_state.is_restored():
                os._exit(NOT_CLEAN)
        else:
            for name in frozenset(os.listdir(folder)) - first_names:
                with contextlib.suppress(OSError):
                    remove(os.path.join(folder, name))
        channel.sendall(READY)
    os._exit(0)


def await_end(pid: int, monitor: int) -> None:
    """Wait for the end of a worker; if the monitor ends or is stopped before, so does this process."""
    ended = 0
    while ended != pid:
        ended, status = os.waitpid(-1, os.WUNTRACED)
        if ended == monitor:  # its group's time is kept no longer; the sandbox ends with this process
            os._exit(NO_MONITOR)
        if os.WIFSTOPPED(status):
            ended = 0


def sweep(monitor: int) -> None:
    """End all processes that a worker left; if one cannot be ended, this process ends."""
    gives_up_at = time.monotonic() + SWEEP_S
    while (children := own_children()) != [monitor]:
        for child in children:
            if child != monitor:
                with contextlib.suppress(OSError):
                    os.kill(child, signal.SIGKILL)
        while ended := os.waitpid(-1, os.WNOHANG)[0]:
            if ended == monitor:
                os._exit(NO_MONITOR)
        if time.monotonic() > gives_up_at:
            os._exit(NOT_SWEPT)
        time.sleep(0.001)


def own_children() -> list[int]:
    """Processes whose parent is this one; as it is a subreaper, a program's orphans are among them."""
    me = os.getpid()
    with contextlib.suppress(OSError), open(f"/proc/{me}/task/{me}/children", "rb") as file:
        return [int(pid) for pid in file.read().split()]
    children = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/" + name + "/stat", "rb") as file:
                    parent = int(file.read().rpartition(b")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                continue
            if parent == me:
                children.append(int(name))
    return children


def prctl(option: int, value: int) -> None:
    """Set a property of this process; where the kernel refuses, nothing changes."""
    LIBC.prctl(option, value, 0, 0, 0)


def monitor_main(channel: socket.socket) -> NoReturn:
    """Answer one request after the other."""
    code = 1
    try:
        if channel.recv(1) == READY:
            channel.settimeout(CLEAN_S)
            say(b"ready")
            while answer_request(channel):
                pass
            code = 0
    finally:
        os._exit(code)


def answer_request(channel: socket.socket) -> bool:
    """Read a request, have it done, and answer it; False: the caller has hung up."""
    prefix = read_exactly(PREFIX_BYTES)
    if len(prefix) < PREFIX_BYTES:
        return False
    header = json.loads(read_exactly(int(prefix[:8], 16)))
    body = read_exactly(int(prefix[8:], 16))
    channel.sendall(FORK)
    message, (work, result_end, trace_end), _, _ = socket.recv_fds(channel, 8, 3)
    pid = int(message)
    with contextlib.suppress(OSError):  # of a worker that has ended
        while body:
            body = body[os.write(work, body) :]
    os.close(work)
    answer = collect(pid, result_end, trace_end, header)
    for descriptor in (result_end, trace_end):
        os.close(descriptor)
    try:
        answer["is_clean"] = channel.recv(1) == READY
    except TimeoutError:  # the worker has stopped the server
        answer["is_clean"] = False
    say(header["token"].encode() + b" " + json.dumps(answer).encode())
    return True


def say(line: bytes) -> None:
    """Write a line on standard output."""
    line += b"\n"
    while line:
        line = line[os.write(1, line) :]


def read_exactly(size: int) -> bytes:
    """So many bytes of standard input; fewer if it ends."""
    parts = []
    while size and (part := os.read(0, min(size, 1 << 20))):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def collect(pid: int, result_end: int, trace_end: int, header: Mapping[str, Any]) -> dict[str, Any]:
    """What a worker wrote: `lines`, at most `n_lines`; `reason`, why there are no more; `left_s`, time not used.

    header: `limit_s`, for all lines, or, if `is_per_line`, for each; `max_line_bytes` and `max_bytes`, for all.
    Time that the worker waited for a processor is not counted, up to `PATIENCE` times the limit in all. The results end
    when the worker has ended, because the server then ends all that could still write.
    """
    n_lines, limit_s, max_line_bytes = header["n_lines"], header["limit_s"], header["max_line_bytes"]
    data, lines, reason, n_bytes, where = b"", list[list[str]](), ENDED, 0, ""
    ends_at, credited_s, waited_before_s, was_late = time.monotonic() + limit_s, 0.0, 0.0, False
    while len(lines) < n_lines:
        remaining_s = ends_at - time.monotonic()
        # What is there by now came in time: it may be this process that was held up. It is read once, not for ever.
        has_more = bool(select.select([result_end], [], [], max(0.0, remaining_s))[0])
        was_late, is_over = remaining_s <= 0, remaining_s <= 0 and (was_late or not has_more)
        if is_over:
            waited_s = min(run_queue_s(pid) - waited_before_s, (PATIENCE - 1) * limit_s)
            if waited_s > credited_s + 0.01:
                ends_at += waited_s - credited_s
                credited_s = waited_s
                continue
            reason, where = TIMEOUT, place_of(pid, trace_end) if header["is_per_line"] else ""
            break
        if not has_more:
            continue
        chunk = os.read(result_end, 65536)
        data += chunk
        n_bytes += len(chunk)
        *whole_lines, data = data.split(b"\n")
        lines += [parse_result(line) for line in whole_lines[: n_lines - len(lines)]]
        if whole_lines and header["is_per_line"]:
            waited_before_s, credited_s = run_queue_s(pid), 0.0
            ends_at = time.monotonic() + limit_s
        if n_bytes > header["max_bytes"]:
            reason = TOO_MUCH
            break
        if not chunk or len(data) > max_line_bytes:
            break
    if reason == ENDED and header["is_per_line"]:
        where = place_of(0, trace_end)
    # By pid as well: before its setsid the worker leads no group, and a program may have left the group.
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(OSError):
            kill(pid, signal.SIGKILL)
    return {"lines": lines, "reason": reason, "left_s": max(0.0, ends_at - time.monotonic()), "where": where}


def place_of(pid: int, trace_end: int) -> str:
    """Where in a check a worker is, as faulthandler writes it into the pipe. pid: 0 if it has ended."""
    if pid:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGUSR1)
    if not select.select([trace_end], [], [], TRACE_S if pid else 0)[0]:
        return ""
    frames = re.findall(rb'File "(tests|right)", line (\d+)', os.read(trace_end, TRACE_BYTES))
    return f"line {int(frames[0][1])} of its {'test' if frames[0][0] == b'tests' else 'program'}" if frames else ""


def run_queue_s(pid: int) -> float:
    """Seconds that a process was ready to run and had no processor; 0 where the kernel does not report them."""
    try:
        with open(f"/proc/{pid}/schedstat", "rb") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def parse_result(line: bytes) -> list[str]:
    """A line of a worker as a kind and a text, whatever it wrote."""
    try:
        kind, text = json.loads(line)
        return [str(kind), str(text)]
    except Exception:  # the line may come from the program itself
        return ["none", "its process wrote what is no result"]


def worker_main(work_folder: str, work_end: int, out: int, trace: int) -> NoReturn:
    """Do the work that comes through the pipe, without the session, input and output of the others, and end."""
    try:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        os.close(null)
        parts = []
        while part := os.read(work_end, 1 << 20):
            parts.append(part)
        os.close(work_end)
        work = json.loads(b"".join(parts))
        parts.clear()
        os.chdir(work_folder)
        set_limit(resource.RLIMIT_AS, work["memory_bytes"])
        set_limit(resource.RLIMIT_MSGQUEUE, 0)
        gc.enable()
        if work["kind"] == "run":
            os.close(trace)
            prctl(PR_SET_DUMPABLE, 1)
            answer_calls(work, out)
        else:
            examine(work, out, trace)
    finally:
        os._exit(0)  # without the program's exit handlers


def set_limit(number: int, value: int) -> None:
    """Lower a limit of this process, soft and hard."""
    with contextlib.suppress(ValueError):  # it is lower already
        resource.setrlimit(number, (value, value))


def answer_calls(work: Mapping[str, Any], out: int) -> None:
    """Run an untrusted program, then make its calls, writing one line for each."""
    set_limit(resource.RLIMIT_CPU, math.ceil(work["limit_s"]) + 1)
    max_bytes = work["max_line_bytes"]
    names: dict[str, Any] = {"__name__": "solution"}
    if work["imports"] is not None:
        names["__builtins__"] = {**vars(builtins), "__import__": restricted_import(frozenset(work["imports"]))}
    # BaseException: SystemExit and KeyboardInterrupt of a program are its failures, too.
    try:
        exec(compile(work["code"], "solution", "exec"), names)
    except BaseException as error:
        write_result(out, raised(error), max_bytes)
        return
    write_result(out, LOADED, max_bytes)
    for call in work["calls"]:
        try:
            if isinstance(call, str):
                value = eval(call, names)
            else:
                arguments, keywords = (decode_value(tree) for tree in call)
                value = names[work["entry_point"]](*arguments, **keywords)
            result = ["value", json.dumps(encode_value(value))]
        except BaseException as error:
            result = raised(error)
        write_result(out, result, max_bytes)


def restricted_import(allowed: frozenset[str]) -> Callable[..., Any]:
    """An `__import__` that refuses modules outside a list; it restricts honest programs and is no security boundary."""

    def import_allowed(name: str, *arguments: Any, **keywords: Any) -> Any:
        if name.partition(".")[0] not in allowed:
            raise ImportError("import of " + name + " is not allowed")
        return builtins.__import__(name, *arguments, **keywords)

    return import_allowed


def raised(error: BaseException) -> list[str]:
    """The result of a call that raised."""
    return ["raised", type(error).__name__ + ": " + str(error)[:200]]


def write_result(out: int, result: list[str], max_bytes: int) -> None:
    """Write one result as a line; one that is too long becomes a result of kind none."""
    line = json.dumps(result).encode("ascii", "backslashreplace") + b"\n"
    if len(line) > max_bytes:
        line = json.dumps(["none", f"a value of {len(line)} bytes"]).encode() + b"\n"
    while line:
        line = line[os.write(out, line) :]


# BaseException: tests that catch Exception must not swallow it.
class CallsDiverged(BaseException):
    """The tests make other calls of this program than of the right one."""


def examine(work: Mapping[str, Any], out: int, trace: int) -> None:
    """Judge each run (index of a check, results or null to record its calls), writing a line for each outcome."""
    import faulthandler

    faulthandler.enable(trace, all_threads=False)
    faulthandler.register(signal.SIGUSR1, trace, all_threads=False)
    for index, results in work["runs"]:
        used = resource.getrusage(resource.RUSAGE_SELF)
        cpu_s = math.ceil(used.ru_utime + used.ru_stime + work["limit_s"]) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, resource.RLIM_INFINITY))
        try:
            outcome = examine_check(work["checks"][index], results)
        except MemoryError:
            return  # what earlier checks left may have taken it; alone this one has all
        except BaseException as error:
            outcome = {"error": f"{type(error).__name__}: {str(error)[:200]}"}
        write_result(out, ["outcome", json.dumps(outcome)], work["max_line_bytes"])


def examine_check(check: Mapping[str, Any], results: Any) -> dict[str, Any]:
    """Run `check(candidate)` with a candidate that records its calls, or that answers with the values of a program.

    check: `program` is a right one, of which helpers are used and, to record, the function; `compiled`, if present,
    replaces `test`. results: to judge by; None: record. Returns {"calls", "marks", "compiled"} (for each assert the
    number of calls before it) or {"passed", "end", "diverged"}.
    """
    candidate: RecordingCandidate | ReplayingCandidate = (
        RecordingCandidate(check) if results is None else ReplayingCandidate(check, results)
    )
    names: dict[str, Any] = {"__name__": "tests"}
    exec(compile_program(check["program"]), names)
    names |= {check["entry_point"]: candidate, "_asserted": candidate.asserted}
    random.seed(0)  # tests that draw their inputs draw the same when calls are recorded and when values are judged
    code = load_code(check["compiled"]) if "compiled" in check else compile_tests(check["test"])
    exec(code, names)
    outcome = candidate.outcome(names["check"])
    return outcome if results is not None else {**outcome, "compiled": marshal.dumps(code).hex()}


@functools.cache
def compile_program(program: str) -> CodeType:
    """Code of a right program; cached, as several programs are judged by the same one."""
    return compile(program, "right", "exec")


@functools.cache
def load_code(text: str) -> CodeType:
    """What tests were compiled to when their calls were recorded; compiling takes as long as judging ten programs."""
    code: CodeType = marshal.loads(bytes.fromhex(text))
    return code


def compile_tests(tests: str) -> CodeType:
    """Code of tests with each assert replaced by a call of `_asserted`."""
    return compile(ast.fix_missing_locations(AssertTransformer().visit(ast.parse(tests))), "tests", "exec")


class AssertTransformer(ast.NodeTransformer):
    """Replaces `assert TEST` by `_asserted(lambda: TEST)`."""

    def visit_Assert(self, node: ast.Assert) -> ast.Expr:
        """The call that replaces an assert."""
        no_arguments = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        test = ast.Lambda(args=no_arguments, body=node.test)
        return ast.Expr(ast.Call(func=ast.Name("_asserted", ast.Load()), args=[test], keywords=[]))


class RecordingCandidate:
    """The right function; records how it is called."""

    def __init__(self, check: Mapping[str, Any]) -> None:
        names: dict[str, Any] = {"__name__": "right"}
        exec(compile_program(check["program"]), names)
        self.right = names[check["entry_point"]]
        self.calls, self.marks, self.passed = list[Any](), list[int](), list[bool]()

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """The right value."""
        self.calls.append([encode_value(arguments), encode_value(keywords)])
        # When values are replayed no function runs here, so the right one must not advance the tests' random state.
        state = random.getstate()
        value = self.right(*copy.deepcopy(arguments), **copy.deepcopy(keywords))
        random.setstate(state)
        return value

    def asserted(self, holds: Callable[[], Any]) -> None:
        """Evaluate an assert."""
        self.marks.append(len(self.calls))
        self.passed.append(bool(holds()))

    def outcome(self, tests: Callable[[Any], Any]) -> dict[str, Any]:
        """The calls that the tests make. Raises ValueError if the right function fails them."""
        tests(self)
        if not all(self.passed) or not self.calls or not self.marks:
            raise ValueError("the right program fails them" if self.marks and self.calls else "they ask nothing")
        return {"calls": self.calls, "marks": self.marks}


class ReplayingCandidate:
    """Answers the recorded calls with the values of a program; every assert is evaluated, even after a failed one."""

    def __init__(self, check: Mapping[str, Any], results: Any) -> None:
        self.calls, self.marks, self.results = check["calls"], check["marks"], results
        self.next_call, self.passed = 0, list[bool]()

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """The program's value, or what it raised."""
        # Through JSON, as the recorded calls have been.
        call = json.loads(json.dumps([encode_value(arguments), encode_value(keywords)]))
        if self.next_call >= len(self.results) or call != self.calls[self.next_call]:
            raise CallsDiverged
        kind, text = self.results[self.next_call]
        self.next_call += 1
        if kind == "value":
            return decode_value(json.loads(text))
        # An exception of the same built-in type, as tests may expect one.
        error_type: Any = getattr(builtins, text.partition(":")[0], None)
        is_error = kind == "raised" and isinstance(error_type, type) and issubclass(error_type, Exception)
        raise error_type(text) if is_error else RuntimeError(f"{kind} {text}")

    def asserted(self, holds: Callable[[], Any]) -> None:
        """Evaluate an assert; one that failed may have made fewer calls than the right program got."""
        if len(self.passed) >= len(self.marks):
            raise CallsDiverged
        self.next_call = self.marks[len(self.passed)]
        self.passed.append(False)
        with contextlib.suppress(Exception):
            self.passed[-1] = bool(holds())

    def outcome(self, tests: Callable[[Any], Any]) -> dict[str, Any]:
        """Which asserts passed, and how the tests ended."""
        end, diverged = "", False
        try:
            tests(self)
        except CallsDiverged:
            diverged = True
        except Exception as error:
            end = f"{type(error).__name__}: {str(error)[:200]}"
        return {"passed": self.passed, "end": end, "diverged": diverged}


def main() -> None:
    """Take the settings from the command line and serve."""
    settings = json.loads(sys.argv[1])
    prctl(PR_SET_CHILD_SUBREAPER, 1)  # so that orphans of a program become children of this process, see `sweep`
    prctl(PR_SET_DUMPABLE, 0)  # so that a program cannot read the memory of server and monitor, nor trace them
    channel, far_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    monitor = os.fork()
    if monitor == 0:
        channel.close()
        monitor_main(far_end)
    far_end.close()
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):
        os.dup2(null, descriptor)
    os.close(null)
    gc.disable()
    gc.freeze()  # so that a child copies less of this process
    serve(settings["folder"], settings["is_contained"], monitor, channel)


if __name__ == "__main__":
    main()
