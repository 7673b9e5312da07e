"""Trees of Python source, built by several threads with a garbage collection in the middle."""

import ast
import gc
import re
import sys
import threading
import time
from pathlib import Path

import pytest

from agent2.syntax import parse_expression, parse_python

SOURCE = Path(__file__).parent.parent / "src" / "agent2"
IN_A_SANDBOX = {"program_runner.py", "bfcl_worker.py"}
"""Programs without threads, that import nothing of agent2."""


class Waits:
    """Garbage whose collection hands over to another thread."""

    def __init__(self):
        self.itself = self

    def __del__(self):
        time.sleep(0)


@pytest.fixture
def busy_collector():
    interval, threshold = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(20)
    yield
    sys.setswitchinterval(interval)
    gc.set_threshold(*threshold)


def test_threads_build_trees_side_by_side(busy_collector):
    unparsed, failed = [], []

    def work():
        for depth in range(300):
            Waits()
            n = depth % 20
            try:
                unparsed.append(
                    ast.unparse(parse_python(f"assert {'(' * n}f(1, 2){')' * n} == [1, (2, 3), {{'a': -4}}]"))
                )
            except SystemError as error:  # plain ast.parse does, on Python 3.11
                failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert unparsed == ["assert f(1, 2) == [1, (2, 3), {'a': -4}]"] * 1200


def test_an_expression_is_read_alone_and_a_statement_is_none():
    assert ast.unparse(parse_expression("(1+2) * x")) == "(1 + 2) * x"
    with pytest.raises(SyntaxError):
        parse_expression("x = 1")


def test_no_other_module_builds_trees():
    others = [path for path in SOURCE.rglob("*.py") if path.name not in {"syntax.py", *IN_A_SANDBOX}]
    assert len(others) > 100
    assert [path for path in others if re.search(r"\bast\.parse\(", path.read_text())] == []
