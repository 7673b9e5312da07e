"""Python that a model wrote, run against an item's tests.

    payload: {"tests": ["assert add(1, 2) == 3", "assert not is_odd(4)", "assert abs(mean([1, 2]) - 1.5) < 1e-9"],
              "sample_tests": [...], "variant_tests": [...],  # optional further groups, each with a view of its own
              "setup": "import math",                         # optional: run before the program
              "prefix": PROMPT, "suffix": "root = Node(1)"}    # optional: what the answer continues, what follows it

    payload: {"check": {"test": "def check(candidate): ...", "entry_point": "add",
                        "program": "def add(a, b): ..."},      # a right program, as the tests may use its helpers
              "prefix": ...}

A program is given calls (`add(1, 2)`) and never the values that are expected: what a call returned comes out of its
sandbox as data and is compared elsewhere, here or, for a `check` function, in another sandbox that holds tests and
values and no program. So there is nothing to read, to patch or to print that would turn a wrong value into a right
one; a program that ends early, hangs, floods its output or breaks the harness has merely not returned its values, and
its tests fail. Programs of one batch share a sandbox, one after the other, each gone with all that it started before
the next begins; one that ends the sandbox is run again alone, and so harms nobody but itself. A missing score is kept
for a sandbox that did not come as far as the program, and for tests that cannot be put to it.

Does NOT take tests of other forms (a judge fault); return values other than None, bool, numbers, str, bytes, range,
iterators, list, tuple, set, frozenset, dict and subclasses of these; or what a call does to its arguments.
"""

import ast
import json
import math
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

from agent2.errors import ConfigError, Fault
from agent2.records import Item, JsonValue, Rollout, Score, ScorerOutput, ScoringMode, ScoringWork, digest_of
from agent2.sandbox.backends import ContainedEnd, EndedBy
from agent2.sandbox.spec import HOST_DISK, MIB
from agent2.scorers.program_runner import PATIENCE, read
from agent2.scorers.sandboxed import SandboxRunner
from agent2.syntax import parse_python

START_S = 60.0
"""For a sandbox to start on a machine that is busy."""
END_S = 8.0
"""For the harness to end a program with all that it started, and to write what came of it."""
CHECK_TIME = 3.0
"""A `check` function, with the right program or with values, may take so many times what a program may."""
MAX_VALUE_BYTES = 100_000
"""Of what one call returned, as JSON."""
MAX_CHECK_BYTES = 4 * MIB
MAX_CODE_CHARS = 1_000_000
BATCH = 512
"""Programs that share a sandbox, at most; starting one costs as much as some 40 short programs."""
MIN_RECORDED = 32
"""`check` functions whose calls are recorded in a sandbox, if there are so many."""
READY = "ready"
GROUPS = {"sample_tests": "sample", "tests": "hidden", "variant_tests": "variant"}
"""Key of the payload -> how views call the group: shown to the model, not shown, not shown and of other inputs."""

_FENCE = re.compile(r"^[ \t]*```[ \t]*([\w+-]*)[^\n]*\n(.*?)(?:^[ \t]*```|\Z)", re.DOTALL | re.MULTILINE)
_PYTHON = ("python", "py", "python3", "")


@dataclass(frozen=True, slots=True)
class CallTest:
    """One test: an expression that the program is asked for, and what it has to return."""

    call: str
    expected: JsonValue
    tolerance: float | None = None
    """Largest difference of a number; None: equal as Python's == says."""


@dataclass(frozen=True, slots=True)
class Paper:
    """What one item asks of a program."""

    calls: Sequence[JsonValue]
    """Texts, or of a `check` function [arguments, named arguments] as `program_runner.plain` writes them."""
    tests: Sequence[CallTest] = ()
    """One for each call; empty where a `check` function judges."""
    groups: Sequence[str] = ()
    """Of each test."""
    check: Mapping[str, JsonValue] | None = None
    """What `program_runner.examined` is given, with all that it recorded."""
    marks: Sequence[int] = ()
    """For each assert of the check function the number of calls that a right program got before it."""


