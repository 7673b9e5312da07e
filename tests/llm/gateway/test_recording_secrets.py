import logging

import pytest

from agent2.llm.gateway.recording import Scrubber, ScrubbingFormatter, StreamScrubber

SECRET = "sk-aab-sk-aac-secret"


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 100])
def test_a_secret_is_found_however_the_stream_cuts_it(size):
    text = f"sk-aab-sk-aab-sk-aac-secret and {SECRET}{SECRET} sk-aab-".encode()
    scrubber = StreamScrubber(Scrubber([SECRET]))
    out = b"".join(scrubber.feed(text[start : start + size]) for start in range(0, len(text), size)) + scrubber.end()
    assert out == b"sk-aab-[redacted] and [redacted][redacted] sk-aab-"


def test_nothing_is_held_back_when_nothing_could_be_a_secret():
    scrubber = StreamScrubber(Scrubber([SECRET]))
    assert scrubber.feed(b"data: {}\n\n") == b"data: {}\n\n"
    assert scrubber.feed(b"task") == b"ta"
    assert scrubber.feed(b" ends") == b"sk ends"[:-1]
    assert scrubber.end() == b"s"


def test_a_secret_with_quotes_is_found_as_json_writes_it():
    assert Scrubber(['a"b\\cdefg']).clean(b'{"x": "a\\"b\\\\cdefg"}') == b'{"x": "[redacted]"}'


def test_empty_and_short_secrets_do_not_spoil_everything():
    assert Scrubber(["", "ab"]).clean(b"ab") == b"ab"


def test_log_lines_are_clean_tracebacks_included():
    formatter = ScrubbingFormatter(Scrubber([SECRET]))
    try:
        raise ValueError(SECRET)
    except ValueError as error:
        record = logging.LogRecord("n", logging.ERROR, "p", 1, "with %s", (SECRET,), (ValueError, error, None))
    line = formatter.format(record)
    assert SECRET not in line and line.count("[redacted]") == 2
