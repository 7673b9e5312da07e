"""Evaluates one checkpoint in a sandboxed process with a deadline, and retries what may be retried.

The child sees the base model, the checkpoint, the folder of a plug-in's code and, where an engine plays, the engine's
environment, read-only, and writes its scratch folder and the draft of the card; the engine is its child. It has no
network, no secret, no other trial, and an environment of our making. The
job, hidden items included, comes on its standard input and the outcome on its standard output; the files of a data
benchmark stay outside. What it prints goes to a log beside the card. However it ends, there is an outcome: a child
that crashes, overruns or breaks a limit is an infrastructure fault with a reason, never a score. With the back end
"none", which reports flag, it is a plain process.

The child also gives the verdicts where the scorer is inline. A scorer that runs programs or asks a judge works here,
outside, on the card that the child played, its programs in sandboxes of their own.

A draft that was cut short is continued by the next child. The harness takes a draft over only once the child is gone,
and only if it is a finished, undamaged card of the requested evaluation, made of plain files. Does NOT prove that the
answers on the card are what the model said: a child that was taken over by what it loaded can write any answer.
"""

import logging
import math
import os
import shutil
import signal
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import ValidationError

from agent2.arena.grader.job import LATER, EvaluationJob, EvaluationOutcome, EvaluationStopped, outcome_of
from agent2.arena.grader.submission import SnapshotLimits, remove_folder, without_host_paths
from agent2.arena.spec import Deadline, ScoringMachine
from agent2.arena.trial_folder import TrialPaths
from agent2.benchmarks import code_folders, load_benchmark, name_inside
from agent2.benchmarks.home import world_mounts
from agent2.cards.folder import CARD_JSON, card_exists, is_finished
from agent2.cards.reader import read_header, read_summary, validate_card
from agent2.engines.environments import require_engine
from agent2.errors import FAULT_POLICY, Agent2Error, CardError, ConfigError, Fault, SandboxError
from agent2.evaluation.runner import played_beside, score_beside
from agent2.evaluation.scoring import ScoringFailed, ScoringResources, ScoringStopped, Until
from agent2.executors.gpu_shares import scoring_on
from agent2.models.checkpoint import CheckpointInfo
from agent2.records import Benchmark, Item, Scorer, ScoringMode, Split, digest_of, work_of
from agent2.sandbox.backends import Contained, ContainedEnd, EndedBy, Sandbox, find_sandbox, inside, run_contained
from agent2.sandbox.fork_server import ForkServer
from agent2.sandbox.spec import GIB, HOST_DISK, WORKSPACE, Limits, Mount
from agent2.stats.estimates import Estimate

logger = logging.getLogger(__name__)

INSIDE_DRAFT = "card"
"""The child's card, in the draft."""
INSIDE = "/grading"
"""Where the child finds the base model, the checkpoint and the draft of the card."""
MAX_CARD_BYTES = 8 << 30
MAX_CARD_FILES = 100
MAX_FACTS_BYTES = 256 << 20
"""Of card.json, which is read in one piece."""
MAX_LOG_BYTES = 64 << 20
SPARE_GIB = 6.0
"""Memory and disk of an evaluation besides the model: libraries, caches, worlds, the card."""
TIMES_BASE = 8
"""What a model may take of memory and disk, of the base model's size: two copies in four bytes, and merging."""
# never through a symbolic link (O_NOFOLLOW), and without waiting at a FIFO that has no writer (O_NONBLOCK)
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

Evaluate = Callable[[EvaluationJob, threading.Event], EvaluationOutcome]
"""Plays a job to its outcome; raises EvaluationStopped soon after the event is set."""


