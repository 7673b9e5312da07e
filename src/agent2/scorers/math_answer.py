r"""The scorer `math_answer`: is the answer of a worked solution the reference, as an expression?

    reference   "\frac{1}{2}", or a worked solution with a box, as MATH has it
    answer      "... so the probability is $\boxed{0.5}$."

Three rules say where the answer of a text is, and a benchmark names one of them:

any      the default: the last box; without one, what is tagged as the answer, what follows the last `####`, the last
         "the answer is", the last formula, or the last number
boxed    MATH's: the last box and nothing else
integer  AIME's: as `any`, but reference and answer are whole numbers (`073` is 73)

Equal are numbers by value and expressions, fractions, sets, tuples, intervals, matrices and equations as `math-verify`
finds them equal, exact to 6 decimals; units, degrees and `x =` do not count, and a percentage equals both readings.
What cannot be compared in the time or memory that a comparison has is `math_undecided` and scores 0
Does NOT check the working, nor guess what an ambiguous answer means ("1 or 2").
"""

import json
import re
import select
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

from agent2.errors import ConfigError, Fault
from agent2.records import Item, JsonValue, Rollout, Score, ScorerOutput
from agent2.scorers import math_runner
from agent2.scorers.answers import brief
from agent2.scorers.benchmark_labels import BenchmarkLabels
from agent2.scorers.math_runner import DIFFERENT, EQUAL, NO_ANSWER, NO_REFERENCE

RULES = ("any", "boxed", "integer")
UNDECIDED = "undecided"
MAX_CHARACTERS = 100_000
"""Of an answer, from its end; the rest is not read."""
MAX_EXPRESSION = 1_000
"""Longer expressions are not compared."""
PATIENCE_S = 120.0
"""For a comparison on a machine that is busy; its processor time is limited in the child."""

_BOX = re.compile(r"\\(?:boxed|fbox)\s{0,9}(?:\{|(?P<bare>[0-9A-Za-z])(?![0-9A-Za-z]))")
_TAGGED = re.compile(r"<(answer|final_answer)>((?:(?!<\1>).){0,2000}?)</\1>", re.DOTALL | re.IGNORECASE)
_STATED = re.compile(
    r"(?:\banswer(?:\s{1,9}(?:to|for|of)\s[^.\n:]{1,100}?)?(?:\s{1,9}(?:is|are|would\sbe|must\sbe)\b:?|[*_]{0,3}\s{0,9}[:=])|####)"
    r"[*_]{0,3}\s{0,9}(?P<rest>[^\n]{1,500})",
    re.IGNORECASE,
)
_FORMULA = re.compile(r"\$\$([^$]{1,500})\$\$|\$([^$\n]{1,500})\$|\\\((.{1,500}?)\\\)|\\\[(.{1,500}?)\\\]", re.DOTALL)
_NUMBER = re.compile(r"(?<![\w.,])-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:/\d+)?(?![\w]|[.,]\d)")
_SPACING = re.compile(
    r"\\(?:left|right|displaystyle|,|;|!|:|quad|qquad)(?![A-Za-z])|\\[\s]|\$|~|(?<=\d),(?=\d{3}(?!\d))"
)
_LATEX_FRACTION = re.compile(r"(?<![\w)}])(-?)\\[dt]?frac\{(\d+)\}\{(\d+)\}")
_PLAIN_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:/\d+)?")


def final_expression(text: str, rule: str = "any") -> str | None:
    """The answer of a text by one of `RULES`, as it is written; None: it has none."""
    text = text[-MAX_CHARACTERS:]
    boxed = _last_box(text)
    if boxed is not None or rule == "boxed":
        return boxed
    tagged = list(_TAGGED.finditer(text))
    if tagged:
        return _stated_expression(tagged[-1][2])
    stated = list(_STATED.finditer(text))
    if stated:
        return _stated_expression(stated[-1]["rest"])
    if len(text) <= MAX_EXPRESSION and "\n" not in text.strip() and not re.search(r"[A-Za-z]{3,} [A-Za-z]{2,}", text):
        return _stated_expression(text)  # nothing but an expression
    formulas = [next(filter(None, match.groups())) for match in _FORMULA.finditer(text)]
    numbers = _NUMBER.findall(text)
    return (formulas[-1] if formulas else numbers[-1] if numbers else "").strip() or None


