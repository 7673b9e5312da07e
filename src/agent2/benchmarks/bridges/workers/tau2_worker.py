"""Episodes of tau2-bench: the package's tools and databases answer calls, and its evaluators judge them.

An episode is a list of moves, each a message of the agent: `{"calls": [{"name", "arguments"}, ...]}`, or
`{"words": TEXT}`. Every request carries all moves; a world that has carried out all but the last is kept, so nothing
is lost where this process is started again.

No model plays the user. In `airline` and `retail` the user's first message tells the whole scenario, and they answer
words with one set sentence; they leave when the agent writes words twice in a row. `telecom` is played alone, as the
package's solo mode: the agent gets the ticket and the tools of the user's device, and ends with the tool `done`.
"""

import gc
import json
import os
import pickle
from functools import cache, partial
from importlib import import_module
from typing import Any

from episode_store import EpisodeStore, package_folder, require_prompt
from unchanged import require_unchanged

os.environ.update(LOGURU_LEVEL="ERROR")

PACKAGE_SHA256 = "72c0ac69a1ad395ce6bd2bed70d1d09cae8bb7e438bca8707b2abcc98cda3ae8"
DOMAINS = {"airline": False, "retail": False, "telecom": True}
"""Domain -> whether it is played alone."""
FLOORS = {"airline": 0.45, "retail": 0.15, "telecom": 0.05}
"""What an agent that does nothing may score: it is right on 20 of 50, 11 of 114 and none of 114 tasks."""
PAGE = 20
MAX_MESSAGES = 60
DONE = "done"
DONE_TOOL = {
    "type": "function",
    "function": {
        "name": DONE,
        "description": "Call this alone when the ticket is solved; it ends the task.",
        "parameters": {"type": "object", "properties": {}, "required": []},
    },
}
AGENT = (
    "You are a customer service agent. Help the user as the policy below allows. In each message either write to the "
    "user or call tools, never both."
)
ALONE = (
    "You are a customer service agent. Solve the ticket below by calling tools, as the policy below allows. There is "
    "no user to write to; you have the tools of the user's device, too. When you have finished, call the tool "
    f"{DONE} alone."
)
GO_AHEAD = "Yes, go ahead, as far as your policy allows. I have told you everything. Tell me when you have finished."
GOODBYE = "Thank you. Goodbye."
FINISHED = "I have finished."
MAX_REPLIES = 15
"""Of the user, who then leaves."""
KEPT = 64
"""Worlds that are kept, of 20 MiB at most; more episodes at once are played again at each message."""


def describe() -> dict[str, Any]:
    """The domains."""
    require_unchanged(package_folder("tau2"), PACKAGE_SHA256)
    return {"names": list(DOMAINS)}


@cache
def _tasks(name: str) -> list[Any]:
    """The tasks of a domain that can be played."""
    require_unchanged(package_folder("tau2"), PACKAGE_SHA256)
    tasks = import_module(f"tau2.domains.{name}.environment").get_tasks()
    return [task for task in tasks if task.evaluation_criteria and (task.ticket or not DOMAINS[name])]


@cache
def _databases(name: str) -> dict[str, bytes]:
    """The databases of a domain, ready to be copied; reading one from its file takes much longer."""
    world = import_module(f"tau2.domains.{name}.environment").get_environment(solo_mode=DOMAINS[name])
    databases = {"db": pickle.dumps(world.tools.db)}
    if name == "telecom":
        databases["user_db"] = pickle.dumps(world.user_tools.db)
    return databases


def _world(name: str, solo_mode: bool = False) -> Any:
    """A fresh world."""
    module = import_module(f"tau2.domains.{name}.environment")
    databases = _databases(name)
    gc.disable()  # with it, copying the database of airline takes four times as long
    try:
        copies = {key: pickle.loads(contents) for key, contents in databases.items()}
    finally:
        gc.enable()
    return module.get_environment(**copies, solo_mode=solo_mode)


@cache
def _policy_and_tools(name: str) -> tuple[str, list[dict[str, Any]]]:
    world = _world(name, DOMAINS[name])
    tools = [tool.openai_schema for tool in world.get_tools()]
    if DOMAINS[name]:
        tools += [*(tool.openai_schema for tool in world.get_user_tools()), DONE_TOOL]
    return world.get_policy(), json.loads(json.dumps(tools))


def open_set(name: str) -> dict[str, Any]:
    """How many items it has, and how long an episode may be."""
    n_tasks = len(_tasks(name))
    limits = {"max_tokens": 512, "max_turns": MAX_MESSAGES, "floor": FLOORS[name]}
    return {"compares": False, "is_chat": True, **limits, "portions": {"test": n_tasks}}


def _request(name: str, task: Any) -> str:
    """The user's first message, or the ticket."""
    if DOMAINS[name]:
        return f"Ticket: {task.ticket}"
    scenario = task.user_scenario.instructions
    parts = [scenario.reason_for_call, scenario.known_info, scenario.task_instructions]
    return "\n".join(["This is my whole request, written for me as instructions:", *filter(None, parts)])


def _prompt(name: str, task: Any) -> str:
    return f"{_request(name, task)}\n\n({name} {task.id})"


