"""Benchmarks that are data alone: a folder with `benchmark.yaml` beside JSONL, CSV or Parquet files, no Python.

    name: capitals
    version: "1.0"
    files: {train: train.jsonl, test: test.jsonl}
    prompt: "{question} Answer with one word."
    answer: answer
    scorer: {name: exact}

Splits. `train`, `dev`, `test_public` and `test_private` name files of their own. What is left out is drawn: `dev` is a
tenth of `train` by a public hash of the prompt; of `test`, one half is `test_public` and the other `test_private`,
chosen under the installation secret; `all` is divided into 7 parts train, 1 part dev and 4 parts test. Items of a split
come in the order of a hash (keyed for hidden splits), so that the first n are a fair sample of a file in any order.

The version carries a digest of the file and of all data (`1.0+3f2a9c1b`): scores on other data are never comparable by
accident. `sha256` pins files. Rows are read when items are first asked for.

`documents` names a folder of text files or a JSONL dump that the world `search` searches. They are indexed once, in
`installation.worlds_dir()`, and that index alone is shown to agents and graders.

Does NOT hide the data from the operator of the harness, nor a published data set from a model that was trained on it.
"""

import hashlib
import hmac
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from string import Formatter, ascii_uppercase
from typing import Any, Final, Literal, Self

import yaml
from pydantic import ConfigDict, Field, field_validator, model_validator

from agent2.benchmarks.data_files import Row, file_digest, read_rows
from agent2.benchmarks.home import Players, at_random, question_of_row, row_of_question
from agent2.config import StrictModel, YamlText, load_yaml, read_yaml
from agent2.environments import ENVIRONMENTS
from agent2.environments.faults import with_faults
from agent2.environments.search.corpus import Corpus, documents_digest, index_documents, open_corpus
from agent2.environments.search.world import NAME as SEARCH
from agent2.environments.search.world import SearchSettings, follow_reference, random_document_action
from agent2.environments.tools.world import FaultSettings, ToolFaultKind
from agent2.errors import ConfigError, unknown_name
from agent2.plugins import NAME, PluginLocation, build, find, relative_to, require_members, source_digest
from agent2.records import HIDDEN_SPLITS, Environment, Item, SamplingSettings, Scorer, Split, digest_of
from agent2.scorers import SCORERS, load_scorer

FILE = "benchmark.yaml"
DEV_SHARE = 10
"""One in this many rows of `train` is a dev item where no dev file is named."""
OPTIONS = "options"
"""Variable of a prompt that is replaced by the lettered options."""
DOCUMENTS: Final = "documents"
SEALED_FOLDER = "elsewhere"
"""Folder of the data files in a sealed file; it does not exist where that file is read."""
MIN_TURNS = 3
"""Of a search."""


class Portion(StrEnum):
    """What a file may hold: one split, or several that are still to be divided."""

    TRAIN = "train"
    DEV = "dev"
    TEST_PUBLIC = "test_public"
    TEST_PRIVATE = "test_private"
    TEST = "test"
    ALL = "all"


class AnswerRule(StrictModel):
    """How the reference answer is read from a row."""

    field: str
    after: str | None = None
    """Text; the reference is what follows its last occurrence."""
    pattern: str | None = None
    """Regular expression with one group; the reference is the group of its last match."""
    form: str = "{answer}"
    """How a right answer is written for the scorer: `#### {answer}`."""

    @field_validator("pattern")
    @classmethod
    def _one_group(cls, pattern: str | None) -> str | None:
        if pattern is not None:
            try:
                n_groups = re.compile(pattern).groups
            except re.error as error:
                raise ValueError(f"not a regular expression: {error}") from error
            if n_groups != 1:
                raise ValueError(f"has {n_groups} groups; put parentheses around the answer alone")
        return pattern

    @field_validator("form")
    @classmethod
    def _has_answer(cls, form: str) -> str:
        if template_fields(form) != ["answer"]:
            raise ValueError("has to hold {answer} exactly once, and no other variable")
        return form


