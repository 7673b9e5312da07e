"""What stands in for published files when packaged suites are played, and what the scripts beside it write."""

import importlib
import json
import sys
from pathlib import Path

import pytest

from agent2.benchmarks import load_benchmark
from agent2.records import Split

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield importlib.import_module
    for name in ("decided_suites", "reward_bench_pairs", "stretched"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    "name", ["gsm8k", "mmlu_pro", "ifeval", "api_bank", "swebench_verified", "mmmu", "mathvista", "chartqa"]
)
def test_each_stand_in_is_read_as_the_published_files_are(script, tmp_path, monkeypatch, name):
    decided_suites = script("decided_suites")
    monkeypatch.setattr(decided_suites, "N_ROWS", 40)
    folder = decided_suites.stand_in_for(name, tmp_path / name)
    benchmark = load_benchmark(name, Path(folder))
    items = [item for split in (Split.DEV, Split.TEST_PUBLIC) for item in benchmark.items(split, 2, b"s" * 32)]
    assert len({item.prompt for item in items}) == len(items) == 4
    written = sorted(path.name for path in Path(folder).iterdir())
    assert decided_suites.stand_in_for(name, tmp_path / name) == folder
    assert sorted(path.name for path in Path(folder).iterdir()) == written


def test_a_pair_of_llmbar_names_the_better_output_by_its_label(script, tmp_path):
    rows = [{"input": "q", "output_1": "a", "output_2": "b", "label": label} for label in (1, 2)]
    (tmp_path / "dataset.json").write_text(json.dumps(rows))
    pairs = script("reward_bench_pairs").pairs(tmp_path, "llmbar-natural")
    assert [(pair["chosen"], pair["rejected"]) for pair in pairs] == [("a", "b"), ("b", "a")]


@pytest.mark.parametrize("config", [{"max_position_embeddings": 9}, {"text_config": {"max_position_embeddings": 9}}])
def test_a_stretched_copy_differs_in_its_window_alone(script, tmp_path, config):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps({**config, "model_type": "m"}))
    (tmp_path / "model" / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 9, "other": 1}))
    copy = script("stretched").stretch(tmp_path / "model", 64, tmp_path / "copy")
    stretched = json.loads((copy / "config.json").read_text())
    assert stretched.pop("model_type") == "m"
    assert (stretched.get("text_config") or stretched) == {"max_position_embeddings": 64}
    assert json.loads((copy / "tokenizer_config.json").read_text()) == {"model_max_length": 64, "other": 1}
    assert json.loads((tmp_path / "model" / "config.json").read_text()) == {**config, "model_type": "m"}


def test_a_decision_is_read_from_what_the_commands_print(script):
    decision_in = script("decided_suites").decision_in
    assert decision_in("- a reason\nrelease decision: block\n") == "block"
    assert decision_in("training action   pause\nrelease decision  research_only\n") == "research_only"
    assert decision_in("error: no release decision: block") == ""
