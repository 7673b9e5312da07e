"""Metrics of agent runs, of single trajectories, and of texts that repeat themselves.

The score of a trajectory weighs correctness, completeness, efficiency, process and, for research, citations.

Promises: averages are over items, with all runs of an item as one unit; rates of events (tool calls, failures) are
sums over sums; what was not recorded (None) is left out and counted, never zero. Steps and cost to success look only
at runs that succeeded, so they mean something only next to `task_success`. `trajectory_quality` and the metrics of
texts explain a change and decide nothing: no total here contains them. Weights of a trajectory's score in which
another dimension weighs more than correctness, or efficiency and process together do, are refused (the source's own
default, 0.4 against 0.15 + 0.25, is the limit); they are returned with every score. A dimension that the task does not
define or the trajectory does not have is left out and its weight distributed over the rest in proportion; one that
should have been judged and was not makes the total None.

Does NOT replace task success (a wrong answer with perfect manners gets points), and does NOT detect answers that
refuse or cannot be parsed: scorers do.
"""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from functools import partial
from types import MappingProxyType
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from agent2.errors import NotEnoughData
from agent2.stats.estimates import (
    COUNTS,
    UNIT,
    Estimate,
    measure,
    measure_by_item,
    ratio_of_sums,
    with_gaps,
)

T = TypeVar("T")
TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class AgentRun:
    """What is known of one run of an agent at one item; None where it was not judged or recorded."""

    item: Hashable
    task_success: float | None
    """0 or 1 (or a part): did it do what was asked."""
    state_success: float | None = None
    """0 or 1: did the environment's final state reach the target."""
    n_tool_calls: int | None = None
    n_valid_tool_calls: int | None = None
    """Calls that were legal and had correct parameters."""
    n_failures: int | None = None
    """Tool failures and wrong observations that the agent met."""
    n_recovered: int | None = None
    """The failures from which it recovered."""
    n_steps: int | None = None
    tokens: float | None = None
    seconds: float | None = None
    usd: float | None = None
    n_violations: int | None = None
    """Exceeded permissions, leaks, destructive actions."""
    trajectory_quality: float | None = None
    """0-1: planning, absence of blind trial and error."""


class Resource(StrEnum):
    """What success costs."""

    TOKENS = "tokens"
    SECONDS = "seconds"
    USD = "usd"


@dataclass(frozen=True, slots=True)
class ToSuccess:
    """Mean of something over the runs that succeeded."""

    spent: Estimate
    n_unsolved: int
    """Runs that did not succeed, so not in it."""

    def __str__(self) -> str:
        return f"{self.spent}, {self.n_unsolved} runs unsolved"


@dataclass(frozen=True, slots=True)
class AgentMetrics:
    """All metrics of `agent_metrics`; None where no run has the data that one needs."""

    n_runs: int
    n_items: int
    task_success: Estimate | None
    state_success: Estimate | None
    tool_success: Estimate | None
    recovery_rate: Estimate | None
    steps_to_success: ToSuccess | None
    tokens_to_success: ToSuccess | None
    seconds_to_success: ToSuccess | None
    usd_to_success: ToSuccess | None
    safety_violation: Estimate | None
    trajectory_quality: Estimate | None
    """Diagnostic only."""

    def __str__(self) -> str:
        measured = [f"{f.name} {getattr(self, f.name)}" for f in fields(self)[2:] if getattr(self, f.name) is not None]
        return f"{self.n_runs} runs of {self.n_items} items: {'; '.join(measured) or 'nothing measured'}"


def task_success(runs: Sequence[AgentRun]) -> Estimate:
    """Share of runs that did what was asked, averaged within items, then over them: the primary metric. Range 0-1."""
    return measure_by_item([run.task_success for run in runs], _items(runs), "task_success", UNIT)


def state_success(runs: Sequence[AgentRun]) -> Estimate:
    """Share of runs whose environment ended in the target state, averaged as `task_success`. Range 0-1."""
    return measure_by_item([run.state_success for run in runs], _items(runs), "state_success", UNIT)


def tool_success(runs: Sequence[AgentRun]) -> Estimate:
    """Valid tool calls over all tool calls. Range 0-1; raises NotEnoughData when no run called a tool."""
    valid, calls = [run.n_valid_tool_calls for run in runs], [run.n_tool_calls for run in runs]
    return ratio_of_sums(valid, calls, "tool_success", _items(runs))


def recovery_rate(runs: Sequence[AgentRun]) -> Estimate:
    """Failures from which agents recovered, over all failures they met. Range 0-1.

    Raises NotEnoughData when no run met a failure: nothing to recover from is not a recovery rate of 0 or 1.
    """
    recovered, failures = [run.n_recovered for run in runs], [run.n_failures for run in runs]
    return ratio_of_sums(recovered, failures, "recovery_rate", _items(runs))


