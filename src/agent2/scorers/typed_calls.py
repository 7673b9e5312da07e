"""The scorer `typed_calls`: calls against accepted values and declared types, by the rules of BFCL's `ast_checker`.

An item's payload has `functions` (name and `parameters` with `properties` and `required`, as BFCL declares them),
`language`, `rule` and `possible_answer`, a list of `{NAME: {ARGUMENT: [accepted values]}}` in which "" says that the
argument may be left out:

one        exactly one call, of the function that is expected
any_order  as many calls as expected ones; each expected one, in its order, takes the first free call that fits
no_call    right is a message without a call, whatever it says, and an empty one too
some_call  right is any call

A call fits if it has the name, all required arguments and no undeclared or unexpected one, each of the declared type
and among the accepted values. A whole number is a float's; a value of another type is right only where the accepted
values have that type (a variable). Texts are equal without case, spaces and ``, . / - _ * ^``, at any depth of lists
and objects that the official rules reach. Source: Patil et al. 2025; benchmarks/bfcl_agreement.py compares with the
official program.

Promises: the calls are read from the message as text (`llm.call_code`), or are those that a server returned where
functions were offered natively; nothing is executed. Does NOT say whether a call would work: nothing is called.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Any

from agent2.errors import Fault, quoted
from agent2.llm.call_code import CodeCall, CodeLanguage, NotCalls, read_code_calls
from agent2.records import Item, JsonValue, Rollout, Score, ScorerOutput
from agent2.scorers.code_values import code_value

OPTIONAL = ""
_IGNORED = re.compile(r"[ ,./\-_*^]")
_TYPES: Mapping[CodeLanguage, Mapping[str, type]] = {
    CodeLanguage.PYTHON: {
        **{"string": str, "any": str, "integer": int, "float": float, "boolean": bool},
        **{"array": list, "tuple": list, "dict": dict},
    },
    CodeLanguage.JAVA: {
        **{"byte": int, "short": int, "integer": int, "long": int, "float": float, "double": float, "boolean": bool},
        **{"char": str, "String": str, "any": str, "Set": set, "HashMap": dict, "Hashtable": dict},
        **{"Array": list, "ArrayList": list, "Queue": list, "Stack": list},
    },
    CodeLanguage.JAVASCRIPT: {
        **{"String": str, "any": str, "integer": int, "Bigint": int, "float": float, "Boolean": bool},
        **{"dict": dict, "array": list},
    },
}
"""Declared type -> Python's, by language."""
_LISTS = frozenset({"array", "tuple", "Array", "ArrayList"})
"""Declared types whose parts have a declared type, too."""


class CallRule(StrEnum):
    """What is asked of the calls of a message."""

    ONE = "one"
    ANY_ORDER = "any_order"
    NO_CALL = "no_call"
    SOME_CALL = "some_call"


class TypedCallScorer:
    """1.0 if the calls of a message are right by the item's rule."""

    name = "typed_calls"
    version = "1.0"
    needs_state = frozenset({"answer"})
    emits = ScorerOutput(
        views=frozenset({"ast_match", "calls_matched", "calls_wanted", "calls_made"}),
        labels=frozenset(
            {"called_without_need", "no_call", "malformed_call", "missing_call", "extra_call", "wrong_arguments"}
            | {"wrong_function"}
        ),
        view_prefixes=frozenset({"items_", "right_"}),
    )

    def score(self, item: Item, rollout: Rollout) -> Score:
        """The verdict; a judge fault only if the item has no rule."""
        payload = item.payload
        if "rule" not in payload or "language" not in payload:
            return Score(None, f"item {item.id} has no rule in its payload; correct the benchmark", Fault.JUDGE)
        rule, language = CallRule(payload["rule"]), CodeLanguage(payload["language"])
        is_native = bool(rollout.state.get("native_tools"))
        # BFCL reads what should be no call as Python, whatever the language of the item
        read_as = language if rule in (CallRule.ONE, CallRule.ANY_ORDER) else CodeLanguage.PYTHON
        answer = str(rollout.state["answer"] or "")
        try:
            calls, unread = _native_calls(rollout) if is_native else read_code_calls(answer, read_as), ""
        except NotCalls as error:
            calls, unread = [], str(error)
        expected: Sequence[Mapping[str, Any]] = payload.get("possible_answer") or ()
        n_matched = 0
        if rule in (CallRule.NO_CALL, CallRule.SOME_CALL):
            is_right = bool(calls) is (rule is CallRule.SOME_CALL)
            reason = f"{len(calls)} calls where {'none fits' if rule is CallRule.NO_CALL else 'some call is asked for'}"
            label = "called_without_need" if rule is CallRule.NO_CALL else _unread_label(answer)
        else:
            problems = problems_of(calls, expected, payload["functions"], language, is_native=is_native)
            n_matched = sum(not problem for problem in problems)
            is_right = len(calls) == len(expected) == n_matched
            reason, label = _failure(calls, expected, problems, unread, answer)
        views = {
            "ast_match": float(is_right),
            "calls_matched": float(n_matched),
            "calls_wanted": float(len(expected)),
            "calls_made": float(len(calls)),
            **_group_views(payload, is_right=is_right),
        }
        if is_right:
            reason = reason if rule in (CallRule.NO_CALL, CallRule.SOME_CALL) else f"{n_matched} calls as expected"
        return Score(float(is_right), reason, views=views, labels=() if is_right else (label,))


