"""Diagnosis of this host: what the sandboxes can use here, which limits are only soft, and how to make them hard.

Looks at the default back end first, then at the engines that could stand in for it, at GPUs and at network policies.
Changes nothing; asks a Docker engine only whether it answers.
"""

import os
import shutil
from dataclasses import dataclass
from enum import StrEnum

from agent2.errors import SandboxError
from agent2.sandbox.backends import Bubblewrap
from agent2.sandbox.containers import Apptainer, Docker
from agent2.sandbox.host import gpu_devices, has_root_rights, known_gpus, refuse_unreadable, toolkit_binds
from agent2.sandbox.limits import (
    CGROUP_ROOT,
    CGROUP_VARIABLE,
    Hierarchy,
    counts_per_namespace,
    hierarchies,
    scopes_unusable,
)
from agent2.sandbox.spec import HOME, Limits, Strength

_ADVICE = {
    "memory": "see the memory control group above; or cap the whole harness: systemd-run --scope -p MemoryMax=... "
    "agent2 run ...; or --set sandbox=docker",
    "disk": "give --out a file system of limited size: truncate -s 50G trials.img && mkfs.ext4 -q trials.img && "
    f"mount -o loop,nosuid,nodev trials.img trials; what is in /tmp and {HOME} is limited anyway",
}


class HostVerdict(StrEnum):
    """How good a finding is."""

    OK = "ok"
    SOFT = "soft"
    """It works, but a limit can be overrun for a moment."""
    ABSENT = "absent"
    """Not here, and not needed."""
    PROBLEM = "problem"
    """Trials cannot run in the sandbox until it is fixed."""


@dataclass(frozen=True, slots=True)
class HostFinding:
    """One line of the diagnosis."""

    what: str
    verdict: HostVerdict
    detail: str
    advice: str = ""
    """What to do; empty where nothing needs doing."""


def diagnose(binary: str = "bwrap", *, as_root: bool | None = None) -> list[HostFinding]:
    """Look at bubblewrap, users, toolkit and limits. `as_root`: as for `Bubblewrap`."""
    root = has_root_rights() if as_root is None else as_root
    sandbox = Bubblewrap(binary, as_root=root)
    return [
        _bubblewrap(sandbox),
        _identity(root),
        _toolkit(root),
        *(_controller(name, hierarchy, root) for name, hierarchy in hierarchies().items()),
        *[
            HostFinding(f"limit on {row.aspect}", HostVerdict.SOFT, row.how, _ADVICE.get(row.aspect, ""))
            for row in sandbox.containment(Limits())
            if row.strength is Strength.SOFT
        ],
        _engine("docker", Docker(), "docker" if shutil.which("docker") else None),
        _engine("apptainer", Apptainer(), shutil.which("apptainer") or shutil.which("singularity")),
        _gpus(),
    ]


def require_usable() -> None:
    """Raise SandboxError with the first problem, if trials cannot run in the sandbox."""
    problems = [finding for finding in diagnose() if finding.verdict is HostVerdict.PROBLEM]
    if problems:
        advice = f"; {problems[0].advice}" if problems[0].advice else ""
        raise SandboxError(f"{problems[0].what}: {problems[0].detail}{advice}")


def is_usable(findings: list[HostFinding]) -> bool:
    """Whether trials can run in the sandbox."""
    return all(finding.verdict is not HostVerdict.PROBLEM for finding in findings)


def _bubblewrap(sandbox: Bubblewrap) -> HostFinding:
    try:
        version = sandbox.require()
    except SandboxError as error:
        problem, _, advice = str(error).partition("; ")
        return HostFinding("bubblewrap", HostVerdict.PROBLEM, problem, advice)
    return HostFinding("bubblewrap", HostVerdict.OK, f"version {'.'.join(map(str, version))}; namespaces work")


