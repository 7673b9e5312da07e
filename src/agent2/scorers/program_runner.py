"""The program that runs inside a sandbox for `python_tests`: it runs untrusted programs, or applies tests to values.

    python -I -S -B -c "$(cat program_runner.py)" < job.json

Two jobs, never in the same sandbox. `run` gets untrusted programs with calls, and prints what the calls returned.
`examine` gets the tests of a benchmark, and either records which calls they make of a right program or judges values
that came out of the first job. Programs run one after the other, each in a process of its own that is gone, with all
that it started, before the next begins. Standard library only: this text is all that the sandbox gets.

Prints "ready", then one line of JSON for each program or test, in order, as soon as it is done.
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
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from types import CodeType
from typing import Any, NoReturn

PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
MAX_ITERATED = 100_000
"""Elements of a generator or another iterator that are taken as its value."""
LIBC = ctypes.CDLL(None)
PATIENCE = 4
"""On a busy machine a program may take this many times its seconds."""
SWEEP_S = 5.0
"""For everything that a program started to be gone."""
LOADED = ["loaded", ""]
TIMEOUT = ["timeout", ""]


def encode_value(value: Any) -> Any:
    """A value as tagged JSON, data only; an instance of a subclass becomes what it extends.

    Raises TypeError for a value of another kind, RecursionError for one that contains itself.
    """
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
        return ["dict", [[encode_value(key), encode_value(entry)] for key, entry in dict.items(value)]]
    for base in (list, tuple, set, frozenset):
        if isinstance(value, base):
            return [base.__name__, [encode_value(element) for element in base.__iter__(value)]]  # type: ignore[arg-type]
    if kind is range:
        return ["range", [value.start, value.stop, value.step]]
    if hasattr(kind, "__next__"):
        return ["iterator", [encode_value(element) for element, _ in zip(value, range(MAX_ITERATED), strict=False)]]
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


def run(job: Mapping[str, Any]) -> Iterator[Any]:
    """For each program the result of each of its calls: a kind (value, raised, timeout, none) and a text."""
    initial_names = set(os.listdir(job["folder"]))
    for number, program in enumerate(job["programs"]):
        folder = os.path.join(job["folder"], f"program-{number}")
        os.mkdir(folder)
        yield program_results(job, program, folder)
        for name in set(os.listdir(job["folder"])) - initial_names:
            remove(os.path.join(job["folder"], name))


def remove(path: str) -> None:
    """Remove what a program left, as far as possible."""
    try:
        os.rmdir(path)
    except OSError:
        import shutil  # loads five libraries, which would be in the memory of every forked program

        shutil.rmtree(path, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.unlink(path)


def program_results(job: Mapping[str, Any], program: Mapping[str, Any], folder: str) -> list[list[str]]:
    """The results of one program; after a call that ended its process, the remaining calls get a new process."""
    n, results = len(program["calls"]), list[list[str]]()
    ends_at = time.monotonic() + job["limit_s"]
    while len(results) < n:
        first = len(results)

        def serve(out: int, first: int = first) -> None:
            os.chdir(folder)
            answer_calls(job, program, first, out)

        lines, reason = run_in_child(serve, n - first + 1, ends_at - time.monotonic(), job["max_bytes"])
        if not lines or lines[0] != LOADED:
            return results + [lines[0] if lines else reason] * (n - first)
        results += lines[1:]
        if len(results) < n:
            # The limit is for all calls together: after a timeout there is no time left for the others.
            results += [reason] * (n - len(results) if reason == TIMEOUT else 1)
    return results


def answer_calls(job: Mapping[str, Any], program: Mapping[str, Any], first: int, out: int) -> None:
    """In the program's own process: run it, then make its calls from `first` on, writing one line for each."""
    for limit, value in (
        (resource.RLIMIT_CPU, math.ceil(job["limit_s"]) + 1),
        (resource.RLIMIT_AS, job["memory_bytes"]),
    ):
        resource.setrlimit(limit, (value, value))
    names: dict[str, Any] = {"__name__": "solution"}
    if job["imports"] is not None:
        names["__builtins__"] = {**vars(builtins), "__import__": restricted_import(frozenset(job["imports"]))}
    # BaseException: SystemExit and KeyboardInterrupt of a program are its failures, too.
    try:
        exec(compile(program["code"], "solution", "exec"), names)
    except BaseException as error:
        write_result(out, raised(error), job["max_bytes"])
        return
    write_result(out, LOADED, job["max_bytes"])
    for call in program["calls"][first:]:
        try:
            if isinstance(call, str):
                value = eval(call, names)
            else:
                arguments, keywords = (decode_value(tree) for tree in call)
                value = names[program["entry_point"]](*arguments, **keywords)
            result = ["value", json.dumps(encode_value(value))]
        except BaseException as error:
            result = raised(error)
        write_result(out, result, job["max_bytes"])


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


