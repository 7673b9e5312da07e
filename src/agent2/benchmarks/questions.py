"""How the rows of data files become the questions of a benchmark: prompt, options, reference and payload.

Rows that cannot become questions are refused in one message for all of them, with the place of the first. Does NOT
know splits: `declared` does.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from string import ascii_uppercase
from typing import Any

from agent2.benchmarks.data_files import Row
from agent2.benchmarks.declaration import OPTIONS, AnswerRule, DataSpec, HashedId, fill_template, template_fields
from agent2.errors import ConfigError, unknown_name
from agent2.records import Scorer
from agent2.scorers import ReadsItems


@dataclass(frozen=True, slots=True)
class Question:
    """One row as a question."""

    prompt: str
    reference: str | None
    payload: Mapping[str, Any]
    id: str | None
    """Unique; None: the prompt identifies it."""
    row: Row


@dataclass
class _RowProblems:
    """Rows that cannot become questions, by problem, for one message about all of them."""

    rows: dict[str, list[Row]] = field(default_factory=dict)

    def note(self, problem: str, row: Row) -> None:
        self.rows.setdefault(problem, []).append(row)


class QuestionReader:
    """Reads rows as a `benchmark.yaml` says."""

    def __init__(self, spec: DataSpec, scorer: Scorer, spot: Callable[..., str]) -> None:
        """spot: `file:line` of a key of the file, for messages."""
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
        for name in self._variables:
            if name != OPTIONS or self._spec.options is None:
                self._require_field(name, rows, "prompt")
        questions = [question for row in rows if (question := self._question(row, missing)) is not None]
        for problem, affected in missing.rows.items():
            raise ConfigError(
                f"{affected[0].where}: {problem} in {len(affected)} of {len(rows)} rows, this one first; {self._advice}"
            )
        return questions

    def _require_field(self, name: str, rows: Sequence[Row], key: str) -> None:
        """Raises ConfigError for a field that is in no row, as a misspelt one is."""
        if not any(name in row.values for row in rows):
            fields = {field_name for row in rows[:100] for field_name in row.values}
            where = f"{self._spot(key)}: no row of {rows[0].file} has it"
            raise unknown_name("field", name, fields, where)

    def _question(self, row: Row, missing: _RowProblems) -> Question | None:
        options = self._options(row, missing)
        values: dict[str, str] = {}
        for name in self._variables:
            if name == OPTIONS and options is not None:
                values[name] = "\n".join(
                    f"{letter}. {text}" for letter, text in zip(ascii_uppercase, options, strict=False)
                )
            elif (text := _text(row.values.get(name))) is not None:
                values[name] = text
            else:
                missing.note(f"variable {{{name}}} of the prompt is missing, or neither text nor a number,", row)
        rule = self._spec.answer
        reference = None if rule is None else self._reference(rule, row, options, missing)
        payload: Mapping[str, Any] = {} if options is None else {OPTIONS: options}
        for name in self._spec.payload:
            if name not in row.values:
                missing.note(f"payload field {name!r} is missing", row)
            payload = {**payload, name: row.values.get(name)}
        own_id = self._own_id(row, missing)
        if (rule is not None and reference is None) or len(values) < len(self._variables):
            return None
        if isinstance(self._scorer, ReadsItems) and not missing.rows:
            payload = self._scorer.read_item(reference, payload, row.where)
        return Question(fill_template(self._spec.template, values), reference, payload, own_id, row)

    def _own_id(self, row: Row, missing: _RowProblems) -> str | None:
        rule = self._spec.id
        if rule is None:
            return None
        name = rule.hash if isinstance(rule, HashedId) else rule
        value = _text(row.values.get(name))
        if not value:
            missing.note(f"id field {name!r} is missing", row)
            return None
        if isinstance(rule, HashedId):
            return hashlib.sha256(f"{self._spec.name} item\0{value}".encode()).hexdigest()[:16]
        return value

    def _options(self, row: Row, missing: _RowProblems) -> list[str] | None:
        fields = self._spec.options
        if fields is None:
            return None
        values = row.values.get(fields) if isinstance(fields, str) else [row.values.get(name) for name in fields]
        texts = (
            [_text(value) for value in values] if isinstance(values, Sequence) and not isinstance(values, str) else []
        )
        least = self._spec.min_options
        if not least <= len(texts) <= len(ascii_uppercase) or None in texts:
            name = fields if isinstance(fields, str) else ", ".join(fields)
            missing.note(f"options ({name}) are not a list of {least} to 26 texts", row)
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
            if rule.agrees_with is not None and letter != _letter(row.values.get(rule.agrees_with), options):
                missing.note(f"answer fields {rule.field!r} and {rule.agrees_with!r} do not name the same option", row)
                return None
            text = letter
        return fill_template(rule.form, {"answer": text})


def distinct(questions: Sequence[Question], spec: DataSpec) -> list[Question]:
    """The questions, without repeats where the file says so. Raises ConfigError for two that are not distinct."""
    if spec.repeats == "drop":
        first: dict[str, Question] = {}
        for question in questions:
            first.setdefault(question.prompt, question)
        questions = list(first.values())
    questions_by_key: dict[str, Question] = {}
    for question in questions:
        key = question.prompt if question.id is None else question.id
        earlier = questions_by_key.setdefault(key, question)
        if earlier is question:
            continue
        if spec.published is not None:
            problem = f"id {spec.name}-{question.id} also appears at {earlier.row.where}; restore the published file"
        elif question.id is not None:
            problem = f"id {question.id!r} also appears in line {earlier.row.number}; give each row a unique id"
        else:
            problem = f"asks the same as line {earlier.row.number}; remove one, or name an 'id' field"
        raise ConfigError(f"{question.row.where}: {problem}")
    return list(questions)


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
