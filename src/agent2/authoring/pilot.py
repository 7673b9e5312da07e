"""A pilot: three players of known order on the draft of a benchmark, and what their scores say about each item.

Roles: `weak` (or `sft`), `previous` and `strong`. A side is a card of the draft, or a checkpoint that is played here.

Promises: fewer than three roles are refused; cards of other items are refused; missing scores stay missing and are
counted. `drop` lists what is shown to be broken by the card itself; `review` lists what the players' answers suggest,
for a person to decide: a strong player may be wrong with conviction.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from agent2.analysis.card_scores import CardScores, read_scores
from agent2.authoring.card_faults import CardFault, FaultKind, PlayedShortcut, play_shortcuts, static_faults
from agent2.authoring.own_benchmark import OwnBenchmark
from agent2.authoring.task_cards import TaskCard
from agent2.cards.folder import card_exists
from agent2.cards.reader import iter_rollouts, read_header
from agent2.errors import ConfigError, NotEnoughData
from agent2.records import Split
from agent2.stats.items import item_difficulty, item_discrimination
from agent2.stats.quality import Calibration, Health, calibrate, separability, signal_to_noise

WEAK, PREVIOUS, STRONG = ("weak", "sft"), "previous", "strong"
CERTAIN_SHARE = 0.6
"""Of a strong player's attempts: one wrong answer with so many is what it means."""
UNANIMOUS = 3
"""Attempts of the strong player that make one wrong answer unanimous."""
MIN_SPLIT = 5
"""Attempts without which an answer that varies says nothing: on a hard item it does, too."""
SPLIT_SHARE = 0.25
"""Of its attempts, each of two answers: it does not know which is meant."""
INVERTED_BY = 0.6
SOLVED, UNSOLVED = 0.95, 0.05
MOST_RATIO = 1e6
"""A larger ratio of signal to noise is rounding: nothing moved."""
DROPPED = frozenset(
    {
        FaultKind.LEAKED,
        FaultKind.DUPLICATE,
        FaultKind.TWO_KEYS,
        FaultKind.TWO_RIGHT,
        FaultKind.SHORTCUT,
        FaultKind.WEAK_VERIFIER,
        FaultKind.UNSOLVABLE,
    }
)
"""What is wrong with the card itself; the other kinds are suspicions."""


@dataclass(frozen=True, slots=True)
class PilotItem:
    """What the players did with one item."""

    id: str
    task_type: str
    labelled: str
    """The difficulty that its card states."""
    rates: Mapping[str, float | None]
    """Role -> mean score of its attempts."""
    difficulty: float | None
    """1 - mean over the roles."""
    discrimination: float | None
    """Correlation with the rest of the benchmark; None: all attempts scored the same."""
    faults: tuple[CardFault, ...]

    @property
    def is_dropped(self) -> bool:
        """Whether the card itself is broken."""
        return any(fault.kind in DROPPED for fault in self.faults)

    @property
    def is_suspect(self) -> bool:
        """Whether a person should look at it."""
        return bool(self.faults) and not self.is_dropped


