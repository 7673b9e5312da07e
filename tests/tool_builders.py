"""Small tool worlds and players for tests of everything that is played with tools."""

import json

from agent2.benchmarks.home import pick
from agent2.benchmarks.mini.tool_questions import draw_arguments
from agent2.environments.tools import Permission, ToolCall, ToolRules, write_call
from agent2.environments.tools.toolboxes import RepositoryToolbox
from agent2.environments.tools.world import FaultSettings, ToolWorld, WorldSettings
from agent2.evaluation.engine import Attempt, PlaySettings, play
from agent2.models.sources import ScriptedSampler
from agent2.records import Item, Rollout, RolloutStatus, Split, Usage, derive_seed

REPO_ITEM = Item(
    "repo-1",
    Split.DEV,
    "Fix area: it must be w times h.",
    payload={
        "files": {"geo.calc": "gap(a,b)=a-b\narea(w,h)=w+h", "tests.calc": "area(6,2)=12\ngap(6,2)=4", "ci.yml": "run"},
        "hidden_tests": [["area", [5, 3], 15], ["area", [2, 9], 18], ["gap", [5, 3], 2]],
    },
)

ALL = frozenset(Permission)
READ = ("read", {"file": "geo.calc"})
FIX = ("edit", {"file": "geo.calc", "line": 2, "text": "area(w,h)=w*h"})
TEST = ("test", {})
SUBMIT = ("submit", {})


def call_text(name, arguments=None):
    return write_call(ToolCall(name, arguments or {}))


def random_call(item, rng):
    """A well-formed call of a random offered function of `mini_functions` with random arguments."""
    name = pick(rng, item.payload["tools"])
    return call_text(name, draw_arguments(rng, name))


def repo_world(rules=None, faults=None):
    return ToolWorld(RepositoryToolbox, WorldSettings(rules or ToolRules(ALL), faults or FaultSettings()))


def run(world, item, *messages, seed=0):
    """Play messages (texts, or (name, arguments) of calls); returns the observations and the state."""
    world.reset(item, seed)
    observations = []
    for message in messages:
        step = world.act(message if isinstance(message, str) else call_text(*message))
        observations.append(None if step.observation is None else json.loads(step.observation))
    return observations, world.state()


def rollout_of(item, state):
    return Rollout(item.id, 0, 0, RolloutStatus.COMPLETED, (), (), state["answer"], state, Usage())


def play_with(benchmark, items, reply, seed=0):
    """Rollouts of a player `reply(item, messages)` through the real engine, one for each item, in order."""
    settings = PlaySettings(benchmark.sampling, benchmark.max_turns)
    rollouts = []
    for item in items:
        sampler = ScriptedSampler(lambda messages, item=item: reply(item, messages))
        attempt = Attempt(item, 0, derive_seed(seed, item.id, 0))
        rollouts += play([attempt], sampler, benchmark.environment, benchmark.scorer(), settings)
    return rollouts


def mean_score(rollouts):
    return sum(rollout.score.value for rollout in rollouts) / len(rollouts)
