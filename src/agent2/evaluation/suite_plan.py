"""Plans of what is played, from a suite, or one benchmark, and two checkpoints; the folder is `suite_folder`'s.

`open_contract` reads a suite, or makes one around a single benchmark for `agent2 eval BENCHMARK` (`suite_draft`).

A plan for each side and benchmark follows, both sides alike. Everything that can be wrong is found here, before a model
is loaded: benchmarks that are not installed, another version than the suite names, a split that the role may not see,
items that a split does not have. A request for private items is logged before they are made, and so is one that is
refused.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from agent2 import installation
from agent2.benchmarks import BENCHMARKS, is_data_name, is_known, load_benchmark, refuse_items_file
from agent2.benchmarks.bridges import require_behind_colon, split_bridged
from agent2.benchmarks.declaration import is_data_file
from agent2.benchmarks.declared import DeclaredBenchmark
from agent2.benchmarks.home import ProvidesCount
from agent2.cards.card import ReportingRule
from agent2.config import StrictModel, parse_yaml
from agent2.contract.suite import (
    EvaluationRole,
    JudgeRule,
    ScorerTier,
    Suite,
    SuiteBenchmark,
)
from agent2.contract.suite_files import load_suite, suite_names
from agent2.contract.suite_rules import check_emitted, visibility_problem
from agent2.engines.catalogue import ENGINES, IN_PROCESS
from agent2.errors import ConfigError, unknown_name
from agent2.evaluation.plan import EvaluationLimits, EvaluationPlan
from agent2.evaluation.suite_draft import judge_rule, suite_of
from agent2.evaluation.suite_folder import BASELINE, CHECKPOINT, Identity, Side
from agent2.executors import LOCAL, require_executor
from agent2.executors.jobs import ExecutorSettings, PartSettings, Resources
from agent2.installation import Access, log_access
from agent2.llm.thoughts import AUTO
from agent2.models.sources import CheckpointSource, require_chat_template
from agent2.pictures import Preparation
from agent2.plugins import find, installed, is_code, is_located, known_names, load
from agent2.records import HIDDEN_SPLITS, Benchmark, JsonValue, Scorer, Split, declared_output, judge_of
from agent2.scorers import load_scorer
from agent2.scorers.process.step_judge import StepJudge

PARTS_ON_A_CLUSTER = 8
"""Parts of a card where nobody says how many."""
NO_HISTORY = "none"
"""The `history` setting of a run that reads no other evaluation."""


@dataclass(frozen=True, slots=True)
class SuiteRequest:
    """One evaluation of a suite: the two checkpoints, the role and the folder."""

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
    reward: str | None = None
    """What gives each rollout a view `reward` beside its score (`evaluation.rewarding`)."""
    uses_kept: bool = False
    """Whether cards of earlier evaluations of the same model are used again (`evaluation.side_store`)."""
    parts: PartSettings | None = None
    """None: everything is played in this process."""

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
    installed = {entry.name: _installed(entry, request) for entry in request.suite.in_order()}
    for entry in request.suite.benchmarks:
        if entry.pair_judge is not None:
            open_pair_judge(entry, f"suite {request.suite.id}")
        if entry.step_judge is not None:
            open_step_judge(entry, f"suite {request.suite.id}")
    for source in request.sides.values():
        if any(getattr(benchmark, "needs_chat_template", True) for benchmark in installed.values()):
            require_chat_template(source, "add one to the tokenizer, or add --set run.plain=true for both sides")
        for name, benchmark in installed.items():
            if getattr(benchmark, "compares_answers", False) and not source.gives_likelihoods:
                by = f" by engine {source.settings.engine}" if source.settings.engine in ENGINES else ""
                raise ConfigError(
                    f"{name} compares answers by likelihood, which {source.spec}{by} cannot give; name a model's "
                    "FOLDER, without an engine or with vllm, or an endpoint (vLLM, SGLang)"
                )
    emitted = {name: declared_output(benchmark.scorer()) for name, benchmark in installed.items()}
    # Again with the installed scorers: a suite file is also checked where they are not installed.
    check_emitted(request.suite, emitted, lambda place: f"suite {request.suite.id}")
    # Before any hidden item is made, so that a refused request has seen none.
    _require_permission(request)
    is_hidden = request.played_split in HIDDEN_SPLITS
    secret = installation.secret() if is_hidden else None
    with installation.access_already_logged():
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
    """Private items are for release candidates alone; each request is logged, granted or not."""
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
        unknown = unknown_name(
            "benchmark", entry.name, known_names("benchmark", BENCHMARKS), f"{where}: not installed here"
        )
        places = [] if entry.urls is None else [entry.urls.dataset, entry.urls.code]
        published = next((f"get its data at {place}, " for place in places if place is not None), "")
        raise ConfigError(
            f"{unknown}; {published}describe them in a benchmark.yaml (docs/how-to/own-benchmark.md) and say where it "
            "is with source: PATH, or decide on a report of scores that were made elsewhere (agent2 decide)"
        )
    benchmark = request.find_benchmark(entry.source or entry.name)
    if entry.source is not None and benchmark.name != entry.name:
        raise ConfigError(f"{where}: {entry.source} is benchmark {benchmark.name!r}; the suite calls it {entry.name!r}")
    if entry.version is not None and entry.version not in (benchmark.version, benchmark.version.partition("+")[0]):
        raise ConfigError(
            f"{where}: needs {entry.name} {entry.version}, installed is {benchmark.version}; scores of two versions "
            "are not comparable: install that version or make a new version of the suite"
        )
    scorer = benchmark.scorer()
    if scorer.name != entry.scorer.name:
        raise ConfigError(
            f"{where}: {entry.name} is to be scored by {entry.scorer.name!r}, the installed one by {scorer.name!r}; "
            "name that one, or install the other"
        )
    _require_tier(entry, scorer, request.suite.protocol.judge, where)
    if request.suite.n_items(entry, request.role) is None and not isinstance(benchmark, ProvidesCount):
        raise ConfigError(
            f"{where}: {entry.name} gives no n_items, and items here are generated without end; set it in the suite"
        )
    return benchmark


def _require_tier(entry: SuiteBenchmark, scorer: Scorer, rule: JudgeRule | None, where: str) -> None:
    """Raise ConfigError where verdicts rest on something else than the suite says, or on another judge."""
    tier, judge = entry.scorer.tier, judge_of(scorer)
    if tier is ScorerTier.HUMAN:
        raise ConfigError(
            f"{where}: {entry.name} is scored by a human, which no evaluation can do; score it by something else, and "
            "have people check that (agent2 spotcheck draw)"
        )
    if judge is None:
        return
    if tier is not ScorerTier.JUDGE:
        raise ConfigError(
            f"{where}: {entry.name} has the scorer tier {tier.value}, and {scorer.name} asks a model; write tier: judge"
        )
    if rule is None:
        raise ConfigError(f"{where}: {entry.name} is scored by a judge, and protocol.judge is null; say which judge")
    for name, actual in judge_rule(judge).items():
        required = getattr(rule, name)
        if required != actual and not (required is None and name in ("model", "prompt_digest")):
            raise ConfigError(
                f"{where}: protocol.judge.{name} is {required}, and {entry.name} is judged with {actual}; change one "
                "of them"
            )


def _benchmark_plan(
    request: SuiteRequest, entry: SuiteBenchmark, benchmark: Benchmark, secret: bytes | None
) -> BenchmarkPlan:
    suite, split = request.suite, request.played_split
    n_items = suite.n_items(entry, request.role)
    if n_items is None and isinstance(benchmark, ProvidesCount):
        n_items = benchmark.count(split, secret)
    items = tuple(benchmark.items(split, n_items or 0, secret))
    limits = limits_of(suite, benchmark)
    reporting = ReportingRule()
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
            sampling=suite.sampling(entry, benchmark.sampling),
            limits=limits,
            reporting=reporting,
        )
        for side, source in request.sides.items()
    }
    return BenchmarkPlan(entry, plans)


def limits_of(suite: Suite, benchmark: Benchmark) -> EvaluationLimits:
    """What a suite's protocol and agent budget allow one rollout of a benchmark.

    The rules of tool use on the card are those that the benchmark's world keeps. Raises ConfigError where they
    allow more than the suite does, and where the suite asks for images.
    """
    if suite.protocol.input is not None and not getattr(benchmark, "takes_images", False):
        raise ConfigError(
            f"suite {suite.id}: protocol.input is about images and {benchmark.name} has none; set it to null"
        )
    _require_same_pictures(suite, benchmark)
    protocol, budget = suite.protocol, suite.agent.budget if suite.agent is not None else None
    minutes = [
        limit
        for limit in (protocol.max_wall_time_minutes, budget.max_minutes if budget is not None else None)
        if limit is not None
    ]
    return EvaluationLimits(
        max_turns=budget.max_steps if budget is not None else None,
        max_wall_time_s=60.0 * min(minutes) if minutes else None,
        retries=protocol.retries,
        context_length=protocol.context_length,
        tools=_tool_rules(suite, benchmark),
        prompt_digest=getattr(benchmark, "prompt_digest", ""),
        context=getattr(benchmark, "context", "full"),
        thinking=protocol.thinking or AUTO,
        max_episode_tokens=budget.max_tokens if budget is not None else None,
    )


def _require_same_pictures(suite: Suite, benchmark: Benchmark) -> None:
    """Raise ConfigError if the suite's rule for pictures is not the benchmark's own, which its protocol names."""
    rule, preparation = suite.protocol.input, getattr(benchmark, "preparation", None)
    if rule is None or preparation is None:
        return
    required = Preparation(rule.image_resolution, rule.preserve_aspect_ratio)
    if required != preparation:
        raise ConfigError(
            f"suite {suite.id}: protocol.input shows pictures as {required.name}, and {benchmark.name} as "
            f"{preparation.name}; change one of them (max_side and keep_ratio of 'pictures' in benchmark.yaml)"
        )


def _tool_rules(suite: Suite, benchmark: Benchmark) -> Mapping[str, JsonValue]:
    """The rules of a benchmark's world; empty: it has no tools."""
    rules: Mapping[str, JsonValue] = getattr(benchmark, "tool_protocol", {})
    allowed = suite.protocol.tools
    if not rules:
        return {}
    where = f"suite {suite.id}: the world of {benchmark.name}"
    if allowed is None:
        raise ConfigError(
            f"{where} has tools, and the suite allows none; write protocol.tools and agent, as in "
            "agent_tool_regression_mini"
        )
    budget = suite.agent.budget.max_tool_calls if suite.agent is not None else None
    max_calls = min(allowed.max_tool_calls, budget or allowed.max_tool_calls)
    n_calls = rules.get("max_tool_calls")
    if isinstance(n_calls, int) and n_calls > max_calls:
        raise ConfigError(f"{where} allows {n_calls} tool calls, the suite {max_calls}; raise the suite's limit")
    if rules.get("parallel_tool_calls") and not allowed.parallel_tool_calls:
        raise ConfigError(f"{where} allows several calls in one message, the suite does not; allow it in the suite")
    permissions = allowed.permissions.model_dump()
    forbidden = [name for name in rules.get("permissions", ()) if permissions.get(name) is False]
    if forbidden:
        raise ConfigError(
            f"{where} permits {', '.join(forbidden)}, the suite forbids it (protocol.tools.permissions); allow it, or "
            "leave the benchmark out"
        )
    return rules


