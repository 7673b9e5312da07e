"""The folder of official games: `$ALFWORLD_DATA/json_2.1.1/{train,valid_seen,valid_unseen}/<task>/<trial>/`.

A trial folder holds `game.tw-pddl` (the game) and `traj_data.json` (its task type). As the published loader does, it
leaves out folders with "movable" or "Sliced" in their path, those without a game file, and games that are marked as
not solvable. Walkthroughs in the files are never read into a game.

Promises: the same games in the same order on every machine (by a hash of the path, so that the first n are mixed in
task types); what is missing or cut off is an error that names the command and the variable. Does NOT download.
"""

import hashlib
import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import msgspec

from agent2.environments.household.game import TASK_TYPES, Game
from agent2.errors import ConfigError, EnvironmentFailed
from agent2.installation import extra_words
from agent2.records import JsonValue

VARIABLE = "ALFWORLD_DATA"
FOLDER = "json_2.1.1"
GAME_FILE = "game.tw-pddl"
TRAJECTORY_FILE = "traj_data.json"
PUBLISHED_GAMES = {"train": 3553, "valid_seen": 140, "valid_unseen": 134}
"""How many playable games the published folders hold."""
_LEFT_OUT = ("movable", "Sliced")


@dataclass(frozen=True, slots=True)
class OfficialGame:
    """One game of the folder."""

    trial: str
    """Its place below json_2.1.1, "valid_unseen/pick_and_place_simple-Mug-None-Desk-308/trial_T2019..."."""
    game: Game


def data_root(data: Path | None) -> Path:
    """The folder that holds json_2.1.1: the one that is given, `$ALFWORLD_DATA`, or the downloader's default."""
    if data is not None:
        return data.expanduser()
    named = os.environ.get(VARIABLE)
    return Path(named).expanduser() if named else Path.home() / ".cache" / "alfworld"


def task_folder(trial: str) -> str:
    """The part of a trial's place that names room and goal: trials of one task folder differ in where things are."""
    return trial.split("/")[1]


def is_dev(place: str) -> bool:
    """True for a sixteenth of the task folders, by a public hash: the dev games of the published train folder.

    A task folder's name holds room and goal, so train and dev share neither.
    """
    return hashlib.sha256(f"alfworld dev\0{task_folder(place)}".encode()).digest()[0] % 16 == 0


class OfficialData:
    """Reads one data folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def first(
        self, folder: str, n: int, is_wanted: Callable[[str], bool] = lambda place: True, split: str = ""
    ) -> list[OfficialGame]:
        """The first n playable games of a folder, of those whose place is wanted.

        split: what a message calls those. Raises ConfigError if there is no such data, a file cannot be read, or
        there are fewer.
        """
        places = [place for place in self._places(folder) if is_wanted(place)]
        found = list(islice((game for place in places if (game := self._read(place)) is not None), n))
        if len(found) < n:
            raise self._too_few(folder, n, len(found), places, split)
        return found

    def _places(self, folder: str) -> list[str]:
        """The trial folders of a folder, in their fixed order."""
        base = self.root / FOLDER
        top = base / folder
        if not top.is_dir():
            raise ConfigError(f"ALFWorld: no official games in {top}; {self._advice()}")
        places = [path.parent.relative_to(base).as_posix() for path in top.glob(f"*/*/{TRAJECTORY_FILE}")]
        kept = [place for place in places if not any(part in place for part in _LEFT_OUT)]
        return sorted(kept, key=lambda place: hashlib.sha256(place.encode()).digest())

    def _read(self, place: str) -> OfficialGame | None:
        """The game of a trial folder, None for one that the published loader leaves out."""
        folder = self.root / FOLDER / place
        if not (folder / GAME_FILE).is_file():
            return None
        data, trajectory = self._read_json(folder / GAME_FILE), self._read_json(folder / TRAJECTORY_FILE)
        task_type = trajectory.get("task_type")
        if task_type not in TASK_TYPES or not data.get("solvable"):
            return None
        try:
            return OfficialGame(place, Game.from_file(data, str(task_type)))
        except EnvironmentFailed as error:
            raise ConfigError(f"{folder / GAME_FILE}: {error} ({self._variable()} names this folder to it)") from error

    def _too_few(self, folder: str, n: int, n_found: int, places: list[str], split: str) -> ConfigError:
        n_without = sum(not (self.root / FOLDER / place / GAME_FILE).is_file() for place in places)
        without = f" ({n_without} of {len(places)} trial folders have no {GAME_FILE})" if n_without else ""
        key = f"n_items.{split or '<split>'}"
        fewer = (
            f", or ask for fewer: {key}: {n_found} in a task file of your own, or agent2 run --set task.{key}={n_found}"
            if n_found
            else ""
        )
        asked = f"{n} were asked for{f' as {split}' if split else ''}"
        return ConfigError(
            f"ALFWorld: {self.root / FOLDER / folder} holds {n_found or 'no'} playable games{without}, {asked}; "
            f"the published folder has {PUBLISHED_GAMES[folder]}: the download is not complete{fewer}; "
            f"{self._advice()}"
        )

    def _advice(self) -> str:
        return (
            f"get them with: {self._variable()} alfworld-download (where it is missing, {extra_words('household')}), "
            f"and name the folder with --data or the variable {VARIABLE}"
        )

    def _variable(self) -> str:
        """Tells the downloader which folder is meant, for a shell."""
        return f"{VARIABLE}={shlex.quote(str(self.root))}"

    def _read_json(self, path: Path) -> dict[str, JsonValue]:
        again = f"{self._variable()} alfworld-download -f"
        try:
            value = msgspec.json.decode(path.read_bytes())
        except OSError as error:
            raise ConfigError(
                f"{path}: cannot be read ({error.strerror}); download the data again with: {again}"
            ) from error
        except msgspec.DecodeError as error:
            raise ConfigError(
                f"{path}: is cut off or no JSON ({error}); the download broke off: unpack it again with: {again}"
            ) from error
        if not isinstance(value, dict):
            raise ConfigError(
                f"{path}: contains a {type(value).__name__}, an object is needed; unpack it again with: {again}"
            )
        return value