class PluginSpec(StrictModel):
    """A scorer or an environment by name; the other keys are its settings."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str

    @property
    def settings(self) -> dict[str, Any]:
        """All keys but the name."""
        return dict(self.model_extra or {})


class SamplingSpec(StrictModel):
    """How completions are drawn."""

    temperature: float = Field(default=0.0, ge=0, le=100)
    top_p: float = Field(default=1.0, gt=0, le=1)
    max_tokens: int = Field(default=512, ge=1)


class HubData(StrictModel):
    """A data set that the library `datasets` loads: a name on the Hugging Face hub, or a local folder."""

    name: str
    config: str | None = None
    revision: str | None = None
    """Commit of the data set; without one the newest is taken, and its content is in the version."""
    splits: dict[Portion, str] = Field(min_length=1)
    """Portion -> the data set's own name of a split."""


class DataSpec(StrictModel):
    """The contents of `benchmark.yaml`."""

    name: str = Field(pattern=f"^{NAME.pattern}$")
    version: str = Field(pattern=r"^[0-9A-Za-z][0-9A-Za-z._-]*$")
    description: str = ""
    files: dict[Portion, str] | None = Field(default=None, min_length=1)
    dataset: HubData | None = None
    documents: str | None = None
    """A folder of text files or a JSONL dump, which the world searches."""
    sha256: dict[Portion | Literal["documents"], str] = Field(default_factory=dict)
    """Portion, or `documents` -> digest that its data must have."""
    prompt: str
    system: str | None = None
    answer: AnswerRule | None = None
    """A field alone, or with how the reference is read from it; may be left out where a world gives the verdict."""
    id: str | None = None
    """Field with an id of its own for each row; default: a hash of the prompt."""
    options: str | list[str] | None = None
    """Field with a list of options, or the fields of the options in order; `{options}` in the prompt shows them."""
    payload: list[str] = Field(default_factory=list)
    """Further fields that the scorer needs."""
    scorer: PluginSpec
    environment: PluginSpec = PluginSpec(name="question")
    fault_rate: float = Field(default=0.0, ge=0, le=1)
    """Share of episodes in which a tool fails once."""
    sampling: SamplingSpec = SamplingSpec()
    attempts: int = Field(default=1, ge=1)
    max_turns: int = Field(default=1, ge=1)
    primary_metric: str = Field(default="accuracy", pattern=f"^{NAME.pattern}$")

    @field_validator("scorer", "environment", mode="before")
    @classmethod
    def _name_alone(cls, value: object) -> object:
        return {"name": value} if isinstance(value, str) else value

    @field_validator("answer", mode="before")
    @classmethod
    def _field_alone(cls, value: object) -> object:
        return {"field": value} if isinstance(value, str) else value

    @field_validator("prompt")
    @classmethod
    def _plain_variables(cls, text: str) -> str:
        template_fields(text)
        return text

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.files is None) == (self.dataset is None):
            raise ValueError("name either 'files' or 'dataset'")
        portions = set(self.portions)
        for whole, parts in ((Portion.ALL, set(Portion)), (Portion.TEST, {Portion.TEST_PUBLIC, Portion.TEST_PRIVATE})):
            double = sorted((portions & parts) - {whole})
            if whole in portions and double:
                raise ValueError(f"'{whole}' is divided into splits, so '{double[0]}' cannot be named beside it")
        if self.answer is None and self.environment.name == "question":
            raise ValueError("name 'answer', the field with the reference: the world 'question' gives no verdict")
        if DOCUMENTS in self.environment.settings:
            raise ValueError(f"write '{DOCUMENTS}' beside 'files', not among the settings of 'environment'")
        if self.documents is not None and self.environment.name == "question":
            raise ValueError(f"'{DOCUMENTS}' needs a world that searches them; write environment: {SEARCH}")
        if self.environment.name == SEARCH and self.documents is None:
            raise ValueError(f"environment '{SEARCH}' needs '{DOCUMENTS}': a folder of text files, or a .jsonl file")
        if self.fault_rate > 0 and self.environment.name != SEARCH:
            raise ValueError(
                f"'fault_rate' breaks tools of the world '{SEARCH}', and '{self.environment.name}' is another"
            )
        if self.environment.name == SEARCH and self.max_turns < MIN_TURNS:
            raise ValueError(
                f"max_turns is {self.max_turns}: a search, a page and an answer are {MIN_TURNS} messages; raise it"
            )
        return self

    @property
    def portions(self) -> Mapping[Portion, str]:
        """Portion -> its file, or its split of the data set."""
        return self.files if self.files is not None else self.dataset.splits if self.dataset is not None else {}


