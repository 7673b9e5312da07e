"""Comparisons of checkpoints and of suites: scores, items lost and won, and differences of two contracts.

`compare` puts many candidates against one baseline. Promises: pairs by item; every candidate and benchmark of one call
is one family, and Holm's correction is over that family; differences come with a 95% interval, the noise floor (how far
the baseline is from itself, where it was sampled more than once, else None) and the ratio of tokens; better, worse or
unclear is the claim of `stats.comparisons.judge`, with the corrected p-value and that floor; items without a score on
either side are counted, never zero. Does NOT decide on a release (`contract.decision` does) and does not see the spread
over training seeds.

`regress` lists items lost, weakened and won between two checkpoints, by id, with both answers where the items may be
seen. Promises: items are paired by id, never by position; an item that passed before and has no score now is neither
kept nor lost but unknown, and counts against the allowance; so does one that still passes with far fewer of its
attempts (5 of 5 before, 3 of 5 now). Items that only one side has are counted. Answers to hidden items are withheld: a
result is passed on and printed, and an answer can give its item away.

`diff_suites` names every differing field of two suites with both values and with what it changes: *scores* (all of
them, or those of one benchmark), *decisions* (metrics, gates, visibility of splits), or *neither* (text, names). Scores
stay comparable where nothing differs that changes scores; a gate may change without a single rollout being played
again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from agent2.cards.aggregate import counted_value
from agent2.cards.compare import ORDER, CardSet, FieldDifference, common_cards, field_differences
from agent2.cards.reader import iter_rollouts, read_header, read_summary
from agent2.contract.measure_rules import parse_measure
from agent2.contract.measures import CardRows, evidence_between, read_rows
from agent2.contract.metrics import MetricEvidence, MetricSpec, Unit
from agent2.contract.suite import Suite
from agent2.errors import ConfigError
from agent2.records import HIDDEN_SPLITS, ScoredRollout
from agent2.stats.comparisons import Claim, holm, judge

SCORE = MetricSpec(name="score")
TOKENS = MetricSpec(name="tokens", measure="tokens", unit=Unit.LENGTH)
PASSES_AT = 0.5
"""An item passes when the mean of its attempts is at least this; with one verdict an item, when it is right."""
WEAKENED_BY = 0.4
"""An item that still passes is weakened when the mean of its attempts fell by this much: two of five. One attempt of
three or more is luck as likely as not."""
_ROUNDING = 1e-9
NEUTRAL_FIELDS = frozenset({"name", "version", "track", "description", "model", "task_distribution"})
SCORE_FIELDS_OF_BENCHMARK = frozenset({"version", "max_tokens", "scorer", "split", "n_items"})
SCORE_FIELDS_OF_METRIC = frozenset({"benchmark", "measure", "split", "unit"})
SCORE_FIELDS_OF_AGENT = frozenset({"initial_environment", "success_criteria", "budget"})


class Outcome(StrEnum):
    """What a comparison shows."""

    BETTER = Claim.BETTER.value
    WORSE = Claim.WORSE.value
    UNCLEAR = Claim.UNCLEAR.value
    """Not the same as "equal": the interval says how large the difference may be."""
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
    compared: list[tuple[str, str, MetricEvidence, MetricEvidence]] = []
    names = [candidate.name for candidate in candidates]
    for number, candidate in enumerate(candidates, start=1):
        name = f"{candidate.name} ({number})" if names.count(candidate.name) > 1 else candidate.name
        for key in common_cards(baseline, candidate):
            old, new = _rows(cache, baseline.cards[key]), _rows(cache, candidate.cards[key])
            score, tokens = (evidence_between(metric, old, new) for metric in (SCORE, TOKENS))
            compared.append((name, key, score, tokens))
    # Holm's family: every comparison of the call that has a p-value, in the same order as the rows below.
    p_values = [score.paired.p_value for _, _, score, _ in compared if score.paired is not None]
    corrected = iter(holm(p_values) if p_values else ())
    rows = []
    for name, key, score, tokens in compared:
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


@dataclass(frozen=True, slots=True)
class ChangedItem:
    """One item whose verdict changed, or is no longer known."""

    benchmark: str
    item_id: str
    old_score: float
    new_score: float | None
    old_answer: str | None
    """Of the attempt that shows the verdict best: one that passed where the item passed, else one that failed; None:
    withheld, since the item is hidden."""
    new_answer: str | None


@dataclass(frozen=True, slots=True)
class Regression:
    """Every changed item of two sets of cards."""

    old: str
    new: str
    lost: tuple[ChangedItem, ...]
    """Passed before, fail now."""
    won: tuple[ChangedItem, ...]
    unknown: tuple[ChangedItem, ...]
    """Passed before, no score now."""
    weakened: tuple[ChangedItem, ...]
    """Pass still, but the mean of their attempts fell by `WEAKENED_BY` or more."""
    n_passed_before: int
    n_compared: int
    """Items with a score on both sides."""
    n_only_one_side: int
    """Items that one side was never asked."""
    withheld: str = ""
    """What was left out, and why; empty: nothing."""

    def is_within(self, allowed: int) -> bool:
        """Whether no more items were lost, were weakened or became unknown than allowed."""
        return len(self.lost) + len(self.weakened) + len(self.unknown) <= allowed


@dataclass(slots=True)
class _Item:
    scores: list[float]
    answers: list[tuple[float | None, str]]
    is_hidden: bool

    @property
    def score(self) -> float | None:
        return sum(self.scores) / len(self.scores) if self.scores else None

    def answer(self, passes_at: float) -> str | None:
        """The answer of an attempt on the same side of the threshold as the item; None for a hidden item."""
        if self.is_hidden:
            return None
        score = self.score
        if score is not None:
            for value, text in self.answers:
                if value is not None and (value >= passes_at) == (score >= passes_at):
                    return text
        return self.answers[0][1] if self.answers else ""


def regress(old: CardSet, new: CardSet, passes_at: float = PASSES_AT) -> Regression:
    """Pair every item of the benchmarks that both sets have.

    Raises ConfigError without a common benchmark, IncomparableError naming the field, CardError for a card that is
    unfinished or damaged.
    """
    lost: list[ChangedItem] = []
    won: list[ChangedItem] = []
    unknown: list[ChangedItem] = []
    weakened: list[ChangedItem] = []
    n_passed_before = n_compared = n_one_sided = 0
    for key in common_cards(old, new):
        before, after = _items(old.cards[key]), _items(new.cards[key])
        n_one_sided += len(before.keys() ^ after.keys())
        for item_id in sorted(before.keys() & after.keys()):
            old_item, new_item = before[item_id], after[item_id]
            old_score, new_score = old_item.score, new_item.score
            if old_score is None:
                continue
            passed = old_score >= passes_at
            n_passed_before += passed
            changed = ChangedItem(
                key, item_id, old_score, new_score, old_item.answer(passes_at), new_item.answer(passes_at)
            )
            if new_score is None:
                unknown += [changed] if passed else []
                continue
            n_compared += 1
            if passed and new_score < passes_at:
                lost.append(changed)
            elif not passed and new_score >= passes_at:
                won.append(changed)
            elif passed and old_score - new_score >= WEAKENED_BY - _ROUNDING:
                weakened.append(changed)
        unasked = _never_asked(key, before, after, passes_at)
        n_passed_before += len(unasked)
        unknown += unasked
    changes = (tuple(lost), tuple(won), tuple(unknown), tuple(weakened))
    hidden = [key for key in common_cards(old, new) if old.headers[key].protocol.split in HIDDEN_SPLITS]
    return Regression(old.name, new.name, *changes, n_passed_before, n_compared, n_one_sided, _withheld(hidden))


def _withheld(hidden: Sequence[str]) -> str:
    if not hidden:
        return ""
    return (
        f"answers to the items of {', '.join(hidden)}: they are hidden, and an answer can give its item away; "
        "the cards have them (agent2 cards show CARD --id ITEM)"
    )


def _never_asked(
    key: str, before: dict[str, _Item], after: dict[str, _Item], passes_at: float
) -> Sequence[ChangedItem]:
    """Items that passed before and were not put to the new checkpoint."""
    unasked = []
    for item_id in sorted(before.keys() - after.keys()):
        item = before[item_id]
        if item.score is not None and item.score >= passes_at:
            new_answer = None if item.is_hidden else ""
            unasked.append(ChangedItem(key, item_id, item.score, None, item.answer(passes_at), new_answer))
    return unasked


def _items(card: Path) -> dict[str, _Item]:
    read_summary(card)  # refuses an unfinished card
    header = read_header(card)
    rule, is_hidden = header.reporting, header.protocol.split in HIDDEN_SPLITS
    items: dict[str, _Item] = {}
    # In the order of attempts, so that the answer that is shown does not depend on which finished first.
    for record in sorted(iter_rollouts(card), key=lambda record: record.rollout.attempt):
        item = items.setdefault(record.rollout.item_id, _Item([], [], is_hidden))
        value = counted_value(record, rule)
        if value is not None:
            item.scores.append(value)
        item.answers.append((value, final_answer(record)))
    return items


def final_answer(record: ScoredRollout) -> str:
    """The final answer; without one, the model's last message."""
    rollout = record.rollout
    if rollout.answer is not None:
        return rollout.answer
    return rollout.turns[-1].action if rollout.turns else ""


