"""Suites as files: found by name or path, expanded from their short form, frozen with their digest.

A frozen suite is the full form, nothing left to fill in, with its digest in the first lines; it reads back to an
equal suite. Promises: a frozen version never changes: freezing other content under the same name and version is
refused, and a frozen file whose content no longer has its stated digest is refused when it is read.

The short form of a suite, and how it is expanded to the full one.

Short keys of the published examples are moved to where the full form has them: `sampling` and `generation` go to
`protocol.sampling`, `judge` and `input` into the protocol, `tool_protocol` to `protocol.tools` (its time limit to
`protocol.max_wall_time_minutes`), `baseline` to the control group, `datasets` to `benchmarks`, `split` to `splits`;
`suite: name_v1` becomes name and version.

What is left out comes from a track template, and every such part is noted. A key that the file has wins; mappings are
filled in key by key. Lists of benchmarks, metrics, gates and production tasks are complete where the file has them;
an entry may be a name alone or leave something out, and takes it from the template's entry of the same name. Short
metric names (`exact_match`) are read through the template's `metric_names`, `split: test` as `test_public`. Metrics
and gates of benchmarks that the suite does not use are left out, which is noted too. A part that neither file nor
template has is refused: nothing is guessed.

Promises: the result depends on the file and the packaged templates alone; expanding a full suite changes nothing.
"""

import copy
import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path, PurePath
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from agent2.config import Location, YamlText, first_problem, read_yaml, read_yaml_text
from agent2.contract.suite import MANDATORY_PARTS, Suite
from agent2.contract.suite_rules import Track, check_suite, load_tracks
from agent2.errors import ConfigError, quoted, unknown_name
from agent2.plugins import find, is_code, is_located, path_of, relative_to
from agent2.records import Split

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


YamlPath = tuple[int | str, ...]
FieldSource = tuple[YamlText, YamlPath]
"""A file, and the location in it."""


@dataclass(slots=True)
class Draft:
    """A suite on its way to the full form."""

    file: YamlText
    data: dict[str, Any]
    sources: dict[YamlPath, FieldSource] = field(default_factory=dict)
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
            raise ConfigError(f"{file.spot((key,))}: {key} is {quoted(given)}; write a name such as my_suite_v1")
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
            f"{file.spot(('version',))}: version {quoted(stated)} is not the {version!r} of {given!r}; keep one"
        )


SHORT_SPLITS = {"test": Split.TEST_PUBLIC.value}
REFERENCES = ("metric", "success", "cost")
"""Keys under which a gate names one metric; `metrics` names several."""

Entry = dict[str, Any]


def fill_benchmarks(draft: Draft, track: Track) -> None:
    """Complete the benchmarks that the file lists; all of the template's if it lists none."""
    given = draft.data.get("benchmarks")
    templates = _named(track, "benchmarks")
    if given is None:
        _take_all(draft, track, "benchmarks", templates)
        return
    if not isinstance(given, list):
        return  # refused when the suite is validated
    for place, entry in enumerate(given):
        if isinstance(entry, str):
            given[place] = entry = {"name": entry}
        if not isinstance(entry, dict):
            continue
        _complete(draft, track, "benchmarks", place, entry)
        _read_split(draft, place, entry)
        _read_metric(draft, track, place, entry)
    chosen = _names(given)
    for place, entry in enumerate(given):
        inherited = ("benchmarks", place, "requires") in draft.sources
        if isinstance(entry, dict) and inherited and isinstance(entry["requires"], list):
            kept = [need for need in entry["requires"] if need["benchmark"] in chosen]
            for need in entry["requires"]:
                if need not in kept:
                    why = f"left out: {need['benchmark']} is not in this suite"
                    draft.note(f"benchmarks[{entry['name']}].requires", need["benchmark"], why)
            entry["requires"] = kept


