import json
import shutil

import msgspec
import pytest
import yaml

from agent2.benchmarks import load_benchmark
from agent2.cards import folder as card_folder
from agent2.flywheel.cases import is_training_half
from agent2.flywheel.round_file import read_round
from agent2.records import Split, digest_of
from cli_builders import run_agent2
from flywheel_builders import play, rows

CARD = "cards/checkpoint/arithmetic-dev"
EXPORTS = ("sample.jsonl", "sft.jsonl", "pairs.jsonl", "rl.jsonl", "targeted.sft.jsonl", "targeted.rl.jsonl")


@pytest.fixture(scope="module")
def weak(tmp_path_factory):
    home = tmp_path_factory.mktemp("weak")
    play(home, "weak", "e")
    made = run_agent2("flywheel", "e", "--out", "round", home=home)
    assert made.returncode == 0, made.stderr
    return home


def test_a_round_has_the_five_fields_of_a_report_and_shares_that_add_up(weak):
    stored = yaml.safe_load((weak / "round/round.yaml").read_text())
    fields = ["checkpoint", "primary_metric", "regressions", "badcase_clusters", "next_actions"]
    assert list(stored)[:5] == fields
    record = read_round(weak / "round")
    assert sum(row.share for row in record.round.classes) == pytest.approx(1.0)
    assert sum(row.cases for row in record.round.classes) == record.round.failed
    assert record.round.classes[0].name == record.round.target == "wrong_answer"
    assert record.primary_metric.startswith("arithmetic_accuracy = ")
    decided = run_agent2("decide", "round/round.yaml", "--suite", "llm_core_regression_v1", home=weak)
    assert "unknown metric 'round'" not in decided.stderr


def test_what_is_measured_is_in_no_training_export_and_what_is_trained_on_is_in_no_benchmark(weak):
    trained = {
        row["source"]["item_id"]
        for name in ("sft.jsonl", "pairs.jsonl", "rl.jsonl")
        for row in rows(weak / "round" / name)
    }
    measured = {json.loads(line)["item"].split("/")[1] for line in (weak / "round/before.jsonl").open()}
    benchmarks = set()
    for kind in ("regression", "retention"):
        benchmark = load_benchmark(str(weak / "round" / kind / "arithmetic"))
        n_items = benchmark.count(Split.DEV, None)
        benchmarks |= {item.id for item in benchmark.items(Split.DEV, n_items, None)}
    assert trained and measured and benchmarks
    assert not trained & measured and not trained & benchmarks and benchmarks <= measured
    assert all(is_training_half("arithmetic", item_id, 0) for item_id in trained)


def test_rows_are_what_trainers_take_with_their_source(weak):
    sft, pairs, rl = (rows(weak / "round" / name) for name in ("sft.jsonl", "pairs.jsonl", "rl.jsonl"))
    assert all(row["messages"][-1]["role"] == "assistant" for row in sft)
    for row in pairs:
        assert row["chosen"][0]["content"] != row["rejected"][0]["content"]
        assert row["chosen_source"]["card"] == "e/baseline/arithmetic-dev"
        assert row["source"]["card"] == "e/checkpoint/arithmetic-dev"
    assert {row["class"] for row in rl} <= {"wrong_answer", "answer_parse_fail"}
    assert all(
        row["verifier"].startswith("rational-v") and json.loads(row["item"])["id"] == row["item_id"] for row in rl
    )


def test_targeted_items_are_of_the_train_split_and_of_the_class(weak):
    targeted = rows(weak / "round/targeted.sft.jsonl")
    share = sum(" - " in row["messages"][0]["content"] for row in targeted) / len(targeted)
    assert share > 0.9, "the player fails at subtractions; half of all items are"
    train = {item.id for item in load_benchmark("arithmetic").items(Split.TRAIN, 1000, None)}
    assert {row["source"]["item_id"] for row in targeted} <= train
    how = read_round(weak / "round").round.exports["targeted.sft.jsonl"].provenance
    assert "area of" in how["chosen"] and how["split"] == "train"


def test_the_target_is_the_largest_class_that_items_can_be_made_for(tmp_path):
    play(tmp_path, "scattered", "e", "--set", "cadence.dev.n_items=200")
    assert run_agent2("flywheel", "e", "--out", "r", home=tmp_path).returncode == 0
    contents = read_round(tmp_path / "r").round
    largest = contents.classes[0].name
    assert largest != contents.target == "wrong_answer"
    assert sum(" - " in row["messages"][0]["content"] for row in rows(tmp_path / "r/targeted.sft.jsonl")) > 150
    named = run_agent2("flywheel", "e", "--out", "r2", "--set", f"target={largest}", home=tmp_path)
    assert named.returncode == 0 and read_round(tmp_path / "r2").round.target == largest


