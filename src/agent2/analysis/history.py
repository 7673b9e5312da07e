"""The evaluations below a folder, found again: suite, step, score with its interval, decision.

Nothing is stored: each call reads the folders, so a deleted evaluation is gone from the history and an edited one is
read as it is now. Scores come from the checkpoint's cards, the decision from `report.json`. An evaluation without a
report is `unfinished`; one whose files cannot be read is `damaged` and hides no other.

A value may be compared with another one exactly where suite, role, split, metric and the card's protocol are equal
(`EvaluationRow.question`); evaluations of one suite under several contracts are kept apart by the digest.

The best of each table, and each row that was the best so far in the table's order, are rows whose cards were checked
against their digests and give the value: an edited one is named and is no record. Does NOT check the cards of the other
rows unless asked to, and counts them; the gate on the historical best checks those that it reads.
"""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

import msgspec

from agent2.cards.comparability import CARDS, CHECKPOINT
from agent2.cards.folder import CARD_JSON, load_card
from agent2.cards.reader import validate_card
from agent2.errors import Agent2Error, CardError, ConfigError, unknown_name
from agent2.foreign_files import read_limited
from agent2.stats.estimates import Estimate

IDENTITY, SUITE, REPORT, TRIAL = "evaluation.json", "suite.json", "report.json", "trial.json"
MAX_FOLDERS = 200_000
"""Most folders that one search enters."""
MAX_DEPTH = 12
BESIDE = 1
"""Depth of a search that finds only what is directly in the folder."""
PLAIN = "score"
"""The measure whose value and interval a card's summary has."""
ROUNDING = 1e-9
_STEP = re.compile(r"(?:checkpoint|step|iter(?:ation)?)[-_ ]?0*(\d{1,9})(?!\d)", re.IGNORECASE)

RecordT = TypeVar("RecordT")


class EvaluationState(StrEnum):
    """How far an evaluation is."""

    DECIDED = "decided"
    UNFINISHED = "unfinished"
    DAMAGED = "damaged"


class PlayedSide(msgspec.Struct, frozen=True):
    """One side of `evaluation.json`."""

    name: str
    digest: str


class PlayedIdentity(msgspec.Struct, frozen=True):
    """What `evaluation.json` says, as far as a history needs it."""

    suite: str
    suite_digest: str
    role: str
    split: str
    seed: int
    sides: dict[str, PlayedSide]


class PlayedMetric(msgspec.Struct, frozen=True):
    """A metric of `suite.json`."""

    name: str
    benchmark: str | None = None
    role: str = ""
    measure: str = PLAIN
    direction: str = "higher"
    unit: str = "rate"


class _PlayedSuite(msgspec.Struct, frozen=True):
    metrics: list[PlayedMetric]


class _ReportedNumber(msgspec.Struct, frozen=True):
    new: float | None = None


class _StoredReport(msgspec.Struct, frozen=True):
    outcome: str | None = None
    release_decision: str | None = None
    training_action: str | None = None
    evidence: dict[str, _ReportedNumber] = {}


@dataclass(frozen=True, slots=True)
class EvaluationRow:
    """One evaluation of a checkpoint."""

    folder: Path
    state: EvaluationState
    problem: str
    """Why it is not decided; empty: it is."""
    suite: str = ""
    suite_digest: str = ""
    role: str = ""
    split: str = ""
    seed: int = 0
    checkpoint: str = ""
    checkpoint_digest: str = ""
    baseline: str = ""
    step: int | None = None
    """Training step, where the checkpoint's name has one."""
    created_at: float | None = None
    """Unix seconds at which its first card was begun."""
    metric: str = ""
    """The suite's primary one."""
    is_higher_better: bool = True
    value: float | None = None
    """Of the checkpoint; a rate is 0 to 1."""
    score: Estimate | None = None
    """The value with its interval, where the metric is the mean score of one card."""
    protocol_digest: str = ""
    """Of the primary metric's card; of all of them for a metric over all benchmarks."""
    release: str = ""
    outcome: str = ""
    """The decision in one line, with whether an improvement was shown; "" where the report is of an earlier version."""
    training_action: str = ""

    @property
    def question(self) -> tuple[str, ...]:
        """What has to be equal for two values to be comparable."""
        return (self.suite, self.suite_digest, self.role, self.split, self.metric, self.protocol_digest)


