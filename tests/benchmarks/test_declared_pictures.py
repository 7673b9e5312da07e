"""A benchmark of pictures from file to card and page."""

import base64
import io
import json
import re
from dataclasses import replace

import pytest
from fastapi.testclient import TestClient
from PIL import Image

from agent2.benchmarks import load_benchmark
from agent2.cards.reader import iter_rollouts, read_header, validate_card
from agent2.cards.writer import CardWriter
from agent2.contract.suite_files import load_suite
from agent2.errors import CardError, ConfigError
from agent2.evaluation.plan import EvaluationPlan
from agent2.evaluation.runner import evaluate
from agent2.evaluation.suite_plan import limits_of
from agent2.models.sources import ScriptedSampler, find_checkpoint
from agent2.pictures import copy_beside, prepared
from agent2.records import Completion, Split, digest_of
from agent2.web.catalog import Catalog
from agent2.web.server import ReaderGuard, make_view_app
from agent2.web.site import Site
from vision_builders import save_seeing_model

COLORS = ("red", "blue", "green", "black", "white", "gray")


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    prepared.cache_clear()


def write(folder, rows=None, **changes):
    folder.mkdir(exist_ok=True)
    for number, color in enumerate(COLORS):
        Image.new("RGB", (40 + number, 20), color).save(folder / f"{color}.png")
    rows = rows or [{"question": "Which color?", "image": f"{color}.png", "answer": color} for color in COLORS]
    (folder / "dev.jsonl").write_text("\n".join(map(json.dumps, rows)))
    keys = {
        "name": "colors",
        "version": "1.0",
        "files": {"dev": "dev.jsonl"},
        "prompt": "{question}",
        "pictures": {"fields": ["image"], "max_side": 32},
        "answer": "answer",
        "scorer": "exact",
    } | changes
    (folder / "benchmark.yaml").write_text(json.dumps({key: value for key, value in keys.items() if value is not None}))
    return load_benchmark(str(folder))


def plan_of(benchmark, n=6):
    items = tuple(benchmark.items(Split.DEV, n, None))
    return EvaluationPlan(benchmark, Split.DEV, items, "scripted", "0" * 64, "", "float32")


def look(messages):
    """A model that sees: it answers with the color of the first pixel."""
    _, content = prepared(messages[-1].pictures[0])
    image = Image.open(io.BytesIO(content)).convert("RGB")
    assert max(image.size) == 32
    return {Image.new("RGB", (1, 1), color).getpixel((0, 0)): color for color in COLORS}[image.getpixel((5, 5))]


def test_questions_that_differ_in_their_pictures_alone_are_different_items(tmp_path):
    items = write(tmp_path / "colors").items(Split.DEV, 6, None)
    assert len({item.id for item in items}) == 6 and {item.prompt for item in items} == {"Which color?"}
    assert {item.payload["pictures"][0]["prepared"] for item in items} == {"32"}


def test_the_same_question_on_the_same_picture_is_a_repeat(tmp_path):
    row = {"question": "Which color?", "image": "red.png", "answer": "red"}
    with pytest.raises(ConfigError, match="asks the same as line 1"):
        write(tmp_path / "colors", [row, row]).items(Split.DEV, 1, None)


def test_an_evaluation_is_scored_kept_and_shown_with_its_pictures(tmp_path):
    benchmark = write(tmp_path / "colors")
    card = tmp_path / "cards" / "seeing"
    summary = evaluate(plan_of(benchmark), ScriptedSampler(look), card)
    assert summary.score.value == 1.0
    records = list(iter_rollouts(card))
    kept = {path.name: path.read_bytes() for path in (card / "pictures").iterdir()}
    assert len(kept) == 6
    for record in records:
        (message,) = record.rollout.prompt
        assert message.text == "Which color?" and message.pictures[0].digest in kept
    assert "pictures-32" in read_header(card).protocol.environment
    (entry,) = Catalog(tmp_path / "cards").scan().entries
    app = make_view_app(Site(Catalog(tmp_path / "cards")), ReaderGuard("127.0.0.1", None))
    client = TestClient(app, base_url="http://127.0.0.1")
    page = client.get(f"/rollout/{entry}/0").text
    (address,) = re.findall(r'<img src="(/picture/[^"]+)" alt="picture 1[^>]* loading="lazy"', page)
    shown = Image.open(io.BytesIO(client.get(address).content))
    assert shown.size == (records[0].rollout.prompt[0].pictures[0].width, 20)
    saved = client.get(f"/download/rollout/{entry}?part=0").text
    (source,) = re.findall(r'<img src="data:image/png;base64,([^"]+)" alt="picture 1', saved)
    assert Image.open(io.BytesIO(base64.b64decode(source))).size == shown.size, "a file needs no server"
    assert validate_card(card) == []
    changed = min((card / "pictures").iterdir())
    changed.write_bytes(b"another")
    assert [f"{changed}: was changed: its content does not match its name"] == validate_card(card)
    for path in (card / "pictures").iterdir():
        path.unlink()
    for path in (tmp_path / "home").rglob("pictures/*"):
        path.unlink()
    page = client.get(f"/rollout/{entry}/0").text
    assert "is not on this machine" in page and "<img" not in page
    assert client.get(address).status_code == 404


