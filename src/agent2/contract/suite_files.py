"""Suites as files: found by name or path, expanded from their short form, frozen with their digest.

Short form. Short keys of the published examples are moved to where the full form has them: `sampling` and `generation`
go to `protocol.sampling`, `judge` and `input` into the protocol, `tool_protocol` to `protocol.tools` (its time limit to
`protocol.max_wall_time_minutes`), `baseline` to the control group, `datasets` to `benchmarks`, `split` to `splits`;
`suite: name_v1` becomes name and version.

Parts that are left out come from a track template, and each is noted. A key that the file has wins; mappings are
filled in key by key. Lists of benchmarks, metrics, gates and production tasks are complete where the file has them;
an entry may be a name alone or leave something out, and takes it from the template's entry of the same name. Short
metric names (`exact_match`) are read through the template's `metric_names`, `split: test` as `test_public`. Metrics
and gates of benchmarks that the suite does not use are left out, which is noted too. A part that neither file nor
template has is refused: nothing is guessed.

A benchmark that the template does not know keeps its own sampling, in every field that the file does not state.

A frozen suite is the full form, nothing left to fill in, with its digest in the first lines; it reads back to an
equal suite.

Promises: the result depends on the file and the packaged templates alone; expanding a full suite changes nothing; a
frozen version never changes: freezing other content under the same name and version is refused, and a frozen file whose
content no longer has its stated digest is refused when it is read.
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
from agent2.contract.suite import MANDATORY_PARTS, BenchmarkSampling, Suite
from agent2.contract.suite_rules import Track, check_suite, load_tracks
from agent2.errors import ConfigError, quoted, unknown_name
from agent2.plugins import find, is_code, is_located, known_names, path_of, relative_to
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
"""Short key -> location in the full form, in the order in which they are moved."""
SHORT_KEYS = frozenset({short[0] for short, _ in MOVES} | {"suite"})
DEFAULT_VERSION = "1.0"
MAX_NOTE_CHARS = 44
"""Of a value in a note."""
SHORT_SPLITS = {"test": Split.TEST_PUBLIC.value}
REFERENCES = ("metric", "success", "cost")
"""Keys under which a gate names one metric; `metrics` names several."""
LISTS = ("benchmarks", "metrics", "gates")
FOLDER = resources.files("agent2") / "suites"
FROZEN_SUFFIX = ".suite.yaml"

_VERSIONED = re.compile(r"(?P<name>.+?)[-_]v(?P<major>\d+)(?:\.(?P<minor>\d+))?")
_DIGEST_LINE = re.compile(r"^# digest: ([0-9a-f]{64})$", re.MULTILINE)

YamlPath = tuple[int | str, ...]
FieldSource = tuple[YamlText, YamlPath]
"""A file, and the location in it."""
Entry = dict[str, Any]
"""Of a list of the suite: a benchmark, a metric, a gate."""


@dataclass(frozen=True, slots=True)
class Note:
    """One thing that a suite's file does not say itself."""

    field: str
    value: str
    origin: str
    """Where it comes from: a template with its line, or the rule that was applied."""


@dataclass(slots=True)
class Draft:
    """A suite while it is brought to the full form."""

    file: YamlText
    data: dict[str, Any]
    sources: dict[YamlPath, FieldSource] = field(default_factory=dict)
    """Location in `data` -> where it was written; the parts of a location were written below it."""
    notes: list[Note] = field(default_factory=list)

    def spot(self, location: Location) -> str:
        """`file:line` of a location of `data`; for what no file has, of the nearest part that one has.

        Begins with the file that its author can change, also where a template filled the part in.
        """
        path = tuple(location)
        for length in range(len(path), -1, -1):
            if path[:length] in self.sources:
                text, written = self.sources[path[:length]]
                spot = text.spot((*written, *path[length:]))
                return spot if text is self.file else f"{self.file.where}: filled in from {spot}"
        return self.file.spot(location)

    def note(self, name: str, value: object, origin: str) -> None:
        """Note a part that was filled in, read or left out."""
        self.notes.append(Note(name, value_text(value), origin))


