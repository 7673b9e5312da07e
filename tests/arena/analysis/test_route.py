from agent2.arena.analysis.route import submission_routes, trial_route
from agent2.arena.analysis.verdicts import Certainty, Route
from builders import (
    BASE_DIGEST,
    GRPO_SOURCE,
    SFT_SOURCE,
    make_evidence,
    make_metrics,
    make_process,
    make_revision,
    make_submission,
)

LOSS = [{"loss": 1.0}, {"loss": 0.5}]
REWARD = [{"loss": 0.1, "reward": 0.3}, {"loss": 0.1, "reward": 0.5}]


def route_of(**changes):
    evidence = make_evidence(**changes)
    return trial_route(evidence, submission_routes(evidence))


def code(**files):
    return [make_revision({f"code/{name}.py": text for name, text in files.items()})]


def test_a_grpo_program_with_its_log_is_observed_rl():
    finding = route_of()
    assert (finding.route, finding.algorithms, finding.certainty) == (Route.RL, ("GRPO",), Certainty.CONSISTENT)
    assert finding.label == "RL only (GRPO)"
    assert {"code/train.py:6", "process 7", "output/grpo/log.jsonl"} <= {line.where for line in finding.evidence}


def test_an_sft_program_with_its_log_is_observed_sft():
    finding = route_of(revisions=code(train=SFT_SOURCE), metrics=make_metrics("output/sft/log.jsonl", LOSS))
    assert (finding.route, finding.certainty, finding.label) == (Route.SFT, Certainty.CONSISTENT, "SFT only")


def test_a_program_without_a_log_is_weaker_evidence_and_says_so():
    finding = route_of(metrics=[])
    assert finding.certainty is Certainty.CONSISTENT
    assert "no training log" in finding.reason


def test_code_that_did_not_run_is_the_weakest_evidence_and_says_so():
    finding = route_of(metrics=[], processes=[])
    assert (finding.route, finding.certainty) == (Route.RL, Certainty.CLAIMED)
    assert "nothing shows that it ran" in finding.reason


def test_a_comment_about_grpo_does_not_make_an_sft_run_rl():
    text = '"""Later: GRPOTrainer, PPO, reward * advantage."""\n# GRPOTrainer(model)\n' + SFT_SOURCE
    finding = route_of(revisions=code(train=text), metrics=make_metrics("output/log.jsonl", LOSS))
    assert finding.route is Route.SFT


def test_unused_grpo_code_beside_a_running_sft_program_does_not_count():
    revisions = code(train=SFT_SOURCE, grpo=GRPO_SOURCE)
    finding = route_of(revisions=revisions, metrics=make_metrics("output/log.jsonl", LOSS))
    assert finding.route is Route.SFT


def test_two_programs_joined_by_a_checkpoint_path_are_sft_then_rl():
    finding = route_of(
        revisions=code(sft=SFT_SOURCE, grpo=GRPO_SOURCE.replace('"/model"', '"output/sft"')),
        processes=[
            make_process("python code/sft.py", at=5, until=30, pid=1),
            make_process("python code/grpo.py", at=31, until=90, pid=2),
        ],
        metrics=make_metrics("output/sft/log.jsonl", LOSS, at=10)
        + make_metrics("output/grpo/log.jsonl", REWARD, at=40),
    )
    assert (finding.route, finding.algorithms) == (Route.SFT_THEN_RL, ("SFT", "GRPO"))


def test_an_rl_program_that_names_no_earlier_checkpoint_is_rl_only():
    finding = route_of(
        revisions=code(sft=SFT_SOURCE, grpo=GRPO_SOURCE),
        processes=[
            make_process("python code/sft.py", at=5, until=30, pid=1),
            make_process("python code/grpo.py", at=31, until=90, pid=2),
        ],
        metrics=make_metrics("output/grpo/log.jsonl", REWARD, at=40),
    )
    assert finding.route is Route.RL


def test_one_program_with_two_methods_is_ordered_by_its_logs():
    source = SFT_SOURCE + GRPO_SOURCE
    evidence = make_evidence(
        revisions=code(train=source),
        processes=[make_process("python code/train.py", at=5, until=200)],
        submissions=[make_submission(1, at=50, score=0.4), make_submission(2, at=190, score=0.6)],
        final_submission=2,
        metrics=make_metrics("output/sft/log.jsonl", LOSS, at=10) + make_metrics("output/rl/log.jsonl", REWARD, at=100),
    )
    assert [r.finding.route for r in submission_routes(evidence)] == [Route.SFT, Route.SFT_THEN_RL]


def test_rl_before_sft_is_another_combination():
    finding = route_of(
        revisions=code(train=GRPO_SOURCE + SFT_SOURCE),
        metrics=make_metrics("rl.jsonl", REWARD, at=10) + make_metrics("sft.jsonl", LOSS, at=50),
    )
    assert finding.route is Route.OTHER and finding.algorithms == ("GRPO", "SFT")


def test_preference_training_after_sft_is_the_preference_route():
    text = "SFTTrainer(m)\nDPOTrainer(m)\n"
    finding = route_of(revisions=code(train=text), metrics=[])
    assert finding.route is Route.PREFERENCE and "DPO" in finding.label


def test_metrics_alone_tell_the_family_and_no_algorithm_by_name():
    finding = route_of(revisions=[], processes=[])
    assert (finding.route, finding.algorithms) == (Route.RL, ("RL",))


def test_the_digest_of_the_base_beats_everything_else():
    copy = make_submission(1, score=0.3, is_base_copy=True, weights_digest=BASE_DIGEST)
    finding = route_of(submissions=[copy], final_submission=None)
    assert (finding.route, finding.certainty) == (Route.COPY, Certainty.OBSERVED)


def test_no_submission_is_a_route_of_its_own():
    assert route_of(submissions=[]).route is Route.NO_SUBMISSION


def test_without_any_record_the_route_is_unknown():
    finding = route_of(revisions=[], processes=[], metrics=[])
    assert (finding.route, finding.certainty) == (Route.UNKNOWN, Certainty.NONE)


def test_when_nothing_beat_the_base_the_best_one_tried_is_shown():
    tried = [make_submission(1, score=0.2), make_submission(2, at=120, score=0.25)]
    finding = route_of(submissions=tried, final_submission=None)
    assert finding.route is Route.RL and finding.reason.startswith("submission 2, the best of those tried")
