"""docs/how-to/own-benchmark.md: its `benchmark.yaml` is used on files in the layout of GSM8K."""

import re
from inspect import signature
from pathlib import Path

import pytest

from agent2.benchmarks import load_benchmark
from agent2.benchmarks.declared import DeclaredBenchmark
from agent2.environments import ENVIRONMENTS
from agent2.environments.search.world import document_world
from agent2.errors import ConfigError
from agent2.evaluation.check import check_benchmark
from agent2.evaluation.engine import Attempt, PlaySettings, play
from agent2.models.sources import ScriptedSampler
from agent2.plugins import group
from agent2.records import HIDDEN_SPLITS, Split
from agent2.scorers import SCORERS
from plugin_builders import write_gsm, write_rows

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "own-benchmark.md").read_text(encoding="utf-8")
FILES = {text.split()[1]: text for text in re.findall(r"```yaml\n(name: .*?)```", PAGE, re.DOTALL)}
WRITTEN, SEARCHED, CHATS = (FILES[name] for name in ("my_gsm8k", "handbook", "desk_calls"))
ROWS = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
SECRET = b"s" * 32


@pytest.fixture
def gsm8k(tmp_path, monkeypatch):
    """The page's file beside data in the official layout, which are not those that it pins."""
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    return write_gsm(tmp_path / "gsm8k", WRITTEN.partition("sha256:")[0], n_train=100)


def test_the_page_needs_at_most_twenty_lines_and_no_python(gsm8k):
    assert len(WRITTEN.splitlines()) <= 20
    found = check_benchmark(load_benchmark(str(gsm8k)))
    assert found.is_sound and sum(found.counts.values()) == 141
    assert [check.name for check in found.checks if check.ok is not True and not check.warning] == []


def test_other_data_than_the_page_pins_are_refused(gsm8k):
    (gsm8k / "benchmark.yaml").write_text(WRITTEN)
    with pytest.raises(ConfigError, match=r"benchmark\.yaml:13: train\.jsonl changed after it was pinned"):
        load_benchmark(str(gsm8k))


def test_published_solutions_with_another_marker_are_counted_over_both_hidden_halves(gsm8k):
    """As `benchmarks/published.py` does with the official files: `A: 18` is the final answer of a solution."""
    benchmark = DeclaredBenchmark(gsm8k, ['scorer.marker="A: "'])
    items = [
        i for split in sorted(HIDDEN_SPLITS) for i in benchmark.items(split, benchmark.count(split, SECRET), SECRET)
    ]
    assert len(items) == 41
    right = {item.prompt for item in items[::3]}
    references = {item.prompt: item.reference.rpartition("#### ")[2] for item in items}

    def solution(chat):
        prompt = chat[-1].content
        return f"I think so.\nA: {references[prompt] if prompt in right else 1}\nB: 7"

    settings = PlaySettings(benchmark.sampling, 1)
    attempts = [Attempt(item, 0, 0) for item in items]
    played = play(attempts, ScriptedSampler(solution), benchmark.environment, benchmark.scorer(), settings)
    assert sum(one.score.value == 1.0 for one in played) == 14


def test_the_documents_of_the_page_are_searched(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    folder = tmp_path / "handbook"
    (folder / "pages").mkdir(parents=True)
    (folder / "benchmark.yaml").write_text(SEARCHED)
    (folder / "pages" / "archive.md").write_text("The librarian and the night guard may open the archive.")
    (questions,) = (rows for rows in ROWS if "archive" in rows)
    for name, number in (("train", 1), ("test", 2)):
        (folder / f"{name}.jsonl").write_text(questions.replace("archive", f"archive {number}"))
    found = check_benchmark(load_benchmark(str(folder)))
    assert found.is_sound and [check.name for check in found.checks if check.ok is not True and not check.warning] == []
    (folder / "pages" / "archive.md").write_text("The librarian may open the archive.")
    assert not check_benchmark(load_benchmark(str(folder))).is_sound


def test_the_chat_of_the_page_is_asked_and_its_call_is_right(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    (tmp_path / "benchmark.yaml").write_text(CHATS)
    (row,) = (rows for rows in ROWS if "messages" in rows)
    (tmp_path / "chats.jsonl").write_text("".join(row.replace("Paris", f"Paris {k}") for k in range(40)))
    found = check_benchmark(load_benchmark(str(tmp_path)))
    assert found.is_sound and sum(found.counts.values()) == 40


def test_the_options_of_the_page_are_compared_by_likelihood(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    (tmp_path / "benchmark.yaml").write_text(FILES["arc_base"])
    for name in ("train", "test"):
        rows = [
            {"question": f"{name} {k}?", "answerKey": "ABC"[k % 3]}
            | {"choices": {"text": [f"red {k}", f"green {k}", f"blue {k}"], "label": ["A", "B", "C"]}}
            for k in range(240)
        ]
        write_rows(tmp_path / f"{name}.jsonl", rows)
    benchmark = load_benchmark(str(tmp_path))
    assert check_benchmark(benchmark).is_sound
    world = benchmark.environment()
    world.reset(benchmark.items(Split.TRAIN, 1, None)[0], 0)
    offer = world.offered_answers()
    assert offer.text.count("Question: ") == 6 and offer.text.endswith("Answer:")
    assert [answer.split()[0] for answer in offer.answers] == ["red", "green", "blue"]


def test_what_the_page_names_is_there():
    for name in ("final_answer", "exact", "rational", "choice", "cited_answer", "chat_calls"):
        assert name in SCORERS and f"`{name}`" in PAGE
    assert {"question", "search"} <= set(ENVIRONMENTS)
    for name in set(signature(document_world).parameters) - {"documents", "system"}:
        assert f"`{name}`" in PAGE
    for kind in ("benchmark", "scorer", "environment", "agent", "suite"):
        assert f'"{group(kind)}"' in PAGE
    for split in Split:
        assert f"`{split.value}`" in PAGE
