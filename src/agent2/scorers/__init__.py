"""Verdicts on rollouts, each with a reason.

`SCORERS` is the one table of what ships: name -> "module:Class"; installed packages add to it (`agent2.plugins`).
`declared` says what a scorer of that name may emit, so that a suite, a gate or a card is checked without a benchmark.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

from agent2.errors import ConfigError
from agent2.plugins import PluginLocation, build, find, load, require_members, source_digest, with_source_version
from agent2.records import EvaluationProtocol, JsonValue, Scorer, ScorerOutput, declared_output
from agent2.scorers.benchmark_labels import BenchmarkLabels, label_prefix_of

SCORERS: Mapping[str, str] = MappingProxyType(
    {
        "anls": "agent2.scorers.answers:AnlsScorer",
        "answer_parts": "agent2.scorers.answer_parts:AnswerPartsJudge",
        "api_calls": "agent2.scorers.tool_calls:ApiCallScorer",
        "chat_calls": "agent2.scorers.tool_calls:ChatCallScorer",
        "choice": "agent2.scorers.choice:ChoiceScorer",
        "cited_answer": "agent2.scorers.search:CitedAnswerScorer",
        "constraints": "agent2.scorers.constraints:ConstraintScorer",
        "disputed_answer": "agent2.scorers.search:DisputedAnswerScorer",
        "dialogue_state": "agent2.scorers.tool_calls:DialogueScorer",
        "exact": "agent2.scorers.answers:ExactScorer",
        "final_answer": "agent2.scorers.answers:FinalAnswerScorer",
        "function_calls": "agent2.scorers.tool_calls:FunctionCallScorer",
        "grounded": "agent2.scorers.grounding:GroundedScorer",
        "household_won": "agent2.scorers.household:HouseholdScorer",
        "likelihood": "agent2.scorers.likelihood:LikelihoodScorer",
        "llm_judge": "agent2.scorers.judges:LlmJudge",
        "longer_answer": "agent2.scorers.answers:LongerAnswerScorer",
        "matching_calls": "agent2.scorers.matching_calls:MatchingCallScorer",
        "mathvista": "agent2.scorers.vision_answers:MathVistaScorer",
        "math_answer": "agent2.scorers.math_answer:MathAnswerScorer",
        "mmmu": "agent2.scorers.vision_answers:MmmuScorer",
        "option_orders": "agent2.scorers.option_orders:OptionOrdersScorer",
        "page_checks": "agent2.scorers.page_checks:PageChecksScorer",
        "page_looks": "agent2.scorers.page_looks:PageLooksJudge",
        "patch_tests": "agent2.scorers.patch_tests:PatchTestsScorer",
        "pair_judge": "agent2.scorers.judges:PairJudge",
        "panel_judge": "agent2.scorers.judges:PanelJudge",
        "purchase": "agent2.scorers.reward:PurchaseScorer",
        "python_tests": "agent2.scorers.python_tests:PythonTestsScorer",
        "rational": "agent2.scorers.answers:RationalScorer",
        "relaxed_accuracy": "agent2.scorers.vision_answers:RelaxedAccuracyScorer",
        "relaxed_numeric": "agent2.scorers.answers:RelaxedNumericScorer",
        "resolved": "agent2.scorers.tool_calls:ResolvedScorer",
        "reward": "agent2.scorers.reward:RewardScorer",
        "reward_model": "agent2.scorers.judges:RewardModelScorer",
        "task_card": "agent2.scorers.task_card:TaskCardScorer",
        "task_set": "agent2.scorers.task_set:TaskSetScorer",
        "trajectory_match": "agent2.scorers.tool_calls:TrajectoryMatchScorer",
        "token_f1": "agent2.scorers.answers:TokenF1Scorer",
        "typed_calls": "agent2.scorers.typed_calls:TypedCallScorer",
        "web_trace": "agent2.scorers.web_trace:WebTraceScorer",
    }
)
SCORING_METHODS = ("score", "score_batch", "score_on", "prefer")
"""A scorer has at least one of these (`records.ScoringMode`); `prefer` compares two rollouts."""


@runtime_checkable
class ReadsItems(Protocol):
    """A scorer that checks an item when it is read from a file, rather than when the first answer is scored."""

    def read_item(self, reference: str | None, payload: Mapping[str, JsonValue], where: str) -> Mapping[str, JsonValue]:
        """The payload in the scorer's own form. where: file and line. Raises ConfigError for an unusable item."""


