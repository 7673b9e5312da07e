"""Classes of bad cases in the tool calls of a log: errors without recovery, repeated calls.

Scorers of our worlds give these classes from the calls that the world recorded. In the log of another program the calls
are read from the messages and errors are told apart by their text (`scorers.process.tool_errors`), and whether a call
changed something is judged by its name. Rollouts with recorded calls are left to their scorer.
"""

from agent2.environments.tools.world import trace_labels
from agent2.records import ScoredRollout
from agent2.scorers.grounding.actions import call_records
from agent2.scorers.grounding.episodes import read_episode
from agent2.scorers.process.tool_errors import error_class


def call_classes(record: ScoredRollout) -> list[str]:
    """The classes of one rollout; empty where its world recorded the calls, and where there are none."""
    rollout = record.rollout
    if len(rollout.turns) < 2 or "tool_calls" in rollout.state:
        return []
    episode = read_episode(rollout)
    if episode is None:
        return []
    calls = [
        {**stored, "error": error_class(call)}
        for stored, call in zip(call_records(episode.calls), episode.calls, strict=True)
    ]
    return trace_labels({"tool_calls": calls, "safety_violations": []})