def _group_views(payload: Mapping[str, JsonValue], *, is_right: bool) -> dict[str, float]:
    """Of every group of the benchmark whether the item is in it, and right: a card's sums are each group's rate."""
    groups: Sequence[str] = payload.get("groups") or ()
    group_of_item = payload.get("task_type")
    views = {f"items_{group}": float(group == group_of_item) for group in groups}
    return views | {f"right_{group}": float(group == group_of_item and is_right) for group in groups}


def _native_calls(rollout: Rollout) -> list[CodeCall]:
    """The calls that a server with native tools returned, as the world read them. Raises NotCalls."""
    records: Sequence[Mapping[str, JsonValue]] = rollout.state["tool_calls"]
    if problems := [record["detail"] for record in records if record["name"] is None]:
        raise NotCalls(str(problems[0]))
    return [CodeCall(record["name"], record["arguments"]) for record in records]


def _unread_label(answer: str) -> str:
    """A message in brackets is meant as calls."""
    return "malformed_call" if answer.strip("`\n ").startswith(("[", "{")) else "no_call"


def _failure(
    calls: Sequence[CodeCall],
    expected: Sequence[Mapping[str, Any]],
    problems: Sequence[str],
    unread: str,
    answer: str,
) -> tuple[str, str]:
    """Reason and label, for calls that are not right."""
    if unread:
        return f"not read as calls: {unread}", _unread_label(answer)
    if not calls:
        return "no call", "no_call"
    names = sorted(next(iter(entry)) for entry in expected)
    if len(calls) != len(expected):
        label = "missing_call" if len(calls) < len(expected) else "extra_call"
        return f"{len(calls)} calls, expected {len(expected)}: {', '.join(names)}", label
    problem = next((problem for problem in problems if problem), "")
    called = sorted(call.name.replace(".", "_") for call in calls)
    is_named = called == [name.replace(".", "_") for name in names]
    return problem, "wrong_arguments" if is_named else "wrong_function"


def problems_of(
    calls: Sequence[CodeCall],
    expected: Sequence[Mapping[str, Any]],
    functions: Sequence[Mapping[str, Any]],
    language: CodeLanguage,
    *,
    is_native: bool = False,
) -> list[str]:
    """Of each expected call what is wrong with the call that answers it; empty: nothing.

    Each expected call, in order, takes the first free call that fits. is_native: dots in names are underscores.
    """
    taken: set[int] = set()
    problems = []
    for entry in expected:
        ((name, accepted),) = entry.items()
        declared = next((function for function in functions if function["name"] == name), None)
        reason = f"no call is left for {name}"
        for index, call in enumerate(calls):
            if index in taken:
                continue
            called = name.replace(".", "_") if is_native else name
            if declared is None or call.name != called:
                problem = f"called {call.name}, expected {called}"
            else:
                problem = _argument_problem(call.arguments, accepted, declared["parameters"], language)
            if not problem:
                taken.add(index)
                reason = ""
                break
            reason = problem
        problems.append(reason)
    return problems


