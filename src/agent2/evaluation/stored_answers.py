"""Answers that a model gave elsewhere, scored without it: a file of (id or prompt, answer) on a benchmark, to a card.

Each row names its item by `id` (that of the benchmark's data, or of an item here) or by `prompt` (the question, or all
that a model is sent), and holds the answer, or a list of several. Several answers to one item are attempts at it.

Promises: every answer is played in the benchmark's own world and judged by its own scorer, as a model's would be; an
answer is scored on the item that its row names and on no other; nothing is guessed: rows of unknown items, items with
more attempts than others, and fields that could be meant either way are refused with the row. Items without an answer
are refused, or missing on the card where the caller allows it, never 0 and never left out. What the file does not
state (sampling, template) is listed in the card's lock under `assumed`, so that the card is not comparable with one
that was played here.

Does NOT score episodes: their worlds answer each message, so a stored one has no meaning without the replies. The
exception is a benchmark that reads whole runs with what was recorded of them (`home.ReadsRuns`): a folder in place of a
file.
"""

import time
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec import structs

from agent2 import installation
from agent2.benchmarks.data_files import Row, file_digest, read_rows
from agent2.benchmarks.home import NamedItem, NamedSet, ProvidesCount, ProvidesNamedSet, ReadsRuns
from agent2.cards.card import CardHeader, CardSummary, ReportingRule
from agent2.cards.folder import restore_replaced
from agent2.cards.imports.foreign_log import UNKNOWN
from agent2.cards.reader import read_summary
from agent2.errors import ConfigError, Fault, quoted
from agent2.evaluation.engine import Attempt, play_by
from agent2.evaluation.runner import software_lock
from agent2.evaluation.scoring import (
    PlayedItem,
    Progress,
    ScoringResources,
    open_card,
    require_scorer,
    score_played,
    unless_unjudged,
)
from agent2.llm.thoughts import AUTO
from agent2.records import (
    HIDDEN_SPLITS,
    Benchmark,
    EvaluationProtocol,
    Item,
    JsonValue,
    Message,
    Rollout,
    RolloutStatus,
    SamplingSettings,
    Scorer,
    Split,
    Usage,
    digest_of,
)

STORED_ANSWERS = "stored_answers"
"""Key of the lock of a card that was made from a file of answers: which file, and on which items."""
PLAYED_ITEMS = "items"
"""Key of the lock of a card that was played on a whole set here."""
WHOLE_SET = "whole set"
"""In these entries: all published items, where it is not the name of a split."""
ANSWER_FIELDS = ("answer", "output", "response", "completion")
N_NAMED = 3
"""Of rows or items in a refusal."""
SAME_ANSWER_SHARE, FEWEST_FOR_SAME = 0.9, 20
"""From this share of equal answers on, over so many items, the result comes with a note."""


@dataclass(frozen=True, slots=True)
class StoredAnswers:
    """The answers of a file, by item."""

    by_item: Mapping[str, tuple[str | None, ...]]
    """Item id -> its attempts in the order of the rows; None: the row holds no answer. Empty for absent items."""
    field: str
    n_rows: int
    attempts: int

    @property
    def n_absent(self) -> int:
        """Answers that the file should hold and does not."""
        return sum(self.attempts - sum(text is not None for text in texts) for texts in self.by_item.values())


@dataclass(frozen=True, slots=True)
class StoredScore:
    """The result of a file of answers."""

    summary: CardSummary
    attempts: int
    n_absent: int
    """Answers that the file does not hold, which are missing on the card."""
    notes: tuple[str, ...]
    """What a reader should know before believing the score."""


