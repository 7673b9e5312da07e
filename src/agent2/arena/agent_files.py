"""What an agent's files say of its work, read without trusting them: command lines and training metrics.

Every file is opened relative to a directory descriptor and without following links, so a path that is swapped
meanwhile cannot lead out of the workspace. FIFOs and devices are skipped. Files may change between two reads, and
nothing deeper than `MAX_DEPTH` folders is read, because a program can nest more of them than a process has
descriptors.

Command lines come from the agent's own record: JSON lines in its log, or a file that it keeps. An agent without such
a record has process samples instead (`agent2.arena.recorder`). A log that was cut off, or a call that never ended, has
commands without an outcome, or none.

Training metrics come from `trainer_state.json` with a `log_history` (transformers, TRL) and from `*.jsonl` files whose
lines are flat objects of numbers with a `step`. Nothing is checked against the weights; values that are not finite are
left out.
"""

import json
import math
import os
import re
import shlex
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import islice
from pathlib import Path

import msgspec

from agent2.arena.agents import TranscriptFormat, TranscriptSpec
from agent2.arena.evidence import MAX_COMMAND_CHARS, CommandLine, MetricPoint
from agent2.arena.trial_folder import TrialPaths, read_events, write_events
from agent2.errors import Agent2Error
from agent2.files import numbered_lines
from agent2.foreign_files import open_regular
from agent2.records import JsonValue

MAX_FILES = 5_000
MAX_DEPTH = 64
MAX_TOTAL_BYTES = 256 * 1024 * 1024
"""Read in one walk."""

MAX_COMMANDS = 10_000
MAX_TRANSCRIPT_BYTES = 64 * 2**20
"""Of the file that an agent keeps; its values take some twenty times as much memory."""
MAX_LINE_BYTES = 16 * 2**20
LATEST = 2.0**32
"""Unix seconds; a later time than this one in 2106 is made up."""
MINI_END = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""mini-swe-agent ends by a command that prints this word; its return code says nothing."""
_CODE = re.compile(r"-?[0-9]{1,9}")
_SHELLS = ("bash", "sh", "zsh", "/bin/bash", "/bin/sh", "/bin/zsh", "/usr/bin/bash", "/usr/bin/sh", "/usr/bin/zsh")
_SHELL_FLAGS = ("-c", "-lc")
_WRAPPERS = tuple(f"{shell} {flag} " for shell in _SHELLS for flag in _SHELL_FLAGS)

MAX_METRICS_BYTES = 16 * 1024 * 1024
MAX_POINTS = 20_000
MAX_VALUES = 100
"""Of one point."""
MAX_NAME_CHARS = 200
MAX_STEP = 2**53
MAX_AGE_S = 30 * 24 * 3600.0
"""A point's own time counts if it is at most this long before the last change of its file, and not after it."""
STEP_KEYS = ("step", "global_step")
TIME_KEYS = ("t", "time", "timestamp")

_Row = Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class WorkspaceFile:
    """One regular file of the workspace."""

    path: str
    """Relative, with forward slashes; bytes that are not UTF-8 are escaped."""
    raw_path: bytes
    """The same as it is on disk."""
    size: int
    mtime: float
    data: bytes


def walk_files(
    root: Path,
    max_bytes: int,
    skip: frozenset[str] = frozenset(),
    max_total_bytes: int = MAX_TOTAL_BYTES,
    on_large: Callable[[str, int], None] = lambda path, size: None,
) -> Iterator[WorkspaceFile]:
    """Regular files of at most `max_bytes`, in a stable order, `MAX_FILES` and `max_total_bytes` together at most.

    skip: top-level names that are left out. on_large: called with path and size of each regular file that is larger.
    """
    count = total = 0
    for folder, folders, names, descriptor in os.fwalk(root, follow_symlinks=False):
        inside = Path(folder).relative_to(root)
        folders[:] = sorted(name for name in folders if not (inside == Path(".") and name in skip))
        if len(inside.parts) >= MAX_DEPTH:
            folders.clear()
        for name in sorted(names):
            if inside == Path(".") and name in skip:
                continue
            file = _read(descriptor, name, inside, max_bytes, on_large)
            if file is None:
                continue
            count += 1
            total += file.size
            if total > max_total_bytes:
                return
            yield file
            if count >= MAX_FILES:
                return


