"""Online reinforcement learning over episodes: play, judge, reinforce what did better than its group, play again.

    report = train_online_grpo(base, items, make_environment, out / "model", OnlineGrpoSettings(seed=0))

Items are played in the world that `make_environment` opens, by the policy as it is at that moment, hundreds of
episodes at once (`episodes`). The loss is on the tokens that the policy sampled; TRL's GRPOTrainer computes it
(`grpo`). The log (`running`), one line a batch, and TRL's trainer state are written beside out_dir. One torch
thread unless $AGENT2_THREADS says more; a CUDA device is used if present.

An episode that failed has no reward (None), which is never a zero. Those that are left out of the loss are counted by
their reason; truncated are those that the context or the limit of a message ended, never those that merely hit the
turn cap. Gamma decay: success in T turns is worth `decay ** (T - 1)`. A group whose episodes all win or all fail
teaches nothing: the model must win some games some of the time.

The default settings are those that worked on a model of 0.7 million weights in the household world; each switch that
can spoil a run says so. `validate_settings` refuses what cannot work and warns of what is merely unwise. Does NOT run
on several devices.

With `max_staleness` the coming batches are played while the last one is learned from (`asynchronous`). The loss is the
clipped one in either case, with the ratio of the policy's probability of a token to the one with which it was drawn
(Schulman et al. 2017, arXiv:1707.06347, eq. 7). For stale batches the ratio is capped at `max_importance` where the
advantage is negative, where that clip has no bound (INTELLECT-2 2025, arXiv:2505.07291).
"""

import copy
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from datasets import Dataset
from transformers import PrinterCallback, TrainerCallback, TrainerControl, TrainerState, TrainingArguments, set_seed
from trl import GRPOConfig

from agent2.errors import ConfigError
from agent2.evaluation.engine import Attempt, PlaySettings
from agent2.models.hf import HfSampler
from agent2.models.loading import context_length
from agent2.records import Environment, Item, SamplingSettings, derive_seed
from agent2.training.asynchronous import PlayAhead, StoppableSampler, Weights
from agent2.training.episodes import ChatTokens, Ending, Episode, play_episodes
from agent2.training.grpo import ROWS_PER_PASS, Batch, ExclusionReason, JudgedBatch, OnlineTrainer
from agent2.training.reference import (
    Baseline,
    Clip,
    Normalise,
    advantages_of,
    share_with_signal,
    to_batch,
    token_logprobs,
)
from agent2.training.running import (
    CheckpointSaver,
    LogLine,
    LogWriter,
    OnCheckpoint,
    OnLog,
    TrainReport,
    load_for_training,
    log_path,
    run_and_save,
    trainer_arguments,
    use_threads,
)

_log = logging.getLogger(__name__)

DEFAULT_CLIP = Clip()
COMPOSITE_WEIGHTS: Mapping[str, float] = {"success": 5.0, "valid": 1.0, "format": 1.0}
"""Of the composite reward, which is divided by their sum: success, share of valid actions, share of messages that
the model ended itself (the +5 / +1 / +1 of the source)."""
SUCCESS_WINDOW = 5
"""Batches whose mean success `stop_at_success` is compared with."""

MakeEnvironment = Callable[[], Environment]
Success = Callable[[Episode], float | None]
"""From a finished episode to its success, 0 to 1; None: it could not be judged, which leaves it out."""
RewardKind = Literal["binary", "composite"]


