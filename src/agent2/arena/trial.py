"""One trial, from an empty folder to its final score; and the same trial resumed after an interruption.

The phases, each closed by an event in events/trial.jsonl:

    base_scored (test_public) -> agent_started -> agent_ended -> graded -> base_scored (test_private)
    -> noise_measured -> final_scored -> assignment_judged (of a task that has an assignment of a kind of its own)
    -> held_out_scored (each task that is held out) -> audited -> finished

A resumed trial repeats the phases that were not closed. The agent dies with the harness. If its time was not up, it is
started again in the workspace as it is, with the budget that is left (`agent_restarted`), or, on request, its phase is
closed as interrupted; what was accepted before is evaluated, once. Time between the end and the resume is not counted.
Does NOT write the report: it is computed from the folder (see `agent2.reports`).
"""

import logging
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from agent2 import installation
from agent2.arena.agent_files import read_metrics, record_commands, record_metrics
from agent2.arena.agent_phase import (
    WORLDS,
    AgentLimits,
    AgentOutcome,
    attempt,
    require_room,
    rotate_log,
    sandbox_spec,
    watch_agent,
)
from agent2.arena.agents import Agent, load_agent
from agent2.arena.assignment import InsidePaths, assignment_json, visible_gpus
from agent2.arena.assignment_phase import make_bench
from agent2.arena.assignments import load_kind
from agent2.arena.assignments.records import Scores
from agent2.arena.audit import AuditedTrial, audit_trial, is_unfinished
from agent2.arena.base_cards import fill_base_card
from agent2.arena.driver import LLM_PORT, open_gateway, require_driver
from agent2.arena.evidence import NOT_MEASURED, AgentEnd, MarkState
from agent2.arena.gpu_use import GpuBudget, charged_seconds
from agent2.arena.grader.evaluator import (
    PACKAGED,
    ChildEvaluator,
    EvaluationFailed,
    EvaluatorProgram,
    GraderSettings,
    server_for,
)
from agent2.arena.grader.server import ApiInfo, make_app, serve_on_socket
from agent2.arena.grader.service import Grader
from agent2.arena.grader.store import count_judgements
from agent2.arena.grader.submission import ContainedAdmission, snapshot_limits
from agent2.arena.held_out import HeldOutGrading, score_held_out, scored_names
from agent2.arena.logged_rewards import is_suspicious, logged_reward
from agent2.arena.plan import (
    VISIBLE_SPLITS,
    clear_unstarted,
    create_workspace,
    lock_record,
    require_same_lock,
    visible_world,
)
from agent2.arena.recorder import RevisionRecorder
from agent2.arena.scoring import (
    NOISE_REPLICATES,
    LoadedTask,
    card_key,
    card_score,
    choose_final,
    log_task_access,
    measure_noise,
    paired_gain,
)
from agent2.arena.spec import UNSANDBOXED, AfterCrash, Deadline, TrialConfig, grading_time
from agent2.arena.trial_folder import (
    HELD_OUT_SCORED,
    LEAST_RESTART_S,
    EventLog,
    TrialPaths,
    clock_wait,
    read_config,
    read_events,
    stopped_at,
    time_used,
)
from agent2.arena.trial_mark import read_mark, write_mark
from agent2.benchmarks import BASE_MODELS, load_benchmark
from agent2.benchmarks.home import ProvidesJudge, world_mounts
from agent2.benchmarks.trial_judge import with_drawn_judge
from agent2.cards.folder import file_digest
from agent2.errors import Agent2Error, ConfigError, Fault
from agent2.executors.gpu_shares import owning
from agent2.files import lock_file, write_json
from agent2.installation import ARENA_ROLE
from agent2.integrity.exposure import honey_file_for, write_honey_file
from agent2.models.bases import ensure_base_model
from agent2.models.checkpoint import CheckpointInfo, inspect_checkpoint, require_template
from agent2.records import HIDDEN_SPLITS, Benchmark, Item, JsonValue, Scorer, Split
from agent2.sandbox.backends import Sandbox, find_sandbox, free_port
from agent2.sandbox.fork_server import ForkServer
from agent2.stats.estimates import Estimate, PairedDifference