@dataclass(frozen=True, slots=True)
class ProgramVerdict:
    """What the tests of one item said of one program."""

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
                all(ok for ok, of in zip(self.passed, self.groups, strict=True) if of == group)
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
    `imports`, the modules that programs may ask for, all of the standard library without it; `concurrency`, sandboxes
    at once.
    """

    name = "python_tests"
    version = "3.0"
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
        self._recorded: dict[str, Paper | str] = {}
        self._being_recorded: set[str] = set()
        self._recording = threading.Condition()
        self.work = ScoringWork(ScoringMode.SANDBOX, batch_size=BATCH, concurrency=int(concurrency))

    def score(self, item: Item, rollout: Rollout) -> Score:
        """No verdict: it needs a sandbox, which the scoring stage gives it."""
        return Score(None, "python_tests runs programs and needs the scoring stage (evaluate, rescore)", Fault.JUDGE)

    def score_on(self, runner: SandboxRunner, item: Item, rollout: Rollout) -> Score:
        """The verdict on one program; see `score_batch_on`."""
        return self.score_batch_on(runner, [(item, rollout)])[0]

    def score_batch_on(self, runner: SandboxRunner, batch: Sequence[tuple[Item, Rollout]]) -> list[Score]:
        """A verdict on each; a judge fault for an item whose tests cannot be read. Raises SandboxError."""
        answers = [rollout.answer if rollout.answer is not None else _last_words(rollout) for _, rollout in batch]
        asked = [(item, code_of(answer)) for (item, _), answer in zip(batch, answers, strict=True)]
        found = {place: _without_code(code) for place, (_, code) in enumerate(asked)}
        first = {(asked[place][0].id, asked[place][1]): place for place, score in found.items() if score is None}
        verdicts = self.verdicts_on(runner, [asked[place] for place in first.values()])
        known = dict(zip(first, verdicts, strict=True))  # a group of attempts often writes one program several times
        for place, (item, code) in enumerate(asked):
            if found[place] is None:
                verdict = known[item.id, code]
                found[place] = verdict.score if isinstance(verdict, ProgramVerdict) else verdict
        return [score for score in found.values() if score is not None]

    def verdicts_on(self, runner: SandboxRunner, asked: Sequence[tuple[Item, str]]) -> list[ProgramVerdict | Score]:
        """What each test says of each program (item, code); a missing score where nothing can be said."""
        papers = self._papers(runner, [item for item, _ in asked])
        runs: list[tuple[Paper, dict[str, JsonValue]]] = []
        for (item, code), paper in zip(asked, papers, strict=True):
            if isinstance(paper, Paper):
                entry = paper.check["entry_point"] if paper.check else None
                runs.append((paper, {"code": program_of(item, code), "calls": paper.calls, "entry_point": entry}))
        results = iter(self._run(runner, [program for _, program in runs]))
        values = [next(results) if isinstance(paper, Paper) else Score(None, paper, Fault.JUDGE) for paper in papers]
        verdicts: list[ProgramVerdict | Score] = []
        judged = iter(
            self._examine(
                runner,
                [
                    (paper.check, value)
                    for paper, value in zip(papers, values, strict=True)
                    if isinstance(paper, Paper) and paper.check and isinstance(value, list)
                ],
            )
        )
        for paper, value in zip(papers, values, strict=True):
            if isinstance(value, Score) or not isinstance(paper, Paper):
                verdicts.append(value)  # type: ignore[arg-type]
            elif isinstance(value, str):
                n = len(paper.marks or paper.tests)
                groups = paper.groups or ("hidden",) * n
                verdicts.append(ProgramVerdict([False] * n, groups, f"the program {value}", ("no_value",), ran=False))
            elif paper.check:
                verdicts.append(_checked(paper, value, next(judged)))
            else:
                verdicts.append(_compared(paper, value))
        return verdicts

    def _papers(self, runner: SandboxRunner, items: Sequence[Item]) -> list[Paper | str]:
        """What each item asks, or why it cannot be asked; the calls of `check` functions are recorded once."""
        checks = {item.id: _check_of(item) for item in items}
        digests = {name: digest_of(check) for name, check in checks.items() if isinstance(check, dict)}
        self._record(
            runner, {digest: check for name, digest in digests.items() if isinstance(check := checks[name], dict)}
        )
        papers: list[Paper | str] = []
        for item in items:
            check = checks[item.id]
            if check is None:
                papers.append(_paper(item))
            elif isinstance(check, str):
                papers.append(f"item {item.id}: {check}; correct the benchmark")
            else:
                paper = self._recorded.get(digests[item.id], "the sandbox did not run its tests")
                is_usable = isinstance(paper, Paper)
                papers.append(paper if is_usable else f"item {item.id}: {paper}; correct the benchmark")
        return papers

    def _record(self, runner: SandboxRunner, checks: Mapping[str, Mapping[str, JsonValue]]) -> None:
        """Learn which calls each `check` function (by digest) makes; threads that need the same ones divide them.

        One whose sandbox failed stays unknown: the next batch asks again.
        """
        tried: set[str] = set()
        while True:
            with self._recording:
                unknown = [digest for digest in checks if digest not in self._recorded and digest not in tried]
                free = [digest for digest in unknown if digest not in self._being_recorded]
                if not free:
                    if not unknown:
                        return
                    self._recording.wait()
                    continue
                share = max(-(-len(unknown) // self.work.concurrency), MIN_RECORDED)
                mine = free[:share]
                self._being_recorded.update(mine)
            tried.update(mine)
            try:
                for digest, said in zip(
                    mine, self._examine(runner, [(checks[one], None) for one in mine]), strict=True
                ):
                    if said is not None:
                        self._recorded[digest] = (
                            f"its tests cannot be used ({said['error']})"
                            if "error" in said
                            else Paper(said["calls"], check={**checks[digest], **said}, marks=said["marks"])
                        )
            finally:
                with self._recording:
                    self._being_recorded.difference_update(mine)
                    self._recording.notify_all()

    def _run(
        self, runner: SandboxRunner, programs: Sequence[Mapping[str, JsonValue]]
    ) -> list[list[list[str]] | str | Score]:
        """Results of each program's calls; words: how it failed as a whole; a missing score if it was not run."""
        if not programs:
            return []
        job = {
            "kind": "run",
            "folder": runner.memory_folder,
            "programs": programs,
            "limit_s": self._timeout_s,
            "max_bytes": MAX_VALUE_BYTES,
            "memory_bytes": self._memory_bytes,
            "imports": self._imports,
        }
        n_calls = sum(len(program["calls"]) for program in programs)
        end = self._run_job(runner, job, len(programs), PATIENCE * self._timeout_s + END_S, MAX_VALUE_BYTES * n_calls)
        if isinstance(end, Score):
            return [end] * len(programs)
        said: list[list[list[str]] | str | Score] = [*_said(end, [len(program["calls"]) for program in programs])]
        if len(said) == len(programs):
            return said
        if len(programs) == 1:
            how = f"ran into a limit ({end.reason})" if end.broke else "ended the harness, or its time was over"
            return [how]
        at = len(said)  # the one that ran when the sandbox ended is asked alone, those after it in a fresh one
        return [*said, *self._run(runner, programs[at : at + 1]), *self._run(runner, programs[at + 1 :])]

    def _examine(
        self, runner: SandboxRunner, asked: Sequence[tuple[Mapping[str, JsonValue], list[list[str]] | None]]
    ) -> list[dict[str, JsonValue] | None]:
        """What each `check` function says of results, or records; None where its sandbox failed."""
        if not asked:
            return []
        checks = {id(check): check for check, _ in asked}  # several programs are judged by the same one
        places = {name: place for place, name in enumerate(checks)}
        limit_s = CHECK_TIME * self._timeout_s
        job = {
            "kind": "examine",
            "checks": list(checks.values()),
            "asked": [[places[id(check)], results] for check, results in asked],
            "limit_s": limit_s,
            "max_bytes": MAX_CHECK_BYTES,
        }
        end = self._run_job(runner, job, len(asked), PATIENCE * limit_s + END_S, MAX_CHECK_BYTES * len(asked))
        if isinstance(end, Score):
            return [None] * len(asked)
        lines = end.stdout.decode("utf-8", "replace").splitlines()[1:]
        said: list[dict[str, JsonValue] | None] = [json.loads(line) for line in lines[: len(asked)]]
        return said + [None] * (len(asked) - len(said))

    def _run_job(
        self, runner: SandboxRunner, job: Mapping[str, JsonValue], n_lines: int, line_s: float, n_bytes: int
    ) -> ContainedEnd | Score:
        """How a job ended; a missing score if it never began."""
        end = runner.run(
            ("python", "-I", "-S", "-B", "-c", runner_source()),
            stdin=json.dumps(job).encode("utf-8", "backslashreplace"),
            timeout_s=START_S + n_lines * line_s,
            silence_s=line_s,  # a program can stop the harness that keeps its time
            stdout_bytes=n_bytes + 100_000,
        )
        if end.ended_by is EndedBy.STOP:
            return Score(None, "the scoring was stopped", Fault.INFRASTRUCTURE)
        if end.broke == HOST_DISK or not end.stdout.startswith(READY.encode()):
            return Score(None, f"the sandbox did not run the program: {end.reason}", Fault.INFRASTRUCTURE)
        return end


