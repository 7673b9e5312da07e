"""The table of instruction types: published name -> class, arguments and check.

Names and argument names are those of IFEval's `input_data.jsonl` (Zhou et al. 2023, arXiv:2311.07911), so its rows
load as they stand; arguments that are null, as in the copy on the Hugging Face hub, are left out. An argument that is
unknown, missing or of a wrong kind is an error of the item: the published checker draws a random one in its place.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from agent2.errors import ConfigError, shown, unknown_name
from agent2.records import JsonValue
from agent2.scorers.constraints import formats, keywords, languages, lengths
from agent2.scorers.constraints.finding import RELATIONS, Arguments, Check, Finding, InstructionClass

_KINDS: Mapping[str, str] = MappingProxyType(
    {
        "int": "a whole number, 0 or more",
        "text": "a text that is not empty",
        "texts": "a list of texts that are not empty",
        "relation": f"one of {', '.join(map(repr, RELATIONS))}",
        "language": "a known language code",
    }
)


@dataclass(frozen=True, slots=True)
class InstructionType:
    """One row of the table."""

    kind: InstructionClass
    check: Check
    arguments: Mapping[str, str]
    """Name -> kind of value, a key of `_KINDS`."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction of an item, its arguments checked."""

    name: str
    arguments: Arguments

    @property
    def kind(self) -> InstructionClass:
        """Its class."""
        return TYPES[self.name].kind

    def check(self, text: str) -> Finding:
        """Whether a text follows it; an empty text follows nothing."""
        if not text.strip():
            return Finding(False, "an empty answer")
        return TYPES[self.name].check(text, self.arguments)


def _row(kind: InstructionClass, check: Check, **arguments: str) -> InstructionType:
    return InstructionType(kind, check, MappingProxyType(arguments))


_K, _L, _F = InstructionClass.KEYWORD, InstructionClass.LENGTH, InstructionClass.FORMAT
TYPES: Mapping[str, InstructionType] = MappingProxyType(
    {
        "keywords:existence": _row(_K, keywords.existence, keywords="texts"),
        "keywords:frequency": _row(_K, keywords.frequency, keyword="text", frequency="int", relation="relation"),
        "keywords:forbidden_words": _row(_K, keywords.forbidden_words, forbidden_words="texts"),
        "keywords:letter_frequency": _row(
            _K, keywords.letter_frequency, letter="text", let_frequency="int", let_relation="relation"
        ),
        "language:response_language": _row(InstructionClass.LANGUAGE, languages.response_language, language="language"),
        "length_constraints:number_sentences": _row(
            _L, lengths.number_sentences, num_sentences="int", relation="relation"
        ),
        "length_constraints:number_paragraphs": _row(_L, lengths.number_paragraphs, num_paragraphs="int"),
        "length_constraints:number_words": _row(_L, lengths.number_words, num_words="int", relation="relation"),
        "length_constraints:nth_paragraph_first_word": _row(
            _L, lengths.nth_paragraph_first_word, num_paragraphs="int", nth_paragraph="int", first_word="text"
        ),
        "detectable_content:number_placeholders": _row(_F, formats.number_placeholders, num_placeholders="int"),
        "detectable_content:postscript": _row(_F, formats.postscript, postscript_marker="text"),
        "detectable_format:number_bullet_lists": _row(_F, formats.number_bullet_lists, num_bullets="int"),
        "detectable_format:constrained_response": _row(_F, formats.constrained_response),
        "detectable_format:number_highlighted_sections": _row(
            _F, formats.number_highlighted_sections, num_highlights="int"
        ),
        "detectable_format:multiple_sections": _row(
            _F, formats.multiple_sections, section_spliter="text", num_sections="int"
        ),
        "detectable_format:json_format": _row(_F, formats.json_format),
        "detectable_format:title": _row(_F, formats.title),
        "combination:two_responses": _row(_F, formats.two_responses),
        "combination:repeat_prompt": _row(_F, formats.repeat_prompt, prompt_to_repeat="text"),
        "startend:end_checker": _row(_F, formats.end_checker, end_phrase="text"),
        "startend:quotation": _row(_F, formats.quotation),
        "change_case:capital_word_frequency": _row(
            _F, formats.capital_word_frequency, capital_frequency="int", capital_relation="relation"
        ),
        "change_case:english_capital": _row(_F, formats.english_capital),
        "change_case:english_lowercase": _row(_F, formats.english_lowercase),
        "punctuation:no_comma": _row(_F, formats.no_comma),
    }
)


def read_instructions(
    names: Sequence[str], kwargs: Sequence[Mapping[str, JsonValue]], where: str
) -> tuple[Instruction, ...]:
    """The instructions of one row, in order.

    names, kwargs: `instruction_id_list` and `kwargs` of the row. where: names the row in messages.
    Raises ConfigError for an unknown name, an argument that does not fit, or lists of different lengths.
    """
    if not names or len(names) != len(kwargs):
        raise ConfigError(
            f"{where}: {len(names)} instructions with {len(kwargs)} sets of arguments; give one set for each"
        )
    return tuple(_read(name, arguments, where) for name, arguments in zip(names, kwargs, strict=True))


def _read(name: str, given: Mapping[str, JsonValue], where: str) -> Instruction:
    if name not in TYPES:
        raise unknown_name("instruction", name, TYPES, where)
    wanted = TYPES[name].arguments
    arguments = {key: value for key, value in given.items() if value is not None}
    for key in arguments:
        if key not in wanted:
            raise unknown_name(f"argument of {name}", key, wanted, where)
    for key, kind in wanted.items():
        if key not in arguments:
            raise ConfigError(f"{where}: {name} lacks its argument {key!r}; give {_KINDS[kind]}")
        if not _fits(arguments[key], kind):
            raise ConfigError(f"{where}: {name}: {key} is {shown(arguments[key])}; it must be {_KINDS[kind]}")
    return Instruction(name, {key: int(value) if wanted[key] == "int" else value for key, value in arguments.items()})


def _fits(value: JsonValue, kind: str) -> bool:
    if kind == "int":
        is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        return is_whole and not isinstance(value, bool) and value >= 0
    if kind == "texts":
        return isinstance(value, list | tuple) and bool(value) and all(_fits(one, "text") for one in value)
    if kind == "relation":
        return value in RELATIONS
    if kind == "language":
        return value in languages.LANGUAGES
    return isinstance(value, str) and bool(value.strip())
