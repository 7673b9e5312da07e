import pytest

from agent2.llm.anthropic import AnthropicMessages
from agent2.llm.messages import CallPart, ChatMessage, ResultPart, TextPart, ThoughtPart, picture_in

ANTHROPIC = AnthropicMessages()
TEXT = {"type": "text", "text": "a"}
PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGVsbG8="}}


def test_a_request_is_a_system_text_and_messages_of_blocks():
    request = ANTHROPIC.parse_request(
        {
            "system": [{"type": "text", "text": "You train."}],
            "messages": [
                {"role": "user", "content": "go"},
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "hm", "signature": "x"},
                        {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "ls"}},
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "tool_result",
                            "tool_use_id": "t",
                            "content": [{"type": "text", "text": "a"}, PICTURE],
                        },
                        {"type": "text", "text": "Go on."},
                    ],
                },
            ],
            "tools": [{"name": "Bash", "input_schema": {"properties": {"command": {}}}}, {"type": "nameless"}],
        }
    )
    picture = picture_in("image/png", "aGVsbG8=")
    assert request.messages == (
        ChatMessage("system", (TextPart("You train."),)),
        ChatMessage("user", "go"),
        ChatMessage("assistant", (ThoughtPart("hm"), CallPart("Bash", {"command": "ls"}, "t"))),
        ChatMessage("user", (ResultPart((TextPart("a"), picture), "t"), TextPart("Go on."))),
    )
    assert [(tool.name, dict(tool.properties)) for tool in request.tools] == [("Bash", {"command": {}})]


@pytest.mark.parametrize(
    ("block", "thought"),
    [
        ({"type": "thinking", "thinking": "hm", "signature": "x"}, "hm"),
        ({"type": "redacted_thinking", "data": "xyz"}, ""),
    ],
)
def test_thought_and_answer_are_apart(block, thought):
    answer = ANTHROPIC.parse_answer({"content": [block, {"type": "text", "text": "42"}], "stop_reason": "end_turn"})
    assert (answer.parts, answer.text, answer.stop) == ((ThoughtPart(thought), TextPart("42")), "42", "end_turn")


def test_blocks_of_a_stream_are_joined_each_by_itself():
    def delta(index, **piece):
        return {"type": "content_block_delta", "index": index, "delta": piece}

    events = [
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
        delta(0, type="thinking_delta", thinking="h"),
        delta(0, type="thinking_delta", thinking="m"),
        delta(0, type="signature_delta", signature="x"),
        {"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "name": "a", "input": {}}},
        delta(1, type="input_json_delta", partial_json='{"n": '),
        delta(1, type="input_json_delta", partial_json="1}"),
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
    ]
    answer = ANTHROPIC.parse_answer(ANTHROPIC.join_events(events))
    assert (answer.parts, answer.stop) == ((ThoughtPart("hm"), CallPart("a", '{"n": 1}')), "tool_use")
