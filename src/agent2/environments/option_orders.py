"""A multiple-choice question under every circular shift of its options, one message for each, as MMBench asks it.

The options of `A B C D` are shown in this order, then as `B C D A`, `C D A B` and `D A B C`. Each order is asked on its
own: what is sent holds no earlier order and no earlier answer (the context policy `newest`), so that an episode of four
messages is the four independent questions of the published protocol.

Promises: deterministic; `state()["order_answers"]` has the answer to each order as the model wrote it. Does NOT judge.
"""

from collections.abc import Mapping, Sequence
from string import ascii_uppercase

from agent2.environments import QuestionEnvironment
from agent2.errors import EnvironmentFailed
from agent2.records import Item, JsonValue, Message, Step

OPTIONS, ORDER_ANSWERS = "options", "order_answers"


def shifted(options: Sequence[str], shift: int) -> list[str]:
    """The options, beginning with the one at place `shift`."""
    return [*options[shift:], *options[:shift]]


def lettered(options: Sequence[str]) -> str:
    """The options as prompts show them, a line each: `A. red`."""
    return "\n".join(f"{letter}. {option}" for letter, option in zip(ascii_uppercase, options, strict=False))


def letter_at(reference: str, shift: int, n_options: int) -> str:
    """The letter of the right option under a shift. reference: its letter in the first order."""
    return ascii_uppercase[(ascii_uppercase.index(reference) - shift) % n_options]


class OptionOrdersEnvironment(QuestionEnvironment):
    """Asks one question in as many orders as it has options."""

    name, version = "option_orders", "1.0"

    def __init__(self, system: str | None = None, examples: Sequence[tuple[str, str]] = ()) -> None:
        """examples: question and answer of each, shown before every order."""
        super().__init__(system, examples)
        self._prompts: list[str] = []
        self._answers: list[str] = []

    @property
    def max_turns(self) -> int:
        """As many as the item has options."""
        return max(1, len(self._prompts))

    def reset(self, item: Item, seed: int) -> Sequence[Message]:
        """The question in its first order.

        Raises EnvironmentFailed when reused, and for an item whose prompt does not show its options once.
        """
        opening = super().reset(item, seed)
        options = [str(option) for option in item.payload.get(OPTIONS) or ()]
        first_order = lettered(options)
        if len(options) < 2 or item.prompt.count(first_order) != 1:
            raise EnvironmentFailed(
                f"item {item.id}: its prompt does not show its {len(options)} options once, as lines 'A. ...'; write "
                "{options} in the prompt"
            )
        orders = [lettered(shifted(options, shift)) for shift in range(len(options))]
        self._prompts = [item.prompt.replace(first_order, order) for order in orders]
        return opening

    def act(self, action: str) -> Step:
        """Take the answer to an order, ask the next one. Raises EnvironmentFailed before reset and after the last."""
        if not self._answers:
            super().act(action)
        elif len(self._answers) == len(self._prompts):
            raise EnvironmentFailed("every order was answered already; that ends the episode")
        self._answers.append(action)
        if len(self._answers) == len(self._prompts):
            return Step(observation=None, done=True)
        return Step(self._prompts[len(self._answers)], done=False)

    def state(self) -> Mapping[str, JsonValue]:
        """As of a question (`answer`: to the first order), and `order_answers`, one for each answered order."""
        return {**super().state(), ORDER_ANSWERS: list(self._answers)}
