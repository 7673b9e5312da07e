r"""Players of `financial_report`, as scripts: an analyst who works soundly, and four with one fault each.

    agent2 eval examples/financial_report.yaml --checkpoint scripted:examples/financial_report_players.py:slow \
        --baseline scripted:examples/financial_report_players.py:memory --out slow

They read questions and pages only, never the answers.
"""

import argparse
import re
from collections.abc import Iterator, Sequence

from agent2.records import Message

QUESTION = re.compile(r"What was the ([\w ]+) of (\w+) AG in (\d+)(?: and in (\d+))?")
FIGURES = {
    "revenue": r"Revenue in \d+: (\d+)",
    "net result": r"Net result in \d+: (\d+)",
    "number of employees": r"Number of employees at the end of \d+: (\d+)",
}
FORECASTS = {
    "revenue": r"a revenue of (\d+)",
    "net result": r"a net result of (\d+)",
    "number of employees": r"and (\d+) employees",
}
OTHERS = (
    "Marsden Norby Orrell Penrith Quarley Redcar Selby Tamar Ulver Vexley Wendal Yarrow Lorne Kelmore Jarrow Irwell"
)


def analyst(chat: Sequence[Message]) -> str:
    """Searches, opens the report of each year, answers with its figure: three rounds for one year."""
    return _next(chat, _work(chat))


def slow(chat: Sequence[Message]) -> str:
    """The same answer after a look at sixteen companies that nobody asked about: about 20 rounds."""
    return _next(chat, _work(chat, detours=OTHERS.split()))


def memory(chat: Sequence[Message]) -> str:
    """Answers without a tool."""
    return "answer[400 | halden-annual-report-2025]"


def forecaster(chat: Sequence[Message]) -> str:
    """Takes the press release for the report: another figure, and truly cited."""
    return _next(chat, _work(chat, reads_press=True))


def misquoter(chat: Sequence[Message]) -> str:
    """Has the right figures, and cites the press release, which does not state them."""
    return _next(chat, _work(chat, cites_press=True))


def _next(chat: Sequence[Message], work: Iterator[str]) -> str:
    """The first action of the work that the chat does not have yet."""
    for _ in range(sum(message.role == "assistant" for message in chat)):
        next(work)
    return next(work)


def _work(
    chat: Sequence[Message],
    *,
    detours: Sequence[str] = (),
    reads_press: bool = False,
    cites_press: bool = False,
) -> Iterator[str]:
    """The actions of one episode in order; each is asked for once the replies to those before it are in the chat."""
    place = next(place for place, message in enumerate(chat) if QUESTION.search(message.text))
    question = QUESTION.search(chat[place].text)
    assert question is not None
    figure, company, *years = question.groups()
    replies = [message.text for message in chat[place + 1 :] if message.role == "user"]
    n_actions = 0
    press = f"{company.lower()}-press-release"
    for other in detours:
        yield f"search[{other} annual report]"
        n_actions += 1
    yield f"search[{company} AG {'press release' if reads_press else 'annual report'}]"
    n_actions += 1
    values, cited = [], []
    reports = [f"{company.lower()}-annual-report-{year}" for year in years if year is not None]
    for page in [press] if reads_press else reports:
        yield f"open[{page}]"
        stated = re.search((FORECASTS if reads_press else FIGURES)[figure], replies[n_actions])
        n_actions += 1
        values.append(stated[1] if stated is not None else "unknown")
        cited.append(page)
    if cites_press:
        yield f"open[{press}]"
        n_actions += 1
        cited = [press]
    yield f"answer[{'; '.join(values)} | {'; '.join(cited)}]"


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    print(__doc__)
