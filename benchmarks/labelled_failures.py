"""Precision and recall of the classes that `agent2 failures` finds, on real answers that a reader labelled.

    python benchmarks/labelled_failures.py DATA --cards CARDS                the held-out half (in docs/labels.md)
    python benchmarks/labelled_failures.py DATA --cards CARDS --half tuned   the half that detectors are adjusted on
    python benchmarks/labelled_failures.py DATA --cards CARDS --examples 5   also the disagreements of each class

DATA holds the published outputs that `benchmarks/labelled/failures/answers.jsonl` names (alpaca_eval, ifeval, ifbench,
mmlu_pro, gsm8k, tau_bench). CARDS holds the cards of `agent2 eval ifeval` and `agent2 eval gsm8k` with
`--checkpoint smollm2-135m`, the sources that begin with `card:`. A line of the labels:

    {"source": file or card:benchmark, "rollout": "item/attempt", "answer": start of its SHA-256, "classes": [...]}

An answer that reads otherwise than the one that was labelled is left out and counted. The two halves are divided by a
digest of source and item. Intervals are Wilson's, 95%. Who the reader was, and by what guideline:
benchmarks/labelled/failures/GUIDELINE.md. A second table is of tool calls (`labelled_calls.py`, tau_bench alone).
"""

import argparse
import hashlib
import json
import lzma
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent2.cards.imports.formats import read_log
from agent2.cards.reader import iter_rollouts
from agent2.records import Message, Rollout, RolloutStatus, Score, ScoredRollout, StopReason, Turn, Usage
from agent2.scorers.failure_detectors import detected
from agent2.stats.estimates import wilson

sys.path.insert(0, str(Path(__file__).parent))
from labelled_calls import CALL_CLASSES, LabelledCall, labelled_calls, read_call_labels
from labelled_calls import LABELS as CALLS

LABELS = Path(__file__).with_name("labelled") / "failures" / "answers.jsonl"
CARD = "card:"
DIGEST = 12
"""Characters of an answer's SHA-256 that the labels hold."""
FIELDS: Mapping[str, tuple[str, str]] = {
    "alpaca_eval/model_outputs": ("instruction", "output"),
    "alpaca_eval/annotations": ("instruction", "output_2"),
    "ifeval": ("prompt", "response"),
    "ifbench": ("prompt", "response"),
    "mmlu_pro": ("question", "generated_text"),
    "gsm8k": ("question", "6b_finetuning"),
}
"""Start of a file's path -> its fields of prompt and answer."""


@dataclass(frozen=True)
class MeasuredClass:
    """One class as the reader labels it, and what finds it."""

    name: str
    labels: tuple[str, ...]
    """Classes of `agent2 failures`; any of them predicts it."""
    sources: str = ""
    """Only sources that begin so are counted: the class is the scorer's; empty: all."""


CLASSES = (
    MeasuredClass("refusal", ("refusal",)),
    MeasuredClass("repetition", ("repetition",)),
    MeasuredClass("truncated", ("truncated",)),
    MeasuredClass("language_switch", ("language_switch",)),
    MeasuredClass("language_not_followed", ("ifeval_language_constraint_violation",), "card:ifeval"),
    MeasuredClass("no_final_answer", ("gsm8k_final_answer_format_error",), "card:gsm8k"),
)


@dataclass(frozen=True)
class LabelledAnswer:
    """One answer with the reader's classes and those that are found."""

    source: str
    key: str
    classes: frozenset[str]
    found: frozenset[str]
    text: str


def is_tuned(source: str, key: str) -> bool:
    """Whether an answer is in the half that detectors may be adjusted on."""
    return hashlib.sha256(f"{source} {key.rpartition('/')[0]}".encode()).digest()[0] % 2 == 0


def read_labels(path: Path) -> list[dict[str, Any]]:
    """The lines of the labels. Raises ValueError for one without its keys or with an unknown class."""
    known = {measured.name for measured in CLASSES}
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        row = json.loads(line)
        unknown = set(row["classes"]) - known
        if unknown or "/" not in row["rollout"] or len(row["answer"]) != DIGEST or not row["source"]:
            raise ValueError(f"{path.name}:{number}: {', '.join(sorted(unknown)) or 'source, rollout or answer'}")
        rows.append(row)
    return rows


