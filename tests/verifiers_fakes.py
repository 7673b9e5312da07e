"""As much of the package verifiers as an environment of ours stands on, with the loop of its `MultiTurnEnv`."""

import asyncio
import types
import uuid


class Error(Exception):
    """What a rollout records."""


class Rubric:
    """Reward functions with weights."""

    def __init__(self, funcs, weights):
        self.funcs, self.weights = funcs, weights


class MultiTurnEnv:
    """Asks the model and the environment in turn, until the environment says that it was the last time."""

    def __init__(self, dataset, eval_dataset, rubric, sampling_args, message_type):
        self.dataset, self.eval_dataset, self.rubric = dataset, eval_dataset, rubric
        self.sampling_args, self.message_type = sampling_args, message_type

    async def rollout(self, row, answer, n_answers):
        """The state of an episode in which the model answers by a function of the chat, at most so often."""
        state = {**row, "trajectory_id": uuid.uuid4().hex, "error": None}
        chat = list(row["prompt"])
        try:
            state = await self.setup_state(state)
            while state.get("final_env_response") is None and n_answers > 0:
                n_answers -= 1
                chat.append({"role": "assistant", "content": answer(chat)})
                chat += await self.env_response(chat, state)
        except Error as error:
            state["error"] = error
        await self.end_episode(state)
        state["chat"] = chat
        state["reward"] = sum(
            [
                weight * await func(state=state)
                for func, weight in zip(self.rubric.funcs, self.rubric.weights, strict=True)
            ]
        )
        return state

    def play(self, answer, n_answers=100):
        """The states of all rows of the evaluation set, at the same time."""

        async def play_all():
            return await asyncio.gather(*(self.rollout(row, answer, n_answers) for row in self.eval_dataset))

        return asyncio.run(play_all())


def as_module():
    """A module `verifiers`."""
    module = types.ModuleType("verifiers")
    vars(module).update(Error=Error, Rubric=Rubric, MultiTurnEnv=MultiTurnEnv, cleanup=lambda function: function)
    return module
