"""Items and verdicts of reasoning_gym: each name is a generator, each seed an item, and its scorer is the package's.

A message is read as the package's own evaluation reads it: the text between the last `<answer>` tags; without them
there is no answer.
"""

import hashlib
from collections import OrderedDict
from typing import Any

PROMPT = "default"
"""Of the package's system prompts."""
NOT_ALONE = frozenset({"composite"})
"""Needs other generators in its settings."""
MAX_KEPT = 5_000

_entries: "OrderedDict[tuple[str, int], tuple[Any, Any]]" = OrderedDict()


def describe() -> dict[str, Any]:
    """Names, and the system message."""
    from reasoning_gym.factory import DATASETS
    from reasoning_gym.utils import SYSTEM_PROMPTS

    return {"names": sorted(set(DATASETS) - NOT_ALONE), "system": SYSTEM_PROMPTS[PROMPT]}


def _entry(name: str, seed: int) -> tuple[Any, Any]:
    """Generator and item."""
    import reasoning_gym

    key = (name, seed)
    if key not in _entries:
        dataset = reasoning_gym.create_dataset(name, size=1, seed=seed)
        _entries[key] = (dataset, dataset[0])
        if len(_entries) > MAX_KEPT:
            _entries.popitem(last=False)
    return _entries[key]


def draw(name: str, seed: int) -> dict[str, Any]:
    """The item of a seed; its reference is a message that states the answer, None where the package has none."""
    _, entry = _entry(name, seed)
    answer = entry["answer"]
    return {"prompt": str(entry["question"]), "reference": None if answer is None else f"<answer>{answer}</answer>"}


def score(name: str, seed: int, prompt_sha256: str, message: str) -> dict[str, Any]:
    """The package's verdict on a message, 0 to 1, and the answer in it; raises if the seed gives another item."""
    from reasoning_gym.utils import extract_answer

    dataset, entry = _entry(name, seed)
    if hashlib.sha256(str(entry["question"]).encode("utf-8", "surrogatepass")).hexdigest() != prompt_sha256:
        raise RuntimeError(f"{name} makes another item of the same seed in this process")
    answer = extract_answer(message)
    if answer is None:
        return {"value": 0.0, "extracted": None}
    return {"value": float(dataset.score_answer(answer, entry)), "extracted": answer}


METHODS = {"describe": describe, "draw": draw, "score": score}
