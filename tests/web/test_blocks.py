"""Messages as commands, files, diffs and outputs, whatever a tool is called and however hostile its arguments are."""

import json

import pytest

from agent2.llm.messages import CallPart, ResultPart, TextPart, ThoughtPart
from agent2.web.blocks import FOLDED_LINES, blocks_of, call_blocks

LIMIT = 20_000


def call(name: str, **arguments) -> CallPart:
    return CallPart(name, json.dumps(arguments))


def shapes(part: CallPart) -> list[tuple[str, str, str]]:
    return [(block.kind, block.title, block.text) for block in call_blocks(part, LIMIT)]


def test_a_command_and_the_files_that_it_writes_are_apart_and_in_order():
    command = "cd /w\ncat > code/train.py <<'END'\nimport os\nprint('$x')\nEND\npython code/train.py"
    assert shapes(call("bash", command=command)) == [
        ("command", "bash", "cd /w"),
        ("file", "code/train.py", "import os\nprint('$x')"),
        ("command", "bash", "python code/train.py"),
    ]
    assert shapes(call("shell", command=["bash", "-lc", "ls -l"])) == [("command", "shell", "ls -l")]
    assert shapes(call("shell", command=["ls", "-l"])) == [("command", "shell", "ls -l")]
    assert shapes(call("bash", command="mkdir a && cat > a/b <<E\nx\nE")) == [
        ("command", "bash", "mkdir a && cat > a/b <<E"),
        ("file", "a/b", "x"),
    ], "what else the line does is shown"
    endless = "cat > a.py <<END\nno end"
    assert shapes(call("bash", command=endless)) == [("command", "bash", endless)], "a file without an end is none"
    read = "python - <<END\nprint(1)\nEND"
    assert shapes(call("bash", command=read)) == [("command", "bash", read)], "nothing is written"


def test_files_edits_and_patches_are_known_by_their_arguments_and_not_by_the_tools_name():
    assert shapes(call("whatever", file_path="a.txt", content="one")) == [("file", "a.txt", "one")]
    ((kind, title, text),) = shapes(call("edit", path="a.py", old_str="x\ny", new_str="x\nz"))
    assert (kind, title) == ("diff", "a.py") and "-y" in text and "+z" in text and "-x" not in text
    patch = "*** Begin Patch\n*** Update File: a.py\n-y\n+z\n*** End Patch"
    (block,) = call_blocks(CallPart("apply_patch", patch, is_freeform=True), LIMIT)
    assert block.kind == "diff" and [line.kind for line in block.diff] == ["place", "place", "remove", "add", "place"]
    assert shapes(call("submit", model_path="output/model", wait=True))[0][::2] == (
        "arguments",
        "model_path: output/model\nwait: true",
    )
    assert shapes(CallPart("bash", "{not json"))[0][0] == "command", "arguments that the model got wrong are shown"
    assert shapes(CallPart("bash", "[1]"))[0][2] == "[1]" and shapes(CallPart("x", {}))[0][2] == "(no arguments)"


def test_long_outputs_and_thoughts_are_folded_and_short_outputs_are_not():
    long_output = "\n".join(map(str, range(FOLDED_LINES + 2)))
    short, long, thought = blocks_of((ResultPart("ok"), ResultPart(long_output), ThoughtPart("hm")), "user", LIMIT)
    assert (short.kind, short.is_folded, long.is_folded, thought.is_folded) == ("output", False, True, True)
    (output,) = blocks_of("what a tool printed", "tool", LIMIT)
    assert output.kind == "output"
    text, code, rest = blocks_of("Look:\n```python\nx = 1  # one\n```\ndone", "assistant", LIMIT)
    assert (text.text, code.title, code.text, rest.text) == ("Look:", "python", "x = 1  # one", "done")
    assert ("comment", "# one") in [(piece.kind, piece.text) for piece in code.code]
    (plain,) = blocks_of("```python\nno end", "assistant", LIMIT)
    assert plain.kind == "text" and "no end" in plain.text


@pytest.mark.parametrize(
    "hostile",
    ["'" * LIMIT, "```x\n" * 4_000, "> a <<E\n" * 3_000, '"""' * 7_000, "\\" * LIMIT, "\x1b[31m\u202e", "\ud800"],
)
def test_hostile_texts_lose_nothing_that_is_shown_and_are_bounded(hostile):
    parts = (TextPart(hostile), call("bash", command=hostile), call("edit", path=hostile, old="a", new=hostile))
    blocks = blocks_of(parts, "assistant", LIMIT)
    assert sum(len(block.text) for block in blocks) <= 3 * LIMIT
    for block in blocks:
        assert "\x1b" not in block.text and "\u202e" not in block.text + block.title
        assert not block.code or "".join(piece.text for piece in block.code) == block.text
