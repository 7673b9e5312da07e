"""The agent's phase of a trial: what the sandbox may show the agent, watching it, stopping it at the deadline.

The deadline is a wall-clock time, so that the agent, the grading API and a resumed harness agree on it. It covers this
phase only: evaluations of what was accepted in time may end later. How the phase ended is judged from what the sandbox
and the clock say; an agent's exit code decides nothing about its score.
"""

import errno
import logging
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import psutil

from agent2 import installation
from agent2.arena.agent_files import record_metrics
from agent2.arena.agents import Agent
from agent2.arena.assignment import InsidePaths, environment
from agent2.arena.assignments import answers_hidden
from agent2.arena.driver import llm_inside
from agent2.arena.evidence import AgentEnd
from agent2.arena.gpu_use import NO_GPU_BUDGET, GpuBudget, GpuRecorder
from agent2.arena.recorder import ProcessRecorder, RevisionRecorder, RevisionWatch, Ticker
from agent2.arena.spec import Deadline, TrialConfig, limits_of
from agent2.arena.systems import launch_plan
from agent2.arena.trial_folder import EventLog, TrialPaths
from agent2.benchmarks import hidden_files
from agent2.errors import MachineError
from agent2.sandbox.process import SandboxProcess
from agent2.sandbox.spec import GIB, HOST_DISK, Mount, SandboxExit, SandboxSpec
from agent2.sandbox.watchdog import FREE_FLOOR_GIB

logger = logging.getLogger(__name__)

LOGS_GIB = 0.1
"""For logs, cards, code revisions and the report of a small trial."""
COPIES = 3
"""Of the base model: what the agent makes, the snapshot of a submission, and one more in flight."""
WORLDS = "/worlds"
"""Where the sandbox mounts the folders that worlds read."""
INTERPRETER_GIB = 0.5
"""Memory of a process that has loaded torch and no model."""
PROCESS_PERIOD_S = 1.0
REVISION_PERIOD_S = 5.0
"""Between two looks at the code when the kernel reports no change."""
GRACE_S = 5.0
"""Between the request to stop at the deadline and the kill."""
POLL_S = 0.5


def require_room(folder: Path, base: Path | None = None) -> None:
    """Require the disk space and memory without which a trial below `folder` cannot finish.

    folder: need not exist yet. base: the base model, once it is there. Less than the agent's own limits is accepted:
    it need not use all of them. Raises MachineError.
    """
    existing = next(path for path in [folder.absolute(), *folder.absolute().parents] if path.exists())
    weights = sum(file.stat().st_size for file in base.glob("*.safetensors")) / GIB if base is not None else 0.0
    disk = shutil.disk_usage(existing)
    free, needed = disk.free / GIB, FREE_FLOOR_GIB + LOGS_GIB + COPIES * weights
    if disk.total and free < needed:  # /proc and its like have no size: writing there is refused as bad input
        raise MachineError(
            f"{folder}: its disk has {free:.2f} GiB left, {needed:.2f} GiB are needed ({FREE_FLOOR_GIB:g} stay free); "
            "make room there, or pass a folder on another disk"
        )
    memory, needed = psutil.virtual_memory().available / GIB, INTERPRETER_GIB + COPIES * weights
    if memory < needed:
        raise MachineError(
            f"this machine has {memory:.2f} GiB of memory left, {needed:.2f} GiB are needed to score the base model; "
            "end other programs, or choose a smaller base model"
        )


@dataclass(frozen=True, slots=True)
class AgentLimits:
    """What ends the phase, whatever the agent does."""

    deadline: Deadline
    gpus: tuple[int, ...] = ()
    """Numbers of the GPUs that it was given."""
    gpu_budget: GpuBudget = NO_GPU_BUDGET


@dataclass(frozen=True, slots=True)
class AgentOutcome:
    """How the phase ended."""

    end: AgentEnd
    exit_code: int | None
    reason: str


def sandbox_spec(
    config: TrialConfig,
    paths: TrialPaths,
    agent: Agent,
    base: Path,
    inside: InsidePaths,
    worlds: Mapping[Path, str] = MappingProxyType({}),
) -> SandboxSpec:
    """All that the sandbox may show the agent; what is not listed here does not exist for it.

    worlds: folders that the benchmark's worlds read, by `home.world_mounts`. Writes the files of the launch. Raises
    ConfigError as `launch_plan`.
    """
    launch = launch_plan(agent, config, inside, llm_inside(agent, config, inside), paths.launch)
    launch.write()
    # a recording may come from somebody else: it must not choose which of the user's variables its programs read
    variables = () if config.replay is not None else agent.spec.pass_environment
    passed = {name: os.environ[name] for name in variables if name in os.environ}
    llm = {inside.llm_port: paths.llm_socket} if inside.llm_port else {}
    world_mounts = tuple(Mount(host, f"{WORLDS}/{name}") for host, name in worlds.items())
    assigned = config.task.assignment
    answers = answers_hidden(paths.root, assigned.pages) if assigned is not None else ()
    return SandboxSpec(
        command=launch.command,
        workspace=paths.workspace,
        mounts=(Mount(agent.folder, "/agent"), Mount(base, "/model"), *world_mounts, *launch.mounts, *answers),
        environment={**passed, **launch.environment, **environment(config, inside)},
        ports={inside.grading_port: paths.grader_socket, **llm},
        limits=limits_of(config),
        log=paths.agent_log,
        network=config.network,
        packages=config.packages,
        network_log=paths.network_log,
        gpus=config.gpus,
        hidden=(
            installation.home() / "secret",
            paths.grader_db,
            paths.events,
            paths.llm,
            *hidden_files(config.task.benchmark),
        ),
    )


