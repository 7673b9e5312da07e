"""`agent2 cards recovery`: outcomes, turns, and the gap between two cards of one checkpoint."""

import json
from dataclasses import replace

import pytest
from msgspec import structs
from typer.testing import CliRunner

from agent2.analysis.tool_use import recovery_of
from agent2.cards.writer import CardWriter
from agent2.cli import app
from agent2.errors import ConfigError, Fault
from agent2.records import Score, ScoredRollout, Split, StopReason, Turn
from card_builders import make_header, make_record


def call(turn, name="stock", error=None, injected=False):
    return {"turn": turn, "name": name, "error": error, "injected": injected}


OUTCOMES = {
    "recovered": [call(0, error="timeout", injected=True), call(1, "price"), call(2)],
    "gave_up": [call(0, error="timeout", injected=True)],
    "not_recovered": [call(0, error="empty_result", injected=True), call(1, "price")],
    "cut_off": [call(0), call(3, error="timeout", injected=True)],
    "spared": [call(0)],
}


def record(item, value, calls, n_turns=4):
    scored = make_record(item, value)
    turns = [Turn(f"message {n}", "x", StopReason.END, 0, 0) for n in range(n_turns)]
    return ScoredRollout(structs.replace(scored.rollout, turns=turns, state={"tool_calls": calls}), scored.score)


def write(path, records, **changes):
    with CardWriter(path, make_header(**changes)) as writer:
        for record in records:
            writer.append(record)
        writer.close()
    return path


@pytest.fixture
def faulty(tmp_path):
    scores = {"recovered": 1.0, "gave_up": 0.0, "not_recovered": 0.0, "cut_off": 0.0, "spared": 1.0}
    return write(tmp_path / "faulty", [record(name, scores[name], calls) for name, calls in OUTCOMES.items()])


@pytest.fixture
def steady(tmp_path):
    return write(tmp_path / "steady", [record(name, 1.0, [call(0)]) for name in OUTCOMES])


def test_each_outcome_is_counted_and_those_cut_off_are_left_out_of_the_rate(faulty):
    report = recovery_of(faulty)
    timeout, empty = report.kinds[1], report.kinds[0]
    assert (timeout.n, timeout.n_recovered, timeout.n_gave_up, timeout.n_cut_off) == (3, 1, 1, 1)
    assert (empty.n, empty.n_not_recovered) == (1, 1)
    assert report.n_met == 4 and report.recovery_rate.value == pytest.approx(1 / 3)
    assert report.turns.value == 2.0
    assert report.score_spared.value == 1.0 and report.score_met.value == 0.25


def test_the_gap_is_paired_and_split_by_who_met_a_fault(faulty, steady):
    gap = recovery_of(faulty, steady).gap
    assert gap.change.change.value == pytest.approx(-3 / 5)
    assert gap.on_met.change.value == pytest.approx(-3 / 4) and gap.on_met.change.n == 4
    assert gap.on_spared.change.value == 0.0 and gap.on_spared.change.n == 1
    assert gap.n_faults_there == 0 and gap.difference is None


def test_cards_of_other_items_are_compared_by_their_means(faulty, tmp_path):
    others = write(tmp_path / "others", [record(f"o{n}", float(n % 2), [call(0)]) for n in range(6)])
    gap = recovery_of(faulty, others).gap
    assert gap.change is None and gap.on_met is None
    assert gap.difference.value == pytest.approx(0.4 - 0.5) and "Welch" in gap.difference.method


def test_a_missing_score_is_no_zero(tmp_path, steady):
    lost = record("gave_up", 0.0, OUTCOMES["gave_up"])
    lost = ScoredRollout(lost.rollout, Score(None, "lost", Fault.JUDGE))
    card = write(tmp_path / "card", [lost, record("spared", 1.0, OUTCOMES["spared"])])
    report = recovery_of(card, steady)
    assert report.score_met is None and report.gap.change.change.value == 0.0
    assert report.gap.change.change.n == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"checkpoint_digest": "d" * 64, "checkpoint_name": "other"}, "one checkpoint"),
        ({"protocol": replace(make_header().protocol, split=Split.TRAIN)}, "same split"),
    ],
)
def test_cards_that_cannot_be_compared_are_refused(faulty, tmp_path, changes, message):
    other_card = write(tmp_path / "other", [record("spared", 1.0, [call(0)])], **changes)
    with pytest.raises(ConfigError, match=message):
        recovery_of(faulty, other_card)


def test_a_card_without_records_of_faults_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="records no faults"):
        recovery_of(write(tmp_path / "card", [make_record("a", 1.0)]))


def test_the_command_prints_the_table_and_the_gap(faulty, steady):
    result = CliRunner().invoke(app, ["cards", "recovery", str(faulty), "--against", str(steady)])
    assert result.exit_code == 0, result.output
    for text in ("cut off", "transfer gap, paired by item", "-0.6000", "... on items that met none"):
        assert text in result.output
    report = json.loads(CliRunner().invoke(app, ["cards", "recovery", str(faulty), "--json"]).stdout)
    assert report["gap"] is None and report["n_met"] == 4


def test_a_card_without_faults_says_so(steady):
    result = CliRunner().invoke(app, ["cards", "recovery", str(steady)])
    assert result.exit_code == 0 and "0 of 5" in result.output


def test_a_clean_card_that_met_faults_is_told(faulty, tmp_path):
    same = write(tmp_path / "same", [record(name, 1.0, calls) for name, calls in OUTCOMES.items()])
    result = CliRunner().invoke(app, ["cards", "recovery", str(faulty), "--against", str(same)])
    assert "met 4 faults as well" in result.output
