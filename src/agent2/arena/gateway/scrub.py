"""Keeps secrets out of what leaves the gateway: answers, records, log lines.

A provider may repeat a key in an error, and a stream may cut it in two; a few bytes are held back when they
could be the beginning of a secret. Finds a secret as it stands, and as JSON writes it, in no other encoding.
"""

import json
import logging
from collections.abc import Iterable

REDACTED = b"[redacted]"
MIN_LENGTH = 6
"""Shorter secrets would be found everywhere."""


class Scrubber:
    """Replaces secrets in whole texts."""

    def __init__(self, secrets: Iterable[str]):
        forms = {form for secret in secrets for form in (secret, json.dumps(secret)[1:-1])}
        self._secrets = sorted((form.encode() for form in forms if len(form) >= MIN_LENGTH), key=len, reverse=True)

    def clean(self, text: bytes) -> bytes:
        """The text without secrets."""
        for secret in self._secrets:
            if secret in text:
                text = text.replace(secret, REDACTED)
        return text

    def held_back(self, text: bytes) -> int:
        """How many bytes at the end could be the beginning of a secret."""
        longest = 0
        for secret in self._secrets:
            # The last place where the secret's beginning can stand without the whole fitting in.
            at = text.find(secret[:1], max(0, len(text) - len(secret) + 1))
            while at != -1 and len(text) - at > longest:
                if secret.startswith(text[at:]):
                    longest = len(text) - at
                    break
                at = text.find(secret[:1], at + 1)
        return longest


class StreamScrubber:
    """Replaces secrets in a text that comes in pieces."""

    def __init__(self, scrubber: Scrubber):
        self._scrubber = scrubber
        self._held = b""

    def feed(self, chunk: bytes) -> bytes:
        """What may be passed on."""
        text = self._scrubber.clean(self._held + chunk if self._held else chunk)
        n_held = self._scrubber.held_back(text)
        if not n_held:
            self._held = b""
            return text
        self._held = text[-n_held:]
        return text[:-n_held]

    def end(self) -> bytes:
        """What was held back."""
        held, self._held = self._held, b""
        return held


class ScrubbingFormatter(logging.Formatter):
    """Log lines without secrets, tracebacks included."""

    def __init__(self, scrubber: Scrubber):
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self._scrubber = scrubber

    def format(self, record: logging.LogRecord) -> str:
        """The finished line."""
        return self._scrubber.clean(super().format(record).encode("utf-8", "replace")).decode("utf-8", "replace")