def fill_metrics(draft: Draft, track: Track) -> None:
    """Complete the metrics that the file lists; those of the template that fit the benchmarks if it lists none."""
    given = draft.data.get("metrics")
    templates = _named(track, "metrics")
    chosen = _names(draft.data["benchmarks"])
    fitting = {name: entry for name, entry in templates.items() if entry.get("benchmark") in (None, *chosen)}
    if given is None:
        _take_all(draft, track, "metrics", fitting)
        _note_absent(draft, "metrics", templates, fitting, "its benchmark is not in this suite")
        return
    if not isinstance(given, list):
        return
    metrics: list[Any] = []
    for place, entry in enumerate(given):
        if not isinstance(entry, str):
            metrics.append(entry)
            draft.sources[("metrics", len(metrics) - 1)] = (draft.file, ("metrics", place))
            if isinstance(entry, dict):
                _complete(draft, track, "metrics", len(metrics) - 1, entry)
            continue
        for name in _metrics_called(draft, track, entry, fitting, place):
            if name not in _names(metrics):
                metrics.append(_taken(draft, track, "metrics", name, len(metrics)))
    if any(isinstance(entry, str) for entry in given):
        safety = [name for name, entry in fitting.items() if entry.get("is_safety") and name not in _names(metrics)]
        for name in safety:
            metrics.append(_taken(draft, track, "metrics", name, len(metrics)))
        _note_names(draft, track, "metrics", safety)
    draft.data["metrics"] = metrics


def fill_gates(draft: Draft, track: Track) -> None:
    """Complete the gates that the file lists; those of the template whose metrics the suite has if it lists none."""
    given = draft.data.get("gates")
    if given is None:
        known = _names(draft.data.get("metrics", []))
        templates = _named(track, "gates")
        fitting = {name: gate for name, gate in templates.items() if _reads(gate) <= known}
        _take_all(draft, track, "gates", fitting)
        _note_absent(draft, "gates", templates, fitting, "it reads a metric that is not in this suite")
    elif isinstance(given, list):
        for place, entry in enumerate(given):
            if isinstance(entry, dict) and "kind" not in entry:
                _complete(draft, track, "gates", place, entry)


def fill_production_tasks(draft: Draft, track: Track) -> None:
    """The template's production tasks, less the benchmarks that this suite does not use."""
    if "task_distribution" in draft.data or "task_distribution" not in track.suite:
        return
    chosen = _names(draft.data["benchmarks"])
    tasks = []
    for task in copy.deepcopy(track.suite["task_distribution"]["production_tasks"]):
        kept = [name for name in task["benchmarks"] if name in chosen]
        if kept or not task["benchmarks"]:
            tasks.append({**task, "benchmarks": kept})
    if not tasks:
        return  # none of the template's work is tested here: the suite must say what is
    draft.data["task_distribution"] = {"production_tasks": tasks}
    here = ("suite", "task_distribution")
    draft.sources[("task_distribution",)] = (track.text, here)
    told = ", ".join(task["name"] for task in tasks)
    draft.note("task_distribution.production_tasks", told, f"track {track.name} ({track.text.spot(here)})")


def _named(track: Track, key: str) -> dict[str, Entry]:
    return {entry["name"]: entry for entry in track.suite.get(key, [])}


def _names(entries: object) -> set[str]:
    """Names of those entries that have one; what is malformed is refused when the suite is validated."""
    if not isinstance(entries, list):
        return set()
    return {entry["name"] for entry in entries if isinstance(entry, dict) and isinstance(entry.get("name"), str)}


def _reads(gate: Mapping[str, Any]) -> set[str]:
    return {gate[key] for key in REFERENCES if gate.get(key) is not None} | set(gate.get("metrics", ()))


def _taken(draft: Draft, track: Track, key: str, name: str, place: int) -> Any:
    """A copy of a whole entry of the template, which will be at `place`."""
    number = list(_named(track, key)).index(name)
    draft.sources[(key, place)] = (track.text, ("suite", key, number))
    return copy.deepcopy(track.suite[key][number])


def _take_all(draft: Draft, track: Track, key: str, fitting: Mapping[str, Entry]) -> None:
    draft.data[key] = [_taken(draft, track, key, name, place) for place, name in enumerate(fitting)]
    _note_names(draft, track, key, fitting)


def _complete(draft: Draft, track: Track, key: str, place: int, entry: Entry) -> None:
    """What an entry of the file leaves out, from the template's entry of its name."""
    templates = list(_named(track, key))
    if entry.get("name") not in templates:
        return
    number = templates.index(entry["name"])
    for part, value in track.suite[key][number].items():
        if part not in entry:
            entry[part] = copy.deepcopy(value)
            here = ("suite", key, number, part)
            draft.sources[(key, place, part)] = (track.text, here)
            origin = f"track {track.name} ({track.text.spot(here)})"
            draft.note(f"{key}[{entry['name']}].{part}", value, origin)


