"""`POST /judge`: charged once for each reply, recorded, refused beyond the budget, and kept through a kill -9."""

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap

import httpx
import pytest

from agent2 import installation
from agent2.arena.grader.evaluator import GraderSettings
from agent2.arena.grader.server import ApiInfo, make_app, serve_on_loopback
from agent2.arena.grader.service import Grader
from agent2.arena.grader.store import count_judgements
from agent2.arena.spec import Deadline
from agent2.benchmarks import load_benchmark
from agent2.benchmarks.replies import PreferenceJudge
from agent2.errors import ConfigError, Fault, SubmissionError
from agent2.evaluation.engine import score_answers
from agent2.records import HIDDEN_SPLITS, Split
from agent2.training.participant import Participant
from agent2.training.visible import VisibleTask
from grading_builders import ScriptedEvaluation

ITEMS = load_benchmark("replies").items(Split.TRAIN, 6, None)


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))


@pytest.fixture
def grader_of(trial, base):
    graders = []

    def make(judgements=10, benchmark="replies", judged=ITEMS, clock_s=1e6):
        settings = GraderSettings(
            trial, base, benchmark, {split: [] for split in HIDDEN_SPLITS}, Deadline(0.0, clock_s, lambda: 100.0),
            judge=PreferenceJudge(installation.secret()) if judged else None,
            judged={item.id: item for item in judged}, max_judgements=judgements,
        )  # fmt: skip
        graders.append(Grader(settings, ScriptedEvaluation()))
        return graders[-1]

    yield make
    for grader in graders:
        grader.stop()


def replies(n):
    return [(item.id, item.reference) for item in ITEMS[:n]]


def test_a_verdict_is_that_of_the_scorer_and_costs_one_judgement(grader_of, trial):
    grader = grader_of()
    pairs = [*replies(2), (ITEMS[0].id, "")]
    verdicts = grader.judge(pairs)
    assert (verdicts.scores, verdicts.n_charged, verdicts.n_left) == ([0.5, 0.5, 0.0], 3, 7)
    benchmark = load_benchmark("replies")
    scores = score_answers(benchmark, [(ITEMS[0], [ITEMS[0].reference]), (ITEMS[1], [ITEMS[1].reference])])
    assert [score.value for score in scores] == [0.5, 0.5]
    rows = sqlite3.connect(trial.grader_db).execute("SELECT item, reply, value, at FROM judgements").fetchall()
    assert rows == [(item, reply, value, 100.0) for (item, reply), value in zip(pairs, [0.5, 0.5, 0.0], strict=True)]


def test_the_same_reply_is_judged_once_and_free_afterwards_also_after_a_restart(grader_of):
    first = grader_of()
    assert first.judge([*replies(1), *replies(1)]).n_charged == 1
    assert first.judge(replies(1)).n_charged == 0
    first.stop()
    again = grader_of().judge(replies(2))
    assert (again.scores, again.n_charged, again.n_left) == ([0.5, 0.5], 1, 8)


def test_a_request_beyond_the_budget_is_refused_whole_and_free(grader_of):
    grader = grader_of(judgements=3)
    grader.judge(replies(2))
    with pytest.raises(SubmissionError, match="4 new replies were sent and 1 of 3 judgements are left; nothing was"):
        grader.judge(replies(6))
    assert grader.judge(replies(3)).n_left == 0
    assert grader.judge(replies(3)).n_left == 0  # known ones
    with pytest.raises(SubmissionError, match="0 of 3"):
        grader.judge([(ITEMS[0].id, "one more")])
    with pytest.raises(SubmissionError, match="0 of 3"):  # a restart buys nothing
        grader_of(judgements=3).judge([(ITEMS[0].id, "one more")])


def test_hidden_items_other_tasks_and_the_time_after_the_deadline_are_refused(grader_of):
    secret_items = load_benchmark("replies").items(Split.TEST_PUBLIC, 2, b"s" * 32)
    with pytest.raises(ConfigError, match=r"is not the id of a row of train\.jsonl"):
        grader_of().judge([*replies(1), (secret_items[0].id, "text")])
    assert grader_of().judge(replies(1)).n_left == 9  # the first of that request was not charged
    with pytest.raises(SubmissionError, match="no judge to ask"):
        grader_of(benchmark="arithmetic", judged=()).judge(replies(1))
    with pytest.raises(SubmissionError, match="deadline is over"):
        grader_of(clock_s=10.0).judge(replies(1))


