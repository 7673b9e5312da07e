"""What has the form of personal data or a key is replaced, and numbers of arithmetic are not."""

import re

import pytest

from agent2.authoring.redaction import KINDS, read_patterns, redact
from agent2.errors import ConfigError

FOUND = [
    ("Write to anna.berg+work@mail.example.org.", "email", "Write to [email 1]."),
    ("Call +49 (170) 123-4567 today", "telephone", "Call [telephone 1] today"),
    ("Call +491701234567 today", "telephone", "Call [telephone 1] today"),
    ("or (212) 555-0187.", "telephone", "or [telephone 1]."),
    ("My phone number is 0170 123 45 67", "telephone", "My phone number is [telephone 1]"),
    ("IBAN DE89 3704 0044 0532 0130 00, please", "account", "IBAN [account 1], please"),
    ("card 4111 1111 1111 1111", "payment card", "card [payment card 1]"),
    ("from 93.184.216.34 at noon", "address", "from [address 1] at noon"),
    ("from 2001:db8:0:0:1::42 at noon", "address", "from [address 1] at noon"),
    ("export KEY=sk-abcdefghij0123456789", "key", "export KEY=[key 1]"),
    ("Authorization: Bearer abcdefghijklmnop0123", "key", "Authorization: Bearer [key 1]"),
    ("-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----", "key", "[key 1]"),
    ('{"password": "hunter2!"}', "password", '{"password": "[password 1]"}'),
    ("postgres://app:s3cret@db/x", "password", "postgres://app:[password 1]@db/x"),
    ("open /home/anna/notes.txt", "user", "open /home/[user 1]/notes.txt"),
    (r"open C:\Users\anna\notes.txt", "user", r"open C:\Users\[user 1]\notes.txt"),
]
KEPT = [
    "What is 1234567890123456 + 1?",
    "x +1234567890 = 5",
    "DE89 3704 0044 0532 0130 01 and 4111 1111 1111 1112",
    "Python 3.11.7 or 1.2.3.4.5",
    "bind 127.0.0.1 and 0.0.0.0",
    "std::vector and 12:30:45",
    "on 2026-11-27 at 09:15",
    "3/4 of 120-45-30 is 11.25",
    "a@b and @anna",
    "the password is required",
    "Call me at 7",
    "/home and /Users/",
    "",
]


@pytest.mark.parametrize(("text", "kind", "redacted"), FOUND)
def test_a_value_is_replaced_by_its_kind_and_a_number(text, kind, redacted):
    assert redact([text]).texts == (redacted,)
    assert redact([text]).n_values == {kind: 1} and kind in KINDS
    assert redact([redacted]).texts == (redacted,)


@pytest.mark.parametrize("text", KEPT)
def test_what_only_looks_alike_stays(text):
    assert redact([text]).texts == (text,) and redact([text]).n_values == {}


def test_a_value_has_the_same_number_in_all_texts_of_an_item():
    redacted = redact(["a@x.org or b@x.org?", "b@x.org"])
    assert redacted.texts == ("[email 1] or [email 2]?", "[email 2]")
    assert redacted.n_values == {"email": 2}


def test_patterns_of_ones_own_go_first(tmp_path):
    path = tmp_path / "names.txt"
    path.write_text("# customers\n\nAnna( Berg)?\nACME-\\d+\n")
    redacted = redact(["Anna Berg ordered ACME-17, Anna did: acme@x.org"], read_patterns(path))
    assert redacted.texts == ("[redacted 1] ordered [redacted 3], [redacted 2] did: [email 1]",)


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"fine\n(", "names.txt:2: .* is no regular expression"), (b"a*", "finds the empty text"), (b"\xff", "not UTF-8")],
)
def test_a_pattern_that_cannot_be_used_is_refused_with_its_line(tmp_path, content, reason):
    path = tmp_path / "names.txt"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=reason):
        read_patterns(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_patterns(tmp_path / "nothing.txt")


@pytest.mark.parametrize(
    "part",
    [
        "a@",
        "1.",
        "+1 ",
        ":0",
        "sk-",
        "eyJ",
        "DE89 ",
        "4111 ",
        "password:",
        "-----BEGIN PRIVATE KEY-----",
        "+12345678901234567890123 ",
        "/home/",
    ],
)
def test_a_long_text_of_beginnings_ends(part):
    text = part * 5_000
    assert len(redact([text]).texts) == 1


def test_a_pattern_that_finds_nothing_changes_nothing():
    assert redact(["abc"], [re.compile("x")]).texts == ("abc",)
