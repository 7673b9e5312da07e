"""Online reinforcement learning over episodes, in one run or in stages.

Online reinforcement learning over episodes: play, judge, prefer what did better than its group, play again.

    report = train_online_grpo(base, items, make_environment, out / "model", OnlineGrpoSettings(seed=0))

Items are played in the world that `make_environment` opens, by the policy as it is at that moment, hundreds of
episodes at once. The loss is on the tokens that the policy drew; TRL's GRPOTrainer makes it (`trl_adapter`). The
log (see `logs`), one line a batch, and TRL's trainer state are written beside out_dir. One torch thread unless
$AGENT2_THREADS says more; a CUDA device is used if present.

The model is sent the whole history of an episode: context policies (`evaluation.context`) are for evaluation only.
A group whose episodes all win or all fail teaches nothing: the model must win some games some of the time. Does NOT
play and train at the same time, and does NOT run on several devices.

An agent's online learning in stages, each from the checkpoint of the one before, measured and submitted.

For programs in an arena workspace; the training itself is `online_grpo`'s.
"""

import copy
import dataclasses
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import PrinterCallback, TrainerCallback, TrainerControl, TrainerState, TrainingArguments, set_seed
from trl import GRPOConfig

from agent2.models.hf import HfSampler
from agent2.models.loading import context_length
from agent2.records import Environment, Item, derive_seed
from agent2.training.episode_rewards import Success, judge, won
from agent2.training.episodes import ChatTokens, Episode, PlayLimits, Start, play_episodes
from agent2.training.online_settings import OnlineGrpoSettings, require_sense
from agent2.training.participant import tell
from agent2.training.reference import to_batch, token_logprobs
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
    use_threads,
)
from agent2.training.trl_adapter import ROWS_PER_PASS, Batch, OnlineTrainer
from agent2.training.visible import VisibleTask, show_line

_log = logging.getLogger(__name__)

MakeEnvironment = Callable[[], Environment]
RECENT = 5
"""Batches whose mean success `stop_at_success` looks at."""


@dataclass(frozen=True, slots=True)
class OnlineGrpoHooks:
    """What a caller wants to know or to decide while training goes."""

    on_log: OnLog | None = None
    on_checkpoint: OnCheckpoint | None = None
    """Told after how many batches which folder was saved; training waits until it returns."""
    stop: Callable[[LogLine], str | None] | None = None
    """Asked after each line of the log; a sentence ends training, and the report holds it."""
    success: Success = won
    """An episode to its success, 0 to 1; None leaves it out."""
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
    usable chat template, SamplerFailed when the policy's logits are not numbers any more.
    """
    started = time.monotonic()
    hooks = hooks or OnlineGrpoHooks()
    stopper = Stopper(settings, hooks.stop, started)
    hooks = replace(hooks, callbacks=(stopper, *hooks.callbacks))
    trainer = make_trainer(model_path, items, make_environment, out_dir, settings, hooks)
    report = run_and_save(trainer, model_path, out_dir, started)
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
    require_sense(settings, len(items))
    use_threads()
    set_seed(settings.seed)
    model, tokenizer = load_for_training(model_path)
    player = _Player(model, tokenizer, items, make_environment, settings, hooks.success)
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


class _Player:
    """Plays batches with the policy as it is."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        items: Sequence[Item],
        make_environment: MakeEnvironment,
        settings: OnlineGrpoSettings,
        success: Success,
    ) -> None:
        self._items, self._make_environment = items, make_environment
        self._settings, self._success = settings, success
        self._tokenizer = tokenizer
        self._chat = ChatTokens(tokenizer)
        context = context_length(model.config.get_text_config(decoder=True))
        self._limits = PlayLimits(settings.max_turns, settings.max_tokens, settings.temperature, context)
        self._initial = copy.deepcopy(model).eval() if settings.kl_episodes else None
        self._sampler: HfSampler | None = None
        self._n_batches = 0

    def play(self, item_numbers: Sequence[int], trainer: Any) -> Batch:
        """Play and judge one batch."""
        settings = self._settings
        if self._sampler is None:  # the trainer has put the model on its device by now
            self._sampler = HfSampler.from_model(trainer.model, self._tokenizer, max_batch=settings.in_flight)
        self._sampler.forget()
        starts = [self._start(position, number) for position, number in enumerate(item_numbers)]
        self._n_batches += 1
        played = play_episodes(
            starts, self._sampler, self._chat, self._make_environment, self._limits, settings.in_flight
        )
        measures = {"environment_s": played.environment_s, "generation_s": played.generation_s}
        if self._initial is not None:
            kl = divergence(
                self._initial.to(trainer.model.device), played.episodes[:: self._stride], settings.temperature
            )
            measures |= {"kl_initial": kl} if settings.kl_weight else {"kl_initial": kl, "kl": kl}
        return Batch(played.episodes, judge(played.episodes, settings, self._success), measures)

    @property
    def _stride(self) -> int:
        return math.ceil(self._settings.episodes_per_batch / self._settings.kl_episodes)

    def _start(self, position: int, number: int) -> Start:
        """Members of a group share the world's seed, not the draws."""
        group = position // self._settings.generations
        names = (self._settings.seed, self._n_batches)
        return Start(self._items[number], derive_seed("world", *names, group), derive_seed("draws", *names, position))


