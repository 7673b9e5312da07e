from dataclasses import replace

import pytest

from agent2.cards.card import CountAs, ReportingRule
from agent2.cards.folder import load_card, store_card
from agent2.cards.reader import RegradeChange, read_summary, regrade
from agent2.cards.writer import CardWriter
from agent2.errors import CardError, Fault
from agent2.records import RolloutStatus, ScoredRollout
from card_builders import make_header, make_record


def blank(record):
    turn = replace(record.rollout.turns[0], action="  ")
    return ScoredRollout(replace(record.rollout, turns=[turn]), record.score)


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
    found = regrade(card)
    assert found.old == found.new == read_summary(card)
    assert (found.differs_from_stored, found.changes, found.n_changed, found.n_items_changed) == ([], {}, {}, 0)


def test_another_rule_moves_the_number_and_says_which_rollouts(card):
    before = {file.name: file.read_bytes() for file in card.iterdir()}
    rule = replace(load_card(card).header.reporting, time_cap=CountAs.MISSING, empty=CountAs.ZERO)
    found = regrade(card, rule, max_changes=2)
    assert found.old.value == pytest.approx(10.25 / 11)
    assert found.new.value == pytest.approx(7.25 / 9)
    assert found.n_changed == {"empty": 1, "time_cap": 2}
    assert found.n_items_changed == 3
    assert found.changed == [RegradeChange("7", 0, 1.0, None, "time_cap"), RegradeChange("8", 0, 1.0, None, "time_cap")]
    assert found.changes == {"time_cap": ("as_scored", "missing"), "empty": ("as_scored", "zero")}
    assert {file.name: file.read_bytes() for file in card.iterdir()} == before


def test_a_crash_counts_as_a_failure_only_where_the_rule_says_so(card):
    found = regrade(card, replace(load_card(card).header.reporting, environment_fault=CountAs.ZERO))
    assert (found.new.n_items, found.new.n_missing) == (found.old.n_items + 1, found.old.n_missing - 1)
    assert found.new.item_scores["crash"] == 0.0
    assert found.new.item_scores["lost"] is None
    assert {drop.item_id: drop.counted for drop in found.new.drops} == {
        "crash": CountAs.ZERO,
        "lost": CountAs.MISSING,
    }


def test_taking_attempts_together_otherwise_moves_items_and_no_rollout(tmp_path):
    with CardWriter(tmp_path / "card", make_header()) as writer:
        for item, attempt in (("a", 0), ("a", 1), ("b", 0), ("b", 1)):
            writer.append(make_record(item, float(attempt == 0 and item == "a"), attempt))
        writer.close()
    found = regrade(tmp_path / "card", ReportingRule(over_attempts="any", n_replicates=200))
    assert (found.old.value, found.new.value) == (0.25, 0.5)
    assert (found.n_changed, found.n_items_changed) == ({}, 1)


def test_a_stored_number_that_the_rollouts_do_not_give_is_named(card):
    stored = load_card(card)
    store_card(card, replace(stored, summary=replace(stored.summary, value=0.99, n_turns=1)))
    assert regrade(card).differs_from_stored == ["value", "n_turns"]


def test_an_open_card_is_graded_as_far_as_it_is(tmp_path):
    with CardWriter(tmp_path / "card", make_header()) as writer:
        writer.append(make_record("a"))
    found = regrade(tmp_path / "card")
    assert (found.old.value, found.has_stored, found.differs_from_stored) == (1.0, False, [])


def test_damaged_evidence_is_not_graded(card):
    data = bytearray((card / "rollouts.parquet").read_bytes())
    data[load_card(card).frames[0].offset + 50] ^= 1
    (card / "rollouts.parquet").write_bytes(data)
    with pytest.raises(CardError, match="frame 0"):
        regrade(card)
