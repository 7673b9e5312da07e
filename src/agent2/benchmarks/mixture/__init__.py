"""Mixtures: items of several benchmarks of single questions, in fixed shares, each scored by its own benchmark.

The score is the mean over all items, so a weight is a share of items. An item's benchmark is its `task_type`, so
every report has the gain of each part beside the mean, and a task can set a bound for each (`TaskSpec.gates`): a mean
can rise while a part collapses. Does NOT mix episodes, and does NOT mix benchmarks that are sampled differently.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, reduce
from operator import or_

from agent2.benchmarks import load_benchmark
from agent2.benchmarks.home import Players, foreign_answers, reference_answer
from agent2.environments import QUESTION_WORLD, QuestionEnvironment
from agent2.errors import ConfigError, Fault
from agent2.records import (
    Benchmark,
    Environment,
    Item,
    Rollout,
    SamplingSettings,
    Score,
    Scorer,
    ScorerOutput,
    ScoringMode,
    ScoringWork,
    Split,
    declared_output,
    work_of,
)
from agent2.scorers.sandboxed import SandboxBatchScorer, SandboxRunner


class MixtureScorer:
    """Gives each rollout to the scorer of its item's benchmark."""

    name = "mixture"

    def __init__(self, parts: Mapping[str, Scorer]) -> None:
        """parts: by the `task_type` of their items; inline scorers, and scorers that run batches in a sandbox."""
        self._parts = parts
        self.version = "+".join(f"{part.name}-{part.version}" for part in parts.values())
        self.emits = reduce(or_, (declared_output(part) or ScorerOutput() for part in parts.values()))
        in_sandbox = [work for part in parts.values() if (work := work_of(part)).mode is ScoringMode.SANDBOX]
        self.work = ScoringWork(
            ScoringMode.SANDBOX,
            batch_size=min((work.batch_size for work in in_sandbox), default=1),
            concurrency=min((work.concurrency for work in in_sandbox), default=1),
        )

    def score(self, item: Item, rollout: Rollout) -> Score:
        """No verdict: some parts need a sandbox, which the scoring stage gives them."""
        return Score(None, "a mixture needs the scoring stage (evaluate, rescore)", Fault.JUDGE)

    def score_on(self, runner: SandboxRunner, item: Item, rollout: Rollout) -> Score:
        """The verdict on one rollout."""
        return self.score_batch_on(runner, [(item, rollout)])[0]

    def score_batch_on(self, runner: SandboxRunner, batch: Sequence[tuple[Item, Rollout]]) -> list[Score]:
        """A verdict on each rollout, in order. Raises SandboxError."""
        scores_by_position: dict[int, Score] = {}
        for name, part in self._parts.items():
            positions = [position for position, (item, _) in enumerate(batch) if item.payload.get("task_type") == name]
            members = [batch[position] for position in positions]
            if isinstance(part, SandboxBatchScorer):
                scores = part.score_batch_on(runner, members) if members else []
            else:
                scores = [part.score(item, rollout) for item, rollout in members]
            scores_by_position.update(zip(positions, scores, strict=True))
        no_part = Score(None, "the item's task_type names no part of this mixture", Fault.JUDGE)
        return [scores_by_position.get(position, no_part) for position in range(len(batch))]


class Mixture:
    """Items of several benchmarks in fixed shares."""

    version = "1.0"
    primary_metric = "mean_score"
    max_turns = 1
    attempts = 1

    def __init__(self, name: str, weights: Mapping[str, float]) -> None:
        """weights: benchmark -> share of items. Raises ConfigError for shares that are not positive."""
        if not weights or not all(weight > 0 for weight in weights.values()):
            raise ConfigError(f"mixture {name}: weights are {dict(weights)}; give each part a share above 0")
        self.name = name
        total = sum(weights.values())
        self.weights = {part: weight / total for part, weight in weights.items()}

    @cached_property
    def parts(self) -> Mapping[str, Benchmark]:
        """The benchmarks. Raises ConfigError for one of episodes, and for parts that are sampled differently."""
        parts = {name: load_benchmark(name) for name in self.weights}
        if any(part.max_turns != 1 or part.attempts != 1 for part in parts.values()):
            raise ConfigError(f"mixture {self.name}: only benchmarks of single answers, drawn once, can be mixed")
        if len({replace(part.sampling, max_tokens=1) for part in parts.values()}) > 1:
            raise ConfigError(f"mixture {self.name}: its parts are sampled at different temperatures or top_p")
        return parts

    @property
    def sampling(self) -> SamplingSettings:
        """The settings of the part with the longest answers."""
        return max((part.sampling for part in self.parts.values()), key=lambda sampling: sampling.max_tokens)

    def items(self, split: Split, n: int, secret: bytes | None) -> list[Item]:
        """The first n items; each prefix of the list has the shares, up to one item.

        Raises ConfigError without the secret for a hidden split, or if a part has fewer.
        """
        counts = dict.fromkeys(self.weights, 0)
        order = []
        for number in range(1, n + 1):
            # the part that is furthest behind its share
            name = max(counts, key=lambda part: number * self.weights[part] - counts[part])
            counts[name] += 1
            order.append(name)
        items_of_part = {
            name: iter(self.parts[name].items(split, count, secret)) for name, count in counts.items() if count
        }
        chosen = [(name, next(items_of_part[name])) for name in order]
        return [replace(item, payload={**item.payload, "task_type": name}) for name, item in chosen]

    def environment(self) -> Environment:
        """A fresh question."""
        return QuestionEnvironment()

    def environment_version(self) -> str:
        """Name and version of the world."""
        return QUESTION_WORLD

    def scorer(self) -> Scorer:
        """Scores each item by its part's scorer."""
        return MixtureScorer({name: part.scorer() for name, part in self.parts.items()})

    def players(self) -> Players:
        """Reference answers, and those of other items."""
        return Players(reference_answer, foreign_answers, floor_at_most=0.10, n_played=40)


class ArithmeticPyfunc(Mixture):
    """Sums and functions in equal shares."""

    def __init__(self) -> None:
        """As `Mixture` with its two parts."""
        super().__init__("arithmetic_pyfunc", {"arithmetic": 0.5, "pyfunc": 0.5})