logger = logging.getLogger(__name__)

N_TRAIN_SCORED = 300
"""Train items on which a checkpoint is scored whose logged rewards exceed its public score."""
DRAIN_S = 24 * 3600.0
"""Longest wait for the evaluations of what was accepted; each has its own, shorter deadline."""
GRADING_PORT = 8000
"""Loopback port of the grading API inside a sandbox."""


class Steps(Protocol):
    """Callback that reports the phase of a trial."""

    def __call__(self, message: str, done: int | None = None, total: int | None = None) -> None:
        """The present phase; done and total where it can be counted."""


def run_trial(root: Path, steps: Steps, evaluation: EvaluatorProgram = PACKAGED) -> None:
    """Run a new trial to its final score. evaluation: the program that plays checkpoints.

    Raises AgentCrashed if the agent crashed before it submitted anything and the trial's `after_crash` is `stop`.
    """
    _run(TrialPaths(root.resolve()), steps, evaluation, is_new=True)


def resume_trial(
    root: Path, steps: Steps, evaluation: EvaluatorProgram = PACKAGED, *, restarts_agent: bool = True
) -> None:
    """Resume a trial whose harness died; of a finished trial, repeat an audit that was cut short.

    evaluation: the program that plays checkpoints. restarts_agent: an agent that was interrupted before its time was
    up is started again with what is left of it; else its phase ends as interrupted. Raises ConfigError if the folder
    contains no trial, the trial has lost its log or another harness is running it.
    """
    paths = TrialPaths(root.resolve())
    if not paths.trial_json.is_file():
        raise ConfigError(f"{root}: no trial.json there; pass the folder of a trial")
    events = read_events(paths.trial_log)
    if events.last("agent_started") is None and paths.alive.exists():
        raise ConfigError(
            f"{paths.trial_log}: does not say that the agent was started, but it has worked; restore the file from a "
            "copy (resuming without it would start over and lose what was submitted)"
        )
    if events.last("finished") is None:
        if wait_s := clock_wait(events, paths, time.time()):
            steps(f"clock: {wait_s:.0f} s behind that of the machine where the trial was interrupted; waiting")
            time.sleep(wait_s)
        _run(paths, steps, evaluation, restarts_agent=restarts_agent)
    elif paths.integrity.exists() and is_unfinished(paths.integrity):
        _run(paths, steps, evaluation, restarts_agent=False)


@dataclass(frozen=True, slots=True)
class _Trial:
    """What the phases share."""

    config: TrialConfig
    paths: TrialPaths
    agent: Agent
    task: LoadedTask
    base: CheckpointInfo
    sandbox: Sandbox
    inside: InsidePaths
    revisions: RevisionRecorder
    log: EventLog
    steps: Steps
    evaluation: EvaluatorProgram
    server: ForkServer | None
    """Forks the evaluating children."""
    restarts_agent: bool

    def note_unrecorded(self, reason: str) -> None:
        """Note a part of the record that is not complete."""
        self.log.append("recording_failed", reason=reason)


class TrialStopped(Agent2Error):
    """The host failed under a trial; what is recorded stays, and the trial can be resumed."""

    fault = Fault.INFRASTRUCTURE


class AgentCrashed(Agent2Error):
    """The agent crashed before it submitted anything, and nothing was scored; resuming the trial scores it."""

    fault = Fault.SUBMITTER

    def __init__(self, message: str, log: Path) -> None:
        """log: what the agent printed."""
        super().__init__(message)
        self.log = log


def _run(
    paths: TrialPaths,
    steps: Steps,
    evaluation: EvaluatorProgram,
    *,
    restarts_agent: bool = False,
    is_new: bool = False,
) -> None:
    try:
        _run_phases(paths, steps, evaluation, restarts_agent=restarts_agent, is_new=is_new)
    except (OSError, sqlite3.Error) as error:
        raise TrialStopped(
            f"{paths.root}: the trial stopped ({error}); nothing recorded is lost: fix this and resume with "
            f"{paths.resume_command}"
        ) from error


