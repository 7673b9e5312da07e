import pytest

from agent2.arena.analysis.result import analyse
from agent2.arena.evidence import AgentEnd, CommandLine, Intervention
from builders import START, make_evidence, make_rejected, make_submission


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


def test_a_refused_submission_followed_by_a_scored_one_is_a_recovery():
    refused = make_rejected(1, "weight file is truncated", at=50)
    recovery = analyse(make_evidence(submissions=[refused, make_submission(2, at=100)])).recovery
    assert (recovery.n_failures, recovery.n_recovered, recovery.rate) == (1, 1, 1.0)


def test_a_refused_submission_and_nothing_after_it_is_none():
    recovery = analyse(make_evidence(submissions=[make_rejected(1, "weight file is truncated")])).recovery
    assert (recovery.n_failures, recovery.n_recovered, recovery.rate) == (1, 0, 0.0)


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
