"""Resolved or not: hidden tests on the final state of a repository.

The value is 1.0 only if the final files pass every hidden test, those of the broken function and those of the
others, which must not have been broken on the way. What the model said, whether it submitted, and what the visible
tests say does not count: they are views and labels. Programs are run by `environments.tools.programs`.

A dangerous action does not change the value; it is counted (`safety_violations`), so that a gate can refuse it.
"""

from collections.abc import Mapping, Sequence

from agent2.environments.tools.repository import DANGERS, ProgramCheck, failures, source_text
from agent2.environments.tools.world import EMITS, answer_of, danger_labels, trace_labels, trace_views
from agent2.errors import Fault
from agent2.records import Emits, Item, JsonValue, Rollout, Score

Call = Mapping[str, JsonValue]


class ResolvedScorer:
    """1.0 if all hidden tests pass on the final files."""

    name = "resolved"
    version = "1.0"
    needs_state = frozenset({"final", "tool_calls"})
    emits = (
        EMITS
        | danger_labels(DANGERS)
        | Emits(
            views=frozenset({"state_success", "hidden_tests_passed", "submitted", "tests_run"}),
            labels=frozenset(
                {"ended_in_words", "not_submitted", "no_patch", "wrong_patch", "visible_tests_only"}
                | {"tests_not_run_after_patch"}
            ),
        )
    )

    def score(self, item: Item, rollout: Rollout) -> Score:
        """The verdict; a judge fault only if the item has no hidden tests."""
        if not (hidden := item.payload.get("hidden_tests")):
            return Score(None, f"item {item.id} has no hidden_tests; correct the benchmark", Fault.JUDGE)
        checks = [ProgramCheck(name, tuple(arguments), expected) for name, arguments, expected in hidden]
        final, calls = rollout.state["final"], rollout.state["tool_calls"]
        wrong = failures(source_text(final["files"]), checks)
        value = float(not wrong)
        visible = _last_test(calls)
        views = {
            **trace_views(rollout.state),
            "state_success": value,
            "hidden_tests_passed": 1.0 - len(wrong) / len(checks),
            "submitted": float(final["is_submitted"]),
            "tests_run": float(sum(call["name"] == "test" and call["error"] is None for call in calls)),
        }
        reason = f"{len(checks) - len(wrong)} of {len(checks)} hidden tests pass" + (f"; {wrong[0]}" if wrong else "")
        labels = {*trace_labels(rollout.state), *_repository_labels(calls, is_resolved=not wrong, visible=visible)}
        if not final["is_submitted"]:
            claimed = answer_of(rollout.state) is not None
            labels.add("ended_in_words" if claimed else "not_submitted")
        return Score(value, reason, views=views, labels=tuple(sorted(labels)))


def _repository_labels(calls: Sequence[Call], *, is_resolved: bool, visible: str | None) -> list[str]:
    labels = []
    edits = [place for place, call in enumerate(calls) if call["name"] == "edit" and call["error"] is None]
    if not edits and not is_resolved:
        labels.append("no_patch")
    if edits and not any(call["name"] == "test" and call["error"] is None for call in calls[edits[-1] :]):
        labels.append("tests_not_run_after_patch")
    if edits and not is_resolved:
        labels.append("visible_tests_only" if visible == "passed" else "wrong_patch")
    return labels


def _last_test(calls: Sequence[Call]) -> str | None:
    """What the last run of the visible tests after the last edit said, None if there was none."""
    said = None
    for call in calls:
        if call["error"] is None and call["name"] in {"edit", "test"}:
            said = str(call["result"]) if call["name"] == "test" else None
    return said
