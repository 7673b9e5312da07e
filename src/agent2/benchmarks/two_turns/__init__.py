"""MT-Bench: questions of two turns, whose answers a judge rates one by one.

`judge.yaml` in the folder names the judge: `model` (any checkpoint that `agent2 eval` takes), and if you like `prompt`
(a packaged one or a YAML file; default `rating`), `endpoint` and `prices` (docs/judges.md). Without it, verdicts are
missing and never 0. An item's kind (`task_type`) is its category.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import structs
from pydantic import Field

from agent2.benchmarks.data_files import Row, read_rows
from agent2.benchmarks.declaration import Portion
from agent2.benchmarks.home import Players
from agent2.benchmarks.official import KIND, OfficialBenchmark, with_values
from agent2.config import StrictModel, load_yaml
from agent2.environments import QuestionEnvironment
from agent2.errors import ConfigError, Fault
from agent2.records import (
    Environment,
    Item,
    JsonValue,
    JudgeIdentity,
    Message,
    Rollout,
    Score,
    Scorer,
    ScorerOutput,
    ScoringMode,
    ScoringWork,
    Step,
)
from agent2.scorers.judge_model import COSTS
from agent2.scorers.judges import LlmJudge

HOME = Path(__file__).parent
JUDGE_FILE = "judge.yaml"
REFERENCES = ("reference_answer/gpt-4.jsonl", "gpt-4.jsonl")
"""Where the published reference answers are; those of some categories alone."""
TURNS = 2
RATINGS = tuple(f"rating_{turn}" for turn in range(1, TURNS + 1))
"""Views: the rating of each turn, on the judge's scale."""


class TurnJudgeFile(StrictModel):
    """`judge.yaml`."""

    model: str
    prompt: str = "rating"
    endpoint: dict[str, Any] = Field(default_factory=dict)
    prices: dict[str, float] | None = None


class TwoTurnEnvironment(QuestionEnvironment):
    """Asks a question, and another one when it was answered."""

    name, version = "two_turns", "1.0"

    def __init__(self) -> None:
        """A fresh world."""
        super().__init__()
        self._turns: list[str] = []
        self._answers: list[str] = []

    def reset(self, item: Item, seed: int) -> Sequence[Message]:
        """The first question. Raises EnvironmentFailed when reused."""
        self._turns = [str(turn) for turn in item.payload["turns"]]
        return super().reset(item, seed)

    def act(self, action: str) -> Step:
        """Take an answer; after the last one the episode is over. Raises EnvironmentFailed as a question does."""
        self._answers.append(action)
        if len(self._answers) < len(self._turns):
            return Step(self._turns[len(self._answers)], done=False)
        return super().act(action)

    def state(self) -> Mapping[str, JsonValue]:
        """`answer`: the last one; `answers`: all; `task_type`."""
        return {**super().state(), "answers": list(self._answers)}


class TurnJudge:
    """The mean of a judge's ratings of all turns, 0 to 1; missing where one of them is."""

    name = "turn_judge"
    version = "1.0"
    asks_model = True
    emits = ScorerOutput(views=frozenset({*COSTS, *RATINGS}), labels=LlmJudge.emits.labels)
    work = ScoringWork(ScoringMode.BATCH, batch_size=32)

    def __init__(self, file: TurnJudgeFile) -> None:
        """Raises ConfigError and CheckpointError as `LlmJudge` does."""
        self._judge = LlmJudge(file.model, file.prompt, endpoint=file.endpoint, prices=file.prices)
        self.version = f"{self.version}+{self._judge.version}"
        self.identity: JudgeIdentity = self._judge.identity

    def score(self, item: Item, rollout: Rollout) -> Score:
        """The verdict on one episode."""
        return self.score_batch([(item, rollout)])[0]

    def score_batch(self, batch: Sequence[tuple[Item, Rollout]]) -> list[Score]:
        """One verdict for each episode, in order."""
        questions = [turn for item, rollout in batch for turn in _judged_turns(item, rollout)]
        verdicts = self._judge.score_batch(questions)
        return [_joined(verdicts[TURNS * place : TURNS * (place + 1)]) for place in range(len(batch))]


class _NoTurnJudge:
    """Used where no judge is named: gives no verdict."""

    name = TurnJudge.name
    version = "none"
    asks_model = True
    emits = TurnJudge.emits
    work = TurnJudge.work
    identity = JudgeIdentity()

    def score_batch(self, batch: Sequence[tuple[Item, Rollout]]) -> list[Score]:
        """No verdict on any rollout."""
        reason = f"there is no judge: write {JUDGE_FILE} with model: MODEL into the data folder"
        return [Score(None, reason, Fault.JUDGE)] * len(batch)

    def score(self, item: Item, rollout: Rollout) -> Score:
        """No verdict."""
        return self.score_batch([(item, rollout)])[0]