@torch.no_grad()
def divergence(reference: Any, episodes: Sequence[Episode], temperature: float) -> float:
    """Divergence of the policy that drew the episodes from a reference model, nats a drawn token.

    Estimate: mean of exp(d) - d - 1 with d = log p_reference - log p_policy (Schulman 2020, "k3": never negative).
    """
    total, n_tokens = 0.0, 0
    ordered = sorted((e for e in episodes if any(e.is_drawn)), key=lambda episode: episode.n_tokens)
    for start in range(0, len(ordered), ROWS_PER_PASS):
        some = ordered[start : start + ROWS_PER_PASS]
        batch = to_batch(
            [[*e.prompt_ids, *e.completion_ids] for e in some],
            [[False] * len(e.prompt_ids) + e.is_drawn for e in some],
            [[0.0] * len(e.prompt_ids) + e.logprobs for e in some],
            pad=0,
        ).to(reference.device)
        gap = (token_logprobs(reference, batch, temperature) - batch.old_logprobs_NT)[batch.is_learned_NT].double()
        total += float((gap.exp() - gap - 1).sum())
        n_tokens += len(gap)
    return total / n_tokens if n_tokens else float("nan")


class Stopper(TrainerCallback):  # type: ignore[misc]
    """Ends training when time is up, when success is high enough, or when the caller says so."""

    def __init__(
        self, settings: OnlineGrpoSettings, stop: Callable[[LogLine], str | None] | None, started: float
    ) -> None:
        self.reason = ""
        """Why training ended early; empty: it did not."""
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
        """Look at a line of the log."""
        if not logs or "success" not in logs or self.reason:
            return
        self._successes.append(float(logs["success"]))
        self.reason = self._why(logs, state.global_step) or ""
        if self.reason:
            control.should_training_stop = True
            _log.info("training ends at update %d: %s", state.global_step, self.reason)

    def _why(self, logs: Mapping[str, Any], step: int) -> str | None:
        seconds = time.monotonic() - self._started
        recent = self._successes[-RECENT:]
        if self._settings.max_seconds is not None and seconds > self._settings.max_seconds:
            return f"{seconds:.0f} s are more than max_seconds {self._settings.max_seconds:g}"
        target = self._settings.stop_at_success
        if target is not None and len(recent) == RECENT and sum(recent) / RECENT >= target:
            return f"success of the last {RECENT} batches is {sum(recent) / RECENT:.3f}, at least {target:g}"
        line: LogLine = {name: float(value) for name, value in logs.items() if isinstance(value, int | float)}
        return self._stop({**line, "step": step}) if self._stop is not None else None