def _run_phases(
    paths: TrialPaths, steps: Steps, evaluation: EvaluatorProgram, *, restarts_agent: bool, is_new: bool
) -> None:
    # a finished trial whose audit is repeated gets a new mark only if what it has is what was marked
    is_marked = read_events(paths.trial_log).last("finished") is None or read_mark(paths).state is MarkState.OWN
    # Each phase returns at once if its closing event is in the log: a resumed trial runs the open ones only.
    with _harness_lock(paths), _open_trial(paths, steps, evaluation, restarts_agent=restarts_agent) as trial:
        with _grading(trial) as grader:
            base = _base_score(trial, grader, Split.TEST_PUBLIC)
        _agent_phase(trial, base)
        with _grading(trial) as grader:
            if is_new and trial.config.after_crash is AfterCrash.STOP and not grader.all():
                _require_no_crash(trial)
            steps("evaluating submissions")
            if not grader.drain(DRAIN_S):
                raise EvaluationFailed(
                    f"submissions were not evaluated in time; resume with {paths.resume_command}", Fault.INFRASTRUCTURE
                )
            trial.log.append("graded")
            _final_phase(trial, grader, base)
            _judge_assignment(trial, grader)
            _train_score(trial, grader)
            _held_out(trial, grader)
            _audit(trial, grader)
        if is_marked:
            write_mark(paths)
        trial.log.append("finished")


def _require_no_crash(trial: _Trial) -> None:
    """Raises AgentCrashed if the agent's phase ended in a crash."""
    ended = read_events(trial.paths.trial_log).last("agent_ended") or {}
    if ended.get("end") == AgentEnd.CRASHED.value:
        code = ended.get("exit_code")
        how = f" with exit code {code}" if code is not None else ""
        raise AgentCrashed(
            f"the agent crashed{how} before it submitted anything, so nothing was scored on private items; to score it "
            f"all the same: {trial.paths.resume_command}",
            trial.paths.agent_log,
        )


@contextmanager
def _harness_lock(paths: TrialPaths) -> Iterator[None]:
    """Refuse a second harness, which would write the same logs. Raises ConfigError."""
    with paths.harness_lock.open("w") as handle:
        try:
            # the kernel releases it when the process dies, so a killed harness leaves no stale lock
            lock_file(handle.fileno())
        except BlockingIOError as error:
            raise ConfigError(f"{paths.root}: another harness is running this trial; wait for it to end") from error
        yield


@contextmanager
def _open_trial(
    paths: TrialPaths, steps: Steps, evaluation: EvaluatorProgram, *, restarts_agent: bool
) -> Iterator[_Trial]:
    config = read_config(paths.trial_json)
    agent, sandbox = load_agent(str(paths.agent)), find_sandbox(config.sandbox)
    events = read_events(paths.trial_log)
    is_unstarted = events.last("agent_started") is None
    if is_unstarted:
        sandbox.require()  # a host that cannot run the sandbox must say so before the base model is scored
        require_driver(agent, config)
    data = Path(config.data) if config.data is not None else None
    benchmark = with_drawn_judge(load_benchmark(config.task.benchmark, data), config.judge_draw)
    task = LoadedTask(config.task, benchmark, installation.secret())
    steps("base model")
    folder = ensure_base_model(
        config.base_model, BASE_MODELS, lambda message: steps(f"base model: {message}"), data=data
    )
    base = inspect_checkpoint(folder)
    require_template(base)
    inside = _inside_paths(sandbox, paths, base.path, agent, benchmark)
    if events.last("agent_ended") is None:
        require_room(paths.root, base.path)
    if is_unstarted:
        clear_unstarted(paths)
        create_workspace(paths.workspace, config, benchmark, inside)
        write_honey_file(paths.workspace, honey_file_for(task.secret, config.trial_id))
        if (assigned := config.task.assignment) is not None:
            steps("files of the assignment")
            load_kind(assigned.kind).prepare(make_bench(config, assigned, paths, task, base, sandbox))
        write_json(paths.lock_json, lock_record(config, agent, base, task))
    else:
        require_same_lock(paths.lock_json, lock_record(config, agent, base, task))
    revisions = RevisionRecorder(paths.workspace, paths.revisions_git, EventLog(paths.revisions_log))
    log = EventLog(paths.trial_log)
    if events.rows:
        log.append("resumed")
    server = server_for(evaluation, base, config.threads)
    try:
        yield _Trial(
            config, paths, agent, task, base, sandbox, inside, revisions, log, steps, evaluation, server,
            restarts_agent,
        )  # fmt: skip
    finally:
        if server is not None:
            server.close()
        revisions.close()
        log.close()


