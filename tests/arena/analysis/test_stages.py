import pytest

from agent2.arena.analysis.result import analyse
from agent2.arena.analysis.verdicts import Verdict
from agent2.arena.evidence import AgentEnd
from agent2.arena.spec import Stage
from builders import (
    DESIGN,
    SFT_SOURCE,
    make_evidence,
    make_metrics,
    make_process,
    make_rejected,
    make_revision,
    make_submission,
)

NOTHING = {"submissions": [], "revisions": [], "processes": [], "metrics": [], "design": None}
CRASH = {
    "agent_end": AgentEnd.CRASHED,
    "agent_exit_code": 1,
    "agent_log_tail": "Traceback (most recent call last):\n  File x\nNameError: y\n",
}


def verdicts(**changes):
    return {stage.stage: stage.verdict for stage in analyse(make_evidence(**changes)).stages}


def reason(stage, **changes):
    return next(s.reason for s in analyse(make_evidence(**changes)).stages if s.stage is stage)


def test_a_good_trial_passes_all_four_stages_in_order():
    assert list(verdicts()) == [Stage.DESIGN, Stage.IMPLEMENTATION, Stage.EXECUTION, Stage.EVALUATION]
    assert set(verdicts().values()) == {Verdict.PASS}


def test_an_agent_that_does_nothing_passes_none():
    assert Verdict.PASS not in verdicts(**NOTHING).values()


@pytest.mark.parametrize(
    ("design", "verdict"),
    [(None, Verdict.FAIL), ({"algorithm": "GRPO"}, Verdict.PARTIAL), (DESIGN, Verdict.PASS)],
)
def test_the_design_stage_follows_the_artifact(design, verdict):
    assert verdicts(design=design)[Stage.DESIGN] is verdict


def test_a_plan_that_was_not_followed_is_said():
    changes = {"revisions": [make_revision({"code/train.py": SFT_SOURCE})], "metrics": []}
    assert "planned GRPO, taken: SFT only" in reason(Stage.DESIGN, **changes)


def test_code_that_broke_before_any_score_fails_implementation_and_execution():
    by_stage = verdicts(submissions=[], **CRASH)
    assert (by_stage[Stage.IMPLEMENTATION], by_stage[Stage.EXECUTION]) == (Verdict.FAIL, Verdict.FAIL)


def test_a_crash_after_a_scored_checkpoint_is_partial():
    by_stage = verdicts(**CRASH)
    assert (by_stage[Stage.IMPLEMENTATION], by_stage[Stage.EXECUTION]) == (Verdict.PARTIAL, Verdict.PARTIAL)


def test_a_refused_submission_that_was_mended_still_passes_execution():
    submissions = [make_rejected(1, "pickle weights", at=50), make_submission(2, score=0.6)]
    assert verdicts(submissions=submissions)[Stage.EXECUTION] is Verdict.PASS
    assert "a trained checkpoint was scored after it" in reason(Stage.EXECUTION, submissions=submissions)


def test_a_copy_of_the_base_is_no_trained_checkpoint():
    copy = [make_submission(1, score=0.3, is_base_copy=True)]
    by_stage = verdicts(submissions=copy, revisions=[], processes=[], metrics=[])
    assert by_stage[Stage.EXECUTION] is Verdict.FAIL
    assert by_stage[Stage.IMPLEMENTATION] is Verdict.UNKNOWN  # nothing of the agent's work was recorded


def test_scores_of_the_grader_alone_are_no_evaluation_of_its_own():
    changes = {"revisions": [make_revision({"code/train.py": SFT_SOURCE})], "metrics": []}
    assert verdicts(**changes)[Stage.EVALUATION] is Verdict.FAIL


def test_evaluation_code_that_never_ran_is_half_an_evaluation():
    changes = {"processes": [], "metrics": []}
    assert verdicts(**changes)[Stage.EVALUATION] is Verdict.PARTIAL
    assert "nothing shows that it ran" in reason(Stage.EVALUATION, **changes)


def test_an_interrupted_harness_is_not_the_agents_failure():
    by_stage = verdicts(submissions=[], agent_end=AgentEnd.INTERRUPTED)
    assert by_stage[Stage.EXECUTION] is Verdict.UNKNOWN


