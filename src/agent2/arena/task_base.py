"""What the base model of a task scores, and how far it is from itself: the numbers that a gain is held against.

Plays the base model on the private items as a trial does, several sampling seeds an item; takes the card that a trial
has left in the cache where there is one. Makes nothing public: two numbers leave, and no item.
"""

import tempfile
import time
from pathlib import Path

import torch

from agent2 import installation
from agent2.arena.base_models import ensure_base_model
from agent2.arena.scoring import NOISE_REPLICATES, Exam, card_key, fetch_cached, log_task_access, measure_noise
from agent2.arena.task_check import TaskFinding
from agent2.arena.tasks import TaskSpec
from agent2.cards.reader import read_summary
from agent2.errors import NotEnoughData
from agent2.evaluation.runner import EvaluationPlan, evaluate
from agent2.evaluation.scoring import Progress
from agent2.models.checkpoint import CheckpointInfo, inspect_checkpoint, require_template
from agent2.models.hf import HfSampler
from agent2.records import Benchmark, Split
from agent2.stats.comparisons import ITEMS

HEADROOM = 0.10
"""At least so far below 1 the base model has to be, at the upper end of its interval."""
FEWEST_SOLVED = 0.01
"""Where fewer attempts succeed, hardly a group of attempts has different rewards: nothing for RL to learn from."""
WIDEST_BAND = 0.10
"""A task on which one checkpoint is farther than this from itself tells no gain apart."""


def check_base(
    task: TaskSpec, benchmark: Benchmark, model: str | None = None, on_progress: Progress | None = None
) -> list[TaskFinding]:
    """The base model's score on the private items, and the noise band.

    model: another one than the task's. Raises ConfigError for a model that is not there; a tiny one is built first.
    """
    began = time.monotonic()
    exam = Exam(task, benchmark, installation.secret())
    log_task_access(exam, "task base score")
    base = inspect_checkpoint(ensure_base_model(model or task.base_model))
    require_template(base)
    with tempfile.TemporaryDirectory(prefix="agent2-task-check-") as folder:
        card = Path(folder) / "noise"
        where = "from the card of a trial"
        if not fetch_cached(card_key(exam, base, Split.TEST_PRIVATE, NOISE_REPLICATES), card):
            _evaluate(exam, base, card, on_progress)
            where = "played now"
        summary = read_summary(card)
        if summary.value is None or summary.low is None or summary.high is None:
            raise NotEnoughData(f"{task.name}: no private item could be scored ({summary.n_missing} missing)")
        band = measure_noise(card)
    spent = time.monotonic() - began
    score = (
        f"{summary.value:.3f} [{summary.low:.3f}, {summary.high:.3f}] over {summary.n_items} private items, "
        f"{NOISE_REPLICATES} seeds, {summary.n_missing} missing, {where}"
    )
    is_below = summary.high <= 1.0 - HEADROOM and summary.n_missing == 0
    no_signal = no_band = ""
    if summary.value < FEWEST_SOLVED:
        no_signal = (
            f"the base model solves {100 * summary.value:.2g}% of its attempts: online RL has no reward to learn "
            "from; warm it up (SFT), take easier items or a stronger base model"
        )
    if band.over == ITEMS and benchmark.sampling.temperature > 0:
        no_band = (
            "no attempt differed between sampling seeds, so the band is over items alone: an item that is always or "
            "never solved gives RL no signal"
        )
    return [
        TaskFinding("headroom: the base model is below the ceiling", is_below, score, spent, no_signal),
        TaskFinding(
            "noise band of the base model",
            band.half_width <= WIDEST_BAND,
            f"±{100 * band.half_width:.1f} points (95%, over {band.over}), from {NOISE_REPLICATES} draws an item",
            warning=no_band,
        ),
    ]


def _evaluate(exam: Exam, base: CheckpointInfo, card: Path, on_progress: Progress | None) -> None:
    """Play the base model on the private items as a grader does."""
    torch.set_num_threads(1)  # more are slower on shared cores
    plan = EvaluationPlan(
        benchmark=exam.benchmark,
        split=Split.TEST_PRIVATE,
        items=tuple(exam.items(Split.TEST_PRIVATE)),
        checkpoint_name="base",
        checkpoint_digest=base.weights_digest,
        chat_template_digest=base.chat_template_digest,
        dtype="float32",
        attempts=NOISE_REPLICATES,
    )
    sampler = HfSampler(base.path, dtype="float32")
    try:
        evaluate(plan, sampler, card, on_progress)
    finally:
        sampler.close()
