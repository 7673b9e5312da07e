"""DeepSearchQA on fixtures in the official layout: splits, recordings, live back ends, and a judge that is a script."""

import json
from dataclasses import replace

import pytest
import yaml
from typer.testing import CliRunner

from agent2.arena.task_check import check_task
from agent2.arena.tasks import load_task
from agent2.benchmarks import load_benchmark
from agent2.benchmarks.declaration import Portion
from agent2.benchmarks.deepsearchqa import MAX_SEARCHES, first_search
from agent2.cli import app
from agent2.environments.search.corpus import read_recorded_rows, tokenize
from agent2.errors import ConfigError, Fault
from agent2.evaluation.engine import Attempt, play_by
from agent2.evaluation.scoring import score_played
from agent2.evaluation.search_recording import record_questions
from agent2.models.sources import find_checkpoint
from agent2.records import Split
from deepsearchqa_builders import COLUMNS, write_deepsearchqa, write_questions

SECRET = b"a secret of these tests, 32 bytes"
LIVE = """
from agent2.environments.search.corpus import Document, SearchHit

class Live:
    version = "live-1"
    def search(self, query, k):
        if "broken" in query:
            raise ConnectionError("the line is dead")
        return [SearchHit("http://a", "A", "first words")]
    def open(self, document):
        return Document("http://a", "A", "first words of a page") if document == "http://a" else None
"""


@pytest.fixture
def data(tmp_path, monkeypatch):
    """900 questions, a recording for each, and a judge."""
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("DEEPSEARCHQA_DATA", raising=False)
    write_deepsearchqa(tmp_path)
    return tmp_path


