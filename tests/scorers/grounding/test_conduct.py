"""Calls that are repeated for nothing and answers without a search, on hand-written episodes."""

import pytest

from agent2.records import Message, Rollout, RolloutStatus, StopReason, Turn, Usage
from agent2.scorers.grounding.detectors import CONDUCT, DETECTORS, conduct_of, findings_of
from agent2.scorers.grounding.episodes import read_episode

TASK = "Tools: search_pages(words) cancel_trip(trip) Who wrote it?"


def call(name, result="ok", error=None, **arguments):
    return {"name": name, "arguments": arguments, "result": None if error else result, "error": error}


def found(*calls, answer="Oren wrote it.", task=TASK, reference=None):
    records = [record | {"turn": turn} for turn, record in enumerate(calls)]
    turns = [Turn(text, None, StopReason.END, 0, 0) for text in (*["call"] * len(records), answer)]
    state = {"tool_calls": records, "final": {}} | ({} if reference is None else {"actions": reference})
    opening = [Message("user", task)]
    episode = read_episode(Rollout("i", 0, 0, RolloutStatus.COMPLETED, opening, turns, answer, state, Usage()))
    assert not {finding.detector for finding in findings_of(episode)} & set(CONDUCT)
    return {finding.detector for finding in conduct_of(episode)}


LOOK = call("search_pages", words="author")
OTHER = call("search_pages", words="title")
FAIL = call("search_pages", error="no such page", words="author")
CANCEL = call("cancel_trip", trip="T1")


@pytest.mark.parametrize(
    ("calls", "detectors"),
    [
        ([LOOK, LOOK], {"repeated_call"}),
        ([LOOK, OTHER, LOOK, OTHER, LOOK], {"repeated_call"}),
        ([FAIL, FAIL], {"repeated_call", "repeated_failing_call"}),
        ([FAIL, OTHER, FAIL], {"repeated_failing_call"}),
        ([LOOK, OTHER, LOOK], set()),  # a second look, later
        ([LOOK], set()),
        ([LOOK, OTHER], set()),
        ([LOOK, CANCEL, LOOK], set()),  # the trip was cancelled in between
        ([FAIL, CANCEL, FAIL], set()),
    ],
)
def test_a_call_is_repeated_if_nothing_changed_since(calls, detectors):
    assert found(*calls) == detectors


@pytest.mark.parametrize(
    ("calls", "answer", "task", "is_found"),
    [
        ([CANCEL], "Oren wrote it.", TASK, True),
        ([LOOK], "Oren wrote it.", TASK, False),
        ([FAIL], "Oren wrote it.", TASK, False),  # it tried
        ([CANCEL], "I could not find out who wrote it.", TASK, False),
        ([CANCEL], "Which book do you mean?", TASK, False),
        ([CANCEL], "Oren wrote it.", "Tools: cancel_trip(trip). Find it.", False),  # there is nothing to search with
    ],
)
def test_an_answer_without_a_search_is_one_where_a_search_was_offered(calls, answer, task, is_found):
    assert ("answer_without_search" in found(*calls, answer=answer, task=task)) == is_found


def trip(name="T1", **more):
    return call("cancel_trip", trip=name, **more)


REFERENCE = [
    {"name": "find_trip", "kwargs": {}},
    {"name": "cancel_trip", "kwargs": {"trip": "T1", "refund_to": ["a", "b"]}},
]


@pytest.mark.parametrize(
    ("calls", "detectors"),
    [
        ([LOOK, trip(refund_to=["b", "a"])], set()),
        ([LOOK, trip(refund_to=["a"])], {"other_arguments"}),
        ([LOOK, trip("T2", refund_to=["c"])], {"unexpected_change"}),
        ([LOOK, call("book_trip", trip="T1")], {"unexpected_change"}),
        ([LOOK], {"nothing_changed"}),
        ([LOOK, call("transfer_to_human_agents", summary="x")], {"nothing_changed"}),
        ([LOOK, trip(refund_to=["a", "b"]), call("send_note", to="me")], {"unexpected_change"}),
    ],
)
def test_changes_are_compared_with_the_reference_calls(calls, detectors):
    assert found(*calls, reference=REFERENCE) == detectors
    assert found(*calls) == set()  # without a reference nothing is said of changes


def test_a_reference_without_a_change_expects_none():
    assert found(LOOK, reference=[]) == found(LOOK, reference=REFERENCE[:1]) == set()
    assert found(LOOK, trip(), reference=[]) == {"unexpected_change"}


def test_conduct_is_no_part_of_the_grounding_reward():
    assert not set(CONDUCT) & set(DETECTORS)