def named_set(benchmark: Benchmark, split: Split | None, n_named: int = 0) -> NamedSet:
    """The items that answers are scored on; None: the whole published set. Reading private ones is logged.

    n_named: how many items a file names, for a benchmark that generates them without end.
    Raises ConfigError for episodes and for a benchmark without a published set if no split is named.
    """
    if benchmark.max_turns > 1:
        raise ConfigError(
            f"benchmark {benchmark.name}: its items are episodes, in which the world answers each message, so stored "
            "answers cannot be scored; import whole trajectories with agent2 cards import --trajectories"
        )
    if getattr(benchmark, "compares_answers", False):
        raise ConfigError(
            f"benchmark {benchmark.name}: a model's likelihoods of the answers are compared, and a text has none; "
            "score a benchmark that asks for an answer"
        )
    if split is None and not isinstance(benchmark, ProvidesNamedSet):
        raise ConfigError(
            f"benchmark {benchmark.name}: has no published set of items; name the split that was answered (--split dev)"
        )
    is_keyed = split in HIDDEN_SPLITS
    secret = installation.secret() if is_keyed else None
    if isinstance(benchmark, ProvidesNamedSet):
        chosen = benchmark.named_set(split, secret)
        if split in (None, Split.TEST_PRIVATE):
            installation.log_private_items(benchmark.name, len(chosen.items), installation.secret())
    else:
        assert split is not None
        n_items = benchmark.count(split, secret) if isinstance(benchmark, ProvidesCount) else n_named
        items = benchmark.items(split, n_items, secret)
        chosen = NamedSet(split, [NamedItem(item, (item.id,), (item.prompt,)) for item in items])
    if not chosen.items:
        raise ConfigError(f"benchmark {benchmark.name}: has no items{f' of split {split.value}' if split else ''}")
    return chosen


def items_of_stored(benchmark: Benchmark, header: CardHeader) -> list[Item] | None:
    """The items of a card on a whole set, played here or made from a file of answers; None: the card is another one."""
    stored = header.lock.get(STORED_ANSWERS)
    is_stored = isinstance(stored, Mapping) and stored.get("items") == WHOLE_SET
    if not is_stored and header.lock.get(PLAYED_ITEMS) != WHOLE_SET:
        return None
    return [named.item for named in named_set(benchmark, None).items]


def read_stored(rows: Sequence[Row], names: NamedSet, benchmark: str, field: str | None = None) -> StoredAnswers:
    """The answers of rows by item. field: the one that holds them; None: the one of `ANSWER_FIELDS` that is there.

    Raises ConfigError for rows without answers, of unknown items, and for items with more answers than others.
    """
    file = rows[0].file
    answer_field = field if field is not None else _answer_field(rows)
    if not any(answer_field in row.values or row.get(answer_field) is not None for row in rows):
        raise ConfigError(f"{file}: no row has the field {answer_field!r}; its fields are {_fields(rows)}")
    item_of = _ItemFinder(names, rows, benchmark, answer_field)
    texts: dict[str, list[str | None]] = {named.item.id: [] for named in names.items}
    first_row: dict[str, Row] = {}
    for row in rows:
        item_id = item_of(row)
        first_row.setdefault(item_id, row)
        texts[item_id] += _answers(row, answer_field)
    counts = Counter(len(answers) for answers in texts.values() if answers)
    attempts = max(counts, key=lambda count: (counts[count], count))
    if len(counts) > 1:
        uneven = [item_id for item_id, answers in texts.items() if answers and len(answers) != attempts]
        examples = ", ".join(
            f"{item_id!r} {len(texts[item_id])} (first at line {first_row[item_id].number})"
            for item_id in uneven[:N_NAMED]
        )
        raise ConfigError(
            f"{file}: {counts[attempts]} items have {attempts} answer{'s' if attempts > 1 else ''} each, {len(uneven)} "
            f"have another number: {examples}{', ...' if len(uneven) > N_NAMED else ''}; give each as many, or remove "
            "the doubled rows"
        )
    return StoredAnswers(
        {item_id: tuple(answers) for item_id, answers in texts.items()}, answer_field, len(rows), attempts
    )


def _answer_field(rows: Sequence[Row]) -> str:
    """The field of the answers. Raises ConfigError if there is none, or more than one."""
    present = [name for name in ANSWER_FIELDS if any(name in row.values for row in rows)]
    if len(present) == 1:
        return present[0]
    if present:
        raise ConfigError(
            f"{rows[0].file}: has the fields {' and '.join(present)}, each of which could be the model's answer; name "
            f"the one that is (--answer {present[-1]})"
        )
    raise ConfigError(
        f"{rows[0].file}: no row has a field {', '.join(ANSWER_FIELDS[:-1])} or {ANSWER_FIELDS[-1]}; its fields are "
        f"{_fields(rows)}: name the one with the model's answer (--answer FIELD, or RECORD.FIELD inside a record)"
    )


