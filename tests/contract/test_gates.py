import pytest
from pydantic import TypeAdapter, ValidationError

from agent2.contract.gates import (
    Effects,
    EvidenceGate,
    GateSpec,
    LengthGate,
    LimitGate,
    RegressionGate,
    SafetyGate,
    VerificationGate,
    check_gates,
)
from agent2.contract.metrics import Direction, MetricSpec, Role
from agent2.errors import ConfigError
from evidence_builders import GATES, METRICS

PRIMARY = MetricSpec(name="math", role=Role.PRIMARY)
HOLDS = RegressionGate(name="math_holds", metrics=["math"])
ANY_GATE: TypeAdapter[GateSpec] = TypeAdapter(GateSpec)


def test_sound_gates_are_accepted():
    check_gates(METRICS, GATES)


@pytest.mark.parametrize(
    ("metrics", "gates", "sentence"),
    [
        ([PRIMARY], [], "nothing blocks a fall of the primary metric 'math'"),
        ([PRIMARY], [RegressionGate(name="x", metrics=["maht"])], "did you mean 'math'"),
        ([PRIMARY], [HOLDS, HOLDS], "'math_holds' appears twice"),
        ([PRIMARY], [HOLDS, EvidenceGate(), EvidenceGate(name="other")], "more than one gate of kind 'evidence'"),
        (
            [PRIMARY, MetricSpec(name="bad", is_safety=True, direction=Direction.LOWER)],
            [HOLDS],
            "safety metric 'bad' is read by no gate",
        ),
        (
            [PRIMARY, MetricSpec(name="tone", direction=Direction.NONE)],
            [HOLDS, RegressionGate(name="tone_holds", metrics=["tone"])],
            "'tone', which has no direction",
        ),
        ([PRIMARY], [HOLDS, VerificationGate(metric="maths")], "did you mean 'math'"),
        (
            [PRIMARY],
            [RegressionGate(name="math_holds", metrics=["math"], on_fire=Effects())],
            "nothing blocks a fall of the primary",
        ),
    ],
)
def test_gates_that_do_not_fit_the_metrics_are_refused(metrics, gates, sentence):
    with pytest.raises(ConfigError, match=sentence):
        check_gates(metrics, gates)


def test_a_gate_is_told_by_its_kind_and_nothing_unknown_is_taken():
    assert isinstance(ANY_GATE.validate_python({"kind": "safety"}), SafetyGate)
    for wrong in ({"kind": "safty"}, {"kind": "safety", "tolerence": 0.1}, {"name": "no kind"}):
        with pytest.raises(ValidationError):
            ANY_GATE.validate_python(wrong)


@pytest.mark.parametrize("release", ["release", "candidate", "insufficient", "blocked", "block_for_", "block_for_X"])
def test_a_gate_can_only_make_a_release_worse(release):
    with pytest.raises(ValidationError):
        Effects(release=release)


@pytest.mark.parametrize("limits", [{}, {"at_most": 0.1, "at_least": 0.1}])
def test_a_limit_has_exactly_one_side(limits):
    with pytest.raises(ValidationError, match="one of the two"):
        LimitGate(name="x", metrics=["math"], **limits)


def test_a_length_gate_without_limit_is_refused():
    with pytest.raises(ValidationError, match="needs max_rise or at_most"):
        LengthGate(max_rise=None)
