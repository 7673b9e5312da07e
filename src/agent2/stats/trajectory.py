"""The weighted score of one trajectory: correctness, completeness, efficiency, process and, for research, citations.

Promises: the outcome rules. Weights are refused in which another dimension weighs more than correctness, or in
which efficiency and process together weigh more than correctness (the source's own default, 0.4 against
0.15 + 0.25, is the limit). Weights are returned with every score. A dimension that the task does not define (no
key points, no list of allowed tools) or the trajectory does not have (no tool call to judge) is left out and its
weight shared out over the others in proportion; one that should have been judged and was not makes the total
None, never a zero. Does NOT replace task success: a wrong answer with perfect manners still gets points.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import NamedTuple

TOLERANCE = 1e-9


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
citations. The rest of both presets is our choice (Z10): code keeps completeness and lets the way count less;
research keeps correctness the heaviest and gives what remains in equal parts to efficiency and process."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a trajectory."""

    tool: str | None = None
    """Name of the tool it called; None for a step of thought or a message."""


@dataclass(frozen=True, slots=True)
class Trajectory:
    """What an agent did, as far as its score needs it."""

    steps: Sequence[Step]
    final_answer: str | None
    """None: it ended without one, which is a failure of the agent; keep runs lost to a fault out of here."""
    num_turns: int
    citations_supported: Sequence[float | None] | None = None
    """For each citation whether its source supports it, None where that was not judged; only for research."""

    @property
    def tool_calls(self) -> list[Step]:
        """The steps that called a tool."""
        return [step for step in self.steps if step.tool is not None]


@dataclass(frozen=True, slots=True)
class TrajectoryTask:
    """What a trajectory is held against."""

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
Appropriate = Callable[[Step, TrajectoryTask], float | None]
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
    """1 when the key point stands in the answer word for word, without regard to case and white space, else 0."""
    return float(" ".join(key_point.casefold().split()) in " ".join(answer.casefold().split()))


def tool_suits(step: Step, task: TrajectoryTask) -> float | None:
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
    arguments replace the plain rules by a verifier or judge. Raises ValueError for judgements outside 0-1.
    Source: document 001 on trajectory evaluation (rows G13-G17), with efficiency clipped (Z09).
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
    found = TrajectoryScores(scores, {name: weight / whole for name, weight in used.items()})
    if found.missing:
        return TrajectoryResult(None, found)
    total = sum(found.weights[name] * score for name, score in scores.items() if score is not None)
    return TrajectoryResult(min(1.0, total), found)


def _citations(supported: Sequence[float | None] | None) -> float | None:
    if supported is None:
        return None
    return _mean(supported, "citations") if len(supported) else 0.0


def _mean(judgements: Sequence[float | None], what: str) -> float | None:
    known = [value for value in (_judged(judgement, what) for judgement in judgements) if value is not None]
    return sum(known) / len(known) if len(known) == len(judgements) else None


def _judged(judgement: float | None, what: str) -> float | None:
    if judgement is None or math.isnan(judgement):
        return None
    if not 0.0 <= judgement <= 1.0:
        raise ValueError(f"{what} was judged {judgement:g}; a judgement must be between 0 and 1")
    return float(judgement)