def test_a_reply_that_is_no_valid_unicode_is_judged_and_kept(grader_of):
    assert grader_of().judge([(ITEMS[0].id, "\ud800")]).scores == [0.0]


KILLED = """
import sys, os, signal
from pathlib import Path
from agent2.arena.grader.store import ChargedVerdict, GraderStore
store = GraderStore(Path(sys.argv[1]))
for number in range(10_000):
    store.add_judgements([ChargedVerdict("item", f"{number} {k}", 1.0, "") for k in range(3)], 0.0)
    print(number, flush=True)
"""


def test_every_judgement_that_was_answered_is_on_disk_after_a_kill(tmp_path):
    program = [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path / "grader.db")]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        answered = [int(next(process.stdout)) for _ in range(20)]
        os.kill(process.pid, signal.SIGKILL)
        answered += [int(line) for line in process.stdout.read().split()]
    n_recorded = count_judgements(tmp_path / "grader.db")
    assert (
        n_recorded % 3 == 0 and len(answered) <= n_recorded / 3 <= len(answered) + 1
    )  # whole requests; one may lack its answer


@pytest.fixture
def served(grader_of, monkeypatch):
    """A grader behind its API, as a workspace sees it."""
    grader = grader_of(judgements=300)
    server = serve_on_loopback(make_app(grader, ApiInfo("replies", "/workspace", {})))
    monkeypatch.setenv("GRADING_SERVER_URL", f"http://127.0.0.1:{server.port}")
    yield httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=300)
    server.stop()


@pytest.mark.slow
def test_the_api_tells_scores_and_what_is_left_and_refuses_in_one_sentence(served):
    body = {"answers": [{"id": item, "answer": reply} for item, reply in replies(2)]}
    answer = served.post("/judge", json=body)
    assert answer.status_code == 200
    assert answer.json() == {"scores": [0.5, 0.5], "charged": 2, "judgements_left": 298, "error": None}
    refused = served.post("/judge", json={"answers": [{"id": "x", "answer": "y"}]})
    assert refused.status_code == 400 and refused.json()["scores"] is None and "not the id" in refused.json()["error"]
    for wrong in ({}, {"answers": []}, {"answers": [{"id": "x"}]}, {"answers": body["answers"] * 65}):
        assert served.post("/judge", json=wrong).status_code == 422
    near = served.post("/judge", json={"answers": [{"id": "x", "anwser": "y", "answer": ""}]})
    assert near.json()["error"] == "unknown field 'anwser'; did you mean 'answer'?"
    assert "POST /submit, /judge" in served.get("/nowhere").json()["error"]
    beyond = [{"id": ITEMS[0].id, "answer": str(k)} for k in range(120)]
    codes = [
        served.post(
            "/judge", json={"answers": [{**answer, "answer": answer["answer"] + s} for answer in beyond]}
        ).status_code
        for s in "abc"
    ]
    assert codes == [200, 200, 403]


@pytest.mark.slow
def test_the_scorer_in_a_workspace_buys_its_verdicts_and_is_missing_when_it_cannot(served, grader_of, tmp_path):
    benchmark = load_benchmark("replies")
    replies_by_item = [(item, [text]) for item in ITEMS for text in (item.reference, "", "x" * 5_000)]
    scores = score_answers(benchmark, replies_by_item)
    assert [score.value for score in scores] == [0.5, 0.0, 0.0] * len(ITEMS)
    assert {score.reason for score in scores} == {"bought from the judge"}
    me = Participant(tmp_path, tmp_path, [], [], benchmark.sampling, 0, "", judgements=300)
    task = VisibleTask(benchmark, ITEMS, [], me)
    assert task.reward(["", ITEMS[1].reference], [ITEMS[0].id, ITEMS[1].id]) == [0.0, 0.5]
    assert len({(item.id, text[0]) for item, text in replies_by_item}) == 18
    many = score_answers(benchmark, [(ITEMS[0], [f"reply {k}"]) for k in range(400)])
    assert {(score.value, score.fault) for score in many} == {(0.0, None), (None, Fault.JUDGE)}
    assert "judgements are left" in next(score.reason for score in many if score.value is None)


def test_a_judge_that_cannot_be_reached_is_no_verdict(monkeypatch):
    monkeypatch.setenv("GRADING_SERVER_URL", "http://127.0.0.1:9")
    (score,) = score_answers(load_benchmark("replies"), [(ITEMS[0], ["x"])])
    assert (score.value, score.fault) == (None, Fault.INFRASTRUCTURE)
