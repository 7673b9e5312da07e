"""Reads the measurements in what a trainer printed, for runs of which nothing but the console's output is left.

Two shapes are read, whatever stands between them:

    {'loss': 0.12, 'reward': 0.5, 'epoch': 0.1}       transformers and TRL: a dict a line, numbers as text included
    (worker pid=7) step:12 - actor/entropy:0.9 - ...   verl: `name:value` joined by ` - `, colours and prefix dropped

A printed dict states no step unless it has the key: its lines are counted, and where `epoch` goes back another launch
begins, of which the last one counts. Does NOT read tables, progress bars or sentences.
"""

import ast
import re
from collections.abc import Iterator, Mapping

from agent2.monitor.signals import is_summary
from agent2.records import JsonValue

_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_DICT = re.compile(r"\{(?:'[^'\n]*'|\"[^\"\n]*\"): .*\}")
_STEP = re.compile(r"(?:^|\s)step:(?P<step>\d+)(?: - (?P<rest>.*))?$")
_NUMPY = re.compile(r"\b(?:np|numpy)\.\w+\(([^()]*)\)")
_NOT_A_LITERAL = re.compile(r"(?<=: )(-?)(nan|inf)\b")
_MAX_LINE = 100_000
"""Characters; a longer line is no line of measurements."""

ConsoleRow = tuple[int, Mapping[str, JsonValue]]
"""Number of the line, and its measurements with a `step`."""


def console_rows(text: str, step_keys: tuple[str, ...], notes: list[str]) -> Iterator[ConsoleRow]:
    """The rows in an output, in its order. step_keys: names of the step in a dict. notes: gets what was assumed."""
    launches: list[list[ConsoleRow]] = [[]]
    last_epoch, n_counted = float("-inf"), 0
    for number, line in enumerate(re.split(r"[\r\n]+", text), start=1):
        row = _measurements(line)
        if row is None or is_summary(row):
            continue
        if any(key in row for key in step_keys):
            launches[-1].append((number, row))
            continue
        epoch = row.get("epoch")
        if isinstance(epoch, float | int):
            if epoch < last_epoch:
                launches.append([])
                n_counted = 0
            last_epoch = epoch
        n_counted += 1
        launches[-1].append((number, {**row, "step": n_counted}))
    if n_counted:
        notes.append("the output states no step: its lines of measurements are counted")
    if len(launches) > 1:
        notes.append(f"holds {len(launches)} launches, as `epoch` goes back: only the last one is read")
    yield from launches[-1]


def _measurements(line: str) -> dict[str, JsonValue] | None:
    """What one line measures, numbers only; None if it is no line of measurements."""
    if len(line) > _MAX_LINE:
        return None
    plain = _NUMPY.sub(r"\1", _COLOUR.sub("", line)).rstrip()
    if (printed := _DICT.search(plain)) is not None:
        return _printed_dict(printed[0])
    if (step := _STEP.search(plain)) is not None:
        pairs = (pair.rpartition(":") for pair in (step["rest"] or "").split(" - "))
        measured = {name.strip(): number for name, _, value in pairs if (number := _number(value)) is not None}
        return {"step": int(step["step"]), **measured} if measured else None
    return None


def _printed_dict(text: str) -> dict[str, JsonValue] | None:
    try:
        row = ast.literal_eval(_NOT_A_LITERAL.sub(r"'\1\2'", text))
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    if not isinstance(row, dict):
        return None
    measured = {name: number for name, value in row.items() if (number := _number(value)) is not None}
    return measured if all(isinstance(name, str) for name in measured) and measured else None


def _number(value: object) -> int | float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return value
    try:
        return float(value) if isinstance(value, str) else None
    except ValueError:
        return None
