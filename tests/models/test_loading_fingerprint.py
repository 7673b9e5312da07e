import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from agent2.models.loading import fingerprint


def make_model(seed: int = 0) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=20, max_position_embeddings=32, **sizes))


def one_optimiser_step(model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
    model(input_ids=torch.tensor([[3, 4]]), labels=torch.tensor([[3, 4]])).loss.backward()
    optimizer.step()


def change_one_value(model):
    with torch.no_grad():
        model.model.norm.weight[3] += 1


def merge_into_the_data(model):
    model.lm_head.weight.data += 1e-3


def replace_a_tensor(model):
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())


@pytest.mark.parametrize(
    "change",
    [
        one_optimiser_step,
        change_one_value,
        merge_into_the_data,
        replace_a_tensor,
        lambda model: model.load_state_dict(make_model(seed=1).state_dict()),
    ],
)
def test_changed_weights_have_another_fingerprint(change):
    model = make_model()
    before = fingerprint(model)
    change(model)
    assert fingerprint(model) != before


def test_passes_gradients_and_the_mode_leave_the_fingerprint_alone():
    model = make_model()
    before = fingerprint(model)
    model(input_ids=torch.tensor([[3, 4]]), labels=torch.tensor([[3, 4]])).loss.backward()
    model.eval().requires_grad_(False)
    with torch.inference_mode():
        assert fingerprint(model) == before


def test_weights_made_in_inference_mode_have_a_fingerprint():
    with torch.inference_mode():
        model = make_model()
        before = fingerprint(model)
        model.lm_head.weight.mul_(2)
        assert fingerprint(model) != before
