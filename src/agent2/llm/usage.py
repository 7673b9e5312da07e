"""Token counts as providers report them, put together so that the four protocols mean the same by the same word.

Input has the cached tokens in it (Anthropic counts them beside it), output has the reasoning in it (Gemini counts it
beside it). Usage that is not a whole number of tokens is as good as none.
"""

from collections.abc import Mapping
from typing import TypeGuard

from agent2.llm.records import TokenCounts
from agent2.records import JsonValue

MAX_COUNT = 10**12
"""A larger number is not taken for a count."""


class BadCountError(ValueError):
    """What a provider reports as a number of tokens is not one."""


def count(usage: Mapping[str, JsonValue], name: str, default: int | None = None) -> int:
    """A number of tokens that a bill rests on. default: if it is missing. Raises BadCountError."""
    value = usage.get(name)
    if value is None and default is not None:
        return default
    if _is_count(value):
        return int(value)
    raise BadCountError(name)


def optional_count(usage: JsonValue, *path: str) -> int:
    """A part of a count, which only makes it cheaper; 0 if it is missing or not a number of tokens."""
    for name in path:
        usage = usage.get(name) if isinstance(usage, dict) else None
    return int(usage) if _is_count(usage) else 0


def openai_counts(usage: Mapping[str, JsonValue], input_name: str, output_name: str) -> TokenCounts:
    """The counts of OpenAI's two protocols, which differ in the names only. Raises BadCountError."""
    total = count(usage, input_name)
    return TokenCounts(
        input=total,
        output=count(usage, output_name, default=0),
        cached_input=min(total, optional_count(usage, f"{input_name}_details", "cached_tokens")),
        reasoning=optional_count(usage, f"{output_name}_details", "reasoning_tokens"),
        cache_write=min(total, optional_count(usage, f"{input_name}_details", "cache_write_tokens")),
    )


def _is_count(value: JsonValue) -> TypeGuard[int | float]:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 <= value <= MAX_COUNT and int(value) == value
