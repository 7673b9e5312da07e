from collections import Counter

from agent2.environments.tools.world import USUAL_FAULTS, FaultSettings, ToolFaultKind, plan_fault


def test_the_seed_alone_decides_and_the_rate_is_kept():
    settings = FaultSettings(rate=0.3, n_positions=3)
    plans = [plan_fault(seed, settings) for seed in range(4000)]
    assert plans == [plan_fault(seed, settings) for seed in range(4000)]
    planned = [plan for plan in plans if plan is not None]
    assert abs(len(planned) / 4000 - 0.3) < 0.03
    kinds = Counter(plan.kind for plan in planned)
    assert set(kinds) == set(USUAL_FAULTS)
    assert max(kinds.values()) < 1.3 * min(kinds.values())
    assert {plan.position for plan in planned} == {0, 1, 2}


def test_a_rate_of_nought_or_one_breaks_nothing_or_always_something():
    assert {plan_fault(seed, FaultSettings()) for seed in range(50)} == {None}
    always = FaultSettings(rate=1.0, kinds=(ToolFaultKind.TIMEOUT,), n_positions=1)
    assert {plan_fault(seed, always).kind for seed in range(50)} == {ToolFaultKind.TIMEOUT}
