import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from agent2.errors import NotEnoughData
from agent2.stats.estimates import wilson
from agent2.stats.quality import AuditedProblem, audit_verifier


def rng(seed=0):
    return np.random.default_rng(seed)


def test_rates_of_a_hand_computed_audit():
    good = AuditedProblem([[1, 0], [0, 1]], [[0, 0]])
    leaky = AuditedProblem([[0, 0], [1, 1]])  # one of two wrong ones passes
    harsh = AuditedProblem([[1, 1]], [[1, 0], [0, 0]])  # a correct one is refused
    audit = audit_verifier([good, leaky, harsh], rng())
    assert audit.detection_rate.value == pytest.approx(4 / 5)
    assert audit.accuracy.value == pytest.approx(1 / 3)
    assert audit.accuracy.n == 3
    assert (audit.false_alarms, audit.n_correct, audit.n_wrong) == (1, 3, 5)
    assert "1 of 3 correct refused" in str(audit)


def test_the_curve_is_the_chance_over_random_orders_of_tests():
    # only test 0 catches the wrong one: 1/3, 2/3, 1 with 1, 2, 3 tests
    audit = audit_verifier([AuditedProblem([[1, 0, 0]])], rng(), n_orders=6000)
    assert audit.accuracy_by_tests_T == pytest.approx([1 / 3, 2 / 3, 1], abs=0.03)
    assert audit.area == pytest.approx(audit.accuracy_by_tests_T.mean())


def test_a_correct_solution_refused_late_ends_the_curve():
    # tests 0 and 1: the first catches the wrong one, the second refuses the correct one
    audit = audit_verifier([AuditedProblem([[1, 0]], [[0, 1]])], rng(), n_orders=2000)
    assert audit.accuracy_by_tests_T[1] == 0.0
    assert audit.accuracy_by_tests_T[0] == pytest.approx(0.5, abs=0.05)


def test_a_problem_with_fewer_tests_keeps_its_last_value():
    audit = audit_verifier([AuditedProblem([[1]]), AuditedProblem([[0, 0, 0]])], rng())
    assert audit.accuracy_by_tests_T == pytest.approx([0.5, 0.5, 0.5])


@given(hnp.arrays(np.int8, st.tuples(st.integers(1, 4), st.integers(1, 5)), elements=st.integers(0, 1)))
@settings(max_examples=40, deadline=None)
def test_without_false_alarms_more_tests_never_hurt(wrong):
    audit = audit_verifier([AuditedProblem(wrong)], rng(), n_orders=20)
    assert np.all(np.diff(audit.accuracy_by_tests_T) >= 0)
    assert audit.accuracy_by_tests_T[-1] == audit.accuracy.value
    assert 0.0 <= audit.detection_rate.value <= 1.0


def test_few_problems_all_detected_are_no_certain_verifier():
    rate = audit_verifier([AuditedProblem([[1], [1]])] * 4, rng()).detection_rate
    assert (rate.value, rate.n, rate.low) == (1.0, 4, pytest.approx(wilson(4, 4).low))


def test_bad_audits_are_refused():
    with pytest.raises(NotEnoughData, match="at least one problem"):
        audit_verifier([], rng())
    with pytest.raises(NotEnoughData, match="problem 0: wrong_fails_WT"):
        audit_verifier([AuditedProblem(np.zeros((0, 3)))], rng())
    with pytest.raises(NotEnoughData):
        audit_verifier([AuditedProblem([[]])], rng())
    with pytest.raises(ValueError, match="other than 0 and 1"):
        audit_verifier([AuditedProblem([[1, np.nan]])], rng())
    with pytest.raises(ValueError, match="same tests"):
        audit_verifier([AuditedProblem([[1, 0]], [[0]])], rng())
    with pytest.raises(ValueError, match="n_orders"):
        audit_verifier([AuditedProblem([[1, 0]])], rng(), n_orders=0)
