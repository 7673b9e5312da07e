"""Agent systems that are installed on this machine: where they are, which version, whether they are still as installed.

    $AGENT2_HOME/agents/NAME/VERSION/
    ├── manifest.json   what was installed, how, and the digest of the tree
    └── tree/           node_modules/, or a virtual environment

Promises: a folder appears whole or not at all; what is run is what was installed (names, sizes and contents of all
files of the tree, compared before each trial). Does NOT tell whether the registry's package was honest.
"""

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from agent2 import installation
from agent2.arena.agents import Agent, agent_names
from agent2.config import StrictModel
from agent2.errors import ConfigError
from agent2.sandbox.backends import Sandbox
from agent2.sandbox.spec import Mount

MANIFEST = "manifest.json"
TREE = "tree"
INSIDE = "/installed"
"""Where the tree is in a sandbox."""


class InstallManifest(StrictModel):
    """What `manifest.json` holds."""

    name: str
    """Of the agent."""
    package: str
    version: str
    program: list[str]
    """Command line of the program; {tree} stands for the folder of the tree."""
    said: str
    """What the program printed when it was asked for its version."""
    digest: str
    """Of all files of the tree."""
    size_mib: float
    runtime: list[str]
    """Host folders or files outside the tree that the program needs."""
    installer: str
    """Tool and version that installed it."""
    seconds: float


@dataclass(frozen=True, slots=True)
class InstalledSystem:
    """A system ready to be bound into a sandbox."""

    manifest: InstallManifest
    folder: Path

    @property
    def tree(self) -> Path:
        """All that was installed."""
        return self.folder / TREE

    @property
    def runtime_outside_usr(self) -> tuple[Path, ...]:
        """Folders or files that must be shown at the same path inside; those of /usr are shown anyway."""
        return tuple(Path(path) for path in self.manifest.runtime if not f"{path}/".startswith("/usr/"))

    @property
    def digest(self) -> str:
        """Of all files of the tree, as installed."""
        return self.manifest.digest


def system_folder(name: str, version: str) -> Path:
    """Where a version of a system lies, or would lie."""
    return installation.home() / "agents" / name / version


def installed_versions(name: str) -> list[str]:
    """The versions of a system on this machine."""
    folder = installation.home() / "agents" / name
    if not folder.is_dir():
        return []
    done = (path for path in folder.iterdir() if not path.name.startswith("."))  # others are being installed
    return sorted(path.name for path in done if (path / MANIFEST).is_file())


def find_installed(agent: Agent) -> InstalledSystem | None:
    """The pinned version of an agent's system; None if it is not installed, or the agent has none to install.

    Raises ConfigError for a manifest that cannot be read.
    """
    install = agent.spec.install
    if install is None:
        return None
    folder = system_folder(agent.spec.name, install.version)
    path = folder / MANIFEST
    if not path.is_file():
        return None
    try:
        manifest = InstallManifest.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise ConfigError(
            f"{path}: cannot be read ({str(error).splitlines()[0]}); remove {folder} and run: {install_command(agent)}"
        ) from error
    return InstalledSystem(manifest, folder)


def require_installed(agent: Agent) -> InstalledSystem:
    """The pinned version of an agent's system, unchanged since it was installed.

    Raises ConfigError naming the command to run if it is missing, of another version, or changed.
    """
    system = find_installed(agent)
    install = agent.spec.install
    if system is None or install is None:
        version = install.version if install is not None else "none"
        others = [other for other in installed_versions(agent.spec.name) if other != version]
        have = f"installed: {', '.join(others)}" if others else "it is not installed"
        raise ConfigError(
            f"agent {agent.spec.name}: version {version} is pinned, {have}; run: {install_command(agent)}"
        )
    found = tree_digest(system.tree)
    if found != system.digest:
        raise ConfigError(
            f"{system.tree}: its files are not as installed (digest {found[:12]}, installed {system.digest[:12]}); "
            f"remove {system.folder} and run: {install_command(agent)}"
        )
    return system


def system_mounts(system: InstalledSystem, sandbox: Sandbox) -> tuple[tuple[Mount, ...], tuple[str, ...]]:
    """What a sandbox must show of a system, and the command line of its program as seen inside."""
    inside = sandbox.visible_path(system.tree, INSIDE)
    program = tuple(word.replace("{tree}", inside) for word in system.manifest.program)
    return (Mount(system.tree, INSIDE), *(Mount(path, str(path)) for path in system.runtime_outside_usr)), program


def install_command(agent: Agent) -> str:
    """What installs an agent's system."""
    name = agent.spec.name
    return f"agent2 agents install {name if name in agent_names() else agent.asked_as or agent.folder}"


def tree_digest(tree: Path) -> str:
    """Of names, kinds, permissions to execute and contents of all files; byte-code caches aside.

    Raises ConfigError if the tree cannot be read.
    """
    digest = hashlib.sha256()
    try:
        for folder, names, files in os.walk(tree):
            names[:] = sorted(name for name in names if name != "__pycache__")
            for name in sorted((*files, *(name for name in names if os.path.islink(os.path.join(folder, name))))):
                path = os.path.join(folder, name)
                mode = os.lstat(path).st_mode
                digest.update(f"{os.path.relpath(path, tree)}\0{stat.S_IFMT(mode)}\0{mode & 0o100}\0".encode())
                if stat.S_ISLNK(mode):
                    digest.update(os.readlink(path).encode())
                else:
                    with open(path, "rb") as file:
                        digest.update(hashlib.file_digest(file, "sha256").digest())
    except OSError as error:
        raise ConfigError(f"{tree}: cannot be read ({error}); install the system again") from error
    return digest.hexdigest()
