"""The pyfunc benchmark: a signature, a docstring with two examples, and the body of the function to write.

    def solve(xs):
        '''Take xs, keep the items above 4, multiply each item by 3, return the sum.

        >>> solve([5, 1, 7])
        36
        ...

A function is a family (arithmetic, strings, lists, recursion) and a few steps, each a phrase of English and a line of
Python; the number of steps is the difficulty. The examples are the *sample tests*, which
the model sees; *hidden tests* have other inputs of the same kind, *variant tests* inputs of another kind (longer,
negative, empty). A program counts if it passes all of them, so that one which repeats the examples earns nothing.

Promises: expected values come from running our own source, never from a model; known-wrong solutions (`mutants`) differ
from the reference on some input that was tried. Does NOT compare with scores on HumanEval.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from agent2.benchmarks.home import Players, Source, foreign_answers, reference_answer
from agent2.environments import QUESTION_WORLD, QuestionEnvironment
from agent2.errors import ConfigError
from agent2.records import Environment, Item, JsonValue, Message, SamplingSettings, Scorer, Split, derive_seed
from agent2.scorers.python_tests import PythonTestsScorer

N_SAMPLE, N_HIDDEN, N_VARIANT = 2, 4, 3
N_MUTANT_INPUTS = 60
"""Inputs that are tried: a mutant counts as wrong if it differs on one of them."""
MAX_STEPS = 4
WORDS = ("ab", "xy", "no", "end", "up")
_TEST = re.compile(r"assert solve\((.*)\) == (.*)", re.DOTALL)
_NUMBERS = tuple(range(2, 10))


@dataclass(frozen=True, slots=True)
class FunctionStep:
    """One step, as a phrase of English and a line of Python; `{c}` is its constant."""

    phrase: str
    code: str
    constants: Sequence[JsonValue] = ()
    """The values of the constant; empty: the step has none."""


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of function."""

    parameters: str
    steps: Sequence[FunctionStep]
    ends: Sequence[FunctionStep]
    """The return statements; of a recursion, its base cases."""
    is_recursive: bool = False


FAMILIES: dict[str, Family] = {
    "arithmetic": Family(
        "a, b",
        (
            FunctionStep("add b", "a = a + b"),
            FunctionStep("subtract b", "a = a - b"),
            FunctionStep("multiply by b", "a = a * b"),
            FunctionStep("add {c}", "a = a + {c}", _NUMBERS),
            FunctionStep("subtract {c}", "a = a - {c}", _NUMBERS),
            FunctionStep("multiply by {c}", "a = a * {c}", _NUMBERS),
        ),
        (FunctionStep("return it", "return a"), FunctionStep("return the absolute value", "return abs(a)")),
    ),
    "strings": Family(
        "s",
        (
            FunctionStep("reverse it", "s = s[::-1]"),
            FunctionStep("make it upper case", "s = s.upper()"),
            FunctionStep("repeat it {c} times", "s = s * {c}", (2, 3)),
            FunctionStep("keep the first {c}", "s = s[:{c}]", (1, 2, 3, 4, 5)),
            FunctionStep("drop the first {c}", "s = s[{c}:]", (1, 2, 3, 4, 5)),
            FunctionStep("append {c}", "s = s + {c}", WORDS),
            FunctionStep("put {c} before it", "s = {c} + s", WORDS),
        ),
        (FunctionStep("return it", "return s"), FunctionStep("return the length", "return len(s)")),
    ),
    "lists": Family(
        "xs",
        (
            FunctionStep("keep the items above {c}", "xs = [x for x in xs if x > {c}]", _NUMBERS),
            FunctionStep("keep the items below {c}", "xs = [x for x in xs if x < {c}]", _NUMBERS),
            FunctionStep("keep the even items", "xs = [x for x in xs if x % 2 == 0]"),
            FunctionStep("add {c} to each item", "xs = [x + {c} for x in xs]", _NUMBERS),
            FunctionStep("multiply each item by {c}", "xs = [x * {c} for x in xs]", _NUMBERS),
            FunctionStep("reverse the list", "xs = xs[::-1]"),
            FunctionStep("sort it", "xs = sorted(xs)"),
        ),
        (
            FunctionStep("return it", "return xs"),
            FunctionStep("return the sum", "return sum(xs)"),
            FunctionStep("return the number of items", "return len(xs)"),
        ),
    ),
    "recursion": Family(
        "n",
        (
            FunctionStep("add n", "r = r + n"),
            FunctionStep("add {c}", "r = r + {c}", _NUMBERS),
            FunctionStep("subtract {c}", "r = r - {c}", _NUMBERS),
            FunctionStep("multiply by {c}", "r = r * {c}", (2, 3)),
        ),
        tuple(FunctionStep(f"At 0 return {c}", f"return {c}") for c in range(10)),
        is_recursive=True,
    ),
}


