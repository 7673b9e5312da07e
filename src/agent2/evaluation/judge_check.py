"""Judging the judge: pairwise verdicts beside people's labels, in both orders, with the biases that they show.

`read_pairs` reads answers with labels (LLMBar, JudgeBench, RewardBench, human judgements of MT-Bench, our own layout);
`ask` has a pairwise scorer judge them; `check` says how good the verdicts are; `sway` has the pairs judged again with
polite, confident or empty words added to the worse answer; `compare_judges` puts two sets of verdicts beside each other
(another judge, the same judge again, or kept anchor verdicts: drift). `contrast` asks a scorer of single answers, such
as a reward model, about similar instructions with different answers.

A verdict that is missing is in no rate and is counted. The labels are taken as given: where people disagree, the label
says what the data set's authors made of it.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from agent2.errors import ConfigError, EndpointFailed, Fault, NotEnoughData
from agent2.files import numbered_lines
from agent2.records import (
    Item,
    Message,
    PairScorer,
    Preference,
    Rollout,
    RolloutStatus,
    Split,
    Usage,
)
from agent2.stats.estimates import UNIT, Estimate, measure
from agent2.stats.quality import SharedErrors, cohens_kappa, krippendorff_alpha, preference_tau, shared_errors

FOLDS = 5
"""Of the pairs, for the length-normalised verdicts."""
ADDED_WORDS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "polite": (
            "Thank you for this kind question! It is a pleasure to help.",
            "I hope that this helps you. Please ask me anything else, whenever you like.",
        ),
        "confident": (
            "I am an expert in this, and I am absolutely certain of the following.",
            "There is no doubt whatsoever that this is correct.",
        ),
        "empty": (
            "Before anything else is said, it is worth pointing out that what follows is an answer, and that it "
            "addresses what was asked, in the order in which it does so.",
            "All in all, what was written above is what there is to say about this, and nothing that was said above "
            "has been left out here.",
        ),
    }
)
"""Manner -> words before and after an answer, which say nothing about what was asked."""
BATCH = 64
"""Pairs that a scorer is given at once, each in both orders."""


@dataclass(frozen=True, slots=True)
class LabelledPair:
    """Two answers to one instruction, and which one people prefer."""

    id: str
    instruction: str
    answers: tuple[str, str]
    label: float
    """Points of the first answer: 1, 0, or 0.5 for a tie."""
    subset: str = ""
    models: tuple[str, str] | None = None
    """Which models wrote the answers, where the data say so."""


@dataclass(frozen=True, slots=True)
class JudgedPair:
    """A pair with the verdicts of one judge, both as points of the first answer."""

    pair: LabelledPair
    shown_first: float | None
    """With the first answer shown first; None: no verdict."""
    shown_second: float | None


@dataclass(frozen=True, slots=True)
class JudgeReport:
    """How good a judge's verdicts are. Rates are over pairs with the verdicts that they need."""

    n_pairs: int
    n_missing: int
    """Verdicts that are missing, of two for each pair."""
    accuracy: Estimate | None
    """Share of verdicts that agree with the label, the mean of both orders; without pairs whose label is a tie."""
    accuracy_shown_first: Estimate | None
    accuracy_shown_second: Estimate | None
    both_right: Estimate | None
    order_agreement: Estimate | None
    """Share of pairs with the same verdict in both orders."""
    position_bias: Estimate | None
    """Mean points of the answer that is shown first, less 0.5: 0.1 means that the first one gets 60% of the points."""
    length_bias: Estimate | None
    """Share of verdicts for the longer answer, less the share of labels for it."""
    accuracy_normalised: Estimate | None
    """Accuracy of the length-normalised verdicts."""
    length_bias_normalised: Estimate | None
    self_preference: Estimate | None
    """Mean points of answers by the judge's own model, less their labels'; None: the data do not name it."""
    kappa: Estimate | None
    """Cohen's, with the labels; both orders averaged to a winner or a tie."""
    tau: Estimate | None
    """Kendall's tau-b with the labels, of the mean of both orders; degrees of preference count."""
    kappa_orders: Estimate | None
    """Cohen's, of one order with the other."""
    by_subset: Mapping[str, Estimate]
    """Accuracy for each subset."""
    swayed: Mapping[str, Estimate | None] = field(default_factory=dict)
    """Of `sway`; empty: not measured."""


