"""The five lines of capability that post-training can move, and what to distrust on each.

A suite that covers one line alone cannot say whether something else was paid for it; `covered_lines` tells which
lines a suite looks at. Data and one function; the last column is what a reader of a good score should ask first.
"""

from dataclasses import dataclass

from agent2.contract.suite import Suite


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


def covered_lines(suite: Suite) -> dict[str, tuple[str, ...]]:
    """Line -> benchmarks of the suite on it, in the order of the lines; a line without any has an empty tuple."""
    names = {entry.name for entry in suite.benchmarks}
    return {line.name: tuple(name for name in line.benchmarks if name in names) for line in CAPABILITY_LINES}
