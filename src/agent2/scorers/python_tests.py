"""Python that a model wrote, run against an item's tests.

    payload: {"tests": ["assert add(1, 2) == 3", "assert not is_odd(4)", "assert abs(mean([1, 2]) - 1.5) < 1e-9"],
              "setup": "import math"}                    # setup: optional, run before the program

The program is run in its own sandbox, each test in a fresh process there. It is given the calls (`add(1, 2)`), never
the values that are expected: what a call returned comes out as data and is compared here, outside. So there is nothing
in the sandbox to read, to patch or to print that would turn a wrong value into a right one; a program that ends
early, hangs, floods its output or breaks the harness has merely not returned its values, and its tests fail. A missing
score is kept for a sandbox that did not come as far as the program.

Does NOT take tests of another form than the three above (an item with one is a judge fault), return values other than
None, bool, numbers, str, bytes, list, tuple, set, frozenset and dict, or what a call does to its arguments.
"""

import ast
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from agent2.errors import ConfigError, Fault
from agent2.records import Emits, Item, JsonValue, Rollout, Score, ScoringMode, ScoringWork
from agent2.sandbox.backends import ContainedEnd, EndedBy
from agent2.sandbox.spec import HOST_DISK
from agent2.scorers.sandboxed import Bench

START_S = 60.0
"""For a sandbox to start on a machine that is busy."""
END_S = 5.0
"""For the harness to end the last test and to write what came of all."""
ALL_TESTS = 3.0
"""All tests together may take so many times what one may."""
MAX_VALUE_BYTES = 100_000
"""Of what one call returned, as JSON."""
MAX_CODE_CHARS = 1_000_000
READY = "ready"

_FENCE = re.compile(r"^[ \t]*```[ \t]*([\w+-]*)[^\n]*\n(.*?)(?:^[ \t]*```|\Z)", re.DOTALL | re.MULTILINE)
_PYTHON = ("python", "py", "python3", "")


@dataclass(frozen=True, slots=True)
class CallTest:
    """One test: an expression that the program is asked for, and what it has to return."""

    call: str
    expected: JsonValue
    tolerance: float | None = None
    """Largest difference of a number; None: equal as Python's == says."""


class PythonTestsScorer:
    """1.0 if the program passes every test of its item.

    Settings: `timeout_s` of one test, processor and wall clock; `concurrency`, programs at once.
    """

    name = "python_tests"
    version = "1.0"
    emits = Emits(
        views=frozenset({"tests_passed"}),
        labels=frozenset({"no_code", "wrong_value", "test_raised", "test_timeout", "no_value"}),
    )

    def __init__(self, timeout_s: float = 10.0, concurrency: int = 2) -> None:
        """Raises ConfigError for a setting that is not positive."""
        for name, value in (("timeout_s", timeout_s), ("concurrency", concurrency)):
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
                raise ConfigError(f"scorer python_tests: {name} is {value!r}; give a number above 0")
        self._timeout_s = float(timeout_s)
        self.work = ScoringWork(ScoringMode.SANDBOX, concurrency=int(concurrency))

    def score(self, item: Item, rollout: Rollout) -> Score:
        """No verdict: it needs a sandbox, which the scoring stage gives it."""
        return Score(None, "python_tests runs programs and needs the scoring stage (evaluate, rescore)", Fault.JUDGE)

    def score_on(self, bench: Bench, item: Item, rollout: Rollout) -> Score:
        """The verdict; a judge fault for an item without tests or with one that cannot be read. Raises SandboxError."""
        try:
            tests = read_tests(item.payload.get("tests") or ())
        except ValueError as error:
            return Score(None, f"item {item.id}: {error}; correct the benchmark", Fault.JUDGE)
        code = code_of(rollout.answer if rollout.answer is not None else _last_words(rollout))
        if not code.strip() or len(code) > MAX_CODE_CHARS:
            reason = "the answer has no code" if not code.strip() else f"the program has {len(code)} characters"
            return Score(0.0, reason, views={"tests_passed": 0.0}, labels=("no_code",))
        job = {
            "code": f"{item.payload.get('setup') or ''}\n{code}",
            "calls": [test.call for test in tests],
            "test_s": self._timeout_s,
            "all_s": ALL_TESTS * self._timeout_s,
            "max_bytes": MAX_VALUE_BYTES,
        }
        end = bench.run(
            ("python", "-I", "-S", "-B", "-c", RUNNER),
            stdin=json.dumps(job).encode("utf-8", "backslashreplace"),
            timeout_s=START_S + ALL_TESTS * self._timeout_s,
            output_s=ALL_TESTS * self._timeout_s + END_S,  # a program can stop the harness that keeps its time
            stdout_bytes=(MAX_VALUE_BYTES + 1000) * len(tests) + 10_000,
        )
        return _verdict(tests, end)