@dataclass(frozen=True, slots=True)
class JudgeComparison:
    """Two sets of verdicts on the same pairs."""

    n_pairs: int
    agreement: Estimate | None
    """Share of verdicts that are the same, both orders counted."""
    kappa: Estimate | None
    alpha: Estimate | None
    """Krippendorff's."""
    accuracy_change: Estimate | None
    """Accuracy of the new verdicts less that of the old ones, pair by pair: drift if the interval excludes 0."""
    errors: SharedErrors | None

    @property
    def has_drifted(self) -> bool:
        """Whether the accuracy changed by more than chance."""
        change = self.accuracy_change
        return (
            change is not None
            and change.low is not None
            and change.high is not None
            and not (change.low <= 0.0 <= change.high)
        )


def read_pairs(path: Path) -> list[LabelledPair]:
    """Labelled pairs of a file, or of the folder that LLMBar calls a subset. Raises ConfigError with the place.

    Layouts, recognised by their fields: LLMBar (`input, output_1, output_2, label`), JudgeBench (`question, response_A,
    response_B, label: "A>B"`), RewardBench (`prompt, chosen, rejected`), MT-Bench human judgements (`conversation_a,
    conversation_b, winner`), ours (`instruction, first, second, label`).
    """
    file = path / "dataset.json" if path.is_dir() else path
    pairs = [_pair(row, f"{file}:{place}", number) for number, (place, row) in enumerate(_rows(file))]
    if not pairs:
        raise ConfigError(f"{file}: holds no pair of answers")
    seen: dict[str, int] = {}
    for number, pair in enumerate(pairs):
        if pair.id in seen:
            raise ConfigError(f"{file}: pairs {seen[pair.id] + 1} and {number + 1} have the same id {pair.id!r}")
        seen[pair.id] = number
    return pairs


def _rows(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Rows of a JSON list or of JSON lines, each with its place in the file."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: cannot be read ({error}); give a JSON or JSONL file, or LLMBar's folder") from error
    try:
        if text.lstrip().startswith("["):
            rows = [(f"item {number}", row) for number, row in enumerate(json.loads(text), start=1)]
        else:
            rows = [(str(number), json.loads(line)) for number, line in numbered_lines(text) if line.strip()]
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file}: is not JSON ({error})") from error
    for place, row in rows:
        if not isinstance(row, dict):
            raise ConfigError(f"{file}:{place}: is a {type(row).__name__}, not an object with named fields")
        yield place, row


def _pair(row: Mapping[str, Any], where: str, number: int) -> LabelledPair:
    def text(name: str) -> str:
        if not isinstance(row.get(name), str):
            raise ConfigError(f"{where}: field {name!r} is missing or not text")
        return str(row[name])

    def label(value: object, words: Mapping[str, float]) -> float:
        if str(value) not in words:
            raise ConfigError(f"{where}: label {value!r}; known are {', '.join(words)}")
        return words[str(value)]

    models = None
    if "output_1" in row:
        fields = text("input"), (text("output_1"), text("output_2")), label(row.get("label"), {"1": 1.0, "2": 0.0})
    elif "response_A" in row:
        words = {"A>B": 1.0, "B>A": 0.0, "A=B": 0.5}
        fields = text("question"), (text("response_A"), text("response_B")), label(row.get("label"), words)
    elif "chosen" in row:
        fields = text("prompt"), (text("chosen"), text("rejected")), 1.0
        if isinstance(row.get("chosen_model"), str) and isinstance(row.get("rejected_model"), str):
            models = row["chosen_model"], row["rejected_model"]
    elif "conversation_a" in row:
        sides = [_conversation(row.get(name), where) for name in ("conversation_a", "conversation_b")]
        words = {"model_a": 1.0, "model_b": 0.0, "tie": 0.5}
        fields = sides[0][0], (sides[0][1], sides[1][1]), label(row.get("winner"), words)
        models = text("model_a"), text("model_b")
    elif "instruction" in row:
        words = {"1": 1.0, "2": 0.0, "tie": 0.5}
        fields = text("instruction"), (text("first"), text("second")), label(row.get("label"), words)
    else:
        raise ConfigError(
            f"{where}: fields {', '.join(sorted(row)[:8])} are of no known layout; "
            "ours is instruction, first, second, label"
        )
    given = row.get("pair_id", row.get("id", number))
    if "conversation_a" in row:
        given = "-".join(str(row.get(key, "")) for key in ("question_id", "model_a", "model_b", "judge", "turn"))
    return LabelledPair(str(given), *fields, subset=str(row.get("subset", row.get("source", ""))), models=models)


