import json

import pytest

from agent2.llm.records import TokenCounts, WireProtocol
from agent2.llm.streams import SseSplitter, StreamMeter, tokens_of_answer, written_bytes
from gateway_fakes import answer_stream, answer_whole, sse


def fed(protocol: WireProtocol, text: bytes) -> StreamMeter:
    meter = StreamMeter(protocol)
    for event in SseSplitter().feed(text):
        meter.feed(event)
    return meter


@pytest.mark.parametrize("protocol", list(WireProtocol))
def test_a_whole_answer_and_its_stream_have_the_same_counts(protocol):
    meter = fed(protocol, answer_stream(protocol))
    assert meter.is_whole and meter.is_counted and not meter.problem
    assert meter.tokens == tokens_of_answer(protocol, json.dumps(answer_whole(protocol)).encode())
    assert meter.tokens.input == 1000 and meter.tokens.output == 50 and meter.tokens.cached_input == 100


def test_reasoning_is_part_of_output_and_cached_part_of_input_everywhere():
    gemini = {"usageMetadata": {"promptTokenCount": 7, "candidatesTokenCount": 5, "thoughtsTokenCount": 3}}
    assert tokens_of_answer(WireProtocol.GEMINI, json.dumps(gemini).encode()) == TokenCounts(7, 8, 0, 3)
    anthropic = {"usage": {"input_tokens": 1, "cache_read_input_tokens": 2, "cache_creation_input_tokens": 4}}
    counted = tokens_of_answer(WireProtocol.ANTHROPIC, json.dumps(anthropic).encode())
    assert counted == TokenCounts(input=7, cached_input=2, cache_write=4)


def test_the_last_counts_of_a_stream_are_the_ones():
    usage = {"input_tokens": 10, "output_tokens": 1}
    text = sse(
        {"type": "message_start", "message": {"usage": usage}},
        {"type": "message_delta", "usage": {"output_tokens": 30}},
        {"type": "message_delta", "usage": {"output_tokens": 70, "input_tokens": None}},
        {"type": "message_stop"},
    )
    assert fed(WireProtocol.ANTHROPIC, text).tokens == TokenCounts(input=10, output=70)


def test_a_stream_that_broke_off_is_not_counted_and_one_without_usage_neither():
    text = answer_stream(WireProtocol.ANTHROPIC)
    beginning = fed(WireProtocol.ANTHROPIC, text[: text.index(b"event: message_stop")])
    assert beginning.tokens is not None and not beginning.is_counted and not beginning.is_whole
    silent = fed(WireProtocol.OPENAI_CHAT, b'data: {"choices": []}\n\ndata: [DONE]\n\n')
    assert silent.tokens is None and silent.is_whole and not silent.is_counted


def test_words_about_usage_in_an_answer_are_not_usage():
    says = {"choices": [{"delta": {"content": 'the "usage" is {"usage": {"prompt_tokens": 9}} "error"'}}]}
    meter = fed(WireProtocol.OPENAI_CHAT, sse(says, {"choices": [], "usage": {"prompt_tokens": 3}}, done=True))
    assert meter.tokens == TokenCounts(input=3)
    assert not meter.problem


def test_an_error_in_a_stream_is_noted():
    assert "error" in fed(WireProtocol.ANTHROPIC, sse({"type": "error", "error": {"type": "overloaded_error"}})).problem
    assert "error" in fed(WireProtocol.OPENAI_CHAT, sse({"error": {"message": "x"}})).problem


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"{", b"\xff", b'{"usage": 5}', b'{"usage": {}}'])
def test_an_answer_that_tells_no_usage_has_none(body):
    assert tokens_of_answer(WireProtocol.OPENAI_CHAT, body) is None


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_events_are_found_however_the_bytes_come(size):
    text = b': hi\n\nevent: a\r\ndata: {"x":\r\ndata: 1}\r\n\r\ndata:{"y": 2}\n\ndata: rest'
    splitter = SseSplitter()
    events = [event for start in range(0, len(text), size) for event in splitter.feed(text[start : start + size])]
    assert [event.data for event in events] == [b"", b'{"x":\n1}', b'{"y": 2}']
    assert b"".join(event.raw for event in events) + splitter.rest == text


NO_COUNTS = ["12", None, 12.5, -3, True, [12], {"n": 12}, 10**30, 0]


@pytest.mark.parametrize("count", NO_COUNTS)
@pytest.mark.parametrize("protocol", list(WireProtocol))
def test_usage_that_is_no_count_is_none_and_the_text_can_be_measured(protocol, count):
    answer = answer_whole(protocol, "x" * 1000)
    name = "usageMetadata" if protocol is WireProtocol.GEMINI else "usage"
    answer[name] = dict.fromkeys(answer[name], count)
    body = json.dumps(answer).encode()
    assert tokens_of_answer(protocol, body) is None
    assert written_bytes(protocol, body, is_stream=False) == 1000


@pytest.mark.parametrize("protocol", list(WireProtocol))
def test_the_text_of_a_stream_is_measured_once(protocol):
    n_sent = 2 if protocol is WireProtocol.GEMINI else 1  # the fake says it in both of its events
    assert written_bytes(protocol, answer_stream(protocol, "x" * 1000), is_stream=True) == 1000 * n_sent
    assert written_bytes(protocol, b"data: [1]\n\ndata: {", is_stream=True) == 0


def test_text_of_reasoning_and_tools_is_measured_and_what_is_no_text_is_not():
    call = {"id": "c" * 99, "type": "function", "function": {"name": "run", "arguments": '{"x": 1}'}}
    message = {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [call]}
    body = json.dumps({"choices": [{"message": message, "logprobs": {"content": ["x" * 99]}}]}).encode()
    assert written_bytes(WireProtocol.OPENAI_CHAT, body, is_stream=False) == len('hmrun{"x": 1}')


def test_whole_numbers_of_another_kind_are_counts():
    usage = {"usage": {"prompt_tokens": 12.0, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": "9"}}}
    assert tokens_of_answer(WireProtocol.OPENAI_CHAT, json.dumps(usage).encode()) == TokenCounts(12, 3)


def test_half_a_character_in_an_answer_hides_no_usage():
    body = b'{"choices": [{"delta": {"content": "\\ud83d"}}], "usage": {"prompt_tokens": 9, "completion_tokens": 1}}'
    assert tokens_of_answer(WireProtocol.OPENAI_CHAT, body) == TokenCounts(9, 1)
    meter = fed(WireProtocol.OPENAI_CHAT, b"data: " + body + b"\n\ndata: [DONE]\n\n")
    assert meter.tokens == TokenCounts(9, 1) and not meter.problem