def test_a_card_of_another_machine_is_scored_again_with_its_pictures(tmp_path):
    benchmark = write(tmp_path / "colors")
    card, again = tmp_path / "card", tmp_path / "again"
    evaluate(plan_of(benchmark), ScriptedSampler(look), card)
    for path in (tmp_path / "home").rglob("pictures/*"):
        path.unlink()
    copy_beside(card, again)
    record = next(iter_rollouts(card))
    with CardWriter(again, read_header(card)) as writer:
        writer.append(record)
    assert {path.name for path in (again / "pictures").iterdir()} == {
        path.name for path in (card / "pictures").iterdir()
    }
    with (
        CardWriter(tmp_path / "alone", read_header(card)) as writer,
        pytest.raises(CardError, match="is not on this machine"),
    ):
        writer.append(record)


def test_how_pictures_are_prepared_is_in_the_protocol_and_texts_are_as_before(tmp_path):
    digests = set()
    for number, rule in enumerate(
        ("image", {"fields": ["image"], "max_side": 32}, {"fields": ["image"], "max_side": 64})
    ):
        digests.add(plan_of(write(tmp_path / str(number), pictures=rule)).protocol().digest)
    assert len(digests) == 3
    rows = [{"question": f"Which of {color}?", "answer": color} for color in COLORS]
    text = write(tmp_path / "text", rows, pictures=None)
    assert text.environment_version() == "question-v1.0" and not text.takes_images
    assert all(dict(item.payload) == {} for item in text.items(Split.DEV, 6, None))
    assert "pictures" not in text.spec.digested


class TextOnly:
    """A sampler that knows nothing of pictures."""

    capacity = 2

    def submit(self, request_id, prompt, settings):
        raise AssertionError("nothing is sent")

    def collect(self):
        return [(0, Completion(""))]

    def describe(self):
        return {}

    def close(self):
        pass


def test_a_model_of_texts_is_refused_before_anything_is_sent(tmp_path):
    with pytest.raises(ConfigError, match="has pictures, and this checkpoint is asked with text alone; name a folder"):
        evaluate(plan_of(write(tmp_path / "colors")), TextOnly(), tmp_path / "card")


def test_a_folder_with_a_model_that_sees_is_played_in_this_process(tmp_path):
    benchmark = write(tmp_path / "colors")
    source = find_checkpoint(str(save_seeing_model(tmp_path / "model")))
    card = tmp_path / "card"
    summary = evaluate(plan_of(benchmark), source.open(), card)
    records = list(iter_rollouts(card))
    assert summary.score.n_missing == 0 and len(records) == 6
    assert all(record.rollout.turns[0].prompt_tokens > 4 for record in records)
    assert len(list((card / "pictures").iterdir())) == 6 and validate_card(card) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pictures": {"fields": ["image"], "keep_ratio": False}}, "name 'max_side'"),
        ({"few_shot": 2}, "'pictures' are for questions"),
        ({"pictures": []}, "pictures"),
        ({"pictures": "photo"}, r"pictures \(photo\) are missing in 6 of 6 rows"),
    ],
)
def test_a_file_that_cannot_be_shown_is_refused(tmp_path, changes, message):
    with pytest.raises(ConfigError, match=message):
        write(tmp_path / "colors", **changes).items(Split.DEV, 1, None)


def test_a_broken_picture_is_refused_with_its_row(tmp_path):
    folder = tmp_path / "colors"
    benchmark = write(folder)
    (folder / "blue.png").write_bytes((folder / "blue.png").read_bytes()[:60])
    with pytest.raises(ConfigError, match=r"dev.jsonl:2: field 'image': blue.png: "):
        benchmark.items(Split.DEV, 1, None)


def test_every_order_of_options_is_asked_with_the_picture(tmp_path):
    rows = [
        {"question": "Which color?", "image": f"{color}.png", "options": list(COLORS[:3]), "answer": color}
        for color in COLORS[:3]
    ]
    benchmark = write(
        tmp_path / "colors",
        rows,
        prompt="{question}\n{options}",
        options="options",
        environment="option_orders",
        scorer="option_orders",
    )
    plan = plan_of(benchmark, 3)
    plan = replace(plan, limits=replace(plan.limits, context=benchmark.context))

    def letter(messages):
        color = look(messages)
        return next(line[0] for line in messages[-1].text.splitlines() if line.endswith(f". {color}"))

    assert evaluate(plan, ScriptedSampler(letter), tmp_path / "card").score.value == 1.0
    assert digest_of(plan.protocol()) != digest_of(plan_of(benchmark, 3).protocol()), "the context is in the protocol"


def test_a_suite_that_shows_pictures_otherwise_is_refused(tmp_path):
    suite = load_suite("vlm_reasoning_regression_v1")
    same = write(tmp_path / "same", pictures={"fields": ["image"], "max_side": 1344})
    assert limits_of(suite, same).context == "full"
    with pytest.raises(ConfigError, match=r"protocol\.input shows pictures as 1344, and colors as 32; change one"):
        limits_of(suite, write(tmp_path / "other"))
    with pytest.raises(ConfigError, match="has none; set it to null"):
        limits_of(suite, load_benchmark("arithmetic"))
