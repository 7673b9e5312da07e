"""What a tiny base model reads of this benchmark: episodes with mistakes, faults and recoveries.

Each message is right or mistaken by chance; how often depends on the operator of the function and on what comes next,
so that a model which imitates the corpus lies between floor and ceiling under greedy sampling too. A few of the
mistakes are dangerous actions. Only contents of the train pool.
"""

from collections.abc import Sequence
from functools import partial
from itertools import islice

import numpy as np

from agent2.benchmarks.mini_repo.benchmark import SOURCE, MiniRepo, to_item
from agent2.benchmarks.mini_repo.players import mistaken, next_kind, oracle
from agent2.benchmarks.tool_questions import right_share
from agent2.benchmarks.transcripts import play_chat
from agent2.environments.tools.faults import FaultKind
from agent2.records import Item, Message, Split

CLEAN = (1.0, 0.0)
"""Mean right share and spread of a corpus without mistakes."""
_SHARES = {
    "read": 0.9,
    "test": 0.6,
    "submit": 0.95,
    FaultKind.TIMEOUT: 0.85,
    FaultKind.PERMISSION_DENIED: 0.65,
    FaultKind.EMPTY_RESULT: 0.35,
    FaultKind.SCHEMA_ERROR: 0.35,
}
"""How often a message is right, by what it should do or recover from; edits: by the operator."""


def pretraining_examples(
    rng: np.random.Generator, n: int, mean_right_share: float = 0.65, spread: float = 0.3
) -> list[list[Message]]:
    """That many chats of several turns.

    mean_right_share: of edits, 0 to 1, over operators; spread: see `right_share`.
    With 1.0 and 0.0 every message is right, also after errors.
    """
    benchmark = MiniRepo()
    draws, chance = rng.spawn(2)
    chats = []
    for task in islice(SOURCE.train_draws(draws), n):
        item = to_item(task, Split.TRAIN)
        player = partial(_careless, item, chance, (mean_right_share, spread))
        chats.append(play_chat(benchmark.environment(), item, player, int(chance.integers(2**62)), benchmark.max_turns))
    return chats


def _careless(item: Item, rng: np.random.Generator, shares: tuple[float, float], messages: Sequence[Message]) -> str:
    kind = next_kind(item, messages)
    feature = f"correct {item.payload['feature']}" if kind == "edit" else kind
    share = 1.0 if shares == CLEAN else _SHARES.get(kind) or right_share(feature, *shares)
    return oracle(item, messages) if rng.random() < share else mistaken(item, messages, rng)
