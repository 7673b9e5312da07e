"""Which programs of the agent ran, and which training methods their sources use.

Sources are read from their syntax trees. A method counts when code names it where it would run: a trainer is called or
subclassed, a log-probability is multiplied with an advantage next to `backward()`, sampled answers are filtered by a
check and trained on. Comments, strings, docstrings, type annotations, imports without use and `if False:` blocks never
count. Does NOT follow data across files, run anything, or see through `getattr`, `exec` and other detours.

Programs are recorded processes, joined with the code revision that was current when they started and with the agent's
own modules that it imports. Command lines are what a process says of itself: evidence about behaviour, never about
scores. A process that lived for less than the recorder's period may be missing, and code that a recorded source
executes by detours (`exec`, `runpy`, a path added to `sys.path`) is not seen.

Each source is parsed once for a trial, and all of a trial takes a bounded amount of work, whatever an agent wrote and
however many processes it started: what is beyond that counts as not recorded.
"""

import ast
import posixpath
import re
import warnings
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, lru_cache
from itertools import islice

from agent2.arena.analysis.verdicts import EvidenceLine
from agent2.arena.evidence import MAX_COMMAND_CHARS, ProcessSample, Revision, TrialEvidence
from agent2.sandbox.spec import HOME, PRIVATE, WORKSPACE
from agent2.syntax import parse_python

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


_NAMES: Mapping[Method, str] = {
    Method.SFT: "SFT GKD",
    Method.RL: "GRPO PPO RLOO DAPO NashMD XPO",
    Method.PREFERENCE: "DPO OnlineDPO KTO ORPO CPO BCO IPO",
}
_ALGORITHMS = {name: Algorithm(method, name) for method, names in _NAMES.items() for name in names.split()}
REJECTION_SAMPLING = Algorithm(Method.REJECTION, "rejection sampling")

