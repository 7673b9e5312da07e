"""People who fill in forms of spot checks, for tests."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from agent2.analysis.spot_check import draw_sample, form_text, record_form


def truth(row: Mapping[str, Any]) -> str:
    """What a careful person says of a sum or a product of `suite_fakes`."""
    first, sign, second = row["question"].split()
    expected = int(first) + int(second) if sign == "+" else int(first) * int(second)
    return "right" if row["answer"] == str(expected) else "wrong"


def filled(
    folder: Path, rater: str, verdict: Callable[[Mapping[str, Any]], str] = truth, n: int = 30, seed: int = 0
) -> dict[str, Any]:
    """A form filled in by one person, as an editor would leave it."""
    form = yaml.safe_load(form_text(draw_sample(folder, n, seed)))
    return {**form, "rater": rater, "rollouts": [{**row, "verdict": verdict(row)} for row in form["rollouts"]]}


def fill_forms(
    folder: Path,
    place: Path,
    raters: Sequence[str],
    verdict: Callable[[Mapping[str, Any]], str] = truth,
    n: int = 30,
) -> None:
    """Fill in and record a form for each rater."""
    for rater in raters:
        file = place / f"{rater}.yaml"
        file.write_text(yaml.safe_dump(filled(folder, rater, verdict, n), sort_keys=False))
        record_form(file, folder)
