"""Learning from the visible items of an assignment, whatever the task: imitation, rewards, measurement.

The rows are converted back to items of the assignment's benchmark, and the benchmark's own world and scorer decide what
a message or an episode is worth, as they do when a submission is scored. So a program that works with a `VisibleTask`
names no task and runs on every one. Does NOT write a card, and does NOT know hidden items.

`collect_traces` plays each item anew with an expert's advice. In some episodes a share of the actions is clumsy on
purpose (a random possible command, or one that is no longer possible): the outcome and the expert's recovery are in
the row, the clumsy action itself is marked `"learn": false`. A model that has only seen flawless games does not know
what to do after its own first mistake. The expert is asked only while an episode is played; lost episodes are counted
and left out; all randomness comes from the seed.
"""

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig

from agent2.benchmarks import load_benchmark
from agent2.benchmarks.home import ProvidesExpert, ProvidesStaticAnswers, item_of
from agent2.errors import ConfigError, EnvironmentFailed
from agent2.evaluation.engine import Attempt, PlaySettings, play, play_by, scored_answers
from agent2.evaluation.scoring import score_played
from agent2.models.hf import HfSampler
from agent2.models.loading import context_length
from agent2.records import (
    Benchmark,
    Environment,
    Item,
    JsonValue,
    Message,
    Rollout,
    ScoredRollout,
    StopReason,
    derive_seed,
)
from agent2.scorers.reward_sum import RewardSum, load_reward
from agent2.texts import counted
from agent2.training.episodes import Episode
from agent2.training.grpo import GrpoSettings
from agent2.training.online_grpo import OnlineGrpoHooks, OnlineGrpoSettings, train_online_grpo, validate_staleness
from agent2.training.participant import DataRow, Participant, print_progress
from agent2.training.running import LogLine

KIND_VARIABLE = "AGENT2_TASK_TYPE"
REWARD_VARIABLE = "AGENT2_REWARD"
STALENESS_VARIABLE = "AGENT2_MAX_STALENESS"
OUTCOME = "outcome"
"""The reward that is the score itself."""
N_MEASURED = 3
"""Measurements on the dev items that an agent plans for."""
LARGE_BYTES = 80_000_000
"""Of weight files: 20 million weights in 32 bits."""
GRPO_SHARE = 0.8
"""Of the assignment's wall clock, after which no step of GRPO on questions begins; the rest is for measuring."""

Expert = Callable[[Item, Sequence[Message]], str]
"""From an item and the chat so far to the next message of a player that does the item well."""
KeepRule = Callable[[Item, Rollout], bool]
"""Whether an episode is kept."""
StopRule = Callable[[LogLine], str | None]
"""As `OnlineGrpoHooks.stop`."""


@dataclass(frozen=True, slots=True)
class TraceSettings:
    """How traces are collected; shares are 0 to 1."""

    episodes_per_item: int = 2
    max_turns: int = 12
    """Where a world's own `max_turns` is lower, that one counts."""
    clumsy_share: float = 0.5
    """Share of episodes in which the player is clumsy at all."""
    clumsy_rate: float = 0.25
    """Share of clumsy actions in such an episode."""
    learn_clumsy: bool = False
    """True marks nothing, so that clumsiness is imitated too: for a model that is meant to be weak."""
    impossible_rate: float = 0.3
    """Share of clumsy actions that were possible before and are not any more, where there is such an action."""
    avoided: tuple[str, ...] = ("help",)
    """Actions that are never chosen as clumsy ones, such as one that is answered at length."""
    seed: int = 0


@dataclass(frozen=True, slots=True)
class CollectedTraces:
    """The outcome of `collect_traces`."""

    rows: list[dict[str, JsonValue]]
    """{"messages": [...]} of every game that was won, as `train_sft` takes them."""
    n_played: int
    n_actions: int
    seconds: float