@dataclass(frozen=True, slots=True)
class OnlineGrpoSettings:
    """Hyperparameters of `train_online_grpo`."""

    batches: int = 36
    """Batches of episodes that are played; the optimiser makes `batches * updates_per_batch` steps."""
    prompts_per_batch: int = 32
    generations: int = 8
    """Episodes of one item, the group that a reward is compared within."""
    updates_per_batch: int = 2
    """Optimiser steps on each batch, each on its own part of it; 1 is strictly on-policy."""
    learning_rate: float = 4e-4
    warmup_updates: int = 10
    temperature: float = 1.0
    max_tokens: int = 12
    """Of one message of the model."""
    max_turns: int = 12
    """Where the world's own `max_turns` is lower, that one counts."""
    reward: RewardKind = "binary"
    """binary: 1 for success, else 0. composite: also pays for valid and ended messages, which can be had without
    success; it is there to be compared with, not to be used."""
    decay: float = 1.0
    """Success in T turns is worth decay ** (T - 1); 1: turns are free."""
    advantage: Baseline = "group"
    by_spread: bool = True
    """Divide advantages by the spread of their group."""
    normalise: Normalise = "sequence"
    """sequence: every episode weighs the same; token: long ones weigh more, which at a high learning rate ends in
    messages that never end."""
    clip: Clip = DEFAULT_CLIP
    mask_observations: bool = True
    """False trains the model to predict the world's words as if it had written them: for showing what goes wrong."""
    mask_truncated: bool = False
    """Leave out lost episodes whose last message was cut off or that used up the context; False: they are failures. One
    that was cut off earlier and played on is never left out."""
    mask_capped: bool = False
    """Also leave out episodes that hit the turn cap. Then only wins are left and nothing can be learned: for
    showing what goes wrong."""
    max_episode_tokens: int | None = None
    """Leave out longer episodes; None: none is too long."""
    kl_weight: float = 0.0
    """Weight of the divergence from the reference model; runs of several hundred batches want 0.001 or more."""
    refresh_reference_every: int | None = None
    """Batches after which the reference model becomes the policy of then; None: never."""
    kl_episodes: int = 32
    """Episodes of each batch on which the divergence from the initial model is measured; 0: not measured."""
    in_flight: int = 256
    """Most episodes that are played at once."""
    checkpoint_batches: tuple[int, ...] = ()
    """After these batches the model is saved as `<out_dir>-batch<N>` and the caller is notified."""
    max_seconds: float | None = None
    """No new batch begins after so long; None: no limit."""
    stop_at_success: float | None = None
    """Training ends once the mean success of the last five batches reaches this; None: never."""
    max_staleness: int | None = None
    """Play in a thread while training, with weights of which a batch's first update is at most so many updates ahead;
    0: the thread and the trainer take turns. None: synchronous, without a thread."""
    max_importance: float = 4.0
    """Cap of a stale token's ratio where its advantage is negative."""
    seed: int = 0

    @property
    def batches_ahead(self) -> int:
        """Batches that may be played before the one that is learned from has been; 0: none."""
        return (self.max_staleness or 0) // self.updates_per_batch

    @property
    def episodes_per_batch(self) -> int:
        """Prompts times generations."""
        return self.prompts_per_batch * self.generations


def validate_settings(settings: OnlineGrpoSettings, n_items: int) -> None:
    """Refuse settings that cannot work, naming the field; warn of those that rarely do.

    n_items: how many items there are to play. Raises ConfigError.
    """
    minima = {
        "batches": 1,
        "prompts_per_batch": 1,
        "generations": 2,
        "updates_per_batch": 1,
        "max_tokens": 1,
        "max_turns": 1,
        "in_flight": 1,
        "kl_episodes": 0,
        "warmup_updates": 0,
        "kl_weight": 0,
    }
    for name, minimum in minima.items():
        if getattr(settings, name) < minimum:
            raise ConfigError(f"train_online_grpo: {name} is {getattr(settings, name)}; set it to at least {minimum}")
    if not settings.temperature > 0:
        raise ConfigError(f"train_online_grpo: temperature is {settings.temperature}; episodes need chance, set it > 0")
    if not 0 < settings.decay <= 1:
        raise ConfigError(f"train_online_grpo: decay is {settings.decay}; set it above 0 and at most 1")
    if n_items < settings.prompts_per_batch:
        raise ConfigError(
            f"train_online_grpo: {n_items} items for {settings.prompts_per_batch} prompts a batch; "
            "give more items or lower prompts_per_batch"
        )
    if settings.episodes_per_batch % settings.updates_per_batch:
        raise ConfigError(
            f"train_online_grpo: {settings.episodes_per_batch} episodes a batch cannot be cut into "
            f"{settings.updates_per_batch} equal updates; change updates_per_batch"
        )
    if settings.refresh_reference_every is not None and not settings.kl_weight:
        raise ConfigError("train_online_grpo: refresh_reference_every without kl_weight has no effect; set kl_weight")
    validate_staleness(settings)
    if settings.reward == "composite":
        _log.warning(
            "composite reward: messages that are valid and ended pay without success, so they can rise while success "
            "does not; watch `reward_success`, or use the binary reward"
        )
    if settings.mask_capped:
        _log.warning("mask_capped leaves only episodes that ended by themselves: where only success ends one, "
                     "no group keeps a signal")  # fmt: skip


