"""Our benchmarks as an environment of verifiers: items, world and scorer are ours, the trainer and its model are not.

    import verifiers
    environment = verifiers.load_environment("agent2.evaluation.verifiers_environment", name="mini_math")

An episode is played by the same loop, with the same turn limit and scorer, as an evaluation (`stepwise`); the reward is
the score. Promises: train and dev items alone become rows, since trainers see them; every rollout of an item begins in
the same state; a world that breaks and a verdict that is missing are errors of the rollout, never a reward of 0 without
one. Needs the package verifiers in a version with `MultiTurnEnv` (0.1.9 and 0.1.14 were tried, 0.4 has none): importing
this module raises ModuleNotFoundError without it, ConfigError for another version.

Does NOT offer functions natively: calls are written in the message, as the world's opening says. Does NOT cover
benchmarks with pictures, and those that compare likelihoods.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import verifiers
from datasets import Dataset

from agent2.benchmarks import load_benchmark
from agent2.errors import ConfigError
from agent2.evaluation.check import split_items
from agent2.evaluation.stepwise import EpisodeEvent, StepwiseEpisode, visible_split
from agent2.records import Benchmark, Item, Message, ScoredRollout, derive_seed

if not hasattr(verifiers, "MultiTurnEnv"):
    raise ConfigError(f"{__name__}: this version of verifiers has no MultiTurnEnv; install 0.1.9 to 0.1.14")
VERDICT = "agent2_verdict"
"""Key of a rollout's state: value, reason, views and labels of our score."""


def load_environment(
    name: str, split: str = "train", eval_split: str = "dev", n_items: int | None = None
) -> verifiers.MultiTurnEnv:
    """A benchmark as an environment.

    name: as `agent2 eval` takes it. split, eval_split: `train` or `dev`, for training and for evaluation. n_items: of
    each; None: all, or 100 where items are generated without end. Raises ConfigError for an unknown name, a hidden
    split, one without items, and a benchmark that is not covered.
    """
    source = load_benchmark(name)
    if getattr(source, "takes_images", False) or getattr(source, "compares_answers", False):
        raise ConfigError(
            f"{name}: has pictures or compares likelihoods, which no environment of verifiers covers; use agent2 eval"
        )
    items = {chosen: _items(source, name, chosen, n_items) for chosen in dict.fromkeys((split, eval_split))}
    return BenchmarkEnvironment(source, items[split], items[eval_split])


def _items(source: Benchmark, name: str, split: str, n_items: int | None) -> Sequence[Item]:
    chosen = visible_split(split, "a trainer would see its items")
    items = split_items(source, chosen, None) if n_items is None else source.items(chosen, n_items, None)
    if not items:
        raise ConfigError(f"{name}: split {split!r} has no items; take another split")
    return items


class BenchmarkEnvironment(verifiers.MultiTurnEnv):  # type: ignore[misc]
    """The environment of one benchmark."""

    def __init__(self, source: Benchmark, items: Sequence[Item], eval_items: Sequence[Item]) -> None:
        """items, eval_items: for training and for evaluation."""
        self._source = source
        self._items = {item.id: item for item in (*items, *eval_items)}
        self._episodes: dict[str, StepwiseEpisode] = {}
        """By the rollout's id."""
        sampling = {
            "temperature": source.sampling.temperature,
            "top_p": source.sampling.top_p,
            "max_tokens": source.sampling.max_tokens,
        }
        super().__init__(
            dataset=Dataset.from_list([self._row(item) for item in items]),
            eval_dataset=Dataset.from_list([self._row(item) for item in eval_items]),
            rubric=verifiers.Rubric(funcs=[benchmark_score], weights=[1.0]),
            sampling_args={key: value for key, value in sampling.items() if value is not None},
            message_type="chat",
        )

    def _row(self, item: Item) -> dict[str, Any]:
        opening = self._source.environment().reset(item, _seed(item))
        return {"prompt": _chat(opening), "answer": item.reference or "", "info": {"item_id": item.id}}

    async def setup_state(self, state: Any) -> Any:
        """Begin the episode."""
        item = self._items[state["info"]["item_id"]]
        episode = StepwiseEpisode(self._source, item, _seed(item))
        self._episodes[state["trajectory_id"]] = episode
        _require_playable(await asyncio.to_thread(episode.next))
        return state

    async def env_response(self, messages: Any, state: Any, **kwargs: Any) -> list[Any]:
        """What our world answers to the model's last message; the verdict in the state where the episode ends."""
        episode = self._episodes[state["trajectory_id"]]
        event = _require_playable(await asyncio.to_thread(episode.send, _text(messages[-1])))
        if not isinstance(event, ScoredRollout):
            return _answered(event)
        score = event.score
        state[VERDICT] = {
            "value": score.value,
            "reason": score.reason,
            "views": dict(score.views),
            "labels": list(score.labels),
        }
        state["final_env_response"] = []
        if score.value is None:
            raise verifiers.Error(f"the verdict is missing: {score.reason}")
        return []

    @verifiers.cleanup  # type: ignore[untyped-decorator]
    async def end_episode(self, state: Any) -> None:
        """Let go of an episode, also of one that the trainer cut off."""
        episode = self._episodes.pop(state["trajectory_id"], None)
        if episode is not None:
            episode.abandon()


async def benchmark_score(state: Any) -> float:
    """The verdict of the benchmark's own scorer; 0 where the rollout's error says why there is none."""
    value = state.get(VERDICT, {}).get("value")
    return 0.0 if value is None else float(value)


def _require_playable(event: EpisodeEvent) -> Sequence[Message] | ScoredRollout:
    """Raises an error that verifiers records on the rollout, where the world broke."""
    if isinstance(event, BaseException):
        raise verifiers.Error(f"the episode broke: {event!r}") from event
    return event


def _seed(item: Item) -> int:
    return derive_seed(item.id, 0)


def _chat(messages: Sequence[Message]) -> list[dict[str, str]]:
    return [{"role": message.role, "content": message.text} for message in messages]


def _answered(messages: Sequence[Message]) -> list[Any]:
    """What the world answers, as records where verifiers has them, which would else parse each message again."""
    kinds = {"system": "SystemMessage", "assistant": "AssistantMessage"}
    if not hasattr(verifiers, "UserMessage"):
        return _chat(messages)
    return [getattr(verifiers, kinds.get(message.role, "UserMessage"))(content=message.text) for message in messages]


def _text(message: Any) -> str:
    """The text of a message: a mapping in older versions, a record later; parts of other kinds are left out."""
    content = message.get("content") if isinstance(message, dict) else message.content
    if isinstance(content, str) or content is None:
        return content or ""
    parts = [part if isinstance(part, dict) else dict(part) for part in content]
    return "".join(str(part.get("text", "")) for part in parts if part.get("type") == "text")
