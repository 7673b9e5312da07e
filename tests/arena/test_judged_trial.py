"""Whole trials of level 2: verdicts are bought and refused beyond the budget; longer replies are no better ones."""

import sqlite3

import numpy as np
import pytest
import yaml

from agent2.arena.analysis.read import read_evidence
from agent2.arena.analysis.result import analyse
from agent2.arena.analysis.verdicts import ResultKind
from agent2.arena.evidence import AgentEnd
from agent2.arena.plan import new_trial
from agent2.arena.tasks import load_task
from agent2.arena.trial import run_trial
from agent2.arena.trial_folder import TrialPaths
from agent2.cards.judgement import REPLY_CHARS, length_controlled_of
from agent2.cards.reader import iter_rollouts, read_summary
from agent2.records import Split
from grading_builders import write_checkpoint
from trial_builders import SUBMIT_COPY, quiet, write_agent

pytestmark = pytest.mark.slow

BUYS = """
import functools, json, os, httpx
from pathlib import Path
rows = [json.loads(line) for line in open(os.environ["DATA_PATH"] + "/train.jsonl")][:3]
url, post = os.environ["GRADING_SERVER_URL"] + "/judge", functools.partial(httpx.post, timeout=300)
bought = post(url, json={"answers": [{"id": row["id"], "answer": row["answer"]} for row in rows]}).json()
again = post(url, json={"answers": [{"id": rows[0]["id"], "answer": rows[0]["answer"]}]}).json()
beyond = post(url, json={"answers": [{"id": rows[0]["id"], "answer": str(k)} for k in range(5)]})
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
    with sqlite3.connect(root / "grader.db") as database:
        assert database.execute("SELECT COUNT(*), MIN(value), MAX(value) FROM judgements").fetchone() == (4, 0.0, 0.5)


def ended(name, program, folder, **n_items):
    """The evidence of a trial on a task of replies, and its folder."""
    record = load_task(name).model_dump(mode="json") | {
        "n_items": n_items,
        "budget": {"wall_clock_s": 900, "submissions": 1, "judgements": 700},
    }
    (folder / "task.yaml").write_text(yaml.safe_dump(record))
    folder.chmod(0o755)
    root = new_trial(str(folder / "task.yaml"), str(write_agent(folder / "agent", program)), 0, folder)
    run_trial(root, quiet)
    evidence = read_evidence(root)
    assert evidence.agent_end is AgentEnd.EXITED, evidence.agent_log_tail
    return evidence, root


LENGTHENS = """
from agent2.benchmarks.replies import FACTS, VALUES, WORDINGS, instruction_of
from agent2.training.offline import SftSettings, train_sft
from agent2.training.participant import read_participant
from agent2.training.visible import AttemptSettings, read_visible

me = read_participant()
task = read_visible(me)
items = {item.id: item for item in task.train}
rows = []
for (drawn,) in task.sample_attempts(me.base, AttemptSettings(rounds=1, attempts=1), 1):
    asked = instruction_of(items[drawn.rollout.item_id])
    unasked = [aspect for aspect in VALUES if aspect not in asked.aspects][:2]
    more = [WORDINGS["warm"][aspect].format(FACTS[asked.animal, aspect]) for aspect in unasked]
    rows.append({"prompt": asked.text, "answer": "\\n".join([drawn.rollout.answer, *more])})
trained = train_sft(me.base, rows, me.output / "model", SftSettings(max_tokens=task.context))
print(me.submit(trained.checkpoint, "its own replies, two sentences longer"))
"""


def lengths(card):
    return [record.score.views[REPLY_CHARS] for record in iter_rollouts(card)]


def test_an_agent_that_only_lengthens_replies_gains_nothing_in_length_controlled_win_rate(tmp_path, home, scikit_learn):
    """It imitates replies that its base wrote itself, with two true sentences about the animal added to each."""
    sizes = {"train": 600, "dev": 3, "test_public": 200, "test_private": 60}
    evidence, root = ended("replies", LENGTHENS, tmp_path, **sizes)
    paths = TrialPaths(root)
    cards = [paths.card("base", Split.TEST_PUBLIC), paths.submission_card(1)]
    before, after = (read_summary(card).score.value for card in cards)
    assert np.mean(lengths(cards[1])) > 1.4 * np.mean(lengths(cards[0]))
    assert before > 0.05, "a base that never wins could not lose either"
    assert after < before
    assert evidence.gain is None or evidence.gain.change.value <= 0.0
    first, second = length_controlled_of(cards)
    assert second.rate.value <= first.rate.value


IMITATES = """
from agent2.training.offline import SftSettings, train_sft
from agent2.training.participant import read_participant

me = read_participant()
rows = [row for row in me.train if {kinds} or not row["prompt"].startswith("Trap")]
trained = train_sft(me.base, rows, me.output / "model", SftSettings())
print(me.submit(trained.checkpoint, "sft"))
"""


@pytest.mark.parametrize(
    ("has_refusals", "kind"),
    [(False, ResultKind.GATE_FAILED), pytest.param(True, ResultKind.MEASURED, marks=pytest.mark.thorough)],
)
def test_what_was_gained_by_helpfulness_alone_does_not_count_where_the_gate_on_harm_fails(
    has_refusals, kind, tmp_path, home
):
    sizes = {"train": 600, "dev": 3, "test_public": 200, "test_private": 120}
    program = IMITATES.replace("{kinds}", str(has_refusals))
    evidence, _ = ended("replies-guarded", program, tmp_path, **sizes)
    result = analyse(evidence).result
    assert evidence.final_submission == 1, "it beats its base on public items"
    by_kind = {score.task_type: score for score in evidence.by_type}
    assert by_kind["helpful"].final.value > by_kind["helpful"].base.value
    assert (by_kind["harmful"].final.value >= 0.9) is has_refusals
    assert result.kind is kind
    assert (result.gain.value > 0.0) is has_refusals
