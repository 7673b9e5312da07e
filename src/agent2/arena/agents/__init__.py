"""Agents of the arena: a folder with `agent.yaml` and the agent's own files; `--agent PATH` takes a user's own.

The folder is bound read-only at /agent in the sandbox. An agent is any program: it reads the environment
variables named in ASSIGNMENT.md, works in the workspace and talks to the grading API over HTTP. One that is driven
by an LLM says so (`llm`), and one whose program comes from elsewhere says how it is installed (`install`). The texts
of `command`, `environment` and `files` may hold the template fields of `agent2.arena.systems`.
"""

import platform
import re
from dataclasses import dataclass
from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from agent2.config import StrictModel, load_yaml
from agent2.errors import ConfigError
from agent2.foreign_files import read_limited
from agent2.llm.records import WireProtocol
from agent2.plugins import find, is_code, known_names, path_of
from agent2.records import digest_of

SPEC_FILE = "agent.yaml"
MACHINE = platform.machine()


class TranscriptFormat(StrEnum):
    """Whose JSON an agent's own record is."""

    CODEX = "codex"
    CLAUDE_CODE = "claude-code"
    GEMINI_CLI = "gemini-cli"
    OPENCODE = "opencode"
    MINI_SWE_AGENT = "mini-swe-agent"
    OPENHANDS = "openhands"


class TranscriptSpec(StrictModel):
    """Where an agent records itself which command lines it ran."""

    format: TranscriptFormat
    path: str | None = Field(default=None, min_length=1)
    """File in the workspace; None: JSON lines among what it prints, kept in agent.log."""


class NpmPackage(StrictModel):
    """A package of the npm registry; installed without running any script of it or of what it needs."""

    package: str = Field(min_length=1)
    version: str = Field(pattern=r"^[0-9][0-9A-Za-z.+-]*$")
    """Exactly this one."""
    program: str | dict[str, str]
    """Path below `node_modules`; where it differs between machines, machine (as `uname -m` says) -> path."""
    needs_node: tuple[int, ...] | None = None
    """Lowest version of node that runs the program, as [20, 0]; None: the program needs none."""


class PythonPackage(StrictModel):
    """A package of the Python package index; installed into a virtual environment of its own."""

    package: str = Field(min_length=1)
    version: str = Field(pattern=r"^[0-9][0-9A-Za-z.+!-]*$")
    """Exactly this one."""
    module: str = Field(min_length=1)
    """What `python -m` runs."""
    requirements: list[str] = Field(default_factory=list)
    """Further requirements, pinned (`name==version`) where a newer one breaks the package."""
    constraints: str | None = Field(default=None, pattern=r"^[A-Za-z0-9._-]+$")
    """File in the agent's folder with the version of every dependency, as `pip freeze` prints it."""
    without_wheel: list[str] = Field(default_factory=list)
    """Names of packages that come as source only; all others must be wheels, which run no script."""
    python: tuple[int, int] = (3, 11)
    """Lowest version of Python, as [3, 12]."""


def _check_pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from error
    return text


RegexText = Annotated[str, AfterValidator(_check_pattern)]


