"""A stand-in for NVML at its own boundary: the functions of `pynvml` that are called, over GPUs that a test describes.

What it takes from the real library (nvidia-ml-py, as read): devices are counted in the order of the bus, which need not
be that of `/dev/nvidia<minor>`; processes are those with a compute context, by the ids of its name space; every
function may raise NVMLError, at any time; memory is in bytes, utilisation in percent of the last sampling period. Not
modelled: MIG but for a load that is not told, permissions that differ between functions, MPS (which an old library does
not know, as this one).
"""

from dataclasses import dataclass, field


class NVMLError(Exception):
    """As pynvml's."""


@dataclass
class Device:
    """One GPU."""

    minor: int | None
    """None: the driver does not know it."""
    pids: set[int] = field(default_factory=set)
    used_bytes: int = 0
    total_bytes: int = 80 * 2**30
    gpu_percent: int | None = 0
    """None: it is divided (MIG), and its load is not told."""
    graphics_pids: set[int] = field(default_factory=set)
    """Of processes with a context for graphics, Vulkan's for computing among them."""
    has_fallen_off: bool = False


@dataclass(frozen=True)
class Process:
    pid: int


@dataclass(frozen=True)
class Memory:
    used: int
    total: int


@dataclass(frozen=True)
class Rates:
    gpu: int


class FakeNvml:
    """In place of the module."""

    NVMLError = NVMLError

    def __init__(self, *devices: Device, has_driver: bool = True) -> None:
        self.devices, self.has_driver = devices, has_driver

    def nvmlInit(self) -> None:
        if not self.has_driver:
            raise NVMLError("Driver Not Loaded")

    def nvmlDeviceGetCount(self) -> int:
        return len(self.devices)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Device:
        return self.devices[index]

    def nvmlDeviceGetMinorNumber(self, device: Device) -> int:
        if device.minor is None:
            raise NVMLError("Not Supported")
        return device.minor

    def nvmlDeviceGetComputeRunningProcesses(self, device: Device) -> list[Process]:
        return [Process(pid) for pid in self._there(device).pids]

    def nvmlDeviceGetGraphicsRunningProcesses(self, device: Device) -> list[Process]:
        return [Process(pid) for pid in self._there(device).graphics_pids]

    def nvmlDeviceGetMemoryInfo(self, device: Device) -> Memory:
        return Memory(self._there(device).used_bytes, device.total_bytes)

    def nvmlDeviceGetUtilizationRates(self, device: Device) -> Rates:
        percent = self._there(device).gpu_percent
        if percent is None:
            raise NVMLError("Not Supported")
        return Rates(percent)

    @staticmethod
    def _there(device: Device) -> Device:
        if device.has_fallen_off:
            raise NVMLError("GPU is lost")
        return device