def test_regression_and_retention_are_benchmarks_that_eval_plays(weak):
    shutil.copy(weak / "players.py", weak / "p.py")
    for kind, score in (("regression", 0.0), ("retention", 1.0)):
        side = ("--checkpoint", "scripted:p.py:weak", "--out", f"look-{kind}", "--json")
        played = run_agent2("eval", f"./round/{kind}/arithmetic", *side, home=weak)
        assert played.returncode == 0, played.stderr
        assert json.loads(played.stdout)["models"][0]["value"] == score if "models" in played.stdout else True
        card = card_folder.load_card(next((weak / f"look-{kind}").rglob("card.json")).parent)
        assert card.summary.score.value == score


def test_a_changed_item_of_a_set_is_refused(weak, tmp_path):
    shutil.copytree(weak / "round/regression/arithmetic", tmp_path / "set")
    file = next((tmp_path / "set").glob("items-*.jsonl"))
    file.write_text(file.read_text().replace("Calculate", "Compute", 1))
    refused = run_agent2("benchmarks", "check", "./set", home=tmp_path)
    assert refused.returncode == 2 and "was changed after benchmark.yaml was written" in refused.stderr


def test_the_same_cards_give_the_same_files(weak):
    first = {path.name: path.read_bytes() for path in (weak / "round").rglob("*") if path.is_file()}
    assert run_agent2("flywheel", "e", "--out", "again", home=weak).returncode == 0
    assert {path.name: path.read_bytes() for path in (weak / "again").rglob("*") if path.is_file()} == first


def test_a_reader_of_an_export_keeps_its_rows_while_the_round_is_made_again(weak):
    with (weak / "round/rl.jsonl").open() as reader:
        first = reader.readline()
        assert run_agent2("flywheel", "e", "--out", "round", "--set", "rows=3", home=weak).returncode == 0
        assert len([first, *reader]) > 3, "the open file is the old one, whole"
    assert len(rows(weak / "round/rl.jsonl")) == 3
    assert not list((weak / "round").glob(".*draft"))
    assert run_agent2("flywheel", "e", "--out", "round", home=weak).returncode == 0


def test_the_sample_is_stratified_by_class(weak):
    assert run_agent2("flywheel", "e", "--out", "small", "--set", "sample=10", home=weak).returncode == 0
    record = read_round(weak / "small").round
    assert sum(record.sample.by_class.values()) == 10
    for row in record.classes:
        assert abs(record.sample.by_class[row.name] - 10 * row.share) <= 1.0


def test_a_class_with_two_members_is_sampled_and_expected_and_its_missing_data_are_explained(tmp_path):
    play(tmp_path, "nearly", "e")
    made = run_agent2("flywheel", "e", "--out", "r", "--set", "target=wrong_answer", home=tmp_path)
    assert made.returncode == 0, made.stderr
    record = read_round(tmp_path / "r").round
    (small,) = [row for row in record.classes if row.name == "wrong_answer"]
    assert small.cases == 2 and record.sample.by_class["wrong_answer"] == 2
    assert 0.0 <= small.expectation.expected <= small.expectation.now <= 2 / small.expectation.n_items
    export = record.exports["targeted.sft.jsonl"]
    assert (export.rows, "failures of wrong_answer in the half" in export.description) == (0, True), "both are measured"


def test_no_failures_is_said_and_gives_no_data(tmp_path):
    play(tmp_path, "solved", "e")
    made = run_agent2("flywheel", "e", "--out", "r", home=tmp_path)
    assert made.returncode == 0 and "no failures among 100 rollouts" in made.stdout
    assert [name for name in EXPORTS if (tmp_path / "r" / name).exists()] == ["sft.jsonl"]
    assert not (tmp_path / "r/regression").exists()


def test_all_failures_is_said_and_reference_answers_are_offered(tmp_path):
    play(tmp_path, "lost", "e", baseline="lost")
    made = run_agent2("flywheel", "e", "--out", "r", home=tmp_path)
    assert made.returncode == 0 and "all 100 rollouts failed" in made.stdout
    assert not (tmp_path / "r/sft.jsonl").exists() and not (tmp_path / "r/pairs.jsonl").exists()
    assert len(rows(tmp_path / "r/targeted.sft.jsonl")) == 200
    assert "evenly" in read_round(tmp_path / "r").round.exports["targeted.sft.jsonl"].provenance["chosen"]


