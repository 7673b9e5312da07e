"""Metrics of agent runs: outcome, tools, recovery, steps, cost, safety, and quality as a diagnostic.

Promises: averages are over items, with all runs of an item as one unit; rates of events (tool calls, failures)
are sums over sums with items as units; what was not recorded (None) is left out and counted, never zero; outcome,
process and cost stand in one record. `trajectory_quality` is a diagnostic: no total here holds it. Steps and cost
to success look only at runs that succeeded, so they mean something only next to `task_success`.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from agent2.errors import NotEnoughData
from agent2.stats.measure import COUNTS, UNIT, Measure, measure_by_item, ratio_of_sums, with_gaps

T = TypeVar("T")


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
    """Those of them that it got over."""
    n_steps: int | None = None
    tokens: float | None = None
    seconds: float | None = None
    usd: float | None = None
    n_violations: int | None = None
    """Oversteps, leaks, destructive actions."""
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

    spent: Measure
    n_unsolved: int
    """Runs that did not succeed, so not in it."""

    def __str__(self) -> str:
        return f"{self.spent}, {self.n_unsolved} runs unsolved"


@dataclass(frozen=True, slots=True)
class AgentMetrics:
    """All of them together; None where no run has what a metric needs (see `agent_metrics`)."""

    n_runs: int
    n_items: int
    task_success: Measure | None
    state_success: Measure | None
    tool_success: Measure | None
    recovery_rate: Measure | None
    steps_to_success: ToSuccess | None
    tokens_to_success: ToSuccess | None
    seconds_to_success: ToSuccess | None
    usd_to_success: ToSuccess | None
    safety_violation: Measure | None
    trajectory_quality: Measure | None
    """Diagnostic only."""

    def __str__(self) -> str:
        shown = [f"{f.name} {getattr(self, f.name)}" for f in fields(self)[2:] if getattr(self, f.name) is not None]
        return f"{self.n_runs} runs of {self.n_items} items: {'; '.join(shown) or 'nothing measured'}"


def task_success(runs: Sequence[AgentRun]) -> Measure:
    """Share of runs that did what was asked, averaged within items, then over them: the primary metric. Range 0-1."""
    return measure_by_item([run.task_success for run in runs], _items(runs), "task_success", UNIT)


def state_success(runs: Sequence[AgentRun]) -> Measure:
    """Share of runs whose environment ended in the target state, averaged as `task_success`. Range 0-1."""
    return measure_by_item([run.state_success for run in runs], _items(runs), "state_success", UNIT)


def tool_success(runs: Sequence[AgentRun]) -> Measure:
    """Valid tool calls over all tool calls. Range 0-1; raises NotEnoughData when no run called a tool."""
    valid, calls = [run.n_valid_tool_calls for run in runs], [run.n_tool_calls for run in runs]
    return ratio_of_sums(valid, calls, "tool_success", _items(runs))


def recovery_rate(runs: Sequence[AgentRun]) -> Measure:
    """Failures that agents got over, over all failures they met. Range 0-1.

    Raises NotEnoughData when no run met a failure: an agent that was never tried has no recovery rate.
    """
    recovered, failures = [run.n_recovered for run in runs], [run.n_failures for run in runs]
    return ratio_of_sums(recovered, failures, "recovery_rate", _items(runs))


def steps_to_success(runs: Sequence[AgentRun]) -> ToSuccess:
    """Mean number of steps of the runs that succeeded fully; see the module on reading it."""
    return _to_success(runs, [run.n_steps for run in runs], "steps_to_success")


def cost_to_success(runs: Sequence[AgentRun], resource: Resource) -> ToSuccess:
    """Mean of what one run that succeeded fully used of a resource; `spend_per_success` adds the failed ones."""
    return _to_success(runs, [getattr(run, resource) for run in runs], f"{resource} to success")


def spend_per_success(runs: Sequence[AgentRun], resource: Resource) -> Measure:
    """Everything that all runs used of a resource over the number of full successes: the price of one success.

    Only runs with both the verdict and the use known; the others are counted as missing. n is the number of runs;
    no interval. Raises NotEnoughData without a success among them.
    """
    used = with_gaps([getattr(run, resource) for run in runs], str(resource), COUNTS)
    solved = _solved(runs)
    there = ~(np.isnan(used) | np.isnan(solved))
    n_solved = int(np.count_nonzero(solved[there] == 1.0))
    if n_solved == 0:
        raise NotEnoughData(f"no run with a known use of {resource} succeeded, so one success has no price")
    n = int(np.count_nonzero(there))
    return Measure(float(used[there].sum()) / n_solved, None, None, n, len(runs) - n, "no interval")


def safety_violation(runs: Sequence[AgentRun]) -> Measure:
    """Share of runs with at least one violation, averaged as `task_success`. Range 0-1, lower is better."""
    counts = with_gaps([run.n_violations for run in runs], "n_violations", COUNTS)
    violated = np.where(np.isnan(counts), np.nan, counts > 0)
    return measure_by_item(violated, _items(runs), "safety_violation", UNIT)


def trajectory_quality(runs: Sequence[AgentRun]) -> Measure:
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
        tokens_to_success=_or_none(lambda some: cost_to_success(some, Resource.TOKENS), runs),
        seconds_to_success=_or_none(lambda some: cost_to_success(some, Resource.SECONDS), runs),
        usd_to_success=_or_none(lambda some: cost_to_success(some, Resource.USD), runs),
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


def _to_success(runs: Sequence[AgentRun], amounts: Sequence[float | None], what: str) -> ToSuccess:
    solved, used = _solved(runs), with_gaps(amounts, what, COUNTS)
    chosen = solved == 1.0
    if not chosen.any():
        raise NotEnoughData(f"{what}: no run succeeded, so nothing is known of the way to success")
    items = [run.item for run, take in zip(runs, chosen, strict=True) if take]
    spent = measure_by_item(used[chosen], items, what, COUNTS)
    n_unjudged = int(np.count_nonzero(np.isnan(solved)))
    found = Measure(spent.value, spent.low, spent.high, spent.n, spent.n_missing + n_unjudged, spent.method)
    return ToSuccess(found, int(np.count_nonzero(solved < 1.0)))