@dataclass(frozen=True, slots=True)
class GeneratedFunction:
    """One function: a family, its steps with their constants, and its end."""

    family: str
    steps: Sequence[tuple[int, JsonValue]]
    """Number of the step in its family, and its constant; None where it has none."""
    end: int

    @property
    def docstring(self) -> str:
        """What the function does, in English."""
        family = FAMILIES[self.family]
        steps = [family.steps[number].phrase.format(c=_constant_text(constant)) for number, constant in self.steps]
        end = family.ends[self.end].phrase
        if family.is_recursive:
            return f"{end}. Else take the value at n - 1, {', '.join(steps)}."
        return f"Take {family.parameters.partition(',')[0]}, {', '.join([*steps, end])}."

    @property
    def body(self) -> str:
        """The lines of the function below its signature."""
        family = FAMILIES[self.family]
        lines = [family.steps[number].code.format(c=repr(constant)) for number, constant in self.steps]
        end = family.ends[self.end].code
        if family.is_recursive:
            lines = ["if n < 1:", f"    {end}", "r = solve(n - 1)", *lines, "return r"]
        else:
            lines.append(end)
        return "\n".join(f"    {line}" for line in lines)

    @property
    def signature(self) -> str:
        """The first line."""
        return f"def solve({FAMILIES[self.family].parameters}):"

    def values(self, inputs: Sequence[tuple[JsonValue, ...]]) -> list[JsonValue]:
        """The value for each input."""
        namespace: dict[str, JsonValue] = {}
        # no sandbox: the source is put together from FAMILIES above, never from a model
        exec(f"{self.signature}\n{self.body}", namespace)
        return [namespace["solve"](*arguments) for arguments in inputs]


def _constant_text(constant: JsonValue) -> str:
    return f"'{constant}'" if isinstance(constant, str) else str(constant)


def draw_function(rng: np.random.Generator, n_steps: Sequence[int], families: Sequence[str]) -> GeneratedFunction:
    """A random function; the number of steps and the family are drawn uniformly."""
    name = families[int(rng.integers(len(families)))]
    family = FAMILIES[name]
    steps = [_draw_step(rng, family) for _ in range(n_steps[int(rng.integers(len(n_steps)))])]
    return GeneratedFunction(name, tuple(steps), int(rng.integers(len(family.ends))))


def _draw_step(rng: np.random.Generator, family: Family) -> tuple[int, JsonValue]:
    number = int(rng.integers(len(family.steps)))
    return number, _draw_constant(rng, family.steps[number])


def _draw_constant(rng: np.random.Generator, step: FunctionStep) -> JsonValue:
    return step.constants[int(rng.integers(len(step.constants)))] if step.constants else None