def _conversation(turns: object, where: str) -> tuple[str, str]:
    """What people asked, and what the model answered, of a whole conversation."""
    if not isinstance(turns, list) or not all(isinstance(turn, dict) and "content" in turn for turn in turns):
        raise ConfigError(f"{where}: a conversation is a list of messages with role and content")
    asked = [str(turn["content"]) for turn in turns if turn.get("role") == "user"]
    answered = [str(turn["content"]) for turn in turns if turn.get("role") != "user"]
    return "\n\n".join(asked), "\n\n".join(answered)


def ask(
    pairs: Sequence[LabelledPair], scorer: PairScorer, on_progress: Callable[[int, int], None] | None = None
) -> list[JudgedPair]:
    """The verdicts of a pairwise scorer, each pair in both orders.

    Raises EndpointFailed if the first pairs all got none because the scorer's model cannot be reached.
    """
    prefer_batch = getattr(scorer, "prefer_batch", None)
    judged: list[JudgedPair] = []
    waiting = iter(pairs)
    while batch := list(islice(waiting, BATCH)):
        asked = [order for pair in batch for order in _orders(pair)]
        said: Sequence[Preference] = prefer_batch(asked) if prefer_batch else [scorer.prefer(*one) for one in asked]
        if not judged and all(one.fault is Fault.INFRASTRUCTURE for one in said):
            raise EndpointFailed(f"no verdict on the first {len(batch)} pairs: {said[-1].reason}")
        for pair, first, second in zip(batch, said[::2], said[1::2], strict=True):
            judged.append(JudgedPair(pair, first.first, None if second.first is None else 1.0 - second.first))
        if on_progress is not None:
            on_progress(len(judged), len(pairs))
    return judged


def _orders(pair: LabelledPair) -> list[tuple[Item, Rollout, Rollout]]:
    item = Item(pair.id, Split.DEV, pair.instruction)
    first, second = (_finished(pair.id, n, pair.instruction, answer) for n, answer in enumerate(pair.answers))
    return [(item, first, second), (item, second, first)]


def _finished(item_id: str, attempt: int, instruction: str, answer: str) -> Rollout:
    prompt = [Message("user", instruction)]
    return Rollout(item_id, attempt, 0, RolloutStatus.COMPLETED, prompt, (), answer, {}, Usage())


def sway(judged: Sequence[JudgedPair], scorer: PairScorer) -> dict[str, Estimate | None]:
    """Points that the worse answer of a pair gains if polite, confident or empty words are added to it; by manner.

    judged: verdicts of the same scorer on the pairs as they are; those whose label is a tie are left out. Each pair is
    judged again in both orders, once for each manner.
    """
    decided = [one for one in judged if one.pair.label != 0.5]
    found = {}
    for manner, words in ADDED_WORDS.items():
        again = ask([_with_words(one.pair, words) for one in decided], scorer)
        gains = [
            None if before is None or after is None else after - before
            for before, after in (
                (_for_worse(one), _for_worse(other)) for one, other in zip(decided, again, strict=True)
            )
        ]
        found[manner] = _measure(f"{manner} words", gains, (-1.0, 1.0))
    return found


def _with_words(pair: LabelledPair, words: tuple[str, str]) -> LabelledPair:
    """The pair with words before and after its worse answer."""
    first, second = (
        f"{words[0]}\n\n{answer}\n\n{words[1]}" if is_worse else answer
        for answer, is_worse in zip(pair.answers, (pair.label < 0.5, pair.label > 0.5), strict=True)
    )
    return replace(pair, answers=(first, second))


