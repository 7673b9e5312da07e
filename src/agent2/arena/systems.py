"""Agent systems: installs each at its pinned version, finds the installed ones, and says how one is started in a trial.

    $AGENT2_HOME/agents/NAME/VERSION/
    ├── manifest.json   what was installed, how, and the digest of the tree
    └── tree/           node_modules/, or a virtual environment

Installing is the only place in the arena that uses the network. The system is built in a folder beside the final one,
asked for its version inside the sandbox, and only then moved into place, so a folder appears whole or not at all. npm
runs no script of any package; pip takes wheels (source only where agent.yaml names the package) and installs into a
virtual environment. What is run is what was installed: names, sizes and contents of all files of the tree are
compared before each trial. Does NOT check signatures: what a registry serves under a version is trusted, and its
digest is recorded.

A launch has these fields, in the words of `command`, the values of `environment` and the texts of `files`:

    {{llm_url}} {{llm_key}} {{model}}   the gateway as seen inside, the trial's dummy key, the driver's name
    {{prompt}} {{prompt_file}}          the one prompt for all agent systems: its text; a file that holds it
    {{workspace}} {{home}} {{agent}}    folders inside; `home` is the agent's own and starts with `files` only
    {{installed}} {{program}}           the installed system's folder; its program (words for `command`: `program`
                                        may become several of them, so it must be a word of its own)

No real key is known here. Files of the launch are written to a folder of the trial by `LaunchPlan.write`, are bound
read-only and are copied to the agent's home before its program starts.
"""

import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path, PurePosixPath

import jinja2
import jinja2.sandbox
from pydantic import ValidationError

from agent2 import installation
from agent2.arena.agents import Agent, InstallSpec, NpmPackage, PythonPackage, agent_names, program_path
from agent2.arena.assignment import UNSANDBOXED, InsidePaths, TrialConfig
from agent2.config import StrictModel
from agent2.errors import ConfigError
from agent2.sandbox.backends import Sandbox, find_sandbox
from agent2.sandbox.spec import HOME, Mount, SandboxSpec

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
    """Command line of the program; {tree} is the folder of the tree."""
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
            f"{found}: does not print its version ({(done or 'nothing')[:60]!r}); install Node.js {wanted}"
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


INSTALL_TIMEOUT_S = 1800.0
VERSION_TIMEOUT_S = 120.0
ABANDONED_S = 4 * INSTALL_TIMEOUT_S
"""A draft that is older belongs to no installer that still works."""
KEPT_OUTPUT = 2000
_TELLING = re.compile(r"\berror|\bconflict is|depends on|requested", re.IGNORECASE)
"""Lines of npm and pip that say why they failed."""

OnInstallProgress = Callable[[str], None]
"""Told in a few words what is being done."""


@dataclass(frozen=True, slots=True)
class InstallOptions:
    """What the user may choose about an installation."""

    npm: str = "npm"
    """Name or path of npm."""
    python: Path | None = None
    """Interpreter for Python systems; None: the nearest one that is new enough."""
    sandbox: str | None = None
    """Where the program is asked for its version; None: the default sandbox."""


def install_system(agent: Agent, options: InstallOptions, on_progress: OnInstallProgress) -> InstalledSystem:
    """Install the pinned version of an agent's system, or find it installed and unchanged.

    Raises ConfigError naming what is missing on this machine, what the registry said, or a version that is not the
    pinned one; SandboxError if the sandbox does not work here.
    """
    install = agent.spec.install
    if install is None:
        raise ConfigError(f"agent {agent.spec.name}: has nothing to install; it runs without installation")
    present = find_installed(agent)
    if present is not None and tree_digest(present.tree) == present.digest:
        return present
    folder = system_folder(agent.spec.name, install.version)
    folder.parent.mkdir(parents=True, exist_ok=True)
    _clear_abandoned(folder.parent)
    draft = Path(tempfile.mkdtemp(prefix=f".{install.version}-", dir=folder.parent))
    try:
        _build(agent, install, draft, options, on_progress)
        if present is not None or folder.exists():
            shutil.rmtree(folder)  # damaged, or without a manifest
        try:
            draft.rename(folder)
        except OSError:
            if find_installed(agent) is None:  # else another process was first
                raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    installed = find_installed(agent)
    if installed is None:
        raise ConfigError(f"{folder}: is gone again; another process removed it, install once more")
    return installed