def training_step(name: str) -> int | None:
    """The training step in a checkpoint's name: `checkpoint-40`, `global_step_40`, `iter_0000040`; None: it has none.

    Of several, the last one counts.
    """
    steps = _STEP.findall(name)
    return int(steps[-1]) if steps else None


def find_evaluations(top: Path, depth: int = MAX_DEPTH) -> list[EvaluationRow]:
    """Every evaluation in a folder, the oldest first. depth: how many levels down to look.

    Raises ConfigError if it is no folder, or far too large a one.
    """
    if not top.is_dir():
        raise ConfigError(f"{top}: no such folder; pass one that evaluations are in, such as evaluations/")
    rows = [read_evaluation(folder) for folder in _evaluation_folders(top, depth)]
    return sorted(rows, key=lambda row: (row.created_at or 0.0, str(row.folder)))


def _evaluation_folders(top: Path, depth: int) -> Iterator[Path]:
    """Folders with `evaluation.json`; links, hidden folders and the insides of evaluations and trials are skipped."""
    open_folders = [(os.fspath(top), 0)]
    n_entered = 0
    while open_folders:
        folder, level = open_folders.pop()
        n_entered += 1
        if n_entered > MAX_FOLDERS:
            raise ConfigError(f"{top}: more than {MAX_FOLDERS} folders; pass a smaller one")
        try:
            with os.scandir(folder) as scan:
                entries = list(scan)
        except OSError:  # deleted or closed to us meanwhile: as if it were not there
            continue
        names = {entry.name for entry in entries}
        if IDENTITY in names:
            yield Path(folder)
        elif TRIAL not in names and CARD_JSON not in names and level < depth:
            open_folders += [
                (entry.path, level + 1)
                for entry in entries
                if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)
            ]


def read_evaluation(folder: Path) -> EvaluationRow:
    """One evaluation as a row; a folder that cannot be read gives one that says why."""
    row = EvaluationRow(folder, EvaluationState.DAMAGED, "")
    try:
        identity = _read(folder / IDENTITY, PlayedIdentity)
        checkpoint, baseline = identity.sides[CHECKPOINT], identity.sides["baseline"]
        row = replace(
            row,
            suite=identity.suite,
            suite_digest=identity.suite_digest,
            role=identity.role,
            split=identity.split,
            seed=identity.seed,
            checkpoint=checkpoint.name,
            checkpoint_digest=checkpoint.digest,
            baseline=baseline.name,
            step=training_step(checkpoint.name),
        )
        return _with_scores(row)
    except KeyError as error:
        return replace(row, problem=f"{folder / IDENTITY}: has no side {error}; evaluate again")
    except (ConfigError, CardError) as error:
        return replace(row, problem=str(error))


def _with_scores(row: EvaluationRow) -> EvaluationRow:
    metrics = _read(row.folder / SUITE, _PlayedSuite).metrics
    metric = next((metric for metric in metrics if metric.role == "primary"), None)
    if metric is None:
        raise ConfigError(f"{row.folder / SUITE}: has no primary metric; evaluate again")
    row = replace(row, metric=metric.name, is_higher_better=metric.direction != "lower")
    report = None
    if (row.folder / REPORT).is_file():
        report = _read(row.folder / REPORT, _StoredReport)
    cards = [load_card(path) for path in checkpoint_cards(row, metric.benchmark).values()]
    if cards:
        row = replace(
            row,
            created_at=min(card.header.created_at for card in cards),
            protocol_digest=" ".join(card.protocol_digest for card in cards),
        )
    if report is None or not cards or any(card.summary is None for card in cards):
        return replace(
            row, state=EvaluationState.UNFINISHED, problem="it was begun and not decided; resume it with agent2 eval"
        )
    summaries = [card.summary for card in cards if card.summary is not None]
    has_own_score = len(summaries) == 1 and metric.benchmark is not None and metric.measure == PLAIN
    score = summaries[0].score if has_own_score else None
    reported = report.evidence.get(metric.name, _ReportedNumber()).new
    return replace(
        row,
        state=EvaluationState.DECIDED,
        problem="",
        score=score,
        value=score.value if score is not None else reported,
        release=report.release_decision or "",
        outcome=report.outcome or "",
        training_action=report.training_action or "",
    )


