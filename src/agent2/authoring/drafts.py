"""Task cards drafted from the failures of an evaluation, for a person to read before they join a benchmark.

One card for each item that a checkpoint failed: its prompt and key without personal data (`authoring.redaction`), the
scorer's way of comparing, the classes of the failure as tags, and where it comes from. Where the key is not known, the
draft has an empty `answer` to be filled in.

Promises: no item of a hidden split becomes a draft; a failure that no card of one message and one key can ask again is
counted with the reason; the same question is drafted once. A scorer's settings do not come along. Does NOT judge
whether a failure is worth an item, and a redacted question may ask something else: its tag says so.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from agent2.analysis.failures import FailedRollout, failures_of
from agent2.authoring.redaction import redact
from agent2.authoring.task_cards import SPLITS, TaskCard
from agent2.cards.card import IMPORTED, CardHeader
from agent2.cards.comparability import find_cards
from agent2.cards.reader import iter_rollouts
from agent2.errors import ConfigError, unknown_name
from agent2.evaluation.suite_folder import read_references
from agent2.records import HIDDEN_SPLITS, Message, ScoredRollout

COMPARES_ANSWERS = frozenset({"exact", "choice", "rational", "math_answer", "final_answer"})
"""Scorers that need no more of an item than its key, and its options."""
REDACTED = "redacted"
"""Tag of a card from which something was taken."""
OPTION = re.compile(r"^\(?([A-Z])[.):] {1,4}(\S.{0,2000})$")


@dataclass(frozen=True, slots=True)
class Drafts:
    """What came of the failures."""

    n_failed: int
    """Items with a failure that was looked at."""
    cards: tuple[TaskCard, ...]
    unanswered: tuple[dict[str, Any], ...]
    """Rows of cards whose `answer` is empty."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Reason -> items."""
    redacted: Mapping[str, int] = field(default_factory=dict)
    """Kind -> values that were taken out of the drafts."""


class _NotDrafted(Exception):
    """Why an item cannot be drafted."""


def draft_cards(
    folder: Path,
    *,
    label: str | None = None,
    patterns: Sequence[re.Pattern[str]] = (),
    split: str = "dev",
    limit: int | None = None,
) -> Drafts:
    """Drafts of the items that the checkpoint of an evaluation, or of the cards in a folder, failed.

    label: only failures counted first under this class. patterns: what else is to be taken out. split: of the
    drafts. limit: most items, the first by benchmark and id. Raises ConfigError for a folder without cards, an unknown
    split and a class without failures; CardError for a damaged card.
    """
    if split not in SPLITS:
        raise unknown_name("split", split, SPLITS)
    report = failures_of(folder)
    failures = report.failures if label is None else report.of_class(label)
    if not failures:
        classes = sorted({failure.first_class for failure in report.failures})
        raise ConfigError(
            f"{folder}: nothing failed"
            + (f" with class {label!r}; there are {', '.join(classes) or 'no failures'}" if label is not None else "")
        )
    firsts: dict[tuple[str, str], FailedRollout] = {}
    for failure in failures:
        firsts.setdefault((failure.benchmark, failure.item_id), failure)
    chosen = dict(list(firsts.items())[:limit])
    card_set = find_cards(folder)
    references = read_references(folder)
    drafted: dict[str, dict[str, Any]] = {}
    left_out: Counter[str] = Counter()
    taken: Counter[str] = Counter()
    for key, path in card_set.cards.items():
        header = card_set.headers[key]
        benchmark = header.protocol.benchmark_name
        mine = {item: failure for (name, item), failure in chosen.items() if name == benchmark}
        if header.protocol.split in HIDDEN_SPLITS:
            left_out[f"items of {header.protocol.split.value} are hidden and stay there; evaluate dev"] += len(mine)
            continue
        keys = references.get(benchmark, {})
        for record, is_solved_sometimes in _failed_records(path, mine):
            failure = mine[record.rollout.item_id]
            try:
                row, values = _row(record, header, keys.get(record.rollout.item_id), patterns)
            except _NotDrafted as reason:
                left_out[str(reason)] += 1
                continue
            if row["prompt"] in drafted:
                left_out["asks what another draft asks"] += 1
                continue
            taken.update(values)
            tags = [*failure.classes, *([REDACTED] if values else [])]
            difficulty = "medium" if is_solved_sometimes else "hard"
            drafted[row["prompt"]] = {**row, "split": split, "difficulty": difficulty, "tags": tags}
    cards = [TaskCard.model_validate(row) for row in drafted.values() if row["answer"]]
    return Drafts(
        n_failed=len(chosen),
        cards=tuple(card.model_copy(update={"id": card.digest[:12]}) for card in cards),
        unanswered=tuple(row for row in drafted.values() if not row["answer"]),
        left_out=dict(left_out),
        redacted=dict(taken),
    )