def _last_box(text: str) -> str | None:
    """The content of the last box that is closed."""
    for start in reversed(list(_BOX.finditer(text))[-20:]):
        if start["bare"]:
            return start["bare"]
        depth = 1
        for position in range(start.end(), min(len(text), start.end() + 4 * MAX_EXPRESSION)):
            depth += {"{": 1, "}": -1}.get(text[position], 0) if text[position - 1] != "\\" else 0
            if depth == 0:
                return text[start.end() : position].strip() or None
    return None


def _stated_expression(text: str) -> str | None:
    """What a statement names: its only formula, or the text up to the end of the sentence."""
    text = text.strip()
    formulas = [next(filter(None, match.groups())) for match in _FORMULA.finditer(text)]
    if formulas:
        return formulas[0].strip() or None
    sentence = re.split(r"(?<=[^\d\s])\.(?:\s|$)|\.\s|\.$|\n", text, maxsplit=1)[0]
    return sentence.strip(" *_`:") or None


def plain_expression(expression: str) -> str:
    """An expression without what only spaces it; equal texts are equal expressions."""
    plain = _LATEX_FRACTION.sub(r"\1\2/\3", _SPACING.sub("", expression))
    return "".join(plain.split()).rstrip(".")


def number_of(plain: str) -> Fraction | None:
    """The value of a plain expression that is one number, or a fraction of two; None: it is something else."""
    if len(plain) > 200 or _PLAIN_NUMBER.fullmatch(plain) is None:
        return None
    numerator, _, denominator = plain.partition("/")
    if denominator and not int(denominator):
        return None
    return Fraction(numerator.rstrip(".") or 0) / int(denominator or 1)


