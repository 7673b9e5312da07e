import json
from datetime import UTC, datetime

import pytest

from agent2.errors import Fault
from agent2.llm.served import Dialect, read_answer, request_body
from agent2.llm.wire_problems import WireProblem
from agent2.records import Completion, Message, SamplingSettings, StopReason, Thought

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HELLO = [Message("system", "s"), Message("user", "hello")]


def answer(text="4", finish="stop", **more):
    choice = {"message": {"role": "assistant", "content": text}, "finish_reason": finish, **more.pop("choice", {})}
    return json.dumps({"choices": [choice], **more}).encode()


def read(content, status=200, **headers):
    return read_answer(status, {name.replace("_", "-"): value for name, value in headers.items()}, content, NOW)


def unmetered(text, stop_reason=StopReason.END):
    """A completion of which the server did not say how many tokens it has."""
    return Completion(text, stop_reason=stop_reason, prompt_tokens=None, n_tokens=None)


def test_a_request_says_model_messages_and_sampling():
    settings = SamplingSettings(temperature=0.6, top_p=0.95, max_tokens=7, seed=2**62 + 5)
    assert request_body("m", HELLO, settings, Dialect()) == {
        "model": "m",
        "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "hello"}],
        "temperature": 0.6,
        "top_p": 0.95,
        "max_tokens": 7,
        "seed": 5,
    }


def test_logprobs_are_asked_for_only_where_they_mean_the_distribution_drawn_from():
    is_requested = [
        "logprobs" in request_body("m", HELLO, SamplingSettings(temperature=t, top_p=p), Dialect())
        for t, p in ((0.0, 0.9), (1.0, 1.0), (0.6, 1.0), (1.0, 0.9))
    ]
    assert is_requested == [True, True, False, False]
    assert "logprobs" not in request_body("m", HELLO, SamplingSettings(), Dialect(logprobs=False))


def test_text_stop_reason_usage_and_logprobs_are_read():
    logprobs = {"logprobs": {"content": [{"token": "4", "logprob": -0.5}, {"token": "", "logprob": 0}]}}
    usage = {"prompt_tokens": 9, "completion_tokens": 2}
    assert read(answer("4", "length", choice=logprobs, usage=usage)) == Completion(
        "4", (), (-0.5, 0.0), StopReason.LENGTH, 9, n_tokens=2
    )


@pytest.mark.parametrize("usage", [None, 7, {"prompt_tokens": "many"}, {"completion_tokens": -1}])
def test_usage_that_is_none_is_no_fault(usage):
    assert read(answer("4", usage=usage)) == unmetered("4"), "not known, and never 0"


@pytest.mark.parametrize("text", ["", None])
def test_an_empty_answer_is_an_answer(text):
    assert read(answer(text)) == unmetered("")


def test_the_words_of_a_refusal_are_the_answer():
    assert read(answer(choice={"message": {"content": None, "refusal": "I won't."}})) == unmetered("I won't.")


def test_a_budget_used_up_by_hidden_reasoning_is_an_empty_answer_cut_by_length():
    assert read(answer(None, "length")) == unmetered("", StopReason.LENGTH)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"<html>gateway</html>",
        b"[]",
        b"null",
        b'{"choices": []}',
        b'{"choices": [{}]}',
        b'{"choices": [{"message": null}]}',
        b'{"choices": "no"}',
        b"[" * 100_000,
        b"\xff\xfe",
        answer(7),
        answer("4", None),
        answer("4", "who knows"),
    ],
)
def test_what_is_no_completion_is_an_infrastructure_fault_worth_another_try(content):
    problem = read(content)
    assert isinstance(problem, WireProblem)
    assert (problem.fault, problem.may_pass) == (Fault.INFRASTRUCTURE, True)
    assert len(problem.reason) < 400


def test_a_filtered_answer_and_a_tool_call_taken_out_are_faults_that_do_not_pass():
    filtered = read(answer("", "content_filter"))
    taken = read(
        json.dumps({"choices": [{"message": {"content": None, "tool_calls": [{}]}, "finish_reason": "tool_calls"}]})
    )
    assert isinstance(filtered, WireProblem) and "content filter" in filtered.reason and not filtered.may_pass
    assert isinstance(taken, WireProblem) and "tool-call parser" in taken.reason and not taken.may_pass


