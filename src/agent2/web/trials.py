"""A trial while it runs and afterwards: what happened when, what the agent and its LLM said, how its code changed.

Read from the trial's logs alone, so it works for a trial that is running, was killed, or is damaged in parts: what
cannot be read is named, and the rest is shown. Everything that an agent wrote is cleaned and bounded here.
"""

import difflib
import hashlib
import os
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np

from agent2.arena.evidence import SubmissionRecord
from agent2.arena.gateway.protocols import SseSplitter
from agent2.arena.gateway.recording import Exchange, read_body, read_exchanges
from agent2.arena.recorder import RevisionReader, open_revisions
from agent2.arena.recording import read_submissions_of
from agent2.arena.trial_folder import TrialPaths, read_events
from agent2.errors import Agent2Error
from agent2.records import JsonValue
from agent2.reports.text import clean, clean_lines, dollars, duration, score_words, size

MAX_MOMENTS = 5_000
MAX_TURN = 20_000
"""Characters of one message of a transcript."""
MAX_MESSAGES = 2_000
MAX_DIFF_LINES = 4_000
"""Of all revisions together."""
MAX_DIFFED = 200_000
"""Characters of a file."""
MAX_SOURCES, MAX_SOURCE_LINES = 60, 3_000
SOURCE_ENDS = (".py", ".sh", ".json", ".yaml", ".yml", ".toml")
"""Of files that are shown with numbered lines."""
LOG_TAIL = 20_000

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
    """Something that happened in a trial."""

    lane: str
    t: float
    """Unix seconds."""
    end: float
    """The same where it took no time."""
    words: str
    mark: str = ""
    """pass, fail or partial, where it is good or bad news."""
    anchor: str = ""
    """What evidence names it by, as part of an address: `process-12`, `submission-3`."""


@dataclass(frozen=True, slots=True)
class TimeBar:
    """A moment on the axis, in percent of its length."""

    left: float
    width: float
    words: str
    mark: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """Everything on one axis of time."""

    lanes: tuple[tuple[str, tuple[TimeBar, ...]], ...]
    ticks: tuple[tuple[float, str], ...]
    """Place in percent, and its label."""
    loads: tuple["LoadLane", ...]
    """What the agent's processes used of the machine."""
    rows: tuple[tuple[str, str, str, str, str], ...]
    """(when, lane, what, mark, anchor), in order."""
    problems: tuple[str, ...]
    n_left_out: int


@dataclass(frozen=True, slots=True)
class LoadLane:
    """One resource on the axis, in as many steps as `LOAD_STEPS`."""

    name: str
    most: str
    steps: tuple[tuple[float, str], ...]
    """(percent of the most, what it is in words), one after the other."""


LOAD_STEPS = 120


def loads_of(paths: TrialPaths, first: float, last: float) -> tuple[LoadLane, ...]:
    """Processor and memory of the agent's processes that have ended, over a stretch of time; empty without any.

    The log has one line for each process: its processor time is spread evenly over its life, and its memory is its
    peak, so the lanes are means and upper bounds.
    """
    cores, memory = np.zeros(LOAD_STEPS), np.zeros(LOAD_STEPS)
    step_s = max(last - first, 1e-3) / LOAD_STEPS
    edges = first + step_s * np.arange(LOAD_STEPS + 1)
    for row in read_events(paths.processes_log).rows:
        begun, ended = float(row["first_seen"]), float(row["last_seen"])
        held = np.clip(np.minimum(edges[1:], ended) - np.maximum(edges[:-1], begun), 0.0, None) / step_s
        cores += held * float(row.get("cpu_s") or 0.0) / max(ended - begun, 1.0)
        memory += (held > 0) * float(row.get("max_rss_bytes") or 0)
    told = (("CPU", cores, lambda value: f"{value:.1f} cores"), ("memory", memory, size))
    return tuple(
        LoadLane(
            name,
            f"up to {words(float(values.max()))}",
            tuple(
                (round(100 * float(value / values.max()), 1), f"{duration(step_s * place)}: {words(float(value))}")
                for place, value in enumerate(values)
            ),
        )
        for name, values, words in told
        if values.max() > 0
    )


