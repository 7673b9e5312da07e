"""How a change is told and read back: `44.8% -> 44.1% (-0.7)`, `612 -> 941 (+53.8%)`.

Rates are 0 to 1 in code and percent in text, their change in percentage points; everything else changes in
percent of the old value. Promises: what `tell_change` writes, `read_change` reads, up to the digits shown; a
stated change that contradicts its two values is refused. A rate without "%" is read as 0 to 1.
"""

import math
import re
from dataclasses import dataclass

from agent2.contract.metrics import Unit
from agent2.errors import ConfigError, shown

MISSING = "missing"
_NUMBER = r"[+-]?(?:\d+(?:_\d{3})*(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
_SIDE = re.compile(rf"^\$?({_NUMBER})\s*(%?)$")
_ARROW = re.compile(r"\s*(?:->|→)\s*")
_STATED = re.compile(r"^(.*?)\s*\(([^()]*)\)$")
_NOT_A_NUMBER = {"", MISSING, "nan", ".nan", "none", "null", "n/a", "-"}


@dataclass(frozen=True, slots=True)
class ReadChange:
    """Both sides as read; None where a side is missing."""

    old: float | None
    new: float | None
    is_missing_said: bool = False
    """A side is written as missing or NaN, rather than left out."""


def tell_value(value: float | None, unit: Unit) -> str:
    """One value as reports show it: `44.8%`, `612`, `18.6`."""
    if value is None or not math.isfinite(value):
        return MISSING
    if unit is Unit.RATE:
        return f"{_tidy(100.0 * value):.1f}%"
    return str(int(value)) if float(value).is_integer() else f"{value:.{_decimals(value)}f}"


def tell_change(old: float | None, new: float | None, unit: Unit) -> str:
    """`old -> new (change)`; the change is that of the exact values, then rounded. A missing side is said."""
    both = f"{tell_value(old, unit)} -> {tell_value(new, unit)}"
    if old is None or new is None or not (math.isfinite(old) and math.isfinite(new)):
        return both
    if unit is Unit.RATE:
        return f"{both} ({_tidy(100.0 * (new - old)):+.1f})"
    if old == 0.0:
        return f"{both} (no relative change from 0)"
    return f"{both} ({_tidy(100.0 * (new - old) / abs(old)):+.1f}%)"


def tell_amount(amount: float, unit: Unit) -> str:
    """A difference by itself: `0.7 points` for rates, `20%` (of the old value) for everything else."""
    number = f"{100.0 * amount:.3g}"
    return f"{number} point{'' if number == '1' else 's'}" if unit is Unit.RATE else f"{number}%"


def read_change(value: object, unit: Unit, where: str) -> ReadChange:
    """A change as people and programs write it.

    Understood: `old -> new`, with or without `(change)`; `new (change)`, from which old follows; a single number
    (new only); `missing`, `nan` or null for a side. Raises ConfigError, naming `where`, for anything else, for a
    rate beyond 0 to 100% and for a stated change that its values contradict.
    """
    if value is None or isinstance(value, bool):
        if isinstance(value, bool):
            raise ConfigError(f"{where}: {value} is not a number; write it as 'old -> new'")
        return ReadChange(None, None, is_missing_said=True)
    if isinstance(value, int | float):
        return _single(float(value), unit, where)
    if not isinstance(value, str):
        raise ConfigError(f"{where}: {shown(value)} is not a change; write it as 'old -> new (change)'")
    text, stated = value.strip(), None
    if (match := _STATED.match(text)) is not None:
        text, stated = match.group(1), match.group(2).strip()
    sides = _ARROW.split(text)
    if len(sides) > 2:
        raise ConfigError(f"{where}: {shown(value)} has more than one arrow; write it as 'old -> new (change)'")
    if len(sides) == 1:
        return _new_and_stated(sides[0], stated, unit, f"{where}: {shown(value)}")
    old, new = (_side(side, unit, f"{where}: {shown(value)}") for side in sides)
    if old is not None and new is not None and stated is not None:
        _check_stated(old, new, stated, sides, unit, f"{where}: {shown(value)}")
    return ReadChange(old, new, is_missing_said=old is None or new is None)


