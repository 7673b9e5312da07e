"""Checks of a judge: pairwise verdicts beside people's labels, in both orders, with the biases that they show.

`read_pairs` reads answers with labels (LLMBar, JudgeBench, RewardBench, human judgements of MT-Bench, our own layout);
`check_judge` says how good the verdicts on them are; `sway` how far polite, confident or empty phrases move them;
`compare_judges` puts two sets of verdicts beside each other (another judge, the same judge again, or recorded anchor
verdicts: drift). `check_contrasts` says how far a scorer of single answers, such as a reward model, keeps similar
instructions apart. The judge is asked by `evaluation.judging`.

A verdict that is missing is in no rate and is counted. The labels are taken as given: where people disagree, the label
is the decision of the data set's authors.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from agent2.errors import ConfigError, NotEnoughData
from agent2.evaluation.judging import TIE, ContrastPair, JudgedPair, LabelledPair
from agent2.files import numbered_lines
from agent2.foreign_files import MAX_LOG_BYTES, read_named
from agent2.stats.estimates import UNIT, Estimate, measure
from agent2.stats.quality import SharedErrors, cohens_kappa, krippendorff_alpha, preference_tau, shared_errors
from agent2.texts import parse_json

FOLDS = 5
"""Of the pairs, for the length-normalised verdicts."""
DECIDING_BIAS = 0.25
"""Position bias beyond which the place of an answer decides more than half of the verdicts."""


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
    right_on_balance: Estimate | None
    """Share of pairs where the two orders together speak for the better answer: both do, or one does and the
    other ties. The accuracy that JudgeBench reports (Tan et al. 2024, arXiv:2410.12784)."""
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

    @property
    def goes_by_position(self) -> bool:
        """Whether the place of an answer decides more than half of the verdicts, by the whole interval."""
        bias = self.position_bias
        if bias is None or bias.low is None or bias.high is None:
            return False
        return bias.low > DECIDING_BIAS or bias.high < -DECIDING_BIAS


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
    """Labelled pairs of a file, or of the folder that LLMBar calls a subset. Raises ConfigError with the location.

    Layouts, recognised by their fields: LLMBar (`input, output_1, output_2, label`), JudgeBench (`question, response_A,
    response_B, label: "A>B"`), RewardBench (`prompt, chosen, rejected`), MT-Bench human judgements (`conversation_a,
    conversation_b, winner`), ours (`instruction, first, second, label`).
    """
    file = path / "dataset.json" if path.is_dir() else path
    pairs = [_pair(row, f"{file}:{location}", number) for number, (location, row) in enumerate(_rows(file))]
    if not pairs:
        raise ConfigError(f"{file}: holds no pair of answers")
    numbers: dict[str, int] = {}
    for number, pair in enumerate(pairs, start=1):
        if pair.id in numbers:
            raise ConfigError(f"{file}: pairs {numbers[pair.id]} and {number} have the same id {pair.id!r}")
        numbers[pair.id] = number
    return pairs


def _rows(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Rows of a JSON list or of JSON lines, each with its location in the file."""
    try:
        text = read_named(file, MAX_LOG_BYTES).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: cannot be read ({error}); give a JSON or JSONL file, or LLMBar's folder") from error
    try:
        if text.lstrip().startswith("["):
            rows = [(f"item {number}", row) for number, row in enumerate(parse_json(text), start=1)]
        else:
            rows = [(str(number), parse_json(line)) for number, line in numbered_lines(text) if line.strip()]
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file}: is not JSON ({error})") from error
    for location, row in rows:
        if not isinstance(row, dict):
            raise ConfigError(f"{file}:{location}: is a {type(row).__name__}, not an object with named fields")
        yield location, row


