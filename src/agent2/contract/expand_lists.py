"""Filling in the lists of a suite: benchmarks, metrics, gates, production tasks.

A list that the file has is the whole list. Its entries may be names alone, or records that leave something out; the
template's entry of the same name completes them. Short metric names (`exact_match`) are read through the template's
`metric_names`, `split: test` as `test_public`; every reading is noted.
"""

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from agent2.contract.shorthand import Draft
from agent2.contract.tracks import Track
from agent2.errors import unknown_name
from agent2.records import Split

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
    """A copy of a whole entry of the template, which will stand at `place`."""
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
    """The template's metrics that a short name stands for."""
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
