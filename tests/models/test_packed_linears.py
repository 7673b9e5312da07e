import logging

import pytest
import torch

from agent2.models import packed_linears
from agent2.models.hf import HfSampler
from agent2.models.loading import load_model
from agent2.models.packed_linears import PackedLinear, pack_linears
from agent2.records import Message, SamplingSettings
from model_builders import make_model

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")


@pytest.fixture
def folder(tmp_path):
    return make_model(tmp_path / "model")


def answers(folder):
    sampler = HfSampler(folder, max_batch=3)
    for request_id in range(7):
        chat = [Message("user", f"{request_id} + {request_id}")]
        sampler.submit(request_id, chat, SamplingSettings(max_tokens=12, temperature=request_id % 3, seed=request_id))
    completions = {}
    while done := sampler.collect():
        completions.update({request_id: completion.text for request_id, completion in done})
    sampler.close()
    return completions


def n_packed(model):
    return sum(isinstance(layer, PackedLinear) for layer in model.modules())


def test_a_packed_model_answers_as_before(folder, monkeypatch):
    plain = answers(folder)
    monkeypatch.setattr(packed_linears, "MIN_WEIGHTS", 0)
    assert answers(folder) == plain
    assert len(plain) == 7


def test_biases_and_inputs_of_any_shape_give_the_same_numbers():
    linear = torch.nn.Linear(48, 33)
    inputs = torch.randn(2, 5, 48)
    torch.testing.assert_close(PackedLinear(linear)(inputs), linear(inputs).detach(), rtol=1e-5, atol=1e-5)


def test_small_models_and_other_number_formats_stay_as_they_are(folder, monkeypatch):
    model = load_model(folder, "float32", "cpu")
    assert not pack_linears(model)
    monkeypatch.setattr(packed_linears, "MIN_WEIGHTS", 0)
    half = load_model(folder, "bfloat16", "cpu")
    assert not pack_linears(half)
    assert n_packed(model) == n_packed(half) == 0
    assert pack_linears(model)
    assert n_packed(model) > 4


@pytest.mark.parametrize("fault", ["wrong numbers", "an error"])
def test_a_model_whose_packed_layers_do_not_give_its_logits_stays_as_it_was(folder, monkeypatch, caplog, fault):
    def forward(layer, inputs):
        if fault == "an error":
            raise RuntimeError("no such kernel")
        return inputs.new_ones(*inputs.shape[:-1], layer.out_features)

    monkeypatch.setattr(packed_linears, "MIN_WEIGHTS", 0)
    monkeypatch.setattr(PackedLinear, "forward", forward)
    model = load_model(folder, "float32", "cpu")
    tokens = torch.arange(6)[None]
    with torch.inference_mode():
        before = model(input_ids=tokens).logits
        with caplog.at_level(logging.WARNING):
            assert not pack_linears(model)
        assert torch.equal(model(input_ids=tokens).logits, before)
    assert n_packed(model) == 0
    assert "could not be packed" in caplog.text
