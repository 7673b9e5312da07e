"""The training methods that a source uses, read from its syntax tree.

A method counts when code names it where it would run: a trainer is called or subclassed, a log-probability is
multiplied with an advantage next to `backward()`, sampled answers are filtered by a check and trained on. Comments,
strings, docstrings, type annotations, imports without use, code that never runs and functions that nothing in the
program refers to never count (`reached_sources`).

Promises: a bounded amount of work for one source, whatever an agent wrote; what is beyond that is reported as not read.

Does NOT follow data across files, run anything, or see through `getattr`, `exec`, `runpy`, a path added to `sys.path`
and other detours.
"""

import ast
import re
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice

from agent2.arena.analysis.drawn_answers import (
    PLAIN_DECORATORS,
    draws_answers,
    identifier_words,
    most_drawn,
)
from agent2.syntax import dead_fields, is_random_draw, live_statements, parse_python

MAX_SOURCE_CHARACTERS = 200_000


class Method(StrEnum):
    """A family of training methods."""

    SFT = "sft"
    RL = "rl"
    PREFERENCE = "preference"
    REJECTION = "rejection_sampling"


@dataclass(frozen=True, slots=True)
class Algorithm:
    """A named algorithm and its family."""

    method: Method
    name: str


@dataclass(frozen=True, slots=True)
class CodeSignal:
    """One place in a source that trains."""

    algorithm: Algorithm
    line: int
    description: str
    """In words: "calls GRPOTrainer"."""
    is_generic: bool = False
    """Also part of other methods (a cross entropy, a plain Trainer): gives way to specific signals."""


@dataclass(frozen=True, slots=True)
class CodeScope:
    """A function or class of a source."""

    name: str
    first_line: int
    last_line: int
    parent: int
    """Index of the scope that it is in; -1: the module."""
    is_automatic: bool
    """Others call it once what it is in runs: decorated, a special method, a method of a subclass."""
    references: frozenset[str]
    """Names that its own code uses, without that of scopes in it."""


@dataclass(frozen=True, slots=True)
class ParsedSource:
    """The relevant content of one source file."""

    path: str
    signals: tuple[CodeSignal, ...]
    imports: frozenset[str]
    """Dotted names of imported modules."""
    strings: frozenset[str]
    """String values that code uses (paths, keys); docstrings and printed texts are left out."""
    evaluates: tuple[tuple[int, str], ...]
    """Lines that evaluate a model or read the dev split: (line, description)."""
    problem: str | None = None
    """Why the file could not be read as Python."""
    generic: tuple[CodeSignal, ...] = ()
    """Signals that give way to specific ones, also where `signals` leaves them out."""
    samples: tuple[tuple[int, str], ...] = ()
    """Lines that draw answers from a model: (line, description)."""
    most_drawn: int | None = None
    """Answers that these lines draw at most in one run; None: the text sets no bound."""
    scopes: tuple["CodeScope", ...] = ()
    """Functions and classes; a scope comes after the one that it is in."""
    references: frozenset[str] = frozenset()
    """Names that the module uses outside of its functions."""


_NAMES: Mapping[Method, str] = {
    Method.SFT: "SFT GKD",
    Method.RL: "GRPO PPO RLOO DAPO NashMD XPO",
    Method.PREFERENCE: "DPO OnlineDPO KTO ORPO CPO BCO IPO",
}
_ALGORITHMS = {name: Algorithm(method, name) for method, names in _NAMES.items() for name in names.split()}
REJECTION_SAMPLING = Algorithm(Method.REJECTION, "rejection sampling")

KNOWN_CALLS: Mapping[str, Algorithm] = {
    **{f"{name}Trainer": algorithm for name, algorithm in _ALGORITHMS.items()},
    **{f"train_{name.lower()}": _ALGORITHMS[name] for name in ("SFT", "GRPO", "RLOO", "PPO", "DPO", "KTO")},
    **dict.fromkeys(("AgenticGRPOTrainer", "train_online_grpo", "learn_in_stages"), _ALGORITHMS["GRPO"]),
    "PPOv2Trainer": _ALGORITHMS["PPO"],
}
"""Class and function names that are training when they are called or subclassed (TRL, agent2.training)."""

ALGORITHM_WORDS: Mapping[str, Algorithm] = {
    **{name.lower(): _ALGORITHMS[name] for name in ["SFT", "GRPO", "PPO", "RLOO", "DAPO", "DPO", "KTO", "ORPO", "IPO"]},
    **dict.fromkeys(("raft", "rejection"), REJECTION_SAMPLING),
    "reinforce": Algorithm(Method.RL, "REINFORCE"),
}
"""Words that name an algorithm inside an identifier, a script's name or a design."""

