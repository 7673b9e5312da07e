"""What the pages of finished results are filled with, from the analysis and the reports of the other rooms.

Costly: the analysis of a trial, the outcome of an evaluation. The site keeps what is returned here until the files
behind it change.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from agent2.errors import ConfigError
from agent2.reports.text import clean

_one_drawing = threading.Lock()
"""matplotlib's settings are global: two figures drawn at once would take each other's colours."""


def load_libraries() -> None:
    """Import what the pages use, and draw an empty figure: the first view would wait for it, a second or more."""
    import agent2.reports.eval_pages  # isort: skip - the first page that is opened is most likely an evaluation
    import scipy.optimize  # isort: skip # noqa: F401
    import agent2.cards.query  # isort: skip
    import agent2.arena.analysis.result
    import agent2.reports.trial_view  # noqa: F401
    from agent2.reports.style import as_svg, drawing

    with _one_drawing, drawing(1.0, 1.0) as figure:
        figure.subplots()
        as_svg(figure, "none", "")


def trial_fields(root: Path) -> tuple[Any, dict[str, str]]:
    """View and figures of a finished trial."""
    from agent2.arena.analysis.read import read_evidence
    from agent2.arena.analysis.result import analyse
    from agent2.reports.charts import curves_svg, llm_svg, trajectory_svg
    from agent2.reports.trial_view import trial_view

    evidence = read_evidence(root)
    with _one_drawing:
        drawn = {"trajectory": trajectory_svg(evidence), "curves": curves_svg(evidence), "llm": llm_svg(evidence)}
    return trial_view(evidence, analyse(evidence)), {name: svg for name, svg in drawn.items() if svg is not None}


def stored_sweep_fields(report: Path) -> dict[str, Any]:
    """What a sweep's stored report contains. Raises ConfigError for one of another version."""
    from agent2.reports.comparison_pages import FORMAT, SweepReport, sweep_fields

    try:
        found = msgspec.json.decode(report.read_bytes(), type=SweepReport)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{report}: is not a report of this version ({error}); run agent2 sweep again") from error
    if found.format != FORMAT:
        raise ConfigError(f"{report}: format {clean(found.format, 40)}, this version reads {FORMAT}")
    return sweep_fields(found)


@dataclass(frozen=True, slots=True)
class ChangedPlaces:
    """Where the items that an evaluation lost and won can be looked at."""

    folders: Mapping[tuple[str, str], str]
    """(benchmark, side) -> folder of its card, below the evaluation's."""
    lost: Mapping[str, tuple[str, ...]]
    """Benchmark -> item ids, as they are."""
    won: Mapping[str, tuple[str, ...]]
    unknown: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class EvaluationFields:
    """What the page of a finished evaluation is filled with."""

    view: Any
    changed: ChangedPlaces
    metrics: Any
    """Of its suite, and what was found of them: for `change_figure`."""
    evidence: Any

    @property
    def has_figure(self) -> bool:
        """Whether some metric has a number on both sides."""
        return any(one.is_complete for one in self.evidence.metrics.values())


def change_figure(fields: EvaluationFields) -> str | None:
    """The change of every metric with its interval, as SVG."""
    from agent2.reports.charts import change_svg  # loads matplotlib

    with _one_drawing:
        found: str | None = change_svg(fields.metrics, fields.evidence)
        return found


def evaluation_fields(root: Path) -> EvaluationFields:
    """View and changed items of a finished evaluation."""
    from agent2.evaluation.outcome import read_outcome
    from agent2.reports.eval_pages import MAX_ITEMS, eval_view

    outcome = read_outcome(root)
    changed = ChangedPlaces(
        folders={(one.name, side): folder for one in outcome.benchmarks for side, folder in one.cards.items()},
        lost={one.name: tuple(item.item_id for item in one.lost[: 5 * MAX_ITEMS]) for one in outcome.benchmarks},
        won={one.name: tuple(item.item_id for item in one.won[: 5 * MAX_ITEMS]) for one in outcome.benchmarks},
        unknown={one.name: tuple(item.item_id for item in one.unknown[: 5 * MAX_ITEMS]) for one in outcome.benchmarks},
    )
    return EvaluationFields(eval_view(outcome), changed, outcome.suite.metrics, outcome.evidence)
