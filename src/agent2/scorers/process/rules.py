"""Step rules of a rollout, as data: a suite or a file changes them by name, adds its own, or skips one.

    identical_calls      at most `limit` - 1 identical actions in a row, failing ones included
    call_before_answer   a call of `tools` before the final answer, where such a tool is offered or was called
    call_before          a call of `tools` before the first call of `before`
    call_after           a call of `tools` after the last call of `after`
    results_used         something of each result of `tools` comes back in a call or message within `within_turns` turns
    at_most              a statistic of at most `limit`
    code                 `check: FILE.py:function`, which gets the rollout and returns True, False, or None

Tools are regular expressions that are searched for in a tool's name. `process.checks` applies the rules.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, field_validator

from agent2.config import StrictModel, load_yaml
from agent2.errors import nearest_name
from agent2.plugins import relative_to
from agent2.scorers.process.patterns import require_pattern

PACKAGED = Path(__file__).with_name("rules.yaml")
NOT_RUN = "(not run)/"
"""Before the code of a rule that a stored evaluation names, and not this user."""
STATISTICS: Mapping[str, str] = MappingProxyType(
    {
        "turns": "messages of the model",
        "calls": "tool calls",
        "failing_calls": "calls that failed",
        "failing_call_ratio": "share of calls that failed",
        "empty_results": "calls that did not fail and returned nothing",
        "queries": "calls of searching tools",
        "repeated_query_ratio": "share of queries with the words of an earlier one",
        "repeated_actions": "actions that came before, with nothing changed since",
        "repeated_action_ratio": "share of such actions",
        "longest_run": "most identical actions in a row",
        "unseen_citation_ratio": "share of cited URLs that neither the task nor a result names",
        "unsound_citation_ratio": "share of cited URLs that were not opened, or are about something else",
        "waste": "share of actions that are repeated or could never have succeeded",
    }
)
"""Statistic -> its meaning."""


class _Rule(StrictModel):
    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    why: str = ""
    benchmarks: list[str] | None = None
    """Null: all."""
    skip: bool = False
    """True: the rule of that name does not hold."""


class IdenticalCalls(_Rule):
    """No `limit` identical actions in a row."""

    kind: Literal["identical_calls"]
    limit: int = Field(ge=2)


class CallBeforeAnswer(_Rule):
    """A call of some tools before the final answer."""

    kind: Literal["call_before_answer"]
    tools: str

    @field_validator("tools")
    @classmethod
    def _is_pattern(cls, value: str) -> str:
        return require_pattern(value)


class CallBefore(_Rule):
    """A call of `tools` before the first of `before`."""

    kind: Literal["call_before"]
    tools: str
    before: str

    @field_validator("tools", "before")
    @classmethod
    def _is_pattern(cls, value: str) -> str:
        return require_pattern(value)


class CallAfter(_Rule):
    """A call of `tools` after the last of `after`."""

    kind: Literal["call_after"]
    tools: str
    after: str

    @field_validator("tools", "after")
    @classmethod
    def _is_pattern(cls, value: str) -> str:
        return require_pattern(value)


class ResultsUsed(_Rule):
    """Something of each result comes back within some turns."""

    kind: Literal["results_used"]
    tools: str
    within_turns: int = Field(ge=1)

    @field_validator("tools")
    @classmethod
    def _is_pattern(cls, value: str) -> str:
        return require_pattern(value)


class AtMost(_Rule):
    """A statistic with a limit."""

    kind: Literal["at_most"]
    statistic: str
    limit: float = Field(ge=0)

    @field_validator("statistic")
    @classmethod
    def _exists(cls, value: str) -> str:
        if value not in STATISTICS:
            near = nearest_name(value, STATISTICS)
            raise ValueError(
                f"unknown statistic {value!r}; {f'did you mean {near!r}?' if near else ', '.join(STATISTICS)}"
            )
        return value


class CodeRule(_Rule):
    """A function of the user's."""

    kind: Literal["code"]
    check: str


StepRule: TypeAlias = Annotated[
    IdenticalCalls | CallBeforeAnswer | CallBefore | CallAfter | ResultsUsed | AtMost | CodeRule,
    Field(discriminator="kind"),
]


class RuleFile(StrictModel):
    """A file of rules."""

    rules: list[StepRule]


@cache
def packaged_rules() -> tuple[StepRule, ...]:
    """The rules that hold everywhere."""
    return read_rules(PACKAGED)


def read_rules(file: Path) -> tuple[StepRule, ...]:
    """The rules in a file; code is found relative to it. Raises ConfigError for anything else."""
    return tuple(located(rule, file.parent) for rule in load_yaml(file, RuleFile).rules)


def located(rule: StepRule, folder: Path) -> StepRule:
    """The rule with the file of its code resolved against a folder."""
    return rule.model_copy(update={"check": relative_to(rule.check, folder)}) if isinstance(rule, CodeRule) else rule


def with_changes(changes: Iterable[StepRule], rules: Iterable[StepRule] | None = None) -> tuple[StepRule, ...]:
    """The packaged rules (or others) with those of the same name replaced, new ones added, and `skip` ones left out."""
    by_name = {rule.name: rule for rule in (packaged_rules() if rules is None else rules)}
    by_name |= {rule.name: rule for rule in changes}
    return tuple(rule for rule in by_name.values() if not rule.skip)
