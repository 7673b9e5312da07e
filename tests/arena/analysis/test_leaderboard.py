"""The board of trials that were written by hand: what is pooled, what is left out, who stands where."""

import re
from dataclasses import replace
from itertools import pairwise

import pytest

from agent2.arena.analysis.exams import ExamChoice
from agent2.arena.analysis.leaderboard import compare_stacks, make_leaderboard
from agent2.errors import ConfigError
from agent2.reports.leaderboard_pages import leaderboard_csv, leaderboard_html, leaderboard_markdown, standing_table
from agent2.stats.estimates import Estimate
from pool_builders import conditions, pool, pooled


def test_a_clear_difference_makes_ranks_and_equal_stacks_stay_tied():
    (board,) = make_leaderboard(pool(low=0.3, high=0.9, tall=0.9)).tasks
    places = {standing.stack: (standing.place.text, standing.place.tier) for standing in board.standings}
    assert places == {"high": ("1-2", 1), "tall": ("1-2", 1), "low": ("3", 2)}
    assert board.standings[-1].stack == "low"


@pytest.mark.parametrize("part", ["benchmark", "items", "secret", "base_model", "protocol", "budget"])
def test_a_trial_of_another_exam_is_left_out_and_the_part_is_named(part):
    stranger = pooled("fox", 9, 0.9, conditions=conditions(**{part: "other"}))
    board = make_leaderboard([*pool(low=0.3, high=0.9), stranger])
    (out,) = board.left_out
    assert out.folder == stranger.trial.folder
    words = {"items": "other items of the same number", "base_model": "another base model"}
    assert out.why.startswith(words.get(part, f"another {part}")) and "s3cret" not in out.why
    assert "fox" not in {standing.stack for standing in board.tasks[0].standings}


def test_a_copy_of_a_trial_counts_once():
    trials = pool(low=0.3)
    copy = replace(trials[0], trial=replace(trials[0].trial, folder="/zz"))
    board = make_leaderboard([*trials, copy])
    assert board.left_out[0].why == f"a copy of {trials[0].trial.folder}"
    assert board.tasks[0].standings[0].n_counted == 4


def test_a_changed_copy_does_not_hide_the_trial_that_it_was_made_from():
    trials = pool(low=0.3)
    liar = replace(trials[0].trial, folder="/a-liar", marks=("unverified: x",), is_verified=False, is_counted=False)
    board = make_leaderboard([replace(trials[0], trial=liar), *trials])
    assert [(excluded.folder, excluded.why) for excluded in board.left_out] == [
        ("/a-liar", f"a copy of {trials[0].trial.folder}")
    ]
    assert board.tasks[0].standings[0].n_counted == 4 and board.tasks[0].standings[0].marks == ()


def test_a_trial_that_does_not_count_is_shown_with_its_mark_and_moves_nothing():
    liar = pooled("low", 7, 1.0)
    liar = replace(liar, trial=replace(liar.trial, marks=("unverified: x",), is_verified=False, is_counted=False))
    with_it, without = (make_leaderboard(trials).tasks[0].standings[-1] for trials in (
        [*pool(low=0.3, high=0.9), liar], pool(low=0.3, high=0.9)))  # fmt: skip
    assert with_it.marks == ("1x unverified: x",)
    assert with_it.summary.mean_gain == without.summary.mean_gain
    assert with_it.place == without.place
    assert (with_it.n_counted, with_it.summary.n_trials) == (4, 5)


def empty_handed(stack, seed):
    """A run that had its budget and submitted nothing: the base model is its result."""
    trial = pooled(stack, seed, 0.5)
    row = replace(trial.trial.row, gain=Estimate(0.0, None, None, 0), claim="", result="no_submission")
    return replace(trial, final=trial.base, trial=replace(trial.trial, row=row))


