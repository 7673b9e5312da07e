"""The Python environments of engines: made below the installation's home from pinned versions, found, and removed.

    $AGENT2_HOME/engines/NAME/       a virtual environment; the engine's pins never meet ours
    └── agent2-engine.json           its version and the digest of its pins; written last

Promises: an environment without its last file is not used and is made again; one whose pins are not those of this
version of agent2 is refused with the command that renews it. Two installations at once take turns.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path

from agent2 import installation
from agent2.engines.catalogue import InferenceEngine
from agent2.errors import ConfigError, MachineError, first_line_of
from agent2.files import lock_file
from agent2.foreign_files import MAX_TEXT_BYTES, read_limited

STAMP = "agent2-engine.json"
INSTALL_WAIT_S = 3600.0
"""For another process that installs the same engine."""
ERROR_CHARS = 300


@dataclass(frozen=True, slots=True)
class InstalledEngine:
    """An environment that is ready."""

    name: str
    version: str
    pins_digest: str
    folder: Path

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"


def engines_dir() -> Path:
    """Where environments are."""
    folder = installation.home() / "engines"
    folder.mkdir(exist_ok=True)
    return folder


def pins_text(engine: InferenceEngine) -> str:
    """The exact versions that an engine is installed from."""
    return resources.files("agent2.engines").joinpath("pins", engine.pins).read_text(encoding="utf-8")


def pins_digest(engine: InferenceEngine) -> str:
    """SHA-256 of them, and of the stub."""
    return hashlib.sha256(f"{pins_text(engine)}{engine.stub}".encode()).hexdigest()


def installed_engine(engine: InferenceEngine) -> InstalledEngine | None:
    """The environment of an engine; None: not installed, or not finished."""
    folder = engines_dir() / engine.name
    try:
        stamp = json.loads(read_limited(folder / STAMP, MAX_TEXT_BYTES, follow=True))
        ready = InstalledEngine(engine.name, str(stamp["version"]), str(stamp["pins_digest"]), folder)
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return ready if ready.python.exists() else None


def require_engine(engine: InferenceEngine, where: str) -> InstalledEngine:
    """The environment of an engine. Raises ConfigError if it is missing or of other pins, with what to type."""
    ready = installed_engine(engine)
    command = f"agent2 engines install {engine.name}"
    if ready is None:
        raise ConfigError(f"{where}: engine {engine.name} is not installed; {command}")
    if ready.pins_digest != pins_digest(engine):
        raise ConfigError(f"{where}: engine {engine.name} {ready.version} is of another version of agent2; {command}")
    return ready


def install_engine(engine: InferenceEngine, on_progress: Callable[[str], None] | None = None) -> InstalledEngine:
    """Make the environment of an engine, or find it.

    Raises MachineError with pip's last line if that fails; what was made is removed then.
    """
    on_progress = on_progress or (lambda message: None)
    folder = engines_dir() / engine.name
    with (engines_dir() / f".{engine.name}.lock").open("w") as lock:
        lock_file(lock.fileno(), INSTALL_WAIT_S)
        ready = installed_engine(engine)
        if ready is not None and ready.pins_digest == pins_digest(engine):
            return ready
        shutil.rmtree(folder, ignore_errors=True)
        try:
            on_progress("making the environment")
            _run([sys.executable, "-m", "venv", str(folder)], engine)
            python = str(folder / "bin" / "python")
            pins = folder / "pins.txt"
            pins.write_text(pins_text(engine), encoding="utf-8")
            on_progress("installing the pinned packages, some gigabytes")
            # Every package is in the list: what they ask for beside it (torchvision, torchaudio) must stay out.
            _run([python, "-m", "pip", "install", "--no-deps", "--no-input", "-r", str(pins)], engine)
            _write_stub(engine, python)
            version = _run([python, "-c", _VERSION.format(name=engine.distribution)], engine).strip()
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        stamp = {"name": engine.name, "version": version, "pins_digest": pins_digest(engine)}
        (folder / f"{STAMP}.part").write_text(json.dumps(stamp), encoding="utf-8")
        (folder / f"{STAMP}.part").rename(folder / STAMP)
        return InstalledEngine(engine.name, version, stamp["pins_digest"], folder)


_VERSION = "from importlib.metadata import version; print(version({name!r}))"
_SITE = "import sysconfig; print(sysconfig.get_path('purelib'))"


def _write_stub(engine: InferenceEngine, python: str) -> None:
    """An empty distribution by whose version the engine chooses its library."""
    if engine.stub is None:
        return
    name, version = engine.stub
    folder = Path(_run([python, "-c", _SITE], engine).strip()) / f"{name}-{version}.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")
    (folder / "INSTALLER").write_text("agent2\n", encoding="utf-8")
    (folder / "RECORD").write_text("", encoding="utf-8")


def _run(command: list[str], engine: InferenceEngine) -> str:
    """What a command prints. Raises MachineError with the last line of its errors."""
    unset = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PIP_TARGET", "PIP_USER")
    variables = {name: value for name, value in os.environ.items() if name not in unset}
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=variables)
    except OSError as error:
        raise MachineError(f"engine {engine.name}: {command[0]} cannot be run ({first_line_of(error)})") from error
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith("[notice]")]
        errors = [line for line in lines if line.startswith("ERROR")] or lines or ["no message"]
        raise MachineError(
            f"engine {engine.name} cannot be installed: {errors[-1][:ERROR_CHARS]}; nothing is left behind: check the "
            "package index that pip uses (PIP_INDEX_URL, PIP_EXTRA_INDEX_URL) and the free disk, and repeat the command"
        )
    return done.stdout


def environment_facts(ready: InstalledEngine) -> dict[str, str]:
    """Name, version, digest of the pins, folder."""
    return {name: str(value) for name, value in asdict(ready).items()}
