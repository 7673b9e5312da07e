"""The IFEval scorer, and its table of instruction types: published name -> class, arguments and check.

Names and argument names are those of IFEval's `input_data.jsonl` (Zhou et al. 2023, arXiv:2311.07911), so its rows
load unchanged; arguments that are null, as in the copy on the Hugging Face hub, are ignored. An argument that is
unknown, missing or of a wrong kind is an error of the item: the published checker draws a random one in its place.

The score is prompt-level strict: 1.0 if the answer follows every instruction literally. Views: `prompt_level_loose`,
`instruction_level` and `instruction_level_loose` (shares of this item's instructions), and counts from which the
pooled accuracies of the paper follow as ratios: `instructions`, `instructions_followed`,
`instructions_followed_loose`, and `<class>_instructions`, `<class>_followed` for keyword, length, format and
language. Loose: the best of eight variants, without asterisks, the first and the last line. Labels name the classes
that failed. Where our verdicts differ from the published checker's and why: docs/mini-benchmarks.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from agent2.errors import ConfigError, Fault, quoted, unknown_name
from agent2.records import Item, JsonValue, Rollout, Score, ScorerOutput
from agent2.scorers.benchmark_labels import BenchmarkLabels
from agent2.scorers.constraints import checks, languages
from agent2.scorers.constraints.checks import (
    FORBIDDEN,
    FREQUENCY,
    MISSING,
    RELATIONS,
    Arguments,
    Check,
    ConstraintFinding,
    InstructionClass,
    loose_variants,
)

_ARGUMENT_KINDS: Mapping[str, str] = MappingProxyType(
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
    """Name -> kind of value, a key of `_ARGUMENT_KINDS`."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction of an item, its arguments checked."""

    name: str
    arguments: Arguments

    @property
    def kind(self) -> InstructionClass:
        """Its class."""
        return TYPES[self.name].kind

    def check(self, text: str) -> ConstraintFinding:
        """Whether a text follows it; an empty text follows nothing."""
        if not text.strip():
            return ConstraintFinding(False, "an empty answer")
        return TYPES[self.name].check(text, self.arguments)


def _row(kind: InstructionClass, check: Check, **arguments: str) -> InstructionType:
    return InstructionType(kind, check, MappingProxyType(arguments))


_K, _L, _F = InstructionClass.KEYWORD, InstructionClass.LENGTH, InstructionClass.FORMAT
TYPES: Mapping[str, InstructionType] = MappingProxyType(
    {
        "keywords:existence": _row(_K, checks.existence, keywords="texts"),
        "keywords:frequency": _row(_K, checks.frequency, keyword="text", frequency="int", relation="relation"),
        "keywords:forbidden_words": _row(_K, checks.forbidden_words, forbidden_words="texts"),
        "keywords:letter_frequency": _row(
            _K, checks.letter_frequency, letter="text", let_frequency="int", let_relation="relation"
        ),
        "language:response_language": _row(InstructionClass.LANGUAGE, checks.response_language, language="language"),
        "length_constraints:number_sentences": _row(
            _L, checks.number_sentences, num_sentences="int", relation="relation"
        ),
        "length_constraints:number_paragraphs": _row(_L, checks.number_paragraphs, num_paragraphs="int"),
        "length_constraints:number_words": _row(_L, checks.number_words, num_words="int", relation="relation"),
        "length_constraints:nth_paragraph_first_word": _row(
            _L, checks.nth_paragraph_first_word, num_paragraphs="int", nth_paragraph="int", first_word="text"
        ),
        "detectable_content:number_placeholders": _row(_F, checks.number_placeholders, num_placeholders="int"),
        "detectable_content:postscript": _row(_F, checks.postscript, postscript_marker="text"),
        "detectable_format:number_bullet_lists": _row(_F, checks.number_bullet_lists, num_bullets="int"),
        "detectable_format:constrained_response": _row(_F, checks.constrained_response),
        "detectable_format:number_highlighted_sections": _row(
            _F, checks.number_highlighted_sections, num_highlights="int"
        ),
        "detectable_format:multiple_sections": _row(
            _F, checks.multiple_sections, section_spliter="text", num_sections="int"
        ),
        "detectable_format:json_format": _row(_F, checks.json_format),
        "detectable_format:title": _row(_F, checks.title),
        "combination:two_responses": _row(_F, checks.two_responses),
        "combination:repeat_prompt": _row(_F, checks.repeat_prompt, prompt_to_repeat="text"),
        "startend:end_checker": _row(_F, checks.end_checker, end_phrase="text"),
        "startend:quotation": _row(_F, checks.quotation),
        "change_case:capital_word_frequency": _row(
            _F, checks.capital_word_frequency, capital_frequency="int", capital_relation="relation"
        ),
        "change_case:english_capital": _row(_F, checks.english_capital),
        "change_case:english_lowercase": _row(_F, checks.english_lowercase),
        "punctuation:no_comma": _row(_F, checks.no_comma),
    }
)


def read_instructions(
    names: Sequence[str], kwargs: Sequence[Mapping[str, JsonValue]], where: str
) -> tuple[Instruction, ...]:
    """The instructions of one row, in order.

    names, kwargs: `instruction_id_list` and `kwargs` of the row. where: names the row in messages.
    Raises ConfigError for an unknown name, an argument that does not fit, or lists of different lengths.
    """
    lists = isinstance(names, list | tuple) and isinstance(kwargs, list | tuple)
    if not lists or not all(isinstance(name, str) for name in names) or not all(isinstance(a, dict) for a in kwargs):
        raise ConfigError(f"{where}: instruction_id_list has to hold names and kwargs mappings; correct the row")
    if not names or len(names) != len(kwargs):
        raise ConfigError(
            f"{where}: {len(names)} instructions with {len(kwargs)} sets of arguments; give one set for each"
        )
    # M-IFEval writes the language of its prompts before the names of the same checks.
    return tuple(
        _read(name.removeprefix("en:"), arguments, where) for name, arguments in zip(names, kwargs, strict=True)
    )


