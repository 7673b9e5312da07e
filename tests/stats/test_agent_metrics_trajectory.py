import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent2.stats.agent_metrics import (
    DEFAULT_WEIGHTS,
    PRESETS,
    Trajectory,
    TrajectoryStep,
    TrajectoryTask,
    Weights,
    efficiency,
    evaluate_trajectory,
    mentions,
)

TASK = TrajectoryTask(
    expected="Paris", key_points=("paris", "Seine"), max_turns=20, allowed_tools=frozenset({"search", "open"})
)
SCORE = st.floats(0, 1)


def trajectory(answer="Paris", turns=5, tools=("search", "shell"), citations=None):
    return Trajectory([TrajectoryStep(), *(TrajectoryStep(tool) for tool in tools)], answer, turns, citations)


def test_the_default_weights_are_the_published_ones():
    assert DEFAULT_WEIGHTS.by_name() == {
        "correctness": 0.4, "completeness": 0.2, "efficiency": 0.15, "process": 0.25, "citations": 0.0,
    }  # fmt: skip


def test_the_presets_hold_what_the_source_gives():
    assert PRESETS["code"].correctness == 0.5
    assert PRESETS["research"].completeness == PRESETS["research"].citations == 0.25
    assert all(sum(weights.by_name().values()) == pytest.approx(1.0) for weights in PRESETS.values())


def test_a_hand_computed_trajectory():
    total, scores = evaluate_trajectory(trajectory(), TASK)
    assert dict(scores.by_name) == {"correctness": 1.0, "completeness": 0.5, "efficiency": 0.75, "process": 0.5}
    assert total == pytest.approx(0.4 * 1 + 0.2 * 0.5 + 0.15 * 0.75 + 0.25 * 0.5)


def test_efficiency_is_clipped_at_0():
    assert efficiency(0) == 1.0 and efficiency(20) == 0.0 and efficiency(35) == 0.0
    assert efficiency(5, 10) == 0.5
    for turns, limit in ((-1, 20), (1, 0)):
        with pytest.raises(ValueError):
            efficiency(turns, limit)


def test_no_final_answer_fails_and_is_not_missing():
    total, scores = evaluate_trajectory(trajectory(answer=None), TASK)
    assert (scores.by_name["correctness"], scores.by_name["completeness"]) == (0.0, 0.0)
    assert total == pytest.approx(0.15 * 0.75 + 0.25 * 0.5)


def test_what_the_task_does_not_define_gives_its_weight_to_the_others():
    total, scores = evaluate_trajectory(trajectory(), TrajectoryTask("Paris"))
    assert set(scores.weights) == {"correctness", "efficiency"}
    assert scores.weights["correctness"] == pytest.approx(0.4 / 0.55)
    assert total == pytest.approx((0.4 + 0.15 * 0.75) / 0.55)


def test_what_could_not_be_judged_makes_the_total_missing():
    result = evaluate_trajectory(trajectory(), TASK, verify=lambda answer, expected: None)
    assert result.total is None and result.scores.missing == ["correctness"]
    assert str(result).startswith("missing (n=1 trajectory")
    half_judged = evaluate_trajectory(
        trajectory(), TASK, appropriate=lambda step, task: 1.0 if step.tool == "search" else float("nan")
    )
    assert half_judged.total is None


def test_judges_can_replace_the_rules():
    total, scores = evaluate_trajectory(
        trajectory(answer="the capital"),
        TrajectoryTask("Paris", key_points=("x",)),
        verify=lambda answer, expected: 0.5,
        covers=lambda answer, point: 1.0,
        appropriate=lambda step, task: 0.25,
    )
    assert dict(scores.by_name) == {"correctness": 0.5, "completeness": 1.0, "efficiency": 0.75, "process": 0.25}
    assert total is not None
    with pytest.raises(ValueError, match="correctness was judged 7"):
        evaluate_trajectory(trajectory(), TASK, verify=lambda answer, expected: 7.0)


def test_research_needs_citations():
    research = PRESETS["research"]
    assert evaluate_trajectory(trajectory(), TASK, research).total is None
    none_given = evaluate_trajectory(trajectory(citations=[]), TASK, research)
    assert none_given.scores.by_name["citations"] == 0.0
    total, scores = evaluate_trajectory(trajectory(citations=[1, 1, 0, 0]), TASK, research)
    assert scores.by_name["citations"] == 0.5
    assert total == pytest.approx(0.3 + 0.25 * 0.5 + 0.1 * 0.75 + 0.1 * 0.5 + 0.25 * 0.5)
    assert evaluate_trajectory(trajectory(citations=[1, None]), TASK, research).total is None


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"correctness": 0.25, "completeness": 0.2, "efficiency": 0.15, "process": 0.4}, "process weighs more"),
        ({"correctness": 0.3, "completeness": 0.4, "efficiency": 0.1, "process": 0.2}, "completeness weighs more"),
        ({"correctness": 0.4, "completeness": 0.1, "efficiency": 0.2, "process": 0.3}, "together weigh more"),
        ({"correctness": 0.5}, "sum to"),
        ({"correctness": 0.8, "process": -0.15}, "at least 0"),
        ({"correctness": float("nan")}, "at least 0"),
    ],
)
def test_weights_under_which_the_way_outweighs_the_outcome_are_refused(weights, message):
    with pytest.raises(ValueError, match=message):
        Weights(**weights)


def test_key_points_are_looked_for_without_case_and_line_ends():
    assert mentions("On the  river\nSEINE.", "river Seine") == 1.0
    assert mentions("On the Seine", "Loire") == 0.0


def test_a_trajectory_lists_its_tool_calls():
    assert [step.tool for step in trajectory().tool_calls] == ["search", "shell"]
    assert "process" not in evaluate_trajectory(trajectory(tools=()), TASK).scores.by_name


@given(SCORE, SCORE, SCORE, st.integers(0, 40), st.sampled_from(sorted(PRESETS)))
@settings(max_examples=80, deadline=None)
def test_the_total_is_bounded_and_rises_with_correctness(right, whole, way, turns, preset):
    def total(correctness):
        result = evaluate_trajectory(
            trajectory(turns=turns, citations=[1.0]), TASK, PRESETS[preset],
            lambda *_: correctness, lambda *_: whole, lambda *_: way,
        )  # fmt: skip
        assert sum(result.scores.weights.values()) == pytest.approx(1.0)
        return result.total

    assert 0.0 <= total(right) <= 1.0
    assert total(right) <= total(1.0) + 1e-12
    assert total(1.0) - total(0.0) == pytest.approx(PRESETS[preset].correctness)
