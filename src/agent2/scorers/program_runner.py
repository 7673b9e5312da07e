"""What runs inside a sandbox for `python_tests`: programs are asked for values there, and tests are put to values.

    python -I -S -B -c "$(cat program_runner.py)" < job.json

Two jobs, never in the same sandbox. `run` is given programs that nobody trusts with calls, and prints what the calls
returned. `examine` is given the tests of a benchmark, and either records which calls they make of a right program or
judges values that came out of the first job. Programs run one after the other, each in a process of its own that is
gone, with all that it started, before the next begins. Standard library only: the text is all that the sandbox gets.

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
"""On a busy machine a program may take so many times its seconds."""
SWEEP_S = 5.0
"""For everything that a program started to be gone."""
LOADED = ["loaded", ""]
TIMEOUT = ["timeout", ""]


def plain(value: Any) -> Any:
    """A value as tagged JSON that says nothing but data; a subclass as what it extends.

    Raises TypeError for a value of another kind, RecursionError for one that holds itself.
    """
    kind = type(value)
    if value is None or kind in (bool, float, str):
        return value
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
        return ["dict", [[plain(key), plain(one)] for key, one in dict.items(value)]]
    for base in (list, tuple, set, frozenset):
        if isinstance(value, base):
            return [base.__name__, [plain(one) for one in base.__iter__(value)]]  # type: ignore[arg-type]
    if kind is range:
        return ["range", [value.start, value.stop, value.step]]
    if hasattr(kind, "__next__"):
        return ["iterator", [plain(one) for one, _ in zip(value, range(MAX_ITERATED), strict=False)]]
    raise TypeError("returned a " + kind.__name__)


def read(tree: Any) -> Any:
    """The value that `plain` wrote. Raises ValueError, TypeError or KeyError for anything else."""
    if not isinstance(tree, list):
        if isinstance(tree, dict):
            raise ValueError("an object without a tag")
        return tree
    kind, parts = tree
    if kind == "dict":
        return {read(key): read(value) for key, value in parts}
    makers: Mapping[str, Callable[[Any], Any]] = {
        "bytes": bytes.fromhex,
        "int": lambda text: int(text, 16),
        "complex": lambda pair: complex(*pair),
        "range": lambda ends: range(*ends),
    }
    if kind in makers:
        return makers[kind](parts)
    collections: Mapping[str, Callable[[Iterator[Any]], Any]] = {
        "list": list,
        "tuple": tuple,
        "set": set,
        "frozenset": frozenset,
        "iterator": lambda values: iter(list(values)),
    }
    return collections[kind](read(part) for part in parts)


def run(job: Mapping[str, Any]) -> Iterator[Any]:
    """For each program what each of its calls came to: a kind (value, raised, timeout, none) and a text."""
    kept = set(os.listdir(job["folder"]))
    for number, program in enumerate(job["programs"]):
        folder = os.path.join(job["folder"], f"program-{number}")
        os.mkdir(folder)
        yield results_of(job, program, folder)
        for name in set(os.listdir(job["folder"])) - kept:
            remove(os.path.join(job["folder"], name))


def remove(path: str) -> None:
    """Remove what a program left, as far as that can be done."""
    try:
        os.rmdir(path)
    except OSError:
        import shutil  # which loads five libraries, that every program would be forked with

        shutil.rmtree(path, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.unlink(path)


def results_of(job: Mapping[str, Any], program: Mapping[str, Any], folder: str) -> list[list[str]]:
    """The results of one program; a call that ended its process is followed by the others in another one."""
    n, results = len(program["calls"]), list[list[str]]()
    ends_at = time.monotonic() + job["limit_s"]
    while len(results) < n:
        first = len(results)

        def serve(out: int, first: int = first) -> None:
            os.chdir(folder)
            answer(job, program, first, out)

        lines, why = child_says(serve, n - first + 1, ends_at - time.monotonic(), job["max_bytes"])
        if not lines or lines[0] != LOADED:
            return results + [lines[0] if lines else why] * (n - first)
        results += lines[1:]
        if len(results) < n:
            results += [why] * (n - len(results) if why == TIMEOUT else 1)
    return results


def answer(job: Mapping[str, Any], program: Mapping[str, Any], first: int, out: int) -> None:
    """In the program's own process: run it, then make its calls from the first on, one line for each."""
    for limit, most in (
        (resource.RLIMIT_CPU, math.ceil(job["limit_s"]) + 1),
        (resource.RLIMIT_AS, job["memory_bytes"]),
    ):
        resource.setrlimit(limit, (most, most))
    names: dict[str, Any] = {"__name__": "solution"}
    if job["imports"] is not None:
        names["__builtins__"] = {**vars(builtins), "__import__": importing(frozenset(job["imports"]))}
    try:
        exec(compile(program["code"], "solution", "exec"), names)
    except BaseException as error:
        say(out, raised(error), job["max_bytes"])
        return
    say(out, LOADED, job["max_bytes"])
    for call in program["calls"][first:]:
        try:
            if isinstance(call, str):
                value = eval(call, names)
            else:
                arguments, named = (read(tree) for tree in call)
                value = names[program["entry_point"]](*arguments, **named)
            result = ["value", json.dumps(plain(value))]
        except BaseException as error:
            result = raised(error)
        say(out, result, job["max_bytes"])


