"""Drafts of `benchmark.yaml` for data files: which column is what, how an answer is scored, which split a file is.

Promises: a draft was read with the benchmark's own reader, every row of every file; a file that cannot be read so is
refused with what was tried and what to name. A number is taken for the place of an option only where the data rule out
every other reading. Does NOT know what a question is worth, and reads no documentation of a data set.
"""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from agent2.benchmarks.chats import ReadChat, read_chat, read_tools
from agent2.benchmarks.data_files import Row, read_rows
from agent2.benchmarks.declaration import DataSpec, OptionBy, Portion, template_fields
from agent2.benchmarks.option_texts import options_in_text
from agent2.benchmarks.printed_values import parse_printed
from agent2.benchmarks.questions import Question, QuestionReader, accepted_answers, distinct
from agent2.config import parse_yaml
from agent2.errors import ConfigError, quoted, unknown_name
from agent2.scorers import load_scorer

CHATS = ("messages", "conversations", "conversation", "chat", "dialog", "dialogue", "turns", "prompt", "question")
TOOLS = ("tools", "functions", "availabletools", "tooldefinitions", "function")
QUESTIONS = (
    *("question", "questionstem", "stem", "problem", "query", "prompt", "instruction", "input", "goal", "ctx"),
    *("sentence", "text", "review", "utterance", "claim", "statement", "task", "hypothesis", "q"),
)
SPLITS = ("split", "subset", "partition", "fold", "set")
CONTEXTS = ("context", "passage", "paragraph", "article", "story", "document", "premise", "body")
MORE_OF_QUESTIONS = {"instruction": ("input",)}
"""Columns that belong to a question, where they are beside it."""
OPTIONS = ("choices", "options", "endings", "candidates", "answerchoices", "alternatives", "answers")
ANSWERS = (
    *("answer", "answerkey", "correctanswer", "correct", "correctoption", "label", "gold", "target", "cop"),
    *("answeridx", "answerindex", "correctindex", "correctidx", "goldindex", "answers", "finalanswer", "solution"),
    *("expectedanswer", "expectedoutput", "groundtruth", "reference", "output", "response", "completion", "bestanswer"),
)
RIGHT = re.compile(r"(correct|right|best|true) ?(answer|option|choice)")
WRONG = re.compile(r"(incorrect|wrong|false|distractor)s? ?(answer|option|choice)?s? ?\d?")
LETTERED = re.compile(r"(op|opt|option|choice|answer|ending|sol|solution|)[ _-]?([a-z]|\d)", re.IGNORECASE)
PLAIN_NUMBER = re.compile(r"[-+]?[$€£]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+)?")
MARKER = "#### "
PROBED = 200
"""First rows, by which most wrong readings are found at once."""
MAX_CLASSES = 20
MANY_PER_CLASS = 10
"""Rows of each class of a classification, on average."""
LATEX_SHARE = 0.1
"""Of answers with LaTeX, above which all are taken for expressions."""
SHORT_CHARACTERS = 40
"""Answers of which half are longer are no short answers."""
LETTER, NUMBER = (
    "Answer with the letter of the right option.",
    "Work it out step by step. End with a line that holds #### and the number alone.",
)
BOX = "Work it out step by step. Put the final answer in \\boxed{{}}."
SHORT_ANSWER = "Answer with the answer alone."
PORTION_OF_STEM = {
    "train": Portion.TRAIN,
    "training": Portion.TRAIN,
    "dev": Portion.DEV,
    "validation": Portion.DEV,
    "valid": Portion.DEV,
    "val": Portion.DEV,
    "test": Portion.TEST,
}


@dataclass(frozen=True, slots=True)
class ColumnHints:
    """What a user says about the columns; None: it is detected."""

    prompt: str | None = None
    """A column, or a text with `{COLUMN}`."""
    answer: str | None = None
    option_by: OptionBy | None = None


@dataclass(frozen=True, slots=True)
class BenchmarkDraft:
    """A `benchmark.yaml` that was read with its data."""

    text: str
    detected: Mapping[str, str]
    """Part of the benchmark -> what it is taken from, and why."""
    n_rows: int
    example: Question


