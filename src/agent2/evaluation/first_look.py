"""A first look: models played on benchmarks, their scores, and no decision.

For one model without a baseline, and for the first N items of a benchmark. Items are the first by a public hash of
their ids, so that every look at N of them is at the same ones and the order of a file does not matter; the card says
how many of how many they are, under `lock.first_look`. Or all published items (`is_whole`), whatever split they are in
here: for a number beside published ones. Promises: everything that can be wrong is found before a model
is loaded; a look that was interrupted is resumed by the same call; a folder of something else is left alone.

Does NOT play private items but those of a whole published set (which is logged): every look at them makes them worth
less, and here nothing is decided for it. Does NOT skip benchmarks whose prerequisites are not met.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path

from agent2.contract.suite import EvaluationRole, Suite
from agent2.errors import ConfigError
from agent2.evaluation.first_items import FIRST_LOOK, first_items
from agent2.evaluation.parts import part_player
from agent2.evaluation.plan import EvaluationPlan
from agent2.evaluation.side_play import LazySampler, SuiteProgress, play_side
from agent2.evaluation.stored_answers import PLAYED_ITEMS, WHOLE_SET, named_set
from agent2.evaluation.suite_folder import CHECKPOINT, LOOK_FILE
from agent2.evaluation.suite_plan import SuiteRequest, plan_suite
from agent2.executors.jobs import PartSettings
from agent2.files import write_json
from agent2.foreign_files import read_limited
from agent2.models.sources import CheckpointSource
from agent2.records import JsonValue, Split, digest_of


@dataclass(frozen=True, slots=True)
class LookPart:
    """One suite, or one benchmark, and the models that are played on it."""

    suite: Suite
    models: tuple[CheckpointSource, ...]
    """With different names; the same models in the same order in every part of a look."""


MAX_NAME = 100
"""Characters of a model's or suite's name in the name of a folder."""


@dataclass(frozen=True, slots=True)
class LookRequest:
    """What is looked at."""

    parts: tuple[LookPart, ...]
    role: EvaluationRole = EvaluationRole.DEV
    split: Split | None = None
    seed: int = 0
    limit: int | None = None
    """Most items of each benchmark; None: all that the suite plays."""
    uses_kept: bool = False
    is_whole: bool = False
    """All published items of each benchmark in place of a split's."""
    in_parts: PartSettings | None = None
    """None: everything is played in this process."""

    @property
    def digest(self) -> str:
        """Of all that identifies the look."""
        whole = ["whole"] if self.is_whole else []  # looks at splits keep their digests
        sides = [[(model.name, model.digest) for model in part.models] for part in self.parts]
        suites = [part.suite.digest for part in self.parts]
        return digest_of([suites, sides, self.role, self.split, self.seed, self.limit, *whole])


@dataclass(frozen=True, slots=True)
class LookCard:
    """One model on one benchmark."""

    model: str
    benchmark: str
    card: Path
    n_planned: int
    """Items that are played."""
    n_available: int
    """Items that an evaluation plays."""


@dataclass(frozen=True, slots=True)
class _Job:
    part: LookPart
    source: CheckpointSource
    plan: EvaluationPlan
    card: LookCard


def play_first_look(request: LookRequest, out: Path, on_progress: SuiteProgress) -> list[LookCard]:
    """Play what is not played yet, and return the finished cards, below `out`.

    Raises ConfigError for a request that cannot be played, private items, and a folder of something else; what
    `suite_run.run_suite` raises for models.
    """
    jobs = _jobs(request, out)
    _take_folder(request, out)
    sampler: LazySampler | None = None
    context: int | None = None
    try:
        for job in sorted(jobs, key=lambda job: [model.name for model in job.part.models].index(job.source.name)):
            context_length = job.part.suite.protocol.context_length
            if sampler is None or sampler.source.digest != job.source.digest or context != context_length:
                _close(sampler)
                sampler, context = LazySampler(job.source), context_length
            message = f"{job.source.name} on {job.card.benchmark}"
            with part_player(request.in_parts, job.part.suite, request.role, out, request.limit) as sampler.player:
                play_side(job.plan, sampler, job.card.card, message, on_progress, uses_kept=request.uses_kept)
    finally:
        _close(sampler)
    return [job.card for job in jobs]


def _close(sampler: LazySampler | None) -> None:
    if sampler is not None and sampler.sampler is not None:
        sampler.sampler.close()


def _jobs(request: LookRequest, out: Path) -> list[_Job]:
    jobs = []
    for part in request.parts:
        for source in part.models:
            suite_request = SuiteRequest(
                part.suite, source, source, out, role=request.role, split=request.split, seed=request.seed
            )
            if suite_request.played_split is Split.TEST_PRIVATE:
                raise ConfigError(
                    "a first look decides nothing, and each look at private items makes them worth less; give "
                    "--baseline and no --limit, or another role"
                )
            for benchmark in plan_suite(suite_request).benchmarks:
                plan = benchmark.sides[CHECKPOINT]
                lock: dict[str, JsonValue] = {}
                if request.is_whole:
                    whole = named_set(plan.benchmark, None)
                    plan = replace(plan, split=whole.split, items=[named.item for named in whole.items])
                    lock[PLAYED_ITEMS] = WHOLE_SET
                n_available = len(plan.items)
                items = first_items(plan.items, request.limit)
                if len(items) < n_available:
                    lock[FIRST_LOOK] = {"limit": len(items), "of": n_available}
                folder = out / "cards" / _file_name(part.suite.id) / _file_name(source.name)
                card = LookCard(
                    source.name,
                    benchmark.entry.name,
                    folder / f"{benchmark.entry.name}-{'whole' if request.is_whole else plan.split.value}",
                    len(items),
                    n_available,
                )
                jobs.append(_Job(part, source, replace(plan, items=items, lock=lock), card))
    return jobs


def _file_name(name: str) -> str:
    """A name as a part of a path; another one for each name."""
    safe = "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in name)
    if safe == name and not safe.startswith(".") and len(safe) <= MAX_NAME:
        return safe
    return f"{safe[-MAX_NAME:].lstrip('.')}-{digest_of(name)[:8]}"


def _take_folder(request: LookRequest, out: Path) -> None:
    """Write which look a folder is of. Raises ConfigError for a folder of something else."""
    file = out / LOOK_FILE
    if out.exists() and not out.is_dir():
        raise ConfigError(f"{out}: is not a directory; give another --out")
    if file.exists():
        try:
            digest = json.loads(read_limited(file, follow=True))["digest"]
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise ConfigError(f"{file}: is damaged ({error}); give another --out") from error
        if digest != request.digest:
            raise ConfigError(f"{out}: contains another first look; give another --out")
        return
    if out.exists() and any(out.iterdir()):
        raise ConfigError(
            f"{out}: holds other files (such as {min(path.name for path in out.iterdir())!r}); give another --out"
        )
    out.mkdir(parents=True, exist_ok=True)
    models = [model.name for model in request.parts[0].models]
    suites = [part.suite.id for part in request.parts]
    write_json(file, {"digest": request.digest, "suites": suites, "models": models, "limit": request.limit})
