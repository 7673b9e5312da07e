"""The scoring stage on its own, with scorers that work in every way and fail in every way."""

import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from agent2.benchmarks import load_benchmark
from agent2.cards.folder import load_card
from agent2.cards.reader import iter_rollouts, read_header, read_summary, validate_card
from agent2.errors import CardError, ConfigError, Fault
from agent2.evaluation.engine import Attempt, PlaySettings, play_rollouts
from agent2.evaluation.plan import EvaluationPlan
from agent2.evaluation.runner import UNSCORED, evaluate, finished_summary, play_card, played_beside
from agent2.evaluation.scoring import (
    GIVE_UP_AFTER,
    ScoringFailed,
    ScoringResources,
    ScoringStopped,
    Until,
    in_batches,
    score_played,
    score_rollout,
)
from agent2.models.sources import ScriptedSampler
from agent2.records import (
    PENDING,
    Item,
    Message,
    Rollout,
    RolloutStatus,
    SamplingSettings,
    Score,
    ScoringMode,
    ScoringWork,
    Split,
    Step,
    Usage,
    digest_of,
    work_of,
)


class World:
    def reset(self, item, seed):
        return [Message("user", item.prompt)]

    def act(self, action):
        self.answer = action
        return Step(None, True)

    def state(self):
        return {"answer": self.answer}


class Exact:
    name, version = "exact", "1"

    def score(self, item, rollout):
        return Score(float(rollout.answer == item.reference), "compared")


class Slowly(Exact):
    """The same verdicts in batches; does what the references of `bad` say instead."""

    name = "slowly"

    def __init__(self, bad=None, **work):
        self.work = ScoringWork(ScoringMode.BATCH, **{"batch_size": 4, "concurrency": 3, **work})
        self.bad = bad or {}
        self.asked = []

    def score_batch(self, batch):
        self.asked.append([item.id for item, _ in batch])
        return [self.bad[item.id]() if item.id in self.bad else self.score(item, rollout) for item, rollout in batch]


class Numbers:
    name, version, primary_metric, max_turns, attempts = "numbers", "1", "accuracy", 1, 1
    sampling = SamplingSettings(temperature=0.7)

    def __init__(self, scorer=None):
        self.own = scorer or Exact()

    def items(self, split, n, secret):
        return [Item(f"n{i}", split, str(i), str(i % 2)) for i in range(n)]

    def environment(self):
        return World()

    def scorer(self):
        return self.own

    def environment_version(self):
        return "world-v1"


def plan(scorer=None, n=30, **changes):
    benchmark = Numbers(scorer)
    items = benchmark.items(Split.DEV, n, None)
    return replace(EvaluationPlan(benchmark, Split.DEV, items, "base", "c" * 64, "t" * 64, "float32"), **changes)


def says_one(messages):
    return "1"


def never(messages):
    raise AssertionError("the model was asked again")


def played(n=10):
    items = Numbers().items(Split.DEV, n, None)
    settings = PlaySettings(SamplingSettings(), 1)
    return play_rollouts([Attempt(item, 0, 1) for item in items], ScriptedSampler(says_one), World, settings)


def by_item(records):
    return {record.rollout.item_id: record.score for record in records}


def raises():
    raise RuntimeError("the judge fell over")


def leaves():
    raise SystemExit(3)