def play_actions(benchmark, item, *actions):
    def say(attempt, world, chat):
        return actions[min(len(chat) // 2, len(actions) - 1)]

    rows = list(play_by(say, [Attempt(item, 0, 0)], benchmark.environment, benchmark.max_turns, retries=0))
    return next(iter(score_played(rows, benchmark.scorer())))


def test_a_hundred_train_and_two_hundred_evaluation_questions_whatever_the_order_of_the_file(data):
    benchmark = load_benchmark("deepsearchqa", data)
    sizes = {Split.TRAIN: 100, Split.DEV: 50, Split.TEST_PUBLIC: 100, Split.TEST_PRIVATE: 100}
    ids_by_split = {split: {item.id for item in benchmark.items(split, n, SECRET)} for split, n in sizes.items()}
    assert len(set.union(*ids_by_split.values())) == 350
    for split, n in sizes.items():
        assert benchmark.count(split, SECRET) == n
        with pytest.raises(ConfigError, match=f"{n + 1} items"):
            benchmark.items(split, n + 1, SECRET)
    other_ids = {item.id for item in benchmark.items(Split.TEST_PRIVATE, 100, b"another secret, 32 bytes long...")}
    assert (
        other_ids != ids_by_split[Split.TEST_PRIVATE]
        and other_ids < ids_by_split[Split.TEST_PUBLIC] | ids_by_split[Split.TEST_PRIVATE]
    )
    lines = (data / "DSQA-full.csv").read_text().split('"Which')
    (data / "DSQA-full.csv").write_text('"Which'.join([lines[0], *reversed(lines[1:])]))
    assert {item.id for item in benchmark.items(Split.TRAIN, 100, None)} == ids_by_split[Split.TRAIN]


def test_no_row_holds_an_answer_and_it_can_be_played_without_the_folder(data):
    item = load_benchmark("deepsearchqa", data).items(Split.TRAIN, 1, None)[0]
    row = json.loads(json.dumps(load_benchmark("deepsearchqa", data).visible_row(item)))
    assert item.payload["answer"] not in json.dumps(row) and item.reference is None
    alone = load_benchmark("deepsearchqa")
    again = play_actions(alone, alone.item_of(row), "search[rivers]", "open[river]", "answer[x | river]")
    assert [turn.observation for turn in again.rollout.turns][:2] == [
        "river: The Ulm is a river.",
        "The Ulm is a river.",
    ]
    assert (again.score.value, again.score.fault) == (None, Fault.JUDGE) and "no judge" in again.score.reason
    with pytest.raises(ConfigError, match="has no category, recorded"):
        alone.item_of({"id": "x", "prompt": "?", "task_type": "set"})


def test_a_judge_compares_sets_part_by_part(data):
    benchmark = load_benchmark("deepsearchqa", data)
    item = next(
        question for question in benchmark.items(Split.TRAIN, 30, None) if question.payload["task_type"] == "set"
    )
    town, river = item.payload["answer"].split(", ")
    whole = play_actions(benchmark, item, f"answer[{river}; {town} | river]").score
    part = play_actions(benchmark, item, f"answer[{town}; Spain]").score
    assert (whole.value, part.value, part.views["precision"], part.views["recall"]) == (1.0, 0.0, 0.5, 0.5)
    assert play_actions(benchmark, item, "hello").score.value == 0.0


def test_there_are_so_many_searches_and_no_more(data):
    benchmark = load_benchmark("deepsearchqa", data)
    item = benchmark.items(Split.DEV, 1, None)[0]
    observations = [
        turn.observation for turn in play_actions(benchmark, item, *["search[rivers]"] * 7, "answer[x]").rollout.turns
    ]
    assert (
        observations[MAX_SEARCHES - 1].startswith("river")
        and f"all {MAX_SEARCHES} searches are used up" in observations[-2]
    )


def test_the_first_search_of_a_long_question_is_one_that_the_world_takes(data):
    item = load_benchmark("deepsearchqa", data).items(Split.DEV, 1, None)[0]
    assert first_search(item).startswith("search[which towns of all are number")
    long = type(item)(item.id, item.split, "word " * 500)
    assert len(first_search(long)) < 220


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda folder: (folder / "DSQA-full.csv").unlink(), r"contains no DSQA-full.csv or .*hf download google"),
        (lambda folder: write_questions(folder, 20), "has 20 questions, the published file 900; get it again"),
        (lambda folder: write_questions(folder, columns=COLUMNS[:3]), "field 'answer_type' is missing"),
        (lambda folder: write_questions(folder, answer_type="List"), "answer_type is 'List'.*'Single Answer'"),
        (lambda folder: (folder / "DSQA-full.csv").write_bytes(b"\xff\xfe"), "not UTF-8"),
        (lambda folder: [file.unlink() for file in (folder / "recorded").iterdir()], "nothing was recorded for"),
        (
            lambda folder: [file.write_text("{}\n") for file in (folder / "recorded").iterdir()],
            r"jsonl:1: is not a document",
        ),
        (
            lambda folder: [
                file.write_text('{"query": "x", "results": []}\n') for file in (folder / "recorded").iterdir()
            ],
            "holds no page",
        ),
        (lambda folder: (folder / "search.yaml").write_text("backend: [1]\n"), "backend"),
    ],
)
def test_files_that_are_missing_or_of_another_version_are_refused_in_one_line(data, change, why):
    change(data)
    with pytest.raises(ConfigError, match=why) as caught:
        load_benchmark("deepsearchqa", data).items(Split.TRAIN, 5, None)
    assert "\n" not in str(caught.value) and str(data) in str(caught.value), caught.value


def with_live_backend(data, record=False, name="Live"):
    (data / "live.py").write_text(LIVE)
    (data / "search.yaml").write_text(yaml.safe_dump({"backend": f"./live.py:{name}", "record": record}))
    for file in (data / "recorded").iterdir():
        file.unlink()
    return load_benchmark("deepsearchqa", data)


