import pytest

from agent2.environments import QuestionEnvironment
from agent2.errors import Fault, SandboxError
from agent2.evaluation.engine import Attempt, PlaySettings, play
from agent2.models.sources import ScriptedSampler
from agent2.records import Item, Rollout, RolloutStatus, SamplingSettings, Split, Usage
from agent2.sandbox.backends import find_sandbox
from agent2.sandbox.spec import Limits
from agent2.scorers.task_set import JudgeVerdict, ScriptSandbox, TaskSetScorer, parse_task_set, task_results


def item(kind, reference=None, **payload):
    return Item("t", Split.DEV, "the prompt", reference, {"verify_type": kind, **payload})


def rollout(answer):
    return Rollout("t", 0, 1, RolloutStatus.COMPLETED, (), (), answer, {}, Usage())


@pytest.fixture(scope="module")
def script_sandbox():
    limits = Limits(memory_gib=0.5, processes=32, file_size_gib=0.01, disk_gib=0.02, tmp_gib=0.02)
    return ScriptSandbox(find_sandbox(), timeout_s=120.0, limits=limits)


@pytest.mark.parametrize(
    ("answer", "value"), [("Paris", 1.0), ("  Paris\n", 1.0), ("paris", 0.0), ("Paris.", 0.0), ("", 0.0), (None, 0.0)]
)
def test_exact_match_is_equality_without_outer_white_space(answer, value):
    assert TaskSetScorer().score(item("exact_match", " Paris "), rollout(answer)).value == value


def test_an_unknown_verify_type_is_not_passed_and_says_so():
    score = TaskSetScorer().score(item("exact_mach", "Paris"), rollout("Paris"))
    assert score.value == 0.0 and "verify_type 'exact_mach' is unknown" in score.reason


@pytest.mark.parametrize(
    ("script", "value", "reason"),
    [
        ('test "$(cat answer.txt)" = 42', 1.0, "exit code 0"),
        ('echo expected 41; test "$(cat answer.txt)" = 41', 0.0, "ended with exit code 1: expected 41"),
        ("#!/usr/bin/env python3\nassert open('answer.txt').read() == '42'", 1.0, "exit code 0"),
        ("exec sh tests/check.sh", 0.0, "ended with exit code 7"),
        ("no-such-program", 0.0, "ended with exit code 127"),
    ],
)
def test_a_script_judges_the_answer_in_a_sandbox(script_sandbox, script, value, reason):
    task = item("execution", verify_script=script, setup={"files": {"tests/check.sh": "exit 7"}})
    score = TaskSetScorer(script_sandbox).score(task, rollout("42"))
    assert score.value == value and reason in score.reason


def test_an_answer_that_nests_folders_deeper_than_python_recurses_is_scored(script_sandbox):
    program = "import os\nfor _ in range(1200):\n    os.mkdir('inner'); os.chdir('inner')\n"
    task = item("execution", verify_script="python3 answer.txt")
    score = TaskSetScorer(script_sandbox).score(task, rollout(program))
    assert score.value is not None and score.fault is None  # passed, or its folders were noticed while it ran


def test_a_script_that_does_not_end_is_stopped_and_not_passed():
    hasty = ScriptSandbox(find_sandbox(), timeout_s=1.0)
    score = TaskSetScorer(hasty).score(item("execution", verify_script="sleep 600"), rollout("42"))
    assert score.value == 0.0 and "still running after 1 s" in score.reason


