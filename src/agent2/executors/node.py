"""What happens on a node: it is compared with the driver, and a job's command is run there.

The command is a process of its own. On a cluster it dies with the process that waits for it (`leash.py`), so that a
trial whose worker was killed does not go on beside the one that resumes it; until the kernel has released the lock of
the first, the second waits.
"""

import fcntl
import hashlib
import os
import platform
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import agent2
from agent2 import installation
from agent2.errors import Agent2Error, ConfigError, Fault, SandboxError, first_line_of
from agent2.executors.gpu_shares import GpuShare
from agent2.executors.jobs import Job, JobEnd, NodeNeeds, Resources, fault_of
from agent2.foreign_files import last_lines, read_limited
from agent2.sandbox.doctor import require_usable

PACKAGES = ("agent2-rl-bench", "numpy", "scipy", "msgspec", "tokenizers", "safetensors", "torch", "transformers", "trl")
"""Distributions on whose versions scores can depend."""
LEASH = Path(__file__).with_name("leash.py")
LOCK_WAIT_S = 600.0
"""Longest wait for another process that runs the same job; a lock of a lost NFS client is free after its lease."""
LOCK_LOOK_S = 0.2
TAIL_BYTES = 64_000
"""Of a job's log that are searched for its last line."""
INTERRUPT_WAIT_S = 60.0
"""For a command to record that it was interrupted."""
PREEMPTED = (-signal.SIGTERM, -signal.SIGUSR2)
"""Exit codes of a command whose node is about to be taken away: Slurm sends its notice to every process of a job."""
GPU_VARIABLES = ("SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "CUDA_VISIBLE_DEVICES")
"""Where a scheduler says which GPUs a job has, the most reliable first: Slurm may count the last one from 0."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What a node says of itself."""

    node: str
    python: str
    packages: Mapping[str, str]
    source: str
    secret: str
    token: str
    """Content of the shared file; empty: it is not seen there."""
    sandbox: str = ""
    """Why trials cannot be sandboxed; empty: they can, or nobody asked."""
    unset: tuple[str, ...] = ()
    """Variables that are needed and not set."""


def needs_here(shared: Path, token: str, *, sandbox: bool, variables: tuple[str, ...] = ()) -> NodeNeeds:
    """What nodes must have in common with this process. Raises ConfigError if there is no usable secret."""
    secret = installation.secret_digest(installation.secret())
    return NodeNeeds(platform.python_version(), _versions(), source_digest(), secret, shared, token, sandbox, variables)


def facts_here(needs: NodeNeeds) -> NodeFacts:
    """This process, in the respects that are asked for."""
    token = ""
    with suppress(OSError, UnicodeDecodeError):
        token = read_limited(needs.shared, follow=True).decode()
    return NodeFacts(
        node=socket.gethostname(),
        python=platform.python_version(),
        packages=_versions(),
        source=source_digest(),
        secret=_secret_here(),
        token=token,
        sandbox=_sandbox_problem() if needs.sandbox else "",
        unset=tuple(name for name in needs.variables if not os.environ.get(name)),
    )


def differences(facts: NodeFacts, needs: NodeNeeds) -> list[str]:
    """What keeps a node from giving the driver's results, one sentence each; empty: nothing."""
    found_differences = []
    if facts.python != needs.python:
        found_differences.append(f"runs Python {facts.python}, the driver {needs.python}; use the same version")
    versions = [
        f"{name} {facts.packages.get(name, 'not installed')} (driver: {needs.packages.get(name, 'not installed')})"
        for name in sorted(facts.packages.keys() | needs.packages.keys())
        if facts.packages.get(name) != needs.packages.get(name)
    ]
    if versions:
        found_differences.append(f"has {', '.join(versions)}; install the same versions (-c constraints.txt)")
    elif facts.source != needs.source:
        found_differences.append("has another source of agent2 under the same version; install the same one")
    if needs.secret and facts.secret != needs.secret:
        state = "another" if facts.secret else "no"
        found_differences.append(
            f"has {state} installation secret, so it would play other hidden items; copy the file `secret` from the "
            "driver's installation folder (mode 0600)"
        )
    if facts.token != needs.token:
        found_differences.append(f"does not see {needs.shared.parent}; put --out on a file system that all nodes share")
    if facts.sandbox:
        found_differences.append(f"cannot sandbox trials: {facts.sandbox}; see agent2 doctor there")
    if facts.unset:
        found_differences.append(
            f"has no variable {', '.join(facts.unset)}; set it where the node is started (keys are never sent)"
        )
    return found_differences


def _versions() -> dict[str, str]:
    versions = {}
    for name in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def source_digest() -> str:
    """Digest of the installed package's Python files."""
    root = Path(agent2.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _secret_here() -> str:
    try:
        return installation.own_secret_digest()
    except Agent2Error:  # unreadable, or of another length: none that could be compared
        return ""


def _sandbox_problem() -> str:
    try:
        require_usable()
    except SandboxError as error:
        return first_line_of(error)
    return ""


def run_checked(job: Job, attempt: int, needs: NodeNeeds) -> JobEnd:
    """Run a job on a node of a cluster, unless the node differs from the driver; it dies with this process."""
    if problems := differences(facts_here(needs), needs):
        reason = f"not started: node {socket.gethostname()} {problems[0]}"
        return JobEnd(job.name, attempt, None, Fault.INFRASTRUCTURE, reason, socket.gethostname())
    return run_here(job, attempt, is_leashed=True)


def run_here(
    job: Job,
    attempt: int,
    *,
    is_leashed: bool,
    on_start: Callable[[subprocess.Popen[bytes]], None] | None = None,
    share: GpuShare | None = None,
) -> JobEnd:
    """Run a job's command in a process of its own and wait for it.

    is_leashed: it dies with the thread that waits. on_start: gets the process. share: GPUs that it owns; None: those
    that a scheduler names. An interrupt is passed on to it.
    """
    node = socket.gethostname()
    if (reason := _wait_for_lock(job)) is not None:
        return JobEnd(job.name, attempt, None, Fault.INFRASTRUCTURE, reason, node)
    is_resumed = job.resumes_if is not None and job.resumes_if.exists()
    gpus = gpu_override(job, os.environ) if share is None else gpu_arguments(share.numbers, job.resources)
    if gpus is None:
        reason = (
            f"not started: {job.resources.gpus} GPUs were asked for, and none of {', '.join(GPU_VARIABLES)} names them"
        )
        return JobEnd(job.name, attempt, None, Fault.INFRASTRUCTURE, reason, node)
    arguments = job.resume if is_resumed else (*job.start, *gpus)
    command = [sys.executable, "-m", "agent2", *arguments]
    if is_leashed:
        command = [sys.executable, "-I", "-S", str(LEASH), str(os.getpid()), *command]
    try:
        job.log.parent.mkdir(parents=True, exist_ok=True)
        with job.log.open("ab") as output:
            process = subprocess.Popen(
                command,
                cwd=job.folder,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=share.descriptors if share is not None else (),
            )
    except OSError as error:
        return JobEnd(job.name, attempt, None, Fault.INFRASTRUCTURE, f"not started: {first_line_of(error)}", node)
    if on_start is not None:
        on_start(process)
    try:
        code = process.wait()
    except BaseException:  # the task was cancelled: the command records that it was interrupted
        process.send_signal(signal.SIGINT)
        try:
            process.wait(INTERRUPT_WAIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        raise
    if code in job.ok_codes:
        return JobEnd(job.name, attempt, code, node=node)
    reason = f"ended with exit code {code} ({_last_line(job.log)}); see {job.log}"
    is_lost = is_leashed and code in PREEMPTED
    return JobEnd(job.name, attempt, code, fault_of(code) or Fault.SUBMITTER, reason, node, is_lost)


def _wait_for_lock(job: Job) -> str | None:
    """Wait until no process holds the job's lock; returns why it cannot be had."""
    if job.lock is None or not job.lock.exists():
        return None
    ends_at = time.monotonic() + LOCK_WAIT_S
    try:
        handle = job.lock.open("a")
    except OSError as error:
        return f"not started: {job.lock} cannot be opened ({error.strerror}); check its permissions"
    with handle:
        while True:
            try:
                # shared: two that only look must not take each other for the process that runs it
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return None
            except BlockingIOError:
                if time.monotonic() >= ends_at:
                    return f"not started: another process has run it for {LOCK_WAIT_S:.0f} s; repeat when it has ended"
                time.sleep(LOCK_LOOK_S)
            except OSError as error:
                return f"not started: {job.lock} cannot be locked ({error.strerror}); use a file system with locks"


def gpu_override(job: Job, environment: Mapping[str, str]) -> tuple[str, ...] | None:
    """The GPUs that the scheduler gave this process, as arguments; none for a job that asks for none or names its own.

    None: as many as were asked for are named nowhere by number, so that the job would run without.
    """
    if not job.resources.gpus or any(word.startswith("gpus=") for word in job.start):
        return ()
    for name in GPU_VARIABLES:
        numbers = _numbers_in(environment.get(name, ""))
        if numbers is not None and len(numbers) == job.resources.gpus:
            return gpu_arguments(numbers, job.resources)
    return None


def allowed_gpus(environment: Mapping[str, str]) -> list[int] | None:
    """The GPUs that this process was given of its machine, by a scheduler or a user; None: nothing is said.

    Raises ConfigError for what names none by number (MIG, UUIDs).
    """
    for name in GPU_VARIABLES:
        value = environment.get(name)
        if value is None:
            continue
        if value.strip() in ("", "-1", "NoDevFiles"):
            return []
        numbers = _numbers_in(value)
        if numbers is None:
            raise ConfigError(f"{name}={value}: names GPUs otherwise than by number; list those to use under gpus")
        return numbers
    return None


def _numbers_in(value: str) -> list[int] | None:
    """Numbers separated by commas, each once; None: something else."""
    parts = [part.strip() for part in value.split(",")]
    are_numbers = all(re.fullmatch(r"[0-9]{1,6}", part) for part in parts)
    numbers = [int(part) for part in parts] if are_numbers else []
    return numbers if numbers and len(set(numbers)) == len(numbers) else None


def gpu_arguments(numbers: Sequence[int], resources: Resources) -> tuple[str, ...]:
    """A trial's GPUs as arguments of `agent2 run`."""
    if not numbers:
        return ()
    scoring = ("--set", f"scoring.gpu={numbers[0]}") if resources.scores_on_gpu else ()
    return ("--set", f"gpus=[{','.join(map(str, numbers))}]", *scoring)


def _environment() -> dict[str, str]:
    """This process's, without what Ray tells its own workers."""
    return {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}


def _last_line(log: Path) -> str:
    lines = last_lines(log, TAIL_BYTES)
    return lines[-1][:300] if lines else ""
