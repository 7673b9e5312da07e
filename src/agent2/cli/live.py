"""The live screen of `agent2 run` and `agent2 sweep`: phase, time left, submissions, spending, GPUs.

It is read from the trial's own files, so it shows what a report would, and it cannot disturb the trial: a file that
cannot be read is skipped until the next look. Without a terminal there are plain lines instead (`agent2.cli.show`).
"""

import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from agent2.cli.show import StepBars, phase_of, progress_bar
from agent2.errors import Agent2Error
from agent2.reports.text import clean, dollars, duration, percent, score_words
from agent2.texts import counted

if TYPE_CHECKING:
    from agent2.llm.records import LlmTotals
    from agent2.stats.estimates import Estimate
    from agent2.web.entries import EntrySummary

LOOK_EVERY_S = 2.0
LAST_SUBMISSIONS = 5
MOST_TRIALS = 16
SECONDS = " (seconds)"
"""End of the message of a phase that is counted in seconds."""


@dataclass(slots=True)
class ScreenState:
    """What one look at a trial's folder found; fields that are not known yet are None or empty."""

    title: str = ""
    base: "Estimate | None" = None
    submissions: Sequence[str] = ()
    """One line each, latest first."""
    n_submissions: int = 0
    max_submissions: int | None = None
    llm: "LlmTotals | None" = None
    max_tokens: int | None = None
    max_dollars: float | None = None
    gpus: Sequence[str] = ()


def look_at_trial(root: Path) -> ScreenState:
    """The state of a trial that may be running. Raises what reading its files raises."""
    from agent2.arena.analysis.read import read_llm
    from agent2.arena.submissions import read_submissions_of
    from agent2.arena.trial_folder import TrialPaths, read_events
    from agent2.records import Split
    from agent2.stats.stored import read_estimate
    from agent2.web.entries import read_object

    paths = TrialPaths(root)
    config = read_object(paths.trial_json)
    task = config["task"]
    agent = str(config["agent"]).rstrip("/").rpartition("/")[2]
    driver = f" driven by {config['driver']}" if config.get("driver") else ""
    state = ScreenState(title=clean(f"{agent}{driver} on {task['name']}, seed {config['seed']}", 160))
    events = read_events(paths.trial_log)
    for row in events.rows:
        if row.get("event") == "base_scored" and row.get("split") == Split.TEST_PUBLIC.value:
            state.base = read_estimate(row.get("score"))
    started = next((row["t"] for row in events.rows if row.get("event") == "agent_started"), None)
    budget = config.get("budget") or task.get("budget") or {}
    state.max_submissions = budget.get("submissions")
    submissions = read_submissions_of(paths) if paths.grader_db.exists() else []
    state.n_submissions = len(submissions)
    for submission in list(reversed(submissions))[:LAST_SUBMISSIONS]:
        after = f" after {duration(submission.received_at - started)}" if started is not None else ""
        reason = f": {submission.reason}" if submission.reason else ""
        state.submissions = [
            *state.submissions,
            clean(f"{submission.number}  {score_words(submission.score, submission.state.value)}{after}{reason}", 160),
        ]
    llm = read_llm(paths, {**config, "budget": budget})
    if llm is not None:
        state.llm, state.max_tokens, state.max_dollars = llm.totals, llm.max_tokens, llm.max_dollars
    state.gpus = gpu_lines(config.get("gpus") or ())
    return state


def gpu_lines(numbers: Sequence[int]) -> list[str]:
    """Load and memory of these GPUs, one line each; empty without GPUs or where NVML cannot be queried."""
    if not numbers:
        return []
    import pynvml

    try:
        pynvml.nvmlInit()
        handles = [(number, pynvml.nvmlDeviceGetHandleByIndex(number)) for number in numbers]
        return [
            gpu_line(number, pynvml.nvmlDeviceGetUtilizationRates(handle).gpu, memory.used, memory.total)
            for number, handle in handles
            for memory in [pynvml.nvmlDeviceGetMemoryInfo(handle)]
        ]
    except pynvml.NVMLError:
        return []


def gpu_line(number: int, load_percent: int, used_bytes: int, total_bytes: int) -> str:
    """Number, load and memory of one GPU."""
    return f"{number}: {load_percent}%, {used_bytes / 2**30:.1f} of {total_bytes / 2**30:.1f} GiB"