def _fields(rows: Sequence[Row]) -> str:
    names = list(dict.fromkeys(name for row in rows[:100] for name in row.values))
    return ", ".join(quoted(name) for name in names[:12]) + (", ..." if len(names) > 12 else "")


def _answers(row: Row, field: str) -> list[str | None]:
    """The answers of a row. Raises ConfigError for what is no text."""
    value = row.get(field)
    values = value if isinstance(value, list) and value else [value]
    for part in values:
        if isinstance(part, bool) or not isinstance(part, str | int | float | None):
            raise ConfigError(
                f"{row.where}: {field} is {quoted(part)}, neither text nor a list of texts; name the field that holds "
                f"the text (--answer {field}.FIELD inside a record)"
            )
    return [None if part is None else str(part) for part in values]


class _ItemFinder:
    """Finds the item that a row names: by id where any row has one that is known here, else by prompt."""

    def __init__(self, names: NamedSet, rows: Sequence[Row], benchmark: str, answer_field: str) -> None:
        self._benchmark = benchmark
        self._n_items = len(names.items)
        self._by_id: dict[str, str] = {name: named.item.id for named in names.items for name in named.ids}
        self._by_prompt: dict[str, set[str]] = {}
        for named in names.items:
            for prompt in named.prompts:
                self._by_prompt.setdefault(_comparable(prompt), set()).add(named.item.id)
        self._fields = _present(names.id_fields, rows, answer_field)
        self._prompts = _present(names.prompt_fields, rows, answer_field)
        self._is_by_id = any(self._id(row) is not None for row in rows)
        self._example = names.items[0]
        if not self._fields and not self._prompts:
            raise ConfigError(
                f"{rows[0].file}: no row says which item it answers; its fields are {_fields(rows)}: add the field "
                f"'id' (as {self._example.ids[-1]!r}) or 'prompt' (the question)"
            )
        unknown = [row for row in rows if not self._known(row)]
        if unknown:
            self._refuse(unknown, len(rows))

    def __call__(self, row: Row) -> str:
        """The id of the item. Raises ConfigError where id and prompt disagree, and for a prompt of several items."""
        by_id, candidates = self._id(row), self._prompt(row)
        if self._is_by_id and by_id is not None:
            if candidates and by_id not in candidates:
                raise ConfigError(
                    f"{row.where}: the id is that of {by_id!r}, and the prompt that of {min(candidates)!r}; correct one"
                )
            return by_id
        if len(candidates) > 1:
            examples = ", ".join(sorted(candidates)[:N_NAMED])
            raise ConfigError(
                f"{row.where}: {len(candidates)} items of {self._benchmark} have this prompt ({examples}); name the "
                "item by id"
            )
        return next(iter(candidates))

    def _known(self, row: Row) -> bool:
        return self._id(row) is not None if self._is_by_id else bool(self._prompt(row))

    def _id(self, row: Row) -> str | None:
        for name in self._fields:
            value = row.get(name)
            if isinstance(value, str | int | float) and not isinstance(value, bool):
                text = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value).strip()
                if text in self._by_id:
                    return self._by_id[text]
        return None

    def _prompt(self, row: Row) -> set[str]:
        for name in self._prompts:
            value = row.get(name)
            if isinstance(value, str) and (candidates := self._by_prompt.get(_comparable(value))):
                return candidates
        return set()

    def _refuse(self, unknown: Sequence[Row], n_rows: int) -> None:
        is_id = self._is_by_id or not self._prompts
        name, example = (
            (self._fields[0], self._example.ids[-1]) if is_id else (self._prompts[0], self._example.prompts[-1])
        )
        examples = ", ".join(f"{quoted(row.get(name))} (line {row.number})" for row in unknown[:N_NAMED])
        raise ConfigError(
            f"{unknown[0].file}: {len(unknown)} of {n_rows} rows name no item of {self._benchmark} by "
            f"{'id' if is_id else 'prompt'} ({name}): {examples}{', ...' if len(unknown) > N_NAMED else ''}; the first "
            f"of its {self._n_items} items is {quoted(example)}: remove the rows, or check benchmark and --split"
        )