HAND_WRITTEN = Algorithm(Method.RL, "hand-written policy gradient")
_WORK_WORDS = frozenset({"train", "trainer", "fit", "run", "loss", "step", "update", "main", "sampling"})
_CHECK_WORDS = frozenset({"verify", "verified", "correct", "reward", "rewards", "score", "check", "match", "judge"})
_PRINTING = frozenset({"print", "debug", "info", "warning", "error", "exception", "write_text", "log"})
_LOGPROB = re.compile(r"log_?p(rob|s\b|_|$)|^ratios?$", re.IGNORECASE)
_ADVANTAGE = re.compile(r"^adv|advantage|reward|^returns?$", re.IGNORECASE)
_GRADIENTS = frozenset({"backward", "value_and_grad", "grad"})
"""Of PyTorch; of JAX and MLX."""
_LIKELIHOODS = frozenset({"cross_entropy", "CrossEntropyLoss", "nll_loss", "softmax_cross_entropy_with_integer_labels"})
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_.:]{0,80}")
_LOADERS = frozenset({"import_module", "__import__", "run_path", "run_module"})
_SUBTREE_NODES = 400
MAX_STEPS = 250_000
"""Nodes visited in one source, each visit counted; 5,000 lines of real code take some 100,000."""
MAX_BRACES = 20_000
"""In one source. Python 3.11 takes quadratic time over an f-string: 5 s for 60,000."""

MAX_SIGNALS = 1_000
"""Of one kind in one source."""


class _TooComplex(Exception):
    """A source takes more steps than any real one."""


