"""Programs and checks of a batch, each sent alone into a sandbox that is used again while it is as it was at first.

The sandbox (`program_runner`) knows one piece of work at a time; all others, and what is expected, stay in this
process. What a program does to its sandbox is its own doing: one that ends the sandbox is tried again in a fresh one,
and counts as wrong when that ends, too. A check that does not finish on some values is tried again alone, then without
values: if it works there, the values are to blame, else the check.
"""

import contextlib
import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

from agent2.errors import Fault
from agent2.records import JsonValue, Score
from agent2.sandbox.backends import EndedBy
from agent2.sandbox.conversation import Conversation, ConversationOver
from agent2.sandbox.spec import HOST_DISK, MIB
from agent2.scorers.program_runner import LOADED, PATIENCE, TIMEOUT, TOO_MUCH
from agent2.scorers.sandboxed import SandboxRunner

START_S = 60.0
"""For a sandbox to start on a machine that is busy."""
END_S = 16.0
"""To end a program with all that it started, to put the sandbox back as it was, and to write its results."""
SMALL_BYTES = 200_000
"""Of a line without results, and of what is read before a limit on bytes is looked at."""
MAX_VALUE_BYTES = 100_000
"""Of what one call returned, as JSON."""
MAX_PROGRAM_BYTES = 2 * MIB
"""Of what all calls of one program returned."""
MAX_CHECK_BYTES = 4 * MIB
"""Of what one check says."""
CHECK_MEMORY_BYTES = 768 * MIB
CHECKS_TOGETHER = 64
"""Most runs of checks in one process."""
MAX_ENDED = 2
"""A program that ends so many sandboxes is wrong; in the second one nothing ran before it."""
SOURCES = ("sandbox_state", "program_runner")

Results = list[list[str]]
"""Of the calls of one program: a kind (value, raised, timeout, none) and a text."""
Outcome = dict[str, JsonValue]
"""As `program_runner.examine_check` says, or `error`: why there is none; `stuck`: why there is none on these values."""


@dataclass(frozen=True, slots=True)
class ProgramSettings:
    """What one program may use."""

    timeout_s: float
    """With all its calls, processor and wall clock."""
    memory_bytes: int
    imports: Sequence[str] | None
    """Modules that it may import; None: all."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of one piece of work."""

    lines: Results
    reason: list[str]
    """Why there are no more lines."""
    left_s: float
    """Of its time limit."""
    where: str
    """The line of a check that was running, where it is known."""
    is_clean: bool
    """The sandbox is as it was at first."""


class WorkFailed(Exception):
    """Two sandboxes ended over a piece of work, the second of which had nothing else to do."""


class NotRun(Exception):
    """A piece of work was not begun: the sandbox does not work, or the scoring was stopped."""


