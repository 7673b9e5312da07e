"""A benchmark folder of one's own: `bench.yaml`, `cards/`, versions; and cards written as a `benchmark.yaml`.

bench.yaml     name, matrix, sampling, attempts, how often it is refreshed
cards/         task cards
pilots/        pilots (`agent2 bench pilot`)
versions/      frozen versions (`agent2 bench freeze`)
CHANGELOG.md   what each version changed
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field

from agent2.authoring.matrix import CapabilityMatrix, matrix_of, read_matrix
from agent2.authoring.task_cards import SPLITS, TaskCard, read_cards, write_cards
from agent2.benchmarks.declaration import SamplingSpec
from agent2.cards.folder import file_digest
from agent2.config import StrictModel, load_yaml
from agent2.errors import ConfigError
from agent2.files import write_text
from agent2.plugins import NAME
from agent2.records import Split
from agent2.scorers.task_card import ANSWER_SCRIPT, FORM

BENCH_FILE = "bench.yaml"
CARDS = "cards"
VERSIONS = "versions"
CHANGELOG = "CHANGELOG.md"
Every = Literal["monthly", "quarterly", "yearly"]


class RefreshRule(StrictModel):
    """When the items are looked at again."""

    every: Every = "quarterly"
    max_age_days: int | None = Field(default=None, ge=1)
    """Dated items that are older are due to be replaced; None: none is."""


class BenchSpec(StrictModel):
    """The contents of `bench.yaml`."""

    name: str = Field(pattern=f"^{NAME.pattern}$")
    matrix: dict[str, Any] = Field(min_length=1)
    sampling: SamplingSpec = SamplingSpec(temperature=0.6, max_tokens=512)
    attempts: int = Field(default=3, ge=1)
    anchor_share: float = Field(default=0.2, gt=0, lt=1)
    """Of the items of a first version, the part that every later one copies."""
    refresh: RefreshRule = RefreshRule()


@dataclass(frozen=True, slots=True)
class OwnBenchmark:
    """The folder, read."""

    folder: Path
    spec: BenchSpec
    matrix: CapabilityMatrix
    cards: Sequence[TaskCard]


def read_own(folder: Path) -> OwnBenchmark:
    """Read a benchmark folder of one's own. Raises ConfigError."""
    path = folder / BENCH_FILE
    if not path.is_file():
        raise ConfigError(f"{folder}: contains no {BENCH_FILE}; write one with: agent2 bench new FOLDER --matrix FILE")
    spec = load_yaml(path, BenchSpec)
    cards = read_cards(folder / CARDS) if (folder / CARDS).is_dir() else []
    return OwnBenchmark(folder, spec, matrix_of(spec.matrix, str(path)), cards)


def new_own(folder: Path, matrix: Path, name: str, cards: Path | None) -> OwnBenchmark:
    """Make such a folder. cards: existing ones, copied. Raises ConfigError before anything is written."""
    if (folder / BENCH_FILE).exists():
        raise ConfigError(f"{folder / BENCH_FILE}: already exists; choose another folder")
    targets = read_matrix(matrix)
    record = {"name": name, "matrix": {task_type: dict(row) for task_type, row in targets.targets.items()}}
    if not NAME.fullmatch(name):
        raise ConfigError(f"--name {name!r}: is no name of a benchmark; use letters, digits, '.', '_' and '-'")
    spec = BenchSpec.model_validate(record)
    existing = read_cards(cards) if cards is not None else []
    (folder / CARDS).mkdir(parents=True, exist_ok=True)
    if existing:
        write_cards(folder / CARDS / "cards.jsonl", existing)
    settings = {
        "sampling": {"temperature": spec.sampling.temperature, "max_tokens": spec.sampling.max_tokens},
        "attempts": spec.attempts,
        "anchor_share": spec.anchor_share,
        "refresh": {"every": spec.refresh.every},
    }
    write_text(folder / BENCH_FILE, yaml.safe_dump({**record, **settings}, sort_keys=False, allow_unicode=True))
    return read_own(folder)


def payload_of(card: TaskCard) -> dict[str, Any]:
    """What the scorer `task_card` needs."""
    return {
        "success_verifier": card.success_verifier.model_dump(mode="json"),
        "files": dict(card.initial_state.files),
        "setup": card.initial_state.setup,
        "scope": list(card.scope) or sorted(card.solution),
        "process_checks": list(card.process_checks),
        "minutes": card.budget.max_minutes,
    }


