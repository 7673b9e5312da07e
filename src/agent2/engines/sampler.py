"""A sampler over an engine in a child process: restarted after a crash, what was in flight asked again.

Promises: each submitted request is answered exactly once, also through crashes of the engine; what is asked again keeps
its seed. A request that the engine does not survive three times, and an engine that ends three times in a row without
an answer in between, are errors or missing scores with the engine's last words, never an endless loop and never a zero.
`close` ends the engine and frees its memory.

Does NOT promise the tokens of the sampler in this process: kernels, batches and generators differ, and the protocol
says which engine it was.
"""

import logging
import re
import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent2 import installation
from agent2.engines.catalogue import OFFLINE, InferenceEngine, ServedModel
from agent2.engines.child import START_S, EngineChild
from agent2.engines.environments import InstalledEnvironment
from agent2.errors import EndpointFailed, Fault, SamplerFailed
from agent2.foreign_files import digest_limited, state_of
from agent2.llm.endpoints import Endpoint
from agent2.llm.served import ServedSampler
from agent2.records import AnswerOffer, Completion, JsonValue, Prompt, SamplingSettings
from agent2.sandbox.backends import free_port

logger = logging.getLogger(__name__)

MAX_TRIES = 3
"""Of one request, each on a fresh engine."""
MAX_FAILURES = 3
"""Crashes in a row with no answer between them."""
PLAYED = (".safetensors", ".json", ".jinja", ".model")
"""Endings of the files that say what a model answers."""
MAX_LOGS = 20
"""Logs of engines that are kept."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How a model is served to one sampler."""

    engine: InferenceEngine
    dtype: str
    max_length: int | None = None
    capacity: int | None = None
    """Requests at once; None: the engine's default."""
    chat_template: str | None = None
    """In place of the model's own."""
    top_logprobs: int = 0
    timeout_s: float | None = None
    extra_body: Mapping[str, JsonValue] | None = None
    content_digest: str = ""
    """SHA-256 of a model in one file, under which its scores are stored; empty: the model is a folder."""
    start_s: float = START_S
    logs: Path | None = None
    """Folder for what the engine prints; None: below the installation's home."""
    program: Sequence[str] | None = None
    """In place of the environment's Python and the engine's module, for tests."""


@dataclass(slots=True)
class _Pending:
    """A request without an answer."""

    submit: Callable[[ServedSampler], None]
    tries: int = 1


