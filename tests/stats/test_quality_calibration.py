import pytest

from agent2.errors import NotEnoughData
from agent2.stats.quality import Health, calibrate


def rates(**shares):
    """Baselines with 0/1 scores on 100 items."""
    return {name: [1.0] * round(100 * share) + [0.0] * round(100 * (1 - share)) for name, share in shares.items()}


@pytest.mark.parametrize(
    ("sft", "previous", "strong", "expected"),
    [
        (0.50, 0.60, 0.90, Health.HEALTHY),
        (0.40, 0.60, 0.90, Health.HEALTHY),
        (0.80, 0.60, 0.90, Health.HEALTHY),
        (0.00, 0.01, 0.05, Health.TOO_HARD),
        (0.95, 0.99, 1.00, Health.OUTDATED),
        (0.60, 0.70, 0.97, Health.HEALTHY),
        (0.39, 0.60, 0.90, Health.MAIN_TOO_LOW),
        (0.81, 0.60, 0.90, Health.MAIN_TOO_HIGH),
        (0.00, 0.00, 0.30, Health.MAIN_TOO_LOW),
    ],
)
def test_the_verdict_follows_the_rates(sft, previous, strong, expected):
    result = calibrate(rates(sft=sft, previous=previous, strong=strong), "sft")
    assert result.health is expected
    assert result.spread == pytest.approx(max(sft, previous, strong) - min(sft, previous, strong))
    assert "n=100" in str(result)


def test_missing_scores_are_counted_and_never_zero():
    scores = rates(sft=0.5, previous=0.5, strong=0.9)
    scores["sft"] += [None, float("nan")]
    result = calibrate(scores, "sft")
    assert {name: rate.n_missing for name, rate in result.rates.items()} == {"sft": 2, "previous": 0, "strong": 0}
    assert result.rates["sft"].value == 0.5
    assert "2 scores missing" in str(result)


def test_partial_scores_have_students_intervals():
    scores = rates(sft=0.5, previous=0.5, strong=0.9) | {"graded": [0.5, 0.7, 0.6]}
    result = calibrate(scores, "graded")
    assert result.rates["graded"].method == "Student t"
    assert result.rates["sft"].method == "Wilson"


def test_bad_pilots_are_refused():
    with pytest.raises(NotEnoughData, match="at least 3 baselines"):
        calibrate(rates(sft=0.5, strong=0.9), "sft")
    with pytest.raises(NotEnoughData, match="baseline strong: nothing"):
        calibrate(rates(sft=0.5, previous=0.9) | {"strong": [None, None]}, "sft")
    with pytest.raises(ValueError, match=r"baseline strong holds -0\.1"):
        calibrate(rates(sft=0.5, previous=0.9) | {"strong": [-0.1]}, "sft")
    with pytest.raises(ValueError, match="not among"):
        calibrate(rates(sft=0.5, previous=0.9, strong=1), "other")
