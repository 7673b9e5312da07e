"""Timeline, transcript and code changes of a trial, while it runs and afterwards.

Read from the trial's logs alone, so it works for a trial that is running, was killed, or is partly damaged: what cannot
be read is named, and everything else is shown. Everything that an agent wrote is cleaned and bounded here.
"""

import difflib
import hashlib
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

import numpy as np

from agent2.arena.evidence import SubmissionRecord
from agent2.arena.recorder import RevisionReader, open_revisions
from agent2.arena.spec import GIVES_OUT_HIDDEN
from agent2.arena.submissions import read_submissions_of
from agent2.arena.trial_folder import TrialPaths, read_events
from agent2.errors import Agent2Error
from agent2.foreign_files import open_regular, read_limited
from agent2.llm.gateway.recording import Exchange, read_body, read_exchanges
from agent2.llm.messages import Content, readable
from agent2.llm.protocols import FORMATS
from agent2.llm.streams import parse_body
from agent2.llm.untrusted import as_object, decode_or_none, error_message
from agent2.records import JsonValue
from agent2.reports.text import clean, clean_lines, dollars, duration, score_words, size
from agent2.sandbox.spec import PRIVATE
from agent2.web.blocks import MessageBlock, blocks_of

MAX_MOMENTS = 5_000
MAX_TURN = 20_000
"""Characters of one message of a transcript."""
MAX_MESSAGES = 2_000
MAX_DIFF_LINES = 4_000
"""Of all revisions together."""
MAX_DIFFED = 200_000
"""Characters of a file."""
MAX_OPEN_LINES = 120
"""Of a file's diff that is not folded."""
MODEL_FILES = frozenset(
    {"chat_template.jinja", "config.json", "generation_config.json", "special_tokens_map.json", "tokenizer.json",
     "tokenizer_config.json"}
)  # fmt: skip
"""Names of the files that a library writes beside a model's weights."""
MAX_SOURCES, MAX_SOURCE_LINES = 60, 3_000
SOURCE_ENDS = (".py", ".sh", ".json", ".yaml", ".yml", ".toml")
"""Of files that are shown with numbered lines."""
LOG_TAIL = 20_000
"""Bytes of an agent's log."""
LOAD_STEPS = 120
SANDBOX = "sandbox"
"""Lane of the processes that are the sandbox's own, which the page folds."""
PHASE_ENDS = (
    ("agent_started", "base model scored on public items"),
    ("agent_ended", "agent phase"),
    ("graded", "submissions evaluated"),
    ("final_scored", "final evaluation and noise band"),
    ("audited", "integrity audit"),
)
"""Event with which a phase ends -> the phase."""
_EVIDENCE = (
    (re.compile(r"process (\d+)"), "timeline", "process-{}"),
    (re.compile(r"submission (\d+)"), "timeline", "submission-{}"),
    (re.compile(r"events/\w+\.jsonl"), "timeline", ""),
    (re.compile(r"llm/exchanges\.jsonl: call (\d+)"), "transcript", "c{}"),
    (re.compile(r"agent\.log"), "transcript", "agent-log"),
)
"""Evidence as verdicts name it -> tab of the trial's page, and the anchor there."""
_SOURCE = re.compile(rf"(\S+(?:{'|'.join(map(re.escape, SOURCE_ENDS))}))(?::(\d+)|: .*)?")
EVENT_WORDS = {
    "base_scored": "base model scored",
    "agent_started": "agent started",
    "agent_restarted": "agent started again",
    "agent_interrupted": "agent interrupted",
    "agent_ended": "agent phase ended",
    "graded": "submissions evaluated",
    "final_scored": "final checkpoint scored",
    "noise_measured": "noise band measured",
    "audited": "integrity audit",
    "resumed": "trial resumed",
    "finished": "trial finished",
    "recording_failed": "part of the record is missing",
}


@dataclass(frozen=True, slots=True)
class Moment:
    """One event or span of a trial, on one lane of its timeline."""

    lane: str
    t: float
    """Unix seconds."""
    end: float
    """Equal to `t` for an event without a duration."""
    text: str
    mark: str = ""
    """pass, fail or partial, which decide its colour; empty: neither good nor bad."""
    anchor: str = ""
    """Its name in links from evidence: `process-12`, `submission-3`."""