def _read(name: str, kwargs: Mapping[str, JsonValue], where: str) -> Instruction:
    if name not in TYPES:
        raise unknown_name("instruction", name, TYPES, where)
    kinds = TYPES[name].arguments
    arguments = {key: value for key, value in kwargs.items() if value is not None}
    for key in arguments:
        if key not in kinds:
            raise unknown_name(f"argument of {name}", key, kinds, where)
    for key, kind in kinds.items():
        if key not in arguments:
            raise ConfigError(f"{where}: {name} lacks its argument {key!r}; give {_ARGUMENT_KINDS[kind]}")
        if not _fits(arguments[key], kind):
            raise ConfigError(f"{where}: {name}: {key} is {quoted(arguments[key])}; it must be {_ARGUMENT_KINDS[kind]}")
    return Instruction(name, {key: int(value) if kinds[key] == "int" else value for key, value in arguments.items()})


def _fits(value: JsonValue, kind: str) -> bool:
    if kind == "int":
        # A whole float (3.0) counts as well.
        is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        return is_whole and not isinstance(value, bool) and value >= 0
    if kind == "texts":
        return isinstance(value, list | tuple) and bool(value) and all(_fits(text, "text") for text in value)
    if kind == "relation":
        return value in RELATIONS
    if kind == "language":
        return value in languages.LANGUAGES
    return isinstance(value, str) and bool(value.strip())


def default_label(kind: InstructionClass) -> str:
    """The badcase class of a failure that has no finer one."""
    return f"ifeval_{kind.value}_constraint_violation"


class ConstraintScorer(BenchmarkLabels):
    """Scores answers to items whose payload holds `instruction_id_list` and `kwargs`, as IFEval writes them.

    On own data the labels have their name instead of `ifeval`.
    """

    name = "constraints"
    label_prefix = "ifeval_"
    also_for = frozenset({"instructions"})
    version = "1.1"
    emits = ScorerOutput(
        views=frozenset(
            ["prompt_level_loose", "instruction_level", "instruction_level_loose", "instructions"]
            + ["instructions_followed", "instructions_followed_loose"]
            + [f"{kind.value}_{suffix}" for kind in InstructionClass for suffix in ("instructions", "followed")]
        ),
        labels=frozenset({MISSING, FORBIDDEN, FREQUENCY, *(default_label(kind) for kind in InstructionClass)}),
    )

    def read_item(self, reference: str | None, payload: Mapping[str, JsonValue], where: str) -> Mapping[str, JsonValue]:
        """The payload without arguments that are null. Raises ConfigError as `read_instructions`."""
        instructions = read_instructions(payload.get("instruction_id_list", ()), payload.get("kwargs", ()), where)
        return {
            **payload,
            "instruction_id_list": [instruction.name for instruction in instructions],
            "kwargs": [dict(instruction.arguments) for instruction in instructions],
        }

    def score(self, item: Item, rollout: Rollout) -> Score:
        """The verdict; None with a judge fault only if the item's instructions cannot be read."""
        try:
            instructions = read_instructions(
                item.payload.get("instruction_id_list", ()), item.payload.get("kwargs", ()), f"item {item.id}"
            )
        except ConfigError as error:
            return Score(None, str(error), Fault.JUDGE)
        answer = rollout.answer or ""
        findings = [instruction.check(answer) for instruction in instructions]
        loose = followed_loosely(instructions, findings, answer)
        failed = [
            (instruction, finding)
            for instruction, finding in zip(instructions, findings, strict=True)
            if not finding.followed
        ]
        reason = "; ".join(f"{instruction.name}: {finding.detail}" for instruction, finding in failed)
        labels = [self.label(finding.label or default_label(instruction.kind)) for instruction, finding in failed]
        return Score(
            value=float(not failed),
            reason=reason or "every instruction is followed",
            views=_views(instructions, findings, loose),
            labels=tuple(dict.fromkeys(labels)),
        )


def followed_loosely(
    instructions: Sequence[Instruction], findings: Sequence[ConstraintFinding], answer: str
) -> list[bool]:
    """For each instruction, whether some variant of the answer follows it; findings are those of the answer itself."""
    if all(finding.followed for finding in findings):
        return [True] * len(instructions)
    variants = loose_variants(answer)[1:]
    return [
        finding.followed or any(instruction.check(variant).followed for variant in variants)
        for instruction, finding in zip(instructions, findings, strict=True)
    ]


def _views(
    instructions: Sequence[Instruction], findings: Sequence[ConstraintFinding], loose: Sequence[bool]
) -> dict[str, float | None]:
    n_instructions, n_followed, n_loose = len(instructions), sum(finding.followed for finding in findings), sum(loose)
    views: dict[str, float | None] = {
        "prompt_level_loose": float(n_loose == n_instructions),
        "instruction_level": n_followed / n_instructions,
        "instruction_level_loose": n_loose / n_instructions,
        "instructions": float(n_instructions),
        "instructions_followed": float(n_followed),
        "instructions_followed_loose": float(n_loose),
    }
    for kind in InstructionClass:
        of_kind = [
            finding.followed
            for instruction, finding in zip(instructions, findings, strict=True)
            if instruction.kind is kind
        ]
        views[f"{kind.value}_instructions"] = float(len(of_kind))
        views[f"{kind.value}_followed"] = float(sum(of_kind))
    return views
