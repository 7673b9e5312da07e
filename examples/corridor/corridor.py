"""A corridor with four obstacles. Each needs one thing; the next is seen once the last is passed."""

import hashlib
import hmac

from agent2.benchmarks.home import Players, at_random
from agent2.errors import ConfigError, EnvironmentFailed
from agent2.records import HIDDEN_SPLITS, Item, Message, SamplingSettings, Score, Split, Step

HELPS = {"river": "boat", "wall": "rope", "cave": "lamp", "gate": "key", "swamp": "board", "beast": "bread"}


def digest(text, key=b"corridor"):
    """A text as 32 bytes that only the key tells."""
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


class CorridorWorld:
    """Played once; a thing that does not help costs a turn."""

    max_turns = 6

    def __init__(self):
        self._ahead: list[str] = []
        self._is_played = False

    def reset(self, item, seed):
        """The opening of one corridor."""
        if self._is_played:
            raise EnvironmentFailed("this corridor was played already; make a fresh one for each rollout")
        self._is_played, self._ahead = True, list(item.payload["obstacles"])
        return [Message("user", f"{item.prompt} {self._seen()}")]

    def act(self, action):
        """What is seen after one message of the model."""
        if action.strip() == HELPS[self._ahead[0]]:
            self._ahead.pop(0)
        return Step(self._seen(), done=False) if self._ahead else Step(None, done=True)

    def state(self):
        """The facts that the scorer reads."""
        return {"won": self._is_played and not self._ahead, "ahead": len(self._ahead)}

    def ask_expert(self):
        """The thing that helps now."""
        return HELPS[self._ahead[0]]

    def _seen(self):
        return f"There is a {self._ahead[0]}."


class Passed:
    """1.0 for a corridor that was passed."""

    name, version = "passed", "1.0"

    def score(self, item, rollout):
        """A score with its reason."""
        return Score(float(rollout.state["won"]), f"{rollout.state['ahead']} obstacles are left")


class Corridor:
    """Corridors up to number 9,999; a hash divides them among the splits, the secret chooses the hidden ones."""

    name, version, primary_metric = "corridor", "1.0", "success"
    max_turns, attempts = CorridorWorld.max_turns, 1
    sampling = SamplingSettings(temperature=1.0, max_tokens=4)

    def items(self, split, n, secret):
        """The first n items of a split; hidden ones follow from the secret."""
        if split in HIDDEN_SPLITS and not secret:
            raise ConfigError("corridor: hidden items need the installation secret")
        key = secret if split in HIDDEN_SPLITS else b"visible"
        numbers = [number for number in range(10_000) if self._is_of(number, split, key)]
        numbers.sort(key=lambda number: digest(str(number), key))
        if n > len(numbers):
            raise ConfigError(f"corridor: {n} items of {split.value} were asked for, there are {len(numbers)}")
        return [self._item(number, split) for number in numbers[:n]]

    def _is_of(self, number, split, key):
        pool = digest(f"pool {number}")[0] % 4
        if split in HIDDEN_SPLITS:
            return pool > 1 and (digest(f"side {number}", key)[0] % 2 == 0) == (split is Split.TEST_PUBLIC)
        return pool == (0 if split is Split.TRAIN else 1)

    def _item(self, number, split):
        obstacles = [sorted(HELPS)[byte % len(HELPS)] for byte in digest(f"obstacles {number}")[:4]]
        return Item(f"corridor-{number}", split, f"Corridor {number}.", None, {"obstacles": obstacles})

    def environment(self):
        """A fresh environment for one rollout."""
        return CorridorWorld()

    def scorer(self):
        """What judges a rollout."""
        return Passed()

    def environment_version(self):
        """What identifies the environment in the protocol."""
        return "corridor-v1.0"

    def players(self):
        """Who has to win, and who must not."""
        things = sorted(HELPS.values())
        guess = at_random(lambda item, chat, rng: things[rng.integers(len(things))])
        return Players(oracle=self._right, random=guess)

    def _right(self, item, chat):
        return HELPS[chat[-1].text.rstrip(".").rpartition(" ")[2]]