@dataclass(frozen=True, slots=True)
class _Form:
    """How items are asked and scored: keys of `benchmark.yaml`."""

    keys: Mapping[str, Any]
    detected: Mapping[str, str]


def draft_benchmark(
    files: Sequence[Path], folder: Path, name: str, n_needed: int, hints: ColumnHints | None = None
) -> BenchmarkDraft:
    """A draft for data files, with paths as seen from the folder.

    n_needed: items that a decision needs. Raises ConfigError, with the columns and what to name, where they are not
    clear, and for rows that cannot become questions.
    """
    rows_by_file = {file: read_rows(file) for file in files}
    rows = [row for members in rows_by_file.values() for row in members]
    columns = _Columns(rows)
    _require_one_split(columns)
    form = _form(columns, hints or ColumnHints())
    portions = _portions({file: len(members) for file, members in rows_by_file.items()}, n_needed)
    head: dict[str, Any] = {
        "name": name,
        "version": "1.0",
        "files": {portion.value: os.path.relpath(file, folder) for portion, file in portions.items()},
    }
    form, questions = _without_repeats(form, [rows_by_file[file] for file in portions.values()])
    form = _shuffled_where_needed(form, questions)
    sizes = ", ".join(f"{file.name} as {portion.value}" for portion, file in portions.items())
    return BenchmarkDraft(
        _written(head | dict(form.keys)), {**form.detected, "files": sizes}, len(questions), questions[0]
    )