def importing(allowed: frozenset[str]) -> Callable[..., Any]:
    """An `__import__` that refuses modules outside of a list; a limit on what programs ask for, not a wall."""

    def limited(name: str, *arguments: Any, **named: Any) -> Any:
        if name.partition(".")[0] not in allowed:
            raise ImportError("import of " + name + " is not allowed")
        return builtins.__import__(name, *arguments, **named)

    return limited


def raised(error: BaseException) -> list[str]:
    """The result of a call that raised."""
    return ["raised", type(error).__name__ + ": " + str(error)[:200]]


def say(out: int, result: list[str], max_bytes: int) -> None:
    """Write one result as a line; one that is too long is none."""
    line = json.dumps(result).encode("ascii", "backslashreplace") + b"\n"
    if len(line) > max_bytes:
        line = json.dumps(["none", f"a value of {len(line)} bytes"]).encode() + b"\n"
    while line:
        line = line[os.write(out, line) :]


def child_says(
    work: Callable[[int], None], n_lines: int, limit_s: float, max_bytes: int
) -> tuple[list[list[str]], list[str]]:
    """Do work in a child; the lines that it wrote, at most n, and why there are no more of them.

    limit_s: time that the child waited for a processor is not counted, `PATIENCE` times as much real time is its
    limit. Everything that the child started is gone afterwards; if it cannot be ended, this
    process ends, too.
    """
    come, go = os.pipe()
    try:
        pid = os.fork()
    except OSError as error:
        os.close(come)
        os.close(go)
        return [], ["none", "no process could be started: " + str(error)]
    if pid == 0:
        os.close(come)
        be_child(work, go)
    os.close(go)
    data, lines, why = b"", list[list[str]](), ["none", "its process ended before it had a value"]
    ends_at, credited = time.monotonic() + limit_s, 0.0
    while len(lines) < n_lines:
        left = ends_at - time.monotonic()
        if left <= 0:
            waited = min(waited_s(pid), (PATIENCE - 1) * limit_s)
            if waited > credited + 0.01:
                ends_at += waited - credited
                credited = waited
                continue
            why = TIMEOUT
            break
        if not select.select([come], [], [], min(left, 0.05))[0]:
            if pid and not os.waitpid(pid, os.WNOHANG)[0]:
                continue
            pid = 0
            if not select.select([come], [], [], 0)[0]:
                break  # somebody that it started holds the pipe
        more = os.read(come, 65536)
        data += more
        *whole, data = data.split(b"\n")
        lines += [result_in(line) for line in whole[: n_lines - len(lines)]]
        if not more or len(data) > max_bytes:
            break
    os.close(come)
    sweep(pid)
    return lines, why


def waited_s(pid: int) -> float:
    """Seconds that a process was ready to run and had no processor; 0 where the kernel does not say."""
    try:
        with open(f"/proc/{pid}/schedstat", "rb") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def result_in(line: bytes) -> list[str]:
    """A line of a child as a kind and a text, whatever it wrote."""
    try:
        kind, text = json.loads(line)
        return [str(kind), str(text)]
    except Exception:
        return ["none", "its process wrote what is no result"]


def be_child(work: Callable[[int], None], out: int) -> NoReturn:
    """Do work cut off from everything else that this process has, and end."""
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        prctl(PR_SET_DUMPABLE, 1)
        gc.enable()
        work(out)
    finally:
        os._exit(0)


def sweep(pid: int) -> None:
    """End a child and all that descends from it. pid: 0 if it has been collected."""
    if pid:
        for end in (os.killpg, os.kill):
            with contextlib.suppress(OSError):
                end(pid, signal.SIGKILL)
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
    """Processes whose parent is this one; orphans of a program become its children."""
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


class Diverged(BaseException):
    """The tests ask something else of this program than of the right one."""


class OutOfTime(BaseException):
    """The tests themselves took too long over the values."""


def examine(job: Mapping[str, Any]) -> Iterator[Any]:
    """For each that is asked (the place of a check, results) what `examined` says, or {"error": why}."""

    def late(*_: Any) -> NoReturn:
        raise OutOfTime

    signal.signal(signal.SIGALRM, late)
    for place, results in job["asked"]:
        signal.setitimer(signal.ITIMER_REAL, job["limit_s"])
        try:
            said = examined(job["checks"][place], results)
        except OutOfTime:
            said = {"error": "they took too long"}
        except BaseException as error:
            said = {"error": f"{type(error).__name__}: {str(error)[:200]}"}
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        yield said