def _read(
    descriptor: int,
    name: str,
    inside: Path,
    max_bytes: int,
    on_large: Callable[[str, int], None] = lambda path, size: None,
) -> WorkspaceFile | None:
    """None for anything but a regular file of acceptable size that is still there."""
    try:
        # O_NONBLOCK: opening a FIFO without a writer would block
        handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=descriptor)
    except OSError:
        return None  # gone, a link, or a socket
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            return None
        if status.st_size > max_bytes:
            on_large(os.fsencode(inside / name).decode(errors="backslashreplace"), status.st_size)
            return None
        with open(handle, "rb", closefd=False) as stream:
            data = stream.read(max_bytes + 1)
    finally:
        os.close(handle)
    if len(data) > max_bytes:  # it grew after fstat
        return None
    raw_path = os.fsencode(inside / name)
    path = raw_path.decode(errors="backslashreplace")
    return WorkspaceFile(path=path, raw_path=raw_path, size=len(data), mtime=status.st_mtime, data=data)


def read_beneath(root: Path, path: str, max_bytes: int) -> bytes | None:
    """One regular file below `root`, reached without a link; None if there is none, or it is too large."""
    *folders, name = Path(path).parts
    if not name or ".." in folders or name == ".." or Path(path).is_absolute():
        return None
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # one component at a time: O_NOFOLLOW guards only the last component of a path
        for folder in folders:
            inner = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        file = _read(descriptor, name, Path(*folders), max_bytes)
    except OSError:
        return None  # a folder of the path is missing, or is a link
    finally:
        os.close(descriptor)
    return file.data if file is not None else None


def record_commands(transcript: TranscriptSpec | None, paths: TrialPaths) -> None:
    """Write the commands of the agent's own record to events/commands.jsonl; nothing without such a record."""
    if transcript is None:
        return
    started = paths.trial_log.stat().st_mtime
    rows = (
        {
            "t": command.t if command.t is not None else started,
            "is_timed": command.t is not None,
            "command": command.command,
            "exit_code": command.exit_code,
            "failed": command.failed,
        }
        for command in read_commands(transcript, paths.agent_log, paths.workspace)
    )
    write_events(paths.commands_log, "command", rows)


def read_commands(transcript: TranscriptSpec, log: Path, workspace: Path) -> list[CommandLine]:
    """The command lines in the order of the record, `MAX_COMMANDS` at most.

    log: what the agent printed. Raises Agent2Error if the file that the agent keeps is not there.
    """
    if transcript.path is None:
        rows: Iterable[JsonValue] = _json_lines(log)
    else:
        data = read_beneath(workspace, transcript.path, MAX_TRANSCRIPT_BYTES)
        if data is None:
            raise Agent2Error(f"the agent left no record of its commands at {transcript.path}")
        rows = _documents(data)
    objects = (row for row in rows if isinstance(row, dict))
    return [
        _bounded(command) for command, _ in zip(_READERS[transcript.format](objects), range(MAX_COMMANDS), strict=False)
    ]


def _bounded(command: CommandLine) -> CommandLine:
    text = command.command[:MAX_COMMAND_CHARS].encode("utf-8", "backslashreplace").decode()
    return CommandLine(text, command.t, command.exit_code, command.failed)


def _json_lines(path: Path) -> Iterator[JsonValue]:
    """Every line of a log that is a JSON object or array; other lines are ordinary output."""
    if not path.exists():
        return
    with open_regular(path) as file:
        while line := file.readline(MAX_LINE_BYTES):
            if line[:1] in b"{[" and (value := _decode(line)) is not None:
                yield value


def _documents(data: bytes) -> Iterator[JsonValue]:
    """One JSON document, or JSON lines."""
    whole = _decode(data)
    if isinstance(whole, list):
        yield from whole
    elif whole is not None:
        yield whole
    else:
        yield from (value for _, line in numbered_lines(data) if (value := _decode(line)) is not None)


def _codex(rows: Iterator[_Row]) -> Iterator[CommandLine]:
    """`codex exec --json`: items of type command_execution, reported when they start and when they end."""
    for row in rows:
        item = _part(row, "item")
        if row.get("type") == "item.completed" and item.get("type") == "command_execution":
            code = _int(item.get("exit_code"))
            yield CommandLine(_command_text(item.get("command")), None, code, None if code is None else code != 0)


def _claude_calls(row: _Row) -> Iterator[tuple[str, CommandLine]]:
    """`claude --output-format stream-json`: tool_use blocks of Bash, and tool_result blocks with their id."""
    for block in _blocks(row):
        if block.get("type") == "tool_use" and block.get("name") == "Bash":
            command = CommandLine(_command_text(_part(block, "input").get("command")), _time(row.get("timestamp")))
            yield str(block.get("id")), command


