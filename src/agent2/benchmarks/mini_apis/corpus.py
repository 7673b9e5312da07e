"""What a tiny base model reads of this benchmark: episodes with mistakes, faults and recoveries.

Each message is right or mistaken by chance; how often depends on the capability and on what comes next (search,
call, answer, recovery), so that a model which imitates the corpus lies between floor and ceiling under greedy
sampling too. Only contents of the train pool.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import islice

import numpy as np

from agent2.benchmarks.mini_apis.benchmark import SOURCE, MiniApis, to_item
from agent2.benchmarks.mini_apis.players import last_error, mistaken, oracle, succeeded
from agent2.benchmarks.tool_questions import right_share
from agent2.benchmarks.transcripts import play_chat
from agent2.environments.tools.apis import SEARCH
from agent2.environments.tools.faults import FaultKind
from agent2.records import Item, Message, Split

_AFTER_ERROR: Mapping[str, float] = {
    FaultKind.TIMEOUT: 0.85,
    FaultKind.PERMISSION_DENIED: 0.65,
    FaultKind.EMPTY_RESULT: 0.35,
}
"""How often what comes after an error is right; 0.25 after any other."""
CLEAN = (1.0, 0.0)
"""Mean right share and spread of a corpus without mistakes."""
_WHEN_DONE = 0.9
"""How often a call that succeeded is not repeated."""


def pretraining_examples(
    rng: np.random.Generator, n: int, mean_right_share: float = 0.7, spread: float = 0.3
) -> list[list[Message]]:
    """That many chats of several turns.

    mean_right_share: of searches and calls, 0 to 1, over capabilities; spread: see `right_share`.
    With 1.0 and 0.0 every message is right, also after errors.
    """
    benchmark = MiniApis()
    draws, chance = rng.spawn(2)
    chats = []
    for task in islice(SOURCE.train_draws(draws), n):
        item = to_item(task, Split.TRAIN)
        player = partial(_careless, item, chance, (mean_right_share, spread))
        chats.append(play_chat(benchmark.environment(), item, player, int(chance.integers(2**62)), benchmark.max_turns))
    return chats


def _careless(item: Item, rng: np.random.Generator, shares: tuple[float, float], messages: Sequence[Message]) -> str:
    is_right = rng.random() < _right_share(item, shares, messages)
    return oracle(item, messages) if is_right else mistaken(item, messages)


def _right_share(item: Item, shares: tuple[float, float], messages: Sequence[Message]) -> float:
    if shares == CLEAN:
        return 1.0
    error, done = last_error(messages), succeeded(messages)
    if error is not None:
        return _AFTER_ERROR.get(error.partition(":")[0], 0.25)
    if item.payload["gold"]["name"] in done:
        return _WHEN_DONE
    return right_share(f"{item.payload['capability']} {SEARCH.name in done}", *shares)