def value_text(value: object) -> str:
    """A value as a suite's file would have it, cut short."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= MAX_NOTE_CHARS else text[: MAX_NOTE_CHARS - 1] + "…"


def open_draft(file: YamlText) -> Draft:
    """The file in the keys of the full form.

    Raises ConfigError for a key that neither form has, for two keys that say the same, and for a name without form.
    """
    keys = set(Suite.model_fields) | SHORT_KEYS
    for key in file.data:
        if key not in keys:
            raise unknown_name("key", str(key), keys, file.spot((key,)))
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
    parent = draft.data.get(short[0]) if len(short) == 2 else draft.data
    if not isinstance(parent, dict) or short[-1] not in parent:
        return
    value, target = parent.pop(short[-1]), draft.data
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
        full_name, origin = data.pop(key), f"{key} in {file.spot((key,))}"
        if not isinstance(full_name, str):
            raise ConfigError(f"{file.spot((key,))}: {key} is {quoted(full_name)}; write a name such as my_suite_v1")
    else:
        full_name = re.sub(r"[^a-z0-9_.-]+", "_", PurePath(file.where).stem.lower()).strip("._-")
        origin = f"the name of the file {PurePath(file.where).name}"
        draft.note("name", read_version(full_name)[0], origin)
    name, version = read_version(full_name)
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
            f"{file.spot(('version',))}: version {quoted(stated)} is not the {version!r} of {full_name!r}; keep one"
        )


def fill_benchmarks(draft: Draft, track: Track) -> None:
    """Complete the benchmarks that the file lists; all of the template's if it lists none."""
    entries = draft.data.get("benchmarks")
    templates = _named(track, "benchmarks")
    if entries is None:
        _take_all(draft, track, "benchmarks", templates)
        return
    if not isinstance(entries, list):
        return  # refused when the suite is validated
    for index, entry in enumerate(entries):
        if isinstance(entry, str):
            entries[index] = entry = {"name": entry}
        if not isinstance(entry, dict):
            continue
        _complete(draft, track, "benchmarks", index, entry)
        _keep_sampling(draft, track, entry)
        _read_split(draft, index, entry)
        _read_metric(draft, track, index, entry)
    chosen = _names(entries)
    for index, entry in enumerate(entries):
        is_inherited = ("benchmarks", index, "requires") in draft.sources
        if isinstance(entry, dict) and is_inherited and isinstance(entry["requires"], list):
            chosen_needs = [need for need in entry["requires"] if need["benchmark"] in chosen]
            for need in entry["requires"]:
                if need not in chosen_needs:
                    origin = f"left out: {need['benchmark']} is not in this suite"
                    draft.note(f"benchmarks[{entry['name']}].requires", need["benchmark"], origin)
            entry["requires"] = chosen_needs


def fill_metrics(draft: Draft, track: Track) -> None:
    """Complete the metrics that the file lists; those of the template that fit the benchmarks if it lists none."""
    entries = draft.data.get("metrics")
    templates = _named(track, "metrics")
    chosen = _names(draft.data["benchmarks"])
    fitting = {name: entry for name, entry in templates.items() if entry.get("benchmark") in (None, *chosen)}
    if entries is None:
        _take_all(draft, track, "metrics", fitting)
        _note_absent(draft, "metrics", templates, fitting, "its benchmark is not in this suite")
        return
    if not isinstance(entries, list):
        return
    metrics: list[Any] = []
    for index, entry in enumerate(entries):
        if not isinstance(entry, str):
            metrics.append(entry)
            draft.sources[("metrics", len(metrics) - 1)] = (draft.file, ("metrics", index))
            if isinstance(entry, dict):
                _complete(draft, track, "metrics", len(metrics) - 1, entry)
            continue
        for name in _metrics_of_short_name(draft, track, entry, fitting, index):
            # Two short names may mean the same metric.
            if name not in _names(metrics):
                metrics.append(_copy_of_template(draft, track, "metrics", name, len(metrics)))
    if any(isinstance(entry, str) for entry in entries):
        # Short names never leave out a safety metric of the template.
        safety = [name for name, entry in fitting.items() if entry.get("is_safety") and name not in _names(metrics)]
        for name in safety:
            metrics.append(_copy_of_template(draft, track, "metrics", name, len(metrics)))
        _note_names(draft, track, "metrics", safety)
    draft.data["metrics"] = metrics


