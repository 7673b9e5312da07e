"""Installs this checkout: `install.py demo` the package, `dev` also the tools and libraries of its tests, `test` all.

`make` runs it. It needs only the standard library, and starts under any Python 3.7 or newer so that it can say what is
missing. It says how much disk and time the installation takes before anything is installed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OLDEST_PYTHON = (3, 11)
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
PYPI = "pypi"
APART = "apart"
"""Folder in the environment that no other process imports from."""
CUDA_GIB = 4.0
"""What the CUDA build of torch takes on disk beyond the CPU build."""


@dataclass(frozen=True)
class Part:
    """What a command of the Makefile needs."""

    description: str
    requirement: str
    disk_gib: float
    """Of the whole environment with the CPU build of torch."""
    minutes: str
    programs: tuple = ()
    bare: tuple = ()
    """What is installed without its own requirements: those that the tests need are in `requirement`."""
    apart: tuple = ()
    """The same, into the folder `APART`: what only the tests that ask for it may see."""


# `openenv` asks for much that its tests don't need; transformers loads scikit-learn wherever it is installed.
_BARE = ("openenv",)
_APART = ("scikit-learn", "joblib", "cloudpickle", "narwhals", "threadpoolctl")
PARTS = {
    "demo": Part("the package", ".", 1.8, "2 to 5"),
    "dev": Part(
        "the package, development tools and the libraries of its tests", ".[dev]", 2.4, "4 to 10", (), _BARE, _APART
    ),
    "test": Part(
        "the package, the libraries of its tests and the ALFWorld engine (compiled here)",
        ".[dev,household]",
        2.5,
        "5 to 15",
        ("cc", "c++", "make", "cmake"),
        _BARE,
        _APART,
    ),
}


@dataclass(frozen=True)
class Attempt:
    """One way to get torch; the next is tried where it fails."""

    description: str
    arguments: tuple


class CannotInstall(Exception):
    """Said in one line."""


def torch_attempts(index: str, has_gpu: bool, cpu_index: str = CPU_INDEX) -> list:
    """What is tried, in this order, before pip resolves the rest; empty: pip takes torch from its own index.

    index: `auto`, `pypi`, or the address of a package index.
    """
    if index not in ("auto", PYPI):
        return [Attempt(f"torch from {index}", ("--index-url", index))]
    if index == PYPI or has_gpu:
        return []
    # one retry and a short wait: an index that cannot be reached must not hold up the installation
    hasty = ("--retries", "1", "--timeout", "15")
    return [
        Attempt("a wheel of torch in pip's find-links", ("--no-index", *hasty)),
        Attempt(f"the CPU build of torch at {cpu_index}", ("--index-url", cpu_index, *hasty)),
    ]


def has_gpu() -> bool:
    """Whether nvidia-smi lists a GPU."""
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return listed.returncode == 0 and "GPU " in listed.stdout


def say(line: str) -> None:
    """To the terminal, at once."""
    print(line, flush=True)


def check_machine(part: Part, venv: Path, disk_gib: float) -> None:
    """Raises CannotInstall if Python, a program or disk space is missing."""
    if sys.version_info < OLDEST_PYTHON:
        version = ".".join(str(number) for number in sys.version_info[:3])
        raise CannotInstall(
            f"Python 3.11 or newer is needed, {sys.executable} is {version}; run: make PYTHON=python3.12"
        )
    missing = [name for name in part.programs if shutil.which(name) is None]
    if missing:
        raise CannotInstall(
            f"{', '.join(missing)} not found; on Debian or Ubuntu: apt-get install build-essential cmake"
        )
    free_gib = shutil.disk_usage(venv.resolve().parent).free / 2**30
    if not venv.is_dir() and free_gib < disk_gib:
        raise CannotInstall(
            f"{venv.resolve().parent} has {free_gib:.1f} GiB free, about {disk_gib:.1f} are needed; "
            "free some, or set VENV to a folder on another disk"
        )


def pip(python: Path, *arguments: str, is_quiet: bool = False) -> bool:
    """Run pip of the environment, whose programs are on PATH for whatever pip builds; returns whether it succeeded.

    Large downloads are printed with their size as they begin. is_quiet: pip's complaints are not.
    """
    command = [str(python), "-m", "pip", "install", "--progress-bar", "off", *arguments]
    path = os.pathsep.join([str(python.parent.resolve()), os.environ.get("PATH", "")])
    with subprocess.Popen(
        command, env={**os.environ, "PATH": path, "PYTHONUNBUFFERED": "1"}, cwd=ROOT, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL if is_quiet else None, text=True, errors="replace",
    ) as running:  # fmt: skip
        for line in running.stdout or ():
            progress = progress_of(line)
            if progress:
                say("  " + progress)
    return running.returncode == 0


def progress_of(line: str) -> str:
    """What of a line of pip's is worth a line of ours: a download of a megabyte or more, the installation; else ""."""
    words = line.split()
    if words[:1] == ["Downloading"] and len(words) >= 4 and words[-1] in ("MB)", "GB)"):
        return f"downloading {words[1].rpartition('/')[2]} {' '.join(words[-2:])}"
    if line.startswith("Installing collected packages:"):
        return f"installing {len(words) - 3} packages"
    if words[:1] == ["Building"] and "for" in words:
        return f"building {' '.join(words[words.index('for') + 1 :])}".rstrip(" .:")
    return ""


