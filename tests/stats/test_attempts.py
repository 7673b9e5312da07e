from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent2.errors import NotEnoughData
from agent2.stats.attempts import (
    circular_accuracy,
    pass_at_k,
    pass_at_k_by_item,
    pass_hat_k,
    pass_hat_k_by_item,
    pass_metrics,
    tally,
)

COUNTS = st.integers(1, 40).flatmap(
    lambda n: st.lists(st.integers(0, n), min_size=1, max_size=12).map(lambda correct: (correct, [n] * len(correct)))
)


def published_pass_at_k(n, c, k):
    """The form printed in Chen et al. 2021, figure 3."""
    if n - c < k:
        return 1.0
    return 1.0 - np.prod(1.0 - k / np.arange(n - c + 1, n + 1))


def test_pass_at_k_equals_the_published_form():
    for n in (1, 2, 7, 64, 200):
        correct = np.arange(n + 1)
        for k in {1, min(2, n), n // 2 + 1, n}:
            expected = [published_pass_at_k(n, c, k) for c in correct]
            assert pass_at_k_by_item(correct, np.full(n + 1, n), k) == pytest.approx(expected, abs=1e-12)


def test_pass_hat_k_of_a_hand_computed_case():
    # n=5, c=3, k=2: C(3,2)/C(5,2) = 3/10; c=1 cannot give two successes
    assert pass_hat_k_by_item([3, 1], [5, 5], 2) == pytest.approx([0.3, 0.0])
    assert pass_hat_k([3, 1], [5, 5], 2) == pytest.approx(0.15)


@pytest.mark.parametrize("k", [1, 3, 10, 64])
def test_pass_hat_k_equals_the_ratio_of_binomials(k):
    correct = np.arange(65)
    expected = [comb(c, k) / comb(64, k) for c in range(65)]
    assert pass_hat_k_by_item(correct, np.full(65, 64), k) == pytest.approx(expected, abs=1e-12)


def test_pass_hat_n_is_whether_all_attempts_were_correct():
    assert pass_hat_k_by_item([0, 7, 8], [8, 8, 8], 8).tolist() == [0.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("correct", "samples", "k"), [([3], [2], 1), ([-1], [2], 1), ([0.5], [2], 1), ([1], [2, 2], 1), ([1], [2], 0)]
)
def test_counts_that_cannot_be_are_refused(correct, samples, k):
    for metric in (pass_hat_k, pass_at_k):
        with pytest.raises(ValueError):
            metric(correct, samples, k)


@pytest.mark.parametrize("metric", [pass_hat_k, pass_at_k])
def test_too_few_attempts_or_none_are_not_enough_data(metric):
    with pytest.raises(NotEnoughData, match="1 of 2 items have fewer"):
        metric([1, 1], [4, 3], 4)
    with pytest.raises(NotEnoughData):
        metric([], [], 1)
    with pytest.raises(NotEnoughData):
        metric([float("nan")], [2], 1)


@pytest.mark.parametrize(
    "solved",
    [
        [[1, 0, None], [1, 1, 1]],
        np.array([[1, 0, np.nan], [1, 1, 1]]),
        np.array([[True, False, None], [True, True, True]], dtype=object),
    ],
)
def test_a_tally_counts_missing_attempts_apart(solved):
    counted = tally(solved)
    assert counted.n_correct_I.tolist() == [1, 3]
    assert counted.n_samples_I.tolist() == [2, 3]
    assert counted.n_missing == 1


def test_a_tally_takes_rows_of_different_length_and_booleans():
    assert tally([[1], [0, 1, 1]]).n_samples_I.tolist() == [1, 3]
    assert tally([[1, 0], []]).n_samples_I.tolist() == [2, 0]
    assert tally(np.ones((2, 3), dtype=bool)).n_correct_I.tolist() == [3, 3]


def test_a_tally_of_nothing_is_not_enough_data():
    for nothing in ([], np.zeros((0, 4))):
        with pytest.raises(NotEnoughData):
            tally(nothing)


def test_a_tally_refuses_anything_but_verdicts():
    for wrong in ([[0.5]], [[2]], [[-1]], np.array([[0.5, 1.0]])):
        with pytest.raises(ValueError, match="0 or 1"):
            tally(wrong)


def test_pass_metrics_stand_together_with_what_is_missing():
    metrics = pass_metrics(tally([[1, 1, 0, 0], [1, 1, 1, 1], [1, None, None, None], [None] * 4]), 2)
    assert metrics.pass_at_1.value == pytest.approx((0.5 + 1 + 1) / 3)
    assert (metrics.pass_at_1.n, metrics.pass_at_1.n_missing) == (3, 1)
    assert metrics.pass_at_k.value == pytest.approx((5 / 6 + 1) / 2)
    assert metrics.pass_hat_k.value == pytest.approx((1 / 6 + 1) / 2)
    assert (metrics.pass_at_k.n, metrics.pass_at_k.n_missing) == (2, 2)
    assert str(metrics).startswith("pass@1 0.8333 [") and "; pass^2 0.5833 [" in str(metrics)


def test_pass_metrics_without_enough_attempts_anywhere_are_not_enough_data():
    with pytest.raises(NotEnoughData, match="pass@3"):
        pass_metrics(tally([[1, 0], [1, 1]]), 3)
    with pytest.raises(ValueError, match="at least 1"):
        pass_metrics(tally([[1, 0]]), 0)


@given(COUNTS, st.randoms(use_true_random=False))
@settings(max_examples=80, deadline=None)
def test_pass_at_k_rises_pass_hat_k_falls_and_both_start_at_the_mean(counts, shuffler):
    correct, samples = counts
    n = samples[0]
    at = [pass_at_k(correct, samples, k) for k in range(1, n + 1)]
    hat = [pass_hat_k(correct, samples, k) for k in range(1, n + 1)]
    assert at[0] == pytest.approx(hat[0]) == pytest.approx(np.mean(correct) / n)
    assert np.all(np.diff(at) >= -1e-12) and np.all(np.diff(hat) <= 1e-12)
    assert all(0.0 <= value <= 1.0 for value in at + hat)
    shuffled = shuffler.sample(correct, len(correct))
    assert pass_at_k(shuffled, samples, n) == pytest.approx(at[-1])


@given(st.lists(st.lists(st.booleans(), min_size=3, max_size=8), min_size=1, max_size=6), st.randoms())
@settings(max_examples=50, deadline=None)
def test_the_order_of_attempts_does_not_matter(rows, shuffler):
    shuffled = [shuffler.sample(row, len(row)) for row in rows]
    assert str(pass_metrics(tally(rows), 3)) == str(pass_metrics(tally(shuffled), 3))


VERDICTS = st.lists(
    st.lists(st.sampled_from([0, 1, None]), min_size=2, max_size=6).filter(lambda row: row.count(None) <= len(row) - 2),
    min_size=1,
    max_size=6,
)


@given(VERDICTS, st.data())
@settings(max_examples=60, deadline=None)
def test_regrading_commutes_with_aggregation(rows, data):
    # a new scorer: turns verdicts of some items round, leaves missing ones missing
    turned = data.draw(st.sets(st.integers(0, len(rows) - 1)))
    regraded = [[v if v is None or i not in turned else 1 - v for v in row] for i, row in enumerate(rows)]
    before, after = tally(rows), tally(regraded)
    touched = np.isin(np.arange(len(rows)), list(turned))
    n_correct = np.where(touched, before.n_samples_I - before.n_correct_I, before.n_correct_I)
    assert after.n_correct_I.tolist() == n_correct.tolist()
    assert (after.n_samples_I.tolist(), after.n_missing) == (before.n_samples_I.tolist(), before.n_missing)
    for k in (1, 2):
        assert pass_metrics(after, k).pass_at_k.value == pytest.approx(pass_at_k(n_correct, before.n_samples_I, k))
        changes = pass_hat_k_by_item(n_correct, before.n_samples_I, k) - pass_hat_k_by_item(
            before.n_correct_I, before.n_samples_I, k
        )
        difference = pass_metrics(after, k).pass_hat_k.value - pass_metrics(before, k).pass_hat_k.value
        assert difference == pytest.approx(changes.mean())


@given(VERDICTS, st.data())
@settings(max_examples=60, deadline=None)
def test_one_more_success_never_lowers_a_metric(rows, data):
    failed = [(i, a) for i, row in enumerate(rows) for a, verdict in enumerate(row) if verdict == 0]
    if not failed:
        return
    item, attempt = data.draw(st.sampled_from(failed))
    better = [list(row) for row in rows]
    better[item][attempt] = 1
    before, after = pass_metrics(tally(rows), 2), pass_metrics(tally(better), 2)
    assert after.pass_at_1.value > before.pass_at_1.value
    assert after.pass_at_k.value >= before.pass_at_k.value - 1e-12
    assert after.pass_hat_k.value >= before.pass_hat_k.value - 1e-12


def test_circular_accuracy_needs_every_shift():
    accuracy = circular_accuracy([[1, 1, 1, 1], [1, 1, 0, 1], [1, 1, 1]])
    assert (accuracy.value, accuracy.n) == (pytest.approx(2 / 3), 3)


def test_one_wrong_shift_decides_and_a_missing_one_does_not():
    accuracy = circular_accuracy([[1, None], [0, None], [1, 1]])
    assert (accuracy.value, accuracy.n, accuracy.n_missing) == (0.5, 2, 1)


def test_shifts_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="item 1"):
        circular_accuracy([[1, 1], [0.5]])
    with pytest.raises(NotEnoughData, match="item 0 has no shifts"):
        circular_accuracy([[]])
    with pytest.raises(NotEnoughData):
        circular_accuracy([[None, 1]])
