import math

import numpy as np
import pytest
from scipy import stats

from agent2.errors import NotEnoughData
from agent2.stats.curves import check_extrapolation, fit_sigmoid


def curve(compute, start=0.1, asymptote=0.7, efficiency=1.5, midpoint=100.0):
    return start + (asymptote - start) / (1.0 + (midpoint / compute) ** efficiency)


COMPUTE = np.geomspace(5, 5000, 40)


def test_an_exact_sigmoid_is_found_again():
    fit = fit_sigmoid(COMPUTE, curve(COMPUTE), start=0.1)
    assert fit.asymptote.value == pytest.approx(0.7, abs=1e-6)
    assert fit.efficiency.value == pytest.approx(1.5, abs=1e-5)
    assert fit.midpoint.value == pytest.approx(100, rel=1e-5)
    assert fit.rmse < 1e-6
    assert fit.n == 36  # a tenth skipped
    assert fit.predict([100.0]) == pytest.approx([0.4], abs=1e-6)  # half way at the midpoint
    assert "n=36" in str(fit)


def test_intervals_hold_the_truth_about_as_often_as_they_say():
    rng, held = np.random.default_rng(0), 0
    for _ in range(40):
        fit = fit_sigmoid(COMPUTE, curve(COMPUTE) + rng.normal(0, 0.02, 40), start=0.1)
        held += fit.asymptote.low <= 0.7 <= fit.asymptote.high
    assert held >= 33  # 95% of 40, less Monte Carlo


def test_the_interval_has_as_many_degrees_of_freedom_as_points_beyond_three():
    scores = curve(COMPUTE[::5]) + np.tile([0.004, -0.004], 4)
    wide, narrow = (fit_sigmoid(COMPUTE[::5], scores, 0.1, 0.0, confidence=level).asymptote for level in (0.9, 0.5))
    ratio = stats.t.ppf(0.95, 8 - 3) / stats.t.ppf(0.75, 8 - 3)
    assert (wide.high - wide.low) / (narrow.high - narrow.low) == pytest.approx(ratio, rel=1e-6)


def test_a_run_before_its_midpoint_leaves_the_asymptote_open():
    early = COMPUTE[COMPUTE < 60]
    noisy = curve(early) + np.random.default_rng(1).normal(0, 0.01, early.size)
    fit = fit_sigmoid(early, noisy, start=0.1, skip_fraction=0.0)
    assert fit.asymptote.high - fit.asymptote.low > 0.3
    assert fit.asymptote.low >= 0.1 and fit.asymptote.high <= 1.0


def test_scores_on_another_scale_and_negative_starts_work():
    fit = fit_sigmoid(COMPUTE, 100 * curve(COMPUTE) - 50, start=-40, ceiling=100)
    assert fit.asymptote.value == pytest.approx(20, abs=1e-3)


def test_extrapolation_of_the_true_form_holds_and_of_a_collapse_fails():
    good = check_extrapolation(COMPUTE, curve(COMPUTE), 0.6, start=0.1)
    assert good.is_good
    assert (good.fit.n, good.n_held) == (22, 16)
    assert "holds" in str(good)
    broken = curve(COMPUTE)
    broken[30:] = 0.2
    bad = check_extrapolation(COMPUTE, broken, 0.6, start=0.1)
    assert not bad.is_good
    assert bad.bias > 0.2  # promised more than came
    assert bad.largest >= bad.rmse >= abs(bad.bias)


def test_the_skipped_part_does_not_matter():
    scores = curve(COMPUTE)
    scores[:4] = [0.9, 0.0, 0.8, 0.0]
    fit = fit_sigmoid(COMPUTE, scores, start=0.1, skip_fraction=0.1)
    assert fit.asymptote.value == pytest.approx(0.7, abs=1e-5)


def test_bad_runs_are_refused():
    with pytest.raises(NotEnoughData, match="at least 5 points"):
        fit_sigmoid(COMPUTE[:4], curve(COMPUTE[:4]))
    with pytest.raises(NotEnoughData, match="empty"):
        fit_sigmoid([], [])
    with pytest.raises(NotEnoughData, match="missing"):
        fit_sigmoid(COMPUTE, np.where(COMPUTE > 1000, math.nan, 0.5))
    with pytest.raises(ValueError, match="no score rises"):
        fit_sigmoid(COMPUTE, np.full(40, 0.5))
    with pytest.raises(ValueError, match="no score rises"):
        fit_sigmoid(COMPUTE, curve(COMPUTE), start=1.0)
    with pytest.raises(ValueError, match="positive"):
        fit_sigmoid(COMPUTE - 5, curve(COMPUTE))
    with pytest.raises(ValueError, match="increase"):
        fit_sigmoid(COMPUTE[::-1], curve(COMPUTE))
    with pytest.raises(ValueError, match="match"):
        fit_sigmoid(COMPUTE, curve(COMPUTE)[:-1])
    with pytest.raises(ValueError, match="skip_fraction"):
        fit_sigmoid(COMPUTE, curve(COMPUTE), skip_fraction=1.0)
    with pytest.raises(ValueError, match="fit_fraction"):
        check_extrapolation(COMPUTE, curve(COMPUTE), 1.0)
    with pytest.raises(NotEnoughData):
        check_extrapolation(COMPUTE[:1], [0.5], 0.5)