def code_of(answer: str) -> str:
    """The last fenced block of Python, or of no language; an answer without fences is all program."""
    blocks = [block for language, block in _FENCE.findall(answer) if language.lower() in _PYTHON]
    return blocks[-1] if blocks else "" if "```" in answer else answer


def read_tests(sources: Sequence[str]) -> list[CallTest]:
    """The tests of an item. Raises ValueError that names the one that cannot be read, or if there is none."""
    if isinstance(sources, str) or not sources:
        raise ValueError("payload.tests is to be a list of at least one 'assert CALL == VALUE'")
    return [_read_test(str(source)) for source in sources]


def _read_test(source: str) -> CallTest:
    try:
        match ast.parse(source.strip()).body:
            case [ast.Assert(test=ast.Compare(left=ast.Call() as call, ops=[ast.Eq()], comparators=[value]))] if (
                not _is_abs(call)
            ):
                return CallTest(ast.unparse(call), ast.literal_eval(value))
            case [
                ast.Assert(
                    test=ast.Compare(
                        left=ast.Call(args=[ast.BinOp(left=ast.Call() as call, op=ast.Sub(), right=value)]) as outer,
                        ops=[ast.Lt() | ast.LtE()],
                        comparators=[limit],
                    )
                )
            ] if _is_abs(outer):
                return CallTest(ast.unparse(call), ast.literal_eval(value), float(ast.literal_eval(limit)))
            case [ast.Assert(test=ast.Call() as call)]:
                return CallTest(ast.unparse(call), True)
            case [ast.Assert(test=ast.UnaryOp(op=ast.Not(), operand=ast.Call() as call))]:
                return CallTest(ast.unparse(call), False)
    except (SyntaxError, ValueError, TypeError) as error:
        raise ValueError(f"test {source!r} cannot be read ({error})") from error
    raise ValueError(
        f"test {source!r} is none of 'assert CALL == LITERAL', 'assert CALL', 'assert not CALL' and "
        "'assert abs(CALL - NUMBER) < NUMBER'"
    )


