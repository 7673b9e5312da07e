"""Which programs of the agent ran, and what their sources say.

Joins recorded processes with the code revision that stood when they started, and follows imports among the
agent's own files. Command lines are what a process says of itself: evidence about behaviour, never about
scores. A process that lived for less than the recorder's period may be missing.
"""

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent2.arena.analysis.code_signals import (
    ALGORITHM_WORDS,
    Algorithm,
    SourceFacts,
    algorithm_in,
    read_source,
)
from agent2.arena.evidence import ProcessSample, Revision, TrialEvidence
from agent2.sandbox.spec import PRIVATE

RECORDER_LAG_S = 10.0
"""A revision may be taken this much later than the code in it was started."""
LAUNCHERS = frozenset(
    {"accelerate", "torchrun", "deepspeed", "uv", "ray", "llamafactory-cli", "trl", "swift", "axolotl"}
)
INLINE = "python -c"


@dataclass(frozen=True, slots=True)
class Program:
    """One program that ran."""

    name: str
    """Path of the script, module, or `python -c`."""
    command: tuple[str, ...]
    pid: int
    first_seen: float
    last_seen: float
    sources: tuple[SourceFacts, ...]
    """The script and the agent's own modules that it imports; empty if its text was not recorded."""
    named: Algorithm | None
    """The algorithm that the command line names."""

    @property
    def strings(self) -> frozenset[str]:
        """Strings that its sources and its command line use."""
        inside = (facts.strings for facts in self.sources)
        return frozenset(self.command[1:]).union(*inside)


def ran_programs(evidence: TrialEvidence) -> tuple[Program, ...]:
    """The agent's Python programs and launchers, in the order in which they were first seen."""
    programs = []
    for sample in sorted(evidence.processes, key=lambda sample: sample.first_seen):
        program = _program(sample, evidence)
        # the harness's own programs in the sandbox are none of the agent's
        if program is not None and not program.name.startswith(f"{PRIVATE}/"):
            programs.append(program)
    return tuple(programs)


def written_sources(files: Mapping[str, str]) -> tuple[SourceFacts, ...]:
    """The facts of every Python file among `files`."""
    return tuple(read_source(path, text) for path, text in sorted(files.items()) if path.endswith(".py"))


def reachable(files: Mapping[str, str], entry: str) -> tuple[SourceFacts, ...]:
    """The facts of `entry` and of the files among `files` that it imports, directly or not."""
    found: dict[str, SourceFacts] = {}
    waiting = [entry]
    while waiting:
        path = waiting.pop()
        if path in found or path not in files:
            continue
        facts = read_source(path, files[path])
        found[path] = facts
        folder = posixpath.dirname(path)
        for module in sorted(facts.imports):
            stem = module.replace(".", "/")
            for candidate in (f"{stem}.py", f"{stem}/__init__.py"):
                waiting.extend({candidate, posixpath.join(folder, candidate)} & files.keys())
    return tuple(found.values())


def revision_at(revisions: Sequence[Revision], t: float) -> Revision | None:
    """The last revision taken up to `t`, or the first one of all when there is none yet."""
    ordered = sorted(revisions, key=lambda revision: revision.t)
    before = [revision for revision in ordered if revision.t <= t]
    return before[-1] if before else next(iter(ordered), None)


def _program(sample: ProcessSample, evidence: TrialEvidence) -> Program | None:
    target = _target(sample.command)
    if target is None:
        return None
    kind, name = target
    sources: tuple[SourceFacts, ...] = ()
    if kind == "inline":
        sources, name = (read_source(INLINE, name),), INLINE
    elif kind in {"script", "module"}:
        name, sources = _sources_of(name, kind, sample.first_seen, evidence)
    return Program(
        name=name,
        command=tuple(sample.command),
        pid=sample.pid,
        first_seen=sample.first_seen,
        last_seen=sample.last_seen,
        sources=sources,
        named=None if kind == "inline" else _named(name, sample.command, kind),
    )


def _target(command: Sequence[str]) -> tuple[str, str] | None:
    """(kind, what) that a command line runs: script, module, inline code or a launcher's own verb."""
    program = posixpath.basename(command[0]) if command else ""
    is_python = program.startswith(("python", "pypy"))
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
        if word.endswith(".py") or (is_python and not word.startswith("-")):
            return "script", word
    return ("launcher", program) if program in LAUNCHERS else None


def _sources_of(name: str, kind: str, started: float, evidence: TrialEvidence) -> tuple[str, tuple[SourceFacts, ...]]:
    """The recorded path of a script or module and its facts; (name, ()) if its text was not recorded."""
    wanted = f"{name.replace('.', '/')}.py" if kind == "module" else posixpath.normpath(name)
    own_files = {f"/agent/{path}": text for path, text in evidence.agent_files.items()}
    if wanted.startswith("/agent/"):
        return wanted, reachable(own_files, wanted)
    revision = revision_at(evidence.revisions, started + RECORDER_LAG_S)
    files = revision.files if revision is not None else {}
    path = _find(wanted.removeprefix("/workspace/"), files)
    if path is not None:
        return path, reachable(files, path)
    # without a sandbox the agent's folder has its host path on the command line
    own = next((inside for inside in sorted(own_files) if wanted.endswith(inside.removeprefix("/agent"))), None)
    return (own, reachable(own_files, own)) if own is not None else (name, ())


def _find(wanted: str, files: Mapping[str, str]) -> str | None:
    """The file that a path on a command line means; relative paths may start in a subfolder."""
    if wanted in files:
        return wanted
    return next((path for path in sorted(files) if wanted.endswith(f"/{path}") or path.endswith(f"/{wanted}")), None)


def _named(name: str, command: Sequence[str], kind: str) -> Algorithm | None:
    if kind == "launcher":  # trl sft ..., llamafactory-cli train ...
        return next((ALGORITHM_WORDS[word] for word in command[1:] if word in ALGORITHM_WORDS), None)
    return algorithm_in(posixpath.basename(name) if kind == "script" else name)
