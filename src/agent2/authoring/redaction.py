"""Personal data and keys in a text, put out of sight before the text becomes an item that others read.

Found are what has a form of its own: addresses of mail and network, telephone, bank account and payment card numbers,
keys and passwords, names in paths of home folders; and what patterns of one's own describe. Each is replaced by its
kind and a number (`[email 1]`), the same one for the same value, so that a question about two people stays one.

Promises: numbers of arithmetic stay; an account or card number is one only with its check digits. A version of four
numbers looks like a network address and goes. Does NOT know names of people, places or products, nor what reveals a
person without being a form: give patterns, and read the drafts.
"""

import ipaddress
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent2.errors import ConfigError
from agent2.foreign_files import MIB, read_limited

OWN = "redacted"
"""The kind of what a pattern of one's own finds."""
MAX_PATTERNS_BYTES = MIB
Check = Callable[[str], bool]


def _is_account(text: str) -> bool:
    """Whether the check digits of an IBAN are right. Source: ISO 13616, ISO 7064 (mod 97-10)."""
    compact = text.replace(" ", "")
    digits = "".join(str(int(character, 36)) for character in compact[4:] + compact[:4])
    return 15 <= len(compact) <= 34 and int(digits) % 97 == 1


def _is_payment_card(text: str) -> bool:
    """Whether the check digit of a payment card is right. Source: ISO/IEC 7812-1, annex B (Luhn)."""
    digits = [int(character) for character in text if character.isdigit()]
    doubled = [sum(divmod(2 * digit, 10)) for digit in digits[-2::-2]]
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def _is_network_address(text: str) -> bool:
    """Whether it is an address of one machine; the local ones say nothing of anybody."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return not (address.is_loopback or address.is_unspecified)


def _has_telephone_length(text: str) -> bool:
    """Source: ITU-T E.164, at most 15 digits; below 8 there are extensions and years."""
    return 8 <= sum(character.isdigit() for character in text) <= 15


def _is_international(text: str) -> bool:
    """A telephone number in parts, or too long for a sum."""
    has_parts = any(character in " .-(" for character in text)
    return _has_telephone_length(text) and (has_parts or len(text) > 11)


def _always(text: str) -> bool:
    return True


# Repeats are bounded: what strangers write is searched.
_KEY_FORMS = (
    r"sk-[A-Za-z0-9_-]{16,200}|AKIA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{20,200}|github_pat_[A-Za-z0-9_]{20,200}|"
    r"glpat-[A-Za-z0-9_-]{16,200}|hf_[A-Za-z0-9]{20,200}|xox[abprs]-[A-Za-z0-9-]{10,200}|AIza[A-Za-z0-9_-]{30,100}|"
    r"eyJ[A-Za-z0-9_-]{8,4000}\.[A-Za-z0-9_-]{8,8000}\.[A-Za-z0-9_-]{8,2000}"
)
_FORMS: Sequence[tuple[str, str, Check]] = (
    (
        "key",
        r"(-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?:(?!-----BEGIN)[\s\S]){0,20000}?"
        r"-----END [A-Z ]{0,40}PRIVATE KEY-----)",
        _always,
    ),
    ("key", rf"(?<![A-Za-z0-9_])({_KEY_FORMS})(?![A-Za-z0-9_])", _always),
    ("key", r"(?i)\bBearer {1,4}([A-Za-z0-9._~+/=-]{16,4000})", _always),
    ("password", r"://[^\s/:@]{0,200}:(?!\[)([^\s/@]{1,200})@", _always),
    (
        "password",
        r"(?i)\b(?:api[_-]?key|access[_-]?token|secret|password|passwd|pwd)[\"']?\s{0,3}[:=]\s{0,3}[\"']?"
        r"(?!\[)([^\s\"',;]{6,200})",
        _always,
    ),
    ("email", r"(?<![\w.+-])([\w.+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){0,8}\.[A-Za-z]{2,24})", _always),
    ("account", r"\b([A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?)\b", _is_account),
    (
        "payment card",
        r"(?<![\d.,-])([3-6]\d{3}[ -]?\d{4}[ -]?\d{4}[ -]?\d{4}|3\d{3}[ -]?\d{6}[ -]?\d{5})(?![\d-]|[.,]\d)",
        _is_payment_card,
    ),
    ("address", r"(?<![\w.])((?:\d{1,3}\.){3}\d{1,3})(?!\w|\.\d)", _is_network_address),
    ("address", r"(?<![\w:])((?:[0-9A-Fa-f]{0,4}:){4,7}[0-9A-Fa-f]{0,4})(?![\w:])", _is_network_address),
    (
        "telephone",
        r"(?<![\w+])(\+\d{1,3}[ .-]?(?:\(\d{1,4}\)|\d{1,4})(?:[ .-]?\d{2,8}){1,4})(?!\d)",
        _is_international,
    ),
    ("telephone", r"(?<![\d.-])((?:\(\d{3}\) ?|\d{3}[-.])\d{3}[-.]\d{4})(?!\d|[.-]\d)", _has_telephone_length),
    (
        "telephone",
        r"(?i)\b(?:phone|tel|telephone|mobile|fax|call me|call us|reach me)(?: number)?(?: is| at| on)?[.:]{0,2} {1,2}"
        r"(\+?\d[\d ()/.-]{5,20}\d)",
        _has_telephone_length,
    ),
    ("user", r"(?:/home/|/Users/|[A-Za-z]:\\Users\\)(?!\[)([^\s/\\\"'<>|:]{1,64})", _always),
)
"""Kind, pattern whose first group is replaced, and what the text has to be besides."""
FORMS = tuple((kind, re.compile(pattern), check) for kind, pattern, check in _FORMS)
KINDS = tuple(dict.fromkeys(kind for kind, _, _ in FORMS))


@dataclass(frozen=True, slots=True)
class Redacted:
    """Some texts of one item without what was found."""

    texts: tuple[str, ...]
    n_values: Mapping[str, int]
    """Kind -> different values that were replaced."""


def redact(texts: Sequence[str], patterns: Sequence[re.Pattern[str]] = ()) -> Redacted:
    """Replace what was found in the texts of one item; a value has the same number in all of them."""
    names: dict[tuple[str, str], str] = {}
    counts: Counter[str] = Counter()

    def name_of(kind: str, value: str) -> str:
        if (kind, value) not in names:
            counts[kind] += 1
            names[kind, value] = f"[{kind} {counts[kind]}]"
        return names[kind, value]

    redacted = []
    for text in texts:
        for pattern in patterns:
            text = pattern.sub(lambda match: name_of(OWN, match[0]) if match[0] else "", text)
        for kind, pattern, check in FORMS:
            text = _replaced(text, pattern, check, lambda value, kind=kind: name_of(kind, value))  # type: ignore[misc]
        redacted.append(text)
    return Redacted(tuple(redacted), dict(counts))


def _replaced(text: str, pattern: re.Pattern[str], check: Check, name: Callable[[str], str]) -> str:
    parts, end = [], 0
    for match in pattern.finditer(text):
        if check(match[1]):
            parts += [text[end : match.start(1)], name(match[1])]
            end = match.end(1)
    return "".join([*parts, text[end:]])


def read_patterns(path: Path) -> list[re.Pattern[str]]:
    """Patterns of one's own, a regular expression a line; empty lines and those with # are left out.

    Raises ConfigError, with file and line, for one that is none or that finds the empty text.
    """
    try:
        text = read_limited(path, MAX_PATTERNS_BYTES, follow=True).decode("utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror or error}); check the path") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text (byte {error.start}); save it as UTF-8") from error
    return list(_patterns(text, path))


def _patterns(text: str, path: Path) -> Iterator[re.Pattern[str]]:
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            pattern = re.compile(line)
        except re.error as error:
            raise ConfigError(f"{path}:{number}: {line!r} is no regular expression ({error}); correct it") from error
        if pattern.search(""):
            raise ConfigError(f"{path}:{number}: {line!r} finds the empty text; make it say what is to go")
        yield pattern
