"""A whole trial on AlpacaEval's layout: an annotator behind an endpoint, bought verdicts, private gain."""

import json
import math

import pytest
import yaml

from agent2.arena.analysis.read import read_evidence
from agent2.arena.analysis.result import analyse
from agent2.arena.evidence import AgentEnd
from agent2.arena.plan import new_trial
from agent2.arena.tasks import load_task
from agent2.arena.trial import run_trial
from grading_builders import write_checkpoint
from served_fakes import Reply, endpoint
from trial_builders import SUBMIT_COPY, quiet, write_agent

pytestmark = pytest.mark.thorough

PROMPT = """<|im_start|>user
Task: {instruction}
m: {output_1}
M: {output_2}
<|im_end|>"""
BUYS = """
import json, os, httpx
rows = [json.loads(line) for line in open(os.environ["DATA_PATH"] + "/train.jsonl")]
url = os.environ["GRADING_SERVER_URL"] + "/judge"
told = httpx.post(url, json={"answers": [{"id": rows[0]["id"], "answer": "a much longer answer"}]}, timeout=300).json()
assert abs(told["scores"][0] - 0.9) < 1e-9 and told["charged"] == 1, told
"""


def annotate(body, number):
    """Prefers an answer of the agent's own words to the baseline's, and the baseline's to anything else."""
    first, _, second = body["messages"][-1]["content"].partition("m: ")[2].partition("\nM: ")  # empty: a probe
    preference = 0.9 if "much longer" in second or ("baseline" in second and "much longer" not in first) else 0.1
    pairs = {"m": math.log(1 - preference), "M": math.log(preference)}
    top = [{"token": token, "logprob": value} for token, value in pairs.items()]
    block = {"content": [{"token": "m", "logprob": pairs["m"], "top_logprobs": top}]}
    choice = {
        "index": 0,
        "finish_reason": "length",
        "logprobs": block,
        "message": {"role": "assistant", "content": "m"},
    }
    return Reply(json.dumps({"choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 1}}).encode())


def test_a_trial_buys_verdicts_of_the_annotator_and_ends_with_a_private_win_rate(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    tmp_path.chmod(0o755)
    data = tmp_path / "data"
    data.mkdir()
    rows = [{"instruction": f"Write about {k}.", "output": f"baseline {k}", "generator": "gpt4"} for k in range(160)]
    (data / "gpt4_1106_preview.json").write_text(json.dumps(rows))
    (data / "prompt.txt").write_text(PROMPT)
    record = load_task("alpacaeval").model_dump(mode="json") | {
        "base_model": str(write_checkpoint(tmp_path / "base")),
        "n_items": {"train": 5, "dev": 3, "test_public": 20, "test_private": 30},
        "budget": {"wall_clock_s": 600, "submissions": 2, "judgements": 5},
    }
    (tmp_path / "task.yaml").write_text(yaml.safe_dump(record))
    agent = write_agent(tmp_path / "buyer", BUYS + SUBMIT_COPY)
    with endpoint(annotate) as served:
        (data / "judge.yaml").write_text(yaml.safe_dump({"model": f"{served.url}#annotator", "prompt": "prompt.txt"}))
        root = new_trial(str(tmp_path / "task.yaml"), str(agent), 0, tmp_path, overrides=[f"data={data}"])
        run_trial(root, quiet)
    evidence = read_evidence(root)
    assert evidence.agent_end is AgentEnd.EXITED, evidence.agent_log_tail
    assert evidence.n_judgements == 1 and len(evidence.submissions) == 1
    assert evidence.submissions[0].score.value == pytest.approx(0.1)  # its random base says nothing good
    result = analyse(evidence).result
    assert result is not None
    assert not list((root / "workspace").rglob("judge.yaml"))
    hidden = {row["output"] for row in rows}
    visible = (root / "workspace" / "data" / "train.jsonl").read_text()
    assert sum(f'"{text}"' in visible for text in hidden) <= 5
