"""Length-controlled win rate: what a win rate would be if both answers were equally long.

A logistic regression explains each preference by the difference in length, by how hard the item is for the model (where
that is known), and by a constant; the length-controlled win rate is its mean prediction without the difference in
length. The model, its L1 penalty and the choice of its strength by five-fold cross-validation are those of AlpacaEval 2
(Dubois et al. 2024, arXiv:2404.04475), and the fit is made by the same solver, liblinear, so that the numbers are
equal. It comes with scikit-learn, the extra `winrate`: no other part needs it, and transformers would load it in every
process.

Promises: a model whose answers differ from another's in length alone does not gain by it, as far as preference follows
tanh of the difference. Does NOT correct for anything else that a judge likes.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.special import expit, log_expit

from agent2.errors import ConfigError, NotEnoughData
from agent2.stats.estimates import Estimate

FOLDS = 5
SEED = 123
"""Of the solver's random order, as published."""
BASELINE_WEIGHT = 0.2
"""Of all preferences between lengthened and shortened answers of the baseline itself, beside those of the model."""
N_RESAMPLES = 400
"""Of the items, for the interval."""
FEWEST = 50
"""Preferences below which nothing is fitted."""
PRIOR_SD = 1.0
"""Of difficulties, in the joint fit from which they are estimated."""


@dataclass(frozen=True, slots=True)
class LengthControlled:
    """A length-controlled win rate, and the fit behind it."""

    rate: Estimate
    """0 to 1; its interval is over items, each of `N_RESAMPLES` resamples fitted again."""
    standard_error: float
    """As published: over items, given the fit. 0 without a difficulty, when all items are predicted alike."""
    raw: float
    """The mean preference."""
    length: float
    """Coefficient of tanh(difference in length / its standard deviation): positive where longer answers win."""
    difficulty: float | None
    """Coefficient of the items' difficulty; None: it was not known."""
    constant: float
    n_missing: int
    """Items without a preference; they are in no number."""


@dataclass(frozen=True, slots=True)
class BaselinePairs:
    """Preferences for longer or shorter answers of the baseline itself, against its own answers."""

    preference: NDArray[np.float64]
    length: NDArray[np.float64]
    """tanh of the standardised difference, baseline minus answer."""
    difficulty: NDArray[np.float64]


def standardised(lengths: ArrayLike, baseline_lengths: ArrayLike) -> NDArray[np.float64]:
    """Tanh of (baseline - answer) / standard deviation of that difference; 0 where all differences are equal."""
    delta = np.asarray(baseline_lengths, dtype=float) - np.asarray(lengths, dtype=float)
    spread = delta.std(ddof=1) if len(delta) > 1 else 0.0
    return np.tanh(delta / spread) if spread > 0 else np.zeros_like(delta)


def length_controlled(
    preferences: ArrayLike,
    lengths: ArrayLike,
    baseline_lengths: ArrayLike,
    difficulty: ArrayLike | None = None,
    baseline_pairs: BaselinePairs | None = None,
    n_resamples: int = N_RESAMPLES,
) -> LengthControlled:
    """The length-controlled win rate of a model over items.

    preferences: 0 (the baseline's answer) to 1 (the model's), NaN where there is none. lengths: of the model's answers
    and of the baseline's, in characters. difficulty: of each item; None: left out of the model (the published GLM
    `length_controlled_minimal`). baseline_pairs: the published regularisation towards the baseline's own bias.
    n_resamples: of the items, each fitted again, for the interval; 0: no interval.
    Raises NotEnoughData below `FEWEST` preferences, ConfigError without scikit-learn and for lengths of another number.
    """
    preference = np.asarray(preferences, dtype=float)
    slope = standardised(lengths, baseline_lengths)
    columns = [slope, *([] if difficulty is None else [np.asarray(difficulty, dtype=float)]), np.ones_like(slope)]
    if any(len(column) != len(preference) for column in columns):
        raise ConfigError(
            f"{len(preference)} preferences, {[len(column) for column in columns]} lengths and difficulties"
        )
    features, target, weight = np.column_stack(columns), preference, np.ones_like(preference)
    if baseline_pairs is not None:
        if difficulty is None:
            raise ConfigError("preferences between answers of the baseline need the difficulty of the items, too")
        n = len(baseline_pairs.preference)
        baseline_rows = np.column_stack([baseline_pairs.length, baseline_pairs.difficulty, np.zeros(n)])
        features = np.vstack([baseline_rows, features])
        target = np.concatenate([baseline_pairs.preference, target])
        weight = np.concatenate([np.full(n, BASELINE_WEIGHT / 2), weight])
    is_known = np.isfinite(target)
    n_known = int(np.isfinite(preference).sum())
    if n_known < FEWEST:
        raise NotEnoughData(f"{n_known} preferences; at least {FEWEST} are needed to separate length from quality")
    fitted, penalty = _fit(features[is_known], target[is_known], weight[is_known])
    columns[0] = np.zeros_like(slope)
    without_length = np.column_stack(columns)
    predicted: NDArray[np.float64] = np.asarray(expit(without_length @ fitted), dtype=np.float64)
    n_baseline = len(target) - len(preference)
    known_rows = n_baseline + np.flatnonzero(np.isfinite(preference))
    rng, rates = np.random.default_rng(SEED), []
    for _ in range(n_resamples):
        # only the model's rows are resampled; those of the baseline's own pairs are the same in every fit
        resample = np.concatenate([np.flatnonzero(is_known[:n_baseline]), rng.choice(known_rows, len(known_rows))])
        refitted, _ = _fit(features[resample], target[resample], weight[resample], penalty)
        rates.append(float(expit(without_length @ refitted).mean()))
    low, high = (float(value) for value in np.quantile(rates, [0.025, 0.975])) if rates else (None, None)
    rate = Estimate(
        float(predicted.mean()),
        low,
        high,
        n_known,
        len(preference) - n_known,
        "length-controlled GLM" + (", bootstrap over items with a fit of each resample" if rates else ""),
    )
    return LengthControlled(
        rate=rate,
        standard_error=float(predicted.std(ddof=1) / np.sqrt(len(predicted))),
        raw=float(np.nanmean(preference)),
        length=-float(fitted[0]),
        difficulty=None if difficulty is None else float(fitted[1]),
        constant=float(fitted[-1]),
        n_missing=len(preference) - n_known,
    )