def _read_split(draft: Draft, place: int, entry: Entry) -> None:
    given = entry.get("split")
    if isinstance(given, str) and given in SHORT_SPLITS:
        entry["split"] = SHORT_SPLITS[given]
        where = draft.spot(("benchmarks", place, "split"))
        draft.note(f"benchmarks[{entry.get('name')}].split", entry["split"], f"{given!r} in {where}")
    elif isinstance(given, str) and given not in list(Split):
        known = [*(split.value for split in Split), *SHORT_SPLITS]
        raise unknown_name("split", given, known, draft.spot(("benchmarks", place, "split")))


def _read_metric(draft: Draft, track: Track, place: int, entry: Entry) -> None:
    """A benchmark's metric under the name that the suite's reports have for it."""
    given, benchmark = entry.get("metric"), entry.get("name")
    own = {name for name, metric in _named(track, "metrics").items() if metric.get("benchmark") == benchmark}
    written = draft.file.data.get("metrics")
    if not isinstance(given, str) or given in own or given in _names(written) or not own:
        return
    short = {name: sorted(own & set(full)) for name, full in track.metric_names.items() if own & set(full)}
    if given not in short:
        where = draft.spot(("benchmarks", place, "metric"))
        raise unknown_name(f"metric of {benchmark}", given, {*short, *own}, where)
    entry["metric"] = short[given][0]
    where = draft.spot(("benchmarks", place, "metric"))
    draft.note(f"benchmarks[{benchmark}].metric", entry["metric"], f"{given!r} in {where}")


def _metrics_called(draft: Draft, track: Track, given: str, fitting: Mapping[str, Entry], place: int) -> list[str]:
    """The template's metrics that a short name may mean."""
    if given in fitting:
        return [given]
    names = [name for name in track.metric_names.get(given, ()) if name in fitting]
    where = draft.file.spot(("metrics", place))
    if not names:
        raise unknown_name("metric", given, {*track.metric_names, *fitting}, where)
    draft.note("metrics", ", ".join(names), f"{given!r} in {where}")
    return names


def _note_names(draft: Draft, track: Track, key: str, names: Iterable[str]) -> None:
    numbers = list(_named(track, key))
    for name in names:
        origin = f"track {track.name} ({track.text.spot(('suite', key, numbers.index(name)))})"
        draft.note(f"{key}[{name}]", "the whole entry", origin)


def _note_absent(
    draft: Draft, key: str, templates: Mapping[str, Entry], fitting: Mapping[str, Entry], why: str
) -> None:
    for name in templates:
        if name not in fitting:
            draft.note(f"{key}[{name}]", "left out", why)


LISTS = ("benchmarks", "metrics", "gates")


@dataclass(frozen=True, slots=True)
class Expansion:
    """A full suite, and what of it the file did not say."""

    suite: Suite
    notes: tuple[Note, ...]
    """What a template or a rule of the shorthand said."""
    defaults: tuple[Note, ...]
    """What neither file nor template said: stated defaults of the records."""


def expand(file: YamlText, tracks: Mapping[str, Track] | None = None) -> Expansion:
    """The full suite of a file.

    tracks: the templates to fill in from; None: the packaged ones, empty: none.
    Raises ConfigError, with file and line, for an unknown name (the nearest one is given), a value out of range, a
    part that is missing and in no template, and parts that do not fit (`contract.suite_rules`).
    """
    draft = open_draft(file)
    tracks = load_tracks() if tracks is None else tracks
    track = _track_of(draft, tracks)
    if track is not None:
        _fill(draft, track)
    _require_parts(draft, track, tracks)
    try:
        suite = Suite.model_validate(draft.data)
    except ValidationError as error:
        location, sentence = first_problem(error, Suite)
        raise ConfigError(f"{draft.spot(location)}: {sentence}") from error
    check_suite(suite, draft.spot)
    return Expansion(suite, tuple(draft.notes), tuple(_defaults(suite, "")))