def _clear_abandoned(folder: Path) -> None:
    """Remove what an installer left that was killed."""
    for draft in folder.glob(".*"):
        if time.time() - draft.stat().st_mtime > ABANDONED_S:
            shutil.rmtree(draft, ignore_errors=True)


def _build(
    agent: Agent, install: InstallSpec, draft: Path, options: InstallOptions, on_progress: OnInstallProgress
) -> None:
    """Everything below the draft folder, the manifest last."""
    started = time.monotonic()
    tree = draft / TREE
    tree.mkdir()
    source = install.source
    on_progress(f"installing {source.package} {source.version}")
    if isinstance(source, NpmPackage):
        program, runtime, installer = _install_npm(source, tree, options)
    else:
        program, runtime, installer = _install_python(agent, source, tree, options)
    _make_readable(draft)
    on_progress(f"{source.package}: asking it for its version")
    manifest = InstallManifest(
        name=agent.spec.name,
        package=source.package,
        version=source.version,
        program=program,
        said="",
        digest=tree_digest(tree),
        size_mib=round(sum(path.lstat().st_size for path in tree.rglob("*") if not path.is_dir()) / 2**20, 1),
        runtime=runtime,
        installer=installer,
        seconds=round(time.monotonic() - started, 1),
    )
    said = ask_version(agent, InstalledSystem(manifest, draft), find_sandbox(options.sandbox))
    if not re.search(install.version_pattern, said):
        raise ConfigError(
            f"{source.package} {source.version}: asked for its version it says {said[-200:]!r}, which does not match "
            f"{install.version_pattern!r}; fix `install` in {agent.folder / 'agent.yaml'}"
        )
    final = manifest.model_copy(update={"said": said[:KEPT_OUTPUT]})
    (draft / MANIFEST).write_text(json.dumps(final.model_dump(mode="json"), indent=2) + "\n", encoding="utf-8")
    (draft / MANIFEST).chmod(0o644)


def ask_version(agent: Agent, system: InstalledSystem, sandbox: Sandbox) -> str:
    """What the installed program prints when it is asked for its version, in the sandbox and without network.

    Raises ConfigError if it does not end in time or prints nothing.
    """
    install = agent.spec.install
    arguments = install.version_arguments if install is not None else []
    fixed = {name: value for name, value in agent.spec.environment.items() if "{{" not in value}
    with tempfile.TemporaryDirectory(prefix="agent2-version-") as place:
        workspace, log = Path(place) / "workspace", Path(place) / "log"
        Path(place).chmod(0o755)
        sandbox.prepare_workspace(workspace)
        mounts, program = system_mounts(system, sandbox)
        process = sandbox.start(
            SandboxSpec(command=(*program, *arguments), workspace=workspace, log=log, mounts=mounts, environment=fixed)
        )
        ended = process.wait(VERSION_TIMEOUT_S)
        process.stop(1.0)
        said = log.read_text(encoding="utf-8", errors="replace").strip()
    if ended is None or not said:
        problem = "did not end" if ended is None else f"printed nothing ({ended.reason})"
        raise ConfigError(
            f"{system.manifest.package} {system.manifest.version}: {' '.join(program[-2:])} {' '.join(arguments)} "
            f"{problem} after {VERSION_TIMEOUT_S:g} s at most; check that this machine can run it"
        )
    return said


