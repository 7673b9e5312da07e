"""Which exam of a task a board shows, how exams are named, and which trials of one's own exam count."""

from dataclasses import replace

import pytest

from agent2.arena.analysis.exams import ExamChoice, budget_words
from agent2.arena.analysis.leaderboard import make_leaderboard
from agent2.arena.evidence import MarkState
from agent2.errors import ConfigError
from agent2.reports.leaderboard_pages import leaderboard_html, leaderboard_markdown
from pool_builders import conditions, pooled

DAY = 86_400.0
MINE = ExamChoice("secret")


def exam(n_private, n_trials, stack, day=1, **changes):
    fields = {"items": f"items of {n_private}", "n_public": 60, "n_private": n_private} | changes
    return [pooled(stack, seed, 0.5, conditions=conditions(**fields), started_at=day * DAY) for seed in range(n_trials)]


def shown(trials, choice=MINE):
    return {standing.stack for standing in make_leaderboard(trials, choice=choice).tasks[0].standings}


def test_exams_are_named_by_sizes_secret_and_day_and_any_can_be_shown():
    trials = [*exam(100, 3, "small"), *exam(200, 2, "large", day=2), *exam(400, 5, "theirs", secret="other")]
    board = make_leaderboard(trials, choice=MINE)
    assert [(found.key, found.label, found.is_shown) for found in board.exams] == [
        ("60/100", "60 public and 100 private items of this installation, played 1970-01-02", True),
        ("60/200", "60 public and 200 private items of this installation, played 1970-01-03", False),
        ("60/400", "60 public and 400 private items of another installation, played 1970-01-02", False),
    ]
    assert shown(trials) == {"small"}
    for key, stack in (("60/200", "large"), ("60/400", "theirs")):
        chosen = replace(MINE, keys={"t": key})
        assert shown(trials, chosen) == {stack}
        assert make_leaderboard(trials, choice=chosen).exams[0].key == key
    assert board.left_out[0].why == "other items: 60 public and 200 private; this board has 60 public and 100 private"
    for text in (leaderboard_html(board), leaderboard_markdown(board)):
        assert "of this installation" in text and "items of 100" not in text and "60/200" in text


def test_exams_of_equal_sizes_keep_their_keys_when_another_is_played():
    first, second = exam(100, 2, "first"), exam(100, 3, "second", day=4, budget="wall_clock_s=90")
    labels = {e.key: e.label for e in make_leaderboard([*second, *first], choice=MINE).exams}
    assert labels == {
        "60/100": "60 public and 100 private items of this installation, 1 minute, played 1970-01-02",
        "60/100#2": "60 public and 100 private items of this installation, 90 seconds, played 1970-01-05",
    }
    theirs = exam(100, 9, "theirs", day=0.5, secret="other")
    assert make_leaderboard([*second, *first, *theirs], choice=MINE).exams[-1].key == "60/100#3"
    assert shown([*second, *first, *theirs], replace(MINE, keys={"t": "60/100#2"})) == {"second"}


def test_at_a_tie_the_exam_that_was_played_last_is_shown():
    assert shown([*exam(100, 2, "old"), *exam(200, 2, "new", day=5)]) == {"new"}


def test_an_exam_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(ConfigError, match=r"no exam of 't' has that key; there are 60/100: 60 public and"):
        shown(exam(100, 2, "a"), replace(MINE, keys={"t": "9/9"}))
    with pytest.raises(ConfigError, match="no trial of 'u' here; there are t"):
        shown(exam(100, 2, "a"), replace(MINE, keys={"u": "60/100"}))


def with_mark(trials, mark=MarkState.OWN, **changes):
    return [replace(trial, mark=mark, **changes) for trial in trials]


def test_a_mark_decides_the_exam_before_many_trials_that_name_the_secret():
    mine = with_mark(exam(100, 1, "mine"))
    claimed = exam(400, 20, "claims", day=9)
    assert shown([*mine, *claimed]) == {"mine"}
    assert shown([*exam(100, 1, "mine"), *claimed]) == {"claims"}, "without a mark of one's own"
    copied_lock = [replace(t, trial=replace(t.trial, is_verified=False, is_counted=False)) for t in claimed]
    assert shown([*mine, *with_mark(copied_lock, MarkState.NONE, has_own_lock=True)]) == {"mine"}
    assert shown([*exam(100, 1, "mine"), *with_mark(copied_lock, MarkState.NONE, has_own_lock=True)]) == {"mine"}


def test_beside_a_marked_trial_one_without_the_mark_does_not_count_and_says_so():
    mine = with_mark(exam(100, 2, "mine"))
    changed = with_mark(exam(100, 1, "mine-changed"), MarkState.CHANGED)
    changed = [replace(t, trial=replace(t.trial, marks=("changed since it was marked (x)",))) for t in changed]
    trials = [*mine, *changed, *exam(100, 3, "nameless")]
    board = make_leaderboard(trials, choice=MINE)
    marks = {standing.stack: (standing.n_counted, standing.marks) for standing in board.tasks[0].standings}
    assert marks == {
        "mine": (2, ()),
        "mine-changed": (0, ("1x changed since it was marked (x)",)),
        "nameless": (0, ("3x not marked by this installation",)),
    }
    assert (board.exams[0].n_counted, board.exams[0].n_trials, board.exams[0].n_marked) == (2, 6, 2)
    counted = make_leaderboard(trials, choice=replace(MINE, counts_unmarked=True)).tasks[0].standings
    assert {standing.stack: standing.n_counted for standing in counted}["nameless"] == 3


def test_trials_of_earlier_versions_and_of_others_count_among_themselves():
    for trials in (exam(100, 3, "old"), with_mark(exam(100, 3, "theirs", secret="other"), MarkState.FOREIGN)):
        (standing,) = make_leaderboard(trials, choice=MINE).tasks[0].standings
        assert standing.n_counted == 3 and standing.marks == ()


def test_a_changed_copy_does_not_hide_the_marked_trial_even_if_it_sorts_first():
    (mine,) = with_mark(exam(100, 1, "mine"))
    copy = replace(mine, mark=MarkState.CHANGED, trial=replace(mine.trial, folder="/a"))
    board = make_leaderboard([copy, mine], choice=MINE)
    assert board.tasks[0].standings[0].n_counted == 1 and board.left_out[0].folder == "/a"


def test_a_budget_is_named_in_words_exactly_and_an_unknown_part_as_it_is():
    assert budget_words("submissions=10, wall_clock_s=300.0") == "10 submissions, 5 minutes"
    assert budget_words("submissions=1, wall_clock_s=3600.0") == "1 submission, 1 hour"
    assert budget_words("wall_clock_s=5400.0") == "90 minutes" and budget_words("wall_clock_s=90.5") == "90.5 seconds"
    assert budget_words("gpu_hours=2.0, judgements=40, llm_dollars=0.5, llm_tokens=1000000") == (
        "2 GPU hours, 40 judgements, $0.5 for the LLM, 1,000,000 LLM tokens"
    )
    for unknown in ("wall_clock_s=inf", "wall_clock_s=1e400", "colours=3", "submissions=null", "submissions"):
        assert budget_words(f"{unknown}, submissions=2") == f"{unknown}, 2 submissions"
    assert budget_words("") == "none"
