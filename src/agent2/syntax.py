"""Syntax trees of Python source, safe to ask for from several threads.

CPython 3.11 counts the depth of all trees that it builds in one place. If a garbage collection hands over to another
thread that builds one too, `ast.parse` fails with "SystemError: AST constructor recursion depth mismatch".
"""

import ast
import sys
import threading

_ONE_AT_A_TIME = threading.RLock()  # the collector may run a finalizer that parses, in the thread that holds the lock

RANDOM_GENERATORS = frozenset({"random", "rng", "rnd"})
"""Names under which programs hold a generator of random numbers."""

_ENDS = frozenset({"exit", "quit", "sys.exit", "os._exit", "os.abort"})
"""Calls from which a program does not return."""


def parse_python(source: str | bytes) -> ast.Module:
    """`ast.parse` of a module. Raises SyntaxError, ValueError, and for hostile text RecursionError and MemoryError."""
    with _ONE_AT_A_TIME:
        return ast.parse(source)


def parse_expression(source: str) -> ast.expr:
    """The tree of one expression; raises as `parse_python` does, and SyntaxError for a number too long to be printed.

    Such a number, written in hexadecimal, would be an error wherever it is shown or compared as text.
    """
    with _ONE_AT_A_TIME:
        tree = ast.parse(source, mode="eval").body
    if any(isinstance(node, ast.Constant) and is_too_long(node.value) for node in ast.walk(tree)):
        raise SyntaxError("a number has too many digits")
    return tree


def is_too_long(value: object) -> bool:
    """Whether a value is a whole number that Python refuses to print."""
    limit = sys.get_int_max_str_digits()
    return isinstance(value, int) and limit > 0 and value.bit_length() > 3.3 * limit


def is_random_draw(call: ast.Call) -> bool:
    """Whether a call is one of a random generator (`random.sample(rows, 16)`), which draws rows and no answers."""
    source = call.func.value if isinstance(call.func, ast.Attribute) else None
    name = source.attr if isinstance(source, ast.Attribute) else getattr(source, "id", "")
    return name in RANDOM_GENERATORS


def dead_fields(node: ast.AST) -> set[str]:
    """Fields of a statement whose code never runs, by its text alone.

    `if False:` and the `else` of `if True:`, `if TYPE_CHECKING:`, a comparison of `__name__` with anything but
    "__main__", a loop over an empty literal, handlers of a `try` that does nothing.
    """
    if isinstance(node, ast.If | ast.While):
        truth = _fixed_truth(node.test)
        return set() if truth is None else {"orelse" if truth else "body"}
    if isinstance(node, ast.For | ast.AsyncFor):
        is_literal = isinstance(node.iter, ast.List | ast.Tuple | ast.Set)
        return {"body"} if is_literal and not getattr(node.iter, "elts", ()) else set()
    if isinstance(node, ast.Try) and all(isinstance(statement, ast.Pass) for statement in node.body):
        return {"handlers"}
    return set()


def _fixed_truth(test: ast.expr) -> bool | None:
    """What a condition always is, for every program that is started; None where that depends on anything."""
    if isinstance(test, ast.Constant):
        return bool(test.value)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        truth = _fixed_truth(test.operand)
        return None if truth is None else not truth
    if (test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", "")) == "TYPE_CHECKING":
        return False
    if isinstance(test, ast.Compare) and getattr(test.left, "id", "") == "__name__" and len(test.comparators) == 1:
        expected = test.comparators[0]
        is_other = isinstance(expected, ast.Constant) and expected.value != "__main__"
        return False if is_other and isinstance(test.ops[0], ast.Eq) else None
    return None


def live_statements(body: list[ast.AST]) -> list[ast.AST]:
    """The statements of a block up to the first that never returns (`sys.exit()`, `raise`, `return`)."""
    for at, statement in enumerate(body):
        call = statement.value if isinstance(statement, ast.Expr) else None
        called = call.func if isinstance(call, ast.Call) else None
        is_end = isinstance(called, ast.Name | ast.Attribute) and ast.unparse(called) in _ENDS
        if is_end or isinstance(statement, ast.Raise | ast.Return | ast.Break | ast.Continue):
            return body[: at + 1]
    return body
