"""Calls that are repeated for nothing and answers without a search, on hand-written episodes."""

import pytest

from agent2.records import Message, Rollout, RolloutStatus, StopReason, Turn, Usage
from agent2.scorers.grounding.detectors import CONDUCT, DETECTORS, conduct_of, findings_of
from agent2.scorers.grounding.episodes import read_episode

TASK = "Tools: search_pages(words) cancel_trip(trip) Who wrote it?"


def call(name, result="ok", error=None, **arguments):
    return {"name": name, "arguments": arguments, "result": None if error else result, "error": error}


def found(*calls, answer="Oren wrote it.", task=TASK):
    records = [record | {"turn": turn} for turn, record in enumerate(calls)]
    turns = [Turn(text, None, StopReason.END, 0, 0) for text in (*["call"] * len(records), answer)]
    state = {"tool_calls": records, "final": {}}
    opening = [Message("user", task)]
    episode = read_episode(Rollout("i", 0, 0, RolloutStatus.COMPLETED, opening, turns, answer, state, Usage()))
    assert not {finding.detector for finding in findings_of(episode)} & set(CONDUCT)
    return {finding.detector for finding in conduct_of(episode)}


LOOK = call("search_pages", words="author")
FAIL = call("search_pages", error="no such page", words="author")
CANCEL = call("cancel_trip", trip="T1")


@pytest.mark.parametrize(
    ("calls", "detectors"),
    [
        ([LOOK, LOOK], {"repeated_call"}),
        ([FAIL, FAIL], {"repeated_failing_call"}),
        ([FAIL, LOOK, FAIL, FAIL], {"repeated_failing_call"}),
        ([LOOK], set()),
        ([FAIL, LOOK], set()),
        ([LOOK, call("search_pages", words="title")], set()),
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


def test_conduct_is_no_part_of_the_grounding_reward():
    assert not set(CONDUCT) & set(DETECTORS)
