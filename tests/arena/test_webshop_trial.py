"""A whole trial on WebShop's layout: agent and grader play in a catalogue that is no part of the package."""

import json

import pytest
import yaml

from agent2.arena.analysis.read import read_evidence
from agent2.arena.analysis.result import analyse
from agent2.arena.evidence import AgentEnd
from agent2.arena.plan import new_trial
from agent2.arena.tasks import load_task
from agent2.arena.trial import run_trial
from grading_builders import write_checkpoint
from trial_builders import SUBMIT_COPY, quiet, write_agent
from webshop_builders import write_webshop

pytestmark = pytest.mark.slow

PLAYS = """
import json, os
from pathlib import Path
from agent2.benchmarks import load_benchmark
from agent2.benchmarks.home import item_of
from agent2.evaluation.engine import Attempt, play_by
from agent2.evaluation.scoring import score_played
benchmark = load_benchmark("webshop")
rows = [json.loads(line) for line in open(os.environ["DATA_PATH"] + "/train.jsonl")]
attempts = [Attempt(item_of(benchmark, row), 0, 0) for row in rows]
played = play_by(lambda attempt, world, chat: world.ask_expert(), attempts, benchmark.environment, benchmark.max_turns)
won = [one.score.value for one in score_played(played, benchmark.scorer())]
assert sum(won) > 0.5 * len(won), won
worlds = Path(os.environ["AGENT2_WORLDS"])
assert [folder.name for folder in worlds.iterdir()] == [rows[0]["store"]], list(worlds.iterdir())
assert not Path(str(worlds / rows[0]["store"]) + ".json").exists()
try:
    (worlds / rows[0]["store"] / "products.jsonl").write_text("")
    raise AssertionError("the catalogue could be written")
except OSError:
    pass
"""


def test_a_trial_plays_in_a_catalogue_from_official_files_and_ends_with_a_private_score(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    tmp_path.chmod(0o755)
    data = write_webshop(tmp_path / "data")
    record = load_task("webshop").model_dump(mode="json") | {
        "base_model": str(write_checkpoint(tmp_path / "base")),
        "n_items": {"train": 8, "dev": 3, "test_public": 4, "test_private": 6},
        "budget": {"wall_clock_s": 600, "submissions": 2},
    }
    (tmp_path / "task.yaml").write_text(yaml.safe_dump(record))
    agent = write_agent(tmp_path / "shopper", PLAYS + SUBMIT_COPY)
    root = new_trial(str(tmp_path / "task.yaml"), str(agent), 0, tmp_path, overrides=[f"data={json.dumps(str(data))}"])
    run_trial(root, quiet)
    evidence = read_evidence(root)
    assert evidence.agent_end is AgentEnd.EXITED, evidence.agent_log_tail
    assert len(evidence.submissions) == 1
    assert evidence.base_private.value == 0.0 and evidence.base_private.n == 6  # its random base orders nothing
    assert analyse(evidence).result is not None
