"""The contents of `benchmark.yaml`: a benchmark as data, its splits, and how rows become questions.

A user's file stands in the folder of its data. One that ships (`catalog/`, or a home) has `published`: users download
the data, everybody knows the items, and so the ids of hidden ones are no secret and the order is that of the file.
Does NOT read data: `questions` and `declared` do.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from string import Formatter
from typing import Any, Final, Literal, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from agent2.config import StrictModel, read_yaml
from agent2.errors import ConfigError
from agent2.pictures import MAX_IN_MESSAGE, Preparation
from agent2.plugins import NAME
from agent2.records import SamplingSettings
from agent2.sampling_keys import Temperature, TopP, if_set

FILE = "benchmark.yaml"
OPTIONS = "options"
"""Variable of a prompt that is replaced by the lettered options."""
INSTRUCTION = "instruction"
"""Variable of a prompt that is replaced by the text of that key, variables included."""
DOCUMENTS: Final = "documents"
SEARCH = "search"
"""The world that reads documents."""
QUESTION, CHAT, LIKELIHOOD = "question", "chat", "likelihood"
OPTION_ORDERS: Final = "option_orders"
"""The world that asks a question in every order of its options, and the scorer of it."""
MIN_TURNS = 3
"""Of a search."""
FIELD_TYPES: Mapping[str, type] = {"str": str, "int": int, "list": list}
LATER_KEYS = (
    "fault_rate",
    "published",
    "dev",
    "public_share",
    "repeats",
    "instruction",
    "min_options",
    "shuffle",
    "chat",
    "few_shot",
    "pictures",
)
"""Keys that are digested only where a file sets them, so that a file without them keeps its version."""


class Portion(StrEnum):
    """What a file may hold: one split, or several that are still to be divided."""

    TRAIN = "train"
    DEV = "dev"
    TEST_PUBLIC = "test_public"
    TEST_PRIVATE = "test_private"
    TEST = "test"
    ALL = "all"


class OptionBy(StrEnum):
    """How an answer names the right one of several options."""

    LETTER = "letter"
    """A, B, C in the order of the file."""
    LABEL = "label"
    """The label beside the option, or the name of its field."""
    TEXT = "text"
    PLACE_FROM_0 = "place_from_0"
    PLACE_FROM_1 = "place_from_1"
    ONE_HOT = "one_hot"
    """A list of 0 and 1, one for each option, with one 1."""


class AnswerRule(StrictModel):
    """How the reference answer is read from a row."""

    field: str
    after: str | None = None
    """Text; the reference is what follows its last occurrence."""
    pattern: str | None = None
    """Regular expression with one group; the reference is the group of its last match."""
    form: str = "{answer}"
    """How a right answer is written for the scorer: `#### {answer}`."""
    option_by: OptionBy | None = None
    """How the answer names an option; None: by letter, label or text, whichever it is, and never by a number."""
    agrees_with: str | None = None
    """Another field, with the place from 0 of the same option; a row where the two differ is refused."""

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

    temperature: Temperature = 0.0
    top_p: TopP = 1.0
    max_tokens: int = Field(default=512, ge=1)

    @property
    def settings(self) -> SamplingSettings:
        """As samplers take them."""
        return SamplingSettings(if_set(self.temperature), if_set(self.top_p), self.max_tokens)


class HubData(StrictModel):
    """A data set that the library `datasets` loads: a name on the Hugging Face hub, or a local folder."""

    name: str
    config: str | None = None
    revision: str | None = None
    """Commit of the data set; without one the newest is taken, and its content is in the version."""
    splits: dict[Portion, str] = Field(min_length=1)
    """Portion -> the data set's own name of a split."""


class PublishedData(StrictModel):
    """Where published data come from, and what tells the published layout from another."""

    source: str
    """Where users download them."""
    fields: dict[str, Literal["str", "int", "list"]] = Field(default_factory=dict)
    """What each row holds."""
    columns: list[str] = Field(default_factory=list)
    """Of CSV files that have no header."""


