import pytest
import torch

from agent2.training.reference import advantages_of, share_with_signal

NAN = float("nan")


def test_the_group_baseline_is_the_mean_of_the_group():
    advantages = advantages_of(torch.tensor([[1.0, 0.0, 0.0, 1.0]]), "group", by_spread=False)
    assert advantages.tolist() == [[0.5, -0.5, -0.5, 0.5]]


def test_leave_one_out_compares_with_the_others_only():
    advantages = advantages_of(torch.tensor([[1.0, 0.0, 0.0, 0.0]]), "leave-one-out", by_spread=False)
    # the winner against (0, 0, 0); each loser against (1, 0, 0)
    assert advantages[0].tolist() == pytest.approx([1.0, -1 / 3, -1 / 3, -1 / 3])


def test_leave_one_out_is_the_group_baseline_times_n_over_n_minus_one():
    rewards = torch.rand(6, 8, generator=torch.Generator().manual_seed(0))
    left_out, group_mean = (advantages_of(rewards, kind, by_spread=False) for kind in ("leave-one-out", "group"))
    assert torch.allclose(left_out, group_mean * 8 / 7)


def test_divided_by_the_spread_an_advantage_has_unit_variance():
    rewards = torch.tensor([[1.0, 0.0, 0.0, 1.0, 0.0, 0.0]])
    advantages = advantages_of(rewards, "group", by_spread=True)
    assert float(advantages.std()) == pytest.approx(1.0, abs=1e-3)
    assert float(advantages.mean()) == pytest.approx(0.0, abs=1e-6)


def test_who_is_left_out_takes_part_in_no_mean_and_gets_nothing():
    advantages = advantages_of(torch.tensor([[1.0, 0.0, NAN, NAN]]), "group", by_spread=False)
    assert advantages.tolist() == [[0.5, -0.5, 0.0, 0.0]]


@pytest.mark.parametrize("kind", ["group", "leave-one-out"])
@pytest.mark.parametrize("group", [[1.0, 1.0, 1.0], [NAN, NAN, NAN], [1.0, NAN, NAN]])
def test_equal_rewards_and_groups_of_fewer_than_two_teach_nothing(kind, group):
    advantages = advantages_of(torch.tensor([group]), kind, by_spread=True)
    assert advantages.tolist() == [[0.0, 0.0, 0.0]]
    assert share_with_signal(advantages) == 0.0


@pytest.mark.parametrize("kind", ["group", "leave-one-out"])
@pytest.mark.parametrize("n", range(2, 12))
def test_equal_rewards_that_no_float_can_average_exactly_teach_nothing_either(kind, n):
    """0.9 ** 3 is what a win in four turns is worth with decay."""
    advantages = advantages_of(torch.tensor([[0.9**3] * n, [*([0.9**3] * (n - 1)), NAN]]), kind, by_spread=True)
    assert not advantages.any() and share_with_signal(advantages) == 0.0


def test_the_share_with_signal_counts_groups():
    rewards = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0], [0.0, 1.0]])
    assert share_with_signal(advantages_of(rewards, "group", by_spread=True)) == 0.5
