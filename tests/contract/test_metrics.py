import pytest
from pydantic import ValidationError

from agent2.contract.metrics import (
    Direction,
    MetricSpec,
    Role,
    Unit,
    metric_named,
    metrics_by_name,
    primary_of,
    relative_rise,
    worsening,
)
from agent2.errors import ConfigError
from evidence_builders import make_metric


def test_worsening_knows_which_way_is_better():
    assert MetricSpec(name="a").worsening(0.6, 0.5) == pytest.approx(0.1)
    assert MetricSpec(name="a", direction=Direction.LOWER).worsening(0.6, 0.5) == pytest.approx(-0.1)
    assert MetricSpec(name="a", direction=Direction.NONE).worsening(0.6, 0.5) == 0.0


@pytest.mark.parametrize("roles", [[], [Role.PRIMARY, Role.PRIMARY]])
def test_a_suite_has_exactly_one_primary_metric(roles):
    metrics = [MetricSpec(name=f"m{place}", role=role) for place, role in enumerate(roles)]
    with pytest.raises(ConfigError, match="exactly one primary"):
        primary_of(metrics)


def test_an_unknown_metric_is_answered_with_the_nearest_name():
    with pytest.raises(ConfigError, match="did you mean 'gsm8k_exact_match'"):
        metric_named([MetricSpec(name="gsm8k_exact_match")], "gsm8k_exact_mach")


def test_an_alias_finds_its_metric_and_belongs_to_one_only():
    spec = MetricSpec(name="resolved", alias=["pass@1"])
    assert metric_named([spec], "pass@1") is spec
    with pytest.raises(ConfigError, match="'pass@1' appears twice"):
        metrics_by_name([spec, MetricSpec(name="pass@1")])


@pytest.mark.parametrize(
    "fields",
    [
        {"role": Role.PRIMARY, "direction": Direction.NONE},
        {"role": Role.PRIMARY, "scope": "chart_tasks"},
        {"role": Role.PRIMARY, "is_required": False},
        {"is_safety": True, "direction": Direction.NONE},
        {"name": "two words"},
        {"role": "main"},
        {"rolle": "primary"},
    ],
)
def test_a_metric_that_contradicts_itself_is_refused(fields):
    with pytest.raises(ValidationError):
        MetricSpec.model_validate({"name": "m", **fields})


def test_lengths_and_counts_worsen_relative_to_the_old_value_and_rates_in_points():
    calls = MetricSpec(name="calls", unit=Unit.COUNT, direction=Direction.LOWER)
    resolved = MetricSpec(name="resolved", role=Role.PRIMARY)
    assert worsening(calls, make_metric("calls", 20, 25)) == pytest.approx(0.25)
    assert worsening(resolved, make_metric("resolved", 0.5, 0.25)) == pytest.approx(0.25)
    assert worsening(calls, make_metric("calls", 0, 1)) == float("inf")
    assert relative_rise(make_metric("calls", 0, 0)) == 0.0