def _is_abs(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == "abs"


def _last_words(rollout: Rollout) -> str:
    return rollout.turns[-1].action if rollout.turns else ""


def _verdict(tests: Sequence[CallTest], end: ContainedEnd) -> Score:
    lines = end.stdout.decode("utf-8", "replace").splitlines()
    if end.ended_by is EndedBy.STOP:
        return Score(None, "the scoring was stopped", Fault.INFRASTRUCTURE)
    if end.broke == HOST_DISK or not lines or lines[0] != READY:
        return Score(None, f"the sandbox did not run the program: {end.reason}", Fault.INFRASTRUCTURE)
    results = _results(lines[-1], len(tests)) if not end.dropped and end.ended_by is EndedBy.ITSELF else None
    if results is None:
        how = f"ran into a limit ({end.reason})" if end.broke else "ended the harness, or its time was over"
        return Score(0.0, f"the program {how}", views={"tests_passed": 0.0}, labels=("no_value",))
    wrong = [(test, _complaint(test, result)) for test, result in zip(tests, results, strict=True)]
    failed = [(test, *complaint) for test, complaint in wrong if complaint is not None]
    passed = 1.0 - len(failed) / len(tests)
    reason = f"{len(tests) - len(failed)} of {len(tests)} tests pass"
    if failed:
        reason += f"; {failed[0][0].call[:60]} {failed[0][2]}"
    labels = tuple(sorted({label for _, label, _ in failed}))
    return Score(float(not failed), reason, views={"tests_passed": passed}, labels=labels)


def _results(line: str, n: int) -> list[list[str]] | None:
    """What each call came to, a kind and a text; None: that is not what the harness writes."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    is_sound = isinstance(found, list) and len(found) == n
    if not is_sound or not all(isinstance(one, list) and [type(part) for part in one] == [str, str] for one in found):
        return None
    return list(found)


def _complaint(test: CallTest, result: Sequence[str]) -> tuple[str, str] | None:
    """Label and words for a test that fails."""
    kind, text = result
    if kind == "timeout":
        return "test_timeout", "was not finished in time"
    if kind == "raised":
        return "test_raised", f"raised {text[:80]}"
    if kind != "value":
        return "no_value", f"returned nothing ({text[:80]})"
    try:
        value = _decoded(json.loads(text))
        is_right = _is_expected(value, test)
    except (ValueError, TypeError, RecursionError, KeyError, OverflowError):
        return "wrong_value", "returned what cannot be read as plain data"
    return None if is_right else ("wrong_value", f"is {value!r:.60}, not {test.expected!r:.60}")


def _is_expected(value: JsonValue, test: CallTest) -> bool:
    if test.tolerance is not None:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and abs(value - test.expected) <= test.tolerance
    return bool(value == test.expected)


def _decoded(tree: JsonValue) -> JsonValue:
    """A value from the tagged JSON in which `RUNNER` writes it. Raises ValueError or TypeError for anything else."""
    if not isinstance(tree, list):
        if isinstance(tree, dict):
            raise ValueError("an object without a tag")
        return tree
    kind, parts = tree
    if kind == "bytes":
        return bytes.fromhex(parts)
    if kind == "dict":
        return {_decoded(key): _decoded(value) for key, value in parts}
    makers = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}
    return makers[kind](_decoded(part) for part in parts)


RUNNER = """
import json, os, resource, select, signal, sys, time

def plain(value):
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if kind is bytes:
        return ["bytes", value.hex()]
    if kind is dict:
        return ["dict", [[plain(key), plain(one)] for key, one in value.items()]]
    if kind in (list, tuple, set, frozenset):
        return [kind.__name__, [plain(one) for one in value]]
    raise TypeError("returned a " + kind.__name__)

def ask(code, call, out, seconds):
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    resource.setrlimit(resource.RLIMIT_CPU, (max(1, int(seconds)), max(1, int(seconds)) + 1))
    try:
        names = {"__name__": "solution"}
        exec(compile(code, "solution", "exec"), names)
        answer = ["value", json.dumps(plain(eval(call, names)))]
    except BaseException as error:
        answer = ["raised", type(error).__name__ + ": " + str(error)[:200]]
    with os.fdopen(out, "wb") as file:
        file.write(json.dumps(answer).encode("ascii", "backslashreplace"))
    os._exit(0)

def asked(job, call, ends_at):
    ends_at = min(ends_at, time.monotonic() + job["test_s"])
    if time.monotonic() >= ends_at:
        return ["timeout", ""]
    come, go = os.pipe()
    try:
        pid = os.fork()
    except OSError as error:
        os.close(come), os.close(go)
        return ["none", "no process could be started: " + str(error)]
    if pid == 0:
        os.setsid()
        os.close(come)
        ask(job["code"], call, go, job["test_s"])
    os.close(go)
    data, status = b"", None
    while status is None or select.select([come], [], [], 0)[0]:
        left = ends_at - time.monotonic()
        if left <= 0 or len(data) > job["max_bytes"]:
            break
        if select.select([come], [], [], min(left, 0.05))[0]:
            more = os.read(come, 65536)
            data += more
            if not more:
                if status is None:
                    time.sleep(0.002)
                else:
                    break
        if status is None:
            done, code = os.waitpid(pid, os.WNOHANG)
            status = code if done else None
    late = status is None and time.monotonic() >= ends_at
    for end in (os.killpg, os.kill):
        try:
            end(pid, signal.SIGKILL)
        except OSError:
            pass
    if status is None:
        status = os.waitpid(pid, 0)[1]
    os.close(come)
    if late or (os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU,)):
        return ["timeout", ""]
    try:
        kind, text = json.loads(data[: job["max_bytes"] + 1])
        return [str(kind), str(text)]
    except Exception:
        return ["none", "its process ended with status %d before it had a value" % status]

job = json.loads(sys.stdin.buffer.read())
print("ready", flush=True)
ends_at = time.monotonic() + job["all_s"]
results = [asked(job, call, ends_at) for call in job["calls"]]
print()
print(json.dumps(results), flush=True)
"""