def run_in_child(
    work: Callable[[int], None], n_lines: int, limit_s: float, max_bytes: int
) -> tuple[list[list[str]], list[str]]:
    """Do work in a child; returns the lines that it wrote, at most `n_lines`, and why there are no more of them.

    limit_s: time that the child waited for a processor is not counted, up to `PATIENCE` times the limit in all.
    Everything that the child started is gone afterwards; if something cannot be ended, this process ends as well.
    """
    receiving, sending = os.pipe()
    try:
        pid = os.fork()
    except OSError as error:
        os.close(receiving)
        os.close(sending)
        return [], ["none", "no process could be started: " + str(error)]
    if pid == 0:
        os.close(receiving)
        child_main(work, sending)
    os.close(sending)
    data, lines, reason = b"", list[list[str]](), ["none", "its process ended before it had a value"]
    ends_at, credited_s = time.monotonic() + limit_s, 0.0
    while len(lines) < n_lines:
        remaining_s = ends_at - time.monotonic()
        if remaining_s <= 0:
            waited_s = min(run_queue_s(pid), (PATIENCE - 1) * limit_s)
            if waited_s > credited_s + 0.01:
                ends_at += waited_s - credited_s
                credited_s = waited_s
                continue
            reason = TIMEOUT
            break
        if not select.select([receiving], [], [], min(remaining_s, 0.05))[0]:
            if pid and not os.waitpid(pid, os.WNOHANG)[0]:
                continue
            pid = 0
            # What the child wrote just before its end may still be in the pipe.
            if not select.select([receiving], [], [], 0)[0]:
                break  # a process that the child started holds the pipe open, so there is no end of file
        chunk = os.read(receiving, 65536)
        data += chunk
        *whole_lines, data = data.split(b"\n")
        lines += [parse_result(line) for line in whole_lines[: n_lines - len(lines)]]
        if not chunk or len(data) > max_bytes:
            break
    os.close(receiving)
    sweep(pid)
    return lines, reason


def run_queue_s(pid: int) -> float:
    """Seconds that a process was ready to run and had no processor; 0 where the kernel does not report them."""
    try:
        with open(f"/proc/{pid}/schedstat", "rb") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def parse_result(line: bytes) -> list[str]:
    """A line of a child as a kind and a text, whatever it wrote."""
    try:
        kind, text = json.loads(line)
        return [str(kind), str(text)]
    except Exception:  # the line may come from the program itself
        return ["none", "its process wrote what is no result"]


def child_main(work: Callable[[int], None], out: int) -> NoReturn:
    """Do work without the parent's session, input and output, and end."""
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        prctl(PR_SET_DUMPABLE, 1)
        gc.enable()
        work(out)
    finally:
        os._exit(0)  # without the program's exit handlers


def sweep(pid: int) -> None:
    """End a child and all its descendants. pid: 0 if it has been reaped."""
    if pid:
        # By pid as well: before its setsid the child leads no group, and a program may have left the group.
        for kill in (os.killpg, os.kill):
            with contextlib.suppress(OSError):
                kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    gives_up_at = time.monotonic() + SWEEP_S
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0]:
                continue
        except ChildProcessError:
            return
        for orphan in own_children():
            with contextlib.suppress(OSError):
                os.kill(orphan, signal.SIGKILL)
        if time.monotonic() > gives_up_at:
            os._exit(3)
        time.sleep(0.001)


def own_children() -> Iterator[int]:
    """Processes whose parent is this one; as it is a subreaper, a program's orphans are among them."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/" + name + "/stat", "rb") as file:
                    parent = int(file.read().rpartition(b")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                continue
            if parent == os.getpid():
                yield int(name)


def prctl(option: int, value: int) -> None:
    """Set a property of this process; where the kernel refuses, nothing changes."""
    LIBC.prctl(option, value, 0, 0, 0)


# BaseException, both: tests that catch Exception must not swallow them.
class CallsDiverged(BaseException):
    """The tests make other calls of this program than of the right one."""


class OutOfTime(BaseException):
    """The tests themselves took too long over the values."""


def examine(job: Mapping[str, Any]) -> Iterator[Any]:
    """For each run (index of a check, results or null) the outcome of `examine_check`, or {"error": reason}."""

    def on_alarm(*_: Any) -> NoReturn:
        raise OutOfTime

    signal.signal(signal.SIGALRM, on_alarm)
    for index, results in job["runs"]:
        signal.setitimer(signal.ITIMER_REAL, job["limit_s"])
        try:
            outcome = examine_check(job["checks"][index], results)
        except OutOfTime:
            outcome = {"error": "they took too long"}
        except BaseException as error:
            outcome = {"error": f"{type(error).__name__}: {str(error)[:200]}"}
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        yield outcome


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
    """Read the job, print its results."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)  # so that orphans of a program become children of this process, see `sweep`
    prctl(PR_SET_DUMPABLE, 0)  # so that a program cannot read this process's memory, nor trace it
    job = json.loads(sys.stdin.buffer.read())
    gc.disable()
    gc.freeze()  # so that a child copies less of this process
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for result in (run if job["kind"] == "run" else examine)(job):
        sys.stdout.write(json.dumps(result) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