@pytest.mark.parametrize(
    ("status", "may_pass"),
    [(400, False), (401, False), (404, False), (408, True), (429, True), (500, True), (503, True)],
)
def test_an_http_error_passes_or_not_by_its_code(status, may_pass):
    problem = read(b'{"error": {"message": "because", "code": "x"}}', status)
    assert problem == WireProblem(
        f"the endpoint answered HTTP {status}: 'because x'", Fault.INFRASTRUCTURE, may_pass, None
    )


@pytest.mark.parametrize("content", [b'{"detail": "because"}', b'{"error": "because"}', b"because"])
def test_an_errors_text_is_found_in_every_usual_shape(content):
    assert "'because'" in read(content, 500).reason


def test_a_prompt_beyond_the_context_is_the_models_fault_as_with_the_hf_sampler():
    problem = read(b'{"error": {"message": "This model\'s maximum context length is 256 tokens"}}', 400)
    assert (problem.fault, problem.may_pass) == (Fault.MODEL, False)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("3", 3.0),
        ("0.5", 0.5),
        ("-1", 0.0),
        ("Thu, 01 Jan 2026 00:01:00 GMT", 60.0),
        ("Wed, 31 Dec 2025 00:01:00 GMT", 0.0),
        ("soon", None),
        ("inf", None),
    ],
)
def test_retry_after_is_a_number_or_a_date(value, seconds):
    assert read(b"{}", 429, retry_after=value).wait_s == seconds


TOOLS = [{"type": "function", "function": {"name": "a", "parameters": {}}}]


def native(name, arguments):
    return {"id": "x", "type": "function", "function": {"name": name, "arguments": arguments}}


def called(*calls, **more):
    message = {"content": None, "tool_calls": list(calls)}
    return answer(choice={"message": message, "finish_reason": "tool_calls", **more})


def test_native_calls_become_the_text_that_worlds_read():
    single = read_answer(200, {}, called(native("a", '{"n": 1}')), NOW, takes_calls=True)
    assert single == unmetered('{"name": "a", "arguments": {"n": 1}}')
    two = read_answer(200, {}, called(native("a", ""), native("b", {"n": 1})), NOW, takes_calls=True)
    assert json.loads(two.text) == [{"name": "a", "arguments": {}}, {"name": "b", "arguments": {"n": 1}}]
    cut = read_answer(200, {}, called(native("a", '{"n"'), finish_reason="length"), NOW, takes_calls=True)
    assert (cut.text, cut.stop_reason) == ('{"name": "a", "arguments": {"n"}', StopReason.LENGTH)


@pytest.mark.parametrize("broken", [[{}], [7], "no", [{"function": {}}]])
def test_native_calls_that_are_none_are_no_completion(broken):
    content = answer(choice={"message": {"content": None, "tool_calls": broken}, "finish_reason": "tool_calls"})
    assert isinstance(read_answer(200, {}, content, NOW, takes_calls=True), WireProblem)


@pytest.mark.parametrize(
    ("observation", "results"),
    [('[{"result": 1}, {"error": "no"}]', ['{"result": 1}', '{"error": "no"}']), ("over", ["over", ""])],
)
def test_calls_of_earlier_turns_are_sent_back_natively_with_their_results(observation, results):
    calls = '[{"name": "a", "arguments": {"n": 1}}, {"name": "b", "arguments": {}}]'
    messages = [*HELLO, Message("assistant", calls), Message("user", observation), Message("assistant", "{no call}")]
    body = request_body("m", messages, SamplingSettings(), Dialect(), TOOLS)
    assistant, first, second, last = body["messages"][2:]
    assert [tool_call["function"] for tool_call in assistant["tool_calls"]] == [
        {"name": "a", "arguments": '{"n": 1}'},
        {"name": "b", "arguments": "{}"},
    ]
    assert [tool_call["id"] for tool_call in assistant["tool_calls"]] == [first["tool_call_id"], second["tool_call_id"]]
    assert [first["content"], second["content"]] == results
    assert last == {"role": "assistant", "content": "{no call}"} and body["tools"] == TOOLS


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_a_thought_that_the_server_keeps_apart_is_no_part_of_the_answer(field):
    completion = read(answer(choice={"message": {"content": "#### 5", field: "#### 1"}}))
    assert completion.text == "#### 5" and completion.thought == Thought("#### 1")
    unended = read(answer(finish="length", choice={"message": {"content": None, field: "#### 5"}}))
    assert unended.text == "" and unended.thought == Thought("#### 5", closing=None)
    assert read(answer("#### 5")).thought is None


