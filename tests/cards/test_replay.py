from msgspec import structs

from agent2.cards.card import CountAs, ReportingRule
from agent2.cards.replay import scenes, thought_preview
from agent2.errors import Fault
from agent2.records import RolloutStatus, StopReason, Thought, Turn
from card_builders import make_record


def told(record, rule=None):
    return {scene.title: scene.text for scene in scenes(record, rule or ReportingRule())}


def test_every_turn_and_its_reply_come_in_order():
    record = make_record("i")
    turns = [Turn("look", "a room", StopReason.END, 10, 1), Turn("take key", None, StopReason.LENGTH, 20, 8)]
    record = structs.replace(record, rollout=structs.replace(record.rollout, turns=turns))
    assert [scene.title for scene in scenes(record, ReportingRule())] == [
        "prompt: user",
        "turn 1 of 2: model (10 + 1 tokens)",
        "turn 1 of 2: environment",
        "turn 2 of 2: model (20 + 8 tokens, cut off at the token limit)",
        "final state",
        "verdict",
    ]
    assert told(record)["turn 1 of 2: environment"] == "a room"


def test_a_thought_comes_before_its_message_and_says_that_it_never_ended():
    record = make_record("i")
    turns = [
        Turn("look", "a room", StopReason.END, 10, 1, thought=Thought("hm", "<think>", "</think>")),
        Turn("", None, StopReason.LENGTH, 20, 8, thought=Thought("x" * 400, "<think>", None)),
    ]
    record = structs.replace(record, rollout=structs.replace(record.rollout, turns=turns))
    titles = [scene.title for scene in scenes(record, ReportingRule())]
    assert titles[1:3] == ["turn 1 of 2: thought", "turn 1 of 2: model (10 + 1 tokens)"]
    assert told(record)["turn 1 of 2: thought"] == "hm"
    assert "turn 2 of 2: thought, never ended" in titles
    assert [thought_preview(turn, 300) for turn in turns] == ["hm", f"{'x' * 300} ... (400 characters) [never ended]"]


def test_the_verdict_says_what_counts_under_the_rule():
    capped = make_record("i", 0.5, status=RolloutStatus.TURN_CAP)
    assert "score: 0.5" in told(capped)["verdict"] and "counts as: 0.5" in told(capped)["verdict"]
    dropped = told(capped, ReportingRule(turn_cap=CountAs.MISSING))["verdict"]
    assert "score: 0.5" in dropped and "counts as: missing" in dropped


def test_a_missing_score_is_told_with_its_fault_never_as_zero():
    verdict = told(make_record("i", None, fault=Fault.JUDGE))["verdict"]
    assert "fault: judge" in verdict and "score: missing" in verdict and "counts as: missing" in verdict


def test_views_and_badcase_classes_are_told():
    record = make_record("i")
    record = structs.replace(
        record, score=structs.replace(record.score, views={"tool_errors": 2.0, "x": None}, labels=("too_long",))
    )
    verdict = told(record)["verdict"]
    assert "views: tool_errors 2, x not known" in verdict and "badcase classes: too_long" in verdict