class _Comparer:
    """Child processes that compare expressions, one at a time; a child that is lost is replaced."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[str] | None = None
        self._asking = threading.Lock()

    def compare(self, reference: str, answer: str) -> str:
        """One of `math_runner.OUTCOMES`, or `UNDECIDED`. Raises ConfigError where the child cannot be started."""
        with self._asking:
            child = self._child or self._started()
            try:
                assert child.stdin is not None
                child.stdin.write(json.dumps([reference, answer]) + "\n")
                child.stdin.flush()
                outcome = _read_line(child)
            except OSError:
                outcome = ""
            if not outcome:
                child.kill()
                child.wait()
                self._child = None
            return outcome or UNDECIDED

    def _started(self) -> "subprocess.Popen[str]":
        command = [sys.executable, "-I", str(Path(math_runner.__file__))]
        child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        if _read_line(child) != "ready":
            child.kill()
            _, complaint = child.communicate()
            raise ConfigError(f"scorer math_answer: its child process did not start: {complaint[-300:].strip()}")
        self._child = child
        weakref.finalize(self, _end, child)
        return child


def _read_line(child: "subprocess.Popen[str]") -> str:
    """The next line; empty: the child ended, or took longer than its caller waits."""
    assert child.stdout is not None
    ready, _, _ = select.select([child.stdout], [], [], PATIENCE_S)
    return child.stdout.readline().strip() if ready else ""


def _end(child: "subprocess.Popen[str]") -> None:
    child.kill()
    child.wait()
    for pipe in (child.stdin, child.stdout, child.stderr):
        if pipe is not None:
            pipe.close()


class MathAnswerScorer(BenchmarkLabels):
    """1.0 if the answer equals the reference as an expression.

    rule: one of `RULES`. Views: `answer_parsed` (an answer could be read), `decided` (it could be compared).
    Labels: `math_no_answer`, `math_undecided`, `math_wrong_answer`, on own data with their name instead of `math`.
    """

    name = "math_answer"
    label_prefix = "math_"
    version = "1.0"
    emits = ScorerOutput(
        views=frozenset({"answer_parsed", "decided"}),
        labels=frozenset({"math_no_answer", "math_undecided", "math_wrong_answer"}),
    )
    expects = r"a final expression, as in \boxed{42}"

    def __init__(self, rule: str = "any") -> None:
        """Raises ConfigError for a rule that does not exist."""
        if rule not in RULES:
            raise ConfigError(f"scorer math_answer: rule {rule!r} is unknown; it is one of {', '.join(RULES)}")
        self._rule = rule
        if rule != "any":
            self.version = f"1.0-{rule}"
        self.answer_form = r"\boxed{{{answer}}}"
        """How an answer is written that this scorer reads."""
        self._comparer = _Comparer()

    def read_item(self, reference: str | None, payload: Mapping[str, JsonValue], where: str) -> Mapping[str, JsonValue]:
        """The payload unchanged. Raises ConfigError for a reference that is empty, or of rule integer no number."""
        expected = None if reference is None else reference_expression(reference)
        if expected is None or (self._rule == "integer" and _integer_of(expected) is None):
            kind = "a whole number" if self._rule == "integer" else "an expression"
            raise ConfigError(f"{where}: the answer {brief(str(reference))} is not {kind}; correct the row")
        return payload

    def score(self, item: Item, rollout: Rollout) -> Score:
        """The verdict; None with a judge fault only if the item's reference is missing or cannot be read."""
        expected = None if item.reference is None else reference_expression(item.reference)
        unusable = Score(
            None, f"item {item.id} has no usable reference ({item.reference!r}); correct the benchmark", Fault.JUDGE
        )
        if expected is None or (self._rule == "integer" and _integer_of(expected) is None):
            return unusable
        stated_answer = final_expression(rollout.answer or "", self._rule)
        outcome = NO_ANSWER if stated_answer is None else self._compared(expected, stated_answer)
        is_unclear = stated_answer is not None and outcome in (NO_REFERENCE, UNDECIDED, NO_ANSWER)
        if is_unclear and self._compared(expected, expected, is_itself=True) != EQUAL:
            return unusable  # a reference that does not even equal itself is the benchmark's fault
        parsed = outcome not in (NO_ANSWER, NO_REFERENCE)
        views: dict[str, float | None] = {"answer_parsed": float(parsed), "decided": float(outcome != UNDECIDED)}
        if stated_answer is None or not parsed:
            reason = (
                "no answer by rule " + self._rule
                if stated_answer is None
                else f"{brief(stated_answer)} is no expression"
            )
            return Score(0.0, reason, views=views, labels=(self.label("math_no_answer"),))
        if outcome == EQUAL:
            return Score(1.0, f"{brief(stated_answer)} is the reference", views=views, extracted=stated_answer)
        if outcome == UNDECIDED:
            reason = f"{brief(stated_answer)} cannot be compared with the reference in {math_runner.CPU_S} s"
            labels = (self.label("math_undecided"),)
            return Score(0.0, reason, views=views, labels=labels, extracted=stated_answer[:MAX_EXPRESSION])
        reason = f"{brief(stated_answer)} is not the reference {brief(expected)}"
        labels = (self.label("math_wrong_answer"),)
        return Score(0.0, reason, views=views, labels=labels, extracted=stated_answer)

    def _compared(self, expected: str, stated_answer: str, is_itself: bool = False) -> str:
        if self._rule == "integer":
            value = _integer_of(stated_answer)
            return NO_ANSWER if value is None else EQUAL if value == _integer_of(expected) else DIFFERENT
        first, second = plain_expression(expected), plain_expression(stated_answer)
        if first == second and not is_itself:
            return EQUAL
        numbers = number_of(first), number_of(second)
        if None not in numbers:
            return EQUAL if numbers[0] == numbers[1] else DIFFERENT
        if len(stated_answer) > MAX_EXPRESSION:
            return NO_ANSWER
        return self._comparer.compare(expected, stated_answer)


def reference_expression(reference: str) -> str | None:
    """The expression of a reference: the last box of a worked solution, or the text itself; None: there is none."""
    return _last_box(reference) or reference.strip() or None


def _integer_of(expression: str) -> int | None:
    value = number_of(plain_expression(expression).removeprefix("x=").removeprefix("n="))
    return None if value is None or value.denominator != 1 else int(value)
