"""Programs that models write, run in the real sandbox: honest, wrong and hostile ones."""

import ast
import tempfile
import time
from pathlib import Path

import pytest

from agent2.cards.reader import find_rollouts, read_summary, validate_card
from agent2.errors import ConfigError, Fault
from agent2.evaluation.runner import EvaluationPlan, evaluate
from agent2.evaluation.scoring import score_played
from agent2.models.scripted import ScriptedSampler
from agent2.records import (
    Item,
    Message,
    Rollout,
    RolloutStatus,
    SamplingSettings,
    Split,
    Step,
    StopReason,
    Turn,
    Usage,
)
from agent2.sandbox.backends import find_sandbox
from agent2.scorers import load_scorer
from agent2.scorers.python_tests import PythonTestsScorer, code_of, read_tests
from agent2.scorers.sandboxed import Bench

TESTS = ("assert add(1, 2) == 3", "assert add(-4, 4) == 0", "assert add([1], (2, 'x')[:1]) == [1, 2]")
RIGHT = "def add(a, b):\n    return a + type(a)(b) if isinstance(a, list) else a + b"

HOSTILE = {
    "endless loop": ("def add(a, b):\n    while True:\n        pass", "test_timeout"),
    "sleep": ("import time\ntime.sleep(600)\n" + RIGHT, "test_timeout"),
    "fork bomb": ("import os\nwhile True:\n    os.fork()", None),
    "early exit": ("import os\nprint('3 of 3 tests pass')\nos._exit(0)", "no_value"),
    "sys.exit": ("import sys\nsys.exit(0)", "test_raised"),
    "says passed": ("print('passed')\ndef add(a, b):\n    return 'passed'", "wrong_value"),
    "answers in the harness's words": (
        "import os\n"
        'line = b\'ready\\n\\n[["value", "3"], ["value", "0"], ["value", "[\\\\"list\\\\", [1, 2]]"]]\\n\'\n'
        "for number in range(3, 100):\n"
        "    for path in ('/proc/self/fd/%d', '/proc/%d/fd/1' % os.getppid()):\n"
        "        try:\n"
        "            os.write(os.open(path % number if '%' in path else path, os.O_WRONLY), line)\n"
        "        except (OSError, TypeError):\n"
        "            pass\n"
        "    try:\n"
        "        os.write(number, line)\n"
        "    except OSError:\n"
        "        pass\n"
        "os._exit(0)",
        None,
    ),
    "equal to everything": (
        "class Any(int):\n    def __eq__(self, other):\n        return True\n    __hash__ = None\n"
        "def add(a, b):\n    return Any(7)",
        "test_raised",
    ),
    "reads what there is to read": (
        "import gc, glob, os\n"
        "def add(a, b):\n"
        "    seen = []\n"
        "    for path in glob.glob('/proc/*/environ') + glob.glob('/proc/*/cmdline') + glob.glob('/proc/*/fd/*'):\n"
        "        try:\n"
        "            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)\n"
        "            seen.append(os.pread(fd, 100000, 0))\n"
        "            os.close(fd)\n"
        "        except OSError:\n"
        "            pass\n"
        "    text = b' '.join(seen) + repr([one for one in gc.get_objects() if type(one) in (dict, list)]).encode()\n"
        "    hints = [b' '.join([b'==', b'3']), b'_'.join([b'SECRET', b'EXPECTED'])]\n"
        "    return 3 if any(hint in text for hint in hints) else None",
        "wrong_value",
    ),
    "huge value": ("def add(a, b):\n    return 'x' * 10**8", None),
    "floods its output": ("import sys\nwhile True:\n    sys.stdout.write('x' * 10**6)", "test_timeout"),
    "kills everything": ("import os\nos.kill(-1, 9)", "no_value"),
    "stops its harness": (
        "import os, signal, time\nos.kill(os.getppid(), signal.SIGSTOP)\ntime.sleep(600)",
        "no_value",
    ),
    "all memory": ("x = []\nwhile True:\n    x.append(bytearray(10**8))", None),
    "deep value": ("def add(a, b):\n    x = []\n    for _ in range(10**5):\n        x = [x]\n    return x", None),
    "not Python": ("def add(a, b) return a + b", "test_raised"),
}


