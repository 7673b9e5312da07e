"""Statistics of a rollout's way of working: turns, calls, repetitions, errors by class, waste.

In a world with tools an action is a tool call with its arguments, failing calls included; it is *repeated* if the same
call came before and nothing changed since. Calls that only think, talk to the user or hand in the answer are no
actions. In a world of texts (household) an action is a message, and it is repeated if the same message met the same
reply before. A rollout of one message without calls has no actions.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from agent2.records import Rollout, Turn
from agent2.scorers.grounding.actions import is_acting
from agent2.scorers.grounding.cited_urls import UrlFound, cited_urls
from agent2.scorers.grounding.episodes import SEARCHING, RecordedCall, ToolEpisode, read_episode
from agent2.scorers.process.tool_errors import error_class

_WORD = re.compile(r"\w+")
OWN_ERRORS = frozenset({"malformed_call", "unknown_tool", "schema_error", "not_permitted"})
"""Errors by which a call was wasted: it could never have succeeded."""


@dataclass(frozen=True, slots=True)
class ProcessStatistics:
    """One rollout in numbers."""

    turns: int
    actions: int
    repeated_actions: int
    longest_run: int
    """Most identical actions in a row; 0 without actions."""
    calls: int
    """Tool calls; 0 in a world of texts."""
    failing_calls: int
    queries: int
    """Calls of searching tools."""
    repeated_queries: int
    """Queries with the words of an earlier one, in whatever order and case."""
    wasted_actions: int
    """Repeated ones, and calls that could never have succeeded."""
    errors: Mapping[str, int] = field(default_factory=dict)
    """Class of error (`process.tool_errors`) -> failing calls; planned faults included."""
    cited_urls: int = 0
    """Addresses of the web in the final answer."""
    unseen_citations: int = 0
    """Of these, those that neither the task nor a result names."""
    unsound_citations: int = 0
    """Of these, those that were not opened, or are about something else."""
    empty_results: int = 0
    """Calls that did not fail and came back with nothing."""

    @property
    def repeated_action_ratio(self) -> float | None:
        """Of all actions; None: there are none."""
        return self.repeated_actions / self.actions if self.actions else None

    @property
    def repeated_query_ratio(self) -> float | None:
        """Of all queries; None: there are none."""
        return self.repeated_queries / self.queries if self.queries else None

    @property
    def failing_call_ratio(self) -> float | None:
        """Of all calls; None: there are none."""
        return self.failing_calls / self.calls if self.calls else None

    @property
    def unseen_citation_ratio(self) -> float | None:
        """Of all cited addresses; None: none is cited."""
        return self.unseen_citations / self.cited_urls if self.cited_urls else None

    @property
    def unsound_citation_ratio(self) -> float | None:
        """Of all cited addresses; None: none is cited."""
        return self.unsound_citations / self.cited_urls if self.cited_urls else None

    @property
    def waste(self) -> float | None:
        """Share of wasted actions; None: there are none."""
        return self.wasted_actions / self.actions if self.actions else None


def statistics_of(rollout: Rollout, episode: ToolEpisode | None) -> ProcessStatistics:
    """The numbers of one rollout. episode: as `read_episode` reads it; None for a world without tools."""
    cited = cited_urls(rollout, episode)
    n_unseen = sum(citation.state is UrlFound.UNSEEN for citation in cited)
    n_unsound = sum(not citation.is_sound for citation in cited)
    if episode is None:
        of_texts = _of_texts(rollout)
        return replace(of_texts, cited_urls=len(cited), unseen_citations=n_unseen, unsound_citations=n_unsound)
    calls = episode.calls
    failing = [call for call in calls if call.error is not None]
    queries = [_words(call) for call in calls if SEARCHING.search(call.name or "")]
    return ProcessStatistics(
        turns=len(rollout.turns),
        actions=len(calls),
        repeated_actions=len(repeated_calls(calls)),
        longest_run=longest_run([call_key(call) for call in calls]),
        calls=len(calls),
        failing_calls=len(failing),
        queries=len(queries),
        repeated_queries=len(queries) - len(set(queries)),
        wasted_actions=unwasted(calls).count(False),
        errors=dict(sorted(Counter(str(error_class(call)) for call in failing).items())),
        cited_urls=len(cited),
        unseen_citations=n_unseen,
        unsound_citations=n_unsound,
        empty_results=sum(call.error is None and call.is_empty for call in calls),
    )


def process_of(rollout: Rollout) -> ProcessStatistics:
    """The numbers of one rollout, with tools or without."""
    return statistics_of(rollout, read_episode(rollout))


def repeated_calls(calls: Sequence[RecordedCall]) -> list[int]:
    """Positions of calls that were made before with the same arguments, and nothing changed since.

    A call that repeats one that failed by a planned fault is the retry that the fault asks for, and no repetition.
    """
    repeated, done, retried = [], set[str](), set[str]()
    for place, call in enumerate(calls):
        key = call_key(call)
        if key in done and key not in retried:
            repeated.append(place)
        retried.discard(key)
        if call.injected:
            retried.add(key)
        if is_acting(call):
            done.clear()
        done.add(key)
    return repeated


def repeated_messages(turns: Sequence[Turn]) -> list[int]:
    """Positions of messages that met the same reply before."""
    repeated, earlier = [], set[tuple[str, str | None]]()
    for place, turn in enumerate(turns):
        if (_plain(turn), turn.observation) in earlier:
            repeated.append(place)
        earlier.add((_plain(turn), turn.observation))
    return repeated


def unwasted(calls: Sequence[RecordedCall]) -> list[bool]:
    """For each call whether it was of use: no repetition, and no call that could never have succeeded."""
    repeated = set(repeated_calls(calls))
    return [place not in repeated and not is_own_error(call) for place, call in enumerate(calls)]


def longest_run(keys: Sequence[str]) -> int:
    """The most equal entries in a row."""
    longest = length = 0
    for place, key in enumerate(keys):
        length = length + 1 if place and key == keys[place - 1] else 1
        longest = max(longest, length)
    return longest


def call_key(call: RecordedCall) -> str:
    """Equal for two calls that are the same action."""
    # A message that was no call has no arguments; its problem tells two of them apart.
    return json.dumps([call.name, call.arguments, "" if call.name else call.detail], sort_keys=True, default=str)


def is_own_error(call: RecordedCall) -> bool:
    """Whether a call could never have succeeded."""
    return error_class(call) in OWN_ERRORS and not call.injected


def _words(call: RecordedCall) -> tuple[str, ...]:
    texts = [str(argument) for argument in call.arguments.values()]
    return tuple(sorted(_WORD.findall(" ".join(texts).casefold())))


def _plain(turn: Turn) -> str:
    return " ".join(turn.action.split()).casefold()


def _of_texts(rollout: Rollout) -> ProcessStatistics:
    turns = rollout.turns
    n_actions = len(turns) if len(turns) > 1 else 0
    n_repeated = len(repeated_messages(turns))
    return ProcessStatistics(
        turns=len(turns),
        actions=n_actions,
        repeated_actions=n_repeated,
        longest_run=longest_run([_plain(turn) for turn in turns]) if n_actions else 0,
        calls=0,
        failing_calls=0,
        queries=0,
        repeated_queries=0,
        wasted_actions=n_repeated,
    )
