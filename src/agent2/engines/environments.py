"""Python environments of their own, for engines and for bridges: made below the home from pinned versions, and found.

    $AGENT2_HOME/engines/NAME/       a virtual environment; the engine's pins never meet ours
    └── agent2-engine.json           its version and the digest of its pins; written last
    $AGENT2_HOME/bridges/NAME/       the same for the package behind a bridge (`benchmarks.bridges`)

Promises: an environment without its last file is not used and is made again; one whose pins are not those of this
version of agent2 is refused with the command that renews it. Two installations at once take turns.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from importlib import resources
from pathlib import Path

from agent2 import installation
from agent2.engines.catalogue import InferenceEngine
from agent2.errors import ConfigError, MachineError, first_line_of
from agent2.files import lock_file
from agent2.foreign_files import MAX_TEXT_BYTES, read_limited
from agent2.records import JsonValue

STAMP = "agent2-engine.json"
"""Of an engine."""
INSTALL_WAIT_S = 3600.0
"""For another process that installs the same engine."""
ERROR_CHARS = 300


@dataclass(frozen=True, slots=True)
class PinnedEnvironment:
    """What an environment is made from."""

    kind: str
    """What it is for, as messages say it: engine, bridge."""
    name: str
    distribution: str
    """The Python distribution whose version is the environment's."""
    pins: str
    """Exact versions, as pip reads them."""
    command: str
    """What makes it, and renews it."""
    size: str
    """How much is installed, in words."""
    stub: tuple[str, str] | None = None
    """Name and version of an empty distribution beside it."""

    @property
    def digest(self) -> str:
        """SHA-256 of pins and stub."""
        return hashlib.sha256(f"{self.pins}{self.stub}".encode()).hexdigest()

    @property
    def parent(self) -> Path:
        """Where environments of its kind are; made if missing."""
        folder = installation.home() / f"{self.kind}s"
        folder.mkdir(exist_ok=True)
        return folder


@dataclass(frozen=True, slots=True)
class InstalledEnvironment:
    """An environment that is ready."""

    name: str
    version: str
    pins_digest: str
    folder: Path
    facts: Mapping[str, JsonValue] = field(default_factory=dict)
    """What was learned of the package when it was installed."""

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"


def engines_dir() -> Path:
    """Where environments of engines are."""
    folder = installation.home() / "engines"
    folder.mkdir(exist_ok=True)
    return folder


def pinned_engine(engine: InferenceEngine) -> PinnedEnvironment:
    """The environment of an engine."""
    pins = resources.files("agent2.engines").joinpath("pins", engine.pins).read_text(encoding="utf-8")
    command = f"agent2 engines install {engine.name}"
    return PinnedEnvironment("engine", engine.name, engine.distribution, pins, command, "some gigabytes", engine.stub)


def pins_digest(engine: InferenceEngine) -> str:
    """SHA-256 of the exact versions that an engine is installed from, and of the stub."""
    return pinned_engine(engine).digest


def installed_engine(engine: InferenceEngine) -> InstalledEnvironment | None:
    """The environment of an engine; None: not installed, or not finished."""
    return installed_environment(pinned_engine(engine))


def require_engine(engine: InferenceEngine, where: str) -> InstalledEnvironment:
    """The environment of an engine. Raises ConfigError if it is missing or of other pins, with what to type."""
    return require_environment(pinned_engine(engine), where)


def install_engine(engine: InferenceEngine, on_progress: Callable[[str], None] | None = None) -> InstalledEnvironment:
    """Make the environment of an engine, or find it. Raises MachineError as `install_environment` does."""
    return install_environment(pinned_engine(engine), on_progress)


def installed_environment(pinned: PinnedEnvironment) -> InstalledEnvironment | None:
    """The environment; None: not installed, or not finished."""
    return _environment_in(pinned.parent / pinned.name, pinned)


def shown_engine(engine: InferenceEngine, folder: Path) -> InstalledEnvironment:
    """The environment of an engine where a sandbox shows it. Raises MachineError if it is not there as it should be."""
    pinned = pinned_engine(engine)
    ready = _environment_in(folder, pinned)
    if ready is None or ready.pins_digest != pinned.digest:
        raise MachineError(f"engine {engine.name}: {folder} is not its environment; {pinned.command}")
    return ready


def _environment_in(folder: Path, pinned: PinnedEnvironment) -> InstalledEnvironment | None:
    try:
        stamp = json.loads(read_limited(folder / _stamp_name(pinned), MAX_TEXT_BYTES, follow=True))
        digest, facts = str(stamp["pins_digest"]), dict(stamp.get("facts") or {})
        ready = InstalledEnvironment(pinned.name, str(stamp["version"]), digest, folder, facts)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    return ready if ready.python.exists() else None


