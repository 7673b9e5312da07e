"""Finding the interpreters that agent systems need on this machine: Python of a minimum version, node.

Nothing is installed here; what is missing is named, with what to do.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from agent2.errors import ConfigError

NEWEST_MINOR = 15
"""Of the names python3.N that are looked for on PATH."""
ASK_TIMEOUT_S = 30.0
_QUESTION = "import json, sys; print(json.dumps([list(sys.version_info[:3]), sys.base_prefix, sys.executable]))"


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python on this machine."""

    path: Path
    prefix: Path
    """Folder that holds all of it."""
    version: str


def find_interpreter(minimum: tuple[int, int], chosen: Path | None, package: str) -> Interpreter:
    """A Python of at least this version: the chosen one, else ours, else one from PATH or pyenv.

    package: what needs it, for the message. Raises ConfigError if there is none, or the chosen one is too old.
    """
    wanted = ".".join(map(str, minimum))
    if chosen is not None:
        found = _ask(chosen)
        if found is None:
            raise ConfigError(f"--python {chosen}: does not run as a Python; give the path of an interpreter")
        if _numbers(found.version) < minimum:
            raise ConfigError(f"--python {chosen}: is Python {found.version}; {package} needs {wanted} or newer")
        return found
    for candidate in _candidates(minimum):
        found = _ask(candidate)
        if found is not None and _numbers(found.version) >= minimum:
            return found
    raise ConfigError(
        f"{package} needs Python {wanted} or newer, and none was found (asked: this one, "
        f"{sys.version_info[0]}.{sys.version_info[1]}; python{wanted} and newer on PATH; pyenv); install one, "
        "or name it with --python PATH"
    )


def find_node(minimum: tuple[int, ...]) -> Path:
    """The node on PATH. Raises ConfigError if there is none or it is older than that."""
    wanted = ".".join(map(str, minimum))
    found = shutil.which("node")
    if found is None:
        raise ConfigError(f"node is not on PATH; install Node.js {wanted} or newer")
    done = _output([found, "--version"])
    match = re.match(r"v(\d+(?:\.\d+)*)", done or "")
    if match is None:
        raise ConfigError(
            f"{found}: does not tell its version ({(done or 'nothing')[:60]!r}); install Node.js {wanted}"
        )
    if _numbers(match.group(1)) < minimum:
        raise ConfigError(f"{found}: is version {match.group(1)}; install Node.js {wanted} or newer")
    return Path(os.path.realpath(found))


def _candidates(minimum: tuple[int, int]) -> Iterator[Path]:
    yield Path(sys.executable)
    for minor in range(minimum[1], NEWEST_MINOR + 1):
        found = shutil.which(f"python{minimum[0]}.{minor}")
        if found is not None:
            yield Path(found)
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    if versions.is_dir():
        for folder in sorted(versions.iterdir(), key=lambda path: _numbers(path.name)):
            if (folder / "bin" / "python").is_file():
                yield folder / "bin" / "python"


def _ask(python: Path) -> Interpreter | None:
    """What an interpreter says of itself; None if it does not run."""
    said = _output([str(python), "-I", "-c", _QUESTION])
    if said is None:
        return None
    try:
        version, prefix, _ = json.loads(said)
    except ValueError:
        return None
    binary = Path(prefix) / "bin" / f"python{version[0]}.{version[1]}"
    path = binary if binary.is_file() else python  # the one below a virtual environment
    return Interpreter(path, Path(os.path.realpath(prefix)), ".".join(map(str, version)))


def _output(command: list[str]) -> str | None:
    """What a program prints; None if it fails."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=ASK_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))
