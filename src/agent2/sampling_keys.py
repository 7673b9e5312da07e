"""The keys `temperature` and `top_p` of suites, benchmarks and judges: a number, or `unset`.

What is unset is not sent to a server, which then decides; a model in this process draws at 1, the providers' default.
"""

import math
from typing import Annotated, Literal

from pydantic import BeforeValidator

UNSET = "unset"


def _read_temperature(value: object) -> object:
    if value is not None and value != UNSET and not 0.0 <= _number(value) <= 100.0:
        raise ValueError(f"give a temperature of 0 to 100, or {UNSET} to send none")
    return value


def _read_top_p(value: object) -> object:
    if value is not None and value != UNSET and not 0.0 < _number(value) <= 1.0:
        raise ValueError(f"give a top_p above 0 and up to 1, or {UNSET} to send none")
    return value


def _number(value: object) -> float:
    """NaN for what is none. YAML reads `1e-1` as a text."""
    try:
        return float(value) if isinstance(value, int | float | str) else math.nan
    except ValueError:
        return math.nan


Temperature = Annotated[float | Literal["unset"], BeforeValidator(_read_temperature)]
"""0 is greedy."""
TopP = Annotated[float | Literal["unset"], BeforeValidator(_read_top_p)]


def if_set(value: float | str) -> float | None:
    """The value of a key as samplers take it; None: unset."""
    return None if isinstance(value, str) else value