class _StepCounter:
    """Counts the visited nodes of one source, and ends the visit of one that takes too many."""

    def __init__(self) -> None:
        self._left = MAX_STEPS

    def walk(self, node: ast.AST, limit: int = MAX_STEPS) -> Iterator[ast.AST]:
        """The node and what is below it, `limit` nodes at most. Raises _TooComplex when all steps are used up."""
        return self.counted(islice(ast.walk(node), limit))

    def counted(self, nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
        """The nodes. Raises _TooComplex when all steps are used up."""
        for node in nodes:
            self._left -= 1
            if self._left < 0:
                raise _TooComplex
            yield node


def algorithm_in(identifier: str) -> Algorithm | None:
    """The algorithm that a name mentions, if any."""
    return next((ALGORITHM_WORDS[word] for word in identifier_words(identifier) if word in ALGORITHM_WORDS), None)


def read_source(path: str, text: str) -> ParsedSource:
    """Parse one Python source; a source that cannot be parsed has a `problem` and no signals."""
    if len(text) > MAX_SOURCE_CHARACTERS:
        return unread_source(path, f"has {len(text)} characters, {MAX_SOURCE_CHARACTERS} are read at most")
    if text.count("{") > MAX_BRACES:
        return unread_source(path, f"has more than {MAX_BRACES} braces")
    steps = _StepCounter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the parser warns of invalid escapes, which are the agent's
            tree = parse_python(text)
        nodes = _without_printed(list(steps.counted(_live_nodes(tree))), steps)
        scopes, references = _scopes(tree, steps)
        aliases = _aliases(nodes)
        signals = [
            *_trainer_signals(nodes, aliases),
            *_first_in_each_scope(_policy_gradients(nodes, steps), scopes),
            *_first_in_each_scope(_supervised(nodes), scopes),
            *_rejection(nodes, steps),
        ]
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # hostile text may cause each of them
        return unread_source(path, f"cannot be parsed as Python ({type(error).__name__})")
    except _TooComplex:
        return unread_source(path, f"takes more than {MAX_STEPS} steps to read")
    # a cross entropy is part of many methods: it counts only where nothing else was found
    specific = [signal for signal in signals if not signal.is_generic]
    return ParsedSource(
        path=path,
        signals=tuple(sorted(specific or signals, key=lambda signal: signal.line)),
        imports=_imports(nodes),
        strings=_strings(nodes),
        evaluates=tuple(_evaluations(nodes)),
        generic=tuple(signal for signal in signals if signal.is_generic),
        samples=tuple(_samples(nodes)),
        most_drawn=most_drawn(tree),
        scopes=scopes,
        references=references,
    )


def _scopes(tree: ast.AST, steps: _StepCounter) -> tuple[tuple[CodeScope, ...], frozenset[str]]:
    """Functions and classes with the names that each uses, and the names that the module uses outside of them."""
    scope_nodes: list[tuple[ast.AST, int, bool]] = []
    names: dict[int, set[str]] = {-1: set()}
    bases: dict[int, bool] = {}
    stack: list[tuple[ast.AST, int, int]] = [(tree, -1, -1)]  # node, scope that it is in, scope whose code it is
    while stack:
        node, parent, owner = stack.pop()
        next(iter(steps.counted([node])))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            decorators = {_name(d.func if isinstance(d, ast.Call) else d) for d in node.decorator_list}
            is_special = node.name.startswith("__") and node.name.endswith("__")
            is_automatic = bool(decorators - PLAIN_DECORATORS) or is_special or bases.get(parent, False)
            number = len(scope_nodes)
            scope_nodes.append((node, parent, is_automatic))
            names[number] = set()
            is_class = isinstance(node, ast.ClassDef)
            is_subclass = isinstance(node, ast.ClassDef) and any(_name(b) not in {"", "object"} for b in node.bases)
            bases[number] = is_subclass
            body = {id(child) for child in node.body}
            for child in reversed(list(_live_children(node))):
                # the body of a class runs where the class is defined; arguments and decorators, too
                stack.append((child, number, owner if is_class or id(child) not in body else number))
            continue
        names[owner].update(_referenced(node))
        stack.extend((child, parent, owner) for child in reversed(list(_live_children(node))))
    scopes = tuple(
        CodeScope(
            name=getattr(node, "name", ""),
            first_line=getattr(node, "lineno", 0),
            last_line=getattr(node, "end_lineno", 0),
            parent=parent,
            is_automatic=is_automatic,
            references=frozenset(names[number]),
        )
        for number, (node, parent, is_automatic) in enumerate(scope_nodes)
    )
    return scopes, frozenset(names[-1])


def _referenced(node: ast.AST) -> Iterator[str]:
    """Names by which one node may refer to functions: also an imported one's own name, and texts that are names."""
    if isinstance(node, ast.Name | ast.Attribute):
        yield _name(node)
    elif isinstance(node, ast.ImportFrom):
        yield from (alias.name for alias in node.names if alias.asname)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _IDENTIFIER.fullmatch(node.value):
        yield from re.split(r"[.:]", node.value)  # getattr(module, "train"), an entry point "pkg.train:main"


def _scope_at(scopes: Sequence[CodeScope], line: int) -> int:
    """Index of the innermost scope with that line; -1: the module's own code."""
    # a scope comes after the one that it is in, so the last that fits is the innermost
    return max((k for k, scope in enumerate(scopes) if scope.first_line <= line <= scope.last_line), default=-1)


def _first_in_each_scope(signals: Iterable[CodeSignal], scopes: Sequence[CodeScope]) -> Iterator[CodeSignal]:
    scopes_met: set[int] = set()
    for signal in islice(signals, MAX_SIGNALS):
        if (scope := _scope_at(scopes, signal.line)) not in scopes_met:
            scopes_met.add(scope)
            yield signal


def reached_sources(sources: Sequence[ParsedSource]) -> tuple[ParsedSource, ...]:
    """The sources of one program without the findings in functions that nothing in it refers to.

    A function is reached if code that runs when the program starts, or another reached function, names it: that is
    generous (any method of that name), so that code which looks unreached is.
    """
    by_name: dict[str, list[tuple[int, int]]] = defaultdict(list)
    children: dict[tuple[int, int], list[int]] = defaultdict(list)
    for at, source in enumerate(sources):
        for number, scope in enumerate(source.scopes):
            by_name[scope.name].append((at, number))
            children[at, scope.parent].append(number)
    named: set[str] = set()
    reached = {(at, -1) for at in range(len(sources))}
    pending = list(reached)
    while pending:
        at, number = pending.pop()
        source = sources[at]
        references = source.references if number < 0 else source.scopes[number].references
        new_names = references - named
        named |= new_names
        candidates = [(at, child) for child in children[at, number]]
        candidates += [scope for name in new_names for scope in by_name.get(name, ())]
        if "Fire" in new_names:  # fire.Fire() makes every function a command
            candidates += [
                (module_number, k) for module_number, module in enumerate(sources) for k in range(len(module.scopes))
            ]
            named |= by_name.keys()
        for module_number, child in candidates:
            scope = sources[module_number].scopes[child]
            is_called = scope.is_automatic or scope.name in named
            if is_called and (module_number, scope.parent) in reached and (module_number, child) not in reached:
                reached.add((module_number, child))
                pending.append((module_number, child))
    return tuple(
        _with_reached(source, {k for module_number, k in reached if module_number == at})
        for at, source in enumerate(sources)
    )


def _with_reached(source: ParsedSource, reached: set[int]) -> ParsedSource:
    if len(reached) == len(source.scopes) + 1:
        return source

    def is_reached(line: int) -> bool:
        return _scope_at(source.scopes, line) in reached

    specific = [signal for signal in source.signals if not signal.is_generic and is_reached(signal.line)]
    generic = [signal for signal in source.generic if is_reached(signal.line)]
    return replace(
        source,
        signals=tuple(specific or generic),
        generic=tuple(generic),
        evaluates=tuple(call_site for call_site in source.evaluates if is_reached(call_site[0])),
        samples=tuple(call_site for call_site in source.samples if is_reached(call_site[0])),
    )


def unread_source(path: str, problem: str) -> ParsedSource:
    """A source that counts as without content, and why."""
    return ParsedSource(path, (), frozenset(), frozenset(), (), problem)


def _live_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node that could run, in source order; iterative, because an agent may nest deeper than Python recurses."""
    stack = [tree]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(list(_live_children(node))))


def _live_children(node: ast.AST) -> Iterator[ast.AST]:
    skipped = {"annotation", "returns", "type_comment", *dead_fields(node)}
    for field, value in ast.iter_fields(node):
        if field in skipped:
            continue
        for child in live_statements(value) if isinstance(value, list) else [value]:
            # a docstring, or code that was put into quotation marks
            is_bare_text = isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)
            if isinstance(child, ast.AST) and not is_bare_text:
                yield child


def _name(node: ast.AST) -> str:
    """Last part of a possibly dotted name; "" for anything else."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _aliases(nodes: list[ast.AST]) -> dict[str, str]:
    """Local name -> last part of the imported name, for `import x as y`."""
    aliases = {}
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                aliases[alias.asname or alias.name] = alias.name.rpartition(".")[2]
    return aliases


def _trainer_signals(nodes: list[ast.AST], aliases: Mapping[str, str]) -> Iterator[CodeSignal]:
    from_transformers = {
        alias.asname or alias.name
        for node in nodes
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "transformers"
        for alias in node.names
        if alias.name in {"Trainer", "Seq2SeqTrainer"}
    }
    for node in nodes:
        if isinstance(node, ast.Call):
            named = [(_name(node.func), "calls")]
            # a function that is passed on, as in spawn(train_sft, ...), runs as well
            named += [
                (_name(value), "passes on")
                for value in node.args
                if aliases.get(_name(value), _name(value)) in KNOWN_CALLS
            ]
        elif isinstance(node, ast.ClassDef):
            named = [(_name(parent), "subclasses") for parent in node.bases]
        elif isinstance(node, ast.Assign):
            named = [(_name(node.value), "uses")]
        else:
            continue
        for local, verb in named:
            original = aliases.get(local, local)
            if original in KNOWN_CALLS:
                yield CodeSignal(KNOWN_CALLS[original], node.lineno, f"{verb} {original}")
            elif local in from_transformers:
                yield CodeSignal(
                    ALGORITHM_WORDS["sft"], node.lineno, f"{verb} transformers {original}", is_generic=True
                )
            elif (
                verb == "calls"
                and (algorithm := algorithm_in(original))
                and _WORK_WORDS & set(identifier_words(original))
            ):
                yield CodeSignal(algorithm, node.lineno, f"calls {original}")


def _subtree_names(node: ast.AST, steps: _StepCounter) -> set[str]:
    """Names, attributes and string keys in a subtree, among its first `_SUBTREE_NODES` nodes."""
    names = set()
    for child in steps.walk(node, _SUBTREE_NODES):
        if isinstance(child, ast.Subscript) and isinstance(child.slice, ast.Constant):
            names.add(str(child.slice.value))
        names.add(_name(child))
    return names - {""}


def _calls(nodes: list[ast.AST], *names: str) -> list[ast.Call]:
    return [node for node in nodes if isinstance(node, ast.Call) and _name(node.func) in names]


def _policy_gradients(nodes: list[ast.AST], steps: _StepCounter) -> Iterator[CodeSignal]:
    if not _calls(nodes, *_GRADIENTS):
        return
    for node in nodes:
        if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)):
            continue
        # either factor may come first
        left_names, right_names = _subtree_names(node.left, steps), _subtree_names(node.right, steps)
        for factor, weight in ((left_names, right_names), (right_names, left_names)):
            if any(map(_LOGPROB.search, factor)) and any(map(_ADVANTAGE.search, weight)):
                yield CodeSignal(
                    HAND_WRITTEN, node.lineno, "multiplies log-probabilities with advantages, then backward()"
                )
                break


