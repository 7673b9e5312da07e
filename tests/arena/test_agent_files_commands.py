"""Each agent's own record, as its program writes it: a command that worked, one that failed, talk in between."""

import json

import pytest

from agent2.arena.agent_files import MINI_END, read_commands
from agent2.arena.agents import TranscriptFormat, TranscriptSpec
from agent2.arena.evidence import MAX_COMMAND_CHARS, CommandLine
from agent2.errors import Agent2Error

CODEX = [
    {"type": "thread.started", "thread_id": "x"},
    {"type": "item.started", "item": {"id": "i0", "type": "command_execution", "command": "bash -lc ls"}},
    {
        "type": "item.completed",
        "item": {"id": "i0", "type": "command_execution", "command": "/bin/sh -lc 'ls'", "exit_code": 0},
    },
    {
        "type": "item.completed",
        "item": {"id": "i1", "type": "command_execution", "command": ["bash", "-lc", "false"], "exit_code": 1},
    },
    {"type": "item.completed", "item": {"id": "i2", "type": "agent_message", "text": "done"}},
]
CLAUDE = [
    {"type": "system", "subtype": "init"},
    {
        "type": "assistant",
        "message": {
            "content": [
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}},
                {"type": "tool_use", "id": "t2", "name": "Read", "input": {"file_path": "a"}},
            ]
        },
    },
    {"type": "user", "message": {"content": [{"type": "tool_result", "tool_use_id": "t1", "content": "a"}]}},
    {
        "type": "assistant",
        "message": {"content": [{"type": "tool_use", "id": "t3", "name": "Bash", "input": {"command": "false"}}]},
    },
    {
        "type": "user",
        "message": {"content": [{"type": "tool_result", "tool_use_id": "t3", "is_error": True, "content": "1"}]},
    },
]
GEMINI = [
    {"type": "init", "model": "m"},
    {"type": "tool_use", "tool_name": "run_shell_command", "tool_id": "1", "parameters": {"command": "ls"}},
    {"type": "tool_result", "tool_id": "1", "status": "success", "output": "a"},
    {"type": "tool_use", "tool_name": "run_shell_command", "tool_id": "2", "parameters": {"command": "false"}},
    {"type": "tool_result", "tool_id": "2", "status": "success", "output": "Command: false\nExit Code: 1\n"},
]
OPENCODE = [
    {"type": "step_start", "part": {"type": "step-start"}},
    {
        "type": "tool_use",
        "part": {
            "type": "tool",
            "tool": "bash",
            "state": {"status": "completed", "input": {"command": "ls"}, "metadata": {"exit": 0}},
        },
    },
    {
        "type": "tool_use",
        "part": {
            "type": "tool",
            "tool": "bash",
            "state": {"status": "completed", "input": {"command": "false"}, "metadata": {"exit": 1}},
        },
    },
]
MINI = [
    {"messages": [{"role": "assistant", "extra": {"actions": [{"command": "ls"}]}}]},
    {"messages": [{"role": "tool", "extra": {"returncode": 0}}]},
    {
        "messages": [
            {"role": "assistant", "extra": {"actions": [{"command": "false"}]}},
            {"role": "tool", "extra": {"returncode": 1}},
        ]
    },
]
RECORDS = {
    TranscriptFormat.CODEX: CODEX,
    TranscriptFormat.CLAUDE_CODE: CLAUDE,
    TranscriptFormat.GEMINI_CLI: GEMINI,
    TranscriptFormat.OPENCODE: OPENCODE,
    TranscriptFormat.MINI_SWE_AGENT: MINI,
}


def write_log(path, rows):
    lines = ["the program says hello\n", *(json.dumps(row) + "\n" for row in rows), '{"torn": ']
    path.write_text("".join(lines))
    return path


@pytest.mark.parametrize("format", RECORDS)
def test_commands_and_what_came_of_them_are_read_from_what_an_agent_prints(tmp_path, format):
    log = write_log(tmp_path / "agent.log", RECORDS[format])
    commands = read_commands(TranscriptSpec(format=format), log, tmp_path)
    assert [(command.command, command.failed) for command in commands] == [
        ("ls", False),
        ("false", True),
    ]