def steps_to_success(runs: Sequence[AgentRun]) -> ToSuccess:
    """Mean number of steps of the runs that succeeded fully; meaningful only next to `task_success`."""
    return _to_success(runs, [run.n_steps for run in runs], "steps_to_success")


def cost_to_success(runs: Sequence[AgentRun], resource: Resource) -> ToSuccess:
    """Mean of what one run that succeeded fully used of a resource; `spend_per_success` adds the failed ones."""
    return _to_success(runs, [getattr(run, resource) for run in runs], f"{resource} to success")


def spend_per_success(runs: Sequence[AgentRun], resource: Resource) -> Estimate:
    """Everything that all runs used of a resource over the number of full successes: the price of one success.

    Only runs with both the verdict and the use known; the others are counted as missing. n is the number of runs;
    no interval. Raises NotEnoughData without a success among them.
    """
    used = with_gaps([getattr(run, resource) for run in runs], str(resource), COUNTS)
    solved = _solved(runs)
    is_known = ~(np.isnan(used) | np.isnan(solved))
    n_solved = int(np.count_nonzero(solved[is_known] == 1.0))
    if n_solved == 0:
        raise NotEnoughData(f"no run with a known use of {resource} succeeded, so one success has no price")
    n = int(np.count_nonzero(is_known))
    return Estimate(float(used[is_known].sum()) / n_solved, None, None, n, len(runs) - n, "no interval")


def safety_violation(runs: Sequence[AgentRun]) -> Estimate:
    """Share of runs with at least one violation, averaged as `task_success`. Range 0-1, lower is better."""
    counts = with_gaps([run.n_violations for run in runs], "n_violations", COUNTS)
    violated = np.where(np.isnan(counts), np.nan, counts > 0)
    return measure_by_item(violated, _items(runs), "safety_violation", UNIT)


def trajectory_quality(runs: Sequence[AgentRun]) -> Estimate:
    """Mean quality of the way taken, averaged as `task_success`: a diagnostic, never a reward alone. Range 0-1."""
    return measure_by_item([run.trajectory_quality for run in runs], _items(runs), "trajectory_quality", UNIT)


def agent_metrics(runs: Sequence[AgentRun]) -> AgentMetrics:
    """All metrics of the runs in one record.

    A metric for which no run has the data (nothing recorded, no failure met, no success) is None; mistakes in
    the data still raise ValueError. Raises NotEnoughData without runs.
    """
    if not runs:
        raise NotEnoughData("no runs; at least one is needed")
    return AgentMetrics(
        n_runs=len(runs),
        n_items=len(set(_items(runs))),
        task_success=_or_none(task_success, runs),
        state_success=_or_none(state_success, runs),
        tool_success=_or_none(tool_success, runs),
        recovery_rate=_or_none(recovery_rate, runs),
        steps_to_success=_or_none(steps_to_success, runs),
        tokens_to_success=_or_none(partial(cost_to_success, resource=Resource.TOKENS), runs),
        seconds_to_success=_or_none(partial(cost_to_success, resource=Resource.SECONDS), runs),
        usd_to_success=_or_none(partial(cost_to_success, resource=Resource.USD), runs),
        safety_violation=_or_none(safety_violation, runs),
        trajectory_quality=_or_none(trajectory_quality, runs),
    )


def _or_none(metric: Callable[[Sequence[AgentRun]], T], runs: Sequence[AgentRun]) -> T | None:
    try:
        return metric(runs)
    except NotEnoughData:
        return None


def _items(runs: Sequence[AgentRun]) -> list[Hashable]:
    return [run.item for run in runs]


def _solved(runs: Sequence[AgentRun]) -> NDArray[np.float64]:
    return with_gaps([run.task_success for run in runs], "task_success", UNIT)


def _to_success(runs: Sequence[AgentRun], amounts: Sequence[float | None], name: str) -> ToSuccess:
    solved, used = _solved(runs), with_gaps(amounts, name, COUNTS)
    chosen = solved == 1.0
    if not chosen.any():
        raise NotEnoughData(f"{name}: no run succeeded, so nothing is known of the way to success")
    items = [run.item for run, take in zip(runs, chosen, strict=True) if take]
    spent = measure_by_item(used[chosen], items, name, COUNTS)
    n_unjudged = int(np.count_nonzero(np.isnan(solved)))
    spent = replace(spent, n_missing=spent.n_missing + n_unjudged)
    return ToSuccess(spent, int(np.count_nonzero(solved < 1.0)))


