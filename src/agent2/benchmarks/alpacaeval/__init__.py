"""AlpacaEval 2: open instructions, compared with GPT-4's answers by an LLM annotator.

The items are the published 805 instructions with the baseline's answers (the model outputs of gpt4_1106_preview in the
repository tatsu-lab/alpaca_eval), which are not shipped: pass the folder that holds them. The annotator is the
published one (`weighted_alpaca_eval_gpt4_turbo`): its prompt, which of the two answers comes first (a draw seeded by
the instruction), and a preference from the probabilities of the two names, `m` and `M`, that it may answer with. Its
model is any OpenAI-compatible endpoint, named in `judge.yaml` beside the items.

AlpacaEval has no train set, and its published items cannot be secret. Splits by a public hash of the instruction, the
same in every installation: 3 of 16 train, 1 dev, 4 test_public, 8 test_private. Half is kept for the one score that
decides, so that its interval is as narrow as possible; a quarter is enough to select a checkpoint; the rest are prompts
of the same kind to learn from. Does NOT give a leaderboard number: that is over all 805.
"""

import hashlib
import json
import math
import random
import re
from collections.abc import Mapping, Sequence
from heapq import nlargest
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pydantic import Field

from agent2.benchmarks.data_files import OfficialFile
from agent2.benchmarks.home import NamedItem, NamedSet, Players, foreign_answers, reference_answer
from agent2.cards.judgement import REFERENCE_CHARS, REPLY_CHARS
from agent2.config import StrictModel, load_yaml
from agent2.environments import QUESTION_WORLD, QuestionEnvironment
from agent2.errors import ConfigError, Fault, quoted
from agent2.foreign_files import MAX_LOG_BYTES, read_limited
from agent2.records import (
    Completion,
    Environment,
    Item,
    JudgeIdentity,
    Message,
    Rollout,
    SamplingSettings,
    Score,
    Scorer,
    ScorerOutput,
    ScoringMode,
    ScoringWork,
    Split,
)
from agent2.scorers.hidden import HiddenJudge
from agent2.scorers.judge_model import COSTS, JudgeModel

BASELINE = OfficialFile(
    "alpacaeval",
    ("gpt4_1106_preview.json", "model_outputs/gpt4_1106_preview.json", "alpaca_eval_gpt4_baseline.json"),
    "github.com/tatsu-lab/alpaca_eval (results/gpt4_1106_preview/model_outputs.json, under the first name)",
    {},
)
"""The baseline's answers, by the names of the repository and of the data set; one JSON list."""
JUDGE_FILE = "judge.yaml"
PROMPT_FILE = "evaluators_configs/alpaca_eval_clf_gpt4_turbo/alpaca_eval_clf.txt"
"""In the package `alpaca_eval`."""
N_LIKELIEST = 5
"""Number of tokens whose probabilities the published annotator reads."""
FIRST, SECOND = "m", "M"
"""The names that the published prompt gives to the two answers."""
SHARES = {Split.TRAIN: 3, Split.DEV: 1, Split.TEST_PUBLIC: 4, Split.TEST_PRIVATE: 8}
_FIELD = re.compile(r"\{(instruction|output_1|output_2)\}")
_TURN = re.compile(r"<\|im_start\|>(\w+)\n(.*?)<\|im_end\|>", re.DOTALL)


class AnnotatorFile(StrictModel):
    """`judge.yaml`: the annotating model."""

    model: str
    """Any checkpoint that `agent2 eval` takes, `http://HOST/v1#NAME`; the published one is gpt-4-1106-preview."""
    prompt: Path | None = None
    """The published prompt, `alpaca_eval_clf.txt`; None: that of the installed package `alpaca_eval`."""
    endpoint: dict[str, Any] = Field(default_factory=dict)
    """Options as for `--endpoint`."""
    prices: dict[str, float] | None = None
    """Dollars per million tokens, `prompt` and `completion`."""


def is_switched(instruction: str) -> bool:
    """Whether the published annotator shows the model's answer first."""
    # seed and call are those of the published annotator
    return random.Random(f"is_switched_outputs{instruction}0").choices([False, True], k=1)[0]


def read_messages(prompt: str) -> list[tuple[str, str]]:
    """Role and text of each message of a prompt in ChatML. Raises ConfigError for another form."""
    messages = [(role, text.strip()) for role, text in _TURN.findall(prompt)]
    fields = {name for _, text in messages for name in _FIELD.findall(text)}
    if not messages or fields != {"instruction", "output_1", "output_2"}:
        raise ConfigError(
            "the prompt is not AlpacaEval's: messages between <|im_start|> and <|im_end|> with the fields "
            f"{{instruction}}, {{output_1}} and {{output_2}}; it has {len(messages)} messages, fields: {sorted(fields)}"
        )
    return messages