def _argument_problem(
    arguments: Mapping[str, Any],
    accepted: Mapping[str, Sequence[Any]],
    parameters: Mapping[str, Any],
    language: CodeLanguage,
) -> str:
    """What is wrong with the arguments of a call; empty: nothing."""
    declared: Mapping[str, Mapping[str, Any]] = parameters["properties"]
    if missing := [name for name in parameters.get("required") or () if name not in arguments]:
        return f"the required argument {missing[0]!r} is missing"
    for name, value in arguments.items():
        if name not in declared or name not in accepted:
            return f"the argument {name!r} is not expected"
        if problem := _value_problem(value, accepted[name], declared[name], language):
            return f"the argument {name!r} {problem}"
    left_out = [name for name, values in accepted.items() if name not in arguments and OPTIONAL not in values]
    return f"the argument {left_out[0]!r} is missing and may not be" if left_out else ""


def _value_problem(value: Any, accepted: Sequence[Any], declared: Mapping[str, Any], language: CodeLanguage) -> str:
    """What is wrong with a value; empty: it is of the declared type and accepted."""
    kind = str(declared.get("type"))
    expected = _TYPES[language].get(kind, str)
    part_kind = str((declared.get("items") or {}).get("type")) if kind in _LISTS else None
    part_type = None if part_kind is None else _TYPES[language].get(part_kind, str)
    if language is not CodeLanguage.PYTHON:
        if not isinstance(value, str):
            return f"is {quoted(value)}, and values of {language.value} are written as texts"
        value = code_value(value, kind, part_kind, language)
    elif kind == "tuple" and isinstance(value, tuple):
        value = list(value)
    elif kind == "float" and type(value) is int:
        with suppress(OverflowError):  # such a number is no float
            value = float(value)
    if not _is_of_type(value, accepted, expected, part_type):
        return f"is {quoted(value)}, which is not of type {kind}"
    if _accepted_type(accepted) not in (None, expected):  # a variable: its text is compared as it is
        is_accepted = value in accepted
    elif expected is dict:
        is_accepted = any(candidate != OPTIONAL and _is_same_object(value, candidate) for candidate in accepted)
    elif expected is list and part_type is dict:
        is_accepted = any(_is_same_object_list(value, candidate) for candidate in accepted)
    elif expected is str:
        is_accepted = any(isinstance(candidate, str) and _plain(value) == _plain(candidate) for candidate in accepted)
    elif expected is list:
        is_accepted = any(_plain_parts(value) == _plain_parts(candidate) for candidate in accepted)
    else:
        is_accepted = value in accepted
    return "" if is_accepted else f"is {quoted(value)}, none of the accepted values"


def _accepted_type(accepted: Sequence[Any]) -> type | None:
    """The type of the first accepted value that is not the mark of an optional argument."""
    return next((type(candidate) for candidate in accepted if candidate != OPTIONAL), None)


def _is_of_type(value: Any, accepted: Sequence[Any], expected: Any, part_type: Any) -> bool:
    """Whether a value has the declared type, the parts of a list too, or that of the accepted values."""
    if type(value) is not expected:
        return type(value) is _accepted_type(accepted)
    if part_type is None:
        return True
    return any(
        not isinstance(candidate, list) or all(_is_of_type(part, candidate, part_type, None) for part in value)
        for candidate in accepted
    )


def _is_same_object(value: Any, candidate: Any) -> bool:
    """Whether an object has accepted values, which `candidate` lists for each key."""
    if not isinstance(value, dict) or not isinstance(candidate, dict):
        return False
    listed = {name: options if isinstance(options, list) else [options] for name, options in candidate.items()}
    return all(
        name in listed and _plain_part(part) in [_plain_part(option) for option in listed[name]]
        for name, part in value.items()
    ) and all(name in value or OPTIONAL in options for name, options in listed.items())


def _is_same_object_list(value: Any, candidate: Any) -> bool:
    """Whether each object of a list has accepted values; the mark of an optional argument stands for an empty list."""
    if candidate == OPTIONAL:
        return isinstance(value, list) and not value
    return (
        isinstance(value, list)
        and isinstance(candidate, list)
        and len(value) == len(candidate)
        and all(map(_is_same_object, value, candidate))
    )


def _plain_parts(values: Any) -> list[Any] | None:
    """A list with its texts as they are compared; that of the mark of an optional argument is empty."""
    if values == OPTIONAL:
        return []
    return [_plain_part(part) for part in values] if isinstance(values, list | tuple) else None


def _plain_part(part: Any) -> Any:
    return _plain(part) if isinstance(part, str) else part


def _plain(text: str) -> str:
    return _IGNORED.sub("", text).lower().replace("'", '"')
