import pytest

from agent2.contract.gates import EvidenceNeeds
from agent2.contract.metrics import MetricSpec, Role, Unit
from agent2.contract.rules import basis_of, problems_of, rule_of
from agent2.stats.comparisons import detectable_difference
from evidence_builders import make_metric, make_paired

RATE = MetricSpec(name="solved", role=Role.REGRESSION_GATE)
NEEDS = EvidenceNeeds()


def test_numbers_without_counts_are_fine_unless_items_are_asked_for():
    numbers = make_metric("solved", 0.6, 0.7)
    assert problems_of(RATE, numbers, NEEDS) == ()
    assert problems_of(RATE, numbers, EvidenceNeeds(needs_items=True))
    assert basis_of(numbers) == "no item counts: point rule used"


def test_pairs_are_asked_for_where_regressions_are_judged_by_item():
    strict = EvidenceNeeds(needs_items=True)
    counted = make_metric("solved", 0.6, 0.7, n_items=500)
    assert "no pairs" in problems_of(RATE, counted, strict)[0]
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
    assert "2 items show nothing" in problems_of(RATE, make_metric("solved", 0.6, 0.7, n_items=2), needs)[0]


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
    assert len(problems) == len(sides)
    assert all(side in problem for side, problem in zip(sides, problems, strict=True))


def test_every_need_is_in_the_rule():
    rule = rule_of(EvidenceNeeds(needs_items=True, min_items=77))
    for part in ("77 items", "1.0%", "95.0%", "2 points apart", "15 points", "control group", "pairs"):
        assert part in rule