def _inside_paths(sandbox: Sandbox, paths: TrialPaths, base: Path, agent: Agent, benchmark: Benchmark) -> InsidePaths:
    """The paths that the agent sees; without a sandbox they are those of the host."""
    is_contained = sandbox.name != UNSANDBOXED
    llm_port = (LLM_PORT if is_contained else free_port()) if agent.spec.llm is not None else 0
    return InsidePaths(
        workspace=sandbox.visible_path(paths.workspace, "/workspace"),
        base_model=sandbox.visible_path(base, "/model"),
        agent=sandbox.visible_path(agent.folder, "/agent"),
        grading_port=GRADING_PORT if is_contained else free_port(),
        llm_port=llm_port,
        worlds=sandbox.visible_path(installation.worlds_dir(), WORLDS) if world_mounts(benchmark) else "",
    )


@contextmanager
def _grading(trial: _Trial, deadline: Deadline | None = None) -> Iterator[Grader]:
    """A running grader; what an earlier one accepted and did not score comes first.

    deadline: of submissions; None: nothing may be submitted.
    """
    config, benchmark = trial.config, trial.task.benchmark
    judge: Scorer | None = None  # a scorer that is installed with the agent needs no judge at the grader
    judged: dict[str, Item] = {}
    if isinstance(benchmark, ProvidesJudge):
        judge = benchmark.judge(trial.task.secret)
        judged = {item.id: item for split in VISIBLE_SPLITS for item in trial.task.items(split)}
    settings = GraderSettings(
        paths=trial.paths,
        base=trial.base.path,
        benchmark=config.task.benchmark,
        items={split: trial.task.items(split) for split in HIDDEN_SPLITS}
        | {Split.TRAIN: trial.task.items(Split.TRAIN)[:N_TRAIN_SCORED]},
        deadline=deadline or Deadline(time.time(), 0.0),
        judge=judge,
        judged=judged,
        max_judgements=config.budget.judgements,
        max_submissions=config.budget.submissions,
        grading_s=grading_time(config),
        limits=snapshot_limits(trial.base.path, accept_host_paths=trial.sandbox.name == UNSANDBOXED),
        threads=config.threads,
        machine=config.scoring,
    )
    # never mounted in a child of the grader, which loads what the agent submitted
    hidden = (installation.home() / "secret", trial.paths.grader_db, trial.paths.events, trial.paths.llm)
    evaluate = ChildEvaluator(
        config.evaluation_timeout_s, trial.sandbox, hidden, trial.evaluation, benchmark, trial.server
    )
    grader = Grader(settings, evaluate, trial.revisions.capture, ContainedAdmission(trial.sandbox, hidden))
    grader.start()
    try:
        yield grader
    finally:
        grader.stop()


