import pytest

from agent2.errors import ConfigError, EnvironmentFailed, Fault, SamplerFailed
from agent2.evaluation.engine import Attempt, PlaySettings, play, play_by
from agent2.models.sources import ScriptedSampler
from agent2.records import (
    Completion,
    Item,
    Message,
    Picture,
    RolloutStatus,
    SamplingSettings,
    Score,
    Split,
    Step,
    StopReason,
    derive_seed,
)


class Echo:
    """Asks `n_turns` times and keeps what it was told; breaks in the ways its item's payload says."""

    def __init__(self, broken_worlds):
        self.said = []
        self.broken_worlds = broken_worlds  # shared by the worlds of a test: ids of items whose world broke

    def reset(self, item, seed):
        self.item = item
        self.seed = seed
        self._break("reset")
        return [Message("user", item.prompt)]

    def act(self, action):
        self.said.append(action)
        self._break("act")
        is_over = len(self.said) >= self.item.payload.get("n_turns", 1)
        return Step(None if is_over or self.item.payload.get("silent") else f"heard {action}", is_over)

    def state(self):
        self._break("state")
        return {"answer": self.said[-1], "said": list(self.said)}

    def _break(self, where):
        times = self.item.payload.get(f"break_{where}", 0)
        if self.broken_worlds.count(self.item.id) < times:
            self.broken_worlds.append(self.item.id)
            raise EnvironmentFailed(f"the world broke in {where}")


class Longest:
    name, version = "longest", "1"

    def score(self, item, rollout):
        return Score(1.0 if rollout.answer == item.reference else 0.0, f"answered {rollout.answer!r}")


class LateSampler(ScriptedSampler):
    """Answers only the latest request at each collect, and remembers what it was asked."""

    def __init__(self, reply, capacity=4):
        super().__init__(reply, capacity)
        self.asked = []
        self.most_in_flight = 0

    def submit(self, request_id, prompt, settings):
        super().submit(request_id, prompt, settings)
        self.asked.append((prompt, settings.seed))
        self.most_in_flight = max(self.most_in_flight, len(self._done))

    def collect(self):
        request_id = max(self._done)
        return [(request_id, self._done.pop(request_id))]


def item(name="a", reference="yes", **payload):
    return Item(name, Split.DEV, f"question {name}", reference, payload)


def yes(messages):
    return "yes"


def worlds():
    broken_worlds = []
    return lambda: Echo(broken_worlds)


def play_all(items, sampler=None, scorer=None, max_turns=5, max_in_flight=None, attempts=1):
    plan = (Attempt(item, k, derive_seed(item.id, k)) for k in range(attempts) for item in items)
    settings = PlaySettings(SamplingSettings(temperature=0.5), max_turns, max_in_flight)
    return list(play(plan, sampler or ScriptedSampler(yes), worlds(), scorer or Longest(), settings))


def play_one(item, **how):
    (record,) = play_all([item], **how)
    return record


def test_a_single_turn_is_played_and_scored():
    record = play_one(item())
    rollout = record.rollout
    assert (rollout.status, rollout.answer, rollout.retries, rollout.reason) == (RolloutStatus.COMPLETED, "yes", 0, "")
    assert rollout.prompt == [Message("user", "question a")]
    assert rollout.state == {"answer": "yes", "said": ["yes"]}
    assert [(t.action, t.observation) for t in rollout.turns] == [("yes", None)]
    assert record.score == Score(1.0, "answered 'yes'")


def test_many_turns_go_through_the_same_loop():
    def count(messages):
        return str(len(messages))

    record = play_one(item(reference="5", n_turns=3), sampler=ScriptedSampler(count))
    assert [t.action for t in record.rollout.turns] == ["1", "3", "5"]  # each turn adds a reply and an observation
    assert [t.observation for t in record.rollout.turns] == ["heard 1", "heard 3", None]
    assert record.score.value == 1.0


class ShowsPictures(Echo):
    """Opens with text alone and replies with a picture."""

    def act(self, action):
        step = super().act(action)
        return Step(step.observation, step.done, pictures=(Picture("0" * 64, "image/png", 0, 8, 4, "as-brought"),))


