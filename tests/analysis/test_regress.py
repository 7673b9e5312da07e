import re

import msgspec
import pytest

from agent2.analysis.regress import regress
from agent2.cards.comparability import IncomparableError, find_cards
from agent2.cards.writer import CardWriter
from agent2.errors import CardError
from agent2.records import Split
from card_builders import make_header, make_record
from contract_card_builders import make_scored, verdicts, write_card


def card_set(tmp_path, name, records, **protocol):
    return find_cards(write_card(tmp_path / name, records, name, **protocol))


def test_items_lost_and_won_are_listed_by_id_with_both_answers(tmp_path):
    old = card_set(tmp_path, "old", verdicts("1100"))
    new = card_set(tmp_path, "new", list(reversed(verdicts("1010"))))
    regression = regress(old, new)
    assert [(item.item_id, item.old_answer, item.new_answer) for item in regression.lost] == [
        ("item-001", "answer 1", "answer 0")
    ]
    assert [item.item_id for item in regression.won] == ["item-002"]
    assert (regression.n_passed_before, regression.n_compared, regression.n_only_one_side) == (2, 4, 0)
    assert not regression.is_within(0)
    assert regression.is_within(1)


def test_an_item_that_passed_and_has_no_score_now_is_unknown_and_counts_against_the_allowance(tmp_path):
    regression = regress(card_set(tmp_path, "old", verdicts("110")), card_set(tmp_path, "new", verdicts("1--")))
    assert [item.item_id for item in regression.unknown] == ["item-001"]
    assert regression.lost == ()
    assert not regression.is_within(0)


def test_an_item_that_was_never_asked_again_is_unknown_too(tmp_path):
    regression = regress(card_set(tmp_path, "old", verdicts("110")), card_set(tmp_path, "new", verdicts("1")))
    assert [item.item_id for item in regression.unknown] == ["item-001"]
    assert (regression.n_passed_before, regression.n_compared, regression.n_only_one_side) == (2, 1, 2)


def test_items_without_an_old_score_cannot_be_lost(tmp_path):
    regression = regress(card_set(tmp_path, "old", verdicts("-1")), card_set(tmp_path, "new", verdicts("01")))
    assert (regression.lost, regression.unknown, regression.n_compared) == ((), (), 1)


def test_an_item_that_both_fail_is_neither_lost_nor_forgotten(tmp_path):
    regression = regress(card_set(tmp_path, "old", verdicts("0011-0")), card_set(tmp_path, "new", verdicts("01010-")))
    assert [item.item_id for item in regression.both_failed] == ["item-000"], "an item without a score is in no list"
    assert ([item.item_id for item in regression.lost], regression.is_within(1)) == (["item-002"], True)


def test_several_attempts_pass_by_their_mean_and_show_an_answer_of_the_verdict(tmp_path):
    def attempts(*values):
        return [make_scored("i", float(v), attempt=n, text=f"{n}:{v}") for n, v in enumerate(values)]

    old = card_set(tmp_path, "old", attempts(0, 1, 1), attempts=3)
    new = card_set(tmp_path, "new", attempts(1, 0, 0), attempts=3)
    (lost,) = regress(old, new).lost
    assert (lost.old_answer, lost.new_answer) == ("1:1", "1:0")
    assert lost.old_score == pytest.approx(2 / 3)


def test_equal_checkpoints_lose_nothing(tmp_path):
    regression = regress(card_set(tmp_path, "old", verdicts("1010")), card_set(tmp_path, "new", verdicts("1010")))
    assert (regression.lost, regression.won, regression.unknown) == ((), (), ())
    assert regression.is_within(0)


def test_other_protocols_and_unfinished_cards_are_refused(tmp_path):
    old = card_set(tmp_path, "old", verdicts("10"))
    with pytest.raises(IncomparableError, match="scorer"):
        regress(old, card_set(tmp_path, "new", verdicts("10"), scorer="fake-v2"))
    writer = CardWriter(tmp_path / "open", make_header())
    writer.append(make_record("item-000"))
    writer.release()
    with pytest.raises(CardError, match="not finished"):
        regress(old, find_cards(tmp_path / "open"))


def test_five_of_five_attempts_that_become_three_are_seen_and_one_lost_attempt_is_luck(tmp_path):
    def attempts(name, n):
        return [make_scored(name, float(place < n), attempt=place) for place in range(5)]

    old = card_set(tmp_path, "old", [*attempts("a", 5), *attempts("b", 5), *attempts("c", 4)], attempts=5)
    new = card_set(tmp_path, "new", [*attempts("a", 3), *attempts("b", 4), *attempts("c", 2)], attempts=5)
    regression = regress(old, new)
    assert [(item.item_id, item.old_score, item.new_score) for item in regression.weakened] == [("a", 1.0, 0.6)]
    assert [item.item_id for item in regression.lost] == ["c"]
    assert not regression.is_within(1)
    assert regression.is_within(2)


@pytest.mark.parametrize("split", [Split.TEST_PUBLIC, Split.TEST_PRIVATE])
def test_answers_to_hidden_items_are_withheld_and_said_to_be(tmp_path, split):
    def side(name, pattern):
        return card_set(tmp_path, name, verdicts(pattern), split=split)

    regression = regress(side("old", "1101"), side("new", "001"))
    changed = [*regression.lost, *regression.won, *regression.unknown]
    assert [item.item_id for item in changed] == ["item-000", "item-001", "item-002", "item-003"]
    assert {(item.old_answer, item.new_answer) for item in changed} == {(None, None)}
    assert f"fake-v1 / {split.value}" in regression.withheld
    assert not re.search(rb"answer [01]", msgspec.json.encode(regression))


def test_nothing_is_withheld_of_visible_items(tmp_path):
    regression = regress(
        card_set(tmp_path, "old", verdicts("1"), split=Split.DEV),
        card_set(tmp_path, "new", verdicts("0"), split=Split.DEV),
    )
    assert regression.withheld == "" and regression.lost[0].old_answer == "answer 1"