def test_a_record_in_a_file_is_read_beneath_the_workspace_only(tmp_path):
    (tmp_path / "outside.json").write_text(json.dumps(MINI[2]))
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "kept.json").write_text(json.dumps(MINI[2]))
    (workspace / "link.json").symlink_to(tmp_path / "outside.json")

    def read(path):
        return read_commands(TranscriptSpec(format=TranscriptFormat.MINI_SWE_AGENT, path=path), tmp_path, workspace)

    assert [command.command for command in read("kept.json")] == ["false"]
    for path in ("link.json", "../outside.json", "missing/kept.json", str(tmp_path / "outside.json")):
        with pytest.raises(Agent2Error, match="left no record of its commands"):
            read(path)


def test_hostile_records_are_bounded_and_end_nothing(tmp_path):
    long = {
        "type": "tool_use",
        "tool_name": "run_shell_command",
        "tool_id": "1",
        "parameters": {"command": "x" * 10**6},
    }
    odd = [{"type": "tool_use", "parameters": 3}, {"type": ["tool_use"]}, [], 7, {"type": "tool_result", "tool_id": {}}]
    log = write_log(tmp_path / "agent.log", [*odd, long])
    with log.open("ab") as file:
        file.write(b"\n" + b"[" * 100_000 + b"\n\xff\xfe{\n")
    (command,) = read_commands(TranscriptSpec(format=TranscriptFormat.GEMINI_CLI), log, tmp_path)
    assert command == CommandLine("x" * MAX_COMMAND_CHARS)


@pytest.mark.parametrize("code", ["²", "--5", "9" * 5000])
def test_an_exit_code_that_is_no_number_hides_no_command(tmp_path, code):
    rows = [GEMINI[1], {"type": "tool_result", "tool_id": "1", "status": "success", "output": f"Exit Code: {code}"}]
    log = write_log(tmp_path / "agent.log", rows)
    (command,) = read_commands(TranscriptSpec(format=TranscriptFormat.GEMINI_CLI), log, tmp_path)
    assert command == CommandLine("ls", None, None, False)


@pytest.mark.parametrize("time", [10**400, 1e308, -5, "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00", "²"])
def test_a_time_that_is_none_of_ours_hides_no_command(tmp_path, time):
    log = write_log(tmp_path / "agent.log", [{**GEMINI[1], "timestamp": time}])
    (command,) = read_commands(TranscriptSpec(format=TranscriptFormat.GEMINI_CLI), log, tmp_path)
    assert command == CommandLine("ls")


def test_an_exit_code_that_no_system_has_is_none(tmp_path):
    row = {"type": "item.completed", "item": {"type": "command_execution", "command": "ls", "exit_code": 10**30}}
    log = write_log(tmp_path / "agent.log", [row])
    (command,) = read_commands(TranscriptSpec(format=TranscriptFormat.CODEX), log, tmp_path)
    assert command == CommandLine("ls")


def test_a_command_whose_end_was_cut_off_has_no_outcome(tmp_path):
    log = write_log(tmp_path / "agent.log", CLAUDE[:2])
    (command,) = read_commands(TranscriptSpec(format=TranscriptFormat.CLAUDE_CODE), log, tmp_path)
    assert command == CommandLine("ls")


def test_without_a_log_there_are_no_commands(tmp_path):
    assert read_commands(TranscriptSpec(format=TranscriptFormat.CODEX), tmp_path / "none", tmp_path) == []


@pytest.mark.parametrize(
    ("recorded", "command"),
    [
        ("bash -lc 'echo \"a b\"'", 'echo "a b"'),
        (["bash", "-c", "ls -l"], "ls -l"),
        (["ls", "a b"], "ls 'a b'"),
        ("bash -lc 'never closed", "bash -lc 'never closed"),
        ("bash -lc one two", "bash -lc one two"),
    ],
)
def test_a_shell_that_only_wraps_a_command_is_left_out(tmp_path, recorded, command):
    row = {"type": "item.completed", "item": {"type": "command_execution", "command": recorded, "exit_code": 0}}
    log = write_log(tmp_path / "agent.log", [row])
    (line,) = read_commands(TranscriptSpec(format=TranscriptFormat.CODEX), log, tmp_path)
    assert line.command == command


def test_the_word_that_ends_mini_swe_agent_is_no_failure(tmp_path):
    end = {"role": "assistant", "extra": {"actions": [{"command": f"echo {MINI_END}"}]}}
    log = write_log(tmp_path / "agent.log", [{"messages": [end, {"role": "exit", "extra": {"returncode": -1}}]}])
    (line,) = read_commands(TranscriptSpec(format=TranscriptFormat.MINI_SWE_AGENT), log, tmp_path)
    assert (line.exit_code, line.failed) == (None, None)