class DevRows(StrictModel):
    """Which rows of `train`, or of `test` where there is no train set, are dev, by their place."""

    rows: list[int] = Field(min_length=1)
    """From 1, among each `of` rows in the order of the file."""
    of: int = Field(ge=2)

    @model_validator(mode="after")
    def _within(self) -> Self:
        if not all(1 <= row <= self.of for row in self.rows):
            raise ValueError(f"rows has to hold numbers from 1 to {self.of}")
        return self


class HashedId(StrictModel):
    """An id from a public hash of one field."""

    hash: str


class ChatFields(StrictModel):
    """Fields with a chat in place of a prompt."""

    messages: str
    tools: str | None = None
    """The functions that the model may call."""
    ask: Literal["last", "last_call"] = "last"
    """Which message of the assistant is asked for: the last, or the last with calls."""


class PictureFields(StrictModel):
    """Fields with pictures, and how a model is shown them."""

    fields: list[str] = Field(min_length=1, max_length=MAX_IN_MESSAGE)
    """In the order of their numbers (`<image 1>`); a field may be empty, or hold a list."""
    max_side: int | None = Field(default=None, ge=16, le=8192)
    """Pixels of the longer side; larger pictures are made smaller."""
    keep_ratio: bool = True
    """False: every picture becomes a square of `max_side`."""

    @model_validator(mode="after")
    def _square_has_side(self) -> Self:
        if not self.keep_ratio and self.max_side is None:
            raise ValueError("'keep_ratio: false' makes squares; name 'max_side'")
        return self

    @property
    def preparation(self) -> Preparation:
        """As messages name it."""
        return Preparation(self.max_side, self.keep_ratio)


class FewShot(StrictModel):
    """Solved examples before every item."""

    n: int = Field(ge=1)
    examples: list[tuple[str, str]] = Field(default_factory=list)
    """Prompt and answer of each, as a sealed file has them; empty: they are taken from `train`."""

    @model_validator(mode="after")
    def _as_many(self) -> Self:
        if self.examples and len(self.examples) != self.n:
            raise ValueError(f"n is {self.n}, and there are {len(self.examples)} examples")
        return self