def _present(fields: Sequence[str], rows: Sequence[Row], answer_field: str) -> list[str]:
    return [name for name in fields if name != answer_field and any(row.get(name) is not None for row in rows)]


def _comparable(prompt: str) -> str:
    """A prompt without differences in white space and Unicode form."""
    return " ".join(unicodedata.normalize("NFC", prompt).split())


@dataclass(frozen=True, slots=True)
class StoredRequest:
    """A file of answers and how it is scored."""

    benchmark: Benchmark
    answers: Path
    split: Split | None = None
    """None: the whole published set."""
    field: str | None = None
    """Of the answers; None: one of `ANSWER_FIELDS`."""
    name: str | None = None
    """Of the model, on the card; None: that of the file."""
    scorer: Scorer | None = None
    """None: the benchmark's own."""
    scorer_settings: Mapping[str, JsonValue] | None = None
    """Of the scorer, where they are not the benchmark's; for the record."""
    is_partial: bool = False
    """Items without an answer are missing on the card, rather than refused."""


def score_stored(
    request: StoredRequest,
    target: Path | None = None,
    *,
    resources: ScoringResources | None = None,
    on_progress: Progress | None = None,
) -> tuple[Path, StoredScore]:
    """Score a file of answers and write the card; returns its path. An unfinished card of the same call is resumed.

    target: None: a folder below `scores/` whose name depends on all that decides the result.
    Raises ConfigError for answers that cannot be scored (see `read_stored`), and without `is_partial` for items without
    one; CardError for a target that is taken; what `scoring.require_scorer` and `unless_unjudged` raise.
    """
    benchmark = request.benchmark
    rows, digest = _read(request)
    names = named_set(benchmark, request.split, _n_distinct(rows))
    stored = read_stored(rows, names, benchmark.name, request.field)
    if stored.n_absent and not request.is_partial:
        _refuse_absent(request, stored)
    scorer = request.scorer or benchmark.scorer()
    require_scorer(scorer, resources)
    items = [named.item for named in names.items]
    header = _header(request, digest, names.split, items, stored, scorer)
    card = target if target is not None else Path("scores") / _folder_name(header)
    restore_replaced(card)
    writer, done = open_card(card, header)
    if writer is not None:
        with writer:
            rollouts = _played(benchmark, items, stored, done, request.answers.name)
            records = unless_unjudged(score_played(rollouts, scorer, resources), is_resumed=bool(done))
            for record in records:
                writer.append(record)
                if on_progress is not None:
                    on_progress(writer.n_rollouts, header.planned_rollouts or 0)
            writer.close()
    return card, StoredScore(read_summary(card), stored.attempts, stored.n_absent, _notes(items, stored))


def _read(request: StoredRequest) -> tuple[list[Row], str]:
    """The rows of a file of answers, or of a folder of runs, and the digest of what was read."""
    if isinstance(request.benchmark, ReadsRuns):
        rows = request.benchmark.read_runs(request.answers)
        return rows, digest_of([row.values for row in rows])
    return read_rows(request.answers), file_digest(request.answers)


def _n_distinct(rows: Sequence[Row]) -> int:
    """How many items rows name, by the first field that does."""
    for name in ("id", "prompt"):
        if values := {str(row.get(name)) for row in rows if row.get(name) is not None}:
            return len(values)
    return len(rows)


def _refuse_absent(request: StoredRequest, stored: StoredAnswers) -> None:
    absent = [item_id for item_id, texts in stored.by_item.items() if not texts or None in texts]
    n_items = len(stored.by_item)
    unanswered = "" if stored.attempts == 1 else f" ({stored.n_absent} answers)"
    raise ConfigError(
        f"{request.answers}: {len(absent)} of {n_items} items of {request.benchmark.name} have no answer{unanswered}: "
        f"{', '.join(absent[:N_NAMED])}{', ...' if len(absent) > N_NAMED else ''}; add them, name the split that was "
        "answered (--split), or score the others alone with --partial, which counts these as missing"
    )