def open_pair_judge(entry: SuiteBenchmark, where: str) -> Any:
    """The pairwise judge of a benchmark. Raises ConfigError for an unknown one, and one that compares nothing."""
    assert entry.pair_judge is not None
    judge: Any = load_scorer(entry.pair_judge.scorer, entry.pair_judge.settings)
    if not callable(getattr(judge, "prefer", None)):
        raise ConfigError(
            f"{where}: {entry.name}: pair_judge {entry.pair_judge.scorer!r} judges one answer and compares nothing; "
            "name a pairwise scorer, such as pair_judge"
        )
    return judge


def open_step_judge(entry: SuiteBenchmark, where: str) -> StepJudge:
    """The step judge of a benchmark. Raises ConfigError for settings that it has not, and as `StepJudge`."""
    assert entry.step_judge is not None
    try:
        return StepJudge(entry.step_judge.model, **entry.step_judge.settings)
    except TypeError as error:
        raise ConfigError(
            f"{where}: {entry.name}: step_judge has settings that no judge has ({error}); see docs/judges.md"
        ) from error


class RunSettings(StrictModel):
    """Settings of one evaluation that no suite fixes."""

    split: Split | None = None
    """Played instead of the role's; test_private needs the role candidate."""
    dtype: str = "float32"
    """Precision of models in this process."""
    engine: str = IN_PROCESS
    """What plays models of folders: `hf` (this process), `vllm`, or `auto`; part of the precision in the protocol."""
    max_in_flight: int | None = Field(default=None, ge=1)
    """Answers at once of a model in this process; None: 64. Fewer take less memory and more time."""
    plain: bool = False
    """Prompt as "User: ... Assistant:", for models without a chat template."""
    seed: int = 0
    """Of all sampling."""
    tokens: bool = False
    """Keep the tokens that models in this process draw, with their log-probabilities, on the cards."""
    reuse: bool = True
    """Use cards of earlier evaluations again where model, items and protocol are the same; never with `tokens`."""
    whole: bool = False
    """All published items in place of a split's; nothing is decided on them."""
    base: str | None = None
    """Base model of the adapters among the models; None: what each adapter's config names."""
    history: str | None = None
    """Folder whose evaluations the gate on the historical best reads; None: the one that the evaluation is in; `none`:
    no folder."""
    executor: str = "local"
    """Where parts are played: a key of `agent2.executors.EXECUTORS`."""
    address: str | None = None
    """Of the executor's cluster."""
    parts: int | None = Field(default=None, ge=1)
    """Parts of each card that are played side by side; None: none on this machine, 8 on a cluster."""
    resources: Resources = Resources()
    """What a part takes of a node."""
    reward_model: str | None = None
    """A reward as data, its YAML file, a reward model's folder or judge:MODEL: gives rollouts the view `reward`."""

    def part_settings(self) -> PartSettings | None:
        """How evaluations are played in parts; None: not in parts. Raises ConfigError for what does not fit."""
        if self.executor == LOCAL and self.parts is None:
            if self.address is not None:
                raise ConfigError("--set run.address: is of a cluster; add --set run.executor=ray or slurm")
            return None
        require_executor(self.executor, "--set run.executor")
        if self.whole or self.tokens:
            raise ConfigError(f"--set run.{'whole' if self.whole else 'tokens'}: is not played in parts; leave one out")
        n_parts = self.parts or PARTS_ON_A_CLUSTER
        return PartSettings(ExecutorSettings(self.executor, self.address, parallel=n_parts), n_parts, self.resources)


