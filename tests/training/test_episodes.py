from typing import ClassVar

import pytest

from agent2.errors import EnvironmentFailed, Fault, SamplerFailed
from agent2.evaluation.engine import Attempt, PlaySettings
from agent2.models.hf import HfSampler
from agent2.models.loading import load_model, load_tokenizer
from agent2.records import Completion, Message, SamplingSettings, Step, StopReason
from agent2.training.episodes import ChatTokens, Ending, play_episodes
from episode_builders import Hunt, make_items, make_player

CONTEXT = 256


def settings(max_turns=3, in_flight=None):
    return PlaySettings(SamplingSettings(temperature=1.0, max_tokens=6), max_turns, in_flight, needs_sampler=True)


@pytest.fixture(scope="module")
def player(tmp_path_factory):
    folder = make_player(tmp_path_factory.mktemp("player"))
    return load_model(folder, "float32", "cpu"), load_tokenizer(folder)


def starts(n=24):
    items = make_items()
    return [Attempt(items[i % 12], i, seed=i, world_seed=0) for i in range(n)]


def played_by(player, n=24, make=Hunt, max_turns=3, context=CONTEXT, max_batch=64, in_flight=64):
    sampler = HfSampler.from_model(*player, max_batch=max_batch)
    return play_episodes(starts(n), sampler, ChatTokens(player[1]), make, settings(max_turns, in_flight), context)


class Scripted:
    """A sampler that says what it is told, whatever it is asked."""

    capacity = 8

    def __init__(self, tokenizer, *completions):
        self.tokenizer, self.completions, self.asked = tokenizer, list(completions), []

    def submit(self, request_id, prompt, settings):
        self.asked.append((request_id, list(prompt), settings))

    def collect(self):
        request_id, _, _ = self.asked[-1]
        return [(request_id, self.completions.pop(0))]


def sampled_message(tokenizer, text, *, ended=True):
    ids = tokenizer(text, add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id] * ended
    stop = StopReason.END if ended else StopReason.LENGTH
    return Completion(text, tuple(ids), tuple([-0.5] * len(ids)), stop)


def test_every_episode_comes_back_in_order_and_its_tokens_are_the_conversation(player):
    tokenizer = player[1]
    batch = played_by(player)
    assert [e.rollout.seed for e in batch.episodes] == list(range(24))
    assert {e.ending for e in batch.episodes} == {Ending.COMPLETED, Ending.TURN_CAP}
    for episode in batch.episodes:
        assert len(episode.completion_ids) == len(episode.is_sampled) == len(episode.logprobs)
        sampled_ids = [
            t for t, is_sampled in zip(episode.completion_ids, episode.is_sampled, strict=True) if is_sampled
        ]
        assert tokenizer.decode(sampled_ids, skip_special_tokens=True) == "".join(episode.actions)
        assert all(
            p == 0.0 for p, is_sampled in zip(episode.logprobs, episode.is_sampled, strict=True) if not is_sampled
        )
        text = tokenizer.decode([*episode.prompt_ids, *episode.completion_ids])
        assert text.startswith(f"<|user|>{episode.item.prompt}<|assistant|>{episode.actions[0]}")
        assert 1 <= len(episode.actions) <= 3
    assert batch.environment_s > 0 and batch.generation_s > 0


def test_an_episode_does_not_depend_on_what_is_played_beside_it(player):
    together = [(e.actions, e.ending) for e in played_by(player).episodes]
    alone = [(e.actions, e.ending) for e in played_by(player, max_batch=2, in_flight=3).episodes]
    assert sum(a == b for a, b in zip(together, alone, strict=True)) >= 23


def test_a_message_cut_off_is_told_to_the_world_and_ended_by_us_not_by_the_model(player):
    tokenizer = player[1]
    sampler = Scripted(tokenizer, sampled_message(tokenizer, "go", ended=False), sampled_message(tokenizer, "go box"))
    item = next(i for i in make_items() if i.payload["place"] == "box")
    batch = play_episodes([Attempt(item, 0, 0)], sampler, ChatTokens(tokenizer), Hunt, settings(), CONTEXT)
    episode = batch.episodes[0]
    assert episode.actions == ["go", "go box"] and episode.ending is Ending.COMPLETED
    assert episode.n_unterminated == 1 and not episode.last_is_unterminated
    assert "go<|end|><|user|>what?<|assistant|>" in tokenizer.decode(episode.completion_ids)
    n_go = len(tokenizer("go", add_special_tokens=False)["input_ids"])
    assert episode.is_sampled[: n_go + 1] == [True] * n_go + [False]
    assert sampler.asked[1][1] == [*episode.prompt_ids, *episode.completion_ids[: -len(sampler_ids(episode))]]


def sampler_ids(episode):
    """The ids of the last message."""
    count = 0
    for is_sampled in reversed(episode.is_sampled):
        if not is_sampled:
            break
        count += 1
    return episode.completion_ids[-count:]