def install_torch(python: Path, attempts: list) -> bool:
    """By the first attempt that works; returns whether one did. pip's complaints are shown where only one is made."""
    for attempt in attempts:
        pinned = ("--constraint", str(ROOT / "constraints.txt"), "--no-deps", *attempt.arguments, "torch")
        if pip(python, *pinned, is_quiet=len(attempts) > 1):
            return True
    return False


def install(part: Part, venv: Path, index: str) -> None:
    """Raises CannotInstall with what is missing or failed."""
    gpu = has_gpu()
    cuda = index == PYPI or (index == "auto" and gpu)
    disk_gib = part.disk_gib + CUDA_GIB * cuda
    build = "the CUDA build of torch" if cuda else "the CPU build of torch, as no GPU was found"
    if index not in ("auto", PYPI):
        build = f"torch from {index}"
    say(
        f"installing {part.description} into {venv}: about {disk_gib:.1f} GiB on disk, {part.minutes} minutes, "
        f"with {build}"
    )
    check_machine(part, venv, disk_gib)
    python = venv / "bin" / "python"
    # an environment without pip is what is left where Debian's python3-venv was missing
    if not (venv / "bin" / "pip").exists():
        result = subprocess.run([sys.executable, "-m", "venv", str(venv)], check=False)
        if result.returncode != 0:
            raise CannotInstall(f"{venv} could not be made; see above (on Debian: apt-get install python3-venv)")
    if not pip(python, "--upgrade", "pip"):
        raise CannotInstall("pip could not be upgraded; see above: is the package index reachable?")
    attempts = torch_attempts(index, gpu)
    if attempts and not install_torch(python, attempts):
        if index != "auto":
            raise CannotInstall(f"pip could not install {attempts[0].description}; see above")
        say(
            f"{attempts[-1].description} is not available (not reachable, or none for this Python), so pip's own index "
            f"is used: with CUDA, torch takes about {CUDA_GIB:.0f} GiB more; another index: make TORCH_INDEX=URL"
        )
    if not pip(python, "--constraint", str(ROOT / "constraints.txt"), "--editable", part.requirement):
        raise CannotInstall("pip could not install the requirements; see above")
    for names, where in ((part.bare, ()), (part.apart, ("--upgrade", "--target", str(venv.resolve() / APART)))):
        if names and not pip(python, "--constraint", str(ROOT / "constraints.txt"), "--no-deps", *where, *names):
            raise CannotInstall(f"pip could not install {', '.join(names)}; see above")


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=sorted(PARTS))
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv")
    parser.add_argument("--torch-index", default="auto", help=f"auto, {PYPI}, or the address of an index with torch")
    arguments = parser.parse_args()
    try:
        install(PARTS[arguments.part], arguments.venv, arguments.torch_index)
    except CannotInstall as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