def _played(
    benchmark: Benchmark,
    items: Sequence[Item],
    stored: StoredAnswers,
    done: set[tuple[str, int]],
    file: str,
) -> Iterator[PlayedItem]:
    """Every answer, played; one that is absent is a rollout that was lost."""
    for item in items:
        texts = stored.by_item[item.id] or (None,) * stored.attempts
        for number, text in enumerate(texts):
            if (item.id, number) in done:
                continue
            if text is None:
                yield item, _absent(item, number, f"{file} has no answer to this item")
                continue
            attempts = [Attempt(item, number, 0)]
            for _, rollout in play_by(lambda *_, text=text: text, attempts, benchmark.environment, 1, retries=0):
                yield item, _unmetered(rollout)


def _unmetered(rollout: Rollout) -> Rollout:
    """The rollout without token counts, which a file of answers does not state."""
    turns = [structs.replace(turn, prompt_tokens=None, completion_tokens=None) for turn in rollout.turns]
    return structs.replace(rollout, turns=turns, usage=Usage(None, None, rollout.usage.seconds))


def _absent(item: Item, attempt: int, reason: str) -> Rollout:
    prompt = (Message("user", item.prompt),)
    failed, fault = RolloutStatus.FAILED, Fault.INFRASTRUCTURE
    return Rollout(item.id, attempt, 0, failed, prompt, (), None, {}, Usage(), fault, reason)


def _header(
    request: StoredRequest, digest: str, split: Split, items: Sequence[Item], stored: StoredAnswers, scorer: Scorer
) -> CardHeader:
    benchmark, settings = request.benchmark, dict(request.scorer_settings or {})
    own_name = request.answers.name.split(".")[0]
    is_named = request.field is not None and request.field not in ANSWER_FIELDS
    protocol = EvaluationProtocol(
        benchmark=f"{benchmark.name}-v{benchmark.version}",
        split=split,
        items_digest=digest_of(items),
        sampling=SamplingSettings(temperature=1.0, top_p=1.0, max_tokens=0),
        attempts=stored.attempts,
        max_turns=benchmark.max_turns,
        environment=benchmark.environment_version(),
        scorer=f"{scorer.name}-v{scorer.version}",
        dtype=UNKNOWN,
        chat_template_digest=UNKNOWN,
        judge_digest=digest_of(settings) if settings else "",
        thinking=AUTO,
    )
    entry: dict[str, JsonValue] = {
        "file": request.answers.name,
        "sha256": digest,
        "field": stored.field,
        "rows": stored.n_rows,
        "items": WHOLE_SET if request.split is None else request.split.value,
        "absent": stored.n_absent,
        "settings": settings,
    }
    assumed = ["temperature and top_p: 1.0; max_tokens: 0 means not stated", "model, template, dtype: not stated"]
    return CardHeader(
        checkpoint_name=request.name or (f"{own_name}:{stored.field}" if is_named else own_name),
        checkpoint_digest=digest_of([digest, stored.field]),
        protocol=protocol,
        reporting=ReportingRule(),
        lock={**software_lock(), STORED_ANSWERS: entry, "assumed": assumed},
        created_at=time.time(),
        planned_rollouts=len(items) * stored.attempts,
    )


def _folder_name(header: CardHeader) -> str:
    name = header.protocol.benchmark.partition("-v")[0]
    model = "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in header.checkpoint_name)
    return f"{name}-{model[:60]}-{header.identity()[:8]}"


def _notes(items: Sequence[Item], stored: StoredAnswers) -> tuple[str, ...]:
    """Signs that a file is not what it is taken for."""
    notes = []
    texts = [text for answers in stored.by_item.values() for text in answers if text is not None]
    if len(items) >= FEWEST_FOR_SAME and texts:
        text, count = Counter(texts).most_common(1)[0]
        if count >= SAME_ANSWER_SHARE * len(texts):
            notes.append(f"{count} of {len(texts)} answers are the same text: {quoted(text)}")
        if all(item.reference is not None and {*stored.by_item[item.id]} <= {item.reference, None} for item in items):
            notes.append(
                f"every answer is the reference itself, character by character: field {stored.field!r} may hold the "
                "benchmark's own answers"
            )
    return tuple(notes)