def _pair(row: Mapping[str, Any], where: str, number: int) -> LabelledPair:
    def text(name: str) -> str:
        if not isinstance(row.get(name), str):
            raise ConfigError(f"{where}: field {name!r} is missing or not text")
        return str(row[name])

    def label(value: object, points: Mapping[str, float]) -> float:
        if str(value) not in points:
            raise ConfigError(f"{where}: label {value!r}; known are {', '.join(points)}")
        return points[str(value)]

    models = None
    if "output_1" in row:
        fields = text("input"), (text("output_1"), text("output_2")), label(row.get("label"), {"1": 1.0, "2": 0.0})
    elif "response_A" in row:
        points = {"A>B": 1.0, "B>A": 0.0, "A=B": 0.5}
        fields = text("question"), (text("response_A"), text("response_B")), label(row.get("label"), points)
    elif "chosen" in row:
        fields = text("prompt"), (text("chosen"), text("rejected")), 1.0
        if isinstance(row.get("chosen_model"), str) and isinstance(row.get("rejected_model"), str):
            models = row["chosen_model"], row["rejected_model"]
    elif "conversation_a" in row:
        sides = [_conversation(row.get(name), where) for name in ("conversation_a", "conversation_b")]
        points = {"model_a": 1.0, "model_b": 0.0, "tie": 0.5}
        fields = sides[0][0], (sides[0][1], sides[1][1]), label(row.get("winner"), points)
        models = text("model_a"), text("model_b")
    elif "instruction" in row:
        points = {"1": 1.0, "2": 0.0, "tie": 0.5}
        fields = text("instruction"), (text("first"), text("second")), label(row.get("label"), points)
        if "first_model" in row or "second_model" in row:
            models = text("first_model"), text("second_model")
    else:
        raise ConfigError(
            f"{where}: fields {', '.join(sorted(row)[:8])} are of no known layout; "
            "ours is instruction, first, second, label, and first_model and second_model if known"
        )
    pair_id = row.get("pair_id", row.get("id", number))
    if "conversation_a" in row:
        pair_id = "-".join(str(row.get(key, "")) for key in ("question_id", "model_a", "model_b", "judge", "turn"))
    return LabelledPair(str(pair_id), *fields, subset=str(row.get("subset", row.get("source", ""))), models=models)


def _conversation(turns: object, where: str) -> tuple[str, str]:
    """The user's messages, and the model's, of a whole conversation."""
    if not isinstance(turns, list) or not all(isinstance(turn, dict) and "content" in turn for turn in turns):
        raise ConfigError(f"{where}: a conversation is a list of messages with role and content")
    questions = [str(turn["content"]) for turn in turns if turn.get("role") == "user"]
    answers = [str(turn["content"]) for turn in turns if turn.get("role") != "user"]
    return "\n\n".join(questions), "\n\n".join(answers)


def sway(judged: Sequence[JudgedPair], again: Mapping[str, Sequence[JudgedPair]]) -> dict[str, Estimate | None]:
    """Points that the worse answer of a pair gains if polite, confident or empty phrases are added to it; by manner.

    judged: verdicts on the pairs as they are; again: those of the same judge on the same pairs with phrases, as
    `evaluation.judging.judge_with_phrases` gives them.
    """
    decided = _decided(judged)
    estimates = {}
    for manner, with_phrases in again.items():
        verdicts = zip(decided, with_phrases, strict=True)
        points = [(_points_of_worse(old), _points_of_worse(new)) for old, new in verdicts]
        gains = [None if before is None or after is None else after - before for before, after in points]
        estimates[manner] = _measure(f"{manner} words", gains, (-1.0, 1.0))
    return estimates


def _points_of_worse(judged_pair: JudgedPair) -> float | None:
    """Mean points of the answer that the label calls worse."""
    points = _mean_points(judged_pair)
    return None if points is None else points if judged_pair.pair.label < 0.5 else 1.0 - points


def write_verdicts(path: Path, judged: Sequence[JudgedPair]) -> None:
    """Verdicts as JSON lines, to be compared with later ones."""
    rows = (
        {
            "id": judged_pair.pair.id,
            "shown_first": judged_pair.shown_first,
            "shown_second": judged_pair.shown_second,
        }
        for judged_pair in judged
    )
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


_POINTS_OF_FIRST: Mapping[object, float] = {"A>B": 1.0, "B>A": 0.0, "A=B": 0.5}
_POINTS_OF_SWAPPED: Mapping[object, float] = {decision: 1.0 - points for decision, points in _POINTS_OF_FIRST.items()}


