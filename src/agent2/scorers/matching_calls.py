"""The scorer `matching_calls`: calls that a message writes as code, against one list of calls that are right.

An item's payload has `expected_calls`, a list of `name` and `arguments`, empty where no call is right. Each expected
call takes the first free call with its name and equal arguments, and no call may be left over. Numbers are equal by
value (`5` is `5.0`, and also the text "5"), texts without case, spaces and ``, . / - _ * ^``, lists in their order,
objects by their keys, at any depth. A line `API-Request:` before the calls does not count, nor do quotes around a list,
which API-Bank has even where texts in the list have the same quotes.

Promises: nothing is executed. Does NOT say whether a call would work, nor accept another wording of a value: what
API-Bank's authors run and compare by its result is compared as it is written here.
"""

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any

from agent2.errors import Fault, quoted
from agent2.llm.call_code import CodeCall, CodeLanguage, NotCalls, read_code_calls
from agent2.records import Item, Rollout, Score, ScorerOutput
from agent2.syntax import parse_expression

_REQUEST = re.compile(r"API-Request\s{0,9}:\s{0,9}", re.IGNORECASE)
_RESULT = re.compile(r"\]\s{0,9}->.*", re.DOTALL)
_QUOTED_LIST = re.compile(r"=\s{0,9}(['\"])(\[[^\n]{0,2000}?\])\1(?=\s{0,9}[,)])")
_IGNORED = re.compile(r"[ ,./\-_*^]")


class MatchingCallScorer:
    """1.0 if the calls of a message are those that are expected."""

    name = "matching_calls"
    version = "1.0"
    needs_state = frozenset({"answer"})
    emits = ScorerOutput(
        views=frozenset({"calls_matched", "calls_expected", "calls_made", "right_names"}),
        labels=frozenset(
            {"called_without_need", "no_call", "malformed_call", "missing_call", "extra_call", "wrong_arguments"}
            | {"wrong_function"}
        ),
    )
    expects = "calls as code, as in [name(argument='value')]"

    def score(self, item: Item, rollout: Rollout) -> Score:
        """The verdict; a judge fault only if the item does not say which calls are right."""
        expected = item.payload.get("expected_calls")
        if not isinstance(expected, list | tuple):
            return Score(None, f"item {item.id} has no expected_calls; correct the benchmark", Fault.JUDGE)
        answer = str(rollout.state.get("answer") or "")
        calls, unread = _calls_of(rollout, answer)
        problems = _problems(calls, expected)
        n_matched = sum(not problem for problem in problems)
        is_right = len(calls) == len(expected) == n_matched
        names = sorted(_plain_name(str(call["name"])) for call in expected)
        has_names = names == sorted(_plain_name(call.name) for call in calls)
        views: dict[str, float | None] = {
            "calls_matched": float(n_matched),
            "calls_expected": float(len(expected)),
            "calls_made": float(len(calls)),
            "right_names": float(has_names),
        }
        if is_right:
            return Score(1.0, f"{n_matched} calls as expected", views=views)
        if not expected:
            return Score(0.0, f"{len(calls)} calls where none fits", views=views, labels=("called_without_need",))
        if not calls:
            label = "malformed_call" if "(" in answer and unread else "no_call"
            return Score(0.0, f"no call: {unread}" if unread else "no call", views=views, labels=(label,))
        if len(calls) != len(expected):
            label = "missing_call" if len(calls) < len(expected) else "extra_call"
            return Score(0.0, f"{len(calls)} calls, expected {len(expected)}", views=views, labels=(label,))
        reason = next(problem for problem in problems if problem)
        label = "wrong_arguments" if has_names else "wrong_function"
        return Score(0.0, reason, views=views, labels=(label,))


def _calls_of(rollout: Rollout, answer: str) -> tuple[Sequence[CodeCall], str]:
    """The calls of a message, and why there are none."""
    if rollout.state.get("native_tools"):
        records: Sequence[Mapping[str, Any]] = rollout.state.get("tool_calls") or ()
        return [CodeCall(str(record["name"]), record["arguments"]) for record in records if record["name"]], ""
    requests = list(_REQUEST.finditer(answer))
    text = _RESULT.sub("]", answer[requests[-1].end() :]) if requests else answer
    try:
        return read_request(text), ""
    except NotCalls as error:
        return [], str(error)


def read_request(text: str) -> list[CodeCall]:
    """The calls of a text; quotes around a list do not count. Raises NotCalls."""
    try:
        return list(read_code_calls(text.strip(), CodeLanguage.PYTHON))
    except NotCalls:
        return list(read_code_calls(_QUOTED_LIST.sub(r"=\2", text.strip()), CodeLanguage.PYTHON))


def _problems(calls: Sequence[CodeCall], expected: Sequence[Mapping[str, Any]]) -> list[str]:
    """Of each expected call what is wrong with the call that answers it; empty: nothing."""
    taken: set[int] = set()
    problems = []
    for entry in expected:
        reason = f"no call is left for {entry['name']}"
        for index, call in enumerate(calls):
            if index in taken:
                continue
            reason = _problem(call, entry)
            if not reason:
                taken.add(index)
                break
        problems.append(reason)
    return problems


def _problem(call: CodeCall, expected: Mapping[str, Any]) -> str:
    if _plain_name(call.name) != _plain_name(str(expected["name"])):
        return f"called {call.name}, expected {expected['name']}"
    accepted: Mapping[str, Any] = expected["arguments"]
    if missing := [name for name in accepted if name not in call.arguments]:
        return f"the argument {missing[0]!r} is missing"
    if extra := [name for name in call.arguments if name not in accepted]:
        return f"the argument {extra[0]!r} is not expected"
    for name, value in call.arguments.items():
        if not is_same_value(value, accepted[name]):
            return f"the argument {name!r} is {quoted(value)}, not the expected value"
    return ""


def is_same_value(value: Any, expected: Any) -> bool:
    """Whether a value equals the expected one, as the module says."""
    if isinstance(expected, bool) or isinstance(value, bool):
        return _as_text(value) == _as_text(expected)
    if isinstance(value, str) and isinstance(expected, Mapping | list | tuple):
        value = _printed(value)
    if isinstance(expected, Mapping):
        return (
            isinstance(value, Mapping)
            and set(value) == set(expected)
            and all(is_same_value(value[name], expected[name]) for name in expected)
        )
    if isinstance(expected, list | tuple):
        return (
            isinstance(value, list | tuple) and len(value) == len(expected) and all(map(is_same_value, value, expected))
        )
    if isinstance(value, Mapping | list | tuple):
        return False
    if isinstance(value, int | float) and isinstance(expected, int | float):
        return value == expected
    return _as_text(value) == _as_text(expected)


def _printed(text: str) -> Any:
    """The list or object that a text shows, or the text."""
    try:
        return ast.literal_eval(parse_expression(text.strip())) if text.strip().startswith(("[", "{")) else text
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return text


def _as_text(value: Any) -> str:
    number = value if isinstance(value, str) or not isinstance(value, float) or not value.is_integer() else int(value)
    return _IGNORED.sub("", str(number)).casefold()


def _plain_name(name: str) -> str:
    """A function's name; servers with native tools write dots as underscores."""
    return name.replace(".", "_")
