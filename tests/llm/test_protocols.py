"""What holds in all four protocols: what is built is read back, whole, as a stream, and as the beginning of one."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent2.llm.messages import CallPart, ChatAnswer, TextPart, ThoughtPart, readable
from agent2.llm.protocols import FORMATS
from agent2.llm.records import TokenCounts, WireProtocol
from agent2.llm.streams import parse_body, tokens_of_answer
from gateway_fakes import sse

ALL = pytest.mark.parametrize("protocol", list(WireProtocol))
TOKENS = TokenCounts(1000, 50, 100)
ANSWER = ChatAnswer(
    (ThoughtPart("Which file?"), TextPart("I look around."), CallPart("bash", {"command": "ls"})), None, (), TOKENS, 3
)


def heard(answer):
    """The parts of an answer without what the protocols do not share: ids, and arguments as text or values."""
    return [
        (part.name, json.loads(part.arguments_text)) if isinstance(part, CallPart) else part for part in answer.parts
    ]


def stream(protocol, answer):
    wire_format = FORMATS[protocol]
    events = wire_format.build_events({"stream_options": {"include_usage": True}}, answer)
    return sse(*events, done=wire_format.ends_with_done, named=wire_format.has_named_events)


@ALL
@pytest.mark.parametrize("n_parts", [1, 2, 3])
def test_an_answer_is_read_back_as_it_was_built_whole_and_from_a_stream(protocol, n_parts):
    answer = ChatAnswer(ANSWER.parts[-n_parts:], tokens=TOKENS, number=3)
    whole = json.dumps(FORMATS[protocol].build_answer({}, answer)).encode()
    assert heard(parse_body(protocol, whole)) == heard(answer)
    assert heard(parse_body(protocol, stream(protocol, answer))) == heard(answer)
    assert tokens_of_answer(protocol, whole) == TOKENS


@ALL
def test_a_text_in_several_pieces_is_one_text(protocol):
    answer = ChatAnswer((TextPart("one two three four"), CallPart("a", {}), CallPart("b", {"n": 2})), tokens=TOKENS)
    assert heard(parse_body(protocol, stream(protocol, answer))) == heard(answer)


@ALL
@pytest.mark.parametrize("share", [0.5, 0.7, 0.9])
def test_of_a_stream_that_broke_off_the_beginning_is_read(protocol, share):
    long = ChatAnswer((ThoughtPart("t" * 300), TextPart("s" * 300)), tokens=TOKENS)
    body = stream(protocol, long)
    text = readable(parse_body(protocol, body[: int(len(body) * share)]).parts).replace("\n", "")
    assert text and ("t" * 300 + "s" * 300).startswith(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["messages", "input", "contents", "role", "content", "parts", "text", "type", "tools", "function",
                 "name", "arguments", "choices", "message", "delta", "tool_calls", "output", "candidates", "index",
                 "thinking", "content_block", "response", "item", "functionCall", "image_url", "source", "system"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=25,
)  # fmt: skip


@ALL
@given(body=st.dictionaries(st.sampled_from(["messages", "input", "contents", "system", "tools"]), JSON))
def test_reading_a_request_never_fails(protocol, body):
    for message in FORMATS[protocol].parse_request(body).messages:
        readable(message.content)


@ALL
@given(events=st.lists(st.dictionaries(st.sampled_from(["type", "index", "delta", "choices", "response"]), JSON)))
def test_joining_a_stream_never_fails_and_what_it_gives_is_read_or_refused(protocol, events):
    joined = FORMATS[protocol].join_events(events)
    with contextlib.suppress(ValueError, LookupError, TypeError):
        readable(FORMATS[protocol].parse_answer(joined).parts)


@ALL
@pytest.mark.parametrize("body", [None, [], "text", 7, {}, {"error": {"message": "no"}}])
def test_what_is_no_answer_is_an_error_and_never_an_empty_answer(protocol, body):
    with pytest.raises((ValueError, LookupError, TypeError)):
        FORMATS[protocol].parse_answer(body)