@dataclass(slots=True)
class TrialScreen:
    """The state of a trial: its phases are reported to it, the rest is read from its folder."""

    root: Path
    look: Callable[[Path], ScreenState] = look_at_trial
    clock: Callable[[], float] = time.monotonic
    phases: list[tuple[str, float]] = field(default_factory=list)
    """Phase, and when it began."""
    message: str = ""
    done: int | None = None
    total: int | None = None
    _state: ScreenState = field(default_factory=ScreenState)
    _looked_at: float = float("-inf")

    def __call__(self, message: str, done: int | None = None, total: int | None = None) -> None:
        """Report the current phase; done and total where it can be counted."""
        if not self.phases or self.phases[-1][0] != phase_of(message):
            self.phases.append((phase_of(message), self.clock()))
        self.message, self.done, self.total = message, done, total

    def render(self) -> RenderableType:
        """The screen now."""
        now = self.clock()
        if now - self._looked_at >= LOOK_EVERY_S:
            self._looked_at = now
            # a file may be missing yet or half written: the last state stays; a screen must not end a trial
            with suppress(Agent2Error, OSError, sqlite3.Error, AttributeError, LookupError, TypeError, ValueError):
                self._state = self.look(self.root)
        table = Table.grid(padding=(0, 2))
        for name, value in self._rows(now):
            table.add_row(Text(name, style="dim"), value)
        title = Text(self._state.title or "preparing the trial", style="bold")
        return Group(title, table)

    def _rows(self, now: float) -> Iterator[tuple[str, RenderableType]]:
        state = self._state
        if self.phases:
            name, started_at = self.phases[-1]
            yield (
                "phase",
                Text(f"{clean(self.message.removesuffix(SECONDS) or name, 100)}, {duration(now - started_at)}"),
            )
        if self.total and self.done is not None:
            remaining = self.total - self.done
            if self.message.endswith(SECONDS):
                progress = f"{duration(self.done)} of {duration(self.total)}, {duration(remaining)} left"
            else:
                progress = f"{self.done} of {self.total}"
            yield "time" if self.message.endswith(SECONDS) else "done", Text(progress)
            yield "", ProgressBar(total=self.total, completed=self.done, width=40)
        if state.base is not None:
            yield "base model", Text(f"{percent(state.base.value)} on public items")
        limit = f" of {state.max_submissions}" if state.max_submissions is not None else ""
        if state.title:
            yield "submissions", Text(f"{state.n_submissions}{limit}")
        for line in state.submissions:
            yield "", Text(line)
        if state.llm is not None:
            yield "LLM", Text(llm_line(state.llm, state.max_tokens, state.max_dollars))
        for line in state.gpus:
            yield "GPU", Text(line)


def llm_line(totals: "LlmTotals", max_tokens: int | None, max_dollars: float | None) -> str:
    """Calls, tokens and dollars with their limits; calls of unknown cost are counted, never as 0 dollars."""
    tokens = f"{totals.tokens.total:,} tokens" + (f" of {max_tokens:,}" if max_tokens is not None else "")
    spent = dollars(totals.dollars) if totals.calls else dollars(0.0)
    spent += f" of {dollars(max_dollars)}" if max_dollars is not None else ""
    unknown = f" + {counted(totals.n_unknown_cost, 'call')} of unknown cost" if totals.n_unknown_cost else ""
    failed = f", {totals.n_failed} failed" if totals.n_failed else ""
    return f"{counted(totals.calls, 'call')}{failed}, {tokens}, {spent}{unknown}"


@dataclass(slots=True)
class SweepScreen:
    """The states of a sweep's trials."""

    root: Path
    clock: Callable[[], float] = time.monotonic
    done: int = 0
    total: int | None = None
    _begun: float | None = None
    _parts: "Sequence[EntrySummary]" = ()
    _looked_at: float = float("-inf")

    def __call__(self, message: str, done: int | None = None, total: int | None = None) -> None:
        """Report how many trials are done."""
        self.done, self.total = done or self.done, total or self.total

    def render(self) -> RenderableType:
        """The screen now: running trials first, then those that ended last."""
        now = self.clock()
        self._begun = now if self._begun is None else self._begun
        if now - self._looked_at >= LOOK_EVERY_S:
            self._looked_at = now
            with suppress(Agent2Error, OSError, LookupError, TypeError, ValueError):  # the next look may succeed
                self._parts = self._look()
        total = f" of {self.total}" if self.total is not None else ""
        title = Text(f"sweep {clean(self.root.name)}: {self.done}{total} trials ended", style="bold")
        title.append(f", {duration(now - self._begun)}", style="dim")
        table = Table.grid(padding=(0, 2))
        for part in self._parts[:MOST_TRIALS]:
            table.add_row(Text(part.state.value, style="dim"), Text(f"{part.title}, {part.detail}"), Text(part.message))
        if len(self._parts) > MOST_TRIALS:
            table.add_row("", Text(f"and {len(self._parts) - MOST_TRIALS} more"), "")
        return Group(title, table)

    def _look(self) -> "Sequence[EntrySummary]":
        from agent2.web.catalog import Catalog
        from agent2.web.entries import EntryKind, EntryState

        catalog = Catalog(self.root)
        entries = [entry for entry in catalog.scan().entries.values() if entry.kind is EntryKind.TRIAL]
        parts = [catalog.summary(entry) for entry in sorted(entries, key=lambda entry: -entry.changed)]
        return sorted(parts, key=lambda part: part.state is not EntryState.RUNNING)


@contextmanager
def live_trial(root: Path) -> Iterator[StepBars]:
    """The live screen of a trial on a terminal's stderr; plain lines elsewhere."""
    with _live(TrialScreen(root)) as steps:
        yield steps


@contextmanager
def live_sweep(root: Path) -> Iterator[StepBars]:
    """The live screen of a sweep on a terminal's stderr; plain lines elsewhere."""
    with _live(SweepScreen(root)) as steps:
        yield steps


@contextmanager
def _live(screen: TrialScreen | SweepScreen) -> Iterator[StepBars]:
    if not sys.stderr.isatty():
        with progress_bar() as steps:
            yield steps
        return
    console = Console(stderr=True)
    with Live(get_renderable=screen.render, console=console, refresh_per_second=1, vertical_overflow="ellipsis"):
        yield screen
