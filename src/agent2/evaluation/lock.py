"""What an evaluation ran on: versions of code and libraries, and the hardware.

Does NOT cover what the sampler knows better (model, dtype, device, GPU): that is `Sampler.describe()`.
"""

import functools
import os
import platform
from importlib import metadata
from pathlib import Path

from agent2.records import JsonValue

DISTRIBUTIONS = ("agent2-rl-bench", "numpy", "scipy", "msgspec", "torch", "transformers", "trl", "vllm")


@functools.cache
def software_lock() -> dict[str, JsonValue]:
    """Versions of the libraries that a score can depend on, interpreter, processor. Read once a process."""
    return {
        "python": platform.python_version(),
        "libraries": {name: version for name in DISTRIBUTIONS if (version := _version(name)) is not None},
        "hardware": {
            "machine": platform.machine(),
            "processor": _processor(),
            "cores": os.cpu_count(),
        },
    }


def _version(distribution: str) -> str | None:
    """None: not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
