"""Household items and folders in the official layout, for tests."""

import json
from pathlib import Path

import numpy as np

from agent2.benchmarks.household.generate import SIZES, draw_game
from agent2.environments.household.game import Game
from agent2.records import Item, Rollout, RolloutStatus, Split, StopReason, Turn, Usage

SECRET = b"a secret for tests of this length"


def draw(seed: int, size: str = "tiny") -> Game:
    """A generated game."""
    return draw_game(np.random.default_rng(seed), SIZES[size])


def household_item(seed: int = 0, size: str = "tiny", **payload) -> Item:
    """An item of a generated game."""
    game = draw(seed, size)
    return Item(
        f"household-{seed}",
        Split.DEV,
        "a room",
        payload={"game": game.as_payload(), "task_type": game.task_type, **payload},
    )


def lost_rollout(*actions: str, status=RolloutStatus.TURN_CAP, stop=StopReason.END, **state) -> Rollout:
    """A rollout with these actions and a final state of the household world; lost unless the state says so."""
    turns = [Turn(action, "Nothing happens.", stop, 5, 3) for action in actions]
    final_state = {
        "answer": None,
        "won": False,
        "task_type": "pick_heat_then_place_in_recep",
        "n_turns": len(actions),
        "n_invalid": 0,
        "n_faults": 0,
        "n_recovered": 0,
    }
    return Rollout("item-1", 0, 0, status, (), turns, None, final_state | state, Usage(20, 9))


def write_official(root: Path, n_train: int = 20, n_seen: int = 4, n_unseen: int = 6, size: str = "tiny") -> Path:
    """A data folder in the layout of alfworld-download, filled with generated games; returns the folder.

    Beside the games lie what the published loader leaves out: a movable receptacle, a trial without a game file, and
    a game that is marked as not solvable.
    """
    seed = 0
    for folder, n in (("train", n_train), ("valid_seen", n_seen), ("valid_unseen", n_unseen)):
        for _ in range(n):
            seed += 1
            write_trial(root, folder, draw(seed, size), f"trial_T2026{seed:04d}")
    game = draw(9_000)
    write_trial(root, "valid_unseen", game, "trial_T1", task="pick_and_place_with_movable_recep-Mug-Cup-Shelf-1")
    write_trial(root, "valid_unseen", game, "trial_T2", solvable=False)
    folder = write_trial(root, "valid_unseen", game, "trial_T3")
    (folder / "game.tw-pddl").unlink()
    return root


def write_trial(root: Path, folder: str, game: Game, trial: str, task: str | None = None, **changes) -> Path:
    """One trial folder. changes: other values in the game file."""
    where = root / "json_2.1.1" / folder / (task or f"{game.task_type}-{trial[-4:]}-None-Room-{trial[-3:]}") / trial
    where.mkdir(parents=True)
    (where / "game.tw-pddl").write_text(json.dumps({**game.as_file(), "walkthrough": ["go to shelf 1"], **changes}))
    (where / "traj_data.json").write_text(json.dumps({"task_type": game.task_type, "pddl_params": {}}))
    return where
