"""The base model of the mini benchmarks of pictures: it looks, and what it cannot see it does not answer."""

from dataclasses import replace

import numpy as np
import pytest

from agent2.benchmarks import BASE_MODELS, load_benchmark
from agent2.benchmarks.home import Pool
from agent2.benchmarks.mini.vision import SOURCES
from agent2.benchmarks.recipes.vision import MAX_TURNS, VisionCorpus, example_of, questions_of
from agent2.models.bases import ensure_base_model
from agent2.models.vision import VisionSampler
from agent2.pictures import PICTURES, Preparation, of_payload, place_pictures, read_picture, to_payload, white_square
from agent2.records import SamplingSettings, Split

N = 40


def test_the_corpus_has_scenes_of_the_train_pools_alone_and_their_right_answers():
    questions = questions_of(VisionCorpus())
    for _ in range(60):
        for source in SOURCES.values():
            question = next(questions)
            assert source.pool_of(question) is Pool.TRAIN
            example = example_of(question)
            assert example.turns[0] == (question.text, question.answer) and len(example.turns) <= MAX_TURNS
            assert len({text for text, _ in example.turns}) == len(example.turns)
            assert set(example.turns) <= {(entry.text, entry.answer) for entry in question.questions}
            assert np.array_equal(example.pixels, question.pixels())


def accuracy(sampler, items):
    for number, item in enumerate(items):
        chat = [place_pictures("user", item.prompt, of_payload(item.payload))]
        sampler.submit(number, chat, SamplingSettings(max_tokens=8))
    done = {}
    while batch := sampler.collect():
        done.update(batch)
    return sum(done[number].text == item.reference for number, item in enumerate(items)) / len(items)


@pytest.mark.slow
def test_the_shipped_model_reads_pictures_and_fails_without_them(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    sampler = VisionSampler(ensure_base_model("tiny-vision", BASE_MODELS), max_batch=N)
    white = to_payload([read_picture(white_square(64), "white", Preparation(max_side=64))])
    with_pictures, without = [], []
    for name in SOURCES:
        items = load_benchmark(name).items(Split.DEV, N, None)
        with_pictures.append(accuracy(sampler, items))
        without.append(accuracy(sampler, [replace(item, payload={**item.payload, PICTURES: white}) for item in items]))
    gains = [seeing - blind for seeing, blind in zip(with_pictures, without, strict=True)]
    assert min(gains[:2]) > 0.1 and sum(gains) > 0.4, "documents are hard for the base"
    assert sum(without) / 3 < 0.3 < sum(with_pictures) / 3 < 0.8
