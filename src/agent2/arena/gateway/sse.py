"""Server-sent events as they come in pieces: whole events, with the bytes they were made of."""

from dataclasses import dataclass

MAX_EVENT = 32 * 1024 * 1024
"""Bytes of one event; more is not an event stream."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event."""

    raw: bytes
    """As it came, the empty line at its end included."""
    data: bytes
    """Its data lines, joined; empty for a comment or a keep-alive."""


class SseSplitter:
    """Cuts a stream of bytes into events; lines may end in LF or CRLF."""

    def __init__(self) -> None:
        self._rest = b""

    @property
    def rest(self) -> bytes:
        """Bytes that are no whole event yet."""
        return self._rest

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that a further piece completes. Raises ValueError if one grows without an end."""
        buffer = self._rest + chunk if self._rest else chunk
        events = []
        start = 0
        while (end := _end_of_event(buffer, start)) != -1:
            events.append(_event(buffer[start:end]))
            start = end
        self._rest = buffer[start:] if start else buffer
        if len(self._rest) > MAX_EVENT:
            raise ValueError(f"an event of more than {MAX_EVENT} bytes")
        return events


def _end_of_event(buffer: bytes, start: int) -> int:
    """Where the event that begins at `start` ends, or -1."""
    plain = buffer.find(b"\n\n", start)
    carriage = buffer.find(b"\r\n\r\n", start)
    if plain == -1 and carriage == -1:
        return -1
    if carriage == -1 or (plain != -1 and plain < carriage):
        return plain + 2
    return carriage + 4


def _event(raw: bytes) -> Event:
    lines = [line[5:].lstrip(b" ") for line in raw.splitlines() if line.startswith(b"data:")]
    return Event(raw, lines[0] if len(lines) == 1 else b"\n".join(lines))
