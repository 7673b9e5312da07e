"""Checks of the keyword class: words and letters that must, or must not, be there.

Keywords are looked for literally and without case, also inside longer words, as the published checker does (which
takes them for regular expressions). Forbidden words count as whole words only.
"""

import re

from agent2.scorers.constraints.finding import AT_LEAST, Arguments, Finding, compared

MISSING = "ifeval_keyword_missing"
FORBIDDEN = "ifeval_keyword_forbidden"
FREQUENCY = "ifeval_letter_frequency_violation"


def existence(text: str, arguments: Arguments) -> Finding:
    """Every one of `keywords` occurs."""
    missing = sorted(word for word in arguments["keywords"] if not _occurrences(word, text))
    seen = f"without {', '.join(map(repr, missing))}" if missing else "every keyword is there"
    return Finding(not missing, seen, MISSING)


def frequency(text: str, arguments: Arguments) -> Finding:
    """`keyword` occurs at least, or fewer than, `frequency` times."""
    keyword = arguments["keyword"].strip()
    found = compared(_occurrences(keyword, text), arguments["relation"], arguments["frequency"], f"times {keyword!r}")
    return Finding(found.followed, found.seen, MISSING if arguments["relation"] == AT_LEAST else FORBIDDEN)


def forbidden_words(text: str, arguments: Arguments) -> Finding:
    """None of `forbidden_words` occurs as a word of its own."""
    used = sorted(
        word
        for word in set(arguments["forbidden_words"])
        if re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text, re.IGNORECASE)
    )
    seen = f"with the forbidden {', '.join(map(repr, used))}" if used else "no forbidden word is there"
    return Finding(not used, seen, FORBIDDEN)


def letter_frequency(text: str, arguments: Arguments) -> Finding:
    """`letter`, in either case, occurs at least, or fewer than, `let_frequency` times; any character will do."""
    letter = arguments["letter"].strip().lower()
    found = compared(
        text.lower().count(letter), arguments["let_relation"], arguments["let_frequency"], f"times {letter!r}"
    )
    return Finding(found.followed, found.seen, FREQUENCY)


def _occurrences(keyword: str, text: str) -> int:
    return sum(1 for _ in re.finditer(re.escape(keyword), text, re.IGNORECASE))
