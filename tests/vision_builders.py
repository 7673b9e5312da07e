"""A small random model that sees pictures, and chats with pictures to ask it."""

import io
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from agent2.models.tiny_recipe import VisionRecipe
from agent2.models.tiny_vision import build_model, build_processor, save
from agent2.pictures import place_pictures, read_picture
from agent2.records import Message

torch.set_num_threads(1)  # two threads on shared cores are many times slower at this size

QUESTIONS = ("What color is it?", "How many are there?", "Where is it, and why?")
ANSWERS = ("red", "17", "left of it")
RECIPE = VisionRecipe(steps=0, side=32, hidden_size=24, n_heads=2, n_layers=1, n_encoder_layers=1, feed_forward_size=48)


def save_seeing_model(folder: Path, seed: int = 0) -> Path:
    """Random weights, sharp enough that answers vary."""
    processor = build_processor(QUESTIONS, ANSWERS, RECIPE)
    model = build_model(processor.tokenizer, RECIPE)
    torch.manual_seed(seed)
    for parameter in model.parameters():
        if parameter.ndim >= 2:
            torch.nn.init.normal_(parameter, std=0.3)
    save(model, processor, folder)
    return folder


def pictured_chat(number: int) -> list[Message]:
    """A question about a picture of random pixels; a third of them without a picture."""
    text = QUESTIONS[number % len(QUESTIONS)]
    if number % 3 == 2:
        return [Message("user", text)]
    pixels = np.random.default_rng(number).integers(0, 256, size=(20 + number, 30, 3), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return [place_pictures("user", text, [read_picture(stream.getvalue(), "a test")])]
