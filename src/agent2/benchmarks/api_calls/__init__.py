"""API-Bank and ACEBench: the next function call of a dialogue, from official files, scored by syntax.

Each is a YAML file beside this module; what is here makes prompts and expected calls of the published rows. An item's
kind (`task_type`) is the level of API-Bank, or the category of ACEBench. Nothing is called.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agent2.benchmarks.data_files import Row, read_rows
from agent2.benchmarks.declaration import Portion
from agent2.benchmarks.home import Players, foreign_answers, reference_answer
from agent2.benchmarks.official import KIND, OfficialBenchmark, with_values
from agent2.benchmarks.questions import Question
from agent2.errors import ConfigError
from agent2.llm.call_code import CodeLanguage, NotCalls
from agent2.records import Item
from agent2.scorers.matching_calls import read_request

HOME = Path(__file__).parent
NO_CALL = "None of the functions can be used."
IRRELEVANT = "special_irrelevant"
ANSWERS = "possible_answer"
"""Folder of ACEBench's answers, beside the questions."""
REQUEST = "API-Request:"
SYSTEM = """You choose functions for a user. Read the conversation and the functions, and answer with the calls \
that the last message asks for, and nothing else, in this form:
[name(argument='value', other=1), second_name(argument=True)]
Values are Python literals. If no function fits, say so in words and make no call.{time}{profile}

Functions:
{functions}"""
TYPES: Mapping[str, str] = {
    **dict.fromkeys(("str", "string", "date", "time"), "string"),
    **dict.fromkeys(("int", "integer"), "integer"),
    **dict.fromkeys(("float", "number"), "number"),
    **dict.fromkeys(("bool", "boolean"), "boolean"),
    **dict.fromkeys(("list", "array"), "array"),
    **dict.fromkeys(("dict", "object"), "object"),
}
"""Declared type -> that of JSON schema."""
FLOOR_AT_MOST = 0.1
"""Share of ACEBench's items that ask for no call, 0.06, and some room for small files."""
_NUMBERED = re.compile(r"_\d+$")


class _Calls(OfficialBenchmark):
    """What both share."""

    def players(self) -> Players:
        """A gold answer, that of another item, and gold answers with one mistake, which must be rejected."""
        return Players(
            reference_answer,
            foreign_answers,
            floor_at_most=FLOOR_AT_MOST,
            known_wrong=wrong_answers,
            detection_at_least=1.0,
        )


class ApiBank(_Calls):
    """The published requests of levels 1 and 2."""

    def __init__(self, data: Path | None = None) -> None:
        """data: folder with the official files."""
        super().__init__(HOME / "api_bank.yaml", data=data)

    def prepared(self, rows: list[Row]) -> list[Row]:
        """With the chat, the functions and the calls that are expected."""
        return [self._prepared(row) for row in rows]

    @staticmethod
    def _prepared(row: Row) -> Row:
        values = row.values
        instruction, dialogue = str(values.get("instruction") or ""), str(values.get("input") or "")
        expected = str(values.get("expected_output") or "").strip()
        tools = [_tool(function, "input_parameters") for function in _described(instruction)]
        return with_values(
            row,
            expected_calls=_written_calls(expected.removeprefix(REQUEST).strip()),
            messages=[{"role": "user", "content": dialogue.strip()}],
            system=instruction.strip(),
            tools=tools,
            language=CodeLanguage.PYTHON.value,
            number=f"{row.file.stem}-{row.number - 1}",
            **{KIND: row.file.stem},
        )


