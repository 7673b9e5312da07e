"""The exams of a task: trials are comparable only under the same conditions, and a board shows one exam of each task.

Which one: that which the reader chose; else one of the reader's own installation, known by the marks that it made of
trials and locks (`agent2.arena.trial_mark`), before one that merely names its secret, before those of others; among
equals the one with most counted trials, then the one that was played last. So nobody can choose it by sending trials.

Where a trial of the exam has this installation's mark, only trials that have it count: another one there was edited
after it was marked, or written by somebody else in the name of the secret, or is of a version that made no marks.

Exams are named by their sizes, by whose secret they have and when they were played; digests are compared, never shown.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from agent2.arena.analysis.pooled import PooledTrial, TrialConditions
from agent2.arena.evidence import MarkState
from agent2.errors import ConfigError, quoted
from agent2.texts import counted

TIME_UNITS = ((3600, "hour"), (60, "minute"), (1, "second"))
LIMITS = {
    "submissions": "submission", "judgements": "judgement", "gpu_hours": "GPU hour", "llm_tokens": "LLM token",
}  # fmt: skip
"""Limit of a budget -> what it counts."""
_PROVEN, _NAMED, _OTHER = 2, 1, 0
"""How an exam is the reader's: by a mark, by the digest of the secret alone, or not."""


@dataclass(frozen=True, slots=True)
class ExamChoice:
    """What a reader says about the exams of a board."""

    own_secret: str = ""
    """Digest of the installation's secret."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """Task -> key of the exam to show."""
    counts_unmarked: bool = False
    """Count trials without this installation's mark beside those that have it."""


@dataclass(frozen=True, slots=True)
class Exam:
    """One exam of a task, as boards name it."""

    task: str
    key: str
    """Public and private items, `100/200`; of several such exams the second is `100/200#2`."""
    label: str
    conditions: TrialConditions
    n_trials: int
    n_counted: int
    n_marked: int
    """Trials with this installation's mark."""
    is_own: bool
    """It has the secret of this installation."""
    is_shown: bool


@dataclass(frozen=True, slots=True)
class _ExamTrials:
    """The trials under one set of conditions."""

    conditions: TrialConditions
    trials: Sequence[PooledTrial]
    strength: int
    """How it is the reader's."""

    @property
    def n_counted(self) -> int:
        """Trials that count."""
        return sum(trial.trial.is_counted for trial in self.trials)

    @property
    def played(self) -> tuple[float, float]:
        """Start of the first and of the last trial, those that count if there are any."""
        starts = [t.started_at for t in self.trials if t.trial.is_counted] or [t.started_at for t in self.trials]
        return min(starts), max(starts)


def choose_exam(trials: Sequence[PooledTrial], choice: ExamChoice) -> tuple[list[PooledTrial], list[Exam]]:
    """The trials of a task's exam that is shown, and all its exams, the shown one first.

    trials: of one task, without copies; at least one. Raises ConfigError if the task has no exam of the chosen key.
    """
    exams = sorted(_grouped(trials, choice), key=_preference, reverse=True)
    keys = _keys(exams)
    task = trials[0].conditions.task
    chosen = exams[0]
    if (key := choice.keys.get(task)) is not None:
        if key not in keys:
            offers = "; ".join(f"{name}: {_label(exam, exams)}" for name, exam in zip(keys, exams, strict=True))
            raise ConfigError(f"--exam {task}={key}: no exam of {quoted(task)} has that key; there are {offers}")
        chosen = exams[keys.index(key)]
    named = [_exam(key, exam, exams, is_shown=exam is chosen) for key, exam in zip(keys, exams, strict=True)]
    return list(chosen.trials), sorted(named, key=lambda exam: not exam.is_shown)


def _grouped(trials: Sequence[PooledTrial], choice: ExamChoice) -> list[_ExamTrials]:
    members: dict[TrialConditions, list[PooledTrial]] = {}
    # those that count come first: a broken trial must not bring its own exam for want of a protocol
    for pooled in sorted(trials, key=lambda pooled: (not pooled.trial.is_counted, not pooled.conditions.protocol)):
        matching = [c for c in members if not pooled.conditions.protocol and is_same_exam(pooled.conditions, c)]
        members.setdefault(matching[0] if matching else pooled.conditions, []).append(pooled)
    groups = []
    for conditions, group in members.items():
        # a lock can be copied from a trial that was shared; only the verification binds it to the other files
        is_proven = any(_is_marked(t) or (t.has_own_lock and t.trial.is_verified) for t in group)
        is_named = bool(choice.own_secret) and conditions.secret == choice.own_secret
        strength = _PROVEN if is_proven else _NAMED if is_named else _OTHER
        counted = group if choice.counts_unmarked else _with_marks_only(group)
        groups.append(_ExamTrials(conditions, sorted(counted, key=_order), strength))
    return groups


def _order(pooled: PooledTrial) -> tuple[str, int, str]:
    return pooled.trial.row.agent, pooled.trial.row.seed, pooled.trial.folder


def _with_marks_only(trials: Sequence[PooledTrial]) -> list[PooledTrial]:
    """Where one trial has this installation's mark, the others do not count, and say why."""
    if not any(_is_marked(pooled) for pooled in trials):
        return list(trials)
    return [pooled if _is_marked(pooled) else _uncounted(pooled) for pooled in trials]


def _uncounted(pooled: PooledTrial) -> PooledTrial:
    trial = pooled.trial
    marks = trial.marks if pooled.mark is MarkState.CHANGED else (*trial.marks, "not marked by this installation")
    return replace(pooled, trial=replace(trial, marks=tuple(marks), is_counted=False))


