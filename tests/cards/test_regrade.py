from dataclasses import replace

import pytest
from msgspec import structs

from agent2.cards.card import CountAs, ReportingRule
from agent2.cards.folder import load_card, store_card
from agent2.cards.reader import read_summary
from agent2.cards.regrade import RegradeChange, regrade
from agent2.cards.writer import CardWriter
from agent2.errors import CardError, Fault
from agent2.records import RolloutStatus, ScoredRollout
from card_builders import make_header, make_record


def blank(record):
    turn = structs.replace(record.rollout.turns[0], action="  ")
    return ScoredRollout(structs.replace(record.rollout, turns=[turn]), record.score)


@pytest.fixture
def card(tmp_path):
    """Ten solved items, of which two ran into the time cap and one is blank; a graded item; a crash; a lost one."""
    records = [make_record(str(i), 1.0) for i in range(7)]
    records += [make_record(str(i), 1.0, status=RolloutStatus.TIME_CAP) for i in (7, 8)]
    records += [blank(make_record("9", 1.0)), make_record("graded", 0.25)]
    records.append(make_record("crash", None, status=RolloutStatus.FAILED, fault=Fault.ENVIRONMENT))
    records.append(make_record("lost", None, status=RolloutStatus.FAILED, fault=Fault.INFRASTRUCTURE))
    with CardWriter(tmp_path / "card", make_header()) as writer:
        for record in records:
            writer.append(record)
        writer.close()
    return tmp_path / "card"


def test_its_own_rule_gives_back_every_stored_number_exactly(card):
    regraded = regrade(card)
    assert regraded.old == regraded.new == read_summary(card)
    assert regraded.differs_from_stored == [] and regraded.changes == {}
    assert regraded.n_changed == {} and regraded.n_items_changed == 0


def test_another_rule_moves_the_number_and_says_which_rollouts(card):
    before = {file.name: file.read_bytes() for file in card.iterdir()}
    rule = replace(load_card(card).header.reporting, time_cap=CountAs.MISSING, empty=CountAs.ZERO)
    regraded = regrade(card, rule, max_changes=2)
    assert regraded.old.score.value == pytest.approx(10.25 / 11)
    assert regraded.new.score.value == pytest.approx(7.25 / 9)
    assert regraded.n_changed == {"empty": 1, "time_cap": 2}
    assert regraded.n_items_changed == 3
    assert regraded.changed == [
        RegradeChange("7", 0, 1.0, None, "time_cap"),
        RegradeChange("8", 0, 1.0, None, "time_cap"),
    ]
    assert regraded.changes == {"time_cap": ("as_scored", "missing"), "empty": ("as_scored", "zero")}
    assert {file.name: file.read_bytes() for file in card.iterdir()} == before


def test_a_crash_counts_as_a_failure_only_where_the_rule_says_so(card):
    regraded = regrade(card, replace(load_card(card).header.reporting, environment_fault=CountAs.ZERO))
    assert (regraded.new.n_items, regraded.new.n_missing) == (regraded.old.n_items + 1, regraded.old.n_missing - 1)
    assert regraded.new.item_scores["crash"] == 0.0
    assert regraded.new.item_scores["lost"] is None
    assert {drop.item_id: drop.counted for drop in regraded.new.drops} == {
        "crash": CountAs.ZERO,
        "lost": CountAs.MISSING,
    }


def test_taking_attempts_together_otherwise_moves_items_and_no_rollout(tmp_path):
    with CardWriter(tmp_path / "card", make_header()) as writer:
        for item, attempt in (("a", 0), ("a", 1), ("b", 0), ("b", 1)):
            writer.append(make_record(item, float(attempt == 0 and item == "a"), attempt))
        writer.close()
    regraded = regrade(tmp_path / "card", ReportingRule(over_attempts="any", n_replicates=200))
    assert (regraded.old.score.value, regraded.new.score.value) == (0.25, 0.5)
    assert (regraded.n_changed, regraded.n_items_changed) == ({}, 1)


def test_a_stored_number_that_the_rollouts_do_not_give_is_named(card):
    stored = load_card(card)
    store_card(
        card,
        replace(stored, summary=replace(stored.summary, score=replace(stored.summary.score, value=0.99), n_turns=1)),
    )
    assert regrade(card).differs_from_stored == ["score.value", "n_turns"]


def test_an_open_card_is_graded_as_far_as_it_is(tmp_path):
    with CardWriter(tmp_path / "card", make_header()) as writer:
        writer.append(make_record("a"))
    regraded = regrade(tmp_path / "card")
    assert (regraded.old.score.value, regraded.has_stored, regraded.differs_from_stored) == (1.0, False, [])


def test_damaged_evidence_is_not_graded(card):
    data = bytearray((card / "rollouts.parquet").read_bytes())
    data[load_card(card).frames[0].offset + 50] ^= 1
    (card / "rollouts.parquet").write_bytes(data)
    with pytest.raises(CardError, match="frame 0"):
        regrade(card)
