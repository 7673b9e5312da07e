import math

import pytest
import torch

from agent2.training.reference import Clip, to_batch, token_logprobs
from agent2.training.running import load_for_training
from episode_builders import grpo_loss, rows_of
from model_builders import make_model

CLIP = Clip(0.2, 0.28)


def two_episodes():
    """One learned token against three."""
    return to_batch(
        [[1, 2, 3], [1, 2, 3, 4, 5]],
        [[False, False, True], [False, True, True, False, True]],
        [[0.0, 0.0, -1.0], [0.0, -1.0, -1.0, 0.0, -1.0]],
        pad=0,
    )


def test_padding_is_neither_real_nor_learned():
    batch = two_episodes()
    assert batch.ids_NT.tolist() == [[1, 2, 3, 0, 0], [1, 2, 3, 4, 5]]
    assert batch.is_real_NT.sum(1).tolist() == [3, 5]
    assert batch.is_learned_NT.sum(1).tolist() == [1, 3]
    assert rows_of(batch, torch.tensor([0])).ids_NT.shape == (1, 3)


@pytest.mark.parametrize(("normalise", "weights"), [("sequence", [1 / 2, 1 / 6]), ("token", [1 / 4, 1 / 4])])
def test_each_episode_weighs_the_same_or_each_token_does(normalise, weights):
    batch = two_episodes()
    logprobs = batch.old_logprobs_NT.clone().requires_grad_()
    grpo_loss(logprobs, batch, torch.tensor([1.0, -1.0]), CLIP, normalise).backward()
    # at ratio 1 the gradient of each token is -advantage * its weight
    assert logprobs.grad[0, 2].item() == pytest.approx(-weights[0])
    assert logprobs.grad[1, [1, 2, 4]].tolist() == pytest.approx([weights[1]] * 3)
    assert logprobs.grad[1, 3] == logprobs.grad[0, 0] == 0


@pytest.mark.parametrize(
    ("advantage", "ratio", "loss"),
    [(1.0, 1.1, -1.1), (1.0, 2.0, -1.28), (1.0, 0.5, -0.5), (-1.0, 2.0, 2.0), (-1.0, 0.5, 0.8)],
)
def test_a_ratio_stops_counting_beyond_its_bound_where_that_would_gain(advantage, ratio, loss):
    batch = to_batch([[1, 2]], [[False, True]], [[0.0, -3.0]], pad=0)
    logprobs = torch.tensor([[0.0, -3.0 + math.log(ratio)]])
    assert grpo_loss(logprobs, batch, torch.tensor([advantage]), CLIP, "sequence").item() == pytest.approx(loss)


def test_an_improbable_token_that_is_left_out_of_the_loss_does_not_spoil_it():
    batch = to_batch([[1, 2, 3]], [[False, False, True]], [[0.0, -200.0, -1.0]], pad=0)
    logprobs = torch.tensor([[0.0, 0.0, -1.0]], requires_grad=True)
    loss = grpo_loss(logprobs, batch, torch.tensor([1.0]), CLIP, "sequence")
    loss.backward()
    assert loss.item() == pytest.approx(-1.0)
    assert logprobs.grad.tolist() == [[0.0, 0.0, -1.0]]


def test_log_probabilities_are_those_of_the_next_token_at_the_temperature(tmp_path):
    model, _ = load_for_training(make_model(tmp_path))
    batch = to_batch(
        [[7, 8, 9], [7, 9, 8, 7]], [[False, True, True], [False, False, True, False]], [[0.0] * 3, [0.0] * 4], 0
    )
    logprobs = token_logprobs(model, batch, temperature=0.7)
    logits = model(input_ids=torch.tensor([[7, 9, 8, 7]])).logits[0] / 0.7
    assert logprobs[1, 2].item() == pytest.approx(torch.log_softmax(logits[1], -1)[8].item(), abs=1e-5)
    assert logprobs[1, [0, 1, 3]].tolist() == [0.0, 0.0, 0.0]
    alone = token_logprobs(model, rows_of(batch, torch.tensor([0])), temperature=0.7)
    assert torch.allclose(alone[0], logprobs[0, :3], atol=1e-5)