def template_fields(text: str) -> list[str]:
    """Variables of a template in the order of their first use. Raises ValueError for anything but `{name}`."""
    names = []
    try:
        for _, name, spec, conversion in Formatter().parse(text):
            if name is None:
                continue
            if not name or spec or conversion or re.search(r"[.\[\]]", name):
                raise ValueError(f"{{{name}}}: only plain names of fields, as in {{question}}, can be variables")
            names.append(name)
    except ValueError as error:
        raise ValueError(f"{error}; write {{{{ and }}}} for braces that are meant as such") from error
    return list(dict.fromkeys(names))


def fill_template(text: str, values: Mapping[str, str]) -> str:
    """A template with its variables replaced; the values themselves are never read as templates."""
    return "".join(head + (values[name] if name is not None else "") for head, name, _, _ in Formatter().parse(text))


@dataclass(frozen=True, slots=True)
class _Entry:
    """One row as a question."""

    prompt: str
    reference: str | None
    payload: Mapping[str, Any]
    id: str | None
    row: Row


@dataclass
class _RowProblems:
    """Rows that cannot become questions, by problem, for one message about all of them."""

    rows: dict[str, list[Row]] = field(default_factory=dict)

    def note(self, problem: str, row: Row) -> None:
        self.rows.setdefault(problem, []).append(row)


