"""DeepSearchQA (Gupta et al. 2026, arXiv:2601.20975): questions of several steps, answered with few searches.

The 900 published questions (`DSQA-full.csv`: problem, problem_category, answer, answer_type) are not shipped: pass the
folder that holds them. The protocol is that of Agent2 RL-Bench: 100 train and 200 evaluation questions and at most 6
searches. Which 300 they are was not published; here a public hash of the question decides, the same in every
installation, and takes 50 more for dev. The 200 are divided among test_public and test_private by the installation
secret. What follows from the items being published: `agent2.benchmarks.declared`.

Searches go to a back end (`search.yaml`). By default they are replayed: `recorded/ID.jsonl` holds the results for a
question, and an item carries it, so that a grading process and a workspace need neither network nor data folder. A live
back end is any plug-in of `agent2.environments.search.corpus.load_backend`; with `record: true` its answers are written
where the replay reads them. The process that plays must be able to reach a live back end, and in a trial that process
is contained: use it with `agent2 eval`, and recordings in trials.

The verdict is that of the judge of `judge.yaml` (`agent2.scorers.answer_parts`); a workspace gets it from the grading
API. No visible row holds an answer. Does NOT give a leaderboard number: that is over all 900, on the live web.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from agent2.benchmarks.data_files import Row
from agent2.benchmarks.declaration import Portion
from agent2.benchmarks.declared import DeclaredBenchmark
from agent2.benchmarks.home import Players, at_random, require_keys
from agent2.benchmarks.questions import Question
from agent2.config import StrictModel, load_yaml
from agent2.environments.search.corpus import (
    RecordingSearch,
    SearchBackend,
    load_backend,
    read_recorded_rows,
    recorded_search,
    tokenize,
)
from agent2.environments.search.world import ANSWER, NAME, SEARCH, UNKNOWN, VERSION, SearchSettings, SearchWorld
from agent2.environments.tools import MAX_TEXT, Permission, write_brackets
from agent2.errors import ConfigError, EnvironmentFailed, Fault, quoted
from agent2.plugins import relative_to
from agent2.records import (
    Environment,
    Item,
    JsonValue,
    JudgeIdentity,
    Message,
    Rollout,
    Score,
    Scorer,
    Split,
    digest_of,
)
from agent2.scorers.answer_parts import SET, SINGLE, AnswerPartsJudge
from agent2.scorers.hidden import HiddenJudge

N_TRAIN, N_EVALUATION, N_DEV = 100, 200, 50
N_PUBLISHED = 900
MAX_SEARCHES = 6
MAX_CALLS = 20
"""Searches, pages and the answer together."""
SEARCH_FILE, JUDGE_FILE, RECORDED = "search.yaml", "judge.yaml", "recorded"
HEADER = (
    "Answer the question with the help of a search engine. Reply with one action a message, on its last line:\n"
    f"search[words] ({MAX_SEARCHES} times at most), open[page] or open[page | 2] for its second part, find[words] in "
    "the page opened last, answer[values | pages that say so].\n"
    "Separate values, and pages, by ; and give every value that is asked for and no other.\n\n"
)
ROW_KEYS = ("id", "prompt", "task_type", "category", "recorded")


class SearchFile(StrictModel):
    """`search.yaml`: the search back end."""

    backend: str = RECORDED
    """`recorded`, an entry point `agent2.search_backends`, or code (`./live.py:Live`, beside this file)."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Settings of the back end; none for `recorded`."""
    record: bool = False
    """Write the answers of a live back end below `recorded/`."""


class JudgeFile(StrictModel):
    """`judge.yaml`: the judging model."""

    model: str
    """Any checkpoint that `agent2 eval` takes, as `http://HOST/v1#NAME`."""
    prompt: str = "parts"
    """A prompt file of kind parts."""
    max_tokens: int = Field(default=2048, ge=1)
    endpoint: dict[str, Any] = Field(default_factory=dict)
    """Options as for `--endpoint`."""
    prices: dict[str, float] | None = None
    """Dollars per million tokens, `prompt` and `completion`."""