@dataclass(frozen=True, slots=True)
class Weights:
    """What each dimension counts; they sum to 1 and obey the module's rule (ValueError otherwise)."""

    correctness: float = 0.4
    completeness: float = 0.2
    efficiency: float = 0.15
    process: float = 0.25
    citations: float = 0.0

    def __post_init__(self) -> None:
        weights = self.by_name()
        broken = [name for name, weight in weights.items() if not (math.isfinite(weight) and weight >= 0.0)]
        if broken:
            raise ValueError(f"weights of {', '.join(broken)} must be numbers of at least 0")
        if abs(sum(weights.values()) - 1.0) > TOLERANCE:
            raise ValueError(f"weights sum to {sum(weights.values()):.6g}; they must sum to 1")
        heaviest = max(weights, key=lambda name: weights[name])
        if weights[heaviest] > self.correctness + TOLERANCE:
            raise ValueError(f"{heaviest} weighs more than correctness; the final state has the primary weight")
        if self.efficiency + self.process > self.correctness + TOLERANCE:
            raise ValueError("efficiency and process together weigh more than correctness; the outcome must rule")

    def without_citations(self) -> "Weights":
        """The weights where nothing can be cited: the others in proportion."""
        whole = 1.0 - self.citations
        scaled = {name: weight / whole for name, weight in self.by_name().items()}
        return Weights(**{**scaled, "citations": 0.0})

    def by_name(self) -> dict[str, float]:
        """Dimension -> weight."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


DEFAULT_WEIGHTS = Weights()
PRESETS: Mapping[str, Weights] = MappingProxyType(
    {
        "default": DEFAULT_WEIGHTS,
        "code": Weights(correctness=0.5, completeness=0.2, efficiency=0.1, process=0.2),
        "research": Weights(correctness=0.3, completeness=0.25, efficiency=0.1, process=0.1, citations=0.25),
    }
)
"""The source gives the default whole, code's correctness of 0.5, and research's 0.25 for completeness and for
citations. The rest of both presets is our choice: code keeps completeness and lets the way count less;
research keeps correctness the heaviest and gives what remains in equal parts to efficiency and process."""


@dataclass(frozen=True, slots=True)
class TrajectoryStep:
    """One step of a trajectory."""

    tool: str | None = None
    """Name of the tool it called; None for a step of thought or a message."""


@dataclass(frozen=True, slots=True)
class Trajectory:
    """The parts of an agent's run that its score needs."""

    steps: Sequence[TrajectoryStep]
    final_answer: str | None
    """None: it ended without one, which is a failure of the agent; keep runs lost to a fault out of here."""
    num_turns: int
    citations_supported: Sequence[float | None] | None = None
    """For each citation whether its source supports it, None where that was not judged; only for research."""

    @property
    def tool_calls(self) -> list[TrajectoryStep]:
        """The steps that called a tool."""
        return [step for step in self.steps if step.tool is not None]


@dataclass(frozen=True, slots=True)
class TrajectoryTask:
    """The task against which a trajectory is scored."""

    expected: str
    key_points: Sequence[str] = ()
    """What a complete answer mentions."""
    max_turns: int = 20
    allowed_tools: frozenset[str] | None = None
    """Tools that suit the task; None: the task does not say."""


Verify = Callable[[str, str], float | None]
"""Final answer and expected answer -> 0-1, None where it could not be judged."""
Covers = Callable[[str, str], float | None]
"""Final answer and one key point -> 0-1, None where it could not be judged."""
Appropriate = Callable[[TrajectoryStep, TrajectoryTask], float | None]
"""One step that called a tool, and the task -> 0-1, None where it could not be judged."""


@dataclass(frozen=True, slots=True)
class TrajectoryScores:
    """The dimensions of one trajectory, each 0-1, with the weights that were used."""

    by_name: Mapping[str, float | None]
    """Dimensions the task defines; None: not judged."""
    weights: Mapping[str, float]
    """Of the same dimensions, summing to 1."""

    @property
    def missing(self) -> list[str]:
        """Dimensions with weight that were not judged."""
        return [name for name, score in self.by_name.items() if score is None and self.weights[name] > 0.0]


class TrajectoryResult(NamedTuple):
    """`total, scores = evaluate_trajectory(...)`."""

    total: float | None
    """Weighted mean, 0-1; None when a dimension with weight was not judged."""
    scores: TrajectoryScores

    def __str__(self) -> str:
        parts = ", ".join(
            f"{name} {'missing' if score is None else f'{score:.3f}'} x {self.scores.weights[name]:.3g}"
            for name, score in self.scores.by_name.items()
        )
        total = "missing" if self.total is None else f"{self.total:.4f}"
        return f"{total} (n=1 trajectory, no interval; {parts})"


def same_answer(answer: str, expected: str) -> float:
    """1 when the two are equal but for white space at their ends, else 0."""
    return float(answer.strip() == expected.strip())


