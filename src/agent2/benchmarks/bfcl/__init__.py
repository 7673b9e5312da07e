"""The Berkeley Function-Calling Leaderboard, versions 3 and 4: the single-turn categories, scored by syntax.

Patil et al. 2025. A question comes with one or more functions; right are the calls whose names and arguments are among
the accepted ones (`scorers.typed_calls`), or no call where no function fits. The files are read from the wheel of a
package, which is opened as an archive, or from a folder; the version carries a digest of the files that were read.

Splits: BFCL has no train set. Six items that no answer can pass and three that repeat another one are not played; they
are scored where stored answers to the whole published set are (`agent2 score`). In the order of a public hash of the
id, so that the first n items are a fair sample of all categories, every tenth is dev and the others are halved under
the installation secret.

What a score does NOT cover: the multi-turn categories, which are behind a bridge (`bfcl:multi_turn_base`,
`benchmarks.bridges.episodes`), memory and web search; the executable categories of version 3, which version 4 has
dropped; the sensitivity to other prompt formats. The score is the share of all items, and the leaderboard's overall
figure is a mean of groups: the views `items_CATEGORY` and `right_CATEGORY` give each category's rate. A model that
never calls gets about 31%, since so many items ask for no call.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from agent2.benchmarks.bfcl.data import ANSWERS, Entry, OfficialFiles, Wording, read_category, read_wording
from agent2.benchmarks.data_files import Row
from agent2.benchmarks.declaration import Portion
from agent2.benchmarks.declared import DeclaredBenchmark
from agent2.benchmarks.home import Players, foreign_answers, reference_answer
from agent2.benchmarks.questions import Question, distinct
from agent2.errors import ConfigError
from agent2.llm.call_code import CodeLanguage, NotCalls, read_code_calls
from agent2.records import Item, JsonValue, Split, digest_of
from agent2.scorers.code_values import write_value
from agent2.scorers.typed_calls import OPTIONAL, CallRule, problems_of

HOME = Path(__file__).parent
NO_CALL = "None of the functions can be used."
JSON_TYPES: Mapping[str, str] = {
    **dict.fromkeys(("integer", "byte", "short", "long", "Bigint"), "integer"),
    **dict.fromkeys(("float", "number", "double"), "number"),
    **dict.fromkeys(("string", "any", "Any", "String", "char"), "string"),
    **dict.fromkeys(("boolean", "bool", "Boolean"), "boolean"),
    **dict.fromkeys(("array", "list", "tuple", "ArrayList", "Array", "Queue", "Stack", "Set"), "array"),
    **dict.fromkeys(("dict", "object", "HashMap", "Hashtable"), "object"),
}
"""Declared type -> that of JSON schema."""
FLOOR_AT_MOST = 0.4
"""Share of items that ask for no call, 0.31 of the published ones, and some room for small files."""


@dataclass(frozen=True, slots=True)
class CallCategory:
    """One file of items that are judged alike."""

    name: str
    rule: CallRule
    language: CodeLanguage = CodeLanguage.PYTHON

    @property
    def has_answers(self) -> bool:
        """Whether there is a file of possible answers."""
        return self.rule in (CallRule.ONE, CallRule.ANY_ORDER)


def _categories(simple: str, java: str, javascript: str) -> tuple[CallCategory, ...]:
    single, any_order = CallRule.ONE, CallRule.ANY_ORDER
    return (
        CallCategory(simple, single),
        CallCategory(java, single, CodeLanguage.JAVA),
        CallCategory(javascript, single, CodeLanguage.JAVASCRIPT),
        CallCategory("multiple", single),
        CallCategory("parallel", any_order),
        CallCategory("parallel_multiple", any_order),
        CallCategory("irrelevance", CallRule.NO_CALL),
        CallCategory("live_simple", single),
        CallCategory("live_multiple", single),
        CallCategory("live_parallel", any_order),
        CallCategory("live_parallel_multiple", any_order),
        CallCategory("live_irrelevance", CallRule.NO_CALL),
        CallCategory("live_relevance", CallRule.SOME_CALL),
    )


class _Bfcl(DeclaredBenchmark):
    """What both versions share."""

    release: ClassVar[str]
    categories: ClassVar[tuple[CallCategory, ...]]

    def __init__(self, data: Path | None = None) -> None:
        """data: a folder of the official files, a folder with the wheel, or the wheel."""
        super().__init__(HOME / f"bfcl_{self.release}.yaml", data=data)

    @property
    def version(self) -> str:
        """That of the reader, with a digest of the files where they are found."""
        try:
            return f"{self._version}+{self.files_digest[:8]}"
        except ConfigError:
            return self._version

    @version.setter
    def version(self, value: str) -> None:
        self._version = value

    @cached_property
    def _files(self) -> OfficialFiles:
        """All files, read. Raises ConfigError."""
        official = self.official_file(Portion.TEST)
        files = OfficialFiles.at(official.folder(self.data), official.names[0], official.source, official.variable)
        for category in self.categories:
            files.read(self._file_of(category))
            if category.has_answers:
                files.read(f"{ANSWERS}/{self._file_of(category)}")
        return files

    @cached_property
    def _wording(self) -> Wording:
        return read_wording(self._files)

    @cached_property
    def files_digest(self) -> str:
        """Of the files that were read and of the wording of the prompt. Raises ConfigError where they are missing."""
        return digest_of([self._files.digests, self._wording.system, dict(self._wording.notes)])

    def _file_of(self, category: CallCategory) -> str:
        return f"BFCL_{self.release}_{category.name}.json"

    def questions_in_file(self, portion: Portion) -> list[Question]:
        """The items of all categories, without the few that repeat another one or have no right answer."""
        return [question for question in distinct(self._all_questions(), self.spec) if _has_right_answer(question)]

    def whole_portion(self, portion: Portion) -> list[Question]:
        """The items of all categories as published, in the order of the files."""
        return distinct(self._all_questions(), self.spec.model_copy(update={"repeats": "refuse"}))

    def portion_questions(self, portion: Portion, questions: list[Question]) -> list[Question]:
        """In the order of a public hash, so that the first n are a fair sample of all categories."""
        return sorted(questions, key=lambda question: self._hash(b"", "sample", question))

    def _all_questions(self) -> list[Question]:
        groups = [category.name for category in self.categories]
        n_rows = Counter[str]()
        questions = []
        for category in self.categories:
            for entry in read_category(self._files, self._file_of(category), has_answers=category.has_answers):
                n_rows[entry.id] += 1  # two rows of version 3 have one id
                item_id = entry.id if n_rows[entry.id] == 1 else f"{entry.id}~{n_rows[entry.id]}"
                questions.append(replace(_question(category, entry, self._wording, groups), id=item_id))
        return questions

    def item_origin(self, split: Split) -> str:
        """How the items of a hidden split were chosen, for reports."""
        return f"drawn from the single-turn categories of {self.release} under the installation secret"

    def players(self) -> Players:
        """A gold answer, that of another item, and gold answers with one mistake, which must be rejected."""
        return Players(
            reference_answer,
            foreign_answers,
            floor_at_most=FLOOR_AT_MOST,
            known_wrong=wrong_answers,
            detection_at_least=1.0,
        )


class BfclV3(_Bfcl):
    """Version 3."""

    release = "v3"
    categories = _categories("simple", "java", "javascript")


class BfclV4(_Bfcl):
    """Version 4, whose single-turn categories are those of version 3 with corrections."""

    release = "v4"
    categories = _categories("simple_python", "simple_java", "simple_javascript")


def _question(category: CallCategory, entry: Entry, wording: Wording, groups: Sequence[str]) -> Question:
    functions = [_shown_function(function, category.language, wording) for function in entry.functions]
    listed = json.dumps(functions, indent=4) if wording.functions_as_json else str(functions)
    chat = "\n\n".join(message["content"] for message in entry.messages)
    payload: dict[str, Any] = {
        "task_type": category.name,
        "groups": list(groups),
        "rule": category.rule.value,
        "language": category.language.value,
        "messages": [{"role": message["role"], "content": message["content"]} for message in entry.messages],
        "system": wording.system.replace("{functions}", listed),
        "tools": [_tool(function) for function in functions],
        "functions": list(entry.functions),
        "possible_answer": None if entry.accepted is None else list(entry.accepted),
    }
    offered = json.dumps(entry.functions, ensure_ascii=False)
    row = Row({"question": chat}, entry.file, entry.line)
    return Question(f"{chat}\n\n{offered}", _gold_answer(category, entry), payload, entry.id, row)


def _has_right_answer(question: Question) -> bool:
    """Whether the gold answer passes; six published items accept what their function does not allow."""
    possible, payload = question.payload["possible_answer"], question.payload
    if possible is None:
        return True
    language = CodeLanguage(payload["language"])
    try:
        calls = read_code_calls(question.reference or "", language)
    except NotCalls:
        return False
    return not any(problems_of(calls, possible, payload["functions"], language))


def _shown_function(function: Mapping[str, Any], language: CodeLanguage, wording: Wording) -> dict[str, Any]:
    """A function as a model sees it: of Java and JavaScript every value is written as text, of a type that is told."""
    parameters = function["parameters"]
    properties = parameters["properties"]
    if language is not CodeLanguage.PYTHON:
        properties = {name: _as_text(declared, language) for name, declared in properties.items()}
    description = function["description"] + wording.notes[language.value]
    return {**function, "description": description, "parameters": {**parameters, "properties": properties}}


def _as_text(declared: Mapping[str, Any], language: CodeLanguage) -> dict[str, Any]:
    kind = str(declared.get("type"))
    name = {"java": "Java", "javascript": "JavaScript"}[language.value]
    parts = (declared.get("items") or {}).get("type")
    note = f" A {name} value of {'any type' if kind == 'any' else f'type {kind}'}, written as text."
    note += f" Its parts have the type {parts}." if parts else ""
    note += f" Its members: {json.dumps(declared['properties'])}." if "properties" in declared else ""
    others = {key: value for key, value in declared.items() if key not in ("items", "properties")}
    return {**others, "type": "string", "description": f"{declared.get('description', '')}{note}"}


def _tool(function: Mapping[str, Any]) -> dict[str, JsonValue]:
    """A function as chat-completion servers take it, with underscores for the dots of its name."""
    schema = {
        "name": function["name"].replace(".", "_"),
        "description": function["description"],
        "parameters": _schema(function["parameters"]),
    }
    return {"type": "function", "function": schema}


def _schema(declared: Any) -> Any:
    """A declared type as JSON schema."""
    if not isinstance(declared, dict):
        return declared
    schema = dict(declared)
    kind = JSON_TYPES.get(str(declared.get("type")), "string")
    schema["type"] = kind
    if isinstance(declared.get("properties"), dict):
        schema["properties"] = {name: _schema(part) for name, part in declared["properties"].items()}
    if "items" in declared or kind == "array":
        schema["items"] = _schema(declared.get("items") or {"type": "any"})
    return schema


def _gold_answer(category: CallCategory, entry: Entry) -> str:
    """A right answer."""
    if category.rule is CallRule.NO_CALL:
        return NO_CALL
    if entry.accepted is None:
        return f"[{entry.functions[0]['name'] if entry.functions else 'call'}()]"
    declared = {function["name"]: function["parameters"] for function in entry.functions}
    calls = [
        written_call(name, gold_arguments(accepted, declared[name]), declared[name], category.language)
        for expected in entry.accepted
        for name, accepted in expected.items()
    ]
    return f"[{', '.join(calls)}]"


def gold_arguments(accepted: Mapping[str, Sequence[Any]], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The first accepted value of each argument that may not be left out."""
    required = parameters.get("required") or ()
    return {
        name: _first(values)
        for name, values in accepted.items()
        if values and (OPTIONAL not in values or name in required)
    }


