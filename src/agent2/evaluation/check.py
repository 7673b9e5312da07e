"""Checks of a benchmark before a model or an agent is scored on it, each through the real engine and scorer.

`BenchmarkChecks` has the checks that need players: the ceiling (an oracle) and the floor (a player of empty answers,
one at random, and shortcuts); that known-wrong answers are detected; that the same actions give the same observations
and verdicts when everything is recomputed; that splits share nothing, and hidden items change with the installation
secret. `agent2 tasks check` runs them, and the arena adds what concerns its tasks: the level and the base model.

`check_benchmark` (`agent2 benchmarks check`) needs no players, for benchmarks whose authors bring items and a scorer:
it reads every split, plays the reference answers, the accepted ones, an empty one and those of players that read no
question, asks whether the splits can decide, and loads the code as agents get it.

Does NOT judge whether items are good, or hard enough for a model.
"""

import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import structs

from agent2 import installation
from agent2.benchmarks.bridges.episodes import BridgedEpisodes
from agent2.benchmarks.declaration import OPTIONS, Portion
from agent2.benchmarks.declared import DeclaredBenchmark
from agent2.benchmarks.home import Player, Players, ProvidesCount, ProvidesLadder, ProvidesPlayers
from agent2.benchmarks.questions import ACCEPTED
from agent2.contract.gates import EvidenceNeeds
from agent2.errors import ConfigError, quoted
from agent2.evaluation.engine import Attempt, play_by, score_answers
from agent2.evaluation.item_checks import Guess, guesses, items_to_decide, smallest_difference
from agent2.evaluation.scoring import ScoringResources, in_batches, sandbox_runner, score_played
from agent2.evaluation.suite_draft import MARGIN
from agent2.pictures import of_payload
from agent2.plugins import copy_source, is_code, is_located
from agent2.records import HIDDEN_SPLITS, Benchmark, Environment, Item, Message, Score, ScoredRollout, Split, digest_of
from agent2.scorers.code_blocks import code_of
from agent2.scorers.judge_model import COSTS
from agent2.scorers.python_tests import ProgramVerdict, PythonTestsScorer
from agent2.stats.quality import AuditedProblem, audit_verifier

CEILING, NULL_FLOOR, RANDOM_FLOOR = "ceiling: an oracle", "floor: an empty answer", "floor: a random player"
MOST_ITEMS = 100
"""Of a split of a benchmark that does not say how many it has."""
MAX_PLAYED = 20_000
EPISODES_PLAYED = 20
"""Of a benchmark behind a bridge, or with a ladder of players, unless the caller says otherwise: each item needs fresh
databases of the package, or a browser."""
SAMPLE_SE = 3.0
"""Standard errors by which the mean of a sample may be above what holds for all items."""
MAX_FLOOR = 0.05
"""Highest mean score of an empty answer."""
N_REPLAYS = 2
"""How often the same actions are played again."""
MAX_SHARED = 0.20
"""Largest share of hidden items that may be the same under another secret: a generator of few items repeats itself, and
beyond this knowing the generator is worth more than a small gain."""
MAX_CHANCE = 0.5
"""A task on which guessing among options is right more often than this leaves too little to measure."""
CHANCE_SE = 5.0
"""Standard errors by which a random player may be above chance."""
KNOWN_WRONG = "answers that are known to be wrong"
OTHER_SECRET = b"another secret, for this check.."

Answer = Callable[[Item, Any, Sequence[Message]], str]
"""The next message for an item, from the item, its world and the chat."""
OnPlayed = Callable[[str, int, int], None]
"""Called with the name of the player, the number of items played so far, and their total number."""


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """One check and its verdict."""

    name: str
    ok: bool | None
    """None: not checked; the detail says why."""
    detail: str
    seconds: float = 0.0
    warning: str = ""
    """Why the benchmark or task may be of little use although the check did not fail; empty: none."""
    value: float | None = None
    """What was measured, where that is one number: a mean score from 0 to 1, half the width of the noise band."""


def play_items(
    benchmark: Benchmark,
    items: Sequence[Item],
    answer: Answer,
    make_world: Callable[[], Environment] | None = None,
    on_played: Callable[[int], None] | None = None,
) -> list[ScoredRollout]:
    """Play each item once and score it; on_played: called with the number of rollouts scored so far."""
    rollouts = play_by(
        lambda attempt, world, chat: answer(attempt.item, world, chat),
        [Attempt(item, 0, 0) for item in items],
        make_world or benchmark.environment,
        benchmark.max_turns,
    )
    scored: list[ScoredRollout] = []
    for record in score_played(rollouts, benchmark.scorer()):
        scored.append(record)
        if on_played is not None:
            on_played(len(scored))
    return scored


