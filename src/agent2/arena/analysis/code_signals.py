"""Which training methods a Python source uses, read from its syntax tree.

A method counts when code names it where it would run: a trainer is called or subclassed, a log-probability
is multiplied with an advantage next to `backward()`, sampled answers are filtered by a check and trained on.
Comments, strings, docstrings, type annotations, imports without use and `if False:` blocks never count.

Does NOT follow data across files, run anything, or see through `getattr`, `exec` and other detours; whether a
source ran at all is found by `programs`. Reading takes a bounded number of steps, whatever the text is; keep the facts,
for they are read again at each call.
"""

import ast
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice

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
    what: str
    """In words: "calls GRPOTrainer"."""
    is_generic: bool = False
    """Also part of other methods (a cross entropy, a plain Trainer): gives way to specific signals."""


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """What one source file says."""

    path: str
    signals: tuple[CodeSignal, ...]
    imports: frozenset[str]
    """Dotted names of imported modules."""
    strings: frozenset[str]
    """String values that code uses (paths, keys); docstrings and printed texts are left out."""
    evaluates: tuple[tuple[int, str], ...]
    """Lines that evaluate a model or read the dev split: (line, what)."""
    problem: str | None = None
    """Why the file could not be read as Python."""


def _named(method: Method, *names: str) -> dict[str, Algorithm]:
    return {f"{name}Trainer": Algorithm(method, name) for name in names}


KNOWN_CALLS: Mapping[str, Algorithm] = {
    **_named(Method.SFT, "SFT", "GKD"),
    **_named(Method.RL, "GRPO", "PPO", "RLOO", "DAPO", "NashMD", "XPO"),
    **_named(Method.PREFERENCE, "DPO", "OnlineDPO", "KTO", "ORPO", "CPO", "BCO", "IPO"),
    "PPOv2Trainer": Algorithm(Method.RL, "PPO"),
    "AgenticGRPOTrainer": Algorithm(Method.RL, "GRPO"),
    "train_sft": Algorithm(Method.SFT, "SFT"),
    "train_grpo": Algorithm(Method.RL, "GRPO"),
    "train_online_grpo": Algorithm(Method.RL, "GRPO"),
    "learn_in_stages": Algorithm(Method.RL, "GRPO"),
    "train_rloo": Algorithm(Method.RL, "RLOO"),
    "train_ppo": Algorithm(Method.RL, "PPO"),
    "train_dpo": Algorithm(Method.PREFERENCE, "DPO"),
}
"""Class and function names that are training when they are called or subclassed (TRL, agent2.training)."""

ALGORITHM_WORDS: Mapping[str, Algorithm] = {
    "sft": Algorithm(Method.SFT, "SFT"),
    "grpo": Algorithm(Method.RL, "GRPO"),
    "ppo": Algorithm(Method.RL, "PPO"),
    "rloo": Algorithm(Method.RL, "RLOO"),
    "dapo": Algorithm(Method.RL, "DAPO"),
    "reinforce": Algorithm(Method.RL, "REINFORCE"),
    "dpo": Algorithm(Method.PREFERENCE, "DPO"),
    "kto": Algorithm(Method.PREFERENCE, "KTO"),
    "orpo": Algorithm(Method.PREFERENCE, "ORPO"),
    "ipo": Algorithm(Method.PREFERENCE, "IPO"),
    "raft": Algorithm(Method.REJECTION, "rejection sampling"),
    "rejection": Algorithm(Method.REJECTION, "rejection sampling"),
}
"""Words that name an algorithm inside an identifier, a script's name or a design."""

HAND_WRITTEN = Algorithm(Method.RL, "hand-written policy gradient")
_WORK_WORDS = frozenset({"train", "trainer", "fit", "run", "loss", "step", "update", "main", "sampling"})
_CHECK_WORDS = frozenset({"verify", "verified", "correct", "reward", "rewards", "score", "check", "match", "judge"})
_PRINTING = frozenset({"print", "debug", "info", "warning", "error", "exception", "write_text", "log"})
_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
_LOGPROB = re.compile(r"log_?p(rob|s\b|_|$)|^ratios?$", re.IGNORECASE)
_ADVANTAGE = re.compile(r"^adv|advantage|reward|^returns?$", re.IGNORECASE)
_LOADERS = frozenset({"import_module", "__import__", "run_path", "run_module"})
_SUBTREE_NODES = 400
MAX_STEPS = 250_000
"""Nodes looked at in one source, each time counted; 5,000 lines of real code take some 100,000."""
MAX_BRACES = 20_000
"""In one source. Python 3.11 takes quadratic time over an f-string: 5 s for 60,000."""