class Impact(StrEnum):
    """What a differing field changes."""

    SCORES = "scores"
    DECISIONS = "decisions"
    NEITHER = "neither"


@dataclass(frozen=True, slots=True)
class SuiteDifference:
    """One field that differs, and what it changes."""

    field: FieldDifference
    reach: Impact
    benchmark: str | None
    """Whose scores it changes; None: those of all, or no scores."""


@dataclass(frozen=True, slots=True)
class SuiteDiff:
    """All differences of two suites."""

    left: str
    right: str
    """Names with versions."""
    differences: tuple[SuiteDifference, ...]
    comparable: tuple[str, ...]
    """Benchmarks of both suites whose scores may be compared."""
    incomparable: tuple[str, ...]
    """Benchmarks of both suites whose scores may not."""
    one_sided: tuple[str, ...]
    """Benchmarks of one suite alone."""

    @property
    def scores_stay_comparable(self) -> bool:
        """Whether every score of either suite has a comparable one in the other."""
        return not self.incomparable and not self.one_sided

    @property
    def verdict(self) -> str:
        """One sentence."""
        if not self.differences:
            return "the suites are equal"
        if self.scores_stay_comparable:
            return "scores stay comparable: nothing differs that changes a score"
        parts = []
        if self.incomparable:
            parts.append(f"scores on {', '.join(self.incomparable)} are incomparable")
        if self.one_sided:
            parts.append(f"{', '.join(self.one_sided)}: in one suite only")
        if self.comparable:
            parts.append(f"scores on {', '.join(self.comparable)} stay comparable")
        return "; ".join(parts)