def test_an_agent_whose_own_files_train_nothing_wrote_no_training_code():
    changes = NOTHING | {"agent_files": {"main.py": "print('nothing')"}}
    by_stage = verdicts(**changes)
    assert (by_stage[Stage.IMPLEMENTATION], by_stage[Stage.EVALUATION]) == (Verdict.FAIL, Verdict.FAIL)
    assert reason(Stage.IMPLEMENTATION, **changes) == "no training code was written or run"


def test_training_code_of_the_agents_own_that_was_not_seen_running_is_half_an_implementation():
    changes = NOTHING | {"agent_files": {"main.py": SFT_SOURCE}}
    assert verdicts(**changes)[Stage.IMPLEMENTATION] is Verdict.PARTIAL


def test_programs_whose_text_is_gone_leave_their_evaluation_unknown():
    changes = {"processes": [make_process("python /agent/main.py")], "agent_files": {}, "revisions": []}
    assert verdicts(**changes)[Stage.EVALUATION] is Verdict.UNKNOWN


def test_a_log_that_tells_only_the_family_does_not_contradict_the_plan():
    changes = {"processes": [], "revisions": []}
    assert "taken" not in reason(Stage.DESIGN, **changes)
    assert analyse(make_evidence(**changes)).route.label == "RL only"


BANANA = {
    "algorithm": "banana",
    "hyperparameters": {"banana": 1},
    "data_preprocessing": "banana",
    "evaluation_protocol": "banana",
}


def test_a_plan_that_says_nothing_fails():
    assert verdicts(design=BANANA)[Stage.DESIGN] is Verdict.FAIL


@pytest.mark.parametrize("part", ["hyperparameters", "data_preprocessing", "evaluation_protocol"])
def test_one_vague_part_makes_a_plan_partial(part):
    assert verdicts(design={**DESIGN, part: BANANA[part]})[Stage.DESIGN] is Verdict.PARTIAL


def test_a_new_algorithm_is_no_vague_plan_when_the_route_shows_it():
    assert verdicts(design={**DESIGN, "algorithm": "clipped median descent"})[Stage.DESIGN] is Verdict.PASS


def test_a_plan_that_nothing_carried_out_is_partial():
    assert (
        verdicts(design=DESIGN, **{k: v for k, v in NOTHING.items() if k != "design"})[Stage.DESIGN] is Verdict.PARTIAL
    )


@pytest.mark.parametrize(
    ("logged", "verdict"), [(5e-4, Verdict.PASS), (5e-2, Verdict.PARTIAL), (1e-7, Verdict.PARTIAL)]
)
def test_a_learning_rate_that_the_log_contradicts_is_told(logged, verdict):
    metrics = make_metrics("output/grpo/log.jsonl", [{"loss": 0.1, "reward": 0.5, "learning_rate": logged}] * 3)
    assert verdicts(metrics=metrics)[Stage.DESIGN] is verdict


def test_weights_that_merely_differ_from_the_base_are_no_implementation():
    changes = {"processes": [make_process("python -c pass")], "revisions": [], "metrics": []}
    by_stage = verdicts(**changes)
    assert (by_stage[Stage.IMPLEMENTATION], by_stage[Stage.EXECUTION]) == (Verdict.UNKNOWN, Verdict.UNKNOWN)


def own(*values):
    """The good trial's training log, with these dev scores before its submission."""
    return [*make_metrics("log.jsonl", [{"loss": 0.1, "reward": 0.5}]), *make_metrics("eval.jsonl", values)]


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ([{"eval_dev": 0.61}], Verdict.PASS),
        ([{"eval_accuracy": 61.0}], Verdict.PASS),  # percent
        ([{"eval_dev": 0.30}, {"eval_dev": 0.62}, {"eval_dev": 0.55}], Verdict.PASS),  # the best was handed in
        ([{"eval_dev": 0.97}], Verdict.FAIL),
        ([{"eval_dev": value / 10} for value in range(11)], Verdict.FAIL),  # every number, so that one fits
        ([{"eval_loss": 0.61}], Verdict.PARTIAL),  # no score of the task
        ([{"eval_reward": 0.61}], Verdict.PARTIAL),
    ],
)
def test_an_evaluation_is_a_number_that_the_grader_bears_out(values, verdict):
    assert verdicts(metrics=own(*values))[Stage.EVALUATION] is verdict


def test_a_number_without_a_program_that_measures_is_no_evaluation():
    changes = {"revisions": [make_revision({"code/train.py": SFT_SOURCE})], "metrics": own({"eval_dev": 0.6})}
    assert verdicts(**changes)[Stage.EVALUATION] is Verdict.PARTIAL
