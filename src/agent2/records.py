"""The records and protocols that all rooms share: items, rollouts, scores, samplers, environments and scorers.

The nouns, in the order in which they meet:

    Item -> (Environment, Sampler) -> Turn* -> Rollout -> (Scorer) -> Score -> card

Everything here is plain data (frozen, slotted dataclasses) or a Protocol; nothing here does work, reads a
file or imports a heavy library. Scores that could not be produced are `None` with a fault: never zero.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

import msgspec

from agent2.errors import Fault
from agent2.texts import storable

COST_PREFIX = "cost_"
"""Prefix of every view with the cost of a verdict; where there are several verdicts, these add up."""
DANGER_PREFIX = "safety_"
"""Prefix of every badcase class for a dangerous action."""

JsonValue = Any  # a value that JSON can hold; the recursive type gains nothing here and slows the checker


class Split(StrEnum):
    """Who may see the items of a split and when its score is reported."""

    TRAIN = "train"
    DEV = "dev"
    TEST_PUBLIC = "test_public"
    """Hidden items; the score is reported, one number for each submission."""
    TEST_PRIVATE = "test_private"
    """Hidden items; scored once, at the end."""


HIDDEN_SPLITS = frozenset({Split.TEST_PUBLIC, Split.TEST_PRIVATE})


class Picture(msgspec.Struct, frozen=True):
    """A picture in a message: its name and how a model is shown it, never its bytes (`agent2.pictures`)."""

    digest: str
    """SHA-256 of the file as it was brought."""
    media_type: str
    at: int
    """Characters of the message's text that come before it."""
    width: int
    """Pixels, turned as its file says."""
    height: int
    prepared: str
    """`pictures.Preparation.name`."""


class Message(msgspec.Struct, frozen=True):
    """One chat message: a text, in which pictures may have places."""

    role: str
    content: str
    pictures: tuple[Picture, ...] | msgspec.UnsetType = msgspec.UNSET
    """In the order of their places; unset, and in no stored line, where there are none."""

    @property
    def text(self) -> str:
        """Its text. Who does not sample, store or show messages reads this, whatever else a message holds."""
        return self.content


@dataclass(frozen=True, slots=True)
class Item:
    """One task instance."""

    id: str
    """Stable: the same content has the same id in every run."""
    split: Split
    prompt: str
    reference: str | None = None
    """The reference answer, where the scorer compares with one."""
    payload: Mapping[str, JsonValue] = field(default_factory=dict)
    """What the environment and the scorer need beyond prompt and reference."""


class PlacedItem(Item):
    """An item of a data file, with its place there for messages.

    The place is no field, so that digests of items do not depend on where a file is.
    """

    __slots__ = ("_place",)
    _place: str

    @classmethod
    def of(cls, item: Item, place: str) -> "PlacedItem":
        """The item at a place: `data.csv:12`."""
        placed = cls(item.id, item.split, item.prompt, item.reference, item.payload)
        object.__setattr__(placed, "_place", place)
        return placed


def data_place(item: Item) -> str:
    """`data.csv:12`, the file and row of an item that comes from data; empty for others."""
    place: str = getattr(item, "_place", "")
    return place


def place_of_item(item: Item) -> str:
    """The same in brackets for the end of a message: ` [data.csv:12]`."""
    place = data_place(item)
    return f" [{place}]" if place else ""