def test_a_stack_that_submits_in_one_run_of_three_with_luck_does_not_rank_above_one_that_always_does():
    lucky = [pooled("lucky", 0, 0.95), empty_handed("lucky", 1), empty_handed("lucky", 2)]
    steady = [pooled("steady", seed, 0.75) for seed in range(3)]
    first, second = make_leaderboard([*lucky, *steady]).tasks[0].standings
    assert (first.stack, second.stack) == ("steady", "lucky")
    assert second.n_counted == 3 and second.summary.n_submitted == 1
    alone = lucky[0].trial.row.gain.value
    assert second.summary.mean_gain.value == pytest.approx(alone / 3)
    assert second.summary.gain_submitted.value == pytest.approx(alone)
    assert alone > first.summary.mean_gain.value, "by its lucky run alone it would stand first"
    assert first.summary.n_submitted == 3
    columns = standing_table(make_leaderboard([*lucky, *steady]).tasks[0]).of("stack", "when it submitted").cells()
    assert columns[0][1] == "3 of 3 runs" and columns[1][1].endswith(", 1 of 3 runs")


def test_a_base_model_that_is_kept_has_no_interval_and_one_that_was_beaten_or_not_has_one():
    for trials, cell in (
        ([empty_handed("kept", 0)], "0.0, the base is kept"),
        ([pooled("won", 0, 0.95), empty_handed("won", 1)], "["),
        ([pooled("lost", 0, 0.05)], "["),
    ):
        (row,) = standing_table(make_leaderboard(trials).tasks[0]).of("mean gain [95%]").cells()
        assert cell in row[0] and ("kept" in row[0]) == (cell != "[")


def test_what_infrastructure_lost_lowers_no_mean():
    lost = pooled("low", 9, 0.9)
    row = replace(lost.trial.row, gain=None, claim="", result="no_submission")
    lost = replace(lost, final={}, trial=replace(lost.trial, row=row, is_counted=False))
    with_it, without = (make_leaderboard(trials).tasks[0].standings[0] for trials in ([*pool(low=0.6), lost], pool(low=0.6)))  # fmt: skip  # noqa: E501
    assert with_it.summary.mean_gain == without.summary.mean_gain and with_it.n_counted == 4
    assert with_it.spend.task_success.n == without.spend.task_success.n == 4


def test_the_readers_own_secret_decides_which_exam_is_shown_whatever_most_strangers_have():
    strangers = [
        replace(trial, conditions=conditions(secret="theirs"), identity=trial.identity + "s")
        for trial in pool(fox=0.9, wolf=0.9)
    ]
    board = make_leaderboard([*strangers, *pool(low=0.3)], choice=ExamChoice("secret"))
    assert [standing.stack for standing in board.tasks[0].standings] == ["low"]
    assert "this board has the exam of this installation" in board.left_out[0].why
    control = make_leaderboard([*strangers, *pool(low=0.3)])
    assert {standing.stack for standing in control.tasks[0].standings} == {"fox", "wolf"}, (
        "without a secret of one's own"
    )


def test_broken_trials_do_not_outvote_the_exam_of_those_that_count():
    broken = [
        replace(trial, conditions=conditions(items="other"), trial=replace(trial.trial, is_counted=False))
        for trial in pool(fox=0.5)
    ]
    broken += [replace(trial, identity=trial.identity + "b") for trial in broken]
    board = make_leaderboard([*broken, *pool(low=0.3)])
    assert [standing.stack for standing in board.tasks[0].standings] == ["low"]


def test_agents_of_one_name_with_different_files_are_two_stacks():
    trials = [
        *pool(low=0.3),
        *(replace(trial, agent_digest="e" * 8, identity=trial.identity + "e") for trial in pool(low=0.9)),
    ]
    stacks = [standing.stack for standing in make_leaderboard(trials).tasks[0].standings]
    assert stacks == ["low@eeeeee", "low@dddddd"]


