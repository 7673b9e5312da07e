"""YAML files that people write, read into strict pydantic records.

An unknown key is an error with file, line and the nearest known name; so is every wrong value.
Machine-written files (trial.json, card.json) are JSON, so the format shows whether a person wrote a file.
"""

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from agent2.errors import ConfigError, nearest_name, quoted, unknown_name
from agent2.foreign_files import MAX_TEXT_BYTES, read_named

KEY_SIMILARITY = 0.65
"""Least, of a misspelt key to the one that is proposed; below it all keys are listed."""
MAX_VALUES = 1_000_000
"""That a YAML text may expand to, aliases resolved; a few lines of aliases can expand to more than memory holds."""


class StrictModel(BaseModel):
    """Base of every record that crosses a file or process boundary: no unknown keys, no changes."""

    model_config = ConfigDict(extra="forbid", frozen=True)


ModelT = TypeVar("ModelT", bound=BaseModel)
Location = Sequence[int | str]
"""Where a value is in a file: keys and list indices from the top."""


@dataclass(frozen=True, slots=True)
class YamlText:
    """One YAML mapping that has been parsed but not yet validated; knows the line of every value."""

    where: str
    """The file, for messages."""
    data: dict[str, Any]
    root: yaml.Node | None
    overrides: Sequence[str] = ()
    flag: str = "--set"
    """The command-line option of the overrides."""
    override_keys: Sequence[str] = ()
    """Of each override what it set, an entry of a list by its number: `benchmarks.0.n_items`."""
    text: str = ""
    """As it was read: a pipe can be read only once."""

    def spot(self, location: Location) -> str:
        """`file:line` of the deepest part of a location that exists, or the override that set it."""
        name = ".".join(str(part) for part in location)
        for override, key in zip(self.overrides, self.override_keys, strict=True):
            if name == key or name.startswith(f"{key}.") or key.startswith(f"{name}."):
                return f"{self.flag} {override}"
        line = _line_of(self.root, location)
        return f"{self.where}:{line}" if line else self.where


def load_yaml(path: Path, model: type[ModelT], overrides: Sequence[str] = ()) -> ModelT:
    """Read one YAML file into `model`.

    overrides: "a.b=value" strings from the command line; the value is read as YAML.
    Raises ConfigError naming file, line and, for an unknown key, the nearest known one.
    """
    return _validated(read_yaml(path, overrides), model)


def parse_yaml(
    text: str, model: type[ModelT], where: str, overrides: Sequence[str] = (), flag: str = "--set"
) -> ModelT:
    """Like `load_yaml` for text that is in memory already; `where` names it in errors, `flag` its overrides."""
    return _validated(read_yaml_text(text, where, overrides, flag), model)


def read_yaml(path: Path, overrides: Sequence[str] = ()) -> YamlText:
    """Read one YAML file whose keys the caller validates itself. Raises ConfigError as `load_yaml` does."""
    try:
        text = read_named(path, MAX_TEXT_BYTES).decode("utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); check the path") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start}); save it as UTF-8") from error
    return read_yaml_text(text, str(path), overrides)


def read_yaml_text(text: str, where: str, overrides: Sequence[str] = (), flag: str = "--set") -> YamlText:
    """Like `read_yaml` for text that is in memory already."""
    root, data = _read(text, where)
    data = {} if data is None else data
    if not isinstance(data, dict):
        raise ConfigError(f"{where}: contains a {type(data).__name__}, a mapping of keys is needed")
    keys = tuple(_apply_override(data, override, flag) for override in overrides)
    return YamlText(where, data, root, tuple(overrides), flag, keys, text)


def _validated(source: YamlText, model: type[ModelT]) -> ModelT:
    try:
        return model.model_validate(source.data)
    except ValidationError as error:
        location, sentence = first_problem(error, model)
        raise ConfigError(f"{source.spot(location)}: {sentence}") from error


