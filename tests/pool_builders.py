"""Trials of a leaderboard's pool, written by hand."""

import json
import sys
import types
from dataclasses import replace
from pathlib import Path

import numpy as np

from agent2 import installation
from agent2.arena.analysis.pooled import LeaderboardTrial, PooledTrial, TrialConditions
from agent2.arena.sweep_records import SweepRow
from agent2.arena.trial_folder import TrialPaths
from agent2.arena.trial_mark import marked_lock, write_mark
from agent2.stats.estimates import Estimate

N_ITEMS = 60


def conditions(task="t", **changes):
    return replace(TrialConditions(task, "b-v1", "items", "secret", "base", "protocol", "wall_clock_s=60"), **changes)


def pooled(stack, seed, rate, task="t", driver=None, marks=(), **changes):
    rng = np.random.default_rng([seed, len(stack), int(1000 * rate)])
    solved = (rng.random(N_ITEMS) < rate).astype(float)
    base = {f"i{at}": float(at % 4 == 0) for at in range(N_ITEMS)}
    final = {f"i{at}": float(value) for at, value in enumerate(solved)}
    gain = float(solved.mean()) - sum(base.values()) / N_ITEMS
    row = SweepRow(
        task=task, agent=f"{stack}+{driver}" if driver else stack, seed=seed, trial=f"{stack}-{seed}", state="finished",
        gain=Estimate(gain, gain - 0.1, gain + 0.1, N_ITEMS), claim="better" if gain > 0.1 else "unclear",
        result="measured", scaffold=stack, driver=driver, within_noise=False, integrity="clean", seconds=60.0,
    )  # fmt: skip
    fields = {
        "trial": LeaderboardTrial(f"/trials/{stack}-{driver}-{task}-{seed}", row, marks, True, True),
        "conditions": conditions(task),
        "is_interactive": False,
        "agent_digest": "d" * 8,
        "identity": f"{stack}-{driver}-{task}-{seed}",
        "base": base,
        "final": final,
    }
    return PooledTrial(**(fields | changes))


def pool(**rates):
    return [pooled(stack, seed, rate) for stack, rate in rates.items() for seed in range(4)]


def simulation():
    """The simulated sweeps of benchmarks/leaderboard.py."""
    path = Path(__file__).parent.parent / "benchmarks" / "leaderboard.py"
    module = sys.modules[path.stem] = types.ModuleType(path.stem)
    source = path.read_text().replace("sys.path.pop(0)", "")  # as a script it leaves its own folder
    exec(compile(source, path, "exec"), module.__dict__)
    return module


def mark_as_own(folder):
    """Lets a written trial name this installation's secret in its lock, and marks both."""
    paths = TrialPaths(folder)
    lock = json.loads(paths.lock_json.read_text())
    secret = installation.secret_digest(installation.secret())
    paths.lock_json.write_text(json.dumps(marked_lock({**lock, "installation_secret_digest": secret})))
    write_mark(paths)
    return folder
