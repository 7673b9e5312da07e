import json

import pytest

from agent2.llm.gateway.answers import Masker
from agent2.llm.records import WireProtocol


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("at 2026-11-21T10:00:00Z", "at 2027-01-01T00:00:01.123Z"),
        ("at 2026-11-21 10:00:00,123 INFO", "at 2026-12-01 08:01:59,004 INFO"),
        ("Today's date: Saturday, November 21, 2026", "Today's date: Sunday, November 22, 2026"),
        ("Sat Nov 21 10:11:12 UTC 2026", "Tue Dec  1 01:02:03 UTC 2026"),
        ("-rw-r--r-- 1 root root 5 Nov 21 01:02 a.py", "-rw-r--r-- 1 root root 5 Dec  1 13:45 a.py"),
        ("id 0b0e7c2a-1111-4222-8333-944455556666", "id ffffffff-2222-4333-8444-a55566667777"),
        ("call_a1B2c3D4e5", "call_ZZZZZZZZZZ"),
        ("toolu_01ABCDEFGH", "toolu_01XYZXYZXY"),
        ("took 1.53s", "took 0.9s"),
        ("Wall time: 0.5123 seconds", "Wall time: 12 seconds"),
        ("{'train_runtime': 1.2, 'train_steps_per_second': 8.1}", "{'train_runtime': 9, 'train_steps_per_second': 70}"),
        ("12.5it/s", "3.25it/s"),
        ("/tmp/tmpab12/x.py line", "/tmp/tmpzz99/y.py line"),
        ("http://127.0.0.1:8000/submit", "http://127.0.0.1:43111/submit"),
        ("pid 123", "pid 4567"),
        ("commit 3f2a9c1d77ab", "commit 9900aabbccdd"),
        ("t=1795222885.919551", "t=1795999999.1"),
    ],
)
def test_what_changes_from_run_to_run_is_masked(first, second):
    masker = Masker()
    assert masker.masked(first) == masker.masked(second)
    assert masker.masked(first) != first


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("score 0.25", "score 0.75"),
        ("step 1", "step 2"),
        ("lr=1e-4", "lr=2e-4"),
        ("train.py", "train2.py"),
        ("loss 3.1415", "loss 2.7182"),
        ("12345", "54321"),
        ("batch_size = 16", "batch_size = 32"),
        ("ratio 3:4", "ratio 4:3"),
    ],
)
def test_what_an_agent_did_is_not_masked(first, second):
    masker = Masker()
    assert masker.masked(first) != masker.masked(second)


def test_the_text_of_a_request_does_not_depend_on_order_or_session_fields_and_shows_lines():
    masker = Masker()
    first = json.dumps({"model": "m", "metadata": {"user_id": "u1"}, "messages": [{"content": "a\nb", "role": "user"}]})
    second = json.dumps(
        {"messages": [{"role": "user", "content": "a\nb"}], "metadata": {"user_id": "u2"}, "model": "m"}
    )
    text = masker.text(WireProtocol.ANTHROPIC, first.encode())
    assert text == masker.text(WireProtocol.ANTHROPIC, second.encode())
    assert '"a\nb"' in text


def test_a_backslash_before_an_n_in_a_text_is_no_line_break():
    text = Masker().text(WireProtocol.ANTHROPIC, json.dumps({"a": "C:\\new"}).encode())
    assert "\\\\new" in text
