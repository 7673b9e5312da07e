"""Cited addresses of a card: how many exist, were opened and are about what they are cited for, without fetching any.

What is known of an address is what the episode showed (`scorers.grounding.cited_urls`) and a recording of pages that
the caller gives: JSON lines with `url`, `status` and `text`, or the HAR file of a browser.

Promises: nothing is fetched; an address that nothing is known of is `unseen`, which is no proof that it does not exist;
rollouts without an address are counted, and are no success.
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent2.cards.aggregate import counted_value
from agent2.cards.reader import finished_header, iter_rollouts
from agent2.errors import ConfigError
from agent2.foreign_files import MAX_RECORD_BYTES, read_named
from agent2.records import RolloutStatus
from agent2.scorers.grounding.cited_urls import CitedUrl, RecordedPage, UrlFound, cited_urls, pages_by_url
from agent2.scorers.grounding.episodes import read_episode
from agent2.stats.estimates import UNIT, Estimate, measure_by_item
from agent2.texts import parse_json

SHARES: Mapping[str, str] = {
    "seen": "were opened, recorded, or shown by a result",
    "reachable": "were opened, or recorded with a status below 400",
    "relevant": "are about what they are cited for, of those whose page is known",
    "sound": "are reachable, and not about something else",
}
"""Share of a rollout's cited addresses -> what they are."""


@dataclass(frozen=True, slots=True)
class UnsoundCitation:
    """One address that is not sound."""

    item_id: str
    attempt: int
    cited: CitedUrl


@dataclass(frozen=True, slots=True)
class CitationReport:
    """The cited addresses of one checkpoint on one benchmark."""

    n_rollouts: int
    n_left_out: int
    """Rollouts that a fault ended."""
    n_citing: int
    """Rollouts whose answer cites an address."""
    n_cited: int
    n_irrelevant: int
    counts: Mapping[str, int]
    """What is known (`UrlFound`) -> addresses."""
    shares: Mapping[str, Estimate | None]
    """Name in `SHARES` -> mean over items of the share in a rollout that cites; None: no rollout has it."""
    score_sound: float | None
    """Mean score of rollouts whose addresses are all sound; None: there are none with a score."""
    score_unsound: float | None
    unsound: tuple[UnsoundCitation, ...]


def citations_of_card(card: Path, pages: Mapping[str, RecordedPage] | None = None) -> CitationReport:
    """Check every cited address of a finished card. Raises CardError for an open or damaged card."""
    header = finished_header(card)
    columns: dict[str, tuple[list[float], list[str]]] = {name: ([], []) for name in SHARES}
    scores: dict[bool, list[float]] = {True: [], False: []}
    counts, unsound = Counter[str](), list[UnsoundCitation]()
    n_rollouts = n_left_out = n_citing = n_irrelevant = 0
    for record in iter_rollouts(card):
        n_rollouts += 1
        rollout = record.rollout
        if rollout.status is RolloutStatus.FAILED:
            n_left_out += 1
            continue
        cited = cited_urls(rollout, read_episode(rollout), pages)
        if not cited:
            continue
        n_citing += 1
        counts.update(citation.state.value for citation in cited)
        n_irrelevant += sum(citation.is_relevant is False for citation in cited)
        for name, share in _shares(cited).items():
            if share is not None:
                columns[name][0].append(share)
                columns[name][1].append(rollout.item_id)
        bad = [citation for citation in cited if not citation.is_sound]
        unsound += [UnsoundCitation(rollout.item_id, rollout.attempt, citation) for citation in bad]
        score = counted_value(record, header.reporting)
        if score is not None:
            scores[not bad].append(score)
    return CitationReport(
        n_rollouts=n_rollouts,
        n_left_out=n_left_out,
        n_citing=n_citing,
        n_cited=counts.total(),
        n_irrelevant=n_irrelevant,
        counts={state.value: counts[state.value] for state in UrlFound},
        shares={
            name: measure_by_item(values, items, name, UNIT) if values else None
            for name, (values, items) in columns.items()
        },
        score_sound=_mean(scores[True]),
        score_unsound=_mean(scores[False]),
        unsound=tuple(unsound),
    )


def _shares(cited: list[CitedUrl]) -> dict[str, float | None]:
    judged = [citation.is_relevant for citation in cited if citation.is_relevant is not None]
    reachable = (UrlFound.OPENED, UrlFound.RECORDED)
    return {
        "seen": _mean([float(citation.state in (*reachable, UrlFound.SHOWN)) for citation in cited]),
        "reachable": _mean([float(citation.state in reachable) for citation in cited]),
        "relevant": _mean([float(is_relevant) for is_relevant in judged]),
        "sound": _mean([float(citation.is_sound) for citation in cited]),
    }


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def read_pages(path: Path) -> dict[str, RecordedPage]:
    """A recording of pages: JSON lines with `url`, `status` (default 200) and `text`, or a `.har` file.

    Raises ConfigError for a file that cannot be read, and for the first line that is no such record.
    """
    try:
        text = read_named(path, MAX_RECORD_BYTES).decode("utf-8-sig", "replace")
    except OSError as error:
        reason = error.strerror or error
        raise ConfigError(f"{path}: cannot be read ({reason}); give a .jsonl or .har file of recorded pages") from error
    if path.suffix.lower() == ".har":
        return pages_by_url(_har_records(path, text))
    records = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                records.append(_page_record(parse_json(line)))
            except (ValueError, RecursionError) as error:
                raise ConfigError(f'{path}:{number}: {error}; a line is {{"url": ..., "text": ...}}') from error
    return pages_by_url(records)


def _page_record(line: Any) -> dict[str, Any]:
    if not isinstance(line, dict) or not isinstance(line.get("url"), str):
        raise ValueError("is no object with a url")
    status, text = line.get("status", 200), line.get("text") or ""
    if not isinstance(status, int) or isinstance(status, bool) or not isinstance(text, str):
        raise ValueError(f"status {json.dumps(status)} is no number, or text no text")
    return {"url": line["url"], "status": status, "text": text}


def _har_records(path: Path, text: str) -> list[dict[str, Any]]:
    """Of the requests of a HAR file; one without an answer (status 0) is a page that could not be reached."""
    try:
        entries = parse_json(text)["log"]["entries"]
        return [
            {
                "url": str(entry["request"]["url"]),
                "status": int(entry["response"]["status"]) or 599,
                "text": str(entry["response"].get("content", {}).get("text") or ""),
            }
            for entry in entries
        ]
    except (ValueError, OverflowError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path}: is no HAR file ({error!r}); save it again from the browser") from error