class EngineSampler:
    """A `records.Sampler` and `LikelihoodSampler` over an engine."""

    def __init__(
        self, settings: EngineSettings, ready: InstalledEnvironment, model: AbstractContextManager[Path] | Path
    ) -> None:
        """Start the engine. model: its folder or file, or a context that makes the folder and is left by `close`.

        Raises EndpointFailed if the engine does not start, ConfigError for what it cannot do.
        """
        self._settings, self._ready = settings, ready
        capacity = settings.capacity or settings.engine.capacity
        self.capacity = min(capacity, settings.engine.max_capacity or capacity)
        self.takes_tools = False
        self.n_restarts = 0
        self._pending: dict[int, _Pending] = {}
        self._n_failures = 0
        self._key = secrets.token_urlsafe(24)
        self._stack = ExitStack()
        self._inner: ServedSampler | None = None
        self._child: EngineChild | None = None
        try:
            self._folder = model if isinstance(model, Path) else self._stack.enter_context(model)
            self._stamp = _stamp_of(self._folder)
            self._state = self._file_state()
            self._scratch = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="agent2-engine-")))
            self._start_on_free_port()
        except BaseException:
            self.close()
            raise

    def submit(
        self, request_id: int, prompt: Prompt, settings: SamplingSettings, tools: Sequence[Mapping[str, JsonValue]] = ()
    ) -> None:
        """Queue one request; raises as `ServedSampler.submit`."""
        self._submit(request_id, lambda inner: inner.submit(request_id, prompt, settings, tools))

    def submit_answers(self, request_id: int, prompt: Prompt, offer: AnswerOffer) -> None:
        """Queue one comparison of answers."""
        self._submit(request_id, lambda inner: inner.submit_answers(request_id, prompt, offer))

    def _submit(self, request_id: int, submit: Callable[[ServedSampler], None]) -> None:
        if self._inner is None:
            raise SamplerFailed(f"request {request_id}: the engine is closed; make a new sampler")
        with suppress(EndpointFailed):  # noticed by `collect`, which starts the engine again and asks this one, too
            submit(self._inner)
        self._pending[request_id] = _Pending(submit)

    def collect(self) -> list[tuple[int, Completion]]:
        """Block until at least one request is done; return all that are. Empty only when none is in flight.

        Raises EndpointFailed when the engine does not come back, with its last words, and SamplerFailed where it would
        come back with other weights, since the folder changed, or where a model in one file was written to: llama.cpp
        reads it while it plays.
        """
        while self._pending:
            assert self._inner is not None
            try:
                done = self._inner.collect()
                self._require_unchanged()
                if not done:
                    raise EndpointFailed("nothing that was asked is in flight")
            except EndpointFailed as error:
                self._restart(str(error))
                continue
            answered = [(number, completion) for number, completion in done if not _is_lost(completion)]
            lost = [(number, completion) for number, completion in done if _is_lost(completion)]
            for number, _ in answered:
                del self._pending[number]
            self._n_failures = 0 if answered else self._n_failures
            if lost:
                answered += self._try_again(lost)
            if answered:
                return answered
        return []

    def _try_again(self, lost: list[tuple[int, Completion]]) -> list[tuple[int, Completion]]:
        """Ask again what the engine lost; what it lost too often is returned as it is."""
        given_up = []
        for number, completion in lost:
            if self._pending[number].tries >= MAX_TRIES:
                del self._pending[number]
                last_line = self._child.last_words() if self._child is not None else ""
                given_up.append((number, _with_words(completion, last_line)))
        again = [(number, completion) for number, completion in lost if number in self._pending]
        if again:
            for number, _ in again:
                self._pending[number].tries += 1
            assert self._child is not None and self._inner is not None
            # A server that hangs in the middle of an answer may still list its models.
            if "within" in again[0][1].reason or not self._child.is_healthy(self._key):
                self._restart(again[0][1].reason)
            else:
                for number, _ in again:
                    self._pending[number].submit(self._inner)
        return given_up

    def _restart(self, reason: str) -> None:
        """A fresh engine with everything that is in flight. Raises EndpointFailed after three crashes in a row."""
        while True:
            self._n_failures += 1
            last_line = self._child.last_words() if self._child is not None else ""
            self._stop()
            if self._n_failures > MAX_FAILURES:
                self._pending.clear()
                raise EndpointFailed(
                    f"engine {self._settings.engine.name} {self._ready.version} ended {self._n_failures} times without "
                    f"an answer in between: {last_line}; fewer answers at once take less memory "
                    "(--set run.max_in_flight=4); what was played is kept"
                )
            logger.warning("engine %s is started again: %s; %s", self._settings.engine.name, reason, last_line)
            self.n_restarts += 1
            try:
                self._start()
                break
            except EndpointFailed as error:
                reason = str(error)
        assert self._inner is not None
        for pending in self._pending.values():
            pending.submit(self._inner)

    def _start_on_free_port(self) -> None:
        """Start it; where another program took its port meanwhile, on another one."""
        for n_tries in range(1, MAX_TRIES + 1):
            try:
                return self._start()
            except EndpointFailed as error:
                if n_tries == MAX_TRIES or not re.search("in use|another server", str(error), re.IGNORECASE):
                    raise
                logger.info("engine %s: %s; another port is tried", self._settings.engine.name, error)
                self._stop()

    def _start(self) -> None:
        engine, settings = self._settings.engine, self._settings
        if _stamp_of(self._folder) != self._stamp:
            raise self._changed()
        template = None
        if settings.chat_template is not None:
            template = self._scratch / "template.jinja"
            template.write_text(settings.chat_template, encoding="utf-8")
        served = ServedModel(
            folder=self._folder.resolve(),
            name=f"agent2-{secrets.token_hex(4)}",
            port=free_port(),
            key=self._key,
            dtype=settings.dtype,
            max_length=settings.max_length,
            capacity=self.capacity,
            chat_template=template,
        )
        variables = {**OFFLINE, **engine.variables}
        if engine.key_variable is not None:
            variables[engine.key_variable] = self._key
        program = settings.program or [str(self._ready.python)]
        url = f"http://127.0.0.1:{served.port}/v1"
        self._child = EngineChild([*program, *engine.arguments(served)], variables, url, served.name, self._log())
        before = self._file_state()
        self._child.start(self._key, settings.start_s)
        self._require_digested(before)
        self._inner = ServedSampler(
            Endpoint(
                url,
                served.name,
                max_in_flight=self.capacity,
                timeout_s=settings.timeout_s,
                max_tries=2,
                extra_body=settings.extra_body or {},
                top_logprobs=settings.top_logprobs,
                key=self._key,
                echoes_ids=engine.echoes_ids,
            )
        )

    def _file_state(self) -> tuple[int, ...]:
        """Of a model in one file; empty: it is a folder. Raises SamplerFailed for one that is gone."""
        try:
            return state_of(self._folder) if self._settings.content_digest else ()
        except OSError as error:
            raise self._changed() from error

    def _require_digested(self, before: tuple[int, ...]) -> None:
        """Require that the file which the engine has loaded is the one that was digested; `before`: when it began to.

        The same bytes now are not enough: others may have been in their place for a moment.
        """
        if self._file_state() != before or not self._has_its_digest():
            raise self._changed("before the engine had loaded them, and after their digest was taken")
        self._state = before

    def _require_unchanged(self) -> None:
        state = self._file_state()
        if state == self._state:
            return
        if not self._has_its_digest():
            raise self._changed()
        self._state = state  # a mode or a link is not what it plays

    def _has_its_digest(self) -> bool:
        expected = self._settings.content_digest
        try:
            return not expected or digest_limited(self._folder, sys.maxsize, follow=True) == expected
        except OSError:
            return False

    def _changed(self, when: str = "") -> SamplerFailed:
        when = when or f"while the engine {self._settings.engine.name} played them"
        return SamplerFailed(
            f"{self._folder}: its files changed {when}; give each checkpoint a folder of its own, and evaluate it "
            "again into another --out"
        )

    def _log(self) -> Path:
        """A file for what the engine prints; of earlier ones the newest stay."""
        folder = self._settings.logs or installation.home() / "engines" / "logs"
        folder.mkdir(parents=True, exist_ok=True)
        logs = sorted(folder.glob("*.log"), key=lambda path: path.stat().st_mtime)
        for path in logs[: max(0, len(logs) - MAX_LOGS + 1)]:
            path.unlink(missing_ok=True)
        return folder / f"{self._settings.engine.name}-{time.time_ns()}.log"

    def describe(self) -> dict[str, JsonValue]:
        """What the lock of a card needs."""
        served = self._inner.describe() if self._inner is not None else {}
        facts: dict[str, Any] = {
            name: value for name, value in served.items() if name not in ("model", "endpoint", "kind")
        }
        return {
            "kind": "engine",
            "model": str(self._folder),
            "engine": self._settings.engine.name,
            "version": self._ready.version,
            "pins_digest": self._ready.pins_digest,
            "dtype": self._settings.dtype,
            "restarts": self.n_restarts,
            **facts,
        }

    def close(self) -> None:
        """End the engine; what was not collected is lost."""
        self._pending.clear()
        self._stop()
        self._stack.close()

    def _stop(self) -> None:
        inner, self._inner = self._inner, None
        if inner is not None:
            inner.close()
        if self._child is not None:
            self._child.stop()


def _stamp_of(model: Path) -> tuple[tuple[str, int, int, int], ...]:
    """Name, number, size and time of each file of a model, which tell whether it is the one that was played before."""
    files = [model]
    if model.is_dir():
        files = sorted(path for path in model.iterdir() if path.suffix in PLAYED and path.is_file())
    facts = [(path.name, path.stat()) for path in files]
    return tuple((name, stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in facts)


def _is_lost(completion: Completion) -> bool:
    return completion.fault is Fault.INFRASTRUCTURE and not completion.is_final


def _with_words(completion: Completion, last_line: str) -> Completion:
    from msgspec import structs

    return structs.replace(completion, reason=f"{completion.reason}; the engine's last words: {last_line}")