@dataclass(frozen=True, slots=True)
class TimeBar:
    """A moment on the axis, in percent of its length."""

    left: float
    width: float
    tooltip: str
    mark: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """All moments of a trial on one time axis."""

    lanes: tuple[tuple[str, tuple[TimeBar, ...]], ...]
    ticks: tuple[tuple[float, str], ...]
    """Position in percent, and its label."""
    loads: tuple["LoadLane", ...]
    """CPU and memory use of the agent's processes."""
    rows: tuple[tuple[str, str, str, str, str], ...]
    """(time, lane, text, mark, anchor), in order."""
    sandbox_rows: tuple[tuple[str, str, str, str, str], ...]
    """The same of the sandbox's own processes."""
    problems: tuple[str, ...]
    n_left_out: int


@dataclass(frozen=True, slots=True)
class LoadLane:
    """One resource on the axis, in as many steps as `LOAD_STEPS`."""

    name: str
    peak: str
    steps: tuple[tuple[float, str], ...]
    """(percent of the peak, tooltip), in order of time."""


def loads_of(paths: TrialPaths, first: float, last: float) -> tuple[LoadLane, ...]:
    """CPU and memory use of the agent's processes that have ended, from `first` to `last`; empty without any.

    The log has one line for each process: its CPU time is spread evenly over its life, and its memory is its peak, so
    the lanes are means and upper bounds.
    """
    cores, memory = np.zeros(LOAD_STEPS), np.zeros(LOAD_STEPS)
    step_s = max(last - first, 1e-3) / LOAD_STEPS
    edges = first + step_s * np.arange(LOAD_STEPS + 1)
    for row in read_events(paths.processes_log).rows:
        started, ended = float(row["first_seen"]), float(row["last_seen"])
        held = np.clip(np.minimum(edges[1:], ended) - np.maximum(edges[:-1], started), 0.0, None) / step_s
        cores += held * float(row.get("cpu_s") or 0.0) / max(ended - started, 1.0)
        memory += (held > 0) * float(row.get("max_rss_bytes") or 0)
    resources = (("CPU", cores, lambda value: f"{value:.1f} cores"), ("memory", memory, size))
    return tuple(
        LoadLane(
            name,
            f"up to {formatted(float(values.max()))}",
            tuple(
                (round(100 * float(value / values.max()), 1), f"{duration(step_s * step)}: {formatted(float(value))}")
                for step, value in enumerate(values)
            ),
        )
        for name, values, formatted in resources
        if values.max() > 0
    )


def read_moments(paths: TrialPaths) -> tuple[list[Moment], list[str]]:
    """Moments from a trial's logs, in order of time, and messages about logs that could not be read."""
    moments: list[Moment] = []
    problems: list[str] = []
    for lane, read_lane in (
        ("phases", _phases), ("events", _events), ("submissions", _submissions), ("LLM calls", _calls), ("code", _code),
        ("processes", _processes), ("GPUs", _gpus), ("interventions", _interventions),
    ):  # fmt: skip
        try:
            moments += read_lane(paths, lane)
        except (Agent2Error, OSError, sqlite3.Error, LookupError, TypeError, ValueError) as error:
            problems.append(clean(f"{lane}: cannot be read ({error})"))
    return sorted(moments, key=lambda moment: moment.t), problems


def timeline_of(paths: TrialPaths, now: float | None = None) -> Timeline | None:
    """The timeline of a trial; None before its first event. now: Unix seconds, of a trial that is running."""
    moments, problems = read_moments(paths)
    if not moments:
        return None
    first, last = moments[0].t, max(now or 0.0, *(moment.end for moment in moments))
    if now is not None:
        open_phase = next(moment for moment in reversed(moments) if moment.lane == "phases")
        moments = [replace(moment, end=last) if moment is open_phase else moment for moment in moments]
    span = max(last - first, 1e-3)  # a trial may have one event only
    of_sandbox = [moment for moment in moments if moment.lane == SANDBOX]
    moments = [moment for moment in moments if moment.lane != SANDBOX]
    lanes: dict[str, list[TimeBar]] = {}
    for moment in moments[:MAX_MOMENTS]:
        left_percent = 100 * (moment.t - first) / span
        bar = TimeBar(
            round(left_percent, 3),
            round(100 * (moment.end - moment.t) / span, 3),
            f"{duration(moment.t - first)}: {moment.text}",
            moment.mark,
        )
        lanes.setdefault(moment.lane, []).append(bar)
    ticks = tuple((index * 20.0, duration(span * index / 5)) for index in range(6))
    rows, sandbox_rows = (
        tuple(
            (duration(moment.t - first), moment.lane, moment.text, moment.mark, moment.anchor)
            for moment in listed[:MAX_MOMENTS]
        )
        for listed in (moments, of_sandbox)
    )
    bars_by_lane = tuple((lane, tuple(bars)) for lane, bars in lanes.items())
    try:
        loads = loads_of(paths, first, last)
    except (Agent2Error, OSError, LookupError, TypeError, ValueError) as error:
        loads, problems = (), [*problems, clean(f"resources: cannot be read ({error})")]
    n_left_out = max(0, len(moments) - MAX_MOMENTS)
    return Timeline(bars_by_lane, ticks, loads, rows, sandbox_rows, tuple(problems), n_left_out)