@pytest.mark.parametrize("sees", [False, True])
def test_a_model_of_texts_does_not_go_on_blind_where_a_reply_holds_a_picture(sees):
    sampler = ScriptedSampler(yes)
    sampler.takes_pictures = sees
    attempts = [Attempt(item(n_turns=2), 0, 0)]

    def records():
        return list(play(attempts, sampler, lambda: ShowsPictures([]), Longest(), PlaySettings(SamplingSettings(), 5)))

    if sees:
        assert records()[0].rollout.status is RolloutStatus.COMPLETED
    else:
        with pytest.raises(ConfigError, match="item a has pictures, and this checkpoint is asked with text alone"):
            records()


def test_the_turn_cap_ends_an_episode_and_is_still_scored():
    record = play_one(item(n_turns=9), max_turns=4)
    assert record.rollout.status is RolloutStatus.TURN_CAP
    assert len(record.rollout.turns) == 4
    assert record.score.value == 1.0


def test_every_attempt_is_played_once_whatever_order_the_sampler_answers_in():
    items = [item(str(i), n_turns=1 + i % 3) for i in range(20)]
    sampler = LateSampler(yes, capacity=7)
    records = play_all(items, sampler=sampler, attempts=2)
    assert sorted((r.rollout.item_id, r.rollout.attempt) for r in records) == sorted(
        (item.id, k) for item in items for k in range(2)
    )
    assert all(len(r.rollout.turns) == 1 + int(r.rollout.item_id) % 3 for r in records)
    assert sampler.most_in_flight == 7


def test_a_slow_episode_never_holds_up_the_others():
    records = play_all([item("slow", n_turns=50), *[item(str(i)) for i in range(100)]], max_turns=50, max_in_flight=2)
    finished = [r.rollout.item_id for r in records]
    assert finished.index("slow") > 40
    assert len(finished) == 101


def test_seeds_belong_to_the_attempt_and_turn_and_not_to_the_batch():
    items = [item(str(i), n_turns=2) for i in range(6)]
    seeds = {}
    for in_flight in (1, 6):
        sampler = LateSampler(yes, capacity=6)
        play_all(items, sampler=sampler, max_in_flight=in_flight)
        seeds[in_flight] = {(prompt[0].content, len(prompt)): seed for prompt, seed in sampler.asked}
    assert seeds[1] == seeds[6]
    assert seeds[1]["question 3", 3] == derive_seed(derive_seed("3", 0), 1)
    assert len(set(seeds[1].values())) == 12


def test_attempts_are_pulled_only_when_there_is_room():
    pulled = []

    def attempts():
        for i in range(100):
            pulled.append(i)
            yield Attempt(item(str(i)), 0, i)

    settings = PlaySettings(SamplingSettings(), 1, max_in_flight=3)
    records = play(attempts(), ScriptedSampler(yes), worlds(), Longest(), settings)
    next(records)
    assert len(pulled) == 3


def test_earlier_prompts_are_not_changed_by_later_turns():
    sampler = LateSampler(yes)
    play_all([item(n_turns=3)], sampler=sampler)
    assert [len(prompt) for prompt, _ in sampler.asked] == [1, 3, 5]


@pytest.mark.parametrize("where", ["reset", "act", "state"])
def test_a_world_that_breaks_once_is_begun_anew_and_the_rollout_says_so(where):
    record = play_one(item(n_turns=2, **{f"break_{where}": 1}))
    assert record.rollout.status is RolloutStatus.COMPLETED
    assert record.rollout.retries == 1
    assert record.rollout.reason == f"restarted after this environment fault: the world broke in {where}"
    assert [t.action for t in record.rollout.turns] == ["yes", "yes"]
    assert record.score.value == 1.0


@pytest.mark.parametrize("where", ["reset", "act", "state"])
def test_a_world_that_breaks_twice_gives_a_missing_score_and_not_a_zero(where):
    broken, fine = play_all([item("broken", **{f"break_{where}": 2}), item("fine")], max_in_flight=1)
    assert (broken.rollout.status, broken.rollout.fault) == (RolloutStatus.FAILED, Fault.ENVIRONMENT)
    assert (broken.score.value, broken.score.fault) == (None, Fault.ENVIRONMENT)
    assert f"the world broke in {where}" in broken.score.reason
    assert broken.rollout.retries == 1
    assert fine.score.value == 1.0


def test_a_world_that_goes_on_without_a_word_is_broken():
    record = play_one(item(n_turns=2, silent=True))
    assert record.rollout.fault is Fault.ENVIRONMENT
    assert "continues without an observation" in record.score.reason


