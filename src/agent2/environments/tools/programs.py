"""A language of one-line functions, with its own interpreter.

    area(w,h)=w*h
    cost(n,p)=n*p+3

A line is a name, parameters, and an expression of integers, parameters, + - * and parentheses. There are no calls,
loops or conditions, so every program ends; sizes are capped, so it ends soon. Text is read with Python's parser and
then walked by this module: nothing is compiled, evaluated or imported, whatever a model wrote.
"""

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MAX_LINE = 120
"""Longest line, in characters."""
MAX_LINES = 40
MAX_CONSTANT = 10**6

_LINE = re.compile(r"([a-z]{1,12})\(([a-z]{1,8}(?:,[a-z]{1,8}){0,3})\)=(.+)")
_TEST = re.compile(r"([a-z]{1,12})\((-?[0-9]{1,6}(?:,-?[0-9]{1,6}){0,3})\)=(-?[0-9]{1,12})")


class ProgramError(ValueError):
    """A program or test file cannot be read or run; the sentence names the line."""


@dataclass(frozen=True, slots=True)
class Function:
    """One line of a program."""

    parameters: tuple[str, ...]
    body: ast.expr


@dataclass(frozen=True, slots=True)
class Check:
    """One test: a call and its expected value."""

    name: str
    arguments: tuple[int, ...]
    expected: int

    @property
    def call(self) -> str:
        """`area(2,3)`."""
        return f"{self.name}({','.join(map(str, self.arguments))})"


def read_program(text: str) -> dict[str, Function]:
    """The functions of a file by name; of two with one name the last counts. Raises ProgramError."""
    lines = text.splitlines()
    if len(lines) > MAX_LINES:
        raise ProgramError(f"{len(lines)} lines, at most {MAX_LINES} are read")
    functions = {}
    for number, line in enumerate(lines, start=1):
        if line.strip():
            name, function = _read_line(line.strip(), number)
            functions[name] = function
    return functions


def read_checks(text: str) -> list[Check]:
    """The tests of a file, one `name(1,2)=3` a line. Raises ProgramError."""
    checks = []
    for number, line in enumerate(text.splitlines(), start=1):
        match = _TEST.fullmatch(line.strip())
        if match is None:
            raise ProgramError(f"line {number} is no test")
        checks.append(Check(match[1], tuple(map(int, match[2].split(","))), int(match[3])))
    return checks


def value_of(program: Mapping[str, Function], name: str, arguments: Sequence[int]) -> int:
    """The value of a function for these arguments. Raises ProgramError if there is no such function."""
    function = program.get(name)
    if function is None or len(function.parameters) != len(arguments):
        raise ProgramError(f"no {name} with {len(arguments)} parameters")
    return _value(function.body, dict(zip(function.parameters, arguments, strict=True)))


def failures(program_text: str, checks: Sequence[Check]) -> list[str]:
    """What is wrong with a program, one sentence for each test that fails; empty if all pass."""
    try:
        program = read_program(program_text)
    except ProgramError as error:
        return [str(error)] * len(checks)
    wrong = []
    for check in checks:
        try:
            value = value_of(program, check.name, check.arguments)
        except ProgramError as error:
            wrong.append(str(error))
            continue
        if value != check.expected:
            wrong.append(f"{check.call} is {value}, not {check.expected}")
    return wrong


def _read_line(line: str, number: int) -> tuple[str, Function]:
    match = _LINE.fullmatch(line) if len(line) <= MAX_LINE else None
    if match is None:
        raise ProgramError(f"line {number} is no function")
    parameters = tuple(match[2].split(","))
    try:
        body = ast.parse(match[3].strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ProgramError(f"line {number} is no expression") from error
    _check(body, parameters, number)
    return match[1], Function(parameters, body)


def _check(node: ast.expr, parameters: tuple[str, ...], number: int) -> None:
    match node:
        case ast.Constant(value=int() as value) if type(value) is int and value <= MAX_CONSTANT:
            return
        case ast.Name(id=name) if name in parameters:
            return
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            _check(operand, parameters, number)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult(), right=right):
            _check(left, parameters, number)
            _check(right, parameters, number)
        case _:
            raise ProgramError(f"line {number} is no expression of its parameters")


def _value(node: ast.expr, names: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=int() as value):
            return value
        case ast.Name(id=name):
            return names[name]
        case ast.UnaryOp(operand=operand):
            return -_value(operand, names)
        case ast.BinOp(left=left, op=operator, right=right):
            first, second = _value(left, names), _value(right, names)
            if isinstance(operator, ast.Add):
                return first + second
            return first - second if isinstance(operator, ast.Sub) else first * second
        case _:
            raise ProgramError(f"{type(node).__name__} was let through by the reader; report it")