def _supervised(nodes: list[ast.AST]) -> Iterator[CodeSignal]:
    if not _calls(nodes, *_GRADIENTS):
        return
    for node in nodes:
        if not isinstance(node, ast.Call):
            continue
        name = _name(node.func)
        if name in _LIKELIHOODS or any(key.arg == "labels" for key in node.keywords):
            description = f"calls {name or 'a model'} on labels, and its gradient"
            yield CodeSignal(ALGORITHM_WORDS["sft"], node.lineno, description, is_generic=True)


def _samples(nodes: list[ast.AST]) -> Iterator[tuple[int, str]]:
    for node in nodes:
        if isinstance(node, ast.Call) and draws_answers(node):
            yield node.lineno, f"calls {_name(node.func)}"


def _rejection(nodes: list[ast.AST], steps: _StepCounter) -> Iterator[CodeSignal]:
    """Sampled answers that are filtered by a check, where training gets the filtered list."""
    if all(is_random_draw(call) for call in _calls(nodes, "generate", "sample", "complete")):
        return
    filtered = _filtered_lists(nodes, steps)
    for node in nodes:
        if not isinstance(node, ast.Call):
            continue
        name = _name(node.func)
        if not (name in KNOWN_CALLS or name in {"from_list", "from_dict", "from_generator"}):
            continue
        values = [*node.args, *(keyword.value for keyword in node.keywords)]
        used = {name for value in values for name in _subtree_names(value, steps)} & filtered
        if used:
            description = f"{name} gets {sorted(used)[0]!r}, sampled answers that passed a check"
            yield CodeSignal(REJECTION_SAMPLING, node.lineno, description)