def _for_worse(one: JudgedPair) -> float | None:
    """Mean points of the answer that the label calls worse."""
    points = _mean_if_all(one.shown_first, one.shown_second)
    return None if points is None else points if one.pair.label < 0.5 else 1.0 - points


def write_verdicts(path: Path, judged: Sequence[JudgedPair]) -> None:
    """Verdicts as JSON lines, to be compared with later ones."""
    rows = ({"id": one.pair.id, "shown_first": one.shown_first, "shown_second": one.shown_second} for one in judged)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


def read_verdicts(path: Path, pairs: Sequence[LabelledPair]) -> list[JudgedPair]:
    """Kept verdicts on these pairs: ours (`write_verdicts`), or a `result.json` of LLMBar. Raises ConfigError."""
    by_id = {pair.id: pair for pair in pairs}
    judged = []
    for number, (place, row) in enumerate(_rows(path)):
        stored = row.get("results")
        if isinstance(stored, list) and stored:
            pair_id, winners = (
                str(number),
                [stored[-1].get(f"swap = {swap}", {}).get("winner") for swap in (False, True)],
            )
            points = [{"1": 1.0, "2": 0.0}.get(str(winner)) for winner in winners]
        else:
            pair_id, points = str(row.get("id")), [row.get("shown_first"), row.get("shown_second")]
        if pair_id not in by_id:
            raise ConfigError(f"{path}:{place}: pair {pair_id!r} is not one of those that are judged")
        if not all(value is None or (isinstance(value, int | float) and 0.0 <= value <= 1.0) for value in points):
            raise ConfigError(f"{path}:{place}: verdicts are numbers from 0 to 1, or null")
        judged.append(JudgedPair(by_id[pair_id], points[0], points[1]))
    return judged


def check(judged: Sequence[JudgedPair], model: str | None = None) -> JudgeReport:
    """How good verdicts are. model: the judge's own name in the data, for its preference of itself."""
    decided = [one for one in judged if one.pair.label != 0.5]
    right = [
        [_is_right(value, one.pair.label) for value, one in zip(values, decided, strict=True)]
        for values in _columns(decided)
    ]
    both = list(zip(*right, strict=True))
    subsets = sorted({one.pair.subset for one in decided} - {""})
    winners = [_winner(one) for one in judged]
    fair = length_normalised(judged)
    return JudgeReport(
        n_pairs=len(judged),
        n_missing=sum((one.shown_first is None) + (one.shown_second is None) for one in judged),
        accuracy=_measure("accuracy", [_mean(*each) for each in both]),
        accuracy_shown_first=_measure("accuracy", right[0]),
        accuracy_shown_second=_measure("accuracy", right[1]),
        both_right=_measure("both right", [None if None in each else float(each == (1.0, 1.0)) for each in both]),
        order_agreement=_measure("order agreement", [_same(one.shown_first, one.shown_second) for one in judged]),
        position_bias=_shifted("position bias", [_first_shown(one) for one in judged], -0.5),
        length_bias=_measure("length bias", [_for_longer(one) for one in judged], (-1.0, 1.0)),
        accuracy_normalised=_measure("accuracy", [_accuracy(one) for one in fair]),
        length_bias_normalised=_measure("length bias", [_for_longer(one) for one in fair], (-1.0, 1.0)),
        self_preference=_measure("self-preference", [_for_itself(one, model) for one in judged], (-1.0, 1.0)),
        kappa=_kappa(winners, [_word(one.pair.label) for one in judged]),
        tau=_agreement(
            preference_tau,
            [_mean_if_all(one.shown_first, one.shown_second) for one in judged],
            [one.pair.label for one in judged],
        ),
        kappa_orders=_kappa(*([_word(value) for value in values] for values in _columns(judged))),
        by_subset={
            name: found
            for name in subsets
            if (found := _measure(name, [_accuracy(one) for one in decided if one.pair.subset == name])) is not None
        },
    )