def fill_gates(draft: Draft, track: Track) -> None:
    """Complete the gates that the file lists; those of the template whose metrics the suite has if it lists none."""
    entries = draft.data.get("gates")
    if entries is None:
        metrics = _names(draft.data.get("metrics", []))
        templates = _named(track, "gates")
        fitting = {name: gate for name, gate in templates.items() if _reads(gate) <= metrics}
        _take_all(draft, track, "gates", fitting)
        _note_absent(draft, "gates", templates, fitting, "it reads a metric that is not in this suite")
    elif isinstance(entries, list):
        for index, entry in enumerate(entries):
            if isinstance(entry, dict) and "kind" not in entry:
                _complete(draft, track, "gates", index, entry)


def fill_production_tasks(draft: Draft, track: Track) -> None:
    """The template's production tasks, less the benchmarks that this suite does not use."""
    if "task_distribution" in draft.data or "task_distribution" not in track.suite:
        return
    chosen = _names(draft.data["benchmarks"])
    tasks = []
    for task in copy.deepcopy(track.suite["task_distribution"]["production_tasks"]):
        benchmarks = [name for name in task["benchmarks"] if name in chosen]
        if benchmarks or not task["benchmarks"]:
            tasks.append({**task, "benchmarks": benchmarks})
    if not tasks:
        return  # the suite tests none of the template's tasks: it must name its own
    draft.data["task_distribution"] = {"production_tasks": tasks}
    location = ("suite", "task_distribution")
    draft.sources[("task_distribution",)] = (track.text, location)
    names = ", ".join(task["name"] for task in tasks)
    draft.note("task_distribution.production_tasks", names, f"track {track.name} ({track.text.spot(location)})")


def _named(track: Track, key: str) -> dict[str, Entry]:
    return {entry["name"]: entry for entry in track.suite.get(key, [])}


def _names(entries: object) -> set[str]:
    """Names of those entries that have one; what is malformed is refused when the suite is validated."""
    if not isinstance(entries, list):
        return set()
    return {entry["name"] for entry in entries if isinstance(entry, dict) and isinstance(entry.get("name"), str)}


def _reads(gate: Mapping[str, Any]) -> set[str]:
    return {gate[key] for key in REFERENCES if gate.get(key) is not None} | set(gate.get("metrics", ()))


def _copy_of_template(draft: Draft, track: Track, key: str, name: str, index: int) -> Any:
    """A copy of a whole entry of the template; index: in the list of the suite."""
    number = list(_named(track, key)).index(name)
    draft.sources[(key, index)] = (track.text, ("suite", key, number))
    return copy.deepcopy(track.suite[key][number])


def _take_all(draft: Draft, track: Track, key: str, fitting: Mapping[str, Entry]) -> None:
    draft.data[key] = [_copy_of_template(draft, track, key, name, index) for index, name in enumerate(fitting)]
    _note_names(draft, track, key, fitting)


def _complete(draft: Draft, track: Track, key: str, index: int, entry: Entry) -> None:
    """Fill in the keys that an entry of the file leaves out, from the template's entry of its name."""
    templates = list(_named(track, key))
    if entry.get("name") not in templates:
        return
    number = templates.index(entry["name"])
    for part, value in track.suite[key][number].items():
        if part not in entry:
            entry[part] = copy.deepcopy(value)
            location = ("suite", key, number, part)
            draft.sources[(key, index, part)] = (track.text, location)
            origin = f"track {track.name} ({track.text.spot(location)})"
            draft.note(f"{key}[{entry['name']}].{part}", value, origin)


def _keep_sampling(draft: Draft, track: Track, entry: Entry) -> None:
    """The benchmark's own sampling where the file states none and the template, which does, does not know it."""
    if entry.get("name") in _named(track, "benchmarks") or "sampling" in entry:
        return
    protocol = draft.data.get("protocol")
    stated = protocol.get("sampling") if isinstance(protocol, dict) else None
    values = dict(stated) if isinstance(stated, dict) else {}
    sampling = {key: values.get(key) for key in BenchmarkSampling.model_fields}
    absent = [key for key, value in sampling.items() if value is None]
    if absent:
        entry["sampling"] = sampling
        origin = "the benchmark itself, since the suite states none"
        draft.note(f"benchmarks[{entry.get('name')}].sampling", f"own {', '.join(absent)}", origin)


