"""A benchmark of episodes with stateful tools behind a bridge: the package carries out calls and judges the episode.

Named are `bfcl:multi_turn_base`, `tau2:retail`, `miniwob:twenty` and `miniwob:twenty-screenshot`, whose package shows
pictures beside its texts. A message of the model is calls, in any form of `tools.calls`, or words. Calls go to the
package's own tools, in the sandboxed process of the bridge, and what those answer comes back; words go to the user,
whom the package plays by what its data says. The verdict is the package's, on all moves.

Promises: each request to the package carries every move of the episode so far, so that a process that ends in between
costs nothing; the same moves give the same answers. A package whose worlds are expensive gives items without opening
and reference (`opens`), and is asked for them when an item is played. Nothing that a model writes is executed here.
Splits are those of `file_sets`. Does NOT play in trials, and has no user that a model plays.
"""

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from agent2.benchmarks.bridges.bridged import QUESTION, SCORER_FAILED
from agent2.benchmarks.bridges.channel import BridgeChannel, BridgeFailed, BridgeRaised
from agent2.benchmarks.bridges.file_sets import BridgedSet
from agent2.benchmarks.home import Player, Players
from agent2.environments.chat import TOOLS_HEADER
from agent2.environments.tools import ParsedMessage, ToolCall
from agent2.environments.tools.calls import read_answer
from agent2.environments.tools.world import EMITS, CallRecord, ErrorKind, trace_labels, trace_views
from agent2.errors import ConfigError, EnvironmentFailed, Fault, quoted
from agent2.pictures import MAX_IN_MESSAGE, Preparation, place_pictures, read_picture
from agent2.records import (
    Environment,
    Item,
    JsonValue,
    Message,
    Picture,
    Rollout,
    Score,
    Scorer,
    ScorerOutput,
    ScoringMode,
    ScoringWork,
    Step,
)
from agent2.scorers.answers import WRONG_OR_NONE

MOVES = "moves"
"""Key of a state: what the model did, message by message, as the package reads it."""
PICTURES = "pictures"
"""Key of a message or reply of the package: what it shows beside its text."""
UNANSWERED = "unanswered"
"""Key of a state: why the package did not answer the last message, though it answers those before; else None."""
OPENS = "opens"
"""Payload key: 1 where the package is asked for the opening of an episode when it is played."""
WORLD = "bridged_episode-v1.0"


