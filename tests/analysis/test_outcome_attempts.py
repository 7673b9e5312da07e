import pytest

from agent2.analysis.outcome import attempt_metrics
from agent2.errors import Fault
from agent2.records import Item, Rollout, RolloutStatus, Score, ScoredRollout, Split, Usage
from agent2.scorers.answers import FinalAnswerScorer, RationalScorer
from agent2.scorers.choice import ChoiceScorer


def rollout(item, attempt, value, answer="x", **views):
    fault = None if value is not None else Fault.JUDGE
    record = Rollout(item, attempt, 0, RolloutStatus.COMPLETED, [], [], answer, {}, Usage(10, 5))
    return ScoredRollout(record, Score(value, "", fault, views=views, extracted=answer))


def rows(*items):
    return [rollout(f"i{i}", a, *cell) for i, row in enumerate(items) for a, cell in enumerate(row)]


def test_one_attempt_an_item_has_no_attempt_metrics():
    assert attempt_metrics(rows([(1.0,)], [(0.0,)])) is None
    assert attempt_metrics([]) is None


def test_pass_at_1_and_pass_at_k_stand_side_by_side():
    metrics = attempt_metrics(rows([(1.0, "a"), (0.0, "b")], [(0.0, "b"), (0.0, "c")]))
    assert (metrics.k, metrics.passes.pass_at_1.value, metrics.passes.pass_at_k.value) == (2, 0.25, 0.5)
    assert metrics.passes.pass_hat_k.value == 0.0


def test_majority_counts_equal_answers():
    metrics = attempt_metrics(rows([(1.0, "4"), (1.0, "4"), (0.0, "5")], [(0.0, "1"), (0.0, "1"), (1.0, "2")]))
    assert metrics.majority.value == 0.5


WORKINGS = ["3*6 is 18\n#### 18", "six threes\n#### 18.0", "18, clearly\n#### 18", "it is 17\n#### 17", "no idea"]


def judged(scorer, item, answers):
    """Real verdicts of a scorer on several attempts at one item."""
    records = [
        Rollout(item.id, place, 0, RolloutStatus.COMPLETED, [], [], answer, {}, Usage())
        for place, answer in enumerate(answers)
    ]
    return [ScoredRollout(record, scorer.score(item, record)) for record in records]


@pytest.mark.parametrize(
    ("scorer", "item", "answers"),
    [
        (FinalAnswerScorer(), Item("i", Split.DEV, "?", "18"), WORKINGS),
        (
            ChoiceScorer(),
            Item("i", Split.DEV, "?", "B", {"options": ["1", "2", "3"]}),
            ["(a) 1 is odd. The answer is (B).", "B", "Even, so the answer is (B)", "A", "none"],
        ),
        (RationalScorer(), Item("i", Split.DEV, "?", "1/2"), ["1/2", "0.5", "2/4", "3", "x"]),
    ],
)
def test_three_of_five_right_in_different_words_are_a_majority(scorer, item, answers):
    metrics = attempt_metrics(judged(scorer, item, answers))
    assert (metrics.passes.pass_at_1.value, metrics.majority.value) == (0.6, 1.0)
    wrong = [answers[3], *answers[3:], answers[3], answers[0]]
    assert attempt_metrics(judged(scorer, item, wrong)).majority.value == 0.0, "the majority is wrong"


def test_where_no_answer_is_extracted_there_is_no_vote_and_that_is_said():
    metrics = attempt_metrics(rows([(1.0, None), (0.0, None)]))
    assert metrics.majority is None
    assert any("read no final answer" in gap for gap in metrics.gaps)


def test_a_view_named_reward_chooses_and_without_one_best_of_n_says_why():
    with_view = [rollout("i0", 0, 1.0, "a", reward=0.9), rollout("i0", 1, 0.0, "b", reward=0.1)]
    metrics = attempt_metrics(with_view)
    assert (metrics.best.selector, metrics.best.chosen.value, metrics.best.oracle) == ("reward", 1.0, 1.0)
    without = attempt_metrics(rows([(1.0, "a"), (0.0, "b")]))
    assert without.best is None
    assert any("no rollout has a view named reward or verifier" in gap for gap in without.gaps)


def test_what_the_search_costs_for_each_point():
    metrics = attempt_metrics(rows([(1.0, "a"), (0.0, "b")], [(0.0, "b"), (0.0, "c")]))
    assert (metrics.cost.points, metrics.cost.tokens, metrics.cost.verifier_calls) == (25.0, 15 / 25, 2 / 25)


def test_a_missing_verdict_is_left_out_and_counted_never_wrong():
    metrics = attempt_metrics(rows([(1.0, "a"), (None, "b")], [(1.0, "a"), (1.0, "a")]))
    assert metrics.passes.pass_at_1.value == 1.0
    assert (metrics.passes.pass_at_k.n, metrics.passes.pass_at_k.n_missing) == (1, 1)


def test_graded_scores_have_no_pass_at_k_and_say_so():
    metrics = attempt_metrics(rows([(0.5, "a"), (1.0, "b")]))
    assert metrics.passes is None and "graded" in metrics.gaps[0]


def test_answers_judged_differently_have_no_majority_and_say_so():
    metrics = attempt_metrics(rows([(0.0, "a"), (1.0, "a")]))
    assert metrics.majority is None
    assert any(gap.startswith("majority@2") and "both right and wrong" in gap for gap in metrics.gaps)
