import shutil
from dataclasses import replace
from importlib import resources
from pathlib import Path

import pytest

from agent2.benchmarks import BASE_MODELS, BENCHMARKS, load_benchmark
from agent2.benchmarks.recipes.mini import CorpusPart, MiniCorpusSettings, mini_corpus
from agent2.errors import ConfigError
from agent2.models.bases import ensure_base_model
from agent2.models.checkpoint import inspect_checkpoint
from agent2.models.packaged import WEIGHTS, unpack
from agent2.models.tiny import make
from agent2.records import Split
from agent2.scorers.answers import reference_value, strict_answer
from agent2.training.dev_scores import dev_scores
from agent2.training.grpo import GrpoSettings, train_grpo

ENTRY = BASE_MODELS["tiny-mini"]
PACKAGED = Path(str(resources.files("agent2.benchmarks.recipes"))) / "tiny-mini"
NAMES = sorted({part.benchmark for parts in MiniCorpusSettings().stages for part in parts})


def silent(message):
    pass


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))


def test_every_mini_benchmark_of_texts_has_a_part_in_the_corpus():
    of_texts = {name for name in BENCHMARKS if name.startswith("mini_")} - {
        "mini_shapes",
        "mini_charts",
        "mini_documents",
    }
    assert set(NAMES) == of_texts and len(of_texts) > 4


def test_weights_that_were_changed_or_made_by_another_recipe_are_refused(tmp_path):
    folder = tmp_path / "packaged"
    shutil.copytree(PACKAGED, folder)
    (tmp_path / "out").mkdir()
    changed = replace(ENTRY, recipe=replace(ENTRY.recipe, steps=(7, 7)))
    with pytest.raises(ConfigError, match="made by recipe"):
        unpack(folder, changed, tmp_path / "out", silent)
    data = bytearray((folder / WEIGHTS).read_bytes())
    data[-1] ^= 1
    (folder / WEIGHTS).write_bytes(bytes(data))
    with pytest.raises(ConfigError, match="its digest is"):
        unpack(folder, ENTRY, tmp_path / "out", silent)


def test_a_benchmark_without_a_corpus_is_refused():
    with pytest.raises(ConfigError, match="has no corpus"):
        mini_corpus(MiniCorpusSettings(stages=((CorpusPart("no_such_benchmark", 1, 0.5),),)))


def test_only_recipes_for_chats_are_made_here(tmp_path):
    with pytest.raises(ConfigError, match="only recipes with MiniCorpusSettings"):
        make(replace(ENTRY, recipe=ENTRY.recipe.model), tmp_path, silent)


@pytest.mark.slow
def test_a_shortened_recipe_makes_a_folder_that_unpacks_to_a_model_that_plays_all_six(tmp_path):
    model = replace(ENTRY.recipe.model, hidden_size=32, n_layers=1, feed_forward_size=64)
    stages = tuple(tuple(replace(part, n_chats=20) for part in parts) for parts in ENTRY.corpus.stages)
    short = replace(
        ENTRY,
        recipe=replace(ENTRY.recipe, model=model, steps=(6, 2, 2, 2, 4), batch_tokens=1024, report_every_steps=2),
        corpus=replace(ENTRY.corpus, stages=stages),
    )
    messages = []
    report = make(short, tmp_path / "packaged", messages.append)
    assert report["steps"] == [6, 2, 2, 2, 4] and "step 4 of" in messages[-1]
    (tmp_path / "model").mkdir()
    manifest = unpack(tmp_path / "packaged", short, tmp_path / "model", silent)
    assert manifest["weights_digest"] == inspect_checkpoint(tmp_path / "model").weights_digest
    scores = dev_scores(tmp_path / "model", NAMES, n_items=4)
    assert {name for name in scores if scores[name]["missing"] == 0} == set(NAMES)


@pytest.mark.thorough
@pytest.mark.slow
def test_the_shipped_model_lies_between_floor_and_ceiling_on_all_six(home):
    scores = dev_scores(ensure_base_model("tiny-mini", BASE_MODELS, silent), NAMES, n_items=150)
    for name in NAMES:
        floor = 0.3 if name == "mini_knowledge" else 0.25
        assert floor < scores[name]["score"] < 0.75, name
        assert scores[name]["missing"] == 0


@pytest.mark.thorough
@pytest.mark.slow
def test_a_few_steps_of_grpo_on_mini_math_move_its_score(home, tmp_path):
    base = ensure_base_model("tiny-mini", BASE_MODELS, silent)
    items = load_benchmark("mini_math").items(Split.TRAIN, 300, None)
    rows = [{"prompt": item.prompt, "answer": item.reference or ""} for item in items]
    settings = GrpoSettings(steps=10, prompts_per_step=16, max_completion_tokens=40)
    report = train_grpo(base, rows, exact_match, tmp_path / "model", settings)
    before, after = (dev_scores(folder, ["mini_math"], 150)["mini_math"] for folder in (base, report.checkpoint))
    assert after["score"] > before["score"] + 0.1
    assert after["answer_parsed"] > before["answer_parsed"] + 0.1


def exact_match(completions, answers):
    pairs = zip(completions, answers, strict=True)
    return [float(strict_answer(text).value == reference_value(answer)) for text, answer in pairs]
