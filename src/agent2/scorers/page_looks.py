"""A judge that sees how a web page looks beside the one that was asked for.

The page and the item's reference are opened in Chromium, as `page_checks` does, at 1280 pixels; a model that sees is
shown both pictures and the request, and gives a rating, which is the score from 0 to 1. No rule backs it: an opinion
about looks, to be read beside `page_checks`, never in its place.

A page that shows nothing, hangs or is none is 0 without a call. A page on which the judge gives no verdict in three
tries, while it gives one on the reference in the same place in three of three, silenced it and is 0; any other verdict
that is not readable is missing. Does NOT know whether the judge sees well: show it pages whose order is known, such as
the ladder of `front_end`.
"""

import base64
from collections.abc import Sequence
from typing import Any

from agent2.errors import Fault
from agent2.pictures import Preparation, place_pictures, read_picture
from agent2.records import Item, Rollout, Score, ScorerOutput, ScoringMode, ScoringWork, added_costs
from agent2.scorers.judge_model import COSTS, JudgeAnswer, Purpose, UnreadableVerdict, read_verdict
from agent2.scorers.judge_silence import ASKED_AGAIN, MORE_ROOM, MOST_ROOM, SILENCED
from agent2.scorers.judges import RATING_VIEW, ModelJudge, whole_number
from agent2.scorers.page_checks import PageChecksScorer, PageMeasures, missing_program, page_of, work_on
from agent2.scorers.page_code import INDEX
from agent2.scorers.sandboxed import SandboxRunner
from agent2.texts import cut_middle

WIDTH = 1280
MAX_REQUEST_CHARS = 8_000
ROOMS = (1, MORE_ROOM, MOST_ROOM)
"""Times the judge's `max_tokens`, of each try."""


