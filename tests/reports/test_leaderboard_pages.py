from agent2.reports.leaderboard_pages import budget_words


def test_a_budget_is_shown_in_words_and_an_unknown_part_as_it_is():
    assert budget_words("submissions=10, wall_clock_s=300.0") == "10 submissions, 5.0 min"
    assert budget_words("gpu_hours=2.0, wall_clock_s=inf") == "gpu_hours=2.0, wall_clock_s=inf"
    assert budget_words("") == "none"
