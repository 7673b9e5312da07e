"""What the sandbox finds on this host, what is only soft here, and how to get more.

Looks at the default back end first, then at the engines that could stand in for it, at GPUs and at network policies.
Changes nothing; asks a Docker engine only whether it answers.
"""

import os
import shutil
from dataclasses import dataclass
from enum import StrEnum

from agent2.errors import SandboxError
from agent2.sandbox.apptainer import Apptainer
from agent2.sandbox.bubblewrap import Bubblewrap
from agent2.sandbox.docker import Docker
from agent2.sandbox.gpus import gpu_devices, known_gpus
from agent2.sandbox.host import has_root_rights
from agent2.sandbox.limits import CGROUP_ROOT, CGROUP_VARIABLE, Hierarchy, counts_per_namespace, hierarchies
from agent2.sandbox.scopes import scopes_unusable
from agent2.sandbox.spec import HOME, Limits, Strength
from agent2.sandbox.toolkit import refuse_unreadable, toolkit_binds


class Verdict(StrEnum):
    """How good a finding is."""

    OK = "ok"
    SOFT = "soft"
    """It works, but a limit can be overrun for a moment."""
    ABSENT = "absent"
    """Not here, and not needed."""
    PROBLEM = "problem"
    """Trials cannot run in the sandbox until it is fixed."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the diagnosis."""

    what: str
    verdict: Verdict
    detail: str
    advice: str = ""
    """What to do; empty where nothing needs doing."""


def diagnose(binary: str = "bwrap", *, as_root: bool | None = None) -> list[Finding]:
    """Look at bubblewrap, users, toolkit and limits. `as_root`: as for `Bubblewrap`."""
    root = has_root_rights() if as_root is None else as_root
    sandbox = Bubblewrap(binary, as_root=root)
    return [
        _bubblewrap(sandbox),
        _identity(root),
        _toolkit(root),
        *(_controller(name, place, root) for name, place in hierarchies().items()),
        *_soft_limits(sandbox),
        _engine("docker", Docker(), "docker" if shutil.which("docker") else None),
        _engine("apptainer", Apptainer(), shutil.which("apptainer") or shutil.which("singularity")),
        _gpus(),
    ]


def is_usable(findings: list[Finding]) -> bool:
    """Whether trials can run in the sandbox."""
    return all(finding.verdict is not Verdict.PROBLEM for finding in findings)


def _bubblewrap(sandbox: Bubblewrap) -> Finding:
    try:
        version = sandbox.require()
    except SandboxError as error:
        problem, _, advice = str(error).partition("; ")
        return Finding("bubblewrap", Verdict.PROBLEM, problem, advice)
    return Finding("bubblewrap", Verdict.OK, f"version {'.'.join(map(str, version))}; namespaces work")


def _identity(root: bool) -> Finding:
    if root:
        return Finding("user", Verdict.OK, "root; each workspace gets a host user of its own, without rights")
    if counts_per_namespace():
        return Finding("user", Verdict.OK, f"user {os.geteuid()} in a user namespace; processes are counted inside")
    return Finding(
        "user",
        Verdict.SOFT,
        "this kernel (older than 5.14) counts the processes that this user runs outside the sandbox, too",
        "use a newer kernel, or run as root",
    )


def _toolkit(root: bool) -> Finding:
    try:
        binds = toolkit_binds()
        if root:
            refuse_unreadable(binds, "the Python toolkit")
    except SandboxError as error:
        problem, _, advice = str(error).partition("; ")
        return Finding("toolkit", Verdict.PROBLEM, problem, advice)
    return Finding("toolkit", Verdict.OK, "bound read-only: " + ", ".join(map(str, binds)))


def _controller(name: str, place: Hierarchy | str, root: bool) -> Finding:
    what = f"{name} control group"
    if isinstance(place, Hierarchy):
        return Finding(what, Verdict.OK, f"version {place.version}, made in {place.parent}")
    no_scope = scopes_unusable(as_root=root)
    if no_scope is None:
        return Finding(what, Verdict.OK, f"by a systemd scope ({place})")
    if name == "pids":
        return Finding(what, Verdict.OK, f"not used: {place}; RLIMIT_NPROC holds without it")
    return Finding(what, Verdict.SOFT, f"{place}; {no_scope}", _group_advice(name))


def _group_advice(name: str) -> str:
    """The commands that make a group of ours."""
    if (CGROUP_ROOT / "cgroup.controllers").exists():
        ours = f"{CGROUP_ROOT}/agent2"
        move_in = ""
        if os.geteuid() != 0:  # who may not write the root's cgroup.procs can only move processes that are in already
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


def _engine(name: str, back_end: Docker | Apptainer, binary: str | None) -> Finding:
    what = f"--set sandbox={name}"
    if binary is None:
        return Finding(what, Verdict.ABSENT, "not installed")
    try:
        back_end.require()
    except SandboxError as error:
        problem, _, advice = str(error).rpartition("; ")
        return Finding(what, Verdict.ABSENT, problem, advice)
    soft = [row.what for row in back_end.containment(Limits()) if row.strength is not Strength.HARD]
    return Finding(what, Verdict.OK, f"{binary} works; soft: {', '.join(soft) or 'nothing'}")


def _gpus() -> Finding:
    numbers = known_gpus()
    if not numbers:
        return Finding("GPUs", Verdict.ABSENT, "no /dev/nvidia<number>")
    try:
        gpu_devices(tuple(numbers))
    except SandboxError as error:
        problem, _, advice = str(error).rpartition("; ")
        return Finding("GPUs", Verdict.SOFT, problem, advice)
    return Finding("GPUs", Verdict.OK, f"{', '.join(map(str, numbers))}; pass them to a trial with --gpus")


def _soft_limits(sandbox: Bubblewrap) -> list[Finding]:
    return [
        Finding(f"limit on {row.what}", Verdict.SOFT, row.how, _ADVICE.get(row.what, ""))
        for row in sandbox.containment(Limits())
        if row.strength is Strength.SOFT
    ]


_ADVICE = {
    "memory": "see the memory control group above; or cap the whole harness: systemd-run --scope -p MemoryMax=... "
    "agent2 run ...; or --set sandbox=docker",
    "disk": "give --out a file system of limited size: truncate -s 50G trials.img && mkfs.ext4 -q trials.img && "
    f"mount -o loop,nosuid,nodev trials.img trials; what lies in /tmp and {HOME} is limited anyway",
}