class ScriptedClock:
    """The clock of the stage, which goes on when a test says so: a machine that stands still makes nothing late."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr("agent2.evaluation.scoring.time", SimpleNamespace(monotonic=lambda: self.now))


def test_a_scorer_that_declares_nothing_is_inline_and_judges_as_rollouts_come():
    assert work_of(Exact()).mode is ScoringMode.INLINE
    rollouts = played(3)
    records = score_played(rollouts, Exact())
    first = next(records)
    assert (first.rollout.item_id, first.score.value) == ("n0", 0.0)
    assert [record.rollout.item_id for record in records] == ["n1", "n2"]


def test_batches_give_the_verdicts_of_one_at_a_time():
    scorer = Slowly()
    scores = by_item(score_played(played(), scorer))
    assert scores == by_item(score_played(played(), Exact()))
    assert sorted(map(len, scorer.asked)) == [3, 3, 4]


@pytest.mark.parametrize(
    "fails",
    [
        raises,
        leaves,
        lambda: Score(None, "cannot", Fault.JUDGE),
        lambda: Score(7.0, "?"),
        lambda: 0.5,
        lambda: None,
        lambda: Score("high", "?"),
    ],
)
def test_one_rollout_that_breaks_the_judge_is_missing_and_the_others_keep_their_scores(fails):
    scores = by_item(score_played(played(), Slowly({"n5": fails})))
    expected = by_item(score_played(played(), Exact()))
    broken = scores.pop("n5")
    assert (broken.value, broken.fault) == (None, Fault.JUDGE)
    assert "judged twice" in broken.reason
    assert scores == {key: score for key, score in expected.items() if key != "n5"}


def test_a_verdict_that_is_no_score_costs_its_rollout_and_no_other_verdict_is_asked_for_again():
    scorer = Slowly({"n5": lambda: 0.5})
    broken = by_item(score_played(played(), scorer))["n5"]
    assert "scorer slowly raised AttributeError" in broken.reason
    assert sorted(len(batch) for batch in scorer.asked) == [1, 3, 3, 4], "n5 alone is judged twice"


def test_a_reason_that_quotes_half_a_character_can_be_written_to_a_card(tmp_path):
    class Quoting(Exact):
        def score(self, item, rollout):
            return Score(0.0, "it said \ud800, é")

    evaluate(plan(Quoting(), n=2), ScriptedSampler(says_one), tmp_path / "card")
    assert {record.score.reason for record in iter_rollouts(tmp_path / "card")} == {"it said ?, é"}


def test_a_judge_that_answers_too_few_or_nothing_is_asked_one_by_one():
    class Short(Slowly):
        def score_batch(self, batch):
            return super().score_batch(batch)[:1] if len(batch) > 1 else super().score_batch(batch)

    assert by_item(score_played(played(), Short())) == by_item(score_played(played(), Exact()))


def test_a_batch_that_hangs_is_missing_and_holds_nothing_up(monkeypatch):
    clock, is_over = ScriptedClock(monkeypatch), threading.Event()

    def hangs():
        clock.now += 1.5
        is_over.wait()
        return Score(1.0, "too late")

    scores = by_item(score_played(played(), Slowly({"n5": hangs}, timeout_s=1.5, concurrency=1)))
    is_over.set()
    late = {key for key, score in scores.items() if score.value is None}
    assert late == {"n4", "n5", "n6", "n7"}
    assert scores["n5"].fault is Fault.JUDGE and "1.5 seconds" in scores["n5"].reason
    assert scores["n9"].value == 1.0


@pytest.mark.timeout(300)
def test_a_thread_that_breaks_ends_the_stage_with_its_error_and_is_not_waited_for():
    def judge(batch):
        raise SystemError("a defect")

    work = ScoringWork(ScoringMode.BATCH, batch_size=2, concurrency=2)
    with pytest.raises(SystemError, match="a defect"):
        list(in_batches(range(5), judge, work, threading.Event()))


def test_an_overdue_batch_stays_missing_whatever_its_thread_does_later(monkeypatch):
    clock, is_over = ScriptedClock(monkeypatch), threading.Event()

    def judge(batch):
        if 0 in batch:
            clock.now += 1.0
            is_over.wait(120)
            raise SystemError("too late")
        is_over.set()
        time.sleep(0.4)  # the late error is there before this verdict
        return [f"verdict on {unit}" for unit in batch]

    work = ScoringWork(ScoringMode.BATCH, batch_size=1, concurrency=1, timeout_s=1.0)
    verdicts = dict(in_batches(range(3), judge, work, threading.Event()))
    assert (verdicts[0].value, verdicts[0].fault) == (None, Fault.JUDGE)
    assert (verdicts[1], verdicts[2]) == ("verdict on 1", "verdict on 2")


def test_no_more_batches_are_under_way_than_the_scorer_says():
    counts, peak, lock, are_two = [0], [0], threading.Lock(), threading.Event()

    class Counting(Slowly):
        def score_batch(self, batch):
            with lock:
                counts[0] += 1
                peak[0] = max(peak[0], counts[0])
                if counts[0] == 2:
                    are_two.set()
            assert are_two.wait(120)
            time.sleep(0.05)
            with lock:
                counts[0] -= 1
            return super().score_batch(batch)

    list(score_played(played(20), Counting(batch_size=1, concurrency=3)))
    assert 1 < peak[0] <= 3


def test_a_few_rollouts_are_spread_over_all_that_may_judge():
    scorer = Slowly(batch_size=100, concurrency=3)
    assert len(list(score_played(played(7), scorer))) == 7
    assert sorted(map(len, scorer.asked)) == [2, 2, 3]
    assert all("n0" not in batch or "n1" not in batch for batch in scorer.asked), "neighbours go to different batches"


def test_a_stage_that_is_told_to_stop_stops():
    stop = threading.Event()
    stop.set()
    with pytest.raises(ScoringStopped):
        list(score_played(played(), Slowly(), ScoringResources(stop=stop)))
    with pytest.raises(ScoringStopped):
        list(score_played(played(), Slowly(), ScoringResources(stop=Until(threading.Event(), time.monotonic() - 1))))


def test_a_mode_without_its_method_is_refused():
    class Lacking:
        name, version, work = "lacking", "1", ScoringWork(ScoringMode.SANDBOX)

        def score(self, item, rollout):
            return Score(1.0, "inline in truth")

    with pytest.raises(ConfigError, match="lacking works in the mode 'sandbox' and has no method score_on"):
        list(score_played(played(), Lacking()))


def test_an_evaluation_with_a_batch_scorer_plays_first_and_leaves_one_scored_card(tmp_path):
    scorer = Slowly()
    summary = evaluate(plan(scorer), ScriptedSampler(says_one), tmp_path / "card")
    inline = evaluate(plan(), ScriptedSampler(says_one), tmp_path / "inline")
    assert summary.item_scores == inline.item_scores and summary.score.value == 0.5
    assert validate_card(tmp_path / "card") == []
    assert read_header(tmp_path / "card").protocol == plan(scorer).protocol()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["card", "inline"]
    assert finished_summary(plan(scorer), tmp_path / "card") == summary
    assert evaluate(plan(scorer), ScriptedSampler(never), tmp_path / "card") == summary


def test_a_played_card_has_every_rollout_and_no_verdict_and_no_zero(tmp_path):
    summary = play_card(plan(), ScriptedSampler(says_one), tmp_path / "card")
    assert (summary.score, summary.n_missing, summary.n_rollouts) == (None, 30, 30)
    assert all(record.score == PENDING for record in iter_rollouts(tmp_path / "card"))
    assert read_header(tmp_path / "card").protocol.scorer == UNSCORED
    assert validate_card(tmp_path / "card") == []
    with pytest.raises(CardError, match="of another evaluation"):
        finished_summary(plan(), tmp_path / "card")


def test_a_judge_that_is_gone_ends_the_stage_and_costs_no_rollout_and_no_verdict(tmp_path):
    is_down = [False]

    class Flaky(Slowly):
        def score_batch(self, batch):
            if is_down[0]:
                raise ConnectionError("no route to the judge")
            return super().score_batch(batch)

    def fall(done, planned):
        is_down[0] = is_down[0] or (card.exists() and done == 4)

    card, scorer = tmp_path / "card", Flaky(batch_size=1, concurrency=1)
    with pytest.raises(
        ScoringFailed, match=rf"{GIVE_UP_AFTER} rollouts in a row.*no route.*run the same command again"
    ):
        evaluate(plan(scorer), ScriptedSampler(says_one), card, fall)
    assert load_card(card).state == "open" and load_card(played_beside(card)).state == "closed"
    is_down[0], n_before = False, len(scorer.asked)
    summary = evaluate(plan(scorer), ScriptedSampler(never), card)
    assert len(scorer.asked) - n_before == 26, "the four verdicts that were kept are not asked for again"
    assert (summary.score.value, summary.n_missing) == (0.5, 0)
    assert not played_beside(card).exists()
    assert read_summary(card) == summary


def test_a_judge_that_never_answers_ends_the_stage(tmp_path):
    with pytest.raises(ScoringFailed, match=r"10 rollouts in a row got no verdict.*fell over"):
        evaluate(plan(Slowly({f"n{i}": raises for i in range(10)}), n=10), ScriptedSampler(says_one), tmp_path / "card")


def test_rollouts_that_failed_are_judged_by_the_fault_table_and_never_by_the_scorer(tmp_path):
    class Broken(World):
        def reset(self, item, seed):
            if item.id == "n3":
                from agent2.errors import EnvironmentFailed

                raise EnvironmentFailed("no such world")
            return super().reset(item, seed)

    class Breaking(Numbers):
        def environment(self):
            return Broken()

    scorer = Slowly()
    chosen = replace(plan(scorer, n=6), benchmark=Breaking(scorer))
    inline = evaluate(replace(plan(n=6), benchmark=Breaking()), ScriptedSampler(says_one), tmp_path / "inline")
    summary = evaluate(chosen, ScriptedSampler(says_one), tmp_path / "card")
    assert "n3" not in {name for batch in scorer.asked for name in batch}
    assert (summary.item_scores, summary.faults) == (inline.item_scores, inline.faults)
    assert summary.faults == {"environment": 1} and summary.item_scores["n3"] is None


def test_an_error_of_a_users_check_names_its_line_and_the_row_of_the_data_unless_that_is_hidden(tmp_path):
    (tmp_path / "check.py").write_text(
        "from agent2.records import Score\n\n\nclass Check:\n    name, version = 'check', '1'\n\n"
        "    def score(self, item, rollout):\n        return Score(1.0 / (int(item.reference) - 3), 'divided')\n"
    )
    rows = "".join(f'{{"q": "Say {number}.", "a": "{number}"}}\n' for number in range(1, 6))
    for name in ("dev.jsonl", "private.jsonl"):
        (tmp_path / name).write_text(rows)
    (tmp_path / "benchmark.yaml").write_text(
        'name: own\nversion: "1.0"\nfiles: {dev: dev.jsonl, test_private: private.jsonl}\nprompt: "{q}"\nanswer: a\n'
        "scorer: {name: ./check.py:Check}\n"
    )
    benchmark = load_benchmark(str(tmp_path))
    reasons = {}
    for split, secret in ((Split.DEV, None), (Split.TEST_PRIVATE, b"s" * 32)):
        item = next(item for item in benchmark.items(split, 5, secret) if item.reference == "3")
        played_rollout = Rollout(item.id, 0, 0, RolloutStatus.COMPLETED, [], [], "3", {}, Usage())
        reasons[split] = score_rollout(benchmark.scorer(), item, played_rollout).reason
        assert digest_of([item]) == digest_of([Item(item.id, split, item.prompt, item.reference, item.payload)])
    assert "ZeroDivisionError: float division by zero (check.py:8) [dev.jsonl:3]" in reasons[Split.DEV]
    assert "(judged twice; with the same outcome)" in reasons[Split.DEV]
    assert "check.py:8" in reasons[Split.TEST_PRIVATE] and "jsonl" not in reasons[Split.TEST_PRIVATE]