def is_won(item: Item, rollout: Rollout) -> bool:
    """Whether the goal was reached, as worlds with a goal report it: the state's `won`."""
    return bool(rollout.state.get("won"))


def collect_traces(
    items: Sequence[Item],
    make_world: Callable[[], Any],
    settings: TraceSettings,
    expert: Expert | None = None,
    verdict: KeepRule = is_won,
) -> CollectedTraces:
    """Play every item with the expert's advice; where the world lists no possible actions, none is clumsy.

    make_world: opens a fresh world; where expert is None, one that has `ask_expert` and `admissible`, which are
    asked then. Raises ConfigError for settings that play nothing, EnvironmentFailed when a world breaks.
    """
    if settings.episodes_per_item < 1 or settings.max_turns < 1 or not items:
        raise ConfigError(
            f"collect_traces: {len(items)} items, {settings.episodes_per_item} episodes of each, "
            f"{settings.max_turns} turns; all three must be at least 1"
        )
    started = time.monotonic()
    attempts = [
        Attempt(item, number, derive_seed("expert trace", settings.seed, item.id, number))
        for item in items
        for number in range(settings.episodes_per_item)
    ]
    player = _TracePlayer(settings, expert)
    rows: list[dict[str, JsonValue]] = []
    n_actions = 0
    for item, rollout in play_by(player, attempts, make_world, settings.max_turns, retries=0):
        if rollout.fault is not None:
            raise EnvironmentFailed(rollout.reason)
        n_actions += len(rollout.turns)
        if verdict(item, rollout):
            rows.append({"messages": player.messages_of(rollout)})
    return CollectedTraces(rows, len(attempts), n_actions, time.monotonic() - started)


class _TracePlayer:
    """Follows the expert's advice, now and then clumsily; plays one episode after the other."""

    def __init__(self, settings: TraceSettings, expert: Expert | None) -> None:
        self._settings, self._expert = settings, expert
        self._attempt: Attempt | None = None

    def __call__(self, attempt: Attempt, world: Any, chat: Sequence[Message]) -> str:
        """The next action."""
        settings = self._settings
        if attempt is not self._attempt:
            self._attempt = attempt
            self._rng = np.random.default_rng(attempt.seed)
            self._rate = settings.clumsy_rate if self._rng.random() < settings.clumsy_share else 0.0
            self._was_possible: dict[str, None] = {}
            self._unlearned: set[int] = set()
        advice = world.ask_expert() if self._expert is None else self._expert(attempt.item, chat)
        listed = world.admissible() if hasattr(world, "admissible") else ()
        possible = [action for action in listed if action not in settings.avoided]
        is_clumsy = self._rng.random() < self._rate and bool(possible)
        action = _clumsy(possible, self._was_possible, settings, self._rng) if is_clumsy else advice
        self._was_possible.update(dict.fromkeys(possible))
        if action != advice and not settings.learn_clumsy:
            self._unlearned.add(len(chat))
        return action

    def messages_of(self, rollout: Rollout) -> list[dict[str, JsonValue]]:
        """The chat of the episode that was just played, as `train_sft` takes it."""
        return [
            {**message, **({"learn": False} if number in self._unlearned else {})}
            for number, message in enumerate(_chat_of(rollout))
        ]


def _chat_of(rollout: Rollout) -> list[dict[str, str]]:
    """The messages of an episode up to the model's last one."""
    chat = list(rollout.prompt)
    for turn in rollout.turns:
        chat += [Message("assistant", turn.written), Message("user", turn.observation or "")]
    return _as_rows(chat[:-1] if rollout.turns else chat)


def _clumsy(
    possible: Sequence[str], was_possible: dict[str, None], settings: TraceSettings, rng: np.random.Generator
) -> str:
    """An action that was not advised: first the verb, then its object, so that all verbs are equally frequent."""
    impossible = [action for action in was_possible if action not in set(possible)]
    options: Sequence[str] = impossible if impossible and rng.random() < settings.impossible_rate else possible
    by_verb: dict[str, list[str]] = {}
    for action in options:
        by_verb.setdefault(action.partition(" ")[0], []).append(action)
    verbs = sorted(by_verb)
    actions = by_verb[verbs[int(rng.integers(len(verbs)))]]
    return actions[int(rng.integers(len(actions)))]