def _agent_phase(trial: _Trial, base: Estimate) -> None:
    """Run the agent, unless its phase is closed; after an interruption it gets what is left of its time, or nothing."""
    events = read_events(trial.paths.trial_log)
    if events.last("agent_ended") is not None:
        return
    left_s = trial.config.budget.wall_clock_s - time_used(events, trial.paths)
    if events.last("agent_started") is None:
        outcome = _run_agent(trial, base, left_s)
    elif trial.restarts_agent and left_s >= LEAST_RESTART_S:
        trial.steps(f"agent: interrupted, started again with {left_s:.0f} s left")
        outcome = _run_agent(trial, base, left_s, stopped=stopped_at(events, trial.paths))
    else:
        outcome = AgentOutcome(
            AgentEnd.INTERRUPTED, None, "the harness died while the agent worked; it was not started again"
        )
        workspace, log = trial.paths.workspace, trial.paths.metrics_log
        attempt("training metrics", lambda: record_metrics(workspace, log), trial.note_unrecorded)
    transcript = trial.agent.spec.transcript
    attempt("command lines", lambda: record_commands(transcript, trial.paths), trial.note_unrecorded)
    fields: dict[str, JsonValue] = {"end": outcome.end.value, "exit_code": outcome.exit_code, "reason": outcome.reason}
    if isinstance(trial.task.benchmark, ProvidesJudge):
        fields["judgements"] = count_judgements(trial.paths.grader_db)
    trial.log.append("agent_ended", **fields)


def _run_agent(trial: _Trial, base: Estimate, left_s: float, *, stopped: float | None = None) -> AgentOutcome:
    """Start the agent and watch it. left_s: seconds that it may work. stopped: when it was interrupted, if it was."""
    if stopped is not None:
        rotate_log(trial.paths.agent_log)
    trial.sandbox.prepare_workspace(trial.paths.workspace)
    config, inside, benchmark = trial.config, trial.inside, trial.task.benchmark
    assignment = assignment_json(config, inside, benchmark.sampling, visible_world(config, benchmark, inside))
    gpus = tuple(visible_gpus(config))
    facts = ApiInfo(task=config.task.name, workspace=inside.workspace, assignment=assignment, gpus=gpus)
    own_gpus = owning(config.gpus, trial.steps)  # the wait for them is not the agent's time either
    with own_gpus, open_gateway(trial.agent, config, trial.paths, inside) as gateway:
        deadline = Deadline(time.time(), left_s)  # from now on: the time to start the gateway is not the agent's
        total = round(deadline.wall_clock_s)

        def tick(left_s: float) -> None:
            trial.paths.alive.touch()  # after a kill of the harness the only trace of how long the agent worked
            trial.steps(f"agent {trial.agent.spec.name} (seconds)", total - round(left_s), total)

        with _grading(trial, deadline) as grader:
            grader.baseline = base
            # listens before the sandbox starts: the agent may connect at once
            server = serve_on_socket(make_app(grader, facts), trial.paths.grader_socket)
            is_started = False
            try:
                worlds = world_mounts(benchmark)
                spec = sandbox_spec(config, trial.paths, trial.agent, trial.base.path, inside, worlds)
                process = trial.sandbox.start(spec)
                # these differ from trial to trial where there is no sandbox; a replay masks them by this record
                fields: dict[str, JsonValue] = {
                    "workspace": inside.workspace,
                    "grading_port": inside.grading_port,
                    "llm_port": inside.llm_port,
                }
                if stopped is not None:
                    fields["stopped_at"] = stopped
                event = "agent_started" if stopped is None else "agent_restarted"
                trial.log.append(event, t=deadline.started_at, deadline=deadline.ends_at, **fields)
                is_started = True
                budget = GpuBudget(config.budget.gpu_hours, charged_seconds(trial.paths))
                limits = AgentLimits(deadline, config.gpus, budget)
                outcome = watch_agent(
                    process, trial.paths, trial.revisions, limits, tick, trial.note_unrecorded,
                    gateway.permanent_failure if gateway is not None else lambda: None,
                )  # fmt: skip
            except BaseException as error:  # Ctrl-C too: what was used of the time is known to the second
                if is_started:
                    _log_interruption(trial, deadline, error)
                raise
            finally:
                server.stop()
        if gateway is not None and gateway.n_restarts:
            trial.note_unrecorded(f"LLM gateway: it died and was started again {gateway.n_restarts} times")
    return outcome