class InstallSpec(StrictModel):
    """How `agent2 agents install` gets the system; exactly one source."""

    npm: NpmPackage | None = None
    python: PythonPackage | None = None
    version_arguments: list[str] = Field(default_factory=lambda: ["--version"])
    """What makes the program print its version."""
    version_output: RegexText | None = None
    """Regular expression that must match somewhere in that output; None: the version itself must be in it."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.npm is None) == (self.python is None):
            raise ValueError("name exactly one of npm and python")
        return self

    @property
    def source(self) -> NpmPackage | PythonPackage:
        """Where it comes from."""
        source = self.npm or self.python
        if source is None:
            raise ConfigError("install: names neither npm nor python; name one of them")
        return source

    @property
    def version(self) -> str:
        """The pinned one."""
        return self.source.version

    @property
    def version_pattern(self) -> str:
        """Regular expression for what the program prints as its version."""
        return self.version_output or rf"(?<![0-9.]){re.escape(self.version)}(?!\.?[0-9])"


def program_path(package: NpmPackage, machine: str = MACHINE) -> str:
    """Path of the program below `node_modules` on this kind of machine.

    Raises ConfigError naming the machines for which the package has one.
    """
    if isinstance(package.program, str):
        return package.program
    if machine not in package.program:
        raise ConfigError(
            f"{package.package} {package.version}: has no program for {machine}; known: "
            f"{', '.join(sorted(package.program))}; run it on one of these"
        )
    return package.program[machine]


class AgentSpec(StrictModel):
    """What `agent.yaml` holds."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """Becomes part of folder names."""
    description: str
    command: list[str] = Field(min_length=1)
    """Run in /workspace; the agent's own files are in /agent."""
    environment: dict[str, str] = Field(default_factory=dict)
    """Variables set for the agent, beside those of the assignment."""
    pass_environment: list[str] = Field(default_factory=list)
    """Names of host variables that are passed through; nothing else of the host's environment is."""
    llm: WireProtocol | None = None
    """Driven by an LLM, to which it speaks this protocol; None: it uses none."""
    install: InstallSpec | None = None
    """How `agent2 agents install` gets the system that the command starts; None: nothing to install."""
    files: dict[str, str] = Field(default_factory=dict)
    """Path below the agent's home -> text of a file that is there when it starts."""
    transcript: TranscriptSpec | None = None
    """Where it records itself which command lines it ran; None: they are taken from process samples."""
    volatile: list[RegexText] = Field(default_factory=list)
    """Regular expressions for what differs from run to run in its requests; masked before a replay compares them."""


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent ready to be started."""

    spec: AgentSpec
    folder: Path
    loaded_as: str = ""
    """The name or path that it was loaded by."""

    @property
    def digest(self) -> str:
        """Of all files of the agent, for the lock."""
        files = sorted(path for path in self.folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        return digest_of(
            [(str(path.relative_to(self.folder)), read_limited(path, follow=True).hex()) for path in files]
        )


def agent_names() -> list[str]:
    """The packaged agents."""
    return sorted(path.name for path in _packaged().iterdir() if (path / SPEC_FILE).is_file())


def load_agent(name_or_path: str) -> Agent:
    """A packaged or installed agent by name, or a user's own by folder (anything with a slash) or code that names it.

    Raises ConfigError with the nearest name, or for a folder without a usable agent.yaml.
    """
    if is_code(name_or_path):
        folder = path_of(find("agent", name_or_path, {}, "--agent"))
        if not (folder / SPEC_FILE).is_file():
            raise ConfigError(f"--agent {name_or_path}: no {SPEC_FILE} in {folder}; see docs/how-to/add-an-agent.md")
    elif "/" in name_or_path or name_or_path == ".":
        folder = Path(name_or_path)
        if not (folder / SPEC_FILE).is_file():
            raise ConfigError(f"--agent {name_or_path}: no {SPEC_FILE} in that folder; see docs/how-to/add-an-agent.md")
    else:
        packaged = agent_names()
        if name_or_path not in known_names("agent", packaged) and (Path(name_or_path) / SPEC_FILE).is_file():
            raise ConfigError(f"--agent {name_or_path}: to use the folder of that name, write ./{name_or_path}")
        location = find("agent", name_or_path, {name: name for name in packaged}, "--agent")
        folder = _packaged() / name_or_path if location.is_packaged else path_of(location)
        if not (folder / SPEC_FILE).is_file():
            raise ConfigError(f"{location}: no {SPEC_FILE} in {folder}; see docs/how-to/add-an-agent.md")
    return Agent(spec=load_yaml(folder / SPEC_FILE, AgentSpec), folder=folder.resolve(), loaded_as=name_or_path)


def _packaged() -> Path:
    return Path(str(resources.files("agent2.arena.agents")))
