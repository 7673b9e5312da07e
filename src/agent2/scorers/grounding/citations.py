"""Detectors of the class citation: sources that do not exist, were not read or do not say it; altered quotations."""

import re
from collections.abc import Iterator, Mapping, Sequence

from agent2.scorers.grounding.claims import (
    ClaimKind,
    Seen,
    Statement,
    ToolEpisode,
    claims_of,
    leaves_of,
    plain,
)
from agent2.scorers.grounding.grounds import GroundingFinding, Grounds, unsaid


def missing_source(grounds: Grounds) -> Iterator[GroundingFinding]:
    """A cited source that does not exist or was never shown."""
    final = grounds.episode.final
    turn = 0 if final is None else final.turn
    for one in grounds.episode.citations:
        if not one.get("exists"):
            yield GroundingFinding("missing_source", turn, str(one.get("page")), "there is no such page")
    for statement in grounds.told:
        seen = grounds.seen(statement.turn)
        for claim in claims_of(statement.text, with_names=False):
            if claim.kind is ClaimKind.ADDRESS and "@" not in claim.text and not seen.says(claim):
                yield GroundingFinding("missing_source", statement.turn, claim.text, "this address was never shown")
        shown = {int(one) for text in seen.texts[1:] for one in re.findall(r"\[(\d{1,3})\]", text)}
        for mark in dict.fromkeys(int(number) for number in re.findall(r"\[(\d{1,3})\]", statement.text)):
            if shown and mark not in shown:
                yield GroundingFinding("missing_source", statement.turn, f"[{mark}]", "no result has this number")


_OPENING = re.compile(r"open|fetch|read|visit|browse|get_page|load|scrape|click", re.IGNORECASE)


def _read_sources(episode: ToolEpisode) -> dict[str, list[str]]:
    """Source, as `plain` writes it, to what an opening tool showed of it; what `find` shows is of the page before."""
    read: dict[str, list[str]] = {}
    page = None
    for call in episode.calls:
        if call.result is None or not call.name:
            continue
        if _OPENING.search(call.name):
            named = [str(value) for value in leaves_of(call.arguments) if isinstance(value, str)]
            page = _bare(named[0]) if named else page
        elif call.name != "find":
            continue
        if page is not None:
            read.setdefault(page, []).append(str(call.result))
    return read


def _bare(source: str) -> str:
    return plain(re.sub(r"^(?:https?://)?(?:www\.)?|/+$", "", source.strip()))


def unread_source(grounds: Grounds) -> Iterator[GroundingFinding]:
    """A cited source that exists and was not opened."""
    final = grounds.episode.final
    for one in grounds.episode.citations:
        if one.get("exists") and not one.get("opened"):
            turn = 0 if final is None else final.turn
            yield GroundingFinding("unread_source", turn, str(one.get("page")), "this page was not opened")
    read = _read_sources(grounds.episode)
    if not read:
        return
    for statement in grounds.told:
        seen = grounds.seen(statement.turn)
        for claim in claims_of(statement.text, with_names=False):
            is_cited = claim.kind is ClaimKind.ADDRESS and "@" not in claim.text and seen.says(claim)
            if is_cited and _bare(claim.text) not in read and not _was_asked_for(claim.text, grounds.episode):
                yield GroundingFinding("unread_source", statement.turn, claim.text, "this address was not opened")


def _was_asked_for(address: str, episode: ToolEpisode) -> bool:
    """Whether the task itself names the address: repeating it cites nothing."""
    return _bare(address) in plain(episode.opening)


def unsupported_citation(grounds: Grounds) -> Iterator[GroundingFinding]:
    """A value or sentence whose cited source was read and does not contain it."""
    episode, final = grounds.episode, grounds.episode.final
    read = _read_sources(episode)
    cited = [_bare(str(one.get("page"))) for one in episode.citations]
    texts = [text for page in cited for text in read.get(page, ())]
    if texts and final is not None and all(page in read for page in cited):
        source = Seen()
        for text in texts:
            source.add(text)
        for value in episode.values:
            if value.casefold() != "unknown" and not source.has_words(value):
                names = ", ".join(str(one.get("page")) for one in episode.citations)
                yield GroundingFinding(
                    "unsupported_citation", final.turn, value, f"what was read of {names} does not say it"
                )
    for statement in grounds.told:
        yield from _unsupported_sentences(statement, grounds, read)


def _unsupported_sentences(
    statement: Statement, grounds: Grounds, read: Mapping[str, Sequence[str]]
) -> Iterator[GroundingFinding]:
    numbered = _numbered(grounds.seen(statement.turn))
    for sentence in re.split(r"(?<=[.!?\])])\s+(?=[A-Z*\d-])|\n+", statement.text):
        addresses = [one.text for one in claims_of(sentence, with_names=False) if one.kind is ClaimKind.ADDRESS]
        sources = [text for one in addresses for text in read.get(_bare(one), ())]
        marks = [int(one) for one in re.findall(r"\[(\d{1,3})\]", sentence)]
        sources += [numbered[one] for one in marks if one in numbered]
        if not sources:
            continue
        source = Seen()
        for text in sources:
            source.add(text)
        claims = [one for one in claims_of(sentence) if one.kind not in (ClaimKind.ADDRESS, ClaimKind.QUOTE)]
        hosts = plain(" ".join(addresses))
        missing = [one for one in unsaid(claims, source) if plain(one.text) not in hosts]
        if missing:
            named = ", ".join([*addresses, *(f"[{one}]" for one in marks)])
            yield GroundingFinding("unsupported_citation", statement.turn, missing[0].text, f"{named} does not say it")


def _numbered(seen: Seen) -> dict[int, str]:
    """Numbered entries of results: [1] text."""
    entries: dict[int, str] = {}
    for text in seen.texts[1:]:
        pieces = re.split(r"\[(\d{1,3})\]", text)
        for number, piece in zip(pieces[1::2], pieces[2::2], strict=False):
            entries[int(number)] = entries.get(int(number), "") + " " + piece
    return entries


def altered_quote(grounds: Grounds) -> Iterator[GroundingFinding]:
    """Words between quotation marks, four or more, that were told in other words or not at all."""
    for statement, claim in grounds.unsupported:
        if claim.kind is ClaimKind.QUOTE:
            yield GroundingFinding(
                "altered_quote", statement.turn, claim.text, "nothing told before has these words in this order"
            )
