"""Judges that an agent can query but not read: a function derived from the installation secret, or an LLM.

A benchmark of level 2 gives its judge as `HiddenJudge(make)`. Where the harness runs, the judge is made with the
installation's secret, or in a trial with a key that follows from the secret and the trial (`drawn`). In an agent's
workspace there is no secret, and the verdicts on visible items come from the grading API (`POST /judge`), which charges
for each and records it. So reference agents use one reward in both cases.

Does NOT hide the secret from a program with the rights of the user who runs the harness; a sandbox does that.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from typing import Any

from agent2 import installation
from agent2.errors import Fault
from agent2.records import (
    Item,
    Rollout,
    Score,
    ScorerOutput,
    ScoringWork,
    declared_output,
    digest_of,
    judge_of,
    work_of,
)

URL_VARIABLE = "GRADING_SERVER_URL"
"""Environment variable of an agent's workspace: the address of the grading API."""
MAX_ANSWERS = 128
"""Answers in one request."""
MAX_REQUEST_CHARS = 8_000
"""Of all answers in one request; escaped, they stay below the body size that the grading API accepts."""
TIMEOUT_S = 600.0
"""For one request: another may be judged before it, and a machine may be busy."""


class HiddenJudge:
    """A judge made with the installation's secret, or the metered one behind the grading API."""

    def __init__(self, make: Callable[[bytes], Any], declaration: Any = None) -> None:
        """make: takes the secret. declaration: has the judge's name, version, emits ...; None: `make` is its class."""
        declaration = make if declaration is None else declaration
        self.name: str = declaration.name
        self.version: str = declaration.version
        self.emits = declared_output(declaration) or ScorerOutput()
        self.work: ScoringWork = work_of(declaration)
        self.identity = judge_of(declaration)
        self.draw = ""
        """Which of the installation's judges it is; empty: the one that is made with the secret itself."""
        self._make = make
        self._judge: Any = None

    @property
    def judge_digest(self) -> str:
        """Tells judges apart whose verdicts must not be compared; empty without a draw."""
        return digest_of_draw(self.draw) if self.draw else ""

    def drawn(self, draw: str) -> "HiddenJudge":
        """The judge of a draw."""
        judge = copy(self)
        judge.draw, judge._judge = draw, None
        return judge

    def score_batch(self, batch: Sequence[tuple[Item, Rollout]]) -> list[Score]:
        """One verdict for each; verdicts bought in a workspace have no reason, because the API gives none."""
        if url := os.environ.get(URL_VARIABLE):
            return [score for answers in _requests(batch) for score in _buy_verdicts(url, answers)]
        # Made at the first question: the secret is only read where a verdict is needed.
        self._judge = self._judge or self._make(installation.judge_key(installation.secret(), self.draw))
        return list(self._judge.score_batch(batch))

    def score(self, item: Item, rollout: Rollout) -> Score:
        """The verdict on one answer."""
        return self.score_batch([(item, rollout)])[0]


def digest_of_draw(draw: str) -> str:
    """Names the judge of a draw on pages and in locks."""
    return digest_of({"draw": draw})


def _requests(batch: Sequence[tuple[Item, Rollout]]) -> Iterator[list[tuple[str, str]]]:
    """(item id, answer) pairs, as many at once as a request may hold."""
    answers: list[tuple[str, str]] = []
    n_chars = 0
    for item, rollout in batch:
        answer = rollout.answer or ""
        # An answer longer than the limit is still sent, alone: refusing it is up to the API.
        if answers and (len(answers) == MAX_ANSWERS or n_chars + len(answer) > MAX_REQUEST_CHARS):
            yield answers
            answers, n_chars = [], 0
        answers.append((item.id, answer))
        n_chars += len(answer)
    if answers:
        yield answers


def _buy_verdicts(url: str, answers: Sequence[tuple[str, str]]) -> list[Score]:
    """Verdicts of the grading API; missing where it gives none. Asking again about the same answer is free."""
    import httpx  # only workspaces need it

    body = {"answers": [{"id": item_id, "answer": answer} for item_id, answer in answers]}
    try:
        response = httpx.post(f"{url}/judge", json=body, timeout=TIMEOUT_S)
        reply = response.json()
    except (httpx.HTTPError, ValueError) as error:
        return [Score(None, f"{url}/judge: no verdict ({error})", Fault.INFRASTRUCTURE)] * len(answers)
    if response.is_error:
        return [Score(None, str(reply.get("error")), Fault.JUDGE)] * len(answers)
    return [
        Score(value, "bought from the judge") if value is not None else Score(None, "the judge gave none", Fault.JUDGE)
        for value in reply["scores"]
    ]
