"""Judges with known faults beside labels: what was planted is found, with its size inside the interval."""

import hashlib
import json
import random
import sys

import pytest

from agent2.analysis.judge_check import (
    check_judge,
    compare_judges,
    read_pairs,
    read_verdicts,
    sway,
    write_verdicts,
)
from agent2.cli import main
from agent2.errors import ConfigError, Fault
from agent2.evaluation.judging import JudgedPair, LabelledPair, judge_pairs, judge_with_phrases
from agent2.records import Preference

N = 600


def labelled(n=N, seed=0):
    """Pairs of which the label says which answer is right; lengths are independent of it."""
    rng = random.Random(seed)
    pairs = []
    for number in range(n):
        is_first = rng.random() < 0.5
        kinds = ("right", "wrong") if is_first else ("wrong", "right")
        texts = [f"{word} {number:03} {'x' * rng.randrange(1, 60)}" for word in kinds]
        pairs.append(LabelledPair(str(number), f"task {number}", (texts[0], texts[1]), float(is_first)))
    return pairs


class Judge:
    """Says who is right but for the share of verdicts that its fault takes over."""

    name, version = "planted", "1.0"

    def __init__(self, fault=None, share=0.0, salt=""):
        self.fault, self.share, self.salt = fault, share, salt

    def prefer(self, item, first, second):
        draw = hashlib.sha256(f"{self.salt}{item.id}{first.answer}".encode()).digest()
        if int.from_bytes(draw[:4], "big") / 2**32 < self.share:
            return self.fault(first.answer, second.answer, draw)
        return Preference(float(first.answer.startswith("right")), "who is right")


def first_one(first, second, draw):
    return Preference(1.0, "the first one")


def longer_one(first, second, draw):
    return Preference(0.5 if len(first) == len(second) else float(len(first) > len(second)), "the longer one")


def any_one(first, second, draw):
    return Preference(float(draw[4] % 2), "a coin")


def no_one(first, second, draw):
    return Preference(None, "I would rather not say", Fault.JUDGE)


class Right:
    """Says who is right, and falls for a manner in the share of the pairs that it is given."""

    name, version = "right", "1.0"

    def __init__(self, sign="", share=0.0):
        self.sign, self.share = sign, share

    def prefer(self, item, first, second):
        signs = [self.sign in rollout.answer for rollout in (first, second)] if self.sign else [False, False]
        if signs[0] is not signs[1] and int(item.id) % 100 < 100 * self.share:
            return Preference(float(signs[0]), "the manner")
        right = ["right" in rollout.answer for rollout in (first, second)]
        return Preference(0.5 if right[0] is right[1] else float(right[0]), "who is right")


def swayed(pairs, judge):
    return sway(judge_pairs(pairs, judge), judge_with_phrases(pairs, judge))


def inside(measured, value):
    return measured.low <= value <= measured.high


def test_a_judge_that_is_always_right_is_seen_as_such():
    report = check_judge(judge_pairs(labelled(), Judge()))
    assert report.accuracy.value == report.both_right.value == report.order_agreement.value == 1.0
    assert report.kappa.value == report.kappa_orders.value == report.tau.value == 1.0
    assert set(swayed(labelled(60), Right())) == {"polite", "confident", "empty"}
    assert all(estimate.value == 0.0 for estimate in swayed(labelled(60), Right()).values())
    assert report.position_bias.value == report.length_bias.value == 0.0
    assert report.n_missing == 0


@pytest.mark.parametrize("fault", [first_one, any_one], ids=["constant", "random"])
def test_constant_and_random_judges_are_worth_nothing(fault):
    report = check_judge(judge_pairs(labelled(), Judge(fault, 1.0)))
    assert inside(report.accuracy, 0.5)
    assert report.kappa is None or inside(report.kappa, 0.0)
    assert report.tau is None or inside(report.tau, 0.0)


def test_a_constant_judge_scores_half_although_the_data_show_the_better_answer_first():
    pairs = [LabelledPair(str(n), "t", (f"right {n}", f"wrong {n}"), 1.0) for n in range(100)]
    report = check_judge(judge_pairs(pairs, Judge(first_one, 1.0)))
    assert report.accuracy.value == 0.5 and report.order_agreement.value == 0.0
    assert report.position_bias.value == 0.5


