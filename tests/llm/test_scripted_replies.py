import pytest

from agent2.errors import ConfigError
from agent2.llm.messages import ChatMessage, ChatRequest, ResultPart, ToolOffer, readable
from agent2.llm.protocols import FORMATS
from agent2.llm.records import WireProtocol
from agent2.llm.scripted_replies import Script, decide, load_script

SCRIPT = Script.model_validate(
    {
        "steps": [
            {"say": "first", "run": "ls -la", "usage": {"input": 10, "output": 1}},
            {"say": "second", "run": "pwd", "usage": {"input": 20, "output": 2}},
            {"say": "over", "usage": {"input": 30, "output": 3}},
        ],
        "aside": {"say": "a title", "usage": {"input": 5, "output": 1}},
    }
)
BASH = ToolOffer("bash", {"command": {"type": "string"}})


def conversation(results=(), tools=(BASH,), text=""):
    turns = (ChatMessage("tool", (ResultPart(result),)) for result in results)
    return ChatRequest((ChatMessage("user", text), *turns), tuple(tools))


def call_of(reply):
    (call,) = reply.answer.calls
    return call


@pytest.mark.parametrize(("results", "step"), [([], 0), (["a"], 1), (["a", "b"], 2), (["a", "b", "c"], 2)])
def test_the_step_is_the_number_of_results(results, step):
    assert decide(SCRIPT, conversation(results)).step == step


def test_the_same_request_gets_the_same_answer():
    assert decide(SCRIPT, conversation(["a"])) == decide(SCRIPT, conversation(["a"]))


def test_a_request_without_a_shell_is_an_aside():
    reply = decide(SCRIPT, conversation(tools=[ToolOffer("read_file", {})]))
    assert (reply.step, reply.answer.calls, reply.answer.text, reply.answer.tokens.input) == (None, [], "a title", 5)


def test_the_last_step_calls_nothing():
    assert decide(SCRIPT, conversation(["a", "b"])).answer.calls == []


def test_an_agent_with_a_tool_to_finish_is_ended_by_it():
    call = call_of(decide(SCRIPT, conversation(["a", "b"], tools=[BASH, ToolOffer("finish", {"message": {}})])))
    assert (call.name, call.arguments) == ("finish", {"message": "over"})


def test_an_agent_that_was_told_of_an_ending_command_is_ended_by_it():
    word = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
    call = call_of(decide(SCRIPT, conversation(["a", "b"], text=f"end with echo {word}")))
    assert call.arguments == {"command": f"echo {word}"}


@pytest.mark.parametrize(
    ("name", "properties", "arguments"),
    [
        ("exec_command", {"cmd": {}, "yield_time_ms": {}}, {"cmd": "ls -la", "yield_time_ms": 600_000}),
        ("shell", {"command": {"type": "array"}}, {"command": ["bash", "-lc", "ls -la"]}),
        (
            "Bash",
            {"command": {}, "timeout": {"description": "in milliseconds"}},
            {"command": "ls -la", "timeout": 600_000},
        ),
        (
            "terminal",
            {"command": {}, "timeout": {"description": "Seconds to wait"}},
            {"command": "ls -la", "timeout": 600},
        ),
        ("run_shell_command", {}, {"command": "ls -la"}),
    ],
)
def test_the_shell_is_called_with_the_parameters_that_it_has(name, properties, arguments):
    call = call_of(decide(SCRIPT, conversation(tools=[ToolOffer("other", {}), ToolOffer(name, properties)])))
    assert (call.name, dict(call.arguments)) == (name, arguments)


def test_a_freeform_shell_gets_program_text():
    call = call_of(decide(SCRIPT, conversation(tools=[ToolOffer("exec", {}, is_freeform=True)])))
    assert call.is_freeform and '"cmd": "ls -la"' in call.arguments


def test_a_command_that_still_runs_is_waited_for_and_counts_for_no_step():
    wait = ToolOffer("write_stdin", {"session_id": {}, "chars": {}})
    running = ["a", "Process running with session ID 7\nOutput:"]
    reply = decide(SCRIPT, conversation(running, tools=[BASH, wait]))
    assert (reply.step, dict(call_of(reply).arguments)) == (None, {"session_id": 7, "chars": ""})
    assert decide(SCRIPT, conversation([*running, "done"], tools=[BASH, wait])).step == 2


@pytest.mark.parametrize("protocol", list(WireProtocol))
def test_a_thought_of_the_script_is_sent_apart_from_the_answer(protocol):
    step = {"think": "hm", "say": "over", "usage": {"input": 3, "output": 3, "reasoning": 2}}
    answer = decide(Script.model_validate({"steps": [step]}), conversation()).answer
    wire_format = FORMATS[protocol]
    sent = wire_format.parse_answer(wire_format.build_answer({}, answer))
    assert (sent.text, readable(sent.parts)) == ("over", "hm\nover")


def test_where_a_schema_is_asked_for_the_answer_follows_it():
    properties = {"title": {"type": "STRING"}, "done": {"type": "boolean"}, "n": {"type": "integer"}}
    request = ChatRequest((), answer_schema={"properties": properties})
    assert decide(SCRIPT, request).answer.text == '{"title": "a title", "done": true, "n": 0}'


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


def test_the_error_for_a_missing_script_names_its_path(tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: cannot be read"):
        load_script(str(tmp_path / "nowhere.yaml"))