def event_words(row: Mapping[str, JsonValue]) -> str:
    """One event of a trial's log as text."""
    name = str(row.get("event", ""))
    text = EVENT_WORDS.get(name, name.replace("_", " "))
    score = row.get("score")
    if isinstance(score, dict) and isinstance(score.get("value"), int | float):
        text += f": {100 * score['value']:.1f}%"
    details = [str(row[key]) for key in ("split", "end", "reason") if row.get(key)]
    return clean(f"{text} ({', '.join(details)})" if details else text, 300)


def _phases(paths: TrialPaths, lane: str) -> Iterator[Moment]:
    """Phases from the first event on; an unfinished phase ends with the last event."""
    rows = read_events(paths.trial_log).rows
    started = float(rows[0]["t"]) if rows else 0.0
    for event, phase in PHASE_ENDS:
        ends = [float(row["t"]) for row in rows if row.get("event") == event]
        if not ends:
            yield Moment(lane, started, max([started, *(float(row["t"]) for row in rows)]), phase)
            return
        if ends[-1] > started:
            yield Moment(lane, started, ends[-1], f"{phase}, {duration(ends[-1] - started)}")
        started = max(started, ends[-1])


def _events(paths: TrialPaths, lane: str) -> Iterator[Moment]:
    for row in read_events(paths.trial_log).rows:
        bad = row.get("event") in ("agent_interrupted", "recording_failed")
        yield Moment(lane, float(row["t"]), float(row["t"]), event_words(row), "fail" if bad else "")


def _submissions(paths: TrialPaths, lane: str) -> Iterator[Moment]:
    for submission in read_submissions_of(paths):
        end = submission.finished_at or submission.received_at
        mark = "pass" if submission.score is not None else "partial"
        yield Moment(
            lane, submission.received_at, end, submission_words(submission), mark, f"submission-{submission.number}"
        )


def submission_words(submission: SubmissionRecord) -> str:
    """A submission in one line."""
    score = score_words(submission.score, submission.state.value)
    reason = f": {submission.reason}" if submission.reason else ""
    return clean(f"submission {submission.number}: {score}{reason}", 300)


def _calls(paths: TrialPaths, lane: str) -> Iterator[Moment]:
    for call in read_exchanges(paths.llm):
        text = f"call {call.id}: {call.tokens.input:,} tokens in, {call.tokens.output:,} out, {_cost(call.dollars)}"
        is_ok = call.outcome.value == "ok"
        text += "" if is_ok else f", {call.outcome.value}: {call.fault}"
        end = call.started_at + (call.latency_s or 0.0)
        yield Moment(lane, call.started_at, end, clean(text, 300), "" if is_ok else "fail")


def _cost(value: float | None) -> str:
    return "cost unknown" if value is None else dollars(value)


def _code(paths: TrialPaths, lane: str) -> Iterator[Moment]:
    for row in read_events(paths.revisions_log).rows:
        number = row.get("submission")
        text = f"revision {str(row.get('id', ''))[:10]}" + (f" for submission {number}" if number else "")
        yield Moment(lane, float(row["t"]), float(row["t"]), clean(text))


def _processes(paths: TrialPaths, lane: str) -> Iterator[Moment]:
    for row in read_events(paths.processes_log).rows:
        first, last = float(row["first_seen"]), float(row["last_seen"])
        used = f"{duration(float(row.get('cpu_s') or 0.0))} of CPU, {size(float(row.get('max_rss_bytes') or 0))}"
        command = [str(part) for part in row.get("command", ())]
        text = f"{clean(' '.join(command), 160)} ({used})"
        anchor = f"process-{int(row['pid'])}" if row.get("pid") else ""
        yield Moment(SANDBOX if is_sandbox_command(command) else lane, first, last, text, "", anchor)


