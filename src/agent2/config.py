"""YAML files that people write, read into strict pydantic records.

An unknown key is an error with file, line and the nearest known name; so is every wrong value.
Machine-written files (trial.json, card.json) are JSON, so the format tells who wrote a file.
"""

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from agent2.errors import ConfigError


class StrictModel(BaseModel):
    """Base of every record that crosses a file or process boundary: no unknown keys, no changes."""

    model_config = ConfigDict(extra="forbid", frozen=True)


ModelT = TypeVar("ModelT", bound=BaseModel)


def load_yaml(path: Path, model: type[ModelT], overrides: Sequence[str] = ()) -> ModelT:
    """Read one YAML file into `model`.

    overrides: "a.b=value" strings from the command line; the value is read as YAML.
    Raises ConfigError naming file, line and, for an unknown key, the nearest known one.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); check the path") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start}); save it as UTF-8") from error
    return parse_yaml(text, model, str(path), overrides)


def parse_yaml(text: str, model: type[ModelT], where: str, overrides: Sequence[str] = ()) -> ModelT:
    """Like `load_yaml` for text that is in memory already; `where` names it in errors."""
    root, data = _read(text, where)
    data = {} if data is None else data
    if not isinstance(data, dict):
        raise ConfigError(f"{where}: holds a {type(data).__name__}, a mapping of keys is needed")
    for override in overrides:
        _apply_override(data, override)
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise ConfigError(_first_problem(error, model, root, where, overrides)) from error


def _read(text: str, where: str) -> tuple[yaml.Node | None, Any]:
    """The tree of a YAML text, which knows lines, and its values."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        _refuse_double_keys(root, where)
        return root, yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date such as 2020-13-45
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or error
        raise ConfigError(f"{where}{line}: not valid YAML: {problem}; mend the line") from error


def _refuse_double_keys(root: yaml.Node | None, where: str) -> None:
    """YAML's own reader would silently take the last one."""
    pending, seen = [root], set()
    while pending:
        node = pending.pop()
        if id(node) in seen:
            continue  # an alias
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            names = set()
            for key, value in node.value:
                if isinstance(key, yaml.ScalarNode) and (key.tag, key.value) in names:
                    raise ConfigError(
                        f"{where}:{key.start_mark.line + 1}: key {key.value!r} comes twice; keep one of the two"
                    )
                names.add((key.tag, str(key.value)))
                pending.append(value)
        elif isinstance(node, yaml.SequenceNode):
            pending.extend(node.value)


def _apply_override(data: dict[str, Any], override: str) -> None:
    key, separator, value = override.partition("=")
    if not separator or not key:
        raise ConfigError(f"--set {override!r}: write it as a.b=value")
    *parents, last = key.split(".")
    for parent in parents:
        data = data.setdefault(parent, {})
        if not isinstance(data, dict):
            raise ConfigError(f"--set {override!r}: {parent!r} is no mapping; name a key inside one")
    data[last] = _read(value, f"--set {override!r}")[1]


def _first_problem(
    error: ValidationError, model: type[BaseModel], root: yaml.Node | None, where: str, overrides: Sequence[str]
) -> str:
    problems = error.errors()
    # A misspelt key is also a missing one; the first is what the user can see.
    problem = next((one for one in problems if one["type"] == "extra_forbidden"), problems[0])
    location = problem["loc"]
    name = ".".join(str(part) for part in location)
    line = _line_of(root, location)
    spot = f"{where}:{line}" if line else where
    for override in overrides:
        key = override.partition("=")[0]
        if name == key or name.startswith(f"{key}."):
            spot = f"--set {override}"
    if problem["type"] == "extra_forbidden":
        known = sorted(_known_keys(model, location[:-1]))
        near = difflib.get_close_matches(str(location[-1]), known, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(known)}"
        return f"{spot}: unknown key {name!r}; {hint}"
    if problem["type"] == "missing":
        return f"{spot}: key {name!r} is missing; add it"
    return f"{spot}: {name or 'the file'}: {problem['msg']} (got {problem['input']!r})"


def _line_of(node: yaml.Node | None, location: Sequence[int | str]) -> int | None:
    """1-based line of the deepest node on the way to `location`."""
    line = node.start_mark.line + 1 if node is not None else None
    for part in location:
        if isinstance(node, yaml.MappingNode):
            pair = next((p for p in node.value if p[0].value == str(part)), None)
            if pair is None:
                break
            line, node = pair[0].start_mark.line + 1, pair[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
        else:
            break
    return line


def _known_keys(model: type[BaseModel], location: Sequence[int | str]) -> set[str]:
    """Keys that the record at `location` below `model` knows; falls back to the top-level ones."""
    current: type[BaseModel] = model
    for part in location:
        field = current.model_fields.get(str(part))
        if field is None:
            continue  # an index into a list, or a key of a mapping
        inner = _model_inside(field.annotation)
        if inner is not None:
            current = inner
    return set(current.model_fields)


def _model_inside(annotation: object) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        found = _model_inside(argument)
        if found is not None:
            return found
    return None
