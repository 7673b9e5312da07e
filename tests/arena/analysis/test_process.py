import pytest

from agent2.arena.analysis.process import covered_seconds, log_seconds, process_metrics, revision_changes
from builders import START, make_evidence, make_metrics, make_rejected, make_revision, make_submission


def test_process_metrics_of_a_hand_computed_trial():
    submissions = [
        make_rejected(1, "empty folder", at=10),
        make_submission(2, at=100, score=0.25),
        make_submission(3, at=200, score=0.45),
        make_submission(4, at=300, score=0.40),
        make_submission(5, at=400, score=0.45),
        make_submission(6, at=450, score=0.3, is_base_copy=True),
    ]
    metrics = process_metrics(make_evidence(submissions=submissions, ended_at=START + 480))
    assert metrics.valid_submission_rate == pytest.approx(5 / 6)
    assert (metrics.first_valid_idx, metrics.first_valid_delay) == (2, 100)
    assert metrics.time_to_first_improvement == 200
    assert metrics.time_to_best == 200  # the earlier of two equal ones
    assert metrics.monotonic_ratio == pytest.approx(2 / 4)
    assert metrics.copy_model_count == 1
    assert metrics.time_used_ratio == pytest.approx(0.8)
    assert metrics.last_submit_gap == 30
    assert [point.best_so_far for point in metrics.score_trajectory] == [0.25, 0.45, 0.45, 0.45, 0.45]


def test_what_is_not_defined_is_none_and_never_zero():
    metrics = process_metrics(make_evidence(submissions=[]))
    undefined = (
        metrics.valid_submission_rate,
        metrics.first_valid_idx,
        metrics.first_valid_delay,
        metrics.time_to_first_improvement,
        metrics.time_to_best,
        metrics.monotonic_ratio,
        metrics.last_submit_gap,
    )
    assert undefined == (None,) * 7
    assert metrics.score_trajectory == ()


def test_only_failures_make_a_rate_of_zero_and_no_delay():
    metrics = process_metrics(make_evidence(submissions=[make_submission(1, score=None)]))
    assert metrics.valid_submission_rate == 0.0
    assert metrics.first_valid_delay is None


def test_a_score_equal_to_the_base_is_no_improvement():
    assert process_metrics(make_evidence(submissions=[make_submission(1, score=0.3)])).time_to_first_improvement is None


def test_revision_changes_count_lines_against_the_revision_before():
    revisions = [
        make_revision({"a.py": "x\ny\n"}, at=1),
        make_revision({"a.py": "x\nz\nz\n", "b.py": "q\n"}, at=2, submission=1),
        make_revision({"b.py": "q\n"}, at=3),
    ]
    changes = revision_changes(revisions, START)
    stats = [[(f.path, f.added, f.removed) for f in change.files] for change in changes]
    assert stats == [[("a.py", 2, 0)], [("a.py", 2, 1), ("b.py", 1, 0)], [("a.py", 0, 3)]]
    assert changes[1].submission == 1 and changes[1].seconds == 2


def test_a_revision_without_a_visible_change_is_listed_only_for_a_submission():
    files = {"a.py": "x\n"}
    revisions = [make_revision(files, at=1), make_revision(files, at=2), make_revision(files, at=3, submission=1)]
    assert [(c.seconds, c.files != ()) for c in revision_changes(revisions, START)] == [(1, True), (3, False)]


def test_overlapping_spans_are_counted_once():
    assert covered_seconds([(0, 10), (5, 12), (20, 21)]) == 13
    assert covered_seconds([]) is None


def test_log_time_is_the_union_of_logs_within_the_phase_and_none_for_single_lines():
    metrics = make_metrics("a", [{"loss": 1.0}] * 3, period=5) + make_metrics("b", [{"loss": 1.0}] * 2, period=7)
    times = {point.file: [p.t for p in metrics if p.file == point.file] for point in metrics}
    begin, end = min(map(min, times.values())), max(map(max, times.values()))
    assert log_seconds(metrics, begin, end) == end - begin == 10  # two logs of one phase are not longer than it
    assert log_seconds(metrics, begin + 2, end - 1) == 7
    assert log_seconds(make_metrics("a", [{"loss": 1.0}]), begin, end) is None