def read_moments(paths: TrialPaths) -> tuple[list[Moment], list[str]]:
    """What the logs of a trial tell, in order of time, and what could not be read."""
    moments: list[Moment] = []
    problems: list[str] = []
    for lane, read in (
        ("phases", _phases), ("events", _events), ("submissions", _submissions), ("LLM calls", _calls), ("code", _code),
        ("processes", _processes), ("GPUs", _gpus), ("interventions", _interventions),
    ):  # fmt: skip
        try:
            moments += read(paths, lane)
        except (Agent2Error, OSError, sqlite3.Error, LookupError, TypeError, ValueError) as error:
            problems.append(clean(f"{lane}: cannot be read ({error})"))
    return sorted(moments, key=lambda one: one.t), problems


def timeline_of(paths: TrialPaths, now: float | None = None) -> Timeline | None:
    """The timeline of a trial; None before its first event. now: Unix seconds, of a trial that is running."""
    moments, problems = read_moments(paths)
    if not moments:
        return None
    first, last = moments[0].t, max(now or 0.0, *(one.end for one in moments))
    if now is not None:
        open_phase = next(one for one in reversed(moments) if one.lane == "phases")
        moments = [replace(one, end=last) if one is open_phase else one for one in moments]
    span = max(last - first, 1e-3)
    lanes: dict[str, list[TimeBar]] = {}
    for one in moments[:MAX_MOMENTS]:
        left = 100 * (one.t - first) / span
        bar = TimeBar(
            round(left, 3),
            round(100 * (one.end - one.t) / span, 3),
            f"{duration(one.t - first)}: {one.words}",
            one.mark,
        )
        lanes.setdefault(one.lane, []).append(bar)
    ticks = tuple((place * 20.0, duration(span * place / 5)) for place in range(6))
    rows = tuple((duration(one.t - first), one.lane, one.words, one.mark, one.anchor) for one in moments[:MAX_MOMENTS])
    drawn = tuple((lane, tuple(bars)) for lane, bars in lanes.items())
    try:
        loads = loads_of(paths, first, last)
    except (Agent2Error, OSError, LookupError, TypeError, ValueError) as error:
        loads, problems = (), [*problems, clean(f"resources: cannot be read ({error})")]
    return Timeline(drawn, ticks, loads, rows, tuple(problems), max(0, len(moments) - MAX_MOMENTS))


def event_words(row: Mapping[str, JsonValue]) -> str:
    """One event of a trial's log in words."""
    name = str(row.get("event", ""))
    words = EVENT_WORDS.get(name, name.replace("_", " "))
    score = row.get("score")
    if isinstance(score, dict) and isinstance(score.get("value"), int | float):
        words += f": {100 * score['value']:.1f}%"
    told = [str(row[key]) for key in ("split", "end", "reason") if row.get(key)]
    return clean(f"{words} ({', '.join(told)})" if told else words, 300)


PHASE_ENDS = (
    ("agent_started", "base model scored on public items"),
    ("agent_ended", "agent phase"),
    ("graded", "submissions evaluated"),
    ("final_scored", "final evaluation and noise band"),
    ("audited", "integrity audit"),
)
"""Event with which a phase ends -> the phase."""


def _phases(paths: TrialPaths, lane: str) -> Iterator[Moment]:
    """From the first event on; the phase that is not over ends with the last event."""
    rows = read_events(paths.trial_log).rows
    begun = float(rows[0]["t"]) if rows else 0.0
    for event, words in PHASE_ENDS:
        ends = [float(row["t"]) for row in rows if row.get("event") == event]
        if not ends:
            yield Moment(lane, begun, max([begun, *(float(row["t"]) for row in rows)]), words)
            return
        if ends[-1] > begun:
            yield Moment(lane, begun, ends[-1], f"{words}, {duration(ends[-1] - begun)}")
        begun = max(begun, ends[-1])