@dataclass(frozen=True, slots=True)
class PlayedScore:
    """How a checkpoint did on items that were played once each."""

    success: float
    """Mean score, 0 to 1, of the items that have one."""
    by_type: Mapping[str, float]
    """Mean score of each task type that occurs; empty where items have no type."""
    n_missing: int
    """Items without a score."""

    def __str__(self) -> str:
        """For a log: success in percent, and that of each type."""
        types = ", ".join(f"{name} {100 * value:.0f}" for name, value in sorted(self.by_type.items()))
        return f"{100 * self.success:.1f}%" + (f" ({types})" if types else "")


@dataclass(frozen=True, slots=True)
class Demonstrations:
    """Rows to imitate, as `train_sft` takes them, and where they come from."""

    rows: Sequence[DataRow]
    description: str
    """For the agent's design."""


@dataclass(frozen=True, slots=True)
class AttemptSettings:
    """How a checkpoint's own attempts at train items are sampled, to learn from what each is worth."""

    rounds: int = 2
    """Each round samples from the checkpoint that the previous round trained."""
    attempts: int = 4
    """At each item, in each round."""
    items: int | None = None
    """Train items drawn for each round; None: all."""
    temperature: float = 1.0
    keep: int = 1
    """Most attempts at one item that are learned from in a round, or pairs of them."""
    share: float = 1.0
    """Of the items that a round has otherwise, 0 to 1."""
    seed: int = 0


