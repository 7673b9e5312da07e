"""Benchmarks that are declared: a `benchmark.yaml` beside JSONL, CSV or Parquet files, no Python.

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

Published data (`published`). Visible items are divided by position (every nth is dev), in the order of the file, and
the scored ones by the installation secret. So an agent that knows the data set still does not know which items decide.
The hidden items are hidden from its workspace and nothing more: anybody can download them, and a base model may have
been trained on them. Therefore a trial on such a task compares the agent's data with fixed shares and not with control
items (which are public, too), and its report warns if the network policy let the agent reach them. The version of a
packaged benchmark is the file's alone, and its data come from the user's folder of official files. Does NOT download.

Does NOT hide the data from the operator of the harness, nor a published data set from a model that was trained on it.
"""

import hashlib
import hmac
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from string import ascii_uppercase
from typing import Any

import numpy as np
import yaml

from agent2.benchmarks.data_files import OfficialFile, Row, file_digest, read_rows
from agent2.benchmarks.declaration import (
    DOCUMENTS,
    FIELD_TYPES,
    FILE,
    LIKELIHOOD,
    OPTION_ORDERS,
    OPTIONS,
    DataSpec,
    Portion,
    template_fields,
)
from agent2.benchmarks.home import NamedItem, NamedSet, Players, at_random, question_of_row, row_of_question
from agent2.benchmarks.outside import require_allowed
from agent2.benchmarks.questions import Question, QuestionReader, distinct
from agent2.config import YamlText, load_yaml, read_yaml
from agent2.environments import ENVIRONMENTS
from agent2.environments.faults import with_faults
from agent2.environments.option_orders import letter_at, lettered, shifted
from agent2.environments.search.corpus import Corpus, documents_digest, index_documents, open_corpus, text_files
from agent2.environments.search.world import SearchSettings, follow_reference, random_document_action
from agent2.environments.tools.world import FaultSettings, ToolFaultKind
from agent2.errors import Agent2Error, ConfigError
from agent2.pictures import Preparation, files_of_field
from agent2.plugins import PluginLocation, build, find, relative_to, require_members, source_digest, source_files
from agent2.records import HIDDEN_SPLITS, Environment, Item, Message, PlacedItem, Scorer, Split, digest_of
from agent2.scorers import SCORERS, load_scorer
from agent2.scorers.benchmark_labels import BenchmarkLabels

PACKAGED = Path(__file__).resolve().parent
DEV_SHARE = 10
"""One in this many rows of `train` is a dev item where no dev file is named."""
SEALED_FOLDER = "elsewhere"
"""Folder of the data files in a sealed file; it does not exist where that file is read."""


def order_players() -> Players:
    """Players for questions in every order of their options: one that is right in each, one that draws a letter."""

    def right_letter(item: Item, chat: Sequence[Message]) -> str:
        options = [str(option) for option in item.payload[OPTIONS]]
        orders = [lettered(shifted(options, shift)) for shift in range(len(options))]
        return letter_at(item.reference or "A", orders.index(shown_order(chat, orders)), len(options))

    def shown_order(chat: Sequence[Message], orders: Sequence[str]) -> str:
        return next(order for order in orders if order in chat[-1].text)

    def any_letter(item: Item, chat: Sequence[Message], rng: np.random.Generator) -> str:
        return ascii_uppercase[int(rng.integers(len(item.payload[OPTIONS])))]

    # a question of two options is right in both orders for one in four who draw
    return Players(oracle=right_letter, random=at_random(any_letter), floor_at_most=0.3)


@dataclass(frozen=True, slots=True)
class OwnFiles:
    """The files of a user's own benchmark that decide its items and verdicts."""

    files: tuple[Path, ...]
    problems: tuple[str, ...] = ()
    """What could not be read, so that the files that it names are unknown; a sentence each."""