class Workshop:
    """A sandbox that does one piece of work after another, replaced when it is lost; for one thread."""

    def __init__(self, runner: SandboxRunner) -> None:
        self._runner = runner
        self._open = contextlib.ExitStack()
        self._conversation: Conversation | None = None

    def __enter__(self) -> "Workshop":
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def do(self, work: Mapping[str, JsonValue], n_lines: int, *, limit_s: float, max_bytes: int) -> Answer:
        """The answer to one piece of work. Raises WorkFailed, NotRun and SandboxError.

        n_lines: that it is to write. limit_s: for all lines, or for each line of an `examine`. max_bytes: of all lines.
        """
        is_per_line = work["kind"] == "examine"
        token = secrets.token_hex(16)
        header = {
            "token": token,
            "n_lines": n_lines,
            "limit_s": limit_s,
            "is_per_line": is_per_line,
            "max_line_bytes": work["max_line_bytes"],
            "max_bytes": max_bytes,
        }
        parts = [json.dumps(part).encode("utf-8", "backslashreplace") for part in (header, work)]
        message = b"".join([*(b"%08x" % len(part) for part in parts), *parts])
        silence_s = PATIENCE * limit_s * (n_lines if is_per_line else 1) + END_S
        n_ended = n_unbegun = 0
        while True:
            is_begun = False
            try:
                conversation = self._ready()
                is_begun = True
                conversation.send(message, START_S)
                # Written as JSON once more, a byte of a program's own line may become three.
                line = conversation.read_line(silence_s, 4 * (max_bytes + SMALL_BYTES) + SMALL_BYTES * n_lines)
                mark, _, text = line.partition(b" ")
                if mark != token.encode():
                    raise ConversationOver(EndedBy.ITSELF, "an answer did not come from the harness")
                answer = Answer(**json.loads(text))
                if not answer.is_clean:
                    self._close()
                return answer
            except ConversationOver as over:
                self._close()
                if over.ended_by is EndedBy.STOP:
                    raise NotRun("the scoring was stopped") from None
                n_ended, n_unbegun = n_ended + is_begun, n_unbegun + (not is_begun)
                if over.broke == HOST_DISK or n_unbegun > MAX_ENDED:
                    raise NotRun(f"the sandbox did not run the program: {over.reason}") from None
                if n_ended == MAX_ENDED:
                    limit = f"ran into a limit ({over.reason})" if over.broke else None
                    raise WorkFailed(limit or "ended the harness, or its time was over") from None

    def _ready(self) -> Conversation:
        """A sandbox in its first state, started if need be. Raises ConversationOver."""
        if self._conversation is None:
            settings = {"folder": self._runner.memory_folder, "is_contained": self._runner.is_contained}
            command = ("python", "-I", "-S", "-B", "-c", runner_source(), json.dumps(settings))
            self._conversation = self._open.enter_context(self._conversation_with(command))
            if self._conversation.read_line(START_S, SMALL_BYTES) != b"ready":
                raise ConversationOver(EndedBy.ITSELF, "it did not say that it is ready")
        return self._conversation

    @contextlib.contextmanager
    def _conversation_with(self, command: tuple[str, ...]) -> Iterator[Conversation]:
        runner = self._runner
        with runner.request(command) as request, Conversation(request, runner.sandbox, runner.stop) as conversation:
            yield conversation

    def _close(self) -> None:
        self._conversation = None
        self._open.close()


@cache
def runner_source() -> str:
    """A program that makes a module of each source and runs the last one."""
    texts = {name: resources.files("agent2.scorers").joinpath(f"{name}.py").read_text("utf-8") for name in SOURCES}
    return (
        f"import sys, types\nTEXTS = {texts!r}\nMAIN = {SOURCES[-1]!r}\n"
        "for name, text in TEXTS.items():\n"
        "    module = types.ModuleType('__main__' if name == MAIN else 'agent2.scorers.' + name)\n"
        "    sys.modules[module.__name__] = module\n"
        "    exec(compile(text, name, 'exec'), module.__dict__)\n"
    )


def run_programs(
    runner: SandboxRunner, programs: Sequence[Mapping[str, JsonValue]], settings: ProgramSettings
) -> Iterator[Results | str | Score]:
    """Results of each program's calls; a text: how it failed as a whole; a missing score if it was not run.

    programs: `code`, `calls` and `entry_point` of each.
    """
    lost: Score | None = None
    with Workshop(runner) as workshop:
        for program in programs:
            try:
                yield lost or _results(workshop, program, settings)
            except WorkFailed as failure:
                yield str(failure)
            except NotRun as failure:
                lost = Score(None, str(failure), Fault.INFRASTRUCTURE)
                yield lost


def _results(workshop: Workshop, program: Mapping[str, JsonValue], settings: ProgramSettings) -> Results:
    """The results of one program; after a call that ended its process, the remaining calls get a new process."""
    n, results = len(program["calls"]), Results()
    left_s, left_bytes = settings.timeout_s, MAX_PROGRAM_BYTES
    while len(results) < n:
        work = {
            **program,
            "kind": "run",
            "calls": program["calls"][len(results) :],
            "limit_s": left_s,
            "memory_bytes": settings.memory_bytes,
            "max_line_bytes": MAX_VALUE_BYTES,
            "imports": settings.imports,
        }
        answer = workshop.do(work, n - len(results) + 1, limit_s=left_s, max_bytes=left_bytes)
        if not answer.lines or answer.lines[0] != LOADED:
            return results + [answer.lines[0] if answer.lines else answer.reason] * (n - len(results))
        results += answer.lines[1:]
        # Time and bytes are for all calls together: after either is used up nothing is left for the others.
        left_s, left_bytes = answer.left_s, left_bytes - sum(len(text) for _, text in answer.lines)
        is_last = answer.reason in (TIMEOUT, TOO_MUCH) or left_s <= 0 or left_bytes <= 0
        results += [answer.reason] * min(n - len(results), n if is_last else 1)
    return results