def _first(values: Sequence[Any]) -> Any:
    """The first accepted value; of an object, that of each key."""
    value = next((candidate for candidate in values if candidate != OPTIONAL), OPTIONAL)
    if isinstance(value, list):
        return [_first([part]) for part in value]
    if isinstance(value, dict):
        members = {name: options if isinstance(options, list) else [options] for name, options in value.items()}
        return {name: _first(options) for name, options in members.items() if OPTIONAL not in options}
    return value


def written_call(name: str, arguments: Mapping[str, Any], parameters: Mapping[str, Any], language: CodeLanguage) -> str:
    """A call in its language."""
    properties = parameters["properties"]
    parts = []
    for key, value in arguments.items():
        declared = properties.get(key) or {}
        part_kind = (declared.get("items") or {}).get("type")
        parts.append(f"{key}={write_value(value, language, str(declared.get('type')), part_kind)}")
    return f"{name}({', '.join(parts)})"


def wrong_answers(item: Item) -> list[str]:
    """The gold answer with one mistake each."""
    rule, accepted = CallRule(item.payload["rule"]), item.payload["possible_answer"]
    if rule is CallRule.NO_CALL:
        return ["[a_call_that_is_not_asked_for(value=1)]"]
    if accepted is None:
        return [NO_CALL, ""]
    language = CodeLanguage(item.payload["language"])
    declared = {function["name"]: function["parameters"] for function in item.payload["functions"]}
    calls = [
        (name, gold_arguments(values, declared[name]), declared[name])
        for entry in accepted
        for name, values in entry.items()
    ]
    return [
        f"[{', '.join(written_call(*call, language) for call in mistaken)}]" for mistaken in mistakes(calls).values()
    ]