def validate_staleness(settings: OnlineGrpoSettings) -> None:
    """Refuse a staleness that cannot work with the other settings. Raises ConfigError."""
    staleness = settings.max_staleness
    if staleness is None:
        return
    if staleness < 0 or (staleness and not settings.batches_ahead):
        raise ConfigError(
            f"train_online_grpo: max_staleness is {staleness}; set it to 0, or to at least the "
            f"{settings.updates_per_batch} updates of a batch: fewer leave nothing to play ahead"
        )
    if settings.batches_ahead and not settings.mask_observations:
        raise ConfigError("train_online_grpo: max_staleness needs mask_observations: only tokens that the model drew "
                          "have the probability with which they were drawn")  # fmt: skip
    if not settings.max_importance > 1 + settings.clip.above:
        raise ConfigError(
            f"train_online_grpo: max_importance is {settings.max_importance:g}; set it above the clip, "
            f"{1 + settings.clip.above:g}"
        )


def success_from_state(episode: Episode) -> float:
    """Success as worlds with a goal report it: the state's `won`."""
    return float(bool(episode.state.get("won")))


def judge(
    episodes: Sequence[Episode], settings: OnlineGrpoSettings, success: Success, reward_of: Success | None = None
) -> JudgedBatch:
    """Rewards, exclusions and advantages of a batch whose groups are adjacent.

    reward_of: in place of the settings' reward; None for an episode leaves it out.
    """
    successes = [None if e.ending is Ending.FAILED else success(e) for e in episodes]
    parts = [None if s is None else _components(e, s, settings) for e, s in zip(episodes, successes, strict=True)]
    rewards = [None if p is None else _total(p, settings) for p in parts]
    if reward_of is not None:
        rewards = [None if r is None else reward_of(e) for e, r in zip(episodes, rewards, strict=True)]
    excluded = [_excluded(e, s, settings) for e, s in zip(episodes, successes, strict=True)]
    learned = [
        float("nan") if reason is not None or reward is None else reward
        for reward, reason in zip(rewards, excluded, strict=True)
    ]
    rewards_PG = torch.tensor(learned).view(-1, settings.generations)
    advantages_PG = advantages_of(rewards_PG, settings.advantage, by_spread=settings.by_spread)
    measures = {
        **_measures(episodes, successes),
        "signal_share": share_with_signal(advantages_PG),
        **{f"masked_{reason.value}": excluded.count(reason) / len(episodes) for reason in ExclusionReason},
    }
    if settings.reward == "composite":
        judged_parts = [part for part in parts if part is not None]
        for name in COMPOSITE_WEIGHTS:
            measures[f"reward_{name}"] = _mean([part[name] for part in judged_parts])
    measured = {name: value for name, value in measures.items() if not math.isnan(value)}
    return JudgedBatch(rewards, excluded, advantages_PG, measured)


def _components(episode: Episode, success: float, settings: OnlineGrpoSettings) -> dict[str, float]:
    turns = max(1, len(episode.actions))
    return {
        "success": success * settings.decay ** (turns - 1),
        "valid": 1 - _invalid(episode) / turns,
        "format": 1 - episode.n_unterminated / turns,
    }


def _total(parts: Mapping[str, float], settings: OnlineGrpoSettings) -> float:
    if settings.reward == "binary":
        return parts["success"]
    weights = COMPOSITE_WEIGHTS
    return sum(weights[name] * parts[name] for name in weights) / sum(weights.values())


