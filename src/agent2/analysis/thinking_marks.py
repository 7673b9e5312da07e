"""Marks of thinking that pure RL is said to bring out: length of thoughts, answers that check or correct themselves.

Words of English, in thoughts and messages alike; rules of thumb that say how a style changed, not whether a check was
a real one. A model may write "let me verify" and verify nothing.
"""

import re
from collections.abc import Iterable

from agent2.records import ScoredRollout

_CHECKS = re.compile(
    r"\b(?:let me|let's|let us|I(?:'ll| will| should| must| need to| want to)?|we(?:'ll| should| must)?|to be sure,?) "
    r"(?:just |quickly |now |also )?(?:double[- ]?check|verify|re-?check|re-?calculate|sanity[- ]?check|"
    r"check (?:this|that|my|our|the|it|whether|if|again)|test (?:this|that|my|it)\b)"
    r"|\b(?:double[- ]?checking|checking (?:my|the|our) (?:answer|work|result|calculation)|as a (?:sanity )?check)\b"
    r"|^[ \t]{0,8}(?:\*\*)?(?:check|verification)(?:\*\*)?:",
    re.IGNORECASE | re.MULTILINE,
)
_RECONSIDERS = re.compile(
    r"(?:^|[.!?\n]\s{0,3}|<think>\s{0,3})(?:wait|hmm+|hold on|oops)\b\s*[,.!:\u2014-]"
    r"|\bon second thought\b|\b(?:I|we) (?:made|have made|seem to have made) (?:a|an) (?:mistake|error)\b"
    r"|\b(?:let me|let's|I should|we should) (?:re-?think|re-?consider|try (?:again|another|a different)|start over|"
    r"go back|re-?examine|correct (?:that|this|myself))\b"
    r"|\bthat(?:'s| is| was| can't be| cannot be) (?:not right|wrong|incorrect|not correct|right\?)"
    r"|\bactually,? (?:no\b|that's (?:wrong|not)|I (?:was|made))",
    re.IGNORECASE,
)
_CHECK_MARKS = ("check", "verif", "calculat", "test ")
_RECONSIDER_MARKS = (
    "wait", "hmm", "hold on", "oops", "second thought", "mistake", "error", "think", "consider", "try a", "start over",
    "go back", "examine", "correct", "not right", "wrong", "right?", "actually",
)  # fmt: skip
"""One of them is in every text that the pattern finds; looked for first, as most texts have none."""
SCANNED = 20_000
"""Characters of a rollout's text that are read."""


def has_thoughts(record: ScoredRollout) -> bool:
    """Whether some message has a thought beside its answer."""
    return any(turn.thought for turn in record.rollout.turns)


def thought_characters(record: ScoredRollout) -> int:
    """Characters of all thoughts of a rollout; 0 without any."""
    return sum(len(turn.thought.text) for turn in record.rollout.turns if turn.thought)


def checks_itself(record: ScoredRollout) -> bool:
    """Some thought or message says that it checks what came before."""
    return _has(_written(record), _CHECK_MARKS, _CHECKS)


def reconsiders(record: ScoredRollout) -> bool:
    """Some thought or message takes back what came before, or says that it thinks again."""
    return _has(_written(record), _RECONSIDER_MARKS, _RECONSIDERS)


def _has(text: str, marks: Iterable[str], pattern: re.Pattern[str]) -> bool:
    lowered = text.lower()
    return any(mark in lowered for mark in marks) and pattern.search(text) is not None


def _written(record: ScoredRollout) -> str:
    parts = [f"{turn.thought.text}\n{turn.action}" if turn.thought else turn.action for turn in record.rollout.turns]
    return "\n".join(parts)[:SCANNED].replace("\u2019", "'")