@dataclass(frozen=True, slots=True)
class Pilot:
    """The result of a pilot."""

    calibration: Calibration
    separability: float
    """Share of pairs of roles whose intervals do not overlap."""
    signal_to_noise: float | None
    """None: see `noise_note`."""
    noise_note: str
    shortcuts: tuple[PlayedShortcut, ...]
    items: tuple[PilotItem, ...]
    cell_rates: Mapping[str, Mapping[str, float | None]]
    """Stated difficulty -> role -> mean score of its items."""
    checkpoints: Mapping[str, str]
    """Role -> digest of the checkpoint."""

    @property
    def dropped(self) -> list[PilotItem]:
        """Items whose card is broken."""
        return [item for item in self.items if item.is_dropped]

    @property
    def suspects(self) -> list[PilotItem]:
        """Items to look at."""
        return [item for item in self.items if item.is_suspect]

    @property
    def regression_set(self) -> list[str]:
        """Items that every role solves: they say whether something broke, not who is better."""
        return [item.id for item in self.items if _all(item, lambda rate: rate >= SOLVED) and not item.is_dropped]

    @property
    def capability_set(self) -> list[str]:
        """All others that are kept."""
        regression = set(self.regression_set)
        return [item.id for item in self.items if item.id not in regression and not item.is_dropped]

    @property
    def labels_in_order(self) -> bool | None:
        """Whether harder labels are harder for the main role; None: fewer than two labels have scores."""
        main_rates = [row[self.calibration.main] for row in self.cell_rates.values()]
        rates = [rate for rate in main_rates if rate is not None]
        return None if len(rates) < 2 else all(a >= b for a, b in pairwise(rates))

    def record(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "verdict": self.calibration.health.value,
            "healthy": self.calibration.health is Health.HEALTHY,
            "main": self.calibration.main,
            "roles": {
                role: {"rate": rate, "checkpoint": self.checkpoints[role]}
                for role, rate in self.calibration.rates.items()
            },
            "spread": self.calibration.spread,
            "separability": self.separability,
            "signal_to_noise": self.signal_to_noise,
            "noise_note": self.noise_note,
            "labels_in_order": self.labels_in_order,
            "cell_rates": self.cell_rates,
            "shortcuts": [
                {key: value for key, value in asdict(shortcut).items() if key != "items"} | {"wins": shortcut.wins}
                for shortcut in self.shortcuts
            ],
            "n_items": len(self.items),
            "drop": [_faults(item) for item in self.dropped],
            "review": [_faults(item) for item in self.suspects],
            "regression_set": self.regression_set,
            "capability_set": self.capability_set,
            "items": [
                {
                    "id": item.id,
                    "task_type": item.task_type,
                    "labelled": item.labelled,
                    "rates": item.rates,
                    "difficulty": item.difficulty,
                    "discrimination": item.discrimination,
                }
                for item in self.items
            ],
        }


def _faults(item: PilotItem) -> dict[str, Any]:
    return {"id": item.id, "reasons": [{"kind": fault.kind.value, "reason": fault.reason} for fault in item.faults]}


def _all(item: PilotItem, claim: Any) -> bool:
    return all(rate is not None and claim(rate) for rate in item.rates.values())


def require_roles(roles: Sequence[str]) -> str:
    """The name of the weak role. Raises ConfigError unless there is one of each."""
    weak = [role for role in roles if role in WEAK]
    needed = {"weak (or sft)": len(weak) == 1, PREVIOUS: PREVIOUS in roles, STRONG: STRONG in roles}
    missing = [name for name, is_there in needed.items() if not is_there]
    if missing or len(roles) != 3:
        raise ConfigError(
            f"a pilot has three roles, weak (or sft), previous and strong, and got {', '.join(roles) or 'none'}"
            + (f"; add --role {missing[0].split()[0]}=CARD_OR_CHECKPOINT" if missing else "")
        )
    return weak[0]


def require_draft(cards: Mapping[str, Path], draft: Path) -> None:
    """Raise ConfigError for a card that was not played on the draft in a folder, and for one checkpoint in two roles.

    A card is of another draft after an edit of a task card. One checkpoint in two roles would have no order.
    """
    from agent2.benchmarks import load_benchmark

    benchmark = load_benchmark(str(draft))
    roles: dict[str, str] = {}
    for role, card in cards.items():
        header = read_header(card)
        first_role = roles.setdefault(header.checkpoint_digest, role)
        if first_role != role:
            raise ConfigError(
                f"--role {role}={card}: is the checkpoint of role {first_role}, too; give each role its own"
            )
        version = header.protocol.benchmark
        if version != f"{benchmark.name}-v{benchmark.version}":
            raise ConfigError(
                f"--role {role}={card}: was played on {version}, and the cards are now "
                f"{benchmark.name}-v{benchmark.version}; play the checkpoint again"
            )


