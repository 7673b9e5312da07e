"""A benchmark whose items and verdicts come over a bridge, from a generator: each seed is an item.

Items are divided into four splits as those of our own generators (`home.Source`): hidden ones are drawn with seeds that
follow from the installation secret, and no two splits share a prompt. The version names the package's version and a
digest of pins and worker. What the package says of a message is looked at before it becomes a score: anything that is
not a number from 0 to 1 is missing, with a judge fault.

A message that the package's scorer raises over, or does not survive, is wrong if the scorer then accepts the reference;
otherwise its verdict is missing. Does NOT play in trials: agents have no bridge.
"""

import hashlib
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agent2.benchmarks.bridges import Bridge, find_bridge, require_bridged
from agent2.benchmarks.bridges.channel import BridgeChannel, BridgeFailed, BridgeRaised
from agent2.benchmarks.home import Source
from agent2.environments import QUESTION_WORLD, QuestionEnvironment
from agent2.errors import Fault, quoted
from agent2.records import (
    Environment,
    Item,
    JsonValue,
    Rollout,
    SamplingSettings,
    Score,
    Scorer,
    ScorerOutput,
    ScoringMode,
    ScoringWork,
    Split,
    digest_of,
)
from agent2.scorers.answers import MOSTLY_RIGHT, WRONG_OR_NONE, wrong_or_none

QUESTION = "question"
"""Payload key of what tells the package which item it is: a seed, or a place in its data."""
SEED = "seed"
MAX_SEED = 2**31 - 1
"""Generators hand seeds to numpy, which takes 32 bits."""
TRIES = 5
"""Seeds for one item, where the generator raises over the first."""
MAX_MESSAGE_CHARACTERS = 200_000
SCORER_FAILED = "scorer_failed"
"""View: 1 where the package's scorer raised over a message or did not survive it."""


@dataclass(frozen=True, slots=True)
class BridgedQuestion:
    """What a generator makes of a seed."""

    seed: int
    prompt: str
    reference: str | None
    """A message that is right; None: the package states none."""


class BridgedScorer:
    """The verdicts of the package; called from threads of the scoring stage, one question at a time."""

    emits = ScorerOutput(views=frozenset({"answer_parsed", SCORER_FAILED}), labels=WRONG_OR_NONE)
    work = ScoringWork(ScoringMode.BATCH, batch_size=16, concurrency=1)

    def __init__(self, channel: BridgeChannel, name: str, version: str) -> None:
        """name: of the generator or task. version: of the bridge."""
        self.name, self.version = channel.name, version
        self._channel, self._inner_name = channel, name

    def score(self, item: Item, rollout: Rollout) -> Score:
        """The verdict on one message."""
        message = rollout.answer
        if message is None:
            return Score(0.0, "there is no answer", labels=("no_answer",))
        if len(message) > MAX_MESSAGE_CHARACTERS:
            return Score(
                0.0, f"the message has more than {MAX_MESSAGE_CHARACTERS} characters", labels=("wrong_answer",)
            )
        try:
            return _checked(self._ask(item, message, rollout.state))
        except (BridgeFailed, BridgeRaised) as error:
            return self._without_verdict(item, error)

    def score_batch(self, batch: Sequence[tuple[Item, Rollout]]) -> list[Score]:
        """A verdict for each."""
        return [self.score(item, rollout) for item, rollout in batch]

    def _ask(self, item: Item, message: str, state: Mapping[str, JsonValue]) -> Any:
        place = dict(item.payload[QUESTION])
        if "logprobs" in state:
            place["likelihoods"] = {key: state[key] for key in ("logprobs", "is_greedy")}
        prompt_sha256 = hashlib.sha256(item.prompt.encode("utf-8", "surrogatepass")).hexdigest()
        return self._channel.ask("score", name=self._inner_name, prompt_sha256=prompt_sha256, message=message, **place)

    def _without_verdict(self, item: Item, error: Exception) -> Score:
        """Wrong if the scorer works on this item, so that the message is what it cannot take; else missing."""
        try:
            accepts = item.reference is not None and _checked(self._ask(item, item.reference, {})).value == 1.0
        except (BridgeFailed, BridgeRaised):
            accepts = False
        if not accepts:
            return Score(None, str(error), Fault.JUDGE)
        reason = f"the package's scorer takes the reference and not this message: {error}"
        return Score(0.0, reason, views={SCORER_FAILED: 1.0}, labels=("wrong_answer",))


