"""Task cards: one file for an item of one's own benchmark, from which training, evaluation and failures are fed.

A folder of cards may mix `.yaml`, `.json` and `.jsonl` files (one card, or a list of them) and task folders in Harbor's
layout (`task.toml`, `instruction.md`, `environment/`, `tests/test.sh`, `solution/`). A row with `prompt`, `answer`,
`task_type` and `difficulty` is a card already; the other fields have defaults. Tasks of a task set (`verify_type`) are
read as cards, too.

Promises: a wrong field is refused with file and card; two cards with one id are refused with both places. What a repo
holds is read as text once, here, so that playing needs no repo. Does NOT run anything.
"""

import datetime
import json
import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from string import ascii_uppercase
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from agent2.config import StrictModel, first_problem, read_yaml_text
from agent2.errors import ConfigError
from agent2.foreign_files import MAX_TEXT_BYTES, MIB, read_limited
from agent2.records import Split, digest_of
from agent2.scorers import follows_rules
from agent2.scorers.task_card import ANSWER_SCRIPT, CHECKS, RUNS_COMMAND
from agent2.scorers.task_set import VerifyType, parse_task_set
from agent2.scorers.workspace_paths import require_inside

DIFFICULTIES = ("easy", "medium", "hard")
SPLITS: Mapping[str, Split] = {
    "train": Split.TRAIN,
    "dev": Split.DEV,
    "public_trend": Split.TEST_PUBLIC,
    "test_public": Split.TEST_PUBLIC,
    "private_release": Split.TEST_PRIVATE,
    "test_private": Split.TEST_PRIVATE,
}
"""Name of a split on a card -> the split that is played; public items are for trends, private ones for releases."""
MAX_REPO_FILES = 500
MAX_CARDS_BYTES = 256 * MIB
"""Of one file of cards, which may contain repositories."""
SKIPPED_FOLDERS = frozenset({".git", "node_modules", "__pycache__", ".venv"})


class InitialState(StrictModel):
    """What the workspace holds before the work."""

    repo: str | None = None
    """A folder, relative to the file of the card; read when the card is."""
    commit: str | None = None
    """What the folder has to have checked out."""
    setup: str | None = None
    """A command before the verifier."""
    files: dict[str, str] = Field(default_factory=dict)
    """Relative path -> text."""

    @field_validator("files")
    @classmethod
    def _are_inside(cls, files: dict[str, str]) -> dict[str, str]:
        return require_inside(files)


class CardBudget(StrictModel):
    """What an attempt may use."""

    max_steps: int = Field(default=1, ge=1)
    max_minutes: float = Field(default=5.0, gt=0, le=24 * 60)
    max_tokens: int = Field(default=512, ge=1)


class SuccessVerifier(StrictModel):
    """How success is decided."""

    type: str = "exact"
    """`unit_tests` or `command` (its exit code), or the scorer of answers: `exact`, `choice`, `math_answer` ..."""
    command: str | None = None
    files: dict[str, str] = Field(default_factory=dict)
    """Hidden tests: written over the workspace after the answer was applied."""

    @field_validator("files")
    @classmethod
    def _are_inside(cls, files: dict[str, str]) -> dict[str, str]:
        return require_inside(files)

    @model_validator(mode="after")
    def _has_command(self) -> "SuccessVerifier":
        if self.type not in RUNS_COMMAND and not follows_rules(self.type):
            raise ValueError(
                f"{self.type!r} is no verifier; use {', '.join(sorted(RUNS_COMMAND))}, or a scorer that compares "
                "answers: exact, choice, rational, math_answer ..."
            )
        if self.type in RUNS_COMMAND and not self.command:
            raise ValueError(f"type {self.type!r} needs a command")
        return self