def test_a_model_that_breaks_is_not_retried_and_scores_zero_with_the_reason():
    broken = Completion("", stop_reason=StopReason.FAULT, fault=Fault.MODEL, reason="logits are NaN")
    calls = []
    record = play_one(item(), sampler=ScriptedSampler(lambda messages: calls.append(1) or broken))
    assert len(calls) == 1
    assert (record.rollout.status, record.rollout.fault) == (RolloutStatus.FAILED, Fault.MODEL)
    assert (record.score.value, record.score.fault) == (0.0, None)
    assert "logits are NaN" in record.score.reason


def test_an_infrastructure_fault_is_retried_and_its_tokens_stay_in_the_cost():
    replies = [
        Completion("", [1, 2], stop_reason=StopReason.FAULT, fault=Fault.INFRASTRUCTURE, reason="timeout"),
        Completion("yes", [1, 2, 3], prompt_tokens=10),
    ]
    record = play_one(item(), sampler=ScriptedSampler(lambda messages: replies.pop(0)))
    assert record.score.value == 1.0
    assert record.rollout.retries == 1
    assert (record.rollout.usage.prompt_tokens, record.rollout.usage.completion_tokens) == (10, 5)


class BrokenSampler(LateSampler):
    """Raises at the first `n_broken` collects and still delivers what was lost, late."""

    def __init__(self, n_broken):
        super().__init__(yes)
        self.n_broken = n_broken

    def collect(self):
        if self.n_broken:
            self.n_broken -= 1
            raise SamplerFailed("out of memory")
        return super().collect()


def test_a_sampler_that_breaks_once_loses_no_attempt_and_late_answers_are_not_used():
    records = play_all([item(str(i)) for i in range(10)], sampler=BrokenSampler(1))
    assert sorted(int(r.rollout.item_id) for r in records) == list(range(10))
    assert all(r.score.value == 1.0 for r in records)
    assert sum(r.rollout.retries for r in records) == 4  # those that were in flight


def test_a_sampler_that_stays_broken_gives_missing_scores():
    records = play_all([item(str(i)) for i in range(10)], sampler=BrokenSampler(100))
    assert [(r.score.value, r.score.fault) for r in records] == [(None, Fault.INFRASTRUCTURE)] * 10
    assert "out of memory" in records[0].score.reason


def test_a_sampler_that_returns_nothing_does_not_hang_the_engine():
    class Mute(ScriptedSampler):
        def collect(self):
            self._done.clear()
            return []

    record = play_one(item(), sampler=Mute(yes))
    assert record.score.fault is Fault.INFRASTRUCTURE
    assert "returned nothing with 1 requests in flight" in record.score.reason


def test_a_sampler_that_refuses_a_request_is_an_infrastructure_fault():
    class Refusing(ScriptedSampler):
        def submit(self, request_id, prompt, settings):
            raise SamplerFailed("the prompt is longer than the context")

    record = play_one(item(), sampler=Refusing(yes))
    assert (record.score.value, record.score.fault) == (None, Fault.INFRASTRUCTURE)
    assert "longer than the context" in record.score.reason


def test_an_answer_to_a_request_never_made_stops_the_evaluation():
    class Confused(ScriptedSampler):
        def collect(self):
            return [(request + 100, done) for request, done in super().collect()]

    with pytest.raises(SamplerFailed, match="request 100"):
        play_one(item(), sampler=Confused(yes))


class FlakyScorer(Longest):
    def __init__(self, n_broken, verdict=None):
        self.n_broken = n_broken
        self.verdict = verdict

    def score(self, item, rollout):
        if self.n_broken:
            self.n_broken -= 1
            if self.verdict is None:
                raise ZeroDivisionError("judge fell over")
            return self.verdict
        return super().score(item, rollout)


def test_a_scorer_that_raises_twice_is_a_judge_fault_and_costs_nobody_else():
    first, second = play_all([item("a"), item("b")], scorer=FlakyScorer(2), max_in_flight=1)
    assert (first.score.value, first.score.fault) == (None, Fault.JUDGE)
    assert "ZeroDivisionError: judge fell over" in first.score.reason
    assert first.rollout.status is RolloutStatus.COMPLETED
    assert second.score.value == 1.0


def test_a_scorer_that_raises_once_judges_again_and_says_so():
    record = play_one(item(), scorer=FlakyScorer(1))
    assert record.score.value == 1.0
    assert "judged twice" in record.score.reason
    assert "judge fell over" in record.score.reason


