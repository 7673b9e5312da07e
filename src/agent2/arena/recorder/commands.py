"""The command lines that an agent says it ran, from its own record: JSON lines in its log, or a file it keeps.

What is read is the agent's writing: bounded, decoded without trust, and evidence about behaviour only. Each format
is understood as far as command lines go; lines of other kinds are passed over. An agent without a record of its
own has process samples instead (`recorder.processes`).

Does NOT promise completeness: a log that was cut in the middle, or a call that never ended, has commands without
an outcome, or none.
"""

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path

import msgspec

from agent2.arena.eventlog import write_events
from agent2.arena.evidence import CommandLine
from agent2.arena.paths import TrialPaths
from agent2.arena.recorder.files import read_beneath
from agent2.arena.systems.spec import TranscriptFormat, TranscriptSpec
from agent2.errors import Agent2Error
from agent2.files import numbered_lines
from agent2.records import JsonValue

MAX_COMMANDS = 10_000
MAX_COMMAND_CHARS = 4_000
MAX_FILE_BYTES = 64 * 2**20
"""Of the file that an agent keeps; its values take some twenty times as much memory."""
MAX_LINE_BYTES = 16 * 2**20
LATEST = 2.0**32
"""Unix seconds; a later time than this one in 2106 is made up."""
_CODE = re.compile(r"-?[0-9]{1,9}")
_SHELLS = ("bash", "sh", "zsh", "/bin/bash", "/bin/sh", "/bin/zsh", "/usr/bin/bash", "/usr/bin/sh", "/usr/bin/zsh")
_SHELL_FLAGS = ("-c", "-lc")
_WRAPPERS = tuple(f"{shell} {flag} " for shell in _SHELLS for flag in _SHELL_FLAGS)
MINI_END = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""mini-swe-agent ends by a command that prints this word; its return code says nothing."""

_Row = Mapping[str, JsonValue]


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
        data = read_beneath(workspace, transcript.path, MAX_FILE_BYTES)
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
    """Every line of a log that is a JSON value; others are the program's talk."""
    if not path.exists():
        return
    with path.open("rb") as file:
        while line := file.readline(MAX_LINE_BYTES):
            if line[:1] in b"{[" and (value := _decoded(line)) is not None:
                yield value


def _documents(data: bytes) -> Iterator[JsonValue]:
    """One JSON document, or JSON lines."""
    whole = _decoded(data)
    if isinstance(whole, list):
        yield from whole
    elif whole is not None:
        yield whole
    else:
        yield from (value for _, line in numbered_lines(data) if (value := _decoded(line)) is not None)


def _decoded(data: bytes) -> JsonValue:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _codex(rows: Iterator[_Row]) -> Iterator[CommandLine]:
    """`codex exec --json`: items of type command_execution, told when they start and when they end."""
    for row in rows:
        item = _part(row, "item")
        if row.get("type") == "item.completed" and item.get("type") == "command_execution":
            code = _int(item.get("exit_code"))
            yield CommandLine(_words(item.get("command")), None, code, None if code is None else code != 0)


def _claude(rows: Iterator[_Row]) -> Iterator[CommandLine]:
    """`claude --output-format stream-json`: tool_use blocks of Bash, and tool_result blocks with their id."""
    return _calls_and_results(rows, _claude_calls, _claude_results)


def _claude_calls(row: _Row) -> Iterator[tuple[str, CommandLine]]:
    for block in _blocks(row):
        if block.get("type") == "tool_use" and block.get("name") == "Bash":
            command = CommandLine(_words(_part(block, "input").get("command")), _time(row.get("timestamp")))
            yield str(block.get("id")), command


def _claude_results(row: _Row) -> Iterator[tuple[str, int | None, bool | None]]:
    for block in _blocks(row):
        if block.get("type") == "tool_result":
            yield str(block.get("tool_use_id")), None, bool(block.get("is_error"))


def _blocks(row: _Row) -> list[_Row]:
    content = _part(row, "message").get("content")
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _gemini(rows: Iterator[_Row]) -> Iterator[CommandLine]:
    """`gemini -o stream-json`: tool_use of run_shell_command, and tool_result with its id."""
    return _calls_and_results(rows, _gemini_calls, _gemini_results)


def _gemini_calls(row: _Row) -> Iterator[tuple[str, CommandLine]]:
    if row.get("type") == "tool_use" and row.get("tool_name") == "run_shell_command":
        words = _words(_part(row, "parameters").get("command"))
        yield str(row.get("tool_id")), CommandLine(words, _time(row.get("timestamp")))


def _gemini_results(row: _Row) -> Iterator[tuple[str, int | None, bool | None]]:
    if row.get("type") == "tool_result":
        code = _code_in(str(row.get("output") or ""), "Exit Code:")
        failed = row.get("status") == "error" or (code is not None and code != 0)
        yield str(row.get("tool_id")), code, failed