@dataclass(frozen=True, slots=True)
class MeanOfScores:
    """The mean score of a player."""

    mean: float | None
    """None: no score at all."""
    n: int
    n_missing: int

    @classmethod
    def of(cls, records: Sequence[ScoredRollout]) -> "MeanOfScores":
        """Over the rollouts that have a score."""
        values = [record.score.value for record in records if record.score.value is not None]
        mean = sum(values) / len(values) if values else None
        return cls(mean, len(values), len(records) - len(values))


@dataclass(frozen=True, slots=True)
class RepeatedItem:
    """An item with the content of an earlier one."""

    item: Item
    split: Split
    """In which it was given."""
    earlier_split: Split


def repeated_items(
    items: Mapping[Split, Sequence[Item]], content: Callable[[Item], str]
) -> tuple[int, list[RepeatedItem]]:
    """How many contents there are, and the items whose content came before, in the order of the splits."""
    first: dict[str, Split] = {}
    repeated = []
    for split, members in items.items():
        for item in members:
            key = content(item)
            if key in first:
                repeated.append(RepeatedItem(item, split, first[key]))
            first.setdefault(key, split)
    return len(first), repeated


def needs_secret(benchmark: Benchmark, split: Split, n: int) -> bool:
    """Whether a benchmark refuses hidden items to those who do not have the installation secret."""
    try:
        benchmark.items(split, n, None)
    except ConfigError:
        return True
    return False


@dataclass
class BenchmarkChecks:
    """The checks that need players; what several of them need is computed once."""

    benchmark: Benchmark
    items: Mapping[Split, Sequence[Item]]
    players: Players
    on_progress: OnPlayed

    @cached_property
    def played(self) -> list[Item]:
        """The items that the players play."""
        return [item for members in self.items.values() for item in members[: self.players.n_played]]

    @cached_property
    def solved(self) -> list[ScoredRollout]:
        """The oracle's rollouts."""
        return self.play(self.players.oracle, player_name="an oracle")

    def play(
        self,
        player: Player,
        make_world: Callable[[], Environment] | None = None,
        items: Sequence[Item] | None = None,
        player_name: str = "guesses of the secret",
    ) -> list[ScoredRollout]:
        """A player's rollouts by item id, of all items that are played unless `items` names some."""
        played_items = self.played if items is None else items
        records = play_items(
            self.benchmark,
            played_items,
            lambda item, world, chat: player(item, chat),
            make_world,
            lambda n_scored: self.on_progress(player_name, n_scored, len(played_items)),
        )
        return sorted(records, key=lambda record: record.rollout.item_id)

    def disjoint(self) -> CheckFinding:
        """No content is in two splits; within one it may come twice."""
        name = f"disjointness: splits share no {self.players.content_name}"
        n_distinct, repeated = repeated_items(self.items, self.players.shared_content)
        for again in repeated:
            if again.split is not again.earlier_split:
                detail = f"{again.item.id} is in {again.earlier_split.value} and {again.split.value}"
                return CheckFinding(name, False, detail)
        sizes = ", ".join(f"{split.value} {len(members)}" for split, members in self.items.items())
        return CheckFinding(name, True, f"{sizes}; {n_distinct} distinct")

    def brackets(self) -> Iterator[CheckFinding]:
        """The ceiling, and every floor."""
        ceiling, floor = self.players.ceiling_at_least, self.players.floor_at_most
        yield _bracket(CEILING, self.solved, f"at least {ceiling:.2f}", lambda mean: mean >= ceiling)
        null = self.play(lambda item, chat: "", player_name="an empty answer")
        yield _bracket(NULL_FLOOR, null, f"at most {floor:.2f}", lambda mean: mean <= floor)
        random_world = self.players.random_world
        at_random = self.play(
            self.players.random(self.played), lambda: random_world(self.benchmark), player_name="a random player"
        )
        limit, bound = self._random_limit()
        yield _bracket(RANDOM_FLOOR, at_random, bound, lambda mean: mean <= limit)
        for name, player in self.players.shortcuts.items():
            yield _bracket(f"floor: {name}", self.play(player, player_name=name), bound, lambda mean: mean <= limit)

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

    def deterministic(self) -> CheckFinding:
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
            again = self.play(
                lambda item, chat: recorded.get((item.id, *(message.text for message in chat)), ""),
                player_name=f"replay {number} of {N_REPLAYS}",
            )
            after = _verdicts(again)
            different = [item_id for item_id, verdict in before.items() if after[item_id] != verdict]
            if different:
                return CheckFinding(name, False, f"replay {number}: {len(different)} differ, {different[0]} the first")
        n_turns = sum(len(scored.rollout.turns) for scored in self.solved)
        return CheckFinding(name, True, f"{len(before)} rollouts of {n_turns} turns, played again {N_REPLAYS} times")

    def known_wrong(self) -> Iterator[CheckFinding]:
        """Whether the scorer rejects known-wrong answers, where there are any, and accepts the oracle's."""
        known_wrong = self.players.known_wrong
        if known_wrong is None:
            return
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
        yield CheckFinding(name, detected and n_missing == 0, detail)

    def _audited_by_score(self, item: Item, wrong: Sequence[str]) -> AuditedProblem | None:
        """The verdicts on one item, in the form of a single test's."""
        right = self.players.oracle(item, self.benchmark.environment().reset(item, 0))
        scores = score_answers(self.benchmark, [(item, [answer]) for answer in (*wrong, right)])
        fails = [[float(score.value < 1.0)] for score in scores if score.value is not None]
        return AuditedProblem(fails[:-1], fails[-1:]) if len(fails) == len(scores) else None

    def secret_decides(self, split: Split) -> CheckFinding:
        """Hidden items are other ones under another secret, and are refused without one."""
        name = f"{split.value}: needs the installation secret"
        items = self.items[split]
        redrawn = self.benchmark.items(split, len(items), secret=OTHER_SECRET)
        shared = len(_contents(items) & _contents(redrawn))
        is_refused = needs_secret(self.benchmark, split, len(items))
        share = shared / len(items)
        if isinstance(self.benchmark, DeclaredBenchmark) and not self.benchmark.is_packaged:
            visible = [members for kind, members in self.items.items() if kind not in HIDDEN_SPLITS]
            visible_prompts = {item.prompt for members in visible for item in members}
            n_visible = sum(item.prompt in visible_prompts for item in items)
            detail = f"{self.benchmark.item_origin(split)}; {n_visible} of {len(items)} prompts are visible, too"
            if not is_refused:
                detail += "; the items are given without a secret"
            return CheckFinding(name, is_refused and n_visible == 0, detail)
        detail = (
            f"{shared} of {len(items)} items ({100 * share:.0f}%) are the same under another secret, at most "
            f"{100 * MAX_SHARED:.0f}% may be"
        )
        if not is_refused:
            detail += "; the items are given without a secret, too"
        return CheckFinding(name, is_refused and share <= MAX_SHARED, detail)


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


