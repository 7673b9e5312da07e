import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoModelForImageTextToText

from agent2.models.loading import load_model
from agent2.models.tiny_vision import SeenExample, VisionStage, build_model, build_processor, encode, train
from agent2.models.vision import load_processor
from vision_builders import ANSWERS, QUESTIONS, RECIPE, save_seeing_model

COLOURS = {"red": (255, 0, 0), "17": (0, 0, 255)}


def example(answer):
    pixels = np.zeros((RECIPE.side, RECIPE.side, 3), np.uint8) + np.array(COLOURS[answer], np.uint8)
    return SeenExample(pixels, [(QUESTIONS[0], answer)], [(answer if answer == "red" else "1",)] * 4)


def test_the_processor_makes_the_numbers_that_training_reads(tmp_path):
    processor = load_processor(save_seeing_model(tmp_path / "model"))
    pixels = np.random.default_rng(0).integers(0, 256, size=(RECIPE.side, RECIPE.side, 3), dtype=np.uint8)
    batch = encode(processor.tokenizer, [SeenExample(pixels, [(QUESTIONS[1], "17"), (QUESTIONS[0], "red")])], 4)
    text = processor.apply_chat_template(
        [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": QUESTIONS[1]}]}],
        add_generation_prompt=True,
        tokenize=False,
    )
    inputs = processor(images=[[Image.fromarray(pixels)]], text=[text], return_tensors="pt")
    assert torch.equal(inputs["pixel_values"], batch["pixel_values"])
    n_prompt = inputs["input_ids"].shape[1]
    assert torch.equal(inputs["input_ids"][0], batch["input_ids"][0, :n_prompt])
    learned = batch["labels"][0][batch["labels"][0] != -100].tolist()
    assert processor.tokenizer.decode(learned) == "17<|end|>red<|end|>"
    assert (batch["labels"][0, :n_prompt] == -100).all()
    assert int((batch["input_ids"] == processor.tokenizer.convert_tokens_to_ids("<image>")).sum()) == 4


@pytest.mark.slow
def test_training_learns_what_only_the_picture_says():
    processor = build_processor(QUESTIONS, ANSWERS, RECIPE)
    model = build_model(processor.tokenizer, RECIPE)
    batch = [example(answer) for answer in ("red", "17")] * 8
    for is_named in (True, False):
        stage = VisionStage(150, names=is_named)
        assert train(model, processor.tokenizer, iter([batch] * 150), RECIPE, stage) < 0.1


def test_a_saved_model_is_whole(tmp_path):
    model = load_model(save_seeing_model(tmp_path / "model"), "float32", "cpu", AutoModelForImageTextToText)
    assert type(model).__name__ == "LlavaForConditionalGeneration"
