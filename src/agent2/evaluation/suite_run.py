"""Evaluates a checkpoint and its control group on a suite and leaves cards; the decision is read off them.

The checkpoint is played first, benchmark by benchmark in the order of prerequisites: where it falls short of one,
the benchmarks behind it are skipped on both sides, and said to be. Then the baseline is played on the same items.
One model is in memory at a time.

Promises: a run that was killed goes on where its cards stand, and its report is the same as that of a run that was
not (for a sampler whose answers do not depend on the batch); a finished evaluation is not played again; a folder
of another evaluation is left alone; two processes never write one folder.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from agent2.contract.measures import CardPaths, evidence_from_cards
from agent2.contract.metrics import metric_named
from agent2.contract.suite import Suite, shortfall
from agent2.evaluation.runner import EvaluationPlan, evaluate, finished_summary, software_lock
from agent2.evaluation.suite_plan import (
    BASELINE,
    CHECKPOINT,
    LOCK_FILE,
    REFERENCES_FILE,
    SUITE_FILE,
    BenchmarkPlan,
    SuitePlan,
    SuiteRequest,
    card_path,
    owned_folder,
    plan_suite,
)
from agent2.files import write_json
from agent2.models.sources import CheckpointSource
from agent2.records import HIDDEN_SPLITS, JsonValue, Sampler

GIVE_UP_AFTER = 50
"""Rollouts in a row lost to the infrastructure: a model or endpoint that is gone is an error, not a card of faults."""


class OnProgress(Protocol):
    """Told where an evaluation is."""

    def __call__(self, message: str, done: int | None = None, total: int | None = None) -> None:
        """The present phase; done and total in rollouts."""


def run_suite(request: SuiteRequest, on_progress: OnProgress | None = None) -> SuitePlan:
    """Play what is not played yet; the cards are under `request.out` when this returns.

    Raises ConfigError for a request that cannot be played as it stands (see `plan_suite`) or a folder of something
    else, CheckpointError for a checkpoint that cannot be loaded, SamplerFailed when one is gone in the middle: what
    was played is kept then, call again.
    """
    plan = plan_suite(request)
    progress = on_progress or _quiet
    with owned_folder(request.out, plan.identity):
        write_json(request.out / SUITE_FILE, request.suite.model_dump(mode="json"))
        if request.played_split not in HIDDEN_SPLITS:
            write_json(request.out / REFERENCES_FILE, _references(plan))
        started = time.time()
        opened: dict[str, JsonValue] = {}
        skipped = _play_checkpoint(request, plan, progress, opened)
        _play_baseline(request, plan, skipped, progress, opened)
        write_json(request.out / LOCK_FILE, _lock(request, opened, started))
    return plan


def _play_checkpoint(
    request: SuiteRequest, plan: SuitePlan, progress: OnProgress, opened: dict[str, JsonValue]
) -> set[str]:
    """Play the checkpoint's side; returns the benchmarks that were skipped for a prerequisite."""
    scores: dict[str, float | None] = {}
    skipped = set()
    with _lazy(request.checkpoint, opened, CHECKPOINT) as sampler:
        for benchmark in plan.benchmarks:
            if shortfall(benchmark.entry, scores) is not None:
                skipped.add(benchmark.entry.name)
                continue
            card = _play(request.out, CHECKPOINT, benchmark, sampler, progress)
            scores[benchmark.entry.name] = own_score(request.suite, benchmark.entry.name, card)
    return skipped


def _play_baseline(
    request: SuiteRequest, plan: SuitePlan, skipped: set[str], progress: OnProgress, opened: dict[str, JsonValue]
) -> None:
    with _lazy(request.baseline, opened, BASELINE) as sampler:
        for benchmark in plan.benchmarks:
            if benchmark.entry.name not in skipped:
                _play(request.out, BASELINE, benchmark, sampler, progress)


def _play(out: Path, side: str, benchmark: BenchmarkPlan, sampler: "_Lazy", progress: OnProgress) -> Path:
    plan = benchmark.sides[side]
    card = card_path(out, side, benchmark.entry.name, plan.split.value)
    message = f"{plan.checkpoint_name} ({side}) on {benchmark.entry.name}"
    if finished_summary(plan, card) is None:
        progress(message)
        evaluate(
            plan, sampler.get(), card, lambda done, total: progress(message, done, total), give_up_after=GIVE_UP_AFTER
        )
    else:
        n_rollouts = _n_rollouts(plan)
        progress(message, n_rollouts, n_rollouts)
    return card


def _references(plan: SuitePlan) -> dict[str, dict[str, str]]:
    """Benchmark -> item -> reference answer, of the items that have one."""
    return {
        benchmark.entry.name: {
            item.id: item.reference for item in benchmark.sides[CHECKPOINT].items if item.reference is not None
        }
        for benchmark in plan.benchmarks
    }


def own_score(suite: Suite, benchmark: str, card: Path) -> float | None:
    """The value of a benchmark's own metric on one card, 0 to 1; None: it could not be scored."""
    name = suite.benchmark(benchmark).metric
    spec = metric_named(suite.metrics, name)
    own = {benchmark: card}
    found = evidence_from_cards([spec], CardPaths(own, own)).metrics.get(spec.name)
    return found.new if found is not None else None


class _Lazy:
    """A sampler that is opened when it is first needed, so that a finished side loads no model."""

    def __init__(self, source: CheckpointSource) -> None:
        self._source = source
        self.sampler: Sampler | None = None

    def get(self) -> Sampler:
        if self.sampler is None:
            self.sampler = self._source.open()
        return self.sampler


@contextmanager
def _lazy(source: CheckpointSource, opened: dict[str, JsonValue], side: str) -> Iterator[_Lazy]:
    """A lazy sampler that is closed at the end; what it says of itself goes to `opened`."""
    lazy = _Lazy(source)
    try:
        yield lazy
    finally:
        if lazy.sampler is not None:
            opened[side] = lazy.sampler.describe()
            lazy.sampler.close()


def _n_rollouts(plan: EvaluationPlan) -> int:
    return len(plan.items) * plan.protocol().attempts


def _lock(request: SuiteRequest, opened: Mapping[str, JsonValue], started: float) -> dict[str, JsonValue]:
    """What this session ran on; a side that was finished before has no sampler here, its cards say."""
    return {
        "software": software_lock(),
        "suite": request.suite.id,
        "suite_digest": request.suite.digest,
        "checkpoints": {side: {"spec": source.spec, "digest": source.digest} for side, source in request.sides.items()},
        "samplers": dict(opened),
        "seed": request.seed,
        "started_at": started,
        "finished_at": time.time(),
    }


def _quiet(message: str, done: int | None = None, total: int | None = None) -> None:
    """Report progress to nobody: the default when no callback is given."""
