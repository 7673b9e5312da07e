"""What a tool takes, what it needs leave for, and the rules of an episode.

`ToolRules` is the part of the evaluation contract that is about tools: permissions (C24) and budget (C26). It
goes into the protocol as data, because a score under other permissions is another score.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from agent2.errors import shown
from agent2.records import JsonValue

MAX_INTEGER = 10**9
"""Integer arguments beyond this, either way, are refused."""
MAX_TEXT = 200
"""Longest string argument."""


class Permission(StrEnum):
    """What a tool may need leave for; named as in a suite's `protocol.tools.permissions`."""

    READING = "reading"
    RECORD_CHANGES = "record_changes"
    """Carts, bookings and the like inside the world."""
    FILE_WRITING = "file_writing"
    TEST_EXECUTION = "test_execution"
    INTERNET_ACCESS = "internet_access"
    PAID_API_CALLS = "paid_api_calls"


class OnDanger(StrEnum):
    """What happens to a dangerous action; either way it is counted."""

    REFUSE = "refuse"
    """It is not carried out: it would need a human's confirmation, and there is none."""
    ALLOW = "allow"
    """It is carried out."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a tool."""

    name: str
    kind: str
    """"integer" or "string"."""
    default: JsonValue = None
    """Used when the argument is left out; None: the argument is required."""


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """One tool."""

    name: str
    parameters: tuple[Parameter, ...] = ()
    permission: Permission = Permission.READING
    changes_state: bool = False
    """True: calling it again, or reading after it, is no repetition."""

    @property
    def signature(self) -> str:
        """`distance(start,end)`: how a prompt shows the tool."""
        return f"{self.name}({','.join(parameter.name for parameter in self.parameters)})"

    def schema(self) -> dict[str, JsonValue]:
        """The tool as chat-completion servers take it: a function with a JSON schema of its arguments."""
        properties: dict[str, JsonValue] = {one.name: {"type": one.kind} for one in self.parameters}
        required = [one.name for one in self.parameters if one.default is None]
        parameters = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
        return {"type": "function", "function": {"name": self.name, "parameters": parameters}}

    def problem_with(self, arguments: Mapping[str, JsonValue]) -> str | None:
        """Why these arguments cannot be taken, in a few words; None if they can."""
        known = {parameter.name: parameter for parameter in self.parameters}
        for name, value in arguments.items():
            if name not in known:
                return f"no parameter {shown(name)}"
            if problem := _type_problem(value, known[name].kind):
                return f"{name} {problem}"
        missing = [name for name, parameter in known.items() if name not in arguments and parameter.default is None]
        return f"{missing[0]} is missing" if missing else None

    def filled(self, arguments: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """The arguments in the order of the parameters, defaults filled in; they must have no problem."""
        return {parameter.name: arguments.get(parameter.name, parameter.default) for parameter in self.parameters}


@dataclass(frozen=True, slots=True)
class ToolRules:
    """What an episode allows."""

    permissions: frozenset[Permission] = frozenset({Permission.READING})
    max_tool_calls: int = 8
    parallel_tool_calls: bool = True
    """False: a message with several calls is malformed."""
    on_danger: OnDanger = OnDanger.REFUSE

    def as_protocol(self) -> dict[str, JsonValue]:
        """The rules as plain data for `EvaluationProtocol.tools`."""
        return {
            "permissions": sorted(self.permissions),
            "max_tool_calls": self.max_tool_calls,
            "parallel_tool_calls": self.parallel_tool_calls,
            "on_danger": self.on_danger.value,
        }


def _type_problem(value: JsonValue, kind: str) -> str | None:
    if kind == "integer":
        if type(value) is not int:
            return "must be an integer"
        return None if abs(value) <= MAX_INTEGER else "is too large"
    if not isinstance(value, str):
        return "must be a string"
    return None if len(value) <= MAX_TEXT else "is too long"