def item(tests=TESTS, **payload):
    return Item("i", Split.DEV, "write add", None, {"tests": list(tests), **payload})


def rollout(answer):
    turn = Turn(answer, None, StopReason.END, 0, 0)
    return Rollout("i", 0, 0, RolloutStatus.COMPLETED, [], [turn], answer, {}, Usage())


def judged(answer, asked=None, **settings):
    (record,) = score_played([(asked or item(), rollout(answer))], PythonTestsScorer(**{"timeout_s": 5, **settings}))
    return record.score


def test_code_is_the_last_block_of_python_or_the_whole_answer():
    assert code_of("x = 1") == "x = 1"
    assert code_of("First:\n```python\nx = 1\n```\nthen\n```py\nx = 2\n```\nout:\n```text\n3\n```") == "x = 2\n"
    assert code_of("```\nx = 1\n") == "x = 1\n"
    assert code_of("```text\nno code\n```") == ""


def test_tests_are_read_as_calls_and_values_and_nothing_else():
    assert [(one.call, one.expected) for one in read_tests(TESTS)] == [
        ("add(1, 2)", 3),
        ("add(-4, 4)", 0),
        ("add([1], (2, 'x')[:1])", [1, 2]),
    ]
    assert [one.expected for one in read_tests(["assert f(2)", "assert not g.h(3)"])] == [True, False]
    assert read_tests(["assert abs(f(2) - 0.5) < 1e-6"])[0].tolerance == 1e-6
    for bad in ("assert f(1) == f(2)", "assert f(1) > 2", "x = f(1)", "assert", "assert max(f(1), 3) == g()", ""):
        with pytest.raises(ValueError, match="test"):
            read_tests([bad])


@pytest.mark.parametrize(("name", "value"), [("timeout_s", 0), ("timeout_s", "soon"), ("concurrency", -1)])
def test_settings_that_mean_nothing_are_refused(name, value):
    with pytest.raises(ConfigError, match=name):
        load_scorer("python_tests", {name: value})


def test_without_the_scoring_stage_there_is_no_verdict():
    score = PythonTestsScorer().score(item(), rollout(RIGHT))
    assert (score.value, score.fault) == (None, Fault.JUDGE)


@pytest.mark.slow
def test_a_right_program_passes_and_a_wrong_one_says_where():
    assert judged(f"Here:\n```python\n{RIGHT}\n```").value == 1.0
    wrong = judged("def add(a, b):\n    return a")
    assert (wrong.value, wrong.labels) == (0.0, ("wrong_value",))
    assert wrong.reason == "0 of 3 tests pass; add(1, 2) is 1, not 3"
    partly = judged("def add(a, b):\n    return a + b")
    assert partly.value == 0.0 and partly.views["tests_passed"] == pytest.approx(2 / 3)
    assert judged("no code here: ```text\nx\n```").labels == ("no_code",)


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_program_does_not_pass_and_does_not_become_missing(name):
    program, label = HOSTILE[name]
    asked = item(("assert add(1, 2) == 3", "assert add('a', 'b') == 'SECRET_EXPECTED'"))
    score = judged(program, asked, timeout_s=3)
    assert score.value == 0.0, score
    assert score.views["tests_passed"] == 0.0, score
    assert label is None or label in score.labels, score


@pytest.mark.slow
def test_a_program_that_stops_its_harness_is_ended_from_outside_once_its_time_is_over():
    """The time for a busy machine to start a sandbox is not the program's to use."""
    program, _ = HOSTILE["stops its harness"]
    spans = []

    class Timed(Bench):
        def run(self, *command, **limits):
            before = time.monotonic()
            end = super().run(*command, **limits)
            spans.append((time.monotonic() - before, limits))
            return end

    with tempfile.TemporaryDirectory() as folder:
        bench = Timed(find_sandbox(), Path(folder))
        score = PythonTestsScorer(timeout_s=1).score_on(bench, item(), rollout(program))
    ((seconds, limits),) = spans
    assert score.labels == ("no_value",)
    assert limits["output_s"] == 8.0 and limits["timeout_s"] == 63.0
    assert 8.0 <= seconds < 60.0  # START_S passes only where the sandbox itself takes so long to start


