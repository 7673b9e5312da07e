"""A suite: a versioned evaluation contract, fully spelled out.

Six parts are mandatory: task distribution, execution protocol, scorers, control group, splits and failure taxonomy;
so are benchmarks, metrics (exactly one of them primary), gates and a cadence. There are no silent defaults here:
what may be left out of a file is filled in from a track template by `contract.expand`, visibly.

A suite names benchmarks by text only; whether they are installed is for the caller to find out. The rules that
join several parts (a gate reads a known metric, ...) are in `contract.suite_rules`; `load_suite` applies them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from graphlib import TopologicalSorter
from typing import Any

from pydantic import Field

from agent2.config import StrictModel
from agent2.contract.evidence import Evidence, MetricEvidence
from agent2.contract.gates import GateSpec
from agent2.contract.metrics import MetricSpec, primary_of
from agent2.contract.suite_parts import (
    AgentContract,
    Cadence,
    Cause,
    ControlGroup,
    ExecutionProtocol,
    RoleRule,
    ScorerRule,
    SplitRules,
    TaskDistribution,
)
from agent2.records import SamplingSettings, Split, digest_of

MANDATORY_PARTS = ("task_distribution", "protocol", "scorer", "control_group", "splits", "failure_taxonomy")
"""Without one of these a suite is not an evaluation contract; the scorer belongs to each benchmark."""
NOT_IN_DIGEST: Any = {"model": True, "benchmarks": {"__all__": {"source"}}}
"""The checkpoint under test changes while its contract stays, and so may the place of a benchmark."""


class EvaluationRole(StrEnum):
    """Why an evaluation is made; decides its split."""

    DEV = "dev"
    NIGHTLY = "nightly"
    CANDIDATE = "candidate"


class Urls(StrictModel):
    """Where a published benchmark lives."""

    dataset: str | None = None
    leaderboard: str | None = None
    code: str | None = None


class Prerequisite(StrictModel):
    """Another benchmark that must go well first."""

    benchmark: str
    at_least: float = Field(ge=0, le=1)
    """Of that benchmark's own metric."""


class SuiteBenchmark(StrictModel):
    """One benchmark as this suite uses it."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    version: str | None = None
    """Null: the installed one, which is on the card."""
    source: str | None = None
    """Where it is, if it is neither packaged nor installed: FILE.py:NAME, or a folder with benchmark.yaml, from the
    suite's own folder. No part of the digest: the version says what it is."""
    split: Split
    """The split of the nightly report, as in `cadence.nightly`."""
    metric: str
    """Name of the metric of this suite that is the benchmark's main one; prerequisites read it."""
    n_items: int | None = Field(ge=1)
    """Null: all there are."""
    max_tokens: int | None = Field(default=None, ge=1)
    """In place of the protocol's."""
    scorer: ScorerRule
    requires: list[Prerequisite] = Field(default_factory=list)
    urls: Urls | None = None