@dataclass(frozen=True, slots=True)
class GraderSettings:
    """What one grader works with."""

    paths: TrialPaths
    base: Path
    """Folder of the base model."""
    benchmark: str
    items: Mapping[Split, Sequence[Item]]
    """The hidden items, in order; never leave the harness and its evaluating children."""
    deadline: Deadline
    judge: Scorer | None = None
    """Of a task of level 2, with the secret; None: the task offers no judge."""
    judged: Mapping[str, Item] = field(default_factory=dict)
    """Visible items by id; the judge gives verdicts on replies to these."""
    max_judgements: int | None = None
    """Replies that the judge gives a verdict on; one that was judged before costs nothing."""
    max_submissions: int | None = None
    """Accepted submissions, whatever came of them."""
    grading_s: float | None = None
    """Seconds that all evaluations of submissions may take together; None: no limit."""
    limits: SnapshotLimits = field(default_factory=SnapshotLimits)
    seed: int = 0
    threads: int = 1
    machine: ScoringMachine = field(default_factory=ScoringMachine)
    max_missing: int = 0
    """Rollouts without a score that a score may have."""


@dataclass(frozen=True, slots=True)
class EvaluationRequest:
    """Which checkpoint is to be scored, on which split."""

    checkpoint: Path
    split: Split
    card: Path
    """Folder that the card is written to."""
    name: str
    """What the card calls the checkpoint."""
    attempts: int | None = None
    """Rollouts for each item; None: as the benchmark says."""


class EvaluationFailed(Agent2Error):
    """An evaluation that the trial itself asked for ended in a fault."""

    def __init__(self, message: str, fault: Fault):
        super().__init__(message)
        self.fault = fault


def score_of(outcome: EvaluationOutcome) -> Estimate:
    """The outcome's score. Raises EvaluationFailed if it has none."""
    if outcome.score is None:
        raise EvaluationFailed("the evaluation returned no value", Fault.INFRASTRUCTURE)
    return outcome.score


class CheckpointEvaluator:
    """Evaluates checkpoints of one trial."""

    def __init__(self, settings: GraderSettings, evaluate: Evaluate, stop: threading.Event):
        self._settings = settings
        self._evaluate = evaluate
        self._stop = stop

    def evaluate(
        self,
        request: EvaluationRequest,
        add_remark: Callable[[str], None] = lambda remark: None,
        time_left: Callable[[], float] | None = None,
    ) -> EvaluationOutcome:
        """Evaluate, once more after a fault that the fault table allows to retry.

        add_remark: takes one sentence for the agent. time_left: asked before each try how many seconds it may take; a
        try for which none are left is not made. Raises EvaluationStopped when the grader is stopped.
        """
        settings = self._settings
        job = EvaluationJob(
            checkpoint=request.checkpoint,
            base=settings.base,
            name=request.name,
            benchmark=settings.benchmark,
            split=request.split,
            items=tuple(settings.items[request.split]),
            card=request.card,
            scratch=_scratch(request.card),
            seed=settings.seed,
            attempts=request.attempts,
            max_missing=settings.max_missing,
            threads=settings.threads,
            machine=settings.machine,
        )
        first = self._evaluate_once(job, time_left)
        if first.fault is None or not FAULT_POLICY[first.fault].retry:
            return first
        if time_left is not None and time_left() <= 0:
            return first
        add_remark(f"evaluated twice: the first evaluation ended in a fault of the {first.fault}")
        logger.warning("%s on %s: tried once more after: %s", job.name, job.split, first.reason)
        return self._evaluate_once(job.model_copy(update={"discard_card": not first.is_resumable}), time_left)

    def _evaluate_once(self, job: EvaluationJob, time_left: Callable[[], float] | None) -> EvaluationOutcome:
        """One try in an empty scratch folder; an error of the harness is an outcome as well."""
        seconds_left = math.inf if time_left is None else time_left()
        if seconds_left < math.inf:
            # model_copy does not validate, the child does: a job without a second left would be refused there
            job = job.model_copy(update={"timeout_s": max(1.0, seconds_left)})
        remove_folder(job.scratch)
        job.scratch.mkdir(parents=True)
        try:
            return self._evaluate(job, self._stop)
        except EvaluationStopped:
            raise
        except Exception as error:  # the boundary that turns a fault of the harness into an outcome
            logger.exception("%s on %s could not be evaluated", job.name, job.split)
            is_said = isinstance(error, SandboxError | ConfigError)
            cause = str(error) if is_said else type(error).__name__
            reason = f"the evaluation could not be run ({cause})"
            return EvaluationOutcome(fault=Fault.INFRASTRUCTURE, reason=reason, advice=LATER)
        finally:
            remove_folder(job.scratch)

    def reason_for_agent(self, reason: str, request: EvaluationRequest) -> str:
        """A reason without paths of the host."""
        names = [
            (_scratch(request.card), "scratch"),
            (request.checkpoint, "the checkpoint"),
            (self._settings.paths.root, "the trial"),
        ]
        return without_host_paths(reason, names, self._settings.base)


