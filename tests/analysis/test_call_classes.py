import json

from msgspec import structs

from agent2.analysis.call_classes import call_classes
from agent2.analysis.failures import failures_of
from agent2.contract.causes import Cause, FailureJudge
from agent2.records import ScoredRollout, StopReason, Turn
from contract_card_builders import make_scored, write_card
from process_builders import call, make_worked


def logged(item, *steps, value=0.0, answer="I could not find it."):
    """A rollout as an import writes it: calls and results in messages, nothing recorded."""
    record = make_scored(item, value)
    turns = [
        Turn(json.dumps({"tool": name, "arguments": arguments}), result, StopReason.END, None, None)
        for name, arguments, result in steps
    ]
    turns.append(Turn(answer, None, StopReason.END, None, None))
    return ScoredRollout(structs.replace(record.rollout, turns=turns, answer=answer), record.score)


def looks(reservation, result):
    return "get_reservation", {"id": reservation}, result


def test_an_error_without_recovery_has_its_class_and_one_that_was_overcome_has_none():
    assert call_classes(logged("a", looks("X", "Error: reservation not found"))) == ["tool_not_found_no_recovery"]
    assert call_classes(logged("a", looks("X", "Error: request timed out"))) == ["tool_timeout_no_recovery"]
    overcome = logged("a", looks("X", "Error: reservation not found"), looks("Y", '{"id": "Y"}'))
    assert call_classes(overcome) == []


def test_repetitions_are_told_from_a_look_after_a_change():
    again = logged("a", looks("X", "{}"), looks("X", "{}"))
    assert call_classes(again) == ["repeated_tool_call"]
    changed = logged("a", looks("X", "{}"), ("cancel_reservation", {"id": "X"}, "cancelled"), looks("X", "{}"))
    assert call_classes(changed) == []
    failed = logged("a", *[looks("X", "Error: reservation not found")] * 2)
    assert call_classes(failed) == ["repeated_failing_call", "tool_not_found_no_recovery"]


def test_what_a_world_recorded_is_left_to_its_scorer_and_answers_without_calls_have_no_class():
    assert call_classes(make_worked("a", [call("open", error="timeout", page="1")])) == []
    assert call_classes(make_scored("a", 0.0)) == []


def test_failures_of_an_imported_log_are_sorted_by_its_calls(tmp_path):
    records = [logged(f"i{n}", looks("X", "Error: permission denied")) for n in range(3)]
    records.append(logged("ok", looks("X", "{}"), value=1.0))
    report = failures_of(write_card(tmp_path / "card", records))
    (found,) = report.classes
    assert (found.label, found.n, found.cause) == ("tool_permission_denied_no_recovery", 3, Cause.TOOLS)
    assert found.judge is FailureJudge.DETECTOR and report.n_unlabelled == 0
