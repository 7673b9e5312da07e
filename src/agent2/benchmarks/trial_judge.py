"""The judge that one trial draws from the installation secret: what is learned of it is worth nothing in the next one.

A judge that follows from the secret alone has the same preferences in every trial: an agent's author who learned them
once would have them for good. With a draw, an arbitrary string in the trial's configuration, the judge is made with a
key that follows from the secret and the draw (`installation.judge_key`). The draw is no secret: without the secret of
the installation it says nothing about the judge. Hidden items do not depend on it.

Covers benchmarks whose judge follows from the secret (`ProvidesHiddenPreference`) and whose scorer is a `HiddenJudge`;
any other benchmark stays as it is. An LLM as a judge is the same in every trial.
"""

from typing import Any

from agent2.benchmarks.home import BenchmarkT, Player, ProvidesHiddenPreference, with_methods
from agent2.installation import judge_key
from agent2.records import Benchmark, Scorer
from agent2.scorers.hidden import HiddenJudge


def draws_judge(benchmark: Benchmark) -> bool:
    """Whether each trial of a benchmark can have a judge of its own."""
    return isinstance(benchmark, ProvidesHiddenPreference) and isinstance(benchmark.scorer(), HiddenJudge)


def with_drawn_judge(benchmark: BenchmarkT, draw: str) -> BenchmarkT:
    """The same benchmark with the judge of a draw; itself if the draw is empty or its judge does not depend on one."""
    if not draw or not draws_judge(benchmark):
        return benchmark
    original: Any = getattr(type(benchmark), "undrawn", benchmark)

    def scorer(self: Any) -> Scorer:
        scorer_of_all: HiddenJudge = original.scorer()
        return scorer_of_all.drawn(draw)

    def judge(self: Any, secret: bytes) -> Scorer:
        keyed_judge: Scorer = original.judge(judge_key(secret, draw))
        return keyed_judge

    def informed(self: Any, secret: bytes) -> Player:
        player: Player = original.informed(judge_key(secret, draw))
        return player

    keyed: BenchmarkT = with_methods(original, undrawn=original, scorer=scorer, judge=judge, informed=informed)
    return keyed
