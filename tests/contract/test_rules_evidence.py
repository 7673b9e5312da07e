import pytest

from agent2.contract.findings import ProblemKind
from agent2.contract.gates import EvidenceNeeds
from agent2.contract.metrics import MetricSpec, Role, Unit
from agent2.contract.rules import problems_of
from agent2.stats.comparisons import detectable_difference
from evidence_builders import make_metric, make_paired

RATE = MetricSpec(name="solved", role=Role.REGRESSION_GATE)
NEEDS = EvidenceNeeds()
SIDES = {"baseline": "old", "checkpoint": "new"}


def test_numbers_without_counts_are_fine_unless_items_are_asked_for():
    numbers = make_metric("solved", 0.6, 0.7)
    assert problems_of(RATE, numbers, NEEDS) == ()
    (problem,) = problems_of(RATE, numbers, EvidenceNeeds(needs_items=True))
    assert (problem.kind, problem.metrics) == (ProblemKind.NO_COUNTS, ("solved",))


def test_pairs_are_asked_for_where_regressions_are_judged_by_item():
    strict = EvidenceNeeds(needs_items=True)
    counted = make_metric("solved", 0.6, 0.7, n_items=500)
    assert problems_of(RATE, counted, strict)[0].kind is ProblemKind.NO_PAIRS
    assert problems_of(RATE.model_copy(update={"role": Role.DIAGNOSTIC}), counted, strict) == ()
    assert problems_of(RATE.model_copy(update={"measure": "ratio:a/b"}), counted, strict) == ()
    assert problems_of(RATE, make_paired("solved", 500, 30, 20), strict) == ()


@pytest.mark.parametrize(("n_items", "is_enough"), [(49, False), (60, False), (80, True)])
def test_counted_rates_must_be_able_to_show_15_points(n_items, is_enough):
    detectable = detectable_difference(n_items, 0.2).difference
    assert (problems_of(RATE, make_metric("solved", 0.6, 0.7, n_items=n_items), NEEDS) == ()) is is_enough
    assert (detectable <= 0.15) is is_enough


def test_lengths_have_no_detectable_difference_and_pairs_have_their_margin():
    length = MetricSpec(name="length", unit=Unit.LENGTH)
    assert problems_of(length, make_metric("length", 600, 610, n_items=60), NEEDS) == ()
    assert problems_of(RATE, make_paired("solved", 60, 3, 2), NEEDS) == ()


def test_no_number_of_items_shows_less_than_nothing():
    needs = EvidenceNeeds(min_items=1, assumed_discordance=0.05)
    (problem,) = problems_of(RATE, make_metric("solved", 0.6, 0.7, n_items=2), needs)
    assert (problem.kind, problem.n, problem.value) == (ProblemKind.LOW_POWER, 2, None)


@pytest.mark.parametrize(
    ("counts", "sides"),
    [
        ({"n_missing_old": 5, "n_missing_new": 5}, []),
        ({"n_missing_old": 6}, ["baseline"]),
        ({"n_missing_new": 7}, ["checkpoint"]),
        ({"n_missing_old": 60, "n_missing_new": 60}, ["baseline", "checkpoint"]),
    ],
)
def test_missing_scores_are_judged_on_each_side(counts, sides):
    problems = problems_of(RATE, make_metric("solved", 0.6, 0.7, n_items=495, **counts), NEEDS)
    assert [(problem.kind, problem.side) for problem in problems] == [(ProblemKind.MISSING_SCORES, s) for s in sides]
    assert [problem.n_total for problem in problems] == [495 + counts[f"n_missing_{SIDES[s]}"] for s in sides]