class AceBench(_Calls):
    """The published calls of the normal categories, and of irrelevant functions where that file is there."""

    def __init__(self, data: Path | None = None) -> None:
        """data: folder with the official files."""
        super().__init__(HOME / "acebench.yaml", data=data)

    def prepared(self, rows: list[Row]) -> list[Row]:
        """With the chat, the functions and the calls that are expected. Raises ConfigError without answers."""
        files = list(dict.fromkeys(row.file for row in rows))
        irrelevant = files[0].with_name(f"data_{IRRELEVANT}.json") if files else None
        if irrelevant is not None and irrelevant.is_file():
            rows = [*rows, *read_rows(irrelevant)]
            files.append(irrelevant)
        gold: dict[tuple[Path, str], Any] = {}
        for file in files:
            answers = file.parent / ANSWERS / file.name
            if not answers.is_file():
                source = self.official_file(Portion.TEST).source
                raise ConfigError(f"{answers}: is missing; take {ANSWERS} with the questions from {source}")
            gold |= {(file, str(row.values.get("id"))): row.values.get("ground_truth") for row in read_rows(answers)}
        return [self._prepared(row, gold.get((row.file, str(row.values.get("id"))))) for row in rows]

    def portion_questions(self, portion: Portion, questions: list[Question]) -> list[Question]:
        """In the order of a public hash, so that the first n are a fair sample of all categories."""
        return sorted(questions, key=lambda question: self._hash(b"", "sample", question))

    @staticmethod
    def _prepared(row: Row, truth: object) -> Row:
        values = row.values
        functions = [part for part in values.get("function") or () if isinstance(part, Mapping)]
        category = row.file.stem.removeprefix("data_")
        expected: list[dict[str, Any]] | None = [] if category == IRRELEVANT else None
        if expected is None and isinstance(truth, Mapping):
            names = {str(function.get("name")) for function in functions}
            expected = [_expected(str(name), arguments, names) for name, arguments in truth.items()]
        elif expected is None and isinstance(truth, list):
            names = {str(function.get("name")) for function in functions}
            entries = [pair for part in truth if isinstance(part, Mapping) for pair in part.items()]
            expected = [_expected(str(name), arguments, names) for name, arguments in entries]
        time, profile = values.get("time"), values.get("profile")
        question = str(values.get("question") or "").strip()
        system = SYSTEM.format(
            functions=json.dumps(functions, ensure_ascii=False, indent=1),
            time=f"\nThe present time: {time}" if time else "",
            profile=f"\nThe user's profile: {json.dumps(profile, ensure_ascii=False)}" if profile else "",
        )
        text = json.dumps([category, question, time, profile, functions], ensure_ascii=False)
        return with_values(
            row,
            expected_calls=expected,
            gold=None if expected is None else written(expected),
            text=text,
            messages=[{"role": "user", "content": question}],
            system=system,
            tools=[
                _tool(function, "parameters" if "parameters" in function else "arguments") for function in functions
            ],
            language=CodeLanguage.PYTHON.value,
            **{KIND: category},
        )


def _expected(name: str, arguments: object, names: set[str]) -> dict[str, Any]:
    """A call that is expected. Several calls of one function have numbers behind its name, which are taken off."""
    function_name = name if name in names else _NUMBERED.sub("", name)
    return {"name": function_name, "arguments": dict(arguments) if isinstance(arguments, Mapping) else {}}


def _described(instruction: str) -> list[Mapping[str, Any]]:
    """The functions that an instruction of API-Bank describes, one JSON object a line."""
    described = []
    for line in instruction.split("\n"):
        try:
            value = json.loads(line) if line.strip().startswith("{") else None
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, Mapping) and isinstance(value.get("name"), str):
            described.append(value)
    return described


def _tool(function: Mapping[str, Any], key: str) -> dict[str, Any]:
    """A function as chat-completion servers take it, with underscores for the dots of its name."""
    declared = function.get(key)
    if isinstance(declared, Mapping) and not isinstance(declared.get("properties"), Mapping):
        declared = {"type": "object", "properties": declared, "required": list(declared)}
    schema = {
        "name": str(function.get("name")).replace(".", "_"),
        "description": str(function.get("description") or ""),
        "parameters": _schema(declared if isinstance(declared, Mapping) else {"type": "object", "properties": {}}),
    }
    return {"type": "function", "function": schema}


def _schema(declared: Any) -> Any:
    """A declared type as JSON schema."""
    if not isinstance(declared, Mapping):
        return declared
    schema = dict(declared)
    if isinstance(declared.get("type"), str):
        schema["type"] = TYPES.get(declared["type"], declared["type"])
    if isinstance(declared.get("properties"), Mapping):
        schema["properties"] = {name: _schema(part) for name, part in declared["properties"].items()}
    if "items" in declared:
        schema["items"] = _schema(declared["items"])
    return schema


def _written_calls(text: str) -> list[dict[str, Any]] | None:
    """Calls that are written as code; None where they cannot be read."""
    try:
        calls = read_request(text)
    except NotCalls:
        return None
    return [{"name": call.name, "arguments": dict(call.arguments)} for call in calls] or None


def written(calls: Sequence[Mapping[str, Any]]) -> str:
    """Calls as code; words where there are none."""
    if not calls:
        return NO_CALL
    texts = (
        f"{call['name']}({', '.join(f'{name}={value!r}' for name, value in call['arguments'].items())})"
        for call in calls
    )
    return f"[{', '.join(texts)}]"


def wrong_answers(item: Item) -> list[str]:
    """The right calls with one mistake each."""
    calls: Sequence[Mapping[str, Any]] = item.payload["expected_calls"]
    if not calls:
        return ["[a_call_that_is_not_asked_for(value=1)]"]
    first, others = calls[0], list(calls[1:])
    mistaken: list[list[Mapping[str, Any]]] = [
        others,
        [*calls, first],
        [{**first, "name": f"{first['name']}_other"}, *others],
        [{**first, "arguments": {**first["arguments"], "unasked": 1}}, *others],
    ]
    if first["arguments"]:
        name = next(iter(first["arguments"]))
        changed = {**first["arguments"], name: "another value"}
        without = {key: value for key, value in first["arguments"].items() if key != name}
        mistaken += [[{**first, "arguments": arguments}, *others] for arguments in (changed, without)]
    return [written(part) for part in mistaken]