def test_a_judge_that_goes_by_the_place_is_told_from_one_that_leans_a_little():
    assert check_judge(judge_pairs(labelled(), Judge(first_one, 1.0))).goes_by_position
    assert check_judge(judge_pairs(labelled(), Judge(first_one, 0.8))).goes_by_position
    assert not check_judge(judge_pairs(labelled(), Judge(first_one, 0.3))).goes_by_position
    assert not check_judge(judge_pairs(labelled(), Judge())).goes_by_position
    assert not check_judge(judge_pairs(labelled(3), Judge(any_one, 1.0))).goes_by_position


def test_own_pairs_may_name_their_models_for_self_preference(tmp_path):
    rows = [
        {
            "instruction": "t",
            "first": f"a{n}",
            "second": f"b{n}",
            "label": "tie",
            "first_model": "me",
            "second_model": "x",
        }
        for n in range(20)
    ]
    (tmp_path / "pairs.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    pairs = read_pairs(tmp_path / "pairs.jsonl")
    assert {pair.models for pair in pairs} == {("me", "x")}
    kept = [JudgedPair(pair, 1.0, 1.0) for pair in pairs]  # its own answer, wherever it stands
    assert check_judge(kept, "me").self_preference.value == 0.5
    assert check_judge(kept).self_preference is None


@pytest.mark.parametrize("share", [0.1, 0.3])
def test_a_planted_position_bias_is_found_with_its_size(share):
    report = check_judge(judge_pairs(labelled(), Judge(first_one, share)))
    assert inside(report.position_bias, share / 2) and report.position_bias.low > 0
    assert inside(report.length_bias, 0.0)
    assert inside(report.accuracy, 1 - share / 2)


@pytest.mark.parametrize("share", [0.1, 0.3])
def test_a_planted_length_bias_is_found_with_its_size(share):
    pairs = labelled()
    longer_is_right = [
        (len(p.answers[0]) > len(p.answers[1])) == bool(p.label)
        for p in pairs
        if len(p.answers[0]) != len(p.answers[1])
    ]
    planted = share * (1 - sum(longer_is_right) / len(longer_is_right))
    report = check_judge(judge_pairs(pairs, Judge(longer_one, share)))
    assert inside(report.length_bias, planted) and report.length_bias.low > 0
    assert inside(report.position_bias, 0.0)


def test_length_normalised_verdicts_lose_the_planted_bias_and_nothing_else():
    """A judge that gives points for length beside its right verdict, as probabilities do."""

    def swayed(first, second, draw):
        right = 0.6 if first.startswith("right") else 0.4
        longer = 0.35 if len(first) > len(second) else -0.35
        return Preference(min(1.0, max(0.0, right + longer)), "right, and the longer one")

    report = check_judge(judge_pairs(labelled(), Judge(swayed, 1.0)))
    assert report.length_bias.low > 0.2 and abs(report.length_bias_normalised.value) < 0.1
    assert report.accuracy_normalised.low > report.accuracy.high
    honest = check_judge(judge_pairs(labelled(), Judge()))
    assert honest.accuracy_normalised.value == 1.0 and honest.length_bias_normalised.value == 0.0


def test_a_planted_self_preference_is_found():
    pairs = [
        LabelledPair(p.id, p.instruction, p.answers, p.label, models=("mine", "yours") if n % 2 else ("yours", "mine"))
        for n, p in enumerate(labelled())
    ]
    mine = {pair.answers[pair.models.index("mine")] for pair in pairs}

    def own(first, second, draw):
        return Preference(float(first in mine), "mine")

    report = check_judge(judge_pairs(pairs, Judge(own, 0.4)), model="mine")
    assert report.self_preference.low > 0.1
    assert inside(check_judge(judge_pairs(pairs, Judge()), model="mine").self_preference, 0.0)
    assert check_judge(judge_pairs(pairs, Judge())).self_preference is None


@pytest.mark.parametrize(
    ("manner", "sign"), [("polite", "Thank you"), ("confident", "absolutely certain"), ("empty", "worth pointing out")]
)
def test_a_judge_that_falls_for_a_manner_is_found_with_its_size_and_by_no_other_manner(manner, sign):
    judge = Right(sign, 0.3)
    gains = swayed(labelled(), judge)
    assert inside(gains[manner], 0.3) and gains[manner].low > 0.2
    assert all(estimate.value == 0.0 for name, estimate in gains.items() if name != manner)


def test_added_words_show_what_length_alone_gains():
    judge = Judge(longer_one, 1.0)
    assert swayed(labelled(), judge)["empty"].low > 0.4


def test_missing_verdicts_are_counted_and_in_no_rate():
    report = check_judge(judge_pairs(labelled(), Judge(no_one, 0.2)))
    assert 0.15 * 2 * N < report.n_missing < 0.25 * 2 * N
    assert report.accuracy.value == 1.0 and report.accuracy_shown_first.n_missing > 0


def test_verdicts_of_judgebench_are_read_and_a_tie_of_one_order_is_no_contradiction(tmp_path):
    pairs = [LabelledPair(str(n), "t", ("right", "wrong"), 1.0) for n in range(6)]
    decisions = [("A>B", "B>A"), ("A>B", "A=B"), ("A>B", "A>B"), ("A=B", "A=B"), ("B>A", "A=B"), ("A>B", None)]
    rows = [
        {"pair_id": str(n), "judgments": [{"decision": first}, second and {"decision": second}]}
        for n, (first, second) in enumerate(decisions)
    ]
    path = tmp_path / "outputs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = check_judge(read_verdicts(path, pairs))
    assert report.right_on_balance.value == 2 / 5  # the last pair lacks a verdict
    assert report.both_right.value == 1 / 5
    assert report.n_missing == 1
    path.write_text('{"verdict": "A"}\n')
    with pytest.raises(ConfigError, match="no verdict in any known form; a row has `id`"):
        read_verdicts(path, pairs)


def test_drift_is_found_and_chance_is_not_called_drift(tmp_path):
    pairs = labelled()
    anchors = judge_pairs(pairs, Judge(any_one, 0.1))
    write_verdicts(tmp_path / "anchors.jsonl", anchors)
    stored = read_verdicts(tmp_path / "anchors.jsonl", pairs)
    assert stored == anchors
    same = compare_judges(judge_pairs(pairs, Judge(any_one, 0.1)), stored)
    assert same.agreement.value == 1.0 and not same.has_drifted
    assert not compare_judges(judge_pairs(pairs, Judge(any_one, 0.1, salt="again")), stored).has_drifted
    worse = compare_judges(judge_pairs(pairs, Judge(any_one, 0.5)), stored)
    assert worse.has_drifted and worse.accuracy_change.high < 0
    assert worse.kappa.value == pytest.approx(worse.alpha.value, abs=0.02)


def test_errors_that_two_judges_share_are_told_from_independent_ones():
    pairs = labelled()

    def shared(fault, share):
        first, second = (judge_pairs(pairs, Judge(fault, share, salt=salt)) for salt in ("", "b"))
        return compare_judges(first, second).errors

    together, apart = shared(longer_one, 0.9), shared(any_one, 0.6)
    assert together.correlation > 0.3 and together.both_wrong.low > together.expected
    assert abs(apart.correlation) < 0.2


ROWS = {
    "llmbar": [{"input": "q", "output_1": "a", "output_2": "b", "label": 2}],
    "judgebench": [{"pair_id": "x", "question": "q", "response_A": "a", "response_B": "b", "label": "B>A"}],
    "rewardbench": [{"id": 3, "prompt": "q", "chosen": "b", "rejected": "a", "subset": "s"}],
    "mt_bench": [
        {
            "question_id": 1, "model_a": "m", "model_b": "n", "winner": "model_b", "judge": "j", "turn": 1,
            "conversation_a": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}],
            "conversation_b": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "b"}],
        }
    ],
    "own": [{"instruction": "q", "first": "a", "second": "b", "label": "2"}],
}  # fmt: skip


