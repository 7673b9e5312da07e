"""The page of a round: its classes with expectations, exports, next actions, and the sampled failures to read.

Written beside `round.yaml` from the same numbers. One file, without scripts; loads nothing. What models and scorers
wrote is shown as text.
"""

from dataclasses import dataclass
from pathlib import Path

from agent2.files import write_text
from agent2.flywheel.round_file import ClassRecord, ExportRecord, RoundFile
from agent2.flywheel.round_rows import read_round_rows
from agent2.reports.text import Column, Table, attempt_words, clean, clean_lines, percent, render

PAGE, SAMPLE = "round.html", "sample.jsonl"
MAX_MESSAGE = 600
"""Characters of a message."""


@dataclass(frozen=True, slots=True)
class SampledFailure:
    """One failure of the sample."""

    title: str
    verdict: str
    messages: tuple[tuple[str, str], ...]
    """Role and text."""


def write_round_page(record: RoundFile, out: Path) -> Path:
    """Write the page of a round into its folder; returns its path. Raises OSError."""
    page_fields = {
        "checkpoint": clean(record.checkpoint, 120),
        "outcome": clean(record.round.outcome, 400),
        "primary": clean(record.primary_metric or "", 200),
        "decision": clean(record.round.release_decision or "", 60),
        "measured": clean(record.round.measured, 200),
        "classes": class_table(record),
        "exports": export_table(record),
        "actions": [clean(action, 400) for action in record.next_actions],
        "withheld": [clean(sentence, 400) for sentence in record.round.withheld],
        "failures": _sampled(out / SAMPLE),
    }
    write_text(out / PAGE, render("round.html.j2", page_fields))
    return out / PAGE


def class_table(record: RoundFile) -> Table[ClassRecord]:
    """The classes with cause, action and expectation."""
    target = record.round.target
    return Table(
        (
            Column("class", lambda row: clean(f"{row.name} (target)" if row.name == target else row.name, 120)),
            Column("cases", lambda row: str(row.cases)),
            Column("share", lambda row: percent(row.share)),
            Column("items", lambda row: str(row.items)),
            Column("solved there", lambda row: percent(row.solved_share)),
            Column("cause", lambda row: clean(row.cause or "not known", 60)),
            Column("action", lambda row: clean(row.action, 400)),
            Column(
                "expected",
                lambda row: f"{percent(row.expectation.now)} to at most {percent(row.expectation.expected)}",
            ),
            Column("because", lambda row: clean(row.expectation.basis, 200)),
        ),
        record.round.classes,
    )


def export_table(record: RoundFile) -> Table[tuple[str, ExportRecord]]:
    """The exports with rows and what was left out."""
    return Table(
        (
            Column("file", lambda row: clean(row[0], 120)),
            Column("rows", lambda row: str(row[1].rows)),
            Column("what", lambda row: clean(row[1].description, 300)),
            Column("chosen", lambda row: clean(row[1].provenance.get("chosen", ""), 300)),
            Column("left out", lambda row: clean("; ".join(f"{n}: {why}" for why, n in row[1].left_out.items()), 400)),
        ),
        [*record.round.exports.items()],
    )


def _sampled(file: Path) -> list[SampledFailure]:
    """The sample; empty without one."""
    rows = [row for _, row in read_round_rows(file, "make the round again")]
    return [
        SampledFailure(
            title=clean(f"{row['class']}: {row['source']['item_id']}, {attempt_words(row['source']['attempt'])}", 200),
            verdict=clean(f"{row['score']}: {row['reason']}", 400),
            messages=tuple(
                (clean(message["role"], 20), clean_lines(message["content"], MAX_MESSAGE))
                for message in row["messages"]
            ),
        )
        for row in rows
    ]
