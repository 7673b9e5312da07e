"""Programs that models write, run in the real sandbox: honest, wrong and hostile ones."""

import ast
import socket
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from msgspec import structs

from agent2.cards.reader import find_rollouts, read_summary, validate_card
from agent2.errors import ConfigError, Fault
from agent2.evaluation.plan import EvaluationPlan
from agent2.evaluation.runner import evaluate
from agent2.evaluation.scoring import score_played
from agent2.models.sources import ScriptedSampler
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
from agent2.scorers.python_tests import CallPlan, PythonTestsScorer, called_names, read_tests
from agent2.scorers.sandboxed import SandboxRunner

TESTS = ("assert add(1, 2) == 3", "assert add(-4, 4) == 0", "assert add([1], (2, 'x')[:1]) == [1, 2]")
RIGHT = "def add(a, b):\n    return a + type(a)(b) if isinstance(a, list) else a + b"

HOSTILE = {
    name: (program["program"], program["label"])
    for name, program in yaml.safe_load(Path(__file__).with_name("hostile_programs.yaml").read_text("utf-8")).items()
}


def item(tests=TESTS, **payload):
    return Item("i", Split.DEV, "write add", None, {"tests": list(tests), **payload})


def rollout(answer):
    turn = Turn(answer, None, StopReason.END, 0, 0)
    return Rollout("i", 0, 0, RolloutStatus.COMPLETED, [], [turn], answer, {}, Usage())


def judged(answer, on=None, **settings):
    (record,) = score_played([(on or item(), rollout(answer))], PythonTestsScorer(**{"timeout_s": 5, **settings}))
    return record.score


def test_names_that_the_tests_call_find_the_program_among_the_blocks():
    answer = "```python\ndef add(a, b):\n    return a + b\n```\nUsed so:\n```python\ntotal = add(1, 2)\n```"
    assert judged(answer, item(["assert add(1, 2) == 3"])).value == 1.0
    assert called_names(item(["assert add(n, abs(1)) == 4"], setup="import math\nn = 3")) == {"add"}
    assert called_names(item(tests=["print(1)"])) == frozenset()


def test_tests_are_read_as_calls_and_values_and_nothing_else():
    assert [(test.call, test.expected) for test in read_tests(TESTS)] == [
        ("add(1, 2)", 3),
        ("add(-4, 4)", 0),
        ("add([1], (2, 'x')[:1])", [1, 2]),
    ]
    assert [test.expected for test in read_tests(["assert f(2)", "assert not g.h(3)"])] == [True, False]
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
    hangs = judged(
        "def f(x):\n    while x == 1: pass\n    return x",
        item([f"assert f({n}) == {n}" for n in range(3)]),
        timeout_s=1,
    )
    assert hangs.views["tests_passed"] == pytest.approx(1 / 3), "after a call that hung no other is made"
    assert hangs.labels == ("test_timeout",)


@pytest.mark.slow
def test_forty_hostile_programs_pass_nothing_escape_nowhere_and_harm_no_other(tmp_path):
    """All in one batch, an honest program after each fourth of them; none becomes missing."""
    assert len(HOSTILE) == 40
    template = item(("assert add(1, 2) == 3", "assert add('a', 'b') == 'SECRET_EXPECTED'"))
    honest = "def add(a, b):\n    return 3 if a == 1 else 'SECRET_EXPECTED'"
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        port = str(server.getsockname()[1])
        programs = {
            name: program.replace("HOST_PATH", str(tmp_path)).replace("HOST_PORT", port)
            for name, (program, _) in HOSTILE.items()
        }
        batch = []
        for number, (name, program) in enumerate(programs.items()):
            batch.append((name, program))
            if number % 4 == 0:
                batch.append((f"honest {number}", f"{honest}  # {number}"))
        attempts = [
            (replace(template, id=name), structs.replace(rollout(program), item_id=name)) for name, program in batch
        ]
        scores = {
            record.rollout.item_id: record.score for record in score_played(attempts, PythonTestsScorer(timeout_s=1))
        }
        with pytest.raises(BlockingIOError):
            server.accept()
    for name, (_, label) in HOSTILE.items():
        assert scores[name].value == 0.0, (name, scores[name])
        assert label is None or label in scores[name].labels, (name, scores[name])
    assert [name for name, score in scores.items() if name.startswith("honest") and score.value != 1.0] == []
    assert list(tmp_path.iterdir()) == [] and not Path("/tmp/agent2-escaped").exists()


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
@pytest.mark.parametrize(
    "value",
    [
        "10**5000",  # has no repr
        "{(2**61 - 1) * n for n in range(2000)}",  # one hash
        "[range(10**18)]",
        "float('nan')",
        "'\\ud800\\x1b[31m'",
    ],
)
def test_a_value_that_cannot_be_printed_or_compared_is_wrong_and_not_missing(value):
    scores = [
        judged(f"def add(a, b):\n    {verb}", item()) for verb in (f"return {value}", f"raise ValueError({value})")
    ]
    assert [score.value for score in scores] == [0.0, 0.0] and scores[0].labels == ("wrong_value",)
    assert all(score.reason.isprintable() for score in scores)
    near = judged(f"def add(a, b):\n    return {value}", item(["assert abs(add(1, 2) - 3.5) < 0.1"]))
    assert (near.value, near.labels) == (0.0, ("wrong_value",))