def declared_files(path: Path) -> OwnFiles:
    """A `benchmark.yaml` (or its folder) with the data, documents, pictures and code that it names.

    What is broken hides no other file: data that differ from their pin or cannot be read are listed like all others.
    """
    file = path / FILE if path.is_dir() else path
    try:
        spec, folder = load_yaml(file, DataSpec), file.resolve().parent
        require_allowed(spec, read_yaml(file), folder)
    except ConfigError as error:
        return OwnFiles((file,), (str(error),))
    data = [rows_file for portion in spec.files or {} if (rows_file := _portion_file(spec, folder, portion)).is_file()]

    def code(kind: str, name: str, packaged: Mapping[str, str]) -> list[Path]:
        return source_files(find(kind, relative_to(name, folder), packaged, str(file)))

    def documents() -> list[Path]:
        place = folder / spec.documents if spec.documents is not None else None
        return [] if place is None or not place.exists() else text_files(place) if place.is_dir() else [place]

    def pictures(rows_file: Path) -> list[Path]:
        fields = spec.pictures.fields if spec.pictures is not None else ()
        values = (row.values.get(field) for row in (read_rows(rows_file) if fields else ()) for field in fields)
        return [picture for value in values for picture in files_of_field(value, folder)]

    sources: list[Callable[[], list[Path]]] = [
        partial(code, "scorer", spec.scorer.name, SCORERS),
        partial(code, "environment", spec.world, ENVIRONMENTS),
        documents,
        *(partial(pictures, rows_file) for rows_file in data),
    ]
    files, problems = [file, *data], []
    for source in sources:
        try:
            files += source()
        except (Agent2Error, OSError) as error:
            problems.append(str(error))
    return OwnFiles(tuple(dict.fromkeys(files)), tuple(problems))


def _portion_file(spec: DataSpec, folder: Path, portion: Portion) -> Path:
    names = [] if spec.files is None else spec.files[portion]
    candidates = [folder / name for name in ([names] if isinstance(names, str) else names)]
    return next((file for file in candidates if file.is_file()), candidates[0])