def checkpoint_cards(row: EvaluationRow, benchmark: str | None) -> dict[str, Path]:
    """Benchmark -> card of the checkpoint, of one benchmark or of all (None); only those that are there."""
    top, ending = row.folder / CARDS / CHECKPOINT, f"-{row.split}"
    names = [benchmark] if benchmark is not None else sorted(name.removesuffix(ending) for name in _names(top))
    folders = {name: top / f"{name}{ending}" for name in names}
    return {name: folder for name, folder in folders.items() if (folder / CARD_JSON).is_file()}


def _names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()] if folder.is_dir() else []


def _read(file: Path, kind: type[RecordT]) -> RecordT:
    try:
        return msgspec.json.decode(read_limited(file, follow=True), type=kind)
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read ({error.strerror}); evaluate again") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{file}: is damaged ({error}); evaluate again") from error


@dataclass(frozen=True, slots=True)
class SuiteHistory:
    """Evaluations whose values are comparable, in the order of training steps where all have one, else by age."""

    rows: tuple[EvaluationRow, ...]
    has_steps: bool
    n_checked: int = 0
    """Rows whose cards were checked: at least every one that was the best so far."""

    @property
    def best(self) -> EvaluationRow | None:
        """The one with the best value; of equal ones the first."""
        return best_row(self.rows)


def best_row(rows: Sequence[EvaluationRow]) -> EvaluationRow | None:
    """The row with the best value, of equal ones the first; None: none has a value."""
    scored = [row for row in rows if row.value is not None]
    if not scored:
        return None
    sign = 1.0 if scored[0].is_higher_better else -1.0
    return max(scored, key=lambda row: sign * (row.value or 0.0))


@dataclass(frozen=True, slots=True)
class History:
    """All evaluations that were asked for."""

    groups: tuple[SuiteHistory, ...]
    """One for each question that was put to several checkpoints, or to one."""
    unread: tuple[EvaluationRow, ...]
    """Unfinished or damaged."""


def make_history(
    rows: Sequence[EvaluationRow], suite: str | None = None, role: str | None = None, *, checks_all: bool = False
) -> History:
    """The history of a suite (name, name with version, or the beginning of its digest), or of all of them.

    checks_all: check the cards of every row, not only of those that are or were the best.
    Raises ConfigError for a suite or a role of which nothing is there; what cannot be read is kept with all.
    """
    selected = list(rows)
    if suite is not None:
        selected = [row for row in rows if not row.suite or _is_named(row, suite)]
        names = sorted({row.suite for row in rows if row.suite})
        if not any(row.suite for row in selected):
            raise unknown_name("suite", suite, names, "no evaluation of it here")
    if role is not None:
        selected = [row for row in selected if row.role in ("", role)]
        if not any(row.role for row in selected):
            raise ConfigError(f"no evaluation here has the role {role!r}; there are {_roles(rows)}")
    by_question: dict[tuple[str, ...], list[EvaluationRow]] = {}
    for row in selected:
        if row.state is EvaluationState.DECIDED:
            by_question.setdefault(row.question, []).append(row)
    groups, unread = [], [row for row in selected if row.state is not EvaluationState.DECIDED]
    for _, group in sorted(by_question.items()):
        checked, edited = _with_sound_records(_in_order(group), checks_all=checks_all)
        unread += edited
        if checked.rows:
            groups.append(checked)
    return History(tuple(groups), tuple(unread))


