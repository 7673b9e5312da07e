from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from agent2.models import slots
from agent2.models.loading import make_cache
from agent2.models.slots import PATIENCE, TracedDecoder, decode, is_traceable, prefill

torch.set_num_threads(1)  # two threads on shared cores are many times slower at this size

N_STEPS = 250


def make_model(**changes: Any) -> Any:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = LlamaConfig(
        **{"vocab_size": 40, "max_position_embeddings": 400, "num_key_value_heads": 2, **sizes, **changes}
    )
    return LlamaForCausalLM(config).eval().requires_grad_(False)


def logits_of_many_steps(model: Any, step: Any, cache: Any) -> list[torch.Tensor]:
    """Two rows of unequal length, far enough that the cache grows."""
    with torch.inference_mode():
        prefill(model, cache, [[3, 4, 5], [6, 7]], rows=[0, 1])
        lengths = np.array([3, 2])
        logits = []
        for i in range(N_STEPS):
            logits.append(step(np.array([i % 40, (7 * i) % 40]), lengths).clone())
            lengths += 1
    return logits


def test_recorded_steps_give_the_logits_of_ordinary_ones():
    model = make_model()
    plain, cache = make_cache(model), make_cache(model)
    expected = logits_of_many_steps(model, lambda tokens, at: decode(model, plain, tokens, at), plain)
    decoder = TracedDecoder(model, cache)
    logits = logits_of_many_steps(model, decoder.decode, cache)
    torch.testing.assert_close(torch.stack(logits), torch.stack(expected), atol=1e-4, rtol=1e-3)
    assert list(decoder._recordings) == [(2, 2, cache.n_columns)]
    assert cache.n_columns > 128


def test_a_shape_is_recorded_only_after_it_has_come_often():
    model = make_model()
    cache = make_cache(model)
    decoder = TracedDecoder(model, cache)
    with torch.inference_mode():
        prefill(model, cache, [[3]], rows=[0])
        for i in range(PATIENCE):
            assert not decoder._recordings
            decoder.decode(np.array([5]), np.array([i + 1]))
    assert len(decoder._recordings) == 1


def test_a_recording_that_is_off_is_not_used(monkeypatch, caplog):
    model = make_model()
    plain, cache = make_cache(model), make_cache(model)
    expected = logits_of_many_steps(model, lambda tokens, at: decode(model, plain, tokens, at), plain)
    original = slots.decode_all_columns
    monkeypatch.setattr(slots, "decode_all_columns", lambda *inputs: original(*inputs) + 1)
    decoder = TracedDecoder(model, cache)
    logits = logits_of_many_steps(model, decoder.decode, cache)
    assert not decoder._recordings
    assert "a recorded decoding step was off by" in caplog.text
    torch.testing.assert_close(torch.stack(logits), torch.stack(expected))


@pytest.mark.parametrize("rope_type", ["dynamic", "yarn"])
def test_a_model_whose_branches_depend_on_the_position_is_not_recorded(rope_type):
    parameters = {"rope_type": rope_type, "factor": 2.0, "rope_theta": 10000.0, "original_max_position_embeddings": 400}
    assert is_traceable(make_model())
    assert not is_traceable(make_model(rope_parameters=parameters))


def test_a_short_row_in_a_wide_cache_takes_the_ordinary_pass():
    model = make_model()
    cache = make_cache(model)
    decoder = TracedDecoder(model, cache)
    with torch.inference_mode():
        cache.reserve(1, slots.MAX_WASTE + 300)
        prefill(model, cache, [[3]], rows=[0])
        for i in range(2 * PATIENCE):
            decoder.decode(np.array([5]), np.array([i + 1]))
    assert not decoder._recordings


def test_a_step_that_cannot_be_recorded_is_taken_in_the_ordinary_way(caplog):
    model = make_model()
    plain, cache = make_cache(model), make_cache(model)
    expected = logits_of_many_steps(model, lambda tokens, at: decode(model, plain, tokens, at), plain)

    def fail(*_: object) -> None:
        if torch.jit.is_tracing():
            raise NotImplementedError("this runtime records nothing")

    model.register_forward_pre_hook(fail)
    decoder = TracedDecoder(model, cache)
    logits = logits_of_many_steps(model, decoder.decode, cache)
    assert not decoder._recordings
    assert caplog.text.count("this runtime records nothing") == 1
    torch.testing.assert_close(torch.stack(logits), torch.stack(expected))