@dataclass(frozen=True, slots=True)
class SamplingSettings:
    """How one completion is sampled."""

    temperature: float | None = 0.0
    """0 is greedy. None: a server is not told, and decides."""
    top_p: float | None = 1.0
    """None: a server is not told, and decides."""
    max_tokens: int = 256
    """Most new tokens of one completion."""
    seed: int = 0
    """Belongs to the request, not to the batch it happens to run in."""

    @property
    def model_temperature(self) -> float:
        """The temperature of a model in this process: 1, the providers' default, where none is set."""
        return 1.0 if self.temperature is None else self.temperature

    @property
    def model_top_p(self) -> float:
        """The top_p of a model in this process: 1, which cuts nothing, where none is set."""
        return 1.0 if self.top_p is None else self.top_p

    @property
    def description(self) -> str:
        """For reports: "temperature 0.6, top-p 0.95, 12 new tokens"."""
        temperature, top_p = ("unset" if value is None else f"{value:g}" for value in (self.temperature, self.top_p))
        return f"temperature {temperature}, top-p {top_p}, {self.max_tokens} new tokens"


class StopReason(StrEnum):
    """Why a completion ended."""

    END = "end"
    """The model ended its turn."""
    LENGTH = "length"
    """`max_tokens` or the context was used up."""
    FAULT = "fault"
    """No usable completion: see the fault."""


