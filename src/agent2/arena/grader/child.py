"""The process that evaluates one checkpoint: `python -m agent2.arena.grader.child`.

Reads an `EvaluationJob` (JSON) on standard input, writes the card, prints an `EvaluationOutcome` (JSON) on
standard output; whatever libraries print goes to standard error. Runs in a sandbox (see `evaluator`).

Of a submission it uses the tensors and nothing else: config, tokenizer, chat template and generation
settings are the base model's, also where an engine plays: a server on the loopback of this process's
sandbox, from the engine's own Python environment, that is given the same folder. It has no access to the
installation secret; hidden items come with the job.
"""

import logging
from pathlib import Path

import torch

from agent2.arena.grader.job import LATER, EvaluationJob, EvaluationOutcome, answer_job, outcome_of
from agent2.benchmarks import load_benchmark
from agent2.cards.card import CardSummary
from agent2.engines.environments import shown_engine
from agent2.errors import Agent2Error, EndpointFailed, Fault
from agent2.evaluation.plan import EvaluationPlan
from agent2.evaluation.runner import evaluate, play_card
from agent2.foreign_files import last_lines
from agent2.models.adapters import as_played
from agent2.models.checkpoint import INDEX, CheckpointInfo, inspect_checkpoint
from agent2.models.hf import HfSampler
from agent2.models.loading import require_finite
from agent2.models.sources import LoadSettings, serve_folder
from agent2.records import Sampler

logger = logging.getLogger(__name__)
logging.getLogger("httpx").setLevel(logging.WARNING)  # else a line for each request to an engine

ENGINE_LOGS = "engine-logs"
"""Folder in the scratch folder."""
MAX_ENGINE_WORDS = 64_000
"""Bytes of what one run of an engine printed that are kept where it failed."""


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
        for path in sorted((job.scratch / ENGINE_LOGS).glob("*.log")):  # the scratch folder is removed
            logger.error("engine %s printed:\n%s", job.machine.engine, "\n".join(last_lines(path, MAX_ENGINE_WORDS)))
        fault = getattr(error, "fault", Fault.INFRASTRUCTURE)
        if fault is Fault.SUBMITTER:
            return EvaluationOutcome(fault=fault, reason=str(error))
        # an engine's words may repeat what it was asked: they stay in the log
        cause = f"engine {job.machine.engine} ended" if isinstance(error, EndpointFailed) else error
        reason = f"the grader failed ({cause}); the checkpoint is not to blame"
        is_resumable = isinstance(error, EndpointFailed)
        return EvaluationOutcome(fault=fault, reason=reason, advice=LATER, is_resumable=is_resumable)
    return outcome_of(summary, info.weights_digest, job.max_missing)


def _play(job: EvaluationJob, info: CheckpointInfo, base: CheckpointInfo) -> CardSummary:
    plan = EvaluationPlan(
        benchmark=load_benchmark(job.benchmark),
        split=job.split,
        items=job.items,
        checkpoint_name=job.name,
        checkpoint_digest=info.weights_digest,
        chat_template_digest=base.chat_template_digest,
        dtype=job.machine.precision,
        seed=job.seed,
        attempts=job.attempts,
    )
    folder = job.scratch / "play"
    _assemble(folder, info, base)
    sampler = _open(job, folder, base)
    try:
        return (play_card if job.plays_only else evaluate)(plan, sampler, job.card)
    finally:
        sampler.close()


def _open(job: EvaluationJob, folder: Path, base: CheckpointInfo) -> Sampler:
    """What plays the folder: this process, or an engine that it starts."""
    machine, engine = job.machine, job.machine.served_by
    if engine is None:
        return HfSampler(folder, machine.max_batch, machine.dtype, machine.device)
    assert job.engine_folder is not None
    capacity = min(machine.max_batch, engine.capacity)
    settings = LoadSettings(dtype=machine.dtype, device=machine.device, max_in_flight=capacity)
    ready = shown_engine(engine, job.engine_folder)
    return serve_folder(engine, ready, folder, base, settings, logs=job.scratch / ENGINE_LOGS)


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
