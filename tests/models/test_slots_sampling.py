import numpy as np
import pytest
import torch
from scipy import stats

from agent2.models.slots import BatchSampling, _nucleus, sample_tokens, seed_key, uniforms


def keys(*seeds: int) -> np.ndarray:
    return np.array([seed_key(seed) for seed in seeds], dtype=np.uint64)


def test_a_uniform_number_depends_on_its_own_seed_and_counter_only():
    alone = uniforms(keys(7), np.array([3]))
    among = uniforms(keys(1, 7, 2), np.array([3, 3, 9]))
    assert alone[0] == among[1]
    assert len({*among, *uniforms(keys(7), np.array([4]))}) == 4


def test_the_stream_is_the_published_mixer():
    # SplitMix64 of state 0 begins with these values (reference implementation, public domain)
    first = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    numbers = uniforms(np.zeros(3, dtype=np.uint64), np.arange(3))
    assert numbers.tolist() == [(value >> 11) * 2.0**-53 for value in first]


@pytest.mark.parametrize("axis", ["seeds", "counters"])
def test_uniform_numbers_are_uniform_and_unrelated_along_seeds_and_counters(axis):
    n = 20_000
    if axis == "seeds":
        numbers = uniforms(keys(*range(n)), np.zeros(n, dtype=np.int64))
    else:
        numbers = uniforms(np.repeat(keys(5), n), np.arange(n))
    assert numbers.min() >= 0 and numbers.max() < 1
    assert stats.kstest(numbers, "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 4 / np.sqrt(n)


def test_negative_and_very_large_seeds_are_allowed():
    assert seed_key(-1) == seed_key((1 << 64) - 1)
    assert seed_key(1 << 63) != seed_key(0)


def draw_many(logits: list[float], n: int = 40_000, **settings) -> np.ndarray:
    numbers = uniforms(np.repeat(keys(11), n), np.arange(n))
    sampled = sample_tokens(torch.tensor([logits]).expand(n, -1), numbers, BatchSampling(**settings))
    return np.bincount(sampled.tokens, minlength=len(logits)) / n


def test_tokens_come_as_often_as_the_softmax_says():
    shares = draw_many([0.0, np.log(2), np.log(5)])
    assert shares == pytest.approx([1 / 8, 2 / 8, 5 / 8], abs=0.01)


def test_temperature_divides_the_logits():
    shares = draw_many([0.0, np.log(2), np.log(4)], temperatures=torch.full((40_000,), 0.5))
    assert shares == pytest.approx([1 / 21, 4 / 21, 16 / 21], abs=0.01)


def test_top_p_keeps_the_smallest_set_that_reaches_the_mass():
    logits = np.log([0.5, 0.3, 0.15, 0.05]).tolist()
    shares = draw_many(logits, top_ps=torch.full((40_000,), 0.7))
    assert shares == pytest.approx([5 / 8, 3 / 8, 0, 0], abs=0.01)


def test_logprobs_are_those_of_the_distribution_drawn_from():
    logits = torch.tensor(np.log([[0.5, 0.3, 0.15, 0.05]]), dtype=torch.float32)
    plain = sample_tokens(logits, np.array([0.6]), BatchSampling())
    assert (plain.tokens[0], np.exp(plain.logprobs[0])) == (1, pytest.approx(0.3, abs=1e-6))
    cut = sample_tokens(logits, np.array([0.6]), BatchSampling(top_ps=torch.tensor([0.7])))
    assert (cut.tokens[0], np.exp(cut.logprobs[0])) == (0, pytest.approx(5 / 8, abs=1e-6))
    greedy = sample_tokens(logits, np.array([0.6]), BatchSampling(all_greedy=True))
    assert (greedy.tokens[0], np.exp(greedy.logprobs[0])) == (0, pytest.approx(0.5, abs=1e-6))


def test_greedy_and_sampled_rows_mix():
    logits = torch.tensor([[0.0, 1.0], [0.0, 1.0]])
    settings = BatchSampling(is_greedy=torch.tensor([True, False]), temperatures=torch.ones(2))
    assert sample_tokens(logits, np.array([0.0, 0.0]), settings).tokens.tolist() == [1, 0]


def test_a_token_of_no_probability_is_never_drawn():
    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf]])
    for number in (0.0, 0.5, 1 - 2.0**-53):
        assert sample_tokens(logits, np.array([number]), BatchSampling()).tokens[0] == 1


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("settings", [BatchSampling(), BatchSampling(all_greedy=True)])
def test_a_row_with_unusable_logits_is_marked_and_the_others_are_not(bad, settings):
    logits = torch.tensor([[0.0, bad, 1.0], [0.0, 2.0, 1.0]])
    assert np.isnan(sample_tokens(logits, np.array([0.5, 0.5]), settings).logprobs).tolist() == [True, False]


def test_a_row_without_top_p_keeps_its_whole_tail_beside_one_that_has_it():
    probs = torch.softmax(3 * torch.randn(2, 150_000, generator=torch.Generator().manual_seed(0)), dim=-1)
    nucleus = _nucleus(probs, torch.tensor([1.0, 0.5]))
    assert torch.equal(nucleus[0], probs[0])
    assert (nucleus[1] > 0).sum() < 150_000