def watch_agent(
    process: SandboxProcess,
    paths: TrialPaths,
    revisions: RevisionRecorder,
    limits: AgentLimits,
    on_tick: Callable[[float], None],
    report: Callable[[str], None],
    watch: Callable[[], str | None] = lambda: None,
) -> AgentOutcome:
    """Wait until the agent ends or a budget is used up, then stop all of it, and record what it leaves behind.

    on_tick: called about twice a second with the seconds left. report: takes one sentence for each part of the
    record that failed; that never changes how the phase ended. watch: called as often; returns a sentence when a
    service of ours that the agent needs has failed permanently, which ends the phase. Raises OSError if the machine's
    disk is full although the agent kept within its own limit.
    """
    # Callbacks run in reverse order: the agent is stopped first, then the samplers, and only then are the last code
    # revision and the metrics read, when nothing writes to the workspace any more.
    with ExitStack() as ending:
        ending.callback(attempt, "training metrics", lambda: record_metrics(paths.workspace, paths.metrics_log), report)
        ending.callback(attempt, "last code revision", revisions.capture, report)
        log = EventLog(paths.processes_log)
        ending.callback(log.close)
        watcher = ProcessRecorder(process.pid, log)
        ending.callback(attempt, "processes", watcher.stop, report)
        gpus = GpuRecorder(process.pid, paths.gpu_log, limits.gpus)
        ending.callback(attempt, "GPUs", gpus.stop, report)
        ending.callback(_stop_ticker, "GPUs", Ticker(gpus.sample, PROCESS_PERIOD_S), report)
        ending.callback(_stop_ticker, "processes", Ticker(watcher.sample, PROCESS_PERIOD_S), report)
        watch_code = RevisionWatch(paths.workspace, revisions.capture, REVISION_PERIOD_S)
        ending.callback(_stop_ticker, "code revisions", watch_code, report)
        ending.callback(process.stop, GRACE_S)
        return _wait(process, limits.deadline, on_tick, watch, lambda: limits.gpu_budget.used_up(gpus))


def rotate_log(log: Path) -> None:
    """Rename the log of an agent that was interrupted to `agent.1.log`, `agent.2.log` and so on."""
    number = 1
    while (target := log.with_suffix(f".{number}{log.suffix}")).exists():
        number += 1
    if log.exists():
        log.rename(target)


def attempt(subject: str, call: Callable[[], object], report: Callable[[str], None]) -> None:
    """Record one subject; a failure is reported and not raised.

    report: takes one sentence.
    """
    try:
        call()
    except Exception as error:  # boundary: it reads what the agent wrote, which must not be able to end the trial
        _report_failure(subject, error, report)


def _stop_ticker(subject: str, ticker: Ticker, report: Callable[[str], None]) -> None:
    error = ticker.stop()
    if error is not None:
        _report_failure(subject, error, report)


def _report_failure(subject: str, error: Exception, report: Callable[[str], None]) -> None:
    logger.warning("%s: not recorded in full", subject, exc_info=error)
    report(f"{subject}: not recorded in full ({type(error).__name__}: {str(error)[:300]})")


def _wait(
    process: SandboxProcess,
    deadline: Deadline,
    on_tick: Callable[[float], None],
    watch: Callable[[], str | None],
    used_up: Callable[[], str | None],
) -> AgentOutcome:
    while not deadline.is_over:
        ended = process.wait(min(POLL_S, deadline.remaining()))
        failure = watch()
        if failure is not None:  # comes before `ended`: an agent that crashed because of it is not to blame either
            process.stop(GRACE_S)
            return AgentOutcome(AgentEnd.INFRASTRUCTURE, ended.code if ended is not None else None, failure)
        if ended is not None:
            return _outcome(ended)
        on_tick(deadline.remaining())
        reason = used_up()
        if reason is not None:
            process.stop(GRACE_S)
            return AgentOutcome(AgentEnd.DEADLINE, None, reason)
    process.stop(GRACE_S)
    return AgentOutcome(
        AgentEnd.DEADLINE, None, f"stopped after {deadline.wall_clock_s:.0f} s: the wall clock is used up"
    )


def _outcome(ended: SandboxExit) -> AgentOutcome:
    if ended.broke == HOST_DISK:  # the agent kept within its own limit: the trial stops and can be resumed
        raise OSError(errno.ENOSPC, f"the agent {ended.reason.removeprefix('the program ')}")
    if ended.broke is not None:
        return AgentOutcome(AgentEnd.LIMIT, ended.code, ended.reason)
    if ended.code == 0:
        return AgentOutcome(AgentEnd.EXITED, 0, "ended by itself")
    return AgentOutcome(AgentEnd.CRASHED, ended.code, ended.reason or f"ended with exit code {ended.code}")