def _bracket(name: str, rollouts: Sequence[ScoredRollout], bound: str, holds: Callable[[float], bool]) -> CheckFinding:
    scores = MeanOfScores.of(rollouts)
    if scores.mean is None:
        detail = f"no score at all, {scores.n_missing} missing: {rollouts[0].score.reason}"
        return CheckFinding(name, ok=False, detail=detail)
    detail = f"{scores.mean:.3f} over {scores.n} items ({bound}), {scores.n_missing} missing"
    return CheckFinding(name, holds(scores.mean) and scores.n_missing == 0, detail, value=scores.mean)


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
            [rollout.prompt, rollout.turns, rollout.state, structs.replace(score, views=views)]
        )
    return digests


def _contents(items: Iterable[Item]) -> set[str]:
    return {digest_of([item.prompt, item.payload]) for item in items}


@dataclass(frozen=True, slots=True)
class BenchmarkCheck:
    """All checks of one benchmark."""

    benchmark: str
    """Name and version."""
    counts: dict[str, int]
    """Split -> items that were read."""
    n_played: int
    """How many of them were played."""
    checks: list[CheckFinding]
    example: str
    """The prompt of the first visible item."""

    @property
    def is_sound(self) -> bool:
        """Whether no check failed."""
        return not any(check.ok is False for check in self.checks)


