"""Programs with one planted bug: what the tests of a code task should refuse.

Mutation testing as generally known (DeMillo, Lipton and Sayward 1978): a constant, an operator, a comparison, a
condition or a returned value is changed in one place. Some mutants compute what the original computes; no program can
tell which, so a detection rate over mutants is a lower bound.
"""

import ast
import copy
from collections.abc import Iterator
from typing import Any

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


def spread_mutants(source: str, n: int, function: str | None = None) -> list[str]:
    """At most n different mutants, spread over the places of the program; arguments and errors as `mutants`."""
    found = list(dict.fromkeys(mutants(source, function)))
    return found[:: max(1, len(found) // n)][:n]


def mutants(source: str, function: str | None = None) -> Iterator[str]:
    """Every version of the functions of a program with one bug. Raises SyntaxError if it cannot be read.

    function: bugs in this one alone, because helpers that the tests use may be replaced by right ones.
    """
    tree = ast.parse(source)
    plain = ast.unparse(tree)
    inside = {
        id(node)
        for each in ast.walk(tree)
        if isinstance(each, ast.FunctionDef) and function in (None, each.name)
        for node in ast.walk(each)
    }
    for number, original in enumerate(ast.walk(tree)):
        if id(original) not in inside:
            continue
        changed = copy.deepcopy(tree)
        _plant(list(ast.walk(changed))[number])
        text = ast.unparse(ast.fix_missing_locations(changed))
        if text != plain:
            yield text


def _plant(node: Any) -> None:
    """Change a node where it is one of the kinds; nothing otherwise."""
    for field in ("op", "ops"):
        value = getattr(node, field, None)
        first: Any = value[0] if isinstance(value, list) and value else value
        if type(first) in SWAPS:
            other = SWAPS[type(first)]()
            setattr(node, field, [other, *value[1:]] if isinstance(value, list) else other)
    if isinstance(node, ast.Constant) and type(node.value) is int:
        node.value += 1
    elif isinstance(node, ast.Return) and node.value is not None:
        node.value = ast.Constant(None)
    elif isinstance(node, ast.If | ast.IfExp):
        node.test = ast.UnaryOp(ast.Not(), node.test)
