"""What the sandbox finds on this host, what is only soft here, and how to get more. Changes nothing."""

import os
from dataclasses import dataclass
from enum import StrEnum

from agent2.errors import SandboxError
from agent2.sandbox.bubblewrap import Bubblewrap
from agent2.sandbox.host import has_root_rights
from agent2.sandbox.limits import CGROUP_VARIABLE, Hierarchy, counts_per_namespace, hierarchies
from agent2.sandbox.spec import HOME, Limits, Strength
from agent2.sandbox.toolkit import refuse_unreadable, toolkit_binds


class Verdict(StrEnum):
    """How good a finding is."""

    OK = "ok"
    SOFT = "soft"
    """It works, but a limit can be overrun for a moment."""
    PROBLEM = "problem"
    """Trials cannot run in the sandbox until it is mended."""


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
        *(_controller(name, place) for name, place in hierarchies().items()),
        *_soft_limits(sandbox),
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


def _controller(name: str, place: Hierarchy | str) -> Finding:
    what = f"{name} control group"
    if isinstance(place, Hierarchy):
        return Finding(what, Verdict.OK, f"version {place.version}, made in {place.parent}")
    advice = (
        f"make a group that this user may write, and name it in ${CGROUP_VARIABLE} (as a path below the "
        "controller's root)"
    )
    if name == "pids":
        return Finding(what, Verdict.OK, f"not used: {place}; RLIMIT_NPROC holds without it")
    return Finding(what, Verdict.SOFT, place, advice)


def _soft_limits(sandbox: Bubblewrap) -> list[Finding]:
    return [
        Finding(f"limit on {row.what}", Verdict.SOFT, row.how, _ADVICE.get(row.what, ""))
        for row in sandbox.containment(Limits())
        if row.strength is Strength.SOFT
    ]


_ADVICE = {
    "memory": "cap the whole harness: systemd-run --scope -p MemoryMax=... agent2 run ...",
    "disk": f"keep trials on a file system of limited size; what lies in /tmp and {HOME} is limited anyway",
}
