"""Values that a cell holds as text: JSON, or what Python and numpy print, as in CSV files that pandas wrote.

    ["a", "b"]                                           JSON
    {'text': ['a', 'b'], 'label': ['A', 'B']}            Python
    {'text': array(['a', 'b'], dtype=object)}            numpy arrays in a value: rows of Hugging Face data sets

Nothing is run: lists, tuples, dictionaries, texts, numbers, None, nan and arrays of these are read, everything else is
no value. Two texts without a comma between them, which Python would join, are none either.
"""

import ast
import json
import math
import re
import warnings
from collections.abc import Callable

from agent2.records import JsonValue
from agent2.syntax import parse_expression

MAX_CHARS = 1 << 20
_OPENINGS = ("[", "{", "array(")
_TEXT = re.compile(r"""[bru]*('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""", re.DOTALL)
_NAMES = {"nan": math.nan, "NaN": math.nan, "None": None, "null": None, "true": True, "false": False}


def parse_printed(text: str) -> JsonValue:
    """The value that a text shows. Raises ValueError if it shows none."""
    start = text.strip()
    if not start.startswith(_OPENINGS) or len(start) > MAX_CHARS:
        raise ValueError("no list, record or array")
    try:
        return json.loads(start)
    except (ValueError, RecursionError):
        pass  # as Python prints it
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # of text that is no Python at all
            tree = parse_expression(start)
        return _value(tree, lambda node: ast.get_source_segment(start, node) or "")
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"not a value that Python prints ({error})") from error


def with_arrays_read(text: str) -> JsonValue:
    """The value of a cell that shows arrays of texts, as pandas writes rows of Hugging Face data sets, or its text."""
    if "dtype=object" not in text:
        return text
    try:
        return parse_printed(text)
    except ValueError:
        return text


def _value(node: ast.expr, source_of: Callable[[ast.expr], str]) -> JsonValue:
    match node:
        case ast.Constant(value=str() as text):
            if _TEXT.fullmatch(source_of(node)) is None:
                raise ValueError("two texts without a comma between them")
            return text
        case ast.Constant(value=bool() | int() | float() | None as number):
            return number
        case ast.Name(id=name) if name in _NAMES:
            return _NAMES[name]
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return -number
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return [_value(part, source_of) for part in parts]
        case ast.Dict(keys=keys, values=values):
            names = [None if key is None else _value(key, source_of) for key in keys]
            if not all(isinstance(name, str) for name in names):
                raise ValueError("a key that is no text")
            return {str(name): _value(value, source_of) for name, value in zip(names, values, strict=True)}
        case ast.Call(func=ast.Name(id="array"), args=[ast.List() as content], keywords=keywords):
            if any(keyword.arg not in ("dtype", "shape") for keyword in keywords):
                raise ValueError("an array with other arguments than its type")
            return _value(content, source_of)
    raise ValueError(f"{type(node).__name__} is no part of a value")
