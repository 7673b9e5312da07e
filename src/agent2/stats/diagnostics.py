"""Diagnostic metrics of answers and tool use: they explain a change and decide nothing.

Promises: rates are shares of items with Wilson's interval; None is an item on which the detector gave no verdict:
left out and counted. Whether an answer refuses, fails to parse or misreads a picture is found by scorers; here
it is counted. Repetition is measured here, from the text.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from agent2.errors import NotEnoughData
from agent2.stats.measure import COUNTS, UNIT, Measure, Values, measure, ratio_of_sums, same_length, with_gaps


@dataclass(frozen=True, slots=True)
class MeanChange:
    """A mean before and after, for lengths and counts."""

    old: Measure
    new: Measure

    @property
    def absolute(self) -> float:
        """New mean minus old mean, in the unit of the values."""
        return self.new.value - self.old.value

    @property
    def relative(self) -> float | None:
        """Change as a share of the old mean (0.5 is +50%); None when the old mean is 0."""
        return self.absolute / self.old.value if self.old.value else None

    def __str__(self) -> str:
        relative = "no relative change from 0" if self.relative is None else f"{self.relative:+.1%}"
        return f"{self.old} -> {self.new}: {self.absolute:+.4g} ({relative})"


def ocr_error_rate(misread: Values) -> Measure:
    """Share of items whose picture was misread (text, axis, label), whatever followed. Lower is better."""
    return _rate(misread, "ocr_error_rate")


def answer_parse_fail_rate(unparsed: Values) -> Measure:
    """Share of outputs from which no answer could be read. Lower is better."""
    return _rate(unparsed, "answer_parse_fail_rate")


def refusal_rate(refused: Values) -> Measure:
    """Share of outputs that refuse the task."""
    return _rate(refused, "refusal_rate")


def format_failure_rate(broken: Values) -> Measure:
    """Share of outputs that break the demanded format. Lower is better."""
    return _rate(broken, "format_failure_rate")


def response_length_mean(lengths: Values) -> Measure:
    """Mean length of the responses, in whatever unit the lengths have (tokens, in our reports)."""
    return measure(lengths, "response_length_mean", COUNTS)


def response_length_change(old_lengths: Values, new_lengths: Values) -> MeanChange:
    """Mean response length before and after, with absolute and relative change.

    The two sides may have different items; for an interval of the change, pair them and use `comparisons`.
    """
    return MeanChange(response_length_mean(old_lengths), response_length_mean(new_lengths))


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
    return 1.0 - len({tuple(words[start : start + n_words]) for start in range(runs)}) / runs


def repetition_rate(texts: Sequence[str | None], n_words: int = 4, threshold: float = 0.3) -> Measure:
    """Share of outputs in which at least `threshold` of the runs of n words repeat. Lower is better.

    texts: None where the output was lost. The threshold is ours: ordinary prose stays below 0.1 and loops
    near 1, so its exact place matters little.
    """
    if not 0.0 < threshold < 1.0:
        raise ValueError(f"threshold={threshold} must be between 0 and 1, for example 0.3")
    loops = [None if text is None else float(repeated_share(text, n_words) >= threshold) for text in texts]
    return measure(loops, "repetition_rate", UNIT)


def avg_tool_calls_successful_tasks(n_tool_calls: Values, solved: Values) -> Measure:
    """Mean number of tool calls in the tasks that were solved.

    n_tool_calls, solved: one value for each task. Missing: solved tasks without a count and tasks without a
    verdict. Raises NotEnoughData when no solved task has a count.
    """
    calls, verdicts = with_gaps(n_tool_calls, "n_tool_calls", COUNTS), with_gaps(solved, "solved", UNIT)
    same_length("avg_tool_calls_successful_tasks", n_tool_calls=calls, solved=verdicts)
    unknown = np.isnan(verdicts)
    if not bool((verdicts == 1.0).any()):
        raise NotEnoughData("no task was solved, so there are no tool calls of successful tasks")
    return measure(np.where(unknown, np.nan, calls)[unknown | (verdicts == 1.0)], "tool calls of solved tasks", COUNTS)


def tool_error_recovery_rate(n_recovered: Values, n_errors: Values, items: Sequence[Hashable] | None = None) -> Measure:
    """Tool errors that were got over, over all tool errors; see `measure.ratio_of_sums`. Higher is better."""
    return ratio_of_sums(n_recovered, n_errors, "tool_error_recovery_rate", items)


def safety_violation_rate(n_violations: Values) -> Measure:
    """Share of tasks with at least one violation, one count for each task. Lower is better."""
    counts = with_gaps(n_violations, "n_violations", COUNTS)
    return measure(np.where(np.isnan(counts), np.nan, counts > 0), "safety_violation_rate", UNIT)


def _rate(flags: Values, what: str) -> Measure:
    vector = with_gaps(flags, what)
    if not bool(np.all(np.isnan(vector) | (vector == 0.0) | (vector == 1.0))):
        raise ValueError(f"{what} needs 0 or 1 for each item (None where there is no verdict)")
    return measure(vector, what, UNIT)