def draw_inputs(
    family: str, n: int, rng: np.random.Generator, *, is_variant: bool = False
) -> list[tuple[JsonValue, ...]]:
    """Different inputs of a family. is_variant: inputs of another kind (longer, negative, or empty)."""
    inputs: dict[str, tuple[JsonValue, ...]] = {}
    if is_variant and family in ("strings", "lists"):
        inputs["empty"] = ("",) if family == "strings" else ([],)
    while len(inputs) < n:
        arguments = _draw_input(family, rng, is_variant=is_variant)
        inputs.setdefault(repr(arguments), arguments)
    return list(inputs.values())


def _draw_input(family: str, rng: np.random.Generator, *, is_variant: bool) -> tuple[JsonValue, ...]:
    def numbers(low: int, high: int, size: int) -> list[int]:
        return [int(number) for number in rng.integers(low, high + 1, size)]

    match family:
        case "arithmetic":
            low, high = (-30, -1) if is_variant else (0, 9)
            return tuple(numbers(low, high, 2))
        case "strings":
            size = int(rng.integers(9, 16) if is_variant else rng.integers(3, 7))
            return ("".join("abcdefgh"[k] for k in rng.integers(0, 8, size)),)
        case "lists":
            size = int(rng.integers(8, 13) if is_variant else rng.integers(3, 5))
            return (numbers(-20, 40, size) if is_variant else numbers(0, 12, size),)
        case _:
            return (int(rng.integers(6, 11) if is_variant else rng.integers(0, 6)),)