def test_a_script_has_no_network_and_does_not_see_the_host(script_sandbox, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("x")
    script = (
        "#!/usr/bin/env python3\nimport os, socket\n"
        f"assert not os.path.exists({str(secret)!r})\n"
        "try:\n    socket.create_connection(('192.0.2.1', 80), 1)\n    raise SystemExit(3)\nexcept OSError:\n    pass\n"
    )
    assert TaskSetScorer(script_sandbox).score(item("execution", verify_script=script), rollout("42")).value == 1.0


def test_a_script_that_fills_the_disk_is_not_passed(script_sandbox):
    script = "#!/usr/bin/env python3\nopen('big', 'wb').write(b'x' * 60_000_000)\n"
    assert TaskSetScorer(script_sandbox).score(item("execution", verify_script=script), rollout("42")).value == 0.0


class NoSandbox:
    name = "broken"

    def prepare_workspace(self, path):
        pass

    def start(self, spec):
        raise SandboxError("user namespaces are off; see agent2 doctor")


def test_a_host_that_cannot_contain_the_script_gives_a_missing_score():
    score = TaskSetScorer(ScriptSandbox(NoSandbox())).score(item("execution", verify_script="true"), rollout("42"))
    assert score.value is None and score.fault is Fault.INFRASTRUCTURE
    assert "user namespaces are off" in score.reason


@pytest.mark.parametrize(
    "task",
    [
        item("exact_match"),
        item("execution"),
        item("execution", verify_script="true"),
        item("llm_judge"),
        item("llm_judge", rubric="r"),
    ],
)
def test_what_cannot_be_verified_is_a_missing_score_with_a_judge_fault(task):
    score = TaskSetScorer().score(task, rollout("42"))
    assert score.value is None and score.fault is Fault.JUDGE and score.reason


@pytest.mark.parametrize(
    ("passed", "value", "fault"), [(True, 1.0, None), (False, 0.0, None), (None, None, Fault.JUDGE)]
)
def test_a_judge_sees_prompt_answer_and_rubric(passed, value, fault):
    calls = []

    def judge(prompt, answer, rubric):
        calls.append((prompt, answer, rubric))
        return JudgeVerdict(passed, "because")

    score = TaskSetScorer(judge=judge).score(item("llm_judge", rubric="a rubric"), rollout("42"))
    assert (score.value, score.fault) == (value, fault) and "because" in score.reason
    assert calls == [("the prompt", "42", "a rubric")]


def test_a_judge_that_breaks_is_a_judge_fault():
    def judge(prompt, answer, rubric):
        raise ConnectionError("no route to the judge")

    score = TaskSetScorer(judge=judge).score(item("llm_judge", rubric="r"), rollout("42"))
    assert score.value is None and score.fault is Fault.JUDGE
    assert "ConnectionError: no route to the judge" in score.reason


def test_a_task_set_is_played_scored_and_listed_as_records(script_sandbox):
    tasks = parse_task_set(
        '[{"id": "a", "prompt": "2+2", "verify_type": "exact_match", "expected_answer": "4"},'
        ' {"id": "b", "prompt": "2+3", "verify_type": "execution", "verify_script": "grep -qx 5 answer.txt"},'
        ' {"id": "c", "prompt": "2+4", "verify_type": "guess"}]',
        "set.json",
    )
    sampler = ScriptedSampler(lambda messages: {"2+2": "4", "2+3": "5", "2+4": "6"}[messages[-1].content])
    attempts = [Attempt(task, 0, 0) for task in tasks.items()]
    records = play(
        attempts,
        sampler,
        QuestionEnvironment,
        TaskSetScorer(script_sandbox),
        PlaySettings(SamplingSettings(max_tokens=8), 1),
    )
    results = {result.task_id: (result.passed, result.turns, result.final_answer) for result in task_results(records)}
    assert results == {"a": (True, 1, "4"), "b": (True, 1, "5"), "c": (False, 1, "6")}


def test_a_task_that_is_not_passed_has_a_class(script_sandbox):
    scorer = TaskSetScorer(script_sandbox, lambda *_: JudgeVerdict(False, "too short"))
    for task, answer, labels in (
        (item("exact_match", "Paris"), "Paris", ()),
        (item("exact_match", "Paris"), "Rome", ("wrong_answer",)),
        (item("exact_match", "Paris"), None, ("no_answer",)),
        (item("execution", verify_script="exit 1"), "x", ("check_failed",)),
        (item("execution", verify_script="exit 0"), "x", ()),
        (item("llm_judge", rubric="long"), "x", ("rubric_not_met",)),
    ):
        assert scorer.score(task, rollout(answer)).labels == labels
