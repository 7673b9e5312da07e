"""Which device files and folders a program needs for the GPUs that it may use (NVIDIA, through the host's driver).

A GPU is named by its minor number, the one in /dev/nvidia<number>; `nvidia-smi -q` shows it where it differs from the
index. Only the device files of the named GPUs are shown, so that no other can be opened; inside, CUDA counts
the visible ones from 0, which is why CUDA_VISIBLE_DEVICES lists 0, 1, ... there.

CUDA does not start without /sys, so parts of it are shown read-only, the list of all PCI devices among them.
Does not cover MIG slices, other vendors, or limits on GPU memory and time.
"""

from pathlib import Path

from agent2.errors import SandboxError

CONTROL_DEVICES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
"""Shared by all GPUs; the first two are needed, the others are shown where they exist."""
NEEDED = 2
SYSTEM_FOLDERS = ("/sys/bus/pci", "/sys/devices", "/sys/module/nvidia", "/sys/module/nvidia_uvm")
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
    return [Path(name) for name in SYSTEM_FOLDERS if Path(name).exists()]


def gpu_environment(numbers: tuple[int, ...]) -> dict[str, str]:
    """Variables for a program that may use so many GPUs; an empty list hides them all."""
    return {VARIABLE: ",".join(str(place) for place in range(len(numbers)))} if numbers else {}
