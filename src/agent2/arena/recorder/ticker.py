"""A function called every few seconds in a thread of its own."""

import threading
from collections.abc import Callable


class Ticker:
    """Calls a function every few seconds until stopped; an error does not end it, `stop` hands over the first."""

    def __init__(self, call: Callable[[], object], period_s: float):
        self._call = call
        self._period_s = period_s
        self._halt = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._halt.wait(self._period_s):
            try:
                self._call()
            except Exception as error:  # boundary: an agent's doing must not end the watch; `stop` hands it over
                self._error = self._error or error

    def stop(self) -> Exception | None:
        """End the thread; the first error of a call, if any."""
        self._halt.set()
        self._thread.join()
        return self._error
