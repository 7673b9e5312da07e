"""`agent2 tasks check`: shows that a task can be trusted before any agent is scored on it.

The checks of its benchmark are those of `evaluation.check`: ceiling and floor, known-wrong answers, determinism, splits
and secret. What is particular to tasks is here: that the task demands what its level says (at level 2: the score cannot
be computed from the content of a workspace, and longer or repeated replies do not win; at level 3: no trajectory is
given away and none is so short that it need not be played), and the base model.

`check_base` plays the base model on the private items as a trial does, with several sampling seeds per item, for the
score and the noise band that gains are compared with; it uses the card that a trial left in the cache where there is
one. `last_check` reads the findings of the last check of a task on this installation.
"""

import json
import math
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

import msgspec

from agent2 import installation
from agent2.arena.plan import VISIBLE_SPLITS
from agent2.arena.scoring import NOISE_REPLICATES, LoadedTask, card_key, fetch_cached, log_task_access, measure_noise
from agent2.arena.spec import Level, TaskSpec
from agent2.benchmarks import BASE_MODELS, load_benchmark
from agent2.benchmarks.home import Players, ProvidesHiddenPreference, ProvidesJudge, players_of, visible_row
from agent2.cards.reader import read_summary
from agent2.errors import NotEnoughData
from agent2.evaluation.check import BenchmarkChecks, CheckFinding, OnPlayed
from agent2.evaluation.plan import EvaluationPlan
from agent2.evaluation.runner import evaluate
from agent2.evaluation.scoring import Progress
from agent2.files import write_json
from agent2.models.bases import ensure_base_model
from agent2.models.checkpoint import CheckpointInfo, inspect_checkpoint, require_template
from agent2.records import HIDDEN_SPLITS, Benchmark, Item, ScoredRollout, Split, digest_of
from agent2.stats.estimates import ITEMS, RAW

HEADROOM_OF_BASE = "headroom: the base model is below the ceiling"
NOISE_OF_BASE = "noise band of the base model"
BASE_FINDINGS = (HEADROOM_OF_BASE, NOISE_OF_BASE)

FEWEST_TURNS = 2
"""An episode that one message can win need not be collected."""
N_GUESSES, N_GUESSED_ITEMS = 96, 120
"""Guessed secrets with which a judge is tested, and items played with each."""
MAX_BLIND = 0.6
"""Mean score of a player that knows everything but the secret: that of the reference reply is 0.5, and the mean of so
many guesses has a standard deviation of 0.03 over secrets. One guess alone may be lucky."""
LEAST_HIDDEN = 0.2
"""The secret must be worth at least this much more, or there is nothing to learn from the judge."""
MAX_SHORTCUT = 0.5
"""Of a reply that is only longer, or repeated: no better than the reference reply."""

HEADROOM = 0.10
"""The upper end of the base model's interval must be at least this far below 1."""
FEWEST_SOLVED = 0.01
"""With a lower success rate hardly any group of attempts has different rewards: nothing for RL to learn from."""
WIDEST_BAND = 0.10
"""A task with a wider noise band resolves no gain."""


@dataclass(frozen=True, slots=True)
class StoredCheck:
    """The last check of a task on this installation."""

    task_digest: str
    """Of the task file without its sizes, and of the version of its world: a check of an older one is not shown."""
    n_items: Mapping[str, int]
    """Number of items checked, by split; fewer than the task has where its data are smaller."""
    at: str
    seconds: float
    findings: tuple[CheckFinding, ...]

    def value(self, name: str) -> float | None:
        """The measurement of a check; None: it was not made, or measured nothing."""
        return next((finding.value for finding in self.findings if finding.name == name), None)

    @property
    def n_failed(self) -> int:
        """Checks that failed."""
        return sum(finding.ok is False for finding in self.findings)