def _events(paths: TrialPaths, lane: str) -> Iterator[Moment]:
    for row in read_events(paths.trial_log).rows:
        bad = row.get("event") in ("agent_interrupted", "recording_failed")
        yield Moment(lane, float(row["t"]), float(row["t"]), event_words(row), "fail" if bad else "")


def _submissions(paths: TrialPaths, lane: str) -> Iterator[Moment]:
    for one in read_submissions_of(paths):
        end = one.finished_at or one.received_at
        mark = "pass" if one.score is not None else "partial"
        yield Moment(lane, one.received_at, end, submission_words(one), mark, f"submission-{one.number}")


def submission_words(one: SubmissionRecord) -> str:
    """A submission in one line."""
    told = score_words(one.score, one.state.value)
    reason = f": {one.reason}" if one.reason else ""
    return clean(f"submission {one.number}: {told}{reason}", 300)


def _calls(paths: TrialPaths, lane: str) -> Iterator[Moment]:
    for call in read_exchanges(paths.llm):
        words = f"call {call.id}: {call.tokens.input:,} tokens in, {call.tokens.output:,} out, {dollars(call.dollars)}"
        is_ok = call.outcome.value == "ok"
        words += "" if is_ok else f", {call.outcome.value}: {call.fault}"
        end = call.started_at + (call.latency_s or 0.0)
        yield Moment(lane, call.started_at, end, clean(words, 300), "" if is_ok else "fail")


def _code(paths: TrialPaths, lane: str) -> Iterator[Moment]:
    for row in read_events(paths.revisions_log).rows:
        number = row.get("submission")
        words = f"revision {str(row.get('id', ''))[:10]}" + (f" for submission {number}" if number else "")
        yield Moment(lane, float(row["t"]), float(row["t"]), clean(words))


def _processes(paths: TrialPaths, lane: str) -> Iterator[Moment]:
    for row in read_events(paths.processes_log).rows:
        first, last = float(row["first_seen"]), float(row["last_seen"])
        used = f"{duration(float(row.get('cpu_s') or 0.0))} of CPU, {size(float(row.get('max_rss_bytes') or 0))}"
        words = f"{clean(' '.join(map(str, row.get('command', ()))), 160)} ({used})"
        yield Moment(lane, first, last, words, "", f"process-{int(row['pid'])}" if row.get("pid") else "")


def _gpus(paths: TrialPaths, lane: str) -> Iterator[Moment]:
    for row in read_events(paths.gpu_log).rows:
        seconds, n = row.get("seconds"), row.get("n_gpus")
        told = duration(float(seconds)) if isinstance(seconds, int | float) else "an unknown time"
        yield Moment(lane, float(row["t"]), float(row["t"]), f"{n} GPUs worked {told} for the agent until here")


def _interventions(paths: TrialPaths, lane: str) -> Iterator[Moment]:
    for row in read_events(paths.interventions_log).rows:
        words = f"intervention by {row.get('by') or 'somebody'}: {row.get('note', '')}"
        yield Moment(lane, float(row["t"]), float(row["t"]), clean(words, 300), "partial")


@dataclass(frozen=True, slots=True)
class TranscriptTurn:
    """One message between an agent and its LLM."""

    anchor: str
    role: str
    """system, user, assistant or tool; decides what a toggle hides."""
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Transcript:
    """What an agent and its LLM said, each message once."""

    turns: tuple[TranscriptTurn, ...]
    problems: tuple[str, ...]
    n_left_out: int


