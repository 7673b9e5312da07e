"""Records of a sandbox: the program to run, its limits and network policy, what a sandbox promises, how a run ended.

Nothing here changes the host. Paths named `inside` are paths as the program sees them.

Under the network policy `packages`, each registry is one origin and one path prefix of it, offered inside below
/<name>/ of a loopback port. Links to the origins in index pages are rewritten to that port, so that pip, uv and npm
work as they are. Anything else does not exist: no upload, no other host, no redirect to one.
"""

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator

from agent2.errors import SandboxError

WORKSPACE = "/workspace"
"""Where the workspace appears in a sandbox, and the directory in which the program starts."""
HOME = "/home/agent"
"""The program's home: empty, in memory, gone at the end."""
PRIVATE = "/run/agent2"
"""The sandbox's own folder: the forwarder and the sockets behind the ports."""
GIB = 2**30
MIB = 2**20
HOST_DISK = "host disk"
BASE_ENVIRONMENT: Mapping[str, str] = {
    "HOME": HOME,
    "LANG": "C.UTF-8",
    "LOGNAME": "agent",
    "SHELL": "/bin/sh",
    "TMPDIR": "/tmp",
    "USER": "agent",
}
"""Set in every sandbox, beside PATH and PWD; a spec may override them."""


class Settings(BaseModel):
    """Base of the records that cross a file or process boundary: no unknown keys, no changes."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Registry(Settings):
    """One allowed source of packages."""

    name: str = Field(pattern=r"^[a-z][a-z0-9-]{0,31}$")
    """First part of its path inside."""
    origin: str
    """Scheme, host and port, as https://pypi.org."""
    prefix: str = "/"
    """Paths of the origin that may be read; begins and ends with a slash."""
    is_index: bool = False
    """Its text and JSON pages contain links to files, which are rewritten; other answers pass unchanged."""

    @field_validator("origin")
    @classmethod
    def _is_an_origin(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.path or parts.query or parts.username:
            raise ValueError("write scheme and host only, as https://pypi.org")
        return value

    @field_validator("prefix")
    @classmethod
    def _is_a_prefix(cls, value: str) -> str:
        if not value.startswith("/") or not value.endswith("/") or ".." in value:
            raise ValueError("begin and end with a slash, without '..'")
        return value


DEFAULT_REGISTRIES: tuple[Registry, ...] = (
    Registry(name="pypi", origin="https://pypi.org", prefix="/simple/", is_index=True),
    Registry(name="pypi-files", origin="https://files.pythonhosted.org", prefix="/packages/"),
    Registry(name="npm", origin="https://registry.npmjs.org", prefix="/", is_index=True),
)
"""The Python package index with its files, and npm."""


class PackageSettings(Settings):
    """What the package proxy allows; the `packages` part of a trial's configuration."""

    registries: tuple[Registry, ...] = DEFAULT_REGISTRIES
    max_file_mib: float = Field(default=512.0, gt=0)
    """Largest single answer."""
    max_total_gib: float = Field(default=8.0, gt=0)
    """All answers together."""
    timeout_s: float = Field(default=60.0, gt=0)
    """Longest silence of a registry."""

    @field_validator("registries")
    @classmethod
    def _have_different_names(cls, value: tuple[Registry, ...]) -> tuple[Registry, ...]:
        names = [registry.name for registry in value]
        if len(set(names)) < len(names):
            raise ValueError(f"names are not unique: {', '.join(names)}")
        return value


class ProxyLaunch(Settings):
    """What the process of the package proxy reads first."""

    socket: Path
    record: Path
    """Lines of JSON; appended."""
    base: str
    """Address of the port inside, without a slash at the end."""
    settings: PackageSettings


@dataclass(frozen=True, slots=True)
class Target:
    """Where a request goes."""

    registry: Registry
    url: str


def find_target(path: str, query: str, registries: Sequence[Registry]) -> Target | str:
    """The allowed address that a path inside leads to, or one sentence why there is none.

    path, query: still percent-encoded, as sent.
    """
    _, _, remainder = path.partition("/")
    name, _, tail = remainder.partition("/")
    registry = next((registry for registry in registries if registry.name == name), None)
    if registry is None:
        return f"no registry {name!r} is allowed; there are {', '.join(registry.name for registry in registries)}"
    decoded = unquote(tail)  # only to look: the path is passed on as it was sent
    if ".." in decoded.split("/") or "\\" in decoded:
        return "the path leaves its folder"
    url = f"{registry.origin}{registry.prefix}{tail}"
    return Target(registry, f"{url}?{query}" if query else url)


def inside_address(url: str, base: str, registries: Sequence[Registry]) -> str | None:
    """The address inside that leads to `url`; None if no registry allows it. `base`: of the port inside."""
    for registry in registries:
        start = f"{registry.origin}{registry.prefix}"
        if url.startswith(start):
            return f"{base}/{registry.name}/{url[len(start) :]}"
    return None


def rewrite_links(page: bytes, base: str, registries: Sequence[Registry]) -> bytes:
    """A page of an index whose links to allowed addresses lead to the port inside."""
    # the longest first: one registry's prefix may begin with another's
    for registry in sorted(registries, key=lambda registry: len(registry.origin + registry.prefix), reverse=True):
        page = page.replace(f"{registry.origin}{registry.prefix}".encode(), f"{base}/{registry.name}/".encode())
    return page


def package_environment(base: str, registries: Sequence[Registry], cache: Path) -> dict[str, str]:
    """Variables that point pip, uv and npm to the port inside, for registries with the names of the default ones."""
    names = {registry.name for registry in registries}
    variables: dict[str, str] = {}
    if "pypi" in names:
        index = f"{base}/pypi/"
        variables |= {
            "PIP_INDEX_URL": index,
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_CACHE_DIR": str(cache / "pip"),
            "UV_DEFAULT_INDEX": index,
            "UV_CACHE_DIR": str(cache / "uv"),
        }
    if "npm" in names:
        variables |= {
            "npm_config_registry": f"{base}/npm/",
            "npm_config_update_notifier": "false",
            "npm_config_fund": "false",
            "npm_config_audit": "false",
            "npm_config_cache": str(cache / "npm"),
        }
    return variables


@dataclass(frozen=True, slots=True)
class Mount:
    """One host file or folder that the program may see."""

    host: Path
    inside: str
    writable: bool = False
    covers: bool = False
    """Shown in place of a folder that the sandbox shows anyway, which may be below /usr, /tmp or the home folder."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one program may use; `Sandbox.containment` says how strongly each number holds."""

    memory_gib: float = 8.0
    """Of all its processes together."""
    processes: int = 512
    """Processes and threads together."""
    file_size_gib: float = 8.0
    """Largest single file."""
    disk_gib: float = 20.0
    """All that the workspace holds."""
    tmp_gib: float = 2.0
    """Each of /tmp, the home folder and /dev/shm; kept in memory."""
    log_mib: float = 64.0
    """Kept of what the program prints: the beginning and the end."""
    open_files: int = 4096
    """Descriptors of one process."""

    def __post_init__(self) -> None:
        """Raises SandboxError for a limit that is not positive."""
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if not value > 0:
                raise SandboxError(f"limit {name} is {value}; give a number above 0")


class Network(StrEnum):
    """What a program may reach beside the ports of its spec."""

    NONE = "none"
    """Nothing."""
    PACKAGES = "packages"
    """Package registries on an allow-list, through a proxy outside that records what it fetched."""
    OPEN = "open"
    """Any public host, through a proxy outside that records hosts, not contents; reports flag it."""


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """One program to run."""

    command: tuple[str, ...]
    """Program and arguments; the program is looked up in the inside PATH."""
    workspace: Path
    """Host folder: the only one that the program may write and that outlives it."""
    log: Path
    """Host file for what the program prints; replaced."""
    mounts: tuple[Mount, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to the few variables that every sandbox sets (`BASE_ENVIRONMENT`); nothing is inherited."""
    ports: Mapping[int, Path] = field(default_factory=dict)
    """Loopback port inside -> unix socket on the host; the only ways out. The socket must exist already."""
    limits: Limits = field(default_factory=Limits)
    python: bool = True
    """Bind the running interpreter, its packages and this package, read-only, and put them first in PATH."""
    hidden: tuple[Path, ...] = ()
    """Host paths that must stay out of reach: a mount that would show one is refused."""
    stdin: bytes = b""
    """All of the program's standard input."""
    capture_bytes: int | None = None
    """Keep standard output apart from the log, up to so many bytes; None: it goes to the log."""
    channel: socket.socket | None = None
    """Standard input and output, in place of `stdin` and the log; duplicated, so the caller closes it."""
    network: Network = Network.NONE
    """What it may reach beside its ports."""
    packages: PackageSettings | None = None
    """Of the policy `packages`; None: the Python package index and npm."""
    network_log: Path | None = None
    """Host file, appended, for what was fetched; None: beside the log, with .network.jsonl at the end of its name."""
    gpus: tuple[int, ...] = ()
    """Numbers of the GPUs that it may use, as /dev/nvidia<number> counts them; no other can be seen."""


class Strength(StrEnum):
    """How far a limit can be trusted."""

    HARD = "hard"
    """The kernel refuses; the program cannot pass it."""
    SOFT = "soft"
    """Checked every now and then; a fast program passes it for a moment and is then stopped."""
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Containment:
    """One promise of a sandbox, for the report."""

    aspect: str
    """What it is about: "network", "memory"."""
    strength: Strength
    how: str
    """By which means, with the limit."""


@dataclass(frozen=True, slots=True)
class SandboxExit:
    """How a program ended."""

    code: int
    """Its exit status; 128 + n when signal n ended it."""
    broke: str | None
    """The limit it ran into: memory, disk, processes, file size or watch; None if it met none.

    `HOST_DISK`: it kept within its limits, and the machine ran out of what it was promised.
    """
    reason: str
    """One sentence."""


def check_spec(spec: SandboxSpec) -> None:
    """Refuse a spec that no back end can run.

    Raises SandboxError naming the part that is wrong.
    """
    if not spec.command:
        raise SandboxError("the sandbox was given an empty command; pass a program")
    if not spec.workspace.is_dir():
        raise SandboxError(f"workspace {spec.workspace} is not a directory; create it before the program starts")
    for mount in spec.mounts:
        _check_mount(mount, spec.hidden)
    for port, server in spec.ports.items():
        if not 1024 <= port <= 65535:
            raise SandboxError(f"port {port} cannot be offered inside; choose one of 1024-65535")
        if not server.is_socket():
            raise SandboxError(f"port {port}: {server} is not a unix socket; start its server before the program")
    if spec.capture_bytes is not None and spec.capture_bytes < 1:
        raise SandboxError(f"capture_bytes is {spec.capture_bytes}; give a number above 0, or None for the log")
    if len(set(spec.gpus)) < len(spec.gpus) or any(number < 0 for number in spec.gpus):
        raise SandboxError(f"GPUs {list(spec.gpus)}: name each once, by a number from 0 on")
    for name, value in spec.environment.items():
        if not name or "=" in name or "\0" in name + value:
            raise SandboxError(f"environment variable {name!r} is not usable; fix its name or value")


def refuse_hidden(host: Path, hidden: tuple[Path, ...]) -> None:
    """Refuse to show `host` if it contains a hidden path.

    Raises SandboxError.
    """
    resolved = host.resolve()
    for secret in hidden:
        if secret.resolve().is_relative_to(resolved):
            raise SandboxError(f"binding {resolved} would show {secret} to the program; move one of them elsewhere")


def _check_mount(mount: Mount, hidden: tuple[Path, ...]) -> None:
    inside = PurePosixPath(mount.inside)
    if not inside.is_absolute() or ".." in inside.parts or len(inside.parts) < 2:
        raise SandboxError(f"mount {mount.host}: {mount.inside!r} is not an absolute path inside; write it as /name")
    of_toolkit = () if mount.covers else ("/usr", "/tmp", HOME)  # where Python or a virtual environment may be
    for reserved in (WORKSPACE, PRIVATE, "/proc", "/dev", "/sys", "/etc", *of_toolkit):
        if inside.is_relative_to(reserved):
            raise SandboxError(
                f"mount {mount.host}: {mount.inside} is inside {reserved}, which is taken; choose another"
            )
    if not mount.host.exists():
        raise SandboxError(f"mount {mount.inside}: {mount.host} does not exist; create it first")
    refuse_hidden(mount.host, hidden)


def common_rows(
    limits: Limits, network: Network, gpus: tuple[int, ...], disk: Containment | None = None
) -> list[Containment]:
    """Network, environment, disk, file size, descriptors, and GPUs if there are any."""
    in_memory = f"/tmp, {HOME} and /dev/shm: {limits.tmp_gib:g} GiB each, hard"
    soft = Containment("disk", Strength.SOFT, f"watchdog at {limits.disk_gib:g} GiB of workspace; {in_memory}")
    rows = [
        network_row(network),
        Containment("environment", Strength.HARD, "cleared; allow-list"),
        disk or soft,
        Containment("file size", Strength.HARD, f"RLIMIT_FSIZE {limits.file_size_gib:g} GiB"),
        Containment("descriptors", Strength.HARD, f"RLIMIT_NOFILE {limits.open_files} a process"),
    ]
    if gpus:
        named = ", ".join(map(str, gpus))
        rows.append(Containment("GPUs", Strength.HARD, f"device files of {named} only; their memory is not limited"))
    return rows


def network_row(network: Network) -> Containment:
    """What a network policy promises."""
    if network is Network.PACKAGES:
        how = "network namespace; beside the listed ports, a proxy reads allowed package registries and records it"
        return Containment("network", Strength.HARD, how)
    if network is Network.OPEN:
        how = "open: any public host through a proxy that records hosts, not contents; answers may have come from there"
        return Containment("network", Strength.NONE, how)
    return Containment("network", Strength.HARD, "network namespace; only the listed ports lead out")