def _scratch(card: Path) -> Path:
    return card.with_name(f".{card.name}.scratch")


@dataclass(frozen=True, slots=True)
class EvaluatorProgram:
    """What is run to evaluate."""

    command: tuple[str, ...] = ("python", "-P", "-m", "agent2.arena.grader.child")
    mounts: tuple[Mount, ...] = ()
    """What it needs besides the toolkit."""
    imports: tuple[str, ...] = ()
    """Modules that a fork server imports once for all evaluations; none: each evaluation imports what it needs."""


PACKAGED = EvaluatorProgram(imports=("agent2.arena.grader.child",))
"""Plays a checkpoint with transformers."""


def server_for(program: EvaluatorProgram, base: CheckpointInfo, threads: int) -> ForkServer | None:
    """What forks the evaluations of submissions to this base model; None for a program that imports nothing early."""
    if not program.imports:
        return None
    kind = str(base.config.get("model_type", "")).replace("-", "_")
    # transformers loads the code of a model, and half of torch with it, only when such a model is loaded
    model = (f"transformers.models.{kind}.modeling_{kind}",) if kind.isidentifier() else ()
    return ForkServer((*program.imports, *model), evaluation_environment(WORKSPACE, threads))


def evaluation_environment(scratch: str, threads: int) -> dict[str, str]:
    """What libraries read when they are imported. scratch: as the child sees it."""
    return {
        "HOME": scratch,
        "TMPDIR": scratch,
        "HF_HOME": scratch,
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "AGENT2_THREADS": str(threads),
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "OPENBLAS_NUM_THREADS": "1",  # numpy's: it starts its threads when it is imported, and a fork would lose them
        "PYTHONUNBUFFERED": "1",
    }


