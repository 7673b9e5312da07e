"""The scorer of Python programs: each is run against its item's tests.

    payload: {"tests": ["assert add(1, 2) == 3", "assert not is_odd(4)", "assert abs(mean([1, 2]) - 1.5) < 1e-9"],
              "sample_tests": [...], "variant_tests": [...],  # optional further groups, each with a view of its own
              "setup": "import math",                         # optional: run before the program
              "reads_input": true,                            # optional: see `input_program`
              "prefix": PROMPT, "suffix": "root = Node(1)"}    # optional: what the answer continues, what follows it

    payload: {"check": {"test": "def check(candidate): ...", "entry_point": "add",
                        "program": "def add(a, b): ..."},      # a right program, as the tests may use its helpers
              "prefix": ...}

The program is the block of an answer that defines what the tests call (`code_blocks.code_of`). It gets calls
(`add(1, 2)`) and never the expected values: what a call returned leaves its sandbox as data and is compared elsewhere,
here or, for a `check` function, in another sandbox that has tests and values and no program. So there is nothing to
read, to patch or to print that would turn a wrong value into a right one; a program that ends early, hangs, floods its
output or breaks the harness has merely not returned its values, and its tests fail. Programs of one batch use the same
sandbox, one after the other, each sent alone and gone with all that it started and wrote before the next comes; one
that ends the sandbox is run again in a fresh one, and so harms only itself. A score is missing only where a sandbox did
not get as far as the program, or where the tests are unusable with their own program: values over which a check hangs,
or after which it makes other calls, are wrong.

Does NOT support tests of other forms (a judge fault); return values other than None, bool, numbers, str, bytes, range,
iterators, list, tuple, set, frozenset, dict and subclasses of these; or checks of what a call does to its arguments.
"""

import ast
import builtins
import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent2.errors import ConfigError, Fault
from agent2.records import Item, JsonValue, Rollout, Score, ScorerOutput, ScoringMode, ScoringWork, digest_of
from agent2.sandbox.spec import MIB
from agent2.scorers.code_blocks import code_of, defined_in
from agent2.scorers.plain_values import NotPlainData, as_number, equals, shown
from agent2.scorers.program_batches import ProgramSettings, Results, examine_runs, run_programs
from agent2.scorers.sandboxed import SandboxRunner
from agent2.syntax import parse_python

CHECK_TIME = 3.0
"""A `check` function, with the right program or with values, may take this many times as long as a program."""
MAX_HELD_BYTES = 32 * MIB
"""Of values that wait for their `check` functions."""
MAX_CODE_CHARS = 1_000_000
BATCH = 512
"""Most programs that share a sandbox; starting one costs as much as some 40 short programs."""
MIN_RECORDED = 32
"""Least number of `check` functions whose calls a thread records in one sandbox, if so many are left."""
GROUPS = {"sample_tests": "sample", "tests": "hidden", "variant_tests": "variant"}
"""Key of the payload -> group in the names of views: shown to the model, not shown, not shown and of other inputs."""


@dataclass(frozen=True, slots=True)
class CallTest:
    """One test: a call that the program has to answer, and the value that it has to return."""

    call: str
    expected: JsonValue
    tolerance: float | None = None
    """Largest difference of a number; None: equal as Python's == says."""


@dataclass(frozen=True, slots=True)
class CallPlan:
    """The calls that one item makes of a program, and the tests of what they return."""

    calls: Sequence[JsonValue]
    """Texts, or of a `check` function [arguments, keywords] as `program_runner.encode_value` writes them."""
    tests: Sequence[CallTest] = ()
    """One for each call; empty where a `check` function judges."""
    groups: Sequence[str] = ()
    """Of each test."""
    check: Mapping[str, JsonValue] | None = None
    """The input of `program_runner.examine_check`, with all that it recorded."""
    marks: Sequence[int] = ()
    """For each assert of the check function the number of calls that a right program got before it."""