def _row(number: int, item: Item) -> dict[str, Any]:
    """TRL passes prompts only to the rollout function: the number of the item travels in the message."""
    return {"prompt": [{"role": "user", "content": item.prompt, "item": str(number)}]}


def _arguments(settings: OnlineGrpoSettings, out_dir: Path) -> GRPOConfig:
    n_updates = settings.updates_per_batch
    return GRPOConfig(
        output_dir=str(out_dir),
        max_steps=settings.batches * n_updates,
        per_device_train_batch_size=settings.episodes_per_batch // n_updates,
        steps_per_generation=n_updates,
        gradient_accumulation_steps=1,
        num_generations=settings.generations,
        max_completion_length=settings.max_turns * settings.max_tokens,
        temperature=settings.temperature,
        learning_rate=settings.learning_rate,
        lr_scheduler_type="constant_with_warmup" if settings.warmup_updates else "constant",
        warmup_steps=settings.warmup_updates,
        beta=settings.kl_weight,
        sync_ref_model=settings.refresh_reference_every is not None,
        ref_model_mixup_alpha=1.0,
        ref_model_sync_steps=(settings.refresh_reference_every or 1) * n_updates,
        loss_type="grpo" if settings.normalise == "sequence" else "dapo",
        scale_rewards="none",
        epsilon=settings.clip.below,
        epsilon_high=settings.clip.above,
        adam_beta2=0.98,
        weight_decay=0.0,
        logging_steps=n_updates,
        seed=settings.seed,
        bf16=False,
        activation_checkpointing=False,
        use_cpu=not torch.cuda.is_available(),
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )


@dataclass(frozen=True, slots=True)
class OnlineStage:
    """One run of `train_online_grpo`."""

    name: str
    """Also that of its folder among the agent's outputs."""
    settings: OnlineGrpoSettings
    """Turns, tokens and seconds are replaced by those of the assignment and the clock."""
    until: float
    """No new batch is begun after this share of the assignment's wall clock."""


Stop = Callable[[LogLine], str | None]
"""As `OnlineGrpoHooks.stop`."""


def learn_in_stages(
    task: VisibleTask,
    checkpoint: Path,
    stages: Sequence[OnlineStage],
    started: float,
    make_watch: Callable[[], Stop],
) -> Path:
    """Play and learn stage by stage, with a submission after each; the last good checkpoint.

    started: `time.monotonic()` of the agent's start. make_watch: looks after one stage; what it stops is not
    submitted, and the next stage goes on from the checkpoint before.
    """
    me = task.me
    for stage in stages:
        watch = _Watch(make_watch())
        settings = dataclasses.replace(
            stage.settings,
            prompts_per_batch=min(stage.settings.prompts_per_batch, len(task.train)),
            batches=max(1, round(me.effort * stage.settings.batches)),
            max_turns=me.max_turns,
            max_tokens=me.sampling.max_tokens,
            max_seconds=max(1.0, stage.until * me.wall_clock_s - (time.monotonic() - started)),
        )
        out = me.output / stage.name / "model"
        hooks = OnlineGrpoHooks(show_line, stop=watch, success=task.success)
        report = train_online_grpo(checkpoint, task.train, task.world, out, settings, hooks)
        tell(f"{stage.name}: {report.steps} updates in {report.seconds:.0f} s {report.stopped}")
        if watch.reason is not None:
            tell(f"{stage.name}: thrown away; going on from {checkpoint}")
            continue
        checkpoint = report.checkpoint
        task.check_and_submit(checkpoint, f"grpo, {stage.name}, {report.steps} updates")
    return checkpoint


class _Watch:
    """Remembers why it stopped a run."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop
        self.reason: str | None = None

    def __call__(self, line: LogLine) -> str | None:
        self.reason = self._stop(line)
        return self.reason