class _Columns:
    """The columns of rows, those inside records included."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = rows
        names: dict[str, None] = {}
        for row in rows:
            for name, value in row.values.items():
                names[name] = None
                if isinstance(value, Mapping) and "text" not in value:
                    names.update(dict.fromkeys(f"{name}.{key}" for key in value))
        self.names = [name for name in names if self.present(name)]
        self.file = rows[0].file

    def present(self, name: str) -> list[Any]:
        """The values of a column that are not missing."""
        return [value for row in self.rows if (value := row.get(name)) not in (None, "", [])]

    def called(self, names: Sequence[str], kind: Callable[[Any], bool]) -> list[str]:
        """Columns of these names, in the order of the names, all of whose values are of a kind."""
        by_key: dict[str, list[str]] = {}
        for name in self.names:
            by_key.setdefault(_key(name), []).append(name)
        columns = [column for name in names for column in by_key.get(name, ())]
        return [column for column in columns if all(map(kind, self.present(column)))]

    def listing(self) -> str:
        """All names, for a message."""
        return ", ".join(self.names)


def _key(name: str) -> str:
    """A name without case and marks, of a field inside a record the last part."""
    return re.sub(r"[^a-z0-9]", "", name.rpartition(".")[2].lower())


def _is_plain(value: object) -> bool:
    return isinstance(value, str | int | float)


def _is_list(value: object) -> bool:
    return isinstance(value, list)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_chat(value: object) -> bool:
    """Whether a value looks like a chat; whether it can be asked, its reader says."""
    value = _parsed(value)
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], list):
        value = value[0]
    messages = value if isinstance(value, list) else []
    return bool(messages) and all(isinstance(part, Mapping) and {"role", "from"} & {*part} for part in messages)


def _is_tools(value: object) -> bool:
    try:
        return bool(read_tools(value)) or _parsed(value) == []
    except ValueError:
        return False


def _parsed(value: object) -> object:
    """The value of a list or record that is written as text; any other as it is."""
    if not isinstance(value, str):
        return value
    try:
        return parse_printed(value)
    except ValueError:
        return value


def _chats(values: Sequence[object], *, asks_call: bool = False) -> list[ReadChat]:
    """The chats among values that can be asked."""
    chats = []
    for value in values:
        with suppress(ValueError):
            chats.append(read_chat(value, asks_call=asks_call))
    return chats


def _constraint_form(columns: _Columns, hints: ColumnHints) -> _Form | None:
    """The form of prompts with checkable constraints, as IFEval has them; None where there are none."""
    if not {"instruction_id_list", "kwargs"} <= {*columns.names} or hints.answer is not None:
        return None
    question, template = _question(columns, hints)
    keys = {
        "prompt": template,
        "payload": ["instruction_id_list", "kwargs"],
        "scorer": "constraints",
        "primary_metric": "prompt_accuracy",
        "sampling": {"temperature": 0.0, "max_tokens": 1024},
    }
    detected = {"question": _columns_of(question, template)}
    return _Form(keys, {**detected, "scorer": "constraints: instruction_id_list and kwargs, as IFEval has them"})


def _form(columns: _Columns, hints: ColumnHints) -> _Form:
    for flag, name in (("--prompt", hints.prompt), ("--answer", hints.answer)):
        if name is not None and "{" not in name and name not in columns.names:
            raise unknown_name("column", name, columns.names, f"{flag}: {columns.file} has no such column")
    if hints.prompt is None and (form := _chat_form(columns, hints)) is not None:
        return form
    if (form := _constraint_form(columns, hints)) is not None:
        return form
    question, template = _question(columns, hints)
    answers = [hints.answer] if hints.answer is not None else _answer_columns(columns, question)
    problems: list[ConfigError] = []
    for form in _choice_forms(columns, question, template, answers, hints, problems):
        return form
    if problems:
        raise problems[0]
    _require_options_everywhere(columns)
    if not answers and {"test", "entry_point"} <= {*columns.names}:
        raise ConfigError(
            f"{columns.file}: programs with tests are not described by columns; the packaged benchmark humaneval plays "
            "files in this layout (--data FOLDER), a Python class any other (agent2 benchmarks new mine --python)"
        )
    if not answers:
        raise ConfigError(
            f"{columns.file}: no column is the answer (columns: {columns.listing()}); name it with --answer COLUMN"
        )
    return _answer_form(columns, question, template, answers[0], hints)


def _chat_form(columns: _Columns, hints: ColumnHints) -> _Form | None:
    """The form of chats; None where there are none."""
    tools = next(iter(columns.called(TOOLS, _is_tools)), None)
    chat = next(iter(columns.called(CHATS, _is_chat)), None)
    answer = hints.answer
    if chat is None and tools is not None:
        chat = next(iter(columns.called(QUESTIONS, _is_text)), None)
        answer = answer or next(iter(columns.called(ANSWERS, lambda value: True)), None)
    if chat is None:
        return None
    fields = {"messages": chat} | ({} if tools is None else {"tools": tools})
    detected = {"chat": f"column {chat!r}"} | ({} if tools is None else {"tools": f"column {tools!r}"})
    keys: dict[str, Any] = {"chat": fields}
    if answer is not None:
        keys["answer"], detected["answer"] = answer, f"column {answer!r}"
    if tools is None:
        chats = _chats(columns.present(chat))
        if chats and not any(part.answer for part in chats) and (form := _asked_chat_form(columns, chat, chats, hints)):
            return form
        scorer, reason = _scorer_of_texts([part.answer for part in chats if part.answer])
        keys |= {"scorer": scorer, "sampling": {"temperature": 0.0, "max_tokens": 512}}
        return _Form(keys, {**detected, "scorer": reason})
    n_calls = [sum(bool(part.calls) for part in _chats(columns.present(chat), asks_call=by)) for by in (False, True)]
    if answer is None and n_calls[1] > 2 * n_calls[0]:
        fields["ask"] = "last_call"
        detected["asked"] = "the last message with calls, because most chats end in words about their results"
    keys |= {"scorer": "chat_calls", "sampling": {"temperature": 0.0, "max_tokens": 512}}
    return _Form(keys, {**detected, "scorer": "chat_calls: the calls are those of the chat"})


def _question(columns: _Columns, hints: ColumnHints) -> tuple[str, str]:
    """The column of the question, and the prompt's text that shows it with what belongs to it."""
    if hints.prompt is not None and "{" in hints.prompt:
        return "", hints.prompt
    if hints.prompt is not None:
        return hints.prompt, f"{{{hints.prompt}}}"
    candidates = columns.called(QUESTIONS, _is_text)
    if not candidates:
        _require_header(columns)
        raise ConfigError(
            f"{columns.file}: no column is the question (columns: {columns.listing()}); name it with --prompt COLUMN, "
            "or write --prompt 'TEXT {COLUMN} TEXT'"
        )
    question = candidates[0]
    parts = [name for name in columns.called(CONTEXTS, _is_text) if name != question]
    more = MORE_OF_QUESTIONS.get(_key(question), ())
    parts += [question, *(name for name in columns.called(more, _is_text) if name != question)]
    return question, "\n".join(f"{{{name}}}" for name in parts)


