"""Shorthand of a suite: short keys of the published examples, moved to where the full form has them.

`sampling` and `generation` go to `protocol.sampling`, `judge` and `input` into the protocol, `tool_protocol` to
`protocol.tools` (its time limit to `protocol.max_wall_time_minutes`), `baseline` to the control group, `datasets`
to `benchmarks`, `split` to `splits`; `suite: name_v1` becomes name and version. Nothing is filled in here.
"""

import copy
import json
import re
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from agent2.config import Location, YamlText
from agent2.contract.suite import Suite
from agent2.errors import ConfigError, shown, unknown_name

MOVES: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("baseline",), ("control_group", "checkpoint")),
    (("sampling",), ("protocol", "sampling")),
    (("generation",), ("protocol", "sampling")),
    (("judge",), ("protocol", "judge")),
    (("input",), ("protocol", "input")),
    (("tool_protocol", "max_wall_time_minutes"), ("protocol", "max_wall_time_minutes")),
    (("tool_protocol",), ("protocol", "tools")),
    (("split",), ("splits",)),
    (("datasets",), ("benchmarks",)),
)
"""Short key -> place in the full form, in the order in which they are moved."""
SHORT_KEYS = frozenset({short[0] for short, _ in MOVES} | {"suite"})
DEFAULT_VERSION = "1.0"
MAX_TOLD = 44
"""Characters of a value in a note."""

_VERSIONED = re.compile(r"(?P<name>.+?)[-_]v(?P<major>\d+)(?:\.(?P<minor>\d+))?")


@dataclass(frozen=True, slots=True)
class Note:
    """One thing that a suite's file does not say itself."""

    field: str
    value: str
    origin: str
    """Where it comes from: a template with its line, or the rule that was applied."""


Place = tuple[int | str, ...]
Source = tuple[YamlText, Place]
"""A file, and the location in it."""


@dataclass(slots=True)
class Draft:
    """A suite on its way to the full form."""

    file: YamlText
    data: dict[str, Any]
    sources: dict[Place, Source] = field(default_factory=dict)
    """Location in `data` -> where it was written; what is below a location was written below it."""
    notes: list[Note] = field(default_factory=list)

    def spot(self, location: Location) -> str:
        """`file:line` of a location of `data`; for what no file has, of the nearest part that one has."""
        place = tuple(location)
        for length in range(len(place), -1, -1):
            if place[:length] in self.sources:
                text, written = self.sources[place[:length]]
                return text.spot((*written, *place[length:]))
        return self.file.spot(location)

    def note(self, name: str, value: object, origin: str) -> None:
        """Remember what was filled in, read or left out."""
        self.notes.append(Note(name, tell(value), origin))


def tell(value: object) -> str:
    """A value as a suite's file would have it, cut short."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= MAX_TOLD else text[: MAX_TOLD - 1] + "…"


def open_draft(file: YamlText) -> Draft:
    """The file in the keys of the full form.

    Raises ConfigError for a key that neither form has, for two keys that say the same, and for a name without form.
    """
    known = set(Suite.model_fields) | SHORT_KEYS
    for key in file.data:
        if key not in known:
            raise unknown_name("key", str(key), known, file.spot((key,)))
    draft = Draft(file, copy.deepcopy(file.data))
    draft.sources = {(key,): (file, (key,)) for key in draft.data}
    for short, full in MOVES:
        _move(draft, short, full)
    _read_name(draft)
    return draft


def read_version(text: str) -> tuple[str, str | None]:
    """Name and version "X.Y" of `name-vX.Y` or `name_vX`; no version: None."""
    match = _VERSIONED.fullmatch(text)
    if match is None:
        return text, None
    return match["name"], f"{int(match['major'])}.{int(match['minor'] or 0)}"


def _move(draft: Draft, short: tuple[str, ...], full: tuple[str, ...]) -> None:
    holder = draft.data.get(short[0]) if len(short) == 2 else draft.data
    if not isinstance(holder, dict) or short[-1] not in holder:
        return
    value, target = holder.pop(short[-1]), draft.data
    written = draft.sources.pop(short, (draft.file, short))
    for key in full[:-1]:
        target = target.setdefault(key, {})
        if not isinstance(target, dict):
            raise ConfigError(f"{draft.spot(full)}: {key!r} is not a mapping of keys; {short[-1]!r} belongs into it")
    if full[-1] in target:
        raise ConfigError(
            f"{draft.file.spot(short)}: {'.'.join(short)!r} says the same as {'.'.join(full)!r}, which is there too; "
            "keep one of them"
        )
    target[full[-1]] = value
    draft.sources[full] = written


def _read_name(draft: Draft) -> None:
    """Name and version from `suite`, from `name` and `version`, or from the file's own name."""
    data, file = draft.data, draft.file
    key = "suite" if "suite" in data else "name"
    if "suite" in data and "name" in data:
        raise ConfigError(f"{file.spot(('suite',))}: 'suite' says the same as 'name', which is there too; keep one")
    if key in data:
        given, origin = data.pop(key), f"{key} in {file.spot((key,))}"
        if not isinstance(given, str):
            raise ConfigError(f"{file.spot((key,))}: {key} is {shown(given)}; write a name such as my_suite_v1")
    else:
        given = re.sub(r"[^a-z0-9_.-]+", "_", PurePath(file.where).stem.lower()).strip("._-")
        origin = f"the name of the file {PurePath(file.where).name}"
        draft.note("name", read_version(given)[0], origin)
    name, version = read_version(given)
    draft.sources[("name",)] = draft.sources.pop((key,), (file, (key,)))
    data["name"] = name
    stated = data.get("version")
    if isinstance(stated, int | float):
        raise ConfigError(f"{file.spot(('version',))}: version {stated} is a number; write v{stated}, or use quotes")
    if isinstance(stated, str) and stated.startswith("v"):
        data["version"] = stated = stated[1:]
    if version is None:
        if stated is None:
            data["version"] = DEFAULT_VERSION
            draft.note("version", DEFAULT_VERSION, "the first version, since none is given")
    elif stated is None:
        data["version"] = version
        draft.note("version", version, origin)
    elif stated != version:
        raise ConfigError(
            f"{file.spot(('version',))}: version {shown(stated)} is not the {version!r} of {given!r}; keep one"
        )