def test_a_live_back_end_is_recorded_and_then_replayed(data):
    benchmark = with_live_backend(data, record=True)
    item = benchmark.items(Split.DEV, 1, None)[0]
    actions = ("search[towns]", "open[http://a]", "answer[x | http://a]")
    first = [turn.observation for turn in play_actions(benchmark, item, *actions).rollout.turns]
    assert first[:2] == ["http://a: first words", "first words of a page"]
    (data / "search.yaml").unlink()
    replay = load_benchmark("deepsearchqa", data)
    again = play_actions(replay, replay.items(Split.DEV, 1, None)[0], *actions)
    assert again.rollout.turns[1].observation == "first words of a page"


FLAKY = """
from pathlib import Path
from agent2.environments.search.corpus import Document, SearchHit

class Flaky:
    version = "1"
    def search(self, query, k):
        with Path(__file__).with_name("queries").open("a") as file:
            file.write(query + "\\n")
        broken = Path(__file__).with_name("broken").read_text().split()
        if query.split()[-1] in broken or "all" in broken:
            raise ConnectionError("the line is dead")
        return [] if "none" in query else [SearchHit("http://a", "A", "first words")]
    def open(self, document):
        return Document("http://a", "A", "first words of a page")
"""


class Few:
    """The benchmark with the first so many of the questions that are to be recorded."""

    def __init__(self, benchmark, n=8):
        self._benchmark, self._n = benchmark, n

    def __getattr__(self, name):
        return getattr(self._benchmark, name)

    def to_record(self):
        first = sorted(self._all)[: self._n]
        remaining = [item for item in self._benchmark.to_record()[0] if item.id in first]
        return remaining, self._n

    @property
    def _all(self):
        portions = (Portion.TRAIN, Portion.DEV, Portion.TEST)
        return {f"deepsearchqa-{question.id}" for portion in portions for question in self._benchmark.read(portion)}


def test_the_questions_of_every_split_are_to_be_recorded_and_those_that_are_recorded_are_not(data):
    benchmark = load_benchmark("deepsearchqa", data)
    ids = {item.id for split in Split for item in benchmark.items(split, benchmark.count(split, SECRET), SECRET)}
    (data / "search.yaml").write_text("backend: index\nrecord: true\nsettings: {path: nowhere}\n")
    assert benchmark.to_record() == ([], 350)
    (data / "recorded" / f"{min(ids)}.jsonl").write_text('{"query": "x", "results": []}\n')  # no page
    assert [item.id for item in benchmark.to_record()[0]] == [min(ids)]
    for file in (data / "recorded").iterdir():
        file.unlink()
    assert {item.id for item in benchmark.to_record()[0]} == ids


def test_a_recording_is_continued_and_then_played_offline(data):
    for file in (data / "recorded").iterdir():
        file.unlink()
    (data / "flaky.py").write_text(FLAKY)
    (data / "broken").write_text("")
    (data / "search.yaml").write_text("backend: ./flaky.py:Flaky\nrecord: true\n")
    benchmark = Few(load_benchmark("deepsearchqa", data))
    questions = benchmark.to_record()[0]
    broken = questions[2:4]
    (data / "broken").write_text(" ".join(tokenize(item.prompt)[-1] for item in broken))
    first = record_questions(benchmark, None, lambda done, total: None)
    assert (first.n_recorded, first.n_before, set(first.failed)) == (6, 0, {item.id for item in broken})
    assert all("the line is dead" in reason for reason in first.failed.values())
    assert not any(benchmark.recording_of(item).exists() for item in broken)
    (data / "broken").write_text("")
    (data / "queries").unlink()
    second = record_questions(benchmark, None, lambda done, total: None)
    assert (second.n_recorded, second.n_before, second.failed) == (2, 6, {})
    assert len((data / "queries").read_text().splitlines()) == 2
    (data / "search.yaml").unlink()
    (data / "flaky.py").unlink()
    offline = load_benchmark("deepsearchqa", data)
    rows = read_recorded_rows(offline.recording_of(questions[0]))
    item = replace(questions[0], payload={**questions[0].payload, "recorded": rows})
    again = play_actions(offline, item, "search[anything]", "open[http://a]", "answer[x | http://a]").rollout
    assert again.turns[1].observation == "first words of a page"


