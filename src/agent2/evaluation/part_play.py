"""Plays one part of an evaluation, on the node where `evaluation.parts` started it."""

from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from agent2.cards.folder import is_finished
from agent2.errors import ConfigError
from agent2.evaluation.first_items import first_items
from agent2.evaluation.parts import PartRequest, is_inline, plan_digest
from agent2.evaluation.runner import GIVE_UP_AFTER, evaluate, play_card
from agent2.evaluation.suite_folder import CHECKPOINT
from agent2.evaluation.suite_plan import SuiteRequest, plan_suite
from agent2.foreign_files import read_limited
from agent2.models.sources import find_checkpoint


def play_part(file: Path) -> None:
    """Leave the finished card of one part.

    Raises ConfigError for a file that is no part, and where this installation would play something else; what
    `runner.evaluate` raises.
    """
    try:
        request = PartRequest.model_validate_json(read_limited(file))
    except (OSError, ValidationError) as error:
        raise ConfigError(f"{file}: is not a part of an evaluation; agent2 eval writes and plays them") from error
    if is_finished(request.card):
        return
    source = replace(find_checkpoint(request.checkpoint, request.settings), name=request.name)
    suite_request = SuiteRequest(
        request.suite, source, source, request.card, role=request.role, split=request.split, seed=request.seed
    )
    plans = {benchmark.entry.name: benchmark.sides[CHECKPOINT] for benchmark in plan_suite(suite_request).benchmarks}
    plan = plans[request.benchmark]
    plan = replace(plan, items=first_items(plan.items, request.limit))
    if plan_digest(plan) != request.plan_digest:
        raise ConfigError(
            f"{file}: this node would play other items, another protocol or another checkpoint than the driver; give "
            "it the same installation secret, benchmark files and checkpoint"
        )
    part = replace(plan, items=plan.items[request.number :: request.n_parts])
    sampler = source.open()
    try:
        if is_inline(plan):
            evaluate(part, sampler, request.card, give_up_after=GIVE_UP_AFTER)
        else:
            play_card(part, sampler, request.card, give_up_after=GIVE_UP_AFTER)
    finally:
        sampler.close()
