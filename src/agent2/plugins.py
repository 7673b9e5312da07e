"""Plug-ins: code that users bring, located by the same rule for benchmarks, scorers, environments, agents and suites.

    packaged name        `arithmetic`             the table of its room
    entry point          `quiz`                   of an installed package, group `agent2.benchmarks`
    Python file          `./quiz.py:Quiz`         any path that ends in .py, and a name in that file
    Python module        `quiz_pack.quiz:Quiz`    anything that can be imported

The name refers to a class or a function that is called (with settings, where its kind takes some), or to a finished
object. A plug-in's version is extended by a digest of its source (`1.0+3f2a9c1b`), so that a score made with other
code is never taken for the same.

Promises: one line says what is wrong with a plug-in that cannot be imported, built or used. Does NOT sandbox it: a
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
import traceback
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
_BRIDGED_FILE = re.compile(r"(?P<bridge>[a-z][a-z0-9_-]*):(?P<path>(?!//)[^:]+\.(?:ya?ml|py)(?:@\w+)?)")
"""A file behind a bridge: `lm-eval:FOLDER/TASK.yaml`."""
_MODULE = re.compile(r"(?P<module>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):(?P<attribute>[A-Za-z_]\w*)")
MAX_SOURCE_FILES = 2_000
_PACKAGE = Path(__file__).resolve().parent
_LIBRARIES = tuple(
    sorted({Path(sysconfig.get_path(name)) for name in ("purelib", "platlib", "stdlib", "platstdlib")}, reverse=True)
)
"""Longest first: on most machines the folder of packages is in that of the standard library."""


@dataclass(frozen=True, slots=True)
class PluginLocation:
    """Where the code of one plug-in, or of a packaged object, is."""

    kind: str
    """What it is: benchmark, scorer, environment, agent, suite."""
    name: str
    """As the user wrote it."""
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
def _entry_points(group_name: str, path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """path: sys.path, part of the key of the cache because the answer depends on it."""
    return tuple(entry_points(group=group_name))


def known_names(kind: str, packaged: Iterable[str] = ()) -> list[str]:
    """Every name that can be used directly."""
    return sorted({*packaged, *installed(kind)})


def is_code(name: str) -> bool:
    """Whether a name states where the code is: a Python file or module, with a name in it."""
    return _FILE.fullmatch(name) is not None or _MODULE.fullmatch(name) is not None


def is_located(name: str) -> bool:
    """Whether a name is a path, or code in a file, rather than a name in a table."""
    return "/" in name or name in (".", "..") or name.endswith((".yaml", ".yml")) or bool(_FILE.fullmatch(name))


def relative_to(name: str, folder: Path) -> str:
    """A name that is a relative path, resolved against `folder` (that of the file which names it); others unchanged."""
    if not is_located(name):
        return name
    if bridged := _BRIDGED_FILE.fullmatch(name):
        return f"{bridged['bridge']}:{(folder / Path(bridged['path']).expanduser()).resolve()}"
    match = _FILE.fullmatch(name)
    path, suffix = (match["file"], f":{match['attribute']}") if match else (name, "")
    return f"{(folder / Path(path).expanduser()).resolve()}{suffix}"


def find(kind: str, name: str, packaged: Mapping[str, str], where: str = "") -> PluginLocation:
    """The location of a packaged object, an entry point, or a named file or module; imports nothing.

    packaged: name -> "module:attribute". where: file and line, or option, that the name came from.
    Raises ConfigError for an unknown name (with the nearest one), a missing file, and a name that two packages claim.
    """
    before = f"{where}: " if where else ""
    if match := _FILE.fullmatch(name):
        file = Path(match["file"]).expanduser()
        if not match["attribute"].isidentifier():
            raise ConfigError(f"{before}{kind} {name!r}: name what the file defines after the colon, as in {file}:Name")
        if not file.is_file():
            raise ConfigError(f"{before}{kind} {name!r}: file {file} does not exist; check the path")
        return PluginLocation(kind, name, match["attribute"], file=file.resolve())
    if match := _MODULE.fullmatch(name):
        return PluginLocation(kind, name, match["attribute"], module=match["module"])
    points = installed(kind).get(name, [])
    claims = [*(["agent2"] if name in packaged else []), *(_package(point) for point in points)]
    if len(claims) > 1:  # no order of precedence: what is played must not depend on what else is installed
        raise ConfigError(
            f"{before}{kind} {name!r} comes from {' and '.join(claims)}; uninstall one of them, or name the code "
            f"itself ({points[-1].value})"
        )
    if name in packaged:
        module, _, attribute = packaged[name].partition(":")
        return PluginLocation(kind, name, attribute, module=module, is_packaged=True)
    if not points:
        raise unknown_name(kind, name, known_names(kind, packaged), where or kind)
    module, _, attribute = points[0].value.partition("[")[0].strip().partition(":")
    return PluginLocation(kind, name, attribute.strip(), module=module.strip(), package=_package(points[0]))


def _package(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else "an unnamed package"


def load(location: PluginLocation) -> Any:
    """Import a located object. Raises ConfigError in one line if it cannot be imported or has no such name."""
    try:
        target: Any = importlib.import_module(location.module) if location.file is None else _file_module(location.file)
        for part in location.attribute.split(".") if location.attribute else ():
            target = getattr(target, part)
    except Agent2Error:
        raise
    except (Exception, SystemExit) as error:  # boundary: foreign code can raise anything
        raise ConfigError(
            f"{location}: cannot be imported: {_one_line(error)}{place_of(error)}; "
            f"try python -c 'import {_import_name(location)}'"
        ) from error
    return target


def failing_line(error: BaseException) -> tuple[str, int, str] | None:
    """(file, line, function) of the user's code that raised an error; None if the package's own code did.

    Calls that end in a library count as the code that called it. An error that the package raises over what a plug-in
    returned is not found: nothing of the plug-in is running then.
    """
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path.is_relative_to(_PACKAGE):
            return None
        if frame.filename.startswith("<") or _is_library(path):
            continue
        return frame.filename, frame.lineno or 0, frame.name
    return None


def _is_library(path: Path) -> bool:
    """Whether a file belongs to Python or to an installed package that declares no plug-in."""
    for folder in _LIBRARIES:
        if path.is_relative_to(folder):
            return path.relative_to(folder).parts[0].removesuffix(".py") not in _plugin_packages()
    return False


@cache
def _plugin_packages() -> frozenset[str]:
    """Top-level modules that installed packages declare plug-ins in."""
    every = entry_points()
    points = (point for group in every.groups if group.startswith("agent2.") for point in every.select(group=group))
    return frozenset(point.module.partition(".")[0] for point in points) - {"agent2"}


def place_of(error: BaseException) -> str:
    """` (file:line)` of the user's code that raised an error; empty if the package's own did."""
    line = failing_line(error)
    return "" if line is None else f" ({Path(line[0]).name}:{line[1]})"


_ROW_NOTE = "while it played the item of row"


def note_row(error: BaseException, place: str) -> None:
    """Remember the row of data over which an error was raised. place: ` [data.csv:12]`; nothing where it is empty."""
    if place:
        error.add_note(f"{_ROW_NOTE}{place}")


def noted_row(error: BaseException) -> str:
    """` while it played the item of row [data.csv:12]`, where `note_row` was called; else empty."""
    notes = [note for note in getattr(error, "__notes__", ()) if str(note).startswith(_ROW_NOTE)]
    return f" {notes[0]}" if notes else ""


def build(location: PluginLocation, settings: Mapping[str, Any] | None = None) -> Any:
    """A located object: a class or function is called with the settings, a finished object is returned as it is.

    Raises ConfigError if it cannot be imported or built, or takes no such setting.
    """
    target = load(location)
    if not (inspect.isclass(target) or inspect.isroutine(target)):
        if settings:
            raise ConfigError(f"{location}: is a finished object and takes no settings ({', '.join(settings)})")
        return target
    _check_settings(location, target, settings or {})
    try:
        return target(**(settings or {}))
    except Agent2Error:
        raise
    except (Exception, SystemExit) as error:  # boundary: foreign code can raise anything
        raise ConfigError(
            f"{location}: could not be made: {_one_line(error)}{place_of(error)}; fix its {location.attribute}"
        ) from error


def _check_settings(location: PluginLocation, target: Any, settings: Mapping[str, Any]) -> None:
    try:
        parameters = inspect.signature(target).parameters
    except (TypeError, ValueError):
        return  # a built-in without a signature; the call itself reports wrong arguments
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    for name in settings:
        if name not in parameters:
            raise unknown_name("setting", name, parameters, str(location))
    missing = [
        parameter.name
        for parameter in parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind is not parameter.VAR_POSITIONAL
        and parameter.name not in settings
    ]
    if missing:
        raise ConfigError(f"{location}: {location.attribute} needs {', '.join(missing)}, which was not passed")


def path_of(location: PluginLocation) -> Path:
    """The file or folder that an entry point names by a path (agents, suites). Raises ConfigError if it names none."""
    target = load(location)
    if not isinstance(target, str | Path) or not Path(target).exists():
        raise ConfigError(
            f"{location}: is {target!r}; an entry point {group(location.kind)} has to name an existing path"
        )
    return Path(target)


def require_members(
    location: PluginLocation, plugin: object, attributes: Collection[str], methods: Collection[str]
) -> None:
    """Raise ConfigError, naming what is missing or not a function, unless an object has the members of its Protocol."""
    missing = [name for name in (*attributes, *methods) if not hasattr(plugin, name)]
    if missing:
        raise ConfigError(
            f"{location}: {type(plugin).__name__} is not usable as a {location.kind}: it has no {', '.join(missing)}; "
            f"see agent2.records.{location.kind.capitalize()}"
        )
    for name in methods:
        if not callable(getattr(plugin, name)):
            raise ConfigError(f"{location}: {type(plugin).__name__}.{name} is not a method; define it as one")
    for name in ("name", "version"):
        value = getattr(plugin, name, "")
        if name in attributes and not (isinstance(value, str) and NAME.fullmatch(value.partition("+")[0])):
            raise ConfigError(f"{location}: {name} is {value!r}; use letters, digits, '.', '_' and '-'")


def with_source_version(plugin: T, digest: str) -> T:
    """The same object, its `version` extended by the digest of its source. Raises ConfigError if that is impossible."""
    kind: Any = type(plugin)
    version = f"{getattr(plugin, 'version')}+{digest[:8]}"  # noqa: B009 - any Protocol with a version
    try:
        # The class of this object only: other users of the plug-in's class see its plain version.
        object.__setattr__(plugin, "__class__", _versioned_class(kind, version, digest))
    except TypeError as error:
        raise ConfigError(f"{type(plugin).__name__}: {error}; make it an ordinary Python class") from error
    return plugin


@cache
def _versioned_class(kind: type[Any], version: str, digest: str) -> type[Any]:
    """A subclass, so that isinstance still holds; `version` is a property, since objects may set their own."""
    members = {
        "version": property(lambda self: version),
        "source_digest": digest,
        "__slots__": (),
        "__module__": kind.__module__,
        "__doc__": kind.__doc__,
    }
    return type(kind.__name__, (kind,), members)


def source_digest_of(plugin: object) -> str:
    """The digest of the source of an object that came from a plug-in; empty for packaged objects."""
    return str(getattr(plugin, "source_digest", ""))


def source_digest(location: PluginLocation) -> str:
    """SHA-256 of a plug-in's source: its file with those beside it that it imports, or its whole package."""
    if location.is_packaged:
        return ""
    if location.file is not None:
        root, files = location.file.parent, _with_imports(location.file)
    else:
        root = import_root(location)
        top = root / location.module.partition(".")[0]
        files = sorted(top.rglob("*.py"))[:MAX_SOURCE_FILES] if top.is_dir() else [top.with_suffix(".py")]
    sources = [file for file in files if file.is_file()]
    return digest_of([[str(file.relative_to(root)), hashlib.sha256(file.read_bytes()).hexdigest()] for file in sources])