class DataBenchmark:
    """A benchmark from `benchmark.yaml`."""

    def __init__(self, path: Path, overrides: Sequence[str] = ()) -> None:
        """path: the file, or its folder. overrides: "a.b=value".

        Raises ConfigError for a wrong file, scorer or environment, and data that are not as they were pinned.
        """
        self.path = path / FILE if path.is_dir() else path
        self.spec: DataSpec = load_yaml(self.path, DataSpec, overrides)
        self._text: YamlText = read_yaml(self.path, overrides)
        self.folder = self.path.resolve().parent
        spec = self.spec
        self.name, self.description = spec.name, spec.description
        self.primary_metric, self.max_turns, self.attempts = spec.primary_metric, spec.max_turns, spec.attempts
        self.sampling = SamplingSettings(**spec.sampling.model_dump())
        self.prompt_digest = digest_of([spec.prompt, spec.system])
        self._entries: dict[Portion, list[_Entry]] = {}
        self.scorer_location = self._locate("scorer", spec.scorer.name, SCORERS)
        self.environment_location = self._locate("environment", spec.environment.name, ENVIRONMENTS)
        self._scorer = load_scorer(self.scorer_location, spec.scorer.settings)
        world: Any = self.environment()
        if not self.environment_location.is_packaged:
            require_members(self.environment_location, world, ("name", "version"), ("reset", "act", "state"))
        digest = source_digest(self.environment_location)[:8]
        self._environment_version = f"{world.name}-v{world.version}{f'+{digest}' if digest else ''}"
        if spec.fault_rate:
            self._environment_version += f"+faults-{spec.fault_rate:g}"
        if spec.documents is not None:  # an attribute only here: a check asks whether a benchmark brings players
            self.players = self._search_players
        self.source_digest = self._digest()
        self.version = f"{spec.version}+{self.source_digest[:8]}"

    def _digest(self) -> str:
        """Digest of all that decides items and verdicts; where files are and what code is called do not change it."""
        spec = self.spec
        left_out = {"sha256", "files", "dataset", "scorer", "environment", DOCUMENTS}
        left_out |= (
            set() if spec.fault_rate else {"fault_rate"}
        )  # at its default, so that a file without faults keeps its version
        fields = spec.model_dump(mode="json", exclude=left_out)
        code = [
            [source_digest(place) or place.name, place.attribute, choice.settings]
            for place, choice in ((self.scorer_location, spec.scorer), (self.environment_location, spec.environment))
        ]
        return digest_of([fields, code, self.all_digests])

    def items(self, split: Split, n: int, secret: bytes | None) -> list[Item]:
        """The first n items of a split. Raises ConfigError without the secret for a hidden one, or if it has fewer."""
        entries = self._members(split, secret)
        if n > len(entries):
            raise ConfigError(
                f"{self.path}: {n} items of split {split.value!r} were asked for, there are {len(entries)}; ask for "
                "fewer, or add data"
            )
        return [self._item(entry, split, secret) for entry in entries[:n]]

    def count(self, split: Split, secret: bytes | None) -> int:
        """How many items a split has; 0 where no file holds any."""
        if not self._portions_of(split):
            return 0
        return len(self._members(split, secret))

    def visible_row(self, item: Item) -> dict[str, Any]:
        """A visible item as an agent is given it, with the system message if there is one."""
        return row_of_question(item) | ({} if self.spec.system is None else {"system": self.spec.system})

    def item_of(self, row: Mapping[str, Any]) -> Item:
        """The item of such a row."""
        return question_of_row(row, self.name)

    def environment(self) -> Environment:
        """A fresh world."""
        settings = self.spec.environment.settings
        if self.spec.system is not None:
            settings["system"] = self.spec.system
        if self.spec.documents is not None:
            settings[DOCUMENTS] = self._corpus
        world: Environment = build(self.environment_location, settings)
        faults = FaultSettings(self.spec.fault_rate, tuple(ToolFaultKind))
        return with_faults(world, faults) if faults.rate else world

    def scorer(self) -> Scorer:
        """The scorer that the file names."""
        return self._scorer

    def environment_version(self) -> str:
        """Name and version of the world."""
        return self._environment_version

    @cached_property
    def digests(self) -> Mapping[Portion, str]:
        """Digest of the data of each portion; its pin where the data are not on this machine.

        Raises ConfigError if data differ from their pin.
        """
        digests = {}
        for portion, name in self.spec.portions.items():
            pinned = self.spec.sha256.get(portion)
            if self.spec.files is not None:
                is_here = (self.folder / name).exists() or pinned is None
                digest = file_digest(self.folder / name) if is_here else str(pinned)
            else:
                digest = pinned or digest_of([row.values for row in self._hub_rows(name)])
            if pinned is not None and digest != pinned:
                raise self._changed(portion.value, name, digest, pinned)
            digests[portion] = digest
        return digests

    @cached_property
    def documents_digest(self) -> str | None:
        """Digest of the documents; its pin where they are not on this machine. None: there are no documents.

        Raises ConfigError for documents that cannot be read, and if they differ from their pin.
        """
        if self.spec.documents is None:
            return None
        path, pinned = self.folder / self.spec.documents, self.spec.sha256.get(DOCUMENTS)
        if pinned is not None and not path.exists():
            return pinned
        try:
            digest = documents_digest(path)
        except ConfigError as error:
            raise ConfigError(f"{self._spot(DOCUMENTS)}: {error}") from error
        if pinned is not None and digest != pinned:
            raise self._changed(DOCUMENTS, self.spec.documents, digest, pinned)
        return digest

    @property
    def all_digests(self) -> dict[str, str]:
        """Of portions and documents, as `sha256` pins them."""
        documents = {} if self.documents_digest is None else {DOCUMENTS: self.documents_digest}
        return {portion.value: digest for portion, digest in self.digests.items()} | documents

    def folders(self) -> Sequence[Path]:
        """The index of the documents, which players and graders read; made on first use, and empty without documents.

        Raises ConfigError, with the file's line, for documents that cannot be indexed.
        """
        if self.spec.documents is None or self.documents_digest is None:
            return []
        try:
            return [index_documents(self.folder / self.spec.documents, self.documents_digest)]
        except ConfigError as error:
            raise ConfigError(f"{self._spot(DOCUMENTS)}: {error}") from error

    def _search_players(self) -> Players:
        """Players for questions over documents: the oracle finds the reference in them, the other takes any step."""
        size = SearchSettings().page_chars
        return Players(
            oracle=lambda item, chat: follow_reference(item, chat, self._corpus(), size),
            random=at_random(lambda item, chat, rng: random_document_action(chat, self._corpus(), rng)),
        )

    def _corpus(self) -> Corpus:
        return open_corpus(self.folders()[0])

    @property
    def hidden_files(self) -> tuple[Path, ...]:
        """Files with hidden items, which must not be visible in a workspace."""
        names = self.spec.files or {}
        visible = (Portion.TRAIN, Portion.DEV)
        return tuple((self.folder / name).resolve() for portion, name in names.items() if portion not in visible)

    def item_origin(self, split: Split) -> str:
        """How the items of a hidden split were chosen, for reports."""
        portions = self._portions_of(split)
        names = " and ".join(self.spec.portions[portion] for portion in portions)
        if portions and portions[0] in (Portion.TEST, Portion.ALL):
            return f"drawn from {names} under the installation secret"
        return f"{names} unchanged"

    def sealed(self, rename: Callable[[PluginLocation], str]) -> str:
        """The file as text for a process that plays given items: pinned, so that it needs none of the data.

        rename: the name of a plug-in's code in that process.
        """
        record = self.spec.model_dump(mode="json", exclude_none=True)
        record["sha256"] = self.all_digests
        for portion, file in record.get("files", {}).items():  # a workspace has another train.jsonl beside it
            record["files"][portion] = f"{SEALED_FOLDER}/{Path(file).name}"
        if DOCUMENTS in record:
            record[DOCUMENTS] = f"{SEALED_FOLDER}/{Path(record[DOCUMENTS]).name}"
        record["scorer"]["name"] = rename(self.scorer_location)
        record["environment"]["name"] = rename(self.environment_location)
        return yaml.safe_dump(record)

    def _locate(self, kind: str, name: str, packaged: Mapping[str, str]) -> PluginLocation:
        return find(kind, relative_to(name, self.folder), packaged, self._spot(kind, "name"))

    def _changed(self, key: str, name: str, digest: str, pinned: str) -> ConfigError:
        return ConfigError(
            f"{self._spot('sha256', key)}: {name} changed after it was pinned: sha256 is {digest}, pinned {pinned}; "
            "restore the data, or raise 'version' and pin the new digest"
        )

    def _spot(self, *location: str) -> str:
        return self._text.spot(location)

    def _portions_of(self, split: Split) -> list[Portion]:
        """The portion that a split's items come from, alone in a list; empty: there is none."""
        split_portion, named = Portion(split.value), self.spec.portions
        fallbacks = [Portion.TEST] if split in HIDDEN_SPLITS else [Portion.TRAIN] if split is Split.DEV else []
        return [portion for portion in (split_portion, *fallbacks, Portion.ALL) if portion in named][:1]

    def _members(self, split: Split, secret: bytes | None) -> list[_Entry]:
        """All entries of a split in order."""
        if split in HIDDEN_SPLITS and not secret:
            raise ConfigError(
                f"split {split.value!r} of {self.name} is hidden and needs the installation secret; "
                "only the grader may ask for it"
            )
        portions = self._portions_of(split)
        if not portions:
            raise ConfigError(f"{self._spot('files')}: no file holds items of split {split.value!r}; name one")
        key = secret if split in HIDDEN_SPLITS and secret else b""
        portion = portions[0]
        entries = [entry for entry in self._read(portion) if self._pool(entry, portion) in (None, _pool_name(split))]
        # keyed for hidden splits, so that the order of a file does not say which half of it is private
        ordered = sorted(entries, key=lambda entry: self._hash(key, "order", entry))
        if split in HIDDEN_SPLITS and portion in (Portion.TEST, Portion.ALL):
            half = (len(ordered) + 1) // 2
            return ordered[:half] if split is Split.TEST_PUBLIC else ordered[half:]
        return ordered

    def _pool(self, entry: _Entry, portion: Portion) -> str | None:
        """The part of a portion that an entry belongs to, by a public hash; None: the portion is one split, or test."""
        bucket = int.from_bytes(self._hash(b"", "pools", entry)[:4], "big")
        if portion is Portion.TRAIN and Portion.DEV not in self.spec.portions:
            return "dev" if bucket % DEV_SHARE == 0 else "train"
        if portion is Portion.ALL:
            share = bucket % 12
            return "hidden" if share < 4 else "dev" if share == 4 else "train"
        return None

    def _hash(self, key: bytes, use: str, entry: _Entry) -> bytes:
        """Hash of the prompt, so that equal prompts stay in one split; the id only decides their order."""
        text = f"{self.name} {use}\0{entry.prompt}".encode()
        first = hmac.new(key, text, hashlib.sha256).digest() if key else hashlib.sha256(text).digest()
        return first + str(entry.id or "").encode()

    def _item(self, entry: _Entry, split: Split, secret: bytes | None) -> Item:
        if entry.id is not None:
            item_id = f"{self.name}-{entry.id}"
        else:
            key = secret if split in HIDDEN_SPLITS and secret else b""
            item_id = f"{self.name}-{self._hash(key, 'item', entry).hex()[:16]}"
        return Item(item_id, split, entry.prompt, entry.reference, entry.payload)

    def _read(self, portion: Portion) -> list[_Entry]:
        """The entries of a portion, read once. Raises ConfigError for rows that cannot become questions."""
        if portion not in self._entries:
            self.folders()  # now, so that documents that cannot be searched are refused before the first game
            name = self.spec.portions[portion]
            if self.spec.files is not None:
                rows = read_rows(self.folder / name)
                # digests were taken when the benchmark was loaded; items of other data would be under the old version
                if file_digest(self.folder / name) != self.digests[portion]:
                    raise ConfigError(f"{self.folder / name}: changed while it was in use; start again")
            else:
                rows = self._hub_rows(name)
            self._entries[portion] = self._entries_of(rows)
        return self._entries[portion]

    def _entries_of(self, rows: Sequence[Row]) -> list[_Entry]:
        missing = _RowProblems()
        if self.spec.answer is not None:
            self._require_field(self.spec.answer.field, rows, "answer")
        variables = template_fields(self.spec.prompt)
        for name in variables:
            if name != OPTIONS or self.spec.options is None:
                self._require_field(name, rows, "prompt")
        entries = [entry for row in rows if (entry := self._entry(row, variables, missing)) is not None]
        for problem, affected in missing.rows.items():
            raise ConfigError(
                f"{affected[0].where}: {problem} in {len(affected)} of {len(rows)} rows, this one first; complete "
                "them or leave them out"
            )
        self._refuse_duplicates(entries)
        return entries

    def _require_field(self, name: str, rows: Sequence[Row], key: str) -> None:
        """Raises ConfigError for a field that is in no row, as a misspelt one is."""
        if not any(name in row.values for row in rows):
            fields = {field_name for row in rows[:100] for field_name in row.values}
            where = f"{self._spot(key)}: no row of {rows[0].file} has it"
            raise unknown_name("field", name, fields, where)

    def _entry(self, row: Row, variables: Sequence[str], missing: _RowProblems) -> _Entry | None:
        options = self._options(row, missing)
        values: dict[str, str] = {}
        for name in variables:
            if name == OPTIONS and options is not None:
                values[name] = "\n".join(
                    f"{letter}. {text}" for letter, text in zip(ascii_uppercase, options, strict=False)
                )
            elif (text := _text(row.values.get(name))) is not None:
                values[name] = text
            else:
                missing.note(f"variable {{{name}}} of the prompt is missing, or neither text nor a number,", row)
        rule = self.spec.answer
        reference = None if rule is None else self._reference(rule, row, options, missing)
        payload: dict[str, Any] = {} if options is None else {OPTIONS: options}
        for name in self.spec.payload:
            if name not in row.values:
                missing.note(f"payload field {name!r} is missing", row)
            payload[name] = row.values.get(name)
        own_id = None
        if self.spec.id is not None:
            own_id = _text(row.values.get(self.spec.id))
            if not own_id:
                missing.note(f"id field {self.spec.id!r} is missing", row)
        if (rule is not None and reference is None) or len(values) < len(variables):
            return None
        return _Entry(fill_template(self.spec.prompt, values), reference, payload, own_id, row)

    def _options(self, row: Row, missing: _RowProblems) -> list[str] | None:
        fields = self.spec.options
        if fields is None:
            return None
        values = row.values.get(fields) if isinstance(fields, str) else [row.values.get(name) for name in fields]
        texts = (
            [_text(value) for value in values] if isinstance(values, Sequence) and not isinstance(values, str) else []
        )
        if not 2 <= len(texts) <= len(ascii_uppercase) or None in texts:
            name = fields if isinstance(fields, str) else ", ".join(fields)
            missing.note(f"options ({name}) are not a list of 2 to 26 texts", row)
            return []
        return [text for text in texts if text is not None]

    def _reference(self, rule: AnswerRule, row: Row, options: list[str] | None, missing: _RowProblems) -> str | None:
        """The reference in the scorer's form; where there are options, the letter of the right one."""
        value = row.values.get(rule.field)
        text = _text(value)
        if text is None or not text.strip():
            missing.note(f"answer field {rule.field!r} is missing or empty", row)
            return None
        if rule.after is not None:
            _, separator, text = text.rpartition(rule.after)
            if not separator or not text.strip():
                missing.note(f"answer field {rule.field!r} has nothing after {rule.after!r}", row)
                return None
        if rule.pattern is not None:
            matches = re.findall(rule.pattern, text)
            if not matches:
                missing.note(f"answer field {rule.field!r} does not match {rule.pattern!r}", row)
                return None
            text = str(matches[-1])
        text = text if rule.after is None and rule.pattern is None else text.strip()
        if options:
            letter = _letter(value if rule.after is None and rule.pattern is None else text, options)
            if letter is None:
                missing.note(
                    f"answer field {rule.field!r} is neither a letter, a number from 0 nor the text of an option", row
                )
                return None
            text = letter
        return fill_template(rule.form, {"answer": text})

    def _refuse_duplicates(self, entries: Sequence[_Entry]) -> None:
        entries_by_key: dict[str, _Entry] = {}
        for entry in entries:
            key = entry.prompt if entry.id is None else entry.id
            first = entries_by_key.setdefault(key, entry)
            if first is not entry:
                problem = f"id {entry.id!r} also appears in line {first.row.number}; give each row a unique id"
                if entry.id is None:
                    problem = f"asks the same as line {first.row.number}; remove one, or name an 'id' field"
                raise ConfigError(f"{entry.row.where}: {problem}")

    def _hub_rows(self, split: str) -> list[Row]:
        """Rows of a data set that the library `datasets` loads."""
        hub = self.spec.dataset
        assert hub is not None
        where = self._spot("dataset", "name")
        try:
            import datasets  # here: it takes seconds, and files need none of it
        except ImportError as error:
            raise ConfigError(f"{where}: {error}; install it with: pip install datasets") from error
        try:
            hub_rows = datasets.load_dataset(hub.name, hub.config, split=split, revision=hub.revision)
            rows = [Row(dict(values), Path(f"{hub.name}:{split}"), k) for k, values in enumerate(hub_rows, start=1)]
        except Exception as error:  # boundary: the library raises whatever its back ends raise
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            raise ConfigError(
                f"{where}: data set {hub.name!r} cannot be loaded ({reason}); check name and network"
            ) from error
        if not rows:
            raise ConfigError(f"{where}: split {split!r} of {hub.name} holds no rows")
        return rows


