"""Agents of the arena: a folder with `agent.yaml` and the agent's own files; `--agent PATH` takes a user's own.

The folder is bound read-only at /agent in the sandbox. An agent is any program: it reads the environment
variables named in ASSIGNMENT.md, works in the workspace and talks to the grading API over HTTP. One that is driven
by an LLM says so (`llm`), and one whose program comes from elsewhere says how it is installed (`install`). The texts
of `command`, `environment` and `files` may hold the template fields of `agent2.arena.systems.launch`.
"""

from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from pydantic import Field

from agent2.arena.gateway.settings import WireProtocol
from agent2.arena.systems.spec import InstallSpec, Pattern, TranscriptSpec
from agent2.config import StrictModel, load_yaml
from agent2.errors import ConfigError
from agent2.plugins import find, is_code, known_names, path_of
from agent2.records import digest_of

SPEC_FILE = "agent.yaml"


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
    """Where it says itself which command lines it ran; None: they are taken from process samples."""
    volatile: list[Pattern] = Field(default_factory=list)
    """Regular expressions for what differs from run to run in its requests; masked before a replay compares them."""


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent ready to be started."""

    spec: AgentSpec
    folder: Path
    asked_as: str = ""
    """The name or path that it was loaded by."""

    @property
    def digest(self) -> str:
        """Of all files of the agent, for the lock."""
        files = sorted(path for path in self.folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        return digest_of([(str(path.relative_to(self.folder)), path.read_bytes().hex()) for path in files])


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
        known = agent_names()
        if name_or_path not in known_names("agent", known) and (Path(name_or_path) / SPEC_FILE).is_file():
            raise ConfigError(f"--agent {name_or_path}: to use the folder of that name, write ./{name_or_path}")
        place = find("agent", name_or_path, {name: name for name in known}, "--agent")
        folder = _packaged() / name_or_path if place.is_packaged else path_of(place)
        if not (folder / SPEC_FILE).is_file():
            raise ConfigError(f"{place}: no {SPEC_FILE} in {folder}; see docs/how-to/add-an-agent.md")
    return Agent(spec=load_yaml(folder / SPEC_FILE, AgentSpec), folder=folder.resolve(), asked_as=name_or_path)


def _packaged() -> Path:
    return Path(str(resources.files("agent2.arena.agents")))
