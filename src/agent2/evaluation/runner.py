"""Evaluates one checkpoint on a plan and leaves a card.

Promises: every planned attempt is on the card exactly once; an interrupted evaluation resumes where its
card ended and draws what it would have drawn, since each attempt's seed comes from (plan seed, item,
attempt) alone; a finished card is returned as it is, and a card of another evaluation is never touched.

The card's lock says what the evaluation ran on: versions of code and libraries, and the hardware. Does NOT cover what
the sampler knows better (model, dtype, device, GPU): that is `Sampler.describe()`.
"""

import functools
import os
import platform
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path

from agent2.cards.card import CardHeader, CardSummary
from agent2.cards.folder import is_finished, load_card
from agent2.cards.reader import read_header, read_summary
from agent2.cards.writer import require_same_evaluation
from agent2.errors import ConfigError, Fault, SamplerFailed
from agent2.evaluation.engine import Attempt, PlaySettings, play_rollouts
from agent2.evaluation.plan import EvaluationPlan
from agent2.evaluation.scoring import (
    PlayedItem,
    Progress,
    ScoringResources,
    open_card,
    require_scorer,
    score_card,
    score_played,
    score_without_scorer,
    unless_all_are_lost,
)
from agent2.records import (
    PENDING,
    Benchmark,
    Item,
    JsonValue,
    Sampler,
    ScoredRollout,
    Scorer,
    ScoringMode,
    derive_seed,
    work_of,
)
from agent2.scorers.hidden import HiddenJudge

DISTRIBUTIONS = ("agent2-rl-bench", "numpy", "scipy", "msgspec", "torch", "transformers", "trl")
"""Installed packages whose versions the lock names."""
GIVE_UP_AFTER = 50
"""Rollouts in a row lost to the infrastructure: a model or endpoint that is gone is an error, not a card of faults."""
JUDGE_DRAW = "judge_draw"
"""Key of a card's lock: which judge of the installation gave the verdicts, where a trial drew its own."""
UNSCORED = "pending"
"""Stands for the scorer in the protocol of a played card."""


@functools.cache
def software_lock() -> dict[str, JsonValue]:
    """Versions of the libraries that a score can depend on, interpreter, processor; read once a process."""
    return {
        "python": platform.python_version(),
        "libraries": {name: version for name in DISTRIBUTIONS if (version := _version(name)) is not None},
        "hardware": {
            "machine": platform.machine(),
            "processor": _processor(),
            "cores": os.cpu_count(),
        },
    }


