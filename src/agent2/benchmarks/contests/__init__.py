"""LiveCodeBench: dated problems of programming contests, scored by running their tests in a sandbox.

The private tests are published as JSON, or as a compressed pickle of it, of which only one text is read: a pickle that
names anything else is refused. An item's kind (`task_type`) is its difficulty.

Does NOT compare outputs beyond words and decimal numbers: a problem that accepts several outputs accepts the published
one alone, as in the published program.
"""

import base64
import binascii
import io
import json
import os
import pickle
import re
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agent2.benchmarks.data_files import Row
from agent2.benchmarks.official import KIND, OfficialBenchmark, with_values
from agent2.errors import ConfigError, quoted
from agent2.scorers.python_tests import words_of

HOME = Path(__file__).parent
AFTER = "LIVECODEBENCH_AFTER"
"""Environment variable: the first day of the problems that are played, YYYY-MM-DD."""
MAX_TESTS_BYTES = 256 << 20
"""Of the private tests of one problem, unpacked."""
SETUP = """import bisect, collections, copy, functools, heapq, itertools, math, operator, random, re, string, sys
from bisect import bisect_left, bisect_right
from collections import Counter, OrderedDict, defaultdict, deque
from functools import cache, lru_cache, reduce
from heapq import heapify, heappop, heappush
from itertools import accumulate, combinations, permutations, product
from math import ceil, comb, floor, gcd, inf, log2, sqrt
from typing import *"""
"""Before each program: what contest sites import for their users."""
READS_INPUT = "Read the input from standard input and print the answer. Give the whole program in one code block."
FILLS_CLASS = "Complete this class, and give all of it in one code block:\n\n```python\n{starter}\n```"


class LiveCodeBench(OfficialBenchmark):
    """The published problems, from a day on if the environment says so."""

    def __init__(self, data: Path | None = None) -> None:
        """data: folder with the official files. Raises ConfigError for a day that is none."""
        super().__init__(HOME / "livecodebench.yaml", data=data)
        self.after = os.environ.get(AFTER, "")
        if self.after and not re.fullmatch(r"\d{4}-\d{2}-\d{2}", self.after):
            raise ConfigError(f"{AFTER} is {quoted(self.after)}; set it to a day, such as 2024-08-01")

    @property
    def version(self) -> str:
        """That of the reader, with a digest of the files and the first day."""
        day = getattr(self, "after", "")  # asked for while the parent is made, too
        return f"{super().version}{f'+from-{day}' if day else ''}"

    @version.setter
    def version(self, value: str) -> None:
        self._version = value

    def prepared(self, rows: list[Row]) -> list[Row]:
        """The problems of the days that are played, with their tests. Raises ConfigError if none is left."""
        dated = [row for row in rows if str(row.values.get("contest_date")) >= self.after]
        if rows and not dated:
            newest = max(str(row.values.get("contest_date"))[:10] for row in rows)
            raise ConfigError(f"{AFTER} is {self.after}, and the newest problem is of {newest}; bring newer files")
        return [self._prepared(row) for row in dated]

    @staticmethod
    def _prepared(row: Row) -> Row:
        values = row.values
        name = _method_name(values.get("metadata"))
        starter = str(values.get("starter_code") or "")
        try:
            public, private = (read_tests(values.get(f"{kind}_test_cases")) for kind in ("public", "private"))
            groups = [[_as_assert(test, name) for test in tests] for tests in (public, private)]
        except ValueError as error:
            raise ConfigError(f"{row.where}: {error}; restore the file as it is published") from error
        if not groups[1]:  # a problem whose tests are all in its statement
            groups = [[], groups[0]]
        form = FILLS_CLASS.format(starter=starter.rstrip()) if starter.strip() else READS_INPUT
        return with_values(
            row,
            sample_tests=groups[0],
            tests=groups[1],
            setup=SETUP,
            reads_input=name is None,
            form=form,
            starter_code=starter,
            contest_date=str(values.get("contest_date")),
            **{KIND: str(values.get("difficulty") or "all")},
        )


def read_tests(stored: object) -> list[Mapping[str, Any]]:
    """Tests as they are stored: a list, JSON, or a compressed pickle of JSON. Raises ValueError for anything else."""
    tests = stored
    if isinstance(tests, str):
        try:
            tests = json.loads(tests)
        except (ValueError, RecursionError):
            tests = json.loads(_unpacked(tests))
    if not isinstance(tests, list) or not all(
        isinstance(test, Mapping) and isinstance(test.get("input"), str) and isinstance(test.get("output"), str)
        for test in tests
    ):
        raise ValueError("its tests are no list of input and output")
    return tests


def _unpacked(text: str) -> str:
    try:
        opened = zlib.decompressobj()
        pickled = opened.decompress(base64.b64decode(text, validate=True), MAX_TESTS_BYTES)
        if opened.unconsumed_tail:
            raise ValueError(f"its tests unpack to more than {MAX_TESTS_BYTES >> 20} MiB")
        value = _TextAlone(io.BytesIO(pickled)).load()
    except (
        zlib.error,
        binascii.Error,
        EOFError,
        pickle.UnpicklingError,
        IndexError,
        KeyError,
        AttributeError,
    ) as error:
        raise ValueError(f"its tests cannot be unpacked ({error})") from error
    if not isinstance(value, str):
        raise ValueError("its tests are no text")
    return value


class _TextAlone(pickle.Unpickler):
    """Reads plain data: whatever would import a class or a function is refused."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        """Nothing may be imported."""
        raise pickle.UnpicklingError(f"it names {module_name}.{global_name}, and only a text is expected")


def _method_name(metadata: object) -> str | None:
    """The method that a class has to have; None: the program reads standard input."""
    try:
        record = json.loads(metadata) if isinstance(metadata, str) and metadata.strip() else metadata
    except (ValueError, RecursionError):
        record = None
    name = record.get("func_name") if isinstance(record, Mapping) else None
    return name if isinstance(name, str) and name.isidentifier() else None


def _as_assert(test: Mapping[str, Any], method: str | None) -> str:
    """A test as `python_tests` reads it. Raises ValueError for one that cannot be read."""
    if method is None:
        return f"assert answer_to({test['input']!r}) == {words_of(test['output'])!r}"
    arguments = _values(test["input"])
    (expected,) = _values(test["output"])[:1] or [None]
    return f"assert Solution().{method}({', '.join(map(repr, arguments))}) == {expected!r}"


def _values(text: str) -> Sequence[Any]:
    """One JSON value a line."""
    try:
        return [json.loads(line) for line in text.split("\n") if line.strip()]
    except RecursionError as error:
        raise ValueError("a test is nested too deeply") from error
