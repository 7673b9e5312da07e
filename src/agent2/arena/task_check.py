"""`agent2 tasks check`: shows that a task can be trusted before any agent is scored on it.

Checks, each through the real engine and scorer: the floor (a player that says nothing and one at random); the ceiling
(an oracle); where the benchmark provides them, that shortcuts stay at the floor and known-wrong answers are detected;
that the same actions give the same observations and verdicts when everything is recomputed; that the splits are
disjoint; that hidden items change with the installation secret; and that the task demands what its level says (at level
2: the score cannot be computed from the content of a workspace, and longer or repeated replies do not win; at level 3:
no trajectory is given away and none is so short that it need not be played).

`check_base` plays the base model on the private items as a trial does, with several sampling seeds per item, for the
score and the noise band that gains are compared with; it uses the card that a trial left in the cache where there is
one. `last_check` reads the findings of the last check of a task on this installation.
"""

import json
import math
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

import msgspec
import numpy as np

from agent2 import installation
from agent2.arena.plan import VISIBLE_SPLITS
from agent2.arena.scoring import NOISE_REPLICATES, LoadedTask, card_key, fetch_cached, log_task_access, measure_noise
from agent2.arena.spec import Level, TaskSpec
from agent2.benchmarks import BASE_MODELS, load_benchmark
from agent2.benchmarks.declared import DeclaredBenchmark
from agent2.benchmarks.home import Player, Players, ProvidesHiddenPreference, ProvidesJudge, players_of, visible_row
from agent2.cards.reader import read_summary
from agent2.errors import ConfigError, NotEnoughData
from agent2.evaluation.engine import Attempt, play_by, score_answers
from agent2.evaluation.plan import EvaluationPlan
from agent2.evaluation.runner import evaluate
from agent2.evaluation.scoring import Progress, ScoringResources, in_batches, sandbox_runner, score_played
from agent2.files import write_json
from agent2.models.bases import ensure_base_model
from agent2.models.checkpoint import CheckpointInfo, inspect_checkpoint, require_template
from agent2.records import HIDDEN_SPLITS, Benchmark, Environment, Item, Score, ScoredRollout, Split, digest_of
from agent2.scorers.code_blocks import code_of
from agent2.scorers.judge_model import COSTS
from agent2.scorers.python_tests import ProgramVerdict, PythonTestsScorer
from agent2.stats.estimates import ITEMS, RAW
from agent2.stats.quality import AuditedProblem, audit_verifier

CEILING, NULL_FLOOR, RANDOM_FLOOR = "ceiling: an oracle", "floor: a player that says nothing", "floor: a random player"
HEADROOM_OF_BASE = "headroom: the base model is below the ceiling"
NOISE_OF_BASE = "noise band of the base model"
BASE_FINDINGS = (HEADROOM_OF_BASE, NOISE_OF_BASE)

N_REPLAYS = 2
"""How often the same actions are played again."""
FEWEST_TURNS = 2
"""An episode that one message can win need not be collected."""
MAX_SHARED = 0.20
"""Largest share of hidden items that may be the same under another secret: a generator of few items repeats itself, and
beyond this knowing the generator is worth more than a small gain."""
MAX_CHANCE = 0.5
"""A task on which guessing among options is right more often than this leaves too little to measure."""
N_GUESSES, N_GUESSED_ITEMS = 96, 120
"""Guessed secrets with which a judge is tested, and items played with each."""
MAX_BLIND = 0.6
"""Mean score of a player that knows everything but the secret: that of the reference reply is 0.5, and the mean of so
many guesses has a standard deviation of 0.03 over secrets. One guess alone may be lucky."""
LEAST_HIDDEN = 0.2
"""The secret must be worth at least this much more, or there is nothing to learn from the judge."""
MAX_SHORTCUT = 0.5
"""Of a reply that is only longer, or repeated: no better than the reference reply."""
KNOWN_WRONG = "answers that are known to be wrong"
OTHER_SECRET = b"another secret, for this check.."
CHANCE_SE = 5.0
"""Standard errors by which a random player may be above chance."""

