"""What this host lets a sandbox do: root's rights, users of its own, bubblewrap and its namespaces.

A refusal becomes one sentence that says what was refused and which setting allows it.
"""

import hashlib
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

from agent2.errors import SandboxError
from agent2.sandbox import toolkit

NAMESPACES = ("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-net", "--unshare-cgroup-try")
"""Asked of bubblewrap for every program."""
FIRST_UID = 1_900_000_000
"""Above every range that distributions and container tools hand out."""
UID_COUNT = 90_000_000


def has_root_rights() -> bool:
    """Whether we are root and may become the user of a sandbox (not so in a namespace with one user)."""
    if os.geteuid() != 0:
        return False
    return _mapped_users() >= 2**16


def uid_for(workspace: Path) -> int:
    """The host user of a workspace: the same for the same path, and used by nothing else."""
    number = int.from_bytes(hashlib.sha256(os.fsencode(workspace.resolve())).digest()[:8], "big")
    if _mapped_users() > FIRST_UID + UID_COUNT:
        return FIRST_UID + number % UID_COUNT
    return 20_000 + number % 40_000


def hand_over(path: Path, uid: int) -> None:
    """Give a folder, with all it holds, to a user; links are not followed."""
    for folder, names, files in os.walk(path):
        for name in (*names, *files):
            os.chown(os.path.join(folder, name), uid, uid, follow_symlinks=False)
        os.chown(folder, uid, uid)


def bwrap_version(binary: str) -> tuple[int, ...]:
    """Version of bubblewrap.

    Raises SandboxError if it is not installed.
    """
    try:
        answer = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=30, check=False)
    except OSError as error:
        raise SandboxError(
            f"{binary}: bubblewrap is not installed ({error.strerror}); install it "
            "(apt install bubblewrap, dnf install bubblewrap), or use --set sandbox=none, which contains nothing"
        ) from error
    found = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", answer.stdout)
    if found is None:
        raise SandboxError(
            f"{binary} --version said {answer.stdout + answer.stderr!r}; install bubblewrap 0.7 or newer"
        )
    return tuple(int(part) for part in found.groups(default="0"))


def probe(binary: str, *, as_root: bool) -> None:
    """Try the namespaces on a program that does nothing.

    Raises SandboxError saying what this host refuses and what to do.
    """
    options = [] if as_root else ["--unshare-user"]
    system: list[str] = []
    for kind, path in toolkit.system_binds():
        system += ["--symlink", os.readlink(path), path] if kind == "link" else ["--ro-bind", path, path]
    argv = [binary, *options, *NAMESPACES, *system, "--proc", "/proc", "--dev", "/dev", "--", "/usr/bin/true"]
    try:
        environment = {"PATH": os.environ.get("PATH", os.defpath)}  # the same bwrap as the one that will be run
        answer = subprocess.run(argv, capture_output=True, text=True, timeout=60, env=environment, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SandboxError(f"{binary} cannot be tried: {error}; reinstall bubblewrap") from error
    if answer.returncode != 0:
        raise SandboxError(explain_refusal(answer.stderr, Path("/proc/sys").joinpath))


def explain_refusal(stderr: str, setting: Callable[[str], Path]) -> str:
    """One sentence: what the host refused and what to do. `setting` finds a file below /proc/sys."""
    said = (stderr.strip().splitlines() or ["nothing was said"])[-1]
    if "proc" in said and "mount" in said.lower():
        way = "this container masks /proc: start it with --security-opt systempaths=unconfined or --privileged"
    elif _number(setting("kernel/unprivileged_userns_clone")) == 0:
        way = "run as root: sysctl -w kernel.unprivileged_userns_clone=1"
    elif _number(setting("kernel/apparmor_restrict_unprivileged_userns")) == 1:
        way = (
            "run as root: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0 "
            "(or give bwrap an AppArmor profile with 'userns,')"
        )
    elif _number(setting("user/max_user_namespaces")) == 0:
        way = "run as root: sysctl -w user.max_user_namespaces=15000"
    else:
        way = "allow user namespaces (in a container: --security-opt seccomp=unconfined --cap-add SYS_ADMIN)"
    return f"this host refuses namespaces ({said}); {way}; or use --set sandbox=none, which contains nothing"


def _number(path: Path) -> int | None:
    return int(path.read_text()) if path.exists() else None


def _mapped_users() -> int:
    lines = Path("/proc/self/uid_map").read_text().splitlines()
    return sum(int(line.split()[2]) for line in lines)