def _log_interruption(trial: _Trial, deadline: Deadline, error: BaseException) -> None:
    reason = "interrupted by a person" if isinstance(error, KeyboardInterrupt) else f"the machine failed: {error}"
    with suppress(OSError):  # the disk may be full; the time of the last touch says when
        trial.log.append("agent_interrupted", t=min(deadline.now(), deadline.ends_at), reason=reason)


def _final_phase(trial: _Trial, grader: Grader, base_public: Estimate) -> None:
    """Score the chosen checkpoint and the base on private items, and measure the noise band, unless that is done."""
    if read_events(trial.paths.trial_log).last("final_scored") is not None:
        return
    root = trial.paths.root
    # before the private items are played for the first time: if it cannot be logged, they are not used
    log_task_access(trial.task, ARENA_ROLE, trial.config.trial_id, trial.base.weights_digest, str(root))
    _base_score(trial, grader, Split.TEST_PRIVATE)
    _noise_band(trial, grader)
    submissions = grader.all()
    final = choose_final(submissions, base_public)
    base_card = trial.paths.card("base", Split.TEST_PRIVATE)
    score: Estimate | None = None
    gain: PairedDifference | None = None
    card = trial.paths.card("final", Split.TEST_PRIVATE)
    if final is not None:
        trial.steps("final checkpoint on test_private")
        path = trial.paths.snapshot(final.number)
        score = grader.evaluate_checkpoint(path, Split.TEST_PRIVATE, card, name=f"submission-{final.number}")
        gain = paired_gain(base_card, card)
    elif any(submission.score is not None for submission in submissions):
        gain = paired_gain(base_card, base_card)  # the base itself is the result
    trial.log.append(
        "final_scored",
        split=Split.TEST_PRIVATE.value,
        submission=final.number if final else None,
        score=score,
        card=str(card.relative_to(root)) if score is not None else None,
        gain=gain,
        train_kinds=_train_kinds(trial.task),
    )


def _judge_assignment(trial: _Trial, grader: Grader) -> None:
    """The verdict on an assignment that asks for more than a checkpoint, unless there is one."""
    assigned = trial.config.task.assignment
    events = read_events(trial.paths.trial_log)
    if assigned is None or events.last("assignment_judged") is not None:
        return
    trial.steps("verdict on the assignment")
    base_card = trial.paths.card("base", Split.TEST_PRIVATE)

    def gain(checkpoint: Path, name: str) -> PairedDifference:
        card = trial.paths.card(name, Split.TEST_PRIVATE)
        # Begun before an interruption, and a program that runs again need not leave the same weights.
        shutil.rmtree(card, ignore_errors=True)
        grader.evaluate_checkpoint(checkpoint, Split.TEST_PRIVATE, card, name=name)
        return paired_gain(base_card, card)

    bench = make_bench(trial.config, assigned, trial.paths, trial.task, trial.base, trial.sandbox)
    scores = Scores(gain, measure_noise(trial.paths.noise_card).half_width)
    trial.log.append("assignment_judged", verdict=load_kind(assigned.kind).judge(bench, scores))


def _train_kinds(task: LoadedTask) -> list[JsonValue] | None:
    """Kinds of the train items; None: they have none."""
    kinds = {str(item.payload["task_type"]) for item in task.items(Split.TRAIN) if "task_type" in item.payload}
    return [*sorted(kinds)] or None