@cache
def runner_source() -> str:
    """The text of `program_runner`."""
    return resources.files("agent2.scorers").joinpath("program_runner.py").read_text("utf-8")


def program_of(item: Item, code: str) -> str:
    """What is run: setup, what the answer continues, the answer, and what follows it."""
    setup, prefix, suffix = (item.payload.get(key) or "" for key in ("setup", "prefix", "suffix"))
    return f"{setup}\n{prefix}{code}\n{suffix}\n"


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


def _last_words(rollout: Rollout) -> str:
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
    wanted = ("test", "entry_point", "program")
    if not isinstance(check, Mapping) or not all(isinstance(check.get(key), str) for key in wanted):
        return f"payload.check is to hold the texts {', '.join(wanted)}"
    return {key: check[key] for key in wanted}


def _paper(item: Item) -> Paper | str:
    """What an item with plain tests asks."""
    tests: list[CallTest] = []
    groups: list[str] = []
    try:
        for key, group in GROUPS.items():
            if key == "tests" or item.payload.get(key):
                found = read_tests(item.payload.get(key) or ())
                tests += found
                groups += [group] * len(found)
    except ValueError as error:
        return f"item {item.id}: {error}; correct the benchmark"
    return Paper([test.call for test in tests], tests, groups)


def _said(end: ContainedEnd, n_calls: Sequence[int]) -> Iterator[list[list[str]]]:
    """The results of the programs that came to their end, in order."""
    lines = end.stdout.decode("utf-8", "replace").split("\n")[1:-1]  # the last one is cut, or empty
    for line, n in zip(lines, n_calls, strict=False):
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            return
        is_sound = isinstance(found, list) and len(found) == n
        if not is_sound or not all(
            isinstance(one, list) and [type(part) for part in one] == [str, str] for one in found
        ):
            return
        yield found


