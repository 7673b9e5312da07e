"""Verdicts on rollouts, each with a reason.

`SCORERS` is the one table of what ships: name -> "module:Class". `declared` says what a scorer of that name may
emit, so that a suite, a gate or a card is checked without a benchmark.
"""

import importlib
from collections.abc import Mapping
from types import MappingProxyType

from agent2.records import Emits, emits_of

SCORERS: Mapping[str, str] = MappingProxyType(
    {
        "api_calls": "agent2.scorers.tool_calls:ApiCallScorer",
        "choice": "agent2.scorers.choice:ChoiceScorer",
        "constraints": "agent2.scorers.constraints.scorer:ConstraintScorer",
        "exact": "agent2.scorers.exact:ExactScorer",
        "final_answer": "agent2.scorers.final_answer:FinalAnswerScorer",
        "function_calls": "agent2.scorers.tool_calls:FunctionCallScorer",
        "household_won": "agent2.scorers.household:HouseholdScorer",
        "rational": "agent2.scorers.rational:RationalScorer",
        "resolved": "agent2.scorers.resolved:ResolvedScorer",
        "task_set": "agent2.scorers.task_set:TaskSetScorer",
    }
)


def declared(name: str) -> Emits | None:
    """What the scorer of that name (a version behind `-v` is left aside) may emit; None: it is not known here."""
    place = SCORERS.get(name.rpartition("-v")[0] or name)
    if place is None:
        return None
    module, _, attribute = place.partition(":")
    return emits_of(getattr(importlib.import_module(module), attribute))
