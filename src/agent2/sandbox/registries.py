"""Which package registries a sandbox may reach under the network policy `packages`, and how programs are told.

Each registry is one origin and one path prefix of it, offered inside below /<name>/ of a loopback port. Links to
the origins in index pages are rewritten to that port, so that pip, uv and npm work as they are. Anything else does
not exist: no upload, no other host, no redirect to one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator


class Settings(BaseModel):
    """Base of what crosses a file or process boundary here: no unknown keys, no changes."""

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
    """Its texts and JSON hold links to files, which are rewritten; else all passes as it is."""

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
    """The allowed address behind a path inside, or one sentence why there is none.

    path, query: still percent-encoded, as sent.
    """
    _, _, rest = path.partition("/")
    name, _, tail = rest.partition("/")
    registry = next((one for one in registries if one.name == name), None)
    if registry is None:
        return f"no registry {name!r} is allowed; there are {', '.join(one.name for one in registries)}"
    decoded = unquote(tail)
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


def rewritten(page: bytes, base: str, registries: Sequence[Registry]) -> bytes:
    """A page of an index whose links to allowed addresses lead to the port inside."""
    for registry in sorted(registries, key=lambda one: len(one.origin + one.prefix), reverse=True):
        page = page.replace(f"{registry.origin}{registry.prefix}".encode(), f"{base}/{registry.name}/".encode())
    return page


def package_environment(base: str, registries: Sequence[Registry], cache: Path) -> dict[str, str]:
    """Variables that send pip, uv and npm to the port inside, for the registries that are named as in the default."""
    names = {registry.name for registry in registries}
    found: dict[str, str] = {}
    if "pypi" in names:
        index = f"{base}/pypi/"
        found |= {
            "PIP_INDEX_URL": index,
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_CACHE_DIR": str(cache / "pip"),
            "UV_DEFAULT_INDEX": index,
            "UV_CACHE_DIR": str(cache / "uv"),
        }
    if "npm" in names:
        found |= {
            "npm_config_registry": f"{base}/npm/",
            "npm_config_update_notifier": "false",
            "npm_config_fund": "false",
            "npm_config_audit": "false",
            "npm_config_cache": str(cache / "npm"),
        }
    return found