def _failed_records(path: Path, failures: Mapping[str, FailedRollout]) -> list[tuple[ScoredRollout, bool]]:
    """The rollouts of a card that are named, with whether another attempt at the item scored 1."""
    records, solved = [], set()
    for record in iter_rollouts(path):
        failure = failures.get(record.rollout.item_id)
        if failure is not None and failure.attempt == record.rollout.attempt:
            records.append(record)
        elif record.score.value == 1.0:
            solved.add(record.rollout.item_id)
    return [(record, record.rollout.item_id in solved) for record in records]


def _row(
    record: ScoredRollout, header: CardHeader, key: str | None, patterns: Sequence[re.Pattern[str]]
) -> tuple[dict[str, Any], Mapping[str, int]]:
    """A draft without its split, difficulty and tags, and how many values of each kind were taken out.

    Raises _NotDrafted.
    """
    rollout, protocol = record.rollout, header.protocol
    scorer = protocol.scorer.rpartition("-v")[0] or protocol.scorer
    if len(rollout.turns) > 1:
        raise _NotDrafted("was played over several turns; a card asks once")
    if IMPORTED in header.lock:
        scorer = "exact" if scorer not in COMPARES_ANSWERS else scorer
    elif scorer not in COMPARES_ANSWERS:
        raise _NotDrafted(f"is judged by {scorer}, which needs more than a key; write its card by hand")
    prompt = _prompt(rollout.prompt)
    options: list[str] = []
    if scorer == "choice":
        prompt, options = _parted(prompt)
        if not options:
            raise _NotDrafted("its options could not be read from the prompt; take them from its file")
    redacted = redact([prompt, key or "", rollout.item_id, *options], patterns)
    prompt, answer, item_id, *options = redacted.texts
    row: dict[str, Any] = {
        "task_type": protocol.benchmark_name,
        "prompt": prompt,
        "answer": answer,
        "success_verifier": {"type": scorer},
        "source": f"failure of {header.checkpoint_name}: {protocol.benchmark}, item {item_id}",
    }
    return row | ({"options": options} if options else {}), redacted.n_values


def _prompt(messages: Sequence[Message]) -> str:
    """The text of an opening. Raises _NotDrafted for one that is more than a question."""
    roles = [message.role for message in messages]
    if roles not in (["user"], ["system", "user"]):
        raise _NotDrafted("begins with a conversation; a card asks once")
    if any(message.pictures for message in messages):
        raise _NotDrafted("shows pictures, and a card has text alone")
    return "\n\n".join(message.text for message in messages)


def _parted(prompt: str) -> tuple[str, list[str]]:
    """A prompt without its options A, B, ... at the end, and these; all of it and none where it ends otherwise."""
    lines = prompt.rstrip().split("\n")
    marked: list[tuple[str, str]] = []
    while lines and (match := OPTION.match(lines[-1].strip())) is not None:
        marked.insert(0, (match[1], match[2]))
        lines.pop()
    letters = "".join(letter for letter, _ in marked)
    if len(marked) < 2 or letters != ascii_uppercase[: len(marked)] or not "".join(lines).strip():
        return prompt, []
    return "\n".join(lines).rstrip(), [option for _, option in marked]
