from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from agent2.errors import ConfigError
from agent2.models.checkpoint import inspect_checkpoint
from agent2.models.tiny import NO_LABEL, build_on_chats, build_word_tokenizer, encode_chats, train_stage
from agent2.models.tiny_recipe import ChatRecipe, TinyRecipe
from agent2.records import Message

FRAME = '{"name": "'
RECIPE = ChatRecipe(
    TinyRecipe(target=1.0, hidden_size=16, n_layers=1, n_heads=2, feed_forward_size=32, max_vocabulary=320),
    steps=(6,),
    batch_tokens=256,
    pieces=(FRAME,),
    report_every_steps=3,
)


def chat(*texts):
    return [Message("assistant" if place % 2 else "user", text) for place, text in enumerate(texts)]


CHATS = [
    chat(f"price of lamp {number}?", f'{FRAME}price", "lamp": {number}}}', f"lamp costs {number}", str(number))
    for number in range(40)
] + [chat("weather in Oslo?", "rain")] * 20


def test_a_word_is_the_same_token_wherever_it_stands_and_a_piece_is_one_token():
    tokenizer = build_word_tokenizer(CHATS, RECIPE)
    lamp = tokenizer("lamp")["input_ids"]
    assert len(lamp) == 1
    for text in (" lamp ", '"lamp"', "lamp,price"):
        assert lamp[0] in tokenizer(text)["input_ids"]
    assert len(tokenizer(FRAME)["input_ids"]) == 1
    assert len(tokenizer("2026")["input_ids"]) == 4


@pytest.mark.parametrize("text", ["price of lamp 3?", "näive ☃ Größe\n\n  x", FRAME + "}", "", "a<|b"])
def test_any_text_comes_back(text):
    tokenizer = build_word_tokenizer(CHATS, RECIPE)
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_what_is_learned_is_what_the_assistant_says_in_the_chat_template():
    tokenizer = build_word_tokenizer(CHATS, RECIPE)
    for chat, (ids, labels) in zip(CHATS, encode_chats(tokenizer, CHATS), strict=True):
        messages = [{"role": message.role, "content": message.content} for message in chat]
        rendered = tokenizer.apply_chat_template(messages, return_dict=True, return_assistant_tokens_mask=True)
        assert ids == rendered["input_ids"]
        assert [label != NO_LABEL for label in labels] == [bool(mark) for mark in rendered["assistant_masks"]]
        assert all(label in (NO_LABEL, token) for token, label in zip(ids, labels, strict=True))


def test_the_same_recipe_gives_the_same_weights_and_another_seed_others(tmp_path):
    reseeded = replace(RECIPE, model=replace(RECIPE.model, seed=1))
    for name, recipe in (("a", RECIPE), ("b", RECIPE), ("c", reseeded)):
        build_on_chats(recipe, [CHATS], tmp_path / name)
    digests = {name: inspect_checkpoint(tmp_path / name).weights_digest for name in "abc"}
    assert digests["a"] == digests["b"] != digests["c"]


def test_training_lowers_the_loss_and_says_so_and_the_folder_is_a_model(tmp_path):
    reports = []
    recipe = replace(RECIPE, steps=(60,), report_every_steps=20)
    report = build_on_chats(recipe, [CHATS], tmp_path, lambda step, loss: reports.append((step, loss)))
    assert [step for step, _ in reports] == [20, 40, 60]
    assert report.loss < 0.7 * reports[0][1]
    assert report.n_tokens > 1000
    model, tokenizer = AutoModelForCausalLM.from_pretrained(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    assert sum(parameter.numel() for parameter in model.parameters()) == report.n_parameters
    assert len(tokenizer(FRAME)["input_ids"]) == 1


def test_a_stage_goes_on_from_the_stored_weights_of_the_one_before(tmp_path):
    two = replace(RECIPE, steps=(6, 4))
    build_on_chats(two, [CHATS, CHATS[:20]], tmp_path / "two")
    build_on_chats(RECIPE, [CHATS], tmp_path / "one")
    model, tokenizer = (
        AutoModelForCausalLM.from_pretrained(tmp_path / "one"),
        AutoTokenizer.from_pretrained(tmp_path / "one"),
    )
    train_stage(model, encode_chats(tokenizer, CHATS[:20]), two, stage=1)
    model.save_pretrained(tmp_path / "continued")
    weights = [load_file(tmp_path / name / "model.safetensors") for name in ("two", "continued")]
    assert all(torch.equal(tensor, weights[1][name]) for name, tensor in weights[0].items())
    assert all(torch.equal(tensor, tensor.half().float()) for tensor in weights[0].values())


def test_stages_without_chats_or_of_another_number_and_chats_beyond_the_context_are_refused(tmp_path):
    for stages in ([[]], [], [CHATS, CHATS]):
        with pytest.raises(ConfigError, match="give every stage at least one chat"):
            build_on_chats(RECIPE, stages, tmp_path)
    short = replace(RECIPE, model=replace(RECIPE.model, context_tokens=8))
    with pytest.raises(ConfigError, match=r"the longest chat has \d+ tokens, the context 8"):
        build_on_chats(short, [CHATS], tmp_path)