KNOWN_CALLS: Mapping[str, Algorithm] = {
    **{f"{name}Trainer": algorithm for name, algorithm in _ALGORITHMS.items()},
    **{f"train_{name.lower()}": _ALGORITHMS[name] for name in ("SFT", "GRPO", "RLOO", "PPO", "DPO")},
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
            nodes = _without_printed(list(steps.counted(_live_nodes(parse_python(text)))), steps)
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
            yield CodeSignal(REJECTION_SAMPLING, node.lineno, what)


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


RECORDER_LAG_S = 10.0
"""A revision may be taken this much later than the code in it was started."""
LAUNCHERS = frozenset(
    {"accelerate", "torchrun", "deepspeed", "uv", "ray", "llamafactory-cli", "trl", "swift", "axolotl"}
)
TOOL_MODULES = frozenset(
    {
        "accelerate", "agent2", "compileall", "deepspeed", "ensurepip", "http", "ipykernel", "json", "pip", "pytest",
        "tarfile", "timeit", "torch", "unittest", "uv", "venv", "zipfile",
    }
)  # fmt: skip
"""Run with `-m`, they train nothing themselves."""
INLINE = "python -c"
STANDARD_INPUT = "python -"
MAX_CHARACTERS = 3_000_000
"""Of distinct sources read for one trial."""
MAX_WORK = 1_000_000
"""Imports, strings and signals that are looked at for one trial while imports are followed."""
MAX_LINES = 8
"""Lines of evidence kept for one algorithm in one program."""
MAX_PATHS = 200
"""Checkpoint paths looked at in one program."""
UNKNOWN_CPU_S = 5.0
"""A process that used less than this has trained nothing; loading torch alone takes as long."""
WRITABLE = (WORKSPACE, HOME, "/tmp", "/var/tmp", "/dev/shm", "/run")
"""Where an agent can put a program in a sandbox; what is elsewhere was installed."""


@dataclass(frozen=True, eq=False)
class Code:
    """The sources of one program: a script and the agent's own modules that it imports. Equal only to itself."""

    sources: tuple[SourceFacts, ...] = ()
    problem: str | None = None
    """Why its text is not known in full."""

    @cached_property
    def strings(self) -> frozenset[str]:
        """Strings that it uses."""
        return frozenset().union(*(facts.strings for facts in self.sources))

    @cached_property
    def steps(self) -> tuple[tuple[Algorithm, EvidenceLine], ...]:
        """What it trains with, in the order of its sources; `MAX_LINES` lines of one algorithm at most."""
        return tuple(source_steps(self.sources))


NO_CODE = Code()


@dataclass(frozen=True, slots=True)
class Program:
    """One program that ran."""

    name: str
    """Path of the script, module, `python -c` or `python -`."""
    command: tuple[str, ...]
    pid: int
    first_seen: float
    last_seen: float
    cpu_s: float
    code: Code
    """Without sources if its text was not recorded."""
    named: Algorithm | None
    """The algorithm that the command line names."""
    is_unknown: bool = False
    """It may have trained, and its text was not recorded in full."""

    @property
    def sources(self) -> tuple[SourceFacts, ...]:
        """The script and the agent's own modules that it imports; empty if its text was not recorded."""
        return self.code.sources

    @property
    def line(self) -> EvidenceLine:
        """That it ran."""
        seconds = self.last_seen - self.first_seen
        return EvidenceLine(f"process {self.pid}", f"ran {seconds:.0f} s: {' '.join(self.command)[:200]}")


def ran_programs(evidence: TrialEvidence) -> tuple[Program, ...]:
    """The agent's Python programs and launchers, and others of unknown text, in the order in which they were seen."""
    return _reader(evidence).programs


def codes_that_ran(evidence: TrialEvidence) -> tuple[Code, ...]:
    """The code of all programs, each once."""
    return tuple(dict.fromkeys(program.code for program in ran_programs(evidence)))


def last_sources(evidence: TrialEvidence) -> tuple[SourceFacts, ...]:
    """The facts of every Python file in the last revision."""
    return _reader(evidence).written(evidence.revisions[-1].files) if evidence.revisions else ()


def sources_of(revision: Revision, evidence: TrialEvidence) -> tuple[SourceFacts, ...]:
    """The facts of every Python file in a revision of the trial."""
    return _reader(evidence).written(revision.files)


def written_sources(files: Mapping[str, str]) -> tuple[SourceFacts, ...]:
    """The facts of every Python file among `files`, as far as `MAX_CHARACTERS` go."""
    return _Sources().read_all(files)


def source_steps(sources: Sequence[SourceFacts]) -> list[tuple[Algorithm, EvidenceLine]]:
    """What sources train with, in their order; `MAX_LINES` lines of one algorithm at most."""
    found: list[tuple[Algorithm, EvidenceLine]] = []
    counts: dict[Algorithm, int] = defaultdict(int)
    for facts in sources:
        for signal in facts.signals:
            counts[signal.algorithm] += 1
            if counts[signal.algorithm] <= MAX_LINES:
                found.append((signal.algorithm, EvidenceLine(f"{facts.path}:{signal.line}", signal.what)))
    return found


def revision_at(revisions: Sequence[Revision], t: float) -> Revision | None:
    """The last revision taken up to `t`, or the first one of all when there is none yet."""
    ordered = sorted(revisions, key=lambda revision: revision.t)
    before = bisect_right(ordered, t, key=lambda revision: revision.t)
    return ordered[max(0, before - 1)] if ordered else None


class _Sources:
    """Reads each source once, as far as `MAX_CHARACTERS` and `MAX_WORK` go."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], SourceFacts] = {}
        self._characters_left = MAX_CHARACTERS
        self.work_left = MAX_WORK

    def read(self, path: str, text: str) -> SourceFacts:
        """The facts of a source; one with a problem when all characters are used up."""
        key = (path, text)
        if key not in self._known:
            self._characters_left -= len(text)
            if self._characters_left < 0:
                problem = f"was not read: {MAX_CHARACTERS} characters of code are read at most"
                return SourceFacts(path, (), frozenset(), frozenset(), (), problem)
            self._known[key] = read_source(path, text)
        return self._known[key]

    def read_all(self, files: Mapping[str, str]) -> tuple[SourceFacts, ...]:
        """The facts of every Python file."""
        return tuple(self.read(path, text) for path, text in sorted(files.items()) if path.endswith(".py"))


def _follow(files: Mapping[str, str], entry: str, sources: _Sources) -> Code:
    """The code of `entry` and of all that it imports among `files`."""
    found: dict[str, SourceFacts] = {}
    problem: str | None = None
    waiting = [entry]
    while waiting:
        path = waiting.pop()
        if path in found or path not in files:
            continue
        if sources.work_left < 0:
            problem = "imports more than is followed"
            break
        facts = sources.read(path, files[path])
        found[path] = facts
        if facts.problem is not None and problem is None:
            problem = f"{path} {facts.problem}"
        sources.work_left -= 1 + len(facts.imports) + len(facts.strings) + len(facts.signals)
        folder = posixpath.dirname(path)
        for module in sorted(facts.imports):
            stem = module.replace(".", "/")
            for candidate in (f"{stem}.py", f"{stem}/__init__.py"):
                waiting.extend({candidate, posixpath.join(folder, candidate)} & files.keys())
    return Code(tuple(found.values()), problem)


class _Files:
    """The files of one revision, or of the agent's own folder, and the code in them."""

    def __init__(self, files: Mapping[str, str], sources: _Sources) -> None:
        self._files = files
        self._sources = sources
        self._by_name: dict[str, list[str]] = defaultdict(list)
        self._codes: dict[str, Code] = {}
        for path in sorted(files):
            self._by_name[posixpath.basename(path)].append(path)
        sources.work_left -= len(files)

    def code(self, path: str) -> Code:
        """The code of a script that is there."""
        if path not in self._codes:
            self._codes[path] = _follow(self._files, path, self._sources)
        return self._codes[path]

    def find(self, wanted: str) -> str | None:
        """The file that a path on a command line means; relative paths may start in a subfolder."""
        if wanted in self._files:
            return wanted
        alike = self._by_name.get(posixpath.basename(wanted), [])
        self._sources.work_left -= len(alike)
        return next((path for path in alike if wanted.endswith(f"/{path}") or path.endswith(f"/{wanted}")), None)


class _Reader:
    """Finds the programs of one trial."""

    def __init__(self, evidence: TrialEvidence) -> None:
        self._evidence = evidence
        self._sources = _Sources()
        self._own = _Files({f"/agent/{path}": text for path, text in evidence.agent_files.items()}, self._sources)
        self._revisions = sorted(evidence.revisions, key=lambda revision: revision.t)
        self._files: dict[str, _Files] = {}

    def written(self, files: Mapping[str, str]) -> tuple[SourceFacts, ...]:
        """The facts of every Python file; programs that ran are read before."""
        _ = self.programs
        return self._sources.read_all(files)

    @cached_property
    def programs(self) -> tuple[Program, ...]:
        """In the order in which they were first seen."""
        found = []
        for sample in sorted(self._evidence.processes, key=lambda sample: sample.first_seen):
            program = self._program(sample)
            # the harness's own programs in the sandbox are none of the agent's
            if program is not None and not program.name.startswith(f"{PRIVATE}/"):
                found.append(program)
        return tuple(found)

    def _program(self, sample: ProcessSample) -> Program | None:
        target = _target(sample.command)
        is_python = posixpath.basename(sample.exe).startswith(("python", "pypy"))
        if target is None:
            if is_python and not _is_python(sample.command):
                target = "disguised", sample.exe
            elif sample.exe.startswith(WRITABLE) and sample.cpu_s >= UNKNOWN_CPU_S:
                target = "binary", sample.exe
            else:
                return None
        kind, name = target
        code = NO_CODE
        if kind == "inline":
            facts = self._sources.read(INLINE, name)
            problem = facts.problem and f"{INLINE} {facts.problem}"
            if sum(map(len, sample.command)) >= MAX_COMMAND_CHARS:
                problem = f"{INLINE} was recorded up to {MAX_COMMAND_CHARS} characters"
            code, name = Code((facts,), problem), INLINE
        elif kind in {"script", "module"}:
            name, code = self._code_of(name, kind, sample.first_seen)
        may_train = sample.cpu_s >= UNKNOWN_CPU_S and not _is_installed(kind, name)
        return Program(
            name=name,
            command=tuple(sample.command),
            pid=sample.pid,
            first_seen=sample.first_seen,
            last_seen=sample.last_seen,
            cpu_s=sample.cpu_s,
            code=code,
            named=_named(name, sample.command, kind) if kind in {"script", "module", "launcher"} else None,
            is_unknown=may_train and (not code.sources or code.problem is not None),
        )

    def _code_of(self, name: str, kind: str, started: float) -> tuple[str, Code]:
        """The recorded path of a script or module and its code; (name, NO_CODE) if its text was not recorded."""
        wanted = f"{name.replace('.', '/')}.py" if kind == "module" else posixpath.normpath(name)
        if wanted.startswith("/agent/"):
            return wanted, self._own.code(wanted)
        files = self._files_at(started + RECORDER_LAG_S)
        if files is not None:
            path = files.find(wanted.removeprefix(f"{WORKSPACE}/"))
            if path is not None:
                return path, files.code(path)
        # without a sandbox the agent's folder has its host path on the command line
        own = next((f"/agent/{p}" for p in sorted(self._evidence.agent_files) if wanted.endswith(f"/{p}")), None)
        return (own, self._own.code(own)) if own is not None else (name, NO_CODE)

    def _files_at(self, t: float) -> _Files | None:
        if not self._revisions:
            return None
        place = bisect_right(self._revisions, t, key=lambda revision: revision.t)
        revision = self._revisions[max(0, place - 1)]
        if revision.id not in self._files:
            if self._sources.work_left < 0:
                return None
            self._files[revision.id] = _Files(revision.files, self._sources)
        return self._files[revision.id]


@lru_cache(maxsize=2)
def _reader(evidence: TrialEvidence) -> _Reader:
    return _Reader(evidence)


def _is_python(command: Sequence[str]) -> bool:
    return bool(command) and posixpath.basename(command[0]).startswith(("python", "pypy"))


def _target(command: Sequence[str]) -> tuple[str, str] | None:
    """(kind, what) that a command line runs: script, module, inline code, standard input or a launcher's own verb."""
    program = posixpath.basename(command[0]) if command else ""
    is_python = _is_python(command)
    if not is_python and program not in LAUNCHERS and not program.endswith(".py"):
        return None
    words = list(command[1:] if not program.endswith(".py") else command)
    # an entry point such as trl is run by its interpreter: python /usr/bin/trl sft ...
    if is_python and words and posixpath.basename(words[0]) in LAUNCHERS:
        is_python, program, words = False, posixpath.basename(words[0]), words[1:]
    for place, word in enumerate(words):
        following = words[place + 1] if place + 1 < len(words) else ""
        if is_python and word == "-c":
            return "inline", following
        if word == "-m":
            return "module", following
        if is_python and word == "-":
            return "stdin", STANDARD_INPUT
        if word.endswith(".py") or (is_python and not word.startswith("-")):
            return "script", word
    if program in LAUNCHERS:
        return "launcher", program
    return ("stdin", STANDARD_INPUT) if is_python and not words else None


def _is_installed(kind: str, name: str) -> bool:
    """Whether a program without recorded text is one that the agent did not write."""
    if kind == "module":
        return name.split(".")[0] in TOOL_MODULES
    if kind == "script":
        return name.startswith("/") and not name.startswith((*WRITABLE, "/agent/"))
    return kind == "launcher"


def _named(name: str, command: Sequence[str], kind: str) -> Algorithm | None:
    if kind == "launcher":  # trl sft ..., llamafactory-cli train ...
        return next((ALGORITHM_WORDS[word] for word in command[1:] if word in ALGORITHM_WORDS), None)
    return algorithm_in(posixpath.basename(name) if kind == "script" else name)