def _track_of(draft: Draft, tracks: Mapping[str, Track]) -> Track | None:
    """The template that a suite names, or else the one that its name or its keys belong to."""
    named = draft.data.get("track")
    if named is not None:
        return tracks.get(named) if isinstance(named, str) else None
    says_name = "suite" in draft.file.data or "name" in draft.file.data
    for track in tracks.values():
        if track.fits(draft.data["name"] if says_name else None, set(draft.file.data)):
            draft.data["track"] = track.name
            draft.sources[("track",)] = (track.text, ("track",))
            why = "the suite's name" if says_name else f"its keys {', '.join(track.text.data['keys'])}"
            draft.note("track", track.name, f"{why} ({track.text.spot(('match',))})")
            return track
    return None


def _fill(draft: Draft, track: Track) -> None:
    """Fill in from the template, lists first: they decide which other parts are needed."""
    fill_benchmarks(draft, track)
    fill_metrics(draft, track)
    fill_gates(draft, track)
    fill_production_tasks(draft, track)
    rest = {key: value for key, value in track.suite.items() if key not in LISTS}
    _merge(draft, track, draft.data, rest, ())


def _merge(draft: Draft, track: Track, target: dict[str, Any], template: Mapping[str, Any], place: YamlPath) -> None:
    """Fill missing keys of a mapping, and of the mappings in it."""
    for key, value in template.items():
        here = (*place, key)
        if key not in target:
            target[key] = copy.deepcopy(value)
            draft.sources[here] = (track.text, ("suite", *here))
            _note_leaves(draft, track, here, value)
        elif isinstance(value, Mapping) and isinstance(target[key], dict):
            _merge(draft, track, target[key], value, here)


def _note_leaves(draft: Draft, track: Track, place: YamlPath, value: object) -> None:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            _note_leaves(draft, track, (*place, key), inner)
    else:
        draft.note(".".join(map(str, place)), value, f"track {track.name} ({track.text.spot(('suite', *place))})")


def _require_parts(draft: Draft, track: Track | None, tracks: Mapping[str, Track]) -> None:
    """Refuse a gap that no template closes."""
    where, data = draft.file.where, draft.data
    advice = _advice(data.get("track"), track, tracks)
    if data.get("track") is None:
        known = ", ".join(sorted(tracks))
        raise ConfigError(f"{where}: no track is named and no template knows this suite; add 'track' (known: {known})")
    for part in MANDATORY_PARTS:
        if part != "scorer" and data.get(part) is None:
            parts = ", ".join(MANDATORY_PARTS)
            raise ConfigError(f"{where}: the suite has no {part}, one of its six mandatory parts ({parts}); {advice}")
    control = data["control_group"]
    if isinstance(control, Mapping) and "checkpoint" not in control:
        raise ConfigError(
            f"{draft.spot(('control_group',))}: the suite names no baseline, and a score without control group is no "
            "evidence of improvement; add 'baseline', or control_group.checkpoint: null if it is named for each run"
        )
    for key in LISTS:
        if not data.get(key):
            raise ConfigError(f"{where}: the suite has no {key}; {advice}")
    entries = data["benchmarks"]
    for place, entry in enumerate(entries if isinstance(entries, list) else ()):
        if isinstance(entry, Mapping) and "scorer" not in entry:
            known_to = f"track {track.name!r} does not know it" if track else "there is no template"
            raise ConfigError(
                f"{draft.spot(('benchmarks', place))}: benchmark {entry.get('name')!r} has no scorer and {known_to}; "
                "spell out its scorer, split, metric and n_items"
            )


def _defaults(record: BaseModel, place: str) -> Iterator[Note]:
    """Every value of a record, and of those in it, that was filled in; values that say "nothing" are left out."""
    for name in type(record).model_fields:
        value, here = getattr(record, name), f"{place}.{name}" if place else name
        if name not in record.model_fields_set:
            if value not in (None, [], {}):
                told = value.model_dump_json() if isinstance(value, BaseModel) else tell(value)
                yield Note(here, told, f"default of {type(record).__name__}")
        elif isinstance(value, BaseModel):
            yield from _defaults(value, here)
        elif isinstance(value, list):
            for number, inner in enumerate(value):
                if isinstance(inner, BaseModel):
                    yield from _defaults(inner, f"{here}[{getattr(inner, 'name', number)}]")