class MtBench(OfficialBenchmark):
    """The published 80 questions."""

    def __init__(self, data: Path | None = None) -> None:
        """data: folder with the official files and judge.yaml."""
        super().__init__(HOME / "mt_bench.yaml", data=data)

    def prepared(self, rows: list[Row]) -> list[Row]:
        """With the first question, and the reference answers where there are any."""
        references: dict[object, list[object]] = {}
        folder = self._folder
        for path in (folder / name for name in REFERENCES):
            if path.is_file():
                for row in read_rows(path):
                    references[row.values.get("question_id")] = _turns_of(row)
                break
        prepared = []
        for row in rows:
            turns = row.values.get("turns")
            if not isinstance(turns, list) or len(turns) != TURNS or not all(isinstance(turn, str) for turn in turns):
                raise ConfigError(f"{row.where}: field 'turns' is not a list of {TURNS} texts; restore the file")
            listed = references.get(row.values.get("question_id"), [])
            kind = row.values.get("category")
            prepared.append(with_values(row, first=turns[0], references=listed, **{KIND: kind}))
        return prepared

    @property
    def _folder(self) -> Path:
        return self.official_file(Portion.TEST).folder(self.data)

    def environment(self) -> Environment:
        """A fresh pair of questions."""
        return TwoTurnEnvironment()

    def environment_version(self) -> str:
        """Name and version of the world."""
        return f"{TwoTurnEnvironment.name}-v{TwoTurnEnvironment.version}"

    def scorer(self) -> Scorer:
        """The judge of `judge.yaml`. Raises ConfigError for a wrong file."""
        path = self._folder / JUDGE_FILE
        judge: Scorer = TurnJudge(load_yaml(path, TurnJudgeFile)) if path.is_file() else _NoTurnJudge()
        return judge

    def players(self) -> Players:
        """Somebody who says nothing of use; there is no oracle, since a judge decides."""
        return Players(_silent, lambda items: _silent, ceiling_at_least=0.0, floor_at_most=1.0, n_played=8)


def _silent(item: Item, chat: object) -> str:
    return "I don't know."


def _turns_of(row: Row) -> list[object]:
    """The answers of a row of reference answers, one for each turn."""
    choices = row.values.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else {}
    turns = first.get("turns") if isinstance(first, Mapping) else None
    return turns if isinstance(turns, list) else []


def _judged_turns(item: Item, rollout: Rollout) -> list[tuple[Item, Rollout]]:
    """Each turn as a question of its own, with what was said before it."""
    turns, answers = item.payload["turns"], list(rollout.state.get("answers") or ())
    references = list(item.payload.get("references") or ())
    earlier: list[str] = []
    judged = []
    for place, question in enumerate(turns[:TURNS]):
        answer = answers[place] if place < len(answers) else None
        prompt = "\n\n".join([*earlier, f"User: {question}"]) if earlier else str(question)
        reference = str(references[place]) if place < len(references) else None
        turn = Item(item.id, item.split, prompt, reference, item.payload)
        judged.append((turn, structs.replace(rollout, answer=answer)))
        earlier += [f"User: {question}", f"Assistant: {answer or ''}"]
    return judged


def _joined(verdicts: Sequence[Score]) -> Score:
    """The mean of the verdicts on the turns of one episode, with their costs added."""
    views: dict[str, float | None] = {}
    for name in COSTS:
        costs = [verdict.views.get(name) for verdict in verdicts]
        reported = [cost for cost in costs if cost is not None]
        views[name] = sum(reported) if len(reported) == len(costs) else None
    for name, verdict in zip(RATINGS, verdicts, strict=True):
        views[name] = verdict.views.get("judge_rating")
    labels = tuple(dict.fromkeys(label for verdict in verdicts for label in verdict.labels))
    values = [verdict.value for verdict in verdicts if verdict.value is not None]
    if len(values) < len(verdicts):
        lost = next(verdict for verdict in verdicts if verdict.value is None)
        return Score(None, lost.reason, lost.fault, views)
    reason = "; ".join(f"turn {turn}: {verdict.reason}" for turn, verdict in enumerate(verdicts, 1))
    return Score(sum(values) / len(values), reason, views=views, labels=labels)