def test_folders_of_something_else_and_two_checkpoints_are_refused(weak, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    refused = run_agent2("flywheel", weak / "e", "--out", tmp_path, home=weak)
    assert refused.returncode == 2 and "holds other files (such as 'notes.txt')" in refused.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.txt"]
    play(weak, "trained", "t")
    refused = run_agent2("flywheel", "e", "t", "--out", "both", home=weak)
    assert refused.returncode == 2 and "of different checkpoints" in refused.stderr
    refused = run_agent2("flywheel", "t", "--out", "round", home=weak)
    assert refused.returncode == 2 and "another checkpoint" in refused.stderr
    refused = run_agent2("flywheel", "e", "--out", "x", "--set", "target=wrong", home=weak)
    assert refused.returncode == 2 and "there are wrong_answer" in refused.stderr and not (weak / "x").exists()


def hidden_texts(home) -> list[str]:
    """Prompts of the items of the nightly evaluation `n` in a home, read from its card."""
    from agent2.cards.reader import iter_rollouts

    return [
        record.rollout.prompt[-1].text for record in iter_rollouts(home / "n/cards/checkpoint/arithmetic-test_public")
    ]


def everything_in(folder) -> str:
    return "\n".join(path.read_text("utf-8") for path in sorted(folder.rglob("*")) if path.is_file())


def test_an_evaluation_without_a_baseline_is_refused_with_the_way_and_its_cards_make_a_round(tmp_path):
    play(tmp_path, "weak", "whole")
    sides = ("--checkpoint", "scripted:players.py:weak", "--set", "cadence.dev.n_items=40")
    assert run_agent2("eval", "arithmetic", *sides, "--out", "look", home=tmp_path).returncode in (0, 1)
    refused = run_agent2("flywheel", "look", "--out", "r", home=tmp_path)
    assert refused.returncode == 2 and "without a baseline" in refused.stderr and not (tmp_path / "r").exists()
    (cards,) = (tmp_path / "look" / "cards").glob("*/*")
    made = run_agent2("flywheel", str(cards), "--out", "r", home=tmp_path)
    assert made.returncode == 0 and (tmp_path / "r" / "targeted.sft.jsonl").is_file(), made.stderr


def test_nothing_of_hidden_items_leaves_and_their_classes_are_counted(tmp_path):
    play(tmp_path, "weak", "n", "--role", "nightly")
    made = run_agent2("flywheel", "n", "--out", "r", home=tmp_path)
    assert made.returncode == 0, made.stderr
    assert "withheld: n/checkpoint/arithmetic-test_public: its items are hidden (test_public)" in made.stdout
    assert read_round(tmp_path / "r").round.classes[0].cases > 10
    assert sorted(path.name for path in (tmp_path / "r").iterdir()) == ["round.html", "round.yaml"]
    text = everything_in(tmp_path / "r")
    assert not [prompt for prompt in hidden_texts(tmp_path) if f'"{prompt}"' in text]


def relabel(card, *, resealed: bool, **changes) -> None:
    """The liar: another split, benchmark or lock in the header of a card, with or without fitting digests."""
    content = json.loads((card / "card.json").read_text())
    content["header"]["lock"].update(changes.pop("lock", {}))
    content["header"]["protocol"].update(changes)
    (card / "card.json").write_text(json.dumps(content))
    if resealed:
        stored = card_folder.load_card(card)
        content["header_digest"], content["protocol_digest"] = digest_of(stored.header), stored.header.protocol.digest
        (card / "card.json").write_text(json.dumps(content))


@pytest.mark.parametrize("resealed", [False, True])
def test_a_card_of_hidden_items_that_claims_to_be_visible_gives_away_none(tmp_path, resealed):
    play(tmp_path, "weak", "n", "--role", "nightly")
    texts = hidden_texts(tmp_path)
    shutil.copytree(tmp_path / "n/cards/checkpoint/arithmetic-test_public", tmp_path / "liar")
    relabel(tmp_path / "liar", resealed=resealed, split="dev")
    made = run_agent2("flywheel", "liar", "--out", "r", home=tmp_path)
    assert made.returncode == 0, made.stderr
    visible = {
        item.prompt
        for split in (Split.DEV, Split.TRAIN)
        for item in load_benchmark("arithmetic").items(split, 1000, None)
    }
    text = everything_in(tmp_path / "r")
    assert not [prompt for prompt in texts if f'"{prompt}"' in text and prompt not in visible]
    assert not any(
        (tmp_path / "r" / name).exists() for name in ("sft.jsonl", "rl.jsonl", "sample.jsonl", "before.jsonl")
    )


def test_a_hidden_prompt_under_a_visible_id_does_not_leave_and_the_honest_rollouts_do(tmp_path):
    play(tmp_path, "weak", "e")
    from agent2.cards.reader import iter_rollouts, read_header
    from agent2.cards.writer import CardWriter
    from agent2.records import Message

    header = read_header(tmp_path / "e" / CARD)
    records = list(iter_rollouts(tmp_path / "e" / CARD))
    spoiled = [
        msgspec.structs.replace(
            record, rollout=msgspec.structs.replace(record.rollout, prompt=[Message("user", "SECRET")])
        )
        if number % 2
        else record
        for number, record in enumerate(records)
    ]
    with CardWriter(tmp_path / "liar", header) as writer:
        for record in spoiled:
            writer.append(record)
        writer.close()
    made = run_agent2("flywheel", "liar", "--out", "r", home=tmp_path)
    assert made.returncode == 0, made.stderr
    assert "SECRET" not in everything_in(tmp_path / "r")
    assert "its prompt is not that of the item" in made.stdout
    assert rows(tmp_path / "r/sft.jsonl") and rows(tmp_path / "r/sample.jsonl")


LABELS = (
    "<script>alert(1)</script>", "\x1b]0;owned\x07", "a\nrow", "nul\0", "a|b", "'; drop table rollouts; --", "{{7*7}}",
    "", "../../up", "x" * 5000,
)  # fmt: skip


def test_classes_of_others_are_text_in_every_file_page_and_line(tmp_path):
    play(tmp_path, "weak", "e")
    from agent2.cards.reader import iter_rollouts, read_header
    from agent2.cards.writer import CardWriter

    with CardWriter(tmp_path / "card", read_header(tmp_path / "e" / CARD)) as writer:
        for number, record in enumerate(iter_rollouts(tmp_path / "e" / CARD)):
            labels = (LABELS[number % len(LABELS)],) if record.score.labels else ()
            writer.append(msgspec.structs.replace(record, score=msgspec.structs.replace(record.score, labels=labels)))
        writer.close()
    made = run_agent2("flywheel", "card", "--out", "r", home=tmp_path)
    assert made.returncode == 0, made.stderr
    listed = run_agent2("failures", "card", home=tmp_path)
    assert listed.returncode == 0, listed.stderr
    page = (tmp_path / "r/round.html").read_text()
    for text in (made.stdout, listed.stdout, page):
        assert "\x1b" not in text and "\x07" not in text and "\0" not in text
    assert "<script>alert(1)" not in page and "alert(1)" in page and "{{7*7}}" in page
    names = [row.name for row in read_round(tmp_path / "r").round.classes]
    assert {"<script>alert(1)</script>", "a\nrow", "'; drop table rollouts; --", "../../up"} <= set(names)
    assert not [path for path in tmp_path.parent.iterdir() if path.name == "up"]


def test_a_round_with_links_in_it_is_not_written_through_and_one_with_folders_is(tmp_path):
    play(tmp_path, "weak", "e")
    assert run_agent2("flywheel", "e", "--out", "r", home=tmp_path).returncode == 0
    victim = tmp_path / "victim"
    (tmp_path / "r/regression").rename(victim)
    (victim / "arithmetic/benchmark.yaml").write_text("mine")
    (victim / "arithmetic/items-00000000.jsonl").write_text("mine")
    (tmp_path / "r/regression").symlink_to(victim)
    made = run_agent2("flywheel", "e", "--out", "r", home=tmp_path)
    assert made.returncode == 2 and "is a symbolic link" in made.stderr
    (tmp_path / "r/regression").unlink()
    (tmp_path / "r/regression").mkdir()
    (tmp_path / "r/regression/arithmetic").symlink_to(victim / "arithmetic")
    assert run_agent2("flywheel", "e", "--out", "r", home=tmp_path).returncode == 2
    assert (victim / "arithmetic/benchmark.yaml").read_text() == "mine"
    assert (victim / "arithmetic/items-00000000.jsonl").is_file()
    (tmp_path / "r/regression/arithmetic").unlink()
    assert run_agent2("flywheel", "e", "--out", "r", home=tmp_path).returncode == 0
