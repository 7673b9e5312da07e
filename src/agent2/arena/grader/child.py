"""The process that evaluates one checkpoint: `python -m agent2.arena.grader.child`.

Reads an `EvaluationJob` (JSON) on standard input, writes the card, prints an `EvaluationOutcome` (JSON) on
standard output; whatever libraries print goes to standard error. Runs in a sandbox (see `evaluator`).

Of a submission it uses the tensors and nothing else: config, tokenizer, chat template and generation
settings are the base model's. It has no access to the installation secret; hidden items come with the job.
"""

import logging
from pathlib import Path

import torch

from agent2.arena.grader.job import LATER, EvaluationJob, EvaluationOutcome, answer_job, outcome_of
from agent2.benchmarks import load_benchmark
from agent2.cards.card import CardSummary
from agent2.errors import Agent2Error, Fault
from agent2.evaluation.plan import EvaluationPlan
from agent2.evaluation.runner import evaluate, play_card
from agent2.models.adapters import as_played
from agent2.models.checkpoint import INDEX, CheckpointInfo, inspect_checkpoint
from agent2.models.hf import HfSampler
from agent2.models.loading import require_finite

logger = logging.getLogger(__name__)


def main() -> None:
    """Run the job on standard input."""
    answer_job(run)


def run(job: EvaluationJob) -> EvaluationOutcome:
    """Play the job. A refusal or a fault that has a name is an outcome; a bug is raised."""
    torch.set_num_threads(job.threads)
    try:
        base = inspect_checkpoint(job.base)
        info = as_played(inspect_checkpoint(job.checkpoint), base, job.scratch / "merged")
        require_finite(info)
        summary = _play(job, info, base)
        if job.plays_only:
            return EvaluationOutcome(is_played=True, weights_digest=info.weights_digest)
    except Agent2Error as error:
        logger.exception("%s cannot be scored", job.name)
        fault = getattr(error, "fault", Fault.INFRASTRUCTURE)
        if fault is Fault.SUBMITTER:
            return EvaluationOutcome(fault=fault, reason=str(error))
        reason = f"the grader failed ({error}); the checkpoint is not to blame"
        return EvaluationOutcome(fault=fault, reason=reason, advice=LATER)
    return outcome_of(summary, info.weights_digest, job.max_missing)


def _play(job: EvaluationJob, info: CheckpointInfo, base: CheckpointInfo) -> CardSummary:
    plan = EvaluationPlan(
        benchmark=load_benchmark(job.benchmark),
        split=job.split,
        items=job.items,
        checkpoint_name=job.name,
        checkpoint_digest=info.weights_digest,
        chat_template_digest=base.chat_template_digest,
        dtype=job.machine.dtype,
        seed=job.seed,
        attempts=job.attempts,
    )
    folder = job.scratch / "play"
    _assemble(folder, info, base)
    machine = job.machine
    sampler = HfSampler(folder, machine.max_batch, machine.dtype, machine.device)
    try:
        return (play_card if job.plays_only else evaluate)(plan, sampler, job.card)
    finally:
        sampler.close()


def _assemble(folder: Path, info: CheckpointInfo, base: CheckpointInfo) -> None:
    """A folder with the weights of one checkpoint and everything else of the base model, by links."""
    folder.mkdir()
    for source, wants_weights in ((info, True), (base, False)):
        for name in source.files:
            is_weights = name.endswith(".safetensors") or name == INDEX
            if is_weights == wants_weights:
                # files of the base other than weights: config, tokenizer and template of a submission are not used
                (folder / name).symlink_to((source.path / name).resolve())


if __name__ == "__main__":
    main()