class Suite(StrictModel):
    """An evaluation contract."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")
    version: str = Field(pattern=r"^\d+\.\d+$")
    """Written `name-vX.Y` together with the name."""
    track: str
    """The kind of loop it belongs to, and the template it may be filled in from."""
    description: str
    model: str | None = None
    """The checkpoint under test; null: named when the suite is run (`--checkpoint`)."""
    control_group: ControlGroup
    task_distribution: TaskDistribution
    protocol: ExecutionProtocol
    splits: SplitRules
    cadence: Cadence
    benchmarks: list[SuiteBenchmark] = Field(min_length=1)
    metrics: list[MetricSpec] = Field(min_length=1)
    gates: list[GateSpec] = Field(min_length=1)
    failure_taxonomy: dict[str, Cause] = Field(min_length=1)
    """Class of bad cases -> what it is attributed to."""
    agent: AgentContract | None
    """Null: no agent, no tools."""

    @property
    def id(self) -> str:
        """Name and version: `llm_core_regression-v1.0`."""
        return f"{self.name}-v{self.version}"

    @property
    def digest(self) -> str:
        """Of the whole contract but the checkpoint under test; equal suites have equal digests on every machine."""
        return digest_of(self.model_dump(mode="json", exclude=NOT_IN_DIGEST))

    @property
    def baseline(self) -> str | None:
        """The control group's checkpoint."""
        return self.control_group.checkpoint

    @property
    def primary(self) -> MetricSpec:
        """The one number that has to get better."""
        return primary_of(self.metrics)

    def benchmark(self, name: str) -> SuiteBenchmark:
        """The entry of one benchmark. Raises KeyError if the suite has none of that name."""
        return {entry.name: entry for entry in self.benchmarks}[name]

    def role_rule(self, role: EvaluationRole) -> RoleRule:
        """What an evaluation of that role plays."""
        return {
            EvaluationRole.DEV: self.cadence.dev,
            EvaluationRole.NIGHTLY: self.cadence.nightly,
            EvaluationRole.CANDIDATE: self.cadence.candidate,
        }[role]

    def n_items(self, benchmark: SuiteBenchmark, role: EvaluationRole) -> int | None:
        """How many items of a benchmark an evaluation of that role plays; None: all there are.

        The smaller of the role's and the benchmark's number.
        """
        known = [n for n in (self.role_rule(role).n_items, benchmark.n_items) if n is not None]
        return min(known, default=None)

    def sampling(self, benchmark: SuiteBenchmark) -> SamplingSettings:
        """How completions are drawn on one benchmark; the number of attempts is `protocol.sampling.n`."""
        drawn = self.protocol.sampling
        return SamplingSettings(drawn.temperature, drawn.top_p, benchmark.max_tokens or drawn.max_tokens)

    def in_order(self) -> list[SuiteBenchmark]:
        """The benchmarks, each after those that it requires; otherwise as the file has them."""
        waiting = TopologicalSorter(
            {entry.name: [need.benchmark for need in entry.requires] for entry in self.benchmarks}
        )
        waiting.prepare()
        rank = {entry.name: place for place, entry in enumerate(self.benchmarks)}
        names: list[str] = []
        while waiting.is_active():
            ready = sorted(waiting.get_ready(), key=rank.__getitem__)
            names += ready
            waiting.done(*ready)
        return [self.benchmark(name) for name in names]


@dataclass(frozen=True, slots=True)
class Shortfall:
    """A prerequisite that was not met, so that a benchmark is skipped."""

    benchmark: str
    """The skipped one."""
    required: str
    value: float | None
    at_least: float

    def __str__(self) -> str:
        """One sentence for the report."""
        got = "has no score" if self.value is None else f"scored {100 * self.value:.1f}%"
        return f"{self.benchmark} was skipped: {self.required} {got}, {100 * self.at_least:.1f}% is needed first"


def shortfall(benchmark: SuiteBenchmark, scores: Mapping[str, float | None]) -> Shortfall | None:
    """The first prerequisite of a benchmark that the checkpoint falls short of; None: it may be played.

    scores: benchmark -> the checkpoint's value (0 to 1) of that benchmark's own metric; a benchmark that is not in
    it was itself skipped. A missing score is a shortfall: nothing was shown.
    """
    for need in benchmark.requires:
        value = scores.get(need.benchmark)
        if value is None or value < need.at_least:
            return Shortfall(benchmark.name, need.benchmark, value, need.at_least)
    return None


def hold_prerequisites(suite: Suite, evidence: Evidence) -> Evidence:
    """The evidence of a report without the numbers of benchmarks whose prerequisites its checkpoint falls short of.

    An evaluation would not have played them; what is required and now missing makes the decision insufficient.
    """
    kept, scores = dict(evidence.metrics), dict[str, float | None]()
    for entry in suite.in_order():
        short = shortfall(entry, scores)
        if short is None:
            found = evidence.metrics.get(entry.metric)
            scores[entry.name] = None if found is None else found.new
            continue
        for metric in suite.metrics:
            if metric.benchmark == entry.name and kept.pop(metric.name, None) is not None:
                kept[metric.name] = MetricEvidence(metric.name, None, None, problem=str(short))
    return replace(evidence, metrics=kept)
