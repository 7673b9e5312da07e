"""Held-out tasks: what a trial's final checkpoint gained or lost on tasks that were not trained.

After the result of a trial is known, base model and final checkpoint play the private items of each task that its task
holds out, once, by that task's own protocol (sampling, turns, scorer) and under the containment of the trial. The agent
is told of none of them.

A task that cannot be loaded or played leaves a reason in the trial's log and never costs the trial its own result. Does
NOT measure a noise band on them: a change counts by its interval and p-value.
"""

import threading
import time
from dataclasses import dataclass
from pathlib import Path

from agent2 import installation
from agent2.arena.base_cards import fill_base_card
from agent2.arena.evidence import SubmissionRecord
from agent2.arena.grader.evaluator import (
    CheckpointEvaluator,
    ChildEvaluator,
    EvaluationFailed,
    EvaluationRequest,
    EvaluatorProgram,
    GraderSettings,
    score_of,
)
from agent2.arena.scoring import LoadedTask, card_key, card_score, log_task_access, paired_gain
from agent2.arena.spec import Deadline, TrialConfig
from agent2.arena.tasks import load_task
from agent2.arena.trial_folder import HELD_OUT_SCORED, TrialPaths, read_events
from agent2.benchmarks import load_benchmark
from agent2.benchmarks.trial_judge import with_drawn_judge
from agent2.errors import ConfigError, NotEnoughData
from agent2.installation import ARENA_ROLE
from agent2.models.checkpoint import CheckpointInfo
from agent2.records import JsonValue, Split, digest_of
from agent2.sandbox.backends import Sandbox
from agent2.sandbox.fork_server import ForkServer


@dataclass(frozen=True, slots=True)
class HeldOutGrading:
    """What the evaluations of a trial share."""

    config: TrialConfig
    paths: TrialPaths
    base: CheckpointInfo
    sandbox: Sandbox
    program: EvaluatorProgram
    server: ForkServer | None
    secret: bytes


def scored_names(paths: TrialPaths) -> set[str]:
    """The held-out tasks that a trial has a result for, as its task names them."""
    return {str(row["asked"]) for row in read_events(paths.trial_log).rows if row.get("event") == HELD_OUT_SCORED}


def score_held_out(name: str, final: SubmissionRecord, grading: HeldOutGrading) -> dict[str, JsonValue]:
    """The fields of the event: scores of base and final on a held-out task and their paired difference, or a problem.

    Raises ConfigError if the use of private items cannot be logged, OSError if the machine fails.
    """
    started = time.monotonic()
    fields: dict[str, JsonValue] = {"asked": name, "task": name, "submission": final.number}
    try:
        spec = load_task(name)
        fields["task"] = spec.name
        benchmark = with_drawn_judge(load_benchmark(spec.benchmark), grading.config.judge_draw)
        task = LoadedTask(spec, benchmark, grading.secret)
        fields["benchmark"] = f"{benchmark.name}-v{benchmark.version}"
        fields["items"] = digest_of(task.items(Split.TEST_PRIVATE))
    except ConfigError as error:
        return fields | {"problem": str(error)}
    log_task_access(task, ARENA_ROLE, grading.config.trial_id, grading.base.weights_digest, str(grading.paths.root))
    cards = {side: grading.paths.held_out_card(spec.name, side) for side in ("base", "final")}
    try:
        _play(task, cards["base"], cards["final"], final, grading)
        scores: dict[str, JsonValue] = {side: card_score(card) for side, card in cards.items()}
        fields |= scores | {"change": paired_gain(cards["base"], cards["final"])}
    except (EvaluationFailed, NotEnoughData) as error:
        fields["problem"] = str(error)
    return fields | {"seconds": time.monotonic() - started}


def _play(
    task: LoadedTask, base_card: Path, final_card: Path, final: SubmissionRecord, grading: HeldOutGrading
) -> None:
    """Fill both cards. Raises EvaluationFailed."""
    config, paths = grading.config, grading.paths
    settings = GraderSettings(
        paths=paths,
        base=grading.base.path,
        benchmark=task.spec.benchmark,
        items={Split.TEST_PRIVATE: task.items(Split.TEST_PRIVATE)},
        deadline=Deadline(time.time(), 0.0),
        threads=config.threads,
        machine=config.scoring,
    )
    hidden = (installation.home() / "secret", paths.grader_db, paths.events, paths.llm)
    child = ChildEvaluator(
        config.evaluation_timeout_s, grading.sandbox, hidden, grading.program, task.benchmark, grading.server
    )
    evaluator = CheckpointEvaluator(settings, child, threading.Event())

    def play(checkpoint: Path, card: Path, name: str) -> None:
        outcome = evaluator.evaluate(EvaluationRequest(checkpoint, Split.TEST_PRIVATE, card, name))
        if outcome.fault is not None:
            raise EvaluationFailed(f"{name} on {task.spec.name}: {outcome.reason}", outcome.fault)
        score_of(outcome)

    key = card_key(task, grading.base, Split.TEST_PRIVATE, task.benchmark.attempts, config.scoring)
    fill_base_card(base_card, task, Split.TEST_PRIVATE, key, lambda: play(grading.base.path, base_card, "base"))
    play(paths.snapshot(final.number), final_card, f"submission-{final.number}")
