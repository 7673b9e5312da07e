"""How many answers a source can draw from a model at most, where its text bounds that.

A call that draws answers is bounded if it is in no loop, nor is any call that leads to it, and if the rows that it gets
are cut to a number in the text (`answers(model, rows[:8], 4)`: 32). A log of rewards over more steps than that was not
earned with these answers. Everything else is unbounded, in favour of the program: loops, functions that are passed on,
decorated or recursive, rows whose number the text does not say. A function that nothing in the source calls runs never.

Does NOT follow values into variables, nor calls across files: of a program of several files it says nothing.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from agent2.syntax import is_random_draw

MAX_NODES = 100_000
"""Of one source; a larger one is unbounded."""
MAX_ARGUMENT_NODES = 60
MAX_DEPTH = 20
"""Functions that call each other."""
_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
_SAMPLING_WORDS = frozenset(
    {"generate", "sample", "samples", "sampling", "multinomial", "categorical", "rollout", "rollouts", "complete",
     "completion", "completions", "play", "episode", "episodes"}
)  # fmt: skip
PLAIN_DECORATORS = frozenset(
    {"staticmethod", "classmethod", "property", "no_grad", "inference_mode", "cache", "lru_cache", "dataclass", "wraps",
     "contextmanager", "override", "overload", "abstractmethod", "compile"}
)  # fmt: skip
"""Decorators that change how a function runs, and never call it."""
_ATTEMPTS = frozenset({"n", "num_return_sequences", "num_generations", "num_samples", "n_samples", "attempts"})
_LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda)


def identifier_words(identifier: str) -> list[str]:
    """The lower-case words of a snake_case or CamelCase name."""
    return [word.lower() for word in _WORD.findall(identifier)]


def draws_answers(node: ast.AST) -> bool:
    """Whether a node is a call that may draw answers from a model, by its name; random draws of rows are none."""
    if not isinstance(node, ast.Call) or is_random_draw(node):
        return False
    return bool(_SAMPLING_WORDS & set(identifier_words(_name(node.func))))


@dataclass(frozen=True, slots=True)
class _CallSite:
    called: str
    function: str
    """That it is in; "" for the module."""
    is_repeated: bool
    bound: int | None
    """Rows times attempts that the text of its arguments allows; None: it says nothing."""


@dataclass(slots=True)
class _CallGraph:
    calls: dict[str, list[_CallSite]] = field(default_factory=dict)
    draws: list[_CallSite] = field(default_factory=list)
    unbounded: set[str] = field(default_factory=set)
    """Functions that others may call: decorated, or passed on."""


def most_drawn(tree: ast.AST) -> int | None:
    """The most answers that a program of this source draws in one run; None: the text sets no bound."""
    graph = _CallGraph()
    for n_nodes, (node, function, is_repeated) in enumerate(_in_context(tree, graph)):
        if n_nodes > MAX_NODES:
            return None
        if isinstance(node, ast.Call):
            site = _CallSite(_name(node.func), function, is_repeated, _bound(node))
            graph.calls.setdefault(site.called, []).append(site)
            if draws_answers(node):
                graph.draws.append(site)
    total = 0
    for draw in graph.draws:
        n_answers = _drawn_at(draw, graph)
        if n_answers is None:
            return None
        total += n_answers
    return total


def _in_context(tree: ast.AST, graph: _CallGraph) -> Iterator[tuple[ast.AST, str, bool]]:
    """Each node with the function that it is in and whether it is in a loop of it; notes functions passed on."""
    stack: list[tuple[ast.AST, str, bool]] = [(tree, "", False)]
    while stack:
        node, function, is_repeated = stack.pop()
        yield node, function, is_repeated
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            decorators = [d.func if isinstance(d, ast.Call) else d for d in node.decorator_list]
            if any(_name(decorator) not in PLAIN_DECORATORS for decorator in decorators):
                graph.unbounded.add(node.name)
            function, is_repeated = node.name, False
        is_repeated = is_repeated or isinstance(node, _LOOPS)
        callee = node.func if isinstance(node, ast.Call) else None
        for child in ast.iter_child_nodes(node):
            if child is callee and isinstance(child, ast.Name):
                continue  # being called is no being passed on
            if child is callee and isinstance(child, ast.Attribute):
                stack.append((child.value, function, is_repeated))
                continue
            if isinstance(child, ast.Name | ast.Attribute) and isinstance(child.ctx, ast.Load):
                graph.unbounded.add(_name(child))
            stack.append((child, function, is_repeated))


def _drawn_at(draw: _CallSite, graph: _CallGraph) -> int | None:
    if _times_run(draw.function, graph, MAX_DEPTH) == 0:
        return 0
    if draw.is_repeated:
        return None
    if not draw.function:
        return draw.bound
    if draw.function in graph.unbounded:
        return None
    total = 0
    for call in graph.calls.get(draw.function, ()):
        n_times = _times_run(call.function, graph, MAX_DEPTH)
        if n_times == 0:
            continue
        bound = call.bound if call.bound is not None else draw.bound
        if bound is None or n_times is None or call.is_repeated:
            return None
        total += bound * n_times
    return total


def _times_run(function: str, graph: _CallGraph, depth: int) -> int | None:
    """How often a function runs at most; None: unbounded."""
    if not function:
        return 1
    if function in graph.unbounded or depth == 0:
        return None
    total = 0
    for call in graph.calls.get(function, ()):
        n_times = _times_run(call.function, graph, depth - 1)
        if n_times is None or (call.is_repeated and n_times):
            return None
        total += n_times
    return total


def _bound(call: ast.Call) -> int | None:
    """Rows that the arguments are cut to, times the attempts that they name."""
    rows, attempts = None, 1
    for argument in (*call.args, *(keyword.value for keyword in call.keywords)):
        for node in islice(ast.walk(argument), MAX_ARGUMENT_NODES):
            upper = node.slice.upper if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice) else None
            n_rows = _integer(upper) if upper is not None else None
            if isinstance(node, ast.Call) and is_random_draw(node) and len(node.args) > 1:
                n_rows = _integer(node.args[1])
            rows = n_rows if rows is None or (n_rows is not None and n_rows > rows) else rows
    for number in (_integer(argument) for argument in call.args):
        attempts *= number or 1
    for keyword in call.keywords:
        attempts *= (_integer(keyword.value) or 1) if keyword.arg in _ATTEMPTS else 1
    return rows * attempts if rows is not None else None


def _integer(node: ast.AST) -> int | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and not isinstance(node.value, bool):
        return node.value
    return None


def _name(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
