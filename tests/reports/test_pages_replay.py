from agent2.arena.recording import ReplayReport, SubmissionReplay, WorkspaceReplay
from agent2.reports.pages import MAX_DIFFERENCES, call_words, difference_lines, replay_table


def report(*submissions, differences=(), n_replayed=3, cut=None, workspace=None):
    return ReplayReport("/source", submissions, 3, n_replayed, tuple(differences), cut, workspace)


SAME = SubmissionReplay(1, "a" * 64, "a" * 64, (), "b" * 64, "b" * 64)
OTHER = SubmissionReplay(2, "a" * 64, "c" * 64, ("code/train.py",), "b" * 64, None)


def test_equal_submissions_are_the_same_and_others_say_how_they_differ():
    assert replay_table(report(SAME, OTHER)).cells() == [
        ["1", "same", "same", "–"],
        ["2", "DIFFERS (aaaaaaaaaa -> cccccccccc)", "not in the replay", "code/train.py"],
    ]


def test_only_a_replay_without_any_difference_is_the_same():
    assert report(SAME).is_same
    assert call_words(report(SAME)) == ["3 LLM calls replayed, 3 recorded, all as recorded", "replay: the same"]
    assert not report(SAME, OTHER).is_same
    assert not report(SAME, n_replayed=2).is_same
    assert not report(SAME, cut="the recording is cut").is_same
    assert not report(SAME, differences=[{"id": 1, "expected": 1, "diff": "-a\n+b"}]).is_same
    assert not report(SubmissionReplay(1, None, None, (), None, None)).is_same  # nothing was recorded to compare


def test_a_replay_that_left_something_else_to_judge_is_not_the_same():
    assert report(workspace=WorkspaceReplay("a" * 64, "a" * 64, ())).is_same
    other = report(workspace=WorkspaceReplay("a" * 64, "c" * 64, ("code/search/search.py",)))
    assert not other.is_same
    assert "workspace at the end: DIFFERS (aaaaaaaaaa -> cccccccccc): code/search/search.py" in call_words(other)
    assert not report(workspace=WorkspaceReplay(None, None, ())).is_same  # nothing was recorded to compare


def test_differing_requests_are_shown_as_diffs_and_the_rest_is_counted():
    rows = [{"id": n, "expected": n, "diff": f"-old {n}\n+new {n}"} for n in range(1, MAX_DIFFERENCES + 3)]
    lines = difference_lines(report(SAME, differences=rows))
    assert lines[:3] == ["request 1 is not the recorded one (1):", "  -old 1", "  +new 1"]
    assert lines[-1] == "... and 2 more requests that differ"


def test_a_request_beyond_the_recording_is_named_as_not_recorded():
    (line,) = difference_lines(report(SAME, differences=[{"id": 9, "expected": None, "diff": ""}]))
    assert line == "request 9 was not recorded:"