Call = tuple[str, dict[str, Any], Mapping[str, Any]]


def mistakes(calls: Sequence[Call]) -> dict[str, list[Call]]:
    """Kind of mistake -> calls that make it in the first one."""
    (name, arguments, parameters), *others = calls
    mistaken: dict[str, list[Call]] = {
        "no call of the first function": list(others),
        "another function": [(f"{name}_other", arguments, parameters), *others],
        "an argument that is not declared": [(name, {**arguments, "surplus_argument": 1}, parameters), *others],
        "a call too many": [*calls, calls[0]],
    }
    for key in [key for key in parameters.get("required") or () if key in arguments][:1]:
        fewer = {argument: value for argument, value in arguments.items() if argument != key}
        mistaken["a required argument missing"] = [(name, fewer, parameters), *others]
    for key, value in list(arguments.items())[:1]:
        mistaken["a wrong value"] = [(name, {**arguments, key: _other_value(value)}, parameters), *others]
        mistaken["a wrong type"] = [(name, {**arguments, key: [[["wrong type"]]]}, parameters), *others]
    return mistaken


def _other_value(value: Any) -> Any:
    """A value of the same type that is no published one."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 987_653
    if isinstance(value, list):
        return [*value, *(value[-1:] or ["another value"])]
    return {**value, "another_key": 1} if isinstance(value, dict) else "none of the accepted values"
