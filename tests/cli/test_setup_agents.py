"""`agent2 agents` as a user meets it."""

import pytest

from cli_builders import run_agent2
from system_builders import write_npm, write_npm_agent


def agents(*arguments, home):
    return run_agent2("agents", *arguments, home=home, COLUMNS="200")


def test_the_list_tells_protocol_pin_and_what_is_installed(tmp_path):
    lines = agents("list", home=tmp_path).stdout.splitlines()
    (codex,) = [line for line in lines if line.strip().startswith("codex")]
    assert "openai-responses" in codex
    assert "0.169.0 not installed" in codex
    (grpo,) = [line for line in lines if line.strip().startswith("grpo")]
    assert "installed" not in grpo


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["install", "codx"], "did you mean 'codex'?"),
        (["install", "grpo"], "agent grpo: has nothing to install"),
        (["install", "codex", "--npm", "no-such-npm"], "no-such-npm is not on PATH"),
        (["install", "openhands", "--python", "/bin/false"], "--python /bin/false: does not run as a Python"),
        (["check", "codex"], "run: agent2 agents install codex"),
        (["install"], "Missing argument"),
    ],
)
def test_bad_input_gets_one_line_and_exit_code_2(tmp_path, arguments, sentence):
    done = agents(*arguments, home=tmp_path)
    assert done.returncode == 2, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("agent2: ")]
    assert sentence in line
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_an_installation_ends_with_its_path_and_can_be_checked(tmp_path):
    folder, npm = write_npm_agent(tmp_path / "mine"), write_npm(tmp_path / "bin")
    done = agents("install", str(folder), "--npm", str(npm), home=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"mine: {tmp_path}/agent2/agents/mine/1.2.3"
    checked = agents("check", str(folder), home=tmp_path)
    assert checked.returncode == 0
    assert "npm 10.0.0" in checked.stdout