def source_files(location: PluginLocation) -> list[Path]:
    """A plug-in's Python file with those beside it that it imports; none for an installed or packaged one."""
    return [] if location.file is None else _with_imports(location.file)


def copy_source(file: Path, folder: Path) -> None:
    """Copy a file into a folder; with a Python file, the modules beside it that it imports, and no data."""
    for source in _with_imports(file) if file.suffix == ".py" else [file]:
        target = folder / source.relative_to(file.parent)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)


def import_root(location: PluginLocation) -> Path:
    """The folder that has to be on the path to import a plug-in. Raises ConfigError if it is unknown."""
    if location.file is not None:
        return location.file.parent
    top = location.module.partition(".")[0]
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError) as error:
        raise ConfigError(f"{location}: cannot be imported: {_one_line(error)}") from error
    if spec is None:
        raise ConfigError(f"{location}: cannot be imported: there is no module {top!r}; install its package")
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations))).resolve().parent
    return Path(spec.origin or ".").resolve().parent


def is_on_default_path(root: Path) -> bool:
    """Whether a sandboxed Python imports from that folder without a changed path."""
    import_folders = {Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib", "stdlib")}
    return root.resolve() in import_folders


def _file_module(file: Path) -> Any:
    """The module of a Python file; loaded again when its text changed. Modules beside it can be imported."""
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
        return []  # loading the file reports the error
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    return names + [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]


def _one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def _import_name(location: PluginLocation) -> str:
    return location.module or (location.file.stem if location.file is not None else location.name)
