"""A function called every few seconds in a thread of its own."""

import threading
from collections.abc import Callable


class Ticker:
    """Calls a function every few seconds in a thread of its own; an error ends it and is raised by `stop`."""

    def __init__(self, call: Callable[[], object], period_s: float):
        self._call = call
        self._period_s = period_s
        self._halt = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._halt.wait(self._period_s):
                self._call()
        except Exception as error:  # boundary: recorded, and raised where the recorder is stopped
            self._error = error

    def stop(self) -> BaseException | None:
        """End the thread; the error that ended it early, if any."""
        self._halt.set()
        self._thread.join()
        return self._error
