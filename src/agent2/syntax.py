"""Syntax trees of Python source, safe to ask for from several threads.

CPython 3.11 counts the depth of all trees that it builds in one place. If a garbage collection hands over to another
thread that builds one too, `ast.parse` fails with "SystemError: AST constructor recursion depth mismatch".
"""

import ast
import threading

_ONE_AT_A_TIME = threading.RLock()  # the collector may run a finalizer that parses, in the thread that holds the lock


def parse_python(source: str | bytes) -> ast.Module:
    """`ast.parse` of a module. Raises SyntaxError, ValueError, and for hostile text RecursionError and MemoryError."""
    with _ONE_AT_A_TIME:
        return ast.parse(source)


def parse_expression(source: str) -> ast.expr:
    """The tree of one expression; raises as `parse_python` does."""
    with _ONE_AT_A_TIME:
        return ast.parse(source, mode="eval").body