def _single(value: float, unit: Unit, where: str) -> ReadChange:
    if math.isnan(value):
        return ReadChange(None, None, is_missing_said=True)
    return ReadChange(None, _checked(value, unit, f"{where}: {value}"))


def _new_and_stated(side: str, stated: str | None, unit: Unit, where: str) -> ReadChange:
    new = _side(side, unit, where)
    if new is None or stated is None:
        return ReadChange(None, new, is_missing_said=new is None)
    change = _stated_change(stated, unit)
    if change is None or (unit is not Unit.RATE and change <= -1.0):
        raise ConfigError(f"{where}: the change {stated!r} is not one; write points for rates, percent for the rest")
    old = new - change if unit is Unit.RATE else new / (1.0 + change)
    return ReadChange(_checked(round(old, 12), unit, f"{where}: the old value"), new)


def _side(text: str, unit: Unit, where: str) -> float | None:
    if text.strip().lower() in _NOT_A_NUMBER:
        return None
    match = _SIDE.match(text.strip())
    if match is None:
        raise ConfigError(f"{where}: {text.strip()!r} is not a number; write it as 'old -> new (change)'")
    value, is_percent = float(match.group(1).replace("_", "")), match.group(2) == "%"
    if is_percent and unit is not Unit.RATE:
        raise ConfigError(f"{where}: {text.strip()!r} is a percentage, but the metric is a {unit.value}; remove the %")
    return _checked(round(value / 100.0, 12) if is_percent else value, unit, where)


def _checked(value: float, unit: Unit, where: str) -> float:
    if not math.isfinite(value):
        raise ConfigError(f"{where} is not finite; write 'missing' for a number that is not known")
    if unit is Unit.RATE and not 0.0 <= value <= 1.0:
        raise ConfigError(f"{where}: a rate is between 0 and 100%; write {value:g}% with its percent sign, or 0 to 1")
    return value


def _stated_change(stated: str, unit: Unit) -> float | None:
    """The change in points / 100 or as a share of the old value; None if it is not one."""
    match = _SIDE.match(stated)
    if match is None:
        return None
    if unit is Unit.RATE:
        return None if match.group(2) else float(match.group(1)) / 100.0
    change = float(match.group(1)) / 100.0
    return change if match.group(2) else None


def _check_stated(old: float, new: float, stated: str, sides: list[str], unit: Unit, where: str) -> None:
    change = _stated_change(stated, unit)
    if change is None:
        if stated.startswith("no "):
            return  # "no relative change from 0", "no change known"
        raise ConfigError(f"{where}: the change {stated!r} is not one; write points for rates, percent for the rest")
    slack = [_rounding(side) for side in sides]
    if unit is Unit.RATE:
        real, tolerance = new - old, (sum(slack) + _rounding(stated)) / 100.0
        if not any("%" in side for side in sides):
            tolerance = sum(slack) + _rounding(stated) / 100.0
    elif old == 0.0:
        return
    else:
        real = (new - old) / abs(old)
        tolerance = (slack[1] + slack[0] * abs(new / old)) / abs(old) + _rounding(stated) / 100.0
    if abs(real - change) > tolerance + 1e-9:
        told = tell_change(old, new, unit)
        raise ConfigError(f"{where}: the values give {told}; fix the change or the values")


def _rounding(text: str) -> float:
    """Half a unit of the last digit shown."""
    digits = re.sub(r"[^\d.eE].*$", "", text.strip().lstrip("+-$"))
    decimals = len(digits.partition(".")[2]) if "." in digits else 0
    return 0.5 * 10.0**-decimals


def _decimals(value: float) -> int:
    """One decimal, more for small numbers, so that at least three digits are shown."""
    size = abs(value)
    return 1 if size >= 10.0 else 2 if size >= 1.0 else min(12, 2 - math.floor(math.log10(size)))


def _tidy(value: float) -> float:
    return 0.0 if round(value, 1) == 0.0 else value
