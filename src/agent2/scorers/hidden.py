"""Judges that an agent can ask and has not: a function that follows from the installation secret, or an LLM.

A benchmark of level 2 gives its judge as `HiddenJudge(make)`. Where the harness runs, the judge is made with the
installation's secret. In an agent's workspace there is no secret, and the verdicts on visible items come from the
grading API (`POST /judge`), which charges for each and records it. So reference agents use one reward in both cases.

Does NOT hide the secret from a program with the rights of the user who runs the harness; a sandbox does that.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from agent2 import installation
from agent2.errors import Fault
from agent2.records import Emits, Item, Rollout, Score, ScoringWork, emits_of, judge_of, work_of

URL_VARIABLE = "GRADING_SERVER_URL"
"""Of an agent's workspace: where the judge is asked."""
MAX_ANSWERS = 128
MAX_REQUEST_CHARS = 8_000
"""Of the answers in one request; escaped, they stay below the body that the grading API takes."""
TIMEOUT_S = 60.0


class HiddenJudge:
    """A judge made with the installation's secret, or the metered one behind the grading API."""

    def __init__(self, make: Callable[[bytes], Any], kind: Any = None) -> None:
        """make: takes the secret. kind: has what the judge declares, its name among it; None: `make` is its class."""
        kind = make if kind is None else kind
        self.name: str = kind.name
        self.version: str = kind.version
        self.emits = emits_of(kind) or Emits()
        self.work: ScoringWork = work_of(kind)
        self.identity = judge_of(kind)
        self._make = make
        self._judge: Any = None

    def score_batch(self, batch: Sequence[tuple[Item, Rollout]]) -> list[Score]:
        """One verdict for each; in a workspace without a reason, as the API gives none."""
        if url := os.environ.get(URL_VARIABLE):
            return [score for part in _parts(batch) for score in _bought(url, part)]
        self._judge = self._judge or self._make(installation.secret())
        return list(self._judge.score_batch(batch))

    def score(self, item: Item, rollout: Rollout) -> Score:
        """The verdict on one answer."""
        return self.score_batch([(item, rollout)])[0]


def _parts(batch: Sequence[tuple[Item, Rollout]]) -> Iterator[list[tuple[str, str]]]:
    """Item and answer, as many at once as a request may hold."""
    part: list[tuple[str, str]] = []
    for item, rollout in batch:
        answer = rollout.answer or ""
        if part and (len(part) == MAX_ANSWERS or sum(len(one) for _, one in part) + len(answer) > MAX_REQUEST_CHARS):
            yield part
            part = []
        part.append((item.id, answer))
    if part:
        yield part


def _bought(url: str, part: Sequence[tuple[str, str]]) -> list[Score]:
    """Verdicts of the grading API; missing where it gives none. Asking again about the same answer is free."""
    import httpx

    body = {"answers": [{"id": item_id, "answer": answer} for item_id, answer in part]}
    try:
        response = httpx.post(f"{url}/judge", json=body, timeout=TIMEOUT_S)
        answer = response.json()
    except (httpx.HTTPError, ValueError) as error:
        return [Score(None, f"{url}/judge: no verdict ({error})", Fault.INFRASTRUCTURE)] * len(part)
    if response.is_error:
        return [Score(None, str(answer.get("error")), Fault.JUDGE)] * len(part)
    return [
        Score(value, "bought from the judge") if value is not None else Score(None, "the judge gave none", Fault.JUDGE)
        for value in answer["scores"]
    ]
