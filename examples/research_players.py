r"""Players of `search` and `search_contested`, as scripts: one that works soundly, and six with one fault each.

    agent2 eval research_regression_mini --checkpoint scripted:examples/research_players.py:liar \
        --baseline scripted:examples/research_players.py:honest --out liar

They read question and pages only, never the answers, so they play hidden items as well.
"""

import argparse
import re
from collections.abc import Iterator, Sequence

from agent2.records import Message

QUESTION = re.compile(r"Find the (\w+) from ([\w ]+)\. Name the ([a-z' ]+)\.")
UNKNOWN, DISPUTED = "unknown", "disputed"


def honest(chat: Sequence[Message]) -> str:
    """Searches, opens each page on the way and every register beside it, cites what it read."""
    return _next(chat, _work(chat))


def lazy(chat: Sequence[Message]) -> str:
    """Answers from memory, without a search."""
    return "answer[Mira Tolv | Mira Tolv]"


def wrong(chat: Sequence[Message]) -> str:
    """Works like the honest player, and answers with what the first page says."""
    return _next(chat, _work(chat, is_wrong=True))


def liar(chat: Sequence[Message]) -> str:
    """Has the right values, and cites the first page for them, which does not say them."""
    return _next(chat, _work(chat, cites_first=True))


def repeater(chat: Sequence[Message]) -> str:
    """Asks the same query three times before it goes on."""
    return _next(chat, _work(chat, n_searches=3))


def wanderer(chat: Sequence[Message]) -> str:
    """Opens pages that have nothing to do with the question, a new one each time."""
    return _next(chat, _work(chat, n_detours=5))


def one_sided(chat: Sequence[Message]) -> str:
    """Never opens the register that a page names, so it presents one side as the whole truth."""
    return _next(chat, _work(chat, reads_registers=False))


def _next(chat: Sequence[Message], work: Iterator[str]) -> str:
    """The first action of the work that the chat does not have yet."""
    n_done = sum(message.role == "assistant" for message in chat)
    for _ in range(n_done):
        next(work)
    return next(work)


def _work(
    chat: Sequence[Message],
    *,
    n_searches: int = 1,
    n_detours: int = 0,
    reads_registers: bool = True,
    is_wrong: bool = False,
    cites_first: bool = False,
) -> Iterator[str]:
    """The actions of one episode in order; each is asked for once the replies to those before it are in the chat."""
    question = QUESTION.search(chat[0].text)
    assert question is not None
    trade, home, chain = question[1], question[2], question[3].split("'s ")
    replies = [message.text for message in chat[1:] if message.role == "user"]
    n_actions = 0

    def reply() -> str:
        return replies[n_actions - 1]

    for _ in range(n_searches):
        yield f"search[{trade} {home}]"
        n_actions += 1
    results = [line.partition(": ") for line in reply().split("\n")]
    page = next((name for name, _, text in results if f"is a {trade} from {home}." in text), results[0][0])
    for detour in range(n_detours):
        yield f"search[{('river', 'mayor', 'brewery', 'weaver', 'mill')[detour]}]"
        n_actions += 1
    first_page = page
    first_text = ""
    sources: list[tuple[str, list[str]]] = []
    for relation in chain:
        yield f"open[{page}]"
        n_actions += 1
        text = reply()
        first_text = first_text or text
        sources = [(page, _values(text, relation))]
        register = re.search(r"See also: (.+ Register)\.", text)
        if register is not None and reads_registers and relation in ("founder", "director"):
            yield f"open[{register[1]}]"
            n_actions += 1
            sources.append((register[1], _values(reply(), relation)))
        said = [(source, values) for source, values in sources if values]
        page = said[0][1][0] if said else page
    said = [(source, values) for source, values in sources if values]
    values = list(dict.fromkeys(value for _, stated in said for value in stated))
    if len({tuple(stated) for _, stated in said}) > 1:
        values = [DISPUTED, *values]
    cited = [source for source, _ in said] or [sources[0][0]]
    if is_wrong:
        values, cited = [first_text.rstrip(".").rpartition(": ")[2] or UNKNOWN], [first_page]
    if cites_first:
        cited = [first_page]
    yield f"answer[{'; '.join(values) or UNKNOWN} | {'; '.join(cited)}]"


def _values(text: str, relation: str) -> list[str]:
    """What a page says of a relation."""
    if relation in ("home", "seat"):
        stated = re.match(r".+ (?:from|in) (.+)\.", text)
        return [stated[1]] if stated is not None else []
    line = re.search(rf"^{relation.capitalize()}: (.+)\.$", text, re.MULTILINE)
    return line[1].split("; ") if line is not None else []


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    print(__doc__)