def transcript_of(paths: TrialPaths) -> Transcript | None:
    """The recorded conversation: of each call the messages that the call before did not have, and the answer.

    None for an agent without a driver. Raises RecordingError if the record of the calls is damaged.
    """
    exchanges = [one for one in read_exchanges(paths.llm) if one.kind == "generate"]
    if not exchanges:
        return None
    turns: list[TranscriptTurn] = []
    problems: list[str] = []
    before: list[tuple[str, str]] = []
    for exchange in exchanges:
        if len(turns) >= MAX_MESSAGES:
            break
        asked = _messages(exchange, problems)
        n_known = _common(before, asked)
        fresh = [said for said in asked[n_known:] if not (said[0] == "assistant" and before and n_known == len(before))]
        answer = _answer(exchange, problems)
        for place, (role, text) in enumerate(fresh, start=1):
            title = f"call {exchange.id}: {clean(role, 40)}"
            turns.append(TranscriptTurn(f"c{exchange.id}-{place}", _role(role), title, clean_lines(text, MAX_TURN)))
        seconds = duration(exchange.latency_s) if exchange.latency_s is not None else "no end"
        title = f"call {exchange.id}: {clean(exchange.model, 60)} ({seconds}, {exchange.tokens.output:,} tokens)"
        turns.append(TranscriptTurn(f"c{exchange.id}", "assistant", title, clean_lines(answer, MAX_TURN)))
        before = asked
    left_out = sum(1 for one in exchanges if f"c{one.id}" not in {turn.anchor for turn in turns})
    return Transcript(tuple(turns), tuple(problems), left_out)


def _role(role: str) -> str:
    known = {"system": "system", "developer": "system", "user": "user", "tool": "tool", "function": "tool"}
    return known.get(role, "assistant" if role in ("assistant", "model") else "tool")


def _common(before: Sequence[tuple[str, str]], now: Sequence[tuple[str, str]]) -> int:
    """How many messages at the beginning are the same."""
    return next(
        (n for n, (one, other) in enumerate(zip(before, now, strict=False)) if one != other), min(len(before), len(now))
    )


def _body(exchange: Exchange, path: Path | None, side: str, problems: list[str]) -> bytes:
    if path is None:
        problems.append(f"call {exchange.id}: its {side} was not kept")
        return b""
    try:
        return read_body(path)
    except Agent2Error as error:
        problems.append(clean(f"call {exchange.id}: {error}"))
        return b""


def _messages(exchange: Exchange, problems: list[str]) -> list[tuple[str, str]]:
    """(role, text) of what was sent, whichever the protocol."""
    body = _decoded(_body(exchange, exchange.request, "request", problems))
    if not isinstance(body, dict):
        return []
    found = [("system", _text(body[key])) for key in ("system", "instructions", "systemInstruction") if body.get(key)]
    listed: Any = next((body[key] for key in ("messages", "input", "contents") if body.get(key)), [])
    for one in listed if isinstance(listed, list) else [{"role": "user", "content": listed}]:
        if isinstance(one, dict):
            role = str(one.get("role") or ("tool" if "output" in one else "assistant"))
            found.append((role, _text(one)))
    return found


def _answer(exchange: Exchange, problems: list[str]) -> str:
    """What came back, as text; of a stream its pieces put together."""
    data = _body(exchange, exchange.response, "answer", problems)
    if not data:
        return f"({exchange.outcome.value}: {exchange.fault or 'no answer'})"
    whole = _decoded(data)
    if whole is None:
        pieces = [_decoded(event.data) for event in SseSplitter().feed(data + b"\n\n")]
        last = next(
            (one["response"] for one in reversed(pieces) if isinstance(one, dict) and one.get("response")), None
        )
        told = _text(last.get("output")) if isinstance(last, dict) else ""
        text = told or "".join(_piece(one) for one in pieces)
        return text or data.decode(errors="replace")
    return _text(whole) or data.decode(errors="replace")