def read_verdicts(path: Path, pairs: Sequence[LabelledPair]) -> list[JudgedPair]:
    """Recorded verdicts on these pairs: ours (`write_verdicts`), a `result.json` of LLMBar, or outputs of JudgeBench.

    Raises ConfigError.
    """
    by_id = {pair.id: pair for pair in pairs}
    judged = []
    for number, (location, row) in enumerate(_rows(path)):
        results = row.get("results")
        if isinstance(results, list) and results:  # LLMBar: rows in the order of the pairs, without ids
            winners = [results[-1].get(f"swap = {swap}", {}).get("winner") for swap in (False, True)]
            pair_id = str(number)
            points = [{"1": 1.0, "2": 0.0}.get(str(winner)) for winner in winners]
        elif isinstance(row.get("judgments"), list):  # JudgeBench: in the second one the answers are swapped
            decisions = [(judgment or {}).get("decision") for judgment in [*row["judgments"], None, None][:2]]
            pair_id = str(row.get("pair_id"))
            points = [_POINTS_OF_FIRST.get(decisions[0]), _POINTS_OF_SWAPPED.get(decisions[1])]
        elif "id" in row:
            pair_id, points = str(row["id"]), [row.get("shown_first"), row.get("shown_second")]
        else:
            raise ConfigError(
                f"{path}:{location}: no verdict in any known form; a row has `id`, `shown_first` and `shown_second` as "
                "agent2 writes them, `results` as LLMBar, or `pair_id` and `judgments` as JudgeBench"
            )
        if pair_id not in by_id:
            raise ConfigError(f"{path}:{location}: pair {pair_id!r} is not one of those that are judged")
        if not all(value is None or (isinstance(value, int | float) and 0.0 <= value <= 1.0) for value in points):
            raise ConfigError(f"{path}:{location}: verdicts are numbers from 0 to 1, or null")
        judged.append(JudgedPair(by_id[pair_id], points[0], points[1]))
    return judged


def check_judge(judged: Sequence[JudgedPair], model: str | None = None) -> JudgeReport:
    """How good verdicts are. model: the judge's own name in the data, for its self-preference."""
    decided = _decided(judged)
    correct_by_order = [
        [_correctness(value, judged_pair.pair.label) for value, judged_pair in zip(values, decided, strict=True)]
        for values in _by_order(decided)
    ]
    correct_by_pair = list(zip(*correct_by_order, strict=True))
    accuracies = [_accuracy(judged_pair) for judged_pair in decided]
    values_by_subset: dict[str, list[float | None]] = {}
    for judged_pair, accuracy in zip(decided, accuracies, strict=True):
        values_by_subset.setdefault(judged_pair.pair.subset, []).append(accuracy)
    by_subset = {subset: _measure(subset, values) for subset, values in sorted(values_by_subset.items()) if subset}
    normalised = length_normalised(judged)
    return JudgeReport(
        n_pairs=len(judged),
        n_missing=sum(values.count(None) for values in _by_order(judged)),
        accuracy=_measure("accuracy", accuracies),
        accuracy_shown_first=_measure("accuracy", correct_by_order[0]),
        accuracy_shown_second=_measure("accuracy", correct_by_order[1]),
        both_right=_measure(
            "both right", [None if None in correct else float(correct == (1.0, 1.0)) for correct in correct_by_pair]
        ),
        right_on_balance=_measure(
            "right on balance",
            [
                None if first is None or second is None else float(first + second > 1.0)
                for first, second in correct_by_pair
            ],
        ),
        order_agreement=_measure(
            "order agreement", [_same_winner(first, second) for first, second in zip(*_by_order(judged), strict=True)]
        ),
        position_bias=_measure("position bias", [_position_bias(judged_pair) for judged_pair in judged], (-0.5, 0.5)),
        length_bias=_measure("length bias", [_length_bias(judged_pair) for judged_pair in judged], (-1.0, 1.0)),
        accuracy_normalised=_measure("accuracy", [_accuracy(judged_pair) for judged_pair in normalised]),
        length_bias_normalised=_measure(
            "length bias", [_length_bias(judged_pair) for judged_pair in normalised], (-1.0, 1.0)
        ),
        self_preference=_measure(
            "self-preference", [_self_preference(judged_pair, model) for judged_pair in judged], (-1.0, 1.0)
        ),
        kappa=_agreement(
            cohens_kappa,
            [_winner(_mean_points(judged_pair)) for judged_pair in judged],
            [_winner(judged_pair.pair.label) for judged_pair in judged],
        ),
        tau=_agreement(
            preference_tau,
            [_mean_points(judged_pair) for judged_pair in judged],
            [judged_pair.pair.label for judged_pair in judged],
        ),
        kappa_orders=_agreement(cohens_kappa, *([_winner(value) for value in values] for values in _by_order(judged))),
        by_subset={subset: accuracy for subset, accuracy in by_subset.items() if accuracy is not None},
    )