def mutants(function: GeneratedFunction, rng: np.random.Generator, n: int) -> list[GeneratedFunction]:
    """Up to n different functions like this one that return something else on an input that was tried.

    Each differs in one place: a constant, a step, the end, two steps swapped, or a step left out.
    """
    # a recursion has no more different inputs: n is 0 to 5, or 6 to 10 as a variant
    n_usual, n_variant = (6, 5) if function.family == "recursion" else (N_MUTANT_INPUTS // 2, N_MUTANT_INPUTS // 2)
    inputs = draw_inputs(function.family, n_usual, rng)
    inputs += draw_inputs(function.family, n_variant, rng, is_variant=True)
    expected = function.values(inputs)
    mutant_by_body: dict[str, GeneratedFunction] = {}
    for _ in range(20 * n):
        if len(mutant_by_body) >= n:
            break
        mutant = _mutate(function, rng)
        if mutant.body != function.body and mutant.body not in mutant_by_body and mutant.values(inputs) != expected:
            mutant_by_body[mutant.body] = mutant
    return list(mutant_by_body.values())


def _mutate(function: GeneratedFunction, rng: np.random.Generator) -> GeneratedFunction:
    family, steps = FAMILIES[function.family], list(function.steps)
    index = int(rng.integers(len(steps)))
    match int(rng.integers(5)):
        case 0:
            steps[index] = (steps[index][0], _draw_constant(rng, family.steps[steps[index][0]]))
        case 1:
            steps[index] = _draw_step(rng, family)
        case 2:
            return replace(function, end=int(rng.integers(len(family.ends))))
        case 3:
            partner = int(rng.integers(len(steps)))
            steps[index], steps[partner] = steps[partner], steps[index]
        case _:
            if len(steps) > 1:
                del steps[index]
    return replace(function, steps=tuple(steps))


class Pyfunc:
    """Generated functions in four disjoint splits."""

    name = "pyfunc"
    version = "2.0"
    primary_metric = "pass_at_1"
    max_turns = 1
    sampling = SamplingSettings(temperature=0.6, top_p=0.95, max_tokens=40)
    attempts = 1

    def __init__(self, n_steps: Sequence[int] = (2, 3), families: Sequence[str] = tuple(FAMILIES)) -> None:
        """n_steps: the difficulty, numbers of steps, drawn uniformly. families: kinds of functions.

        Raises ConfigError for numbers outside 1 to 4 and unknown families.
        """
        if not n_steps or not all(1 <= n <= MAX_STEPS for n in n_steps):
            raise ConfigError(f"pyfunc: n_steps is {list(n_steps)}; give numbers from 1 to {MAX_STEPS}")
        if not families or not set(families) <= set(FAMILIES):
            raise ConfigError(f"pyfunc: families is {list(families)}; give some of {', '.join(FAMILIES)}")
        draw = partial(draw_function, n_steps=tuple(n_steps), families=tuple(families))
        self.source: Source[GeneratedFunction] = Source(
            self.name, draw, lambda function: function.body, lambda function: function.docstring
        )

    def items(self, split: Split, n: int, secret: bytes | None) -> list[Item]:
        """The first n items of a split. Raises ConfigError without the secret for a hidden one, or if it has fewer."""
        return [
            to_item(function, self.source.item_id(function, split, secret), split)
            for function in self.source.first(split, n, secret)
        ]

    def environment(self) -> Environment:
        """A fresh question."""
        return QuestionEnvironment()

    def environment_version(self) -> str:
        """Name and version of the world."""
        return QUESTION_WORLD

    def scorer(self) -> Scorer:
        """Runs the tests."""
        return PythonTestsScorer(timeout_s=5.0)

    def players(self) -> Players:
        """References, those of other items, a program that hard-codes the examples, and known-wrong solutions."""
        return Players(
            reference_answer,
            foreign_answers,
            floor_at_most=0.10,
            n_played=40,
            shortcuts={"a player that hard-codes the sample tests": repeat_examples},
            known_wrong=wrong_answers,
        )


class PyfuncHard(Pyfunc):
    """Functions of four steps."""

    name = "pyfunc_hard"

    def __init__(self) -> None:
        """As `Pyfunc` with four steps."""
        super().__init__(n_steps=(4,))


def to_item(function: GeneratedFunction, item_id: str, split: Split) -> Item:
    """The item of a function; its inputs follow from the function alone."""
    rng = np.random.default_rng(derive_seed("pyfunc inputs", function.body))
    n_usual = N_SAMPLE + N_HIDDEN
    # the order of the draws is part of every item: its tests change with it
    usual = draw_inputs(function.family, n_usual, rng)
    variant = draw_inputs(function.family, N_VARIANT, rng, is_variant=True)
    values = function.values([*usual, *variant])
    calls = [f"solve({', '.join(map(repr, arguments))})" for arguments in (*usual, *variant)]
    tests = [f"assert {call} == {value!r}" for call, value in zip(calls, values, strict=True)]
    examples = "".join(
        f"    >>> {call}\n    {value!r}\n" for call, value in zip(calls[:N_SAMPLE], values[:N_SAMPLE], strict=True)
    )
    prefix = f'{function.signature}\n    """{function.docstring}\n\n{examples}    """\n'
    return Item(
        id=item_id,
        split=split,
        prompt=prefix.rstrip(),
        reference=function.body,
        payload={
            "prefix": prefix,
            "sample_tests": tests[:N_SAMPLE],
            "tests": tests[N_SAMPLE:n_usual],
            "variant_tests": tests[n_usual:],
            "task_type": function.family,
            "made_of": {
                "family": function.family,
                "steps": [list(step) for step in function.steps],
                "end": function.end,
            },
        },
    )


def repeat_examples(item: Item, chat: Sequence[Message]) -> str:
    """A program that looks its values up in the sample tests."""
    parameters = re.findall(r"def solve\((.*)\):", item.payload["prefix"])[0]
    entries = []
    for test in item.payload["sample_tests"]:
        arguments, value = _TEST.fullmatch(test).groups()  # type: ignore[union-attr]
        entries.append(f"repr(({arguments},)): {value}")
    return "    return {" + ", ".join(entries) + f"}}.get(repr(({parameters},)))"


def wrong_answers(item: Item) -> list[str]:
    """Bodies that are known to be wrong."""
    parts = item.payload["made_of"]
    function = GeneratedFunction(parts["family"], tuple((number, c) for number, c in parts["steps"]), parts["end"])
    rng = np.random.default_rng(derive_seed("pyfunc mutants", item.id))
    return [mutant.body for mutant in mutants(function, rng, 6)]