def _pool_name(split: Split) -> str:
    return "hidden" if split in HIDDEN_SPLITS else split.value


def _text(value: object) -> str | None:
    """A value as text; None if it is missing, or a list or record, which has no single form as text."""
    if isinstance(value, str):
        return value
    return json.dumps(value) if isinstance(value, bool | int | float) else None


def _letter(value: object, options: Sequence[str]) -> str | None:
    """The letter of an answer, which is the letter itself, an index from 0, or the text of an option."""
    if isinstance(value, int) and not isinstance(value, bool):
        return ascii_uppercase[value] if 0 <= value < len(options) else None
    text = str(value).strip()
    letters = ascii_uppercase[: len(options)]
    if len(text) == 1 and text.upper() in letters:
        return text.upper()
    matching = [letter for letter, option in zip(letters, options, strict=True) if option.strip() == text]
    return matching[0] if len(matching) == 1 else None


def is_data_file(path: Path) -> bool:
    """Whether a path is a data benchmark: a folder with `benchmark.yaml`, or such a file under any name."""
    if path.is_dir():
        return (path / FILE).is_file()
    if path.name == FILE:
        return True
    if path.suffix not in (".yaml", ".yml") or not path.is_file():
        return False
    try:
        return {"prompt", "answer", "scorer"} <= set(read_yaml(path).data)
    except ConfigError:
        return False