@pytest.mark.parametrize(
    "verdict",
    [Score(float("nan"), ""), Score(1.5, ""), Score(-0.1, ""), Score(None, "no idea"), Score(1.0, "", Fault.JUDGE)],
)
def test_a_verdict_that_is_no_score_is_a_judge_fault(verdict):
    record = play_one(item(), scorer=FlakyScorer(2, verdict))
    assert (record.score.value, record.score.fault) == (None, Fault.JUDGE)


@pytest.mark.parametrize("verdict", [0.5, "right", Score("high", "")])
def test_a_verdict_of_another_type_is_a_judge_fault(verdict):
    record = play_one(item(), scorer=FlakyScorer(2, verdict))
    assert (record.score.value, record.score.fault) == (None, Fault.JUDGE)
    assert "Error:" in record.score.reason


def test_a_missing_reference_is_missing_whatever_the_answer():
    record = play_one(item(), scorer=FlakyScorer(9, Score(None, "no reference", Fault.JUDGE)))
    assert (record.score.value, record.score.fault) == (None, Fault.JUDGE)
    assert "no reference" in record.score.reason


def test_seconds_run_from_the_first_request_to_the_last_reply():
    ticks = iter(range(100))
    plan = [Attempt(item(n_turns=2), 0, 0)]
    settings = PlaySettings(SamplingSettings(), 5)
    (record,) = play(plan, ScriptedSampler(yes), worlds(), Longest(), settings, clock=lambda: float(next(ticks)))
    assert record.rollout.usage.seconds == 1.0


@pytest.mark.parametrize("how", [{"max_in_flight": 0}, {"max_turns": 0}, {"max_turns": -2}])
def test_settings_without_room_are_refused(how):
    ((name, value),) = how.items()
    with pytest.raises(ConfigError, match=f"{name}={value}; set it to at least 1"):
        play_all([item()], **how)


def test_nothing_to_play_is_nothing_played():
    assert play_all([]) == []


def play_timed(item, seconds_a_look, **settings):
    """One item, with a clock that moves on at each look."""
    looks = iter(range(10_000))
    chosen = PlaySettings(SamplingSettings(), 20, **settings)
    attempts, clock = [Attempt(item, 0, 1)], (lambda: seconds_a_look * next(looks))
    (record,) = play(attempts, ScriptedSampler(yes), worlds(), Longest(), chosen, clock)
    return record


def test_a_rollout_that_takes_too_long_is_ended_marked_and_scored_as_it_stood():
    record = play_timed(item(n_turns=10), 1.0, max_wall_time_s=2.5)
    assert (record.rollout.status, len(record.rollout.turns)) == (RolloutStatus.TIME_CAP, 3)
    assert record.score.value == 1.0, "how it counts is the reporting rule's affair"


def test_a_last_message_that_comes_too_late_is_marked_too():
    assert play_timed(item(n_turns=1), 10.0, max_wall_time_s=5.0).rollout.status is RolloutStatus.TIME_CAP
    assert play_timed(item(n_turns=1), 10.0, max_wall_time_s=15.0).rollout.status is RolloutStatus.COMPLETED


def test_the_number_of_retries_is_a_setting():
    once = play_timed(item(break_act=2), 0.0).rollout
    twice = play_timed(item(break_act=2), 0.0, retries=2).rollout
    never = play_timed(item(break_act=1), 0.0, retries=0).rollout
    assert (once.status, once.retries) == (RolloutStatus.FAILED, 1)
    assert (twice.status, twice.retries) == (RolloutStatus.COMPLETED, 2)
    assert (never.status, never.retries) == (RolloutStatus.FAILED, 0)


def test_tokens_are_counted_from_a_sampler_that_knows_no_ids():
    record = play_one(item(n_turns=2), sampler=ScriptedSampler(lambda messages: Completion("yes", n_tokens=7)))
    assert record.rollout.usage.completion_tokens == 14


class Elsewhere(Echo):
    """Calls in two halves; remembers their order over all worlds."""

    def __init__(self, broken_worlds, calls):
        super().__init__(broken_worlds)
        self.calls = calls

    def _note(self, half):
        self.calls.append((half, self.item.id))

    def begin(self, item, seed):
        self.item, self.seed = item, seed
        self._note("begin")
        self._break("begin")

    def begun(self):
        self._note("begun")
        return self.reset(self.item, self.seed)

    def begin_act(self, action):
        self._note("begin_act")
        self._break("begin_act")
        self.action = action

    def acted(self):
        self._note("acted")
        return self.act(self.action)


