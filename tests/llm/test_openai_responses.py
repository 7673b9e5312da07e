from agent2.llm.messages import CallPart, ChatMessage, ResultPart, TextPart, ThoughtPart
from agent2.llm.openai_responses import OpenAiResponses

RESPONSES = OpenAiResponses()
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]}
MESSAGE = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "42"}]}


def test_a_request_is_instructions_and_items():
    request = RESPONSES.parse_request(
        {
            "instructions": "You train.",
            "input": [
                {"role": "user", "content": "go"},
                {**REASONING, "encrypted_content": "xyz"},
                {"type": "function_call", "call_id": "c", "name": "shell", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "out"}]},
                {"type": "custom_tool_call", "call_id": "d", "name": "exec", "input": "ls"},
                {"type": "custom_tool_call_output", "call_id": "d", "output": {"stdout": "a"}},
            ],
            "tools": [{"type": "custom", "name": "exec"}, {"type": "local_shell"}],
        }
    )
    assert request.messages == (
        ChatMessage("system", "You train."),
        ChatMessage("user", "go"),
        ChatMessage("assistant", (ThoughtPart("hm"),)),
        ChatMessage("assistant", (CallPart("shell", "{}", "c"),)),
        ChatMessage("tool", (ResultPart((TextPart("out"),), "c"),)),
        ChatMessage("assistant", (CallPart("exec", "ls", "d", is_freeform=True),)),
        ChatMessage("tool", (ResultPart('{"stdout":"a"}', "d"),)),
    )
    assert [(tool.name, tool.is_freeform) for tool in request.tools] == [("exec", True), ("local_shell", False)]
    assert RESPONSES.parse_request({"input": "go"}).messages == (ChatMessage("user", "go"),)


def test_thought_and_answer_are_apart():
    answer = RESPONSES.parse_answer({"status": "completed", "output": [REASONING, MESSAGE]})
    assert (answer.parts, answer.text, answer.stop) == ((ThoughtPart("hm"), TextPart("42")), "42", "completed")
    hidden = {"type": "reasoning", "summary": [], "encrypted_content": "xyz"}
    assert RESPONSES.parse_answer({"output": [hidden, MESSAGE]}).parts == (ThoughtPart(""), TextPart("42"))


def test_an_answer_that_was_cut_says_why():
    answer = RESPONSES.parse_answer(
        {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}, "output": []}
    )
    assert answer.stop == "max_output_tokens"


def test_of_a_stream_without_its_last_event_the_pieces_are_read():
    events = [
        {"type": "response.created", "response": {"status": "in_progress", "output": []}},
        {"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": "h"},
        {"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": "m"},
        {"type": "response.output_item.added", "output_index": 1, "item": {**MESSAGE, "content": []}},
        {"type": "response.output_text.delta", "output_index": 1, "delta": "4"},
        {"type": "response.output_text.delta", "output_index": 1, "delta": "2"},
        {"type": "response.output_item.added", "output_index": 2, "item": {"type": "function_call", "name": "a"}},
        {"type": "response.function_call_arguments.delta", "output_index": 2, "delta": '{"n'},
    ]
    answer = RESPONSES.parse_answer(RESPONSES.join_events(events))
    assert answer.parts == (ThoughtPart("hm"), TextPart("42"), CallPart("a", '{"n'))