def _read_split(draft: Draft, index: int, entry: Entry) -> None:
    split = entry.get("split")
    if isinstance(split, str) and split in SHORT_SPLITS:
        entry["split"] = SHORT_SPLITS[split]
        where = draft.spot(("benchmarks", index, "split"))
        draft.note(f"benchmarks[{entry.get('name')}].split", entry["split"], f"{split!r} in {where}")
    elif isinstance(split, str) and split not in list(Split):
        names = [*(member.value for member in Split), *SHORT_SPLITS]
        raise unknown_name("split", split, names, draft.spot(("benchmarks", index, "split")))


def _read_metric(draft: Draft, track: Track, index: int, entry: Entry) -> None:
    """A benchmark's metric under the name that the suite's reports have for it."""
    metric, benchmark = entry.get("metric"), entry.get("name")
    own_metrics = {
        name for name, template in _named(track, "metrics").items() if template.get("benchmark") == benchmark
    }
    written = draft.file.data.get("metrics")
    if not isinstance(metric, str) or metric in own_metrics or metric in _names(written) or not own_metrics:
        return
    short = {
        name: sorted(own_metrics & set(full)) for name, full in track.metric_names.items() if own_metrics & set(full)
    }
    if metric not in short:
        where = draft.spot(("benchmarks", index, "metric"))
        raise unknown_name(f"metric of {benchmark}", metric, {*short, *own_metrics}, where)
    entry["metric"] = short[metric][0]
    where = draft.spot(("benchmarks", index, "metric"))
    draft.note(f"benchmarks[{benchmark}].metric", entry["metric"], f"{metric!r} in {where}")


def _metrics_of_short_name(
    draft: Draft, track: Track, short_name: str, fitting: Mapping[str, Entry], index: int
) -> list[str]:
    """The template's metrics that a short name may mean."""
    if short_name in fitting:
        return [short_name]
    names = [name for name in track.metric_names.get(short_name, ()) if name in fitting]
    where = draft.file.spot(("metrics", index))
    if not names:
        raise unknown_name("metric", short_name, {*track.metric_names, *fitting}, where)
    draft.note("metrics", ", ".join(names), f"{short_name!r} in {where}")
    return names


def _note_names(draft: Draft, track: Track, key: str, names: Iterable[str]) -> None:
    numbers = list(_named(track, key))
    for name in names:
        origin = f"track {track.name} ({track.text.spot(('suite', key, numbers.index(name)))})"
        draft.note(f"{key}[{name}]", "the whole entry", origin)


def _note_absent(
    draft: Draft, key: str, templates: Mapping[str, Entry], fitting: Mapping[str, Entry], reason: str
) -> None:
    for name in templates:
        if name not in fitting:
            draft.note(f"{key}[{name}]", "left out", reason)


@dataclass(frozen=True, slots=True)
class Expansion:
    """A full suite, and the parts of it that its file leaves out."""

    suite: Suite
    notes: tuple[Note, ...]
    """Parts from a template, or from a rule of the short form."""
    defaults: tuple[Note, ...]
    """Parts that neither file nor template has: stated defaults of the records."""


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
    track_name = draft.data.get("track")
    if track_name is not None:
        return tracks.get(track_name) if isinstance(track_name, str) else None
    has_name = "suite" in draft.file.data or "name" in draft.file.data
    for track in tracks.values():
        if track.fits(draft.data["name"] if has_name else None, set(draft.file.data)):
            draft.data["track"] = track.name
            draft.sources[("track",)] = (track.text, ("track",))
            reason = "the suite's name" if has_name else f"its keys {', '.join(track.text.data['keys'])}"
            draft.note("track", track.name, f"{reason} ({track.text.spot(('match',))})")
            return track
    return None


def _fill(draft: Draft, track: Track) -> None:
    """Fill in from the template, lists first: they decide which other parts are needed."""
    # In this order: metrics are chosen by the benchmarks, gates by the metrics.
    fill_benchmarks(draft, track)
    fill_metrics(draft, track)
    fill_gates(draft, track)
    fill_production_tasks(draft, track)
    # tasks of the template whose benchmarks the suite does not have are none of its tasks
    is_filled = "task_distribution" in draft.data or not _names(draft.data["benchmarks"])
    left_out = LISTS if is_filled else (*LISTS, "task_distribution")
    other_parts = {key: value for key, value in track.suite.items() if key not in left_out}
    _merge(draft, track, draft.data, other_parts, ())