@pytest.mark.slow
@pytest.mark.parametrize("sandbox", [None, "none"])
def test_each_program_finds_an_empty_folder_of_its_own(sandbox, tmp_path):
    leaves = "import os\nos.makedirs('a/b')\nopen('a/c', 'w').close()\ndef f():\n    return os.listdir('.')"
    looks = "import os\ndef f():\n    return os.listdir('.')"
    programs = [(leaves, "assert f() == ['a']"), (looks, "assert f() == []"), (leaves, "assert f() == ['a']")]
    batch = [(replace(item([test]), id=str(k)), rollout(program)) for k, (program, test) in enumerate(programs)]
    scores = PythonTestsScorer(timeout_s=5).score_batch_on(SandboxRunner(find_sandbox(sandbox), tmp_path), batch)
    assert [score.value for score in scores] == [1.0, 1.0, 1.0]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_program_that_fills_the_memory_folder_leaves_the_next_one_its_room():
    fills = "def add(a, b):\n    for n in range(9):\n        open(f'/tmp/{n}', 'wb').write(bytes(30 << 20))"
    writes = f"open('own', 'wb').write(bytes(30 << 20))\n{RIGHT}"
    batch = [(replace(item(), id=str(k)), rollout(program)) for k, program in enumerate([fills, writes])]
    with tempfile.TemporaryDirectory() as folder:
        scores = PythonTestsScorer().score_batch_on(SandboxRunner(find_sandbox(), Path(folder)), batch)
    assert "No space left" in scores[0].reason and scores[1].value == 1.0


@pytest.mark.slow
def test_an_item_without_usable_tests_is_a_missing_score():
    for bad in ((), ("assert add(1, 2) in (3, 4)",)):
        score = judged(RIGHT, item(bad))
        assert (score.value, score.fault) == (None, Fault.JUDGE) and "correct the benchmark" in score.reason


@pytest.mark.slow
def test_a_sandbox_that_does_not_start_is_an_error_and_no_verdict(tmp_path):
    class Broken:
        name = "broken"

        def prepare_workspace(self, path, *, user_of=None):
            path.mkdir(parents=True, exist_ok=True)

        def start(self, spec):
            from agent2.errors import SandboxError

            raise SandboxError("no namespaces here")

    with pytest.raises(Exception, match="no namespaces"):
        PythonTestsScorer().score_on(SandboxRunner(Broken(), tmp_path), item(), rollout(RIGHT))
    silent = SandboxRunner(find_sandbox(), tmp_path)
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
    ((_, record),) = find_rollouts(tmp_path / "card", "half")
    assert record.score.reason == "0 of 1 tests pass; half(4) is 4, not 2"
    assert read_summary(tmp_path / "card") == summary


CHECK = {
    "test": "def check(candidate):\n"
    "    import random\n"
    "    for _ in range(3):\n"
    "        x = random.randint(0, 9)\n"
    "        assert candidate(twice(x)) == x\n"
    "    assert abs(candidate(5) - 2.5) < 1e-6\n"
    "    assert tuple(half_of([2])) == tuple([1]), 'by its name'\n",
    "entry_point": "half_of",
    "program": "def twice(x):\n    return 2 * x\ndef half_of(x):\n    "
    "return [one / 2 for one in x] if type(x) is list else x / 2",
}


def checked(*programs, check=CHECK, **payload):
    batch = [
        (Item(str(k), Split.DEV, "write half_of", None, {"check": check, **payload}), rollout(program))
        for k, program in enumerate(programs)
    ]
    with tempfile.TemporaryDirectory() as folder:
        return PythonTestsScorer(timeout_s=3).score_batch_on(SandboxRunner(find_sandbox(), Path(folder)), batch)


