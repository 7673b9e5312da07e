import numpy as np
import pytest
from scipy import stats

from agent2.stats import aggregates
from agent2.stats.aggregates import drawn_counts, resampled_task_means, resampled_trimmed_means, run_table


def rng(seed=0):
    return np.random.default_rng(seed)


def counts_of(table, n_replicates, seed=0):
    return np.concatenate([counts.copy() for counts in drawn_counts(table, rng(seed), n_replicates)], axis=1)


@pytest.mark.parametrize("n_runs", [3, 60, 300])
def test_each_task_draws_as_many_scores_as_it_has_runs(n_runs):
    counts = counts_of(run_table(np.zeros((n_runs, 2))), 100)
    assert (counts[:n_runs].sum(axis=0) == n_runs).all()
    assert (counts[n_runs:].sum(axis=0) == n_runs).all()


def test_counts_have_the_distribution_of_drawing_with_replacement():
    for n_runs in (4, 60):
        counts = counts_of(run_table(np.zeros((n_runs, 1))), 40_000)[0]
        frequencies = np.bincount(counts, minlength=n_runs + 1)[:5] / counts.size
        assert frequencies == pytest.approx(stats.binom.pmf(np.arange(5), n_runs, 1 / n_runs), abs=0.01)


def test_comparing_and_counting_draw_the_same_distribution(monkeypatch):
    scores = rng(7).normal(size=(9, 4))
    compared = resampled_trimmed_means(run_table(scores), rng(1), 40_000, 0.25)
    monkeypatch.setattr(aggregates, "COMPARED_RUNS", 0)
    counted = resampled_trimmed_means(run_table(scores), rng(2), 40_000, 0.25)
    assert np.quantile(compared, [0.025, 0.5, 0.975]) == pytest.approx(
        np.quantile(counted, [0.025, 0.5, 0.975]), abs=0.02
    )


@pytest.mark.parametrize(
    ("n_runs", "n_tasks", "trim"), [(3, 2, 0.25), (2, 1, 0.25), (7, 40, 0.25), (5, 30, 0.0), (50, 3, 0.1)]
)
def test_running_counts_give_the_trimmed_means_of_the_drawn_scores(n_runs, n_tasks, trim):
    scores = np.round(rng(n_runs).normal(size=(n_runs, n_tasks)), 1)  # rounded: there are ties
    scores[0, 0] = np.nan
    table = run_table(scores)
    order = np.argsort(table.score_J, kind="stable")
    row = np.empty(order.size, dtype=np.int64)
    row[order] = np.arange(order.size)
    (counts,) = (c.copy() for c in drawn_counts(table, rng(), 30, row))
    expected = [stats.trim_mean(np.repeat(table.score_J[order], column), trim) for column in counts.T]
    assert resampled_trimmed_means(table, rng(), 30, trim) == pytest.approx(expected, abs=1e-12)


def test_memory_stays_bounded_and_chunks_add_up(monkeypatch):
    monkeypatch.setattr(aggregates, "CHUNK_BYTES", 1000)
    table = run_table(rng().normal(size=(10, 10)))
    sizes = [counts.shape for counts in drawn_counts(table, rng(), 95)]
    assert sizes == [(100, 10)] * 9 + [(100, 5)]
    means = np.concatenate(list(resampled_task_means(table, table.score_J, rng(), 95)), axis=1)
    assert means.shape == (10, 95)


def test_the_same_generator_gives_the_same_replicates():
    table = run_table(rng().normal(size=(5, 4)))
    assert (resampled_trimmed_means(table, rng(3), 50, 0.25) == resampled_trimmed_means(table, rng(3), 50, 0.25)).all()


def test_a_task_with_few_of_many_runs_is_counted_too():
    scores = np.full((300, 2), np.nan)
    scores[:, 0] = 1.0
    scores[:3, 1] = 2.0
    counts = counts_of(run_table(scores), 20)
    assert (counts[:300].sum(axis=0) == 300).all()
    assert (counts[300:].sum(axis=0) == 3).all()