class Thought(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a model wrote before its answer."""

    text: str
    opening: str = ""
    """The mark before it, as written by the model or its template; empty: a server sent the thought apart."""
    closing: str | None = ""
    """The mark behind it; None: it was cut off, or never closed, so there is no answer."""

    @property
    def written(self) -> str:
        """With its marks, as the model wrote it."""
        return f"{self.opening}{self.text}{self.closing or ''}"


class Completion(msgspec.Struct, frozen=True):
    """What a sampler returns for one request."""

    text: str
    token_ids: Sequence[int] = ()
    """The new tokens, the end token included when the model produced it."""
    logprobs: Sequence[float] | None = None
    """Log-probability of each new token under the distribution it was sampled from (greedy: under the model's own,
    at temperature 1); None if the sampler has none."""
    stop_reason: StopReason = StopReason.END
    prompt_tokens: int | None = 0
    """None: the server does not say."""
    fault: Fault | None = None
    """Set exactly when `stop_reason` is FAULT."""
    reason: str = ""
    """One sentence about the fault."""
    n_tokens: int | msgspec.UnsetType | None = msgspec.UNSET
    """How many new tokens there are, from a sampler that knows no ids; None: the server does not say; unset: as many
    as `token_ids`."""
    alternatives: Sequence[tuple[str, Mapping[str, float]]] | None = None
    """Each new token as text, with the log-probabilities of the likeliest ones at its position; None: not requested, or
    not available."""
    pieces: Sequence[str] | None = None
    """The text of each new token by itself, where the sampler was set to return it: half a character is `\ufffd`."""
    thought: Thought | None = None
    """Where it is apart from the text: servers may send it so, and `llm.thoughts` finds it in a text."""
    is_final: bool = False
    """Of a fault: the model's own output provoked it, so that asking again would choose among its outputs."""

    @property
    def completion_tokens(self) -> int | None:
        """How many new tokens there are; None: not known."""
        return len(self.token_ids) if self.n_tokens is msgspec.UNSET else self.n_tokens


Prompt = Sequence[Message] | Sequence[int]
"""Chat messages, rendered with the checkpoint's own template, or token ids, unchanged."""


class Sampler(Protocol):
    """Turns prompts into completions for one checkpoint or endpoint; a queue.

    The tokens of a request depend on its own seed only: batch 1 and batch 64 give the same tokens up to
    float noise. Not thread-safe: one caller submits and collects.
    """

    capacity: int
    """How many requests are worth keeping in flight."""

    def submit(self, request_id: int, prompt: Prompt, settings: SamplingSettings) -> None:
        """Queue one request. Raises SamplerFailed if the id is in flight already."""

    def collect(self) -> list[tuple[int, Completion]]:
        """Block until at least one request is done; return all that are. Empty only when none is in flight."""

    def describe(self) -> dict[str, JsonValue]:
        """What the lock of a card needs: kind, model, dtype, chat-template digest, library versions."""

    def close(self) -> None:
        """Release what is held; may be called twice."""


@runtime_checkable
class ToolSampler(Protocol):
    """A sampler that can offer an episode's tools beside the prompt and returns a call as the text that worlds read."""

    takes_tools: bool
    """Whether this sampler was opened with native tools."""

    def submit(
        self, request_id: int, prompt: Prompt, settings: SamplingSettings, tools: Sequence[Mapping[str, JsonValue]] = ()
    ) -> None:
        """Queue one request. tools: as chat-completion servers take them."""


@dataclass(frozen=True, slots=True)
class AnswerOffer:
    """Answers that a model compares by how likely it finds them."""

    text: str | None
    """What they continue, as it is; None: the chat, rendered with the checkpoint's template."""
    answers: Sequence[str]


@runtime_checkable
class LikelihoodSampler(Protocol):
    """A sampler that can say how likely its model finds answers."""

    def submit_answers(self, request_id: int, prompt: Prompt, offer: AnswerOffer) -> None:
        """Queue one request; its completion is a JSON object of lists: `logprobs`, `n_tokens` and `is_greedy`."""


class Step(msgspec.Struct, frozen=True):
    """An environment's reply to one action."""

    observation: str | None
    """None when the episode is over and there is no further message."""
    done: bool
    pictures: tuple[Picture, ...] | msgspec.UnsetType = msgspec.UNSET
    """In the observation; unset where there are none."""


class Environment(Protocol):
    """The world that one item is played in; single-use and deterministic.

    Same item, seed and actions give the same observations and state. Raises EnvironmentFailed when the
    world itself breaks; a foolish action is no reason to raise.
    """

    def reset(self, item: Item, seed: int) -> Sequence[Message]:
        """The opening messages of the episode. Called exactly once."""

    def act(self, action: str) -> Step:
        """Apply the model's message."""

    def state(self) -> Mapping[str, JsonValue]:
        """The facts that state-based scoring needs, `answer` among them where there is a final answer."""


class SampledToken(msgspec.Struct, frozen=True, array_like=True):
    """One token of a model's message, where an evaluation stores them."""

    id: int
    text: str
    """By itself, as `Completion.pieces`."""
    logprob: float
    """As `Completion.logprobs`, to four decimals."""


class Turn(msgspec.Struct, frozen=True):
    """One model message and the environment's reply."""

    action: str
    observation: str | None
    stop_reason: StopReason
    prompt_tokens: int | None
    """None: not known."""
    completion_tokens: int | None
    tokens: Sequence[SampledToken] | msgspec.UnsetType = msgspec.UNSET
    """Of the model's message, its end token included; unset, and not in the stored line, unless requested."""
    thought: Thought | msgspec.UnsetType = msgspec.UNSET
    """What the model wrote before its action, which nobody but a reader sees; unset where there is none."""
    pictures: tuple[Picture, ...] | msgspec.UnsetType = msgspec.UNSET
    """In the environment's reply; unset, and not in the stored line, where there are none."""

    @property
    def reply(self) -> Message | None:
        """The environment's reply as a message; None: the episode was over."""
        return None if self.observation is None else Message("user", self.observation, self.pictures)

    @property
    def written(self) -> str:
        """The whole message as the model wrote it, its thought included."""
        return self.action if self.thought is msgspec.UNSET else self.thought.written + self.action

    @property
    def is_thought_cut_off(self) -> bool:
        """Whether its thought never ended, so that there is no answer."""
        return self.thought is not msgspec.UNSET and self.thought.closing is None


MAX_TOKENS = 2**53
"""A larger number is not taken for a count of tokens."""


def token_count(stated: object) -> int | None:
    """A count of tokens as a log or a server states it; None (not known) for anything that cannot be one."""
    if isinstance(stated, bool) or not isinstance(stated, int | float) or not 0 <= stated <= MAX_TOKENS:
        return None
    return int(stated)


class Usage(msgspec.Struct, frozen=True):
    """What one rollout cost."""

    prompt_tokens: int | None = 0
    """None: not known, as where a server does not report it; never 0 then."""
    completion_tokens: int | None = 0
    seconds: float = 0.0
    """Wall clock from the first request to the last reply, waiting in the queue included."""

    @property
    def tokens(self) -> int | None:
        """All tokens; None where either number is not known."""
        return sum_if_known(self.prompt_tokens, self.completion_tokens)


class RolloutStatus(StrEnum):
    """How a rollout ended."""

    COMPLETED = "completed"
    """The environment said that the episode is over."""
    TURN_CAP = "turn_cap"
    """The cap on turns was reached, or the context was full, before the episode was over."""
    TOKEN_CAP = "token_cap"
    """The token budget of an episode was used up before it was over; `turn_cap` on cards of earlier versions."""
    TIME_CAP = "time_cap"
    """It took longer than the protocol allows, whether or not it ended; scored in its state at that time."""
    FAILED = "failed"
    """It could not be played to its end: see the fault."""


CAPPED = frozenset({RolloutStatus.TURN_CAP, RolloutStatus.TOKEN_CAP})
"""The episode was stopped at a limit on what the model may do or write. A reporting rule counts both as `turn_cap`."""


class Rollout(msgspec.Struct, frozen=True):
    """One attempt of one checkpoint at one item."""

    item_id: str
    attempt: int
    seed: int
    status: RolloutStatus
    prompt: Sequence[Message]
    turns: Sequence[Turn]
    answer: str | None
    """The final answer, where the environment has one."""
    state: Mapping[str, JsonValue]
    usage: Usage
    fault: Fault | None = None
    """Set exactly when `status` is FAILED."""
    reason: str = ""
    retries: int = 0
    """How often the attempt was restarted after a fault that the fault table allows to retry."""
    is_final: bool | msgspec.UnsetType = msgspec.UNSET
    """True: as `Completion.is_final`, it is never played again."""


class Score(msgspec.Struct, frozen=True):
    """A verdict on one rollout."""

    value: float | None
    """0 to 1; None: could not be judged."""
    reason: str
    """One sentence that a reader can verify in the card."""
    fault: Fault | None = None
    """Set exactly when `value` is None, except for rollouts that were not judged yet: `PENDING`."""
    views: Mapping[str, float | None] = msgspec.field(default_factory=dict)
    """Further numbers of the same rollout by name, in their own units (`answer_parsed` 0 or 1, `tool_errors` a count);
    None: requested and not known."""
    labels: tuple[str, ...] = ()
    """Badcase classes that apply, `ifeval_keyword_missing`."""
    extracted: str | None = None
    """The final answer as it was extracted, in one form for equal answers, for majority votes; None: none could be
    extracted, or the scorer extracts none."""


def added_costs(*views: Mapping[str, float | None]) -> dict[str, float | None]:
    """What several verdicts cost together; unknown where one of them is."""
    costs: dict[str, float | None] = {}
    for name in sorted({name for view in views for name in view if name.startswith(COST_PREFIX)}):
        values = [view.get(name) for view in views]
        stated = [value for value in values if value is not None]
        costs[name] = sum(stated) if len(stated) == len(values) else None
    return costs


PENDING = Score(None, "played; not scored yet")
"""Of a rollout on a card that was played and not scored yet."""


@dataclass(frozen=True, slots=True)
class ScorerOutput:
    """Every view and badcase class that a scorer may put on a Score; suites are checked against it."""

    views: frozenset[str] = frozenset()
    labels: frozenset[str] = frozenset()
    view_prefixes: frozenset[str] = frozenset()
    """Prefixes of further views, whose names depend on the scorer's settings."""

    def __or__(self, other: "ScorerOutput") -> "ScorerOutput":
        """The union of two declarations."""
        prefixes = self.view_prefixes | other.view_prefixes
        return ScorerOutput(self.views | other.views, self.labels | other.labels, prefixes)

    def has_view(self, name: str) -> bool:
        """Whether a view of that name may be on a Score."""
        return name in self.views or name.startswith(tuple(self.view_prefixes))


class ScoringMode(StrEnum):
    """How a scorer works, which decides when and where it runs."""

    INLINE = "inline"
    """Pure Python and fast: each rollout right after it was played, in the process that plays."""
    BATCH = "batch"
    """In batches side by side, once everything was played: a judge behind an endpoint."""
    SANDBOX = "sandbox"
    """As BATCH, and it runs untrusted programs, each in its own sandbox; never where a model is played."""


@dataclass(frozen=True, slots=True)
class ScoringWork:
    """What a scorer requires of the scoring stage."""

    mode: ScoringMode = ScoringMode.INLINE
    batch_size: int = 1
    """Most rollouts of one call."""
    concurrency: int = 1
    """Most batches at once."""
    timeout_s: float | None = None
    """For one batch, retries included; one that takes longer is missing with a judge fault. None: no limit."""


@dataclass(frozen=True, slots=True)
class JudgeIdentity:
    """The model behind the verdicts of a scorer that asks one."""

    model: str | None = None
    """As it was named; None: no model is named yet, so there are no verdicts."""
    prompt_digest: str | None = None
    """SHA-256 of the instructions; None: the model gets none, as a reward model."""
    follows_rule: bool = False
    """A rule decides first, and the model judges only what the rule passes."""


class Scorer(Protocol):
    """Judges a rollout. Raises nothing: what it cannot judge is a Score of None with a fault.

    It may also declare: `emits: ScorerOutput`, which suites are checked against (`declared_output`); `work:
    ScoringWork` (`work_of`), inline without it; `needs_state: frozenset[str]`, the keys of a world's final state that
    it judges by; `identity: JudgeIdentity` (`judge_of`), where a model gives the verdicts; `expects: str` on the class,
    the form of answer that it reads, in words.
    """

    name: str
    version: str

    def score(self, item: Item, rollout: Rollout) -> Score:
        """The verdict on one finished rollout (status COMPLETED, TURN_CAP or TIME_CAP)."""


@runtime_checkable
class BatchScorer(Protocol):
    """A scorer of the mode BATCH that takes several rollouts at once; it may be called from several threads."""

    def score_batch(self, batch: Sequence[tuple[Item, Rollout]]) -> Sequence[Score]:
        """One verdict for each, in order."""


@dataclass(frozen=True, slots=True)
class Preference:
    """A verdict on two answers to one item, in the order in which they were presented."""

    first: float | None
    """1: the first one is better, 0: the second one, 0.5: a tie; numbers between are degrees. None: no verdict."""
    reason: str
    fault: Fault | None = None
    """Set exactly when `first` is None."""
    views: Mapping[str, float | None] = field(default_factory=dict)
    """Further numbers, such as what the verdict cost (`COST_PREFIX`)."""
    labels: tuple[str, ...] = ()


class PairScorer(Protocol):
    """Judges which of two rollouts of one item is better; the caller presents them in both orders.

    It may declare `work` (BATCH: called from several threads at once) and `needs_state`, as a `Scorer` may; one that
    also has `prefer_batch(pairs)`, from (item, first, second) to a verdict for each, gets many pairs at once.
    """

    name: str
    version: str

    def prefer(self, item: Item, first: Rollout, second: Rollout) -> Preference:
        """The verdict on two finished rollouts. Raises nothing."""


def work_of(scorer: object) -> ScoringWork:
    """The `work` that a scorer declares; inline if it declares nothing."""
    declared = getattr(scorer, "work", None)
    return declared if isinstance(declared, ScoringWork) else ScoringWork()


def judge_of(scorer: object) -> JudgeIdentity | None:
    """The model that gives a scorer's verdicts; None: no model does, or the scorer does not declare it."""
    declared = getattr(scorer, "identity", None)
    return declared if isinstance(declared, JudgeIdentity) else None


def declared_output(scorer: object) -> ScorerOutput | None:
    """The `emits` of a scorer (or its class); None: it declares nothing, so its views and labels are unknown."""
    declared = getattr(scorer, "emits", None)
    return declared if isinstance(declared, ScorerOutput) else None


class ScoredRollout(msgspec.Struct, frozen=True):
    """One line of a card."""

    rollout: Rollout
    score: Score


@dataclass(frozen=True, slots=True)
class EvaluationProtocol:
    """Everything that must be equal for two scores to be comparable."""

    benchmark: str
    """Name and version, "arithmetic-v1.0"."""
    split: Split
    items_digest: str
    """Digest of the items played, in order. Says nothing about what they are."""
    sampling: SamplingSettings
    attempts: int
    """Rollouts for each item."""
    max_turns: int
    environment: str
    """Name and version."""
    scorer: str
    """Name and version."""
    dtype: str
    chat_template_digest: str
    """Of the template in use; scores of a checkpoint with another template are not comparable."""
    context_length: int | None = None
    """Most tokens of prompt and completion together; None: the model's own limit."""
    tools: Mapping[str, JsonValue] = field(default_factory=dict)
    """Permissions and limits of tool use, where the world has tools."""
    max_wall_time_s: float | None = None
    """For one rollout; None: no limit."""
    retries: int = 1
    """How often an attempt may be restarted after a fault that allows it."""
    prompt_digest: str = ""
    """Of instructions and examples that the benchmark puts around an item; empty if it adds none."""
    judge_digest: str = ""
    """Of the judge's model and prompt, or of the settings of another scorer; empty if it has none."""
    context: str = "full"
    """Which part of a long episode was sent to the model: the policy and its numbers."""
    thinking: str = "none"
    """How thought and answer were told apart (`llm.thoughts`); none on cards from before that."""

    @property
    def benchmark_name(self) -> str:
        """The benchmark without its version."""
        return self.benchmark.rpartition("-v")[0] or self.benchmark

    @property
    def digest(self) -> str:
        """Equal exactly when every field is."""
        return digest_of(self)


class Benchmark(Protocol):
    """A named, versioned source of items with its environment and scorer.

    Implementations are named in `agent2.benchmarks.BENCHMARKS` ("name -> module:Class").
    """

    name: str
    version: str
    primary_metric: str
    max_turns: int
    sampling: SamplingSettings
    """How completions are sampled; the seed of a request is derived for each attempt."""
    attempts: int

    def items(self, split: Split, n: int, secret: bytes | None) -> list[Item]:
        """The first n items of a split, always the same ones. Hidden splits need the installation secret.

        Raises ConfigError if a hidden split is requested without the secret or n is more than there are.
        """

    def environment(self) -> Environment:
        """A fresh world for one rollout."""

    def scorer(self) -> Scorer:
        """The scorer of the primary metric."""

    def environment_version(self) -> str:
        """Name and version of the world, for the protocol."""


def sum_if_known(first: int | None, second: int | None) -> int | None:
    """The sum of two counts; None where either is not known."""
    return None if first is None or second is None else first + second


def canonical_json(value: object) -> bytes:
    """JSON with sorted keys and no spaces; dataclasses and enums included. Equal values give equal bytes."""
    try:
        return msgspec.json.encode(value, order="deterministic")
    except UnicodeEncodeError:  # half a character in a text of somebody else's
        return msgspec.json.encode(storable(msgspec.to_builtins(value)), order="deterministic")


def digest_of(value: object) -> str:
    """SHA-256 (hex) of the canonical JSON of a value."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def derive_seed(*parts: str | int) -> int:
    """A 63-bit seed from names and numbers; the same parts give the same seed on every machine."""
    joined = "\x1f".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.sha256(joined).digest()[:8], "big") >> 1
