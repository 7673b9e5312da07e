import pytest

from agent2.llm.messages import CallPart, ChatMessage, PicturePart, ResultPart, TextPart, ThoughtPart, picture_in
from agent2.llm.openai_chat import OpenAiChat, build_messages

CHAT = OpenAiChat()
SCHEMA = {"properties": {"command": {}}}
THINKING = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
CALL = {"id": "call_1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}


def answered(**message):
    return CHAT.parse_answer({"choices": [{"message": {"role": "assistant", **message}, "finish_reason": "stop"}]})


def test_a_request_is_a_conversation():
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGVsbG8="}}
    request = CHAT.parse_request(
        {
            "messages": [
                {"role": "system", "content": "You train."},
                {"role": "user", "content": [{"type": "text", "text": "Look:"}, picture]},
                {"role": "assistant", "content": "", "tool_calls": [CALL]},
                {"role": "tool", "tool_call_id": "call_1", "content": "a file"},
            ],
            "tools": [
                {"type": "function", "function": {"name": "bash", "parameters": {"properties": {"command": {}}}}}
            ],
        }
    )
    assert request.messages == (
        ChatMessage("system", "You train."),
        ChatMessage("user", (TextPart("Look:"), picture_in("image/png", "aGVsbG8="))),
        ChatMessage("assistant", (CallPart("bash", '{"command": "ls"}', "call_1"),)),
        ChatMessage("tool", (ResultPart("a file", "call_1"),)),
    )
    assert [(tool.name, dict(tool.properties)) for tool in request.tools] == [("bash", {"command": {}})]


@pytest.mark.parametrize(
    "thought",
    [
        {"reasoning_content": "hm", "content": "42"},
        {"reasoning": "hm", "content": "42"},
        {
            "content": [
                {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
                {"type": "text", "text": "42"},
            ]
        },
    ],
)
def test_thought_and_answer_are_apart_wherever_the_server_puts_the_thought(thought):
    answer = answered(**thought)
    assert answer.parts == (ThoughtPart("hm"), TextPart("42")) and answer.text == "42"


def test_thoughts_in_pieces_are_joined_apart_from_the_answer():
    deltas = [{"reasoning_content": "h"}, {"reasoning_content": "m"}, {"content": "4"}, {"content": "2"}]
    joined = CHAT.join_events({"choices": [{"index": 0, "delta": delta}]} for delta in deltas)
    assert CHAT.parse_answer(joined).parts == (ThoughtPart("hm"), TextPart("42"))


def test_a_call_in_pieces_is_one_call_also_where_each_piece_repeats_its_name():
    pieces = [{"index": 0, "id": "x", "function": {"name": "bash", "arguments": text}} for text in ('{"n"', ": 1}")]
    joined = CHAT.join_events({"choices": [{"index": 0, "delta": {"tool_calls": [piece]}}]} for piece in pieces)
    assert CHAT.parse_answer(joined).parts == (CallPart("bash", '{"n": 1}', "x"),)


def test_further_answers_are_kept():
    answer = CHAT.parse_answer({"choices": [{"message": {"content": "a"}}, {"message": {"content": "b"}}]})
    assert (answer.parts, answer.alternatives) == ((TextPart("a"),), ((TextPart("b"),),))


def test_a_refusal_is_the_text():
    assert answered(content=None, refusal="I won't.").text == "I won't."


@pytest.mark.parametrize(
    "message",
    [{"content": 7}, {"content": [7]}, {"content": []}, {"content": {}}, {"refusal": 1}, {"tool_calls": [7]}],
)
def test_a_message_that_is_not_understood_is_no_empty_answer(message):
    with pytest.raises(ValueError, match=r"content|refusal|tool_calls"):
        answered(**message)


def test_built_messages_have_a_message_for_each_result():
    messages = [
        ChatMessage("user", "go"),
        ChatMessage("assistant", (CallPart("a", "{}", "x"), CallPart("b", {"n": 1}, "y"))),
        ChatMessage("tool", (ResultPart("1", "x"), ResultPart((TextPart("2"), PicturePart("d", "image/png")), "y"))),
    ]
    user, assistant, first, second = build_messages(messages)
    assert user == {"role": "user", "content": "go"} and assistant["content"] is None
    assert [call["function"]["arguments"] for call in assistant["tool_calls"]] == ["{}", '{"n": 1}']
    assert [first, second] == [
        {"role": "tool", "tool_call_id": name, "content": text} for name, text in (("x", "1"), ("y", "2"))
    ]