def _opencode(rows: Iterator[_Row]) -> Iterator[CommandLine]:
    """`opencode run --format json`: parts of type tool, told once they are over."""
    for row in rows:
        part = _part(row, "part")
        state = _part(part, "state")
        if part.get("type") == "tool" and part.get("tool") == "bash":
            code = _int(_part(state, "metadata").get("exit"))
            failed = state.get("status") == "error" if code is None else code != 0
            started = _time(_part(state, "time").get("start"))
            yield CommandLine(_words(_part(state, "input").get("command")), started, code, failed)


def _mini(rows: Iterator[_Row]) -> Iterator[CommandLine]:
    """mini-swe-agent's trajectory: actions of assistant messages, each followed by a message with its return code."""
    waiting: list[CommandLine] = []
    for row in rows:
        messages = row.get("messages")
        for message in messages if isinstance(messages, list) else []:
            if not isinstance(message, dict):
                continue
            extra = _part(message, "extra")
            actions = extra.get("actions")
            for action in actions if isinstance(actions, list) else []:
                if isinstance(action, dict):
                    waiting.append(CommandLine(_words(action.get("command")), _time(extra.get("timestamp"))))
            if "returncode" in extra and waiting:
                code, command = _int(extra.get("returncode")), waiting.pop(0)
                code = None if MINI_END in command.command else code
                yield CommandLine(command.command, command.t, code, None if code is None else code != 0)
    yield from waiting


def _openhands(rows: Iterator[_Row]) -> Iterator[CommandLine]:
    """OpenHands' events: a terminal action and the observation that answers it."""
    return _calls_and_results(rows, _openhands_calls, _openhands_results)


def _openhands_calls(row: _Row) -> Iterator[tuple[str, CommandLine]]:
    action = _part(row, "action")
    command = action.get("command")
    if command is not None and "observation" not in row:
        yield str(row.get("tool_call_id") or row.get("id")), CommandLine(_words(command), _time(row.get("timestamp")))


def _openhands_results(row: _Row) -> Iterator[tuple[str, int | None, bool | None]]:
    observation = _part(row, "observation")
    if observation:
        code = _int(observation.get("exit_code", _part(observation, "metadata").get("exit_code")))
        yield str(row.get("tool_call_id") or row.get("action_id")), code, None if code is None else code != 0


_READERS: Mapping[TranscriptFormat, Callable[[Iterator[_Row]], Iterator[CommandLine]]] = {
    TranscriptFormat.CODEX: _codex,
    TranscriptFormat.CLAUDE_CODE: _claude,
    TranscriptFormat.GEMINI_CLI: _gemini,
    TranscriptFormat.OPENCODE: _opencode,
    TranscriptFormat.MINI_SWE_AGENT: _mini,
    TranscriptFormat.OPENHANDS: _openhands,
}


def _calls_and_results(
    rows: Iterator[_Row],
    calls: Callable[[_Row], Iterator[tuple[str, CommandLine]]],
    results: Callable[[_Row], Iterator[tuple[str, int | None, bool | None]]],
) -> Iterator[CommandLine]:
    """Commands in the order in which they were called, joined by id with what came of them."""
    found: dict[str, CommandLine] = {}
    for row in rows:
        for call, command in calls(row):
            if len(found) < MAX_COMMANDS:
                found[call] = _bounded(command)
        for call, code, failed in results(row):
            if call in found:
                found[call] = CommandLine(found[call].command, found[call].t, code, failed)
    return iter(found.values())


def _part(row: _Row, key: str) -> _Row:
    value = row.get(key)
    return value if isinstance(value, dict) else {}


def _words(command: JsonValue) -> str:
    """The command as text; a shell that only wraps it is left out."""
    if isinstance(command, list):
        words = [str(word) for word in command]
    else:
        text = str(command)
        if not text.startswith(_WRAPPERS):
            return text
        try:
            words = shlex.split(text)
        except ValueError:  # a quote that never closes: cut off, or no shell's
            return text
    if len(words) == 3 and words[0] in _SHELLS and words[1] in _SHELL_FLAGS:
        return words[2]
    return shlex.join(words) if isinstance(command, list) else str(command)


def _int(value: JsonValue) -> int | None:
    """An exit code; a number that no system has is none."""
    is_code = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**32
    return value if is_code else None


def _code_in(text: str, label: str) -> int | None:
    _, found, rest = text.rpartition(label)
    word = rest.split()[:1]
    return int(word[0]) if found and word and _CODE.fullmatch(word[0]) else None


def _time(value: JsonValue) -> float | None:
    """Unix seconds from ISO text, seconds or milliseconds; None for a time that is not a time of ours."""
    seconds: float | None = None
    try:
        if isinstance(value, str):
            seconds = datetime.fromisoformat(value).timestamp()
        elif isinstance(value, int | float) and not isinstance(value, bool):
            seconds = value / 1000 if value > 1e11 else float(value)
    except (ValueError, OverflowError):
        return None
    return seconds if seconds is not None and 0 <= seconds < LATEST else None