def _piece(event: JsonValue) -> str:
    """The text that one event of a stream adds."""
    if not isinstance(event, dict):
        return ""
    if isinstance(event.get("delta"), str):
        return str(event["delta"]) if str(event.get("type")).endswith(".delta") else ""
    told = event.get("delta") or event.get("content_block") or event.get("choices") or event.get("candidates")
    return _text(told)


_PARTS = (
    "choices", "candidates", "message", "delta", "output", "content", "parts", "text", "reasoning_content", "thinking",
    "summary", "tool_calls", "partial_json", "refusal", "error",
)  # fmt: skip
"""Fields in which the protocols keep what was said, outermost first."""


def _text(value: JsonValue, depth: int = 0) -> str:
    """The text in a message of any of the protocols; calls of tools as `name(arguments)`."""
    if isinstance(value, str) or depth > 12:
        return value if isinstance(value, str) else ""
    if isinstance(value, list):
        return "\n".join(text for one in value if (text := _text(one, depth + 1)))
    if not isinstance(value, dict):
        return ""
    call: dict[str, Any] = value["function"] if isinstance(value.get("function"), dict) else value
    call = value["functionCall"] if isinstance(value.get("functionCall"), dict) else call
    if isinstance(call.get("name"), str) and ({"arguments", "input", "args"} & call.keys()):
        given = next(call[key] for key in ("arguments", "input", "args") if key in call)
        shown = given if isinstance(given, str) else msgspec.json.encode(given).decode()
        return f"{call['name']}({shown})"
    if isinstance(value.get("functionResponse"), dict):
        return msgspec.json.encode(value["functionResponse"].get("response")).decode()
    return "\n".join(text for key in _PARTS if key in value and (text := _text(value[key], depth + 1)))


