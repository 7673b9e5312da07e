"""What an agent says against what it saw: nineteen checks of a tool episode, each a function from records to findings.

Six classes, five of them after the usual division of hallucinations of agents with tools:

    selection   a tool that does not exist, is not needed, or is not the one that is asked for
    argument    a value that does not fit, was never given, or is misspelt
    result      a conclusion that differs from what tools returned, or an action that was never carried out
    citation    a source that does not exist, was not read, or does not say it; an altered quotation
    goal        a task that the agent no longer knows, or states otherwise
    cascade     one unsupported step on which later ones rest, and the tool that is blamed for it

Promises: deterministic; a finding names the turn and the words, so that a reader can verify it in the card. A text that
makes no checkable claim is not judged: for sentences without numbers, names, dates or quotations a model has to be
asked (`judge`). `unneeded_tool` and `wrong_tool` need the item's own target and stay silent without it.
Does NOT know the world: what a model knows from elsewhere and no tool said counts as never given.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from agent2.environments.tools.world import LOGIN, ErrorKind, ToolFaultKind
from agent2.records import Item
from agent2.scorers.grounding.arguments import (
    invented_argument,
    misfit_argument,
    misspelt_argument,
    unknown_tool,
    unneeded_tool,
    wrong_tool,
)
from agent2.scorers.grounding.citations import altered_quote, missing_source, unread_source, unsupported_citation
from agent2.scorers.grounding.claims import (
    ClaimKind,
    TextClaim,
    ToolEpisode,
    claims_of,
    leaves_of,
    plain,
)
from agent2.scorers.grounding.goals import lost_goal
from agent2.scorers.grounding.grounds import FindingKind, GroundingFinding, Grounds, without_asking
from agent2.scorers.grounding.results import (
    ADMITS,
    claimed_action,
    contradicted_result,
    hidden_failure,
    invented_name,
    invented_number,
)

_OWN_FAULTS = frozenset(
    {ToolFaultKind.SCHEMA_ERROR, ErrorKind.UNKNOWN_TOOL, ErrorKind.MALFORMED_CALL, ErrorKind.TOOL}
    | {ErrorKind.NOT_PERMITTED, ErrorKind.REFUSED, ErrorKind.BUDGET}
)


_TOOLS = (
    r"(?:api|tool|service|server|system|database|backend|site|website|network|connection|endpoint|function|"
    r"platform)"
)
_BROKEN = (
    "down|broken|unavailable|offline|not working|failing|buggy|overloaded|unreliable|crashed|unresponsive|"
    r"out of service|malfunction\w*|a bug|(?:an? )?(?:internal |technical )?(?:problem|issue|error|outage)"
)
_BLAMES = re.compile(
    rf"\b{_TOOLS}s?\b[^.!?\n]{{0,40}}?\b(?:is|are|was|were|seems?|appears?|must|may|might|has|have|looks?|be|went)\b"
    rf"[^.!?\n]{{0,30}}?\b(?:{_BROKEN})\b"
    r"|\b(?:technical|internal|server|system|temporary) (?:issue|problem|error|outage|difficult\w+)s?\b"
    rf"|\b(?:problem|issue|outage|bug|error) (?:with|in|at|of|on) the {_TOOLS}\b"
    rf"|\b{_TOOLS} (?:does not|doesn't|did not|didn't) (?:respond|work)\b|\b{_TOOLS} (?:error|outage)\b",
    re.IGNORECASE,
)
_NO_BLAME = re.compile(
    r"\b(?:is|are|was|were|works?) (?:not|fine)\b(?! working)|\bisn't\b|\bnot the\b|"
    r"\bno (?:technical|problem|issue|error)|\bmy (?:mistake|error|fault)",
    re.IGNORECASE,
)


def wrong_blame(grounds: Grounds) -> Iterator[GroundingFinding]:
    """A tool that is blamed for errors that were all the model's own."""
    calls = grounds.episode.calls
    for statement in grounds.episode.statements:
        before = [call for call in calls if call.turn < statement.turn + (not statement.is_thought) and call.error]
        if not before or any(call.injected or call.error not in _OWN_FAULTS for call in before):
            continue
        for sentence in re.split(r"(?<=[.!?])\s+|\n+", statement.text):
            if _BLAMES.search(sentence) and not _NO_BLAME.search(sentence):
                own = before[-1]
                why = f"the error was the call's own ({own.error}{': ' + own.detail if own.detail else ''})"
                yield GroundingFinding("wrong_blame", statement.turn, sentence.strip(), why)