def examined(check: Mapping[str, Any], results: Any) -> dict[str, Any]:
    """Run `check(candidate)` with a candidate that records its calls, or that answers with the values of a program.

    check: `program` is a right one, of which helpers are used and, to record, the function; `compiled`, if there,
    stands for `test`. results: to judge by; None: record. Returns {"calls", "marks", "compiled"} (for each assert the
    number of calls before it) or {"passed", "end", "diverged"}.
    """
    candidate: Recorded | Replayed = Recorded(check) if results is None else Replayed(check, results)
    names: dict[str, Any] = {"__name__": "tests"}
    exec(compiled(check["program"]), names)
    names |= {check["entry_point"]: candidate, "_asserted": candidate.asserted}
    random.seed(0)
    code = code_of(check["compiled"]) if "compiled" in check else compiled_tests(check["test"])
    exec(code, names)
    said = candidate.said_by(names["check"])
    return said if results is not None else {**said, "compiled": marshal.dumps(code).hex()}


@functools.cache
def compiled(program: str) -> CodeType:
    """Of a right program; several programs are judged by the same one."""
    return compile(program, "right", "exec")


@functools.cache
def code_of(text: str) -> CodeType:
    """What tests were compiled to when their calls were recorded; compiling takes as long as judging ten programs."""
    code: CodeType = marshal.loads(bytes.fromhex(text))
    return code


def compiled_tests(tests: str) -> CodeType:
    """With each assert handed to `_asserted`."""
    return compile(ast.fix_missing_locations(Counted().visit(ast.parse(tests))), "tests", "exec")


class Counted(ast.NodeTransformer):
    """Hands each assert to `_asserted`, as something to evaluate."""

    def visit_Assert(self, node: ast.Assert) -> ast.Expr:
        """The call in its place."""
        nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        test = ast.Lambda(args=nothing, body=node.test)
        return ast.Expr(ast.Call(func=ast.Name("_asserted", ast.Load()), args=[test], keywords=[]))


class Recorded:
    """The right function; remembers how it is called."""

    def __init__(self, check: Mapping[str, Any]) -> None:
        names: dict[str, Any] = {"__name__": "right"}
        exec(compiled(check["program"]), names)
        self.right = names[check["entry_point"]]
        self.calls, self.marks, self.passed = list[Any](), list[int](), list[bool]()

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """The right value."""
        self.calls.append([plain(arguments), plain(named)])
        before = random.getstate()
        value = self.right(*copy.deepcopy(arguments), **copy.deepcopy(named))
        random.setstate(before)
        return value

    def asserted(self, holds: Callable[[], Any]) -> None:
        """Evaluate an assert."""
        self.marks.append(len(self.calls))
        self.passed.append(bool(holds()))

    def said_by(self, tests: Callable[[Any], Any]) -> dict[str, Any]:
        """What the tests ask. Raises ValueError if the right function fails them."""
        tests(self)
        if not all(self.passed) or not self.calls or not self.marks:
            raise ValueError("the right program fails them" if self.marks and self.calls else "they ask nothing")
        return {"calls": self.calls, "marks": self.marks}


class Replayed:
    """Answers the recorded calls with the values of a program; each assert is evaluated, after one that failed, too."""

    def __init__(self, check: Mapping[str, Any], results: Any) -> None:
        self.calls, self.marks, self.results = check["calls"], check["marks"], results
        self.at, self.passed = 0, list[bool]()

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """The program's value, or what it raised."""
        call = json.loads(json.dumps([plain(arguments), plain(named)]))
        if self.at >= len(self.results) or call != self.calls[self.at]:
            raise Diverged
        kind, text = self.results[self.at]
        self.at += 1
        if kind == "value":
            return read(json.loads(text))
        found: Any = getattr(builtins, text.partition(":")[0], None)
        is_error = kind == "raised" and isinstance(found, type) and issubclass(found, Exception)
        raise found(text) if is_error else RuntimeError(f"{kind} {text}")

    def asserted(self, holds: Callable[[], Any]) -> None:
        """Evaluate an assert; one that failed may have made fewer calls than the right program got."""
        if len(self.passed) >= len(self.marks):
            raise Diverged
        self.at = self.marks[len(self.passed)]
        self.passed.append(False)
        with contextlib.suppress(Exception):
            self.passed[-1] = bool(holds())

    def said_by(self, tests: Callable[[Any], Any]) -> dict[str, Any]:
        """What the tests say."""
        end, diverged = "", False
        try:
            tests(self)
        except Diverged:
            diverged = True
        except Exception as error:
            end = f"{type(error).__name__}: {str(error)[:200]}"
        return {"passed": self.passed, "end": end, "diverged": diverged}


def main() -> None:
    """Read the job, print what comes of it."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    prctl(PR_SET_DUMPABLE, 0)
    job = json.loads(sys.stdin.buffer.read())
    gc.disable()
    gc.freeze()  # so that a child copies less of this process
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for said in (run if job["kind"] == "run" else examine)(job):
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
