"""The page on building a benchmark, followed to the letter."""

import re
from pathlib import Path

import yaml

from agent2.authoring.card_faults import static_faults
from agent2.authoring.task_cards import read_cards
from cli_builders import run_agent2

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "build-a-benchmark.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_walk_of_the_page_goes_from_a_matrix_to_a_frozen_version(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "matrix.yaml").write_text(blocks("yaml")[0])
    generator, players = blocks("python")
    exec(compile(generator, "page", "exec"), {})
    (tmp_path / "players.py").write_text(players)
    finished = [run_agent2(*line.split()[1:], home=tmp_path) for line in blocks("sh")[0].splitlines()]
    assert [ended.returncode for ended in finished] == [0] * 5, [ended.stderr + ended.stdout for ended in finished]
    assert "330 cards for 330 targets, 0 lacking" in finished[0].stdout
    assert "verdict: healthy" in finished[2].stdout
    assert "330 items, 66 anchors" in finished[3].stdout


def test_the_card_of_the_page_is_one(tmp_path):
    (tmp_path / "card.yaml").write_text(blocks("yaml")[1])
    (card,) = read_cards(tmp_path / "card.yaml")
    assert (card.id, card.runs_command, card.process_checks[1]) == ("refund-rounding", True, "no_snapshot_deletion")
    assert not static_faults([card])
    assert yaml.safe_load(blocks("yaml")[1])["solution"].keys() == card.solution.keys()
