"""Estimates and paired differences as files hold them: the record itself, or a form that an earlier version wrote.

Nothing here writes: the records are plain data, so a file gets them as they are. Earlier versions wrote the fields of
an estimate among others and under other names (`delta`, `n_items`), and most of them left out how the interval was
made: then the method says so, and none is invented.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from agent2.stats.estimates import Estimate, PairedDifference

UNRECORDED = "not recorded"
"""Method of a number that an earlier version stored without one."""
_EARLIER_NAMES = {"delta": "value", "n_items": "n"}


def read_estimate(stored: Mapping[str, Any] | None) -> Estimate | None:
    """The estimate among the stored fields; None for nothing stored.

    Raises msgspec.ValidationError, which is a ValueError, where a field is missing or cannot be what it is said to be.
    """
    if not stored:
        return None
    fields = {_EARLIER_NAMES.get(name, name): value for name, value in stored.items()}
    if fields.get("method") is None:
        fields["method"] = UNRECORDED
    return msgspec.convert(fields, Estimate)


def read_difference(stored: Mapping[str, Any] | None) -> PairedDifference | None:
    """The paired difference; None for nothing stored. Raises as `read_estimate` does."""
    if not stored:
        return None
    change = read_estimate(stored.get("change", stored))
    return msgspec.convert({**stored, "change": change}, PairedDifference)