def store_check(task: TaskSpec, findings: Sequence[CheckFinding], *, is_own_base: bool = True) -> None:
    """Store the findings for `last_check`; the task may have other sizes than its file.

    is_own_base: what was measured is the task's own base model. Where it is not, or the base model was left out, the
    base findings of an earlier check of this task stay. Raises OSError.
    """
    earlier = last_check(task)
    sizes = task.n_items.model_dump()
    stored = [finding for finding in findings if is_own_base or finding.name not in BASE_FINDINGS]
    if earlier is not None and earlier.n_items == sizes and not any(f.name in BASE_FINDINGS for f in stored):
        stored += [finding for finding in earlier.findings if finding.name in BASE_FINDINGS]
    seconds = sum(finding.seconds for finding in stored)
    at = datetime.now(UTC).isoformat(timespec="seconds")
    path = _check_path(task.name)
    path.parent.mkdir(exist_ok=True)
    write_json(path, StoredCheck(_task_digest(task), sizes, at, seconds, tuple(stored)))


def last_check(task: TaskSpec) -> StoredCheck | None:
    """The last check of this task, of whatever sizes; None if there was none, the task changed, or it is damaged."""
    try:
        check = msgspec.json.decode(_check_path(task.name).read_bytes(), type=StoredCheck)
    except (OSError, msgspec.MsgspecError, RecursionError):
        return None
    return check if check.task_digest == _task_digest(task) else None


def _check_path(name: str) -> Path:
    return installation.home() / "task-checks" / f"{name}.json"


def _task_digest(task: TaskSpec) -> str:
    benchmark = load_benchmark(task.benchmark)
    settings = task.model_dump(mode="json", exclude={"n_items", "assignment"})
    return digest_of([settings, benchmark.version, benchmark.environment_version()])


def check_task(
    task: TaskSpec, benchmark: Benchmark | None = None, on_progress: OnPlayed | None = None
) -> list[CheckFinding]:
    """Run every check that needs no model and no network.

    benchmark: None: the installed one of the task. Raises ConfigError for episodes for which it provides no players.
    """
    source = benchmark if benchmark is not None else load_benchmark(task.benchmark)
    return list(_timed(_Check(task, source, on_progress or (lambda player, done, total: None)).findings()))


def examples(task: TaskSpec, n: int) -> list[Item]:
    """Visible example items."""
    return load_benchmark(task.benchmark).items(Split.TRAIN, n, secret=None)


def _timed(findings: Iterator[CheckFinding]) -> Iterator[CheckFinding]:
    """The findings with the seconds that each took."""
    began = time.monotonic()
    for finding in findings:
        now = time.monotonic()
        yield replace(finding, seconds=now - began)
        began = now


