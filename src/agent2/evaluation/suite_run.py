"""Plays a checkpoint and its control group on a suite.

The checkpoint is played first, benchmark by benchmark in the order of prerequisites: where it falls short of one, the
benchmarks that depend on it are skipped on both sides. Then the baseline is played on the same items. One model is in
memory at a time. A run that was killed resumes from its cards, and its report is the same as that of an uninterrupted
one (for a sampler whose answers do not depend on the batch); a finished evaluation is not played again; a folder of
another evaluation is left alone; two processes never write one folder.

Does NOT read the outcome: `analysis.outcome` does, from the cards.
"""

import json
import time
from collections.abc import Mapping
from pathlib import Path

from agent2.contract.measures import primary_score
from agent2.contract.suite import unmet_prerequisite
from agent2.evaluation.parts import PartPlayer, part_player
from agent2.evaluation.preference_judging import judge_preferences
from agent2.evaluation.rewarding import add_rewards
from agent2.evaluation.runner import software_lock
from agent2.evaluation.side_play import LazySampler, SuiteProgress, lazy_sampler, play_side
from agent2.evaluation.step_judging import judge_steps_of_suite
from agent2.evaluation.stored_suite import write_suite
from agent2.evaluation.suite_folder import (
    BASELINE,
    CHECKPOINT,
    LOCK_FILE,
    PAYLOADS_FILE,
    PLACES_FILE,
    REFERENCES_FILE,
    SIDES,
    card_path,
    owned_folder,
)
from agent2.evaluation.suite_plan import BenchmarkPlan, SuitePlan, SuiteRequest, plan_suite
from agent2.files import write_json
from agent2.models.sources import CheckpointSource
from agent2.records import HIDDEN_SPLITS, JsonValue, data_place

MAX_FIELD, MOST_FIELDS = 120, 16
"""Characters of a payload's field that is kept for lists of items, and fields of one item."""


def run_suite(request: SuiteRequest, on_progress: SuiteProgress | None = None) -> SuitePlan:
    """Play what is not played yet; the cards are under `request.out` when this returns.

    Raises ConfigError for a request that cannot be played (see `plan_suite`) or a folder of something
    else, CheckpointError for a checkpoint that cannot be loaded, SamplerFailed when a model is lost in the middle: what
    was played is kept, call again.
    """
    plan = plan_suite(request)
    progress = on_progress or _quiet
    with owned_folder(request.out, plan.identity):
        write_suite(request.suite, request.out)
        # References, places and payloads of hidden items stay out of the folder, which is shown and passed on.
        if request.played_split not in HIDDEN_SPLITS:
            write_json(request.out / REFERENCES_FILE, _references(plan))
            if any((places := _places(plan)).values()):
                write_json(request.out / PLACES_FILE, places)
            if any((payloads := _payloads(plan)).values()):
                write_json(request.out / PAYLOADS_FILE, payloads)
        started = time.time()
        opened: dict[str, JsonValue] = {}
        with part_player(request.parts, request.suite, request.role, request.out) as player:
            skipped = _play_checkpoint(request, plan, progress, opened, player)
            _play_baseline(request, plan, skipped, progress, opened, player)
        benchmarks = {plan.entry.name: plan for plan in plan.benchmarks if plan.entry.name not in skipped}
        if request.reward is not None:
            split = request.played_split.value
            cards = [card_path(request.out, side, name, split) for side in SIDES for name in benchmarks]
            add_rewards(cards, request.reward, progress)
        entries = {name: benchmark.entry for name, benchmark in benchmarks.items()}
        stepped = {
            name: entry
            for name, entry in entries.items()
            if entry.step_judge is not None and entry.step_judge.is_asked_in(request.role)
        }
        compared = {
            name: entry
            for name, entry in entries.items()
            if entry.pair_judge is not None and entry.pair_judge.is_asked_in(request.role)
        }
        judge_steps_of_suite(request.out, request.played_split.value, request.suite, stepped, progress)
        judge_preferences(
            request.out,
            request.played_split.value,
            compared,
            {
                name: {item.id: item for item in benchmark.sides[CHECKPOINT].items}
                for name, benchmark in benchmarks.items()
            },
            progress,
        )
        write_json(request.out / LOCK_FILE, _lock(request, opened, started))
    return plan


