"""Wrong options masked: what is asked, what could be guessed otherwise and is left out, and what stays hidden."""

import json

import pytest

from agent2.benchmarks import load_benchmark
from agent2.errors import ConfigError
from agent2.evaluation.engine import score_messages
from agent2.integrity.masked_options import MASK, Form, mask_options, write_masked
from agent2.records import Split

SECRET = b"s" * 32
OPTIONS = ["a red boat at sea", "two old coats of wool", "seven stones in water", "nine birds over hills"]


def own(folder, rows, prompt="{question}\n{options}", **files):
    """A benchmark of multiple choice; rows: of dev, files: of other splits."""
    folder.mkdir()
    for name, members in {"dev": rows, **files}.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in members))
    names = ", ".join(f"{name}: {name}.jsonl" for name in ("dev", *files))
    (folder / "benchmark.yaml").write_text(
        f'name: own\nversion: "1.0"\nfiles: {{{names}}}\nprompt: {json.dumps(prompt)}\noptions: options\n'
        "answer: answer\nscorer: choice\n"
    )
    return load_benchmark(str(folder))


def row(number=0, options=OPTIONS, answer="A", question="What was seen"):
    return {"question": f"{question}, {number}?", "options": options, "answer": answer}


def masked(benchmark, form=Form.MASK, limit=None):
    return mask_options(benchmark, SECRET, lambda split: benchmark.count(split, SECRET), form=form, limit=limit)


def test_a_wrong_option_is_masked_and_is_the_answer(tmp_path):
    for answer in "ABCD":
        benchmark = own(tmp_path / answer, [row(number, answer=answer) for number in range(12)])
        rows = masked(benchmark).rows[Split.DEV]
        assert len(rows) == 12 and {line["letter"] for line in rows} == set("ABCD") - {answer}
        for line in rows:
            assert line["answer"] == OPTIONS["ABCD".index(line["letter"])]
            assert f"{line['letter']}. {MASK}" in line["prompt"] and line["answer"] not in line["prompt"]
            assert all(text in line["prompt"] for text in OPTIONS if text != line["answer"])


def test_to_complete_shows_nothing_behind_the_option(tmp_path):
    rows = masked(own(tmp_path / "own", [row(number) for number in range(12)]), Form.COMPLETE).rows[Split.DEV]
    for line in rows:
        place = "ABCD".index(line["letter"])
        assert line["prompt"].endswith(f"\n{line['letter']}") and MASK not in line["prompt"]
        assert [text in line["prompt"] for text in OPTIONS] == [index < place for index in range(4)]


@pytest.mark.parametrize(
    "options",
    [
        ["a red boat at sea", "12", "13", "14"],
        ["a red boat at sea", "coats", "stones", "birds"],
        ["a red boat at sea", "none of the above", "all of these", "it cannot be known"],
        ["a red boat at sea", "a red boat at rest", "a red boat at home"],
        ["a red boat at sea", "what was seen", "was seen"],
        ["a red boat at sea", "two coats,\nold", "seven stones\nin water"],
    ],
)
def test_an_option_that_can_be_told_otherwise_is_not_masked(tmp_path, options):
    with pytest.raises(ConfigError, match="1 items: has no wrong option that only its text tells"):
        masked(own(tmp_path / "own", [row(options=options)], prompt="{question}\n{options}"))


@pytest.mark.parametrize(
    ("options", "prompt", "reason"),
    [
        (["a red boat at sea", "two old coats of wool"], "{question}\n{options}", "has no list of options"),
        (OPTIONS, "{question}", "does not show its options"),
    ],
)
def test_an_item_without_shown_options_is_left_out(tmp_path, options, prompt, reason):
    with pytest.raises(ConfigError, match=reason):
        masked(own(tmp_path / "own", [row(options=options)], prompt=prompt))


def test_hidden_items_stay_hidden_and_private_ones_are_not_read(tmp_path):
    rows = {name: [row(f"{name} {number}") for number in range(4)] for name in ("dev", "test_public", "test_private")}
    benchmark = own(tmp_path / "own", **{"rows": rows.pop("dev")}, **rows)
    found = masked(benchmark, limit=3)
    assert {split.value: len(members) for split, members in found.rows.items()} == {"dev": 3, "test_public": 3}
    write_masked(tmp_path / "masked", benchmark, found)
    assert "test_private" not in "".join(file.read_text() for file in (tmp_path / "masked").iterdir())
    written = load_benchmark(str(tmp_path / "masked"))
    assert (written.count(Split.DEV, SECRET), written.count(Split.TEST_PUBLIC, SECRET)) == (3, 3)
    with pytest.raises(ConfigError):
        written.items(Split.TEST_PUBLIC, 3, None)


def test_who_writes_the_option_scores_one_and_who_knows_the_key_nothing(tmp_path):
    benchmark = own(tmp_path / "own", [row(number) for number in range(4)])
    write_masked(tmp_path / "masked", benchmark, masked(benchmark))
    written = load_benchmark(str(tmp_path / "masked"))
    item = written.items(Split.DEV, 1, None)[0]
    rates = {
        answer: score_messages(written, item, [answer]).value
        for answer in (
            item.reference,
            f". {item.reference}\nE. on",
            f"\n The {item.reference.upper()}.\nE. and so on",
            "A",
            OPTIONS[0],
            "",
            MASK,
        )
    }
    assert list(rates.values()) == [1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0]


def test_a_split_whose_file_is_elsewhere_does_not_keep_the_others_from_being_asked(tmp_path):
    benchmark = own(tmp_path / "own", [row(number) for number in range(4)])

    def count(split):
        if split is Split.TRAIN:
            raise ConfigError("no such file")
        return benchmark.count(split, SECRET)

    assert mask_options(benchmark, SECRET, count, form=Form.MASK, limit=None).n_items == 4

    def none(split):
        raise ConfigError("no such file")

    with pytest.raises(ConfigError, match="no such file"):
        mask_options(benchmark, SECRET, none, form=Form.MASK, limit=None)
