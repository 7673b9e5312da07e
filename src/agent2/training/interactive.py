"""What an agent's program does where items are episodes: take the rows back to items, play a checkpoint on some.

Beside `participant`, for assignments whose items are played in a world of several turns. Played as the grader plays:
the benchmark's own world and scorer, the assignment's sampling and turn cap. Does NOT write a card, and does NOT know
hidden items.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch

from agent2.benchmarks import load_benchmark
from agent2.errors import ConfigError
from agent2.evaluation.engine import Attempt, PlaySettings, play
from agent2.models.hf import HfSampler
from agent2.records import Environment, Item, JsonValue, Scorer, derive_seed
from agent2.training.logs import LogLine
from agent2.training.participant import Participant, tell


@runtime_checkable
class PlayedBenchmark(Protocol):
    """A benchmark whose visible rows can be played."""

    def environment(self) -> Environment:
        """A fresh world."""

    def scorer(self) -> Scorer:
        """Of what was played."""

    def item_of(self, row: Mapping[str, JsonValue]) -> Item:
        """The item of a visible row."""


@dataclass(frozen=True, slots=True)
class PlayedScore:
    """How a checkpoint did on items that were played once each."""

    success: float
    """Mean score, 0 to 1, of the episodes that have one."""
    by_type: Mapping[str, float]
    """Of each task type that occurs."""
    n_missing: int
    """Episodes without a score."""

    def __str__(self) -> str:
        """For a log: success in percent, and that of each type."""
        types = ", ".join(f"{name} {100 * value:.0f}" for name, value in sorted(self.by_type.items()))
        return f"{100 * self.success:.1f}% ({types})"


@dataclass(frozen=True, slots=True)
class InteractiveTask:
    """The items of an assignment, ready to be played."""

    benchmark: PlayedBenchmark
    train: Sequence[Item]
    dev: Sequence[Item]
    me: Participant

    def world(self) -> Callable[[], Environment]:
        """Makes fresh worlds."""
        return self.benchmark.environment

    def evaluate_on_dev(self, checkpoint: Path, max_batch: int = 128) -> PlayedScore:
        """Every dev item played once as the grader plays. Raises ConfigError if no episode has a score."""
        settings = PlaySettings(self.me.sampling, self.me.max_turns)
        attempts = [Attempt(item, 0, derive_seed("dev", self.me.sampling.seed, item.id)) for item in self.dev]
        types = {item.id: str(item.payload.get("task_type", "")) for item in self.dev}
        device = "cuda" if torch.cuda.is_available() else "cpu"
        sampler = HfSampler(checkpoint, max_batch=max_batch, device=device)
        values: dict[str, list[float]] = defaultdict(list)
        try:
            for scored in play(attempts, sampler, self.benchmark.environment, self.benchmark.scorer(), settings):
                if scored.score.value is not None:
                    values[types[scored.rollout.item_id]].append(scored.score.value)
        finally:
            sampler.close()
        known = [value for group in values.values() for value in group]
        if not known:
            raise ConfigError(f"{checkpoint}: none of {len(self.dev)} dev episodes has a score; look at its log")
        by_type = {name: sum(group) / len(group) for name, group in values.items()}
        score = PlayedScore(sum(known) / len(known), by_type, len(self.dev) - len(known))
        self.me.log_evaluation(checkpoint, {"eval_dev": score.success, "eval_missing": float(score.n_missing)})
        return score

    def check_and_submit(self, checkpoint: Path, stage: str) -> None:
        """Measure a checkpoint on the dev items, hand it in and print both scores; stage: what it comes from.

        Raises SubmissionError if the grader gives no score.
        """
        after = self.evaluate_on_dev(checkpoint)
        tell(f"{stage}: {after} of dev games")
        answer = self.me.submit(checkpoint, f"{stage}, dev {100 * after.success:.1f}%")
        told = f"{answer['score']:.1f} (base model {answer['baseline_score']:.1f})"
        tell(f"submission {answer['submission_id']}: {told}")


def read_interactive(me: Participant) -> InteractiveTask:
    """The task of an assignment whose rows can be played. Raises ConfigError if they cannot."""
    benchmark = load_benchmark(me.benchmark)
    if not isinstance(benchmark, PlayedBenchmark):
        raise ConfigError(f"benchmark {me.benchmark!r}: its rows are questions, not episodes; use the recipe for those")
    train, dev = ([benchmark.item_of(row) for row in rows] for rows in (me.train, me.dev))
    return InteractiveTask(benchmark, train, dev, me)


def played_words(task: InteractiveTask, when: Sequence[str]) -> str:
    """The evaluation protocol of a design, in words. when: moments of measuring."""
    sampling = task.me.sampling
    return (
        f"success on {len(task.dev)} dev games, each played once for at most {task.me.max_turns} turns at temperature "
        f"{sampling.temperature} and top_p {sampling.top_p}, {' and '.join(when)}"
    )


def show_line(line: LogLine) -> None:
    """Print one line of a training log, for an agent's own log."""
    shown = ("loss", "success", "kl_initial", "entropy", "turns", "invalid_share", "unterminated_share", "signal_share")
    told = ", ".join(f"{name} {float(line[name]):.3f}" for name in shown if name in line)
    tell(f"{line['phase']} step {line['step']}: {told}")