def test_an_episode_ends_where_the_context_has_no_room(player):
    batch = played_by(player, context=22)
    ended = {e.ending for e in batch.episodes}
    assert Ending.CONTEXT in ended
    assert all(e.n_tokens <= 22 + 20 for e in batch.episodes)


def test_an_opening_that_fills_the_context_is_refused(player):
    with pytest.raises(SamplerFailed, match="leaves no room for a message of 6"):
        played_by(player, context=8)


class Fragile(Hunt):
    """Breaks in its second turn, as often as it is told to."""

    breaks = 0

    def act(self, action):
        if Fragile.breaks and action:
            Fragile.breaks -= 1
            raise EnvironmentFailed("the floor gave way")
        return super().act(action)


def test_a_world_that_breaks_once_is_begun_anew_and_says_so(player):
    Fragile.breaks = 1
    episodes = played_by(player, n=4, make=Fragile).episodes
    retried = [e for e in episodes if e.rollout.retries]
    assert len(retried) == 1 and retried[0].ending is not Ending.FAILED
    assert retried[0].rollout.reason == "restarted after this environment fault: the floor gave way"
    assert len(retried[0].completion_ids) == len(retried[0].is_sampled)


def test_a_world_that_breaks_twice_is_an_episode_without_a_reward(player):
    Fragile.breaks = 2
    episode = played_by(player, n=1, make=Fragile).episodes[0]
    assert episode.ending is Ending.FAILED and episode.rollout.retries == 1
    assert not any(episode.is_sampled) and episode.completion_ids


def test_a_policy_without_numbers_stops_the_run(player):
    broken = Completion("", stop_reason=StopReason.FAULT, fault=Fault.MODEL, reason="the logits are not numbers")
    sampler = Scripted(player[1], broken)
    with pytest.raises(SamplerFailed, match="not numbers; the policy cannot be drawn from any more"):
        play_episodes(starts(1), sampler, ChatTokens(player[1]), Hunt, settings(), CONTEXT)


def test_a_sampler_without_log_probabilities_is_refused(player):
    sampler = Scripted(player[1], Completion("go box"))
    with pytest.raises(SamplerFailed, match="needs the sampled tokens and their log-probabilities"):
        play_episodes(starts(1), sampler, ChatTokens(player[1]), Hunt, settings(), CONTEXT)


class Capped(Hunt):
    """Refuses a third turn, as household games do beyond their own cap."""

    max_turns = 2

    def __init__(self):
        super().__init__()
        self.n_turns = 0

    def act(self, action):
        self.n_turns += 1
        if self.n_turns > self.max_turns:
            raise EnvironmentFailed("beyond the cap")
        return super().act(action)


def test_a_world_with_a_lower_cap_than_the_settings_loses_no_losses(player):
    episodes = played_by(player, make=Capped).episodes
    same = played_by(player, max_turns=2).episodes
    assert {e.ending for e in episodes} == {Ending.COMPLETED, Ending.TURN_CAP}
    assert [(e.actions, e.ending, e.rollout.retries) for e in episodes] == [(e.actions, e.ending, 0) for e in same]


class Elsewhere(Hunt):
    """Works elsewhere; tells which halves of its calls came in which order."""

    calls: ClassVar[list[str]] = []

    def begin(self, item, seed):
        Elsewhere.calls.append("begin")
        self.start = item, seed

    def begun(self):
        Elsewhere.calls.append("begun")
        return self.reset(*self.start)

    def begin_act(self, action):
        Elsewhere.calls.append("begin_act")
        self.action = action

    def acted(self):
        Elsewhere.calls.append("acted")
        return self.act(self.action)


def test_worlds_elsewhere_work_side_by_side_and_play_the_same_episodes(player):
    Elsewhere.calls.clear()
    remote = played_by(player, n=8, make=Elsewhere).episodes
    assert Elsewhere.calls[:16] == ["begin"] * 8 + ["begun"] * 8
    assert "begin_act begin_act begin_act acted acted acted" in " ".join(Elsewhere.calls)
    assert [(e.completion_ids, e.logprobs, e.state) for e in remote] == [
        (e.completion_ids, e.logprobs, e.state) for e in played_by(player, n=8).episodes
    ]


class Silent(Hunt):
    def act(self, action):
        return Step(None, done=False)


def test_a_world_that_goes_on_without_a_word_has_failed(player):
    episode = played_by(player, n=1, make=Silent).episodes[0]
    assert episode.ending is Ending.FAILED and "without an observation" in episode.rollout.reason


def test_the_opening_of_a_world_is_what_the_model_reads(player):
    class Greets(Hunt):
        def reset(self, item, seed):
            super().reset(item, seed)
            return [Message("user", "good morning")]

    episode = played_by(player, n=1, make=Greets).episodes[0]
    assert player[1].decode(episode.prompt_ids) == "<|user|>good morning<|assistant|>"
