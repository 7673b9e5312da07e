"""The environment: a message comes in, its tool calls are carried out, their results go back.

The episode ends with a message in words (the final answer), when the toolbox says so (a tool like `submit`), after
the first message where the settings say so, or when the budget of tool calls is spent. `state()` holds what the
toolbox ends up as, every call with its result or error, and the violations; scorers read it and nothing else.

Promises: single use; same item, seed and messages give the same observations and state; a call is carried out only
if its tool is offered, its arguments fit, it is permitted and the budget allows it. A dangerous action is recorded
whether or not it is carried out. Does NOT judge, and does NOT run anything of the model's as code.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Protocol

from agent2.environments.tools.calls import ToolCall, read_message
from agent2.environments.tools.faults import LOGIN, FaultKind, FaultSettings, PlannedFault, plan_fault
from agent2.environments.tools.spec import OnDanger, ToolRules, ToolSpec
from agent2.errors import EnvironmentFailed, shown
from agent2.records import Item, JsonValue, Message, Step, digest_of

NAME = "tools"
VERSION = "1.0"


class ErrorKind(StrEnum):
    """Tool errors beyond those of `FaultKind`."""

    MALFORMED_CALL = "malformed_call"
    UNKNOWN_TOOL = "unknown_tool"
    NOT_PERMITTED = "not_permitted"
    REFUSED = "refused"
    """A dangerous action that was not carried out; a violation, no tool error."""
    TOOL = "tool"
    """The tool itself said no: no such file, no such line."""
    BUDGET = "budget"
    """One call too many: the episode ends."""


class ToolRefusal(Exception):
    """A toolbox cannot do what was asked; the sentence goes to the model. Part of the episode, no error of ours."""


class Toolbox(Protocol):
    """What the tools of one episode do; single-use and deterministic."""

    def specs(self) -> Mapping[str, ToolSpec]:
        """The tools that can be called now, by name; may grow while the episode runs."""

    def danger_of(self, call: ToolCall) -> str | None:
        """The class of violation that this call would be ("deleted_file"), None if it is harmless."""

    def run(self, name: str, arguments: Mapping[str, JsonValue]) -> JsonValue:
        """Carry out one call whose arguments fit, and return its result. Raises ToolRefusal."""

    def is_over(self) -> bool:
        """True after a tool that ends the episode."""

    def state(self) -> Mapping[str, JsonValue]:
        """What the toolbox has become: the facts that scorers compare with the target."""


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One call and what came of it; a malformed message is a record without a name."""

    turn: int
    """Number of the model's message, from 0."""
    name: str | None
    arguments: Mapping[str, JsonValue]
    result: JsonValue
    """None if there is an error."""
    error: str | None
    """A `FaultKind` or `ErrorKind`."""
    detail: str = ""
    injected: bool = False
    """True if the error was made on purpose."""
    changed: bool = False
    """True if it succeeded and its tool changes the state."""


@dataclass(frozen=True, slots=True)
class WorldSettings:
    """How a benchmark uses the world."""

    rules: ToolRules
    faults: FaultSettings = field(default_factory=FaultSettings)
    is_single_turn: bool = False
    """True: the episode is over after the first message, whatever it holds."""

    def as_protocol(self) -> dict[str, JsonValue]:
        """Rules and faults as plain data for `EvaluationProtocol.tools`."""
        faults = self.faults
        return {**self.rules.as_protocol(), "fault_rate": faults.rate, "fault_kinds": [str(k) for k in faults.kinds]}

    @property
    def digest(self) -> str:
        """Eight characters; equal exactly when all settings are."""
        return digest_of([self.rules.as_protocol(), self.faults, self.is_single_turn])[:8]


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
                f"tool world is {'over' if self._is_done else 'not begun'}; call reset on a fresh one"
            )
        message = read_message(action)
        problem = message.problem
        if len(message.calls) > 1 and not self._settings.rules.parallel_tool_calls:
            problem = "one call a message"
        if problem is not None:
            self._keep(CallRecord(self._turn, None, {}, None, ErrorKind.MALFORMED_CALL, problem))
            observation = _error_text(ErrorKind.MALFORMED_CALL, problem)
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
        specs = [] if self._toolbox is None else list(self._toolbox.specs().values())
        if self._settings.faults.rate > 0:
            specs.append(ToolSpec(LOGIN))
        return [spec.schema() for spec in specs]

    def state(self) -> Mapping[str, JsonValue]:
        """`answer`, `final` (the toolbox), `tool_calls` (records) and `safety_violations` ({turn, kind, call})."""
        return {
            "answer": self._answer,
            "final": {} if self._toolbox is None else dict(self._toolbox.state()),
            "tool_calls": [asdict(record) for record in self._records],
            "safety_violations": list(self._violations),
        }

    def _call(self, toolbox: Toolbox, call: ToolCall) -> str:
        record = self._outcome(toolbox, call)
        self._keep(record)
        if record.error is None:
            return json.dumps({"result": record.result})
        return _error_text(record.error, record.detail)

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
            return failed(ErrorKind.UNKNOWN_TOOL, f"no tool {shown(call.name)}")
        spec = specs[call.name]
        if problem := spec.problem_with(call.arguments):
            return failed(FaultKind.SCHEMA_ERROR, problem)
        arguments = spec.filled(call.arguments)
        if kind := toolbox.danger_of(ToolCall(call.name, arguments)):
            self._violations.append({"turn": self._turn, "kind": kind, "call": call.name})
            if rules.on_danger is OnDanger.REFUSE:
                return failed(ErrorKind.REFUSED, "needs confirmation")
        if spec.permission not in rules.permissions:
            return failed(ErrorKind.NOT_PERMITTED, f"{spec.permission} is not permitted")
        if fault := self._injected(call.name):
            return failed(fault, injected=True)
        try:
            result = toolbox.run(call.name, arguments)
            return CallRecord(self._turn, call.name, call.arguments, result, None, changed=spec.changes_state)
        except ToolRefusal as refusal:
            return failed(ErrorKind.TOOL, str(refusal))

    def _injected(self, name: str) -> FaultKind | None:
        """The fault that this call meets, None if it goes through."""
        position, fault = self._n_counted, self._fault
        self._n_counted += 1
        if fault is not None and position == fault.position:
            if fault.kind is FaultKind.PERMISSION_DENIED:
                self._denied = name
            return fault.kind
        return FaultKind.PERMISSION_DENIED if self._denied == name else None

    def _keep(self, record: CallRecord) -> None:
        self._records.append(record)
        if len(self._records) > self._settings.rules.max_tool_calls:
            self._is_done = True


def _error_text(kind: str, detail: str) -> str:
    return json.dumps({"error": f"{kind}: {detail}" if detail else str(kind)})