def diff_suites(left: Suite, right: Suite) -> SuiteDiff:
    """Every differing field of two suites, in the order of the fields."""
    left_names, right_names = ({entry.name for entry in suite.benchmarks} for suite in (left, right))
    fields = field_differences(left.model_dump(mode="json"), right.model_dump(mode="json"))
    differences = tuple(_suite_difference(field, (left, right)) for field in fields)
    shared = [entry.name for entry in left.benchmarks if entry.name in right_names]
    changed = {difference.benchmark for difference in differences if difference.reach is Impact.SCORES}
    is_everywhere = None in changed
    return SuiteDiff(
        left=left.id,
        right=right.id,
        differences=differences,
        comparable=tuple(name for name in shared if not is_everywhere and name not in changed),
        incomparable=tuple(name for name in shared if is_everywhere or name in changed),
        one_sided=tuple(sorted(left_names ^ right_names)),
    )


def _suite_difference(difference: FieldDifference, suites: Sequence[Suite]) -> SuiteDifference:
    top, name, part = _field_parts(difference.field)
    if top == "protocol":
        return SuiteDifference(difference, Impact.SCORES, None)
    if difference.field.endswith(ORDER):
        return SuiteDifference(difference, Impact.NEITHER, None)
    if top == "benchmarks" and (part is None or part in SCORE_FIELDS_OF_BENCHMARK):
        return SuiteDifference(difference, Impact.SCORES, name)
    if top == "benchmarks" and part == "urls":
        return SuiteDifference(difference, Impact.NEITHER, None)
    if top == "metrics" and part in SCORE_FIELDS_OF_METRIC:
        owners = {metric.benchmark for suite in suites for metric in suite.metrics if metric.name == name}
        return SuiteDifference(difference, Impact.SCORES, owners.pop() if len(owners) == 1 else None)
    if top == "agent" and (part is None or part in SCORE_FIELDS_OF_AGENT):
        return SuiteDifference(difference, Impact.SCORES, None)
    if top in NEUTRAL_FIELDS:
        return SuiteDifference(difference, Impact.NEITHER, None)
    return SuiteDifference(difference, Impact.DECISIONS, None)


def _field_parts(field: str) -> tuple[str, str | None, str | None]:
    """`benchmarks[gsm8k].scorer.name` -> ("benchmarks", "gsm8k", "scorer")."""
    head, bracket, tail = field.removesuffix(ORDER).partition("[")
    if not bracket:
        top, _, below = head.partition(".")
        return top, None, below.partition(".")[0] or None
    name, _, below = tail.partition("]")
    return head, name, below.lstrip(".").partition(".")[0] or None
