"""Detectors of the class goal: whether an agent, many rounds later, still knows what it was asked for.

What an agent says of its task ("the question asks for ...", "you wanted ...") is compared with the opening, and with
what the user said since. Finds a forgotten goal only where an agent speaks of it; one that silently does something else
is the scorer's affair. In a long episode under a context policy, compare the counts with those under `full`.
"""

import re
from collections.abc import Iterator

from agent2.scorers.grounding.claims import Seen, claims_of, plain, stem, word_set
from agent2.scorers.grounding.grounds import GroundingFinding, Grounds, unsaid

_GOAL = r"(?:task|goal|question|request|assignment|objective|instructions?)"
_FORGOTTEN = re.compile(
    r"\b(?:forgot(?:ten)?|lost (?:track|sight) of|(?:no longer|don't|do not|can't|cannot|can not) "
    r"(?:remember|recall|know|see|have)|not (?:sure|clear|certain)|unsure|unclear|remind me)\b[^.!?\n]{0,30}?"
    rf"\b(?:(?:the|my|your|our) (?:\w+ )?{_GOAL}\b"
    r"|what (?:I|we) (?:was|were|am|are) (?:asked|told|looking|searching|supposed|meant|doing|after)"
    r"|what (?:you|the user|the customer) (?:asked|wanted|want|requested))"
    rf"|\bwhat (?:was|is) (?:the|my) (?:original |actual |initial )?{_GOAL}(?: again)?\s*\?"
    r"|\bwhat (?:was|were|am|are) (?:I|we) (?:looking for|asked|supposed|searching for|doing)\b[^.!?\n]*\?",
    re.IGNORECASE,
)
_NOT_FORGOTTEN = re.compile(
    r"\b(?:not|never|haven't|hasn't|didn't|did not) (?:\w+ )?(?:forg\w+|lost)\b"
    r"|\blest\b|\bso (?:that )?I (?:do not|don't)\b",
    re.IGNORECASE,
)
_RESTATED = re.compile(
    r"\b(?:the|my|our|this) (?:(?:original|overall|first|initial|main|actual|whole|user's|customer's) ){0,2}"
    rf"{_GOAL} (?:is|was|remains|asks?|asked|says?|said|wants?|requires?)\b(?P<one>[^.!?\n]*)"
    r"|\b(?:the user|the customer|you|they) (?:originally |first |really |had )?(?:asked|wants?|wanted|requested)\b"
    r"(?P<two>[^.!?\n]*)"
    r"|\bI (?:was|am|have been) (?:originally |first )?(?:asked|supposed|instructed|meant) to\b(?P<three>[^.!?\n]*)",
    re.IGNORECASE,
)
_ANSWERS = re.compile(r"\b(?:answers?|solutions?|reply|response|replies) (?:to|of|for|in) $", re.IGNORECASE)
_ENDED = re.compile(
    r"\s*(?:now |already |thus |therefore )*(?:done|complete\w*|finished|solved|reached|achieved|met|fulfilled|"
    r"answered|not|clear|hard|difficult|easy|simple|still|ambiguous|unclear)\b",
    re.IGNORECASE,
)
_ASIDE = re.compile(
    r"\([^)]*\)|;.*|[,:\u2013\u2014]? (?:but|however|instead|so|which|who|where|while|because|since|"
    r"and (?:I|we|it|the \w+ (?:is|was))|that is|i\.e\.|namely|unfortunately)\b.*",
    re.IGNORECASE,
)
"""What follows is no longer the goal but what is known of it."""
_EMPTY = word_set(
    """
    a an the this that these to of for in on at by from with and or is was are be been it its me my you your user
    find get look looks looking give tell make need want wanted wants have has should must answer question task goal
    request asked ask asks know known identify search searching return determine name names named what which whose
    who when where how many much all one ones item items thing things something first still just only also help
    about into out up as please instruction instructions complete finish do done
    """
)
FIRST_ROUND = 1
"""A message from which on the task may have been forgotten: the first one still has it before its eyes."""


def lost_goal(grounds: Grounds) -> Iterator[GroundingFinding]:
    """An agent that no longer knows its task, or states another one."""
    episode = grounds.episode
    for statement in episode.statements:
        if statement.turn < FIRST_ROUND:
            continue
        for sentence in re.split(r"(?<=[.!?])\s+|\n+", statement.text):
            if _FORGOTTEN.search(sentence) and not _NOT_FORGOTTEN.search(sentence):
                yield GroundingFinding("lost_goal", statement.turn, sentence.strip(), "it says that it does not know")
                continue
            for match in _RESTATED.finditer(sentence):
                stated = next(part for part in match.groups() if part is not None)
                if sentence.rstrip(' *")').endswith("?") or _ANSWERS.search(sentence[: match.start()]):
                    continue
                why = _other_than_asked(_ASIDE.sub(" ", stated), statement.turn, grounds)
                if why is not None and not _ENDED.match(stated):
                    yield GroundingFinding("lost_goal", statement.turn, sentence.strip(), why)


def _other_than_asked(stated: str, turn: int, grounds: Grounds) -> str | None:
    """Why what is stated is not what was asked for; None: it is, as far as words can say."""
    asked = Seen()
    asked.add(grounds.episode.opening)
    for when, text in grounds.episode.heard:
        if when < turn:
            asked.add(text)
    claims = claims_of(f"to {stated.strip()}")
    new = unsaid(claims, asked)
    if new:
        is_found = not unsaid(new, grounds.seen(turn))
        if not is_found or len(new) == len(claims):  # what was found on the way, beside what was asked for, explains it
            return f"the task does not say {new[0].text!r}"
    stems = {stem(word) for word in plain(stated).split()} - _EMPTY_STEMS
    if stems and not stems & asked.stems:
        return f"the task says nothing of {', '.join(sorted(stems)[:3])}"
    return None


_EMPTY_STEMS = frozenset(stem(word) for word in _EMPTY)