def require_environment(pinned: PinnedEnvironment, where: str) -> InstalledEnvironment:
    """The environment. Raises ConfigError if it is missing or of other pins, with what to type."""
    ready = installed_environment(pinned)
    if ready is None:
        raise ConfigError(f"{where}: {pinned.kind} {pinned.name} is not installed; {pinned.command}")
    if ready.pins_digest != pinned.digest:
        raise ConfigError(
            f"{where}: {pinned.kind} {pinned.name} {ready.version} is of another version of agent2; {pinned.command}"
        )
    return ready


def install_environment(
    pinned: PinnedEnvironment,
    on_progress: Callable[[str], None] | None = None,
    learn: Callable[[InstalledEnvironment], Mapping[str, JsonValue]] | None = None,
) -> InstalledEnvironment:
    """Make an environment, or find it.

    learn: tries it and says what to remember of it. Raises MachineError with pip's last line if that fails, and what
    `learn` raises; what was made is removed then.
    """
    on_progress = on_progress or (lambda message: None)
    folder = pinned.parent / pinned.name
    with (pinned.parent / f".{pinned.name}.lock").open("w") as lock:
        lock_file(lock.fileno(), INSTALL_WAIT_S)
        ready = installed_environment(pinned)
        if ready is not None and ready.pins_digest == pinned.digest:
            return ready
        shutil.rmtree(folder, ignore_errors=True)
        try:
            on_progress("making the environment")
            _run([sys.executable, "-m", "venv", str(folder)], pinned)
            python = str(folder / "bin" / "python")
            pins = folder / "pins.txt"
            pins.write_text(pinned.pins, encoding="utf-8")
            on_progress(f"installing the pinned packages, {pinned.size}")
            # Every package is in the list: what they ask for beside it (torchvision, torchaudio) must stay out.
            _run([python, "-m", "pip", "install", "--no-deps", "--no-input", "-r", str(pins)], pinned)
            _write_stub(pinned, python)
            version = _run([python, "-c", _VERSION.format(name=pinned.distribution)], pinned).strip()
            ready = InstalledEnvironment(pinned.name, version, pinned.digest, folder)
            facts = dict(learn(ready)) if learn is not None else {}
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        stamp = {"name": pinned.name, "version": version, "pins_digest": pinned.digest, "facts": facts}
        draft = folder / f"{_stamp_name(pinned)}.part"
        draft.write_text(json.dumps(stamp), encoding="utf-8")
        draft.rename(folder / _stamp_name(pinned))
        return InstalledEnvironment(pinned.name, version, pinned.digest, folder, facts)


def _stamp_name(pinned: PinnedEnvironment) -> str:
    return f"agent2-{pinned.kind}.json"


_VERSION = "from importlib.metadata import version; print(version({name!r}))"
_SITE = "import sysconfig; print(sysconfig.get_path('purelib'))"


def _write_stub(pinned: PinnedEnvironment, python: str) -> None:
    """An empty distribution by whose version the package chooses its library."""
    if pinned.stub is None:
        return
    name, version = pinned.stub
    folder = Path(_run([python, "-c", _SITE], pinned).strip()) / f"{name}-{version}.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")
    (folder / "INSTALLER").write_text("agent2\n", encoding="utf-8")
    (folder / "RECORD").write_text("", encoding="utf-8")


def _run(command: list[str], pinned: PinnedEnvironment) -> str:
    """What a command prints. Raises MachineError with the last line of its errors."""
    unset = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PIP_TARGET", "PIP_USER")
    variables = {name: value for name, value in os.environ.items() if name not in unset}
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=variables)
    except OSError as error:
        raise MachineError(
            f"{pinned.kind} {pinned.name}: {command[0]} cannot be run ({first_line_of(error)})"
        ) from error
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith("[notice]")]
        errors = [line for line in lines if line.startswith("ERROR")] or lines or ["no message"]
        raise MachineError(
            f"{pinned.kind} {pinned.name} cannot be installed: {errors[-1][:ERROR_CHARS]}; nothing is left behind: "
            "check the package index that pip uses (PIP_INDEX_URL, PIP_EXTRA_INDEX_URL) and the free disk, and repeat "
            "the command"
        )
    return done.stdout


def environment_facts(ready: InstalledEnvironment) -> dict[str, str]:
    """Name, version, digest of the pins, folder."""
    return {name: str(value) for name, value in asdict(ready).items() if name != "facts"}