@dataclass(frozen=True, slots=True)
class ChildEvaluator:
    """Evaluates in a contained child process."""

    timeout_s: float
    """Longest that one evaluation may take, loading included."""
    sandbox: Sandbox = field(default_factory=find_sandbox)
    hidden: tuple[Path, ...] = ()
    """Host paths that must never be shown to the child."""
    program: EvaluatorProgram = field(default_factory=EvaluatorProgram)
    benchmark: Benchmark | None = None
    """What gives the verdicts that are not given by the child; None: loaded by its name, without a data folder."""
    server: ForkServer | None = None
    """Forks the child where the sandbox allows it; None: each is a process of its own."""

    def __call__(self, job: EvaluationJob, stop: threading.Event) -> EvaluationOutcome:
        """Run the child to its end. Raises EvaluationStopped if `stop` was set meanwhile; the child is gone then."""
        with scoring_on(job.machine.gpu, lambda: not stop.is_set()):  # the wait is not part of an evaluation's time
            if stop.is_set():
                raise EvaluationStopped
            return self._evaluate(job, stop)

    def _evaluate(self, job: EvaluationJob, stop: threading.Event) -> EvaluationOutcome:
        timeout_s = self.timeout_s if job.timeout_s is None else min(self.timeout_s, job.timeout_s)
        benchmark = self.benchmark or load_benchmark(job.benchmark)
        if work_of(benchmark.scorer()).mode is ScoringMode.INLINE:
            return self._run_child(job, stop, timeout_s, log_of(job.card))
        return self._play_then_score(job, benchmark, stop, time.monotonic() + timeout_s)

    def _play_then_score(
        self, job: EvaluationJob, benchmark: Benchmark, stop: threading.Event, ends_at: float
    ) -> EvaluationOutcome:
        """Let the child play, unless it has, and score its card here."""
        played_card = played_beside(job.card)
        if job.discard_card:
            for card in (job.card, played_card):
                shutil.rmtree(card, ignore_errors=True)
        if not (card_exists(job.card) and is_finished(job.card)):
            if not card_exists(played_card):  # it exists only once it was handed over, finished and sound
                to_play = job.model_copy(update={"card": played_card, "plays_only": True})
                outcome = self._run_child(to_play, stop, ends_at - time.monotonic(), log_of(job.card))
                if outcome.fault is not None:
                    return outcome
            out_of_time = Until(stop, ends_at)
            resources = ScoringResources(self.sandbox, job.scratch, self.hidden, out_of_time)
            try:
                score_beside(benchmark, job.items, job.card, resources=resources)
            except ScoringStopped as error:
                if stop.is_set():
                    raise EvaluationStopped from error
                return _timed_out("the answers could not be scored in the time that an evaluation has")
            except (ScoringFailed, CardError) as error:
                return _infrastructure(f"the answers could not be scored ({error})", LATER)
        return outcome_of(read_summary(job.card), read_header(job.card).checkpoint_digest, job.max_missing)

    def _run_child(self, job: EvaluationJob, stop: threading.Event, timeout_s: float, log: Path) -> EvaluationOutcome:
        engine_folder = _engine_folder(job.machine)
        draft = take_up(job)
        request = self._request(job, draft, engine_folder)
        names = {path: str(inside(request, self.sandbox, path)) for path in (job.checkpoint, job.base, job.scratch)}
        inside_paths = {
            "checkpoint": names[job.checkpoint],
            "base": names[job.base],
            "scratch": names[job.scratch],
            "benchmark": name_inside(job.benchmark, job.scratch, lambda path: inside(request, self.sandbox, path)),
            "card": str(inside(request, self.sandbox, draft / "card")),
            "engine_folder": engine_folder and str(inside(request, self.sandbox, engine_folder)),
            "discard_card": False,  # `take_up` did it
        }
        request = replace(request, stdin=job.model_copy(update=inside_paths).model_dump_json().encode())
        try:
            end = run_contained(request, self.sandbox, timeout_s=timeout_s, stop=stop, server=self.server)
        finally:
            _keep_log(request.log, log)
        if end.ended_by is EndedBy.STOP:
            raise EvaluationStopped
        if end.ended_by is EndedBy.TIMEOUT:
            return _timed_out(
                f"the evaluation did not end within {timeout_s:.3g} seconds, so nothing is known about the score",
                "submit again, and make sure that the model ends its answers",
            )
        outcome = _read_outcome(end)
        reason = outcome.reason
        for host, name in sorted(
            names.items(), key=lambda pair: -len(pair[1])
        ):  # longest first: one may contain another
            reason = reason.replace(name, str(host))
        return _with_card(job, outcome.model_copy(update={"reason": reason}))

    def _request(self, job: EvaluationJob, draft: Path, engine_folder: Path | None) -> Contained:
        """The command of the child, and all that it may see."""
        worlds = [Mount(host, f"{INSIDE}/worlds/{name}") for host, name in world_mounts(self.benchmark).items()]
        code = [Mount(folder, f"{INSIDE}/code-{k}") for k, folder in enumerate(code_folders(job.benchmark))]
        request = Contained(
            command=self.program.command,
            scratch=job.scratch,
            log=job.card.with_name(f".{job.card.name}.log"),
            mounts=(
                Mount(job.base, f"{INSIDE}/base"),
                Mount(job.checkpoint, f"{INSIDE}/checkpoint"),
                Mount(draft, f"{INSIDE}/draft", writable=True),
                *([Mount(engine_folder, f"{INSIDE}/engine")] if engine_folder is not None else ()),
                *code,
                *worlds,
                *self.program.mounts,
            ),
            limits=evaluation_limits(job.base, job.machine),
            gpus=job.machine.gpus,
            hidden=self.hidden,
        )
        environment = evaluation_environment(str(inside(request, self.sandbox, job.scratch)), job.threads)
        if code:
            environment["PYTHONPATH"] = ":".join(str(inside(request, self.sandbox, mount.host)) for mount in code)
        if worlds:
            environment["AGENT2_WORLDS"] = str(inside(request, self.sandbox, worlds[0].host).parent)
        return replace(request, environment=environment)