def test_static_and_interactive_tasks_are_never_averaged():
    trials = []
    for task, kind in (("a", False), ("b", False), ("c", True), ("d", True)):
        for stack, rate in (("low", 0.4), ("high", 0.9)):
            trials += [pooled(stack, seed, rate, task, is_interactive=kind) for seed in range(3)]
    trials += [pooled("part", seed, 0.9, "a") for seed in range(3)]
    static, interactive = make_leaderboard(trials).overall
    assert (static.tasks, interactive.tasks) == (("a", "b"), ("c", "d"))
    assert [standing.stack for standing in static.standings] == ["high", "low"]
    assert static.lacking == {"part": "b"}
    best = static.standings[0]
    assert best.iqm.estimate.low <= best.iqm.estimate.value <= best.iqm.estimate.high
    assert best.beats_next.estimate.value == 1.0
    assert best.profile.share[0].value == 1.0


def test_one_trial_has_one_interval_on_every_table():
    board = make_leaderboard([pooled("fox", 0, 0.9), pooled("wolf", 0, 0.5)])
    for trial, standing, overall in zip(
        board.trials, board.tasks[0].standings, board.overall[0].standings, strict=True
    ):
        assert trial.row.gain == standing.summary.mean_gain == overall.mean_gain
    several = make_leaderboard(pool(fox=0.9, wolf=0.5))
    for standing, overall in zip(several.tasks[0].standings, several.overall[0].standings, strict=True):
        assert standing.summary.mean_gain == overall.mean_gain, "of one task"


def test_a_stack_that_submitted_nothing_has_no_interval_over_all_tasks():
    nothing = [pooled("nop", seed, 0.3) for seed in range(3)]
    zero = Estimate(0.0, None, None, 0, method="no submission")
    kept = [
        replace(
            trial,
            trial=replace(trial.trial, row=replace(trial.trial.row, gain=zero, result="no_submission")),
            final=trial.base,
        )
        for trial in nothing
    ]
    board = make_leaderboard([*pool(low=0.3), *kept])
    by_stack = {standing.stack: standing for standing in board.overall[0].standings}
    assert (by_stack["nop"].mean_gain.low, by_stack["nop"].iqm.estimate.low) == (None, None)
    assert by_stack["nop"].n_submitted == 0 and "the base is kept" in by_stack["nop"].iqm.warning
    assert by_stack["low"].mean_gain.low is not None and by_stack["low"].n_submitted == 4
    page = leaderboard_markdown(board)
    assert "0.0 [" not in page[page.index("nop") :].splitlines()[0]
    assert "[0.0, 0.0]" not in page[: page.index("Performance profiles")]


def test_a_driver_effect_needs_one_scaffold_with_two_drivers():
    trials = [pooled("codex", seed, rate, driver=name) for name, rate in (("weak", 0.3), ("strong", 0.95)) for seed in range(3)]  # fmt: skip  # noqa: E501
    (effect,) = make_leaderboard(trials).effects
    assert (effect.widest.level_a, effect.widest.claim) == ("strong", "better")
    assert make_leaderboard(pool(low=0.3, high=0.9)).effects == []


def test_the_order_of_the_folders_changes_nothing():
    trials = pool(low=0.3, high=0.9, mid=0.6)
    assert make_leaderboard(trials) == make_leaderboard(trials[::-1])


def test_a_page_shows_ten_columns_of_a_task_at_most_and_folds_the_rest():
    board = make_leaderboard(pool(low=0.3, high=0.9))
    page = leaderboard_html(board)
    tables = [re.findall(r'<th scope="col">([^<]*)</th>', head) for head in re.findall(r"<thead>.*?</thead>", page)]
    shown, folded = next((one, two) for one, two in pairwise(tables) if "when it submitted" in one)
    assert len(shown) <= 10 and folded[0] == "stack" and not set(shown) & set(folded[1:])
    every = [name.replace("->", "-&gt;") for name in standing_table(board.tasks[0]).names]
    assert set(shown) | set(folded) == set(every), "no column is lost"
    assert page.index("<details><summary>Verdicts") < page.index("base -&gt; final")