def length_normalised(judged: Sequence[JudgedPair]) -> list[JudgedPair]:
    """The verdicts without what the answers' lengths explain of their distance to the labels.

    Points less b tanh(d), d the difference of the lengths in standard deviations; b is fitted by least squares on the
    labels of the other four fifths, so that no pair corrects itself. The form is that of the length term of
    length-controlled AlpacaEval (Dubois et al. 2024, arXiv:2404.04475).
    """
    differences = np.array([len(one.pair.answers[0]) - len(one.pair.answers[1]) for one in judged], dtype=float)
    spread = differences.std()
    if not spread:
        return list(judged)
    length_P = np.tanh(differences / spread)
    points = [_mean(one.shown_first, one.shown_second) for one in judged]
    excess_P = np.array(
        [np.nan if mean is None else mean - one.pair.label for mean, one in zip(points, judged, strict=True)]
    )
    fold_P = np.arange(len(judged)) % FOLDS
    fair = []
    for place, one in enumerate(judged):
        others = (fold_P != fold_P[place]) & ~np.isnan(excess_P)
        size = float(length_P[others] @ length_P[others])
        less = float(length_P[others] @ excess_P[others]) / size * float(length_P[place]) if size else 0.0
        sides = [
            None if side is None else min(1.0, max(0.0, side - less)) for side in (one.shown_first, one.shown_second)
        ]
        fair.append(replace(one, shown_first=sides[0], shown_second=sides[1]))
    return fair


@dataclass(frozen=True, slots=True)
class ContrastPair:
    """Two similar instructions, each with its own right answer."""

    id: str
    instructions: tuple[str, str]
    answers: tuple[str, str]


@dataclass(frozen=True, slots=True)
class ContrastReport:
    """How far a scorer of single answers keeps similar instructions apart; chance is 0.5.

    Source: Shen et al. 2023, arXiv:2309.16155 (Contrast Instructions), both directions averaged.
    """

    n_pairs: int
    response: Estimate | None
    """Of two answers to one instruction, the right one scores higher."""
    instruction: Estimate | None
    """An answer scores higher under its own instruction than under the other one."""


def is_contrast(path: Path) -> bool:
    """Whether a file's first row is a contrast pair. Raises ConfigError for a file that cannot be read."""
    return "instruction_1" in next((row for _, row in _rows(path)), {}) if path.is_file() else False


def read_contrasts(path: Path) -> list[ContrastPair]:
    """Rows with `instruction_1, answer_1, instruction_2, answer_2`. Raises ConfigError with the place."""
    pairs = []
    for number, (place, row) in enumerate(_rows(path)):
        values = [row.get(f"{kind}_{side}") for kind in ("instruction", "answer") for side in (1, 2)]
        if not all(isinstance(value, str) for value in values):
            raise ConfigError(
                f"{path}:{place}: instruction_1, answer_1, instruction_2 and answer_2 are needed, as text"
            )
        texts = [str(value) for value in values]
        pairs.append(ContrastPair(str(row.get("id", number)), (texts[0], texts[1]), (texts[2], texts[3])))
    return pairs


def contrast(pairs: Sequence[ContrastPair], scorer: Any) -> ContrastReport:
    """Score both answers under both instructions. scorer: one of single answers, `score` or `score_batch`."""
    played = [
        (
            Item(f"{pair.id}-{i}", Split.DEV, pair.instructions[i]),
            _finished(f"{pair.id}-{i}", j, pair.instructions[i], pair.answers[j]),
        )
        for pair in pairs
        for i in (0, 1)
        for j in (0, 1)
    ]
    score_batch = getattr(scorer, "score_batch", None)
    scores = score_batch(played) if score_batch else [scorer.score(*one) for one in played]
    values = [score.value for score in scores]
    cells = [values[start : start + 4] for start in range(0, len(values), 4)]  # (I1, r1), (I1, r2), (I2, r1), (I2, r2)
    return ContrastReport(
        n_pairs=len(pairs),
        response=_measure(
            "response consistency", [_mean_if_all(_above(c[0], c[1]), _above(c[3], c[2])) for c in cells]
        ),
        instruction=_measure(
            "instruction consistency", [_mean_if_all(_above(c[0], c[2]), _above(c[3], c[1])) for c in cells]
        ),
    )