def log_of(card: Path) -> Path:
    """Where the output of the children that made a card is kept."""
    return card.with_name(f"{card.name}.log")


def _engine_folder(machine: ScoringMachine) -> Path | None:
    """The environment of the engine that plays, to be shown to the child; None: none does.

    Raises ConfigError if it is not installed, or not in the version that the trial was planned with.
    """
    engine = machine.served_by
    if engine is None:
        return None
    ready = require_engine(engine, "scoring.engine")
    if machine.engine_version not in ("", ready.version):
        raise ConfigError(
            f"scoring.engine: the trial was planned with {engine.name} {machine.engine_version}, and {ready.version} "
            "is installed, so that scores could not be compared; begin another trial"
        )
    return ready.folder.resolve()


def evaluation_limits(base: Path, machine: ScoringMachine | None = None) -> Limits:
    """What a process that loads or merges models of this kind may use, an engine included where one plays."""
    size_gib = sum(entry.stat().st_size for entry in base.iterdir() if entry.is_file()) / GIB
    engine = machine.served_by if machine is not None else None
    room_gib = SPARE_GIB + TIMES_BASE * size_gib + (engine.memory_gib if engine is not None else 0.0)
    return Limits(memory_gib=room_gib, disk_gib=room_gib, file_size_gib=room_gib)


def _keep_log(part: Path, whole: Path) -> None:
    """Append what one child printed to the output of earlier ones; nothing once that is `MAX_LOG_BYTES` long."""
    if not part.is_file():
        return
    if not whole.exists() or whole.stat().st_size < MAX_LOG_BYTES:
        with part.open("rb") as source, whole.open("ab") as target:
            shutil.copyfileobj(source, target)
    part.unlink()


def _read_outcome(end: ContainedEnd) -> EvaluationOutcome:
    if end.code == 0 and not end.dropped:
        try:
            return EvaluationOutcome.model_validate_json(end.stdout)
        except ValidationError:
            logger.exception("the evaluating process printed no outcome")
    if end.broke == HOST_DISK:
        return _infrastructure(f"the evaluation could not be finished: {end.reason}; make room there")
    killed_by = end.code - 128
    if end.broke is not None:
        ending = f"broke a limit ({end.reason})"
    elif killed_by in set(signal.Signals):
        memory = " (often: out of memory)" if killed_by == signal.SIGKILL else ""
        ending = f"was killed by {signal.Signals(killed_by).name}{memory}"
    else:
        ending = f"ended with exit code {end.code}"
    return _infrastructure(
        f"the evaluating process {ending} before it had a result, so nothing is known about the score",
        "submit again, and check first that the folder loads with transformers",
    )


def _with_card(job: EvaluationJob, outcome: EvaluationOutcome) -> EvaluationOutcome:
    """The outcome once its card is in place; without a sound card there is no score."""
    if outcome.fault is None and outcome.is_played != job.plays_only:
        return _infrastructure("the evaluating process did something else than it was asked", LATER)
    # after a fault a finished card is taken over as well, so that the next try need not play it again
    if outcome.fault is not None and not has_finished_card(job):
        return outcome
    try:
        hand_over(job, outcome)
    except CardError as error:
        logger.exception("%s: the child's card is not taken over", job.name)
        if outcome.fault is not None:
            return outcome.model_copy(update={"is_resumable": False})  # nothing can be continued from such a card
        reason = f"the evaluation left no sound card ({error})"
        return EvaluationOutcome(fault=Fault.INFRASTRUCTURE, reason=reason, advice=LATER)
    return outcome


def _infrastructure(reason: str, advice: str = "") -> EvaluationOutcome:
    return EvaluationOutcome(fault=Fault.INFRASTRUCTURE, reason=reason, advice=advice, is_resumable=True)


def _timed_out(reason: str, advice: str = "") -> EvaluationOutcome:
    return _infrastructure(reason, advice).model_copy(update={"is_timeout": True})