def _is_number_text(text: str) -> bool:
    return PLAIN_NUMBER.fullmatch(text.strip()) is not None and any(map(str.isdigit, text))


def _require_header(columns: _Columns) -> None:
    """Raise ConfigError for a table whose first line looks like data."""
    is_table = columns.file.suffix.lower() in (".csv", ".tsv")
    names = [*columns.rows[0].values]
    if is_table and any("?" in name or _is_number_text(name) or len(name.split()) > 6 for name in names):
        raise ConfigError(
            f"{columns.file}:1: the first line looks like data ({quoted(names[0])}), and a table needs one with the "
            "names of its columns; put it above, such as question,A,B,C,D,answer"
        )


def _require_one_split(columns: _Columns) -> None:
    """Raise ConfigError where a column says which split a row belongs to."""
    for name in columns.called(SPLITS, _is_text):
        counts = Counter(str(value) for value in columns.present(name))
        if len(counts) > 1 and all(value.lower() in PORTION_OF_STEM for value in counts):
            sizes = ", ".join(f"{value} {n}" for value, n in counts.items())
            files = " ".join(f"{value.lower()}.jsonl" for value in counts)
            raise ConfigError(
                f"{columns.file}: column {name!r} divides the rows into splits ({sizes}), which a file holds one of; "
                f"write the rows of each into a file of its own and give all: {files}"
            )


def _columns_of(question: str, template: str) -> str:
    """The columns of a prompt, for the table of what was detected."""
    names = [name for name in template_fields(template) if name != "options"]
    return f"column{'s' if len(names) > 1 else ''} {', '.join(map(repr, names))}" if question else "your prompt"


def _answer_columns(columns: _Columns, question: str) -> list[str]:
    has_b = any(_key(name) == "b" for name in columns.names)  # then A is an option
    names = ANSWERS if has_b else (*ANSWERS, "a")
    return [name for name in columns.called(names, lambda value: not isinstance(value, bytes)) if name != question]


def _choice_forms(
    columns: _Columns,
    question: str,
    template: str,
    answers: Sequence[str],
    hints: ColumnHints,
    problems: list[ConfigError],
) -> Iterator[_Form]:
    """Forms of multiple choice that every row can be read in; problems: why others were not."""
    prompt = template if "{options}" in template else f"{template}\n{{options}}\n{LETTER}"
    for options, own_answer in _option_columns(columns, question, answers):
        for answer in [own_answer] if own_answer is not None and hints.answer is None else answers:
            keys = {
                "prompt": prompt,
                "options": options,
                "answer": answer,
                "scorer": "choice",
                "sampling": {"temperature": 0.0, "max_tokens": 1024},
            }
            detected = {
                "question": _columns_of(question, template),
                "options": options if isinstance(options, str) else ", ".join(options),
                "answer": f"column {answer!r}",
                "scorer": "choice: the letter of the right option",
            }
            readings = [hints.option_by] if hints.option_by is not None else [None, *OptionBy]
            references = {by: letters for by in readings if (letters := _letters(keys, by, columns.rows)) is not None}
            if None in references or len(set(references.values())) == 1:
                by = next(iter(references))
                yield _Form(_with_reading(keys, by), detected | _reading_note(by, answer))
            elif references:
                raise ConfigError(
                    f"{columns.file}: the numbers in {answer!r} can be read as {' or '.join(map(str, references))}; "
                    "say which with --option-by"
                )
            elif options != "answers":  # which may also be a list of accepted answers
                problems += _problem(keys, hints.option_by, columns.rows)