def length_normalised(judged: Sequence[JudgedPair]) -> list[JudgedPair]:
    """The verdicts without what the answers' lengths explain of their distance to the labels.

    Points less b tanh(d), d the difference of the lengths in standard deviations; b is fitted by least squares on the
    labels of the other four fifths, so that no pair corrects itself. The form is that of the length term of
    length-controlled AlpacaEval (Dubois et al. 2024, arXiv:2404.04475).
    """
    answers = [judged_pair.pair.answers for judged_pair in judged]
    differences_P = np.array([len(first) - len(second) for first, second in answers], dtype=float)
    deviation = differences_P.std()
    if not deviation:
        return list(judged)
    length_P = np.tanh(differences_P / deviation)
    points = [_mean(judged_pair.shown_first, judged_pair.shown_second) for judged_pair in judged]
    excess_P = np.array(
        [
            np.nan if mean is None else mean - judged_pair.pair.label
            for mean, judged_pair in zip(points, judged, strict=True)
        ]
    )
    # Folds by position, so that the same pairs give the same correction each time.
    fold_P = np.arange(len(judged)) % FOLDS
    normalised = []
    for number, judged_pair in enumerate(judged):
        fitted_P = (fold_P != fold_P[number]) & ~np.isnan(excess_P)
        size = float(length_P[fitted_P] @ length_P[fitted_P])
        slope = float(length_P[fitted_P] @ excess_P[fitted_P]) / size if size else 0.0
        correction = slope * float(length_P[number])
        first, second = (
            None if value is None else min(1.0, max(0.0, value - correction))
            for value in (judged_pair.shown_first, judged_pair.shown_second)
        )
        normalised.append(replace(judged_pair, shown_first=first, shown_second=second))
    return normalised


@dataclass(frozen=True, slots=True)
class ContrastReport:
    """How far a scorer of single answers keeps similar instructions apart; chance is 0.5.

    Source: Shen et al. 2023, arXiv:2309.16155 (Contrast Instructions), both directions averaged.
    """

    n_pairs: int
    response: Estimate | None
    """Of two answers to one instruction, the right one scores higher."""
    instruction: Estimate | None
    """An answer scores higher under its own instruction than under the similar one."""


def is_contrast(path: Path) -> bool:
    """Whether a file's first row is a contrast pair. Raises ConfigError for a file that cannot be read."""
    return "instruction_1" in next((row for _, row in _rows(path)), {}) if path.is_file() else False


def read_contrasts(path: Path) -> list[ContrastPair]:
    """Rows with `instruction_1, answer_1, instruction_2, answer_2`. Raises ConfigError with the location."""
    pairs = []
    for number, (location, row) in enumerate(_rows(path)):
        values = [row.get(f"{field}_{side}") for field in ("instruction", "answer") for side in (1, 2)]
        if not all(isinstance(value, str) for value in values):
            raise ConfigError(
                f"{path}:{location}: instruction_1, answer_1, instruction_2 and answer_2 are needed, as text"
            )
        texts = [str(value) for value in values]
        pairs.append(ContrastPair(str(row.get("id", number)), (texts[0], texts[1]), (texts[2], texts[3])))
    return pairs


def check_contrasts(values: Sequence[float | None]) -> ContrastReport:
    """How far similar instructions are kept apart. values: as `evaluation.judging.score_contrasts` gives them."""
    response, instruction = [], []
    for start in range(0, len(values), 4):
        # Instruction 1 with answers 1 and 2, then instruction 2 with both: the first and the last are right.
        right_1, wrong_1, wrong_2, right_2 = values[start : start + 4]
        response.append(_mean_if_all(_points(right_1, wrong_1), _points(right_2, wrong_2)))
        instruction.append(_mean_if_all(_points(right_1, wrong_2), _points(right_2, wrong_1)))
    return ContrastReport(
        n_pairs=len(values) // 4,
        response=_measure("response consistency", response),
        instruction=_measure("instruction consistency", instruction),
    )


def _points(score: float | None, rival: float | None) -> float | None:
    """1 for the higher score, 0.5 for equal ones; None: one is missing."""
    return None if score is None or rival is None else 0.5 if score == rival else float(score > rival)


