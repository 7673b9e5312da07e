import pytest

from agent2.arena.analysis.process import failures_of, rejection_kind
from agent2.arena.analysis.verdicts import FailureKind
from agent2.arena.evidence import AgentEnd
from builders import make_evidence, make_metrics, make_rejected, make_submission

TRACEBACK = """\
step 1
Traceback (most recent call last):
  File "code/train.py", line 3, in <module>
    main()
ValueError: loss is nan
step 2
"""


def failure(kind, **changes):
    return next(f for f in failures_of(make_evidence(**changes)) if f.kind is kind)


def kinds(**changes):
    return [f.kind for f in failures_of(make_evidence(**changes))]


def test_a_clean_trial_has_no_failures():
    assert kinds() == []


def test_no_submission_is_a_failure():
    assert kinds(submissions=[]) == [FailureKind.NO_SUBMISSION]


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("'weights.bin' holds pickle weights, which are never loaded; save safetensors", "pickle weights"),
        ("model_path 'x' is outside the workspace; submit a folder below /workspace", "outside the workspace"),
        ("not the architecture of the base model: tensor 'a' is missing; train the base", "other architecture"),
        ("weight file is truncated: 8 bytes, its header describes 80", "truncated weights"),
        ("there is no tokenizer.json; save the tokenizer too", "tokenizer missing"),
        ("config.json has auto_map: custom code is refused", "custom code"),
        ("the deadline has passed; submissions are closed", "deadline"),
        ("the model files have 53687091200 bytes together, at most 21474836480 are allowed", "too large"),
        ("'model.safetensors' changed while the snapshot was taken; submit again", "changed while being copied"),
        ("there is no folder output/x; it does not exist", "path missing"),
        ("tensor 'a' holds values that are not finite", "weights are not finite"),
        ("something new", "other"),
    ],
)
def test_refusals_are_sorted_by_the_graders_sentence(reason, kind):
    assert rejection_kind(make_rejected(1, reason)) == kind


def test_a_path_chosen_by_the_agent_does_not_choose_the_kind():
    rejected = make_rejected(1, "there is no folder 'pickle-lora-nan'", model_path="pickle-lora-nan")
    assert rejection_kind(rejected) == "path missing"


def test_a_traceback_is_proven_by_its_last_lines_and_ends_at_the_exception():
    traceback = failure(FailureKind.TRACEBACK, agent_log_tail=TRACEBACK)
    assert "ValueError: loss is nan" in traceback.detail
    assert traceback.evidence[-1].text == "ValueError: loss is nan"
    assert traceback.recovered is True


def test_a_traceback_before_a_crash_is_not_called_recovered():
    changes = {"agent_log_tail": TRACEBACK, "agent_end": AgentEnd.CRASHED, "agent_exit_code": 1, "submissions": []}
    assert failure(FailureKind.TRACEBACK, **changes).recovered is False
    assert failure(FailureKind.CRASH, **changes).recovered is False


def test_a_traceback_before_a_crash_that_a_submission_may_have_followed_is_not_known_to_be_recovered():
    changes = {"agent_log_tail": TRACEBACK, "agent_end": AgentEnd.CRASHED, "agent_exit_code": 1}
    assert failure(FailureKind.TRACEBACK, **changes).recovered is None


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", FailureKind.CUDA_OOM),
        ("MemoryError", FailureKind.CPU_OOM),
        ("OSError: [Errno 28] No space left on device", FailureKind.DISK_FULL),
        ("httpx.ConnectError: [Errno 111] Connection refused", FailureKind.GRADER_UNREACHABLE),
    ],
)
def test_known_lines_of_a_log_are_named_and_shown(line, kind):
    log_failure = failure(kind, agent_log_tail=f"start\n{line}\n")
    assert log_failure.evidence[0].text == line


def test_a_kill_says_what_it_may_mean():
    crash = failure(FailureKind.CRASH, agent_end=AgentEnd.CRASHED, agent_exit_code=-9)
    assert "memory" in crash.detail


@pytest.mark.parametrize(
    ("end", "kind"),
    [
        (AgentEnd.DEADLINE, FailureKind.DEADLINE),
        (AgentEnd.LIMIT, FailureKind.LIMIT),
        (AgentEnd.INTERRUPTED, FailureKind.INTERRUPTED),
    ],
)
def test_every_way_to_be_stopped_is_named(end, kind):
    assert kind in kinds(agent_end=end)


def test_a_failed_evaluation_is_a_fault_with_its_reason_and_whether_a_valid_one_followed():
    submissions = [make_submission(1, score=None), make_submission(2, at=120, score=0.5)]
    fault = failure(FailureKind.EVALUATION_FAULT, submissions=submissions)
    assert (fault.submission, fault.recovered, fault.detail) == (1, True, "fault: submitter")
    assert "not finite" in fault.evidence[0].text


def test_training_that_left_the_numbers_is_found_in_the_log():
    metrics = make_metrics("log.jsonl", [{"loss": 1.0}, {"loss": float("nan")}])
    assert failure(FailureKind.NOT_FINITE, metrics=metrics).evidence[0].text == "step 10: loss = nan"