def check_benchmark(benchmark: Benchmark, name: str = "", n_played: int | None = None) -> BenchmarkCheck:
    """Read a benchmark and play it; private items get their entry in the access log.

    name: by which it was loaded; where that is a Python file, a copy is loaded as agents are given it. n_played: items
    that are played, spread evenly over the splits; None: all, or `EPISODES_PLAYED` of a package's episodes.
    Raises ConfigError for data that cannot be read, and for a benchmark without a single item.
    """
    secret = installation.secret()
    items = {split: split_items(benchmark, split, secret) for split in Split}
    all_items = [item for members in items.values() for item in members]
    if not all_items:
        raise ConfigError(f"benchmark {benchmark.name}: no split has items; name a file with data")
    visible = [item for item in all_items if item.split not in HIDDEN_SPLITS]
    if n_played is None:
        n_played = EPISODES_PLAYED if isinstance(benchmark, BridgedEpisodes | ProvidesLadder) else MAX_PLAYED
    sample = evenly_spread(all_items, n_played)
    return BenchmarkCheck(
        f"{benchmark.name}-v{benchmark.version}",
        {split.value: len(members) for split, members in items.items()},
        len(sample),
        [*_checks(benchmark, items, all_items, sample), *_copy_check(name)],
        visible[0].prompt if visible else "(every item is hidden)",
    )