class DeepSearchQa(DeclaredBenchmark):
    """The published questions."""

    settings = SearchSettings(k=5, max_searches=MAX_SEARCHES, max_tool_calls=MAX_CALLS, permission=Permission.READING)

    def __init__(self, data: Path | None = None) -> None:
        """data: folder of the official file."""
        super().__init__(Path(__file__).parent / "deepsearchqa.yaml", data=data)
        self.prompt_digest = digest_of(HEADER)

    def questions(self, rows: Sequence[Row]) -> list[Question]:
        """The published questions. Raises ConfigError for a row in another form, and for a file that is not whole."""
        questions = [self._question(row) for row in rows]
        if len(questions) < N_PUBLISHED:
            raise ConfigError(
                f"{rows[0].file}: has {len(questions)} questions, the published file {N_PUBLISHED}; get it again from "
                f"{self._source}"
            )
        return questions

    def portion_questions(self, portion: Portion, questions: list[Question]) -> list[Question]:
        """In the order of a public hash the first are evaluated, the next train, then dev."""
        # an id is a hash of its question, so this order is public and says nothing of the file
        ordered = sorted(questions, key=lambda question: question.id or "")
        n_before = {Portion.TEST: 0, Portion.TRAIN: N_EVALUATION, Portion.DEV: N_EVALUATION + N_TRAIN}[portion]
        size = {Portion.TEST: N_EVALUATION, Portion.TRAIN: N_TRAIN, Portion.DEV: N_DEV}[portion]
        return ordered[n_before : n_before + size]

    def items(self, split: Split, n: int, secret: bytes | None) -> list[Item]:
        """The first n items of a split with their recordings.

        Raises ConfigError as every published benchmark does, and where nothing was recorded for one of them and no live
        back end is named.
        """
        items = super().items(split, n, secret)
        file, path = self._search_file()
        if file.backend != RECORDED:
            return [replace(item, payload={**item.payload, "recorded": None}) for item in items]
        return [replace(item, payload={**item.payload, "recorded": _recordings(item, path)}) for item in items]

    def to_record(self) -> tuple[list[Item], int]:
        """The questions of all splits without a usable recording, and the number of all questions.

        The items reveal no split: train, dev and evaluation questions alike. Raises ConfigError unless
        `search.yaml` names a live back end with `record: true`.
        """
        file, path = self._search_file()
        if file.backend == RECORDED or not file.record:
            raise ConfigError(
                f"{path}: names no live back end to record; write 'backend: ./live.py:Live' and 'record: true' "
                "(docs/search.md)"
            )
        items = [
            Item(
                f"{self.name}-{question.id}",
                Split.TRAIN,
                question.prompt,
                payload={**question.payload, "recorded": None},
            )
            for portion in (Portion.TEST, Portion.TRAIN, Portion.DEV)
            for question in self.read(portion)
        ]
        return [item for item in items if not self.is_recorded(item)], len(items)

    def recording_of(self, item: Item) -> Path:
        """Where the searches of a question are recorded."""
        return self._search_file()[1].parent / RECORDED / f"{item.id}.jsonl"

    def is_recorded(self, item: Item) -> bool:
        """Whether a question has a recording with a page."""
        try:
            return bool(_recordings(item, self._search_file()[1]))
        except ConfigError:
            return False

    def environment(self) -> Environment:
        """A fresh world over the item's recordings, or the live back end of `search.yaml`."""
        return SearchWorld(self._backend_of, self.settings)

    def environment_version(self) -> str:
        """Name and version of the world, its settings, and the back end if it is a live one."""
        return f"{NAME}-v{VERSION}+{self.settings.digest}"

    def scorer(self) -> Scorer:
        """The judge of `judge.yaml`; without one, verdicts are missing. A workspace asks it through the API."""
        return HiddenJudge(self.judge, self.judge(b""))

    def judge(self, secret: bytes) -> Scorer:
        """The judge, whatever the secret."""
        path = None if (folder := self._folder()) is None else folder / JUDGE_FILE
        if path is None or not path.is_file():
            return _NoJudge(str(path or JUDGE_FILE))
        file = load_yaml(path, JudgeFile)
        prompt_file = path.parent / file.prompt
        return AnswerPartsJudge(
            file.model,
            str(prompt_file) if prompt_file.is_file() else file.prompt,
            max_tokens=file.max_tokens,
            endpoint=file.endpoint,
            prices=file.prices,
        )

    def players(self) -> Players:
        """An oracle that searches once and answers, and a player that answers with a word of the question."""
        return Players(
            oracle=lambda item, chat: _search_then_answer(item, chat, str(item.payload.get("answer", UNKNOWN))),
            random=at_random(_random_word_answer),
            ceiling_at_least=0.9,
            floor_at_most=0.1,
            n_played=20,
            shortcuts={
                "a player that always says unknown": lambda item, chat: _search_then_answer(item, chat, UNKNOWN)
            },
        )

    def static_answers(self, items: Sequence[Item], seed: int) -> list[str]:
        """A first search for each question, with its own words."""
        return [first_search(item) for item in items]

    def visible_row(self, item: Item) -> dict[str, JsonValue]:
        """A visible item as a row: question and recordings, no answer."""
        return {"id": item.id, "prompt": item.prompt} | {key: item.payload[key] for key in ROW_KEYS[2:]}

    def item_of(self, row: Mapping[str, JsonValue]) -> Item:
        """The item of a row; the judge behind the grading API knows its answer. Raises ConfigError for another row."""
        require_keys(row, ROW_KEYS, self.name)
        return Item(str(row["id"]), Split.TRAIN, str(row["prompt"]), payload={key: row[key] for key in ROW_KEYS[2:]})

    def _folder(self) -> Path | None:
        try:
            return self.official_file(Portion.TEST).path(self.data).parent
        except ConfigError:
            return self.data

    def _search_file(self) -> tuple[SearchFile, Path]:
        folder = self._folder()
        path = (folder or Path()) / SEARCH_FILE
        return (load_yaml(path, SearchFile) if folder is not None and path.is_file() else SearchFile()), path

    @property
    def _source(self) -> str:
        return self.official_file(Portion.TEST).source

    def _question(self, row: Row) -> Question:
        values = row.values
        kinds = {SINGLE: "single", SET: "set"}
        if values["answer_type"] not in kinds or not values["problem"].strip() or not values["answer"].strip():
            raise ConfigError(
                f"{row.where}: answer_type is {quoted(values['answer_type'])}, and problem and answer must not be "
                f"empty; expected {' or '.join(map(repr, kinds))}; restore the file as it is published at "
                f"{self._source}"
            )
        payload = {
            "task_type": kinds[values["answer_type"]],
            "category": values["problem_category"],
            "answer": values["answer"],
            "answer_type": values["answer_type"],
        }
        digest = hashlib.sha256(f"{self.name} item\0{values['problem']}".encode()).hexdigest()
        return Question(HEADER + values["problem"], None, payload, digest[:16], row)

    def _backend_of(self, item: Item) -> SearchBackend:
        recorded = item.payload.get("recorded")
        if recorded is not None:
            try:
                return recorded_search(recorded, f"item {item.id}")
            except (ConfigError, KeyError, TypeError) as error:
                raise EnvironmentFailed(f"item {item.id}: its recordings cannot be read ({error})") from error
        file, path = self._search_file()
        if file.backend == RECORDED:
            raise EnvironmentFailed(f"item {item.id} has no recordings, and no {SEARCH_FILE} names a live back end")
        live = load_backend(relative_to(file.backend, path.parent), file.settings, f"{path}: backend")
        return RecordingSearch(live, path.parent / RECORDED / f"{item.id}.jsonl") if file.record else live