@pytest.mark.slow
def test_a_check_function_judges_values_and_never_meets_the_program():
    right = "def half_of(x):\n    return [half_of(one) for one in x] if type(x) is list else x / 2"
    whole = "def half_of(x):\n    return x // 2"
    hostile = "import sys\ndef half_of(x):\n    sys.modules['__main__'].check = lambda *_: None\n    return twice"
    scores = checked(right, whole, "def half_of(x):\n    raise KeyError(x)", hostile, "def other(x):\n    return x")
    assert [score.value for score in scores] == [1.0, 0.0, 0.0, 0.0, 0.0]
    assert scores[0].views["tests_passed"] == 1.0 and scores[0].reason == "5 of 5 tests pass"
    assert scores[1].views["tests_passed"] == pytest.approx(3 / 5), "each assert is evaluated, after a failed one, too"
    assert scores[2].labels == scores[3].labels == scores[4].labels == ("test_raised",)


class UnsandboxedRecording(PythonTestsScorer):
    """Records without a sandbox: each check makes one call; the first try of those in `failing` says nothing."""

    def __init__(self, failing=()):
        super().__init__()
        self.rounds, self.failing = [], set(failing)

    def _examine(self, runner, runs):
        names = [check["test"] for check, _ in runs]
        self.rounds.append(names)
        time.sleep(0.05)
        failed = self.failing & set(names)
        self.failing -= failed
        return [None if name in failed else {"calls": [[[], []]], "marks": [1]} for name in names]


def items_of_checks(names):
    check = {"entry_point": "f", "program": "def f(): pass"}
    return [Item(name, Split.DEV, name, None, {"check": {"test": name, **check}}) for name in names]


def test_threads_that_need_the_same_checks_record_each_of_them_once():
    names = [f"check {n}" for n in range(100)]
    scorer, plans = UnsandboxedRecording(), []
    threads = [
        threading.Thread(target=lambda: plans.append(scorer._plans(None, items_of_checks(names)))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert sorted(name for names in scorer.rounds for name in names) == sorted(names)
    assert max(map(len, scorer.rounds)) == 50, "two threads share the work"
    assert len(plans) == 2 and all(isinstance(plan, CallPlan) for batch in plans for plan in batch)


def test_a_check_whose_sandbox_failed_is_recorded_by_the_next_batch():
    scorer = UnsandboxedRecording(failing=["check 1"])
    first = scorer._plans(None, items_of_checks(["check 0", "check 1"]))
    assert isinstance(first[0], CallPlan) and first[1] == (
        "item check 1: the sandbox did not run its tests; correct the benchmark"
    )
    assert all(isinstance(plan, CallPlan) for plan in scorer._plans(None, items_of_checks(["check 0", "check 1"])))


@pytest.mark.slow
def test_a_check_that_the_right_program_fails_or_that_asks_nothing_is_a_missing_score():
    for test, reason in (
        ("def check(candidate):\n    assert candidate(4) == 1", "the right program fails them"),
        ("def check(candidate):\n    assert True", "they ask nothing"),
        ("def check(candidate):\n    while True: pass", "they took too long"),
    ):
        (score,) = checked("def half_of(x):\n    return x / 2", check={**CHECK, "test": test})
        assert (score.value, score.fault) == (None, Fault.JUDGE) and reason in score.reason, score


@pytest.mark.slow
def test_an_answer_may_continue_its_prefix_and_groups_of_tests_have_views_of_their_own():
    payload = {
        "prefix": "def f(x):\n    'Doubles.'\n",
        "sample_tests": ["assert f(1) == 2"],
        "variant_tests": ["assert f(-3) == -6"],
    }
    tests = ("assert f(5) == 10",)
    assert judged("    return 2 * x", item(tests, **payload)).value == 1.0
    assert judged("def f(x):\n    return x + x", item(tests, **payload)).value == 1.0
    learned = judged("    return {1: 2}.get(x)", item(tests, **payload))
    assert (learned.value, learned.views["sample_passed"], learned.views["hidden_passed"]) == (0.0, 1.0, 0.0)
    assert "only_sample_tests_pass" in learned.labels
    careless = judged("    return abs(2 * x)", item(tests, **payload))
    assert (careless.views["hidden_passed"], careless.views["variant_passed"]) == (1.0, 0.0)


@pytest.mark.slow
def test_imports_and_memory_have_limits():
    tests = ("assert f(2) == 2",)
    root = "import math\nfrom os import path\ndef f(x):\n    return x"
    assert judged(root, item(tests)).value == 1.0
    refused = judged(root, item(tests), imports=["math"])
    assert refused.labels == ("forbidden_import",) and "import of os is not allowed" in refused.reason
    assert judged("def f(x):\n    return len(bytearray(10**9)) and x", item(tests), memory_mib=200).labels == (
        "test_raised",
    )
    with pytest.raises(ConfigError, match="imports"):
        load_scorer("python_tests", {"imports": "math"})
