import hashlib

import pytest

from agent2.llm.messages import (
    CallPart,
    ChatAnswer,
    ChatMessage,
    PicturePart,
    ResultPart,
    TextPart,
    ThoughtPart,
    cut_in_pieces,
    picture_in,
    readable,
)

PARTS = (
    ThoughtPart("which?"),
    TextPart("Look:"),
    PicturePart("0123456789abcdef", "image/png"),
    CallPart("bash", {"command": "ls"}),
    ResultPart((TextPart("a"), TextPart("b"))),
    TextPart("done"),
)


def test_the_text_of_a_message_is_its_text_parts_alone():
    assert ChatMessage("assistant", PARTS).text == "Look:\ndone"
    assert ChatMessage("user", "plain").text == "plain"
    assert ChatMessage("user", "plain").parts == (TextPart("plain"),)


def test_what_people_read_has_thoughts_pictures_calls_and_results_too():
    assert readable(PARTS).splitlines() == [
        "which?", "Look:", "[picture, image/png, SHA-256 0123456789ab]", 'bash({"command":"ls"})', "a", "b", "done",
    ]  # fmt: skip
    assert readable((ThoughtPart(""), CallPart("bash", '{"command": 1'))) == 'bash({"command": 1)'


def test_a_picture_is_the_digest_of_its_bytes():
    assert picture_in("image/png", "aGVsbG8=") == PicturePart(hashlib.sha256(b"hello").hexdigest(), "image/png")
    assert picture_in("image/png", "http://a/b.png") is None and picture_in("image/png", "") is None


def test_calls_of_an_answer_get_ids_from_its_number_unless_they_have_one():
    answer = ChatAnswer((TextPart("t"), CallPart("a", "{}"), CallPart("b", "{}"), CallPart("c", "{}", "own")), number=3)
    assert [part.id for part in answer.with_ids("call")[1:]] == ["call_3", "call_3_1", "own"]


@pytest.mark.parametrize("text", ["", "a", "abcdefghij"])
def test_pieces_add_up_to_the_text(text):
    assert "".join(cut_in_pieces(text)) == text
