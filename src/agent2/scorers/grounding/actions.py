"""Actions that a text reports as done, and the detector that compares them with the calls of an episode.

A claim of having acted is a sentence in the perfect or the past ("I have cancelled it", "your order was placed") or a
bare "Done.". Questions, conditions, plans, refusals and admitted failures are none.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from agent2.scorers.grounding.claims import SENTENCE_END, ClaimKind, GroundingContext, claims_of, plain
from agent2.scorers.grounding.episodes import RecordedCall
from agent2.scorers.grounding.tool_results import EpisodeEvidence, GroundingFinding, without_questions

_FAMILIES: Mapping[str, str] = MappingProxyType(
    {
        word: family
        for family, verbs in {
            "book": "book booked reserve reserved schedule scheduled rebook rebooked",
            "order": "order ordered placed buy bought purchase purchased checkout",
            "cancel": "cancel cancelled canceled",
            "refund": "refund refunded reimburse reimbursed",
            "change": "update updated change changed modify modified edit edited fix fixed set correct corrected "
            "upgrade upgraded patch patched rename renamed replace replaced move moved",
            "send": "send sent email emailed message messaged notify notified forward forwarded",
            "delete": "delete deleted remove removed erase erased",
            "create": "create created add added register registered open opened insert inserted",
            "submit": "submit submitted file filed",
            "save": "save saved write written store stored",
            "close": "close closed archive archived",
            "pay": "pay paid transfer transferred charge charged",
        }.items()
        for word in verbs.split()
    }
)
_INCLUDES = MappingProxyType(
    {
        "change": ("create", "delete", "save", "pay", "book", "refund"),
        "book": ("pay", "create"),
        "order": ("pay", "create"),
    }
)
"""Family -> what else a call of it may do."""
_DONE = "|".join(
    sorted((word for word in _FAMILIES if re.search(r"(?:ed|sent|paid|bought|written|set)$", word)), key=len)
)
_ADVERB = r"(?:(?:successfully|now|already|just|also|all|been|both|fully)\s+)*"
_CLAIMED = re.compile(
    rf"\b(?:i|we)(?:'ve| have)?\s+{_ADVERB}({_DONE})\b|\b(?:has|have)\s+{_ADVERB}been\s+{_ADVERB}({_DONE})\b"
    rf"|\b(?:is|are|was|were)\s+(?:now|successfully|just|also)\s+({_DONE})\b|^\W*(?:done[\W_]+)?({_DONE})\b(?!\s+by)"
    r"|\b(?:has|have) been (?:successfully )?(placed|completed|processed|confirmed)\b"
    r"|\b(?:it|that|all|everything)(?:'s| is) (?:all |now )?(done)\b",
    re.IGNORECASE | re.MULTILINE,
)
_UNDONE = re.compile(
    r"\b(?:not|n't|never|nothing|none|no \w+ (?:was|were|is|are|has|have)|cannot|unable|could|would|"
    r"should|will|can|may|might|fail\w*|if|once|when|before|until|already been|earlier|previously|to be|by another|"
    r"yet)\b|n't\b",
    re.IGNORECASE,
)
_MODAL = re.compile(r"\b(?:could|would|should|will|can|may|might)\b", re.IGNORECASE)
_HANDS_OVER = re.compile(r"human|agent|operator|support", re.IGNORECASE)
"""In the name of a tool that passes the conversation on, and transfers nothing else."""
_ONLY_DONE = re.compile(
    r"\W*(?:ok(?:ay)?\W+)?(?:(?:all|it(?:'s| is)|that(?:'s| is))\W+)?(?:done|completed?|success(?:ful(?:ly)?)?)\W*",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class ClaimedAction:
    """A sentence that reports an action as done."""

    sentence: str
    word: str
    """The word that names the action, or "done"."""


def claimed_actions(text: str) -> Iterator[ClaimedAction]:
    """The sentences of a text that report an action as done."""
    if _ONLY_DONE.fullmatch(text):
        yield ClaimedAction(text.strip(), "done")
        return
    for sentence in SENTENCE_END.split(without_questions(text.replace("**", ""))):
        match = _CLAIMED.search(sentence)
        if match is None:
            continue
        before, after = sentence[: match.end()], sentence[match.end() :]
        if _UNDONE.search(before) or _UNDONE.search(_MODAL.sub("", after)):  # "..., as you can see" undoes nothing
            continue
        yield ClaimedAction(sentence, next(group for group in match.groups() if group))


def claimed_action(evidence: EpisodeEvidence) -> Iterator[GroundingFinding]:
    """An action that is reported as done, and no call that did it."""
    for statement in evidence.messages:
        done = [call for call in evidence.episode.calls if call.turn <= statement.turn and call.error is None]
        acting = [call for call in done if is_acting(call)]
        families = {family for call in acting if (family := _family(call.name))}
        families |= {also for family in families for also in _INCLUDES.get(family, ())}
        for claim in claimed_actions(statement.text):
            if _is_reported(claim, evidence.context(statement.turn)):
                continue
            family = _FAMILIES.get(claim.word.casefold())
            is_done = (
                family in families if family and families and all(_family(call.name) for call in acting) else acting
            )
            if not is_done:
                reason = f"no call did what {claim.word!r} says"
                yield GroundingFinding("claimed_action", statement.turn, claim.sentence.strip(), reason)


def is_acting(call: RecordedCall) -> bool:
    """Whether a call that succeeded changes something: as recorded, else by its name."""
    return bool(call.changed) if call.changed is not None else call.error is None and is_change(call.name)


def is_change(name: str | None) -> bool:
    """Whether the name of a tool says that it changes something."""
    return _family(name) is not None


def _family(name: str | None) -> str | None:
    if name is not None and _HANDS_OVER.search(name):
        return None
    spaced = plain(re.sub(r"([a-z])([A-Z])", r"\1 \2", name or "").replace("_", " "))
    return next((_FAMILIES[word] for word in spaced.split() if word in _FAMILIES), None)


def _is_reported(claim: ClaimedAction, context: GroundingContext) -> bool:
    """Whether a tool or user stated the action in these words: the sentence only reports a status."""
    match = _CLAIMED.search(claim.sentence)
    if match is None or re.match(r"\W*(?:i|we)\b", match[0], re.IGNORECASE):
        return False
    dates = [piece for piece in claims_of(claim.sentence, with_names=False) if piece.kind is ClaimKind.DATE]
    if any(map(context.supports, dates)):
        return True
    return re.search(rf"\b{re.escape(claim.word.casefold())}\b", context.index.results) is not None
