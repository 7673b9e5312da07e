"""SWE-bench on a small repository that the test makes, in the official layout; tests run in the sandbox."""

import json
import os
import subprocess

import pytest

from agent2.benchmarks import load_benchmark
from agent2.errors import ConfigError, Fault
from agent2.records import Rollout, RolloutStatus, Split, Usage
from agent2.sandbox.backends import find_sandbox
from agent2.scorers.patch_tests import patch_of
from agent2.scorers.sandboxed import SandboxRunner

CALC = "def double(number):\n    return number + 2\n\n\ndef half(number):\n    return number / 2\n"
TESTS = "from calc import half\n\n\ndef test_half():\n    assert half(8) == 4\n"
NEW_TESTS = "from calc import double, half\n\n\ndef test_half():\n    assert half(8) == 4\n\n\n" + (
    "def test_double():\n    assert double(5) == 10\n"
)


def git(folder, *arguments):
    environment = {
        **os.environ,
        **{f"GIT_{who}_{what}": "t@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    }
    command = ["git", "-c", "safe.directory=*", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, text=True).stdout


def diff(folder, **changed):
    """A patch that gives files of the repository other contents; the repository stays as it is."""
    for path, text in changed.items():
        (folder / path.replace("__", "/").replace("_py", ".py")).write_text(text)
    patch = git(folder, "diff")
    git(folder, "checkout", "-q", ".")
    return patch


@pytest.fixture
def repository(tmp_path):
    folder = tmp_path / "data" / "repos" / "club__calc"
    (folder / "tests").mkdir(parents=True)
    (folder / "calc.py").write_text(CALC)
    (folder / "conftest.py").write_text("")
    (folder / "tests" / "test_calc.py").write_text(TESTS)
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    return folder


def load(repository, **changes):
    data = repository.parents[1]
    row = {
        "instance_id": "club__calc-1",
        "repo": "club/calc",
        "base_commit": git(repository, "rev-parse", "HEAD").strip(),
        "problem_statement": "double(5) is 7",
        "patch": diff(repository, calc_py=CALC.replace("number + 2", "number * 2")),
        "test_patch": diff(repository, tests__test_calc_py=NEW_TESTS),
        "FAIL_TO_PASS": json.dumps(["tests/test_calc.py::test_double"]),
        "PASS_TO_PASS": json.dumps(["tests/test_calc.py::test_half"]),
    } | changes
    rows = [row, row | {"instance_id": "club__calc-2"}, row | {"instance_id": "club__calc-3"}]
    (data / "test.jsonl").write_text("".join(json.dumps(values) + "\n" for values in rows))
    return load_benchmark("swebench_verified", data)


def judged(benchmark, tmp_path, *answers):
    item = benchmark.items(Split.TEST_PRIVATE, 1, b"s" * 32)[0]
    runner = SandboxRunner(find_sandbox(), tmp_path)
    rollouts = [Rollout(item.id, 0, 0, RolloutStatus.COMPLETED, (), (), text, {}, Usage()) for text in answers]
    return [benchmark.scorer().score_on(runner, item, rollout) for rollout in rollouts]


def test_patches_are_told_apart_by_what_they_do(tmp_path, repository):
    benchmark = load(repository)
    gold = diff(repository, calc_py=CALC.replace("number + 2", "number * 2"))
    breaks = diff(repository, calc_py=CALC.replace("number + 2", "number * 2").replace("number / 2", "0"))
    only_tests = diff(repository, tests__test_calc_py="def test_half():\n    pass\n\n\ndef test_double():\n    pass\n")
    stale = gold.replace("number + 2", "number + 3")
    scores = judged(benchmark, tmp_path, f"Here:\n```diff\n{gold}```", breaks, only_tests, stale, "I don't know.")
    expected = [
        (1.0, ()),
        (0.0, ("broke_tests",)),
        (0.0, ("not_fixed", "edits_tests")),
        (0.0, ("patch_not_applied",)),
        (0.0, ("empty_patch",)),
    ]
    assert [(score.value, score.labels) for score in scores] == expected, [score.reason for score in scores]
    assert scores[1].views["fail_to_pass"] == 1.0 and scores[1].views["pass_to_pass"] == 0.0
    assert git(repository, "status", "--porcelain") == ""


def hostile(files, moved=()):
    """A patch that makes files and moves others, whatever they contain."""
    parts = [
        f"diff --git a/{old} b/{new}\nsimilarity index 100%\nrename from {old}\nrename to {new}\n" for old, new in moved
    ]
    for path, text in files.items():
        lines = text.splitlines()
        parts.append(f"diff --git a/{path} b/{path}\nnew file mode 100644\n--- /dev/null\n+++ b/{path}\n")
        parts.append(f"@@ -0,0 +1,{len(lines)} @@\n" + "".join(f"+{line}\n" for line in lines))
    return "".join(parts)


def test_a_patch_cannot_replace_the_published_tests_or_make_its_score_missing(tmp_path, repository):
    easy = "def test_half():\n    pass\n\n\ndef test_double():\n    pass\n"
    tests = diff(repository, tests__test_calc_py=NEW_TESTS)
    forged = diff(repository, tests__test_calc_py=TESTS + easy.partition("\n\n\n")[2])
    own = ".agent2-patches"
    attempts = [
        hostile({f"{own}/test.patch": forged}, [(f"{own}/test.patch", "gone")]),
        hostile({f"{own}/base/tests/test_calc.py": easy}, [(f"{own}/base/tests/test_calc.py", "gone")]),
        hostile({"tests": "no folder"}, [("tests/test_calc.py", "moved.py")]),
        hostile({}, [("tests/test_calc.py", "moved.py")]),
    ]
    assert tests != forged
    scores = judged(load(repository), tmp_path, *attempts)
    assert [score.value for score in scores] == [0.0] * 4, [score.reason for score in scores]


def test_what_is_not_the_patch_s_fault_is_missing(tmp_path, repository):
    gold = diff(repository, calc_py=CALC.replace("number + 2", "number * 2"))
    (no_commit,) = judged(load(repository, base_commit="0" * 40), tmp_path, gold)
    assert (no_commit.value, no_commit.fault) == (None, Fault.JUDGE) and "fetch it into the clone" in no_commit.reason
    (no_clone,) = judged(load(repository, repo="club/other"), tmp_path, gold)
    assert no_clone.fault is Fault.INFRASTRUCTURE and "make one with git clone" in no_clone.reason


@pytest.mark.parametrize("changes", [{"repo": "../../etc"}, {"FAIL_TO_PASS": "tests"}, {"base_commit": None}])
def test_a_row_in_another_layout_is_refused(repository, changes):
    with pytest.raises(ConfigError, match=r"test.jsonl:1: field '\w+' is missing or not"):
        load(repository, **changes).items(Split.TEST_PRIVATE, 1, b"s" * 32)


def test_a_patch_is_read_from_a_block_or_from_its_first_line():
    patch = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"
    assert patch_of(f"First:\n```diff\nold\n```\nBetter:\n```diff\n{patch}```\nDone.") == patch
    assert patch_of(f"I think\n{patch.rstrip()}") == patch
    assert patch_of("```python\nx = 1\n```") == ""
