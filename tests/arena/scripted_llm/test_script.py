import pytest

from agent2.arena.scripted_llm.conversation import load_script
from agent2.errors import ConfigError

USAGE = "usage: {input: 10, output: 2}"


def write(path, text):
    path.write_text(text)
    return str(path)


def test_the_packaged_script_runs_something_in_each_step_but_the_last():
    script = load_script("arithmetic")
    assert [step.run is not None for step in script.steps] == [True] * 7 + [False]
    assert len({(step.usage.input, step.usage.output) for step in script.steps}) == len(script.steps)


@pytest.mark.parametrize(
    ("steps", "complaint"),
    [
        (f"[{{say: a, {USAGE}}}, {{say: b, {USAGE}}}]", r"steps\.0 runs nothing"),
        (f"[{{say: a, run: ls, {USAGE}}}]", "the last step has `run`"),
        ("[{say: a, usage: {input: 1, output: 1, cached_input: 2}}]", "cached_input 2 is more than input 1"),
        ("[{say: a, usage: {input: 1, output: 1, reasoning: 3}}]", "reasoning 3 is more than output 1"),
        ("[{say: a, usage: {input: -1, output: 1}}]", "greater than or equal to 0"),
        ("[]", "at least 1 item"),
    ],
)
def test_a_script_that_cannot_be_played_is_refused(tmp_path, steps, complaint):
    with pytest.raises(ConfigError, match=complaint):
        load_script(write(tmp_path / "script.yaml", f"steps: {steps}\n"))


def test_a_missing_script_is_told_with_its_path(tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: cannot be read"):
        load_script(str(tmp_path / "nowhere.yaml"))
