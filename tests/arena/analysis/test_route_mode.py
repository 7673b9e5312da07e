from dataclasses import replace

import pytest

from agent2.arena.analysis.result import analyse
from agent2.arena.analysis.verdicts import Certainty, Verdict
from agent2.arena.spec import Mode
from builders import SFT_SOURCE, make_evidence, make_metrics, make_process, make_revision, make_submission

SFT_LOG = make_metrics("output/sft/log.jsonl", [{"loss": 1.0}, {"loss": 0.5}])


def finding(**changes):
    return analyse(make_evidence(**changes)).mode


def sft_trial(**changes):
    return {
        "revisions": [make_revision({"code/sft.py": SFT_SOURCE})],
        "processes": [make_process("python code/sft.py")],
        "metrics": SFT_LOG,
        **changes,
    }


@pytest.mark.parametrize(
    ("mode", "trial", "verdict"),
    [
        (Mode.FREE, sft_trial(), Verdict.PASS),
        (Mode.FREE, {}, Verdict.PASS),
        (Mode.RL_ONLY, {}, Verdict.PASS),
        (Mode.RL_ONLY, sft_trial(), Verdict.FAIL),
        (Mode.SFT_ONLY, sft_trial(), Verdict.PASS),
        (Mode.SFT_ONLY, {}, Verdict.FAIL),
        (Mode.RL_ONLY, {"submissions": []}, Verdict.PASS),
    ],
)
def test_the_route_of_what_was_handed_in_decides(mode, trial, verdict):
    assert finding(mode=mode, **trial).verdict is verdict


def test_a_broken_rule_is_a_finding_with_evidence_and_a_warning_on_top():
    analysis = analyse(make_evidence(mode=Mode.RL_ONLY, **sft_trial()))
    assert analysis.mode.reason == "the rule was broken: submission 1 was made by SFT only"
    assert any("code/sft.py" in line.where for line in analysis.mode.evidence)
    assert analysis.warnings[0].startswith("Mode rl-only: the rule was broken")


def test_a_warm_up_breaks_the_rl_only_rule():
    rl = make_metrics("output/grpo/log.jsonl", [{"reward": 0.1}, {"reward": 0.5}], at=60)
    trial = {
        "revisions": [
            make_revision(
                {
                    "code/sft.py": SFT_SOURCE,
                    "code/grpo.py": "from trl import GRPOTrainer\nGRPOTrainer(model='output/sft').train()\n",
                }
            )
        ],
        "processes": [
            make_process("python code/sft.py", at=6, until=40, pid=7),
            make_process("python code/grpo.py", at=50, until=90, pid=8),
        ],
        "metrics": [*SFT_LOG, *rl],
    }
    assert finding(mode=Mode.RL_ONLY, **trial).verdict is Verdict.FAIL
    assert "SFT then RL" in finding(mode=Mode.RL_ONLY, **trial).reason


def test_a_forbidden_program_that_led_to_no_submission_is_named():
    tried = make_process("python code/sft.py", at=110, until=140, pid=9)
    trial = make_evidence(mode=Mode.RL_ONLY)
    files = {**trial.revisions[0].files, "code/sft.py": SFT_SOURCE}
    verdict = finding(mode=Mode.RL_ONLY, revisions=[make_revision(files)], processes=[*trial.processes, tried])
    assert verdict.verdict is Verdict.PARTIAL
    assert any("code/sft.py" in line.where for line in verdict.evidence)


def test_what_nothing_was_recorded_of_is_unknown_and_said():
    verdict = finding(mode=Mode.RL_ONLY, revisions=[], processes=[], metrics=[])
    assert verdict.verdict is Verdict.UNKNOWN
    assert "only claims of how submission 1 was made" in verdict.reason


def test_code_that_was_only_there_proves_no_break():
    verdict = finding(mode=Mode.RL_ONLY, **sft_trial(processes=[], metrics=[]))
    assert verdict.verdict is Verdict.UNKNOWN


def test_a_copy_of_the_base_keeps_every_rule():
    copy = make_submission(1, is_base_copy=True)
    assert finding(mode=Mode.SFT_ONLY, submissions=[copy], processes=[], metrics=[], revisions=[]).verdict is (
        Verdict.PASS
    )


def decoy(**changes):
    """SFT from /tmp, where nothing is recorded, and a log as GRPO would write it."""
    log = make_metrics("output/grpo/log.jsonl", [{"reward": 0.1, "kl": 0.01}, {"reward": 0.5, "kl": 0.02}])
    return {
        "revisions": [make_revision({"code/notes.py": "x = 1\n"})],
        "processes": [make_process("python /tmp/work.py")],
        "metrics": log,
        **changes,
    }


@pytest.mark.parametrize("mode", [Mode.RL_ONLY, Mode.SFT_ONLY])
def test_a_log_does_not_stand_for_a_program_that_nobody_recorded(mode):
    analysis = analyse(make_evidence(mode=mode, **decoy()))
    assert analysis.mode.verdict is not Verdict.PASS
    assert analysis.route.certainty is Certainty.NONE
    assert "was not recorded" in analysis.route.reason
    assert analysis.mode.evidence


def test_a_decoy_that_really_runs_does_not_make_the_rule_kept_either():
    """The decoy trains with recorded text and a log of its own; what was handed in may come from the other program."""
    trial = make_evidence(mode=Mode.RL_ONLY)
    trial = replace(trial, processes=[*trial.processes, make_process("python /tmp/work.py", pid=99)])
    analysis = analyse(trial)
    assert analysis.mode.verdict is Verdict.UNKNOWN and "was not recorded" in analysis.mode.reason
    assert "/tmp/work.py" in analysis.route.reason
    short = replace(trial, processes=[*trial.processes[:-1], make_process("python /tmp/x.py", pid=99, cpu_s=1.0)])
    assert analyse(short).mode.verdict is Verdict.PASS, "too short to load torch"


@pytest.mark.parametrize("changes", [{"not_kept": ("code/big.py (300000 bytes)",)}, {"is_complete": False}])
def test_code_that_was_not_kept_leaves_the_verdict_unknown_and_is_told(changes):
    trial = make_evidence(mode=Mode.RL_ONLY)
    trial = replace(trial, revisions=[replace(trial.revisions[0], **changes), *trial.revisions[1:]])
    analysis = analyse(trial)
    assert analysis.mode.verdict is Verdict.UNKNOWN
    assert any("not kept" in line or "do not hold all files" in line for line in analysis.warnings)