def _install_npm(package: NpmPackage, tree: Path, options: InstallOptions) -> tuple[list[str], list[str], str]:
    """Returns program, runtime and installer for the manifest."""
    inside = program_path(package)
    node = find_node(package.needs_node) if package.needs_node is not None else None
    npm = shutil.which(options.npm)
    if npm is None:
        raise ConfigError(
            f"{package.package}: {options.npm} is not on PATH, npm is needed to install it; install Node.js 20 or newer"
        )
    words = [npm, "install", "--prefix", str(tree), "--ignore-scripts", "--no-audit", "--no-fund", "--save-exact"]
    _run([*words, "--loglevel=error", f"{package.package}@{package.version}"], tree, package.package)
    if not (tree / "node_modules" / inside).is_file():
        raise ConfigError(
            f"{package.package} {package.version}: contains no {inside}; its optional package for this machine may be "
            "missing from the registry, or `install.npm.program` in agent.yaml is wrong"
        )
    version = _run([npm, "--version"], tree, package.package).strip()
    program = f"{{tree}}/node_modules/{inside}"
    if node is None:
        return [program], [], f"npm {version}"
    return [str(node), program], [str(node)], f"npm {version}"


def _install_python(
    agent: Agent, package: PythonPackage, tree: Path, options: InstallOptions
) -> tuple[list[str], list[str], str]:
    """Returns program, runtime and installer for the manifest."""
    interpreter: Interpreter = find_interpreter(package.python, options.python, package.package)
    _run([str(interpreter.path), "-m", "venv", str(tree)], tree, package.package)
    python = str(tree / "bin" / "python")
    words = [python, "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
    words += ["--only-binary", ":all:"]
    words += [word for name in package.without_wheel for word in ("--no-binary", name)]
    if package.constraints is not None:
        words += ["--constraint", str(agent.folder / package.constraints)]
    _run([*words, f"{package.package}=={package.version}", *package.requirements], tree, package.package)
    version = _run([python, "-m", "pip", "--version"], tree, package.package).split(" from ")[0]
    words = ["{tree}/bin/python", "-I", "-m", package.module]
    return words, [str(interpreter.prefix)], f"{version}, Python {interpreter.version}"


def _run(command: Sequence[str], folder: Path, package: str) -> str:
    """Run a tool of the installation. Raises ConfigError with the last words of one that fails."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=INSTALL_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ConfigError(
            f"{package}: {Path(command[0]).name} did not end within {INSTALL_TIMEOUT_S:g} s; check the network"
        ) from error
    if done.returncode != 0:
        said = (done.stdout + done.stderr).splitlines()
        told = [line.strip() for line in said if _TELLING.search(line)] or said[-1:] or ["nothing"]
        raise ConfigError(
            f"{package}: {Path(command[0]).name} failed with status {done.returncode} and said: "
            f"{' | '.join(told)[:600]}; check the network, the registry and the pinned version"
        )
    return done.stdout


def _make_readable(folder: Path) -> None:
    """The sandboxed program reads it as another user."""
    for place, names, files in os.walk(folder):
        os.chmod(place, os.stat(place).st_mode | 0o055)
        for name in (*names, *files):
            path = os.path.join(place, name)
            if not os.path.islink(path) and name in files:
                mode = os.stat(path).st_mode
                os.chmod(path, mode | 0o044 | (0o011 if mode & 0o100 else 0))


LAUNCH = "/launch"
"""Where the files of the launch are inside."""

_COPY_HOME = 'cp -R "$1/." "$HOME" && shift && exec "$@"'

_engine = jinja2.sandbox.ImmutableSandboxedEnvironment(
    undefined=jinja2.StrictUndefined, keep_trailing_newline=True, autoescape=False
)


@dataclass(frozen=True, slots=True)
class LlmInside:
    """The LLM as the agent sees it."""

    url: str
    """Origin of the gateway, as http://127.0.0.1:8001; without a path."""
    key: str
    """The trial's dummy key; worth nothing outside the trial."""
    model: str
    """The driver's name for its provider."""


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """All that starting an agent needs beyond the assignment."""

    command: tuple[str, ...]
    environment: dict[str, str]
    home_files: dict[str, str]
    """Path below the agent's home -> text."""
    mounts: tuple[Mount, ...]
    """Beside the agent's own folder: the installed system and the folder of the launch."""
    folder: Path
    """Host folder of the launch's files."""
    prompt: str

    def write(self) -> None:
        """Write the launch's files, readable for the sandboxed program; replaces an earlier launch's."""
        if self.folder.exists():
            shutil.rmtree(self.folder)
        home = self.folder / "home"
        home.mkdir(parents=True)
        (self.folder / "prompt.md").write_text(self.prompt, encoding="utf-8")
        for name, text in self.home_files.items():
            path = home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        for path in (self.folder, *self.folder.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)


def launch_plan(
    agent: Agent, config: TrialConfig, inside: InsidePaths, llm: LlmInside | None, folder: Path
) -> LaunchPlan:
    """How this agent is started; touches no file. Call `write` on the result before the sandbox starts.

    folder: where the launch's files will be on the host; made by `write`.
    Raises ConfigError if the agent needs an LLM and there is none, if its system is not installed or was changed
    since, or for a template field that does not exist.
    """
    spec = agent.spec
    if spec.llm is not None and llm is None:
        raise ConfigError(f"agent {spec.name} is driven by an LLM; pass one with --driver, as in --driver openai/gpt-5")
    sandbox = find_sandbox(config.sandbox)
    system = require_installed(agent) if spec.install is not None else None
    # without a sandbox HOME would be the user's own folder
    home = sandbox.visible_path(folder / "home", f"{LAUNCH}/home") if config.sandbox == UNSANDBOXED else HOME
    prompt = _prompt(inside)
    fields: dict[str, object] = {
        "prompt": prompt,
        "prompt_file": sandbox.visible_path(folder / "prompt.md", f"{LAUNCH}/prompt.md"),
        "workspace": inside.workspace,
        "home": home,
        "agent": inside.agent,
    }
    if llm is not None:
        fields |= {"llm_url": llm.url, "llm_key": llm.key, "model": llm.model}
    mounts = [Mount(folder, LAUNCH)]
    program: tuple[str, ...] = ()
    if system is not None:
        shown, program = system_mounts(system, sandbox)
        fields["installed"] = sandbox.visible_path(system.tree, INSIDE)
        mounts += shown
    fill = _Filler(f"agent {spec.name}", fields)
    command = _command(spec.command, program, fill)
    environment = fill.all("environment", spec.environment)
    home_files = fill.all("files", {_inside_home(name): text for name, text in spec.files.items()})
    if config.sandbox == UNSANDBOXED:
        if spec.llm is not None or home_files:
            environment["HOME"] = home
    elif home_files:
        command = ("sh", "-c", _COPY_HOME, "sh", f"{LAUNCH}/home", *command)
    return LaunchPlan(command, environment, home_files, tuple(mounts), folder, prompt)


def _prompt(inside: InsidePaths) -> str:
    """The one prompt that every agent system gets."""
    template = (resources.files("agent2.arena") / "prompts" / "agent_prompt.md").read_text(encoding="utf-8")
    return _engine.from_string(template).render(inside=inside).strip() + "\n"


def _command(words: list[str], program: tuple[str, ...], fill: "_Filler") -> tuple[str, ...]:
    filled: list[str] = []
    for word in words:
        if word.replace(" ", "") == "{{program}}" and program:
            filled += program
        else:
            filled.append(fill("command", word))
    return tuple(filled)


def _inside_home(name: str) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise ConfigError(
            f"files: {name!r} leads out of the home folder; write it relative to it, as .tool/config.json"
        )
    return str(path)


class _Filler:
    """Fills in template fields; knows whose they are, for the message."""

    def __init__(self, where: str, fields: Mapping[str, object]) -> None:
        self._where, self._fields = where, fields

    def __call__(self, part: str, text: str) -> str:
        try:
            return _engine.from_string(text).render(self._fields)
        except jinja2.TemplateError as error:
            raise ConfigError(
                f"{self._where}: {part}: {text[:80]!r} cannot be filled in ({error}); "
                f"fields: {', '.join(sorted(self._fields))}"
            ) from error

    def all(self, part: str, texts: Mapping[str, str]) -> dict[str, str]:
        return {name: self(f"{part}: {name}", text) for name, text in texts.items()}
