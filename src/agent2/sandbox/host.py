"""What this host offers a sandbox: users, namespaces, the paths and devices that a program needs to see.

A refusal becomes one sentence that says what was refused and which setting allows it.

The system is /usr with its usual links and the few files of /etc that programs cannot do without; the rest of /etc
stays out. The toolkit is the running interpreter, its packages and the source of this package, at the same paths as on
the host, because virtual environments and scripts have these paths written into them. Works for an editable checkout
(only the package folder is shown, not the repository) and for an installed wheel. Does not follow `.pth` files of other
editable packages, and shows no packages of the user's home folder other than those on `sys.path`.

A GPU (NVIDIA, through the host's driver) is named by its minor number, the one in /dev/nvidia<number>; `nvidia-smi -q`
shows it where it differs from the index. Only the device files of the named GPUs are shown, so that no other can be
opened; inside, CUDA counts the visible ones from 0, which is why CUDA_VISIBLE_DEVICES lists 0, 1, ... there. CUDA does
not start without /sys, so parts of it are shown read-only, the list of all PCI devices among them. Does not cover MIG
slices, other vendors, or limits on GPU memory and time.
"""

import fcntl
import hashlib
import os
import re
import stat
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import agent2
from agent2.errors import SandboxError
from agent2.sandbox.spec import SandboxSpec, refuse_hidden

CONTROL_DEVICES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
"""Shared by all GPUs; the first two are needed, the others are shown where they exist."""
NEEDED = 2
GPU_FOLDERS = ("/sys/bus/pci", "/sys/devices", "/sys/module/nvidia", "/sys/module/nvidia_uvm")
VARIABLE = "CUDA_VISIBLE_DEVICES"
FORWARDER = Path(__file__).with_name("forward.py")
"""Runs inside, before the program."""
SYSTEM_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
ETC_PATHS = (
    "/etc/alternatives",
    "/etc/ca-certificates.conf",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/pki/tls/certs",
    "/etc/pki/ca-trust/extracted",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
)
CPU_FOLDERS = ("/sys/devices/system/cpu", "/sys/devices/system/node")
"""Numbers about the processors, which numeric libraries read when they start."""
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
TOO_WIDE = ("/", "/home", "/root", "/etc", "/var", "/tmp", "/opt", "/srv", "/mnt", "/run")
"""Folders that are never shown as a whole: a toolkit has to be installed below them, not in them."""
NAMESPACES = ("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-net", "--unshare-cgroup-try")
"""Asked of bubblewrap for every program."""
FIRST_UID = 1_900_000_000
"""Above every range that distributions and container tools hand out."""
UID_COUNT = 90_000_000
"""Host users from `FIRST_UID` on, of which each workspace gets one."""


def gpu_devices(numbers: tuple[int, ...], root: Path = Path("/dev")) -> list[Path]:
    """The device files for these GPUs; empty for none.

    root: where device files are. Raises SandboxError for one that does not exist, with what to do.
    """
    if not numbers:
        return []
    devices = []
    for number in numbers:
        device = root / f"nvidia{number}"
        if not device.exists():
            numbers_here = ", ".join(str(present) for present in known_gpus(root))
            choice = f"choose one of {numbers_here}, or" if numbers_here else "no GPU is known here;"
            raise SandboxError(
                f"GPU {number}: {device} does not exist; {choice} load the driver as root: "
                f"nvidia-modprobe -c {number} -u"
            )
        devices.append(device)
    for index, name in enumerate(CONTROL_DEVICES):
        device = root / name
        if device.exists():
            devices.append(device)
        elif index < NEEDED:
            raise SandboxError(f"GPUs need {device}, which does not exist; run as root: nvidia-modprobe -c 0 -u")
    return devices


def known_gpus(root: Path = Path("/dev")) -> list[int]:
    """Numbers of the GPUs that have a device file."""
    names = (path.name.removeprefix("nvidia") for path in root.glob("nvidia[0-9]*"))
    return sorted(int(name) for name in names if name.isdigit())