def evenly_spread(items: Sequence[Item], n: int) -> list[Item]:
    """At most n of the items, the same number apart."""
    if len(items) <= n:
        return list(items)
    return [items[number * len(items) // n] for number in range(n)]


def split_items(benchmark: Benchmark, split: Split, secret: bytes | None) -> list[Item]:
    """All items of a split that say how many there are, else the first `MOST_ITEMS` or fewer; empty: it has none."""
    if isinstance(benchmark, ProvidesCount):
        n_items = benchmark.count(split, secret)
        return benchmark.items(split, n_items, secret) if n_items else []
    # A benchmark refuses to give more items than it has, and does not say how many those are.
    n_items = MOST_ITEMS
    while n_items:
        try:
            return benchmark.items(split, n_items, secret)
        except ConfigError:
            n_items //= 2
    return []


def _checks(
    benchmark: Benchmark, items: dict[Split, list[Item]], all_items: list[Item], sample: list[Item]
) -> Iterator[CheckFinding]:
    is_world = benchmark.max_turns > 1  # there the same opening may be another task: what is behind it differs
    n_distinct, repeated = repeated_items(
        items, lambda item: digest_of([item.prompt, item.reference, item.payload]) if is_world else _asked_by(item)
    )
    kind = "tasks" if is_world else "prompts"
    detail = f"{n_distinct} distinct {kind}"
    if repeated:
        again = repeated[0]
        detail = (
            f"{len(repeated)} {kind} come more than once, that of {again.item.id} ({again.split.value}) in "
            f"{again.earlier_split.value}"
        )
    yield CheckFinding("no two items ask the same", not repeated, detail)
    ids = {item.id for item in all_items}
    yield CheckFinding(
        "every item has an id of its own", len(ids) == len(all_items), f"{len(ids)} ids, {len(all_items)} items"
    )
    yield _hidden_items(benchmark, items)
    yield _reference_answers(benchmark, sample)
    yield from _accepted_answers(benchmark, sample)
    yield _empty_answers(benchmark, sample, len(all_items))
    if benchmark.max_turns == 1:
        yield _blind_guesses(benchmark, sample if isinstance(benchmark, ProvidesLadder) else all_items)
    if isinstance(benchmark, ProvidesLadder):
        yield from _ladder(benchmark, benchmark.ladder(), sample)
    if isinstance(benchmark, ProvidesCount):
        yield _sizes(benchmark, items)


def _asked_by(item: Item) -> str:
    """The prompt, and the digests of its pictures."""
    return "\0".join([item.prompt, *(picture.digest for picture in of_payload(item.payload))])


def _reference_answers(benchmark: Benchmark, items: list[Item]) -> CheckFinding:
    name = "reference answers score 1.0"
    oracle = _oracle_of(benchmark, items)
    if oracle is None:
        detail = "items are episodes, or have no reference answers; agent2 tasks check plays them"
        return CheckFinding(name, None, detail)
    records = play_items(benchmark, items, oracle)
    wrong = [record for record in records if record.score.value != 1.0]
    detail = f"{len(records) - len(wrong)} of {len(records)}"
    if wrong:
        detail += f"; {wrong[0].rollout.item_id}: {wrong[0].score.reason}{_form_hint(benchmark, items)}"
    return CheckFinding(name, not wrong, detail)


def _said_by(player: Player) -> Answer:
    return lambda item, world, chat: player(item, chat)


def _ladder(benchmark: Benchmark, ladder: Mapping[str, Player], items: list[Item]) -> Iterator[CheckFinding]:
    """The players' mean scores, which must not fall and must rise from 0 to 1, and the mean of each of their views."""
    below = 0.0
    for number, (name, player) in enumerate(ladder.items(), 1):
        records = play_items(benchmark, items, _said_by(player))
        scores = MeanOfScores.of(records)
        views = dict.fromkeys(view for record in records for view in record.score.views)
        parts = [f"{'no score' if scores.mean is None else f'{scores.mean:.2f}'} of {scores.n}"]
        for view in views:
            values = [value for record in records if (value := record.score.views.get(view)) is not None]
            parts.append(f"{view} {sum(values) / len(values):.2f}" if values else f"{view} not measured")
        is_first, is_last = number == 1, number == len(ladder)
        in_order = scores.mean is not None and scores.mean >= below
        holds = in_order and (not is_first or scores.mean == 0) and (not is_last or scores.mean == 1)
        below = scores.mean or 0.0
        detail = f"{', '.join(parts)}; {scores.n_missing} missing"
        yield CheckFinding(f"ladder, {number}: {name}", holds and not scores.n_missing, detail, value=scores.mean)


def _form_hint(benchmark: Benchmark, items: list[Item]) -> str:
    """How the references have to be written where the scorer reads them only in its own form; empty: no such reason."""
    form = getattr(benchmark.scorer(), "answer_form", None)
    if not isinstance(form, str) or not isinstance(benchmark, DeclaredBenchmark) or benchmark.spec.answer is None:
        return ""
    written = play_items(benchmark, items, lambda item, world, chat: form.format(answer=item.reference))
    if any(record.score.value != 1.0 for record in written):
        return ""
    return f"; write answer: {{field: {benchmark.spec.answer.field}, form: '{form}'}}"


def _accepted_answers(benchmark: Benchmark, items: list[Item]) -> Iterator[CheckFinding]:
    """Whether each answer that an item accepts beside its reference scores; nothing where no item has any."""
    answers = [(item, [str(text)]) for item in items for text in item.payload.get(ACCEPTED) or ()][:MAX_PLAYED]
    if not answers or benchmark.max_turns > 1:
        return
    scores = score_answers(benchmark, answers)
    wrong = [(item, text, score) for (item, (text,)), score in zip(answers, scores, strict=True) if score.value != 1.0]
    detail = f"{len(scores) - len(wrong)} of {len(scores)}"
    if wrong:
        item, text, score = wrong[0]
        detail += f"; {item.id}, {quoted(text)}: {score.reason}; take a scorer that reads several (exact, token_f1)"
    yield CheckFinding("further accepted answers score 1.0", not wrong, detail)


def _blind_guesses(benchmark: Benchmark, items: list[Item]) -> CheckFinding:
    name = "players that read no question do not win"
    blind = guesses(benchmark, items)
    if not blind:
        return CheckFinding(name, None, "no item has a reference")
    chance = "" if blind[0].chance is None else f"; blind guessing {100 * blind[0].chance:.0f}%"
    winners = [guess for guess in blind if guess.wins]
    advice = f"; {winners[0].player} wins without the question: {_way_out(items[0], winners[0])}" if winners else ""
    return CheckFinding(name, not winners, f"{', '.join(map(str, blind))}{chance}{advice}")


def _way_out(item: Item, winner: Guess) -> str:
    if item.payload.get(OPTIONS):
        return "shuffle the options (shuffle: true), or balance the answers"
    if winner.chance is None:
        return "take a scorer that gives nothing for words that many answers share (exact), or vary the answers"
    return "balance the answers"


def _sizes(benchmark: Benchmark, items: dict[Split, list[Item]]) -> CheckFinding:
    """Whether the splits that decide have enough items for the gate of `agent2 eval`."""
    name, needs = "splits are large enough to decide", EvidenceNeeds()
    n_needed = items_to_decide(MARGIN, needs)
    counts = {split: len(items[split]) for split in (Split.TEST_PUBLIC, Split.TEST_PRIVATE)}
    sizes = ", ".join(
        f"{split.value} {n}"
        + (f" (shows a difference of {100 * smallest_difference(n, needs):.0f} points)" if n else "")
        for split, n in counts.items()
    )
    detail = f"a decision needs about {n_needed} items, {needs.min_items} at least: {sizes}"
    if counts[Split.TEST_PUBLIC] >= n_needed:
        return CheckFinding(name, True, detail)
    return CheckFinding(name, None, f"{detail}{_larger_splits(benchmark, items)}", warning="too few items to decide")


def _larger_splits(benchmark: Benchmark, items: dict[Split, list[Item]]) -> str:
    """How one file that is divided could be used so that it decides."""
    if not isinstance(benchmark, DeclaredBenchmark) or Portion.ALL not in benchmark.spec.portions:
        return "; add rows"
    file, n_rows = benchmark.spec.portions[Portion.ALL], sum(map(len, items.values()))
    key = "files" if benchmark.spec.files is not None else "splits"
    return (
        f"; write {key}: {{test: {file}}} for {(n_rows + 1) // 2} and {n_rows // 2}, or {key}: {{test_public: {file}}} "
        f"for {n_rows} in nightly decisions, or add rows"
    )


def _oracle_of(benchmark: Benchmark, items: list[Item]) -> Answer | None:
    """How right answers are given: by the expert of a world that a data benchmark plays in, else by the reference.

    None: an item has no reference, or items are episodes without such an expert.
    """
    is_bridged = isinstance(benchmark, BridgedEpisodes)
    if not is_bridged and any(item.reference is None for item in items):
        return None
    if is_bridged or (isinstance(benchmark, DeclaredBenchmark) and hasattr(benchmark.environment(), "ask_expert")):
        return lambda item, world, chat: world.ask_expert()
    if benchmark.max_turns > 1:
        return None
    return lambda item, world, chat: item.reference or ""


def _empty_answers(benchmark: Benchmark, items: list[Item], n_items: int) -> CheckFinding:
    """n_items: of which these were taken."""
    scores = MeanOfScores.of(play_items(benchmark, items, lambda item, world, chat: ""))
    # a benchmark may know that silence is right on some of its items, and says so with its players
    limit = max(MAX_FLOOR, benchmark.players().floor_at_most) if isinstance(benchmark, ProvidesPlayers) else MAX_FLOOR
    allowance = SAMPLE_SE * (limit * (1 - limit) / len(items) * (n_items - len(items)) / n_items) ** 0.5
    name = f"an empty answer scores at most {limit}"
    summary = f"mean {scores.mean:.2f} of {scores.n}" if scores.mean is not None else "no score at all"
    detail = f"{summary}, {scores.n_missing} missing"
    if scores.mean is None or scores.n_missing or scores.mean > limit + allowance:
        return CheckFinding(name, False, detail)
    if scores.mean > limit:
        detail += f"; among so few of {n_items} items up to {limit + allowance:.2f} can be chance: play more (--items)"
        return CheckFinding(name, None, detail, warning="an empty answer scores, and the sample is too small to tell")
    return CheckFinding(name, True, detail)


def _hidden_items(benchmark: Benchmark, items: dict[Split, list[Item]]) -> CheckFinding:
    name = "hidden items need the installation secret"
    hidden = [split for split in sorted(HIDDEN_SPLITS) if items[split]]
    if not hidden:
        return CheckFinding(name, None, "there are none")
    for split in hidden:
        if not needs_secret(benchmark, split, 1):
            detail = f"{split.value} is given without it; raise ConfigError where secret is None"
            return CheckFinding(name, False, detail)
    choices = [
        f"{split.value}: {benchmark.item_origin(split)}" for split in hidden if isinstance(benchmark, DeclaredBenchmark)
    ]
    return CheckFinding(name, True, "; ".join(choices) or ", ".join(split.value for split in hidden))


def _copy_check(name: str) -> Iterator[CheckFinding]:
    """Whether the code works in a workspace, where only what a Python file imports is beside it."""
    if not is_code(name) or not is_located(name):
        return
    path, _, attribute = name.rpartition(":")
    with tempfile.TemporaryDirectory() as folder:
        # As a workspace has it: the file and its imports, nothing else from its folder.
        copy_source(Path(path).expanduser().resolve(), Path(folder))
        program = "import sys; from agent2.benchmarks import load_benchmark; load_benchmark(sys.argv[1])"
        copy = f"{folder}/{Path(path).name}:{attribute}"
        process = subprocess.run([sys.executable, "-c", program, copy], capture_output=True, text=True, check=False)
    detail = ""
    if process.returncode:
        problem = (process.stderr.strip().splitlines() or [f"exit code {process.returncode}"])[-1].replace(folder, ".")
        detail = (
            f"{problem}; agents get the file and the Python modules that it imports from its folder, and no other file"
        )
    yield CheckFinding("a copy for agents can be loaded", process.returncode == 0, detail)