@dataclass(frozen=True, slots=True)
class VisibleTask:
    """The items of an assignment, ready to be learned from."""

    benchmark: Benchmark
    train: Sequence[Item]
    dev: Sequence[Item]
    participant: Participant
    reward_sum: RewardSum = field(default_factory=lambda: load_reward(OUTCOME))
    """What is learned from; measured is always the benchmark's own score."""

    @property
    def is_interactive(self) -> bool:
        """True where an item is an episode of several turns, False where it is one question with one answer."""
        return self.participant.max_turns > 1

    @property
    def world(self) -> Callable[[], Environment]:
        """Makes fresh worlds."""
        return self.benchmark.environment

    @property
    def context(self) -> int:
        """Most tokens that the base model takes, prompt and completion together."""
        return context_length(AutoConfig.from_pretrained(self.participant.base).get_text_config(decoder=True))

    @property
    def is_large(self) -> bool:
        """Whether the base model is so large that a recipe for the tiny ones would take hours."""
        return sum(file.stat().st_size for file in self.participant.base.glob("*.safetensors")) > LARGE_BYTES

    @property
    def learns_judge(self) -> bool:
        """Whether the judge can be asked about less than one reply to each train item.

        Then `learned_judge` buys all verdicts at once, and its model is asked in training and measuring.
        """
        bought = self.participant.judgements
        return bought is not None and not self.is_interactive and bought < len(self.train)

    @property
    def has_teacher(self) -> bool:
        """Whether the world can be asked for advice and lists what is possible, as a clumsy player needs."""
        return hasattr(self.world(), "ask_expert") and hasattr(self.world(), "admissible")

    def demonstrations(self, settings: TraceSettings) -> Demonstrations:
        """Rows to imitate: reference answers of questions, or won episodes of an expert.

        settings: of the episodes. Raises ConfigError where the task has neither.
        """
        if not self.is_interactive:
            answers = [(item, item.reference) for item in self.train if item.reference is not None]
            rows = self._pairs(answers) if len(answers) == len(self.train) else []
            description = f"the reference answers of all {len(rows)} train rows; loss on the answer only"
        else:
            expert = self.benchmark.expert if isinstance(self.benchmark, ProvidesExpert) else None
            if expert is None and not hasattr(self.world(), "ask_expert"):
                rows = []
            else:
                limits = replace(settings, max_turns=self.participant.max_turns)
                rows = collect_traces(self.train, self.world, limits, expert, self._is_solved).rows
            description = (
                f"{counted(settings.episodes_per_item, 'episode')} of each of {len(self.train)} train items, played "
                f"with the expert's advice; the {len(rows)} that were solved are kept"
            )
        if not rows:
            raise ConfigError(
                f"benchmark {self.benchmark.name}: there is nothing to imitate: its train rows hold no answers, and no "
                "expert plays its items; use an agent that learns from rewards (grpo)"
            )
        return Demonstrations(rows, description)

    def static_rows(self, seed: int) -> Demonstrations:
        """Rows to imitate that come from the visible rows alone, without playing.

        Raises ConfigError for a benchmark of episodes without static answers.
        """
        if not self.is_interactive:
            return self.demonstrations(TraceSettings())
        if not isinstance(self.benchmark, ProvidesStaticAnswers):
            raise ConfigError(
                f"benchmark {self.benchmark.name}: nothing can be imitated without playing its items; use an agent "
                "that plays (sft, grpo)"
            )
        rows = self._pairs(list(zip(self.train, self.benchmark.static_answers(self.train, seed), strict=True)))
        return Demonstrations(rows, f"the opening of each of {len(rows)} train items with a first message to it")

    def questions(self) -> list[dict[str, Any]]:
        """The train items as rows of `train_grpo`; their "answer" is the item's id, which `reward` takes."""
        return [
            {"prompt": item.prompt, "answer": item.id, "messages": _as_rows(self._opening(item))} for item in self.train
        ]

    def grpo_settings(self, usual: GrpoSettings, started: float) -> GrpoSettings:
        """Settings of `train_grpo` for this assignment: its tokens, its items, most of its time, the effort requested.

        Where each reward is bought from a judge, no more steps than the judgements allow beside measuring on the dev
        items three times. started: `time.monotonic()` of the agent's start. Raises ConfigError if they allow none.
        """
        steps = max(2, round(self.participant.effort * usual.steps))
        n_prompts = min(usual.prompts_per_step, len(self.train))
        if self.participant.judgements is not None and not self.learns_judge:
            n_judgements = self.participant.judgements - N_MEASURED * len(self.dev)
            steps = min(steps, n_judgements // (n_prompts * usual.generations))
            if steps < 1:
                raise ConfigError(
                    f"{self.participant.judgements} judgements are too few for a step of {n_prompts} x "
                    f"{usual.generations} replies and {N_MEASURED} measurements on {len(self.dev)} dev items; "
                    "raise budget.judgements"
                )
        return replace(
            usual,
            steps=steps,
            prompts_per_step=n_prompts,
            max_completion_tokens=self.participant.sampling.max_tokens,
            max_seconds=self.participant.seconds_until(GRPO_SHARE, started),
        )

    def n_attempted(self, settings: AttemptSettings) -> int:
        """Items that are attempted in a round: those of the settings, times the effort requested, or fewer.

        Fewer where the judgements allow no more. Raises ConfigError if the judgements allow none.
        """
        available = len(self.train) if settings.items is None else min(settings.items, len(self.train))
        n_items = max(1, round(settings.share * min(1.0, self.participant.effort) * available))
        if self.participant.judgements is None or self.learns_judge:
            return n_items
        n_judgements = self.participant.judgements - (settings.rounds + 1) * len(self.dev)
        if n_judgements < settings.rounds * settings.attempts:
            raise ConfigError(
                f"{self.participant.judgements} judgements are too few for {settings.rounds} x {settings.attempts} "
                f"replies to an item and {settings.rounds + 1} measurements on {len(self.dev)} dev items; raise "
                "budget.judgements"
            )
        return min(n_items, n_judgements // (settings.rounds * settings.attempts))

    def sample_attempts(self, checkpoint: Path, settings: AttemptSettings, number: int) -> list[list[ScoredRollout]]:
        """A checkpoint's attempts at train items in a round, grouped by item; attempts without a worth are left out."""
        rng = np.random.default_rng(derive_seed("drawn items", settings.seed, number))
        chosen = [self.train[int(index)] for index in rng.permutation(len(self.train))[: self.n_attempted(settings)]]
        attempts = [
            Attempt(item, k, derive_seed("drawn", settings.seed, number, item.id, k))
            for item in chosen
            for k in range(settings.attempts)
        ]
        # The whole distribution: attempts have to differ, whatever the protocol samples with.
        sampling = replace(self.participant.sampling, temperature=settings.temperature, top_p=1.0)
        by_item: dict[str, list[ScoredRollout]] = {item.id: [] for item in chosen}
        for scored in _played(
            checkpoint, self.benchmark, attempts, PlaySettings(sampling, self.participant.max_turns), 256
        ):
            if self.worth(scored) is not None and scored.rollout.turns:
                by_item[scored.rollout.item_id].append(scored)
        return [sorted(group, key=lambda scored: scored.rollout.attempt) for group in by_item.values() if group]

    def rejection_sampling(self, checkpoint: Path, settings: AttemptSettings, number: int) -> Demonstrations:
        """The best of a checkpoint's attempts at each item, where it is worth at least as much as the mean attempt.

        Of several that earned the same, those that ended by themselves come first: one that was cut off teaches to stop
        half-way. Raises ConfigError if no attempt is worth more than 0.
        """
        groups = self.sample_attempts(checkpoint, settings, number)
        values = [self.worth(scored) or 0.0 for group in groups for scored in group]
        mean = sum(values) / len(values) if values else 0.0
        best = [scored for group in groups for scored in self._best_of(group)[: settings.keep]]
        selected = [scored for scored in best if 0.0 < (self.worth(scored) or 0.0) >= mean]
        if not selected:
            raise ConfigError(
                f"benchmark {self.benchmark.name}: none of {len(values)} attempts earned anything, so there is nothing "
                "to imitate; imitate reference answers first (sft)"
            )
        print_progress(f"round {number}: {len(values)} attempts earn {mean:.3f} on average; {len(selected)} are kept")
        chosen = "the best" if settings.keep == 1 else f"the {settings.keep} best"
        description = f"{chosen} of {settings.attempts} attempts at each of {len(groups)} items, {len(selected)} kept"
        if self.is_interactive:
            return Demonstrations([{"messages": _chat_of(scored.rollout)} for scored in selected], description)
        items = {item.id: item for item in self.train}
        return Demonstrations(
            self._pairs([(items[scored.rollout.item_id], scored.rollout.turns[0].written) for scored in selected]),
            description,
        )

    def preference_pairs(self, checkpoint: Path, settings: AttemptSettings, number: int) -> list[DataRow]:
        """Of each item the best and the worst of a checkpoint's attempts, where their worth differs, for `train_dpo`.

        With `keep` above 1 also the second best and the second worst, and so on.

        Raises ConfigError for episodes, which are not single answers, and if no attempts differ.
        """
        if self.is_interactive:
            raise ConfigError(
                f"benchmark {self.benchmark.name}: its items are episodes, and preference pairs compare single "
                "answers; use an agent that plays (grpo, rloo, best-of-n)"
            )
        pairs = []
        for group in self.sample_attempts(checkpoint, settings, number):
            ranked = self._best_of(group)
            n_pairs = min(settings.keep, len(ranked) // 2)
            for chosen, rejected in zip(ranked[:n_pairs], reversed(ranked[-n_pairs:]), strict=True):
                if (self.worth(chosen) or 0.0) > (self.worth(rejected) or 0.0):
                    answers = [
                        [{"role": "assistant", "content": scored.rollout.turns[0].written}]
                        for scored in (chosen, rejected)
                    ]
                    prompt = _as_rows(chosen.rollout.prompt)
                    pairs.append({"prompt": prompt, "chosen": answers[0], "rejected": answers[1]})
        if not pairs:
            raise ConfigError(
                f"benchmark {self.benchmark.name}: all attempts at an item earned the same, so there is no preference "
                "to learn; use a base model that succeeds now and then"
            )
        print_progress(f"round {number}: {len(pairs)} preference pairs")
        return pairs

    def worth(self, scored: ScoredRollout) -> float | None:
        """What is learned from an attempt: its score, or the task's sum of parts; None: it has none."""
        return self.reward_sum.of(scored.score, scored.rollout)

    def _best_of(self, group: Sequence[ScoredRollout]) -> list[ScoredRollout]:
        """Attempts at one item from the best to the worst; of equal ones, those that were cut off come last."""
        return sorted(group, key=lambda scored: (-(self.worth(scored) or 0.0), _is_cut_off(scored.rollout)))

    def reward(self, completions: Sequence[str], item_ids: Sequence[str]) -> list[float]:
        """Rewards of completions of train items: the score of the benchmark's scorer, or the task's sum of parts.

        Raises ConfigError for a completion that it cannot judge.
        """
        items = {item.id: item for item in self.train}
        questions = [(items[item_id], [text]) for text, item_id in zip(completions, item_ids, strict=True)]
        rewards = []
        for scored, item_id in zip(scored_answers(self.benchmark, questions), item_ids, strict=True):
            reward = self.reward_sum.of(scored.score, scored.rollout)
            if reward is None:
                lacks = "score" if scored.score.value is None else "part of the reward"
                raise ConfigError(f"train item {item_id}: its answer has no {lacks} ({scored.score.reason})")
            rewards.append(reward)
        return rewards

    def episode_reward(self, episode: Episode) -> float | None:
        """The reward of an episode that was played in training; None: it could not be judged."""
        (scored,) = score_played([(episode.item, episode.rollout)], self.benchmark.scorer())
        return self.reward_sum.of(scored.score, scored.rollout)

    def success(self, episode: Episode) -> float | None:
        """The score of an episode that was played in training, by the scorer of the benchmark."""
        return self._value(episode.item, episode.rollout)

    def evaluate_on_dev(self, checkpoint: Path) -> PlayedScore:
        """Play every dev item once, as the grader does. Raises ConfigError if none has a score."""
        score = play_once(
            checkpoint, self.benchmark, self.dev, PlaySettings(self.participant.sampling, self.participant.max_turns)
        )
        self.participant.log_evaluation(checkpoint, {"eval_dev": score.success, "eval_missing": float(score.n_missing)})
        return score

    def check_and_submit(self, checkpoint: Path, stage: str) -> None:
        """Measure a checkpoint on the dev items, submit it and print both scores; stage: the name of what trained it.

        Raises SubmissionError if the grader gives no score.
        """
        after = self.evaluate_on_dev(checkpoint)
        print_progress(f"{stage}: {after} of {len(self.dev)} dev items")
        answer = self.participant.submit(checkpoint, f"{stage}, dev {100 * after.success:.1f}%")
        scores = f"{answer['score']:.1f} (base model {answer['baseline_score']:.1f})"
        print_progress(f"submission {answer['submission_id']}: {scores}")

    def describe_evaluation(self, when: Sequence[str]) -> str:
        """The evaluation protocol of a design, as a sentence. when: points in time of the measurements."""
        sampling = self.participant.sampling
        turns = (
            f"each played once for at most {self.participant.max_turns} turns"
            if self.is_interactive
            else "one answer each"
        )
        judge = f", by a preference model of {self.participant.judgements} verdicts" if self.learns_judge else ""
        return (
            f"mean score on {len(self.dev)} dev items, {turns}, at temperature {sampling.temperature} and top_p "
            f"{sampling.top_p}, {' and '.join(when)}{judge}"
        )

    def _opening(self, item: Item) -> Sequence[Message]:
        return self.world().reset(item, 0)

    def _pairs(self, answers: Sequence[tuple[Item, str]]) -> list[DataRow]:
        """A row for each answer: a pair where the opening is the bare prompt for all items, else conversations."""
        openings = [self._opening(item) for item, _ in answers]
        if all(
            list(opening) == [Message("user", item.prompt)]
            for (item, _), opening in zip(answers, openings, strict=True)
        ):
            return [{"prompt": item.prompt, "answer": answer} for item, answer in answers]
        return [
            {"messages": [*_as_rows(opening), {"role": "assistant", "content": answer}]}
            for (_, answer), opening in zip(answers, openings, strict=True)
        ]

    def _is_solved(self, item: Item, rollout: Rollout) -> bool:
        return (self._value(item, rollout) or 0.0) >= 1.0

    def _value(self, item: Item, rollout: Rollout) -> float | None:
        (scored,) = score_played([(item, rollout)], self.benchmark.scorer())
        return scored.score.value


def read_visible(participant: Participant) -> VisibleTask:
    """The task of an assignment; with $AGENT2_TASK_TYPE, only train items of that type are learned from.

    $AGENT2_REWARD names the reward (`scorers.reward_sum`) where it is not the score itself. Raises ConfigError if its
    rows are not those of its benchmark, no item is of that type, or there is no such reward.
    """
    benchmark = load_benchmark(participant.benchmark)
    train, dev = ([item_of(benchmark, row) for row in rows] for rows in (participant.train, participant.dev))
    if kind := os.environ.get(KIND_VARIABLE):
        kinds = sorted({str(item.payload.get("task_type")) for item in train})
        train = [item for item in train if item.payload.get("task_type") == kind]
        if not train:
            raise ConfigError(f"${KIND_VARIABLE} is {kind!r}; the train items are of the kinds {', '.join(kinds)}")
    reward = load_reward(os.environ.get(REWARD_VARIABLE, OUTCOME))
    if reward != load_reward(OUTCOME):
        print_progress(f"reward: {os.environ[REWARD_VARIABLE]} ({', '.join(term.part for term in reward.parts)})")
    return VisibleTask(benchmark, train, dev, participant, reward)


def play_once(
    checkpoint: Path, benchmark: Benchmark, items: Sequence[Item], settings: PlaySettings, max_batch: int = 128
) -> PlayedScore:
    """Scores of a checkpoint on items, each played once; seeds are derived from the item ids.

    Raises ConfigError if no item has a score.
    """
    attempts = [Attempt(item, 0, derive_seed("dev", settings.sampling.seed, item.id)) for item in items]
    types = {item.id: str(item.payload.get("task_type", "")) for item in items}
    values: dict[str, list[float]] = defaultdict(list)
    for scored in _played(checkpoint, benchmark, attempts, settings, max_batch):
        if scored.score.value is not None:
            values[types[scored.rollout.item_id]].append(scored.score.value)
    scores = [value for group in values.values() for value in group]
    if not scores:
        raise ConfigError(f"{checkpoint}: none of {len(items)} dev items has a score; look at its log")
    by_type = {name: sum(group) / len(group) for name, group in values.items() if name}
    return PlayedScore(sum(scores) / len(scores), by_type, len(items) - len(scores))


def _played(
    checkpoint: Path, benchmark: Benchmark, attempts: Sequence[Attempt], settings: PlaySettings, max_batch: int
) -> Iterator[ScoredRollout]:
    sampler = HfSampler(checkpoint, max_batch=max_batch, device="cuda" if torch.cuda.is_available() else "cpu")
    try:
        yield from play(attempts, sampler, benchmark.environment, benchmark.scorer(), settings)
    finally:
        sampler.close()


def _is_cut_off(rollout: Rollout) -> bool:
    return any(turn.stop_reason is StopReason.LENGTH for turn in rollout.turns)


def _as_rows(messages: Sequence[Message]) -> list[dict[str, str]]:
    return [{"role": message.role, "content": message.content} for message in messages]


def print_log_line(line: LogLine) -> None:
    """Print one line of a training log, for an agent's own log."""
    names = (
        "loss",
        "reward",
        "rewards/margins",
        "success",
        "kl_initial",
        "entropy",
        "turns",
        "invalid_share",
        "unterminated_share",
        "signal_share",
        "updates_behind",
        "trainer_idle_s",
        "player_idle_s",
    )
    numbers = ", ".join(f"{name} {float(line[name]):.3f}" for name in names if name in line)
    print_progress(f"{line['phase']} step {line['step']}: {numbers}")


@dataclass(frozen=True, slots=True)
class OnlineStage:
    """One run of `train_online_grpo`."""

    name: str
    """Also the name of its folder among the agent's outputs."""
    settings: OnlineGrpoSettings
    """Turns, tokens and seconds are replaced by those of the assignment and the clock."""
    until: float
    """No new batch begins after this share of the assignment's wall clock."""


def with_staleness(stages: Sequence[OnlineStage]) -> tuple[OnlineStage, ...]:
    """The stages, asynchronous where $AGENT2_MAX_STALENESS says how many updates old the weights that play may be.

    Raises ConfigError if it is no whole number or does not fit the settings of a stage.
    """
    text = os.environ.get(STALENESS_VARIABLE, "")
    if not text:
        return tuple(stages)
    if not (text.isascii() and text.isdigit()):
        raise ConfigError(
            f"${STALENESS_VARIABLE} is {text!r}; set it to a whole number of updates, or unset it for synchronous runs"
        )
    stale = tuple(replace(stage, settings=replace(stage.settings, max_staleness=int(text))) for stage in stages)
    for stage in stale:
        validate_staleness(stage.settings)
    return stale


def learn_in_stages(
    task: VisibleTask,
    checkpoint: Path,
    stages: Sequence[OnlineStage],
    started: float,
    make_watch: Callable[[], StopRule],
) -> Path:
    """Play and learn stage by stage, with a submission after each; returns the last good checkpoint.

    started: `time.monotonic()` of the agent's start. make_watch: makes the stop rule of one stage; a stage that it
    stops is not submitted, and the next one continues from the checkpoint before.
    """
    participant = task.participant
    for stage in stages:
        watch = _StopRecorder(make_watch())
        settings = replace(
            stage.settings,
            prompts_per_batch=min(stage.settings.prompts_per_batch, len(task.train)),
            batches=max(1, round(participant.effort * stage.settings.batches)),
            max_turns=participant.max_turns,
            max_tokens=participant.sampling.max_tokens,
            max_seconds=participant.seconds_until(stage.until, started),
        )
        out = participant.output / stage.name / "model"
        reward = None if task.reward_sum == load_reward(OUTCOME) else task.episode_reward
        hooks = OnlineGrpoHooks(print_log_line, stop=watch, success=task.success, reward=reward)
        report = train_online_grpo(checkpoint, task.train, task.world, out, settings, hooks)
        print_progress(f"{stage.name}: {report.steps} updates in {report.seconds:.0f} s {report.stopped}")
        if watch.reason is not None:
            print_progress(f"{stage.name}: discarded; continuing from {checkpoint}")
            continue
        checkpoint = report.checkpoint
        task.check_and_submit(checkpoint, f"online RL, {stage.name}, {report.steps} updates")
    return checkpoint


class _StopRecorder:
    """Remembers why it stopped a run."""

    def __init__(self, stop: StopRule) -> None:
        self._stop = stop
        self.reason: str | None = None

    def __call__(self, line: LogLine) -> str | None:
        self.reason = self._stop(line)
        return self.reason
