"""Choice of benchmarks: which one shows a failure, what results mean together, which capabilities a suite covers.

The first question is where the trained agent will fail, not which benchmark is popular: a code fixer is tested on
repositories before general questions, a booking agent on dialogues with a database. Cheap pure-text calls come
first, because a low score on whole tasks may be nothing but broken calls; what needs more is skipped until they work.
Thresholds are ours where the sources give none, and each is stated in its row.

A suite that covers one line of capability alone cannot show whether another one paid for a gain: `covered_lines` lists
the five lines that post-training can move, and what to distrust in a good score on each.

Data and functions over them; nothing is run, and no benchmark has to be installed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from agent2.contract.suite import Suite
from agent2.errors import ConfigError, unknown_name

FIRST = "bfcl_v3"
"""Run before all others."""
FLOORS: Mapping[str, float] = MappingProxyType(
    {
        "acebench": 0.5,
        "api_bank": 0.5,
        "swebench_verified": 0.6,
        "webarena": 0.6,
        "mind2web": 0.6,
        "tau_bench": 0.6,
        "gaia": 0.6,
        "toolathlon": 0.6,
    }
)
"""Benchmark -> score of `FIRST` from which on it is worth its cost."""


@dataclass(frozen=True, slots=True)
class SelectionFailure:
    """A kind of failure of agents, and the benchmarks that would show it, the closest one first."""

    name: str
    what: str
    benchmarks: tuple[str, ...]
    why: str


FAILURES: tuple[SelectionFailure, ...] = (
    SelectionFailure(
        "function_calls",
        "names, arguments and order of plain function calls",
        ("bfcl_v3",),
        "the cheapest one: text alone, no sandbox",
    ),
    SelectionFailure(
        "many_tools",
        "parallel calls, long context, several agents with tools",
        ("acebench",),
        "its categories separate normal, special and agent calls",
    ),
    SelectionFailure(
        "api_search",
        "finding the right API before it is called",
        ("api_bank",),
        "the API has to be planned for, found and then called",
    ),
    SelectionFailure(
        "code_fixing",
        "repair of real repositories",
        ("swebench_verified",),
        "tests of the repository decide; general questions such as GAIA's say little about it",
    ),
    SelectionFailure(
        "web",
        "browsing, forms and shops",
        ("webarena", "mind2web"),
        "a browser that can be set back to the same beginning matters more than questions about pages",
    ),
    SelectionFailure(
        "customer_dialogue",
        "customer service, booking, CRM: vague users, rules, a database",
        ("tau_bench",),
        "a simulated user and the state of a database are closest to the business",
    ),
    SelectionFailure(
        "general_assistant",
        "mixed questions that need search, files and several tools",
        ("gaia", "toolathlon"),
        "final answers, and many calls whose state crosses tools",
    ),
)


@dataclass(frozen=True, slots=True)
class SelectionStep:
    """One benchmark of a plan."""

    step: int
    benchmark: str
    state: str
    """`run`, `done`, `wait` (for the first one's result) or `skip`."""
    why: str


@dataclass(frozen=True, slots=True)
class ResultPattern:
    """A reading of two results together."""

    name: str
    high: str
    at_least: float
    low: str
    below: float
    reading: str
    advice: str


PATTERNS: tuple[ResultPattern, ...] = (
    ResultPattern(
        "calls_fine_code_short",
        FIRST,
        0.85,
        "swebench_verified",
        0.30,
        "Calls are written correctly and repositories are not repaired: planning and understanding of code are short.",
        "Train on whole repository tasks (locating, changing several files, running tests), not on more calls.",
    ),
    ResultPattern(
        "calls_fine_search_short",
        FIRST,
        0.85,
        "api_bank",
        0.60,
        "A given function is called well, the right one is not found.",
        "Train retrieval of APIs and the order plan, search, call.",
    ),
    ResultPattern(
        "calls_fine_web_short",
        FIRST,
        0.85,
        "webarena",
        0.30,
        "Calls are fine, browser tasks are not: reading pages and long plans are short.",
        "Train on resettable sites with state checks; look at where in the episode tasks are lost.",
    ),
    ResultPattern(
        "calls_fine_dialogue_short",
        FIRST,
        0.85,
        "tau_bench",
        0.40,
        "Calls are fine, dialogues are not: asking back and following business rules are short.",
        "Train with simulated users who leave things out, and check the database after each dialogue.",
    ),
    ResultPattern(
        "code_fine_general_short",
        "swebench_verified",
        0.40,
        "gaia",
        0.20,
        "Repositories are repaired and general questions are not answered: the gain is specific to code.",
        "Say so in the report; add search and file tasks if a general assistant is the goal.",
    ),
)


@dataclass(frozen=True, slots=True)
class CapabilityLine:
    """One line of capability."""

    name: str
    benchmarks: tuple[str, ...]
    """Names by which suites call them, embedded siblings included."""
    metrics: tuple[str, ...]
    question: str
    risk: str


CAPABILITY_LINES: tuple[CapabilityLine, ...] = (
    CapabilityLine(
        "instruction following",
        ("ifeval", "mt_bench", "alpaca_eval", "mini_ifeval"),
        ("rule satisfaction rate", "pairwise win rate"),
        "are constraints followed, and is the answer preferred?",
        "a judge may favour length, politeness or confidence",
    ),
    CapabilityLine(
        "math and verifiable reasoning",
        ("gsm8k", "math", "aime_private", "mini_math", "arithmetic", "mathvista"),
        ("exact match", "pass@k", "verifier accuracy"),
        "did reasoning that can be checked improve?",
        "answers may have leaked; a reward for format may be exploited",
    ),
    CapabilityLine(
        "code",
        ("humaneval", "mbpp", "livecodebench", "swebench_verified", "mini_repo"),
        ("pass@1", "pass@k", "test pass rate"),
        "does the generated code run?",
        "public problems may be in the training data; sample tests may be overfitted",
    ),
    CapabilityLine(
        "general coverage",
        ("helm", "mmlu", "mmlu_pro", "gpqa", "mmmu", "mini_knowledge"),
        ("accuracy", "robustness", "calibration", "toxicity"),
        "was one capability bought with others?",
        "there are many metrics, so one has to be named primary before they are seen",
    ),
    CapabilityLine(
        "reward model",
        ("reward_bench", "preferences_internal"),
        ("pairwise accuracy", "segment accuracy"),
        "does the reward agree with people?",
        "training and evaluation data of one source inflate the score",
    ),
)


@dataclass(frozen=True, slots=True)
class SelectionReading:
    """A conclusion from several results."""

    name: str
    reading: str
    advice: str


def choose_benchmarks(failure: str, scores: Mapping[str, float] | None = None) -> list[SelectionStep]:
    """The benchmarks to run for one kind of failure, cheapest prerequisite first.

    scores: results so far, 0 to 1. Raises ConfigError for an unknown kind of failure, with the nearest one.
    """
    kinds = {kind.name: kind for kind in FAILURES}
    if failure not in kinds:
        raise unknown_name("kind of failure", failure, kinds)
    kind, scores = kinds[failure], scores or {}
    names = (FIRST, *(name for name in kind.benchmarks if name != FIRST))
    return [_step(number, name, kind, scores) for number, name in enumerate(names, start=1)]


def diagnose(scores: Mapping[str, float]) -> list[SelectionReading]:
    """Conclusions from results on several benchmarks; empty if no pattern fits.

    scores: benchmark -> share of success, 0 to 1.
    """
    readings = []
    first = scores.get(FIRST)
    doubtful = [name for name in scores if first is not None and first < FLOORS.get(name, 0.0)]
    if first is not None and doubtful:
        readings.append(
            SelectionReading(
                "calls_broken",
                f"{FIRST} is at {100 * first:.0f}%: results on {', '.join(doubtful)} may show broken calls only.",
                "Fix names, arguments and format of calls before anything is concluded from whole tasks.",
            )
        )
    for pattern in PATTERNS:
        high, low = scores.get(pattern.high), scores.get(pattern.low)
        if high is not None and low is not None and high >= pattern.at_least and low < pattern.below:
            reading = f"{pattern.high} {100 * high:.0f}%, {pattern.low} {100 * low:.0f}%. {pattern.reading}"
            readings.append(SelectionReading(pattern.name, reading, pattern.advice))
    return readings


def read_scores(texts: Sequence[str]) -> dict[str, float]:
    """Scores written as `bfcl_v3=0.95` or `bfcl_v3=95%`. Raises ConfigError for an unknown benchmark or value."""
    names = sorted({FIRST, *FLOORS})
    scores = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if name not in names:
            raise unknown_name("benchmark", name, names, f"--score {text}")
        try:
            score = float(value.removesuffix("%")) / (100 if value.endswith("%") else 1)
        except ValueError:
            score = -1.0
        if not separator or not 0 <= score <= 1:
            raise ConfigError(f"--score {text}: write it as {name}=0.95 or {name}=95%")
        scores[name] = score
    return scores


def _step(number: int, name: str, kind: SelectionFailure, scores: Mapping[str, float]) -> SelectionStep:
    first, floor = scores.get(FIRST), FLOORS.get(name)
    if name in scores:
        return SelectionStep(number, name, "done", f"scored {100 * scores[name]:.1f}%")
    if floor is None:
        why = kind.why if name in kind.benchmarks else "first: cheap, text alone, and everything else rests on calls"
        return SelectionStep(number, name, "run", why)
    if first is None:
        return SelectionStep(number, name, "wait", f"needs {FIRST} at {100 * floor:.0f}% or more; {kind.why}")
    if first < floor:
        return SelectionStep(
            number, name, "skip", f"{FIRST} scored {100 * first:.1f}%, {100 * floor:.0f}% is needed first"
        )
    return SelectionStep(number, name, "run", kind.why)


def covered_lines(suite: Suite) -> dict[str, tuple[str, ...]]:
    """Line -> benchmarks of the suite on it, in the order of the lines; a line without any has an empty tuple."""
    names = {entry.name for entry in suite.benchmarks}
    return {line.name: tuple(name for name in line.benchmarks if name in names) for line in CAPABILITY_LINES}