def _merge(draft: Draft, track: Track, target: dict[str, Any], template: Mapping[str, Any], path: YamlPath) -> None:
    """Fill missing keys of a mapping, and of the mappings in it."""
    for key, value in template.items():
        inner_path = (*path, key)
        if key not in target:
            target[key] = copy.deepcopy(value)
            draft.sources[inner_path] = (track.text, ("suite", *inner_path))
            _note_leaves(draft, track, inner_path, value)
        elif isinstance(value, Mapping) and isinstance(target[key], dict):
            _merge(draft, track, target[key], value, inner_path)


def _note_leaves(draft: Draft, track: Track, path: YamlPath, value: object) -> None:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            _note_leaves(draft, track, (*path, key), inner)
    else:
        draft.note(".".join(map(str, path)), value, f"track {track.name} ({track.text.spot(('suite', *path))})")


ENTRY_KEYS = {
    "scorer": "{{name: exact, tier: reference}}",
    "split": "test_public",
    "metric": "{name}_accuracy",
    "n_items": "null",
}
"""What no default decides about a benchmark -> an example of it."""


def _require_parts(draft: Draft, track: Track | None, tracks: Mapping[str, Track]) -> None:
    """Refuse a gap that no template closes."""
    where, data = draft.file.where, draft.data
    advice = _advice(data.get("track"), track, tracks)
    if data.get("track") is None:
        names = ", ".join(sorted(tracks))
        raise ConfigError(f"{where}: no track is named and no template matches; add 'track' (known: {names})")
    for part in MANDATORY_PARTS:
        if part != "scorer" and data.get(part) is None:
            parts = ", ".join(MANDATORY_PARTS)
            if part == "task_distribution" and part not in data and track is not None and track.suite.get(part):
                raise ConfigError(f"{where}: {_own_tasks_advice(track, data)}")
            raise ConfigError(f"{where}: the suite has no {part}, one of its six mandatory parts ({parts}); {advice}")
    control = data["control_group"]
    if isinstance(control, Mapping) and "checkpoint" not in control:
        raise ConfigError(
            f"{draft.file.spot(('control_group',))}: the suite names no baseline, and a score without control group "
            "is no evidence of improvement; add a line 'baseline: FOLDER', or 'control_group: {kind: sft, checkpoint: "
            "null}' where each run names its own with --baseline"
        )
    for key in LISTS:
        if not data.get(key):
            raise ConfigError(f"{where}: the suite has no {key}; {advice}")
    entries = data["benchmarks"]
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        absent = [key for key in ENTRY_KEYS if key not in entry] if isinstance(entry, Mapping) else []
        if absent:
            name = entry.get("name")
            lack = f"track {track.name!r} does not know it" if track else "there is no template"
            missing = ", ".join(f"{key}: {ENTRY_KEYS[key].format(name=name)}" for key in absent)
            raise ConfigError(
                f"{draft.spot(('benchmarks', index))}: benchmark {name!r} has no {' and no '.join(absent)}, and "
                f"{lack}; add {missing} (an example), or let `agent2 suite new ./{name}` write the suite"
            )


def _defaults(record: BaseModel, path: str) -> Iterator[Note]:
    """Every value of a record, and of those in it, that was filled in; values that say "nothing" are left out."""
    for name in type(record).model_fields:
        value, inner_path = getattr(record, name), f"{path}.{name}" if path else name
        if name not in record.model_fields_set:
            if value not in (None, [], {}):
                text = value.model_dump_json() if isinstance(value, BaseModel) else value_text(value)
                yield Note(inner_path, text, f"default of {type(record).__name__}")
        elif isinstance(value, BaseModel):
            yield from _defaults(value, inner_path)
        elif isinstance(value, list):
            for number, inner in enumerate(value):
                if isinstance(inner, BaseModel):
                    yield from _defaults(inner, f"{inner_path}[{getattr(inner, 'name', number)}]")


def _own_tasks_advice(track: Track, data: Mapping[str, Any]) -> str:
    names = sorted(_names(data.get("benchmarks"))) or ["NAME"]
    tasks = ", ".join(f"{{name: {name}, difficulty: medium, benchmarks: [{name}]}}" for name in names[:3])
    return (
        f"none of the tasks of template {track.name!r} uses the suite's benchmarks, so it needs a task_distribution of "
        f"its own; add task_distribution: {{production_tasks: [{tasks}]}}"
    )