def is_sandbox_command(command: Sequence[str]) -> bool:
    """Whether a process looks like the sandbox's own; an agent's could, so it is folded and never left out."""
    return bool(command) and (PurePosixPath(command[0]).name == "bwrap" or f"{PRIVATE}/forward.py" in command)


def _gpus(paths: TrialPaths, lane: str) -> Iterator[Moment]:
    for row in read_events(paths.gpu_log).rows:
        seconds, n = row.get("seconds"), row.get("n_gpus")
        duration_text = duration(float(seconds)) if isinstance(seconds, int | float) else "an unknown time"
        yield Moment(
            lane, float(row["t"]), float(row["t"]), f"{n} GPUs worked {duration_text} for the agent until here"
        )


def _interventions(paths: TrialPaths, lane: str) -> Iterator[Moment]:
    for row in read_events(paths.interventions_log).rows:
        text = f"intervention by {row.get('by') or 'unknown'}: {row.get('note', '')}"
        yield Moment(lane, float(row["t"]), float(row["t"]), clean(text, 300), "partial")


@dataclass(frozen=True, slots=True)
class TranscriptTurn:
    """One message between an agent and its LLM."""

    anchor: str
    role: str
    """system, user, assistant or tool; decides what a toggle hides."""
    title: str
    blocks: tuple[MessageBlock, ...]

    @property
    def text(self) -> str:
        """All of it, one part below the other."""
        return "\n".join(block.text for block in self.blocks)


@dataclass(frozen=True, slots=True)
class Transcript:
    """The conversation of an agent and its LLM, each message once."""

    turns: tuple[TranscriptTurn, ...]
    problems: tuple[str, ...]
    n_left_out: int


def transcript_of(paths: TrialPaths) -> Transcript | None:
    """The recorded conversation: of each call the messages that the previous call did not have, and the answer.

    None for an agent without a driver. Raises RecordingError if the record of the calls is damaged.
    """
    exchanges = [exchange for exchange in read_exchanges(paths.llm) if exchange.kind == "generate"]
    if not exchanges:
        return None
    turns: list[TranscriptTurn] = []
    problems: list[str] = []
    previous: list[tuple[str, Content]] = []
    for exchange in exchanges:
        if len(turns) >= MAX_MESSAGES:
            break
        messages = _messages(exchange, problems)
        n_repeated = next(
            (n for n, pair in enumerate(zip(previous, messages, strict=False)) if pair[0] != pair[1]),
            min(len(previous), len(messages)),
        )
        fresh = messages[n_repeated:]
        if previous and n_repeated == len(previous):
            # the conversation went on: assistant messages are answers that earlier calls have shown
            fresh = [message for message in fresh if message[0] != "assistant"]
        answer = _answer(exchange, problems)
        for number, (role, content) in enumerate(fresh, start=1):
            title, kind = f"call {exchange.id}: {clean(role, 40)}", _role(role)
            blocks = blocks_of(content, kind, MAX_TURN)
            turns.append(TranscriptTurn(f"c{exchange.id}-{number}", kind, title, blocks))
        seconds = duration(exchange.latency_s) if exchange.latency_s is not None else "no end"
        title = f"call {exchange.id}: {clean(exchange.model, 60)} ({seconds}, {exchange.tokens.output:,} tokens)"
        blocks = blocks_of(answer, "assistant", MAX_TURN)
        turns.append(TranscriptTurn(f"c{exchange.id}", "assistant", title, blocks))
        previous = messages
    left_out = sum(1 for exchange in exchanges if f"c{exchange.id}" not in {turn.anchor for turn in turns})
    return Transcript(tuple(turns), tuple(problems), left_out)


def _role(role: str) -> str:
    roles = {"system": "system", "developer": "system", "user": "user", "tool": "tool", "function": "tool"}
    return roles.get(role, "assistant" if role in ("assistant", "model") else "tool")


def _body(exchange: Exchange, path: Path | None, side: str, problems: list[str]) -> bytes:
    if path is None:
        problems.append(f"call {exchange.id}: its {side} was not kept")
        return b""
    try:
        return read_body(path)
    except Agent2Error as error:
        problems.append(clean(f"call {exchange.id}: {error}"))
        return b""


