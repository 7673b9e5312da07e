"""One evaluation in parts: jobs of an executor play them side by side, and their rollouts are put together on one card.

Every n-th item is a part. What a part is, is in a file that a node reads; no item is in it: the node makes the plan
again, with its own installation secret, and plays only if protocol, items and checkpoint have the same digests as the
driver's. An attempt's seed depends on the plan's seed, the item and the attempt alone, so the card is that of one
process, for a sampler whose answers do not depend on the batch.

A part that is lost costs what was not on its card yet; a driver that was killed is resumed by the same command. A
scorer that is not inline judges once all parts are played, in the driver; so are lost rollouts of a finished card
played again there.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from secrets import token_hex

from agent2.cards.card import CardHeader
from agent2.cards.folder import OPEN_ROLLOUTS, card_exists, is_finished
from agent2.cards.reader import iter_rollouts, read_header
from agent2.cards.writer import require_same_evaluation
from agent2.config import StrictModel
from agent2.contract.suite import EvaluationRole, Suite
from agent2.errors import CardError, SamplerFailed
from agent2.evaluation.plan import EvaluationPlan
from agent2.evaluation.runner import (
    UNSCORED,
    planned_header,
    played_beside,
    score_beside,
)
from agent2.evaluation.scoring import Progress, open_card, require_scorer
from agent2.executors import LOCAL, open_executor
from agent2.executors.jobs import Executor, Job, PartSettings, run_jobs
from agent2.executors.node import needs_here
from agent2.files import write_json
from agent2.models.sources import CheckpointSource, LoadSettings, SourceKind
from agent2.pictures import copy_beside
from agent2.records import HIDDEN_SPLITS, ScoringMode, Split, digest_of, work_of

KEY_VARIABLE = "AGENT2_API_KEY"


class PartRequest(StrictModel):
    """One part, as a node reads it."""

    suite: Suite
    benchmark: str
    role: EvaluationRole
    split: Split
    seed: int
    limit: int | None
    """First items only; None: all."""
    checkpoint: str
    """As the user wrote it."""
    name: str
    settings: LoadSettings
    plan_digest: str
    """Of the whole plan: protocol with items, checkpoint, seed."""
    number: int
    n_parts: int
    card: Path


def plan_digest(plan: EvaluationPlan) -> str:
    """Of everything that makes two cards the same evaluation."""
    return digest_of(planned_header(plan).identity())


def is_inline(plan: EvaluationPlan) -> bool:
    """Whether rollouts are scored while they are played."""
    return work_of(plan.benchmark.scorer()).mode is ScoringMode.INLINE


@dataclass(slots=True)
class PartPlayer:
    """Plays plans of one evaluation in parts."""

    settings: PartSettings
    suite: Suite
    role: EvaluationRole
    executor: Executor
    limit: int | None = None
    is_checked: bool = False
    """Whether the nodes were compared with this process."""

    def describe(self) -> str:
        """Where the parts are played."""
        return f"{self.settings.n_parts} parts on {self.settings.executor.name}"

    def play(self, plan: EvaluationPlan, source: CheckpointSource, card: Path, on_progress: Progress) -> None:
        """Leave the finished card of a plan.

        Raises SamplerFailed if a part cannot be played, ConfigError for nodes that differ from this process, and what
        `scoring.score_card` raises for a scorer that is not inline. After an error call again.
        """
        scores_at_once = is_inline(plan)
        if not scores_at_once:
            require_scorer(plan.benchmark.scorer())
        target = card if scores_at_once else played_beside(card)
        folder = card.with_name(f".{card.name}.parts").resolve()
        if not is_finished(target):
            parts = self._play_parts(plan, source, folder, on_progress)
            _put_together(plan, parts, target)
        shutil.rmtree(folder, ignore_errors=True)
        if not scores_at_once:
            score_beside(plan.benchmark, plan.items, card, on_progress=on_progress)

    def _play_parts(
        self, plan: EvaluationPlan, source: CheckpointSource, folder: Path, on_progress: Progress
    ) -> list[Path]:
        """The finished cards of all parts."""
        n_parts = min(self.settings.n_parts, len(plan.items))
        folder.mkdir(parents=True, exist_ok=True)
        requests = [self._request(plan, source, folder / f"{n}-of-{n_parts}", n, n_parts) for n in range(n_parts)]
        jobs = [self._job(part) for part in requests]
        for number, part in enumerate(requests):
            _drop_other(part.card, _part_header(plan, number, n_parts))
        n_items = {job.name: len(plan.items[n::n_parts]) for n, job in enumerate(jobs)}
        total = len(plan.items) * plan.protocol().attempts
        n_played, failures = 0, []
        with self._checked(plan, source, folder, jobs):
            for end in run_jobs(self.executor, jobs):
                if end.fault is not None:
                    failures.append(end.reason)
                    continue
                n_played += n_items[end.name] * plan.protocol().attempts
                on_progress(n_played, total)
        if failures:
            raise SamplerFailed(
                f"{len(failures)} of {n_parts} parts could not be played: one {failures[0]}; the others are kept: fix "
                "the cause and run the same command again"
            )
        return [part.card for part in requests]

    def _request(
        self, plan: EvaluationPlan, source: CheckpointSource, stem: Path, number: int, n_parts: int
    ) -> PartRequest:
        request = PartRequest(
            suite=self.suite,
            benchmark=plan.benchmark.name,
            role=self.role,
            split=plan.split,
            seed=plan.seed,
            limit=self.limit,
            checkpoint=source.spec,
            name=source.name,
            settings=source.settings,
            plan_digest=plan_digest(plan),
            number=number,
            n_parts=n_parts,
            card=stem,
        )
        write_json(stem.with_name(f"{stem.name}.json"), request.model_dump(mode="json"))
        return request

    def _job(self, part: PartRequest) -> Job:
        return Job(
            name=f"{part.benchmark} {part.name} {part.card.name}",
            start=("part", str(part.card.with_name(f"{part.card.name}.json"))),
            folder=Path.cwd(),
            log=part.card.with_name(f"{part.card.name}.log"),
            lock=part.card / OPEN_ROLLOUTS,
            resources=self.settings.resources,
            needs_sandbox=False,
        )

    @contextmanager
    def _checked(self, plan: EvaluationPlan, source: CheckpointSource, folder: Path, jobs: list[Job]) -> Iterator[None]:
        """Have the nodes of a cluster compared with this process before the first part starts."""
        if self.settings.executor.name == LOCAL:
            yield
            return
        token, shared = token_hex(16), folder / f"driver-{os.getpid()}"
        shared.write_text(token)
        try:
            has_key = source.kind is SourceKind.SERVED and os.environ.get(KEY_VARIABLE)
            needs = needs_here(shared, token, sandbox=False, variables=(KEY_VARIABLE,) if has_key else ())
            if plan.split not in HIDDEN_SPLITS:
                needs = replace(needs, secret="")
            self.executor.require(jobs, needs)
            yield
        finally:
            shared.unlink(missing_ok=True)


def _part_header(plan: EvaluationPlan, number: int = 0, n_parts: int = 1) -> CardHeader:
    """The header of the card of one part, without what only the opened sampler knows."""
    header = planned_header(replace(plan, items=plan.items[number::n_parts]))
    return header if is_inline(plan) else replace(header, protocol=replace(header.protocol, scorer=UNSCORED))


def _drop_other(card: Path, header: CardHeader) -> None:
    """Remove what is no card of this part, as one that was played before the items or the seed changed."""
    with suppress(CardError):
        if not card_exists(card) or read_header(card).identity() == header.identity():
            return
    shutil.rmtree(card, ignore_errors=True)


def _put_together(plan: EvaluationPlan, parts: list[Path], target: Path) -> None:
    """Put the rollouts of all parts on one card and close it; a card that was begun gets what it lacks.

    Raises CardError for a part of another evaluation, or with rollouts of items that are not its own.
    """
    for number, part in enumerate(parts):
        require_same_evaluation(part, read_header(part), _part_header(plan, number, len(parts)))
        own_items = {item.id for item in plan.items[number :: len(parts)]}
        if any(record.rollout.item_id not in own_items for record in iter_rollouts(part)):
            raise CardError(f"{part}: contains rollouts of items that are not in this part; delete it, and repeat")
    header = replace(_part_header(plan), lock={**read_header(parts[0]).lock, **plan.lock})
    writer, on_card = open_card(target, header)
    if writer is None:
        return
    with writer:
        for part in parts:
            copy_beside(part, target)  # pictures of replies are on the machine that played the part
            for record in iter_rollouts(part):
                if (record.rollout.item_id, record.rollout.attempt) not in on_card:
                    writer.append(record)
        writer.close()


@contextmanager
def part_player(
    settings: PartSettings | None, suite: Suite, role: EvaluationRole, out: Path, limit: int | None = None
) -> Iterator[PartPlayer | None]:
    """A player of a suite's plans in parts, connected to its executor; None where they are played in this process.

    out: folder of the evaluation. limit: as of the look whose plans are played.
    """
    if settings is None:
        yield None
        return
    executor = open_executor(settings.executor, out.resolve() / "executor")
    try:
        yield PartPlayer(settings, suite, role, executor, limit)
    finally:
        executor.close()