def answer_record(prompt: str, answer: str) -> ScoredRollout:
    """A stored answer as a rollout of one message, as `agent2 score` reads it."""
    rollout = Rollout(
        item_id="stored",
        attempt=0,
        seed=0,
        status=RolloutStatus.COMPLETED,
        prompt=[Message(role="user", content=prompt)],
        turns=[Turn(answer, None, StopReason.END, None, None)],
        answer=answer,
        state={},
        usage=Usage(),
    )
    return ScoredRollout(rollout=rollout, score=Score(0.0, "not scored here"))


def records_of(data: Path, cards: Path | None, source: str) -> dict[str, ScoredRollout]:
    """Item and attempt -> rollout, of one source; empty for a card where no folder of cards was given."""
    if source.startswith(CARD):
        folders = sorted(cards.rglob(f"{source.removeprefix(CARD)}-*/rollouts.parquet")) if cards is not None else []
        found = [record for folder in folders for record in iter_rollouts(folder.parent)]
        return {f"{record.rollout.item_id}/{record.rollout.attempt}": record for record in found}
    if source.startswith("tau_bench"):
        log = read_log(data / source)
        return {f"{record.rollout.item_id}/{record.rollout.attempt}": record for record in log.rollouts}
    asked, answered = next(fields for start, fields in FIELDS.items() if source.startswith(start))
    return {
        f"{number}/0": answer_record(row[asked], answer)
        for number, row in enumerate(_rows(data / source))
        if isinstance(answer := _plain(row[answered]), str)
    }


def _plain(field: Any) -> Any:
    return field.get("solution") if isinstance(field, dict) else field