def _above(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else 0.5 if one == other else float(one > other)


def _mean_if_all(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else (one + other) / 2


def compare_judges(new: Sequence[JudgedPair], old: Sequence[JudgedPair]) -> JudgeComparison:
    """Two sets of verdicts, on the pairs that both have. Raises ConfigError if there is none."""
    olds = {one.pair.id: one for one in old}
    both = [(one, olds[one.pair.id]) for one in new if one.pair.id in olds]
    if not both:
        raise ConfigError("the two sets of verdicts have no pair in common")
    news, before = [one for one, _ in both], [one for _, one in both]
    words = [[_word(value) for values in _columns(side) for value in values] for side in (news, before)]
    same = [_mean(_same(a.shown_first, b.shown_first), _same(a.shown_second, b.shown_second)) for a, b in both]
    accuracies = [[_accuracy(one) for one in side] for side in (news, before)]
    change = [None if a is None or b is None else a - b for a, b in zip(*accuracies, strict=True)]
    wrong = [[None if value is None else value < 0.5 for value in side] for side in accuracies]
    try:
        errors = shared_errors(wrong[0], wrong[1])
    except NotEnoughData:
        errors = None
    try:
        alpha = krippendorff_alpha(words)
    except NotEnoughData:
        alpha = None
    return JudgeComparison(
        n_pairs=len(both),
        agreement=_measure("agreement", same),
        kappa=_kappa(*words),
        alpha=alpha,
        accuracy_change=_measure("accuracy change", change, (-1.0, 1.0)),
        errors=errors,
    )


def _columns(judged: Sequence[JudgedPair]) -> tuple[list[float | None], list[float | None]]:
    return [one.shown_first for one in judged], [one.shown_second for one in judged]


def _is_right(points: float | None, label: float) -> float | None:
    """1 if the verdict agrees with the label, 0 if not, 0.5 for a tie; None: no verdict."""
    return None if points is None else 0.5 if points == 0.5 else float((points > 0.5) == (label > 0.5))


def _accuracy(one: JudgedPair) -> float | None:
    if one.pair.label == 0.5:
        return None
    return _mean(_is_right(one.shown_first, one.pair.label), _is_right(one.shown_second, one.pair.label))


def _mean(*values: float | None) -> float | None:
    there = [value for value in values if value is not None]
    return sum(there) / len(there) if there else None


def _same(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else float(_word(one) == _word(other))


def _word(points: float | None) -> str | None:
    return None if points is None else "tie" if points == 0.5 else "first" if points > 0.5 else "second"


def _winner(one: JudgedPair) -> str | None:
    if one.shown_first is None or one.shown_second is None:
        return None
    return _word((one.shown_first + one.shown_second) / 2)


def _first_shown(one: JudgedPair) -> float | None:
    """Mean points of whichever answer was shown first."""
    if one.shown_first is None or one.shown_second is None:
        return None
    return (one.shown_first + 1.0 - one.shown_second) / 2


def _for_longer(one: JudgedPair) -> float | None:
    """Points of the longer answer, less those that the label gives it."""
    first, second = (len(answer) for answer in one.pair.answers)
    points = None if first == second else _mean(one.shown_first, one.shown_second)
    return None if points is None else (points - one.pair.label) * (1.0 if first > second else -1.0)


def _for_itself(one: JudgedPair, model: str | None) -> float | None:
    if model is None or one.pair.models is None or (one.pair.models[0] == model) == (one.pair.models[1] == model):
        return None
    points = _mean(one.shown_first, one.shown_second)
    return None if points is None else (points - one.pair.label) * (1.0 if one.pair.models[0] == model else -1.0)


def _measure(what: str, values: Sequence[float | None], bounds: tuple[float, float] = UNIT) -> Estimate | None:
    try:
        return measure(values, what, bounds)
    except NotEnoughData:
        return None


def _shifted(what: str, values: Sequence[float | None], shift: float) -> Estimate | None:
    return _measure(what, [None if value is None else value + shift for value in values], (-0.5, 0.5))


def _kappa(one: Sequence[str | None], other: Sequence[str | None]) -> Estimate | None:
    return _agreement(cohens_kappa, one, other)


def _agreement(statistic: Callable[[Any, Any], Estimate], one: Sequence[Any], other: Sequence[Any]) -> Estimate | None:
    try:
        return statistic(one, other)
    except NotEnoughData:
        return None