def gpu_folders() -> list[Path]:
    """What CUDA reads of /sys, as far as this host has it."""
    return [Path(name) for name in GPU_FOLDERS if Path(name).exists()]


def gpu_environment(numbers: tuple[int, ...]) -> dict[str, str]:
    """Variables for a program that may use so many GPUs, which are counted from 0 inside; none without a GPU."""
    return {VARIABLE: ",".join(str(index) for index in range(len(numbers)))} if numbers else {}


def system_binds() -> list[tuple[str, str]]:
    """(kind, path) of the system: kind "link" for /bin-like links, else "bind"."""
    binds = []
    for name in SYSTEM_FOLDERS:
        if os.path.islink(name):
            binds.append(("link", name))
        elif os.path.isdir(name):
            binds.append(("bind", name))
    binds.extend(("bind", name) for name in (*ETC_PATHS, *CPU_FOLDERS) if os.path.exists(name))
    return binds


def etc_files(uid: int) -> dict[str, str]:
    """Files of /etc that a sandbox makes itself: path -> content."""
    return {
        "/etc/passwd": f"agent:x:{uid}:{uid}:agent:/home/agent:/bin/sh\n",
        "/etc/group": f"agent:x:{uid}:\n",
        "/etc/hosts": "127.0.0.1 localhost agent2\n",
        "/etc/hostname": "agent2\n",
        "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
        "/etc/resolv.conf": "",
    }


def interpreter() -> Path:
    """The host path of the interpreter below the virtual environment, links resolved."""
    return Path(os.path.realpath(sys.executable))


def interpreter_binds() -> list[Path]:
    """What the bare interpreter needs, for the forwarder.

    Raises SandboxError if the interpreter is installed where showing it would show far more.
    """
    return _outside_system([Path(sys.base_prefix), Path(sys.base_prefix).resolve(), interpreter().parent.parent])


def toolkit_binds() -> list[Path]:
    """What `import agent2, torch` needs: environment, interpreter, packages, this package.

    Raises SandboxError if one of them is installed where showing it would show far more.
    """
    package = Path(agent2.__file__).resolve().parent
    paths = [Path(sys.prefix), Path(sys.prefix).resolve(), *interpreter_binds(), package]
    paths += [Path(entry) for entry in sys.path if Path(entry).name in {"site-packages", "dist-packages"}]
    return _outside_system([path for path in paths if path.is_dir()])


def toolkit_path() -> str:
    """PATH of a program that uses the toolkit."""
    return f"{sysconfig.get_path('scripts')}:{SYSTEM_PATH}"


def refuse_unreadable(paths: list[Path], why: str) -> None:
    """Refuse paths that a user without rights cannot read; looks at each path and at the entries directly in it.

    why: what the paths are for. Raises SandboxError naming the first one.
    """
    for path in paths:
        for entry in _with_entries(path):
            mode = entry.lstat().st_mode
            needed = 0o005 if stat.S_ISDIR(mode) else 0o004
            if not stat.S_ISLNK(mode) and mode & needed != needed and (entry == path or stat.S_ISREG(mode)):
                raise SandboxError(
                    f"{entry}: mode {stat.S_IMODE(mode):04o} keeps it from the sandboxed program ({why}); "
                    f"run: chmod -R o+rX {path}"
                )


def visible_toolkit(spec: SandboxSpec, *, other_user: bool) -> list[Path]:
    """The toolkit's folders that a program sees.

    other_user: whether it runs as a host user without rights. Raises SandboxError if what it sees would show
    something hidden, or cannot be read by that user.
    """
    binds = toolkit_binds() if spec.python else interpreter_binds()
    for path in [*binds, *(Path(system) for _, system in system_binds())]:
        refuse_hidden(path, spec.hidden)
    if other_user:
        refuse_unreadable([FORWARDER, *binds], "the Python toolkit")
        refuse_unreadable([mount.host for mount in spec.mounts if not mount.writable], "a mount")
    return binds


