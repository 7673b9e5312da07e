import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
)

from agent2.errors import CheckpointError
from agent2.models.loading import context_length, load_model, load_tokenizer, make_cache, require_slots_work

torch.set_num_threads(1)  # two threads on shared cores are many times slower at this size

SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
CONTEXT = 200


def make_llama(**changes: Any) -> Any:
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**{"vocab_size": 40, **SIZES, "max_position_embeddings": CONTEXT, **changes}))


def make_mistral(window: int | None) -> Any:
    sizes = {**SIZES, "num_key_value_heads": 2}
    return MistralForCausalLM(
        MistralConfig(vocab_size=40, max_position_embeddings=CONTEXT, sliding_window=window, **sizes)
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_llama().save_pretrained(tmp_path)
    return tmp_path


def test_a_model_is_loaded_ready_to_sample(folder):
    model = load_model(folder, "bfloat16", "cpu")
    assert model.dtype is torch.bfloat16
    assert not model.training
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_a_checkpoint_with_a_weight_left_out_is_refused_and_not_filled_at_random(folder):
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"1 weights are missing, the first is 'model.layers.1.mlp.up_proj"):
        load_model(folder, "float32", "cpu")


@pytest.mark.parametrize("values", [{"model_type": "nothing-known"}, {"num_attention_heads": 0}, {"hidden_size": 48}])
def test_a_config_that_makes_no_model_is_refused(folder, values):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))
    with pytest.raises(CheckpointError, match="cannot load the model"):
        load_model(folder, "float32", "cpu")


def test_an_unknown_dtype_and_a_missing_tokenizer_are_refused(folder):
    with pytest.raises(CheckpointError, match="unknown dtype 'int3'"):
        load_model(folder, "int3", "cpu")
    with pytest.raises(CheckpointError, match="cannot load the tokenizer"):
        load_tokenizer(folder)


def test_a_window_shorter_than_the_context_is_refused():
    with pytest.raises(CheckpointError, match=r"layer 0 sees only 16 of 200 positions"):
        make_cache(make_mistral(16))
    for window in (None, CONTEXT):
        require_slots_work(make_mistral(window).eval())


def test_layers_of_several_kinds_are_refused():
    config = Gemma2Config(vocab_size=40, max_position_embeddings=CONTEXT, sliding_window=32, head_dim=8, **SIZES)
    with pytest.raises(CheckpointError, match="sees only 32 of 200"):
        make_cache(Gemma2ForCausalLM(config))


def test_a_recurrent_model_is_refused():
    model = MambaForCausalLM(MambaConfig(vocab_size=40, hidden_size=32, num_hidden_layers=2, state_size=4))
    with pytest.raises(CheckpointError, match="recurrent state"):
        make_cache(model)


def test_a_model_without_position_ids_is_found_out_by_its_numbers():
    torch.manual_seed(0)
    config = BloomConfig(vocab_size=40, hidden_size=32, n_layer=2, n_head=4)
    config.seq_length = CONTEXT
    model = BloomForCausalLM(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    with pytest.raises(CheckpointError, match=r"standard deviations off|does not take position ids"):
        require_slots_work(model)


def test_weights_that_are_no_numbers_do_not_stop_the_loading():
    model = make_llama().eval()
    with torch.no_grad():
        model.lm_head.weight.fill_(float("nan"))
    require_slots_work(model)


def test_a_config_without_context_length_is_refused():
    with pytest.raises(CheckpointError, match="does not say how long its context is"):
        context_length(BloomConfig())
