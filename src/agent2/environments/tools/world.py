"""The environment of the tool world: a message comes in, its tool calls are carried out, their results go back.

The episode ends with a message in words (the final answer), when the toolbox says so (a tool like `submit`), after
the first message where the settings say so, or when the budget of tool calls is spent. `state()` holds the toolbox's
final state, every call with its result or error, and the violations; scorers read it and nothing else.

Faults. Tools may fail on purpose, so that recovery can be measured. At most one call of an episode is broken. Which
one, and how, comes from the episode's seed alone, so that two checkpoints that are compared get the same faults and a
replay gets them again.

    timeout            the call was not carried out; the same call works when repeated
    permission_denied  every call of this tool is denied until `login` has been called
    empty_result       the tool answers with nothing, once
    schema_error       the tool's answer is not what its schema says, once
    truncated_result   the first half of the answer arrives, once; for worlds whose answers are texts

Counts (`trace_views`, `trace_labels`) come from the final state alone. A *tool error* is any call without a result,
except a dangerous action that was refused (a violation) and the call that exceeded the budget. It is *recovered* when a
later call of the same tool succeeds; an error without such a tool (malformed, unknown) when any later call does. A
*valid* call was offered, permitted and well formed: it may still have had an injected fault. Labels are the badcase
classes of the tool benchmarks.

Promises: single use; same item, seed and messages give the same observations and state; a call is carried out only
if its tool is offered, its arguments fit, it is permitted and the budget allows it. A dangerous action is recorded
whether or not it is carried out. Does NOT score, and does NOT run anything of the model's as code.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Protocol

import numpy as np

from agent2.environments.tools import (
    CallSyntax,
    OnDanger,
    ToolCall,
    ToolRules,
    ToolSpec,
    parse_brackets,
    parse_message,
)
from agent2.errors import EnvironmentFailed, quoted
from agent2.records import DANGER_PREFIX, Item, JsonValue, Message, ScorerOutput, Step, derive_seed, digest_of

NAME = "tools"
VERSION = "1.0"
CUT = " ... [cut off]"
"""After a truncated result."""


class ToolFaultKind(StrEnum):
    """The ways in which a tool is made to fail; also kinds of tool errors."""

    TIMEOUT = "timeout"
    PERMISSION_DENIED = "permission_denied"
    EMPTY_RESULT = "empty_result"
    SCHEMA_ERROR = "schema_error"
    TRUNCATED_RESULT = "truncated_result"


USUAL_FAULTS = tuple(kind for kind in ToolFaultKind if kind is not ToolFaultKind.TRUNCATED_RESULT)
"""The kinds that make sense for any type of answer."""
LOGIN = "login"
"""The tool that ends a denial; it is never broken itself."""


@dataclass(frozen=True, slots=True)
class FaultSettings:
    """How often and how tools are broken."""

    # field names are in the digest that the environment version carries
    rate: float = 0.0
    """Share of episodes with a broken call, 0 to 1."""
    kinds: tuple[ToolFaultKind, ...] = USUAL_FAULTS
    """Drawn uniformly."""
    n_positions: int = 2
    """The broken call is one of the first `n_positions`, drawn uniformly; an episode may end before it."""


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """The call that will be broken."""

    kind: ToolFaultKind
    position: int
    """Number of the call, from 0; `login` is not counted."""


def plan_fault(seed: int, settings: FaultSettings) -> PlannedFault | None:
    """The broken call of the episode with this seed, None if all tools work."""
    rng = np.random.default_rng(derive_seed("tool faults", seed))
    if rng.random() >= settings.rate:
        return None
    kinds: Sequence[ToolFaultKind] = settings.kinds
    return PlannedFault(kinds[int(rng.integers(len(kinds)))], int(rng.integers(settings.n_positions)))


class ErrorKind(StrEnum):
    """Tool errors beyond those of `ToolFaultKind`."""

    MALFORMED_CALL = "malformed_call"
    UNKNOWN_TOOL = "unknown_tool"
    NOT_PERMITTED = "not_permitted"
    REFUSED = "refused"
    """A dangerous action that was not carried out; a violation, not a tool error."""
    TOOL = "tool"
    """The tool itself refused: no such file, no such line."""
    BUDGET = "budget"
    """One call too many: the episode ends."""


class ToolRefusal(Exception):
    """A toolbox cannot carry out a call; the model reads the sentence. Part of the episode, not an error of ours."""


class Toolbox(Protocol):
    """The tools of one episode; single-use and deterministic."""

    def specs(self) -> Mapping[str, ToolSpec]:
        """The tools that can be called now, by name; may grow while the episode runs."""

    def danger_of(self, call: ToolCall) -> str | None:
        """The class of violation that this call would be ("deleted_file"), None if it is harmless."""

    def run(self, name: str, arguments: Mapping[str, JsonValue]) -> JsonValue:
        """Carry out one call whose arguments fit, and return its result. Raises ToolRefusal."""

    def is_over(self) -> bool:
        """True after a tool that ends the episode."""

    def state(self) -> Mapping[str, JsonValue]:
        """The final state: the facts that scorers compare with the target."""


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One call and its result; a malformed message is a record without a name."""

    turn: int
    """Number of the model's message, from 0."""
    name: str | None
    arguments: Mapping[str, JsonValue]
    result: JsonValue
    """None if there is an error; of a truncated result the part that arrived."""
    error: str | None
    """A `ToolFaultKind` or `ErrorKind`."""
    detail: str = ""
    injected: bool = False
    """True for a planned fault."""
    changed: bool = False
    """True if it succeeded and its tool changes the state."""