class _Run(StrictModel):
    run: RunSettings = RunSettings()


def read_run_settings(overrides: Sequence[str]) -> tuple[RunSettings, list[str]]:
    """The settings of this run among "a.b=value" (`run.seed=3`), and those of the suite. Raises ConfigError."""
    of_run = [override for override in overrides if override.startswith("run.")]
    of_suite = [override for override in overrides if not override.startswith("run.")]
    return parse_yaml("", _Run, "--set", of_run).run, of_suite


def open_contract(name: str, overrides: Sequence[str] = ()) -> Suite:
    """A suite by name or path, or a suite around the benchmark of that name or path.

    overrides: "a.b=value" on the suite. Raises ConfigError for a name of neither.
    """
    refuse_items_file(name, "")
    if name in suite_names() or name in installed("suite") or _names_a_path(name):
        return load_suite(name, overrides)
    if (
        is_known(name)
        or split_bridged(name) is not None
        or is_code(name)
        or (is_located(name) and is_data_file(Path(name).expanduser()))
    ):
        return suite_of(name, overrides)
    if is_located(name):
        if Path(name).is_dir():
            is_data_name(name, "eval")  # raises with what the folder lacks
        return load_suite(name, overrides)
    if is_data_file(Path(name)):
        raise ConfigError(f"{name!r}: to use the folder of that name, write ./{name}")
    require_behind_colon(name, "")
    names = {*suite_names(), *known_names("suite"), *known_names("benchmark", BENCHMARKS)}
    raise unknown_name("suite or benchmark", name, names)


def without_dev_items(suite: Suite) -> list[str]:
    """Benchmarks of a suite that have no items of the split of its dev role, so that this role cannot be played."""
    split = suite.role_rule(EvaluationRole.DEV).split
    lacking = []
    for entry in suite.benchmarks:
        name = entry.source or entry.name
        if split_bridged(name) is not None or (entry.source is None and not is_known(name)):
            continue  # a bridge lists its items when it is started, and what is not installed is refused later
        benchmark = load_benchmark(name)
        if isinstance(benchmark, DeclaredBenchmark) and not benchmark.has_items_of(split):
            lacking.append(benchmark.name)
    return lacking


def _names_a_path(name: str) -> bool:
    """Whether code gives the path of a suite's file, rather than a benchmark."""
    return is_code(name) and not is_known(name) and isinstance(load(find("suite or benchmark", name, {})), str | Path)