class PageLooksJudge(ModelJudge):
    """How far a page looks as its reference does, from 0 to 1, by a model that sees."""

    name = "page_looks"
    version = "1.0"
    kinds = ("rating",)
    emits = ScorerOutput(
        views=frozenset({*COSTS, RATING_VIEW}),
        labels=frozenset({"page_missing", "page_blank", "page_hangs", "page_crashes", SILENCED, ASKED_AGAIN}),
    )
    expects = PageChecksScorer.expects

    def __init__(
        self, model: str = "", prompt: str = "page_looks", processor_s: float = 45.0, batch: int = 8, **settings: Any
    ) -> None:
        """processor_s, batch: as of `page_checks`. settings: those of `JudgeModel`.

        Raises ConfigError and CheckpointError for a model or a prompt that cannot be used.
        """
        super().__init__(model, prompt, **settings)
        self._pages = PageChecksScorer(processor_s, batch)
        self.work = ScoringWork(ScoringMode.SANDBOX, batch_size=batch, concurrency=1)

    def score(self, item: Item, rollout: Rollout) -> Score:
        """No verdict: it needs a sandbox, which the scoring stage gives it."""
        return Score(None, "page_looks opens pages and needs the scoring stage (evaluate, rescore)", Fault.JUDGE)

    def score_on(self, runner: SandboxRunner, item: Item, rollout: Rollout) -> Score:
        """The verdict on one page; see `score_batch_on`."""
        return self.score_batch_on(runner, [(item, rollout)])[0]

    def score_batch_on(self, runner: SandboxRunner, batch: Sequence[tuple[Item, Rollout]]) -> list[Score]:
        """A verdict on each page; missing where there is no browser, judge or reference. Raises SandboxError."""
        if problem := missing_program():
            return [Score(None, problem, Fault.INFRASTRUCTURE)] * len(batch)
        scores: dict[int, Score] = {}
        works: dict[int, dict[str, Any]] = {}
        for place, (item, rollout) in enumerate(batch):
            files = page_of(rollout.answer or "")
            if not item.payload.get("reference"):
                scores[place] = Score(None, f"item {item.id}: payload.reference is empty; add a page", Fault.JUDGE)
            elif INDEX not in files or not files[INDEX].strip():
                scores[place] = Score(0.0, "there is no block ```html with a page", labels=("page_missing",))
            else:
                work = work_on(item, files, screenshots=True)
                works[place] = {**work, "checks": [], "widths": [WIDTH]}
        for place, outcome in zip(works, self._pages.measure(runner, list(works.values())), strict=True):
            scores[place] = outcome if isinstance(outcome, Score) else self._score_of(batch[place][0], outcome)
        return [scores[place] for place in range(len(batch))]

    def _score_of(self, item: Item, page: PageMeasures) -> Score:
        """The judge's verdict on a page that was opened."""
        if WIDTH not in page.widths:
            label = "page_crashes" if page.is_crashed else "page_hangs"
            return Score(0.0, f"it could not be looked at: {page.trouble or 'it ended its browser'}", labels=(label,))
        if page.is_blank:
            return Score(0.0, "the page shows nothing", labels=("page_blank",))
        ours, theirs = page.widths[WIDTH]["screenshot"], page.reference
        if not ours or not theirs:
            return Score(None, f"item {item.id}: there is no picture of the page or its reference", Fault.JUDGE)
        answers: list[JudgeAnswer] = []
        first: UnreadableVerdict | None = None
        for room in ROOMS:
            answers.append(self._asked(item, theirs, ours, room, Purpose.VERDICT if room == 1 else Purpose.FORM))
            try:
                rating = self._rating(item, answers[-1])
            except UnreadableVerdict as error:
                first = first or error
                continue
            value = (rating - self.prompt.low) / (self.prompt.high - self.prompt.low)
            text = " ".join(answers[-1].completion.text.split())
            views = {**_costs(answers), RATING_VIEW: float(rating)}
            labels = (ASKED_AGAIN,) if first else ()
            return Score(value, f"rated {rating} of {self.prompt.high}: {text[:300]}", views=views, labels=labels)
        assert first is not None
        for room in ROOMS:  # the reference in the page's place: does the judge work?
            answers.append(self._asked(item, theirs, theirs, room, Purpose.CONTROL))
            try:
                self._rating(item, answers[-1])
            except UnreadableVerdict as error:
                lost = Fault.INFRASTRUCTURE in (first.fault, error.fault)
                reason = f"{first}; nor is there a verdict on the reference in its place: {error}"
                return Score(None, reason, Fault.INFRASTRUCTURE if lost else Fault.JUDGE, _costs(answers))
        views = {**_costs(answers), RATING_VIEW: float(self.prompt.low)}
        return Score(0.0, f"the judge has a verdict on the reference and none on it: {first}", None, views, (SILENCED,))

    def _asked(self, item: Item, reference: str, page: str, room: int, purpose: Purpose) -> JudgeAnswer:
        """The judge's answer to both pictures, each base64 of a PNG."""
        system, user = self._messages(_texts_of(item))
        pictures = [
            read_picture(base64.b64decode(encoded), f"item {item.id}", Preparation()) for encoded in (reference, page)
        ]
        prompt = [system, place_pictures("user", user.text, pictures)]
        return self.judge.ask_for_verdicts([prompt], ["\n".join(_texts_of(item).values())], room, purpose)[0]

    def _rating(self, item: Item, answer: JudgeAnswer) -> int:
        """Raises UnreadableVerdict."""
        verdict = read_verdict(answer.completion, "\n".join(_texts_of(item).values()))
        return whole_number(verdict.get("verdict"), self.prompt.low, self.prompt.high, "verdict")


def _texts_of(item: Item) -> dict[str, str]:
    return {"instruction": cut_middle(item.prompt, MAX_REQUEST_CHARS)}


def _costs(answers: Sequence[JudgeAnswer]) -> dict[str, float | None]:
    """Of all questions."""
    return added_costs(*(answer.views for answer in answers))