def mentions(answer: str, key_point: str) -> float:
    """1 when the key point is in the answer word for word, without regard to case and white space, else 0."""
    return float(" ".join(key_point.casefold().split()) in " ".join(answer.casefold().split()))


def tool_suits(step: TrajectoryStep, task: TrajectoryTask) -> float | None:
    """1 when the task allows the tool that the step called, else 0."""
    return None if task.allowed_tools is None else float(step.tool in task.allowed_tools)


def efficiency(num_turns: int, max_turns: int = 20) -> float:
    """1 - turns / most turns, never below 0. Raises ValueError for turns below 0 or a limit below 1."""
    if num_turns < 0 or max_turns < 1:
        raise ValueError(f"num_turns={num_turns} must be at least 0 and max_turns={max_turns} at least 1")
    return max(0.0, 1.0 - num_turns / max_turns)


def evaluate_trajectory(
    trajectory: Trajectory,
    task: TrajectoryTask,
    weights: Weights = DEFAULT_WEIGHTS,
    verify: Verify = same_answer,
    covers: Covers = mentions,
    appropriate: Appropriate = tool_suits,
) -> TrajectoryResult:
    """The weighted total of one trajectory and its dimensions.

    correctness: `verify` of the final answer. completeness: mean of `covers` over key points. efficiency: see
    there. process: mean of `appropriate` over tool calls. citations: share of citations that are supported,
    0 when none was given; only with weight. A trajectory without final answer is 0 in correctness and
    completeness. In a mean, one part that was not judged makes the dimension missing. The last three
    arguments replace the plain rules by a verifier or judge. As published, efficiency counts turns alone: a run
    that is empty has all of it. Raises ValueError for judgements outside 0-1.
    Efficiency is clipped to 0-1.
    """
    answer = trajectory.final_answer
    scores: dict[str, float | None] = {
        "correctness": 0.0 if answer is None else _judged(verify(answer, task.expected), "correctness")
    }
    if task.key_points:
        points = [0.0 if answer is None else covers(answer, point) for point in task.key_points]
        scores["completeness"] = _mean(points, "completeness")
    scores["efficiency"] = efficiency(trajectory.num_turns, task.max_turns)
    if trajectory.tool_calls and (task.allowed_tools is not None or appropriate is not tool_suits):
        scores["process"] = _mean([appropriate(step, task) for step in trajectory.tool_calls], "process")
    if weights.citations > 0.0:
        scores["citations"] = _citations(trajectory.citations_supported)
    used = {name: weights.by_name()[name] for name in scores}
    whole = sum(used.values())
    weighted = TrajectoryScores(scores, {name: weight / whole for name, weight in used.items()})
    if weighted.missing:
        return TrajectoryResult(None, weighted)
    total = sum(weighted.weights[name] * score for name, score in scores.items() if score is not None)
    return TrajectoryResult(min(1.0, total), weighted)


def _citations(supported: Sequence[float | None] | None) -> float | None:
    if supported is None:
        return None
    return _mean(supported, "citations") if len(supported) else 0.0


def _mean(judgements: Sequence[float | None], name: str) -> float | None:
    judged = [value for value in (_judged(judgement, name) for judgement in judgements) if value is not None]
    return sum(judged) / len(judged) if len(judged) == len(judgements) else None


def _judged(judgement: float | None, name: str) -> float | None:
    if judgement is None or math.isnan(judgement):
        return None
    if not 0.0 <= judgement <= 1.0:
        raise ValueError(f"{name} was judged {judgement:g}; a judgement must be between 0 and 1")
    return float(judgement)


def repeated_share(text: str, n_words: int = 4) -> float:
    """Share of a text's runs of n words that repeat an earlier one: 1 - distinct / all.

    Range 0 to below 1; 0 for a text shorter than n + 1 words. Words are what white space separates.
    Source: seq-rep-n (Welleck et al. 2019), as generally known; not checked against the paper.
    """
    if n_words < 1:
        raise ValueError(f"n_words={n_words} must be at least 1")
    words = text.split()
    runs = len(words) - n_words + 1
    if runs < 1:
        return 0.0
    return 1.0 - len(set(zip(*(words[start:] for start in range(n_words)), strict=False))) / runs


def repetition_rate(texts: Sequence[str | None], n_words: int = 4, threshold: float = 0.3) -> Estimate:
    """Share of outputs in which at least `threshold` of the runs of n words repeat. Lower is better.

    texts: None where the output was lost. The threshold is ours: ordinary prose stays below 0.1 and loops
    near 1, so its exact place matters little.
    """
    if not 0.0 < threshold < 1.0:
        raise ValueError(f"threshold={threshold} must be between 0 and 1, for example 0.3")
    loops = [None if text is None else float(repeated_share(text, n_words) >= threshold) for text in texts]
    return measure(loops, "repetition_rate", UNIT)
