"""Players of search questions that do not follow the pages: by chance, by one page, by what is frequent, by n-grams.

Each is a function of item and chat alone, so the same chat gets the same action in every process. `ngram` is a language
model of words (stupid backoff, Brants et al. 2007) that has read an expert's episodes and takes the likeliest of the
actions that name what was shown; it knows every habit of the expert that a few words in a row give away.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache

import numpy as np

from agent2.benchmarks.home import Player
from agent2.benchmarks.search.questions import read_question
from agent2.benchmarks.search.wiki import WikiSettings
from agent2.environments.search.world import ANSWER, OPEN, SEARCH, UNKNOWN, SearchWorld, possible_actions
from agent2.environments.tools.calls import write_brackets
from agent2.records import Item, Message

N_WORDS = 5
"""Longest n-gram."""
BACKOFF = 0.4
"""Factor for each word that a context loses."""
_TOKEN = re.compile(r"\w+|[^\w ]")
_END = "<end>"
_RESULT = re.compile(r"^(.+?): ", re.MULTILINE)

Chats = Callable[[], Sequence[Sequence[Message]]]
"""Episodes to learn from, made when they are asked for."""


def first_search(item: Item) -> str:
    """The search for what a question describes, read from its text."""
    asked = read_question(item.prompt, WikiSettings())
    return write_brackets(SEARCH, asked.query)


def random_action(item: Item, chat: Sequence[Message], rng: np.random.Generator) -> str:
    """The first search, then any action with names that were shown."""
    actions = possible_actions(chat)
    return actions[int(rng.integers(len(actions)))] if actions else first_search(item)


def always_unknown(item: Item, chat: Sequence[Message]) -> str:
    """Says that nothing is known, citing the first page that it found."""
    move = _opening_moves(item, chat)
    return write_brackets(ANSWER, UNKNOWN, _first_page(chat)) if move is None else move


def single_hop(item: Item, chat: Sequence[Message]) -> str:
    """Answers with the last value on the first page that it found."""
    move = _opening_moves(item, chat)
    if move is not None:
        return move
    value = chat[4].content.rstrip(".").rpartition(": ")[2]
    return write_brackets(ANSWER, value or UNKNOWN, _first_page(chat))


def frequent_answer(items: Callable[[], Sequence[Item]]) -> Player:
    """Answers what those items with the same last relation have most often as answer."""

    @cache
    def frequent() -> dict[str, str]:
        counts: dict[str, Counter[str]] = {}
        for item in items():
            counts.setdefault(_last_relation(item), Counter()).update(item.payload["answers"])
        return {last: found.most_common(1)[0][0] for last, found in counts.items()}

    def play(item: Item, chat: Sequence[Message]) -> str:
        move = _opening_moves(item, chat)
        if move is not None:
            return move
        return write_brackets(ANSWER, frequent().get(_last_relation(item), UNKNOWN), _first_page(chat))

    return play


def ngram(chats: Chats) -> Player:
    """Takes the likeliest of the possible actions that it has not taken, given the words before it."""

    @cache
    def model() -> "_Ngrams":
        return _Ngrams(chats())

    def play(item: Item, chat: Sequence[Message]) -> str:
        done = {message.content for message in chat}
        actions = [action for action in possible_actions(chat) if action not in done] or [first_search(item)]
        return max(actions, key=lambda action: model().log_score(chat, action))

    return play


def expert_chats(items: Sequence[Item], make_world: Callable[[], SearchWorld], max_turns: int) -> list[list[Message]]:
    """Episodes of the expert, its last action included."""
    chats = []
    for item in items:
        world = make_world()
        chat = list(world.reset(item, 0))
        for _ in range(max_turns):
            chat.append(Message("assistant", world.ask_expert()))
            step = world.act(chat[-1].content)
            if step.done:
                break
            chat.append(Message("user", step.observation or ""))
        chats.append(chat)
    return chats


class _Ngrams:
    """Counts of the words of an expert's messages after the words before them."""

    def __init__(self, chats: Sequence[Sequence[Message]]) -> None:
        self._counts: Counter[tuple[str, ...]] = Counter()
        for chat in chats:
            for number, message in enumerate(chat):
                if message.role == "assistant":
                    self._counts.update(_grams(_words_before(chat[:number]), message.content))

    def log_score(self, chat: Sequence[Message], action: str) -> float:
        """Sum over the words of an action of the log of their relative frequency, backed off."""
        words = _words_before(chat)
        total = 0.0
        for word in (*_TOKEN.findall(action), _END):
            total += math.log(self._share(tuple(words), word))
            words = [*words, word][1 - N_WORDS :]
        return total

    def _share(self, context: tuple[str, ...], word: str) -> float:
        factor = 1.0
        for start in range(len(context) + 1):
            if found := self._counts[(*context[start:], word)]:
                return factor * found / self._counts[(*context[start:], "")]
            factor *= BACKOFF
        return factor / max(1, self._counts[("",)])


def _grams(words: list[str], text: str) -> Iterator[tuple[str, ...]]:
    """Each word after each of its contexts, and each context with "" to count it."""
    for word in (*_TOKEN.findall(text), _END):
        for start in range(len(words) + 1):
            yield (*words[start:], word)
            yield (*words[start:], "")
        words = [*words, word][1 - N_WORDS :]


def _words_before(chat: Sequence[Message]) -> list[str]:
    """The last words of a chat, and the number of the action that begins: an expert's episodes end in time."""
    return [*_TOKEN.findall(chat[-1].content), f"<{len(chat) // 2}>"][1 - N_WORDS :]


def _opening_moves(item: Item, chat: Sequence[Message]) -> str | None:
    """Search for the description, open the first result; None afterwards."""
    if len(chat) == 1:
        return first_search(item)
    found = _RESULT.search(chat[2].content)
    return write_brackets(OPEN, found[1] if found else UNKNOWN) if len(chat) == 3 else None


def _first_page(chat: Sequence[Message]) -> str:
    return chat[3].content.removeprefix(f"{OPEN}[").removesuffix("]")


def _last_relation(item: Item) -> str:
    return read_question(item.prompt, WikiSettings()).chain[-1]