def items(name: str, portion: str, start: int) -> list[dict[str, Any]]:
    """A page of items."""
    policy, tools = _policy_and_tools(name)
    system = f"{ALONE if DOMAINS[name] else AGENT}\n\n<policy>\n{policy}\n</policy>"
    page = []
    for task in _tasks(name)[start : start + PAGE]:
        messages = [{"role": "system", "content": system}, {"role": "user", "content": _request(name, task)}]
        reference = json.dumps(_expected_messages(name, task))
        page.append({"prompt": _prompt(name, task), "messages": messages, "tools": tools, "reference": reference})
    return page


def _expected_messages(name: str, task: Any) -> list[str]:
    """Messages of an agent that makes the expected calls and tells what has to be told."""
    criteria = task.evaluation_criteria
    actions = criteria.actions or []
    messages = [json.dumps({"name": action.name, "arguments": action.arguments}) for action in actions]
    if DOMAINS[name]:
        return [*messages, json.dumps({"name": DONE, "arguments": {}})]
    return [*messages, " ".join([FINISHED, *(criteria.communicate_info or [])]), FINISHED]


class Tau2Episode:
    """The world of one task, and what was said and done in it."""

    def __init__(self, name: str, task: Any) -> None:
        self.is_alone = DOMAINS[name]
        self.world = _world(name, self.is_alone)
        state = task.initial_state
        self.history: list[Any] = list((state and state.message_history) or [])
        self.world.set_state(
            initialization_data=state and state.initialization_data,
            initialization_actions=state and state.initialization_actions,
            message_history=self.history,
        )
        self.n_replies = 0
        self.said_words = self.is_over = False

    def apply(self, move: dict[str, Any]) -> dict[str, Any]:
        """What comes back for a message."""
        if self.is_over:
            raise ValueError("the episode is over")
        if "words" in move:
            return self._answer(move["words"])
        self.said_words = False
        if self.is_alone and [call["name"] for call in move["calls"]] == [DONE]:
            self.is_over = True
            return {"results": ["the task is over"], "user": None, "tools": None, "is_over": True}
        return {"results": self._results(move["calls"]), "user": None, "tools": None, "is_over": False}

    def _results(self, calls: list[dict[str, Any]]) -> list[str]:
        from tau2.data_model.message import AssistantMessage, ToolCall

        first = len(self.history)
        tool_calls = [
            ToolCall(id=f"{first}-{place}", name=call["name"], arguments=call["arguments"], requestor="assistant")
            for place, call in enumerate(calls)
        ]
        answers = [self.world.get_response(call) for call in tool_calls]
        self.history += [AssistantMessage(role="assistant", tool_calls=tool_calls), *answers]
        return [str(answer.content) for answer in answers]

    def _answer(self, text: str) -> dict[str, Any]:
        from tau2.data_model.message import AssistantMessage, UserMessage

        if self.is_alone:
            self.is_over = self.said_words
            reply = f"There is nobody to write to. Call a tool, or {DONE} if you have finished."
        else:
            self.n_replies += 1
            self.is_over = self.said_words or self.n_replies >= MAX_REPLIES
            reply = GOODBYE if self.is_over else GO_AHEAD
            self.history.append(AssistantMessage(role="assistant", content=text or " "))
            self.history.append(UserMessage(role="user", content=reply))
        self.said_words = True
        return {"results": None, "user": None if self.is_over else reply, "tools": None, "is_over": self.is_over}


def _begin(name: str, number: int) -> Tau2Episode:
    return Tau2Episode(name, _tasks(name)[number])


STORE = EpisodeStore(_begin, KEPT)


def score(name: str, portion: str, number: int, prompt_sha256: str, moves: list[dict[str, Any]]) -> dict[str, Any]:
    """The product of the task's rewards: database, assertions, actions, communicated information."""
    from tau2.data_model.tasks import RewardType
    from tau2.evaluator.evaluator_action import ActionEvaluator
    from tau2.evaluator.evaluator_communicate import CommunicateEvaluator
    from tau2.evaluator.evaluator_env import EnvironmentEvaluator

    task = _tasks(name)[number]
    require_prompt(name, _prompt(name, task), prompt_sha256)
    episode = STORE.take(name, number, moves)
    if not episode.is_over:
        return {"value": 0.0, "reason": f"the episode is not over after {len(moves)} messages"}
    basis = set(task.evaluation_criteria.reward_basis)
    if RewardType.NL_ASSERTION in basis:
        raise ValueError("the task is judged by a model")
    rewards: dict[str, float] = {}
    if basis & {RewardType.DB, RewardType.ENV_ASSERTION}:
        verdict = EnvironmentEvaluator.calculate_reward(
            environment_constructor=partial(_world, name),
            task=task,
            full_trajectory=episode.history,
            solo_mode=episode.is_alone,
        )
        rewards |= {kind.value: value for kind, value in (verdict.reward_breakdown or {}).items()}
    if RewardType.ACTION in basis:
        rewards["ACTION"] = ActionEvaluator.calculate_reward(task=task, full_trajectory=episode.history).reward
    if RewardType.COMMUNICATE in basis:
        verdict = CommunicateEvaluator.calculate_reward(task=task, full_trajectory=episode.history)
        rewards["COMMUNICATE"] = verdict.reward
    value = 1.0
    for reward in rewards.values():
        value *= reward
    return {"value": value, "reason": ", ".join(f"{kind} {reward:g}" for kind, reward in sorted(rewards.items()))}


METHODS = {"describe": describe, "open_set": open_set, "items": items, "advance": STORE.advance, "score": score}
