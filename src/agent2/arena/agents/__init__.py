"""Agents of the arena: a folder with `agent.yaml` and the agent's own files; `--agent PATH` takes a user's own.

The folder is bound read-only at /agent in the sandbox. An agent is any program: it reads the environment
variables named in ASSIGNMENT.md, works in the workspace and talks to the grading API over HTTP.
"""

from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from pydantic import Field

from agent2.config import StrictModel, load_yaml
from agent2.errors import ConfigError, unknown_name
from agent2.records import digest_of

SPEC_FILE = "agent.yaml"


class AgentSpec(StrictModel):
    """What `agent.yaml` holds."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """Becomes part of folder names."""
    description: str
    command: list[str] = Field(min_length=1)
    """Run in /workspace; the agent's own files lie at /agent."""
    environment: dict[str, str] = Field(default_factory=dict)
    """Variables set for the agent, beside those of the assignment."""
    pass_environment: list[str] = Field(default_factory=list)
    """Names of host variables that are passed through; nothing else of the host's environment is."""


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent ready to be started."""

    spec: AgentSpec
    folder: Path

    @property
    def digest(self) -> str:
        """Of all files of the agent, for the lock."""
        files = sorted(path for path in self.folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        return digest_of([(str(path.relative_to(self.folder)), path.read_bytes().hex()) for path in files])


def agent_names() -> list[str]:
    """The packaged agents."""
    return sorted(path.name for path in _packaged().iterdir() if (path / SPEC_FILE).is_file())


def load_agent(name_or_path: str) -> Agent:
    """A packaged agent by name, or a user's own by folder (anything with a slash).

    Raises ConfigError with the nearest name, or for a folder without a usable agent.yaml.
    """
    if "/" in name_or_path or name_or_path == ".":
        folder = Path(name_or_path)
        if not (folder / SPEC_FILE).is_file():
            raise ConfigError(f"--agent {name_or_path}: no {SPEC_FILE} in that folder; see docs/how-to/add-an-agent.md")
    else:
        if name_or_path not in agent_names():
            if (Path(name_or_path) / SPEC_FILE).is_file():
                raise ConfigError(f"--agent {name_or_path}: to use the folder of that name, write ./{name_or_path}")
            raise unknown_name("agent", name_or_path, agent_names(), "--agent")
        folder = _packaged() / name_or_path
    return Agent(spec=load_yaml(folder / SPEC_FILE, AgentSpec), folder=folder.resolve())


def _packaged() -> Path:
    return Path(str(resources.files("agent2.arena.agents")))