def fill_prompt(messages: Sequence[tuple[str, str]], instruction: str, first: str, second: str) -> list[Message]:
    """The messages with their fields filled in; braces in the texts themselves are left as they are."""
    texts = {"instruction": instruction, "output_1": first, "output_2": second}
    return [Message(role, _FIELD.sub(lambda match: texts[match[1]], text)) for role, text in messages]


def preference(completion: Completion, *, switched: bool) -> float | None:
    """Of the model over the baseline, 0 to 1, as the published parser reads it; None: neither name is among the tokens.

    A name that is not among the most likely tokens has probability 0.
    """
    alternatives = next((alternatives for _, alternatives in completion.alternatives or () if alternatives), {})
    likeliest = nlargest(N_LIKELIEST, alternatives.items(), key=lambda pair: pair[1])
    log_probs = {token: value for token, value in likeliest if token in (FIRST, SECOND)}
    if not log_probs:
        return None
    highest = max(log_probs.values())
    # relative to the highest: exp of both log-probabilities may underflow to 0
    share = {token: math.exp(value - highest) for token, value in log_probs.items()}
    second = share.get(SECOND, 0.0) / sum(share.values())
    return 1.0 - second if switched else second


class AlpacaAnnotator:
    """The published annotator: the preference for an answer over the baseline's, 0 to 1."""

    name = "alpaca_annotator"
    version = "1.0"
    emits = ScorerOutput(views=frozenset({*COSTS, REPLY_CHARS, REFERENCE_CHARS}))
    work = ScoringWork(ScoringMode.BATCH, batch_size=64)

    def __init__(self, file: AnnotatorFile, prompt: str) -> None:
        """Raises ConfigError for a prompt of another form and a model that does not exist."""
        self._messages = read_messages(prompt)
        self._judge = JudgeModel(
            file.model,
            max_tokens=1,
            temperature=1.0,
            prices=file.prices,
            endpoint=file.endpoint,
            options=(FIRST, SECOND),
        )
        prompt_digest = hashlib.sha256(prompt.encode()).hexdigest()
        self.version = f"{self.version}+{self._judge.digest[:8]}{prompt_digest[:8]}"
        self.identity = JudgeIdentity(file.model, prompt_digest)

    def score_batch(self, batch: Sequence[tuple[Item, Rollout]]) -> list[Score]:
        """One verdict for each rollout, in order."""
        prompts = []
        for item, rollout in batch:
            answer, baseline = rollout.answer or "", item.reference or ""
            pair = (answer, baseline) if is_switched(item.prompt) else (baseline, answer)
            prompts.append(fill_prompt(self._messages, item.prompt, *pair))
        answers = self._judge.ask(prompts, lambda completion: bool(completion.alternatives))
        return [
            self._verdict(item, rollout, verdict.completion, verdict.views)
            for (item, rollout), verdict in zip(batch, answers, strict=True)
        ]

    def score(self, item: Item, rollout: Rollout) -> Score:
        """The verdict on one answer."""
        return self.score_batch([(item, rollout)])[0]

    def _verdict(
        self, item: Item, rollout: Rollout, completion: Completion, costs: Mapping[str, float | None]
    ) -> Score:
        if completion.fault is not None:
            return Score(None, f"the annotator gave no answer: {completion.reason}", Fault.JUDGE, costs)
        value = preference(completion, switched=is_switched(item.prompt))
        if value is None:
            reason = (
                f"answered {quoted(completion.text)}"
                if completion.alternatives
                else "its endpoint gives no top_logprobs"
            )
            return Score(None, f"the annotator named neither answer: {reason}", Fault.JUDGE, costs)
        lengths = {REPLY_CHARS: float(len(rollout.answer or "")), REFERENCE_CHARS: float(len(item.reference or ""))}
        return Score(value, f"preferred to the baseline's answer with {value:.4f}", views={**costs, **lengths})


