"""`benchmarks/liars.py` without a trial: its agents are complete, and the table counts who got away or was harmed."""

import ast
import json
import runpy
import sys
from pathlib import Path

import pytest

from agent2.arena.agents import load_agent
from agent2.arena.analysis.result import analyse
from agent2.arena.spec import Mode
from builders import make_evidence, make_metrics, make_process, make_revision, make_score, make_submission

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def liars():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(FOLDER), *sys.path])  # as Python does; the script takes it away
        return runpy.run_path(str(FOLDER / "liars.py"))


@pytest.fixture
def cases(liars):
    return {case.name: case for case in (*liars["HONEST"], *liars["LIARS"])}


def test_there_are_enough_of_both_and_their_names_are_their_own(liars, cases):
    assert len(liars["LIARS"]) >= 12 and len(liars["HONEST"]) >= 8
    assert len(cases) == len(liars["LIARS"]) + len(liars["HONEST"])
    assert len({liars["slug"](name) for name in cases}) == len(cases)


def test_every_program_can_be_parsed_and_every_verdict_exists(liars, cases):
    for case in cases.values():
        for name, text in {"main.py": case.program, **case.files}.items():
            if name.endswith((".py", ".ipynb")):
                ast.parse(text)
        assert set(case.must_not) <= set(liars["VERDICTS"])
        assert case.is_liar == bool(case.must_not)


def test_what_an_agent_takes_is_made_before_it(liars, cases):
    names = [case.name for case in liars["chosen"]([], None)]
    for case in cases.values():
        if case.takes:
            assert names.index(case.takes) < names.index(case.name)
    assert [case.name for case in liars["chosen"](["log of another"], None)] == [
        "policy gradient",
        "log of another run",
    ]
    assert "jax" not in names, "without its packages it is left out"


def test_the_folder_of_an_agent_can_be_loaded(liars, cases, tmp_path):
    (tmp_path / "packages" / "notebook").mkdir(parents=True)
    folder = liars["write_agent"](cases["notebook"], tmp_path / "notebook", tmp_path / "packages", None)
    assert load_agent(str(folder)).spec.environment == {"PYTHONPATH": "/agent/packages"}
    cells = json.loads((folder / "train.ipynb").read_text())["cells"]
    assert "backward()" in "".join(cell["source"] for cell in cells)


def test_an_honest_report_of_an_honest_agent_has_no_fault(liars, cases):
    assert liars["fault_of"](cases["GRPO by TRL"], analyse(make_evidence())).startswith("integrity not_audited")
    assert "route" in liars["fault_of"](cases["DPO"], analyse(make_evidence()))


def test_a_liar_that_is_believed_got_away_and_one_that_is_not_did_not(liars, cases):
    believed = liars["fault_of"](cases["SFT told as RL"], analyse(make_evidence()))
    assert "RL is shown" in believed and "a valid RL approach" in believed
    source = "import torch\nloss = model(labels=rows).loss\nloss.backward()\n"
    doubted = make_evidence(
        revisions=[make_revision({"code/train.py": source})],
        processes=[make_process("python code/train.py")],
        metrics=make_metrics("output/log.jsonl", [{"reward": 0.2}, {"reward": 0.6}]),
        submissions=[make_submission(1, score=0.6)],
        final_private=make_score(0.6),
        mode=Mode.RL_ONLY,
    )
    assert liars["fault_of"](cases["SFT told as RL"], analyse(doubted)) == ""


def test_the_table_counts_liars_that_got_away_and_honest_agents_that_were_harmed(liars, cases):
    analysis = analyse(make_evidence())
    rows = [liars["row_of"](cases[name], analysis, "1-2, tier 1") for name in ("SFT told as RL", "GRPO by TRL")]
    table = liars["markdown"](rows)
    assert table.endswith("1 of 1 liars got away with something, 1 of 1 honest agents were harmed.")
    assert table.count("\n| ") == 2 and "RL is shown" in table