def _read(text: str, where: str, *, is_override: bool = False) -> tuple[yaml.Node | None, Any]:
    """The tree of a YAML text, which knows lines, and its values. is_override: a value of --set, not a file."""
    try:
        # The tree knows the lines, and is checked before aliases are expanded into values.
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        _refuse_double_keys(root, where)
        if root is not None:
            _count_values(root, where, {})
        # made from the tree: parsing takes most of the time
        return root, None if root is None else yaml.SafeLoader("").construct_document(root)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date such as 2020-13-45
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark and not is_override else ""
        advice = "fix the value after '='" if is_override else "fix the line"
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or error
        raise ConfigError(f"{where}{line}: not valid YAML: {problem}; {advice}") from error


def _refuse_double_keys(root: yaml.Node | None, where: str) -> None:
    """Refuse a key that occurs twice: YAML's own reader would silently take the last one."""
    pending, visited = [root], set()
    while pending:
        node = pending.pop()
        if id(node) in visited:
            continue  # an alias
        visited.add(id(node))
        if isinstance(node, yaml.MappingNode):
            names = set()
            for key, value in node.value:
                if isinstance(key, yaml.ScalarNode) and (key.tag, key.value) in names:
                    raise ConfigError(
                        f"{where}:{key.start_mark.line + 1}: key {key.value!r} appears twice; keep one of the two"
                    )
                names.add((key.tag, str(key.value)))
                pending.append(value)
        elif isinstance(node, yaml.SequenceNode):
            pending.extend(node.value)


def _count_values(node: yaml.Node, where: str, counts: dict[int, int]) -> int:
    """Values below a node, as often as aliases repeat them. Raises ConfigError for more than `MAX_VALUES`."""
    if id(node) not in counts:
        counts[id(node)] = MAX_VALUES + 1  # until it is counted: a node that contains itself has no end
        inner: list[yaml.Node] = []
        if isinstance(node, yaml.SequenceNode):
            inner = node.value
        elif isinstance(node, yaml.MappingNode):
            inner = [value for pair in node.value for value in pair]
        counts[id(node)] = 1 + sum(_count_values(value, where, counts) for value in inner)
    if counts[id(node)] > MAX_VALUES:
        raise ConfigError(
            f"{where}:{node.start_mark.line + 1}: expands to more than {MAX_VALUES} values when its aliases (*name) "
            "are written out; write the values themselves"
        )
    return counts[id(node)]


def _apply_override(data: dict[str, Any], override: str, flag: str) -> str:
    """Set a value; returns its key, with numbers for the entries of lists, which are named by their `name`."""
    key, separator, value = override.partition("=")
    if not separator or not key:
        raise ConfigError(f"{flag} {override!r}: write it as a.b=value")
    where, parts, place = f"{flag} {override!r}", key.split("."), []
    while len(parts) > 1:
        parent = parts.pop(0)
        place.append(parent)
        inner = data[parent] = copy.deepcopy(data.get(parent, {}))  # an alias in the file gives others the same object
        if isinstance(inner, list):
            entries = inner
            number, inner = _entry_of(entries, parts, parent, where)
            inner = entries[number] = copy.deepcopy(inner)
            place.append(str(number))
        if not isinstance(inner, dict):
            raise ConfigError(f"{where}: {parent!r} is not a mapping; name a key inside one")
        data = inner
    data[parts[0]] = _read(value, where, is_override=True)[1]
    return ".".join([*place, parts[0]])


def _entry_of(entries: list[Any], parts: list[str], parent: str, where: str) -> tuple[int, Any]:
    """Number and value of the entry that the first parts of a key name, which are taken off. Raises ConfigError."""
    names = [str(entry["name"]) for entry in entries if isinstance(entry, dict) and "name" in entry]
    for length in range(len(parts) - 1, 0, -1):  # a name may have dots, and the longest is meant
        name = ".".join(parts[:length])
        if name in names:
            del parts[:length]
            return next((n, e) for n, e in enumerate(entries) if isinstance(e, dict) and str(e.get("name")) == name)
    if not names:
        raise ConfigError(f"{where}: {parent!r} is a list of values; set it whole: {parent}=[...]")
    keys = ", ".join(f"{parent}.{name}.KEY" for name in names)
    raise ConfigError(f"{where}: {parent!r} is a list; name a key of one of its entries: {keys}")


