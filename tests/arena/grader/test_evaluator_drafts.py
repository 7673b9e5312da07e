"""What a child left is taken over only if it is the card that was asked for, made of plain files."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from agent2.arena.grader.evaluator import INSIDE_DRAFT, draft_of, hand_over, has_finished_card, take_up
from agent2.arena.grader.job import EvaluationJob
from agent2.cards import folder
from agent2.cards.folder import file_digest, load_card, store_card
from agent2.cards.reader import read_summary, validate_card
from agent2.errors import CardError
from agent2.records import Split
from chaos.scripted_child import play


@pytest.fixture
def job(tmp_path, base, hidden_items):
    return EvaluationJob(
        checkpoint=base,
        base=base,
        name="submission-1",
        benchmark="arithmetic",
        split=Split.TEST_PUBLIC,
        items=tuple(hidden_items[Split.TEST_PUBLIC]),
        card=tmp_path / "submission" / "card",
        scratch=tmp_path / "scratch",
        seed=0,
    )


def let_a_child_play(job, **changes):
    """What the child does with the job, in its draft; its outcome."""
    card = take_up(job) / INSIDE_DRAFT
    return play(job.model_copy(update={"card": card, **changes}), answer_s=0.0)


def test_a_finished_card_moves_to_its_place_and_is_ours(job):
    outcome = let_a_child_play(job)
    draft = draft_of(job.card)
    if os.geteuid() == 0:
        for path in (draft / INSIDE_DRAFT, *(draft / INSIDE_DRAFT).iterdir()):
            os.chown(path, 12345, 12345)
    assert has_finished_card(job) and not job.card.exists()
    hand_over(job, outcome)
    assert not draft.exists() and validate_card(job.card) == []
    assert {path.stat().st_uid for path in (job.card, *job.card.iterdir())} == {os.geteuid()}


def test_a_finished_card_whose_score_was_not_recorded_is_read_again(job):
    hand_over(job, let_a_child_play(job))
    before = (job.card / "card.json").read_bytes()
    outcome = let_a_child_play(job)
    hand_over(job, outcome)
    assert (job.card / "card.json").read_bytes() == before and read_summary(job.card).score == outcome.score


def test_a_card_that_is_to_be_discarded_is_made_anew(job):
    hand_over(job, let_a_child_play(job))
    draft = take_up(job.model_copy(update={"discard_card": True}))
    assert list(draft.iterdir()) == [] and not job.card.exists()


def link_out(card, tmp_path):
    (tmp_path / "outside").write_text("x")
    (card / "other.jsonl").unlink(missing_ok=True)
    (card / "other.jsonl").symlink_to(tmp_path / "outside")


def link_hard(card, tmp_path):
    os.link(card / "card.json", card / "other")


def make_pipe(card, tmp_path):
    os.mkfifo(card / "pipe")


def make_folder(card, tmp_path):
    (card / "folder").mkdir()


def be_a_link(card, tmp_path):
    shutil.move(card, tmp_path / "moved")
    card.symlink_to(tmp_path / "moved")


def swell(card, tmp_path):
    (card / "card.json").unlink()
    with (card / "card.json").open("wb") as file:
        file.truncate(300 << 20)


def block(card, tmp_path):
    (card / "card.json").unlink()
    os.mkfifo(card / "card.json")


def flood(card, tmp_path):
    for number in range(200):
        (card / f"file-{number}").touch()


def change_a_byte(card, tmp_path):
    file = card / "rollouts.parquet"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.chmod(0o644)
    file.write_bytes(data)


def vanish(card, tmp_path):
    shutil.rmtree(card)


@pytest.mark.parametrize(
    "harm", [link_out, link_hard, make_pipe, make_folder, be_a_link, swell, block, flood, change_a_byte, vanish]
)
def test_what_is_no_sound_card_of_plain_files_stays_where_it_is(job, tmp_path, harm):
    outcome = let_a_child_play(job)
    harm(draft_of(job.card) / INSIDE_DRAFT, tmp_path)
    with pytest.raises(CardError):
        hand_over(job, outcome)
    assert not job.card.exists()


def forge_columns(card_folder):
    card, file = load_card(card_folder), card_folder / "rollouts.parquet"
    data = bytearray(file.read_bytes())
    end = card.frames[0].offset - 200
    data[4:end] = bytes(end - 4)  # every column before the records
    data[-8:-4] = b"\xff\xff\xff\x7f"  # and a footer of two gigabytes
    file.chmod(0o644)
    file.write_bytes(data)
    store_card(card_folder, replace(card, parts={file.name: file_digest(file)}))


def test_columns_that_a_child_forged_are_made_again_and_never_parsed(job):
    outcome = let_a_child_play(job)
    forge_columns(draft_of(job.card) / INSIDE_DRAFT)
    hand_over(job, outcome)
    assert validate_card(job.card) == []
    assert pq.read_table(job.card / "rollouts.parquet")["counted"].to_pylist() == list(
        read_summary(job.card).item_scores.values()
    )


@pytest.mark.parametrize("last_step", ["mkdir", "replace_file"])
def test_a_kill_while_columns_are_made_again_loses_nothing(job, monkeypatch, last_step):
    outcome = let_a_child_play(job)
    forge_columns(draft_of(job.card) / INSIDE_DRAFT)  # so that what is made again differs from what was there

    def die(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(*((Path, "mkdir") if last_step == "mkdir" else (folder, "replace_file")), die)
        hand_over(job, outcome)
    assert not job.card.exists() and has_finished_card(job)
    hand_over(job, let_a_child_play(job))
    assert validate_card(job.card) == []


@pytest.mark.parametrize("harm", [be_a_link, swell, block, vanish])
def test_what_is_no_plain_card_is_not_taken_for_a_finished_one(job, tmp_path, harm):
    let_a_child_play(job)
    assert has_finished_card(job)
    harm(draft_of(job.card) / INSIDE_DRAFT, tmp_path)
    assert not has_finished_card(job)


def test_the_control_without_harm_is_taken_over(job):
    hand_over(job, let_a_child_play(job))
    assert job.card.is_dir()


@pytest.mark.parametrize(
    "changes", [{"name": "submission-2"}, {"seed": 7}, {"split": Split.TEST_PRIVATE}], ids=["name", "seed", "split"]
)
def test_the_card_of_another_evaluation_is_not_taken_over(job, changes):
    outcome = let_a_child_play(job, **changes)
    with pytest.raises(CardError, match="of another evaluation"):
        hand_over(job, outcome)


def test_the_card_of_other_items_is_not_taken_over(job):
    outcome = let_a_child_play(job, items=job.items[1:])
    with pytest.raises(CardError, match="of another evaluation"):
        hand_over(job, outcome)


@pytest.mark.parametrize(
    "lie",
    [{"value": 0.125}, {"low": 0.0}, {"high": 1.0}, {"n": 9}, {"n_missing": 1}, {"method": "by magic"}],
    ids=lambda lie: next(iter(lie)),
)
def test_a_score_that_the_card_does_not_say_is_not_taken_over(job, lie):
    outcome = let_a_child_play(job)
    claimed = outcome.model_copy(update={"score": replace(outcome.score, **lie)})
    assert claimed != outcome
    with pytest.raises(CardError, match="differs from what the child reported"):
        hand_over(job, claimed)