class EpisodeWorld:
    """Plays one item with the package's tools; single-use."""

    def __init__(self, channel: BridgeChannel, task: str) -> None:
        """task: name of the set within the package."""
        self._channel, self._task = channel, task
        self._item: Item | None = None
        self._is_native = self._is_over = False
        self._tools: list[dict[str, JsonValue]] = []
        self._moves: list[dict[str, JsonValue]] = []
        self._records: list[CallRecord] = []
        self._answer: str | None = None
        self._unanswered: str | None = None
        self._turn = 0
        self._expected: list[str] | None = None

    def offer_natively(self) -> None:
        """From now on the functions are offered by the sampler; called before `reset`."""
        self._is_native = True

    def offered_tools(self) -> list[dict[str, JsonValue]]:
        """Schemas of the functions that can be called now, for a sampler that offers them natively."""
        return self._tools

    def reset(self, item: Item, seed: int) -> Sequence[Message]:
        """The package's opening; the seed changes nothing. Raises EnvironmentFailed when reused, or without one."""
        if self._item is not None:
            raise EnvironmentFailed(f"the world was already used and cannot play {item.id!r}; make a fresh one")
        self._item = item
        self._tools = list(item.payload["tools"])
        messages = self._opening(item) if item.payload.get(OPENS) else item.payload["messages"]
        system, *chat = [self._message(message) for message in messages]
        if self._is_native:
            return [system, *chat]
        return [Message(system.role, f"{system.text}\n\n{TOOLS_HEADER}\n{_listed(self._tools)}"), *chat]

    def _message(self, message: Mapping[str, Any]) -> Message:
        """A message of the opening. Raises EnvironmentFailed for pictures that are none."""
        try:
            pictures = _pictures(message.get(PICTURES), self._channel.name)
        except BridgeFailed as error:
            raise EnvironmentFailed(str(error)) from error
        return place_pictures(message["role"], message["content"], pictures)

    def _opening(self, item: Item) -> Sequence[Mapping[str, Any]]:
        try:
            messages = self._channel.ask("open", name=self._task, **item.payload[QUESTION])
        except (BridgeFailed, BridgeRaised) as error:
            raise EnvironmentFailed(str(error)) from error
        keys = {"role", "content"}
        if (
            not isinstance(messages, list)
            or not messages
            or not all({*message} - {PICTURES} == keys for message in messages)
        ):
            raise EnvironmentFailed(f"bridge {self._channel.name}: gave {quoted(messages)} as the opening of {item.id}")
        return messages

    def act(self, action: str) -> Step:
        """Hand a message to the package. Raises EnvironmentFailed if its process does not work, and after the end.

        A message over which the package raises, hangs or ends, twice, while it answers those before, ends the episode,
        which is lost: it is the model that provoked that.
        """
        if self._item is None or self._is_over:
            raise EnvironmentFailed(f"the episode is {'over' if self._is_over else 'not started'}; make a fresh world")
        message = read_answer(action)
        turn, self._turn = self._turn, self._turn + 1
        if message.problem is not None:
            kind = ErrorKind.MALFORMED_CALL
            self._records.append(CallRecord(turn, None, {}, None, kind, message.problem))
            return Step(json.dumps({"error": f"{kind}: {message.problem}"}), done=False)
        self._answer = self._answer if message.answer is None else message.answer
        reply = self._after(_move(message))
        if reply is None:
            self._is_over = True
            return Step(None, done=True)
        self._is_over = bool(reply["is_over"])
        observation = self._observation(turn, message.calls, reply)
        if self._is_over:
            return Step(None, done=True)
        answer = place_pictures("user", observation, reply[PICTURES])
        return Step(answer.content, done=False, pictures=answer.pictures)

    def _after(self, move: dict[str, JsonValue]) -> dict[str, Any] | None:
        """What the package answers to a move; None: it answers everything but this one.

        Raises EnvironmentFailed if it does not answer the moves before either.
        """
        before = list(self._moves)
        self._moves.append(move)
        try:
            return self._ask(self._moves)
        except (BridgeFailed, BridgeRaised):
            try:
                return self._ask(self._moves)  # its process may have ended for another reason, and is a fresh one now
            except (BridgeFailed, BridgeRaised) as error:
                self._unanswered = str(error)
        try:
            self._ask(before or [{"words": ""}])
        except (BridgeFailed, BridgeRaised) as error:
            raise EnvironmentFailed(str(error)) from error
        return None

    def _ask(self, moves: Sequence[dict[str, JsonValue]]) -> dict[str, Any]:
        assert self._item is not None
        reply: Any = self._channel.ask("advance", name=self._task, **self._item.payload[QUESTION], moves=list(moves))
        if not _is_reply(reply, moves[-1]):
            raise BridgeFailed(f"bridge {self._channel.name}: gave {quoted(reply)} as the answer to a message")
        return {**reply, PICTURES: _pictures(reply.get(PICTURES), self._channel.name)}

    def _observation(self, turn: int, calls: Sequence[ToolCall], reply: Mapping[str, Any]) -> str:
        if reply["tools"] is not None:
            self._tools = list(reply["tools"])
        if reply["results"] is None:
            user_message = str(reply["user"] or "")
            # the functions that came later are listed where the first ones are in the opening, not with the request
            is_listed = reply["tools"] is not None and not self._is_native
            return f"The functions are now:\n{_listed(self._tools)}\n\n{user_message}" if is_listed else user_message
        results = [str(result) for result in reply["results"]]
        for call, result in zip(calls, results, strict=True):
            # every call may change the state: what repeats one is not known here
            self._records.append(CallRecord(turn, call.name, call.arguments, result, None, changed=True))
        return results[0] if len(results) == 1 else json.dumps(results, ensure_ascii=False)

    def state(self) -> Mapping[str, JsonValue]:
        """`answer` (the last words), `moves`, `unanswered`, `tool_calls` with the package's results, no violations."""
        return {
            "answer": self._answer,
            UNANSWERED: self._unanswered,
            MOVES: list(self._moves),
            "tool_calls": [asdict(record) for record in self._records],
            "safety_violations": [],
        }

    def ask_expert(self) -> str:
        """The reference's next message. Raises EnvironmentFailed if the package does not say it."""
        assert self._item is not None
        if self._expected is None:
            try:
                self._expected = _expected(self._item, self._channel, self._task)
            except (BridgeFailed, BridgeRaised) as error:
                raise EnvironmentFailed(str(error)) from error
        return self._expected[self._turn] if self._turn < len(self._expected) else ""