@dataclass(frozen=True, slots=True)
class ProgramVerdict:
    """The outcome of one item's tests for one program."""

    passed: Sequence[bool]
    """One for each test, or assert."""
    groups: Sequence[str]
    complaint: str
    """The first failure in words; empty: none."""
    labels: tuple[str, ...] = ()
    ran: bool = True
    """False: the program ended its harness, so that no test got a value."""

    @property
    def score(self) -> Score:
        """1.0 if every test passed."""
        share = sum(self.passed) / len(self.passed)
        views: dict[str, float | None] = {"tests_passed": share}
        for group in dict.fromkeys(self.groups):
            views[f"{group}_passed"] = float(
                all(is_passed for is_passed, name in zip(self.passed, self.groups, strict=True) if name == group)
            )
        labels = self.labels
        if views.get("sample_passed") == 1.0 and share < 1.0:
            labels = (*labels, "only_sample_tests_pass")
        reason = f"{sum(self.passed)} of {len(self.passed)} tests pass" if self.ran else self.complaint
        if self.complaint and self.ran:
            reason += f"; {self.complaint}"
        return Score(float(not self.complaint and all(self.passed)), reason, views=views, labels=labels)


class PythonTestsScorer:
    """1.0 if the program passes every test of its item.

    Settings: `timeout_s` of a program with all its tests, processor and wall clock; `memory_mib` of a program;
    `imports`, the modules that programs may import (default: all of the standard library); `concurrency`, sandboxes at
    once.
    """

    name = "python_tests"
    version = "3.3"
    emits = ScorerOutput(
        views=frozenset({"tests_passed", *(f"{group}_passed" for group in GROUPS.values())}),
        labels=frozenset(
            {
                "no_code",
                "wrong_value",
                "test_raised",
                "test_timeout",
                "no_value",
                "forbidden_import",
                "only_sample_tests_pass",
            }
        ),
    )

    def __init__(
        self,
        timeout_s: float = 10.0,
        concurrency: int = 2,
        memory_mib: float = 768.0,
        imports: Sequence[str] | None = None,
    ) -> None:
        """Raises ConfigError for a setting that is not positive, or `imports` that are not a list of names."""
        for name, value in (("timeout_s", timeout_s), ("concurrency", concurrency), ("memory_mib", memory_mib)):
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
                raise ConfigError(f"scorer python_tests: {name} is {value!r}; give a number above 0")
        if isinstance(imports, str) or not all(isinstance(name, str) for name in imports or ()):
            raise ConfigError(f"scorer python_tests: imports is {imports!r}; give a list of names of modules")
        self._timeout_s = float(timeout_s)
        self._memory_bytes = int(memory_mib * MIB)
        self._imports = None if imports is None else sorted(imports)
        self._recorded: dict[str, CallPlan | str] = {}
        """By digest of the check; a text says why its tests are unusable."""
        self._being_recorded: set[str] = set()
        self._recording = threading.Condition()
        """Guards both, and wakes threads that wait for what others record."""
        self.work = ScoringWork(ScoringMode.SANDBOX, batch_size=BATCH, concurrency=int(concurrency))

    def score(self, item: Item, rollout: Rollout) -> Score:
        """No verdict: it needs a sandbox, which the scoring stage gives it."""
        return Score(None, "python_tests runs programs and needs the scoring stage (evaluate, rescore)", Fault.JUDGE)

    def score_on(self, runner: SandboxRunner, item: Item, rollout: Rollout) -> Score:
        """The verdict on one program; see `score_batch_on`."""
        return self.score_batch_on(runner, [(item, rollout)])[0]

    def score_batch_on(self, runner: SandboxRunner, batch: Sequence[tuple[Item, Rollout]]) -> list[Score]:
        """A verdict on each; a judge fault for an item whose tests cannot be read. Raises SandboxError."""
        answers = [rollout.answer if rollout.answer is not None else _last_action(rollout) for _, rollout in batch]
        programs = [
            (item, code_of(answer, called_names(item))) for (item, _), answer in zip(batch, answers, strict=True)
        ]
        scores = {index: _without_code(code) for index, (_, code) in enumerate(programs)}
        # A group of attempts often writes one program several times: it is run once.
        first = {(programs[index][0].id, programs[index][1]): index for index, score in scores.items() if score is None}
        verdicts = self.verdicts_on(runner, [programs[index] for index in first.values()])
        by_program = dict(zip(first, verdicts, strict=True))
        for index, (item, code) in enumerate(programs):
            if scores[index] is None:
                verdict = by_program[item.id, code]
                scores[index] = verdict.score if isinstance(verdict, ProgramVerdict) else verdict
        return [score for score in scores.values() if score is not None]

    def verdicts_on(self, runner: SandboxRunner, programs: Sequence[tuple[Item, str]]) -> list[ProgramVerdict | Score]:
        """The verdict of each test on each program (item, code); a missing score where there can be none."""
        plans = self._plans(runner, [item for item, _ in programs])
        jobs: list[dict[str, JsonValue]] = []
        for (item, code), plan in zip(programs, plans, strict=True):
            if isinstance(plan, CallPlan):
                entry = plan.check["entry_point"] if plan.check else None
                jobs.append({"code": program_of(item, code), "calls": plan.calls, "entry_point": entry})
        results = run_programs(runner, jobs, ProgramSettings(self._timeout_s, self._memory_bytes, self._imports))
        verdicts: dict[int, ProgramVerdict | Score] = {}
        held: dict[int, tuple[CallPlan, Results]] = {}
        n_held = 0
        for position, plan in enumerate(plans):
            if not isinstance(plan, CallPlan):
                verdicts[position] = Score(None, plan, Fault.JUDGE)
                continue
            values = next(results)
            if isinstance(values, Score):
                verdicts[position] = values
            elif isinstance(values, str):
                n = len(plan.marks or plan.tests)
                groups, failure = plan.groups or ("hidden",) * n, f"the program {values}"
                verdicts[position] = ProgramVerdict([False] * n, groups, failure, ("no_value",), ran=False)
            elif plan.check:
                held[position] = plan, values
                n_held += sum(len(text) for _, text in values)
                if n_held > MAX_HELD_BYTES:
                    verdicts |= self._judge_by_checks(runner, held)
                    held, n_held = {}, 0
            else:
                verdicts[position] = _judge_by_values(plan, values)
        verdicts |= self._judge_by_checks(runner, held)
        return [verdicts[position] for position in range(len(plans))]

    def _judge_by_checks(
        self, runner: SandboxRunner, held: Mapping[int, tuple[CallPlan, Results]]
    ) -> dict[int, ProgramVerdict | Score]:
        """The verdicts of `check` functions on values."""
        outcomes = self._examine(runner, [(plan.check or {}, values) for plan, values in held.values()])
        return {
            position: _judge_by_check(plan, values, outcome)
            for (position, (plan, values)), outcome in zip(held.items(), outcomes, strict=True)
        }

    def _plans(self, runner: SandboxRunner, items: Sequence[Item]) -> list[CallPlan | str]:
        """The calls of each item, or why it has no usable tests; the calls of `check` functions are recorded once."""
        checks = {item.id: _check_of(item) for item in items}
        digests = {item_id: digest_of(check) for item_id, check in checks.items() if isinstance(check, dict)}
        self._record(
            runner, {digest: check for item_id, digest in digests.items() if isinstance(check := checks[item_id], dict)}
        )
        plans: list[CallPlan | str] = []
        for item in items:
            check = checks[item.id]
            if check is None:
                plans.append(_plan_of_tests(item))
            elif isinstance(check, str):
                plans.append(f"item {item.id}: {check}; correct the benchmark")
            else:
                plan = self._recorded.get(digests[item.id], "the sandbox did not run its tests")
                is_usable = isinstance(plan, CallPlan)
                plans.append(plan if is_usable else f"item {item.id}: {plan}; correct the benchmark")
        return plans

    def _record(self, runner: SandboxRunner, checks: Mapping[str, Mapping[str, JsonValue]]) -> None:
        """Record which calls each `check` function (by digest) makes; threads that need the same ones share the work.

        One whose sandbox failed stays unknown: the next batch tries again.
        """
        tried: set[str] = set()
        while True:
            with self._recording:
                unknown = [digest for digest in checks if digest not in self._recorded and digest not in tried]
                free = [digest for digest in unknown if digest not in self._being_recorded]
                if not free:
                    if not unknown:
                        return
                    # Another thread records the others; if its sandbox fails, they are free again and ours to try.
                    self._recording.wait()
                    continue
                share = max(-(-len(unknown) // self.work.concurrency), MIN_RECORDED)
                mine = free[:share]
                self._being_recorded.update(mine)
            tried.update(mine)
            try:
                recordings = self._examine(runner, [(checks[digest], None) for digest in mine])
                for digest, recording in zip(mine, recordings, strict=True):
                    if recording is not None:
                        self._recorded[digest] = (
                            f"its tests cannot be used ({recording['error']})"
                            if "error" in recording
                            else CallPlan(
                                recording["calls"], check={**checks[digest], **recording}, marks=recording["marks"]
                            )
                        )
            finally:
                with self._recording:
                    self._being_recorded.difference_update(mine)
                    self._recording.notify_all()

    def _examine(
        self, runner: SandboxRunner, runs: Sequence[tuple[Mapping[str, JsonValue], Results | None]]
    ) -> list[dict[str, JsonValue] | None]:
        """The outcome of each `check` function for results, or its recording; None where its sandbox failed."""
        return examine_runs(runner, runs, CHECK_TIME * self._timeout_s) if runs else []


def program_of(item: Item, code: str) -> str:
    """What is run: setup, what the answer continues, the answer, and what follows it."""
    setup, prefix, suffix = (item.payload.get(key) or "" for key in ("setup", "prefix", "suffix"))
    if item.payload.get("reads_input"):
        return input_program(f"{setup}\n{code}\n")
    return f"{setup}\n{prefix}{code}\n{suffix}\n"


def input_program(source: str) -> str:
    """A program that reads standard input, as a function `answer_to` of the input.

    It runs the program anew and returns what it printed: a list of lines, each a list of words, as `words_of` has them.
    """
    return f"_SOURCE = {source!r}\n{_WORDS}\n{_ANSWER}"


def words_of(text: str) -> list[list[str]]:
    """A text as outputs are compared: lines of words without blanks at the ends, decimal numbers by value."""
    names: dict[str, Any] = {}
    exec(_WORDS, names)  # the text that the sandbox has, so that both sides are read alike
    lines: list[list[str]] = names["_words"](text)
    return lines


_WORDS = """
import re as _re

def _word(word):
    match = _re.fullmatch(r"([+-]?)0*([0-9]{0,40})(?:[.]([0-9]{0,40}))?", word)
    if match is None or not (match[2] or match[3] or "0" in word):
        return word
    fraction = (match[3] or "").rstrip("0")
    value = (match[2] or "0") + ("." + fraction if fraction else "")
    return "-" + value if match[1] == "-" and value != "0" else value

def _words(text):
    return [[_word(word) for word in line.split()] for line in text.strip().split(chr(10))]
"""
_ANSWER = """
import io as _io
import sys as _sys

def answer_to(text):
    written, before = _io.BytesIO(), (_sys.stdin, _sys.stdout)
    _sys.stdin = _io.TextIOWrapper(_io.BytesIO(text.encode()), encoding="utf-8")
    output = _io.TextIOWrapper(written, encoding="utf-8", errors="replace", write_through=True)
    _sys.stdout = output
    try:
        exec(compile(_SOURCE, "program", "exec"), {"__name__": "__main__", "exit": _sys.exit, "quit": _sys.exit})
    except SystemExit:
        pass
    finally:
        _sys.stdin, _sys.stdout = before
    output.flush()
    return _words(written.getvalue().decode("utf-8", "replace"))
"""


def called_names(item: Item) -> frozenset[str]:
    """The names that the tests of an item call, those of Python itself and of its setup aside; empty: unreadable."""
    check = item.payload.get("check")
    if isinstance(check, Mapping):
        return frozenset({str(check.get("entry_point"))})
    try:
        calls = [parse_python(test.call) for test in read_tests(item.payload.get("tests") or ())]
    except (ValueError, TypeError, SyntaxError):
        return frozenset()
    names = {node.id for call in calls for node in ast.walk(call) if isinstance(node, ast.Name)}
    return frozenset(names - set(dir(builtins)) - defined_in(str(item.payload.get("setup") or "")))


def read_tests(sources: Sequence[str]) -> list[CallTest]:
    """The tests of an item. Raises ValueError that names the one that cannot be read, or if there is none."""
    if isinstance(sources, str) or not sources:
        raise ValueError("payload.tests is to be a list of at least one 'assert CALL == VALUE'")
    return [_read_test(str(source)) for source in sources]


def _read_test(source: str) -> CallTest:
    try:
        match parse_python(source.strip()).body:
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


def _last_action(rollout: Rollout) -> str:
    return rollout.turns[-1].action if rollout.turns else ""


def _without_code(code: str) -> Score | None:
    """The verdict on an answer without a program; None: it has one."""
    if code.strip() and len(code) <= MAX_CODE_CHARS:
        return None
    reason = f"the program has {len(code)} characters" if code.strip() else "the answer has no code"
    return Score(0.0, reason, views={"tests_passed": 0.0}, labels=("no_code",))


def _check_of(item: Item) -> dict[str, JsonValue] | str | None:
    """The `check` of an item; None: it has none; text: what is wrong with it."""
    check = item.payload.get("check")
    if check is None:
        return None
    keys = ("test", "entry_point", "program")
    if not isinstance(check, Mapping) or not all(isinstance(check.get(key), str) for key in keys):
        return f"payload.check must contain the texts {', '.join(keys)}"
    return {key: check[key] for key in keys}


def _plan_of_tests(item: Item) -> CallPlan | str:
    """The calls of an item with plain tests, or why they cannot be read."""
    tests: list[CallTest] = []
    groups: list[str] = []
    try:
        for key, group in GROUPS.items():
            if key == "tests" or item.payload.get(key):
                group_tests = read_tests(item.payload.get(key) or ())
                tests += group_tests
                groups += [group] * len(group_tests)
    except ValueError as error:
        return f"item {item.id}: {error}; correct the benchmark"
    return CallPlan([test.call for test in tests], tests, groups)


def _judge_by_values(plan: CallPlan, results: Sequence[Sequence[str]]) -> ProgramVerdict:
    failures = [_failure_of_test(test, result) for test, result in zip(plan.tests, results, strict=True)]
    failed = [(test, *failure) for test, failure in zip(plan.tests, failures, strict=True) if failure is not None]
    complaint = f"{failed[0][0].call[:60]} {failed[0][2]}" if failed else ""
    labels = tuple(sorted({label for _, label, _ in failed}))
    return ProgramVerdict([failure is None for failure in failures], plan.groups, complaint, labels)


def _judge_by_check(
    plan: CallPlan, results: Sequence[Sequence[str]], outcome: Mapping[str, JsonValue] | None
) -> ProgramVerdict | Score:
    """The verdict of a `check` function on values."""
    if outcome is None:
        return Score(None, "the sandbox did not run the tests", Fault.INFRASTRUCTURE)
    if outcome.get("is_unusable"):
        return Score(None, f"its tests cannot be used ({outcome['error']}); correct the benchmark", Fault.JUDGE)
    passed = [bool(is_passed) for is_passed in outcome.get("passed", ())][: len(plan.marks)]
    passed += [False] * (len(plan.marks) - len(passed))
    # The tests can also fail outside their asserts; then no assert shows it.
    if all(passed) and (outcome.get("error") or outcome.get("end") or outcome.get("diverged")):
        passed[-1:] = [False]
    if all(passed):
        return ProgramVerdict(passed, ("hidden",) * len(passed), "")
    failures = [(result[0], *failure) for result in results if (failure := _failure_of_call(result)) is not None]
    if outcome.get("stuck"):
        complaint = f"on its values the tests do not end ({outcome['stuck']})"
    elif outcome.get("diverged") and not failures:
        complaint = "after its values the tests make other calls than after those of the right program"
    else:
        complaint = failures[0][2] if failures else "a value is wrong"
    labels = {kind: label for kind, label, _ in failures}  # one label a kind: the last one's
    return ProgramVerdict(
        passed, ("hidden",) * len(passed), complaint, tuple(sorted(set(labels.values()))) or ("wrong_value",)
    )


def _failure_of_call(result: Sequence[str]) -> tuple[str, str] | None:
    """Label and complaint of a call that returned no value; None: it returned one."""
    kind, text = result
    if kind == "timeout":
        return "test_timeout", "was not finished in time"
    if kind == "raised":
        is_import = text.startswith("ImportError: import of ") and text.endswith(" is not allowed")
        return "forbidden_import" if is_import else "test_raised", f"raised {_printable(text[:80])}"
    if kind != "value":
        return "no_value", f"returned nothing ({_printable(text[:80])})"
    return None


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def _failure_of_test(test: CallTest, result: Sequence[str]) -> tuple[str, str] | None:
    """Label and complaint of a test that fails; None: it passes."""
    failure = _failure_of_call(result)
    if failure is not None:
        return failure
    try:
        is_right = _is_expected(result[1], test)
        complaint = "" if is_right else f"is {shown(result[1])}, not {test.expected!r:.60}"
    except NotPlainData:
        return "wrong_value", "returned what cannot be read as plain data"
    return None if is_right else ("wrong_value", complaint)


def _is_expected(text: str, test: CallTest) -> bool:
    """Whether a value, as the program wrote it, is what a test expects. Raises NotPlainData."""
    if test.tolerance is None:
        return equals(text, test.expected)
    number = as_number(text)
    try:
        return number is not None and abs(number - test.expected) <= test.tolerance
    except OverflowError:  # an integer beyond every float
        return False
