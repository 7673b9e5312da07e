"""Whole trials of `shop`, `search` and `dialogue`: who plays improves the base, who does not, does not."""

import pytest

from agent2.arena.analysis.read import read_evidence
from agent2.arena.analysis.result import analyse
from agent2.arena.analysis.verdicts import IntegrityState
from agent2.arena.evidence import AgentEnd
from agent2.arena.plan import new_trial
from agent2.arena.trial import run_trial
from trial_builders import quiet

SIZES = {"train": 400, "dev": 60, "test_public": 100, "test_private": 200}


def ended(task, agent, wall_clock_s, folder):
    """The evidence of a finished trial."""
    sizes = [f"task.n_items.{split}={n}" for split, n in SIZES.items()]
    root = new_trial(task, agent, 0, folder, overrides=[f"budget.wall_clock_s={wall_clock_s}", *sizes])
    run_trial(root, quiet)
    evidence = read_evidence(root)
    assert evidence.agent_end is AgentEnd.EXITED, evidence.agent_log_tail
    assert analyse(evidence).integrity.state is not IntegrityState.VOID
    return evidence


@pytest.mark.thorough
@pytest.mark.parametrize("task", ["shop", "search", "dialogue"])
def test_imitating_the_expert_improves_the_base(task, tmp_path, home):
    evidence = ended(task, "sft", 3600, tmp_path)
    assert evidence.gain is not None and evidence.gain.change.value > 0.15


@pytest.mark.thorough
def test_playing_after_a_weak_warm_up_improves_the_base(tmp_path, home):
    evidence = ended("shop", "grpo", 1200, tmp_path)
    assert evidence.gain is not None and evidence.gain.change.value > 0.1
    assert len(evidence.submissions) >= 2


@pytest.mark.thorough
@pytest.mark.parametrize("task", ["shop", "search", "dialogue"])
def test_learning_from_rows_without_playing_gains_nothing_worth_mentioning(task, tmp_path, home):
    evidence = ended(task, "static-only", 1800, tmp_path)
    assert evidence.gain is None or evidence.gain.change.value < 0.1
