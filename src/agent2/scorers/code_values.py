"""What the text of a value in Java or JavaScript means under a declared type, and values written as such text.

The types and the forms of their literals are those of BFCL (Patil et al. 2025): `5L` is a long and `5` is none, a float
ends in `f`, a list is `new T[]{...}`, `new ArrayList<>(Arrays.asList(...))` or `[...]`, a map is `new HashMap<>() {{
put("k", v); }}` or `{k: v}` in one line. What is no literal of its type keeps its text, as a variable has it. Two right
literals that BFCL's own conversion rejects are read here: quoted parts of a Java array, and the map after a `new` that
its reader cuts off (docs/bfcl.md lists what differs).
Does NOT read lists within lists beyond two levels, or commas within the texts of a list.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agent2.llm.call_code import CodeLanguage
from agent2.records import JsonValue

MAX_NUMBER = 4000
"""Characters; Python reads no longer whole number."""
_WHOLE, _FLOAT = r"-?\d+", r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?"
_JAVA_NUMBERS: Mapping[str, tuple[str, type]] = {
    "byte": (rf"({_WHOLE})", int),
    "short": (rf"({_WHOLE})", int),
    "integer": (rf"({_WHOLE})", int),
    "long": (rf"({_WHOLE})[lL]", int),
    "float": (rf"({_FLOAT})[fF]", float),
    "double": (rf"({_FLOAT})", float),
}
_SCRIPT_NUMBERS: Mapping[str, tuple[str, type]] = {
    "integer": (rf"({_WHOLE})", int),
    "Bigint": (rf"({_WHOLE})n", int),
    "float": (r"(-?\d+(?:\.\d+)?)", float),
}
_JAVA_ARRAY = re.compile(r"new\s+[\w.]+\s*\[\]\s*\{(.*?)\}", re.DOTALL)
_JAVA_AS_LIST = re.compile(r"new\s+ArrayList\s*<\w*>\s*\(\s*(?:Arrays\.asList|List\.of)\s*\((.*)\)\s*\)", re.DOTALL)
_JAVA_ADDED = re.compile(r"new\s+ArrayList\s*<\w*>\s*\(\)\s*\{\s*\{(.*)\}\s*\}", re.DOTALL)
_JAVA_EMPTY_LIST = re.compile(r"new\s+ArrayList\s*<\w*>\s*\(\)")
_JAVA_MAP = re.compile(r"new\s+HashMap\s*<.*?>\s*\(\)", re.DOTALL)
_ADD = re.compile(r"\badd\(([^()]*(?:\([^()]*\))?[^()]*)\)")
_PUT = re.compile(r'\bput\(\s*"([^"]*)",\s*([^()]*(?:\([^()]*\))?[^()]*)\)')
_SCRIPT_LIST = re.compile(r"\[(.*?)\]|new\s+Array\((.*?)\)")
_SCRIPT_ROWS = re.compile(r"\[\s*\[|new\s+Array\(\s*\[")
_SCRIPT_OBJECT = re.compile(r"\{(.*?)\}")


def code_value(text: str, kind: str, part_kind: str | None, language: CodeLanguage) -> Any:
    """The value of a text of the declared type; the text itself where it is no literal of it.

    part_kind: declared type of the parts of a list.
    """
    if language is CodeLanguage.JAVA:
        return _java_value(text, kind, part_kind)
    return _script_value(text, kind, part_kind)


def _number(text: str, kind: str, forms: Mapping[str, tuple[str, type]]) -> Any:
    """A number of a declared type; else the text, as for one with thousands of digits."""
    pattern, number = forms[kind]
    match = re.fullmatch(pattern, text)
    return text if match is None or len(text) > MAX_NUMBER else number(match[1])


def _java_value(text: str, kind: str, part_kind: str | None) -> Any:
    if kind in _JAVA_NUMBERS:
        return _number(text, kind, _JAVA_NUMBERS)
    if kind == "boolean":
        return {"true": True, "false": False}.get(text, text)
    if kind == "Array":
        match = _JAVA_ARRAY.search(text)
        return text if match is None else _java_parts(match[1].split(","), part_kind)
    if kind == "ArrayList":
        if (match := _JAVA_AS_LIST.search(text)) is not None:
            return _java_parts(match[1].split(","), part_kind)
        if (match := _JAVA_ADDED.search(text)) is not None:
            return _java_parts(_ADD.findall(match[1]), part_kind)
        return [] if _JAVA_EMPTY_LIST.search(text) else text
    if kind == "HashMap":
        match = _JAVA_MAP.search(text)
        if match is None:
            return text
        return {name: _plain_value(part.strip()) for name, part in _PUT.findall(text[match.end() :])}
    return text


def _java_parts(texts: Iterable[str], kind: str | None) -> list[Any]:
    parts = [text.strip() for text in texts if text.strip()]
    if kind in ("any", "char", "String"):
        return [_without_quotes(part) for part in parts]
    return [_plain_value(part) if kind is None else _java_value(part, kind, None) for part in parts]


def _script_value(text: str, kind: str, part_kind: str | None) -> Any:
    if kind in _SCRIPT_NUMBERS:
        return _number(text, kind, _SCRIPT_NUMBERS)
    if kind == "String":
        return _without_quotes(text)
    if kind == "Boolean":
        return {"true": True, "false": False}.get(text, text)
    if kind == "array":
        return _script_list(text.strip(), part_kind)
    if kind == "dict":
        return _script_object(text.strip())
    return text


def _script_list(text: str, kind: str | None) -> Any:
    if _SCRIPT_ROWS.match(text):
        rows = re.findall(r"\[([^\[\]]*)\]", text)
        return [[_plain_value(part.strip()) for part in row.split(",")] for row in rows]
    match = _SCRIPT_LIST.match(text)
    if match is None:
        return text
    parts = [part.strip() for part in (match[1] if match[1] is not None else match[2]).split(",")]
    if parts == [""]:
        return []
    return [_plain_value(part) if kind is None else _script_value(part, kind, None) for part in parts]


def _script_object(text: str) -> Any:
    """The object of a text in one line: a comma begins a new pair where a name and a colon follow it."""
    if text == "{}":
        return {}
    match = _SCRIPT_OBJECT.match(text)
    if match is None:
        return text
    pairs = list[str]()
    for piece in match[1].split(","):
        if pairs and piece.find(":") < 1:
            pairs[-1] += f",{piece}"
        else:
            pairs.append(piece)
    named = [pair.split(":", 1) for pair in pairs if ":" in pair]
    return {name.strip().strip("'\""): _script_member(value.strip()) for name, value in named}


def _script_member(text: str) -> Any:
    if text.startswith("[") and text.endswith("]"):
        return _script_list(text, None)
    return _plain_value(text.strip("'\""))


def _plain_value(text: str) -> Any:
    """A value of no declared type."""
    if text in ("true", "false"):
        return text == "true"
    if (bare := _without_quotes(text)) != text:
        return bare
    for pattern, number in (*_JAVA_NUMBERS.values(), *_SCRIPT_NUMBERS.values()):
        if len(text) <= MAX_NUMBER and (match := re.fullmatch(pattern, text)) is not None:
            return number(match[1])
    return text


def _without_quotes(text: str) -> str:
    is_quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
    return text[1:-1] if is_quoted else text


def write_value(value: JsonValue, language: CodeLanguage, kind: str = "", part_kind: str | None = None) -> str:
    """A value as a call in this language has it. kind: declared type of Java and JavaScript."""
    if language is CodeLanguage.PYTHON:
        return repr(value)
    is_java = language is CodeLanguage.JAVA
    if isinstance(value, str):
        return (
            value
            if '"' in value or (kind not in ("String", "any", "char", "") and kind[:1].islower())
            else f'"{value}"'
        )
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, int | float):
        suffixes = {"long": "L", "float": "f"} if is_java else {"Bigint": "n"}
        return f"{value}{suffixes.get(kind, '')}"
    if isinstance(value, dict):
        return _write_object(value, language)
    parts = ", ".join(write_value(part, language, part_kind or "") for part in value)
    if not is_java:
        return f"[{parts}]"
    return f"new ArrayList<>(Arrays.asList({parts}))" if kind == "ArrayList" else f"new Object[]{{{parts}}}"


def _write_object(value: Mapping[str, JsonValue], language: CodeLanguage) -> str:
    members: Sequence[tuple[str, str]] = [(name, write_value(part, language)) for name, part in value.items()]
    if language is CodeLanguage.JAVASCRIPT:
        return f"{{{', '.join(f'{name}: {part}' for name, part in members)}}}"
    puts = " ".join(f'put("{name}", {part});' for name, part in members)
    return f"new HashMap<String, Object>() {{{{ {puts} }}}}"