def _claude_results(row: _Row) -> Iterator[tuple[str, int | None, bool | None]]:
    for block in _blocks(row):
        if block.get("type") == "tool_result":
            yield str(block.get("tool_use_id")), None, bool(block.get("is_error"))


def _blocks(row: _Row) -> list[_Row]:
    content = _part(row, "message").get("content")
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _gemini_calls(row: _Row) -> Iterator[tuple[str, CommandLine]]:
    """`gemini -o stream-json`: tool_use of run_shell_command, and tool_result with its id."""
    if row.get("type") == "tool_use" and row.get("tool_name") == "run_shell_command":
        text = _command_text(_part(row, "parameters").get("command"))
        yield str(row.get("tool_id")), CommandLine(text, _time(row.get("timestamp")))


def _gemini_results(row: _Row) -> Iterator[tuple[str, int | None, bool | None]]:
    if row.get("type") == "tool_result":
        code = _code_in(str(row.get("output") or ""), "Exit Code:")
        failed = row.get("status") == "error" or (code is not None and code != 0)
        yield str(row.get("tool_id")), code, failed


def _opencode(rows: Iterator[_Row]) -> Iterator[CommandLine]:
    """`opencode run --format json`: parts of type tool, reported once they are over."""
    for row in rows:
        part = _part(row, "part")
        state = _part(part, "state")
        if part.get("type") == "tool" and part.get("tool") == "bash":
            code = _int(_part(state, "metadata").get("exit"))
            failed = state.get("status") == "error" if code is None else code != 0
            started = _time(_part(state, "time").get("start"))
            yield CommandLine(_command_text(_part(state, "input").get("command")), started, code, failed)


def _mini(rows: Iterator[_Row]) -> Iterator[CommandLine]:
    """mini-swe-agent's trajectory: actions of assistant messages, each followed by a message with its return code."""
    pending: list[CommandLine] = []
    for row in rows:
        messages = row.get("messages")
        for message in messages if isinstance(messages, list) else []:
            if not isinstance(message, dict):
                continue
            extra = _part(message, "extra")
            actions = extra.get("actions")
            for action in actions if isinstance(actions, list) else []:
                if isinstance(action, dict):
                    pending.append(CommandLine(_command_text(action.get("command")), _time(extra.get("timestamp"))))
            if "returncode" in extra and pending:  # results come in the order of the actions
                code, command = _int(extra.get("returncode")), pending.pop(0)
                code = None if MINI_END in command.command else code
                yield CommandLine(command.command, command.t, code, None if code is None else code != 0)
    yield from pending


def _openhands_calls(row: _Row) -> Iterator[tuple[str, CommandLine]]:
    """OpenHands' events: a terminal action and the observation that answers it."""
    action = _part(row, "action")
    command = action.get("command")
    if command is not None and "observation" not in row:
        yield (
            str(row.get("tool_call_id") or row.get("id")),
            CommandLine(_command_text(command), _time(row.get("timestamp"))),
        )


def _openhands_results(row: _Row) -> Iterator[tuple[str, int | None, bool | None]]:
    observation = _part(row, "observation")
    if observation:
        code = _int(observation.get("exit_code", _part(observation, "metadata").get("exit_code")))
        yield str(row.get("tool_call_id") or row.get("action_id")), code, None if code is None else code != 0


def _calls_and_results(
    rows: Iterator[_Row],
    calls: Callable[[_Row], Iterator[tuple[str, CommandLine]]],
    results: Callable[[_Row], Iterator[tuple[str, int | None, bool | None]]],
) -> Iterator[CommandLine]:
    """Commands in the order in which they were called, joined by id with their outcomes."""
    commands: dict[str, CommandLine] = {}
    for row in rows:
        for call, command in calls(row):
            if len(commands) < MAX_COMMANDS:
                commands[call] = _bounded(command)
        for call, code, failed in results(row):
            if call in commands:  # else the result of another tool
                commands[call] = CommandLine(commands[call].command, commands[call].t, code, failed)
    return iter(commands.values())


_READERS: Mapping[TranscriptFormat, Callable[[Iterator[_Row]], Iterator[CommandLine]]] = {
    TranscriptFormat.CODEX: _codex,
    TranscriptFormat.CLAUDE_CODE: partial(_calls_and_results, calls=_claude_calls, results=_claude_results),
    TranscriptFormat.GEMINI_CLI: partial(_calls_and_results, calls=_gemini_calls, results=_gemini_results),
    TranscriptFormat.OPENCODE: _opencode,
    TranscriptFormat.MINI_SWE_AGENT: _mini,
    TranscriptFormat.OPENHANDS: partial(_calls_and_results, calls=_openhands_calls, results=_openhands_results),
}