class TaskCard(StrictModel):
    """One item of one's own benchmark."""

    id: str = Field(default="", max_length=200)
    """Empty: a digest of what is asked."""
    split: str = "private_release"
    domain: str = ""
    task_type: str = "other"
    """The row of the matrix."""
    difficulty: Literal["easy", "medium", "hard"] = "medium"
    initial_state: InitialState = InitialState()
    prompt: str = Field(min_length=1)
    options: list[str] = Field(default_factory=list)
    answer: str | None = None
    """The key of a question; a letter or the text of an option where there are options."""
    solution: dict[str, str | None] = Field(default_factory=dict)
    """Files as a right solution leaves them (None: deleted); only for checks, never shown."""
    allowed_tools: list[str] = Field(default_factory=list)
    budget: CardBudget = CardBudget()
    success_verifier: SuccessVerifier = SuccessVerifier()
    process_checks: list[str] = Field(default_factory=list)
    scope: list[str] = Field(default_factory=list)
    """Patterns of files that the task is about; empty: those that the solution changes."""
    tags: list[str] = Field(default_factory=list)
    date: datetime.date | None = None
    """Of what is asked; for cutoffs."""
    source: str = ""
    """Where it comes from: a ticket, a failure, a trace, a person."""

    @field_validator("answer", mode="before")
    @classmethod
    def _as_text(cls, answer: object) -> object:
        if isinstance(answer, float) and not math.isfinite(answer):
            raise ValueError("is no finite number; write a text in quotes if that is the answer")
        return str(answer) if isinstance(answer, int | float) and not isinstance(answer, bool) else answer

    @field_validator("split")
    @classmethod
    def _known_split(cls, split: str) -> str:
        if split not in SPLITS:
            raise ValueError(f"{split!r} is not a split; use one of {', '.join(SPLITS)}")
        return split

    @field_validator("solution")
    @classmethod
    def _are_inside(cls, files: dict[str, str | None]) -> dict[str, str | None]:
        return require_inside(files)

    @field_validator("options")
    @classmethod
    def _have_letters(cls, options: list[str]) -> list[str]:
        if len(options) > len(ascii_uppercase):
            raise ValueError(
                f"has {len(options)} options, and there are {len(ascii_uppercase)} letters; leave some out"
            )
        return options

    @field_validator("process_checks")
    @classmethod
    def _known_checks(cls, checks: list[str]) -> list[str]:
        unknown = [name for name in checks if name not in CHECKS]
        if unknown:
            raise ValueError(f"{unknown[0]!r} is not a process check; use one of {', '.join(CHECKS)}")
        return checks

    @model_validator(mode="after")
    def _can_be_judged(self) -> "TaskCard":
        if not self.runs_command and not (self.answer or "").strip():
            raise ValueError(f"verifier {self.success_verifier.type!r} compares with an answer, and there is none")
        return self

    @property
    def runs_command(self) -> bool:
        """Whether a command decides; else an answer is compared."""
        return self.success_verifier.type in RUNS_COMMAND

    @property
    def digest(self) -> str:
        """Equal exactly when all that decides the item's score is; split, tags and source may change."""
        decides = {"prompt", "options", "answer", "initial_state", "success_verifier", "budget"}
        return digest_of(self.model_dump(mode="json", include=decides))

    @property
    def row(self) -> dict[str, Any]:
        """As a line of JSON, without what has its default."""
        return {"id": self.id, **self.model_dump(mode="json", exclude_defaults=True, exclude={"id"})}


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a card stands."""

    path: Path
    number: int | None = None

    def __str__(self) -> str:
        return str(self.path) if self.number is None else f"{self.path}:{self.number}"


def read_cards(source: Path) -> list[TaskCard]:
    """The cards of a file or folder, in the order of names. Raises ConfigError with file and card."""
    if not source.exists():
        raise ConfigError(f"{source}: no such file or folder; give task cards (.jsonl, .yaml, .json, Harbor folders)")
    places: dict[str, _Place] = {}
    cards = []
    for place, record in _records(source):
        card = _card(record, place)
        if card.id in places:
            raise ConfigError(f"{place}: id {card.id!r} is that of {places[card.id]}, too; give each card its own")
        places[card.id] = place
        cards.append(card)
    return cards


def write_cards(path: Path, cards: Sequence[TaskCard]) -> None:
    """Cards as JSON lines, whole or not at all."""
    from agent2.files import atomic_write

    atomic_write(path, b"".join(json.dumps(card.row, ensure_ascii=True).encode() + b"\n" for card in cards))


def _card(record: object, place: _Place) -> TaskCard:
    if not isinstance(record, dict):
        raise ConfigError(f"{place}: a card is a mapping of fields, not {type(record).__name__}")
    try:
        card = TaskCard.model_validate(record)
        files = {**_repo_files(card.initial_state, place), **card.initial_state.files}
    except ValidationError as error:
        name = f" card {record['id']!r}:" if isinstance(record.get("id"), str) else ""
        raise ConfigError(f"{place}:{name} {first_problem(error, TaskCard)[1]}") from error
    state = card.initial_state.model_copy(update={"files": files, "repo": None}) if files else card.initial_state
    card = card.model_copy(update={"initial_state": state})
    if card.options:
        card = card.model_copy(update={"answer": _option_letter(card, place)})
    return card if card.id else card.model_copy(update={"id": card.digest[:12]})


def _option_letter(card: TaskCard, place: _Place) -> str:
    letters = [chr(ord("A") + index) for index in range(len(card.options))]
    answer = (card.answer or "").strip()
    if answer in card.options:
        return letters[card.options.index(answer)]
    if answer.strip("().").upper() in letters:
        return answer.strip("().").upper()
    raise ConfigError(f"{place}: card {card.id!r}: answer {answer!r} is neither an option nor its letter")


def _records(source: Path) -> Iterator[tuple[_Place, object]]:
    if source.is_dir() and (source / "task.toml").is_file():
        yield _Place(source), _harbor(source)
        return
    if source.is_dir():
        for path in sorted(source.iterdir()):
            if path.is_dir() or path.suffix in (".jsonl", ".json", ".yaml", ".yml"):
                if path.name.startswith(".") or (path.is_dir() and not (path / "task.toml").is_file()):
                    continue
                yield from _records(path)
        return
    text = _text(source)
    try:
        if source.suffix == ".jsonl":
            for number, line in enumerate(text.split("\n"), start=1):
                if line.strip():
                    yield _Place(source, number), json.loads(line)
            return
        loaded = json.loads(text) if source.suffix == ".json" else _yaml(text, str(source))
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"{source}: cannot be read as {source.suffix[1:]} ({' '.join(str(error).split())})"
        ) from error
    if isinstance(loaded, dict) and loaded.keys() == {"tasks"}:
        loaded = loaded["tasks"]
    for number, record in enumerate(loaded if isinstance(loaded, list) else [loaded], start=1):
        place = _Place(source, number if isinstance(loaded, list) else None)
        is_task = isinstance(record, dict) and "verify_type" in record
        yield place, _task_record(record, place) if is_task else record


def _yaml(text: str, where: str) -> object:
    """A mapping, or a list of them, with the limits of our own files. Raises ConfigError."""
    is_list = next((line for line in text.split("\n") if line.strip() and line[0] not in "#%"), "").startswith("- ")
    if is_list:
        return read_yaml_text("cards:\n" + text, where).data["cards"]
    return read_yaml_text(text, where).data


def _task_record(record: dict[str, Any], place: _Place) -> dict[str, Any]:
    """A task of a task set as the record of a card. Raises ConfigError for one that no card can be."""
    task = parse_task_set(json.dumps([record]), str(place)).tasks[0]
    verifier: dict[str, Any] = {"type": "exact"}
    if task.verify_type == VerifyType.EXECUTION and task.verify_script is not None:
        command = "./.verify" if task.verify_script.startswith("#!") else "sh .verify"
        verifier = {"type": ANSWER_SCRIPT, "command": command, "files": {".verify": task.verify_script}}
    elif task.verify_type != VerifyType.EXACT_MATCH:
        raise ConfigError(
            f"{place}: task {task.id!r}: verify_type {task.verify_type!r} cannot be played as a card; use "
            f"{VerifyType.EXACT_MATCH} or {VerifyType.EXECUTION}, or judge with agent2 judge"
        )
    return {
        "id": task.id,
        "prompt": task.prompt,
        "answer": task.expected_answer,
        "budget": {"max_steps": task.max_turns},
        "initial_state": {"files": task.setup.get("files", {})},
        "success_verifier": verifier,
    }


def _text(path: Path) -> str:
    try:
        return read_limited(path, MAX_CARDS_BYTES, follow=True).decode("utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror or error}); check the path") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text (byte {error.start}); save it as UTF-8") from error


def _repo_files(state: InitialState, place: _Place) -> dict[str, str]:
    """The text files of a card's repo; empty where it names none. Raises ConfigError."""
    if state.repo is None:
        return {}
    if "\0" in state.repo:
        raise ConfigError(f"{place}: repo {state.repo!r} is no path; name a folder beside the card")
    folder = place.path.parent / state.repo
    if not folder.resolve().is_relative_to(place.path.parent.resolve()):
        raise ConfigError(f"{place}: repo {state.repo!r} is outside the folder of the card; copy it beside the card")
    if not folder.is_dir():
        raise ConfigError(f"{place}: repo {state.repo!r} is no folder beside the card; check it out there")
    head = _checked_out(folder)
    if state.commit is not None and head is not None and not head.startswith(state.commit):
        raise ConfigError(f"{place}: repo {state.repo!r} is at {head[:12]}, not {state.commit}; check out that commit")
    return _folder_files(folder, str(place))