def write_benchmark(folder: Path, spec: BenchSpec, version: str, cards: Sequence[TaskCard], *, by_split: bool) -> None:
    """Write cards as `benchmark.yaml` with its rows, which it pins. by_split: else all are dev, for a pilot.

    Raises ConfigError for cards that cannot be one benchmark: some with options and some without.
    """
    runs_command = any(card.runs_command for card in cards)
    types = sorted({card.success_verifier.type for card in cards})
    with_options = {bool(card.options) for card in cards if not card.runs_command}
    if len(with_options) > 1:
        raise ConfigError(f"{spec.name}: some questions have options and some do not; make two benchmarks of them")
    has_options = with_options == {True}
    is_sandboxed = runs_command or len(types) > 1
    folder.mkdir(parents=True, exist_ok=True)
    files: dict[str, str] = {}
    pins: dict[str, str] = {}
    for split, members in _portions(cards, by_split=by_split):
        files[split.value] = f"{split.value}.jsonl"
        write_rows(folder / files[split.value], members)
        pins[split.value] = file_digest(folder / files[split.value])
    scorer = "task_card" if is_sandboxed else types[0]
    tokens = max([spec.sampling.max_tokens, *(card.budget.max_tokens for card in cards if card.runs_command)])
    record: dict[str, Any] = {
        "name": spec.name,
        "version": version,
        "files": files,
        "sha256": pins,
        "id": "id",
        "prompt": "{prompt}\n\n{options}" if has_options else "{prompt}",
        "answer": "answer",
        **({"options": "options"} if has_options else {}),
        "payload": ["task_type", "difficulty", *(PAYLOAD if is_sandboxed else ())],
        "scorer": scorer,
        "attempts": spec.attempts,
        "sampling": {"temperature": spec.sampling.temperature, "top_p": spec.sampling.top_p, "max_tokens": tokens},
    }
    write_text(folder / "benchmark.yaml", yaml.safe_dump(record, sort_keys=False, allow_unicode=True))


PAYLOAD = ("success_verifier", "files", "setup", "scope", "process_checks", "minutes")


def _portions(cards: Sequence[TaskCard], *, by_split: bool) -> Iterable[tuple[Split, list[TaskCard]]]:
    if not by_split:
        return [(Split.DEV, list(cards))]
    groups: dict[Split, list[TaskCard]] = {}
    for card in cards:
        groups.setdefault(SPLITS[card.split], []).append(card)
    return [(split, groups[split]) for split in Split if split in groups]


def write_rows(path: Path, cards: Sequence[TaskCard]) -> None:
    """The rows that are played, as JSON lines."""
    import json

    from agent2.files import atomic_write

    atomic_write(path, b"".join(json.dumps(played_row(card)).encode() + b"\n" for card in cards))


def played_row(card: TaskCard) -> Mapping[str, Any]:
    """A card as a row of a benchmark: what is asked, the key, and what the scorer needs."""
    row: dict[str, Any] = {
        "id": card.id,
        "prompt": shown_prompt(card),
        "answer": card.answer or written_solution(card),
        "task_type": card.task_type,
        "difficulty": card.difficulty,
    }
    if card.options:
        row["options"] = card.options
    return {**row, **payload_of(card)} if card.runs_command else {**row, **_verifier_alone(card)}


def written_solution(card: TaskCard) -> str:
    """The card's solution as an answer of a model."""
    parts = [
        f"DELETE: {path}"
        if text is None
        else f"FILE: {path}\n```\n{text if text.endswith(chr(10)) else text + chr(10)}```"
        for path, text in card.solution.items()
    ]
    return "\n\n".join(parts) or "there is no reference solution"


def _verifier_alone(card: TaskCard) -> dict[str, Any]:
    empty: dict[str, Any] = {"files": {}, "setup": "", "scope": [], "process_checks": [], "minutes": 1}
    return {"success_verifier": {"type": card.success_verifier.type}, **empty}


def shown_prompt(card: TaskCard) -> str:
    """What a model reads: the prompt, and for a repo its files and the form of an answer; never the verifier."""
    if not card.runs_command or card.success_verifier.type == ANSWER_SCRIPT:
        return card.prompt
    files = "\n\n".join(
        f"FILE: {path}\n```\n{text if text.endswith(chr(10)) else text + chr(10)}```"
        for path, text in card.initial_state.files.items()
    )
    return f"{card.prompt}\n\n{files}\n\n{FORM}"
