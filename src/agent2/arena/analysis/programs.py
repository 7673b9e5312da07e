"""Which programs of the agent ran, and what their sources say.

Joins recorded processes with the code revision that was current when they started, and follows imports among the
agent's own files. Command lines are what a process says of itself: evidence about behaviour, never about
scores. A process that lived for less than the recorder's period may be missing, and code that a recorded source
executes by detours (`exec`, `runpy`, a path added to `sys.path`) is not seen.

Each source is parsed once for a trial, and all of a trial takes a bounded amount of work, whatever an agent wrote and
however many processes it started: what is beyond that counts as not recorded.
"""

import posixpath
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from agent2.arena.analysis.code_signals import (
    ALGORITHM_WORDS,
    Algorithm,
    SourceFacts,
    algorithm_in,
    read_source,
)
from agent2.arena.analysis.verdicts import EvidenceLine
from agent2.arena.evidence import ProcessSample, Revision, TrialEvidence
from agent2.arena.recorder.processes import MAX_COMMAND_CHARS
from agent2.sandbox.spec import HOME, PRIVATE, WORKSPACE

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
