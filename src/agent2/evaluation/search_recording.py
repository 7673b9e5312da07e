"""Recording a live search back end for every question of a benchmark, so that it is played without a network.

Promises: each question is searched for with its own words, and played by a model if one is given, whose searches are
then on file, too; a question that has a usable recording is left as it is, so that an interrupted recording is
continued; one that the back end failed has no file, and is named with the reason. A back end that fails
`GIVE_UP_AFTER` questions in a row is given up.

Does NOT judge, and stores nothing but queries and pages. A checkpoint that asks something else later meets a search
among the recorded pages of the question (`RecordedSearch`).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from agent2.benchmarks.home import BringsRecordings
from agent2.environments.search.world import ANSWER, UNKNOWN
from agent2.environments.tools.calls import write_brackets
from agent2.evaluation.engine import Attempt, PlaySettings, play_by, play_rollouts
from agent2.models.sources import CheckpointSource
from agent2.records import Item, Message, Rollout, RolloutStatus

GIVE_UP_AFTER = 10


@dataclass(frozen=True, slots=True)
class SearchesRecorded:
    """What a recording did."""

    n_recorded: int
    n_before: int
    """Questions that had a recording."""
    failed: dict[str, str] = field(default_factory=dict)
    """Id of a question -> why there is none; those that were not tried any more are among them."""


def record_questions(
    benchmark: BringsRecordings, source: CheckpointSource | None, on_progress: Callable[[int, int], None]
) -> SearchesRecorded:
    """Ask the live back end of `search.yaml` about every question that was not recorded yet.

    Raises ConfigError where none is named, and what opening the checkpoint raises.
    """
    items, n_all = benchmark.to_record()
    failed: dict[str, str] = {}
    in_a_row = 0
    for number, (item, reason) in enumerate(_recorded(benchmark, items, source), 1):
        in_a_row = 0 if reason is None else in_a_row + 1
        if reason is not None:
            failed[item.id] = reason
            benchmark.recording_of(item).unlink(missing_ok=True)
        on_progress(number, len(items))
        if in_a_row == GIVE_UP_AFTER:
            failed |= {one.id: f"not tried: {GIVE_UP_AFTER} questions in a row failed" for one in items[number:]}
            break
    return SearchesRecorded(len(items) - len(failed), n_all - len(items), failed)


def _recorded(
    benchmark: BringsRecordings, items: list[Item], source: CheckpointSource | None
) -> Iterator[tuple[Item, str | None]]:
    """Each question in order, and why it could not be recorded."""

    def own_words(attempt: Attempt, world: object, chat: Sequence[Message]) -> str:
        if len(chat) > 1:
            return write_brackets(ANSWER, UNKNOWN)
        return benchmark.static_answers([attempt.item], 0)[0]

    sampler = None if source is None else source.open()
    settings = PlaySettings(benchmark.sampling, benchmark.max_turns)
    try:
        for item in items:
            attempts = [Attempt(item, 0, 0)]
            reason = _problem(next(play_by(own_words, attempts, benchmark.environment, 2))[1])
            if reason is None and sampler is not None:
                reason = _problem(next(play_rollouts(attempts, sampler, benchmark.environment, settings))[1])
            if reason is None and not benchmark.is_recorded(item):
                reason = "the back end finds no page for it"
            yield item, reason
    finally:
        if sampler is not None:
            sampler.close()


def _problem(rollout: Rollout) -> str | None:
    return rollout.reason if rollout.status is RolloutStatus.FAILED else None
