from dataclasses import replace

import numpy as np
import pytest
from msgspec import structs

from agent2.analysis.compare import compare, compare_cards
from agent2.cards.card import CountAs, ReportingRule
from agent2.cards.comparability import find_cards
from agent2.cards.writer import CardWriter
from agent2.errors import NotEnoughData
from agent2.records import Usage
from card_builders import make_header, make_record


def write(path, values, tokens=15, **changes):
    """values: item -> score or list of scores of its attempts."""
    with CardWriter(path, make_header(**changes)) as writer:
        for item, scores in values.items():
            for attempt, value in enumerate(scores if isinstance(scores, list) else [scores]):
                record = make_record(item, value, attempt)
                writer.append(
                    structs.replace(record, rollout=structs.replace(record.rollout, usage=Usage(tokens - 5, 5, 0.5)))
                )
        writer.close()
    return path


def test_a_gain_on_paired_items_is_new_minus_old(tmp_path):
    old = write(tmp_path / "old", {"a": 0.0, "b": 0.0, "c": 1.0, "d": 1.0})
    new = write(tmp_path / "new", {"a": 1.0, "b": 1.0, "c": 1.0, "d": 0.0})
    comparison = compare_cards(old, new)
    assert comparison.difference.change.value == pytest.approx(0.25)
    assert (comparison.won, comparison.lost) == (["a", "b"], ["d"])
    assert comparison.bounds == (0.25, 0.25)
    assert (
        "unclear (the interval contains 0, p = 1.00): +25.0 [-50.5, +77.8] points"
        in comparison.answers()["learned or avoided failures"]
    )
    assert "no score is missing" in comparison.answers()["learned or avoided failures"]


@pytest.mark.parametrize("n_attempts", [1, 5])
def test_one_pair_of_cards_has_one_interval_wherever_it_is_asked_for(tmp_path, n_attempts):
    rng = np.random.default_rng(3)
    sides = {}
    for name, rate in (("old", 0.6), ("new", 0.7)):
        scores = (rng.random((40, n_attempts)) < rate).astype(float).tolist()
        sides[name] = write(tmp_path / name, {f"i{place:02}": row for place, row in enumerate(scores)})
    here = compare_cards(sides["old"], sides["new"]).difference
    (row,) = compare(find_cards(sides["old"]), [find_cards(sides["new"])]).rows
    assert row.score.paired == here
    assert here.change.method.startswith("Tango" if n_attempts == 1 else "paired t")


def test_a_gain_by_losing_hard_items_is_shown_with_its_bounds(tmp_path):
    old = write(tmp_path / "old", {"a": 1.0, "b": 1.0, "c": 0.0, "d": 0.0})
    new = write(tmp_path / "new", {"a": 1.0, "b": 1.0, "c": None, "d": None})
    comparison = compare_cards(old, new)
    assert comparison.difference.change.value == 0.0 and comparison.only_old == ["c", "d"]
    assert comparison.bounds == (0.0, 0.5)
    old = write(tmp_path / "old2", {"a": 1.0, "b": 0.0, "c": 1.0})
    new = write(tmp_path / "new2", {"a": 1.0, "b": 1.0, "c": None})
    assert compare_cards(old, new).bounds == (pytest.approx(0.0), pytest.approx(1 / 3))
    assert (
        "items without a score: 0 before, 1 after" in compare_cards(old, new).answers()["learned or avoided failures"]
    )


def test_doubled_cost_is_told_beside_the_success(tmp_path):
    old = write(tmp_path / "old", {"a": 0.0, "b": 1.0}, tokens=10)
    new = write(tmp_path / "new", {"a": 1.0, "b": 1.0}, tokens=20)
    comparison = compare_cards(old, new)
    assert (comparison.old.tokens_per_success, comparison.new.tokens_per_success) == (20.0, 20.0)
    assert "tokens 10 -> 20 (+100.0%)" in comparison.answers()["success or cost"]
    none = compare_cards(write(tmp_path / "zero", {"a": 0.0, "b": 0.0}), new)
    assert none.old.tokens_per_success is None and "not defined" in none.answers()["success or cost"]


def test_a_changed_rule_or_protocol_is_named_with_both_values(tmp_path):
    values = {"a": 1.0, "b": 0.0}
    old = write(tmp_path / "old", values)
    header = make_header()
    rule = ReportingRule(n_replicates=200, turn_cap=CountAs.ZERO)
    new = write(tmp_path / "new", values, reporting=rule, protocol=replace(header.protocol, max_turns=9))
    comparison = compare_cards(old, new)
    assert comparison.rule_changes == ["turn_cap: as_scored -> zero"]
    assert comparison.protocol_changes == ["max_turns: 1 -> 9"]
    assert "turn_cap" in comparison.answers()["process or rules"]


def test_flips_between_attempts_are_the_share_of_items_with_mixed_ones(tmp_path):
    old = write(tmp_path / "old", {"a": [0.0, 1.0], "b": [1.0, 1.0]})
    new = write(tmp_path / "new", {"a": [1.0, 1.0], "b": [1.0, 1.0]})
    comparison = compare_cards(old, new)
    assert (comparison.old.flip_share, comparison.new.flip_share) == (0.5, 0.0)
    assert compare_cards(write(tmp_path / "x", {"a": 1.0, "b": 1.0}), new).old.flip_share is None


def test_cards_without_common_items_are_refused(tmp_path):
    old, new = write(tmp_path / "old", {"a": 1.0}), write(tmp_path / "new", {"b": 1.0})
    with pytest.raises(NotEnoughData, match="0 items"):
        compare_cards(old, new)