def _compared(paper: Paper, results: Sequence[Sequence[str]]) -> ProgramVerdict:
    complaints = [_complaint(test, result) for test, result in zip(paper.tests, results, strict=True)]
    failed = [(test, *found) for test, found in zip(paper.tests, complaints, strict=True) if found is not None]
    first = f"{failed[0][0].call[:60]} {failed[0][2]}" if failed else ""
    labels = tuple(sorted({label for _, label, _ in failed}))
    return ProgramVerdict([found is None for found in complaints], paper.groups, first, labels)


def _checked(
    paper: Paper, results: Sequence[Sequence[str]], said: Mapping[str, JsonValue] | None
) -> ProgramVerdict | Score:
    """The verdict of a `check` function on values."""
    if said is None:
        return Score(None, "the sandbox did not run the tests", Fault.INFRASTRUCTURE)
    if said.get("diverged"):
        return Score(None, "its tests ask each program something else, which is not supported", Fault.JUDGE)
    passed = [bool(one) for one in said.get("passed", ())][: len(paper.marks)]
    passed += [False] * (len(paper.marks) - len(passed))
    trouble = str(said.get("error") or said.get("end") or "")
    if all(passed) and trouble:
        passed[-1:] = [False]
    labels = {kind: label for kind, label, _ in map(_trouble, results) if kind}
    if all(passed):
        return ProgramVerdict(passed, ("hidden",) * len(passed), "")
    first = next((words for kind, _, words in map(_trouble, results) if kind), "") or "a value is wrong"
    found = tuple(sorted(set(labels.values()))) or ("wrong_value",)
    return ProgramVerdict(passed, ("hidden",) * len(passed), first, found)


def _trouble(result: Sequence[str]) -> tuple[str, str, str]:
    """Kind, label and words of a call that returned nothing; empty kind: it returned something."""
    kind, text = result
    if kind == "timeout":
        return kind, "test_timeout", "was not finished in time"
    if kind == "raised":
        is_import = text.startswith("ImportError: import of ") and text.endswith(" is not allowed")
        return kind, "forbidden_import" if is_import else "test_raised", f"raised {text[:80]}"
    if kind != "value":
        return kind or "none", "no_value", f"returned nothing ({text[:80]})"
    return "", "", ""


def _complaint(test: CallTest, result: Sequence[str]) -> tuple[str, str] | None:
    """Label and words for a test that fails."""
    kind, label, words = _trouble(result)
    if kind:
        return label, words
    try:
        value = read(json.loads(result[1]))
        is_right = _is_expected(value, test)
    except (ValueError, TypeError, RecursionError, KeyError, OverflowError):
        return "wrong_value", "returned what cannot be read as plain data"
    return None if is_right else ("wrong_value", f"is {value!r:.60}, not {test.expected!r:.60}")


def _is_expected(value: JsonValue, test: CallTest) -> bool:
    if test.tolerance is not None:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and abs(value - test.expected) <= test.tolerance
    return bool(value == test.expected)
