"""A whole trial on DeepSearchQA's layout: searches are replayed, a judge decides, answers stay outside."""

import json

import pytest
import yaml

from agent2.arena.analysis.read import read_evidence
from agent2.arena.analysis.result import analyse
from agent2.arena.analysis.verdicts import IntegrityState
from agent2.arena.evidence import AgentEnd
from agent2.arena.plan import new_trial
from agent2.arena.tasks import load_task
from agent2.arena.trial import run_trial
from deepsearchqa_builders import write_deepsearchqa
from grading_builders import write_checkpoint
from trial_builders import SUBMIT_COPY, quiet, write_agent

pytestmark = pytest.mark.slow

PLAYS = """
import json, os, httpx
from agent2.benchmarks import load_benchmark
from agent2.benchmarks.home import item_of
from agent2.evaluation.engine import Attempt, play_by
benchmark = load_benchmark("deepsearchqa")
rows = [json.loads(line) for line in open(os.environ["DATA_PATH"] + "/train.jsonl")]
assert not any("town 1" in json.dumps(row["recorded"]) for row in rows), "a row holds what was found, no answer"
turns = iter(["search[rivers]", "open[river]", "answer[the Ulm | river]"])
items = [Attempt(item_of(benchmark, rows[0]), 0, 0)]
played = list(play_by(lambda attempt, world, chat: next(turns), items, benchmark.environment, benchmark.max_turns))
url = os.environ["GRADING_SERVER_URL"] + "/judge"
told = httpx.post(url, json={"answers": [{"id": rows[0]["id"], "answer": "the Ulm"}]}, timeout=300).json()
assert told["scores"] == [0.0] and told["charged"] == 1, told
"""


def test_a_trial_replays_searches_buys_a_verdict_and_ends_with_a_private_score(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("DEEPSEARCHQA_DATA", raising=False)
    tmp_path.chmod(0o755)
    data = write_deepsearchqa(tmp_path / "data")
    record = load_task("deepsearchqa").model_dump(mode="json") | {
        "base_model": str(write_checkpoint(tmp_path / "base")),
        "n_items": {"train": 6, "dev": 3, "test_public": 4, "test_private": 6},
        "budget": {"wall_clock_s": 600, "submissions": 2, "judgements": 5},
    }
    (tmp_path / "task.yaml").write_text(yaml.safe_dump(record))
    agent = write_agent(tmp_path / "searcher", PLAYS + SUBMIT_COPY)
    root = new_trial(str(tmp_path / "task.yaml"), str(agent), 0, tmp_path, overrides=[f"data={json.dumps(str(data))}"])
    run_trial(root, quiet)
    evidence = read_evidence(root)
    assert evidence.agent_end is AgentEnd.EXITED, evidence.agent_log_tail
    assert len(evidence.submissions) == 1 and evidence.n_judgements == 1
    assert evidence.base_private.value == 0.0 and evidence.base_private.n == 6  # its random base answers nothing
    analysis = analyse(evidence)
    assert analysis.result is not None and analysis.integrity.state is not IntegrityState.VOID
    for path in (root / "workspace" / "data").iterdir():
        assert '"answer"' not in path.read_text(), "expected answers stay with the judge"
    assert not list((root / "workspace").rglob("judge.*")) and not list((root / "workspace").rglob("DSQA*"))