def analyse_pilot(
    bench: OwnBenchmark, cards: Mapping[str, Path], main: str, verifier_faults: Sequence[CardFault] = ()
) -> Pilot:
    """What the cards of three roles say about a draft. verifier_faults: what running its verifiers found.

    Raises ConfigError for other than three roles, and for cards without an item of the draft.
    """
    weak = require_roles(list(cards))
    if main not in cards:
        raise ConfigError(f"--main {main!r}: is not among the roles {', '.join(cards)}")
    scores = {role: _scores_of(bench, role, path) for role, path in cards.items()}
    answers = {role: _answers(path, f"{bench.spec.name}-") for role, path in cards.items()}
    ids = [card.id for card in bench.cards if all(card.id in side.items for side in scores.values())]
    if not ids:
        raise ConfigError("the roles have no item in common; play the draft with the same --limit")
    by_id = {card.id: card for card in bench.cards}
    piloted = [by_id[item] for item in ids]
    rates = {role: {item: side.items[item].mean for item in ids} for role, side in scores.items()}
    calibration = calibrate({role: list(row.values()) for role, row in rates.items()}, main)
    bounds = [rate.interval for rate in calibration.rates.values()]
    apart = separability([low for low, _ in bounds], [high for _, high in bounds])
    attempts_PI = _attempts(scores, ids)
    discrimination = item_discrimination(attempts_PI)
    roles_PI = [[math.nan if value is None else value for value in row.values()] for row in rates.values()]
    difficulty = item_difficulty(roles_PI)
    faults = [*static_faults(bench.cards), *verifier_faults, *_answer_faults(piloted, rates, answers, weak)]
    ratio, note = _noise(scores, ids)
    items = tuple(
        PilotItem(
            item,
            by_id[item].task_type,
            by_id[item].difficulty,
            {role: row[item] for role, row in rates.items()},
            _finite(difficulty[place]),
            _finite(discrimination[place]),
            tuple(fault for fault in faults if fault.item == item),
        )
        for place, item in enumerate(ids)
    )
    shortcuts = play_shortcuts([card for card in piloted if not card.runs_command])
    checkpoints = {role: side.header.checkpoint_digest for role, side in scores.items()}
    return Pilot(
        calibration, apart.value, ratio, note, tuple(shortcuts), items, _cell_rates(piloted, rates), checkpoints
    )


def _scores_of(bench: OwnBenchmark, role: str, path: Path) -> CardScores:
    if not card_exists(path):
        raise ConfigError(f"--role {role}={path}: is no card; give the folder with card.json, or a checkpoint")
    scores = read_scores(path)
    if scores.header.protocol.benchmark.rpartition("-v")[0] != bench.spec.name:
        raise ConfigError(
            f"--role {role}={path}: is a card of {scores.header.protocol.benchmark}, not of {bench.spec.name}; "
            "play the draft of this benchmark"
        )
    prefix = f"{bench.spec.name}-"  # declared benchmarks put their name before an id
    return replace(scores, items={item.removeprefix(prefix): row for item, row in scores.items.items()})


def _answers(path: Path, prefix: str) -> dict[str, list[str]]:
    """Item -> what was extracted of each attempt, or else its answer in plain words; without those that have none."""
    answers: dict[str, list[str]] = {}
    for record in iter_rollouts(path):
        text = record.score.extracted or record.rollout.answer
        if text is not None and text.strip():
            answers.setdefault(record.rollout.item_id.removeprefix(prefix), []).append(
                " ".join(text.split()).casefold().rstrip(".")
            )
    return answers


def _attempts(scores: Mapping[str, CardScores], ids: Sequence[str]) -> np.ndarray[Any, Any]:
    """Attempts of all roles x items, NaN where missing."""
    rows = []
    for side in scores.values():
        n_attempts = max(len(side.items[item].values) for item in ids)
        for attempt in range(n_attempts):
            values = [side.items[item].values for item in ids]
            rows.append([row[attempt] if attempt < len(row) else None for row in values])
    return np.array([[math.nan if value is None else value for value in row] for row in rows])


