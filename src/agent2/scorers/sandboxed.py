"""The sandbox runner that the scoring stage passes to scorers which execute untrusted programs.

A scorer that runs what a model wrote declares `work = ScoringWork(ScoringMode.SANDBOX, ...)` and is a `SandboxScorer`,
or, if it shares one sandbox among several programs, a `SandboxBatchScorer`.
It is never called where a model is played: there, namespaces are refused, and the program would share a sandbox with
the model. Nothing that a program prints is a verdict; decide it from the outside, as `python_tests` does.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, runtime_checkable

from agent2.files import scratch_folder
from agent2.records import Item, Rollout, Score
from agent2.sandbox.backends import Contained, ContainedEnd, Sandbox, Unsandboxed, run_contained
from agent2.sandbox.spec import Limits

SMALL = Limits(memory_gib=1.0, processes=32, file_size_gib=0.0625, disk_gib=0.25, tmp_gib=0.0625, log_mib=0.25)
"""What one short program may use."""


@dataclass(frozen=True, slots=True)
class SandboxRunner:
    """Runs commands, each in a fresh sandbox with a folder of its own that is removed afterwards; thread-safe."""

    sandbox: Sandbox
    scratch: Path
    """Host folder in which each command's own folder is made."""
    hidden: tuple[Path, ...] = ()
    """Host paths that no program may see."""
    stop: threading.Event = field(default_factory=threading.Event)
    """Once set, every running program is ended."""

    @property
    def is_contained(self) -> bool:
        """Whether programs see nothing of this machine but what is theirs."""
        return not isinstance(self.sandbox, Unsandboxed)

    @property
    def memory_folder(self) -> str:
        """Where a sandboxed program creates and removes folders fastest; unsandboxed, the program's own folder."""
        # /tmp is a tmpfs of the sandbox's own; without a sandbox it would be the host's /tmp.
        return "/tmp" if self.is_contained else "."

    def run(
        self,
        command: tuple[str, ...],
        *,
        timeout_s: float,
        silence_s: float | None = None,
        stdin: bytes = b"",
        stdout_bytes: int = 1 << 20,
        limits: Limits = SMALL,
    ) -> ContainedEnd:
        """Run a program until it ends, without network and without host files except the Python toolkit.

        timeout_s, silence_s: as in `run_contained`. Raises SandboxError if it cannot be contained as asked.
        """
        with self.request(command, limits) as request:
            request = replace(request, stdin=stdin, stdout_bytes=stdout_bytes)
            return run_contained(request, self.sandbox, timeout_s=timeout_s, silence_s=silence_s, stop=self.stop)

    @contextmanager
    def request(self, command: tuple[str, ...], limits: Limits = SMALL) -> Iterator[Contained]:
        """A command with a folder of its own, which is removed with the block."""
        with scratch_folder("program-", self.scratch) as folder:
            scratch, log = folder / "work", folder / "log"
            yield Contained(command=command, scratch=scratch, log=log, limits=limits, hidden=self.hidden)


@runtime_checkable
class SandboxScorer(Protocol):
    """A scorer of the mode SANDBOX."""

    name: str
    version: str

    def score_on(self, runner: SandboxRunner, item: Item, rollout: Rollout) -> Score:
        """The verdict on one finished rollout; called from several threads. May raise SandboxError."""


@runtime_checkable
class SandboxBatchScorer(Protocol):
    """A `SandboxScorer` that takes several rollouts at once, at most `work.batch_size`."""

    def score_batch_on(self, runner: SandboxRunner, batch: Sequence[tuple[Item, Rollout]]) -> Sequence[Score]:
        """One verdict for each, in order; called from several threads. May raise SandboxError."""