def _pictures(encoded: object, bridge: str) -> list[Picture]:
    """Pictures that a package shows, each base64 of a file. Raises BridgeFailed for anything else, or too many."""
    parts = [] if encoded is None else encoded
    if not isinstance(parts, list) or len(parts) > MAX_IN_MESSAGE or not all(isinstance(part, str) for part in parts):
        raise BridgeFailed(f"bridge {bridge}: gave {quoted(encoded)} as the pictures of a message")
    try:
        where = f"bridge {bridge}: a picture of a message"
        return [read_picture(base64.b64decode(part, validate=True), where) for part in parts]
    except (binascii.Error, ConfigError) as error:
        raise BridgeFailed(f"bridge {bridge}: gave a picture that cannot be shown ({error})") from error


def _is_reply(reply: object, move: Mapping[str, Any]) -> bool:
    """Whether a package's answer to a move is what was agreed: a result for each call, and none for words."""
    if not isinstance(reply, dict) or not reply.keys() >= {"results", "user", "tools", "is_over"}:
        return False
    results, tools = reply["results"], reply["tools"]
    is_answered = (
        results is None if "words" in move else isinstance(results, list) and len(results) == len(move["calls"])
    )
    has_types = isinstance(reply["user"], str | None) and isinstance(reply["is_over"], bool)
    return is_answered and has_types and (tools is None or _are_tools(tools))


def _are_tools(tools: object) -> bool:
    return isinstance(tools, list) and all(
        isinstance(tool, dict) and isinstance(tool.get("function"), dict) for tool in tools
    )


def _move(message: ParsedMessage) -> dict[str, JsonValue]:
    """A message as the package reads it."""
    if message.answer is not None:
        return {"words": message.answer}
    return {"calls": [{"name": call.name, "arguments": dict(call.arguments)} for call in message.calls]}


def _has_messages(reference: str | None) -> bool:
    """Whether a reference is the JSON of a list of messages."""
    try:
        messages = json.loads(reference or "")
    except (ValueError, RecursionError):
        return False
    return isinstance(messages, list) and all(isinstance(message, str) for message in messages)


def _expected(item: Item, channel: BridgeChannel, task: str) -> list[str]:
    """The messages of the reference. Raises BridgeFailed and BridgeRaised where the package has to be asked for it."""
    if item.reference is not None:
        return [str(message) for message in json.loads(item.reference)]
    messages = channel.ask("expect", name=task, **item.payload[QUESTION])
    if not isinstance(messages, list):
        raise BridgeFailed(f"bridge {channel.name}: gave {quoted(messages)} as the reference of {item.id}")
    return [str(message) for message in messages]


def _listed(tools: Sequence[Mapping[str, Any]]) -> str:
    return "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in tools)


