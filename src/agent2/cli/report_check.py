"""Check that the report of an evaluation matches its cards, number by number.

Not compared: `notes`, which also tell what the report was made from. What cards cannot hold (history, training
signals, a spot check) is taken from the report itself, so a change there shows only in the decision that follows.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent2.contract.report_file import read_report, report_dict
from agent2.errors import ConfigError
from agent2.evaluation.outcome import SuiteOutcome, evaluation_section, read_outcome

REPORT = "report.json"
TOLERANCE = 1e-9
NOT_COMPARED = "notes"


def report_differences(folder: Path) -> list[str]:
    """Fields of the report that the cards do not reproduce, each with both values; empty if all match.

    Raises ConfigError if there is no readable report or the evaluation is not finished, CardError for a damaged card.
    """
    file = folder / REPORT
    try:
        stored = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file}: cannot be read ({error}); run agent2 eval again") from error
    first = read_outcome(folder)
    known = replace(read_report(file, first.suite.metrics), notes=())
    made = json.loads(json.dumps(_report(read_outcome(folder, known))))
    return list(_differences(stored, made, ""))


def _report(outcome: SuiteOutcome) -> dict[str, Any]:
    report = report_dict(outcome.suite.metrics, outcome.evidence, outcome.decision)
    return report | {"evaluation": evaluation_section(outcome)}


def _differences(stored: Any, made: Any, place: str) -> Iterator[str]:
    if isinstance(stored, dict) and isinstance(made, dict):
        for key in (*stored, *(key for key in made if key not in stored)):
            if key != NOT_COMPARED:
                yield from _differences(stored.get(key), made.get(key), f"{place}.{key}" if place else str(key))
    elif isinstance(stored, list) and isinstance(made, list) and len(stored) == len(made):
        for index, (left, right) in enumerate(zip(stored, made, strict=True)):
            yield from _differences(left, right, f"{place}[{index}]")
    elif not _is_same(stored, made):
        yield f"{place} is {stored!r}, the cards give {made!r}"


def _is_same(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return math.isclose(left, right, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return bool(left == right)