@dataclass
class _Check:
    """The checks of one task."""

    task: TaskSpec
    benchmark: Benchmark
    on_progress: OnPlayed
    players: Players = field(init=False)
    loaded: LoadedTask = field(init=False)

    def __post_init__(self) -> None:
        self.players = players_of(self.benchmark)
        self.loaded = LoadedTask(self.task, self.benchmark, installation.secret())
        log_task_access(self.loaded, "task check")

    def findings(self) -> Iterator[CheckFinding]:
        """Every check, one after the other."""
        yield self.checks.disjoint()
        yield from self.checks.brackets()
        yield from self.checks.known_wrong()
        yield self.checks.deterministic()
        yield self._structural()
        for split in sorted(HIDDEN_SPLITS):
            if self.task.published:
                detail = "the items are published: hidden from the workspace, but public"
                yield CheckFinding(f"{split.value}: secrecy", None, detail)
            else:
                yield self.checks.secret_decides(split)

    @cached_property
    def checks(self) -> BenchmarkChecks:
        """The checks that are not particular to tasks, over all items of the task."""
        items = {split: self.loaded.items(split) for split in Split}
        return BenchmarkChecks(self.benchmark, items, self.players, self.on_progress)

    def _structural(self) -> CheckFinding:
        """The task demands what its level says."""
        checks = self.checks
        name = f"structural requirement: {self.task.structural_requirement}"
        if self.task.level is Level.RULE_BASED:
            n_open = sum(scored.score.value is None for scored in checks.solved)
            n_judged = len(checks.solved) - n_open
            return CheckFinding(name, n_open == 0, f"{n_judged} of {len(checks.solved)} answers were judged")
        if self.task.level is Level.JUDGE_BASED:
            return self._judged(name)
        visible = [item for split in VISIBLE_SPLITS for item in checks.items[split]]
        commands = {
            scored.rollout.item_id: [turn.action for turn in scored.rollout.turns]
            for scored in checks.solved
            if scored.score.value
        }
        for item in visible:
            problem = _given_away(visible_row(self.benchmark, item), item, commands.get(item.id, ()))
            if problem is not None:
                return CheckFinding(name, False, f"{item.id}: {problem}")
        n_known = sum(item.id in commands for item in visible)
        lengths = sorted(len(scored.rollout.turns) for scored in checks.solved if scored.score.value)
        if not lengths:
            return CheckFinding(name, False, "no game was won, so nothing is known of its length")
        detail = (
            f"{len(visible)} visible rows hold no answer, the {n_known} of games that the oracle won none of its "
            f"actions; a win takes {lengths[0]} to {lengths[-1]} turns (median {lengths[len(lengths) // 2]})"
        )
        return CheckFinding(name, lengths[0] >= FEWEST_TURNS, detail)

    def _judged(self, name: str) -> CheckFinding:
        """The score cannot be predicted without the judge: not from the content of a workspace, nor by length.

        Items of a kind that a gate binds are left out: what is right there is public, such as refusing harm.
        """
        benchmark, checks = self.benchmark, self.checks
        if not isinstance(benchmark, ProvidesHiddenPreference):
            if isinstance(benchmark, ProvidesJudge):
                detail = "its judge does not follow from the secret: not checked; agent2 judge check measures a judge"
                return CheckFinding(name, None, detail)
            detail = (
                "its benchmark provides no judge (agent2.benchmarks.home.ProvidesJudge), so it cannot be verified that "
                "the reward needs one; use level 1 for a task with a verifier"
            )
            return CheckFinding(name, False, detail)
        visible = [item for split in VISIBLE_SPLITS for item in checks.items[split]]
        plain = [item for split in VISIBLE_SPLITS for item in benchmark.items(split, len(checks.items[split]), None)]
        if visible != plain:
            return CheckFinding(name, False, "visible items differ with the secret, so they depend on the judge")
        bound = {gate.task_type for gate in self.task.gates}
        judged = [item for item in checks.played if item.payload.get("task_type") not in bound]
        if len(judged) < len(checks.played) / 2:
            return CheckFinding(
                name, False, f"gates bind {len(checks.played) - len(judged)} of {len(checks.played)} items"
            )
        guesses = [f"guess {number}".encode().ljust(installation.SECRET_BYTES) for number in range(N_GUESSES)]
        sample = judged[:: max(1, len(judged) // N_GUESSED_ITEMS)]
        guessed = [_mean_score(checks.play(benchmark.informed(guess), items=sample)) for guess in guesses]
        n_distinct = len({round(score, 6) for score in guessed})
        blind = sum(guessed) / len(guessed)
        informed = _mean_score(checks.play(benchmark.informed(self.loaded.secret), items=sample))
        sample = checks.played[:: max(1, len(checks.played) // N_GUESSED_ITEMS)]
        shortcuts = {
            label: _mean_score(checks.play(player, items=sample)) for label, player in benchmark.shortcuts().items()
        }
        best = max(shortcuts.values(), default=0.0)
        detail = (
            f"a player that knows everything but the secret scores {blind:.3f} (mean over {N_GUESSES} guesses of it; "
            f"at most {MAX_BLIND:.2f}), with the secret {informed:.3f} (at least {MAX_BLIND + LEAST_HIDDEN:.2f}); "
            + ", ".join(f"{label}: {score:.3f}" for label, score in shortcuts.items())
            + f" (at most {MAX_SHORTCUT:.2f})"
        )
        if bound:
            n_bound = len(checks.played) - len(judged)
            detail += f"; the first two without the {n_bound} items of gated kinds, whose rule may be known"
        # the same score for every guess means that the judge does not depend on the secret
        is_hidden = blind <= MAX_BLIND and informed >= MAX_BLIND + LEAST_HIDDEN and n_distinct > 1
        return CheckFinding(name, bool(shortcuts) and is_hidden and best <= MAX_SHORTCUT, detail)


def _mean_score(rollouts: Sequence[ScoredRollout]) -> float:
    """Over all of them; one without a score makes it NaN, which passes no bound."""
    values = [math.nan if scored.score.value is None else scored.score.value for scored in rollouts]
    return sum(values) / len(values)


def _given_away(row: object, item: Item, actions: Iterable[str]) -> str | None:
    """What a visible row gives away that should be found by playing; None: nothing."""
    if item.reference is not None:
        return "the item has a reference answer"
    text = json.dumps(row).lower()
    leaked = next((action for action in actions if action.lower() in text), None)
    return f"the row contains the winning action {leaked!r}" if leaked is not None else None


def check_base(
    task: TaskSpec,
    benchmark: Benchmark,
    model: str | None = None,
    on_progress: Progress | None = None,
    data: Path | None = None,
) -> list[CheckFinding]:
    """The base model's score on the private items, and the noise band.

    model: another one than the task's. data: for `ensure_base_model`. Raises ConfigError for a model that does not
    exist; a tiny one is unpacked or trained first.
    """
    began = time.monotonic()
    loaded = LoadedTask(task, benchmark, installation.secret())
    log_task_access(loaded, "task base score")
    base = inspect_checkpoint(ensure_base_model(model or task.base_model, BASE_MODELS, data=data))
    require_template(base)
    with tempfile.TemporaryDirectory(prefix="agent2-task-check-") as folder:
        card = Path(folder) / "noise"
        source = "from the card of a trial"
        if not fetch_cached(card_key(loaded, base, Split.TEST_PRIVATE, NOISE_REPLICATES), card):
            _evaluate(loaded, base, card, on_progress)
            source = "played now"
        summary = read_summary(card)
        if summary.score is None:
            raise NotEnoughData(f"{task.name}: no private item could be scored ({summary.n_missing} missing)")
        band = measure_noise(card)
    spent = time.monotonic() - began
    solved = summary.score
    score = (
        f"{RAW.estimate(solved)} over {solved.n} private items, {NOISE_REPLICATES} seeds, {solved.n_missing} missing, "
        f"{source}"
    )
    is_below = solved.interval[1] <= 1.0 - HEADROOM and solved.n_missing == 0
    no_signal = no_band = ""
    if solved.value < FEWEST_SOLVED:
        no_signal = (
            f"the base model solves {100 * solved.value:.2g}% of its attempts: online RL has no reward to learn "
            "from; warm it up (SFT), or use easier items or a stronger base model"
        )
    if band.over == ITEMS and benchmark.sampling.model_temperature > 0:
        no_band = (
            "no attempt differed between sampling seeds, so the band is over items alone: an item that is always or "
            "never solved gives RL no signal"
        )
    width = f"±{100 * band.half_width:.1f} points (95%, over {band.over}), from {NOISE_REPLICATES} draws per item"
    if band.half_width > WIDEST_BAND:
        n_needed = math.ceil(solved.n * (band.half_width / WIDEST_BAND) ** 2)
        width += f"; at most ±{100 * WIDEST_BAND:.0f} resolve a gain: set n_items.test_private to about {n_needed}"
    return [
        CheckFinding(HEADROOM_OF_BASE, is_below, score, spent, no_signal, solved.value),
        CheckFinding(
            NOISE_OF_BASE,
            band.half_width <= WIDEST_BAND,
            width,
            warning=no_band,
            value=band.half_width,
        ),
    ]


def _evaluate(loaded: LoadedTask, base: CheckpointInfo, card: Path, on_progress: Progress | None) -> None:
    """Play the base model on the private items as a grader does."""
    import torch

    torch.set_num_threads(1)  # more threads are slower on shared cores
    plan = EvaluationPlan(
        benchmark=loaded.benchmark,
        split=Split.TEST_PRIVATE,
        items=tuple(loaded.items(Split.TEST_PRIVATE)),
        checkpoint_name="base",
        checkpoint_digest=base.weights_digest,
        chat_template_digest=base.chat_template_digest,
        dtype="float32",
        attempts=NOISE_REPLICATES,
    )
    from agent2.models.hf import HfSampler  # loads torch, which `agent2 tasks show` does not need

    sampler = HfSampler(base.path, dtype="float32")
    try:
        evaluate(plan, sampler, card, on_progress)
    finally:
        sampler.close()
