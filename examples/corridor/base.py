"""The recipe of the corridors' tiny base model."""

import random

from corridor import HELPS, Corridor, CorridorWorld  # type: ignore[import-not-found]  # the file beside this one

from agent2.models.tiny import build_on_chats
from agent2.models.tiny_recipe import BaseModel, ChatRecipe, TinyRecipe
from agent2.records import Message, Split


def walk(item, rng, right_share):
    """One walk through a corridor, right in a share of its messages."""
    world = CorridorWorld()
    chat = list(world.reset(item, 0))
    for _ in range(world.max_turns):
        is_right = rng.random() < right_share
        chat.append(Message("assistant", world.ask_expert() if is_right else rng.choice(sorted(HELPS.values()))))
        step = world.act(chat[-1].text)
        if step.done:
            break
        chat.append(Message("user", step.observation))
    return chat


def build(entry, folder, on_progress):
    """Trains the base model into a folder; returns what its manifest says of it."""
    on_progress("walking corridors")
    rng = random.Random(0)
    chats = [walk(item, rng, entry.corpus["right_share"]) for item in Corridor().items(Split.TRAIN, 2000, None)]
    report = build_on_chats(entry.recipe, [chats], folder)
    return {"parameters": report.n_parameters, "loss": report.loss}


SIZE = TinyRecipe(target=0.0, hidden_size=32, n_layers=2, n_heads=2, feed_forward_size=64, max_vocabulary=320)
BASE = BaseModel("1", ChatRecipe(SIZE, steps=(200,)), corpus={"right_share": 0.35}, builder=build)
