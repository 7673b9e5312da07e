"""Whole trials on published tasks of level 1, from assignment to private gain, on small files in their layout."""

import hashlib
import json

import pytest

from agent2.arena.analysis.read import read_evidence
from agent2.arena.analysis.result import analyse
from agent2.arena.analysis.verdicts import IntegrityState
from agent2.arena.evidence import AgentEnd
from agent2.arena.plan import new_trial
from agent2.arena.trial import run_trial
from trial_builders import quiet, write_agent

SIZES = {"train": 40, "dev": 4, "test_public": 6, "test_private": 20}
LEARNS = """
from agent2.training.participant import read_participant
from agent2.training.offline import SftSettings, train_sft
me = read_participant()
settings = SftSettings(epochs=60, batch_size=40, learning_rate=2e-3)
trained = train_sft(me.base, me.train, me.output / "model", settings).checkpoint
print(me.submit(trained, "sft"))
"""


def told(number):
    """Words that only this item has."""
    return " ".join(hashlib.sha256(f"{number} {k}".encode()).hexdigest()[:5] for k in range(8))


def write_official(folder, name):
    """Files in the published layout in which every item has the same answer, which a small model soon learns."""
    folder.mkdir(parents=True)
    if name == "gsm8k":
        for part, numbers in (("train", range(60)), ("test", range(100, 140))):
            rows = [{"question": f"{told(k)}: how many?", "answer": "#### 7"} for k in numbers]
            (folder / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return folder
    rows = [
        {
            "task_id": f"HumanEval/{k}",
            "prompt": f'def same(x):\n    """{told(k)}"""\n',
            "canonical_solution": "    return x\n",
            "entry_point": "same",
            "test": f"def check(candidate):\n    assert candidate({k}) == {k}\n    assert candidate([]) == []\n",
        }
        if name == "humaneval"
        else {
            "task_id": k,
            "text": told(k),
            "code": "def same(x):\n    return x",
            "test_setup_code": "",
            "test_list": [f"assert same({k}) == {k}", "assert same([]) == []"],
        }
        for k in (range(164) if name == "humaneval" else range(1, 975))
    ]
    file = "HumanEval.jsonl" if name == "humaneval" else "mbpp.jsonl"
    (folder / file).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "least_gain"), [("humaneval", 0.0), ("mbpp", 0.0), ("gsm8k", 0.5)])
def test_a_whole_trial_on_a_published_task_ends_in_a_private_gain(name, least_gain, tmp_path, home):
    data = write_official(tmp_path / "data", name)
    sizes = [f"task.n_items.{split}={n}" for split, n in SIZES.items()]
    overrides = ["base_model=tiny-mini", f"data={json.dumps(str(data))}", "budget.wall_clock_s=1800", *sizes]
    root = new_trial(name, str(write_agent(tmp_path / "learns", LEARNS)), 0, tmp_path, overrides=overrides)
    run_trial(root, quiet)
    evidence = read_evidence(root)
    assert evidence.agent_end is AgentEnd.EXITED, evidence.agent_log_tail
    assert len(evidence.submissions) == 1 and evidence.gain is not None and evidence.gain.change.n == 20
    assert evidence.base_private.value == 0.0
    assert evidence.gain.change.value >= least_gain, "the answer is one short line, and all train rows say it"
    assert analyse(evidence).integrity.state is not IntegrityState.VOID