def _with_reading(keys: Mapping[str, Any], by: OptionBy | None) -> dict[str, Any]:
    return {**keys, "answer": keys["answer"] if by is None else {"field": keys["answer"], "option_by": by.value}}


def _reading_note(by: OptionBy | None, answer: str) -> dict[str, str]:
    if by not in (OptionBy.PLACE_FROM_0, OptionBy.PLACE_FROM_1):
        return {}
    return {"answer": f"column {answer!r}, a place counted from {by.value[-1]}: the data rule out another reading"}


def _option_columns(
    columns: _Columns, question: str, answers: Sequence[str]
) -> Iterator[tuple[str | list[str], str | None]]:
    """Columns that may be the options, and the answer that is one of them."""
    for name in columns.called(OPTIONS, _is_options):
        labels = [f"{prefix}labels" for prefix in (name.rpartition(".")[0] + ".", "") if prefix != "."]
        marked = next((label for label in labels if label in columns.names), None)
        if marked is not None and all(map(_is_list, map(_parsed, columns.present(marked)))):
            yield name, marked
        if name not in answers[:1]:
            yield name, None
    plain = [name for name in columns.names if name != question and all(map(_is_plain, columns.present(name)))]
    spaced = {name: re.sub(r"[^a-z0-9]+", " ", name.lower()).strip() for name in columns.names}
    right = [name for name in plain if RIGHT.fullmatch(spaced[name])]
    # the wrong ones each in a column, or all in a list; a text that holds several cannot be divided
    wrong = [
        name
        for name in columns.names
        if WRONG.fullmatch(spaced[name])
        and ((name in plain and not spaced[name].endswith("s")) or all(map(_is_list, columns.present(name))))
    ]
    if len(right) == 1 and wrong:
        yield [right[0], *wrong], right[0]
    groups: dict[str, list[tuple[str, str]]] = {}
    for name in plain:
        if match := LETTERED.fullmatch(name):
            groups.setdefault(match[1], []).append((match[2], name))
    for members in groups.values():
        marks = [mark for mark, _ in members]
        first = marks[0].upper()
        if len(members) > 1 and first in "A01" and marks == [chr(ord(marks[0]) + k) for k in range(len(marks))]:
            yield [name for _, name in members], None


def _asked_chat_form(columns: _Columns, chat: str, chats: Sequence[ReadChat], hints: ColumnHints) -> _Form | None:
    """The form of chats that end with the user, as RL data sets have them: the answer is in another column."""
    answer = hints.answer or next(iter(columns.called(ANSWERS, lambda value: not isinstance(value, bytes))), None)
    if answer is None:
        return None
    form = _answer_form(columns, chat, "", answer, hints)
    keys = {"chat": {"messages": chat}, **{name: value for name, value in form.keys.items() if name != "prompt"}}
    detected = {**form.detected, "chat": f"column {chat!r}"}
    if keys["scorer"] == "final_answer" and not all(MARKER.strip() in part.text for part in chats):
        # Nothing in the chat asks for the line that final_answer reads.
        keys["scorer"] = "math_answer"
        if isinstance(keys["answer"], dict):
            keys["answer"] = {"field": answer, "form": "\\boxed{{{answer}}}"}
        detected["scorer"] = "math_answer: the number or expression that an answer ends with"
    del detected["question"]
    return _Form(keys, detected)


def _require_options_everywhere(columns: _Columns) -> None:
    """Refuse a column that holds options in most rows only; without them the answer's letter means nothing."""
    for name in columns.called([name for name in OPTIONS if name != "answers"], lambda value: True):
        rows = [row for row in columns.rows if not _is_options(row.get(name))]
        if 0 < len(rows) < len(columns.rows) / 2:
            raise ConfigError(
                f"{rows[0].where}: column {name!r} holds {quoted(rows[0].get(name))}, which is no list of options, in "
                f"{len(rows)} of {len(columns.rows)} rows, this one first; complete these rows or leave them out"
            )


