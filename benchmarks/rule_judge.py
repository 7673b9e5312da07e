"""A judge that is a rule: `model: "scripted:benchmarks/rule_judge.py:rate"` in a judge.yaml.

It rates an answer by how many different words of four letters and more it has, up to 10. It is no judge of anything; it
shows that a benchmark with a judge plays to its end on a machine without a model that can write a verdict.
"""

import json
import re
from collections.abc import Sequence

from agent2.records import Message

ANSWER = re.compile(r"^The answer:\n(.*)^Write one or two sentences", re.MULTILINE | re.DOTALL)
WORDS_A_POINT = 3


def rate(chat: Sequence[Message]) -> str:
    """A reason and the rating, as the packaged prompt `rating` asks for them."""
    asked = str(chat[-1].content)
    found = ANSWER.search(asked)
    words = set(re.findall(r"[a-z]{4,}", found[1].lower())) if found else set()
    rating = min(10, 1 + len(words) // WORDS_A_POINT)
    return f"The answer has {len(words)} different words.\n{json.dumps({'verdict': rating})}"
