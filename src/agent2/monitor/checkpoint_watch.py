"""Evaluates each checkpoint of a running training once it is complete, and tells the training what to do.

    dev         every checkpoint, or chosen steps
    nightly     the newest one, once a day; and the last one when the watch ends
    candidate   the one with the best dev score, when the watch ends

An evaluation is in `OUT/step-<N>-<role>`; what is there and decided is not played again, and one that was interrupted
is resumed, so the same command continues after a kill. A checkpoint that is deleted while it is evaluated is told, and
the watch goes on. What happened is in `OUT/watch.jsonl`, a line each. Where a decision says pause or roll back,
`OUT/action.json` says it to the training (`monitor.watch_callback`), with the best checkpoint so far to go back to.

Does NOT play anything itself: `evaluate` does, and this module decides what is due. Does NOT stop a training that has
no callback.
"""

import itertools
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from agent2.analysis.history import EvaluationRow, EvaluationState, best_row, read_evaluation
from agent2.contract.gates import TrainingAction
from agent2.contract.suite import EvaluationRole
from agent2.errors import Agent2Error, ConfigError
from agent2.evaluation.run_checkpoints import (
    CheckpointLooks,
    Progress,
    RunCheckpoint,
    files_of,
    find_run_checkpoints,
)
from agent2.files import lock_file, write_json

ACTION, LOG, LOCK = "action.json", "watch.jsonl", "watch.lock"
NIGHT_S = 24 * 3600.0
MAX_TRIES = 3
"""Evaluations of one checkpoint that may fail before it is left out until the watch is started again."""

Evaluate = Callable[[RunCheckpoint, EvaluationRole, Path], tuple[TrainingAction, Sequence[str]]]
"""Plays and decides a checkpoint in a role into a folder; what training should do, and why."""
OnEvent = Callable[[dict[str, object]], None]


@dataclass(frozen=True, slots=True)
class WatchPlan:
    """What is watched, and what is due."""

    run: Path
    out: Path
    suite_digest: str
    roles: tuple[EvaluationRole, ...] = (EvaluationRole.DEV,)
    steps: frozenset[int] | None = None
    """None: all, as far as `every` allows."""
    every: int = 1
    """Only steps that are multiples of it."""
    until: int | None = None
    """The watch ends once this step, or a later one, was evaluated; None: never."""
    only_present: bool = False
    """The watch ends once everything that is there was evaluated."""
    settle_s: float = 10.0
    """How long the files of a checkpoint without a mark have to be unchanged."""
    poll_s: float = 5.0


@dataclass(slots=True)
class WatchSummary:
    """What a watch did."""

    n_evaluated: int = 0
    n_failed: int = 0
    stops: int = 0
    """Evaluations after which training was to pause or roll back."""


