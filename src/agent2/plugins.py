"""Plug-ins: code that users bring, found by one rule for every kind of thing that can be brought.

    packaged name        `arithmetic`             the table of its room
    entry point          `quiz`                   of an installed package, group `agent2.benchmarks`
    Python file          `./quiz.py:Quiz`         any path that ends in .py, and a name in that file
    Python module        `quiz_pack.quiz:Quiz`    anything that can be imported

The name refers to a class or a function that is called (with settings, where its kind takes some), or for a finished
object. A plug-in's version is extended by a digest of its source (`1.0+3f2a9c1b`), so that a score made with other
code is never taken for the same.

Promises: one line says what is wrong with a plug-in that cannot be imported, built or used. Does NOT contain it: a
plug-in is code of the user's choice and runs with the user's rights; the arena's grading process runs it in a sandbox.
"""

import ast
import hashlib
import importlib
import importlib.util
import inspect
import re
import shutil
import sys
import sysconfig
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, TypeVar

from agent2.errors import Agent2Error, ConfigError, unknown_name
from agent2.records import digest_of
from agent2.syntax import parse_python

T = TypeVar("T")

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""Names become parts of file names and of `name-vX.Y`."""
_FILE = re.compile(r"(?P<file>.+\.py):(?P<attribute>[^/:]*)")
_MODULE = re.compile(r"(?P<module>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):(?P<attribute>[A-Za-z_]\w*)")
MAX_SOURCE_FILES = 2_000


@dataclass(frozen=True, slots=True)
class PluginPlace:
    """Where one plug-in, or packaged thing, is."""

    kind: str
    """What it is: benchmark, scorer, environment, agent, suite."""
    name: str
    """As it was asked for."""
    attribute: str
    module: str = ""
    """Dotted; empty for a Python file."""
    file: Path | None = None
    is_packaged: bool = False
    package: str = ""
    """Name and version of the installed package that declares it."""

    def __str__(self) -> str:
        """For messages."""
        if self.package:
            return f"{self.kind} {self.name!r} of {self.package} ({self.module}:{self.attribute})"
        return f"{self.kind} {self.name!r}"


def group(kind: str) -> str:
    """The entry-point group of a kind: `agent2.benchmarks`."""
    return f"agent2.{kind}s"


def installed(kind: str) -> dict[str, list[EntryPoint]]:
    """Entry points of a kind by name; several under one name come from several packages."""
    points: dict[str, list[EntryPoint]] = {}
    for point in _entry_points(group(kind), tuple(sys.path)):
        if point not in points.setdefault(point.name, []):  # a folder that is on the path twice
            points[point.name].append(point)
    return points


@cache
def _entry_points(of: str, path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """path: sys.path, on which the answer depends."""
    return tuple(entry_points(group=of))


def known_names(kind: str, packaged: Iterable[str] = ()) -> list[str]:
    """Every name that can be used directly."""
    return sorted({*packaged, *installed(kind)})


def is_code(name: str) -> bool:
    """Whether a name says itself where the code is: a Python file or module, with a name in it."""
    return _FILE.fullmatch(name) is not None or _MODULE.fullmatch(name) is not None


def is_located(name: str) -> bool:
    """Whether a name is a path, or code in a file, rather than a name in a table."""
    return "/" in name or name in (".", "..") or name.endswith((".yaml", ".yml")) or bool(_FILE.fullmatch(name))


def relative_to(name: str, folder: Path) -> str:
    """A name that is a relative path, taken from `folder` (that of the file which names it); others as they are."""
    if not is_located(name):
        return name
    match = _FILE.fullmatch(name)
    path, suffix = (match["file"], f":{match['attribute']}") if match else (name, "")
    return f"{(folder / Path(path).expanduser()).resolve()}{suffix}"


def find(kind: str, name: str, packaged: Mapping[str, str], where: str = "") -> PluginPlace:
    """The place of a packaged thing, an entry point, or a named file or module; imports nothing.

    packaged: name -> "module:attribute". where: file and line, or flag, that the name came from.
    Raises ConfigError for an unknown name (with the nearest one), a file that is not there, and a name that two
    packages claim.
    """
    before = f"{where}: " if where else ""
    if match := _FILE.fullmatch(name):
        file = Path(match["file"]).expanduser()
        if not match["attribute"].isidentifier():
            raise ConfigError(f"{before}{kind} {name!r}: name what the file defines after the colon, as in {file}:Name")
        if not file.is_file():
            raise ConfigError(f"{before}{kind} {name!r}: file {file} does not exist; check the path")
        return PluginPlace(kind, name, match["attribute"], file=file.resolve())
    if match := _MODULE.fullmatch(name):
        return PluginPlace(kind, name, match["attribute"], module=match["module"])
    points = installed(kind).get(name, [])
    claims = [*(["agent2"] if name in packaged else []), *(_package(point) for point in points)]
    if len(claims) > 1:
        raise ConfigError(
            f"{before}{kind} {name!r} comes from {' and '.join(claims)}; uninstall one of them, or name the code "
            f"itself ({points[-1].value})"
        )
    if name in packaged:
        module, _, attribute = packaged[name].partition(":")
        return PluginPlace(kind, name, attribute, module=module, is_packaged=True)
    if not points:
        raise unknown_name(kind, name, known_names(kind, packaged), where or kind)
    module, _, attribute = points[0].value.partition("[")[0].strip().partition(":")
    return PluginPlace(kind, name, attribute.strip(), module=module.strip(), package=_package(points[0]))


def _package(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else "an unnamed package"


def load(place: PluginPlace) -> Any:
    """Import what a place names. Raises ConfigError in one line if it cannot be imported or has no such name."""
    try:
        target: Any = importlib.import_module(place.module) if place.file is None else _file_module(place.file)
        for part in place.attribute.split(".") if place.attribute else ():
            target = getattr(target, part)
    except Agent2Error:
        raise
    except (Exception, SystemExit) as error:  # boundary: foreign code can raise anything
        raise ConfigError(
            f"{place}: cannot be imported: {_words(error)}; try python -c 'import {_importable(place)}'"
        ) from error
    return target


def build(place: PluginPlace, settings: Mapping[str, Any] | None = None) -> Any:
    """The object of a place: a class or function is called with the settings, an object is taken as it is.

    Raises ConfigError if it cannot be imported or built, or takes no such setting.
    """
    target = load(place)
    if not (inspect.isclass(target) or inspect.isroutine(target)):
        if settings:
            raise ConfigError(f"{place}: is a finished object and takes no settings ({', '.join(settings)})")
        return target
    _check_settings(place, target, settings or {})
    try:
        return target(**(settings or {}))
    except Agent2Error:
        raise
    except (Exception, SystemExit) as error:  # boundary: foreign code can raise anything
        raise ConfigError(f"{place}: could not be made: {_words(error)}; fix its {place.attribute}") from error


def _check_settings(place: PluginPlace, target: Any, settings: Mapping[str, Any]) -> None:
    try:
        parameters = inspect.signature(target).parameters
    except (TypeError, ValueError):
        return  # a built-in without a signature; the call itself will
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    for name in settings:
        if name not in parameters:
            raise unknown_name("setting", name, parameters, str(place))
    lacks = [
        parameter.name
        for parameter in parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind is not parameter.VAR_POSITIONAL
        and parameter.name not in settings
    ]
    if lacks:
        raise ConfigError(f"{place}: {place.attribute} needs {', '.join(lacks)}, and is not given it")


def path_of(place: PluginPlace) -> Path:
    """The file or folder that an entry point names by a path (agents, suites). Raises ConfigError if it names none."""
    target = load(place)
    if not isinstance(target, str | Path) or not Path(target).exists():
        raise ConfigError(f"{place}: is {target!r}; an entry point {group(place.kind)} has to name an existing path")
    return Path(target)


def require_members(place: PluginPlace, plugin: object, attributes: Collection[str], methods: Collection[str]) -> None:
    """See that an object has what its Protocol asks for. Raises ConfigError naming what is missing or no function."""
    missing = [name for name in (*attributes, *methods) if not hasattr(plugin, name)]
    if missing:
        raise ConfigError(
            f"{place}: {type(plugin).__name__} is not usable as a {place.kind}: it has no {', '.join(missing)}; see "
            f"agent2.records.{place.kind.capitalize()}"
        )
    for name in methods:
        if not callable(getattr(plugin, name)):
            raise ConfigError(f"{place}: {type(plugin).__name__}.{name} is not a method; define it as one")
    for name in ("name", "version"):
        value = getattr(plugin, name, "")
        if name in attributes and not (isinstance(value, str) and NAME.fullmatch(value.partition("+")[0])):
            raise ConfigError(f"{place}: {name} is {value!r}; use letters, digits, '.', '_' and '-'")


def with_source_version(plugin: T, digest: str) -> T:
    """The same object, its `version` extended by the digest of its source. Raises ConfigError if it cannot be."""
    kind: Any = type(plugin)
    version = f"{getattr(plugin, 'version')}+{digest[:8]}"  # noqa: B009 - any Protocol with a version
    try:
        object.__setattr__(plugin, "__class__", _versioned_class(kind, version, digest))
    except TypeError as error:
        raise ConfigError(f"{type(plugin).__name__}: {error}; make it an ordinary Python class") from error
    return plugin


@cache
def _versioned_class(kind: type[Any], version: str, digest: str) -> type[Any]:
    """A subclass, so that a plug-in stays what it is to isinstance; a property, since objects may set their own."""
    members = {
        "version": property(lambda self: version),
        "source_digest": digest,
        "__slots__": (),
        "__module__": kind.__module__,
        "__doc__": kind.__doc__,
    }
    return type(kind.__name__, (kind,), members)


def source_digest_of(plugin: object) -> str:
    """The digest of the source of an object that came from a plug-in; empty for what is packaged."""
    return str(getattr(plugin, "source_digest", ""))


def source_digest(place: PluginPlace) -> str:
    """SHA-256 of a plug-in's source: its file with those beside it that it imports, or its whole package."""
    if place.is_packaged:
        return ""
    if place.file is not None:
        root, files = place.file.parent, _with_imports(place.file)
    else:
        root = import_root(place)
        top = root / place.module.partition(".")[0]
        files = sorted(top.rglob("*.py"))[:MAX_SOURCE_FILES] if top.is_dir() else [top.with_suffix(".py")]
    sources = [file for file in files if file.is_file()]
    return digest_of([[str(file.relative_to(root)), hashlib.sha256(file.read_bytes()).hexdigest()] for file in sources])