def _with_entries(path: Path) -> Iterator[Path]:
    """The path, and then the entries of a folder, which is not read before it was looked at itself."""
    yield path
    if path.is_dir():
        yield from path.iterdir()


def _outside_system(paths: list[Path]) -> list[Path]:
    """Without repetitions and without what /usr shows anyway; outer folders first."""
    outer_paths: list[Path] = []
    for path in sorted(set(paths), key=lambda p: len(p.parts)):
        if str(path) in TOO_WIDE or path == Path.home():
            raise SandboxError(
                f"the Python toolkit is installed in {path} itself, so showing it would show everything there; "
                "install agent2 into a virtual environment"
            )
        if path.is_relative_to("/usr") or any(path.is_relative_to(outer) for outer in outer_paths):
            continue
        outer_paths.append(path)
    return outer_paths


def has_root_rights() -> bool:
    """Whether we are root and may become the user of a sandbox (not so in a namespace with one user)."""
    if os.geteuid() != 0:
        return False
    # a container's root may be mapped to one user only: it could not change to another
    return _mapped_users() >= 2**16


def uid_for(workspace: Path) -> int:
    """The host user of a workspace: the same for the same path, and used by nothing else."""
    number = int.from_bytes(hashlib.sha256(os.fsencode(workspace.resolve())).digest()[:8], "big")
    if _mapped_users() > FIRST_UID + UID_COUNT:
        return FIRST_UID + number % UID_COUNT
    return 20_000 + number % 40_000  # in a user namespace, which usually maps 65536 users


def chown_tree(path: Path, uid: int) -> None:
    """Give a folder, with all it holds, to a user; links are not followed."""
    for folder, names, files in os.walk(path):
        for name in (*names, *files):
            os.chown(os.path.join(folder, name), uid, uid, follow_symlinks=False)
        os.chown(folder, uid, uid)


def in_memory(name: str, content: bytes) -> int:
    """A descriptor at the start of a file that exists in memory only and can no longer be changed.

    Inside a sandbox of ours, whose filter refuses such files, it is a nameless temporary file.
    """
    try:
        descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError:
        with tempfile.TemporaryFile() as file:
            file.write(content)
            file.seek(0)
            return os.dup(file.fileno())
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


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
    version = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", answer.stdout)
    if version is None:
        raise SandboxError(
            f"{binary} --version said {answer.stdout + answer.stderr!r}; install bubblewrap 0.7 or newer"
        )
    return tuple(int(part) for part in version.groups(default="0"))


def probe(binary: str, *, as_root: bool) -> None:
    """Try the namespaces with a program that does nothing.

    Raises SandboxError saying what this host refuses and what to do.
    """
    options = [] if as_root else ["--unshare-user"]
    system: list[str] = []
    for kind, path in system_binds():
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
    message = (stderr.strip().splitlines() or ["nothing was said"])[-1]
    if "proc" in message and "mount" in message.lower():
        advice = "this container masks /proc: start it with --security-opt systempaths=unconfined or --privileged"
    elif _read_setting(setting("kernel/unprivileged_userns_clone")) == 0:
        advice = "run as root: sysctl -w kernel.unprivileged_userns_clone=1"
    elif _read_setting(setting("kernel/apparmor_restrict_unprivileged_userns")) == 1:
        advice = (
            "run as root: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0 "
            "(or give bwrap an AppArmor profile with 'userns,')"
        )
    elif _read_setting(setting("user/max_user_namespaces")) == 0:
        advice = "run as root: sysctl -w user.max_user_namespaces=15000"
    else:
        advice = "allow user namespaces (in a container: --security-opt seccomp=unconfined --cap-add SYS_ADMIN)"
    return f"this host refuses namespaces ({message}); {advice}; or use --set sandbox=none, which contains nothing"


def _read_setting(path: Path) -> int | None:
    return int(path.read_text()) if path.exists() else None


def _mapped_users() -> int:
    lines = Path("/proc/self/uid_map").read_text().splitlines()
    return sum(int(line.split()[2]) for line in lines)