def test_a_models_own_searches_are_recorded_too(data):
    files = list((data / "recorded").iterdir())[3:]
    with_live_backend(data, record=True)
    for file in files:
        file.write_text((data / "all.jsonl").read_text())  # three questions are left
    (data / "model.py").write_text(
        "def reply(messages):\n    return 'search[rivers of the south]' if len(messages) == 1 else 'answer[x | http://a]'\n"
    )
    benchmark = load_benchmark("deepsearchqa", data)
    remaining = benchmark.to_record()[0]
    done = record_questions(benchmark, find_checkpoint(f"scripted:{data / 'model.py'}:reply"), lambda *_: None)
    assert (done.n_recorded, len(remaining)) == (len(remaining), len(remaining))
    for item in remaining:
        rows = [json.loads(line) for line in benchmark.recording_of(item).read_text().splitlines()]
        assert [row["query"] for row in rows if "query" in row][1:] == ["rivers of the south"]


def test_a_back_end_that_is_down_is_given_up_and_one_that_finds_nothing_is_no_recording(data, tmp_path):
    with_live_backend(data)
    with pytest.raises(ConfigError, match=r"search\.yaml: names no live back end to record; write"):
        record_questions(load_benchmark("deepsearchqa", data), None, lambda *_: None)
    (data / "flaky.py").write_text(FLAKY)
    (data / "broken").write_text("all")
    (data / "search.yaml").write_text("backend: ./flaky.py:Flaky\nrecord: true\n")
    result = CliRunner().invoke(app, ["benchmarks", "record", "deepsearchqa", "--data", str(data), "--json"])
    done = json.loads(result.stdout)
    assert result.exit_code == 1 and (done["n_recorded"], len(done["failed"])) == (0, 350)
    assert sum(reason.startswith("not tried") for reason in done["failed"].values()) == 340
    assert not list((data / "recorded").iterdir())
    (data / "broken").write_text("")
    (data / "flaky.py").write_text(FLAKY.replace('if "none" in query', "if True"))
    empty = record_questions(load_benchmark("deepsearchqa", data), None, lambda *_: None)
    assert empty.n_recorded == 0 and "the back end finds no page for it" in empty.failed.values()


def test_a_live_back_end_that_fails_is_the_environments_fault(data):
    benchmark = with_live_backend(data)
    item = benchmark.items(Split.DEV, 1, None)[0]
    scored = play_actions(benchmark, item, "search[broken line]", "answer[x]")
    assert scored.rollout.fault is Fault.ENVIRONMENT and "ConnectionError: the line is dead" in scored.rollout.reason
    assert scored.score.value is None


def test_a_back_end_that_is_not_there_or_none_is_named(data):
    benchmark = with_live_backend(data, name="Dead")
    with pytest.raises(ConfigError, match="Dead"):
        benchmark.environment().reset(benchmark.items(Split.DEV, 1, None)[0], 0)
    (data / "search.yaml").write_text("backend: goggle\n")
    with pytest.raises(ConfigError, match=r"search.yaml: backend: unknown search_backend 'goggle'"):
        benchmark.environment().reset(benchmark.items(Split.DEV, 1, None)[0], 0)


def test_its_task_is_sound_and_has_the_published_sizes(data):
    task = load_task("deepsearchqa")
    findings = {finding.name: finding for finding in check_task(task, load_benchmark("deepsearchqa", data))}
    assert all(finding.ok is not False for finding in findings.values()), findings
    assert sum(name.startswith("floor") for name in findings) == 3
    assert (task.published, task.n_items.train, task.n_items.test_public + task.n_items.test_private) == (
        True,
        100,
        200,
    )