def _fit(
    features_NF: NDArray[np.float64],
    target_N: NDArray[np.float64],
    weight_N: NDArray[np.float64],
    penalty: float | None = None,
) -> tuple[NDArray[np.float64], float]:
    """Coefficients of the L1-penalised logistic regression, and its `C`; each row occurs twice, for 1 and for 0.

    penalty: C; None: chosen by cross-validation.
    """
    try:
        from sklearn import config_context
        from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
        from sklearn.metrics import make_scorer
        from sklearn.model_selection import GroupKFold
    except ImportError as error:
        raise ConfigError(
            f"a length-controlled win rate needs scikit-learn, which cannot be imported ({error}); install the extra "
            "winrate, or: pip install scikit-learn"
        ) from error

    def log_loss(
        is_one: NDArray[np.float64],
        predicted: NDArray[np.float64],
        true_prob: NDArray[np.float64],
        true_sample_weight: NDArray[np.float64],
    ) -> float:
        target = np.where(is_one == 1, true_prob, 1 - true_prob)
        p = np.clip(predicted, 1e-15, 1 - 1e-15)
        return -float(np.mean((target * np.log(p) + (1 - target) * np.log(1 - p)) * true_sample_weight))

    # the classifier takes labels of 0 and 1 only: a preference becomes two rows that share its weight
    n = len(target_N)
    doubled = np.concatenate([target_N, 1 - target_N])
    weights = np.concatenate([weight_N, weight_N])
    rows, labels = np.vstack([features_NF, features_NF]), np.repeat([1, 0], n)
    if penalty is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of `penalty`, whose successor older versions lack
            refitted = LogisticRegression(
                C=penalty, random_state=SEED, penalty="l1", solver="liblinear", fit_intercept=False
            ).fit(rows, labels, sample_weight=doubled * weights)
        return np.asarray(refitted.coef_[0], dtype=float), penalty
    with config_context(enable_metadata_routing=True), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of `penalty`, whose successor older versions lack
        scorer = make_scorer(log_loss, response_method="predict_proba", greater_is_better=False)
        scorer = scorer.set_score_request(true_sample_weight=True, true_prob=True)
        model = LogisticRegressionCV(
            cv=GroupKFold(n_splits=FOLDS),
            scoring=scorer,
            random_state=SEED,
            dual=False,
            penalty="l1",
            solver="liblinear",
            fit_intercept=False,
        )
        model.set_fit_request(sample_weight=True)
        model.fit(
            rows,
            labels,
            sample_weight=doubled * weights,
            groups=np.concatenate([np.arange(n)] * 2),  # both copies of a row fall into one fold
            true_sample_weight=weights,
            true_prob=doubled,
        )
    return np.asarray(model.coef_[0], dtype=float), float(model.C_[0])


def estimate_difficulty(
    preferences_MI: ArrayLike, slopes_MI: ArrayLike, published: Sequence[tuple[float, float, float]] | None = None
) -> NDArray[np.float64]:
    """How hard each item is, from the preferences of several models on the same items against the same baseline.

    The maximum of the joint likelihood of all preferences under the published model, with a normal prior on
    difficulties: every model has a constant, a coefficient of length and one of difficulty, every item a difficulty.
    slopes_MI: `standardised` of each model. published: of each model its published coefficients (length, difficulty,
    constant), where they are; None: all are fitted, difficulty with a coefficient of 1 (Dubois et al. 2024, section 4).
    Preferences that are NaN are left out. Raises NotEnoughData for fewer than two models.
    """
    preferences, slopes = np.asarray(preferences_MI, dtype=float), np.asarray(slopes_MI, dtype=float)
    n_models, n_items = preferences.shape
    if n_models < 2:
        raise NotEnoughData("the difficulty of items is estimated from at least two models; give more cards")
    is_known = np.isfinite(preferences)
    target = np.where(is_known, preferences, 0.5)
    fixed = None if published is None else np.asarray(published, dtype=float)

    def loss(parameters: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        gamma = parameters[:n_items]
        if fixed is None:
            constant, length = parameters[n_items : n_items + n_models], parameters[n_items + n_models :]
            of_difficulty = np.ones(n_models)
        else:
            length, of_difficulty, constant = fixed.T
        logits = constant[:, None] + length[:, None] * slopes + of_difficulty[:, None] * gamma[None, :]
        value = -np.sum(is_known * (target * log_expit(logits) + (1 - target) * log_expit(-logits)))
        error = is_known * (expit(logits) - target)
        by_item = (of_difficulty[:, None] * error).sum(axis=0) + gamma / PRIOR_SD**2
        gradient = [by_item] if fixed is not None else [by_item, error.sum(axis=1), (error * slopes).sum(axis=1)]
        return value + 0.5 * float(np.sum(gamma**2)) / PRIOR_SD**2, np.concatenate(gradient)

    start = np.zeros(n_items + (0 if fixed is not None else 2 * n_models))
    optimum = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 2000, "maxfun": 4000})
    return np.asarray(optimum.x[:n_items], dtype=float)
