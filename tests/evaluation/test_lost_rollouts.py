"""What the infrastructure lost is played again; what a model provoked, or a score it has, never is."""

from dataclasses import replace

import pytest

from agent2.cards.folder import load_card, restore_replaced
from agent2.cards.reader import iter_rollouts, read_summary, validate_card
from agent2.errors import Fault, SamplerFailed
from agent2.evaluation.lost_rollouts import count_lost, count_unjudged, judge_lost, play_lost
from agent2.evaluation.plan import EvaluationPlan
from agent2.evaluation.runner import evaluate
from agent2.evaluation.scoring import ScoringFailed, score_card
from agent2.models.sources import ScriptedSampler
from agent2.records import (
    Completion,
    Item,
    Message,
    SamplingSettings,
    Score,
    ScoringMode,
    ScoringWork,
    Split,
    Step,
    StopReason,
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
        return Score(float(rollout.answer == item.reference), f"compared {rollout.answer}")


class Judge(Exact):
    """Judges in batches; the items of `down` get no verdict while its server is down."""

    name = "judge"
    work = ScoringWork(ScoringMode.BATCH, batch_size=4)

    def __init__(self, down=()):
        self.down = set(down)
        self.asked = []

    def score_batch(self, batch):
        self.asked += [item.id for item, _ in batch]
        lost = Score(None, "the judge's server is down", Fault.INFRASTRUCTURE)
        return [lost if item.id in self.down else self.score(item, rollout) for item, rollout in batch]


class Numbers:
    name, version, primary_metric, max_turns, attempts = "numbers", "1", "accuracy", 1, 2
    sampling = SamplingSettings(temperature=0.7)

    def __init__(self, scorer=None):
        self.own = scorer or Exact()

    def environment(self):
        return World()

    def scorer(self):
        return self.own

    def environment_version(self):
        return "world-v1"


ITEMS = [Item(f"n{i}", Split.DEV, str(i), "1") for i in range(6)]
LOST = Completion("", stop_reason=StopReason.FAULT, fault=Fault.INFRASTRUCTURE, reason="HTTP 401")
FILTERED = Completion("", stop_reason=StopReason.FAULT, fault=Fault.INFRASTRUCTURE, reason="filtered", is_final=True)
BROKEN = Completion("", stop_reason=StopReason.FAULT, fault=Fault.MODEL, reason="NaN")


def plan(scorer=None):
    return EvaluationPlan(Numbers(scorer), Split.DEV, ITEMS, "base", "c" * 64, "t" * 64, "float32")


class Endpoint(ScriptedSampler):
    """Answers "1" but for the prompts of `bad`; remembers prompts and seeds."""

    def __init__(self, bad=None):
        self.bad, self.asked = bad or {}, []
        super().__init__(lambda messages: self.bad.get(messages[0].content, "1"))

    def submit(self, request_id, prompt, settings):
        self.asked.append((prompt[0].content, settings.seed))
        super().submit(request_id, prompt, settings)


def lines(card):
    return {(record.rollout.item_id, record.rollout.attempt): record for record in iter_rollouts(card)}


def test_only_what_was_lost_is_played_again_with_its_own_seeds(tmp_path):
    card, first = tmp_path / "card", Endpoint({"2": LOST, "4": LOST})
    assert evaluate(plan(), first, card).n_missing == 4
    before = lines(card)
    assert count_lost(card) == 4
    again = Endpoint()
    summary = play_lost(plan(), again, card)
    assert (summary.n_missing, summary.score.value) == (0, 1.0)
    assert sorted(again.asked) == sorted({request for request in first.asked if request[0] in "24"})
    after = lines(card)
    assert {key: after[key] for key in before if key[0] not in ("n2", "n4")} == {
        key: record for key, record in before.items() if key[0] not in ("n2", "n4")
    }
    assert validate_card(card) == [] and read_summary(card).n_missing == 0
    assert "4 rollouts that the infrastructure had lost were played or judged again" in load_card(card).notes
    assert count_lost(card) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["card"]


def test_what_the_model_provoked_is_never_played_again(tmp_path):
    card = tmp_path / "card"
    first = Endpoint({"1": FILTERED, "2": BROKEN})
    summary = evaluate(plan(), first, card)
    assert summary.n_missing == 2, "withheld answers; the broken model scores 0"
    assert [prompt for prompt, _ in first.asked].count("1") == 2, "nor restarted within the evaluation"
    assert count_lost(card) == 0
    assert lines(card)["n1", 0].rollout.is_final is True


def test_a_server_that_is_still_gone_costs_nothing_of_the_card(tmp_path):
    card = tmp_path / "card"
    evaluate(plan(), Endpoint({"2": LOST}), card)
    before = lines(card)
    with pytest.raises(SamplerFailed):
        play_lost(plan(), Endpoint({"2": LOST}), card, give_up_after=50)
    assert lines(card) == before and count_lost(card) == 2
    assert play_lost(plan(), Endpoint(), card, give_up_after=50).n_missing == 0


def test_a_kill_at_any_step_loses_neither_the_old_nor_the_new_card(tmp_path):
    card = tmp_path / "card"
    evaluate(plan(), Endpoint({"2": LOST, "3": LOST}), card)

    class Killed(Exception):
        pass

    def kill(done, planned):
        if done == 10:
            raise Killed

    with pytest.raises(Killed):
        play_lost(plan(), Endpoint(), card, on_progress=kill)
    assert count_lost(card) == 4, "the finished card is untouched"
    rest = Endpoint()
    play_lost(plan(), rest, card)
    assert len(rest.asked) < 4, "what was played before the kill is kept"
    card.rename(tmp_path / ".card.replaced")  # killed between the two renames
    assert count_lost(card) == 0 and read_summary(card).n_missing == 0


def test_verdicts_that_a_judge_could_not_give_are_asked_for_again_and_nothing_is_played(tmp_path):
    card, judge = tmp_path / "card", Judge(down={"n2"})
    assert evaluate(plan(judge), Endpoint(), card).n_missing == 2
    judge.down, judge.asked = set(), []
    model = Endpoint()
    assert play_lost(plan(judge), model, card).n_missing == 0
    assert (model.asked, judge.asked) == ([], ["n2", "n2"])
    assert [path.name for path in tmp_path.iterdir()] == ["card"]


def test_lost_rollouts_of_a_judged_benchmark_are_played_and_judged(tmp_path):
    card, judge = tmp_path / "card", Judge()
    evaluate(plan(judge), Endpoint({"2": LOST}), card)
    judge.asked = []
    model = Endpoint()
    assert play_lost(plan(judge), model, card).n_missing == 0
    assert {prompt for prompt, _ in model.asked} == {"2"} and set(judge.asked) == {"n2"}


def test_the_remains_of_a_deleted_card_are_not_used(tmp_path):
    card = tmp_path / "card"
    evaluate(plan(), Endpoint({"2": LOST, "3": LOST}), card)
    with pytest.raises(SamplerFailed):
        play_lost(plan(), Endpoint({"2": LOST, "3": LOST}), card, give_up_after=50)
    remains = card.with_name(".card.again")
    assert remains.exists()
    other = tmp_path / "other" / "card"
    evaluate(plan(), Endpoint({"0": LOST, "5": "wrong"}), other)
    remains.rename(other.with_name(".card.again"))
    assert play_lost(plan(), Endpoint(), other).score.value == pytest.approx(5 / 6)


def test_a_plan_stays_the_same_evaluation(tmp_path):
    card = tmp_path / "card"
    evaluate(plan(), Endpoint({"2": LOST}), card)
    header = load_card(card).header
    play_lost(plan(), Endpoint(), card)
    assert replace(load_card(card).header, lock={}) == replace(header, lock={})


def verdicts(*outcomes):
    """A judge whose verdicts on item n are `outcomes[n]`; True: right."""

    class Given(Judge):
        def score(self, item, rollout):
            outcome = outcomes[int(item.prompt)]
            return Score(1.0, "right") if outcome is True else Score(None, f"{outcome}", outcome)

        def score_batch(self, batch):
            self.asked += [item.id for item, _ in batch]
            return [self.score(item, rollout) for item, rollout in batch]

    return Given()


def scored(source, target, judge):
    items = {item.id: item for item in ITEMS}
    return score_card(source, target, load_card(source).header, items, judge)


def test_lost_verdicts_alone_are_judged_again_on_a_card_of_verdicts(tmp_path):
    played, card = tmp_path / "played", tmp_path / "judged"
    evaluate(plan(), Endpoint({"5": LOST}), played)
    gone, unreadable = Fault.INFRASTRUCTURE, Fault.JUDGE
    scored(played, card, verdicts(True, gone, unreadable, gone, True, True))
    before = lines(card)
    assert (count_unjudged(card), count_lost(card)) == (4, 6), "two rollouts were never played, and cannot be judged"
    again = verdicts(unreadable, True, True, unreadable, gone, gone)
    assert judge_lost(card, lambda folder: scored(played, folder, again)) == 4
    after = lines(card)
    assert set(again.asked) == {"n1", "n3"}
    for key, record in before.items():
        if key[0] not in ("n1", "n3"):
            assert after[key] == record, key
    assert {after[key].score.value for key in after if key[0] == "n1"} == {1.0}
    assert {after[key].score.fault for key in after if key[0] == "n3"} == {Fault.JUDGE}
    assert validate_card(card) == [] and count_unjudged(card) == 0
    assert judge_lost(card, lambda folder: pytest.fail("nothing is lost")) == 0


def test_a_judge_that_is_still_gone_leaves_the_card_of_verdicts_as_it_is(tmp_path):
    played, card = tmp_path / "played", tmp_path / "judged"
    evaluate(plan(), Endpoint(), played)
    scored(played, card, verdicts(True, Fault.INFRASTRUCTURE, True, True, True, True))
    before = lines(card)

    def gone(folder):
        raise ScoringFailed("no server")

    with pytest.raises(ScoringFailed):
        judge_lost(card, gone)
    assert lines(card) == before and count_unjudged(card) == 2
    card.rename(tmp_path / ".judged.replaced")  # killed between the two renames
    restore_replaced(card)
    assert lines(card) == before