def _rows(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            text = archive.read(archive.namelist()[0]).decode("utf-8")
        return list(json.loads(text))
    content = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
    if path.suffix == ".json":
        return list(json.loads(content))
    return [json.loads(line) for line in content.decode("utf-8").splitlines() if line.strip()]


def last_message(record: ScoredRollout) -> str:
    """The message that was labelled: the last one that is not blank."""
    return next((turn.action for turn in reversed(record.rollout.turns) if turn.action.strip()), "")


def labelled_answers(data: Path, cards: Path | None, rows: Sequence[Mapping[str, Any]]) -> Iterator[LabelledAnswer]:
    """Every labelled answer that is there as it was labelled, with what is found in it."""
    by_source: dict[str, dict[str, ScoredRollout]] = {}
    for row in rows:
        source, key = row["source"], row["rollout"]
        if source not in by_source:
            by_source[source] = records_of(data, cards, source)
        record = by_source[source].get(key)
        if record is None:
            continue
        text = last_message(record)
        if hashlib.sha256(text.encode()).hexdigest()[:DIGEST] != row["answer"]:
            continue
        found = frozenset(detected(record)).union(record.score.labels)
        yield LabelledAnswer(source, key, frozenset(row["classes"]), found, text)


@dataclass(frozen=True)
class ClassFigures:
    """How one class is found."""

    measured: MeasuredClass
    n: int
    """Answers on which it is counted."""
    n_labelled: int
    n_found: int
    n_both: int


def figures(answers: Sequence[LabelledAnswer]) -> list[ClassFigures]:
    """The figures of each class."""
    rows = []
    for measured in CLASSES:
        counted = [answer for answer in answers if answer.source.startswith(measured.sources)]
        found = [answer for answer in counted if answer.found.intersection(measured.labels)]
        n_labelled = sum(measured.name in answer.classes for answer in counted)
        n_both = sum(measured.name in answer.classes for answer in found)
        rows.append(ClassFigures(measured, len(counted), n_labelled, len(found), n_both))
    return rows


def disagreements(answers: Sequence[LabelledAnswer], measured: MeasuredClass, n: int) -> Iterator[str]:
    """Up to n answers of a class that only the detector finds, and up to n that only the reader does."""
    name, counted = measured.name, [answer for answer in answers if answer.source.startswith(measured.sources)]
    kinds: Mapping[str, Callable[[LabelledAnswer], bool]] = {
        "only found": lambda answer: bool(answer.found.intersection(measured.labels)) and name not in answer.classes,
        "only labelled": lambda answer: not answer.found.intersection(measured.labels) and name in answer.classes,
    }
    for kind, is_one in kinds.items():
        for answer in [answer for answer in counted if is_one(answer)][:n]:
            ends = answer.text if len(answer.text) < 240 else f"{answer.text[:120]} [...] {answer.text[-120:]}"
            yield f"  {name}, {kind}: {answer.source} {answer.key}: {ends!r}"


def _share(n_success: int, n: int) -> str:
    if n == 0:
        return "-"
    estimate = wilson(n_success, n)
    return f"{estimate.value:.2f} [{estimate.low:.2f}, {estimate.high:.2f}]"


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder of the published outputs")
    parser.add_argument("--cards", type=Path, help="folder with the cards of smollm2-135m")
    parser.add_argument("--half", choices=["held-out", "tuned", "both"], default="held-out")
    parser.add_argument("--examples", type=int, default=0, help="disagreements of each class and kind to print")
    parser.add_argument("--labels", type=Path, default=LABELS)
    parser.add_argument("--calls", type=Path, default=CALLS, help="labels of tool calls")
    options = parser.parse_args()
    rows = [
        row
        for row in read_labels(options.labels)
        if options.half == "both" or is_tuned(row["source"], row["rollout"]) == (options.half == "tuned")
    ]
    answers = list(labelled_answers(options.data, options.cards, rows))
    print(f"{len(answers)} answers, half: {options.half}; {len(rows) - len(answers)} not there as they were labelled")
    print(f"{'class':24}{'answers':>8}{'reader':>8}{'found':>7}{'both':>6}  {'precision':20}  {'recall':20}")
    for row in figures(answers):
        shares = f"{_share(row.n_both, row.n_found):20}  {_share(row.n_both, row.n_labelled):20}"
        print(f"{row.measured.name:24}{row.n:8}{row.n_labelled:8}{row.n_found:7}{row.n_both:6}  {shares}")
    for measured in CLASSES:
        for line in disagreements(answers, measured, options.examples):
            print(line)
    print_calls(options.data, options.calls, options.half, options.examples)
    return 0


def print_calls(data: Path, labels: Path, half: str, n_examples: int) -> None:
    """The table of tool calls, and disagreements. A half holds all calls of an item."""
    rows = [
        row
        for row in read_call_labels(labels)
        if half == "both" or is_tuned(row["source"], row["rollout"]) == (half == "tuned")
    ]
    calls = list(labelled_calls(data, rows))
    print(f"\n{len(calls)} tool calls, half: {half}; {len(rows) - len(calls)} not there as they were labelled")
    for name in CALL_CLASSES:
        n_labelled, n_found, n_both = call_counts(calls, name)
        shares = f"{_share(n_both, n_found):20}  {_share(n_both, n_labelled):20}"
        print(f"{name:24}{len(calls):8}{n_labelled:8}{n_found:7}{n_both:6}  {shares}")
        differing = [call for call in calls if (name in call.classes) is not (name in call.found)]
        for call in differing[:n_examples]:
            who = "only labelled" if name in call.classes else "only found"
            print(f"  {name}, {who}: {call.source} {call.key}: {call.text[:240]}")


def call_counts(calls: Sequence[LabelledCall], name: str) -> tuple[int, int, int]:
    """Calls that have a class by the reader, by the process, and by both."""
    by_reader = [name in call.classes for call in calls]
    found = [name in call.found for call in calls]
    return sum(by_reader), sum(found), sum(a_label and a_find for a_label, a_find in zip(by_reader, found, strict=True))


if __name__ == "__main__":
    sys.exit(main())
