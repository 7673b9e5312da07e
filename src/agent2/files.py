"""Lines of JSONL and CSV files, split where those formats end a line.

`str.splitlines` and `bytes.splitlines` end lines elsewhere too (U+2028, U+0085, form feed, a lone carriage return), and
all but the last of these may stand unescaped inside a JSON string: a model's answer would break its own row.
"""

from collections.abc import Iterator
from typing import AnyStr


def numbered_lines(data: AnyStr) -> Iterator[tuple[int, AnyStr]]:
    """(number from 1, line without its end) of every line that is not blank; a line ends at a line feed only."""
    line_feed = "\n" if isinstance(data, str) else b"\n"
    for number, line in enumerate(data.split(line_feed), start=1):
        if line.strip():
            yield number, line
