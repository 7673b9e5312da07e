"""Does a model know the wrong options of a benchmark by heart? Questions with one of them masked, as a benchmark.

Whoever saw only the subject of a question can choose its right option, but hardly write a wrong one word for word: that
is known from the published item. From a benchmark of multiple choice one item is made of each question that has a
wrong option which cannot be guessed otherwise; the score is the share of these that a model writes, compared by words.

Promises: items of visible splits stay visible and those of `test_public` stay hidden; private items are not read; the
key is not part of an item. An option is masked only if it has two words or more, is none of the stock ones ("none of
the above"), is in no other text of the item, and shares less than `MOST_SHARED` of its words with another option.
Does NOT show that a model that guesses nothing is clean: it may have seen the question alone, or in other words.

Source: Deng et al. 2024, arXiv:2311.09783 (section 3.2, "question-multichoice"), there with one random wrong option and
ROUGE-L in place of token F1. Not taken over: their exclusion of questions by kind of words.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from agent2.benchmarks.declaration import OPTIONS
from agent2.cards.folder import file_digest
from agent2.errors import ConfigError
from agent2.files import write_text
from agent2.records import Benchmark, Item, Split
from agent2.scorers.answers import plain_words, token_f1

MASK = "[MASK]"
MOST_SHARED = 0.65
"""Token F1 with another option from which the option could be copied from it. Source: as above, section 4.1."""
MAX_TOKENS = 64
STOCK = re.compile(
    r"\b(?:(?:all|none|both|neither|either|any|some|one|two|most) of (?:the|these|them|those)|above|below|cannot be|"
    r"can not be|can't be|not enough|i and ii|ii and iii|i and iii|[a-e] and [a-e]|insufficient|undetermined|depends)\b"
)
"""Options that other questions have as well."""
READ_SPLITS = (Split.TRAIN, Split.DEV, Split.TEST_PUBLIC)
NO_OPTIONS = "has no list of options"


class Form(StrEnum):
    """How the option is asked for."""

    MASK = "mask"
    """The whole question with a mask, for models that follow instructions."""
    COMPLETE = "complete"
    """The question up to the option's letter, for base models; later options are not shown."""


@dataclass(frozen=True, slots=True)
class MaskedItems:
    """Items with a masked option, by split."""

    form: Form

    rows: Mapping[Split, Sequence[dict[str, Any]]]
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Reason -> items."""

    @property
    def n_items(self) -> int:
        """Over all splits."""
        return sum(len(rows) for rows in self.rows.values())


class _NotMasked(Exception):
    """Why no option of an item can be masked."""


def mask_options(
    benchmark: Benchmark, secret: bytes, count: Callable[[Split], int], *, form: Form, limit: int | None
) -> MaskedItems:
    """The items of a benchmark with a masked option. limit: most items of a split.

    count: how many items a split has. Raises ConfigError for a benchmark none of whose items has an option to mask, and
    for one none of whose splits can be read.
    """
    rows: dict[Split, list[dict[str, Any]]] = {}
    left_out: Counter[str] = Counter()
    problem: ConfigError | None = None
    for split in READ_SPLITS:
        try:
            n_items = count(split)
            items = benchmark.items(split, n_items, secret) if n_items else ()
        except ConfigError as error:  # the files of one split may be elsewhere
            problem = problem or error
            continue
        for item in items:
            if limit is not None and len(rows.get(split, ())) >= limit:
                break
            try:
                rows.setdefault(split, []).append(masked_row(item, form))
            except _NotMasked as reason:
                left_out[str(reason)] += 1
    if problem is not None and not rows and not left_out:
        raise problem
    if not any(rows.values()):
        reasons = "; ".join(f"{n_items} items: {reason}" for reason, n_items in left_out.items())
        raise ConfigError(
            f"{benchmark.name}: no option can be masked ({reasons or 'it has no visible or public items'}); take a "
            "benchmark of multiple choice whose options are sentences"
        )
    return MaskedItems(form, {split: members for split, members in rows.items() if members}, dict(left_out))


def masked_row(item: Item, form: Form) -> dict[str, Any]:
    """One item as a row: prompt, and the masked option as the answer. Raises _NotMasked."""
    raw = item.payload.get(OPTIONS)
    if not isinstance(raw, Sequence) or isinstance(raw, str) or not 2 < len(raw) <= len(ascii_uppercase):
        raise _NotMasked(NO_OPTIONS)
    options = [str(option) for option in raw]
    lines = [f"{letter}. {option}" for letter, option in zip(ascii_uppercase, options, strict=False)]
    before, block, after = item.prompt.rpartition("\n".join(lines))
    if not block:
        raise _NotMasked("does not show its options a line each, A to Z")
    places = _guessable_by_heart(options, item.reference, f"{before}\n{after}")
    if not places:
        raise _NotMasked("has no wrong option that only its text tells")
    place = min(places, key=lambda index: sha256(f"{item.id}\0{options[index]}".encode()).hexdigest())
    letter = ascii_uppercase[place]
    if form is Form.COMPLETE:
        # without the point behind the letter: tokenizers may hold it and the blank in one token
        prompt = before + "\n".join([*lines[:place], letter])
    else:
        lines[place] = f"{letter}. {MASK}"
        item_text = before + "\n".join(lines) + after
        prompt = (
            f"Below is a published question of multiple choice, with one of its options replaced by {MASK}. Do not "
            f"answer the question. Write option {letter} as it was published, and nothing else.\n\n{item_text}"
        )
    return {"id": f"masked-{item.id}", "prompt": prompt, "answer": options[place], "letter": letter}


def _guessable_by_heart(options: Sequence[str], key: str | None, question: str) -> list[int]:
    """Places of wrong options that nothing else in the item tells."""
    right = ascii_uppercase.index(key) if key is not None and key in ascii_uppercase[: len(options)] else None
    if right is None:
        return []
    question_words = f" {plain_words(question)} "
    return [
        place
        for place, option in enumerate(options)
        if place != right
        and "\n" not in option
        and len([word for word in plain_words(option).split() if word.isalpha()]) > 1
        and not STOCK.search(option.lower())
        and f" {plain_words(option)} " not in question_words
        and all(token_f1(option, rival) < MOST_SHARED for rival in _others(options, place))
    ]


def _others(options: Sequence[str], place: int) -> Iterable[str]:
    return (option for index, option in enumerate(options) if index != place)


def write_masked(folder: Path, benchmark: Benchmark, masked: MaskedItems) -> None:
    """Write the items as a benchmark: its file, which pins them, and one file for each split."""
    import json

    import yaml

    folder.mkdir(parents=True, exist_ok=True)
    files = {split.value: f"{split.value}.jsonl" for split in masked.rows}
    for split, rows in masked.rows.items():
        write_text(folder / files[split.value], "".join(json.dumps(row) + "\n" for row in rows))
    record: dict[str, Any] = {
        "name": f"masked_{benchmark.name}",
        "version": "1.0",
        "description": f"A wrong option of each question of {benchmark.name}-v{benchmark.version}, by heart.",
        "files": files,
        "sha256": {split: file_digest(folder / file) for split, file in files.items()},
        "id": "id",
        "prompt": "{prompt}",
        "answer": "answer",
        "repeats": "drop",
        "payload": ["letter"],
        "scorer": {"name": "exact", "plain": True, "first_line": True},
        "sampling": {"temperature": 0.0, "max_tokens": MAX_TOKENS},
    }
    write_text(folder / "benchmark.yaml", yaml.safe_dump(record, sort_keys=False, allow_unicode=True, width=1000))
