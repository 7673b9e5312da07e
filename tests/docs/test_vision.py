"""The files of docs/vision.md are read as they stand there."""

import json
import re
from pathlib import Path

from PIL import Image

from agent2.benchmarks import load_benchmark
from agent2.records import Split

PAGE = (Path(__file__).parents[2] / "docs" / "vision.md").read_text(encoding="utf-8")
CHARTS, SHAPES = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
(MISREAD,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)


def written(folder, benchmark, file, *rows):
    folder.mkdir()
    (folder / "benchmark.yaml").write_text(benchmark)
    (folder / file).write_text("\n".join(json.dumps(row) for row in rows))
    return load_benchmark(str(folder))


def test_the_row_of_the_page_is_a_question_with_its_picture(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    row = json.loads(re.findall(r"# (\{.*\})", CHARTS)[0])
    picture = tmp_path / "charts" / row["image"]
    picture.parent.mkdir(parents=True)
    Image.new("RGB", (2000, 20), "white").save(picture)
    (tmp_path / "charts" / "benchmark.yaml").write_text(CHARTS)
    (tmp_path / "charts" / "dev.jsonl").write_text(json.dumps(row))
    (item,) = load_benchmark(str(tmp_path / "charts")).items(Split.DEV, 1, None)
    assert (item.prompt, item.reference) == (f"{row['question']} Answer with a number alone.", "61.8")
    assert item.payload["pictures"][0]["prepared"] == "1344"


def test_a_question_of_the_page_is_asked_in_every_order(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    rows = [
        {"question": f"Which shape is number {k}?", "A": "disc", "B": "square", "C": "star", "D": "ring", "answer": "C"}
        for k in range(4)
    ]
    benchmark = written(tmp_path / "shapes", SHAPES, "test.jsonl", *rows)
    item = benchmark.items(Split.TEST_PUBLIC, 1, b"secret" * 6)[0]
    world = benchmark.environment()
    (message,) = world.reset(item, 0)
    assert "A. disc" in message.text and world.max_turns == 4


def test_the_wrong_answers_of_the_page_get_the_class_of_the_mistake(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    text = CHARTS.replace("pictures: {fields: [image], max_side: 1344}", "payload: [mistakes]")
    (item,) = written(tmp_path / "misread", text, "dev.jsonl", json.loads(MISREAD)).items(Split.DEV, 1, None)
    assert item.payload["mistakes"]["ocr_error"] == ["69"]
