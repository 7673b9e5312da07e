from agent2.arena.analysis.leaderboard import make_leaderboard
from agent2.reports.leaderboard_pages import exam_sentence
from pool_builders import conditions, pooled


def test_the_conditions_of_a_board_have_their_budget_in_words():
    played = conditions(budget="submissions=10, wall_clock_s=300.0")
    board = make_leaderboard([pooled("sft", seed, 0.5, conditions=played) for seed in range(2)])
    assert "budget 10 submissions, 5 minutes." in exam_sentence(board, board.tasks[0])