def _messages(exchange: Exchange, problems: list[str]) -> list[tuple[str, Content]]:
    """(role, content) of the messages sent; a request that holds none that can be read is shown as it is."""
    body = _body(exchange, exchange.request, "request", problems)
    try:
        request = FORMATS[exchange.protocol].parse_request(as_object(decode_or_none(body)))
        messages = [(message.role, message.content) for message in request.messages]
    except RecursionError:
        messages = []
    return messages or [("user", body.decode(errors="replace"))] * bool(body)


def _answer(exchange: Exchange, problems: list[str]) -> Content:
    """The answer, or what came of it; an error, and what is no answer, as text."""
    data = _body(exchange, exchange.response, "answer", problems)
    if not data:
        return f"({exchange.outcome.value}: {exchange.fault or 'no answer'})"
    try:
        answer = parse_body(exchange.protocol, data)
        parts = tuple(part for choice in (answer.parts, *answer.alternatives) for part in choice)
        if readable(parts):
            return parts
    except (ValueError, LookupError, TypeError, RecursionError):
        return error_message(data) or data.decode(errors="replace")
    return data.decode(errors="replace")


@dataclass(frozen=True, slots=True)
class DiffLine:
    """One line of a diff."""

    kind: str
    """add, remove, place or same."""
    text: str


@dataclass(frozen=True, slots=True)
class FileDiff:
    """How one file changed."""

    path: str
    n_added: int
    n_removed: int
    lines: tuple[DiffLine, ...]
    change: str = ""
    """`new file`, `removed` or `emptied`; empty: none of these."""

    @property
    def is_folded(self) -> bool:
        """Long, or written by a library beside a model's weights."""
        return len(self.lines) > MAX_OPEN_LINES or PurePosixPath(self.path).name in MODEL_FILES


@dataclass(frozen=True, slots=True)
class RevisionDiff:
    """What one code revision changed."""

    id: str
    when: str
    submission: int | None
    files: tuple[FileDiff, ...]


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file at the end of the trial."""

    path: str
    anchor: str
    """The anchor of line 3 is this with `-L3` appended."""
    lines: tuple[str, ...]


def gives_out_hidden(paths: TrialPaths) -> bool:
    """Whether the agent was shown a hidden item; a trial whose configuration cannot be read counts as one."""
    try:
        config = decode_or_none(read_limited(paths.trial_json))
    except OSError:
        config = None
    if config is None:
        return True
    return as_object(as_object(as_object(config).get("task")).get("assignment")).get("kind") in GIVES_OUT_HIDDEN


def revision_diffs(paths: TrialPaths) -> tuple[list[RevisionDiff], list[SourceFile], list[str]]:
    """Every revision as diffs against the previous one; the newest files; problems, among them what was left out."""
    rows = [row for row in read_events(paths.revisions_log).rows if isinstance(row.get("id"), str)]
    started = read_events(paths.trial_log).last("agent_started")
    problems: list[str] = []
    program = _program(paths.agent)
    repository = open_revisions(paths.revisions_git) if rows else None
    if repository is None:
        return [], _sources(program), ["revisions.git: cannot be read"] if rows else problems
    revisions: list[RevisionDiff] = []
    lines_left = MAX_DIFF_LINES
    started_at = float(started["t"]) if started is not None else float(rows[0]["t"])
    try:
        reader, before = RevisionReader(repository), dict[str, str]()
        for row in rows:
            files = reader.files(row["id"])
            if files is None:
                problems.append(f"revision {clean(row['id'][:10])}: cannot be read")
                continue
            changed = [path for path in sorted({*before, *files}) if before.get(path) != files.get(path)]
            diffs = []
            for path in changed:
                diff = _file_diff(path, before.get(path), files.get(path), lines_left)
                lines_left -= len(diff.lines)
                diffs.append(diff)
            before = files
            number = row.get("submission")
            when = duration(max(0.0, float(row["t"]) - started_at))
            if not diffs and revisions and revisions[-1].submission is None:
                revisions[-1] = replace(revisions[-1], submission=number)
            elif diffs or number is not None:
                revisions.append(RevisionDiff(clean(row["id"][:10]), when, number, tuple(diffs)))
    finally:
        repository.close()
    if lines_left <= 0:
        problems.append(f"only the first {MAX_DIFF_LINES} changed lines are shown; `git` reads all: revisions.git")
    return revisions, _sources(program | before), problems


def _program(folder: Path) -> dict[str, str]:
    """Path in the sandbox -> text, of the agent's own program."""
    texts: dict[str, str] = {}
    if folder.is_symlink():
        return texts
    for path in sorted(folder.rglob("*")):
        if len(texts) < MAX_SOURCES and path.is_file() and not path.is_symlink() and path.stat().st_size <= MAX_DIFFED:
            data = read_limited(path, MAX_DIFFED)
            if b"\0" not in data:
                texts[f"/agent/{path.relative_to(folder)}"] = data.decode(errors="replace")
    return texts


