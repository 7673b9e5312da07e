"""Data of the pages of finished results, from the analysis and the reports of other packages.

Costly: the analysis of a trial, the outcome of an evaluation. The site caches what is returned here until the files
behind it change.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from agent2.errors import ConfigError
from agent2.foreign_files import read_limited
from agent2.reports.text import clean

if TYPE_CHECKING:
    from agent2.reports.eval_process import ProcessView

_drawing_lock = threading.Lock()
"""matplotlib's settings are global: two figures drawn at the same time would take each other's colours."""


def draw_nothing() -> None:
    """Draw an empty figure: the first one that is drawn waits half a second for the library."""
    from agent2.reports.style import as_svg, drawing

    with _drawing_lock, drawing(1.0, 1.0) as figure:
        figure.subplots()
        as_svg(figure, "none", "")


def trial_fields(root: Path, *, withholds: bool) -> tuple[Any, dict[str, str]]:
    """View and figures of a finished trial. withholds: without texts that its agent may have written."""
    from agent2.arena.analysis.read import read_evidence
    from agent2.arena.analysis.result import analyse
    from agent2.reports.charts import curves_svg, llm_svg, trajectory_svg
    from agent2.reports.trial_view import trial_view
    from agent2.reports.withheld import without_agent_texts, without_quotes

    evidence = read_evidence(root)
    analysis = analyse(evidence)
    if withholds:
        analysis, evidence = without_quotes(evidence, analysis), without_agent_texts(evidence)
    with _drawing_lock:
        drawings = {"trajectory": trajectory_svg(evidence), "curves": curves_svg(evidence), "llm": llm_svg(evidence)}
    return trial_view(evidence, analysis), {name: svg for name, svg in drawings.items() if svg is not None}


def stored_sweep_fields(report: Path) -> dict[str, Any]:
    """What a sweep's stored report contains. Raises ConfigError for one of another version."""
    from agent2.reports.sweep_pages import FORMAT, SweepReport, sweep_fields

    try:
        stored = msgspec.json.decode(read_limited(report), type=SweepReport)
    except OSError as error:
        raise ConfigError(f"{report}: cannot be read ({error.strerror}); run agent2 sweep again") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{report}: is not a report of this version ({error}); run agent2 sweep again") from error
    if stored.format != FORMAT:
        raise ConfigError(f"{report}: format {clean(stored.format, 40)}, this version reads {FORMAT}")
    return sweep_fields(stored)


@dataclass(frozen=True, slots=True)
class ListedItems:
    """The items that an evaluation lost and won and that both sides failed, and the cards that contain them."""

    folders: Mapping[tuple[str, str], str]
    """(benchmark, side) -> folder of its card, below the evaluation's."""
    lost: Mapping[str, tuple[str, ...]]
    """Benchmark -> item ids, uncleaned."""
    won: Mapping[str, tuple[str, ...]]
    unknown: Mapping[str, tuple[str, ...]]
    both_failed: Mapping[str, tuple[str, ...]]
    questions: Mapping[tuple[str, str], str]
    """(benchmark, item id) -> the beginning of its question; empty where the items are hidden."""


@dataclass(frozen=True, slots=True)
class EvaluationFields:
    """What the page of a finished evaluation is filled with."""

    view: Any
    listed: ListedItems
    metrics: Any
    """Of its suite; with `evidence` for `change_figure`."""
    evidence: Any

    @property
    def has_figure(self) -> bool:
        """Whether at least one metric has a number on both sides."""
        return any(metric.is_complete for metric in self.evidence.metrics.values())


def change_figure(fields: EvaluationFields) -> str | None:
    """The change of every metric with its interval, as SVG."""
    from agent2.reports.eval_charts import change_svg  # loads matplotlib

    with _drawing_lock:
        svg: str | None = change_svg(fields.metrics, fields.evidence)
        return svg


def card_process(path: Path) -> "ProcessView":
    """How the rollouts of a finished card were worked, by the packaged step rules. Raises CardError."""
    from agent2.analysis.process import process_of_card
    from agent2.reports.eval_process import process_view

    return process_view("Process: how the work was done, beside what came of it", process_of_card(path))


def evaluation_fields(root: Path) -> EvaluationFields:
    """View and listed items of a finished evaluation."""
    from agent2.analysis.outcome import MOST_LISTED, read_outcome
    from agent2.reports.eval_pages import eval_view
    from agent2.reports.eval_process import page_clusters
    from agent2.web.items import shown_questions

    outcome = read_outcome(root)

    def ids(kind: str) -> dict[str, tuple[str, ...]]:
        return {
            benchmark.name: tuple(change.item_id for change in getattr(benchmark, kind)[:MOST_LISTED])
            for benchmark in outcome.benchmarks
        }

    listed = ListedItems(
        folders={
            (benchmark.name, side): folder
            for benchmark in outcome.benchmarks
            for side, folder in benchmark.cards.items()
        },
        lost=ids("lost"),
        won=ids("won"),
        unknown=ids("unknown"),
        both_failed=ids("both_failed"),
        questions={
            (benchmark.name, item): question
            for benchmark in outcome.benchmarks
            for item, question in shown_questions(
                {item: text.last_message for item, text in benchmark.texts.items()}
            ).items()
        },
    )
    return EvaluationFields(
        eval_view(outcome, page_clusters(root, outcome)), listed, outcome.suite.metrics, outcome.evidence
    )