def _checked(verdict: Any) -> Score:
    """A verdict of the other side as a score; one that is not what was agreed is missing."""
    record: dict[str, Any] = verdict if isinstance(verdict, dict) else {}
    value, extracted = record.get("value"), record.get("extracted")
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1:
        return Score(None, f"the package's scorer gave {quoted(verdict)}, not a number from 0 to 1", Fault.JUDGE)
    if not isinstance(extracted, str | None):
        return Score(None, f"the package's scorer read {quoted(extracted)}, not a text", Fault.JUDGE)
    views = {"answer_parsed": float(extracted is not None), SCORER_FAILED: 0.0}
    if extracted is None:
        return Score(float(value), "no answer can be read in the message", views=views, labels=("no_answer",))
    labels = () if value >= MOSTLY_RIGHT else (wrong_or_none(extracted),)
    return Score(float(value), f"the package gives {quoted(extracted)} {value:g}", None, views, labels, extracted)


class BridgedBenchmark:
    """The items of one generator behind a bridge."""

    primary_metric = "score"
    max_turns = 1
    sampling = SamplingSettings(temperature=0.0, max_tokens=512)
    attempts = 1

    def __init__(self, bridge: str, name: str, where: str = "benchmark", channel: BridgeChannel | None = None) -> None:
        """channel: for tests. Raises ConfigError if the bridge is not installed or knows no such name."""
        self._bridge: Bridge = find_bridge(bridge, where)
        ready = require_bridged(self._bridge, name, where)
        self._generator = name
        self._system = str(ready.facts.get("system") or "") or None
        self.name = f"{bridge}.{name}"
        self.version = f"{ready.version}+{self._bridge.source_digest[:8]}"
        self.description = f"{name} of {self._bridge.distribution} {ready.version}: {self._bridge.description}"
        self.prompt_digest = digest_of(self._system)
        self._channel = channel or BridgeChannel(bridge, ready.folder, self._bridge.worker)
        self._questions: dict[int, BridgedQuestion] = {}
        self._source: Source[BridgedQuestion] = Source(
            self.name, self._draw, lambda question: question.prompt, lambda question: question.prompt
        )
        self._finalizer = weakref.finalize(self, BridgeChannel.close, self._channel)

    def items(self, split: Split, n: int, secret: bytes | None) -> list[Item]:
        """The first n items of a split.

        Raises ConfigError without the secret for a hidden one, or if it has fewer, and BridgeFailed if the package's
        process fails.
        """
        return [
            Item(
                self._source.item_id(question, split, secret),
                split,
                question.prompt,
                question.reference,
                {QUESTION: {SEED: question.seed}},
            )
            for question in self._source.first(split, n, secret)
        ]

    def environment(self) -> Environment:
        """A fresh question, after the package's system message."""
        return QuestionEnvironment(self._system)

    def scorer(self) -> Scorer:
        """The package's verdicts."""
        return BridgedScorer(self._channel, self._generator, self.version)

    def environment_version(self) -> str:
        """Name and version of the world."""
        return QUESTION_WORLD

    def visible_row(self, item: Item) -> Mapping[str, JsonValue]:
        """A visible item with its reference, its seed and the system message."""
        return {
            "id": item.id,
            "prompt": item.prompt,
            "answer": item.reference,
            "payload": dict(item.payload),
            "system": self._system,
        }

    def close(self) -> None:
        """End the package's process."""
        self._channel.close()

    def _draw(self, rng: np.random.Generator) -> BridgedQuestion:
        problem: BridgeRaised | None = None
        for _ in range(TRIES):
            try:
                return self._question(int(rng.integers(MAX_SEED)))
            except BridgeRaised as error:  # some generators give up on some seeds
                problem = problem or error
        assert problem is not None
        raise problem

    def _question(self, seed: int) -> BridgedQuestion:
        """Raises BridgeRaised and BridgeFailed, also for an answer that is not what was agreed."""
        if seed not in self._questions:
            answer = self._channel.ask("draw", name=self._generator, seed=seed)
            prompt, reference = (answer.get("prompt"), answer.get("reference")) if isinstance(answer, dict) else (0, 0)
            if not isinstance(prompt, str) or not prompt or not isinstance(reference, str | None):
                raise BridgeFailed(f"bridge {self._channel.name}: gave {quoted(answer)} as an item of {self.name}")
            self._questions[seed] = BridgedQuestion(seed, prompt, reference)
        return self._questions[seed]
