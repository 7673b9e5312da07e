import pytest

from agent2.arena.analysis.result import analyse
from agent2.arena.evidence import AgentEnd, CommandLine, Intervention
from builders import START, make_evidence, make_process, make_rejected, make_submission


def test_a_task_completed_alone_is_autonomous():
    autonomy = analyse(make_evidence()).autonomy
    assert (autonomy.n_interventions, autonomy.is_completed, autonomy.is_autonomous) == (0, True, True)


def test_an_intervention_takes_autonomy_away_and_is_shown():
    stepped_in = Intervention(START + 30, "I restarted its training", "operator")
    autonomy = analyse(make_evidence(interventions=[stepped_in])).autonomy
    assert (autonomy.n_interventions, autonomy.is_completed, autonomy.is_autonomous) == (1, True, False)
    assert autonomy.evidence[0].text == "30 s: I restarted its training"


def test_what_was_done_after_the_agents_time_helped_nobody():
    assert analyse(make_evidence(interventions=[Intervention(START + 1000, "tidied up")])).autonomy.is_autonomous


def test_nothing_handed_in_is_not_completed():
    assert not analyse(make_evidence(submissions=[])).autonomy.is_completed


CRASH = """\
Traceback (most recent call last):
  File "/workspace/code/train.py", line 2, in <module>
    x = torch.zeros(2, 3) @ torch.zeros(2, 3)
RuntimeError: mat1 and mat2 shapes cannot be multiplied
"""


def crashed(*ends, submissions=None, **changes):
    """A training program that broke once and ran again; ends: of each of its runs."""
    runs = [make_process("python code/train.py", at=end - 5, until=end, pid=7 + n) for n, end in enumerate(ends)]
    return analyse(
        make_evidence(
            processes=runs, agent_log_tail=CRASH, submissions=submissions or [make_submission(1, at=100)], **changes
        )
    ).recovery


@pytest.mark.parametrize("end", [AgentEnd.EXITED, AgentEnd.DEADLINE])
def test_a_training_crash_that_was_fixed_and_led_to_a_scored_checkpoint_is_a_recovery_whatever_ended_the_phase(end):
    recovery = crashed(20, 90, agent_end=end)
    assert (recovery.n_failures, recovery.n_recovered, recovery.n_unknown, recovery.rate) == (1, 1, 0, 1.0)


def test_a_training_crash_after_the_last_checkpoint_is_none():
    recovery = crashed(120, submissions=[make_submission(1, at=100)])
    assert (recovery.n_failures, recovery.n_recovered, recovery.rate) == (1, 0, 0.0)
    copy = [make_submission(1, at=100, score=0.3, is_base_copy=True)]
    assert crashed(20, 90, submissions=copy).n_recovered == 0, "the base model handed back fixes nothing"


def test_refused_submissions_and_deadlines_are_no_crashes_to_recover_from():
    refused = make_rejected(1, "weight file is truncated", at=50)
    changes = {"submissions": [refused, make_submission(2, at=100)], "agent_end": AgentEnd.DEADLINE}
    recovery = analyse(make_evidence(**changes)).recovery
    assert (recovery.n_failures, recovery.rate) == (0, None)


@pytest.mark.parametrize("end", [AgentEnd.EXITED, AgentEnd.DEADLINE])
def test_a_program_that_broke_and_nothing_handed_in_after_it_is_no_recovery(end):
    log = "Traceback (most recent call last):\n  File x\nValueError: no\n"
    recovery = analyse(make_evidence(submissions=[], agent_end=end, agent_log_tail=log)).recovery
    assert (recovery.n_failures, recovery.n_recovered, recovery.n_unknown, recovery.rate) == (1, 0, 0, 0.0)


def test_a_crash_ends_a_trial_and_nothing_can_follow_it():
    recovery = analyse(make_evidence(agent_end=AgentEnd.CRASHED, agent_exit_code=1)).recovery
    assert (recovery.n_failures, recovery.n_recovered) == (1, 0)


def test_without_a_failure_there_is_no_rate():
    assert analyse(make_evidence()).recovery.rate is None


def test_a_fault_of_ours_is_nothing_to_recover_from():
    lost = analyse(make_evidence(agent_end=AgentEnd.INFRASTRUCTURE, agent_end_reason="the gateway died"))
    assert lost.recovery.n_failures == 0
    (failure,) = lost.failures
    assert failure.kind.value == "LLM gateway lost"
    assert failure.evidence[0].text == "the gateway died"


def test_failed_commands_are_counted_with_those_that_a_success_followed():
    commands = [
        CommandLine("python train.py", failed=True),
        CommandLine("sed -i s/a/b/ train.py", failed=False),
        CommandLine("ls"),
        CommandLine("python nothing.py", failed=True),
    ]
    recovery = analyse(make_evidence(commands=commands)).recovery
    assert (recovery.n_commands, recovery.n_failed_commands, recovery.n_followed_by_success) == (4, 2, 1)
    assert [line.text for line in recovery.evidence] == ["python train.py", "python nothing.py"]


def test_the_base_model_handed_back_completes_nothing():
    autonomy = analyse(make_evidence(submissions=[make_submission(1, score=0.3, is_base_copy=True)])).autonomy
    assert not autonomy.is_completed and not autonomy.is_autonomous