class DataSpec(StrictModel):
    """The contents of `benchmark.yaml`."""

    name: str = Field(pattern=f"^{NAME.pattern}$")
    version: str = Field(pattern=r"^[0-9A-Za-z][0-9A-Za-z._-]*$")
    description: str = ""
    published: PublishedData | None = None
    files: dict[Portion, str | list[str]] | None = Field(default=None, min_length=1)
    """Portion -> its file; of several names, the first that exists is read."""
    dataset: HubData | None = None
    documents: str | None = None
    """A folder of text files or a JSONL dump, which the world searches."""
    sha256: dict[Portion | Literal["documents"], str] = Field(default_factory=dict)
    """Portion, or `documents` -> digest that its data must have."""
    dev: DevRows | None = None
    """Default: a public hash decides."""
    public_share: float = Field(default=0.5, gt=0, lt=1)
    """Of the hidden items, the part that is test_public, where the secret divides them."""
    repeats: Literal["refuse", "drop"] = "refuse"
    """What happens to a row whose prompt and answer an earlier one has; one with another answer is always refused."""
    prompt: str | None = None
    chat: ChatFields | None = None
    """In place of a prompt: the chat in a field, up to the message of the assistant that is the reference."""
    pictures: PictureFields | None = None
    """A field with a picture (a path beside the file, base64, or bytes), or several."""
    few_shot: FewShot | None = None
    """Examples from `train`, the same for all items."""
    instruction: str | None = None
    """Replaces `{instruction}` in the prompt."""
    system: str | None = None
    answer: AnswerRule | None = None
    """A field alone, or with how the reference is read from it; may be left out where a world gives the verdict."""
    id: str | HashedId | None = None
    """Field with an id of its own for each row; default: a hash of the prompt."""
    options: str | list[str] | None = None
    """Field with a list of options (or a record of the lists `text` and `label`, or a list of such records), or the
    fields of the options in order (one may be a list, as of wrong answers); `{options}` in the prompt shows
    them."""
    min_options: int = Field(default=2, ge=1)
    shuffle: bool | None = None
    """Whether options are shown in the order of a hash; None: only where each is a field, which often puts the right
    one first."""
    payload: list[str] = Field(default_factory=list)
    """Further fields that the scorer needs."""
    scorer: PluginSpec
    environment: PluginSpec = PluginSpec(name=QUESTION)
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

    @field_validator("chat", mode="before")
    @classmethod
    def _messages_alone(cls, value: object) -> object:
        return {"messages": value} if isinstance(value, str) else value

    @field_validator("few_shot", mode="before")
    @classmethod
    def _number_alone(cls, value: object) -> object:
        return {"n": value} if isinstance(value, int) else value

    @field_validator("pictures", mode="before")
    @classmethod
    def _picture_fields_alone(cls, value: object) -> object:
        fields = [value] if isinstance(value, str) else value
        return {"fields": fields} if isinstance(fields, list) else fields

    @field_validator("prompt", "instruction")
    @classmethod
    def _plain_variables(cls, text: str | None) -> str | None:
        template_fields(text or "")
        return text

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.files is None) == (self.dataset is None):
            raise ValueError("name either 'files' or 'dataset'")
        if self.published is not None and (self.files is None or self.id is None):
            raise ValueError("'published' needs 'files' and an 'id'")
        portions = set(self.portions)
        for whole, parts in ((Portion.ALL, set(Portion)), (Portion.TEST, {Portion.TEST_PUBLIC, Portion.TEST_PRIVATE})):
            double = sorted((portions & parts) - {whole})
            if whole in portions and double:
                raise ValueError(f"'{whole}' is divided into splits, so '{double[0]}' cannot be named beside it")
        if self.shuffle and (self.options is None or self._shows_options_itself):
            raise ValueError("'shuffle' needs 'options', shown by {options} and not by their fields")
        if (self.prompt is None) == (self.chat is None):
            raise ValueError("name either 'prompt' or 'chat'")
        if self.chat is not None and (self.options, self.few_shot, self.world) != (None, None, CHAT):
            raise ValueError("'chat' is asked as it is: leave out 'options', 'few_shot' and 'environment'")
        if self.world == CHAT and self.chat is None:
            raise ValueError("environment 'chat' needs 'chat', the field with the messages, in place of 'prompt'")
        if self.pictures is not None and (
            self.world not in (QUESTION, OPTION_ORDERS) or self.chat is not None or self.few_shot is not None
        ):
            raise ValueError("'pictures' are for questions: leave out 'chat', 'few_shot' and other worlds")
        if self.few_shot is not None and self.world not in (QUESTION, LIKELIHOOD, OPTION_ORDERS):
            raise ValueError(f"'few_shot' is for questions, and the world is '{self.world}'; leave it out")
        if (self.world == LIKELIHOOD) != (self.scorer.name == LIKELIHOOD):
            raise ValueError("answers by likelihood need both: environment: likelihood and scorer: likelihood")
        if self.world == LIKELIHOOD and (self.answer is None or "letters" in self.environment.settings):
            raise ValueError("'likelihood' needs 'answer'; whether letters are compared follows from {options}")
        if self.answer is None and self.world == QUESTION and not self.payload:
            raise ValueError("name 'answer', the field with the reference: the world 'question' gives no verdict")
        if DOCUMENTS in self.environment.settings:
            raise ValueError(f"write '{DOCUMENTS}' beside 'files', not among the settings of 'environment'")
        if self.documents is not None and self.environment.name == "question":
            raise ValueError(f"'{DOCUMENTS}' needs a world that searches them; write environment: {SEARCH}")
        if self.environment.name == SEARCH and self.documents is None:
            raise ValueError(f"environment '{SEARCH}' needs '{DOCUMENTS}': a folder of text files, or a .jsonl file")
        if (self.world == OPTION_ORDERS) != (self.scorer.name == OPTION_ORDERS):
            raise ValueError("every order of the options needs both environment: option_orders and that scorer")
        if self.world == OPTION_ORDERS and not self.shows_letters:
            raise ValueError("'option_orders' needs 'options', shown in the prompt by {options}")
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
        """Portion -> its file (of several names, the first), or its split of the data set."""
        if self.files is not None:
            return {portion: names if isinstance(names, str) else names[0] for portion, names in self.files.items()}
        return self.dataset.splits if self.dataset is not None else {}

    @property
    def world(self) -> str:
        """The name of the world that items are played in."""
        return CHAT if self.chat is not None and self.environment.name == QUESTION else self.environment.name

    @property
    def shows_letters(self) -> bool:
        """Whether the prompt shows lettered options."""
        return self.options is not None and OPTIONS in template_fields(self.template)

    @property
    def template(self) -> str:
        """The prompt with its instruction; empty where items are chats."""
        prompt = self.prompt or ""
        return prompt if self.instruction is None else prompt.replace(f"{{{INSTRUCTION}}}", self.instruction)

    @property
    def digested(self) -> dict[str, Any]:
        """What decides items and verdicts beside data and code; not where files are."""
        fields = self.model_dump(
            mode="json", exclude={"sha256", "files", "dataset", "scorer", "environment", DOCUMENTS}
        )
        for key in LATER_KEYS:
            if getattr(self, key) == type(self).model_fields[key].default:
                del fields[key]
        if self.published is not None and not self.published.columns:
            del fields["published"]["columns"]
        fields |= {"shuffle": True} if self.is_shuffled else {}
        fields |= {"few_shot": self.few_shot.n} if self.few_shot is not None else {}
        for key in ("agrees_with", "option_by"):
            if self.answer is not None and getattr(self.answer, key) is None:
                del fields["answer"][key]
        return fields

    @property
    def is_shuffled(self) -> bool:
        """Whether options are shown in the order of a hash."""
        if self.shuffle is not None:
            return self.shuffle
        return isinstance(self.options, list) and not self._shows_options_itself

    @property
    def _shows_options_itself(self) -> bool:
        """Whether the prompt names the fields of the options one by one, so that their order is the prompt's."""
        return isinstance(self.options, list) and bool({*self.options} & {*template_fields(self.template)})