def _checked_out(folder: Path) -> str | None:
    """The commit of a clone's HEAD; None: it is no clone, or its reference is packed."""
    head = folder / ".git" / "HEAD"
    if not head.is_file():
        return None
    text = head.read_text(encoding="utf-8", errors="replace").strip()
    if not text.startswith("ref: "):
        return text
    reference = folder / ".git" / text.removeprefix("ref: ")
    is_plain = ".." not in PurePosixPath(text).parts and reference.is_file()
    return reference.read_text(encoding="utf-8", errors="replace").strip() if is_plain else None


def _folder_files(folder: Path, place: str) -> dict[str, str]:
    files: dict[str, str] = {}
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        if path.is_symlink() or not path.is_file() or SKIPPED_FOLDERS & set(relative.parts):
            continue
        if len(files) >= MAX_REPO_FILES:
            raise ConfigError(f"{place}: {folder} has more than {MAX_REPO_FILES} files; cut the repo to what is needed")
        try:
            files[relative.as_posix()] = read_limited(path, MAX_TEXT_BYTES).decode("utf-8")
        except UnicodeDecodeError:
            continue  # a binary file is no part of what a model reads or a diff changes
    return files


def _harbor(folder: Path) -> dict[str, Any]:
    """A task folder in Harbor's layout as the record of a card. Raises ConfigError."""
    try:
        settings = tomllib.loads(_text(folder / "task.toml"))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{folder / 'task.toml'}: not TOML ({error}); fix it") from error
    for name in ("instruction.md", "tests/test.sh"):
        if not (folder / name).is_file():
            raise ConfigError(f"{folder}: has task.toml and no {name}; Harbor's layout needs it")
    metadata, limits = _table(settings, "metadata"), _table(settings, "agent")
    tests = {f"tests/{name}": text for name, text in _folder_files(folder / "tests", str(folder)).items()}
    environment = folder / "environment"
    files = _folder_files(environment, str(folder)) if environment.is_dir() else {}
    files.pop("Dockerfile", None)
    difficulty = metadata.get("difficulty")
    record: dict[str, Any] = {
        "id": folder.name,
        "prompt": _text(folder / "instruction.md"),
        "task_type": str(metadata.get("category") or "other"),
        "difficulty": difficulty if difficulty in DIFFICULTIES else "medium",
        "tags": [str(tag) for tag in metadata.get("tags") or ()],
        "initial_state": {"files": files},
        "success_verifier": {"type": "command", "command": "sh tests/test.sh", "files": tests},
    }
    if isinstance(limits.get("timeout_sec"), int | float):
        record["budget"] = {"max_minutes": limits["timeout_sec"] / 60}
    return record


def _table(settings: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    table = settings.get(name)
    return table if isinstance(table, dict) else {}
