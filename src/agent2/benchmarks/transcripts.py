"""Chats made by playing a world with a player: what corpora of multi-turn benchmarks consist of."""

from collections.abc import Callable, Sequence

from agent2.records import Environment, Item, Message

Player = Callable[[Sequence[Message]], str]
"""From the chat so far to the next message of the model."""


def play_chat(world: Environment, item: Item, player: Player, seed: int, max_turns: int) -> list[Message]:
    """The whole chat of one episode, the last message being the player's."""
    messages = list(world.reset(item, seed))
    for _ in range(max_turns):
        messages.append(Message("assistant", player(messages)))
        step = world.act(messages[-1].content)
        if step.done or step.observation is None:
            break
        messages.append(Message("user", step.observation))
    return messages if messages[-1].role == "assistant" else messages[:-1]