def _with_sound_records(group: SuiteHistory, *, checks_all: bool) -> tuple[SuiteHistory, list[EvaluationRow]]:
    """The rows, of which each one that is a record is what intact cards give; and those that were checked and are not.

    A record is a row with a better value than all sound ones before it, in the order of the table.
    """
    sound: list[EvaluationRow] = []
    edited: list[EvaluationRow] = []
    best: EvaluationRow | None = None
    n_checked = 0
    for row in group.rows:
        is_record = row.value is not None and (best is None or best_row([best, row]) is row)
        if is_record or checks_all:
            if problem := _value_problem(row):
                edited.append(replace(row, state=EvaluationState.DAMAGED, problem=problem))
                continue
            n_checked += 1
        best = row if is_record else best
        sound.append(row)
    return replace(group, rows=tuple(sound), n_checked=n_checked), edited


def _value_problem(row: EvaluationRow) -> str:
    """Why a row's value may not be relied on; empty: intact cards give it."""
    try:
        metrics = _read(row.folder / SUITE, _PlayedSuite).metrics
        metric = next(metric for metric in metrics if metric.name == row.metric)
        cards = checkpoint_cards(row, metric.benchmark)
        for card in cards.values():
            if problems := validate_card(card, columns=False):
                return problems[0]
        if row.score is not None:
            return ""  # the score of a card's summary, which was checked with the rest of it
        from agent2.contract.measures import CardPaths, evidence_from_cards  # here: most rows need none of it
        from agent2.contract.metrics import MetricSpec, Unit

        spec = MetricSpec(name=metric.name, benchmark=metric.benchmark, measure=metric.measure, unit=Unit(metric.unit))
        computed = evidence_from_cards([spec], CardPaths(cards, cards)).metrics[spec.name].new
    except (Agent2Error, OSError, KeyError, ValueError) as error:  # recorded: the row is named with it
        return str(error)
    if computed is None or row.value is None or abs(computed - row.value) > ROUNDING:
        return f"its value is stated as {row.value}, its cards give {computed}"
    return ""


def _is_named(row: EvaluationRow, suite: str) -> bool:
    name = row.suite.rpartition("-v")[0]
    return suite in (row.suite, name) or (len(suite) >= 6 and row.suite_digest.startswith(suite))


def _roles(rows: Sequence[EvaluationRow]) -> str:
    return ", ".join(sorted({row.role for row in rows if row.role})) or "none"


def _in_order(rows: Sequence[EvaluationRow]) -> SuiteHistory:
    has_steps = all(row.step is not None for row in rows)
    if has_steps:
        rows = sorted(rows, key=lambda row: (row.step or 0, row.created_at or 0.0))
    return SuiteHistory(tuple(rows), has_steps)


def history_record(history: History, top: Path) -> dict[str, object]:
    """The history as plain data; folders as seen from `top`."""
    return {
        "groups": [
            {
                "suite": group.rows[0].suite,
                "suite_digest": group.rows[0].suite_digest,
                "role": group.rows[0].role,
                "split": group.rows[0].split,
                "metric": group.rows[0].metric,
                "protocol_digest": group.rows[0].protocol_digest,
                "has_steps": group.has_steps,
                "n_checked": group.n_checked,
                "best": None if group.best is None else str(group.best.folder.relative_to(top)),
                "evaluations": [_row_record(row, top) for row in group.rows],
            }
            for group in history.groups
        ],
        "unread": [
            {"folder": str(row.folder.relative_to(top)), "state": row.state.value, "problem": row.problem}
            for row in history.unread
        ],
    }


def _row_record(row: EvaluationRow, top: Path) -> dict[str, object]:
    return {
        "folder": str(row.folder.relative_to(top)),
        "checkpoint": row.checkpoint,
        "checkpoint_digest": row.checkpoint_digest,
        "baseline": row.baseline,
        "step": row.step,
        "seed": row.seed,
        "created_at": row.created_at,
        "value": row.value,
        "score": row.score,
        "release_decision": row.release,
        "training_action": row.training_action,
    }