def _decoded(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


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


@dataclass(frozen=True, slots=True)
class RevisionDiff:
    """What one code revision changed."""

    id: str
    when: str
    submission: int | None
    files: tuple[FileDiff, ...]


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file as it was at the end."""

    path: str
    anchor: str
    """Line 3 has `-L3` behind it."""
    lines: tuple[str, ...]


def revision_diffs(paths: TrialPaths) -> tuple[list[RevisionDiff], list[SourceFile], list[str]]:
    """Every revision as diffs against the one before; the newest files; what could not be read or was left out."""
    rows = [row for row in read_events(paths.revisions_log).rows if isinstance(row.get("id"), str)]
    started = read_events(paths.trial_log).last("agent_started")
    problems: list[str] = []
    own = _program(paths.agent)
    repository = open_revisions(paths.revisions_git) if rows else None
    if repository is None:
        return [], _sources(own), ["revisions.git: cannot be read"] if rows else problems
    found: list[RevisionDiff] = []
    left = MAX_DIFF_LINES
    begun = float(started["t"]) if started is not None else float(rows[0]["t"])
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
                diff = _file_diff(path, before.get(path, ""), files.get(path, ""), left)
                left -= len(diff.lines)
                diffs.append(diff)
            before = files
            number = row.get("submission")
            when = duration(max(0.0, float(row["t"]) - begun))
            if diffs or number is not None:
                found.append(RevisionDiff(clean(row["id"][:10]), when, number, tuple(diffs)))
    finally:
        repository.close()
    if left <= 0:
        problems.append(f"only the first {MAX_DIFF_LINES} changed lines are shown; `git` reads all: revisions.git")
    return found, _sources(own | before), problems


def _program(folder: Path) -> dict[str, str]:
    """Texts of the agent's own program, by the path that it has in the sandbox."""
    found: dict[str, str] = {}
    if folder.is_symlink():
        return found
    for path in sorted(folder.rglob("*")):
        if len(found) < MAX_SOURCES and path.is_file() and not path.is_symlink() and path.stat().st_size <= MAX_DIFFED:
            data = path.read_bytes()
            if b"\0" not in data:
                found[f"/agent/{path.relative_to(folder)}"] = data.decode(errors="replace")
    return found


def _sources(texts: Mapping[str, str]) -> list[SourceFile]:
    """Files with numbered lines, so far as there is room; what holds no code is left to the diffs."""
    found: list[SourceFile] = []
    left = MAX_SOURCE_LINES
    for path, text in texts.items():
        if path.endswith(SOURCE_ENDS) and len(text) <= MAX_DIFFED and left > 0:
            lines = text.splitlines()[:left]
            left -= len(lines)
            found.append(SourceFile(clean(path, 200), source_anchor(path), tuple(clean_lines(x, 400) for x in lines)))
    return found


def source_anchor(path: str) -> str:
    """The name of a file as part of an address."""
    return "f-" + hashlib.sha256(path.encode("utf-8", "surrogatepass")).hexdigest()[:10]


_EVIDENCE = (
    (re.compile(r"process (\d+)"), "timeline", "process-{}"),
    (re.compile(r"submission (\d+)"), "timeline", "submission-{}"),
    (re.compile(r"events/\w+\.jsonl"), "timeline", ""),
    (re.compile(r"llm/exchanges\.jsonl: call (\d+)"), "transcript", "c{}"),
    (re.compile(r"agent\.log"), "transcript", "agent-log"),
)
_SOURCE = re.compile(rf"(\S+(?:{'|'.join(map(re.escape, SOURCE_ENDS))}))(?::(\d+)|: .*)?")


def evidence_anchor(where: str) -> tuple[str, str] | None:
    """(page of the trial, anchor on it) of what a verdict names as its evidence; None if no page has it."""
    for pattern, part, anchor in _EVIDENCE:
        if found := pattern.fullmatch(where):
            return part, anchor.format(*found.groups())
    if found := _SOURCE.fullmatch(where):
        return "code", source_anchor(found[1]) + (f"-L{found[2]}" if found[2] else "")
    return None


def _file_diff(path: str, old: str, new: str, most: int) -> FileDiff:
    if max(len(old), len(new)) > MAX_DIFFED:
        return FileDiff(clean(path, 200), 0, 0, (DiffLine("place", f"{len(new):,} characters: too long to compare"),))
    told: list[DiffLine] = []
    n_added = n_removed = 0
    kinds = {"+": "add", "-": "remove", "@": "place"}
    before, after = (text.split("\n") if text else [] for text in (old, new))
    for line in difflib.unified_diff(before, after, lineterm="", n=3):
        if line.startswith(("+++ ", "--- ")) and not told:
            continue
        kind = kinds.get(line[:1], "same")
        n_added += kind == "add"
        n_removed += kind == "remove"
        if len(told) < most:
            told.append(DiffLine(kind, line[:1] + clean_lines(line[1:], 400) if kind != "place" else clean(line, 80)))
    return FileDiff(clean(path, 200), n_added, n_removed, tuple(told))


def _opened(path: Path) -> BinaryIO:
    """A file of a trial's folder, never one that a link names: that may be anywhere. Raises OSError."""
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb")


def log_tail(path: Path, end: int | None = None) -> str:
    """The end of a log that anybody may have written. end: bytes of it that are read; None: all."""
    try:
        with _opened(path) as log:
            size = log.seek(0, 2)
            end = size if end is None else min(end, size)
            log.seek(max(0, end - LOG_TAIL))
            return clean_lines(log.read(min(end, LOG_TAIL)).decode(errors="replace"), LOG_TAIL)
    except OSError:
        return ""


def log_after(path: Path, place: int) -> tuple[str, int]:
    """The whole lines that a log got after a byte, and the byte after them; of very much the end."""
    try:
        with _opened(path) as log:
            size = log.seek(0, 2)
            log.seek(max(place, size - LOG_TAIL))
            data = log.read(LOG_TAIL)
    except OSError:
        return "", place
    whole = data[: data.rfind(b"\n") + 1]
    return clean_lines(whole.decode(errors="replace"), LOG_TAIL), max(place, size - LOG_TAIL) + len(whole)
