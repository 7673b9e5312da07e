"""Syntax trees of Python source, safe to ask for from several threads.

CPython 3.11 counts the depth of all trees that it builds in one place. If a garbage collection hands over to another
thread that builds one too, `ast.parse` fails with "SystemError: AST constructor recursion depth mismatch".
"""

import ast
import threading

_ONE_AT_A_TIME = threading.RLock()  # the collector may run a finalizer that parses, in the thread that holds the lock

RANDOM_GENERATORS = frozenset({"random", "rng", "rnd"})
"""Names under which programs hold a generator of random numbers."""


def parse_python(source: str | bytes) -> ast.Module:
    """`ast.parse` of a module. Raises SyntaxError, ValueError, and for hostile text RecursionError and MemoryError."""
    with _ONE_AT_A_TIME:
        return ast.parse(source)


def parse_expression(source: str) -> ast.expr:
    """The tree of one expression; raises as `parse_python` does."""
    with _ONE_AT_A_TIME:
        return ast.parse(source, mode="eval").body


def is_random_draw(call: ast.Call) -> bool:
    """Whether a call is one of a random generator (`random.sample(rows, 16)`), which draws rows and no answers."""
    source = call.func.value if isinstance(call.func, ast.Attribute) else None
    name = source.attr if isinstance(source, ast.Attribute) else getattr(source, "id", "")
    return name in RANDOM_GENERATORS