def _identity(root: bool) -> HostFinding:
    if root:
        return HostFinding("user", HostVerdict.OK, "root; each workspace gets a host user of its own, without rights")
    if counts_per_namespace():
        return HostFinding(
            "user", HostVerdict.OK, f"user {os.geteuid()} in a user namespace; processes are counted inside"
        )
    return HostFinding(
        "user",
        HostVerdict.SOFT,
        "this kernel (older than 5.14) counts the processes that this user runs outside the sandbox, too",
        "use a newer kernel, or run as root",
    )


def _toolkit(root: bool) -> HostFinding:
    try:
        binds = toolkit_binds()
        if root:
            refuse_unreadable(binds, "the Python toolkit")
    except SandboxError as error:
        problem, _, advice = str(error).partition("; ")
        return HostFinding("toolkit", HostVerdict.PROBLEM, problem, advice)
    return HostFinding("toolkit", HostVerdict.OK, "bound read-only: " + ", ".join(map(str, binds)))


def _controller(name: str, hierarchy: Hierarchy | str, root: bool) -> HostFinding:
    """hierarchy: as `hierarchies` returns it, a sentence where no group can be made."""
    label = f"{name} control group"
    if isinstance(hierarchy, Hierarchy):
        return HostFinding(label, HostVerdict.OK, f"version {hierarchy.version}, made in {hierarchy.parent}")
    no_scope = scopes_unusable(as_root=root)
    if no_scope is None:
        return HostFinding(label, HostVerdict.OK, f"by a systemd scope ({hierarchy})")
    if name == "pids":
        return HostFinding(label, HostVerdict.OK, f"not used: {hierarchy}; RLIMIT_NPROC holds without it")
    return HostFinding(label, HostVerdict.SOFT, f"{hierarchy}; {no_scope}", _group_advice())


def _group_advice() -> str:
    """The commands that make a group of ours."""
    if (CGROUP_ROOT / "cgroup.controllers").exists():
        ours = f"{CGROUP_ROOT}/agent2"
        move_in = ""
        # a user who may not write the root's cgroup.procs can only move processes that are below `ours` already
        if os.geteuid() != 0:
            move_in = f" && mkdir -p {ours}/harness && chown -R {os.geteuid()} {ours} && echo $PPID > "
            move_in += f"{ours}/harness/cgroup.procs, from the shell that starts the harness"
        return (
            f"as root: mkdir -p {ours} && echo '+memory +pids' > {CGROUP_ROOT}/cgroup.subtree_control && "
            f"echo '+memory +pids' > {ours}/cgroup.subtree_control{move_in}; "
            f"then {CGROUP_VARIABLE}=/agent2 agent2 run ..."
        )
    return (
        f"as root: mkdir -p {CGROUP_ROOT}/memory/agent2 {CGROUP_ROOT}/pids/agent2 && chown -R {os.geteuid()} "
        f"{CGROUP_ROOT}/memory/agent2 {CGROUP_ROOT}/pids/agent2; then {CGROUP_VARIABLE}=/agent2 agent2 run ..."
    )


def _engine(name: str, back_end: Docker | Apptainer, binary: str | None) -> HostFinding:
    label = f"--set sandbox={name}"
    if binary is None:
        return HostFinding(label, HostVerdict.ABSENT, "not installed")
    try:
        back_end.require()
    except SandboxError as error:
        problem, _, advice = str(error).rpartition("; ")
        return HostFinding(label, HostVerdict.ABSENT, problem, advice)
    soft = [row.aspect for row in back_end.containment(Limits()) if row.strength is not Strength.HARD]
    return HostFinding(label, HostVerdict.OK, f"{binary} works; soft: {', '.join(soft) or 'nothing'}")


def _gpus() -> HostFinding:
    numbers = known_gpus()
    if not numbers:
        return HostFinding("GPUs", HostVerdict.ABSENT, "no /dev/nvidia<number>")
    try:
        gpu_devices(tuple(numbers))
    except SandboxError as error:
        problem, _, advice = str(error).rpartition("; ")
        return HostFinding("GPUs", HostVerdict.SOFT, problem, advice)
    return HostFinding("GPUs", HostVerdict.OK, f"{', '.join(map(str, numbers))}; pass them to a trial with --gpus")
