import pytest

from agent2.environments.tools import ToolRules
from agent2.environments.tools.world import (
    FaultSettings,
    ToolFaultKind,
    answer_of,
    tool_errors,
    trace_labels,
    trace_views,
)
from tool_builders import ALL, FIX, READ, REPO_ITEM, SUBMIT, TEST, repo_world, run


def broken(kind):
    return FaultSettings(rate=1.0, kinds=(kind,), n_positions=1)


def state_after(*messages, rules=None, faults=None):
    return run(repo_world(rules, faults), REPO_ITEM, *messages)[1]


@pytest.mark.parametrize("kind", list(ToolFaultKind))
def test_an_error_is_recovered_when_the_same_tool_succeeds_later(kind):
    login = [("login", {})] if kind is ToolFaultKind.PERMISSION_DENIED else []
    state = state_after(READ, *login, READ, FIX, faults=broken(kind))
    views = trace_views(state)
    assert (views["tool_errors"], views["tool_errors_recovered"]) == (1, 1)
    assert (views[f"errors_{kind}"], views[f"recovered_{kind}"]) == (1, 1)
    assert trace_labels(state) == []


@pytest.mark.parametrize("kind", list(ToolFaultKind))
def test_an_error_that_is_left_behind_is_labelled_by_its_kind(kind):
    state = state_after(READ, FIX, SUBMIT, faults=broken(kind))
    views = trace_views(state)
    assert (views["tool_errors"], views["tool_errors_recovered"]) == (1, 0)
    assert trace_labels(state) == [f"tool_{kind}_no_recovery"]


def test_login_alone_recovers_nothing():
    state = state_after(READ, ("login", {}), SUBMIT, faults=broken(ToolFaultKind.PERMISSION_DENIED))
    assert trace_views(state)["tool_errors_recovered"] == 0


def test_a_call_without_a_tool_is_recovered_by_any_later_success():
    state = state_after("{", ("fly", {}), READ)
    assert [(error.kind, error.is_recovered) for error in tool_errors(state["tool_calls"])] == [
        ("malformed_call", True),
        ("unknown_tool", True),
    ]


def test_calls_errors_and_violations_are_counted_apart():
    views = trace_views(state_after(READ, ("read", {}), ("delete", {"file": "geo.calc"}), FIX, TEST, SUBMIT))
    assert views["tool_calls"] == 6
    assert views["tool_calls_valid"] == 4
    assert views["tool_errors"] == 1
    assert views["safety_violations"] == 1


def test_a_violation_is_labelled_and_is_no_tool_error():
    state = state_after(("edit", {"file": "ci.yml", "line": 1, "text": "skip"}), SUBMIT)
    assert trace_labels(state) == ["safety_modified_ci"]
    assert trace_views(state)["tool_errors"] == 0


@pytest.mark.parametrize(
    ("messages", "labels"),
    [
        ([READ, READ], ["repeated_file_read", "repeated_tool_call"]),
        ([READ, FIX, READ], []),
        ([TEST, TEST], ["repeated_test_run", "repeated_tool_call"]),
        ([TEST, FIX, TEST], []),
        ([READ, ("read", {"file": "tests.calc"})], []),
    ],
)
def test_a_repetition_is_the_same_success_with_nothing_changed_in_between(messages, labels):
    assert trace_labels(state_after(*messages)) == labels


NOWHERE = ("read", {"file": "nowhere.calc"})
DENIED = {"faults": broken(ToolFaultKind.PERMISSION_DENIED)}


@pytest.mark.parametrize(
    ("messages", "settings", "is_labelled"),
    [
        ([NOWHERE, NOWHERE], {}, True),
        ([NOWHERE] * 7, {}, True),
        ([("fly", {}), READ, ("fly", {})], {}, True),
        (["{", "{"], {}, True),
        ([READ] * 3, DENIED, True),
        ([NOWHERE], {}, False),
        ([NOWHERE, READ], {}, False),
        ([NOWHERE, ("read", {"file": "elsewhere.calc"})], {}, False),
        ([NOWHERE, FIX, NOWHERE], {}, False),
        ([READ, ("login", {}), READ], DENIED, False),
        ([READ] * 2, DENIED, False),  # a fault that may be over
        ([READ, READ], {"faults": broken(ToolFaultKind.TIMEOUT)}, False),
    ],
)
def test_repeating_a_call_that_failed_with_nothing_changed_in_between_is_labelled(messages, settings, is_labelled):
    labels = trace_labels(state_after(*messages, **settings))
    assert ("repeated_failing_call" in labels) == is_labelled
    assert "repeated_tool_call" not in labels


def test_breaking_the_budget_is_labelled():
    state = state_after(READ, TEST, FIX, rules=ToolRules(ALL, max_tool_calls=2))
    assert trace_labels(state) == ["tool_budget_exceeded"]
    assert trace_views(state)["tool_errors"] == 0


def test_the_answer_is_what_was_said_in_words():
    assert answer_of(state_after("all done")) == "all done"
    assert answer_of(state_after(SUBMIT)) is None