def _is_marked(pooled: PooledTrial) -> bool:
    return pooled.mark is MarkState.OWN


def _preference(exam: _ExamTrials) -> tuple[int, bool, int, float, str]:
    """Sorts the exam that is shown by default last."""
    n = exam.n_counted
    return exam.strength if n else _OTHER, n > 0, n or len(exam.trials), exam.played[1], repr(exam.conditions)


def _keys(exams: Sequence[_ExamTrials]) -> list[str]:
    """Of each exam; of those with equal sizes the reader's own come first, then the older ones: keys are kept."""
    numbers: Counter[str] = Counter()
    keys = {}
    for exam in sorted(exams, key=lambda exam: (-exam.strength, exam.played[0], repr(exam.conditions))):
        sizes = f"{exam.conditions.n_public}/{exam.conditions.n_private}"
        numbers[sizes] += 1
        keys[id(exam)] = sizes if numbers[sizes] == 1 else f"{sizes}#{numbers[sizes]}"
    return [keys[id(exam)] for exam in exams]


def _exam(key: str, exam: _ExamTrials, exams: Sequence[_ExamTrials], *, is_shown: bool) -> Exam:
    return Exam(
        task=exam.conditions.task,
        key=key,
        label=_label(exam, exams),
        conditions=exam.conditions,
        n_trials=len(exam.trials),
        n_counted=exam.n_counted,
        n_marked=sum(map(_is_marked, exam.trials)),
        is_own=exam.strength > _OTHER,
        is_shown=is_shown,
    )


def _label(exam: _ExamTrials, exams: Iterable[_ExamTrials]) -> str:
    """`100 public and 200 private items of this installation, played 2026-11-26`, and what else tells it apart."""
    conditions, first, last = exam.conditions, *map(_day, exam.played)
    whose = "of this installation" if exam.strength > _OTHER else "of another installation"
    parts = [f"{sizes_of(conditions)} items {whose}"]
    rivals = [rival.conditions for rival in exams]
    if len({rival.benchmark for rival in rivals}) > 1:
        parts.append(conditions.benchmark or "unknown benchmark")
    if len({rival.base_model for rival in rivals}) > 1:
        parts.append(f"base model {conditions.base_name or 'unknown'}")
    if len({rival.budget for rival in rivals}) > 1:
        parts.append(budget_words(conditions.budget) if conditions.budget else "no budget")
    if first:
        parts.append(f"played {first}" if first == last else f"played {first} to {last}")
    return ", ".join(parts)


def _day(moment: float) -> str:
    """The day in UTC; empty for a time that is unknown, or none."""
    try:
        return datetime.fromtimestamp(moment, UTC).date().isoformat() if moment > 0 else ""
    except (OverflowError, ValueError, OSError):  # somebody else's number
        return ""


def sizes_of(conditions: TrialConditions) -> str:
    """The numbers of public and private items, in words."""
    return f"{conditions.n_public} public and {conditions.n_private} private"


def budget_words(budget: str) -> str:
    """A budget as it is stored (`submissions=10, wall_clock_s=300.0`), in words: `10 submissions, 5 minutes`."""
    return ", ".join(map(_limit_words, budget.split(", ") if budget else ())) or "none"


def _limit_words(part: str) -> str:
    """One limit in words; one that is unknown, or no number, as it is stored."""
    name, _, value = part.partition("=")
    if re.fullmatch(r"\d{1,15}(\.\d{1,9})?", value) is None:
        return part
    amount = float(value)
    if name == "wall_clock_s":
        unit_s, unit = next((s, unit) for s, unit in TIME_UNITS if amount % s == 0 or s == 1)
        return _amount(amount / unit_s, unit)
    if name == "llm_dollars":
        return f"${amount:g} for the LLM"
    return _amount(amount, LIMITS[name]) if name in LIMITS else part


def _amount(amount: float, noun: str) -> str:
    return counted(int(amount), noun) if amount.is_integer() else f"{amount:,} {noun}s"


def is_same_exam(conditions: TrialConditions, reference: TrialConditions) -> bool:
    """Whether two trials are comparable; a protocol that is not known hinders nothing."""
    if not (conditions.protocol and reference.protocol):
        conditions = replace(conditions, protocol=reference.protocol)
    return conditions == reference


def difference(conditions: TrialConditions, reference: TrialConditions, own_secret: str = "") -> str:
    """The first part that differs from the exam of the board, in words; empty where none does."""
    if conditions.benchmark != reference.benchmark:
        return f"another benchmark ({conditions.benchmark or 'none'}; this board has {reference.benchmark or 'none'})"
    sizes = sizes_of(conditions)
    if sizes != sizes_of(reference):
        return f"other items: {sizes}; this board has {sizes_of(reference)}"
    if conditions.secret != reference.secret:
        whose = "; this board has the exam of this installation" if reference.secret == own_secret else ""
        return f"another secret: other hidden items of the same number ({sizes}){whose}"
    if conditions.items != reference.items:
        return f"other items of the same number ({sizes}): another version, data or seed"
    if conditions.base_model != reference.base_model:
        is_named = conditions.base_name != reference.base_name
        names = f" ({conditions.base_name}; this board has {reference.base_name})" if is_named else ", of the same name"
        return f"another base model{names}"
    if conditions.budget != reference.budget:
        return f"another budget ({budget_words(conditions.budget)}; this board has {budget_words(reference.budget)})"
    if not is_same_exam(conditions, reference):
        return "another protocol: played under other settings of sampling, limits, prompt or scorer"
    return ""
