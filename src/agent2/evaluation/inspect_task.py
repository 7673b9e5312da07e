"""Our benchmarks as a task of Inspect: items, world and scorer are ours, the model and the log are Inspect's.

    inspect eval agent2/benchmark -T name=mini_math --model openai/gpt-4o --limit 50

An episode is played by the same loop, with the same turn limit and scorer, as an evaluation (`stepwise`). Promises:
train and dev items alone become samples, since Inspect's log has prompt and target of each; a verdict that is missing
is unscored (NaN, which Inspect leaves out of its metrics and counts), never 0; a world that breaks is an error of the
sample. Needs the extra `inspect`: importing this module raises ModuleNotFoundError without it.

Does NOT offer functions natively: calls are written in the message, as the world's opening says. Does NOT cover
benchmarks with pictures, and those that compare likelihoods.
"""

import math
from collections.abc import Sequence
from typing import Any

from anyio.to_thread import run_sync
from inspect_ai import Epochs, Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageUser,
    GenerateConfig,
)
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
from inspect_ai.solver import Generate, Solver, TaskState, solver

from agent2.benchmarks import load_benchmark
from agent2.benchmarks.home import ProvidesCount
from agent2.errors import ConfigError
from agent2.evaluation.check import split_items
from agent2.evaluation.stepwise import StepwiseEpisode, visible_split
from agent2.records import Benchmark, Item, Message, ScoredRollout, derive_seed

VERDICT = "agent2_verdict"
"""Key of a sample's metadata: value, reason, fault, views and labels of our score."""


@task  # type: ignore[untyped-decorator]
def benchmark(name: str, split: str = "dev", n_items: int | None = None) -> Task:
    """A benchmark as a task.

    name: as `agent2 eval` takes it. split: `dev` or `train`. n_items: None: all, or 100 where items are generated
    without end. Raises ConfigError for an unknown name, a hidden split, and a benchmark that is not covered.
    """
    chosen_split = visible_split(split, "Inspect would log its items")
    source = load_benchmark(name)
    if getattr(source, "takes_images", False) or getattr(source, "compares_answers", False):
        raise ConfigError(
            f"{name}: has pictures or compares likelihoods, which no task of ours for Inspect covers; use agent2 eval"
        )
    items = split_items(source, chosen_split, None) if n_items is None else source.items(chosen_split, n_items, None)
    if not items:
        raise ConfigError(f"{name}: split {split!r} has no items; take another split")
    return Task(
        dataset=MemoryDataset([Sample(input=item.prompt, target=item.reference or "", id=item.id) for item in items]),
        solver=play_episode(source, items),
        scorer=our_verdict(),
        epochs=Epochs(source.attempts),
        config=GenerateConfig(
            temperature=source.sampling.temperature, top_p=source.sampling.top_p, max_tokens=source.sampling.max_tokens
        ),
        name=source.name,
        version=source.version,
        metadata={
            "split": split,
            "scorer": f"{source.scorer().name}-v{source.scorer().version}",
            "environment": source.environment_version(),
            "is_whole_split": n_items is None and isinstance(source, ProvidesCount),
        },
    )


@solver  # type: ignore[untyped-decorator]
def play_episode(source: Benchmark, items: Sequence[Item]) -> Solver:
    """Ask the model until our world ends the episode, and leave our verdict in the sample's metadata.

    Raises RuntimeError where the world breaks, which Inspect records as the sample's error.
    """
    by_id = {item.id: item for item in items}

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        item = by_id[str(state.sample_id)]
        episode = StepwiseEpisode(source, item, derive_seed(item.id, state.epoch))
        state.messages = []
        try:
            event = await run_sync(episode.next)
            while not isinstance(event, ScoredRollout | BaseException):
                state.messages.extend(map(_as_chat_message, event))
                state = await generate(state)
                event = await run_sync(episode.send, state.output.completion)
        finally:  # also where Inspect cancels the sample, or its model fails; after the end nobody reads this
            episode.abandon()
        if isinstance(event, BaseException):
            raise RuntimeError(f"the episode broke: {event!r}") from event
        score = event.score
        state.metadata[VERDICT] = {
            "value": score.value,
            "reason": score.reason,
            "fault": None if score.fault is None else score.fault.value,
            "views": dict(score.views),
            "labels": list(score.labels),
            "extracted": score.extracted,
        }
        return state

    return solve


def _as_chat_message(message: Message) -> ChatMessage:
    kinds: dict[str, Any] = {"system": ChatMessageSystem, "assistant": ChatMessageAssistant}
    return kinds.get(message.role, ChatMessageUser)(content=message.text)


@scorer(metrics=[mean(), stderr()])  # type: ignore[untyped-decorator]
def our_verdict() -> Scorer:
    """The verdict of the benchmark's own scorer, which the solver left; NaN: it is missing."""

    async def score(state: TaskState, target: Target) -> Score:
        verdict = state.metadata[VERDICT]
        value = math.nan if verdict["value"] is None else verdict["value"]
        beside = {key: verdict[key] for key in ("fault", "views", "labels")}
        return Score(value=value, answer=verdict["extracted"], explanation=verdict["reason"], metadata=beside)

    return score