class AlpacaEval:
    """The published instructions, compared with the baseline's answers."""

    name = "alpacaeval"
    version = "1.0"
    primary_metric = "win_rate"
    max_turns = 1
    sampling = SamplingSettings(temperature=0.7, max_tokens=2048)
    attempts = 1

    def __init__(self, data: Path | None = None) -> None:
        """data: folder of the official files; None: `$ALPACAEVAL_DATA`, else ~/.cache/alpacaeval."""
        self._data = BASELINE.folder(data)

    def items(self, split: Split, n: int, secret: bytes | None) -> list[Item]:
        """The first n items of a split, the same in every installation.

        Raises ConfigError for files that are absent, damaged or of another layout, and for more items than there are.
        """
        items = [item for item in self._all() if item.split is split]
        if n > len(items):
            raise ConfigError(f"alpacaeval: {n} items of {split.value} were asked for, there are {len(items)}")
        return items[:n]

    def count(self, split: Split, secret: bytes | None) -> int:
        """How many items a split has. Raises ConfigError as `items`."""
        return sum(item.split is split for item in self._all())

    def named_set(self, split: Split | None, secret: bytes | None) -> NamedSet:
        """The items of a split, or all 805. Raises ConfigError as `items`."""
        chosen = [item for item in self._all() if split in (None, item.split)]
        return NamedSet(split or Split.TEST_PUBLIC, [NamedItem(item, (item.id,), (item.prompt,)) for item in chosen])

    def environment(self) -> Environment:
        """A fresh question."""
        return QuestionEnvironment()

    def scorer(self) -> Scorer:
        """The annotator of `judge.yaml`; without one, verdicts are missing. A workspace asks it through the API."""
        return HiddenJudge(self.judge, self.judge(b""))

    def judge(self, secret: bytes) -> Scorer:
        """The annotator, whatever the secret."""
        path = self._data / JUDGE_FILE
        if not path.is_file():
            return _NoAnnotator()
        file = load_yaml(path, AnnotatorFile)
        prompt = file.prompt if file.prompt is None else path.parent / file.prompt
        return AlpacaAnnotator(file, _read(prompt or _installed_prompt()))

    def environment_version(self) -> str:
        """Name and version of the world."""
        return QUESTION_WORLD

    def players(self) -> Players:
        """The baseline against itself, which is a tie, and its answers to other items."""
        return Players(reference_answer, foreign_answers, ceiling_at_least=0.4, floor_at_most=0.2, n_played=20)

    def _all(self) -> list[Item]:
        path = BASELINE.path(self._data)
        try:
            rows = json.loads(_read(path))
            pairs = [(str(row["instruction"]), str(row["output"]), str(row.get("dataset", ""))) for row in rows]
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise ConfigError(
                f"{path}: is cut off or of another layout ({type(error).__name__}: {error}); a JSON list of objects "
                "with instruction and output is needed"
            ) from error
        numbers: dict[str, int] = {}
        for number, (instruction, _, _) in enumerate(pairs):
            if instruction in numbers:
                raise ConfigError(f"{path}: rows {numbers[instruction]} and {number} have the same instruction")
            numbers[instruction] = number
        items = [
            Item(f"alpacaeval-{number:03d}", split_of(text), text, output, {"dataset": source})
            for number, (text, output, source) in enumerate(pairs)
        ]
        return sorted(items, key=lambda item: hashlib.sha256(f"alpacaeval order\0{item.prompt}".encode()).digest())


def split_of(instruction: str) -> Split:
    """The split of an instruction, by a public hash."""
    # one byte is enough: the shares add up to 16, which divides 256
    bucket = hashlib.sha256(f"alpacaeval split\0{instruction}".encode()).digest()[0] % sum(SHARES.values())
    for split, share in SHARES.items():
        if bucket < share:
            return split
        bucket -= share
    raise AssertionError("unreachable: the shares add up")


class _NoAnnotator:
    """Used where no annotator is named, as in an agent's workspace: gives no verdict."""

    name = AlpacaAnnotator.name
    version = "none"
    emits = AlpacaAnnotator.emits
    work = AlpacaAnnotator.work
    identity = JudgeIdentity()

    def score_batch(self, batch: Sequence[tuple[Item, Rollout]]) -> list[Score]:
        """No verdict on any rollout."""
        return [Score(None, f"there is no annotator: no {JUDGE_FILE} in the data folder", Fault.JUDGE)] * len(batch)

    def score(self, item: Item, rollout: Rollout) -> Score:
        """No verdict."""
        return self.score_batch([(item, rollout)])[0]


def _installed_prompt() -> Path:
    spec = find_spec("alpaca_eval")
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError(
            f"alpacaeval: the published prompt is not installed; set prompt in {JUDGE_FILE} to alpaca_eval_clf.txt of "
            "github.com/tatsu-lab/alpaca_eval, or install that package"
        )
    return Path(spec.submodule_search_locations[0]) / PROMPT_FILE


def _read(path: Path) -> str:
    try:
        return read_limited(path, MAX_LOG_BYTES, follow=True).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read ({error}); get it from github.com/tatsu-lab/alpaca_eval") from error
