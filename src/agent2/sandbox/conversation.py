"""A contained program that is asked while it runs: bytes go in and lines come out over one socket.

    with Conversation(request, sandbox, stop) as conversation:
        conversation.send(b"...", timeout_s=10)
        line = conversation.read_line(timeout_s=10, max_bytes=1000)

The socket is the program's standard input and output, which other processes of its sandbox cannot open through /proc
as they could a pipe or a file, and nothing is in it but what was sent and not yet read. `run_contained` is for a
program that gets all its input at once. Otherwise the same promises: no network, no host file but the mounts, and
everything is gone when the block is left.
"""

import contextlib
import socket
import threading
import time
from dataclasses import replace
from types import TracebackType

from agent2.sandbox.backends import Contained, EndedBy, Sandbox, contained_spec
from agent2.sandbox.spec import SandboxExit

POLL_S = 0.2
"""How often it is looked whether to stop while nothing comes."""
CHUNK_BYTES = 1 << 16
GRACE_S = 2.0
"""For a program that has closed its output to end."""


class ConversationOver(Exception):
    """The program answers no more: it ended, was silent for too long, wrote too long a line, or was stopped."""

    def __init__(self, ended_by: EndedBy, reason: str, broke: str | None = None) -> None:
        """reason: one sentence. broke: the limit that it ran into, as in `SandboxExit`."""
        super().__init__(reason)
        self.ended_by, self.reason, self.broke = ended_by, reason, broke


class Conversation:
    """One program, from its start to its end; for one thread."""

    def __init__(self, request: Contained, sandbox: Sandbox, stop: threading.Event) -> None:
        """request: its `stdin` is not sent. stop: once set, the program is ended. Raises SandboxError."""
        self._stop = stop
        self._received = bytearray()
        self._channel, far_end = socket.socketpair()
        try:
            with far_end:
                spec = replace(contained_spec(request, sandbox), capture_bytes=None, channel=far_end)
                self._process = sandbox.start(spec)
        except BaseException:
            self._channel.close()
            raise
        self._channel.settimeout(POLL_S)

    def __enter__(self) -> "Conversation":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> SandboxExit:
        """End the program, if it has not ended."""
        self._channel.close()
        return self._process.stop(0)

    def send(self, message: bytes, timeout_s: float) -> None:
        """Send it whole. Raises ConversationOver."""
        ends_at = time.monotonic() + timeout_s
        unsent = memoryview(message)
        while unsent:
            try:
                unsent = unsent[self._channel.send(unsent) :]
            except TimeoutError:
                self._look(ends_at)
            except OSError:
                raise self._ended() from None

    def read_line(self, timeout_s: float, max_bytes: int) -> bytes:
        """The next line, without its end. Raises ConversationOver."""
        ends_at, searched = time.monotonic() + timeout_s, 0
        while (end := self._received.find(b"\n", searched)) < 0:
            searched = len(self._received)
            if searched > max_bytes:
                raise self._over(EndedBy.ITSELF, f"it wrote a line of more than {max_bytes} bytes")
            try:
                chunk = self._channel.recv(CHUNK_BYTES)
            except TimeoutError:
                self._look(ends_at)
                continue
            except OSError:
                chunk = b""
            if not chunk:
                raise self._ended()
            self._received += chunk
        line = bytes(self._received[:end])
        del self._received[: end + 1]
        return line

    def _look(self, ends_at: float) -> None:
        """Raise ConversationOver if it is time to stop."""
        if self._stop.is_set():
            raise self._over(EndedBy.STOP, "it was stopped")
        if time.monotonic() >= ends_at:
            raise self._over(EndedBy.TIMEOUT, "the program was killed because its time was over")

    def _ended(self) -> ConversationOver:
        with contextlib.suppress(OSError):
            self._channel.shutdown(socket.SHUT_RDWR)
        self._process.wait(GRACE_S)
        ended = self._process.stop(0)
        ended_by = EndedBy.STOP if self._stop.is_set() else EndedBy.ITSELF
        return ConversationOver(ended_by, ended.reason, ended.broke)

    def _over(self, ended_by: EndedBy, reason: str) -> ConversationOver:
        ended = self._process.stop(0)
        return ConversationOver(ended_by, reason, ended.broke)
