"""GSM8K on small files of our own in the official layout; what follows from its test set being public."""

import hashlib
import json

import pyarrow
import pyarrow.parquet
import pytest

from agent2.arena.analysis.result import analyse
from agent2.arena.audit import control_items
from agent2.arena.scoring import LoadedTask
from agent2.arena.spec import SplitSizes
from agent2.arena.task_check import check_task
from agent2.arena.tasks import load_task, task_names
from agent2.benchmarks import load_benchmark
from agent2.errors import ConfigError
from agent2.evaluation.engine import score_messages
from agent2.integrity import Effect
from agent2.integrity.leaks import leak_check, leak_targets
from agent2.integrity.texts import TextReading, TextUnit
from agent2.records import HIDDEN_SPLITS, Split, digest_of
from builders import make_evidence

SECRET = b"s" * 32
SIZES = SplitSizes(train=45, dev=5, test_public=15, test_private=15)


def row(number, n_words=30):
    words = [hashlib.sha256(f"{number} {k}".encode()).hexdigest()[:6] for k in range(n_words)]
    total = number + 7
    return {
        "question": f"Ann has {number} pens, {' '.join(words)} and 7 more?",
        "answer": f"{number} + 7 = <<{number}+7={total}>>{total}\n#### {total}",
    }


def write(folder, n_words=30, **files):
    folder.mkdir(exist_ok=True)
    for name, numbers in {"train": range(50), "test": range(100, 130), **files}.items():
        lines = [json.dumps(row(number, n_words)) for number in numbers]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def gsm8k(tmp_path):
    return load_benchmark("gsm8k", write(tmp_path / "data"))


def hidden_of(benchmark, secret=SECRET):
    return {split: benchmark.items(split, 15, secret) for split in sorted(HIDDEN_SPLITS)}


def test_train_is_divided_by_place_and_test_by_the_secret(gsm8k):
    train, dev = gsm8k.items(Split.TRAIN, 45, None), gsm8k.items(Split.DEV, 5, None)
    assert [item.prompt.split()[2] for item in dev] == ["9", "19", "29", "39", "49"]
    assert len({item.id for item in (*train, *dev)}) == 50
    public, private = hidden_of(gsm8k).values()
    assert sorted(item.prompt.split()[2] for item in (*public, *private)) == [str(n) for n in range(100, 130)]
    assert {item.id for item in public} != {item.id for item in hidden_of(gsm8k, b"t" * 32)[Split.TEST_PUBLIC]}
    with pytest.raises(ConfigError, match="only the grader"):
        gsm8k.items(Split.TEST_PRIVATE, 1, None)


def test_items_and_protocol_are_those_of_version_1_0(gsm8k):
    """Whatever is written otherwise in the file: scores of two releases stay comparable."""
    benchmark = gsm8k
    items = [item for split in Split for item in benchmark.items(split, benchmark.count(split, SECRET), SECRET)]
    assert digest_of(items) == "bb875830846d83a9a56178bde5eee56d4c90b580068d2ef6150217f56d28f7f9"
    assert (benchmark.version, benchmark.prompt_digest) == (
        "1.0",
        "54defe79dac4645c4b1db5399badb4a86fb29a332a245133e240cedf23f85119",
    )


def test_only_a_final_answer_that_can_be_read_counts(gsm8k):
    item = gsm8k.items(Split.TRAIN, 1, None)[0]
    scores = {"#### 7": 1.0, "It is 7.": 0.0, "#### 8": 0.0, "": 0.0, item.reference: 1.0}
    assert {answer: score_messages(gsm8k, item, [answer]).value for answer in scores} == scores
    assert score_messages(gsm8k, item, ["It is 7."]).views["flexible_match"] == 1.0


def test_another_layout_is_refused_with_file_and_line(tmp_path):
    folder = write(tmp_path / "data")
    (folder / "train.jsonl").write_text('{"question": "q", "answer": "#### 3"}\n{"question": "r", "answer": "three"}\n')
    with pytest.raises(ConfigError, match=r"train.jsonl:2: the answer has no line '#### NUMBER'"):
        load_benchmark("gsm8k", folder).items(Split.TRAIN, 1, None)
    (folder / "test.jsonl").unlink()
    with pytest.raises(ConfigError, match=r"contains no test.jsonl or main/test-.*parquet; download it from"):
        load_benchmark("gsm8k", folder).items(Split.TEST_PUBLIC, 1, SECRET)


def test_the_files_of_the_hub_give_the_same_items(gsm8k, tmp_path):
    (tmp_path / "hub" / "main").mkdir(parents=True)
    for part, numbers in (("train", range(50)), ("test", range(100, 130))):
        table = pyarrow.Table.from_pylist([row(number) for number in numbers])
        pyarrow.parquet.write_table(table, tmp_path / "hub" / "main" / f"{part}-00000-of-00001.parquet")
    hub = load_benchmark("gsm8k", tmp_path / "hub")
    assert hub.items(Split.DEV, 5, None) == gsm8k.items(Split.DEV, 5, None)
    assert hidden_of(hub) == hidden_of(gsm8k)


def test_the_task_passes_its_check(gsm8k, tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    findings = check_task(load_task("gsm8k").model_copy(update={"n_items": SIZES}), gsm8k)
    assert [finding.name for finding in findings if finding.ok is False] == []


@pytest.mark.parametrize("n_words", [30, 2])
def test_hidden_items_that_everybody_has_are_looked_for_without_a_control(tmp_path, n_words):
    """Another secret gives the same test set: as a control it would hide every leak of it. Short items, too."""
    benchmark = load_benchmark("gsm8k", write(tmp_path / "data", n_words))
    loaded = LoadedTask(load_task("gsm8k").model_copy(update={"n_items": SIZES}), benchmark, SECRET)
    hidden = hidden_of(benchmark)
    control = control_items(loaded, hidden)
    assert control == []
    items = [item for split_items in hidden.values() for item in split_items]
    familiar = [item.prompt for item in benchmark.items(Split.TRAIN, 45, None)]
    targets = leak_targets(items, control, familiar)
    assert len(targets.hidden) == 30 and targets.n_shared == 0
    own_units = [
        TextUnit(f"output/rows.jsonl:{k}", item.prompt) for k, item in enumerate(benchmark.items(Split.TRAIN, 45, None))
    ]
    honest = leak_check(own_units, targets, TextReading())
    assert [finding for finding in honest.findings if finding.effect is not Effect.NOTE] == []
    downloaded = [
        *own_units,
        *(TextUnit(f"output/test.jsonl:{number}", row(number, n_words)["question"]) for number in range(100, 130)),
    ]
    assert Effect.VOID in {finding.effect for finding in leak_check(downloaded, targets, TextReading()).findings}


def test_the_report_warns_where_the_network_policy_let_the_agent_reach_published_items():
    def warned(task, how, strength="hard"):
        row = {"what": "network", "strength": strength, "how": how}
        return any(
            "hidden items are published" in warning
            for warning in analyse(make_evidence(task=task, containment=[row])).warnings
        )

    published = [task for name in task_names() if (task := load_task(name)).published]
    embedded = load_task("arithmetic")
    packages = "network namespace; beside the listed ports, a proxy reads allowed package registries and records it"
    opened = "open: any public host through a proxy that records hosts, not contents; answers may have come from there"
    closed = "network namespace; only the listed ports lead out"
    assert len(published) >= 5  # every published task there is, not this one only
    for task in published:
        assert [warned(task, how) for how in (packages, opened, closed)] == [True, True, False], task.name
    assert not warned(embedded, packages)