def examine_runs(
    runner: SandboxRunner, runs: Sequence[tuple[Mapping[str, JsonValue], Results | None]], limit_s: float
) -> list[Outcome | None]:
    """The outcome of each check for the results of a program, or, without results, the calls that it makes.

    limit_s: for each. None where there was no sandbox for it.
    """
    outcomes: list[Outcome | None] = []
    with Workshop(runner) as workshop, contextlib.suppress(NotRun):
        examiner = _Examiner(workshop, limit_s)
        while len(outcomes) < len(runs):
            batch = runs[len(outcomes) : len(outcomes) + CHECKS_TOGETHER]
            judged, _ = examiner.examine(batch)
            for (check, results), outcome in zip(batch, judged, strict=False):
                outcomes.append(examiner.explained(check, results, outcome))
            if len(judged) < len(batch):
                outcomes.append(examiner.examine_alone(*batch[len(judged)]))
    return outcomes + [None] * (len(runs) - len(outcomes))


class _Examiner:
    """Applies checks."""

    def __init__(self, workshop: Workshop, limit_s: float) -> None:
        self._workshop, self._limit_s = workshop, limit_s
        self._faults: dict[int, str] = {}
        """By id of the check, of those in doubt: why it is unusable; empty: it makes its recorded calls once more."""

    def examine(self, runs: Sequence[tuple[Mapping[str, JsonValue], Results | None]]) -> tuple[list[Outcome], str]:
        """The outcomes up to the first run that has none, and why it has none. Raises NotRun and SandboxError."""
        checks = {id(check): check for check, _ in runs}  # sent once, as several programs are judged by the same one
        positions = {check_id: position for position, check_id in enumerate(checks)}
        work = {
            "kind": "examine",
            "checks": [
                {key: part for key, part in check.items() if key != "test" or "compiled" not in check}
                for check in checks.values()
            ],
            "runs": [[positions[id(check)], results] for check, results in runs],
            "limit_s": self._limit_s,
            "memory_bytes": CHECK_MEMORY_BYTES,
            "max_line_bytes": MAX_CHECK_BYTES,
        }
        try:
            answer = self._workshop.do(work, len(runs), limit_s=self._limit_s, max_bytes=MAX_CHECK_BYTES * len(runs))
        except WorkFailed as failure:
            return [], f"they {failure}"
        outcomes: list[Outcome] = []
        for kind, text in answer.lines:
            if kind != "outcome":
                return outcomes, "they say too much"
            outcomes.append(json.loads(text))
        reason = "they took too long" if answer.reason == TIMEOUT else "their process ended"
        return outcomes, f"{reason}, in {answer.where}" if answer.where else reason

    def examine_alone(self, check: Mapping[str, JsonValue], results: Results | None) -> Outcome:
        """The outcome of a run that had none among others. Raises NotRun and SandboxError."""
        outcomes, reason = self.examine([(check, results)])
        if outcomes:
            return self.explained(check, results, outcomes[0])
        return {"error": reason} if results is None else self.explained(check, results, {"stuck": reason})

    def explained(self, check: Mapping[str, JsonValue], results: Results | None, outcome: Outcome) -> Outcome:
        """The outcome, or `is_unusable` and `error` if it is the check that went another way than before.

        Values that the check does not get through, or after which it makes other calls, are the program's fault if the
        check with its own program still makes the calls that were recorded.
        """
        if results is None or not (outcome.get("diverged") or outcome.get("stuck")):
            return outcome
        fault = self._faults.get(id(check))
        if fault is None:
            fault = self._faults[id(check)] = self._fault_of(check)
        return {"error": fault, "is_unusable": True} if fault else outcome

    def _fault_of(self, check: Mapping[str, JsonValue]) -> str:
        outcomes, reason = self.examine([(check, None)])
        if not outcomes:
            return reason
        if "error" in outcomes[0]:
            return str(outcomes[0]["error"])
        return "" if outcomes[0]["calls"] == check["calls"] else "they make other calls each time"