def _play_checkpoint(
    request: SuiteRequest,
    plan: SuitePlan,
    progress: SuiteProgress,
    opened: dict[str, JsonValue],
    player: PartPlayer | None,
) -> set[str]:
    """Play the checkpoint's side; returns the benchmarks that were skipped for a prerequisite."""
    scores: dict[str, float | None] = {}
    skipped = set()
    with lazy_sampler(request.checkpoint, opened, CHECKPOINT, player) as sampler:
        for benchmark in plan.benchmarks:
            if unmet_prerequisite(benchmark.entry, scores) is not None:
                skipped.add(benchmark.entry.name)
                continue
            card = _play(request, CHECKPOINT, benchmark, sampler, progress, opened)
            scores[benchmark.entry.name] = primary_score(request.suite, benchmark.entry.name, card)
    return skipped


def _play_baseline(
    request: SuiteRequest,
    plan: SuitePlan,
    skipped: set[str],
    progress: SuiteProgress,
    opened: dict[str, JsonValue],
    player: PartPlayer | None,
) -> None:
    with lazy_sampler(request.baseline, opened, BASELINE, player) as sampler:
        for benchmark in plan.benchmarks:
            if benchmark.entry.name not in skipped:
                _play(request, BASELINE, benchmark, sampler, progress, opened)


def _play(
    request: SuiteRequest,
    side: str,
    benchmark: BenchmarkPlan,
    sampler: LazySampler,
    progress: SuiteProgress,
    opened: dict[str, JsonValue],
) -> Path:
    plan = benchmark.sides[side]
    card = card_path(request.out, side, benchmark.entry.name, plan.split.value)
    message = f"{plan.checkpoint_name} ({side}) on {benchmark.entry.name}"
    if play_side(plan, sampler, card, message, progress, uses_kept=request.uses_kept):
        opened.setdefault(side, {"reused_from_earlier_evaluations": True})
    return card


def _references(plan: SuitePlan) -> dict[str, dict[str, str]]:
    """Benchmark -> item -> reference answer, of the items that have one."""
    return {
        benchmark.entry.name: {
            item.id: item.reference for item in benchmark.sides[CHECKPOINT].items if item.reference is not None
        }
        for benchmark in plan.benchmarks
    }


def _places(plan: SuitePlan) -> dict[str, dict[str, str]]:
    """Benchmark -> item -> file and row, of the items that come from data files."""
    return {
        benchmark.entry.name: {
            item.id: place for item in benchmark.sides[CHECKPOINT].items if (place := data_place(item))
        }
        for benchmark in plan.benchmarks
    }


def _payloads(plan: SuitePlan) -> dict[str, dict[str, dict[str, str]]]:
    """Benchmark -> item -> field -> text: what is short in the items' payloads, such as a subject or a level."""
    return {
        benchmark.entry.name: {
            item.id: fields for item in benchmark.sides[CHECKPOINT].items if (fields := short_fields(item.payload))
        }
        for benchmark in plan.benchmarks
    }


def short_fields(payload: Mapping[str, JsonValue]) -> dict[str, str]:
    """The fields that fit into a column of a table: numbers, truth values and texts of one short line."""
    fields: dict[str, str] = {}
    for name, value in payload.items():
        text = value if isinstance(value, str) else json.dumps(value) if isinstance(value, int | float) else ""
        if text and len(text) <= MAX_FIELD and "\n" not in text and len(fields) < MOST_FIELDS:
            fields[name] = text
    return fields


def _lock(request: SuiteRequest, opened: Mapping[str, JsonValue], started: float) -> dict[str, JsonValue]:
    """What this session ran on; a side that was finished before has no sampler here, but in its cards."""
    return {
        "software": software_lock(),
        "suite": request.suite.id,
        "suite_digest": request.suite.digest,
        "checkpoints": {side: _identity(source) for side, source in request.sides.items()},
        "samplers": dict(opened),
        "seed": request.seed,
        "started_at": started,
        "finished_at": time.time(),
    }


def _identity(source: CheckpointSource) -> dict[str, JsonValue]:
    identity: dict[str, JsonValue] = {"spec": source.spec, "digest": source.digest}
    if source.merges is not None:
        identity |= {
            "adapter_digest": source.merges.adapter.content_digest,
            "base_digest": source.merges.base.content_digest,
        }
    return identity


def _quiet(message: str, done: int | None = None, total: int | None = None) -> None:
    """Ignore progress: the default when no callback is given."""
