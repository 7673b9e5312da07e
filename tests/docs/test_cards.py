"""The page on rollout cards: its programs open a closed card without agent2."""

import re
from pathlib import Path

import pytest

from card_builders import make_record
from contract_card_builders import make_lost, write_card

PAGE = (Path(__file__).parents[2] / "docs" / "cards.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE.split("## Inspect")[0], re.DOTALL)
SAID = {"pandas": "completed", "duckdb": "question b", "polars": "infrastructure"}


@pytest.mark.parametrize("library", SAID)
def test_a_closed_card_opens_in(library, tmp_path, monkeypatch, capsys):
    pytest.importorskip(library)
    monkeypatch.chdir(tmp_path)
    write_card(tmp_path / "card", [make_record("a"), make_record("b", 0.0), make_lost("c")])
    (program,) = [text for text in PROGRAMS if f"import {library}" in text]
    exec(compile(program, "page", "exec"), {})
    assert SAID[library] in capsys.readouterr().out