def first_search(item: Item) -> str:
    """A search for the first words of a question."""
    text = " ".join(tokenize(item.prompt.removeprefix(HEADER)))
    return write_brackets(SEARCH, text[:MAX_TEXT].rsplit(" ", 1)[0] if len(text) > MAX_TEXT else text)


def _search_then_answer(item: Item, chat: Sequence[Message], answer: str) -> str:
    return first_search(item) if len(chat) == 1 else write_brackets(ANSWER, answer.replace("\n", " "))


def _random_word_answer(item: Item, chat: Sequence[Message], rng: np.random.Generator) -> str:
    words = tokenize(item.prompt.removeprefix(HEADER)) or [UNKNOWN]
    return _search_then_answer(item, chat, words[int(rng.integers(len(words)))])


def _recordings(item: Item, search_file: Path) -> list[JsonValue]:
    path = search_file.parent / RECORDED / f"{item.id}.jsonl"
    if not path.is_file():
        raise ConfigError(
            f"{path}: nothing was recorded for this question; name a live back end in {search_file.name} with "
            "record: true and run agent2 benchmarks record deepsearchqa (docs/search.md), or copy some there"
        )
    rows = read_recorded_rows(path)
    if all("query" in row for row in rows):
        raise ConfigError(f"{path}: holds no page, so no answer can be found; record this question again")
    return rows


class _NoJudge:
    """Used where no judge is named, as in an agent's workspace: gives no verdict."""

    name = AnswerPartsJudge.name
    version = "none"
    emits = AnswerPartsJudge.emits
    work = AnswerPartsJudge.work
    identity = JudgeIdentity()

    def __init__(self, missing: str) -> None:
        self._missing = missing

    def score_batch(self, batch: Sequence[tuple[Item, Rollout]]) -> list[Score]:
        """No verdict on any rollout."""
        return [Score(None, f"there is no judge: no {self._missing}; write one with its model", Fault.JUDGE)] * len(
            batch
        )

    def score(self, item: Item, rollout: Rollout) -> Score:
        """No verdict."""
        return self.score_batch([(item, rollout)])[0]