@pytest.mark.parametrize("layout", ROWS)
@pytest.mark.parametrize("is_list", [True, False])
def test_the_layouts_are_read(tmp_path, layout, is_list):
    file = tmp_path / "pairs.json"
    file.write_text(json.dumps(ROWS[layout]) if is_list else "".join(f"{json.dumps(row)}\n" for row in ROWS[layout]))
    (pair,) = read_pairs(file)
    assert pair.instruction == "q"
    assert pair.answers[0 if pair.label else 1] == "b"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no pair"),
        ("[1]", "item 1: is a int"),
        ("{", "not JSON"),
        ('{"a": 1}', "no known layout"),
        ('{"instruction": "q", "first": "a", "second": "b", "label": "3"}', "label '3'"),
        ('{"instruction": "q", "first": 1, "second": "b", "label": "1"}', "'first' is missing or not text"),
        ('{"id": 1, "instruction": "q", "first": "a", "second": "b", "label": "1"}\n' * 2, "same id"),
    ],
)
def test_what_is_no_labelled_pair_is_named_with_its_place(tmp_path, text, why):
    file = tmp_path / "pairs.jsonl"
    file.write_text(text)
    with pytest.raises(ConfigError, match=why):
        read_pairs(file)


@pytest.fixture
def agent2(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["agent2", *map(str, arguments)])
        with pytest.raises(SystemExit) as exited:
            main()
        captured = capsys.readouterr()
        return exited.value.code or 0, captured.out, captured.err

    return run