class EpisodeScorer:
    """The package's verdicts on episodes; called from threads of the scoring stage, one episode at a time."""

    emits = EMITS | ScorerOutput(views=frozenset({SCORER_FAILED}), labels=WRONG_OR_NONE)
    work = ScoringWork(ScoringMode.BATCH, batch_size=8, concurrency=1)

    def __init__(self, channel: BridgeChannel, task: str, version: str) -> None:
        """task: name of the set within the package. version: of the bridge."""
        self.name, self.version = channel.name, version
        self._channel, self._task = channel, task

    def score(self, item: Item, rollout: Rollout) -> Score:
        """The verdict on one episode."""
        if not isinstance(rollout.state.get(MOVES), list):
            return Score(None, "the rollout does not say what the model did, message by message", Fault.JUDGE)
        try:
            if (unanswered := rollout.state.get(UNANSWERED)) is not None:
                value, reason = 0.0, f"the last message is one that the package cannot take: {unanswered}"
            else:
                value, reason = self._verdict(item, rollout.state[MOVES])
            failed = 0.0
        except (BridgeFailed, BridgeRaised) as error:
            if not self._accepts_reference(item):
                return Score(None, str(error), Fault.JUDGE)
            value, failed = 0.0, 1.0
            reason = f"the package's scorer takes the reference and not this episode: {error}"
        labels = trace_labels(rollout.state) + ([] if value == 1.0 else ["wrong_answer"])
        return Score(value, reason, None, {**trace_views(rollout.state), SCORER_FAILED: failed}, tuple(labels))

    def score_batch(self, batch: Sequence[tuple[Item, Rollout]]) -> list[Score]:
        """A verdict for each."""
        return [self.score(item, rollout) for item, rollout in batch]

    def _verdict(self, item: Item, moves: JsonValue) -> tuple[float, str]:
        """Raises BridgeFailed and BridgeRaised, also for a verdict that is not what was agreed."""
        prompt_sha256 = hashlib.sha256(item.prompt.encode("utf-8", "surrogatepass")).hexdigest()
        place = item.payload[QUESTION]
        verdict = self._channel.ask("score", name=self._task, prompt_sha256=prompt_sha256, moves=moves, **place)
        record: dict[str, Any] = verdict if isinstance(verdict, dict) else {}
        value, reason = record.get("value"), record.get("reason")
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise BridgeFailed(f"the package's scorer gave {quoted(verdict)}, not a number from 0 to 1")
        if not isinstance(reason, str):
            raise BridgeFailed(f"the package's scorer gave {quoted(reason)} as its reason, not a text")
        return float(value), reason

    def _accepts_reference(self, item: Item) -> bool:
        try:
            moves = [_move(read_answer(text)) for text in _expected(item, self._channel, self._task)]
            return self._verdict(item, moves)[0] == 1.0
        except (BridgeFailed, BridgeRaised):
            return False


class BridgedEpisodes(BridgedSet):
    """The episodes of one set of a package."""

    @property
    def max_turns(self) -> int:  # type: ignore[override]
        """Messages of the model in one episode, as the package allows."""
        return int(self._opened["max_turns"])

    def _item(self, record: Any, portion: str, number: int) -> Item:
        item = super()._item(record, portion, number)
        tools = record.get("tools")
        opens = record.get(OPENS) == 1
        has_reference = item.reference is None if opens else _has_messages(item.reference)
        if not _are_tools(tools) or not has_reference:
            raise BridgeFailed(f"bridge {self._channel.name}: gave {quoted(record)} as an item of {self._task}")
        return replace(item, payload={**item.payload, "tools": tools, **({OPENS: 1} if opens else {})})

    def environment(self) -> Environment:
        """A fresh episode."""
        return EpisodeWorld(self._channel, self._task)

    def scorer(self) -> Scorer:
        """The verdicts of the package."""
        return EpisodeScorer(self._channel, self._task, self.version)

    def environment_version(self) -> str:
        """Name and version of the world, of the program of this machine that it needs, and how pictures are shown."""
        pictures = f"pictures-{self.preparation.name}" if self.preparation is not None else ""
        return "+".join(filter(None, (WORLD, self._opened["engine"], pictures)))

    @property
    def preparation(self) -> Preparation | None:
        """How pictures are made ready for a model; None: there are none."""
        return Preparation() if self.takes_images else None

    def players(self) -> Players:
        """The reference, and an agent that makes the calls of another item."""

        def expected_next(item: Item, chat: Sequence[Message]) -> str:
            messages = _expected(item, self._channel, self._task)
            n_sent = sum(message.role == "assistant" for message in chat)
            return messages[n_sent] if n_sent < len(messages) else ""

        def foreign(items: Sequence[Item]) -> Player:
            others = {item.id: items[number - 1] for number, item in enumerate(items)}
            return lambda item, chat: expected_next(others[item.id], chat)

        return Players(expected_next, foreign, floor_at_most=self._opened["floor"])