class _TooIntricate(Exception):
    """A source takes more steps than any real one."""


class _Steps:
    """Counts the nodes that are looked at more than once."""

    def __init__(self) -> None:
        self._left = MAX_STEPS

    def walk(self, node: ast.AST, most: int = MAX_STEPS) -> Iterator[ast.AST]:
        """The node and what is below it, `most` nodes at most. Raises _TooIntricate when all steps are used up."""
        return self.counted(islice(ast.walk(node), most))

    def counted(self, nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
        """The nodes. Raises _TooIntricate when all steps are used up."""
        for node in nodes:
            self._left -= 1
            if self._left < 0:
                raise _TooIntricate
            yield node


def words_of(identifier: str) -> list[str]:
    """The lower-case words of a snake_case or CamelCase name."""
    return [word.lower() for word in _WORD.findall(identifier)]


def algorithm_in(identifier: str) -> Algorithm | None:
    """The algorithm that a name mentions, if any."""
    return next((ALGORITHM_WORDS[word] for word in words_of(identifier) if word in ALGORITHM_WORDS), None)


def read_source(path: str, text: str) -> SourceFacts:
    """The facts of one Python source; a source that cannot be parsed has a `problem` and no signals."""
    nothing = SourceFacts(path, (), frozenset(), frozenset(), ())
    if len(text) > MAX_SOURCE_CHARACTERS:
        return _with_problem(nothing, f"has {len(text)} characters, {MAX_SOURCE_CHARACTERS} are read at most")
    if text.count("{") > MAX_BRACES:
        return _with_problem(nothing, f"has more than {MAX_BRACES} braces")
    steps = _Steps()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in an agent's text are no news of ours
            nodes = _without_printed(list(steps.counted(_live_nodes(ast.parse(text)))), steps)
        aliases = _aliases(nodes)
        signals = [
            *_trainer_signals(nodes, aliases),
            *_policy_gradients(nodes, steps),
            *_supervised(nodes),
            *_rejection(nodes, steps),
        ]
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # hostile text may be all of these
        return _with_problem(nothing, f"cannot be parsed as Python ({type(error).__name__})")
    except _TooIntricate:
        return _with_problem(nothing, f"takes more than {MAX_STEPS} steps to read")
    specific = [signal for signal in signals if not signal.is_generic]
    return SourceFacts(
        path=path,
        signals=tuple(sorted(specific or signals, key=lambda signal: signal.line)),
        imports=_imports(nodes),
        strings=_strings(nodes),
        evaluates=tuple(_evaluations(nodes)),
    )


def _with_problem(facts: SourceFacts, problem: str) -> SourceFacts:
    return SourceFacts(facts.path, (), facts.imports, facts.strings, (), problem)


def _live_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node that could run, in source order; iterative, because depth is up to the author."""
    stack = [tree]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(list(_live_children(node))))


def _live_children(node: ast.AST) -> Iterator[ast.AST]:
    skipped = {"annotation", "returns", "type_comment"}
    if isinstance(node, ast.If | ast.While):
        if isinstance(node.test, ast.Constant):
            skipped.add("orelse" if node.test.value else "body")
        elif _name(node.test) == "TYPE_CHECKING":
            skipped.add("body")
    for field, value in ast.iter_fields(node):
        if field in skipped:
            continue
        for child in value if isinstance(value, list) else [value]:
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
    found = {}
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                found[alias.asname or alias.name] = alias.name.rpartition(".")[2]
    return found


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
            # a function handed on, as in spawn(train_sft, ...), runs as well
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
            elif verb == "calls" and (algorithm := algorithm_in(original)) and _WORK_WORDS & set(words_of(original)):
                yield CodeSignal(algorithm, node.lineno, f"calls {original}")


def _subtree_names(node: ast.AST, steps: _Steps) -> set[str]:
    """Names, attributes and string keys in a subtree, as far as a bounded walk gets."""
    found = set()
    for child in steps.walk(node, _SUBTREE_NODES):
        if isinstance(child, ast.Subscript) and isinstance(child.slice, ast.Constant):
            found.add(str(child.slice.value))
        found.add(_name(child))
    return found - {""}


def _calls(nodes: list[ast.AST], *names: str) -> list[ast.Call]:
    return [node for node in nodes if isinstance(node, ast.Call) and _name(node.func) in names]


def _policy_gradients(nodes: list[ast.AST], steps: _Steps) -> Iterator[CodeSignal]:
    if not _calls(nodes, "backward"):
        return
    for node in nodes:
        if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)):
            continue
        left, right = _subtree_names(node.left, steps), _subtree_names(node.right, steps)
        for one, other in ((left, right), (right, left)):
            if any(map(_LOGPROB.search, one)) and any(map(_ADVANTAGE.search, other)):
                yield CodeSignal(
                    HAND_WRITTEN, node.lineno, "multiplies log-probabilities with advantages, then backward()"
                )
                return


def _supervised(nodes: list[ast.AST]) -> Iterator[CodeSignal]:
    if not _calls(nodes, "backward"):
        return
    for node in nodes:
        if not isinstance(node, ast.Call):
            continue
        name = _name(node.func)
        if name in {"cross_entropy", "CrossEntropyLoss", "nll_loss"} or any(
            key.arg == "labels" for key in node.keywords
        ):
            what = f"calls {name or 'a model'} on labels, then backward()"
            yield CodeSignal(ALGORITHM_WORDS["sft"], node.lineno, what, is_generic=True)
            return


def _rejection(nodes: list[ast.AST], steps: _Steps) -> Iterator[CodeSignal]:
    """Sampled answers kept by a check, where the kept list is what training gets."""
    if not _calls(nodes, "generate", "sample", "complete"):
        return
    kept = _kept_after_check(nodes, steps)
    for node in nodes:
        if not isinstance(node, ast.Call):
            continue
        name = _name(node.func)
        if not (name in KNOWN_CALLS or name in {"from_list", "from_dict", "from_generator"}):
            continue
        values = [*node.args, *(keyword.value for keyword in node.keywords)]
        used = {name for value in values for name in _subtree_names(value, steps)} & kept
        if used:
            what = f"{name} gets {sorted(used)[0]!r}, sampled answers that passed a check"
            yield CodeSignal(ALGORITHM_WORDS["rejection"], node.lineno, what)


def _kept_after_check(nodes: list[ast.AST], steps: _Steps) -> set[str]:
    """Names of lists that get something only after a check."""
    kept: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.If) and _is_check(node.test, steps):
            kept.update(_appended_to(node.body, steps))
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.ListComp):
            tests = [test for part in node.value.generators for test in part.ifs]
            if any(_is_check(test, steps) for test in tests):
                kept.update(_name(target) for target in node.targets)
    return kept - {""}


def _appended_to(body: list[ast.stmt], steps: _Steps) -> Iterator[str]:
    for inner in (child for statement in body for child in steps.walk(statement)):
        if isinstance(inner, ast.Call) and _name(inner.func) in {"append", "extend", "add"}:
            yield _name(inner.func.value) if isinstance(inner.func, ast.Attribute) else ""


def _is_check(test: ast.AST, steps: _Steps) -> bool:
    return any(_CHECK_WORDS & set(words_of(name)) for name in _subtree_names(test, steps))


def _imports(nodes: list[ast.AST]) -> frozenset[str]:
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and _name(node.func) in _LOADERS and node.args:
            target = node.args[0]
            if isinstance(target, ast.Constant) and isinstance(target.value, str):
                found.add(target.value.removesuffix(".py").lstrip("./").replace("/", "."))
    return frozenset(found)


def _without_printed(nodes: list[ast.AST], steps: _Steps) -> list[ast.AST]:
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
