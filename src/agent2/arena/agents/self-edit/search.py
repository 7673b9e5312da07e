"""Best-first search for edits of a text that a verifier accepts.

It knows neither the constraints nor the verifier: a text's credit is the verifier's outcome, then the mean of the
score's views, and the text with the most credit is edited further. Where there is only an outcome, this is a search by
the number of edits. Edits that helped earlier texts are tried first.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import combinations, count
from typing import NamedTuple

from edits import Edit, edited, edits_for, forms

from agent2.records import Score

MOST_EDITS = 4
"""Of one text, beside its length."""
MOST_CALLS = 600
"""Of the verifier for one answer."""
SHORTER = "a shorter beginning"
"""The name of a change of length among those that helped."""


class Credit(NamedTuple):
    """What a verifier says of a text; compared in this order."""

    outcome: float
    views: float
    """Mean of the further numbers; 0 where there are none."""


class EditedForm(NamedTuple):
    """A form of the answer, and the edits that were made to it."""

    form: int
    """0 is the longest."""
    edits: frozenset[Edit]


Verifier = Callable[[str], Credit]


def credit_of(score: Score) -> Credit:
    """The credit of a score; one that could not be judged has the least."""
    views = [value for value in score.views.values() if value is not None]
    return Credit(-1.0 if score.value is None else score.value, sum(views) / len(views) if views else 0.0)


class EditSearch:
    """Searches one answer after the other, and remembers which edits helped."""

    def __init__(self, most_calls: int = MOST_CALLS) -> None:
        self._most_calls = most_calls
        self.helped: Counter[str] = Counter()
        """Accepted texts that needed an edit, by its name."""
        self.n_calls = 0
        """Of the verifier, for all answers."""

    def find(self, request: str, written: str, verify: Verifier) -> str | None:
        """An edited text that the verifier accepts; None: there is none within the bounds.

        Of several it prefers fewer edits, then the longer text.
        """
        answer = _Answer(request, written, verify, self._most_calls)
        draft = self._accepted_draft(answer)
        if draft is not None:
            draft = _without_needless_edits(answer, draft)
            self.helped.update({str(edit) for edit in draft.edits} | ({SHORTER} if draft.form else set()))
        self.n_calls += answer.n_calls
        return None if draft is None else answer.text(draft)

    def _accepted_draft(self, answer: "_Answer") -> EditedForm | None:
        """The first accepted draft.

        Drafts with the fewest changes that earned nothing come first, then those with the most credit: so a change that
        earns something and leads nowhere is left again.
        """
        first, serial = EditedForm(0, frozenset()), count()
        credit = answer.credit(first)
        if credit is None or credit.outcome >= 1.0:
            return None if credit is None else first
        queue = [_Waiting(0, -credit.outcome, -credit.views, next(serial), first)]
        tried = {first}
        while queue and answer.may_ask:
            entry = heapq.heappop(queue)
            for changed in self._changed(answer, entry.draft):
                if changed in tried:
                    continue
                tried.add(changed)
                if (credit := answer.credit(changed)) is None:
                    continue
                if credit.outcome >= 1.0:
                    return changed
                is_better = credit > (-entry.outcome, -entry.views)
                n_idle = entry.n_idle + (not is_better)
                heapq.heappush(queue, _Waiting(n_idle, -credit.outcome, -credit.views, next(serial), changed))
                if is_better:
                    heapq.heappush(queue, entry._replace(serial=next(serial)))
                    break
        return None

    def _changed(self, answer: "_Answer", draft: EditedForm) -> Iterator[EditedForm]:
        """A draft with one more change: an edit, those that helped most often first, or a shorter beginning."""
        if len(draft.edits) < MOST_EDITS:
            for edit in sorted(answer.edits, key=lambda edit: -self.helped[str(edit)]):
                yield draft._replace(edits=draft.edits | {edit})
        for form in range(draft.form + 1, len(answer.forms)):
            yield draft._replace(form=form)


class _Waiting(NamedTuple):
    """A draft whose changes were not all tried, in the order of a heap: the least first."""

    n_idle: int
    """Its changes that earned nothing."""
    outcome: float
    """Negated, as the next."""
    views: float
    serial: int
    draft: EditedForm


class _Answer:
    """One answer: its forms, the edits that are possible, and what the verifier said so far."""

    def __init__(self, request: str, written: str, verify: Verifier, most_calls: int) -> None:
        self._verify, self._most_calls = verify, most_calls
        self.forms = forms(written)
        self.edits = edits_for(request, self.forms[0]) if self.forms else []
        self.n_calls = 0

    @property
    def may_ask(self) -> bool:
        """Whether the verifier may be asked once more."""
        return self.n_calls < self._most_calls

    def text(self, draft: EditedForm) -> str | None:
        """The text of a draft; None: it cannot be made, or says too little."""
        return edited(self.forms[draft.form], tuple(draft.edits)) if draft.form < len(self.forms) else None

    def credit(self, draft: EditedForm) -> Credit | None:
        """What the verifier says; None: there is no such text, or it was asked often enough."""
        text = self.text(draft) if self.may_ask else None
        if text is None:
            return None
        self.n_calls += 1
        return self._verify(text)


def _without_needless_edits(answer: _Answer, draft: EditedForm) -> EditedForm:
    """The accepted draft with as few edits and as many words as the verifier still accepts."""

    def is_accepted(candidate: EditedForm) -> bool:
        credit = answer.credit(candidate)
        return credit is not None and credit.outcome >= 1.0

    subsets = (
        draft._replace(edits=frozenset(edits))
        for n_edits in range(len(draft.edits))
        for edits in combinations(sorted(draft.edits), n_edits)
    )
    draft = next(filter(is_accepted, subsets), draft)
    longer = (draft._replace(form=form) for form in range(draft.form))
    return next(filter(is_accepted, longer), draft)
