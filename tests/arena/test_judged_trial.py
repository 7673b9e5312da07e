"""A whole trial of level 2: an agent buys verdicts, is refused beyond its budget, and the record says what it used."""

import sqlite3

import pytest
import yaml

from agent2.arena.analysis.read import read_evidence
from agent2.arena.evidence import AgentEnd
from agent2.arena.plan import new_trial
from agent2.arena.tasks import load_task
from agent2.arena.trial import run_trial
from grading_builders import write_checkpoint
from trial_builders import SUBMIT_COPY, quiet, write_agent

pytestmark = pytest.mark.slow

BUYS = """
import json, os, httpx
from pathlib import Path
rows = [json.loads(line) for line in open(os.environ["DATA_PATH"] + "/train.jsonl")][:3]
url = os.environ["GRADING_SERVER_URL"] + "/judge"
bought = httpx.post(url, json={"answers": [{"id": row["id"], "answer": row["answer"]} for row in rows]}).json()
again = httpx.post(url, json={"answers": [{"id": rows[0]["id"], "answer": rows[0]["answer"]}]}).json()
beyond = httpx.post(url, json={"answers": [{"id": rows[0]["id"], "answer": str(k)} for k in range(5)]})
assert bought == {"scores": [0.5] * 3, "charged": 3, "judgements_left": 4, "error": None}, bought
assert (again["charged"], beyond.status_code) == (0, 403), (again, beyond.text)

from agent2.benchmarks import load_benchmark
from agent2.benchmarks.home import item_of
from agent2.evaluation.engine import score_messages
benchmark = load_benchmark("replies")
assert score_messages(benchmark, item_of(benchmark, rows[1]), [rows[1]["answer"]]).value == 0.5  # known, so free
assert score_messages(benchmark, item_of(benchmark, rows[1]), [""]).value == 0.0  # one more
text = Path("ASSIGNMENT.md").read_text()
assert "you have\\n7.**" in text and "is installed here" not in text, text
"""


def test_an_agent_buys_verdicts_and_the_trial_says_how_many(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    tmp_path.chmod(0o755)
    record = load_task("replies").model_dump(mode="json") | {
        "base_model": str(write_checkpoint(tmp_path / "base")),
        "n_items": {"train": 5, "dev": 3, "test_public": 6, "test_private": 6},
        "budget": {"wall_clock_s": 600, "submissions": 2, "judgements": 7},
    }
    (tmp_path / "task.yaml").write_text(yaml.safe_dump(record))
    agent = write_agent(tmp_path / "buyer", BUYS + SUBMIT_COPY)
    root = new_trial(str(tmp_path / "task.yaml"), str(agent), 0, tmp_path)
    run_trial(root, quiet)
    evidence = read_evidence(root)
    assert evidence.agent_end is AgentEnd.EXITED, evidence.agent_log_tail
    assert evidence.n_judgements == 4 and len(evidence.submissions) == 1
    assert evidence.submissions[0].score.value == 0.0  # its random base says nothing
    with sqlite3.connect(root / "grader.db") as kept:
        assert kept.execute("SELECT COUNT(*), MIN(value), MAX(value) FROM judgements").fetchone() == (4, 0.0, 0.5)
