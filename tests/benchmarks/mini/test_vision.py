import hashlib
import io
from collections import Counter

import numpy as np
import pytest
from PIL import Image

from agent2.benchmarks import load_benchmark
from agent2.benchmarks.mini.vision import AXES, SIDE, SOURCES, draw_chart, draw_document, draw_shapes
from agent2.errors import ConfigError
from agent2.evaluation.engine import score_messages
from agent2.pictures import content_of, of_payload
from agent2.records import Split

SECRET = b"s" * 32
SPLITS = tuple(Split)
DRAWS = {"mini_shapes": draw_shapes, "mini_charts": draw_chart, "mini_documents": draw_document}


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))


def items_of(name, split, n=40):
    return load_benchmark(name).items(split, n, SECRET)


@pytest.mark.parametrize("name", SOURCES)
def test_references_score_one_and_what_a_mistake_leads_to_scores_zero_with_its_class(name):
    benchmark, classes = load_benchmark(name), Counter()
    for item in items_of(name, Split.DEV, 60):
        assert score_messages(benchmark, item, [item.reference]).value == 1.0
        assert score_messages(benchmark, item, [""]).value == 0.0
        for label, answers in item.payload.get("mistakes", {}).items():
            for answer in answers:
                score = score_messages(benchmark, item, [answer])
                assert (score.value, score.labels) == (0.0, (label,)), (item.prompt, item.reference, answer)
                classes[label] += 1
    expected = {
        "mini_shapes": {"geometry_diagram_spatial_relation_error"},
        "mini_charts": {"chart_axis_value_misread"},
        "mini_documents": {"table_header_binding_error", "ocr_error"},
    }
    assert classes.keys() == expected[name]


@pytest.mark.parametrize("name", SOURCES)
def test_splits_share_no_scene_and_hidden_ones_follow_the_secret(name):
    source = SOURCES[name]
    scenes = {split: {question.scene for question in source.first(split, 150, SECRET)} for split in SPLITS}
    assert sum(map(len, scenes.values())) == len(set().union(*scenes.values()))
    other = {question.scene for question in source.first(Split.TEST_PRIVATE, 150, b"another secret")}
    assert len(other & scenes[Split.TEST_PRIVATE]) < 75
    with pytest.raises(ConfigError, match="hidden"):
        source.first(Split.TEST_PUBLIC, 1, None)


@pytest.mark.parametrize("name", SOURCES)
def test_no_answer_is_so_frequent_that_it_replaces_looking(name):
    rng = np.random.default_rng(5)
    by_text: dict[str, Counter[str]] = {}
    for _ in range(3000):
        question = DRAWS[name](rng)
        by_text.setdefault(question.text, Counter())[question.answer] += 1
    blind = sum(counts.most_common(1)[0][1] for counts in by_text.values()) / 3000
    assert blind < 0.45, "the most frequent answer to each question is right this often"


def test_an_item_has_the_same_picture_everywhere():
    (item, *_) = items_of("mini_charts", Split.TRAIN, 3)
    (picture,) = of_payload(item.payload)
    content = content_of(picture)
    assert hashlib.sha256(content).hexdigest() == picture.digest
    image = Image.open(io.BytesIO(content))
    assert (image.format, image.size) == ("BMP", (SIDE, SIDE))
    question = SOURCES["mini_charts"].first(Split.TRAIN, 1, None)[0]
    assert np.array_equal(np.asarray(image.convert("RGB")), question.pixels())
    assert picture.digest == DIGEST


DIGEST = "18c0df5a070e3a2892a96c2efdefa93722c96de0aab0931629884d637c01cad4"
"""Of the first chart of the train split, on every machine."""


def test_a_chart_shows_what_its_answer_says():
    rng = np.random.default_rng(7)
    for _ in range(200):
        question = draw_chart(rng)
        pixels = question.pixels()
        top, _, bars = question.scene.partition(": ")
        words = bars.split()
        for place, unit in enumerate(words[1::2]):
            column = pixels[:, 16 * (place + 1) + 6]
            assert round((column != 255).any(1).sum() / 12) == int(unit)
        values = {colour: int(unit) * AXES[top] for colour, unit in zip(words[::2], words[1::2], strict=True)}
        if question.kind == "value":
            assert question.answer == str(values[question.text.split()[-1].rstrip("?")])


def test_cells_name_what_a_table_shows():
    rng = np.random.default_rng(8)
    for _ in range(100):
        question = draw_document(rng)
        assert len(question.cells) == 16
        if question.kind == "table":
            row, column = question.text.removeprefix("What is in row ").rstrip("?").split(", column ")
            (cell,) = (cell for cell in question.cells if cell[1:] == (row, column))
            assert cell[0] == question.answer