def _mean_if_all(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else (first + second) / 2


def compare_judges(new: Sequence[JudgedPair], old: Sequence[JudgedPair]) -> JudgeComparison:
    """Two sets of verdicts, on the pairs that both have. Raises ConfigError if there is none."""
    old_by_id = {judged_pair.pair.id: judged_pair for judged_pair in old}
    after = [judged_pair for judged_pair in new if judged_pair.pair.id in old_by_id]
    before = [old_by_id[judged_pair.pair.id] for judged_pair in after]
    if not after:
        raise ConfigError("the two sets of verdicts have no pair in common")
    winners = [[_winner(value) for values in _by_order(side) for value in values] for side in (after, before)]
    same = [
        _mean(_same_winner(a.shown_first, b.shown_first), _same_winner(a.shown_second, b.shown_second))
        for a, b in zip(after, before, strict=True)
    ]
    accuracies = [[_accuracy(judged_pair) for judged_pair in side] for side in (after, before)]
    change = [None if a is None or b is None else a - b for a, b in zip(*accuracies, strict=True)]
    wrong = [[None if value is None else value < 0.5 for value in side] for side in accuracies]
    try:
        errors = shared_errors(wrong[0], wrong[1])
    except NotEnoughData:
        errors = None
    try:
        alpha = krippendorff_alpha(winners)
    except NotEnoughData:
        alpha = None
    return JudgeComparison(
        n_pairs=len(after),
        agreement=_measure("agreement", same),
        kappa=_agreement(cohens_kappa, *winners),
        alpha=alpha,
        accuracy_change=_measure("accuracy change", change, (-1.0, 1.0)),
        errors=errors,
    )


def _decided(judged: Sequence[JudgedPair]) -> list[JudgedPair]:
    """Those whose label is no tie."""
    return [judged_pair for judged_pair in judged if judged_pair.pair.label != TIE]


def _by_order(judged: Sequence[JudgedPair]) -> tuple[list[float | None], list[float | None]]:
    """All verdicts with the first answer shown first, and all with it shown second."""
    return [judged_pair.shown_first for judged_pair in judged], [judged_pair.shown_second for judged_pair in judged]


def _winner(points: float | None) -> str | None:
    return None if points is None else "tie" if points == 0.5 else "first" if points > 0.5 else "second"


def _same_winner(points: float | None, rival_points: float | None) -> float | None:
    return None if points is None or rival_points is None else float(_winner(points) == _winner(rival_points))


def _correctness(points: float | None, label: float) -> float | None:
    """1 if the verdict agrees with the label, 0 if not, 0.5 for a tie; None: no verdict."""
    return None if points is None else 0.5 if points == 0.5 else float((points > 0.5) == (label > 0.5))


def _accuracy(judged_pair: JudgedPair) -> float | None:
    """Mean over the verdicts that are there; None: no verdict, or the label is a tie."""
    label = judged_pair.pair.label
    if label == TIE:
        return None
    return _mean(_correctness(judged_pair.shown_first, label), _correctness(judged_pair.shown_second, label))


def _mean(*values: float | None) -> float | None:
    present = [value for value in values if value is not None]
    return sum(present) / len(present) if present else None


def _mean_points(judged_pair: JudgedPair) -> float | None:
    return _mean_if_all(judged_pair.shown_first, judged_pair.shown_second)


def _position_bias(judged_pair: JudgedPair) -> float | None:
    """Mean points of the answer that is shown first, less 0.5."""
    if judged_pair.shown_first is None or judged_pair.shown_second is None:
        return None
    return (judged_pair.shown_first + 1.0 - judged_pair.shown_second) / 2 - 0.5


def _length_bias(judged_pair: JudgedPair) -> float | None:
    """Points of the longer answer, less those that the label gives it."""
    first, second = (len(answer) for answer in judged_pair.pair.answers)
    points = None if first == second else _mean(judged_pair.shown_first, judged_pair.shown_second)
    return None if points is None else (points - judged_pair.pair.label) * (1.0 if first > second else -1.0)


def _self_preference(judged_pair: JudgedPair, model: str | None) -> float | None:
    """Points of the answer of the judge's own model, less those that the label gives it; None: not exactly one is."""
    models = judged_pair.pair.models
    if model is None or models is None or (models[0] == model) == (models[1] == model):
        return None
    points = _mean(judged_pair.shown_first, judged_pair.shown_second)
    return None if points is None else (points - judged_pair.pair.label) * (1.0 if models[0] == model else -1.0)


def _measure(name: str, values: Sequence[float | None], bounds: tuple[float, float] = UNIT) -> Estimate | None:
    try:
        return measure(values, name, bounds)
    except NotEnoughData:
        return None


def _agreement(
    statistic: Callable[[Any, Any], Estimate], first: Sequence[Any], second: Sequence[Any]
) -> Estimate | None:
    try:
        return statistic(first, second)
    except NotEnoughData:
        return None
