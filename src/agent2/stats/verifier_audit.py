"""Verifier audit: do the tests of a problem refuse every known-wrong solution, and accept the right ones?

Promises: a problem is the unit (intervals are over problems); a solution that was not run is not counted as
refused. Does NOT judge how diverse the known-wrong solutions are: a verifier is only as audited as they are.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agent2.errors import NotEnoughData
from agent2.stats.estimates import Estimate, wilson
from agent2.stats.measure import Measure, ratio_of_sums


@dataclass(frozen=True, slots=True)
class AuditedProblem:
    """What the tests of one problem said of solutions whose truth is known."""

    wrong_fails_WT: ArrayLike
    """Wrong solutions x tests: true where the test fails the solution."""
    correct_fails_CT: ArrayLike | None = None
    """Correct solutions x the same tests; None if there is none."""


@dataclass(frozen=True, slots=True)
class VerifierAudit:
    """How well the tests of a set of problems verify."""

    detection_rate: Measure
    """Share of wrong solutions that some test fails; interval over problems."""
    accuracy: Estimate
    """Share of problems whose tests refuse every wrong solution and accept every correct one."""
    false_alarms: int
    """Correct solutions refused."""
    n_correct: int
    n_wrong: int
    accuracy_by_tests_T: NDArray[np.float64]
    """Expected accuracy with 1, 2, ... tests drawn at random from each problem's (all of them where fewer)."""
    area: float
    """Mean of that curve."""

    def __str__(self) -> str:
        return (
            f"verifier accuracy {self.accuracy}; detection rate {self.detection_rate} of {self.n_wrong} wrong; "
            f"{self.false_alarms} of {self.n_correct} correct refused; area over tests {self.area:.4f}"
        )


def audit_verifier(problems: Sequence[AuditedProblem], rng: np.random.Generator, n_orders: int = 200) -> VerifierAudit:
    """Detection rate and verifier accuracy, and how accuracy grows with the number of tests.

    problems: at least one, each with at least one wrong solution and one test. rng draws n_orders random
    orders of each problem's tests for the curve. Raises NotEnoughData for no problem, no wrong solution or no
    test, ValueError for verdicts that are not 0/1 (drop solutions that were not run) or unequal numbers of
    tests.
    Source: SAGA (PAPERS #30), names of detection rate and verifier accuracy; definitions as generally known,
    not checked against the paper.
    """
    if not problems:
        raise NotEnoughData("a verifier audit needs at least one problem with known-wrong solutions")
    if n_orders < 1:
        raise ValueError(f"n_orders={n_orders} must be at least 1")
    checked = [_checked(problem, number) for number, problem in enumerate(problems)]
    detected = np.array([int(wrong.any(axis=1).sum()) for wrong, _ in checked], dtype=np.float64)
    n_wrong = np.array([len(wrong) for wrong, _ in checked], dtype=np.float64)
    alarms = np.array([int(correct.any(axis=1).sum()) for _, correct in checked])
    n_right = int(np.count_nonzero((detected == n_wrong) & (alarms == 0)))
    n_tests = max(wrong.shape[1] for wrong, _ in checked)
    curve = np.zeros(n_tests)
    for wrong, correct in checked:
        curve += _accuracy_by_tests(wrong, correct, n_tests, n_orders, rng)
    curve /= len(checked)
    n_correct = sum(len(correct) for _, correct in checked)
    return VerifierAudit(
        ratio_of_sums(detected, n_wrong, "detection rate"),
        wilson(n_right, len(checked)),
        int(alarms.sum()),
        n_correct,
        int(n_wrong.sum()),
        curve,
        float(curve.mean()),
    )


def _accuracy_by_tests(
    wrong_WT: NDArray[np.bool_], correct_CT: NDArray[np.bool_], length: int, n_orders: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Chance that t tests drawn without replacement judge every solution right, for t = 1 to length."""
    n_tests = wrong_WT.shape[1]
    right = np.zeros(n_tests)
    for _ in range(n_orders):
        order = rng.permutation(n_tests)
        first_W = np.where(wrong_WT.any(axis=1), wrong_WT[:, order].argmax(axis=1), n_tests)
        all_caught_at = int(first_W.max())
        fails_T = correct_CT[:, order].any(axis=0)
        first_alarm = int(fails_T.argmax()) if fails_T.any() else n_tests
        right[all_caught_at:first_alarm] += 1.0
    return np.pad(right / n_orders, (0, length - n_tests), mode="edge")


def _checked(problem: AuditedProblem, number: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    wrong = _verdicts(problem.wrong_fails_WT, f"problem {number}: wrong_fails_WT")
    if problem.correct_fails_CT is None:
        return wrong, np.zeros((0, wrong.shape[1]), dtype=np.bool_)
    correct = _verdicts(problem.correct_fails_CT, f"problem {number}: correct_fails_CT")
    if wrong.shape[1] != correct.shape[1]:
        raise ValueError(
            f"problem {number}: wrong solutions saw {wrong.shape[1]} tests, correct ones {correct.shape[1]}; "
            "run both on the same tests"
        )
    return wrong, correct


def _verdicts(values: ArrayLike, what: str) -> NDArray[np.bool_]:
    matrix = np.asarray(values, dtype=np.float64)
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise NotEnoughData(f"{what} must be solutions x tests with one of each at least, got shape {matrix.shape}")
    if not np.isin(matrix, (0.0, 1.0)).all():
        raise ValueError(f"{what} holds values other than 0 and 1; leave out solutions that were not run")
    return matrix.astype(np.bool_)
