"""From a shorthand suite to a full one: what was left out comes from a track template, and every such part is noted.

Rules. A key that the file has wins; mappings are filled in key by key. Lists of benchmarks, metrics and gates are
complete where the file has them; an entry takes what it leaves out from the template's entry of the same name.
Metrics and gates of benchmarks that the suite does not use are left out, which is noted too. A part that neither
file nor template has is refused: nothing is guessed.

Promises: the result depends on the file and the packaged templates alone; expanding a full suite changes nothing.
"""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from agent2.config import YamlText, first_problem
from agent2.contract.expand_lists import fill_benchmarks, fill_gates, fill_metrics, fill_production_tasks
from agent2.contract.shorthand import Draft, Note, Place, open_draft, tell
from agent2.contract.suite import MANDATORY_PARTS, Suite
from agent2.contract.suite_rules import check_suite
from agent2.contract.tracks import Track, load_tracks
from agent2.errors import ConfigError, unknown_name

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


def _merge(draft: Draft, track: Track, target: dict[str, Any], template: Mapping[str, Any], place: Place) -> None:
    """Fill missing keys of a mapping, and of the mappings in it."""
    for key, value in template.items():
        here = (*place, key)
        if key not in target:
            target[key] = copy.deepcopy(value)
            draft.sources[here] = (track.text, ("suite", *here))
            _note_leaves(draft, track, here, value)
        elif isinstance(value, Mapping) and isinstance(target[key], dict):
            _merge(draft, track, target[key], value, here)


def _note_leaves(draft: Draft, track: Track, place: Place, value: object) -> None:
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
    """Every value of a record, and of those in it, that nobody wrote; values that say "nothing" are left out."""
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