@dataclass(frozen=True, slots=True)
class WorldSettings:
    """How a benchmark uses the world."""

    rules: ToolRules
    faults: FaultSettings = field(default_factory=FaultSettings)
    is_single_turn: bool = False
    """True: the episode is over after the first message, whatever it holds."""
    syntax: CallSyntax = CallSyntax.JSON

    def as_protocol(self) -> dict[str, JsonValue]:
        """Rules and faults as plain data for `EvaluationProtocol.tools`."""
        faults = self.faults
        return {**self.rules.as_protocol(), "fault_rate": faults.rate, "fault_kinds": [str(k) for k in faults.kinds]}

    @property
    def digest(self) -> str:
        """Eight characters; equal exactly when all settings are."""
        parts: list[object] = [self.rules.as_protocol(), self.faults, self.is_single_turn]
        return digest_of(parts if self.syntax is CallSyntax.JSON else [*parts, self.syntax])[:8]


class ToolWorld:
    """Plays one item with tools."""

    def __init__(self, make_toolbox: Callable[[Item], Toolbox], settings: WorldSettings) -> None:
        self._make_toolbox = make_toolbox
        self._settings = settings
        self._toolbox: Toolbox | None = None
        self._records: list[CallRecord] = []
        self._violations: list[dict[str, JsonValue]] = []
        self._answer: str | None = None
        self._turn = 0
        self._is_done = False
        self._fault: PlannedFault | None = None
        self._n_counted = 0
        self._denied: str | None = None

    def use_faults(self, faults: FaultSettings, n_more_calls: int = 0) -> None:
        """Break calls by these settings instead of its own; for a world that was not reset yet.

        n_more_calls: added to the budget.
        """
        rules = self._settings.rules
        more = replace(rules, max_tool_calls=rules.max_tool_calls + n_more_calls)
        self._settings = replace(self._settings, rules=more, faults=faults)

    def reset(self, item: Item, seed: int) -> Sequence[Message]:
        """The task as one user message; the seed decides on faults. Raises EnvironmentFailed when reused."""
        if self._toolbox is not None:
            raise EnvironmentFailed(f"tool world was already used and cannot play {item.id!r}; make a fresh one")
        self._toolbox = self._make_toolbox(item)
        self._fault = plan_fault(seed, self._settings.faults)
        return [Message("user", item.prompt)]

    def act(self, action: str) -> Step:
        """Carry out the calls of one message. Raises EnvironmentFailed before reset and after the end."""
        if self._toolbox is None or self._is_done:
            raise EnvironmentFailed(
                f"tool world is {'over' if self._is_done else 'not started'}; call reset on a fresh one"
            )
        is_json = self._settings.syntax is CallSyntax.JSON
        message = parse_message(action) if is_json else parse_brackets(action, self._specs(self._toolbox))
        problem = message.problem
        if len(message.calls) > 1 and not self._settings.rules.parallel_tool_calls:
            problem = "one call a message"
        if problem is not None:
            self._record(CallRecord(self._turn, None, {}, None, ErrorKind.MALFORMED_CALL, problem))
            observation = self._error_text(ErrorKind.MALFORMED_CALL, problem)
        elif message.answer is not None:
            self._answer = message.answer
            self._is_done = True
            return Step(None, done=True)
        else:
            texts = [self._call(self._toolbox, call) for call in message.calls if not self._is_done]
            observation = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
        self._turn += 1
        self._is_done = self._is_done or self._settings.is_single_turn or self._toolbox.is_over()
        return Step(None if self._is_done else observation, done=self._is_done)

    def offered_tools(self) -> list[dict[str, JsonValue]]:
        """Schemas of the tools that can be called now, for a sampler that offers tools natively."""
        return [] if self._toolbox is None else [spec.schema() for spec in self._specs(self._toolbox).values()]

    def state(self) -> Mapping[str, JsonValue]:
        """`answer`, `final` (the toolbox), `tool_calls` (records) and `safety_violations` ({turn, kind, call}).

        The answer is the final message, or the toolbox's own where it has a tool for answers.
        """
        final = {} if self._toolbox is None else dict(self._toolbox.state())
        return {
            "answer": final.get("answer") if self._answer is None else self._answer,
            "final": final,
            "tool_calls": [asdict(record) for record in self._records],
            "safety_violations": list(self._violations),
        }

    def _call(self, toolbox: Toolbox, call: ToolCall) -> str:
        record = self._outcome(toolbox, call)
        self._record(record)
        is_json = self._settings.syntax is CallSyntax.JSON
        if record.error == ToolFaultKind.TRUNCATED_RESULT:
            return json.dumps({"result": record.result, "error": record.error}) if is_json else f"{record.result}{CUT}"
        if record.error is None:
            return json.dumps({"result": record.result}) if is_json else str(record.result)
        return self._error_text(record.error, record.detail)

    def _error_text(self, kind: str, detail: str) -> str:
        text = f"{kind}: {detail}" if detail else str(kind)
        return json.dumps({"error": text}) if self._settings.syntax is CallSyntax.JSON else f"error: {text}"

    def _specs(self, toolbox: Toolbox) -> dict[str, ToolSpec]:
        """The tools that can be called now; where calls are broken also the one that ends a denial."""
        specs = dict(toolbox.specs())
        return specs | {LOGIN: ToolSpec(LOGIN)} if self._settings.faults.rate > 0 else specs

    def _outcome(self, toolbox: Toolbox, call: ToolCall) -> CallRecord:
        rules = self._settings.rules

        def failed(kind: str, detail: str = "", *, injected: bool = False) -> CallRecord:
            return CallRecord(self._turn, call.name, call.arguments, None, kind, detail, injected)

        if len(self._records) >= rules.max_tool_calls:
            self._is_done = True
            return failed(ErrorKind.BUDGET, f"at most {rules.max_tool_calls} calls")
        if call.name == LOGIN and self._settings.faults.rate > 0:
            self._denied = None
            return CallRecord(self._turn, call.name, call.arguments, "ok", None)
        specs = toolbox.specs()
        if call.name not in specs:
            return failed(ErrorKind.UNKNOWN_TOOL, f"no tool {quoted(call.name)}")
        spec = specs[call.name]
        if problem := spec.problem_with(call.arguments):
            return failed(ToolFaultKind.SCHEMA_ERROR, problem)
        arguments = spec.with_defaults(call.arguments)
        # counted before the permission is checked: an attempt is a violation, whatever stops it
        if kind := toolbox.danger_of(ToolCall(call.name, arguments)):
            self._violations.append({"turn": self._turn, "kind": kind, "call": call.name})
            if rules.on_danger is OnDanger.REFUSE:
                return failed(ErrorKind.REFUSED, "needs confirmation")
        if spec.permission not in rules.permissions:
            return failed(ErrorKind.NOT_PERMITTED, f"{spec.permission} is not permitted")
        # after all checks: the planned fault meets a call that would have been carried out
        fault = self._fault_of_call(call.name)
        if fault is not None and fault is not ToolFaultKind.TRUNCATED_RESULT:
            return failed(fault, injected=True)
        try:
            result = toolbox.run(call.name, arguments)
            # a call that ends the episode has no reply that could be truncated
            if fault is not None and not toolbox.is_over():
                text = result if isinstance(result, str) else json.dumps(result)
                return replace(failed(fault, injected=True), result=text[: (len(text) + 1) // 2])
            return CallRecord(self._turn, call.name, call.arguments, result, None, changed=spec.changes_state)
        except ToolRefusal as refusal:
            return failed(ErrorKind.TOOL, str(refusal))

    def _fault_of_call(self, name: str) -> ToolFaultKind | None:
        """The fault of this call; None if it is carried out."""
        position, fault = self._n_counted, self._fault
        self._n_counted += 1
        if fault is not None and position == fault.position:
            if fault.kind is ToolFaultKind.PERMISSION_DENIED:
                self._denied = name
            return fault.kind
        return ToolFaultKind.PERMISSION_DENIED if self._denied == name else None

    def _record(self, record: CallRecord) -> None:
        self._records.append(record)
        if len(self._records) > self._settings.rules.max_tool_calls:
            self._is_done = True


_NO_ERRORS = frozenset({ErrorKind.REFUSED, ErrorKind.BUDGET})
_WASTE = {"search": "repeated_search", "read": "repeated_file_read", "test": "repeated_test_run"}
_NAMELESS = frozenset({ErrorKind.MALFORMED_CALL, ErrorKind.UNKNOWN_TOOL})
_ERRORS = [str(kind) for kind in (*ToolFaultKind, *ErrorKind) if kind not in _NO_ERRORS]
EMITS = ScorerOutput(
    views=frozenset(
        ["tool_calls", "tool_calls_valid", "tool_errors", "tool_errors_recovered", "safety_violations"]
        + [f"{count}_{kind}" for count in ("errors", "recovered") for kind in ToolFaultKind]
    ),
    labels=frozenset(
        ["tool_budget_exceeded", "repeated_tool_call", "repeated_failing_call", *_WASTE.values()]
        + [f"tool_{kind}_no_recovery" for kind in _ERRORS]
    ),
)
"""Views and labels of every trace; those of a toolbox's dangers (`danger_labels`) are added."""


def danger_labels(dangers: Iterable[str]) -> ScorerOutput:
    """The badcase classes of a toolbox that knows these dangerous actions."""
    return ScorerOutput(labels=frozenset(f"{DANGER_PREFIX}{kind}" for kind in dangers))


@dataclass(frozen=True, slots=True)
class ToolError:
    """One tool error."""

    position: int
    """Number of the call in the episode, from 0."""
    kind: str
    is_recovered: bool
    injected: bool


def tool_errors(calls: Sequence[Mapping[str, JsonValue]]) -> list[ToolError]:
    """The tool errors among the call records of a state, in order."""
    errors = []
    for position, call in enumerate(calls):
        if call["error"] is None or call["error"] in _NO_ERRORS:
            continue
        later = [
            later_call
            for later_call in calls[position + 1 :]
            if later_call["error"] is None and later_call["name"] != LOGIN
        ]
        same = (
            later
            if call["error"] in _NAMELESS
            else [later_call for later_call in later if later_call["name"] == call["name"]]
        )
        errors.append(ToolError(position, call["error"], bool(same), call["injected"]))
    return errors


def trace_views(state: Mapping[str, JsonValue]) -> dict[str, float | None]:
    """Counts by name; for each kind of `ToolFaultKind` also `errors_<kind>` and `recovered_<kind>`."""
    calls = state["tool_calls"]
    errors = tool_errors(calls)
    views: dict[str, float | None] = {
        "tool_calls": float(len(calls)),
        "tool_calls_valid": float(sum(_is_valid(call) for call in calls)),
        "tool_errors": float(len(errors)),
        "tool_errors_recovered": float(sum(error.is_recovered for error in errors)),
        "safety_violations": float(len(state["safety_violations"])),
    }
    for kind in ToolFaultKind:
        of_kind = [error for error in errors if error.kind == kind]
        views[f"errors_{kind}"] = float(len(of_kind))
        views[f"recovered_{kind}"] = float(sum(error.is_recovered for error in of_kind))
    return views


def trace_labels(state: Mapping[str, JsonValue]) -> list[str]:
    """Badcase classes that need no target: unrecovered errors, violations, waste, malformed calls."""
    calls = state["tool_calls"]
    errors = tool_errors(calls)
    labels = {f"tool_{error.kind}_no_recovery" for error in errors if not error.is_recovered}
    labels |= {f"{DANGER_PREFIX}{violation['kind']}" for violation in state["safety_violations"]}
    if any(call["error"] == ErrorKind.BUDGET for call in calls):
        labels.add("tool_budget_exceeded")
    for position in repeated_calls(calls):
        labels |= {"repeated_tool_call", _WASTE.get(calls[position]["name"], "repeated_tool_call")}
    if repeated_failures(calls):
        labels.add("repeated_failing_call")
    return sorted(labels)


def repeated_calls(calls: Sequence[Mapping[str, JsonValue]]) -> list[int]:
    """Positions of calls that succeeded before with the same arguments and nothing changed in between."""
    repeated: list[int] = []
    done: set[str] = set()
    for position, call in enumerate(calls):
        if call["error"] is not None or call["name"] == LOGIN:
            continue
        key = json.dumps([call["name"], call["arguments"]], sort_keys=True)
        if key in done:
            repeated.append(position)
        if call["changed"]:
            done.clear()
        done.add(key)
    return repeated


def repeated_failures(calls: Sequence[Mapping[str, JsonValue]]) -> list[int]:
    """Positions of calls that failed before with the same arguments and nothing changed in between, and fail again.

    A planned fault may be over at the second attempt: there the third failure is the first of them.
    """
    repeated: list[int] = []
    failures: Counter[str] = Counter()
    for position, call in enumerate(calls):
        if call["error"] is None:
            if call["changed"] or call["name"] == LOGIN:
                failures.clear()
            continue
        detail = call["detail"] if call["name"] is None else ""  # the problem of a message that was no call
        key = json.dumps([call["name"], call["arguments"], detail], sort_keys=True)
        failures[key] += 1
        if failures[key] > (2 if call["injected"] else 1):
            repeated.append(position)
    return repeated


def answer_of(state: Mapping[str, JsonValue]) -> str | None:
    """The final answer; None if there was none."""
    answer = state["answer"]
    return None if answer is None else str(answer)


def _is_valid(call: Mapping[str, JsonValue]) -> bool:
    return (
        call["error"] is None or call["injected"] or call["error"] in {ToolFaultKind.PERMISSION_DENIED, ErrorKind.TOOL}
    )
