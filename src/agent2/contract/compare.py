"""Many candidates against one baseline: paired by item, corrected for their number, with what each costs.

Promises: every candidate and benchmark of one call is one family, and Holm's correction is over that family;
differences come with a 95% interval, the noise floor (how far the baseline is from itself, where it was sampled
more than once, else None) and the ratio of tokens; better, worse or unclear is `stats.comparisons.judge`'s word, with
the corrected p-value and that floor; items without a score on either side are counted, never zero. Does NOT
decide on a release (`contract.decision` does) and does not see the spread over training seeds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from agent2.contract.card_rows import CardRows, read_rows
from agent2.contract.card_sets import CardSet, common_cards
from agent2.contract.evidence import MetricEvidence
from agent2.contract.measures import evidence_between
from agent2.contract.metrics import MetricSpec, Unit
from agent2.contract.rollout_numbers import parse_measure
from agent2.errors import ConfigError
from agent2.stats.comparisons import Claim, judge
from agent2.stats.multiplicity import holm
from agent2.stats.paired import PairedEvidence

SCORE = MetricSpec(name="score")
TOKENS = MetricSpec(name="tokens", measure="tokens", unit=Unit.LENGTH)


class Outcome(StrEnum):
    """What a comparison shows."""

    BETTER = Claim.BETTER.value
    WORSE = Claim.WORSE.value
    UNCLEAR = Claim.UNCLEAR.value
    """Which is not "equal": the interval says how large the difference may be."""
    NO_DATA = "no data"


@dataclass(frozen=True, slots=True)
class ComparedCard:
    """One candidate on one benchmark."""

    candidate: str
    benchmark: str
    """With its split."""
    score: MetricEvidence
    p_corrected: float | None
    """Holm's, over all comparisons of the call."""
    cost_ratio: float | None
    """Mean tokens of a rollout, new over old; None: one side used none."""
    outcome: Outcome
    why: str
    """Reason of the outcome, as a clause."""

    @property
    def paired(self) -> PairedEvidence | None:
        """The difference with its interval."""
        return self.score.paired


@dataclass(frozen=True, slots=True)
class Comparison:
    """All candidates against the baseline."""

    baseline: str
    rows: tuple[ComparedCard, ...]
    n_family: int
    """Comparisons that Holm's correction is over."""


def compare(baseline: CardSet, candidates: Sequence[CardSet]) -> Comparison:
    """Compare each candidate with the baseline on every benchmark that both have.

    Raises ConfigError without candidates or without a common benchmark, IncomparableError naming the field,
    CardError for a card that is unfinished or damaged.
    """
    if not candidates:
        raise ConfigError("nothing to compare: name at least one candidate")
    cache: dict[Path, CardRows] = {}
    found: list[tuple[str, str, MetricEvidence, MetricEvidence]] = []
    for number, candidate in enumerate(candidates, start=1):
        twins = sum(other.name == candidate.name for other in candidates) > 1
        name = f"{candidate.name} ({number})" if twins else candidate.name
        for key in common_cards(baseline, candidate):
            old, new = _rows(cache, baseline.cards[key]), _rows(cache, candidate.cards[key])
            score, tokens = (evidence_between(metric, old, new) for metric in (SCORE, TOKENS))
            found.append((name, key, score, tokens))
    p_values = [score.paired.p_value for _, _, score, _ in found if score.paired is not None]
    corrected = iter(holm(p_values).adjusted if p_values else ())
    rows = []
    for name, key, score, tokens in found:
        p_value = next(corrected) if score.paired is not None else None
        rows.append(ComparedCard(name, key, score, p_value, _ratio(tokens), *_outcome(score, p_value)))
    return Comparison(baseline.name, tuple(rows), len(p_values))


def _rows(cache: dict[Path, CardRows], path: Path) -> CardRows:
    if path not in cache:
        cache[path] = read_rows(path, [parse_measure(metric.measure) for metric in (SCORE, TOKENS)])
    return cache[path]


def _ratio(tokens: MetricEvidence) -> float | None:
    return tokens.new / tokens.old if tokens.old and tokens.new is not None else None


def _outcome(score: MetricEvidence, p_corrected: float | None) -> tuple[Outcome, str]:
    if score.paired is None or p_corrected is None:
        return Outcome.NO_DATA, score.problem or "no item has a score on both sides"
    judged = judge(score.paired, score.noise, p_value=p_corrected)
    return Outcome(judged.claim.value), judged.why
