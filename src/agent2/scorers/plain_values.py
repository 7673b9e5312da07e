"""Values that came out of a sandbox as tagged JSON: compared with what is expected, and shown, whatever they hold.

A model's program chooses these values, so nothing here builds them: a set of numbers with one hash, a range of 10^12 or
an integer of 5,000 digits costs no more than its text, and never raises what a caller would not expect.
"""

import json

from agent2.records import JsonValue
from agent2.scorers.program_runner import decode_value, encode_value

MAX_REBUILT = 400
"""Characters of JSON up to which a value is built to be shown; no value of that size is a burden."""


class NotPlainData(ValueError):
    """The text is not what `encode_value` writes."""


def read_tree(text: str) -> JsonValue:
    """The tagged JSON that a program wrote. Raises NotPlainData."""
    try:
        tree: JsonValue = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NotPlainData(str(error)) from error
    return tree


def equals(text: str, expected: object) -> bool:
    """Whether a value equals an expected literal as Python's == says. Raises NotPlainData."""
    try:
        return canonical(read_tree(text)) == canonical(encode_value(expected))
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise NotPlainData(str(error)) from error


def as_number(text: str) -> int | float | None:
    """The value, if it is a number other than a truth value. Raises NotPlainData."""
    match read_tree(text):
        case bool():
            return None
        case int() | float() as number:
            return number
        case ["int", str() as digits]:
            try:
                return int(digits, 16)
            except ValueError as error:
                raise NotPlainData(str(error)) from error
    return None


def canonical(tree: JsonValue) -> str:
    """A text that two trees share exactly if their values are equal; takes no longer than sorting what they hold.

    Raises ValueError, TypeError, KeyError or RecursionError for what is no tree.
    """
    if tree is None:
        return "none"
    if isinstance(tree, str):
        return f"text {len(tree)} {tree}"
    if isinstance(tree, int | float):
        return _canonical_number(tree)
    if not isinstance(tree, list):
        raise TypeError("an object without a tag")
    tag, parts = tree
    if tag == "int" and isinstance(parts, str):
        return _canonical_number(int(parts, 16))
    if tag == "bytes" and isinstance(parts, str):
        return f"bytes {bytes.fromhex(parts).hex()}"
    if not isinstance(parts, list):
        raise TypeError(f"a {tag} without parts")
    if tag == "complex":
        real, imaginary = (float(part) for part in parts)
        number = _canonical_number(real)
        return number if imaginary == 0 else f"complex {number} {_canonical_number(imaginary)}"
    if tag == "dict":
        entries = {canonical(key): canonical(value) for key, value in parts}
        return f"dict [{','.join(f'{key}:{value}' for key, value in sorted(entries.items()))}]"
    if tag in ("set", "frozenset"):
        return f"set [{','.join(sorted({canonical(part) for part in parts}))}]"
    # Ranges and iterators equal no literal; they stay apart from all kinds that do.
    kind = {"list": "list", "tuple": "tuple", "range": "range", "iterator": "iterator"}[str(tag)]
    return f"{kind} [{','.join(canonical(part) for part in parts)}]"


def _canonical_number(number: float) -> str:
    """Equal for 1, 1.0 and True; hexadecimal, as decimal digits take a time that grows with their square."""
    is_whole = isinstance(number, int) or number.is_integer()
    return f"number {int(number):x}" if is_whole else f"number {number.hex()}"


def shown(text: str, max_chars: int = 60) -> str:
    """The value as Python writes it, cut; of a large one its kind and size."""
    if len(text) <= MAX_REBUILT:
        tree = read_tree(text)
        try:
            return repr(decode_value(tree))[:max_chars]
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            raise NotPlainData(str(error)) from error
    kind = text[2:].partition('"')[0] if text.startswith('["') else "str"
    return f"a value of kind {kind[:20]} and {len(text)} bytes"