def load_scorer(name: str | PluginLocation, settings: Mapping[str, Any] | None = None) -> Scorer:
    """A scorer by any name that `agent2.plugins` knows; the version of an unpackaged one includes a source digest.

    Raises ConfigError for an unknown name or setting, and for code that is not usable as a scorer.
    """
    location = find("scorer", name, SCORERS) if isinstance(name, str) else name
    scorer: Scorer = build(location, settings)
    if location.is_packaged:
        return scorer
    require_scorer(location, scorer)
    return with_source_version(scorer, source_digest(location))


def require_scorer(location: PluginLocation, scorer: object) -> None:
    """Raise ConfigError for an object that is not usable as a scorer. location: its origin, for the message."""
    methods = [name for name in SCORING_METHODS if hasattr(scorer, name)]
    require_members(location, scorer, ("name", "version"), methods or SCORING_METHODS[:1])


def declared(name: str) -> ScorerOutput | None:
    """What the scorer of that name (a version suffix `-v...` is ignored) may emit; None: it is not known here."""
    try:
        return declared_output(load(find("scorer", name.rpartition("-v")[0] or name, SCORERS)))
    except ConfigError:
        return None  # not installed here, or broken: a card of that scorer can be read all the same


def follows_rules(name: str) -> bool:
    """Whether the scorer of that name is packaged and asks no model: those that do take batches or compare pairs."""
    if name not in SCORERS:
        return False
    kind = load(find("scorer", name, SCORERS))
    return not any(hasattr(kind, name) for name in ("score_batch", "prefer", "asks_model"))


def asks_model(name: str) -> bool:
    """Whether the verdicts of the scorer of that name (a version suffix is ignored) are a model's opinion."""
    try:
        kind = load(find("scorer", name.rpartition("-v")[0] or name, SCORERS))
    except ConfigError:
        return False  # as in `declared`
    return bool(getattr(kind, "asks_model", False))


def own_labels(scorer: str, benchmark: str, *, is_packaged: bool = False) -> Mapping[str, str]:
    """Badcase classes as the scorer of that name declares them -> as it names them for the benchmark of that name.

    is_packaged: the benchmark is one of this package's; else own data. Empty for a scorer whose classes name no
    benchmark, and for a packaged benchmark that it was written for.
    """
    try:
        kind = load(find("scorer", scorer.rpartition("-v")[0] or scorer, SCORERS))
    except ConfigError:
        return {}  # as in `declared`
    if not (isinstance(kind, type) and issubclass(kind, BenchmarkLabels)):
        return {}
    if is_packaged and kind.is_written_for(benchmark):
        return {}
    prefix = label_prefix_of(benchmark)
    return {label: prefix + label.removeprefix(kind.label_prefix) for label in kind.emits.labels}


def labels_by_older_name(protocol: EvaluationProtocol) -> Mapping[str, str]:
    """Badcase classes as older cards of a protocol may have them -> as they are named now; empty: none was renamed."""
    benchmark, _, version = protocol.benchmark.rpartition("-v")
    is_packaged = "+" not in version  # which precedes the digest of own data
    return own_labels(protocol.scorer, benchmark, is_packaged=is_packaged)


def expected_form(name: str) -> str:
    """The form of answer that the scorer of that name (a version suffix is ignored) reads; empty: it does not say."""
    try:
        form = getattr(load(find("scorer", name.rpartition("-v")[0] or name, SCORERS)), "expects", "")
    except ConfigError:
        return ""  # as in `declared`
    return form if isinstance(form, str) else ""