def draft_of(card: Path) -> Path:
    """Where the child writes."""
    return card.with_name(f".{card.name}.draft")


def take_up(job: EvaluationJob) -> Path:
    """The draft that the child continues: what an earlier one left, or an empty folder."""
    draft = draft_of(job.card)
    if job.discard_card:
        remove_folder(job.card)
        remove_folder(draft)
    draft.mkdir(parents=True, exist_ok=True)
    if job.card.exists():  # finished, but its score was not recorded: the child reads it and plays nothing again
        remove_folder(draft / INSIDE_DRAFT)
        os.rename(job.card, draft / INSIDE_DRAFT)
    return draft


def hand_over(job: EvaluationJob, outcome: EvaluationOutcome) -> None:
    """Move a finished card from the draft to its place.

    outcome: what the child reported. Call it when the child is gone. Raises CardError, and moves nothing, for anything
    but a sound card of this job that reports the same.
    """
    draft = draft_of(job.card)
    card = draft / INSIDE_DRAFT
    _adopt(card)  # first: until then the child's files may be links, and their modes are the child's choice
    problems = validate_card(card, columns=False)  # a hostile child wrote them: they are made again below
    if problems:
        raise CardError(f"{problems[0]}; the evaluation has to be made again")
    header = read_header(card)
    requested = (job.name, job.split, digest_of(list(job.items)), job.seed)
    if (header.checkpoint_name, header.protocol.split, header.protocol.items_digest, header.seed) != requested:
        raise CardError(f"{card}: is the card of another evaluation; the evaluation has to be made again")
    if outcome.score is not None and read_summary(card).score != outcome.score:
        raise CardError(
            f"{card}: differs from what the child reported ({outcome.score}); the evaluation has to be made again"
        )
    from agent2.cards.tables import write_anew  # loads pyarrow

    rewritten = draft / "anew"  # a folder of its own: a kill in the middle leaves the child's card as it is
    remove_folder(rewritten)
    write_anew(card, rewritten)
    os.rename(rewritten, job.card)
    remove_folder(draft)


def has_finished_card(job: EvaluationJob) -> bool:
    """Whether the draft holds a card that was closed and is not damaged."""
    card = draft_of(job.card) / INSIDE_DRAFT
    try:
        # lstat: asked before the card is adopted, when its files may still be links, FIFOs or endless
        folder, facts = card.lstat(), (card / CARD_JSON).lstat()
        if not stat.S_ISDIR(folder.st_mode) or not stat.S_ISREG(facts.st_mode) or facts.st_size > MAX_FACTS_BYTES:
            return False
        return is_finished(card)
    except (OSError, CardError):
        return False


def _adopt(card: Path) -> None:
    """Make a folder of plain files ours; nothing in it is followed. Raises CardError for anything else."""
    total = 0
    for count, (name, status) in enumerate(_take_ownership(card), start=1):
        # a second hard link elsewhere would change its owner and mode with this one
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
            raise CardError(f"{card}: {name!r} is not a plain file; the evaluation has to be made again")
        total += status.st_size
        is_long = name == CARD_JSON and status.st_size > MAX_FACTS_BYTES
        if is_long or count > MAX_CARD_FILES or total > MAX_CARD_BYTES:
            raise CardError(f"{card}: is larger than any card; the evaluation has to be made again")


def _take_ownership(card: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Own the folder and then, one by one, the files in it: each is yielded before it is opened."""
    try:
        folder = os.open(card, _OPEN | os.O_DIRECTORY)
    except OSError as error:
        raise CardError(f"{card}: is not a directory; the evaluation has to be made again") from error
    try:
        os.fchown(folder, os.geteuid(), os.getegid())
        os.fchmod(folder, 0o755)
        for name in sorted(os.listdir(folder)):
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            yield name, status
            handle = os.open(name, _OPEN, dir_fd=folder)
            try:
                os.fchown(handle, os.geteuid(), os.getegid())
                os.fchmod(handle, 0o644)
            finally:
                os.close(handle)
    finally:
        os.close(folder)
