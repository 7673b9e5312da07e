"""How the rows of data files become the questions of a benchmark: prompt, options, reference and payload.

Rows that cannot become questions are refused in one message for all of them, with the place of the first. Does NOT
know splits: `declared` does.
"""

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from agent2.benchmarks.chats import read_chat, read_tools
from agent2.benchmarks.data_files import Row
from agent2.benchmarks.declaration import (
    OPTIONS,
    AnswerRule,
    ChatFields,
    DataSpec,
    HashedId,
    OptionBy,
    PictureFields,
    fill_template,
    template_fields,
)
from agent2.benchmarks.option_texts import options_in_text
from agent2.benchmarks.printed_values import parse_printed
from agent2.environments.tools import ToolCall, write_calls
from agent2.environments.tools.calls import read_answer, read_calls
from agent2.errors import ConfigError, unknown_name
from agent2.pictures import MAX_IN_MESSAGE, PICTURES, of_payload, read_field, to_payload
from agent2.records import Picture, Scorer
from agent2.scorers import ReadsItems
from agent2.scorers.accepted_calls import first_accepted, read_accepted

MESSAGES = "messages"
"""Payload key of a chat that is shown in place of the prompt."""
REFERENCE_CALLS = "reference_calls"
ACCEPTED_CALLS = "accepted_calls"
"""Payload key of calls with lists of accepted values, which decide in place of the reference's."""
"""Payload key of the calls that are right; empty where words are."""
ACCEPTED = "accepted"
"""Payload key of further right answers, which scorers of texts read."""
N_LINES_SHOWN = 5
"""Of the lines with a problem."""
_LETTER = re.compile(r"\(?([A-Za-z])[).:]?")
_SPEAKS_OF_OTHERS = re.compile(
    r"\b(?:all|any|both|either|neither|none|each) of (?:the )?(?:above|below|these|those|options|answers)\b"
    r"|\b(?:both|either|neither) \(?[A-H]\)?,? (?:and|or|nor) \(?[A-H]\)?\b|^\(?[A-H]\)? (?:and|or|&) \(?[A-H]\)?\.?$",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Question:
    """One row as a question."""

    prompt: str
    reference: str | None
    payload: Mapping[str, Any]
    id: str | None
    """Unique; None: the prompt identifies it."""
    row: Row

    @property
    def content(self) -> str:
        """What tells it from other questions: the prompt, and the digests of its pictures."""
        return "\0".join([self.prompt, *(picture.digest for picture in of_payload(self.payload))])


@dataclass(frozen=True, slots=True)
class _Option:
    """One option of a question, as the file has it."""

    letter: str
    """By its place in the file."""
    label: str | None
    text: str


@dataclass
class _RowProblems:
    """Rows that cannot become questions, by problem and advice, for one message about all of them."""

    rows: dict[tuple[str, str], list[Row]] = field(default_factory=dict)

    def note(self, problem: str, row: Row, advice: str = "") -> None:
        self.rows.setdefault((problem, advice), []).append(row)


class QuestionReader:
    """Reads rows as a `benchmark.yaml` says."""

    def __init__(self, spec: DataSpec, scorer: Scorer, spot: Callable[..., str], folder: Path = Path()) -> None:
        """spot: `file:line` of a key of the file, for messages. folder: that pictures are in."""
        self._folder = folder
        self._spec, self._scorer, self._spot = spec, scorer, spot
        self._variables = template_fields(spec.template)
        published = spec.published
        self._advice = (
            "complete them or leave them out"
            if published is None
            else f"restore the file as it is published at {published.source}"
        )

    def questions(self, rows: Sequence[Row]) -> list[Question]:
        """The questions in the order of the rows. Raises ConfigError for rows that cannot become questions."""
        missing = _RowProblems()
        if self._spec.answer is not None:
            self._require_field(self._spec.answer.field, rows, "answer")
        if self._spec.chat is not None:
            for name in filter(None, (self._spec.chat.messages, self._spec.chat.tools)):
                self._require_field(name, rows, "chat")
        for name in self._variables:
            if name != OPTIONS or self._spec.options is None:
                self._require_field(name, rows, "prompt")
        questions = [question for row in rows if (question := self._question(row, missing)) is not None]
        for (problem, advice), affected in missing.rows.items():
            lines = ", ".join(str(row.number) for row in affected[:N_LINES_SHOWN])
            more = ", ..." if len(affected) > N_LINES_SHOWN else ""
            raise ConfigError(
                f"{affected[0].where}: {problem} in {len(affected)} of {len(rows)} rows, this one first "
                f"(lines {lines}{more}); {advice or self._advice}"
            )
        return questions

    def _require_field(self, name: str, rows: Sequence[Row], key: str) -> None:
        """Raises ConfigError for a field that is in no row, as a misspelt one is."""
        if not any(name in row.values or row.get(name) is not None for row in rows):
            fields = {field_name for row in rows[:100] for field_name in row.values}
            where = f"{self._spot(key)}: no row of {rows[0].file} has it"
            raise unknown_name("field", name, fields, where)

    def _question(self, row: Row, missing: _RowProblems) -> Question | None:
        values: dict[str, str] = {}
        for name in self._variables:
            if name == OPTIONS and self._spec.options is not None:
                continue
            if (text := _text(row.get(name))) is not None:
                values[name] = text
            else:
                missing.note(f"variable {{{name}}} of the prompt is missing, or neither text nor a number,", row)
        payload: Mapping[str, Any] = {}
        options: list[_Option] = []
        if self._spec.options is not None:
            options = self._options(row, missing)
            if self._spec.is_shuffled:
                options = shuffled(options, f"{self._spec.name} option\0{chr(0).join(values.values())}")
            payload = {OPTIONS: [option.text for option in options]}
            lettered = zip(ascii_uppercase, options, strict=False)
            values[OPTIONS] = "\n".join(f"{letter}. {option.text}" for letter, option in lettered)
        rule = self._spec.answer
        references: list[str] = []
        prompt = fill_template(self._spec.template, values) if not missing.rows else ""
        if self._spec.chat is not None:
            prompt, references, payload = self._chat(self._spec.chat, row, missing)
        if rule is not None and not payload.get(REFERENCE_CALLS):
            references = self._references(rule, row, options, missing)
        for name in self._spec.payload:
            if name not in row.values and row.get(name) is None:
                missing.note(f"payload field {name!r} is missing", row)
            payload = {**payload, name: row.get(name)}
        if len(references) > 1:
            payload = {**payload, ACCEPTED: references[1:]}
        if self._spec.pictures is not None:
            payload = {**payload, PICTURES: self._pictures(self._spec.pictures, row, missing)}
        own_id = self._own_id(row, missing)
        if missing.rows:
            return None
        reference = references[0] if references else None
        if isinstance(self._scorer, ReadsItems):
            payload = self._scorer.read_item(reference, payload, row.where)
        return Question(prompt, reference, payload, own_id, row)

    def _chat(self, fields: ChatFields, row: Row, missing: _RowProblems) -> tuple[str, list[str], Mapping[str, Any]]:
        """Prompt, reference and payload of a chat."""
        rule, name = self._spec.answer, fields.messages
        try:
            chat = read_chat(row.get(name), is_answered=rule is not None, asks_call=fields.ask == "last_call")
        except ValueError as error:
            missing.note(f"chat field {name!r} {error}", row)
            return "", [], {}
        if chat.answer is None and rule is None:
            advice = "add the message that is right, or name the field that has it: answer: FIELD"
            missing.note(f"chat field {name!r} ends with the user", row, advice)
        payload: dict[str, Any] = {MESSAGES: chat.messages}
        calls, name = chat.calls, fields.tools or ""
        accepted = _accepted_in(row.get(rule.field)) if rule is not None else None
        if fields.tools is not None:
            try:
                payload["tools"] = read_tools(row.get(name))
                if accepted is not None:
                    payload[ACCEPTED_CALLS] = accepted
                    calls = read_calls([first_accepted(call) for call in accepted])
                elif rule is not None:
                    calls = _calls_in(row.get(rule.field))
            except ValueError as error:
                missing.note(f"tools field {name!r} {error}", row)
                return "", [], {}
            offered = {tool["function"]["name"] for tool in payload["tools"]}
            for call in calls:
                if call.name not in offered:
                    missing.note(f"the answer calls {call.name!r}, which tools field {name!r} does not offer,", row)
            payload[REFERENCE_CALLS] = [{"name": call.name, "arguments": dict(call.arguments)} for call in calls]
        reference = write_calls(calls) if rule is not None and calls else chat.answer
        return chat.text, [] if reference is None else [reference], payload

    def _pictures(self, rule: PictureFields, row: Row, missing: _RowProblems) -> list[dict[str, Any]]:
        """The pictures of a row as its payload has them. Raises ConfigError for one that cannot be read."""
        pictures: list[Picture] = []
        for name in rule.fields:
            if (value := row.get(name)) not in (None, "", []):
                pictures += read_field(value, self._folder, f"{row.where}: field {name!r}", rule.preparation)
        if not pictures:
            missing.note(f"pictures ({', '.join(rule.fields)}) are missing", row)
        if len(pictures) > MAX_IN_MESSAGE:
            missing.note(f"has more than {MAX_IN_MESSAGE} pictures,", row)
        return to_payload(pictures)

    def _own_id(self, row: Row, missing: _RowProblems) -> str | None:
        rule = self._spec.id
        if rule is None:
            return None
        name = rule.hash if isinstance(rule, HashedId) else rule
        value = _text(row.get(name))
        if not value:
            missing.note(f"id field {name!r} is missing", row)
            return None
        if isinstance(rule, HashedId):
            return hashlib.sha256(f"{self._spec.name} item\0{value}".encode()).hexdigest()[:16]
        return value

    def _options(self, row: Row, missing: _RowProblems) -> list[_Option]:
        """The options in the order of the file; none where they cannot be read."""
        fields = self._spec.options or []
        names: Sequence[object]
        if isinstance(fields, list):
            # a question may have fewer options than others: its last fields are empty
            named = [(name, value) for name in fields for value in _values_of_field(row.get(name))]
            names = [name for name, _ in named]
            texts = [(_text(value) or "").strip() or None for _, value in named]
        else:
            names, listed = _listed_options(row.get(fields))
            texts = [_text(text) for text in listed]
        labels = [str(name) for name in names] if len(names) == len(texts) else [None] * len(texts)
        options = [
            _Option(letter, label, text)
            for letter, label, text in zip(ascii_uppercase, labels, texts, strict=False)
            if text is not None
        ]
        fewest, n_unread = self._spec.min_options, len(texts) - len(options)
        if (
            not fewest <= len(texts) <= len(ascii_uppercase)
            or len(options) < fewest
            or (n_unread and isinstance(fields, str))
        ):
            name = fields if isinstance(fields, str) else ", ".join(fields)
            missing.note(f"options ({name}) are not a list of {fewest} to 26 texts", row)
            return []
        return options

    def _references(self, rule: AnswerRule, row: Row, options: Sequence[_Option], missing: _RowProblems) -> list[str]:
        """The accepted answers in the scorer's form, the reference first; of options, the letter of the right one."""
        value = row.get(rule.field)
        is_whole = rule.after is None and rule.pattern is None
        if self._spec.options is not None and isinstance(value, int | float) and is_whole and _text(value) is not None:
            answers: list[Any] = [value]
        elif rule.option_by is OptionBy.ONE_HOT and value is not None:
            answers = [value]
        else:
            texts = accepted_answers(value)
            if not texts:
                missing.note(f"answer field {rule.field!r} is missing or empty", row)
            answers = [part for text in texts for part in self._part(rule, text, row, missing)]
        if self._spec.options is not None and options and answers:
            letter = self._right_letter(rule, answers, row, options, missing)
            answers = [] if letter is None else [letter]
        return [fill_template(rule.form, {"answer": str(answer)}) for answer in answers]

    @staticmethod
    def _part(rule: AnswerRule, text: str, row: Row, missing: _RowProblems) -> list[str]:
        """The part of an answer's text that the rule names, alone in a list; empty: there is none."""
        if rule.after is not None:
            _, separator, text = text.rpartition(rule.after)
            if not separator or not text.strip():
                missing.note(f"answer field {rule.field!r} has nothing after {rule.after!r}", row)
                return []
            text = text.strip()
        if rule.pattern is not None:
            matches = re.findall(rule.pattern, text)
            if not matches:
                missing.note(f"answer field {rule.field!r} does not match {rule.pattern!r}", row)
                return []
            text = str(matches[-1]).strip()
        return [text]

    def _right_letter(
        self, rule: AnswerRule, answers: Sequence[Any], row: Row, options: Sequence[_Option], missing: _RowProblems
    ) -> str | None:
        """The letter under which the right option is shown."""
        fields = self._spec.options
        if isinstance(fields, list) and rule.field in fields and rule.option_by is None:
            right = [option for option in options if option.label == rule.field]
        elif rule.option_by is OptionBy.ONE_HOT:
            right = _marked_option(rule.field, answers[0], options, row, missing)
        else:
            right = self._named_options(rule, answers[0], row, options, missing) if len(answers) == 1 else []
            if len(answers) > 1:
                missing.note(f"answer field {rule.field!r} is a list, and one option is right,", row)
        if len(right) != 1:
            return None
        is_repeated = sum(option.text.strip() == right[0].text.strip() for option in options) > 1
        if is_repeated and self._spec.published is None:  # what is published is played as it is
            missing.note("the right option comes twice among the options", row)
            return None
        if rule.agrees_with is not None:
            place = _whole_number(row.get(rule.agrees_with))
            if place is None or ascii_uppercase[place % 26] != right[0].letter or not 0 <= place < 26:
                missing.note(f"answer fields {rule.field!r} and {rule.agrees_with!r} do not name the same option", row)
                return None
        return ascii_uppercase[options.index(right[0])]

    @staticmethod
    def _named_options(
        rule: AnswerRule, answer: object, row: Row, options: Sequence[_Option], missing: _RowProblems
    ) -> list[_Option]:
        """The option that an answer names, alone in a list."""
        text = str(answer).strip()
        letter = _LETTER.fullmatch(text)
        place = _whole_number(answer)
        by_place = {option.letter: option for option in options}
        readings = {
            OptionBy.LABEL: [option for option in options if option.label is not None and option.label == text],
            OptionBy.LETTER: [o for o in options if letter is not None and o.letter == letter[1].upper()],
            OptionBy.TEXT: [option for option in options if option.text.strip() == text],
        }
        if rule.option_by in (OptionBy.PLACE_FROM_0, OptionBy.PLACE_FROM_1):
            first = int(rule.option_by is OptionBy.PLACE_FROM_1)
            index = -1 if place is None else place - first
            named = [by_place[ascii_uppercase[index]]] if 0 <= index < 26 and ascii_uppercase[index] in by_place else []
        elif rule.option_by is not None:
            named = readings[rule.option_by]
        elif isinstance(answer, int | float) and not isinstance(answer, bool):
            named = []
        else:
            # a label was written to be named; a letter that is also another option's text could be either
            named = readings[OptionBy.LABEL] or [
                option for option in options if any(option in readings[by] for by in (OptionBy.LETTER, OptionBy.TEXT))
            ]
        if len(named) == 1:
            return named
        name = rule.field
        if rule.option_by is not None:
            missing.note(f"answer field {name!r} names no option by {rule.option_by.value}", row)
        elif place is not None and not named:
            missing.note(
                f"answer field {name!r} is a number, which may be a place or an option's text,",
                row,
                f"write answer: {{field: {name}, option_by: place_from_0}} or, counted from 1, option_by: place_from_1 "
                "(option_by: text where it is what the right option says)",
            )
        elif len(readings[OptionBy.TEXT]) > 1:
            missing.note("the right option comes twice among the options", row)
        elif named:
            missing.note(
                f"answer field {name!r} is the letter of one option and the text of another",
                row,
                f"write answer: {{field: {name}, option_by: letter}} or option_by: text",
            )
        else:
            missing.note(f"answer field {name!r} is neither the letter, the label nor the text of an option", row)
        return []


def _marked_option(
    name: str, value: object, options: Sequence[_Option], row: Row, missing: _RowProblems
) -> list[_Option]:
    """The option that a list of 0 and 1 marks, alone in a list."""
    try:
        marks = parse_printed(value) if isinstance(value, str) else value
    except ValueError:
        marks = None
    if not isinstance(marks, list) or any(mark not in (0, 1) for mark in marks):
        missing.note(f"answer field {name!r} is not a list of 0 and 1", row)
        return []
    if len(marks) != len(options):
        missing.note(f"answer field {name!r} marks {len(marks)} options, and there are {len(options)},", row)
        return []
    if sum(marks) != 1:
        missing.note(f"answer field {name!r} marks {sum(marks)} options, and one is right,", row)
        return []
    right = ascii_uppercase[marks.index(1)]
    return [option for option in options if option.letter == right]


def shuffled(options: Sequence[_Option], key: str) -> list[_Option]:
    """The options in an order that depends on the item and their texts alone, not on their places in the file.

    Options that speak of each other ("both A and B", "none of the above") stay as they are.
    """
    if any(_SPEAKS_OF_OTHERS.search(option.text) for option in options):
        return list(options)
    return sorted(options, key=lambda option: hashlib.sha256(f"{key}\0{option.text}".encode()).digest())


def _values_of_field(value: object) -> Sequence[object]:
    """The options in one field of several: one text, which may look like a list, or a list of wrong ones."""
    return value if isinstance(value, list) else [value]


def _listed_options(value: object) -> tuple[Sequence[object], Sequence[object]]:
    """Labels, if there are any, and texts of options: a list, a record of lists, a list of records, or their text."""
    if isinstance(value, str):
        value = _parsed_options(value)
    if isinstance(value, Mapping):
        labels, texts = value.get("label"), value.get("text")
        return (labels if isinstance(labels, list) else []), (texts if isinstance(texts, list) else [])
    options = value if isinstance(value, list | tuple) else []
    if options and all(isinstance(option, Mapping) for option in options):
        labels = [option.get("label") for option in options]
        return ([] if None in labels else labels), [option.get("text") for option in options]
    return [], options


def _parsed_options(text: str) -> object:
    """What the text of a JSON list or record holds, else the options that are written in the text."""
    try:
        return parse_printed(text)
    except ValueError:
        return options_in_text(text)  # a list as numpy prints it, or lettered options


def accepted_answers(value: object) -> list[str]:
    """The answers that a field accepts, without empty ones: its text, a list, or a record as TriviaQA and SQuAD have.

    A record holds `value` and `aliases`, or `text`.
    """
    if isinstance(value, Mapping):
        aliases = value.get("aliases")
        value = [value.get("value", value.get("text")), *(aliases if isinstance(aliases, list | tuple) else [])]
        value = value[0] if len(value) == 1 else value
    values = value if isinstance(value, list | tuple) else [value]
    texts = [_text(part) for part in values]
    return list(dict.fromkeys(text for text in texts if text is not None and text.strip()))


def distinct(questions: Sequence[Question], spec: DataSpec) -> list[Question]:
    """The questions, without repeats where the file says so. Raises ConfigError for two that are not distinct."""
    earlier_by_key: dict[str, Question] = {}
    firsts: list[Question] = []
    repeats: list[Question] = []
    for question in questions:
        key = question.content if question.id is None or spec.repeats == "drop" else question.id
        earlier = earlier_by_key.setdefault(key, question)
        (firsts if earlier is question else repeats).append(question)
    if spec.repeats == "drop":
        if spec.published is None:
            for question in repeats:
                earlier = earlier_by_key[question.content]
                if question.reference != earlier.reference:
                    raise ConfigError(
                        f"{question.row.where}: asks the same as line {earlier.row.number} and has another answer; "
                        "correct or remove one"
                    )
        return firsts if spec.id is None else distinct(firsts, spec.model_copy(update={"repeats": "refuse"}))
    for question in repeats[:1]:
        earlier = earlier_by_key[question.content if question.id is None else question.id]
        if spec.published is not None:
            problem = f"id {spec.name}-{question.id} also appears at {earlier.row.where}; restore the published file"
        elif question.id is not None:
            problem = f"id {question.id!r} also appears in line {earlier.row.number}; give each row a unique id"
        else:
            n = f"{len(repeats)} such rows" if len(repeats) > 1 else "one such row"
            answers = "" if question.reference == earlier.reference else " with another answer"
            problem = (
                f"asks the same as line {earlier.row.number}{answers}; remove one, or name an 'id' field ({n}; "
                "repeats: drop leaves out those with the same answer)"
            )
        raise ConfigError(f"{question.row.where}: {problem}")
    return firsts


def _accepted_in(value: object) -> list[dict[str, Any]] | None:
    """Calls with lists of accepted values, as data or its text; None where the answer is something else."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    return read_accepted(value)


def _calls_in(value: object) -> list[ToolCall]:
    """The calls that an answer consists of, as text or data; none where it is words."""
    return list(read_answer(value if isinstance(value, str) else json.dumps(value)).calls)


def _text(value: object) -> str | None:
    """A value as text; None if it is missing (NaN too), or a list or record, which has no single form as text."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return json.dumps(value) if isinstance(value, bool | int | float) else None


def _whole_number(value: object) -> int | None:
    """A whole number, also as text or with a fraction of 0, as tables write it where a column has gaps."""
    if isinstance(value, str) and re.fullmatch(r"\s*-?\d{1,9}\s*", value):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not float(value).is_integer():
        return None
    return int(value)