def _version(distribution: str) -> str | None:
    """None: not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def evaluate(
    plan: EvaluationPlan,
    sampler: Sampler,
    card_path: Path,
    on_progress: Progress | None = None,
    give_up_after: int | None = None,
    resources: ScoringResources | None = None,
) -> CardSummary:
    """Play the plan, score it, write the card, return its summary.

    A scorer that is not inline judges once everything is played; until its card is finished, the rollouts are on a
    card beside it (`played_beside`), so that no model has to play them again.

    give_up_after: so many rollouts in a row lost to the infrastructure, or all of this session's, end the
    evaluation without being put on the card, so that they are played when it is resumed; None: lost ones are
    put on the card as missing, however many. resources: of scorers that run programs outside this process.
    Raises ConfigError for a plan without items, with an item twice or without attempts; CardError if the
    card cannot be written or belongs to another evaluation; SamplerFailed when giving up; what `scoring.score_card`
    raises for a scorer that is not inline. After an error the card stays open: call again.
    """
    _require_playable(plan)
    scorer = plan.benchmark.scorer()
    if work_of(scorer).mode is ScoringMode.INLINE:
        # An inline scorer judges while the model plays, straight onto the final card.
        header = _header(plan, {"sampler": sampler.describe(), "max_in_flight": sampler.capacity})
        return _play_on(plan, sampler, card_path, header, scorer, on_progress, give_up_after)
    played_card = played_beside(card_path)
    if (summary := finished_summary(plan, card_path)) is not None:
        # Left by a kill between finishing the scored card and removing the played one.
        shutil.rmtree(played_card, ignore_errors=True)
        return summary
    require_scorer(scorer, resources)
    play_card(plan, sampler, played_card, on_progress, give_up_after)
    return score_beside(plan.benchmark, plan.items, card_path, resources=resources, on_progress=on_progress)


def play_card(
    plan: EvaluationPlan,
    sampler: Sampler,
    card_path: Path,
    on_progress: Progress | None = None,
    give_up_after: int | None = None,
) -> CardSummary:
    """Play the plan and write a card whose verdicts are pending. Raises as `evaluate` does for playing."""
    _require_playable(plan)
    header = _header(plan, {"sampler": sampler.describe(), "max_in_flight": sampler.capacity})
    header = replace(header, protocol=replace(header.protocol, scorer=UNSCORED))
    return _play_on(plan, sampler, card_path, header, None, on_progress, give_up_after)


def score_beside(
    benchmark: Benchmark,
    items: Sequence[Item],
    card_path: Path,
    *,
    resources: ScoringResources | None = None,
    on_progress: Progress | None = None,
) -> CardSummary:
    """Score the played card beside a card with the benchmark's own scorer, then remove the played one.

    Verdicts that the played card has already, of another judge, do not count.

    Raises as `scoring.score_card` does.
    """
    played_card, scorer = played_beside(card_path), benchmark.scorer()
    header = read_header(played_card)
    header = judged_by(header, scorer)
    by_id = {item.id: item for item in items}
    summary = score_card(played_card, card_path, header, by_id, scorer, resources=resources, on_progress=on_progress)
    shutil.rmtree(played_card)
    return summary


def judged_by(header: CardHeader, scorer: Scorer) -> CardHeader:
    """The header of a card with the verdicts of a scorer; of a judge that a trial drew, with its draw."""
    protocol = replace(header.protocol, scorer=f"{scorer.name}-v{scorer.version}")
    lock = {key: fact for key, fact in header.lock.items() if key != JUDGE_DRAW}
    if lock != header.lock:
        protocol = replace(protocol, judge_digest="")  # of the judge that gave the verdicts before
    if isinstance(scorer, HiddenJudge) and scorer.draw:
        protocol, lock = replace(protocol, judge_digest=scorer.judge_digest), {**lock, JUDGE_DRAW: scorer.draw}
    return replace(header, protocol=protocol, lock=lock)


def played_beside(card_path: Path) -> Path:
    """The card that holds the rollouts of a card until they are scored."""
    return card_path.with_name(f".{card_path.name}.played")


def _play_on(
    plan: EvaluationPlan,
    sampler: Sampler,
    card_path: Path,
    header: CardHeader,
    scorer: Scorer | None,
    on_progress: Progress | None,
    give_up_after: int | None,
) -> CardSummary:
    """Play what the card lacks and put it there; scorer: None leaves the verdicts pending."""
    writer, done = open_card(card_path, header)
    if writer is None:
        return read_summary(card_path)
    protocol = header.protocol
    with writer:
        rollouts = play_rollouts(
            _missing_attempts(plan, protocol.attempts, done),
            sampler,
            plan.benchmark.environment,
            PlaySettings(
                protocol.sampling,
                protocol.max_turns,
                retries=protocol.retries,
                max_wall_time_s=protocol.max_wall_time_s,
                context=protocol.context,
                thinking=protocol.thinking,
                max_episode_tokens=plan.limits.max_episode_tokens,
            ),
        )
        records = score_played(rollouts, scorer) if scorer is not None else _pending(rollouts)
        if give_up_after is not None:
            records = unless_all_are_lost(
                records, give_up_after, lambda record: record.rollout.fault is Fault.INFRASTRUCTURE, _sampler_failed
            )
        for record in records:
            writer.append(record)
            if on_progress is not None:
                on_progress(writer.n_rollouts, header.planned_rollouts or 0)
        return writer.close()


def _pending(rollouts: Iterable[PlayedItem]) -> Iterator[ScoredRollout]:
    for _, rollout in rollouts:
        yield ScoredRollout(rollout, score_without_scorer(rollout) or PENDING)


def _sampler_failed(lost: Sequence[ScoredRollout]) -> SamplerFailed:
    return SamplerFailed(
        f"{len(lost)} rollouts in a row were lost, the last one because: {lost[-1].rollout.reason}; they are not on "
        "the card: fix the cause and run the same command again"
    )


def finished_summary(plan: EvaluationPlan, card_path: Path) -> CardSummary | None:
    """The summary of the plan's card if it is finished, without opening a sampler; None: there is work left.

    Raises CardError for a finished card of another evaluation.
    """
    _require_playable(plan)
    if not is_finished(card_path):
        return None
    require_same_evaluation(card_path, load_card(card_path).header, _header(plan, {}))
    return read_summary(card_path)


def _require_playable(plan: EvaluationPlan) -> None:
    where = f"evaluation of {plan.checkpoint_name} on {plan.benchmark.name}/{plan.split.value}"
    if not plan.items:
        raise ConfigError(f"{where}: there are no items; ask the benchmark for at least one")
    n_distinct = len({item.id for item in plan.items})
    if n_distinct != len(plan.items):
        raise ConfigError(
            f"{where}: {len(plan.items)} items have only {n_distinct} ids; leave out those that appear twice"
        )
    if plan.attempts is not None and plan.attempts < 1:
        raise ConfigError(f"{where}: attempts={plan.attempts}; ask for at least 1")


TOOL_ERRORS_IN_COST = "tool_errors_in_cost"
"""Key in the lock of a card whose world has tools: tokens, seconds and turns hold those of failed calls, too."""


def planned_header(plan: EvaluationPlan) -> CardHeader:
    """The header of a plan's card, without what only the opened sampler knows."""
    return _header(plan, {})


def _header(plan: EvaluationPlan, sampler_lock: dict[str, JsonValue]) -> CardHeader:
    protocol = plan.protocol()
    has_tools = bool(protocol.tools or getattr(plan.benchmark, "tool_protocol", {}))
    costs: dict[str, JsonValue] = {TOOL_ERRORS_IN_COST: True} if has_tools else {}
    return CardHeader(
        checkpoint_name=plan.checkpoint_name,
        checkpoint_digest=plan.checkpoint_digest,
        protocol=protocol,
        reporting=plan.reporting,
        lock={**software_lock(), **costs, **plan.lock, **sampler_lock},
        created_at=time.time(),
        seed=plan.seed,
        planned_rollouts=len(plan.items) * protocol.attempts,
    )


def _missing_attempts(plan: EvaluationPlan, n_attempts: int, done: set[tuple[str, int]]) -> Iterator[Attempt]:
    # First attempts of all items first: a card that is cut short covers every item before any has a second attempt.
    for attempt in range(n_attempts):
        for item in plan.items:
            if (item.id, attempt) not in done:
                yield Attempt(item, attempt, derive_seed(plan.seed, item.id, attempt))
