"""What a terminal shows of a replay: submissions beside those of the source, and requests that differed."""

from agent2.arena.replay import ReplayReport, SubmissionReplay
from agent2.reports.text import clean
from agent2.reports.words import DASH

MAX_DIFFERENCES = 5
MAX_LINES = 40
"""Of one request's difference."""


def submission_rows(report: ReplayReport) -> list[list[str]]:
    """Number, code, checkpoint and changed files of each submission."""
    return [
        [
            str(one.number),
            _code_words(one),
            _words(one.recorded_weights, one.replayed_weights),
            clean(", ".join(one.changed_files)) or DASH,
        ]
        for one in report.submissions
    ]


def difference_lines(report: ReplayReport) -> list[str]:
    """The first differing requests as unified diffs."""
    lines = []
    for row in report.differences[:MAX_DIFFERENCES]:
        expected = row.get("expected")
        words = "is none that was recorded" if expected is None else f"is not the recorded one ({expected})"
        lines.append(clean(f"request {row.get('id', '?')} {words}:"))
        text = str(row.get("diff", "")).splitlines()
        lines += [f"  {clean(line, 200)}" for line in text[:MAX_LINES]]
        lines += [f"  ... {len(text) - MAX_LINES} more lines"] if len(text) > MAX_LINES else []
    hidden = len(report.differences) - MAX_DIFFERENCES
    return [*lines, *([f"... and {hidden} more requests that differ"] if hidden > 0 else [])]


def call_words(report: ReplayReport) -> list[str]:
    """How many requests there were, and what the comparison came to."""
    calls = f"{report.n_replayed_calls} LLM calls replayed, {report.n_recorded_calls} recorded"
    differ = f"{len(report.differences)} of them differ" if report.differences else "all as recorded"
    words = [f"{calls}, {differ}"]
    if report.cut is not None:
        words.append(clean(report.cut))
    words.append("replay: the same" if report.is_same else "replay: NOT the same as the recording")
    return words


def _code_words(one: SubmissionReplay) -> str:
    return "same" if one.is_same_tree else _words(one.recorded_tree, one.replayed_tree)


def _words(recorded: str | None, replayed: str | None) -> str:
    if recorded == replayed:
        return "same" if recorded is not None else "none in either"
    if recorded is None or replayed is None:
        return "only in the replay" if recorded is None else "not in the replay"
    return f"DIFFERS ({recorded[:10]} -> {replayed[:10]})"