def _advice(name: object, track: Track | None, tracks: Mapping[str, Track]) -> str:
    if track is not None:
        return f"template {track.name!r} has none either; add it"
    if isinstance(name, str):
        hint = str(unknown_name("track", name, tracks)).partition("; ")[2]
        return f"track {name!r} has no template ({hint}); add the part, or name a track with a template"
    return "add it, or name a track with a template"


def suite_names() -> list[str]:
    """The packaged suites."""
    return sorted(entry.name.removesuffix(".yaml") for entry in FOLDER.iterdir() if entry.name.endswith(".yaml"))


def load_suite(name_or_path: str, overrides: Sequence[str] = ()) -> Suite:
    """A packaged or installed suite by name, or one by path (with a slash or ending in .yaml), fully expanded.

    overrides: "a.b=value" strings, applied to the file before it is expanded.
    Raises ConfigError as `expand` does, for an unknown name, and for a frozen suite that was changed.
    """
    return open_suite(name_or_path, overrides).suite


def open_suite(name_or_path: str, overrides: Sequence[str] = ()) -> Expansion:
    """Like `load_suite`, with a note on every part that the file leaves out."""
    file, text = _read(name_or_path, overrides)
    _locate_sources(file)
    stated = _DIGEST_LINE.search(text)
    # Without templates for a frozen suite, so that later ones never change it.
    expansion = expand(file, {} if stated else None)
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
    """Write the full suite to `folder`/<name>-vX.Y.suite.yaml, atomically; frozen already: nothing changes.

    Raises ConfigError if that version is frozen with other content.
    """
    path = folder / f"{suite.id}{FROZEN_SUFFIX}"
    if path.exists():
        frozen = load_suite(str(path))
        if frozen.digest != suite.digest:
            raise ConfigError(
                f"{path}: version {suite.version} of {suite.name} is frozen with digest {frozen.digest[:16]}, this one "
                f"has {suite.digest[:16]}; give the changed suite a new version (agent2 suite diff shows what differs)"
            )
        return path
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=folder, suffix=".part", encoding="utf-8", delete=False) as part:
        part.write(frozen_text(suite))
    try:
        # Unlike a rename, which would replace it, a link fails if another process froze the suite meanwhile.
        os.link(part.name, path)
    except FileExistsError:
        return freeze(suite, folder)
    finally:
        os.unlink(part.name)
    path.chmod(0o644)
    return path


def _locate_sources(file: YamlText) -> None:
    """Make sources and judges of benchmarks and the code of step rules independent of where the command is run."""
    for part, key in (("benchmarks", "source"), ("process_rules", "check")):
        entries = file.data.get(part)
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, dict) and isinstance(entry.get(key), str):
                entry[key] = relative_to(entry[key], Path(file.where).parent)
    benchmarks = file.data.get("benchmarks")
    for entry in benchmarks if isinstance(benchmarks, list) else ():
        judge = entry.get("pair_judge") if isinstance(entry, dict) else None
        if isinstance(judge, dict) and isinstance(judge.get("scorer"), str):
            judge["scorer"] = relative_to(judge["scorer"], Path(file.where).parent)


def _read_file(path: Path, overrides: Sequence[str]) -> tuple[YamlText, str]:
    file = read_yaml(path, overrides)
    return file, file.text


def _read(name_or_path: str, overrides: Sequence[str]) -> tuple[YamlText, str]:
    if is_located(name_or_path) and not is_code(name_or_path):
        return _read_file(Path(name_or_path), overrides)
    if name_or_path not in known_names("suite", suite_names()) and not is_code(name_or_path):
        path = Path(name_or_path)
        if path.exists():
            raise ConfigError(
                f"{name_or_path}: is a {'folder' if path.is_dir() else 'file'}, and no suite; a suite is a .yaml file, "
                "which agent2 suite new BENCHMARK writes; agent2 benchmarks new FILE makes a benchmark of a file of "
                "questions"
            )
    location = find("suite", name_or_path, {name: name for name in suite_names()})
    if not location.is_packaged:
        return _read_file(path_of(location), overrides)
    text = (FOLDER / f"{name_or_path}.yaml").read_text(encoding="utf-8")
    return read_yaml_text(text, f"suites/{name_or_path}.yaml", overrides), text