def first_problem(error: ValidationError, model: type[BaseModel]) -> tuple[tuple[int | str, ...], str]:
    """The problem of a rejected record that a user should fix first: where it is, and a sentence about it."""
    problems = error.errors()
    # A misspelt key is also a missing one; the first is what the user can see.
    problem = next((problem for problem in problems if problem["type"] == "extra_forbidden"), problems[0])
    location = problem["loc"]
    name = ".".join(str(part) for part in location)
    if problem["type"] == "extra_forbidden":
        known_keys = sorted(_known_keys(model, location[:-1]))
        near = nearest_name(str(location[-1]), known_keys, KEY_SIMILARITY)
        near = near or _inner_key(model, location)
        hint = f"did you mean {near!r}?" if near is not None else f"known keys: {', '.join(known_keys)}"
        return location, f"unknown key {name!r}; {hint}"
    if problem["type"] == "missing":
        return location, f"key {name!r} is missing; add it"
    wrong = _wrong_choice(location, problem["input"], problem.get("ctx", {}))
    sentence = problem["msg"].removeprefix("Value error, ")  # raised by a record's own check
    return location, wrong or f"{name or 'the file'}: {sentence} (got {quoted(problem['input'])})"


def _wrong_choice(location: Location, value: object, context: Mapping[str, Any]) -> str | None:
    """The sentence about a text outside a fixed set (enum, literal, kind of a union); None for any other problem."""
    choices = re.findall(r"'([^']*)'", str(context.get("expected") or context.get("expected_tags") or ""))
    if "tag" in context:
        location, value = (*location, str(context.get("discriminator", "kind")).strip("'")), context["tag"]
    if not choices or not isinstance(value, str):
        return None
    keys = [part for part in location if isinstance(part, str)]
    return str(unknown_name(keys[-1].strip("[]") if keys else "value", value, choices))


def _line_of(node: yaml.Node | None, location: Location) -> int | None:
    """1-based line of the deepest node on the way to `location`."""
    line = node.start_mark.line + 1 if node is not None else None
    for part in location:
        if isinstance(node, yaml.MappingNode):
            pair = next((p for p in node.value if p[0].value == str(part)), None)
            if pair is None:
                continue  # the kind of a union, which is not a key of the file
            line, node = pair[0].start_mark.line + 1, pair[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
        else:
            break
    return line


def _known_keys(model: type[BaseModel], location: Location) -> set[str]:
    """Keys of the record at `location` below `model`; falls back to those of the records above it."""
    current: list[type[BaseModel]] = [model]
    for part in location:
        field = next((record.model_fields[str(part)] for record in current if str(part) in record.model_fields), None)
        if field is None:  # an index into a list, a key of a mapping, or the kind of a union
            current = [record for record in current if str(part) in _kinds(record)] or current
        else:
            current = _models_inside(field.annotation) or current
    return {key for record in current for key in record.model_fields}


def _inner_key(model: type[BaseModel], location: Location) -> str | None:
    """The full name of a key that a record below the top has (`task.n_items` for `n_items`); None unless one has it."""
    if len(location) != 1:
        return None
    outer_keys = [
        key
        for key, field in model.model_fields.items()
        if any(str(location[0]) in record.model_fields for record in _models_inside(field.annotation))
    ]
    return f"{outer_keys[0]}.{location[0]}" if len(outer_keys) == 1 else None


def _kinds(model: type[BaseModel]) -> set[str]:
    """The names of this record in a union: its class, or the literal values of its fields."""
    literals = {str(value) for field in model.model_fields.values() for value in get_args(field.annotation)}
    return literals | {model.__name__}


def _models_inside(annotation: object) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in getattr(annotation, "__args__", ()) for model in _models_inside(argument)]