def copy_source(file: Path, folder: Path) -> None:
    """Copy a file into a folder; with a Python file, the modules beside it that it imports, and no data."""
    for source in _with_imports(file) if file.suffix == ".py" else [file]:
        target = folder / source.relative_to(file.parent)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)


def import_root(place: PluginPlace) -> Path:
    """The folder from which a plug-in is imported: what a process needs on its path. Raises ConfigError if unknown."""
    if place.file is not None:
        return place.file.parent
    top = place.module.partition(".")[0]
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError) as error:
        raise ConfigError(f"{place}: cannot be imported: {_words(error)}") from error
    if spec is None:
        raise ConfigError(f"{place}: cannot be imported: there is no module {top!r}; install its package")
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations))).resolve().parent
    return Path(spec.origin or ".").resolve().parent


def shown_by_toolkit(root: Path) -> bool:
    """Whether a sandboxed Python finds what is imported from that folder without help."""
    import_folders = {Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib", "stdlib")}
    return root.resolve() in import_folders


def _file_module(file: Path) -> Any:
    """The module of a Python file; read anew when its text changed. Modules beside it can be imported."""
    digest = hashlib.sha256(str(file).encode() + b"\0" + file.read_bytes()).hexdigest()[:16]
    name = f"agent2_plugin_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{file}: is not a Python file")
    module = importlib.util.module_from_spec(spec)
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))  # behind everything else, so that it shadows nothing
    sys.modules[name] = module  # dataclasses look their module up while it runs
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _with_imports(file: Path) -> list[Path]:
    """A Python file and, transitively, the modules and packages in its folder that it imports."""
    modules, pending = dict.fromkeys([file]), [file]
    while pending and len(modules) < MAX_SOURCE_FILES:
        for name in _imported(pending.pop()):
            top = file.parent / name.partition(".")[0]
            fresh = [top.with_suffix(".py"), *(sorted(top.rglob("*.py")) if top.is_dir() else ())]
            for candidate in fresh:
                if candidate.is_file() and candidate not in modules:
                    modules[candidate] = None
                    pending.append(candidate)
    return sorted(modules)


def _imported(file: Path) -> list[str]:
    try:
        tree = parse_python(file.read_bytes())
    except (SyntaxError, ValueError):
        return []  # loading it says so
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    return names + [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]


def _words(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def _importable(place: PluginPlace) -> str:
    return place.module or (place.file.stem if place.file is not None else place.name)