def test_pages_escape_names_and_the_csv_has_no_formula():
    board = make_leaderboard([pooled("=<script>x", seed, 0.9) for seed in range(2)])
    assert "<script>" not in leaderboard_html(board)
    assert "&lt;script&gt;" in leaderboard_html(board)
    assert "'=<script>x" in leaderboard_csv(board)
    assert leaderboard_csv(board).splitlines()[1].endswith(",")  # no marks: an empty cell
    assert "# Leaderboard" in leaderboard_markdown(board)


def test_an_empty_pool_is_an_empty_board():
    board = make_leaderboard([])
    assert (board.tasks, board.overall, board.effects) == ([], [], [])
    assert "0 trials" in leaderboard_html(board)


def test_two_stacks_are_compared_on_the_items_that_both_have():
    few = {f"i{at}": float(at < 3) for at in range(10)}
    more = {f"i{at}": float(at < 7) for at in range(2, 12)}
    trials = [pooled("few", 0, 0.5, final=few), pooled("more", 0, 0.5, final=more)]
    comparison = compare_stacks(trials, "t", "few", "more")
    assert comparison.difference.change.value == pytest.approx(-4 / 8), "i3 to i6 lost, of i2 to i9"
    assert (comparison.n_won, comparison.n_lost, comparison.n_same) == (0, 4, 4) and (
        comparison.n_runs,
        comparison.n_runs_other,
    ) == (1, 1)
    back = compare_stacks(trials[::-1], "t", "more", "few")
    assert back.difference.change.value == -comparison.difference.change.value and back.n_won == 4


def test_what_cannot_be_compared_says_so():
    lost = [replace(trial, trial=replace(trial.trial, is_counted=False)) for trial in pool(none=0.5)]
    comparison = compare_stacks([*pool(low=0.3), *lost], "t", "low", "none")
    assert comparison.difference is None and comparison.n_runs_other == 0 and comparison.n_won == comparison.n_same == 0
    for task, stack in (("t", "who"), ("other", "low")):
        with pytest.raises(ConfigError, match=f"'{stack}' has no trial on '{task}'"):
            compare_stacks(pool(low=0.3), task, stack, stack)


def assigned(stack, seed, credit, marks=(), *, is_counted=True):
    """A run without a submission of a task that has a verdict of its own."""
    trial = empty_handed(stack, seed)
    row = replace(trial.trial.row, credit=credit, has_passed=credit is not None and credit > 0.9)
    return replace(trial, trial=replace(trial.trial, row=row, marks=marks, is_counted=is_counted))


def test_stacks_of_a_tier_stand_in_the_order_of_their_credit_and_what_does_not_count_gives_none():
    trials = [
        *(assigned("a-nop", seed, 0.0) for seed in range(2)),
        *(assigned("b-unjudged", seed, None) for seed in range(2)),
        *(assigned("c-oracle", seed, credit) for seed, credit in enumerate((1.0, 0.5))),
        assigned("a-nop", 2, 1.0, ("unverified: x",), is_counted=False),
    ]
    board = make_leaderboard(trials)
    cells = standing_table(board.tasks[0]).of("stack", "assignment").cells()
    assert cells == [
        ["c-oracle", "credit 0.75, 1 of 2 passed"],
        ["a-nop", "credit 0.00, 0 of 2 passed"],
        ["b-unjudged", "no credit given, 0 of 2 passed"],
    ]
    assert "credit 0.75" in leaderboard_markdown(board)
    assert ",0.75,1," in leaderboard_csv(board)
    assert "assignment" not in standing_table(make_leaderboard(pool(low=0.3)).tasks[0]).names
    assert board.overall == [] and [standings.tasks for standings in make_leaderboard(pool(low=0.3)).overall] == [
        ("t",)
    ]
