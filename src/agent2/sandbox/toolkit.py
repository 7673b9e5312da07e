"""Host paths and devices that a sandboxed program needs to see.

Which device files and folders a program needs for the GPUs that it may use (NVIDIA, through the host's driver).

A GPU is named by its minor number, the one in /dev/nvidia<number>; `nvidia-smi -q` shows it where it differs from the
index. Only the device files of the named GPUs are shown, so that no other can be opened; inside, CUDA counts
the visible ones from 0, which is why CUDA_VISIBLE_DEVICES lists 0, 1, ... there.

CUDA does not start without /sys, so parts of it are shown read-only, the list of all PCI devices among them.
Does not cover MIG slices, other vendors, or limits on GPU memory and time.

Which host paths a program needs to see, read-only, so that the system and the Python toolkit work.

The system is /usr with its usual links and the few files of /etc that programs cannot do without; the rest of
/etc stays out. The toolkit is the running interpreter, its packages and the source of this package, at the
same paths as on the host, because virtual environments and scripts have these paths written into them. Works
for an editable checkout (only the package folder is shown, not the repository) and for an installed wheel.

Does not follow `.pth` files of other editable packages, and shows no packages of the user's home folder other
than those on `sys.path`.
"""

import os
import stat
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import agent2
from agent2.errors import SandboxError

CONTROL_DEVICES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
"""Shared by all GPUs; the first two are needed, the others are shown where they exist."""
NEEDED = 2
GPU_FOLDERS = ("/sys/bus/pci", "/sys/devices", "/sys/module/nvidia", "/sys/module/nvidia_uvm")
VARIABLE = "CUDA_VISIBLE_DEVICES"


def gpu_devices(numbers: tuple[int, ...], root: Path = Path("/dev")) -> list[Path]:
    """The device files for these GPUs; empty for none.

    root: where device files are. Raises SandboxError for one that does not exist, with what to do.
    """
    if not numbers:
        return []
    found = []
    for number in numbers:
        device = root / f"nvidia{number}"
        if not device.exists():
            known = ", ".join(str(one) for one in known_gpus(root))
            others = f"choose one of {known}, or" if known else "no GPU is known here;"
            raise SandboxError(
                f"GPU {number}: {device} does not exist; {others} load the driver as root: "
                f"nvidia-modprobe -c {number} -u"
            )
        found.append(device)
    for place, name in enumerate(CONTROL_DEVICES):
        device = root / name
        if device.exists():
            found.append(device)
        elif place < NEEDED:
            raise SandboxError(f"GPUs need {device}, which does not exist; run as root: nvidia-modprobe -c 0 -u")
    return found


def known_gpus(root: Path = Path("/dev")) -> list[int]:
    """Numbers of the GPUs that have a device file."""
    names = (path.name.removeprefix("nvidia") for path in root.glob("nvidia[0-9]*"))
    return sorted(int(name) for name in names if name.isdigit())


def gpu_folders() -> list[Path]:
    """What CUDA reads of /sys, as far as this host has it."""
    return [Path(name) for name in GPU_FOLDERS if Path(name).exists()]


def gpu_environment(numbers: tuple[int, ...]) -> dict[str, str]:
    """Variables for a program that may use so many GPUs; an empty list hides them all."""
    return {VARIABLE: ",".join(str(place) for place in range(len(numbers)))} if numbers else {}


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


def system_binds() -> list[tuple[str, str]]:
    """(kind, path) of the system: kind "link" for /bin-like links, else "bind"."""
    found = []
    for name in SYSTEM_FOLDERS:
        if os.path.islink(name):
            found.append(("link", name))
        elif os.path.isdir(name):
            found.append(("bind", name))
    found.extend(("bind", name) for name in (*ETC_PATHS, *CPU_FOLDERS) if os.path.exists(name))
    return found


def made_files(uid: int) -> dict[str, str]:
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
    wanted = [Path(sys.prefix), Path(sys.prefix).resolve(), *interpreter_binds(), package]
    wanted += [Path(entry) for entry in sys.path if Path(entry).name in {"site-packages", "dist-packages"}]
    return _outside_system([path for path in wanted if path.is_dir()])


def toolkit_path() -> str:
    """PATH of a program that uses the toolkit."""
    return f"{sysconfig.get_path('scripts')}:{SYSTEM_PATH}"


def refuse_unreadable(paths: list[Path], why: str) -> None:
    """Refuse paths that a user without rights cannot read; looks at each path and at what lies directly in it.

    why: what the paths are for. Raises SandboxError naming the first one.
    """
    for path in paths:
        for place in _and_children(path):
            mode = place.lstat().st_mode
            needed = 0o005 if stat.S_ISDIR(mode) else 0o004
            if not stat.S_ISLNK(mode) and mode & needed != needed and (place == path or stat.S_ISREG(mode)):
                raise SandboxError(
                    f"{place}: mode {stat.S_IMODE(mode):04o} keeps it from the sandboxed program ({why}); "
                    f"run: chmod -R o+rX {path}"
                )


def _and_children(path: Path) -> Iterator[Path]:
    yield path
    if path.is_dir():
        yield from path.iterdir()


def _outside_system(paths: list[Path]) -> list[Path]:
    """Without repetitions and without what /usr shows anyway; outer folders first."""
    kept: list[Path] = []
    for path in sorted(set(paths), key=lambda p: len(p.parts)):
        if str(path) in TOO_WIDE or path == Path.home():
            raise SandboxError(
                f"the Python toolkit is installed in {path} itself, so showing it would show everything there; "
                "install agent2 into a virtual environment"
            )
        if path.is_relative_to("/usr") or any(path.is_relative_to(outer) for outer in kept):
            continue
        kept.append(path)
    return kept