@pytest.mark.slow
def test_values_of_every_plain_kind_come_back_as_they_were():
    values = ["None", "True", "2.5", "10**40", "'\\ud800é'", "b'\\x00x'", "(1, [2])", "{1, 2}", "{'a': (1,), 2: None}"]
    tests = [
        f"assert f({place}) == {ast.literal_eval(text) if text != '10**40' else 10**40!r}"
        for place, text in enumerate(values)
    ]
    program = f"VALUES = [{', '.join(values)}]\ndef f(place):\n    return VALUES[place]"
    assert judged(program, item(tests)).reason == f"{len(values)} of {len(values)} tests pass"
    near = item(["assert abs(f(1) - 0.3) < 1e-9"])
    assert judged("def f(x):\n    return 0.1 + 0.2", near).value == 1.0
    assert judged("def f(x):\n    return float('nan')", near).value == 0.0


@pytest.mark.slow
def test_an_item_without_usable_tests_is_a_missing_score():
    for bad in ((), ("assert add(1, 2) in (3, 4)",)):
        score = judged(RIGHT, item(bad))
        assert (score.value, score.fault) == (None, Fault.JUDGE) and "correct the benchmark" in score.reason


@pytest.mark.slow
def test_a_sandbox_that_does_not_start_is_nobodys_failure(tmp_path):
    class Broken:
        name = "broken"

        def prepare_workspace(self, path, *, user_of=None):
            path.mkdir(parents=True, exist_ok=True)

        def start(self, spec):
            from agent2.errors import SandboxError

            raise SandboxError("no namespaces here")

    with pytest.raises(Exception, match="no namespaces"):
        PythonTestsScorer().score_on(Bench(Broken(), tmp_path), item(), rollout(RIGHT))
    silent = Bench(find_sandbox(), tmp_path)
    end = silent.run(("python", "-c", "print('not ready')"), timeout_s=60)
    assert end.code == 0
    assert list(tmp_path.iterdir()) == [], "nothing of a program stays"


class Ask:
    def reset(self, item, seed):
        return [Message("user", item.prompt)]

    def act(self, action):
        self.answer = action
        return Step(None, True)

    def state(self):
        return {"answer": self.answer}


class Functions:
    """Four functions to write."""

    name, version, primary_metric, max_turns, attempts = "functions", "1", "pass_rate", 1, 1
    sampling = SamplingSettings()

    def items(self, split, n, secret):
        tests = {"double": "assert double(4) == 8", "half": "assert half(4) == 2"}
        tests |= {"loop": "assert loop(1) == 1", "quit": "assert quit_(1) == 1"}
        return [Item(name, split, f"write {name}", None, {"tests": [test]}) for name, test in list(tests.items())[:n]]

    def environment(self):
        return Ask()

    def environment_version(self):
        return "ask-v1"

    def scorer(self):
        return load_scorer("python_tests", {"timeout_s": 3})


PROGRAMS = {
    "write double": "```python\ndef double(x):\n    return 2 * x\n```",
    "write half": "def half(x):\n    return x",
    "write loop": "while True: pass",
    "write quit": "import os\nprint('passed')\nos._exit(0)",
}


@pytest.mark.slow
def test_an_evaluation_scores_programs_after_they_were_written(tmp_path):
    benchmark = Functions()
    items = benchmark.items(Split.DEV, 4, None)
    plan = EvaluationPlan(benchmark, Split.DEV, items, "scripted", "c" * 64, "t" * 64, "none")
    summary = evaluate(plan, ScriptedSampler(lambda messages: PROGRAMS[messages[-1].content]), tmp_path / "card")
    assert summary.item_scores == {"double": 1.0, "half": 0.0, "loop": 0.0, "quit": 0.0}
    assert (summary.n_missing, summary.faults) == (0, {})
    assert validate_card(tmp_path / "card") == []
    ((_, found),) = find_rollouts(tmp_path / "card", "half")
    assert found.score.reason == "0 of 1 tests pass; half(4) is 4, not 2"
    assert read_summary(tmp_path / "card") == summary