def _is_options(value: object) -> bool:
    value = _parsed(value)
    if isinstance(value, Mapping):
        value = value.get("text")
    if isinstance(value, str):
        value = options_in_text(value)
    return isinstance(value, list) and len(value) > 1 and not any(isinstance(part, list) for part in value)


def _answer_form(columns: _Columns, question: str, template: str, answer: str, hints: ColumnHints) -> _Form:
    """The form of questions with an answer in words or numbers."""
    values = columns.present(answer)
    texts = [accepted_answers(value) for value in values]
    firsts = [accepted[0] for accepted in texts if accepted]
    detected = {"question": _columns_of(question, template), "answer": f"column {answer!r}"}
    is_own_prompt = hints.prompt is not None and "{" in hints.prompt
    classes = sorted(set(firsts))
    is_classes = 1 < len(classes) <= MAX_CLASSES and len(firsts) >= MANY_PER_CLASS * len(classes)
    is_numbers = all(PLAIN_NUMBER.fullmatch(text.strip()) and any(map(str.isdigit, text)) for text in firsts)
    keys: dict[str, Any] = {"prompt": template, "answer": answer}
    if all(MARKER in text for text in firsts):
        keys["scorer"], reason, ask, max_tokens = "final_answer", "final_answer: the number behind ####", NUMBER, 1024
    elif is_numbers and _key(answer) in ("label", "class", "target") and is_classes and not is_own_prompt:
        raise ConfigError(
            f"{columns.file}: column {answer!r} holds the numbers {', '.join(classes)}, and nothing says what they "
            "mean; say it in the prompt: --prompt '{COLUMN} Answer with 0 for ..., 1 for ...'"
        )
    elif is_numbers and not (is_classes and is_own_prompt):
        keys["answer"] = {"field": answer, "form": f"{MARKER}{{answer}}"}
        keys["scorer"], reason, ask, max_tokens = "final_answer", "final_answer: all answers are numbers", NUMBER, 1024
    elif sum("\\" in text for text in firsts) > LATEX_SHARE * len(firsts):
        if not all("\\boxed" in text for text in firsts):
            keys["answer"] = {"field": answer, "form": "\\boxed{{{answer}}}"}
        keys["scorer"], reason, ask, max_tokens = "math_answer", "math_answer: answers are expressions", BOX, 1024
    elif is_classes:
        ask = f"Answer with one of: {', '.join(classes)}."
        keys["scorer"], max_tokens = {"name": "exact", "plain": True}, 64
        reason = f"exact: one of {len(classes)} different answers"
    else:
        keys["scorer"], reason = _scorer_of_texts(firsts)
        ask, max_tokens = ("", 1024) if keys["scorer"] == "token_f1" else (SHORT_ANSWER, 128)
    if ask and not is_own_prompt:
        keys["prompt"] = f"{template}\n{ask}"
    n_accepted = sum(len(accepted) > 1 for accepted in texts)
    if n_accepted:
        detected["answer"] += f", several accepted in {n_accepted} rows"
    keys["sampling"] = {"temperature": 0.0, "max_tokens": max_tokens}
    return _Form(keys, {**detected, "scorer": reason})


def _scorer_of_texts(texts: Sequence[str]) -> tuple[str | dict[str, Any], str]:
    """The scorer of answers in words, and what it does."""
    if texts and median(map(len, texts)) > SHORT_CHARACTERS:
        return "token_f1", "token_f1: words in common; long answers are better compared by a judge (docs/judges.md)"
    return {"name": "exact", "plain": True}, "exact: an accepted answer; case, punctuation and articles do not count"


