"""From a suite and two checkpoints to what is played: one plan for each side and benchmark, both alike.

Everything that can be wrong is found here, before a model is loaded: benchmarks that are not installed, another
version than the suite names, a split that the role may not see, items that a split does not have. A request for
private items is logged before they are made, and so is one that is refused.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from agent2 import installation
from agent2.benchmarks import BENCHMARKS, is_known, load_benchmark
from agent2.benchmarks.data import DataBenchmark
from agent2.cards.card import ReportingRule
from agent2.contract.suite import EvaluationRole, Suite, SuiteBenchmark
from agent2.contract.suite_parts import ScorerTier
from agent2.contract.suite_rules import check_emitted, visibility_problem
from agent2.errors import ConfigError, unknown_name
from agent2.evaluation.runner import EvaluationPlan, Limits
from agent2.evaluation.suite_folder import BASELINE, CHECKPOINT, Identity, Side
from agent2.installation import Access, log_access
from agent2.models.sources import CheckpointSource, require_chat_template
from agent2.plugins import known_names
from agent2.records import HIDDEN_SPLITS, Benchmark, JsonValue, Split, emits_of


@dataclass(frozen=True, slots=True)
class SuiteRequest:
    """One evaluation of a suite: who is compared with whom, and why."""

    suite: Suite
    baseline: CheckpointSource
    checkpoint: CheckpointSource
    out: Path
    role: EvaluationRole = EvaluationRole.DEV
    split: Split | None = None
    """None: the one that the suite gives the role."""
    seed: int = 0
    """Attempts, and so draws, derive from it."""
    find_benchmark: Callable[[str], Benchmark] = load_benchmark

    @property
    def played_split(self) -> Split:
        """The split that is played."""
        return self.split or self.suite.role_rule(self.role).split

    @property
    def sides(self) -> Mapping[str, CheckpointSource]:
        """Both checkpoints by the names of their sides."""
        return {BASELINE: self.baseline, CHECKPOINT: self.checkpoint}


@dataclass(frozen=True, slots=True)
class BenchmarkPlan:
    """One benchmark as both sides play it."""

    entry: SuiteBenchmark
    sides: Mapping[str, EvaluationPlan]


@dataclass(frozen=True, slots=True)
class SuitePlan:
    """All that is to be played, in the order of prerequisites."""

    identity: Identity
    benchmarks: tuple[BenchmarkPlan, ...]


def plan_suite(request: SuiteRequest) -> SuitePlan:
    """The plans of a request. Raises ConfigError for anything that cannot be played as the suite says.

    The access log has an entry for a request of private items when this returns or refuses.
    """
    for source in request.sides.values():
        require_chat_template(source, "add one to the tokenizer, or give --plain for both sides")
    installed = {entry.name: _installed(entry, request) for entry in request.suite.in_order()}
    emitted = {name: emits_of(benchmark.scorer()) for name, benchmark in installed.items()}
    check_emitted(request.suite, emitted, lambda place: f"suite {request.suite.id}")
    _require_permission(request)
    is_hidden = request.played_split in HIDDEN_SPLITS
    secret = installation.secret() if is_hidden else None
    with installation.with_entry():
        order = request.suite.in_order()
        plans = tuple(_benchmark_plan(request, entry, installed[entry.name], secret) for entry in order)
    identity = Identity(
        suite=request.suite.id,
        suite_digest=request.suite.digest,
        role=request.role.value,
        split=request.played_split.value,
        seed=request.seed,
        sides={
            name: Side(source.name, source.digest, source.kind.value, source.caveats)
            for name, source in request.sides.items()
        },
        secret_digest=installation.secret_digest(secret) if secret else None,
    )
    return SuitePlan(identity, plans)


def _require_permission(request: SuiteRequest) -> None:
    """Private items are for release candidates alone; who asked is written down either way."""
    split = request.played_split
    if split is Split.TRAIN:
        raise ConfigError("split train is what models learn from; evaluate on dev, test_public or test_private")
    problem = visibility_problem(request.suite.splits, request.role, split)
    if problem and split is not Split.TEST_PRIVATE:
        raise ConfigError(
            f"suite {request.suite.id}: --role {request.role.value} may not play {split.value}: {problem}"
        )
    if split is not Split.TEST_PRIVATE:
        return
    is_granted = request.role is EvaluationRole.CANDIDATE
    reason = "" if is_granted else "test_private is for release candidates only"
    log = log_access(
        Access(
            is_granted=is_granted,
            split=split.value,
            role=request.role.value,
            suite=request.suite.id,
            suite_digest=request.suite.digest,
            checkpoint=f"{request.checkpoint.name} {request.checkpoint.digest}",
            baseline=f"{request.baseline.name} {request.baseline.digest}",
            out=str(request.out.resolve()),
            reason=reason,
        )
    )
    if not is_granted:
        raise ConfigError(
            f"{reason}, this evaluation has the role {request.role.value!r}; use --role candidate, or another split "
            f"(the request is in {log})"
        )


def _installed(entry: SuiteBenchmark, request: SuiteRequest) -> Benchmark:
    where = f"suite {request.suite.id}"
    if entry.source is None and request.find_benchmark is load_benchmark and not is_known(entry.name):
        known = known_names("benchmark", BENCHMARKS)
        unknown = unknown_name("benchmark", entry.name, known, f"{where}: not installed here")
        raise ConfigError(
            f"{unknown}; say where it is with source: PATH, or decide on a report of scores that were made elsewhere "
            "(agent2 decide)"
        )
    benchmark = request.find_benchmark(entry.source or entry.name)
    if benchmark.name != entry.name:
        raise ConfigError(f"{where}: {entry.source} is benchmark {benchmark.name!r}; the suite calls it {entry.name!r}")
    if entry.version is not None and entry.version not in (benchmark.version, benchmark.version.partition("+")[0]):
        raise ConfigError(
            f"{where}: needs {entry.name} {entry.version}, installed is {benchmark.version}; scores of two versions "
            "are not comparable: install that version or make a new version of the suite"
        )
    if entry.scorer.tier in (ScorerTier.JUDGE, ScorerTier.HUMAN):
        raise ConfigError(
            f"{where}: {entry.name} is scored by a {entry.scorer.tier.value}, which no evaluation can do by itself yet"
        )
    scorer = benchmark.scorer().name
    if scorer != entry.scorer.name:
        raise ConfigError(
            f"{where}: {entry.name} is to be scored by {entry.scorer.name!r}, the installed one by {scorer!r}; "
            "name that one, or install the other"
        )
    if request.suite.n_items(entry, request.role) is None and not isinstance(benchmark, DataBenchmark):
        raise ConfigError(
            f"{where}: {entry.name} gives no n_items, and items here are generated without end; set it in the suite"
        )
    return benchmark


def _benchmark_plan(
    request: SuiteRequest, entry: SuiteBenchmark, benchmark: Benchmark, secret: bytes | None
) -> BenchmarkPlan:
    suite, split = request.suite, request.played_split
    n_items = suite.n_items(entry, request.role)
    if n_items is None and isinstance(benchmark, DataBenchmark):
        n_items = benchmark.count(split, secret)
    items = tuple(benchmark.items(split, n_items or 0, secret))
    limits = limits_of(suite, benchmark)
    reporting = ReportingRule(tool_errors_in_cost=True if suite.protocol.tools is not None else None)
    plans = {
        side: EvaluationPlan(
            benchmark=benchmark,
            split=split,
            items=items,
            checkpoint_name=source.name,
            checkpoint_digest=source.digest,
            chat_template_digest=source.chat_template_digest,
            dtype=source.dtype,
            seed=request.seed,
            attempts=suite.protocol.sampling.n,
            sampling=suite.sampling(entry),
            limits=limits,
            reporting=reporting,
        )
        for side, source in request.sides.items()
    }
    return BenchmarkPlan(entry, plans)


def limits_of(suite: Suite, benchmark: Benchmark) -> Limits:
    """What a suite's protocol and agent budget allow one rollout of a benchmark.

    The rules of tool use on the card are those that the benchmark's world keeps. Raises ConfigError where they
    allow more than the suite does, and where the suite asks for images.
    """
    if suite.protocol.input is not None and not getattr(benchmark, "takes_images", False):
        raise ConfigError(
            f"suite {suite.id}: protocol.input is about images and {benchmark.name} has none; set it to null"
        )
    protocol, budget = suite.protocol, suite.agent.budget if suite.agent is not None else None
    minutes = [
        limit
        for limit in (protocol.max_wall_time_minutes, budget.max_minutes if budget is not None else None)
        if limit is not None
    ]
    return Limits(
        max_turns=budget.max_steps if budget is not None else None,
        max_wall_time_s=60.0 * min(minutes) if minutes else None,
        retries=protocol.retries,
        context_length=protocol.context_length,
        tools=_tool_rules(suite, benchmark),
        prompt_digest=getattr(benchmark, "prompt_digest", ""),
        context=getattr(benchmark, "context", "full"),
        max_episode_tokens=budget.max_tokens if budget is not None else None,
    )


def _tool_rules(suite: Suite, benchmark: Benchmark) -> Mapping[str, JsonValue]:
    """The rules of a benchmark's world; empty: it has no tools."""
    rules: Mapping[str, JsonValue] = getattr(benchmark, "tool_protocol", {})
    allowed = suite.protocol.tools
    if not rules:
        return {}
    where = f"suite {suite.id}: the world of {benchmark.name}"
    if allowed is None:
        raise ConfigError(f"{where} has tools, and the suite allows none; write protocol.tools")
    budget = suite.agent.budget.max_tool_calls if suite.agent is not None else None
    most = min(allowed.max_tool_calls, budget or allowed.max_tool_calls)
    n_calls = rules.get("max_tool_calls")
    if isinstance(n_calls, int) and n_calls > most:
        raise ConfigError(f"{where} allows {n_calls} tool calls, the suite {most}; raise the suite's limit")
    if rules.get("parallel_tool_calls") and not allowed.parallel_tool_calls:
        raise ConfigError(f"{where} allows several calls in one message, the suite does not; allow it in the suite")
    permissions = allowed.permissions.model_dump()
    too_much = [name for name in rules.get("permissions", ()) if permissions.get(name) is False]
    if too_much:
        raise ConfigError(
            f"{where} permits {', '.join(too_much)}, the suite forbids it (protocol.tools.permissions); allow it, or "
            "leave the benchmark out"
        )
    return rules
