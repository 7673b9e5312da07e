from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from agent2.errors import ConfigError
from agent2.models.checkpoint import inspect_checkpoint
from agent2.models.tiny import build_tiny, build_tokenizer
from model_builders import DIGITS, SMALL, make_model


class Readings:
    """A probe that says what it is told to, and remembers how often it was asked."""

    def __init__(self, *scores):
        self.scores = list(scores)
        self.n_asked = 0

    def __call__(self, model, tokenizer):
        assert not model.training
        self.n_asked += 1
        return self.scores[min(self.n_asked, len(self.scores)) - 1]


def test_training_stops_at_the_first_reading_that_reaches_the_target(tmp_path):
    probe = Readings(0.1, 0.3, 0.5, 0.9)
    report = build_tiny(replace(SMALL, target=0.4, max_steps=50), DIGITS, probe, tmp_path)
    assert (report.steps, report.score, probe.n_asked) == (6, 0.5, 3)
    assert [point.step for point in report.history] == [2, 4, 6]


def test_a_target_out_of_reach_is_an_error_that_says_how_far_it_came(tmp_path):
    with pytest.raises(ConfigError, match=r"reached 0\.300 of 0\.400 in 6 steps"):
        build_tiny(replace(SMALL, target=0.4, max_steps=6), DIGITS, Readings(0.1, 0.3, 0.2), tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_the_same_recipe_gives_the_same_weights_and_another_seed_others(tmp_path):
    recipes = {"a": SMALL, "b": SMALL, "c": replace(SMALL, seed=1)}
    for name, recipe in recipes.items():
        build_tiny(recipe, DIGITS, Readings(1.0), tmp_path / name)
    digests = {name: inspect_checkpoint(tmp_path / name).weights_digest for name in recipes}
    assert digests["a"] == digests["b"] != digests["c"]


def test_the_folder_is_a_model_that_transformers_loads_and_generates_with(tmp_path):
    folder = make_model(tmp_path / "model")
    assert (folder / "model.safetensors").is_file()
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    encoded = tokenizer.apply_chat_template(
        [{"role": "user", "content": "1 + 2"}], add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    output = model.generate(**encoded, max_new_tokens=3)
    assert encoded["input_ids"].shape[1] < output.shape[1] <= encoded["input_ids"].shape[1] + 3
    assert all(tensor.dtype == torch.float32 for tensor in load_file(folder / "model.safetensors").values())


def test_every_digit_is_a_token_and_any_text_comes_back():
    tokenizer = build_tokenizer(DIGITS, SMALL)
    assert len(tokenizer("123456")["input_ids"]) == 6
    for text in ("Calculate 12 + 34", "näive ☃ text\n"):
        assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_the_chat_template_continues_a_prompt_and_marks_what_the_assistant_says():
    tokenizer = build_tokenizer(DIGITS, SMALL)
    chat = [{"role": "system", "content": "Be brief"}, {"role": "user", "content": "1 + 2"}]
    answered = [*chat, {"role": "assistant", "content": "3"}]
    prompt = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert prompt == "<|system|>Be brief<|user|>1 + 2<|assistant|>"
    assert tokenizer.apply_chat_template(answered, tokenize=False) == prompt + "3<|end|>"
    encoded = tokenizer.apply_chat_template(answered, return_dict=True, return_assistant_tokens_mask=True)
    marked = [i for i, m in zip(encoded["input_ids"], encoded["assistant_masks"], strict=True) if m]
    assert tokenizer.decode(marked) == "3<|end|>"


def test_an_empty_corpus_and_a_pair_longer_than_the_context_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="corpus is empty"):
        build_tiny(SMALL, [], Readings(1.0), tmp_path)
    with pytest.raises(ConfigError, match="longest pair has"):
        build_tiny(replace(SMALL, context_tokens=8), [("1 2 3 4 5 6 7", "8")], Readings(1.0), tmp_path)


def test_the_number_of_threads_of_the_caller_is_left_as_it_was(tmp_path):
    before = torch.get_num_threads()
    make_model(tmp_path)
    assert torch.get_num_threads() == before