def _part(row: _Row, key: str) -> _Row:
    value = row.get(key)
    return value if isinstance(value, dict) else {}


def _command_text(command: JsonValue) -> str:
    """The command as text, without a shell that only wraps it."""
    if isinstance(command, list):
        argv = [str(word) for word in command]
    else:
        text = str(command)
        if not text.startswith(_WRAPPERS):
            return text
        try:
            argv = shlex.split(text)
        except ValueError:  # an unclosed quote: the record is cut off, or this is not shell syntax
            return text
    if len(argv) == 3 and argv[0] in _SHELLS and argv[1] in _SHELL_FLAGS:
        return argv[2]
    return shlex.join(argv) if isinstance(command, list) else str(command)


def _int(value: JsonValue) -> int | None:
    """An exit code; None for a number that is not an exit code on any system."""
    is_code = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**32
    return value if is_code else None


def _code_in(text: str, label: str) -> int | None:
    _, separator, tail = text.rpartition(label)
    word = tail.split()[:1]
    return int(word[0]) if separator and word and _CODE.fullmatch(word[0]) else None


def _time(value: JsonValue) -> float | None:
    """Unix seconds from ISO text, seconds or milliseconds; None for a time before 1970 or after `LATEST`."""
    seconds: float | None = None
    try:
        if isinstance(value, str):
            seconds = datetime.fromisoformat(value).timestamp()
        elif isinstance(value, int | float) and not isinstance(value, bool):
            seconds = value / 1000 if value > 1e11 else float(value)  # 1e11 s is the year 5138: milliseconds
    except (ValueError, OverflowError):
        return None
    return seconds if seconds is not None and 0 <= seconds < LATEST else None


def record_metrics(workspace: Path, log: Path) -> None:
    """Write the training metrics that are in the workspace now to a log, replacing what the log held."""
    write_events(
        log,
        "metric",
        ({"t": p.t, "file": p.file, "step": p.step, "values": dict(p.values)} for p in find_metrics(workspace)),
    )


def read_metrics(log: Path) -> list[MetricPoint]:
    """The points of a log that `record_metrics` wrote; none where there is no log."""
    return [msgspec.convert(row, MetricPoint, strict=False) for row in read_events(log).rows]


def find_metrics(workspace: Path) -> list[MetricPoint]:
    """All points of all training logs in the workspace, file by file; `MAX_POINTS` at most."""
    files = walk_files(workspace, MAX_METRICS_BYTES, skip=frozenset({"data", ".grader"}))
    return list(islice((point for file in files for point in _points(file)), MAX_POINTS))


def _points(file: WorkspaceFile) -> Iterator[MetricPoint]:
    for row in _rows(file):
        values = {_name(key): number for key, value in row.items() if (number := _number(value)) is not None}
        step = next((values[key] for key in STEP_KEYS if key in values), None)
        measured = {key: value for key, value in values.items() if key not in STEP_KEYS + TIME_KEYS}
        if step is None or abs(step) > MAX_STEP or not measured:
            continue
        logged_at = next((values[key] for key in TIME_KEYS if key in values), file.mtime)
        t = logged_at if file.mtime - MAX_AGE_S <= logged_at <= file.mtime + 1 else file.mtime
        yield MetricPoint(t=t, file=file.path, step=int(step), values=dict(islice(measured.items(), MAX_VALUES)))


def _rows(file: WorkspaceFile) -> Iterator[dict[str, JsonValue]]:
    name = file.path.rsplit("/", 1)[-1]
    if name == "trainer_state.json":
        state = _decode(file.data)
        history = state.get("log_history") if isinstance(state, dict) else None
        if isinstance(history, list):
            yield from (row for row in history if isinstance(row, dict))
    elif name.endswith(".jsonl"):
        yield from (row for _, line in numbered_lines(file.data) if isinstance(row := _decode(line), dict))


def _decode(data: bytes) -> JsonValue:
    """A JSON value, also with the NaN that Python's own writer leaves; None for anything else."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass  # the slower reader takes NaN
    if b"NaN" not in data and b"Infinity" not in data:
        return None
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _name(key: str) -> str:
    return key[:MAX_NAME_CHARS].encode("utf-8", "backslashreplace").decode()[:MAX_NAME_CHARS]


def _number(value: JsonValue) -> float | None:
    """A finite number; None for everything else."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