def _portions(n_rows: Mapping[Path, int], n_needed: int) -> dict[Portion, Path]:
    """Which file is which. A file that would be divided too finely to decide is not."""
    portions: dict[Portion, Path] = {}
    for file, n in n_rows.items():
        stem = file.name.partition(".")[0].lower()
        portion = PORTION_OF_STEM.get(re.split(r"[-_ ]", stem)[-1], PORTION_OF_STEM.get(re.split(r"[-_ ]", stem)[0]))
        if portion is None or (len(n_rows) == 1 and portion is not Portion.TEST):
            portion = Portion.ALL if len(n_rows) == 1 and n >= 6 * n_needed else Portion.TEST
        if portion is Portion.TEST and n < 2 * n_needed:
            portion = Portion.TEST_PUBLIC
        if portion in portions:
            raise ConfigError(
                f"{file}: {portions[portion].name} is also {portion.value}; name files after their splits (train, dev, "
                "test), or give one"
            )
        portions[portion] = file
    return portions


def _reader(keys: Mapping[str, Any]) -> tuple[DataSpec, QuestionReader]:
    """The reader of a file with these keys. Raises ConfigError."""
    spec = parse_yaml(_written({"name": "draft", "version": "1", "files": {"all": "x"}, **keys}), DataSpec, "draft")
    return spec, QuestionReader(spec, load_scorer(spec.scorer.name, spec.scorer.settings), lambda *key: "draft")


def _read(keys: Mapping[str, Any], rows: Sequence[Row]) -> list[Question]:
    """Rows as questions of a file with these keys. Raises ConfigError."""
    spec, reader = _reader(keys)
    return distinct(reader.questions(rows), spec)


def _letters(keys: Mapping[str, Any], by: OptionBy | None, rows: Sequence[Row]) -> tuple[str | None, ...] | None:
    """The right letter of each row; None where rows cannot be read so."""
    if _problem(keys, by, rows[:PROBED]) or _problem(keys, by, rows):
        return None
    return tuple(question.reference for question in _reader(_with_reading(keys, by))[1].questions(rows))


def _problem(keys: Mapping[str, Any], by: OptionBy | None, rows: Sequence[Row]) -> list[ConfigError]:
    """Why rows cannot be read so, alone in a list. Repeats are another matter."""
    try:
        _reader(_with_reading(keys, by))[1].questions(rows)
    except ConfigError as error:
        return [error]
    return []


def _without_repeats(form: _Form, rows_by_portion: Sequence[Sequence[Row]]) -> tuple[_Form, list[Question]]:
    """The form with `repeats: drop` where rows repeat others, and the questions. Raises ConfigError."""
    try:
        return form, [question for rows in rows_by_portion for question in _read(form.keys, rows)]
    except ConfigError as error:
        if "asks the same as" not in str(error):
            raise
    keys = {**form.keys, "repeats": "drop"}
    questions = [question for rows in rows_by_portion for question in _read(keys, rows)]
    n_dropped = sum(map(len, rows_by_portion)) - len(questions)
    return _Form(keys, {**form.detected, "repeats": f"{n_dropped} rows repeat others and are left out"}), questions


def _shuffled_where_needed(form: _Form, questions: Sequence[Question]) -> _Form:
    """The form with `shuffle: true` where the right option is in one place too often."""
    if not isinstance(form.keys.get("options"), str):
        return form
    counts = Counter(question.reference for question in questions)
    letter, n = counts.most_common(1)[0]
    chance = sum(1 / len(question.payload["options"]) for question in questions) / len(questions)
    if len(questions) < 20 or n / len(questions) < chance + 0.15:
        return form
    note = f"by a hash, because {letter} is right in {100 * n / len(questions):.0f}% of the rows"
    return replace(form, keys={**form.keys, "shuffle": True}, detected={**form.detected, "shuffle": note})


def _written(record: Mapping[str, Any]) -> str:
    """A record as YAML, in its order, records inside on one line."""
    lines = []
    for key, value in record.items():
        if isinstance(value, str) and "\n" in value:
            lines += [f"{key}: |-", *(f"  {line}" for line in value.splitlines())]
        else:
            flow = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, allow_unicode=True, width=10_000)
            lines.append(f"{key}: {flow.removesuffix(chr(10)).removesuffix(f'{chr(10)}...')}")
    return "\n".join(lines) + "\n"
