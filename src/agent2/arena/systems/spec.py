"""What `agent.yaml` says of an agent system beyond its command: how it is installed, what its own record looks like.

Plain records; nothing here touches the disk or the network.
"""

import platform
import re
from enum import StrEnum
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from agent2.config import StrictModel
from agent2.errors import ConfigError

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
    """Where an agent says itself which command lines it ran."""

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
    """File in the agent's folder with the version of everything that is installed along, as `pip freeze` prints it."""
    without_wheel: list[str] = Field(default_factory=list)
    """Names of packages that come as source only; for all others wheels are insisted on, which run no script."""
    python: tuple[int, int] = (3, 11)
    """Lowest version of Python, as [3, 12]."""


def _is_pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"no regular expression: {error}") from error
    return text


Pattern = Annotated[str, AfterValidator(_is_pattern)]


class InstallSpec(StrictModel):
    """How `agent2 agents install` gets the system; exactly one source."""

    npm: NpmPackage | None = None
    python: PythonPackage | None = None
    version_arguments: list[str] = Field(default_factory=lambda: ["--version"])
    """What makes the program print its version."""
    version_output: Pattern | None = None
    """Regular expression that must be found in what it prints then; None: the version itself must be in it."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.npm is None) == (self.python is None):
            raise ValueError("name exactly one of npm and python")
        return self

    @property
    def source(self) -> NpmPackage | PythonPackage:
        """Where it comes from."""
        chosen = self.npm or self.python
        if chosen is None:
            raise ConfigError("install: names neither npm nor python; name one of them")
        return chosen

    @property
    def version(self) -> str:
        """The pinned one."""
        return self.source.version

    @property
    def version_pattern(self) -> str:
        """Regular expression for what the program says of its version."""
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
