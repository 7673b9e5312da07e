from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from msgspec import structs

from agent2.cards.aggregate import KINDS, Tally, counted_value, kinds_of, marks_of, summarize
from agent2.cards.card import CountAs, ReportingRule, rule_changes
from agent2.errors import Fault
from agent2.records import RolloutStatus, ScoredRollout, StopReason
from card_builders import make_record


def with_turn(record, action="an answer", stop=StopReason.END):
    turn = structs.replace(record.rollout.turns[0], action=action, stop_reason=stop)
    return ScoredRollout(structs.replace(record.rollout, turns=[turn]), record.score)


def every_kind():
    """One rollout of each kind, with a score and, where that can be, without."""
    failed = RolloutStatus.FAILED
    records = [
        make_record("plain", 1.0),
        make_record("unjudged", None),
        make_record("turn cap", 0.5, status=RolloutStatus.TURN_CAP),
        make_record("turn cap unjudged", None, status=RolloutStatus.TURN_CAP),
        make_record("time cap", 1.0, status=RolloutStatus.TIME_CAP),
        with_turn(make_record("empty", 1.0), action=" \n"),
        with_turn(make_record("truncated", 1.0), stop=StopReason.LENGTH),
        with_turn(make_record("several", 0.25, status=RolloutStatus.TIME_CAP), action="", stop=StopReason.LENGTH),
        make_record("crash", None, status=failed, fault=Fault.ENVIRONMENT),
        make_record("lost", None, status=failed, fault=Fault.INFRASTRUCTURE),
        make_record("broken model", 0.0, status=failed, fault=Fault.MODEL),
    ]
    silent = make_record("silent", 1.0)
    return [*records, ScoredRollout(structs.replace(silent.rollout, turns=[]), silent.score)]


def test_kinds_are_told_by_status_messages_and_fault():
    kinds = {record.rollout.item_id: kinds_of(marks_of(record.rollout)) for record in every_kind()}
    assert kinds == {
        "plain": [],
        "unjudged": [],
        "turn cap": ["turn_cap"],
        "turn cap unjudged": ["turn_cap"],
        "time cap": ["time_cap"],
        "empty": ["empty"],
        "truncated": ["truncated"],
        "several": ["time_cap", "empty", "truncated"],
        "crash": ["environment_fault"],
        "lost": [],
        "broken model": ["model_fault"],
        "silent": ["empty"],
    }


def test_every_kind_is_a_field_of_the_rule():
    assert set(KINDS) <= set(ReportingRule.__dataclass_fields__)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("counting", list(CountAs))
def test_one_rollout_and_many_at_once_count_alike_under_every_rule(kind, counting):
    records = every_kind()
    rule = replace(ReportingRule(), **{kind: counting})
    tally = Tally(ReportingRule())
    for record in records:
        tally.add(record)
    one_by_one = [counted_value(record, rule) for record in records]
    assert [None if np.isnan(value) else value for value in tally.counted(rule)] == one_by_one


def test_leaving_out_wins_over_zero_and_zero_over_the_score():
    record = next(record for record in every_kind() if record.rollout.item_id == "several")
    for time_cap, empty, truncated in product(CountAs, repeat=3):
        treatments = {time_cap, empty, truncated}
        expected = None if CountAs.MISSING in treatments else 0.0 if CountAs.ZERO in treatments else 0.25
        assert counted_value(record, ReportingRule(time_cap=time_cap, empty=empty, truncated=truncated)) == expected


def test_only_an_explicit_rule_holds_a_crash_against_the_model():
    crash, lost = (next(r for r in every_kind() if r.rollout.item_id == name) for name in ("crash", "lost"))
    assert counted_value(crash, ReportingRule()) is None
    zero = ReportingRule(environment_fault=CountAs.ZERO)
    assert counted_value(crash, zero) == 0.0
    assert counted_value(lost, zero) is None  # the infrastructure's fault is nobody's failure


def test_the_default_rule_gives_the_numbers_of_the_first_version():
    counted = {record.rollout.item_id: counted_value(record, ReportingRule()) for record in every_kind()}
    scores = {record.rollout.item_id: record.score.value for record in every_kind()}
    assert counted == scores


@pytest.mark.parametrize(
    ("over", "scores"),
    [
        ("mean", {"abc": 2 / 3, "lost first": 1.0, "solved once": 0.5, "half lost": 0.0, "half won": 1.0}),
        ("first", {"abc": 1.0, "lost first": None, "solved once": 0.0, "half lost": 0.0, "half won": 1.0}),
        ("any", {"abc": 1.0, "lost first": 1.0, "solved once": 1.0, "half lost": None, "half won": 1.0}),
        ("all", {"abc": 0.0, "lost first": None, "solved once": 0.0, "half lost": 0.0, "half won": None}),
    ],
)
def test_attempts_are_taken_together_as_the_rule_says(over, scores):
    tried = {
        "abc": [1.0, 0.0, 1.0],
        "lost first": [None, 1.0],
        "solved once": [0.0, 1.0],
        "half lost": [0.0, None],
        "half won": [1.0, None],
    }
    records = [make_record(item, value, attempt) for item in tried for attempt, value in enumerate(tried[item])]
    rule = ReportingRule(over_attempts=over, n_replicates=50)
    assert summarize(reversed(records), rule).item_scores == scores


def test_rules_are_told_apart_by_field():
    changes = rule_changes(ReportingRule(), ReportingRule(empty=CountAs.ZERO, over_attempts="any"))
    assert changes == {"empty": ("as_scored", "zero"), "over_attempts": ("mean", "any")}


def test_what_the_rule_leaves_out_says_why_in_the_drops():
    summary = summarize(every_kind(), ReportingRule(time_cap=CountAs.MISSING, truncated=CountAs.MISSING))
    reasons = {drop.item_id: drop.reason for drop in summary.drops if drop.fault is None}
    assert reasons["time cap"] == "left out by the rule: time_cap"
    assert reasons["several"] == "left out by the rule: time_cap, truncated"
    assert summary.n_missing == len(summary.items_missing) == 7
