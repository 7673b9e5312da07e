"""A small table and what rliable 1.2.0 makes of it, computed by the real package in an environment of its own.

rliable does not import with pandas 3, which our own dependencies bring, so its numbers are kept here:
`pip install rliable==1.2.0 "pandas<3"`, then `rliable.metrics` on these arrays; intervals from
`rliable.library.get_interval_estimates` with 200,000 replicates (10,000 for the probability of improvement) and
bands from `create_performance_profile` with 50,000. `benchmarks/statistics.py --rliable-python` compares again
with the package itself.
"""

X_RT = [
    [0.44, 0.96, 0.71, 0.15],
    [-0.64, 1.06, 1.16, -0.16],
    [1.42, 0.39, 1.92, 0.9],
    [0.43, 1.22, 0.66, 0.66],
    [0.64, 0.52, 0.92, 1.01],
]
Y_RT = [
    [-0.64, 1.13, -0.14, 0.21],
    [0.73, -0.07, 1.03, 0.69],
    [0.33, 0.61, 0.17, -0.19],
    [0.74, 0.78, 0.92, 0.39],
    [-0.45, 0.07, 0.21, 0.49],
    [0.95, 0.19, 0.92, 0.78],
]
IQM_X, IQM_Y = 0.742, 0.4616666666666667
MEAN_X = 0.7185
MEDIAN_X, MEDIAN_Y = 0.671, 0.42333333333333334
GAP_X, GAP_X_HALF = 0.371, 0.11950000000000005
X_BEATS_Y, Y_BEATS_X = 0.6458333333333334, 0.35416666666666663
THRESHOLDS = [-0.5, 0.0, 0.25, 0.39, 0.75, 1.0, 1.5]
PROFILE_X = [0.95, 0.9, 0.85, 0.8, 0.45, 0.3, 0.05]

IQM_INTERVAL = [0.555, 0.945]
MEDIAN_INTERVAL = [0.49, 0.943]
GAP_INTERVAL = [0.212, 0.546]
MEAN_INTERVAL = [0.506, 0.9315]
X_BEATS_Y_INTERVAL = [0.4666666666666667, 0.8083333333333333]
PROFILE_LOW = [0.85, 0.75, 0.7, 0.65, 0.25, 0.1, 0.0]
PROFILE_HIGH = [1.0, 1.0, 1.0, 0.95, 0.65, 0.5, 0.15]
