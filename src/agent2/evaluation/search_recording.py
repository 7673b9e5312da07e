"""Records the searches that a benchmark is played with, so that it is played without a network.

Promises: each question is searched for with its own words, and played by a model if one is given, whose searches are
recorded, too; a question that has a usable recording is left as it is, so that an interrupted recording is continued;
one that the back end failed has no file, and is reported with the reason. A back end that fails `GIVE_UP_AFTER`
questions in a row is given up. Does NOT judge, and stores nothing but queries and pages. A checkpoint that searches for
something else later searches among the recorded pages of the question (`RecordedSearch`).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from agent2.benchmarks.home import ProvidesRecordings
from agent2.environments.search.world import ANSWER, UNKNOWN
from agent2.environments.tools import write_brackets
from agent2.evaluation.engine import Attempt, PlaySettings, play_by, play_rollouts
from agent2.models.sources import CheckpointSource
from agent2.records import Item, Message, Rollout, RolloutStatus

GIVE_UP_AFTER = 10
"""Questions in a row that the search back end failed."""


@dataclass(frozen=True, slots=True)
class SearchesRecorded:
    """How many questions were recorded, and which failed."""

    n_recorded: int
    n_before: int
    """Questions that had a recording."""
    failed: dict[str, str] = field(default_factory=dict)
    """Id of a question -> why it has no recording; those that were no longer tried are among them."""


def record_questions(
    benchmark: ProvidesRecordings, source: CheckpointSource | None, on_progress: Callable[[int, int], None]
) -> SearchesRecorded:
    """Ask the live back end of `search.yaml` about every question that was not recorded yet.

    Raises ConfigError where `search.yaml` names no back end, and what opening the checkpoint raises.
    """
    items, n_questions = benchmark.to_record()
    failed: dict[str, str] = {}
    n_failed_in_a_row = 0
    for number, (item, reason) in enumerate(_record_each(benchmark, items, source), 1):
        n_failed_in_a_row = 0 if reason is None else n_failed_in_a_row + 1
        if reason is not None:
            failed[item.id] = reason
            # Half a recording would be taken for a whole one when the recording is continued.
            benchmark.recording_of(item).unlink(missing_ok=True)
        on_progress(number, len(items))
        if n_failed_in_a_row == GIVE_UP_AFTER:
            failed |= {
                untried.id: f"not tried: {GIVE_UP_AFTER} questions in a row failed" for untried in items[number:]
            }
            break
    return SearchesRecorded(len(items) - len(failed), n_questions - len(items), failed)


def _record_each(
    benchmark: ProvidesRecordings, items: list[Item], source: CheckpointSource | None
) -> Iterator[tuple[Item, str | None]]:
    """Each question in order, and why it could not be recorded."""

    def search_question(attempt: Attempt, world: object, chat: Sequence[Message]) -> str:
        if len(chat) > 1:
            return write_brackets(ANSWER, UNKNOWN)
        return benchmark.static_answers([attempt.item], 0)[0]

    sampler = None if source is None else source.open()
    settings = PlaySettings(benchmark.sampling, benchmark.max_turns)
    try:
        for item in items:
            attempts = [Attempt(item, 0, 0)]
            reason = _problem(next(play_by(search_question, attempts, benchmark.environment, 2))[1])
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