class DeclaredBenchmark:
    """A benchmark from `benchmark.yaml`, or from a file of the package in the same form.

    A home whose rows become questions by a program overrides `questions` and, where a file holds more than one portion,
    `portion_questions`.
    """

    def __init__(self, path: Path, overrides: Sequence[str] = (), data: Path | None = None) -> None:
        """path: the file, or its folder. overrides: "a.b=value". data: folder of the official files of published data.

        Raises ConfigError for a wrong file, scorer or environment, data outside its folder that were not allowed
        (`outside`), and data that are not as they were pinned. Data of a packaged benchmark are not looked for before
        items are requested.
        """
        self.path = path / FILE if path.is_dir() else path
        self.spec: DataSpec = load_yaml(self.path, DataSpec, overrides)
        self._text: YamlText = read_yaml(self.path, overrides)
        self.folder = self.path.resolve().parent
        self.is_packaged = self.folder.is_relative_to(PACKAGED)
        if not self.is_packaged:
            require_allowed(self.spec, self._text, self.folder)
        self.data = data
        spec = self.spec
        self.name, self.description = spec.name, spec.description
        self.primary_metric, self.max_turns, self.attempts = spec.primary_metric, spec.max_turns, spec.attempts
        self.sampling = spec.sampling.settings
        self._questions: dict[Portion, list[Question]] = {}
        self.scorer_location = self._locate("scorer", spec.scorer.name, SCORERS)
        self.environment_location = self._locate("environment", spec.world, ENVIRONMENTS)
        if spec.documents is not None:  # an attribute only here: a check asks whether a benchmark brings players
            self.players = self._search_players
        if spec.world == OPTION_ORDERS:
            self.players = order_players
            self.context = "newest"
            self.max_turns = max(spec.max_turns, len(ascii_uppercase))  # the world ends with the last order
        if self.is_packaged:
            self.version, self.source_digest = spec.version, ""
            self.prompt_digest = "" if spec.instruction is None else digest_of(spec.instruction)
            return
        self.scorer(), self.environment_version()  # so that a wrong name or setting is refused now
        self.source_digest = self._digest()
        self.version = f"{spec.version}+{self.source_digest[:8]}"
        self.prompt_digest = digest_of([spec.template, spec.system, *self._digested_examples()])

    def _digest(self) -> str:
        """Digest of all that decides items and verdicts; where files are and what code is called do not change it."""
        spec = self.spec
        code = [
            [source_digest(place) or place.name, place.attribute, choice.settings]
            for place, choice in ((self.scorer_location, spec.scorer), (self.environment_location, spec.environment))
        ]
        return digest_of([spec.digested, code, self.all_digests, *self._digested_examples()])

    def _digested_examples(self) -> list[Any]:
        """The examples, alone in a list; nothing without any, so that a file without them keeps its version."""
        return [] if self.spec.few_shot is None else [self.examples]

    def items(self, split: Split, n: int, secret: bytes | None) -> list[Item]:
        """The first n items of a split. Raises ConfigError without the secret for a hidden one, or if it has fewer."""
        questions = self._members(split, secret)
        if n > len(questions):
            origin = f"{self.name}: " if self.is_packaged else f"{self.path}: "
            raise ConfigError(
                f"{origin}{n} items of split {split.value!r} were asked for, there are {len(questions)}; ask for "
                f"fewer, or {'check that the file is complete' if self.is_packaged else 'add data'}"
            )
        items = [
            Item(self._item_id(question, split, secret), split, question.prompt, question.reference, question.payload)
            for question in questions[:n]
        ]
        if self.is_packaged or split in HIDDEN_SPLITS:  # which rows are hidden is in no message
            return items
        rows = [question.row for question in questions[:n]]
        return [PlacedItem.of(item, f"{row.file.name}:{row.number}") for item, row in zip(items, rows, strict=True)]

    def named_set(self, split: Split | None, secret: bytes | None) -> NamedSet:
        """The items of a split, or of all files that the scored splits are drawn from, in the order of the files.

        Ids of the whole set are not keyed. Raises ConfigError as `items` does, and for an id that comes twice.
        """
        if split is not None:
            questions, card_split = self._members(split, secret), split
        else:
            portions = self._scored_portions()
            questions = [question for portion in portions for question in self.whole_portion(portion)]
            is_private = self.spec.published is None and portions[-1] not in (Portion.DEV, Portion.TEST_PUBLIC)
            card_split = Split.DEV if portions == [Portion.DEV] else Split.TEST_PUBLIC
            card_split = Split.TEST_PRIVATE if is_private else card_split
        variables = [name for name in template_fields(self.spec.template) if name != OPTIONS]
        named = []
        for question in questions:
            item_id = self._item_id(question, Split.DEV if split is None else split, secret)
            item = Item(item_id, card_split, question.prompt, question.reference, question.payload)
            own_text = question.row.get(variables[0]) if len(variables) == 1 else None
            prompts = (question.prompt, *((own_text,) if isinstance(own_text, str) else ()))
            named.append(NamedItem(item, (item_id, *((question.id,) if question.id is not None else ())), prompts))
        id_field = (self.spec.id,) if isinstance(self.spec.id, str) else ()
        names = NamedSet(card_split, named)
        return replace(
            names,
            id_fields=tuple(dict.fromkeys((*names.id_fields, *id_field))),
            prompt_fields=tuple(dict.fromkeys((*names.prompt_fields, *variables[:1]))),
        )

    def _scored_portions(self) -> list[Portion]:
        """The portions that hidden items come from; without any, that of dev. Raises ConfigError if none has items."""
        splits = (Split.TEST_PUBLIC, Split.TEST_PRIVATE)
        portions = list(dict.fromkeys(portion for split in splits for portion in self._portions_of(split)))
        portions = portions or self._portions_of(Split.DEV)
        if not portions:
            raise ConfigError(f"{self._spot('files')}: no file holds items that are scored; name one as 'test'")
        return portions

    def whole_portion(self, portion: Portion) -> list[Question]:
        """All questions of a portion as published: with the repeats that playing leaves out, where ids tell them apart.

        A home overrides it where what is published as one set is divided into portions here.
        """
        if self.spec.repeats == "drop" and self.spec.id is not None:
            return distinct(self.questions(self._rows(portion)), self.spec.model_copy(update={"repeats": "refuse"}))
        return self.read(portion)

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
        if self.spec.few_shot is not None:
            settings["examples"] = self.examples
        if self.spec.world == LIKELIHOOD:
            settings["letters"] = self.spec.shows_letters
        if self.spec.documents is not None:
            settings[DOCUMENTS] = self._corpus
        world: Environment = build(self.environment_location, settings)
        faults = FaultSettings(self.spec.fault_rate, tuple(ToolFaultKind))
        return with_faults(world, faults) if faults.rate else world

    def scorer(self) -> Scorer:
        """The scorer that the file names."""
        return self._scorer

    @cached_property
    def _scorer(self) -> Scorer:
        scorer = load_scorer(self.scorer_location, self.spec.scorer.settings)
        if not isinstance(scorer, BenchmarkLabels) or not self.scorer_location.is_packaged:
            return scorer
        if not self.is_packaged or not type(scorer).is_written_for(self.name):
            scorer.name_labels_after(self.name)
        return scorer

    def environment_version(self) -> str:
        """Name and version of the world."""
        return self._environment_version

    @cached_property
    def _environment_version(self) -> str:
        world: Any = self.environment()
        if not self.environment_location.is_packaged:
            require_members(self.environment_location, world, ("name", "version"), ("reset", "act", "state"))
        digest = source_digest(self.environment_location)[:8]
        faults = f"+faults-{self.spec.fault_rate:g}" if self.spec.fault_rate else ""
        pictures = f"+pictures-{self.preparation.name}" if self.preparation is not None else ""
        return f"{world.name}-v{world.version}{f'+{digest}' if digest else ''}{faults}{pictures}"

    @property
    def preparation(self) -> Preparation | None:
        """How pictures are made ready for a model; None: there are none."""
        return None if self.spec.pictures is None else self.spec.pictures.preparation

    @property
    def takes_images(self) -> bool:
        """Whether its questions have pictures, which a model of texts cannot be asked."""
        return self.spec.pictures is not None

    @cached_property
    def digests(self) -> Mapping[Portion, str]:
        """Digest of the data of each portion; its pin where the data are not on this machine.

        Raises ConfigError if data differ from their pin.
        """
        digests: dict[Portion, str] = {}
        if self.is_packaged:
            return digests
        for portion, name in self.spec.portions.items():
            pinned = self.spec.sha256.get(portion)
            if self.spec.files is not None:
                is_here = self._file(portion).exists() or pinned is None
                digest = file_digest(self._file(portion)) if is_here else str(pinned)
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
        visible = (Portion.TRAIN, Portion.DEV)
        return tuple(self._file(portion).resolve() for portion in self.spec.files or {} if portion not in visible)

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
        for portion in record.get("files", {}):  # a workspace has another train.jsonl beside it
            record["files"][portion] = f"{SEALED_FOLDER}/{self._file(Portion(portion)).name}"
        if DOCUMENTS in record:
            record[DOCUMENTS] = f"{SEALED_FOLDER}/{Path(record[DOCUMENTS]).name}"
        if self.spec.few_shot is not None:
            record["few_shot"]["examples"] = [list(example) for example in self.examples]
        record["scorer"]["name"] = rename(self.scorer_location)
        if self.spec.chat is None:
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

    def _file(self, portion: Portion) -> Path:
        """The file of a portion: of several names, the first that exists."""
        return _portion_file(self.spec, self.folder, portion)

    def has_items_of(self, split: Split) -> bool:
        """Whether a file holds items of a split; what it holds is not read."""
        return bool(self._portions_of(split))

    def _portions_of(self, split: Split) -> list[Portion]:
        """The portion that a split's items come from, alone in a list; empty: there is none."""
        split_portion, named = Portion(split.value), self.spec.portions
        fallbacks = [Portion.TEST] if split in HIDDEN_SPLITS else []
        if split is Split.DEV:
            fallbacks = [Portion.TRAIN, *([Portion.TEST] if self.spec.dev is not None else [])]
        return [portion for portion in (split_portion, *fallbacks, Portion.ALL) if portion in named][:1]

    def _members(self, split: Split, secret: bytes | None) -> list[Question]:
        """All questions of a split in order."""
        if split in HIDDEN_SPLITS and not secret:
            raise ConfigError(
                f"split {split.value!r} of {self.name} is hidden and needs the installation secret; "
                "only the grader may ask for it"
            )
        portions = self._portions_of(split)
        if not portions and self.is_packaged:
            return []
        if not portions:
            filled = [member.value for member in Split if self._portions_of(member)]
            raise ConfigError(
                f"{self._spot('files')}: no file holds items of split {split.value!r}; name one, or play another split "
                f"({', '.join(filled)}; agent2 eval --role nightly plays test_public)"
            )
        key = secret if split in HIDDEN_SPLITS and secret else b""
        portion = portions[0]
        pool = "hidden" if split in HIDDEN_SPLITS else split.value
        members = [
            question
            for place, question in enumerate(self.read(portion))
            if self._pool(question, place, portion) in (None, pool)
        ]
        if self.spec.few_shot is not None and split is Split.TRAIN:
            prompts = {prompt for prompt, _ in self.examples}
            members = [question for question in members if question.prompt not in prompts]
        if key or self.spec.published is None:
            # keyed for hidden splits, so that the order of a file does not say which half of it is private
            members.sort(key=lambda question: self._hash(key, "order", question))
        if split in HIDDEN_SPLITS and portion in (Portion.TEST, Portion.ALL):
            share = self.spec.public_share * len(members)
            # an odd item is public, of published data private
            n_public = math.floor(share + 0.5) if self.spec.published is None else math.ceil(share - 0.5)
            return members[:n_public] if split is Split.TEST_PUBLIC else members[n_public:]
        return members

    def _examples_portion(self) -> Portion:
        """The portion of the examples. Raises ConfigError where there are no train items."""
        portions = self._portions_of(Split.TRAIN)
        if not portions:
            raise ConfigError(f"{self._spot('few_shot')}: examples come from 'train', and no file holds any; name one")
        return portions[0]

    @cached_property
    def examples(self) -> list[tuple[str, str]]:
        """Prompt and answer of the solved examples: of the train items, the first by a public hash; no train item.

        Raises ConfigError if there are fewer.
        """
        rule = self.spec.few_shot
        if rule is None or rule.examples:
            return [] if rule is None else rule.examples
        portion = self._examples_portion()
        candidates = [
            question
            for place, question in enumerate(self.read(portion))
            if self._pool(question, place, portion) in (None, Split.TRAIN.value) and question.reference is not None
        ]
        if len(candidates) < rule.n:
            raise ConfigError(
                f"{self._spot('few_shot')}: {rule.n} examples are asked for, train has {len(candidates)} items with an "
                "answer; ask for fewer, or add rows to train"
            )
        candidates.sort(key=lambda question: self._hash(b"", "examples", question))
        return [(question.prompt, self._shown_answer(question)) for question in candidates[: rule.n]]

    def _shown_answer(self, question: Question) -> str:
        """The reference as an example shows it: of options that the prompt does not letter, the text."""
        reference, options = question.reference or "", question.payload.get(OPTIONS)
        if options is None or self.spec.world != LIKELIHOOD or self.spec.shows_letters:
            return reference
        return str(options[ascii_uppercase.index(reference)])

    @property
    def needs_chat_template(self) -> bool:
        """Whether a model without a chat template cannot be asked."""
        return self.spec.world != LIKELIHOOD or bool(self.spec.environment.settings.get("chat"))

    @property
    def compares_answers(self) -> bool:
        """Whether a model is asked for likelihoods, which not every checkpoint can give."""
        return self.spec.world == LIKELIHOOD

    def _pool(self, question: Question, place: int, portion: Portion) -> str | None:
        """The part of a portion that a question belongs to; None: the portion is one split, or test."""
        dev = self.spec.dev
        if dev is not None and [portion] == self._portions_of(Split.DEV) and portion is not Portion.DEV:
            other_pool = "hidden" if portion is Portion.TEST else "train"
            return "dev" if place % dev.of + 1 in dev.rows else other_pool
        bucket = int.from_bytes(self._hash(b"", "pools", question)[:4], "big")
        if portion is Portion.TRAIN and Portion.DEV not in self.spec.portions:
            return "dev" if bucket % DEV_SHARE == 0 else "train"
        if portion is Portion.ALL:
            share = bucket % 12
            return "hidden" if share < 4 else "dev" if share == 4 else "train"
        return None

    def _hash(self, key: bytes, use: str, question: Question) -> bytes:
        """Hash of the prompt, so that equal prompts stay in one split; the id only decides their order.

        Of published data, hash of the id.
        """
        if self.spec.published is not None:
            content, suffix = f"{self.name}-{question.id}", b""
        else:
            content, suffix = question.content, str(question.id or "").encode()
        text = f"{self.name} {use}\0{content}".encode()
        return (hmac.new(key, text, hashlib.sha256).digest() if key else hashlib.sha256(text).digest()) + suffix

    def _item_id(self, question: Question, split: Split, secret: bytes | None) -> str:
        if question.id is not None:
            return f"{self.name}-{question.id}"
        key = secret if split in HIDDEN_SPLITS and secret else b""
        return f"{self.name}-{self._hash(key, 'item', question).hex()[:16]}"

    def questions(self, rows: Sequence[Row]) -> list[Question]:
        """Rows as questions. Raises ConfigError for rows that cannot become questions."""
        folder = self.folder
        if self.spec.published is not None and self.spec.files:
            folder = self.official_file(next(iter(self.spec.files))).folder(self.data)
        elif self.is_packaged and self.data is not None:
            folder = self.data
        return QuestionReader(self.spec, self.scorer(), self._spot, folder).questions(rows)

    def portion_questions(self, portion: Portion, questions: list[Question]) -> list[Question]:
        """Those questions of a portion's file that belong to the portion: all, unless a file holds several."""
        return questions

    def read(self, portion: Portion) -> list[Question]:
        """The questions of a portion, read once. Raises ConfigError for rows that cannot become questions."""
        if portion not in self._questions:
            self.folders()  # now, so that documents that cannot be searched are refused before the first game
            self._questions[portion] = self.portion_questions(portion, self.questions_in_file(portion))
        return self._questions[portion]

    def questions_in_file(self, portion: Portion) -> list[Question]:
        """All questions in the file of a portion, in its order. Raises ConfigError as `items` does."""
        return distinct(self.questions(self._rows(portion)), self.spec)

    def _rows(self, portion: Portion) -> list[Row]:
        if self.is_packaged:
            return self.official_file(portion).rows(self.data, self.prepared)
        if self.spec.files is None:
            return self._hub_rows(self.spec.portions[portion])
        file = self._file(portion)
        rows = read_rows(file)
        # digests were taken when the benchmark was loaded; items of other data would be under the old version
        if file_digest(file) != self.digests[portion]:
            raise ConfigError(f"{file}: changed while it was in use; start again")
        return rows

    def prepared(self, rows: list[Row]) -> list[Row]:
        """Published rows in the form that the file describes; a home overrides it where there are several layouts."""
        return rows

    def official_file(self, portion: Portion) -> OfficialFile:
        """The published file of a portion."""
        published, names = self.spec.published, (self.spec.files or {})[portion]
        assert published is not None
        types = {name: FIELD_TYPES[type_name] for name, type_name in published.fields.items()}
        names = [names] if isinstance(names, str) else names
        return OfficialFile(self.name, names, published.source, types, published.columns)

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