def test_the_command_asks_keeps_and_compares(tmp_path, agent2):
    rows = [
        {"instruction": p.instruction, "first": p.answers[0], "second": p.answers[1], "label": "1" if p.label else "2"}
        for p in labelled(60)
    ]
    (tmp_path / "pairs.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    command = ("judge", "check", "pairs.jsonl", "--scorer", "longer_answer")
    code, out, err = agent2(*command, "--out", "v.jsonl")
    assert code == 0, err
    assert "length bias" in out and out.strip().endswith("verdicts: v.jsonl")
    code, out, _ = agent2(
        "judge", "check", "pairs.jsonl", "--scorer", "longer_answer", "--verdicts", "v.jsonl", "--json"
    )
    result = json.loads(out)
    assert next(iter(result["judges"].values()))["swayed"] == {}
    code, out, _ = agent2(*command, "--added-words")
    assert code == 0 and all(f"{manner} words" in out for manner in ("polite", "confident", "empty"))
    assert code == 0 and result["compared_with"]["v.jsonl"]["agreement"]["value"] == 1.0
    verdict_rows = [json.loads(line) for line in (tmp_path / "v.jsonl").read_text().splitlines()]
    right = [float(p.label) for p in labelled(60)]
    for row, value in zip(verdict_rows, right, strict=True):
        row["shown_first"] = row["shown_second"] = value
    (tmp_path / "anchors.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in verdict_rows))
    code, out, _ = agent2(*command, "--verdicts", "anchors.jsonl")
    assert code == 1 and "drifted" in out
    for arguments, why in (
        (("pairs.jsonl",), "nothing to check"),
        (("missing.jsonl", "--scorer", "longer_answer"), "cannot be read"),
        (("pairs.jsonl", "--scorer", "exact"), "single answers"),
        (("pairs.jsonl", "--scorer", "longer_answer", "--out", "v.jsonl"), "already exists"),
        (("pairs.jsonl", "--verdicts", "pairs.jsonl"), "no verdict in any known form"),
        (("pairs.jsonl", "--verdicts", "v.jsonl", "--added-words"), "name a --scorer"),
    ):
        code, _, err = agent2("judge", "check", *arguments)
        assert code == 2 and why in err


def test_a_judge_that_cannot_be_reached_is_told_with_exit_code_4_and_one_lost_answer_is_not(agent2, tmp_path):
    pairs = [{"instruction": f"q{n}", "first": "aa", "second": "b", "label": 1} for n in range(2)]
    (tmp_path / "pairs.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in pairs))
    command = ("judge", "check", "pairs.jsonl", "--scorer", "pair_judge", "--settings", "model=http://127.0.0.1:9/v1#m")
    code, out, err = agent2(*command)
    assert code == 4 and not out and "no verdict on the first 2 pairs" in err and "no connection" in err

    class LosesOne:
        name, version = "loses-one", "1.0"
        n_asked = 0

        def prefer(self, item, first, second):
            self.n_asked += 1
            lost = self.n_asked == 1
            return Preference(None if lost else 1.0, "said", Fault.INFRASTRUCTURE if lost else None)

    judged = judge_pairs(read_pairs(tmp_path / "pairs.jsonl"), LosesOne())
    assert [judged_pair.shown_first for judged_pair in judged] == [None, 1.0]