def _excluded(episode: Episode, success: float | None, settings: OnlineGrpoSettings) -> ExclusionReason | None:
    if success is None:
        return ExclusionReason.FAILED
    if settings.max_episode_tokens is not None and episode.n_tokens > settings.max_episode_tokens:
        return ExclusionReason.TOO_LONG
    is_cut = episode.ending is Ending.CONTEXT or episode.last_is_unterminated
    if settings.mask_truncated and is_cut and not success:
        return ExclusionReason.TRUNCATED
    if settings.mask_capped and episode.ending is Ending.TURN_CAP:
        return ExclusionReason.CAPPED
    return None


def _invalid(episode: Episode) -> int:
    return int(episode.state.get("n_invalid", 0))


def _measures(episodes: Sequence[Episode], successes: Sequence[float | None]) -> dict[str, float]:
    """The log's fields about a batch; shares are of messages or episodes, NaN where nothing was measured."""
    n_turns = sum(len(e.actions) for e in episodes) or float("nan")
    n_sampled = sum(sum(e.is_sampled) for e in episodes) or float("nan")
    knows_invalid = any("n_invalid" in e.state for e in episodes)
    ended = [e for e in episodes if e.ending is not Ending.FAILED]
    return {
        "success": _mean([s for s in successes if s is not None]),
        "turns": n_turns / max(1, len(ended)),
        "action_length": n_sampled / n_turns,
        "invalid_share": sum(map(_invalid, episodes)) / n_turns if knows_invalid else float("nan"),
        "unterminated_share": sum(e.n_unterminated for e in episodes) / n_turns,
        "repeated_share": sum(e.n_repeated for e in episodes) / n_turns,
        "stutter_share": sum(e.n_stuttering for e in episodes) / n_turns,
        "capped_share": sum(e.ending is Ending.TURN_CAP for e in ended) / max(1, len(ended)),
        "retried_share": sum(e.rollout.retries > 0 for e in episodes) / len(episodes),
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else float("nan")


@dataclass(frozen=True, slots=True)
class OnlineGrpoHooks:
    """What a caller is notified of, and decides, during training."""

    on_log: OnLog | None = None
    on_checkpoint: OnCheckpoint | None = None
    """Called with the number of batches and the folder that was saved; training waits until it returns."""
    stop: Callable[[LogLine], str | None] | None = None
    """Called with each line of the log; a sentence ends training, and the report holds it."""
    success: Success = success_from_state
    """From an episode to its success, 0 to 1; None leaves it out."""
    reward: Success | None = None
    """From an episode to its reward, in place of the settings' `reward`; success is logged beside it."""
    callbacks: Sequence[TrainerCallback] = ()
    """Of the trainer, such as a monitor's; they come after our own."""


def train_online_grpo(
    model_path: Path,
    items: Sequence[Item],
    make_environment: MakeEnvironment,
    out_dir: Path,
    settings: OnlineGrpoSettings,
    hooks: OnlineGrpoHooks | None = None,
) -> TrainReport:
    """Train the model in model_path by playing items, and save it in out_dir.

    Randomness: all of it from settings.seed. Raises ConfigError for settings that cannot work or a model without a
    usable chat template, SamplerFailed when the policy's logits are not numbers any more. With `max_staleness` the
    worlds are opened and act in a thread; hooks are called in this one, as ever.
    """
    started = time.monotonic()
    hooks = hooks or OnlineGrpoHooks()
    stopper = EarlyStopping(settings, hooks.stop, started)
    hooks = replace(hooks, callbacks=(stopper, *hooks.callbacks))
    trainer = make_trainer(model_path, items, make_environment, out_dir, settings, hooks)
    try:
        report = run_and_save(trainer, model_path, out_dir, started, "online_grpo", settings)
    finally:
        trainer.player.close()
    is_early = report.steps < trainer.args.max_steps
    return replace(report, stopped=(stopper.reason or "a callback ended it") if is_early else "")


def make_trainer(
    model_path: Path,
    items: Sequence[Item],
    make_environment: MakeEnvironment,
    out_dir: Path,
    settings: OnlineGrpoSettings,
    hooks: OnlineGrpoHooks,
) -> OnlineTrainer:
    """A trainer that is ready to train; raises what `train_online_grpo` does."""
    validate_settings(settings, len(items))
    use_threads()
    set_seed(settings.seed)
    model, tokenizer = load_for_training(model_path)
    # Weights that are mapped from a file are aligned otherwise than a copy of them, which changes how sums are rounded.
    for parameter in model.parameters():
        parameter.data = parameter.data.clone()
    is_asynchronous = settings.max_staleness is not None
    # A fast tokenizer may not be used in two threads at once, and TRL uses its own.
    own_tokenizer = copy.deepcopy(tokenizer) if is_asynchronous else tokenizer
    batch_maker = _BatchMaker(model, own_tokenizer, items, make_environment, settings, hooks)
    player = _AsynchronousPlayer(batch_maker) if is_asynchronous else _SynchronousPlayer(batch_maker)
    n_updates = settings.updates_per_batch
    trainer = OnlineTrainer(
        player,
        mask_observations=settings.mask_observations,
        model=model,
        args=_arguments(settings, out_dir),
        train_dataset=Dataset.from_list([_row(number, item) for number, item in enumerate(items)]),
        processing_class=tokenizer,
        callbacks=[
            LogWriter(log_path(out_dir), "grpo", hooks.on_log),
            CheckpointSaver(
                {batch * n_updates: (f"batch{batch}", batch) for batch in settings.checkpoint_batches},
                model_path,
                out_dir,
                hooks.on_checkpoint,
            ),
            *hooks.callbacks,
        ],
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


@dataclass(frozen=True, slots=True)
class _PlayedBatch:
    """A batch that was played and not yet judged."""

    episodes: Sequence[Episode]
    measures: Mapping[str, float]


class _BatchMaker:
    """Plays and judges the batches of one run."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        items: Sequence[Item],
        make_environment: MakeEnvironment,
        settings: OnlineGrpoSettings,
        hooks: "OnlineGrpoHooks",
    ) -> None:
        self.settings, self.model, self.tokenizer = settings, model, tokenizer
        self._items, self._make_environment = items, make_environment
        self._success, self._reward = hooks.success, hooks.reward
        self._chat = ChatTokens(tokenizer)
        self._context = context_length(model.config.get_text_config(decoder=True))
        self._initial = copy.deepcopy(model).eval() if settings.kl_episodes else None

    def play(self, number: int, item_numbers: Sequence[int], sampler: Any, device: torch.device) -> _PlayedBatch:
        """Play batch `number`, from 0. device: that of the sampler's model."""
        settings = self.settings
        attempts = [self._attempt(number, position, item) for position, item in enumerate(item_numbers)]
        sampling = SamplingSettings(temperature=settings.temperature, max_tokens=settings.max_tokens)
        playing = PlaySettings(sampling, settings.max_turns, settings.in_flight, needs_sampler=True)
        batch = play_episodes(attempts, sampler, self._chat, self._make_environment, playing, self._context)
        measures = {"environment_s": batch.environment_s, "generation_s": batch.generation_s}
        if self._initial is not None:
            stride = math.ceil(settings.episodes_per_batch / settings.kl_episodes)
            kl = divergence(self._initial.to(device), batch.episodes[::stride], settings.temperature)
            measures |= {"kl_initial": kl} if settings.kl_weight else {"kl_initial": kl, "kl": kl}
        return _PlayedBatch(batch.episodes, measures)

    def judge(self, batch: _PlayedBatch) -> JudgedBatch:
        """Rewards and advantages."""
        return judge(batch.episodes, self.settings, self._success, self._reward)

    def _attempt(self, batch: int, position: int, item: int) -> Attempt:
        """Members of a group share the world's seed, not that of sampling."""
        group = position // self.settings.generations
        names = (self.settings.seed, batch)
        sampling_seed = derive_seed("draws", *names, position)
        return Attempt(self._items[item], position, sampling_seed, world_seed=derive_seed("world", *names, group))


class _SynchronousPlayer:
    """Plays each batch when it is needed, with the policy as it is."""

    def __init__(self, batch_maker: _BatchMaker) -> None:
        self._batch_maker = batch_maker
        self._sampler: HfSampler | None = None
        self._n_batches = 0

    def play(self, item_numbers: Sequence[int], trainer: Any) -> Batch:
        """Play and judge one batch."""
        batch_maker = self._batch_maker
        if self._sampler is None:  # the trainer has put the model on its device by now
            in_flight = batch_maker.settings.in_flight
            self._sampler = HfSampler.from_model(trainer.model, batch_maker.tokenizer, max_batch=in_flight)
        self._sampler.forget()  # every batch follows updates of the weights
        batch = batch_maker.play(self._n_batches, item_numbers, self._sampler, trainer.model.device)
        self._n_batches += 1
        return Batch(batch.episodes, batch_maker.judge(batch), batch.measures)

    def close(self) -> None:
        """Nothing to end."""


class _AsynchronousPlayer:
    """Plays batches ahead, with a copy of the policy whose age is bounded."""

    def __init__(self, batch_maker: _BatchMaker) -> None:
        settings = batch_maker.settings
        self._batch_maker = batch_maker
        self._copy = copy.deepcopy(batch_maker.model).eval()
        self._sampler: HfSampler | None = None
        self._coming: Iterator[list[int]] = iter(())
        self._item_numbers: dict[int, list[int]] = {}
        self._ahead = PlayAhead(self._play_in_thread, settings.batches, settings.batches_ahead)
        self._n_batches = 0

    def play(self, item_numbers: Sequence[int], trainer: Any) -> Batch:
        """Hand over the policy as it is, and judge the batch that was played for this update."""
        number, settings = self._n_batches, self._batch_maker.settings
        if number == 0:
            self._copy.to(trainer.model.device)
            self._sampler = HfSampler.from_model(self._copy, self._batch_maker.tokenizer, max_batch=settings.in_flight)
            self._coming = coming_items(trainer, settings)
        # Those of the batches that may be played from now on are written down before the thread can ask for them.
        for coming in range(len(self._item_numbers), min(settings.batches, number + settings.batches_ahead + 1)):
            self._item_numbers[coming] = next(self._coming)
        if self._item_numbers[number] != list(item_numbers):
            raise RuntimeError(f"batch {number} was played with other items than the trainer asks for")
        weights = {name: tensor.detach().clone() for name, tensor in trainer.model.state_dict().items()}
        self._ahead.publish(number, weights)
        taken = self._ahead.take()
        self._n_batches += 1
        n_updates = taken.batches_behind * settings.updates_per_batch
        if n_updates > (settings.max_staleness or 0):
            raise RuntimeError(f"batch {number} is {n_updates} updates old, {settings.max_staleness} are allowed")
        measures = {
            **taken.batch.measures,
            "updates_behind": float(n_updates),
            "trainer_idle_s": taken.trainer_idle_s,
            "player_idle_s": taken.player_idle_s,
        }
        return Batch(taken.batch.episodes, self._batch_maker.judge(taken.batch), measures, updates_behind=n_updates)

    def close(self) -> None:
        """End the thread."""
        self._ahead.close()

    def _play_in_thread(self, number: int, weights: Weights, check: Callable[[], None]) -> _PlayedBatch:
        self._copy.load_state_dict(weights)
        if self._sampler is None:
            raise RuntimeError("no policy has been handed over yet")
        self._sampler.forget()
        sampler = StoppableSampler(self._sampler, check)
        return self._batch_maker.play(number, self._item_numbers[number], sampler, self._copy.device)


def coming_items(trainer: Any, settings: OnlineGrpoSettings) -> Iterator[list[int]]:
    """The item numbers of each batch, before TRL asks for them: its order of the rows is a function of the seed."""
    order = trainer._get_train_sampler()
    n_rows = settings.episodes_per_batch
    while True:
        numbers = list(order)  # one pass over the items; TRL repeats each batch for each of its updates
        for start in range(0, len(numbers), n_rows * settings.updates_per_batch):
            yield numbers[start : start + n_rows]


@torch.no_grad()
def divergence(reference: Any, episodes: Sequence[Episode], temperature: float) -> float:
    """Divergence of the policy that played the episodes from a reference model, nats a sampled token.

    Estimate: mean of exp(d) - d - 1 with d = log p_reference - log p_policy (Schulman 2020, "k3": never negative).
    """
    total, n_tokens = 0.0, 0
    ordered = sorted((e for e in episodes if any(e.is_sampled)), key=lambda episode: episode.n_tokens)
    for start in range(0, len(ordered), ROWS_PER_PASS):
        rows = ordered[start : start + ROWS_PER_PASS]
        batch = to_batch(
            [[*e.prompt_ids, *e.completion_ids] for e in rows],
            [[False] * len(e.prompt_ids) + e.is_sampled for e in rows],
            [[0.0] * len(e.prompt_ids) + e.logprobs for e in rows],
            pad=0,
        ).to(reference.device)
        gap = (token_logprobs(reference, batch, temperature) - batch.old_logprobs_NT)[batch.is_learned_NT].double()
        total += float((gap.exp() - gap - 1).sum())
        n_tokens += len(gap)
    return total / n_tokens if n_tokens else float("nan")


class EarlyStopping(TrainerCallback):  # type: ignore[misc]
    """Ends training when time is up, when success is high enough, or when the caller says so."""

    def __init__(
        self, settings: OnlineGrpoSettings, stop: Callable[[LogLine], str | None] | None, started: float
    ) -> None:
        self.reason = ""
        """Why training ended early; empty if it did not."""
        self._settings, self._stop, self._started = settings, stop, started
        self._successes: list[float] = []

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Check the limits after a line of the log."""
        if not logs or "success" not in logs or self.reason:
            return
        self._successes.append(float(logs["success"]))
        self.reason = self._stop_reason(logs, state.global_step) or ""
        if self.reason:
            control.should_training_stop = True
            _log.info("training ends at update %d: %s", state.global_step, self.reason)

    def _stop_reason(self, logs: Mapping[str, Any], step: int) -> str | None:
        seconds = time.monotonic() - self._started
        recent = self._successes[-SUCCESS_WINDOW:]
        if self._settings.max_seconds is not None and seconds > self._settings.max_seconds:
            return f"{seconds:.0f} s are more than max_seconds {self._settings.max_seconds:g}"
        target = self._settings.stop_at_success
        if target is not None and len(recent) == SUCCESS_WINDOW and sum(recent) / SUCCESS_WINDOW >= target:
            mean = sum(recent) / SUCCESS_WINDOW
            return f"success of the last {SUCCESS_WINDOW} batches is {mean:.3f}, at least {target:g}"
        line: LogLine = {name: float(value) for name, value in logs.items() if isinstance(value, int | float)}
        return self._stop({**line, "step": step}) if self._stop is not None else None


def _row(number: int, item: Item) -> dict[str, Any]:
    """A row of TRL's dataset. TRL passes only prompts to the rollout function: the message carries the item number."""
    return {"prompt": [{"role": "user", "content": item.prompt, "item": str(number)}]}


def _arguments(settings: OnlineGrpoSettings, out_dir: Path) -> GRPOConfig:
    n_updates = settings.updates_per_batch
    return GRPOConfig(
        **trainer_arguments(out_dir, settings.learning_rate, settings.seed),
        max_steps=settings.batches * n_updates,
        per_device_train_batch_size=settings.episodes_per_batch // n_updates,
        steps_per_generation=n_updates,
        gradient_accumulation_steps=1,
        num_generations=settings.generations,
        max_completion_length=settings.max_turns * settings.max_tokens,
        temperature=settings.temperature,
        lr_scheduler_type="constant_with_warmup" if settings.warmup_updates else "constant",
        warmup_steps=settings.warmup_updates,
        beta=settings.kl_weight,
        sync_ref_model=settings.refresh_reference_every is not None,
        ref_model_mixup_alpha=1.0,
        ref_model_sync_steps=(settings.refresh_reference_every or 1) * n_updates,
        # "grpo" averages over the tokens of each sequence first, "dapo" over all tokens of the batch.
        loss_type="grpo" if settings.normalise == "sequence" else "dapo",
        scale_rewards="none",  # advantages are computed by `judge`
        epsilon=settings.clip.below,
        epsilon_high=settings.clip.above,
        delta=settings.max_importance if settings.batches_ahead else None,
        weight_decay=0.0,
        logging_steps=n_updates,
    )