@pytest.mark.parametrize(
    ("finish", "stop"),
    [
        *(
            (word, StopReason.END)
            for word in ("stop", "STOP", "eos", "eos_token", "end_turn", "stop_sequence", "complete")
        ),
        *((word, StopReason.LENGTH) for word in ("length", "max_tokens", "MAX_TOKENS", "model_length")),
        ("tool_calls", StopReason.END),  # some servers say so of a text, too
    ],
)
def test_every_finish_reason_in_use_is_read(finish, stop):
    assert read(answer("4", finish)).stop_reason is stop


@pytest.mark.parametrize(
    ("finish", "may_pass"),
    [("content_filter", False), ("SAFETY", False), ("abort", True), ("insufficient_system_resource", True)],
)
def test_an_answer_that_a_filter_or_the_server_ended_is_missing(finish, may_pass):
    problem = read(answer("half an ans", finish))
    assert isinstance(problem, WireProblem)
    assert (problem.fault, problem.may_pass) == (Fault.INFRASTRUCTURE, may_pass)


def test_text_parts_are_joined_and_parts_that_are_not_text_are_left_out():
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "#### 5"}]
    completion = read(answer([*parts, {"type": "reference", "reference_ids": [1]}]))
    assert completion.text == "#### 5" and completion.thought == Thought("hm")


def test_tokens_that_the_server_dropped_are_no_empty_answer_of_the_model():
    problem = read(answer(None, usage={"completion_tokens": 40}))
    assert isinstance(problem, WireProblem)
    assert (problem.fault, problem.may_pass, problem.n_dropped) == (Fault.INFRASTRUCTURE, False, 40)
    assert "dropped 40 tokens" in problem.reason
    assert read(answer(None, usage={"completion_tokens": 1})).text == "", "the end token alone"
    assert read(answer("", usage={"completion_tokens": 40})).text == "", "tokens without a text are the model's"


def test_a_thought_that_the_server_keeps_to_itself_is_one():
    usage = {"completion_tokens": 40, "completion_tokens_details": {"reasoning_tokens": 40}}
    assert read(answer(None, "length", usage=usage)).thought == Thought("", closing=None)
    assert read(answer("5", usage=usage)).thought == Thought("")
    unfinished = b'{"error": {"message": "Could not finish the message because max_tokens was reached"}}'
    assert read(unfinished, 400).thought == Thought("", closing=None)


@pytest.mark.parametrize("temperature", [None, 0.0, 0.7])
@pytest.mark.parametrize("top_p", [None, 1.0, 0.9])
def test_a_setting_of_the_sampling_is_sent_only_if_it_is_set(temperature, top_p):
    body = request_body("m", HELLO, SamplingSettings(temperature=temperature, top_p=top_p), Dialect())
    assert body.get("temperature") == temperature
    assert body.get("top_p") == (None if temperature == 0.0 else top_p)
    # what the server draws with is not known, so its log-probabilities are of an unknown distribution
    assert ("logprobs" in body) is (temperature == 0.0)


def test_top_p_is_not_sent_where_it_has_no_effect():
    greedy, drawn = SamplingSettings(top_p=0.9), SamplingSettings(temperature=0.7)
    assert "top_p" not in request_body("m", HELLO, greedy, Dialect())
    assert request_body("m", HELLO, drawn, Dialect())["top_p"] == 1.0
    assert "top_p" not in request_body("m", HELLO, drawn, Dialect(top_p=False))
    nucleus = SamplingSettings(temperature=0.7, top_p=0.9)
    assert request_body("m", HELLO, nucleus, Dialect(top_p=False))["top_p"] == 0.9
    assert "temperature" not in request_body("m", HELLO, SamplingSettings(temperature=1.0), Dialect(temperature=False))
    assert request_body("m", HELLO, greedy, Dialect(temperature=False))["temperature"] == 0.0
