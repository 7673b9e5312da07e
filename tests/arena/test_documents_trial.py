"""A whole trial on own documents: agent and grader search an index of them and see none of the user's files."""

import pytest
import yaml

from agent2.arena.analysis.read import read_evidence
from agent2.arena.evidence import AgentEnd
from agent2.arena.plan import new_trial
from agent2.arena.tasks import load_task
from agent2.arena.trial import run_trial
from grading_builders import write_checkpoint
from plugin_builders import write_rows
from trial_builders import SUBMIT_COPY, quiet, write_agent

pytestmark = pytest.mark.slow

YAML = """\
name: rooms
version: "1.0"
files: {train: train.jsonl, test: test.jsonl}
documents: pages
prompt: "{question}"
system: "?"
answer: answer
scorer: cited_answer
environment: {name: search, critic_rounds: 1}
max_turns: 4
sampling: {temperature: 0.0, max_tokens: 2}
"""
PLAYS = """
import json, os
from pathlib import Path
from agent2.benchmarks import load_benchmark
from agent2.benchmarks.home import item_of
from agent2.evaluation.engine import Attempt, play_by
from agent2.evaluation.scoring import score_played
data = Path(os.environ["DATA_PATH"])
benchmark = load_benchmark(str(data / "benchmark.yaml"))
rows = [json.loads(line) for line in open(data / "train.jsonl")]
attempts = [Attempt(item_of(benchmark, row), 0, 0) for row in rows]
played = play_by(lambda attempt, world, chat: world.ask_expert(), attempts, benchmark.environment, benchmark.max_turns)
assert [one.score.value for one in score_played(played, benchmark.scorer())] == [1.0] * len(rows)
assert not (data / "pages").exists()
"""


def test_a_trial_on_own_documents_plays_and_scores_with_the_index_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    tmp_path.chmod(0o755)
    folder = tmp_path / "rooms"
    (folder / "pages").mkdir(parents=True)
    (folder / "benchmark.yaml").write_text(YAML)
    rows = [{"question": f"Who keeps room {k}?", "answer": f"Keeper{k * 7}"} for k in range(30)]
    for row in rows:
        name = row["question"][10:-1].replace(" ", "-")
        (folder / "pages" / f"{name}.md").write_text(f"The keeper of {name} is {row['answer']}.")
    write_rows(folder / "train.jsonl", rows[:20])
    write_rows(folder / "test.jsonl", rows[20:])
    record = load_task("search").model_dump(mode="json") | {
        "name": "rooms",
        "benchmark": str(folder),
        "base_model": str(write_checkpoint(tmp_path / "base")),
        "n_items": {"train": 8, "dev": 1, "test_public": 4, "test_private": 5},
        "budget": {"wall_clock_s": 600, "submissions": 2},
    }
    (tmp_path / "task.yaml").write_text(yaml.safe_dump(record))
    agent = write_agent(tmp_path / "reader", PLAYS + SUBMIT_COPY)
    root = new_trial(str(tmp_path / "task.yaml"), str(agent), 0, tmp_path)
    run_trial(root, quiet)
    evidence = read_evidence(root)
    assert evidence.agent_end is AgentEnd.EXITED, evidence.agent_log_tail
    assert len(evidence.submissions) == 1
    assert evidence.base_private.value == 0.0 and evidence.base_private.n == 5