def template_fields(text: str) -> list[str]:
    """Variables of a template in the order of their first use. Raises ValueError for anything but `{name}`."""
    names = []
    try:
        for _, name, spec, conversion in Formatter().parse(text):
            if name is None:
                continue
            if not all(name.split(".")) or spec or conversion or re.search(r"[\[\]]", name):
                raise ValueError(f"{{{name}}}: only names of fields, as in {{question}}, can be variables")
            names.append(name)
    except ValueError as error:
        raise ValueError(f"{error}; write {{{{ and }}}} for braces that are meant as such") from error
    return list(dict.fromkeys(names))


def fill_template(text: str, values: Mapping[str, str]) -> str:
    """A template with its variables replaced; the values themselves are never read as templates."""
    return "".join(head + (values[name] if name is not None else "") for head, name, _, _ in Formatter().parse(text))


def is_data_file(path: Path) -> bool:
    """Whether a path is a data benchmark: a folder with `benchmark.yaml`, or such a file under any name."""
    if path.is_dir():
        return (path / FILE).is_file()
    if path.name == FILE:
        return True
    if path.suffix not in (".yaml", ".yml") or not path.is_file():
        return False
    try:
        keys = set(read_yaml(path).data)
        return {"name", "scorer"} <= keys and bool({"prompt", "chat"} & keys)
    except ConfigError:
        return False