def play_elsewhere(items, capacity=4, max_turns=5):
    broken_worlds, calls = [], []
    records = play(
        (Attempt(item, 0, 1) for item in items),
        ScriptedSampler(yes, capacity),
        lambda: Elsewhere(broken_worlds, calls),
        Longest(),
        PlaySettings(SamplingSettings(), max_turns),
    )
    return list(records), calls


def test_worlds_elsewhere_are_all_told_before_any_is_asked():
    items = [item(name, n_turns=2) for name in "abcd"]
    records, calls = play_elsewhere(items)
    assert [r.score.value for r in records] == [1.0] * 4
    assert [half for half, _ in calls] == (["begin"] * 4 + ["begun"] * 4) + 2 * (["begin_act"] * 4 + ["acted"] * 4)


def test_every_world_elsewhere_that_was_told_is_asked_before_anything_else_is_told():
    """Worlds may share a pipe whose answers come in order."""
    records, calls = play_elsewhere([item(str(i), n_turns=1 + i % 3) for i in range(100)], capacity=50)
    assert len(records) == 100
    pending = []
    for half, name in calls:
        if half in ("begin", "begin_act"):
            pending.append(name)
        else:
            assert pending.pop(0) == name
    assert pending == []


@pytest.mark.parametrize("half", ["begin", "reset", "begin_act", "act", "state"])
def test_a_world_elsewhere_that_breaks_in_either_half_is_begun_anew_once(half):
    items = [item("broken", **{f"break_{half}": 1}), item("lost", **{f"break_{half}": 2}), item("well")]
    records, _ = play_elsewhere(items)
    by_id = {r.rollout.item_id: r for r in records}
    assert (by_id["broken"].rollout.retries, by_id["broken"].score.value) == (1, 1.0)
    assert f"broke in {half}" in by_id["broken"].rollout.reason
    assert (by_id["lost"].rollout.fault, by_id["lost"].score.value) == (Fault.ENVIRONMENT, None)
    assert (by_id["well"].rollout.retries, by_id["well"].score.value) == (0, 1.0)


def test_the_token_budget_of_an_episode_caps_turns_and_ends_it():
    limits = []

    class Counting(ScriptedSampler):
        def submit(self, request_id, prompt, settings):
            limits.append(settings.max_tokens)
            super().submit(request_id, prompt, settings)

    sampler = Counting(lambda messages: Completion("yes", n_tokens=min(4, limits[-1])))
    settings = PlaySettings(SamplingSettings(max_tokens=5), max_turns=9, max_episode_tokens=10)
    (record,) = play([Attempt(item(n_turns=9), 0, 1)], sampler, worlds(), Longest(), settings)
    assert limits == [5, 5, 2]
    assert record.rollout.status is RolloutStatus.TOKEN_CAP
    assert record.rollout.reason == "ended: the budget of 10 tokens is spent"
    assert record.score.value is not None, "scored as it stood"


def test_a_player_sees_its_own_attempt_and_world_after_a_restart_too():
    make_world, visits = worlds(), []

    def player(attempt, world, chat):
        assert world.item is attempt.item and world.seed == attempt.seed
        visits.append((attempt.item.id, len(chat), len(world.said)))
        return attempt.item.reference

    items = [item("a", "x", n_turns=2, break_act=1), item("b", "y")]
    rollouts = [rollout for _, rollout in play_by(player, [Attempt(i, 0, 5) for i in items], make_world, 3)]
    assert visits == [("a", 1, 0), ("a", 1, 0), ("a", 3, 1), ("b", 1, 0)]
    assert [(rollout.answer, rollout.retries) for rollout in rollouts] == [("x", 1), ("y", 0)]


def test_a_player_that_returns_no_text_is_refused():
    with pytest.raises(ConfigError, match="the player returned 7; return a str"):
        list(play_by(lambda *_: 7, [Attempt(item(), 0, 0)], worlds(), 1))


def test_tokens_that_are_not_known_of_one_message_are_not_known_of_the_rollout():
    counts = iter([(3, 2), (None, None)])

    def reply(messages):
        n_prompt, n_new = next(counts)
        return Completion("yes", prompt_tokens=n_prompt, n_tokens=n_new)

    record = play_one(item(n_turns=2), sampler=ScriptedSampler(reply, capacity=1))
    assert [turn.completion_tokens for turn in record.rollout.turns] == [2, None]
    assert (record.rollout.usage.prompt_tokens, record.rollout.usage.completion_tokens) == (None, None)
    assert record.rollout.usage.tokens is None