def _train_score(trial: _Trial, grader: Grader) -> None:
    """Score the checkpoint that matters on train items, where its logged rewards exceed its public score."""
    events = read_events(trial.paths.trial_log)
    if events.last("train_scored") is not None:
        return
    final = (events.last("final_scored") or {}).get("submission")
    ordered = sorted(grader.all(), key=lambda submission: submission.number)
    scored = [s for s in ordered if s.score is not None and not s.is_base_copy]
    chosen = max(scored, key=lambda s: (s.number == final, s.score.value if s.score else 0.0), default=None)
    if chosen is None or chosen.score is None:
        return
    since = max((s.received_at for s in ordered if s.number < chosen.number), default=0.0)
    reward = logged_reward(read_metrics(trial.paths.metrics_log), since, chosen.received_at)
    if reward is None or not is_suspicious(reward, chosen.score):
        return
    trial.steps("logged rewards against train items")
    path, card = trial.paths.snapshot(chosen.number), trial.paths.card("final", Split.TRAIN)
    score: Estimate | None = None
    try:
        score = grader.evaluate_checkpoint(path, Split.TRAIN, card, name=f"submission-{chosen.number}")
    except EvaluationFailed as error:  # the result does not depend on it: the public score is compared alone
        logger.warning("%s", error)
    trial.log.append("train_scored", submission=chosen.number, score=score)


def _held_out(trial: _Trial, grader: Grader) -> None:
    """Score base and final checkpoint on each held-out task that was not scored yet, if the final one is no copy."""
    number = (read_events(trial.paths.trial_log).last("final_scored") or {}).get("submission")
    final = grader.get(number) if number is not None else None
    if final is None or final.is_base_copy:
        return
    hosts = HeldOutGrading(
        trial.config, trial.paths, trial.base, trial.sandbox, trial.evaluation, trial.server, trial.task.secret
    )
    for name in trial.config.task.held_out:
        if name not in scored_names(trial.paths):
            trial.steps(f"held-out task {name}")
            trial.log.append(HELD_OUT_SCORED, **score_held_out(name, final, hosts))


def _audit(trial: _Trial, grader: Grader) -> None:
    """Look at where the weights come from and what was trained on; the findings are in integrity.json."""
    scored = read_events(trial.paths.trial_log).last("final_scored")
    final = scored["submission"] if scored is not None else None
    trial.steps("integrity audit")
    record = audit_trial(
        AuditedTrial(
            trial.config.trial_id, trial.paths, trial.task, trial.base.path, trial.sandbox, tuple(grader.all()), final
        )
    )
    n_findings = sum(len(check.findings) for check in record.checks)
    trial.log.append(
        "audited", checks=len(record.checks), findings=n_findings, seconds=record.seconds,
        digest=file_digest(trial.paths.integrity),
    )  # fmt: skip


def _base_score(trial: _Trial, grader: Grader, split: Split) -> Estimate:
    """The base model's score on a split, from the trial's own card, the cache, or a fresh evaluation."""
    card = trial.paths.card("base", split)
    rows = read_events(trial.paths.trial_log).rows
    if not any(row["event"] == "base_scored" and row["split"] == split.value for row in rows):
        trial.steps(f"base model on {split.value}")
        _evaluate_base(trial, grader, split, card, attempts=trial.task.benchmark.attempts)
        card_path = str(card.relative_to(trial.paths.root))
        trial.log.append("base_scored", split=split.value, score=card_score(card), card=card_path)
    return card_score(card)


def _noise_band(trial: _Trial, grader: Grader) -> None:
    """Measure how far the base model is from itself on private items under other sampling seeds, unless it was."""
    if read_events(trial.paths.trial_log).last("noise_measured") is not None:
        return
    if trial.config.quick:
        trial.log.append("noise_measured", half_width=0.0, n_replicates=0, over=NOT_MEASURED)
        return
    trial.steps("noise band")
    card = trial.paths.noise_card
    _evaluate_base(trial, grader, Split.TEST_PRIVATE, card, attempts=NOISE_REPLICATES)
    band = measure_noise(card)
    trial.log.append("noise_measured", half_width=band.half_width, n_replicates=band.n_replicates, over=band.over)


def _evaluate_base(trial: _Trial, grader: Grader, split: Split, card: Path, attempts: int) -> None:
    """Produce a card of the base model: copied from the installation's cache, or played by the grader and cached."""
    key = card_key(trial.task, trial.base, split, attempts, trial.config.scoring)

    def play() -> None:
        grader.evaluate_checkpoint(trial.base.path, split, card, name="base", attempts=attempts)

    fill_base_card(card, trial.task, split, key, play)