def _filtered_lists(nodes: list[ast.AST], steps: _StepCounter) -> set[str]:
    """Names of lists to which something is added only after a check."""
    filtered: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.If) and _is_check(node.test, steps):
            filtered.update(_appended_to(node.body, steps))
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.ListComp):
            tests = [test for part in node.value.generators for test in part.ifs]
            if any(_is_check(test, steps) for test in tests):
                filtered.update(_name(target) for target in node.targets)
    return filtered - {""}


def _appended_to(body: list[ast.stmt], steps: _StepCounter) -> Iterator[str]:
    for inner in (child for statement in body for child in steps.walk(statement)):
        if isinstance(inner, ast.Call) and _name(inner.func) in {"append", "extend", "add"}:
            yield _name(inner.func.value) if isinstance(inner.func, ast.Attribute) else ""


def _is_check(test: ast.AST, steps: _StepCounter) -> bool:
    return any(_CHECK_WORDS & set(identifier_words(name)) for name in _subtree_names(test, steps))


def _imports(nodes: list[ast.AST]) -> frozenset[str]:
    modules: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            modules.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules.add(node.module)
            # what is imported from a package may be a module of it
            modules.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and _name(node.func) in _LOADERS and node.args:
            target = node.args[0]
            # a module's name, or the path of a script
            if isinstance(target, ast.Constant) and isinstance(target.value, str):
                modules.add(target.value.removesuffix(".py").lstrip("./").replace("/", "."))
    return frozenset(modules)


def _without_printed(nodes: list[ast.AST], steps: _StepCounter) -> list[ast.AST]:
    """The nodes without texts that are only printed or logged."""
    printed = {
        id(child)
        for call in _calls(nodes, *_PRINTING)
        for value in call.args
        for child in steps.walk(value)
        if isinstance(child, ast.Constant)
    }
    return [node for node in nodes if id(node) not in printed]


def _strings(nodes: list[ast.AST]) -> frozenset[str]:
    values = (node.value for node in nodes if isinstance(node, ast.Constant))
    return frozenset(value for value in values if isinstance(value, str) and len(value) <= 500)


def _evaluations(nodes: list[ast.AST]) -> Iterator[tuple[int, str]]:
    for node in nodes:
        if isinstance(node, ast.Call):
            name = _name(node.func)
            if name == "evaluate" or re.match(r"(evaluate|eval)(_\w|[A-Z])", name):
                yield node.lineno, f"calls {name}"
            elif any(key.arg == "eval_dataset" for key in node.keywords):
                yield node.lineno, f"gives {name or 'a call'} an eval_dataset"
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and re.search(r"(^|/)dev(\.jsonl)?$", node.value)
        ):
            yield node.lineno, f"uses the dev split ({node.value})"