def _advice(name: object, track: Track | None, tracks: Mapping[str, Track]) -> str:
    if track is not None:
        return f"template {track.name!r} has none either; add it"
    if isinstance(name, str):
        hint = str(unknown_name("track", name, tracks)).partition("; ")[2]
        return f"track {name!r} has no template ({hint}); add the part, or name a track with a template"
    return "add it, or name a track with a template"


FOLDER = resources.files("agent2") / "suites"
FROZEN_SUFFIX = ".suite.yaml"
_DIGEST_LINE = re.compile(r"^# digest: ([0-9a-f]{64})$", re.MULTILINE)


def suite_names() -> list[str]:
    """The packaged suites."""
    found = FOLDER.iterdir()
    return sorted(entry.name.removesuffix(".yaml") for entry in found if entry.name.endswith(".yaml"))


def load_suite(name_or_path: str, overrides: Sequence[str] = ()) -> Suite:
    """A packaged or installed suite by name, or one by path (with a slash or ending in .yaml), fully expanded.

    overrides: "a.b=value" strings, applied to the file before it is expanded.
    Raises ConfigError as `expand` does, for an unknown name, and for a frozen suite that was changed.
    """
    return open_suite(name_or_path, overrides).suite


def open_suite(name_or_path: str, overrides: Sequence[str] = ()) -> Expansion:
    """Like `load_suite`, with a note on every part that the file did not say itself."""
    file, text = _read(name_or_path, overrides)
    _locate_sources(file)
    stated = _DIGEST_LINE.search(text)
    expansion = expand(file, {} if stated else None)  # a frozen suite is not touched by later templates
    if stated is not None and not overrides and stated[1] != expansion.suite.digest:
        raise ConfigError(
            f"{file.where}: the suite was frozen with digest {stated[1][:16]}, its content now has "
            f"{expansion.suite.digest[:16]}; undo the change, or give it a new version and freeze that"
        )
    return expansion


def frozen_text(suite: Suite) -> str:
    """The full form of a suite as YAML, its digest first. Equal suites give equal bytes."""
    body = yaml.safe_dump(suite.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=110)
    head = f"# Frozen suite {suite.id}; made by `agent2 suite freeze`, not meant to be edited.\n"
    return f"{head}# digest: {suite.digest}\n{body}"


def freeze(suite: Suite, folder: Path) -> Path:
    """Write the full suite to `folder`/<name>-vX.Y.suite.yaml, all at once; frozen already: nothing changes.

    Raises ConfigError if that version is frozen with other content.
    """
    path = folder / f"{suite.id}{FROZEN_SUFFIX}"
    if path.exists():
        there = load_suite(str(path))
        if there.digest != suite.digest:
            raise ConfigError(
                f"{path}: version {suite.version} of {suite.name} is frozen with digest {there.digest[:16]}, this one "
                f"has {suite.digest[:16]}; give the changed suite a new version (agent2 suite diff shows what differs)"
            )
        return path
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=folder, suffix=".part", encoding="utf-8", delete=False) as part:
        part.write(frozen_text(suite))
    try:
        os.link(part.name, path)  # fails if another process froze it meanwhile; a rename would replace it
    except FileExistsError:
        return freeze(suite, folder)
    finally:
        os.unlink(part.name)
    path.chmod(0o644)
    return path


def _locate_sources(file: YamlText) -> None:
    """Make the sources of benchmarks that are relative paths independent of where the command is run."""
    entries = file.data.get("benchmarks")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("source"), str):
            entry["source"] = relative_to(entry["source"], Path(file.where).parent)


def _read(name_or_path: str, overrides: Sequence[str]) -> tuple[YamlText, str]:
    if is_located(name_or_path) and not is_code(name_or_path):
        file = read_yaml(Path(name_or_path), overrides)
        return file, Path(name_or_path).read_text(encoding="utf-8")
    place = find("suite", name_or_path, {name: name for name in suite_names()})
    if not place.is_packaged:
        path = path_of(place)
        return read_yaml(path, overrides), path.read_text(encoding="utf-8")
    text = (FOLDER / f"{name_or_path}.yaml").read_text(encoding="utf-8")
    return read_yaml_text(text, f"suites/{name_or_path}.yaml", overrides), text