HEADROOM = 0.10
"""The upper end of the base model's interval must be at least this far below 1."""
FEWEST_SOLVED = 0.01
"""With a lower success rate hardly any group of attempts has different rewards: nothing for RL to learn from."""
WIDEST_BAND = 0.10
"""A task with a wider noise band resolves no gain."""

OnPlayed = Callable[[str, int, int], None]
"""Called with the name of the player, the number of items played so far, and their total number."""


@dataclass(frozen=True, slots=True)
class TaskFinding:
    """One check and its verdict."""

    name: str
    ok: bool | None
    """None: not checked; the detail says why."""
    detail: str
    seconds: float = 0.0
    warning: str = ""
    """Why the task may be of little use although the check passed; empty: none."""
    value: float | None = None
    """What was measured, where that is one number: a mean score from 0 to 1, half the width of the noise band."""


@dataclass(frozen=True, slots=True)
class StoredCheck:
    """The last check of a task on this installation."""

    task_digest: str
    """Of the task file without its sizes, and of the version of its world: a check of an older one is not shown."""
    n_items: Mapping[str, int]
    """Number of items checked, by split; fewer than the task has where its data are smaller."""
    at: str
    seconds: float
    findings: tuple[TaskFinding, ...]

    def value(self, name: str) -> float | None:
        """The measurement of a check; None: it was not made, or measured nothing."""
        return next((finding.value for finding in self.findings if finding.name == name), None)

    @property
    def n_failed(self) -> int:
        """Checks that failed."""
        return sum(finding.ok is False for finding in self.findings)


def store_check(task: TaskSpec, findings: Sequence[TaskFinding], *, is_own_base: bool = True) -> None:
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
    except (OSError, msgspec.MsgspecError):
        return None
    return check if check.task_digest == _task_digest(task) else None


def _check_path(name: str) -> Path:
    return installation.home() / "task-checks" / f"{name}.json"


def _task_digest(task: TaskSpec) -> str:
    benchmark = load_benchmark(task.benchmark)
    settings = task.model_dump(mode="json", exclude={"n_items"})
    return digest_of([settings, benchmark.version, benchmark.environment_version()])


def check_task(
    task: TaskSpec, benchmark: Benchmark | None = None, on_progress: OnPlayed | None = None
) -> list[TaskFinding]:
    """Run every check that needs no model and no network.

    benchmark: None: the installed one of the task. Raises ConfigError for episodes for which it provides no players.
    """
    source = benchmark if benchmark is not None else load_benchmark(task.benchmark)
    return list(_timed(_Check(task, source, on_progress or (lambda player, done, total: None)).findings()))


def examples(task: TaskSpec, n: int) -> list[Item]:
    """Visible example items."""
    return load_benchmark(task.benchmark).items(Split.TRAIN, n, secret=None)


def _timed(findings: Iterator[TaskFinding]) -> Iterator[TaskFinding]:
    """The findings with the seconds that each took."""
    began = time.monotonic()
    for finding in findings:
        now = time.monotonic()
        yield replace(finding, seconds=now - began)
        began = now