def _noise(scores: Mapping[str, CardScores], ids: Sequence[str]) -> tuple[float | None, str]:
    """Signal to noise, where noise is how far attempts of one player lie apart."""
    means: list[list[float]] = []
    for side in scores.values():
        n_attempts = min(len(side.items[item].values) for item in ids)
        by_attempt = [[side.items[item].values[attempt] for item in ids] for attempt in range(n_attempts)]
        means.append([mean for values in by_attempt if (mean := _mean(values)) is not None])
    if len({len(row) for row in means}) != 1 or len(means[0]) < 2:
        return None, "noise needs at least two attempts of each role"
    try:
        ratio = signal_to_noise([float(np.mean(row)) for row in means], means).ratio
    except (NotEnoughData, ValueError) as error:
        return None, str(error)
    if not math.isfinite(ratio) or ratio > MOST_RATIO:
        return None, "no role's attempts differ: they were not sampled"
    return ratio, "noise: attempts of one player"


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _cell_rates(
    cards: Sequence[TaskCard], rates: Mapping[str, Mapping[str, float | None]]
) -> dict[str, dict[str, float | None]]:
    cells: dict[str, dict[str, float | None]] = {}
    for difficulty in ("easy", "medium", "hard"):
        members = [card.id for card in cards if card.difficulty == difficulty]
        if members:
            cells[difficulty] = {role: _mean([row[item] for item in members]) for role, row in rates.items()}
    return cells


def _mean(values: Sequence[float | None]) -> float | None:
    scores = [value for value in values if value is not None]
    return sum(scores) / len(scores) if scores else None


def _answer_faults(
    cards: Sequence[TaskCard],
    rates: Mapping[str, Mapping[str, float | None]],
    answers: Mapping[str, Mapping[str, Sequence[str]]],
    weak: str,
) -> list[CardFault]:
    """Suspicions from what the players answered."""
    faults = []
    for card in cards:
        strong, previous = rates[STRONG][card.id], rates[PREVIOUS][card.id]
        lowest = rates[weak][card.id]
        if strong is None or card.runs_command:
            continue
        strong_answers = Counter(answers[STRONG].get(card.id, ()))
        others = Counter(answers[PREVIOUS].get(card.id, ()))
        key = " ".join((card.answer or "").split()).casefold()
        wrong = [(text, n) for text, n in strong_answers.most_common() if text != key]
        n_given = sum(strong_answers.values())
        is_certain = bool(wrong) and strong <= UNSOLVED and wrong[0][1] >= CERTAIN_SHARE * n_given
        is_unanimous = is_certain and wrong[0][1] == n_given >= UNANIMOUS and others[wrong[0][0]] > 0
        if is_unanimous or (is_certain and others and others.most_common(1)[0][0] == wrong[0][0]):
            reason = f"strong and previous agree on {wrong[0][0]!r}, the key is {card.answer!r}"
            faults.append(CardFault(card.id, FaultKind.WRONG_KEY, reason))
            continue
        if wrong and UNSOLVED < strong < SOLVED and n_given >= MIN_SPLIT:
            is_split = min(wrong[0][1], n_given - wrong[0][1]) >= SPLIT_SHARE * n_given and set(others) | set(
                strong_answers
            ) == {key, wrong[0][0]}
            if is_split and others[wrong[0][0]] and others[key]:
                reason = f"strong and previous both give {wrong[0][0]!r} as well as the key {card.answer!r}"
                faults.append(CardFault(card.id, FaultKind.AMBIGUOUS, reason))
                continue
        if lowest is not None and lowest - strong >= INVERTED_BY and (previous is None or lowest > previous):
            reason = f"weak solves {lowest:.2f} of it, strong {strong:.2f}"
            faults.append(CardFault(card.id, FaultKind.INVERTED, reason))
    return faults


def play_role(bench: OwnBenchmark, draft: Path, source: str, card: Path, limit: int | None, progress: Any) -> Path:
    """Play a checkpoint on the draft; a finished card is not played again. Raises what playing raises."""
    from agent2.benchmarks import load_benchmark
    from agent2.evaluation.first_items import first_items
    from agent2.evaluation.plan import EvaluationPlan
    from agent2.evaluation.runner import evaluate
    from agent2.models.sources import find_checkpoint

    checkpoint = find_checkpoint(source)
    benchmark = load_benchmark(str(draft))
    items = benchmark.items(Split.DEV, len(bench.cards), None)
    plan = EvaluationPlan(
        benchmark,
        Split.DEV,
        first_items(items, limit),
        checkpoint.name,
        checkpoint.digest,
        checkpoint.chat_template_digest,
        checkpoint.dtype,
    )
    sampler = checkpoint.open()
    try:
        evaluate(plan, sampler, card, lambda done, total: progress(f"play {card.name}", done, total), give_up_after=50)
    finally:
        sampler.close()
    return card