class CheckpointWatch:
    """The watch over one run."""

    def __init__(
        self,
        plan: WatchPlan,
        evaluate: Evaluate,
        on_event: OnEvent,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._plan, self._evaluate, self._on_event = plan, evaluate, on_event
        self._sleep, self._clock = sleep, clock
        self._looks = CheckpointLooks(plan.settle_s)
        self._reported: set[tuple[int, str]] = set()
        self._tries: dict[tuple[int, EvaluationRole], int] = {}
        self._began = clock()
        self.result = WatchSummary()

    def run(self) -> WatchSummary:
        """Watch until the end that the plan sets.

        Raises ConfigError if another process watches into the folder, and where one of the folders is removed.
        """
        with _only_watch(self._plan.out):
            try:
                while not self.look():
                    self._require_folders()
                    self._sleep(self._plan.poll_s)
                self._require_folders()
                self.finish()
            except (ConfigError, OSError):
                self._require_folders()
                raise
        return self.result

    def _require_folders(self) -> None:
        run, out = self._plan.run, self._plan.out
        # an evaluation makes its folder again, but not the lock, which holds nobody off once it is removed
        for folder, activity, is_there in (
            (run, "training", run.is_dir()),
            (out, "evaluations", (out / LOCK).is_file()),
        ):
            if not is_there:
                raise ConfigError(
                    f"{folder}: the folder of the {activity} was removed while it was watched; start the watch again "
                    "where it is needed"
                )

    def look(self) -> bool:
        """Look at the run once and evaluate what is due; whether the watch has reached its end."""
        plan = self._plan
        among = find_run_checkpoints(plan.run)
        complete, n_writing = [], 0
        for checkpoint in among:
            progress, problem = self._looks.progress(checkpoint, among, time.monotonic())
            n_writing += progress is Progress.WRITING
            if progress is Progress.COMPLETE:
                complete.append(checkpoint)
            elif progress is Progress.UNREADABLE:
                self._say_once(checkpoint, "unreadable", problem)
        for checkpoint in complete:
            if EvaluationRole.DEV in plan.roles and self._is_chosen(checkpoint.step):
                self._play(checkpoint, EvaluationRole.DEV)
        if EvaluationRole.NIGHTLY in plan.roles and complete and self._is_night_over():
            self._play(complete[-1], EvaluationRole.NIGHTLY)
        if plan.until is not None and complete and complete[-1].step >= plan.until:
            return True
        return plan.only_present and not n_writing

    def _is_chosen(self, step: int) -> bool:
        plan = self._plan
        return step % plan.every == 0 and (plan.steps is None or step in plan.steps)

    def _is_night_over(self) -> bool:
        """Whether a day has passed since the last nightly evaluation, or, without one, since the watch began."""
        played_at = [row.folder.stat().st_mtime for row in self._rows(EvaluationRole.NIGHTLY)]
        return self._clock() - max(played_at, default=self._began) >= NIGHT_S

    def finish(self) -> None:
        """At the end: the newest checkpoint as the last nightly, the best one in dev as the candidate."""
        by_step = {checkpoint.step: checkpoint for checkpoint in find_run_checkpoints(self._plan.run)}
        if EvaluationRole.NIGHTLY in self._plan.roles and by_step:
            self._play(by_step[max(by_step)], EvaluationRole.NIGHTLY)
        if EvaluationRole.CANDIDATE in self._plan.roles:
            best = best_row([row for row in self._rows(EvaluationRole.DEV) if row.step in by_step])
            if best is not None and best.step is not None:
                self._play(by_step[best.step], EvaluationRole.CANDIDATE)

    def _play(self, checkpoint: RunCheckpoint, role: EvaluationRole) -> None:
        """Evaluate a checkpoint unless that is done, or has failed too often."""
        folder = self._plan.out / f"step-{checkpoint.step}-{role.value}"
        attempt = (checkpoint.step, role)
        if self._is_done(checkpoint, folder) or self._tries.get(attempt, 0) >= MAX_TRIES:
            return
        self._tries[attempt] = self._tries.get(attempt, 0) + 1
        files = files_of(checkpoint.model)
        try:
            action, reasons = self._evaluate(checkpoint, role, folder)
        except (Agent2Error, OSError) as error:  # recorded; the next checkpoint may be fine
            self.result.n_failed += 1
            is_gone = not checkpoint.model.is_dir()
            self._say("gone" if is_gone else "failed", checkpoint.step, role=role.value, problem=str(error))
            return
        if _is_rewritten(files, files_of(checkpoint.model)):
            self._set_aside(checkpoint, role, folder)
            return
        self.result.n_evaluated += 1
        if action is not TrainingAction.CONTINUE:  # before the line of the log, for which a callback may wait
            self.result.stops += 1
            self._request(action, checkpoint, folder, reasons)
        row = read_evaluation(folder)
        self._say(
            "evaluated", checkpoint.step, role=role.value, folder=folder.name, metric=row.metric, value=row.value,
            score=row.score, release_decision=row.release, outcome=row.outcome,
            training_action=action.value, reasons=list(reasons),
        )  # fmt: skip

    def _set_aside(self, checkpoint: RunCheckpoint, role: EvaluationRole, folder: Path) -> None:
        """Move an evaluation out of the history: its rollouts are of no one checkpoint, so nothing follows from it."""
        self.result.n_failed += 1
        numbers = (self._plan.out / f".{folder.name}-rewritten-{number}" for number in itertools.count(1))
        aside = next(place for place in numbers if not place.exists())
        folder.rename(aside)
        problem = f"was written again while it was evaluated; that evaluation is in {aside}, and does not count"
        self._say("rewritten", checkpoint.step, role=role.value, problem=problem)

    def _is_done(self, checkpoint: RunCheckpoint, folder: Path) -> bool:
        if not (folder / "evaluation.json").is_file():
            return False
        row = read_evaluation(folder)
        if row.suite_digest and row.suite_digest != self._plan.suite_digest:
            raise ConfigError(
                f"{folder}: was evaluated under {row.suite} with digest {row.suite_digest[:12]}, this watch has "
                f"{self._plan.suite_digest[:12]}; give another --out"
            )
        if row.state is not EvaluationState.DECIDED:
            return False
        written = max((changed_ns for _, _, changed_ns in self._looks.state(checkpoint)), default=0)
        if written > (folder / "report.json").stat().st_mtime_ns:
            self._say_once(
                checkpoint, "rewritten", f"written again after its evaluation; delete {folder} to evaluate it"
            )
        return True

    def _request(self, action: TrainingAction, checkpoint: RunCheckpoint, folder: Path, reasons: Sequence[str]) -> None:
        """Tell the training what to do."""
        by_step = {rival.step: rival for rival in find_run_checkpoints(self._plan.run)}
        rows = [row for row in self._rows(EvaluationRole.DEV) if row.step in by_step and row.folder != folder]
        best = best_row(rows)
        write_json(
            self._plan.out / ACTION,
            {
                "action": action.value,
                "step": checkpoint.step,
                "evaluation": folder.name,
                "reasons": list(reasons),
                "last_good": None if best is None or best.step is None else str(by_step[best.step].model.resolve()),
                "last_good_step": None if best is None else best.step,
                "at": self._clock(),
            },
        )

    def _rows(self, role: EvaluationRole) -> list[EvaluationRow]:
        """The decided evaluations of the run in a role."""
        rows = [read_evaluation(folder) for folder in sorted(self._plan.out.glob(f"step-*-{role.value}"))]
        return [row for row in rows if row.state is EvaluationState.DECIDED]

    def _say_once(self, checkpoint: RunCheckpoint, event: str, problem: str) -> None:
        if (checkpoint.step, event) not in self._reported:
            self._reported.add((checkpoint.step, event))
            self._say(event, checkpoint.step, problem=problem)

    def _say(self, event: str, step: int, **fields: object) -> None:
        at = datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="seconds")
        record = {"at": at, "event": event, "step": step, **fields}
        self._plan.out.mkdir(parents=True, exist_ok=True)
        with (self._plan.out / LOG).open("a", encoding="utf-8") as log:
            log.write(json.dumps(record, default=_plain, ensure_ascii=False) + "\n")
        self._on_event(record)


def _is_rewritten(before: tuple[tuple[str, int, int], ...], after: tuple[tuple[str, int, int], ...]) -> bool:
    """Whether a file of a checkpoint has other contents; one that was added or deleted is none."""
    earlier = {name: state for name, *state in before}
    return any(earlier.get(name, state) != state for name, *state in after)


def _plain(record: object) -> object:
    import msgspec

    return msgspec.to_builtins(record)


@contextmanager
def _only_watch(out: Path) -> Iterator[None]:
    """Hold the folder of a watch; a kill ends it."""
    out.mkdir(parents=True, exist_ok=True)
    handle = os.open(out / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            lock_file(handle)
        except OSError as error:
            raise ConfigError(f"{out}: another process watches into this folder; give another --out") from error
        yield
    finally:
        os.close(handle)
