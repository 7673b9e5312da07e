"""The example of a model that thinks, end to end: evaluated, judged, graded in the arena and shown in the web app."""

import json
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from agent2.cards.reader import iter_rollouts
from agent2.cli import app
from agent2.web.catalog import Catalog
from agent2.web.server import ReaderGuard, make_view_app
from agent2.web.site import Site

BASE = f"{Path(__file__).parents[2] / 'examples' / 'thinking' / 'base.py'}:BASE"
JUDGE = """
import json
from pathlib import Path


def think(messages, *_):
    with open(Path(__file__).with_name("read.txt"), "a") as read:
        read.write(messages[-1].content)
    return "<think>\\n" + json.dumps({"verdict": 1}) + "\\n</think>\\n" + json.dumps({"verdict": 10, "quote": ""})
"""


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)
    assert result.exit_code in (0, 1), result.output
    return result.output


@pytest.mark.slow
def test_a_model_that_thinks_is_evaluated_judged_graded_and_shown_by_its_answers(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    run("eval", "arithmetic", "--checkpoint", BASE, "--out", tmp_path / "evaluation")
    (card,) = tmp_path.glob("evaluation/cards/*/*/arithmetic-dev")
    rollouts = list(iter_rollouts(card))
    thoughts = [scored.rollout.turns[0].thought.text for scored in rollouts if scored.rollout.turns[0].thought]
    assert len(thoughts) > 95 and all(thought.startswith("Is it ") for thought in thoughts)
    assert all("think" not in scored.rollout.answer and "Is it" not in scored.rollout.answer for scored in rollouts)
    n_right = sum(scored.score.value for scored in rollouts)
    assert n_right > 8, "a reader of thoughts would find none right"

    (tmp_path / "judge.py").write_text(JUDGE)
    judge = f"model=scripted:{tmp_path / 'judge.py'}:think"
    run("cards", "rescore", card, "--scorer", "llm_judge", "--settings", judge, "--out", tmp_path / "judged")
    assert {scored.score.value for scored in iter_rollouts(tmp_path / "judged")} == {1.0}, "the verdict of its thought"
    assert "Is it" not in (tmp_path / "read.txt").read_text(), "the judge read a thought"

    catalog = Catalog(tmp_path / "evaluation")
    client = TestClient(make_view_app(Site(catalog), ReaderGuard("127.0.0.1", None)), base_url="http://127.0.0.1")
    (entry,) = [entry.id for entry in catalog.scan().entries.values() if entry.path == card]
    page = client.get(f"/rollout/{entry}/0").text
    assert '<details class="thought"><summary>thought, ' in page and thoughts[0] in page

    sizes = ("n_items.train=50", "n_items.dev=20", "n_items.test_public=60", "n_items.test_private=60")
    overrides = [part for size in sizes for part in ("--set", f"task.{size}")]
    run("run", "arithmetic", "--agent", "base-copy", "--model", BASE, *overrides)
    (summary,) = tmp_path.glob("trials/*/report/report.json")
    base = json.loads(summary.read_text())["trial"]["base_private"]
    assert base["value"] > 0.08, "a reader of thoughts would find none right"
