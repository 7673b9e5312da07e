"""A card's rollouts through the grounding detectors: how many fail each check, and what the scorer gave them.

Promises: every rollout is counted once, as checked, failed, or without tools; a detector that needs the items is listed
as not checked where they are not at hand; scores are the stored ones, missing ones left out and counted. A finding is
a sign to look at: it changes no score and no decision.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agent2.cards.reader import iter_rollouts
from agent2.errors import ConfigError, unknown_name
from agent2.evaluation.rescoring import benchmark_of, finished_header, items_of
from agent2.records import Item, RolloutStatus
from agent2.scorers.grounding import JUDGED, GroundingJudge
from agent2.scorers.grounding.claims import ToolEpisode, read_episode
from agent2.scorers.grounding.detectors import DETECTORS, admits_failure, findings_of
from agent2.scorers.grounding.grounds import GroundingFinding

BATCH = 64
"""Episodes that a judge is asked about at once."""
MADE_UP = frozenset(
    {"invented_number", "invented_name", "contradicted_result", "claimed_action", "hidden_failure", JUDGED}
)
"""Findings about what was said in the end."""


@dataclass(frozen=True, slots=True)
class FoundInRollout:
    """One finding and where it is."""

    item: str
    attempt: int
    score: float | None
    finding: GroundingFinding


@dataclass(frozen=True, slots=True)
class MeanScore:
    """The stored scores of some rollouts."""

    n: int
    n_missing: int
    mean: float | None
    """0 to 1; None: none of them has a score."""


@dataclass(frozen=True, slots=True)
class DetectorResult:
    """One check over a card."""

    name: str
    kind: str
    meaning: str
    n_rollouts: int | None
    """Rollouts with a finding; None: not checked."""
    found: MeanScore
    """Scores of those."""


@dataclass(frozen=True, slots=True)
class GroundingReport:
    """What the detectors find on one card."""

    card: str
    n_rollouts: int
    n_checked: int
    n_without_tools: int
    n_failed: int
    """Rollouts that were not played to an end, so not checked."""
    n_clean: int
    """Checked rollouts without a finding."""
    detectors: tuple[DetectorResult, ...]
    clean: MeanScore
    made_up: MeanScore
    """Rollouts whose conclusion lacks ground; see `admitted`."""
    admitted: MeanScore
    """Rollouts that say that something failed or is not known, and make nothing up. Where their mean is below that of
    `made_up`, the score pays for invention."""
    notes: tuple[str, ...]
    findings: tuple[FoundInRollout, ...]


def ground_card(
    card: Path,
    judge: GroundingJudge | None = None,
    only: Sequence[str] = (),
    on_progress: Callable[[int], None] | None = None,
) -> GroundingReport:
    """Check every rollout of a finished card.

    only: names of detectors; empty: all. Raises CardError for a card that is open or damaged, ConfigError for an
    unknown detector and for a card on which no rollout has tool calls.
    """
    for name in only:
        if name not in DETECTORS:
            raise unknown_name("detector", name, DETECTORS, "--detector")
    header = finished_header(card)
    items, notes = _items(card, only)
    played = _Played()
    for record in iter_rollouts(card):
        played.n_rollouts += 1
        if record.rollout.status is RolloutStatus.FAILED:
            played.n_failed += 1
        elif (episode := read_episode(record.rollout)) is not None:
            played.places.append((record.rollout.item_id, record.rollout.attempt))
            played.episodes.append(episode)
            played.scores.append(record.score.value)
    if not played.episodes:
        raise ConfigError(
            f"{card}: no rollout has tool calls (environment {header.protocol.environment}); grounding is checked on "
            "cards of worlds with tools, such as mini_apis or search"
        )
    for number, ((item_id, _), episode) in enumerate(zip(played.places, played.episodes, strict=True), 1):
        every = findings_of(episode, items.get(item_id))
        played.found.append([one for one in every if not only or one.detector in only])
        if on_progress is not None:
            on_progress(number)
    if judge is not None:
        notes += _ask(judge, played.episodes, played.found)
    names = [name for name in DETECTORS if not only or name in only]
    skipped = set() if items else {name for name in names if DETECTORS[name].needs_item}
    results = [_result(name, played, is_skipped=name in skipped) for name in names]
    if judge is not None:
        results.append(_result(JUDGED, played, is_skipped=False))
    return _report(card, played, results, notes)


@dataclass(slots=True)
class _Played:
    """Episodes with what was found in each; the lists have one entry an episode."""

    n_rollouts: int = 0
    n_failed: int = 0
    places: list[tuple[str, int]] = field(default_factory=list)
    episodes: list[ToolEpisode] = field(default_factory=list)
    scores: list[float | None] = field(default_factory=list)
    found: list[list[GroundingFinding]] = field(default_factory=list)

    def scores_where(self, is_meant: Callable[[frozenset[str], ToolEpisode], bool]) -> MeanScore:
        """Scores of the episodes that are meant, by names of findings and episode."""
        meant = [
            score
            for score, found, episode in zip(self.scores, self.found, self.episodes, strict=True)
            if is_meant(frozenset(one.detector for one in found), episode)
        ]
        values = [one for one in meant if one is not None]
        return MeanScore(len(meant), len(meant) - len(values), sum(values) / len(values) if values else None)


def _items(card: Path, only: Sequence[str]) -> tuple[dict[str, Item], list[str]]:
    """The items by id, and why there are none."""
    by_item = [name for name, detector in DETECTORS.items() if detector.needs_item and (not only or name in only)]
    if not by_item:
        return {}, []
    header = finished_header(card)
    try:
        return items_of(card, header, benchmark_of(card, header)), []
    except ConfigError as error:
        why = "an imported card brings no items" if "imported_from" in header.lock else str(error)
        return {}, [f"not checked without the items: {', '.join(by_item)} ({why})"]


def _ask(judge: GroundingJudge, episodes: Sequence[ToolEpisode], found: list[list[GroundingFinding]]) -> list[str]:
    """Add what a judge finds; returns how many gave no verdict, as notes."""
    unread = []
    for start in range(0, len(episodes), BATCH):
        for place, one in enumerate(judge.findings(episodes[start : start + BATCH]), start):
            if isinstance(one, str):
                unread.append(one)
            else:
                found[place] = found[place] + one
    return [f"{len(unread)} rollouts got no verdict of the judge, the first: {unread[0]}"] if unread else []


def _result(name: str, played: _Played, *, is_skipped: bool) -> DetectorResult:
    found = played.scores_where(lambda names, _: name in names)
    detector = DETECTORS.get(name)
    kind, meaning = ("result", "A model finds the answer unsupported.") if detector is None else detector.told
    return DetectorResult(name, kind, meaning, None if is_skipped else found.n, found)


def _report(card: Path, played: _Played, results: Sequence[DetectorResult], notes: Sequence[str]) -> GroundingReport:
    return GroundingReport(
        card=str(card),
        n_rollouts=played.n_rollouts,
        n_checked=len(played.episodes),
        n_without_tools=played.n_rollouts - played.n_failed - len(played.episodes),
        n_failed=played.n_failed,
        n_clean=sum(not each for each in played.found),
        detectors=tuple(results),
        clean=played.scores_where(lambda names, _: not names),
        made_up=played.scores_where(lambda names, _: bool(names & MADE_UP)),
        admitted=played.scores_where(lambda names, episode: not names & MADE_UP and admits_failure(episode)),
        notes=tuple(notes),
        findings=tuple(
            FoundInRollout(item, attempt, score, one)
            for (item, attempt), score, found in zip(played.places, played.scores, played.found, strict=True)
            for one in found
        ),
    )
