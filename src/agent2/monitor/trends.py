"""Trends of a noisy series: running medians, robust spread, and whether it really goes up or down.

Kendall's rank test (scipy) says whether there is a trend, Theil and Sen's median slope (scipy) how steep; both
bear outliers. Values of neighbouring steps are correlated in real runs, so the test is a filter with a known
error only for independent noise: the detectors never rest on it alone.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from agent2.monitor.series import Series

MAD_TO_SIGMA = 1.4826
"""Makes the median absolute deviation of a Gaussian its standard deviation."""
MAX_POINTS = 200
"""Of one trend: the median slope costs the square of it."""


@dataclass(frozen=True, slots=True)
class Trend:
    """Direction of a window of a series."""

    slope: float
    """Median slope, units of the series a step."""
    p_value: float
    start: float
    """Median of the window's first points (a tenth, at least three): seen values, never the fitted line's."""
    end: float
    """The same of its last points."""

    def rises(self, p: float) -> bool:
        """Whether it goes up, at level p."""
        return self.slope > 0 and self.p_value < p

    def falls(self, p: float) -> bool:
        """Whether it goes down, at level p."""
        return self.slope < 0 and self.p_value < p


def trend(series: Series, window: int) -> Trend | None:
    """Of the last `window` points, thinned evenly to `MAX_POINTS`; None with fewer than six, or if all are equal."""
    steps, values = series.steps[-window:].astype(np.float64), series.values[-window:]
    if len(values) < 6 or np.ptp(values) == 0:
        return None
    if len(values) > MAX_POINTS:
        kept = np.linspace(0, len(values) - 1, MAX_POINTS).round().astype(np.int64)
        steps, values = steps[kept], values[kept]
    slope = stats.theilslopes(values, steps)[0]
    p_value = float(stats.kendalltau(steps, values).pvalue)
    n_ends = max(3, len(values) // 10)
    return Trend(float(slope), p_value, float(np.median(values[:n_ends])), float(np.median(values[-n_ends:])))


def median_before_end(series: Series, n_points: int, back: int = 0) -> float:
    """Median of the n_points that end `back` points before the last one; of what there is if there are fewer."""
    end = max(1, len(series) - back)
    return float(np.median(series.values[max(0, end - n_points) : end]))


def reference(series: Series, n_points: int) -> float | None:
    """Median of the first n_points; None while there are fewer."""
    return float(np.median(series.values[:n_points])) if len(series) >= n_points else None


def robust_spread(values: NDArray[np.float64]) -> tuple[float, float]:
    """(median, robust standard deviation)."""
    return float(np.median(values)), float(stats.median_abs_deviation(values)) * MAD_TO_SIGMA
