"""What reproductions add to a route: observed from consistent on, a claim where the program fails with its own seed."""

from dataclasses import replace

import pytest

from agent2.arena.analysis.reproduced import counted_reproductions, reproduction_verdict
from agent2.arena.analysis.result import analyse
from agent2.arena.analysis.verdicts import Certainty
from agent2.arena.evidence import Reproduction, ReproductionVerdict
from builders import START, make_evidence, make_process

FINAL = f"{1:064d}"
SUCCESS = Reproduction(
    START + 900, ReproductionVerdict.REPRODUCED, "no worse", 0, True, FINAL, trial="again", is_better=True, is_own=True
)
FAILURE = replace(SUCCESS, verdict=ReproductionVerdict.NOT_REPRODUCED, reason="nothing that counts", is_better=False)


def route(*reproductions, **changes):
    return analyse(make_evidence(reproductions=reproductions, **changes)).route


def test_a_consistent_route_whose_program_made_it_again_is_observed():
    assert route().certainty is Certainty.CONSISTENT
    observed = route(SUCCESS)
    assert observed.certainty is Certainty.OBSERVED
    assert observed.evidence[0].where == "events/reproductions.jsonl"
    assert "run again" in observed.reason


def test_a_claim_stays_a_claim_when_a_program_without_training_is_reproduced():
    asleep = make_process("python code/train.py", cpu_s=0.1)
    assert route(SUCCESS, processes=[asleep]).certainty is Certainty.CLAIMED


def test_a_program_that_could_carry_the_checkpoint_is_not_observed():
    carried = route(replace(SUCCESS, could_bring="the agent's files have 900 KiB packed"))
    assert carried.certainty is Certainty.CONSISTENT
    assert "may have brought along: the agent's files have 900 KiB packed" in carried.reason


def test_a_program_that_makes_nothing_with_its_own_seed_is_a_claim():
    failed = route(FAILURE)
    assert failed.certainty is Certainty.CLAIMED
    assert "does not make such a checkpoint" in failed.reason
    assert analyse(make_evidence(reproductions=[FAILURE])).autonomy.is_completed is False


@pytest.mark.parametrize("harmless", [replace(FAILURE, is_same_seed=False, seed=7), replace(FAILURE, is_better=True)])
def test_another_seed_or_a_smaller_gain_does_not_take_training_away(harmless):
    assert route(harmless).certainty is Certainty.CONSISTENT
    assert reproduction_verdict(make_evidence(reproductions=[harmless])) is ReproductionVerdict.NOT_REPRODUCED


def test_trying_until_it_succeeds_is_not_a_reproduction():
    evidence = make_evidence(reproductions=[FAILURE, FAILURE, SUCCESS])
    assert reproduction_verdict(evidence) is ReproductionVerdict.NOT_REPRODUCED
    assert analyse(evidence).route.certainty is Certainty.CONSISTENT


@pytest.mark.parametrize("foreign", [replace(SUCCESS, is_own=False), replace(SUCCESS, weights_digest="f" * 64)])
def test_what_others_wrote_or_what_is_about_another_checkpoint_does_not_count(foreign):
    evidence = make_evidence(reproductions=[foreign])
    assert counted_reproductions(evidence) == ()
    assert reproduction_verdict(evidence) is None
    assert analyse(evidence).route.certainty is Certainty.CONSISTENT