@dataclass
class _Check:
    """The checks of one task; what several of them need is computed once."""

    task: TaskSpec
    benchmark: Benchmark
    on_progress: OnPlayed
    players: Players = field(init=False)
    loaded: LoadedTask = field(init=False)

    def __post_init__(self) -> None:
        self.players = players_of(self.benchmark)
        self.loaded = LoadedTask(self.task, self.benchmark, installation.secret())
        log_task_access(self.loaded, "task check")

    @cached_property
    def items(self) -> dict[Split, list[Item]]:
        """All items of the task."""
        return {split: self.loaded.items(split) for split in Split}

    @cached_property
    def played(self) -> list[Item]:
        """The items that the players play."""
        return [item for split in Split for item in self.items[split][: self.players.n_played]]

    @cached_property
    def solved(self) -> list[ScoredRollout]:
        """The oracle's rollouts."""
        return self._play(self.players.oracle, player_name="an oracle")

    def findings(self) -> Iterator[TaskFinding]:
        """Every check, one after the other."""
        yield self._disjoint()
        ceiling, floor = self.players.ceiling_at_least, self.players.floor_at_most
        yield _bracket(CEILING, self.solved, f"at least {ceiling:.2f}", lambda mean: mean >= ceiling)
        null = self._play(lambda item, chat: "", player_name="a player that says nothing")
        yield _bracket(NULL_FLOOR, null, f"at most {floor:.2f}", lambda mean: mean <= floor)
        random_world = self.players.random_world
        at_random = self._play(
            self.players.random(self.played), lambda: random_world(self.benchmark), player_name="a random player"
        )
        limit, bound = self._random_limit()
        yield _bracket(RANDOM_FLOOR, at_random, bound, lambda mean: mean <= limit)
        for name, player in self.players.shortcuts.items():
            yield _bracket(f"floor: {name}", self._play(player, player_name=name), bound, lambda mean: mean <= limit)
        if self.players.known_wrong is not None:
            yield self._detected(self.players.known_wrong)
        yield self._replayed()
        yield self._structural()
        for split in sorted(HIDDEN_SPLITS):
            if self.task.published:
                detail = "the items are published: hidden from the workspace, but public"
                yield TaskFinding(f"{split.value}: secrecy", None, detail)
            else:
                yield self._secret_decides(split)

    def _random_limit(self) -> tuple[float, str]:
        """The highest score that a random player may reach: the world's floor, or chance where items have options."""
        floor = self.players.floor_at_most
        n_options = [len(item.payload["options"]) for item in self.played if item.payload.get("options")]
        if not n_options:
            luck = floor / 5  # a lucky win or two among few items does not make a task unsound
            limit = max(floor, luck + CHANCE_SE * (luck * (1 - luck) / len(self.played)) ** 0.5)
            return limit, f"at most {limit:.2f}"
        chance = sum(1 / n for n in n_options) / len(self.played)
        if chance > MAX_CHANCE:
            return -1.0, f"guessing alone gives {chance:.2f}, at most {MAX_CHANCE:.2f} is measurable"
        limit = max(floor, chance + CHANCE_SE * (chance * (1 - chance) / len(self.played)) ** 0.5)
        return limit, f"at most {limit:.2f}: guessing among {min(n_options)} options gives {chance:.2f}"

    def _play(
        self,
        player: Player,
        make_world: Callable[[], Environment] | None = None,
        items: Sequence[Item] | None = None,
        player_name: str = "guesses of the secret",
    ) -> list[ScoredRollout]:
        played_items = self.played if items is None else items
        rollouts = play_by(
            lambda attempt, world, chat: player(attempt.item, chat),
            [Attempt(item, 0, 0) for item in played_items],
            make_world or self.benchmark.environment,
            self.benchmark.max_turns,
        )
        scored: list[ScoredRollout] = []
        for rollout in score_played(rollouts, self.benchmark.scorer()):
            scored.append(rollout)
            self.on_progress(player_name, len(scored), len(played_items))
        return sorted(scored, key=lambda rollout: rollout.rollout.item_id)

    def _replayed(self) -> TaskFinding:
        """Replays of the oracle's actions, each with environments that start from scratch."""
        name = "determinism: same actions, same observations and verdicts"
        recorded = {
            (scored.rollout.item_id, *_chat_before(scored, n)): action
            for scored in self.solved
            for n, action in enumerate(turn.action for turn in scored.rollout.turns)
        }
        before = _verdicts(self.solved)
        for number in range(1, N_REPLAYS + 1):
            self.players.forget()  # caches would hide an engine that gives different answers
            again = self._play(
                lambda item, chat: recorded.get((item.id, *(message.text for message in chat)), ""),
                player_name=f"replay {number} of {N_REPLAYS}",
            )
            after = _verdicts(again)
            different = [item_id for item_id, verdict in before.items() if after[item_id] != verdict]
            if different:
                return TaskFinding(name, False, f"replay {number}: {len(different)} differ, {different[0]} the first")
        n_turns = sum(len(scored.rollout.turns) for scored in self.solved)
        return TaskFinding(name, True, f"{len(before)} rollouts of {n_turns} turns, played again {N_REPLAYS} times")

    def _detected(self, known_wrong: Callable[[Item], Sequence[str]]) -> TaskFinding:
        """The scorer rejects answers that are known to be wrong, and accepts the oracle's."""
        name, at_least = "verifier: known-wrong answers are detected", self.players.detection_at_least
        scorer = self.benchmark.scorer()
        answers = {item.id: list(known_wrong(item)) for item in self.played}
        audited = [item for item in self.played if answers[item.id]]
        if isinstance(scorer, PythonTestsScorer):
            problems = _audited_by_tests(scorer, audited, answers, self.players.oracle, self.on_progress)
        else:
            problems = []
            for item in audited:
                problems.append(self._audited_by_score(item, answers[item.id]))
                self.on_progress(KNOWN_WRONG, len(problems), len(audited))
        audit = audit_verifier([problem for problem in problems if problem is not None], np.random.default_rng(0))
        detected = audit.detection_rate.value >= at_least and audit.false_alarms == 0
        n_missing = sum(problem is None for problem in problems)
        detail = f"{audit}; at least {at_least:.2f} must be detected, {n_missing} items without verdicts"
        return TaskFinding(name, detected and n_missing == 0, detail)

    def _audited_by_score(self, item: Item, wrong: Sequence[str]) -> AuditedProblem | None:
        """The verdicts on one item, in the form of a single test's."""
        right = self.players.oracle(item, self.benchmark.environment().reset(item, 0))
        scores = score_answers(self.benchmark, [(item, [answer]) for answer in (*wrong, right)])
        fails = [[float(score.value < 1.0)] for score in scores if score.value is not None]
        return AuditedProblem(fails[:-1], fails[-1:]) if len(fails) == len(scores) else None

    def _disjoint(self) -> TaskFinding:
        players, owner = self.players, dict[str, Split]()
        name = f"disjointness: splits share no {players.content_name}"
        for split, members in self.items.items():
            for item in members:
                content = players.shared_content(item)
                if owner.setdefault(content, split) is not split:
                    return TaskFinding(name, False, f"{item.id} is in {owner[content].value} and {split.value}")
        sizes = ", ".join(f"{split.value} {len(members)}" for split, members in self.items.items())
        return TaskFinding(name, True, f"{sizes}; {len(owner)} distinct")

    def _structural(self) -> TaskFinding:
        """The task demands what its level says."""
        name = f"structural requirement: {self.task.structural_requirement}"
        if self.task.level is Level.RULE_BASED:
            n_open = sum(scored.score.value is None for scored in self.solved)
            return TaskFinding(
                name, n_open == 0, f"{len(self.solved) - n_open} of {len(self.solved)} answers were judged"
            )
        if self.task.level is Level.JUDGE_BASED:
            return self._judged(name)
        visible = [item for split in VISIBLE_SPLITS for item in self.items[split]]
        commands = {
            scored.rollout.item_id: [turn.action for turn in scored.rollout.turns]
            for scored in self.solved
            if scored.score.value
        }
        for item in visible:
            problem = _given_away(visible_row(self.benchmark, item), item, commands.get(item.id, ()))
            if problem is not None:
                return TaskFinding(name, False, f"{item.id}: {problem}")
        n_known = sum(item.id in commands for item in visible)
        lengths = sorted(len(scored.rollout.turns) for scored in self.solved if scored.score.value)
        if not lengths:
            return TaskFinding(name, False, "no game was won, so nothing is known of its length")
        detail = (
            f"{len(visible)} visible rows hold no answer, the {n_known} of games that the oracle won none of its "
            f"actions; a win takes {lengths[0]} to {lengths[-1]} turns (median {lengths[len(lengths) // 2]})"
        )
        return TaskFinding(name, lengths[0] >= FEWEST_TURNS, detail)

    def _judged(self, name: str) -> TaskFinding:
        """The score cannot be predicted without the judge: not from the content of a workspace, nor by length.

        Items of a kind that a gate binds are left out: what is right there is public, such as refusing harm.
        """
        benchmark = self.benchmark
        if not isinstance(benchmark, ProvidesHiddenPreference):
            if isinstance(benchmark, ProvidesJudge):
                detail = "its judge does not follow from the secret: not checked; agent2 judge check measures a judge"
                return TaskFinding(name, None, detail)
            detail = (
                "its benchmark provides no judge (agent2.benchmarks.home.ProvidesJudge), so it cannot be verified that "
                "the reward needs one; use level 1 for a task with a verifier"
            )
            return TaskFinding(name, False, detail)
        visible = [item for split in VISIBLE_SPLITS for item in self.items[split]]
        plain = [item for split in VISIBLE_SPLITS for item in benchmark.items(split, len(self.items[split]), None)]
        if visible != plain:
            return TaskFinding(name, False, "visible items differ with the secret, so they depend on the judge")
        bound = {gate.task_type for gate in self.task.gates}
        judged = [item for item in self.played if item.payload.get("task_type") not in bound]
        if len(judged) < len(self.played) / 2:
            return TaskFinding(name, False, f"gates bind {len(self.played) - len(judged)} of {len(self.played)} items")
        guesses = [f"guess {number}".encode().ljust(installation.SECRET_BYTES) for number in range(N_GUESSES)]
        sample = judged[:: max(1, len(judged) // N_GUESSED_ITEMS)]
        guessed = [_mean_score(self._play(benchmark.informed(guess), items=sample)) for guess in guesses]
        n_distinct = len({round(score, 6) for score in guessed})
        blind = sum(guessed) / len(guessed)
        informed = _mean_score(self._play(benchmark.informed(self.loaded.secret), items=sample))
        sample = self.played[:: max(1, len(self.played) // N_GUESSED_ITEMS)]
        shortcuts = {
            label: _mean_score(self._play(player, items=sample)) for label, player in benchmark.shortcuts().items()
        }
        best = max(shortcuts.values(), default=0.0)
        detail = (
            f"a player that knows everything but the secret scores {blind:.3f} (mean over {N_GUESSES} guesses of it; "
            f"at most {MAX_BLIND:.2f}), with the secret {informed:.3f} (at least {MAX_BLIND + LEAST_HIDDEN:.2f}); "
            + ", ".join(f"{label}: {score:.3f}" for label, score in shortcuts.items())
            + f" (at most {MAX_SHORTCUT:.2f})"
        )
        if bound:
            n_bound = len(self.played) - len(judged)
            detail += f"; the first two without the {n_bound} items of gated kinds, whose rule may be known"
        # the same score for every guess means that the judge does not depend on the secret
        is_hidden = blind <= MAX_BLIND and informed >= MAX_BLIND + LEAST_HIDDEN and n_distinct > 1
        return TaskFinding(name, bool(shortcuts) and is_hidden and best <= MAX_SHORTCUT, detail)

    def _secret_decides(self, split: Split) -> TaskFinding:
        name = f"{split.value}: needs the installation secret"
        items = self.items[split]
        redrawn = self.benchmark.items(split, len(items), secret=OTHER_SECRET)
        shared = len(_contents(items) & _contents(redrawn))
        try:
            self.benchmark.items(split, len(items), secret=None)
        except ConfigError:
            is_refused = True
        else:
            is_refused = False
        share = shared / len(items)
        if isinstance(self.benchmark, DeclaredBenchmark) and not self.benchmark.is_packaged:
            visible_prompts = {item.prompt for visible in VISIBLE_SPLITS for item in self.items[visible]}
            n_visible = sum(item.prompt in visible_prompts for item in items)
            detail = f"{self.benchmark.item_origin(split)}; {n_visible} of {len(items)} prompts are visible, too"
            if not is_refused:
                detail += "; the items are given without a secret"
            return TaskFinding(name, is_refused and n_visible == 0, detail)
        detail = (
            f"{shared} of {len(items)} items ({100 * share:.0f}%) are the same under another secret, at most "
            f"{100 * MAX_SHARED:.0f}% may be"
        )
        if not is_refused:
            detail += "; the items are given without a secret, too"
        return TaskFinding(name, is_refused and share <= MAX_SHARED, detail)


def _audited_by_tests(
    scorer: PythonTestsScorer,
    items: Sequence[Item],
    answers: Mapping[str, Sequence[str]],
    oracle: Player,
    on_progress: OnPlayed,
) -> list[AuditedProblem | None]:
    """The verdicts of each test on known-wrong programs and the oracle's; None for an item that could not be judged."""
    answered = [(item, code_of(answer)) for item in items for answer in (*answers[item.id], oracle(item, ()))]
    programs = [(number, item, code) for number, (item, code) in enumerate(answered)]
    verdicts: dict[int, ProgramVerdict | Score] = {}
    with sandbox_runner(ScoringResources()) as runner:

        def judge(batch: Sequence[tuple[int, Item, str]]) -> list[ProgramVerdict | Score]:
            return scorer.verdicts_on(runner, [(item, code) for _, item, code in batch])

        for (number, _, _), verdict in in_batches(programs, judge, scorer.work, threading.Event()):
            verdicts[number] = verdict
            on_progress(KNOWN_WRONG, len(verdicts), len(programs))
    in_order = iter([verdicts[number] for number in range(len(programs))])
    problems: list[AuditedProblem | None] = []
    for item in items:
        item_verdicts = [next(in_order) for _ in range(len(answers[item.id]) + 1)]  # the oracle's is the last
        fails = [
            [float(not ok) for ok in verdict.passed] for verdict in item_verdicts if isinstance(verdict, ProgramVerdict)
        ]
        problems.append(AuditedProblem(fails[:-1], fails[-1:]) if len(fails) == len(item_verdicts) else None)
    return problems


def _bracket(name: str, rollouts: Sequence[ScoredRollout], bound: str, holds: Callable[[float], bool]) -> TaskFinding:
    values = [scored.score.value for scored in rollouts if scored.score.value is not None]
    n_missing = len(rollouts) - len(values)
    if not values:
        return TaskFinding(name, ok=False, detail=f"no score at all, {n_missing} missing: {rollouts[0].score.reason}")
    mean = sum(values) / len(values)
    detail = f"{mean:.3f} over {len(values)} items ({bound}), {n_missing} missing"
    return TaskFinding(name, holds(mean) and n_missing == 0, detail, value=mean)


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


def _chat_before(scored: ScoredRollout, n_turns: int) -> Iterator[str]:
    """The texts of the chat before a turn."""
    yield from (message.text for message in scored.rollout.prompt)
    for turn in scored.rollout.turns[:n_turns]:
        yield turn.action
        yield turn.observation or ""


def _verdicts(rollouts: Iterable[ScoredRollout]) -> dict[str, str]:
    """Item -> digest of all that was observed and judged; what a judge cost is not a verdict."""
    digests: dict[str, str] = {}
    for rollout, score in ((scored.rollout, scored.score) for scored in rollouts):
        views = {name: value for name, value in score.views.items() if name not in COSTS}
        digests[rollout.item_id] = digest_of(
            [rollout.prompt, rollout.turns, rollout.state, replace(score, views=views)]
        )
    return digests


def _contents(items: Iterable[Item]) -> set[str]:
    return {digest_of([item.prompt, item.payload]) for item in items}


def check_base(
    task: TaskSpec,
    benchmark: Benchmark,
    model: str | None = None,
    on_progress: Progress | None = None,
    data: Path | None = None,
) -> list[TaskFinding]:
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
    if band.over == ITEMS and benchmark.sampling.temperature > 0:
        no_band = (
            "no attempt differed between sampling seeds, so the band is over items alone: an item that is always or "
            "never solved gives RL no signal"
        )
    return [
        TaskFinding(HEADROOM_OF_BASE, is_below, score, spent, no_signal, solved.value),
        TaskFinding(
            NOISE_OF_BASE,
            band.half_width <= WIDEST_BAND,
            f"±{100 * band.half_width:.1f} points (95%, over {band.over}), from {NOISE_REPLICATES} draws per item",
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