def _sources(texts: Mapping[str, str]) -> list[SourceFile]:
    """The first `MAX_SOURCE_LINES` lines of program and configuration files; other files are in the diffs alone."""
    sources: list[SourceFile] = []
    lines_left = MAX_SOURCE_LINES
    for path, text in texts.items():
        if path.endswith(SOURCE_ENDS) and len(text) <= MAX_DIFFED and lines_left > 0:
            lines = text.splitlines()[:lines_left]
            lines_left -= len(lines)
            sources.append(SourceFile(clean(path, 200), source_anchor(path), tuple(clean_lines(x, 400) for x in lines)))
    return sources


def source_anchor(path: str) -> str:
    """The anchor of a file."""
    return "f-" + hashlib.sha256(path.encode("utf-8", "surrogatepass")).hexdigest()[:10]


def evidence_anchor(where: str) -> tuple[str, str] | None:
    """(tab of the trial's page, anchor on it) of a verdict's evidence; None if no page shows it."""
    for pattern, part, anchor in _EVIDENCE:
        if match := pattern.fullmatch(where):
            return part, anchor.format(*match.groups())
    if match := _SOURCE.fullmatch(where):
        return "code", source_anchor(match[1]) + (f"-L{match[2]}" if match[2] else "")
    return None


def _file_diff(path: str, old: str | None, new: str | None, max_lines: int) -> FileDiff:
    """None: there was no such file."""
    change = "new file" if old is None else "removed" if new is None else "emptied" if not new else ""
    old, new = old or "", new or ""
    if max(len(old), len(new)) > MAX_DIFFED:
        too_long = DiffLine("place", f"{max(len(old), len(new)):,} characters: too long to compare")
        return FileDiff(clean(path, 200), 0, 0, (too_long,), change)
    lines: list[DiffLine] = []
    n_added = n_removed = 0
    kinds = {"+": "add", "-": "remove", "@": "place"}
    # a line's end begins no other line
    before, after = (text.removesuffix("\n").split("\n") if text else [] for text in (old, new))
    for line in difflib.unified_diff(before, after, lineterm="", n=3):
        if line.startswith(("+++ ", "--- ")) and not lines:
            continue
        kind = kinds.get(line[:1], "same")
        n_added += kind == "add"
        n_removed += kind == "remove"
        if len(lines) < max_lines and not (change and kind == "place"):
            lines.append(DiffLine(kind, line[:1] + clean_lines(line[1:], 400) if kind != "place" else clean(line, 80)))
    return FileDiff(clean(path, 200), n_added, n_removed, tuple(lines), change)


def log_tail(path: Path, end: int | None = None) -> str:
    """The end of an untrusted log. end: bytes of it that are read; None: all."""
    try:
        with open_regular(path) as log:
            size = log.seek(0, 2)
            end = size if end is None else min(end, size)
            log.seek(max(0, end - LOG_TAIL))
            return clean_lines(log.read(min(end, LOG_TAIL)).decode(errors="replace"), LOG_TAIL)
    except OSError:
        return ""


def log_after(path: Path, offset: int) -> tuple[str, int]:
    """The whole lines of a log from a byte offset on, at most the last `LOG_TAIL` bytes, and the offset after them."""
    try:
        with open_regular(path) as log:
            size = log.seek(0, 2)
            start = max(offset, size - LOG_TAIL)
            log.seek(start)
            data = log.read(LOG_TAIL)
    except OSError:
        return "", offset
    # an incomplete last line is read again when its end is there
    whole = data[: data.rfind(b"\n") + 1]
    return clean_lines(whole.decode(errors="replace"), LOG_TAIL), start + len(whole)