def carried_claim(grounds: Grounds) -> Iterator[GroundingFinding]:
    """A value that a thought states first, without a source, and that a later call or the answer uses."""
    episode = grounds.episode
    for thought in (one for one in episode.statements if one.is_thought):
        seen = grounds.seen(thought.turn)
        for claim in claims_of(without_asking(thought.text)):
            if claim.kind is ClaimKind.QUOTE or seen.says(claim) or _GUESSES.search(thought.text):
                continue
            if (user := _use_of(claim, thought.turn, grounds)) is not None:
                yield GroundingFinding(
                    "carried_claim", thought.turn, claim.text, f"nothing told it before, and {user} rests on it"
                )


_GUESSES = re.compile(r"\b(?:maybe|perhaps|guess|might|try|not sure|whether|check|verify|possibly)\b", re.IGNORECASE)


def _use_of(claim: TextClaim, turn: int, grounds: Grounds) -> str | None:
    """What uses a claim from a turn on, before any result says it."""
    for call in grounds.episode.calls:
        if call.turn < turn or grounds.seen(call.turn).says(claim):
            continue
        if any(plain(claim.text) in plain(value) for value in leaves_of(call.arguments)):
            return f"the call of {call.name} in turn {call.turn}"
    for statement in grounds.told:
        is_used = statement.turn > turn and plain(claim.text) in plain(statement.text)
        if is_used and not grounds.seen(statement.turn).says(claim):
            return "the answer"
    return None


_ROOTS = (unknown_tool, misfit_argument, invented_argument, misspelt_argument)
_ENDS = (invented_number, invented_name, contradicted_result, claimed_action, hidden_failure)


def cascade(grounds: Grounds) -> Iterator[GroundingFinding]:
    """An unsupported call that failed, was not repaired, and ends in a conclusion without ground."""
    ends = [one for find in _ENDS for one in find(grounds)]
    calls = grounds.episode.calls
    for root in sorted((one for find in _ROOTS for one in find(grounds)), key=lambda one: one.turn):
        failed = [(place, call) for place, call in enumerate(calls) if call.turn == root.turn and call.is_empty]
        later = [one for one in ends if one.turn > root.turn]
        if not failed or not later:
            continue
        place, call = failed[0]
        after = calls[place + 1 :]
        if any(other.name == call.name and not other.is_empty for other in after):
            continue
        links = [f"{root.detector} {root.what!r}", f"{call.name} failed"]
        blamed = [one for one in wrong_blame(grounds) if one.turn >= root.turn]
        links += [f"blamed: {blamed[0].what!r}"] if blamed else []
        switched = [other for other in after if other.name not in (call.name, LOGIN, None)]
        links += [f"switched to {switched[0].name}"] if switched else []
        links.append(f"{later[0].detector} {later[0].what!r}")
        yield GroundingFinding("cascade", root.turn, root.what, " -> ".join(links))
        return


@dataclass(frozen=True, slots=True)
class Detector:
    """One check."""

    name: str
    kind: FindingKind
    find: Callable[[Grounds], Iterator[GroundingFinding]]
    needs_item: bool = False
    """True: silent without the item that was played."""

    @property
    def told(self) -> tuple[str, str]:
        """Its kind, and what a finding means in one sentence."""
        return self.kind.value, (self.find.__doc__ or "").strip().partition("\n")[0]


def _table() -> Mapping[str, Detector]:
    rows = {
        FindingKind.SELECTION: (unknown_tool, unneeded_tool, wrong_tool),
        FindingKind.ARGUMENT: (misfit_argument, invented_argument, misspelt_argument),
        FindingKind.RESULT: (invented_number, invented_name, contradicted_result, claimed_action, hidden_failure),
        FindingKind.CITATION: (missing_source, unread_source, unsupported_citation, altered_quote),
        FindingKind.GOAL: (lost_goal,),
        FindingKind.CASCADE: (wrong_blame, carried_claim, cascade),
    }
    by_item = (unneeded_tool, wrong_tool)
    return MappingProxyType(
        {
            find.__name__: Detector(find.__name__, kind, find, find in by_item)
            for kind, of in rows.items()
            for find in of
        }
    )


DETECTORS = _table()


def findings_of(episode: ToolEpisode, item: Item | None = None) -> list[GroundingFinding]:
    """What every detector finds, each thing once, by turn."""
    grounds = Grounds(episode, item)
    found = dict.fromkeys(one for detector in DETECTORS.values() for one in detector.find(grounds))
    return sorted(found, key=lambda one: one.turn)


def admits_failure(episode: ToolEpisode) -> bool:
    """Whether the final answer says that something failed or is not known."""
    final = episode.final
    return final is not None and bool(ADMITS.search(final.text))
