import base64
import json
from dataclasses import replace

import pytest

from agent2.benchmarks import load_benchmark
from agent2.benchmarks.bridges import BRIDGES
from agent2.benchmarks.bridges.channel import BridgeFailed
from agent2.benchmarks.bridges.episodes import BridgedEpisodes
from agent2.errors import ConfigError, EnvironmentFailed, Fault
from agent2.evaluation.check import EPISODES_PLAYED, check_benchmark, play_items
from agent2.evaluation.engine import Attempt, PlaySettings, play_rollouts
from agent2.models.sources import ScriptedSampler
from agent2.pictures import white_square
from agent2.records import Rollout, RolloutStatus, SamplingSettings, Split, Usage
from bridge_fakes import fake_channel, install_fake_bridge

SECRET = b"s" * 32


@pytest.fixture
def opened(tmp_path, monkeypatch):
    """Makes a benchmark of the fake episodes of a name."""
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    install_fake_bridge("tau2")
    benchmarks = []

    def make(name="counters"):
        benchmarks.append(BridgedEpisodes("tau2", name, channel=fake_channel(tmp_path)))
        return benchmarks[-1]

    yield make
    for benchmark in benchmarks:
        benchmark.close()


def reference(item, world, chat):
    return world.ask_expert()


def play(benchmark, item, messages):
    """What comes back for each message, and the rollout."""
    world = benchmark.environment()
    world.reset(item, 0)
    replies = [world.act(message).observation for message in messages]
    return replies, rollout_of(item, world.state())


def rollout_of(item, state):
    return Rollout(item.id, 0, 0, RolloutStatus.COMPLETED, [], [], None, state, Usage())


def call(n):
    return {"name": "add", "arguments": {"n": n}}


def test_references_score_one_and_silence_nothing(opened):
    benchmark = opened()
    items = benchmark.items(Split.TEST_PRIVATE, 5, SECRET)
    assert [record.score.value for record in play_items(benchmark, items, reference)] == [1.0] * 5
    silent = play_items(benchmark, items, lambda item, world, chat: "")
    assert [record.score.value for record in silent] == [0.0] * 5
    players = benchmark.players()
    foreign = players.random(items)
    assert all(foreign(item, []) != players.oracle(item, []) for item in items)


def test_calls_reach_the_package_and_the_user_answers_words(opened):
    benchmark = opened()
    (item,) = benchmark.items(Split.DEV, 1, None)
    world = benchmark.environment()
    system, user = world.reset(item, 0)
    assert '"name": "add"' in system.text and user.text == item.prompt
    assert world.act(json.dumps([call(2), call(3)])).observation == '["total 2", "total 5"]'
    assert "malformed_call" in world.act('{"name": 7}').observation
    said = world.act("Done.").observation
    assert said.startswith("The functions are now:") and '"undo"' in said and "Now reach" in said
    assert [tool["function"]["name"] for tool in world.offered_tools()] == ["undo"]
    last = world.act("Done.")
    assert last.done and last.observation is None
    state = world.state()
    assert state["moves"] == [{"calls": [call(2), call(3)]}, {"words": "Done."}, {"words": "Done."}]
    assert [record["error"] for record in state["tool_calls"]] == [None, None, "malformed_call"]
    with pytest.raises(EnvironmentFailed, match="the episode is over"):
        world.act("Hello?")


def test_where_a_sampler_offers_functions_they_are_not_listed(opened):
    benchmark = opened()
    (item,) = benchmark.items(Split.DEV, 1, None)
    world = benchmark.environment()
    world.offer_natively()
    assert world.reset(item, 0)[0].text == "Count."
    assert world.act("Done.").observation.startswith("Now reach")


def test_a_process_that_ended_between_two_messages_costs_nothing(opened):
    benchmark = opened()
    (item,) = benchmark.items(Split.DEV, 1, None)
    world = benchmark.environment()
    world.reset(item, 0)
    world.act(json.dumps(call(2)))
    benchmark.close()
    assert world.act(json.dumps(call(3))).observation == "total 5"


@pytest.mark.parametrize("message", ['{"name": "crash", "arguments": {}}', "raise"])
def test_a_message_that_the_package_does_not_survive_loses_the_episode_and_is_not_missing(opened, message):
    benchmark = opened()
    (item,) = benchmark.items(Split.DEV, 1, None)
    world = benchmark.environment()
    world.reset(item, 0)
    assert world.act(message).done
    score = benchmark.scorer().score(item, rollout_of(item, world.state()))
    assert score.value == 0.0 and "cannot take" in score.reason


def test_a_package_that_answers_no_message_is_a_fault_of_the_environment(opened):
    benchmark = opened("mute")
    (item,) = benchmark.items(Split.DEV, 1, None)
    world = benchmark.environment()
    world.reset(item, 0)
    with pytest.raises(EnvironmentFailed, match="the world broke"):
        world.act("Hello.")


GOOD = {"results": ["total 1"], "user": None, "tools": None, "is_over": False}


@pytest.mark.parametrize(
    "lie",
    [
        [],
        {**GOOD, "results": []},
        {**GOOD, "results": ["total 1", "total 2"]},
        {**GOOD, "results": 7},
        {**GOOD, "user": ["Hello."]},
        {**GOOD, "tools": 7},
        {**GOOD, "tools": [{"type": "function"}]},
        {**GOOD, "tools": [{"function": "add"}]},
        {**GOOD, "is_over": "no"},
    ],
)
def test_a_package_whose_answer_has_another_form_is_a_fault_of_the_environment(opened, monkeypatch, lie):
    benchmark = opened()
    (item,) = benchmark.items(Split.DEV, 1, None)
    world = benchmark.environment()
    world.reset(item, 0)
    monkeypatch.setattr(benchmark._channel, "ask", lambda method, **arguments: lie)
    with pytest.raises(EnvironmentFailed, match="as the answer to a message"):
        world.act(json.dumps(call(1)))


@pytest.mark.parametrize("reference", ["", "Done.", "7", '["Done.", 7]', "[" * 100_000])
def test_an_item_whose_reference_is_no_list_of_messages_is_one_clear_error(opened, monkeypatch, reference):
    benchmark = opened()
    ask = benchmark._channel.ask

    def lie(method, **arguments):
        answer = ask(method, **arguments)
        return [{**record, "reference": reference} for record in answer] if method == "items" else answer

    monkeypatch.setattr(benchmark._channel, "ask", lie)
    with pytest.raises(BridgeFailed, match="as an item of counters"):
        benchmark.items(Split.DEV, 1, None)


def test_a_set_whose_figures_are_none_is_one_clear_error(opened, monkeypatch):
    benchmark = opened()
    figures = {"compares": False, "max_tokens": float("inf"), "portions": {"test": 1}}
    monkeypatch.setattr(benchmark._channel, "ask", lambda method, **arguments: figures)
    with pytest.raises(BridgeFailed, match="for counters"):
        benchmark.items(Split.DEV, 1, None)


def test_an_episode_over_which_the_checker_raises_is_wrong_if_it_takes_the_reference(opened):
    benchmark = opened()
    (item,) = benchmark.items(Split.DEV, 1, None)
    _, confusing = play(benchmark, item, ["confuse", "Done."])
    score = benchmark.scorer().score(item, confusing)
    assert score.value == 0.0 and score.views["scorer_failed"] == 1.0 and "takes the reference" in score.reason
    missing = benchmark.scorer().score(item, rollout_of(item, {"answer": "x"}))
    assert missing.value is None and missing.fault is Fault.JUDGE


def test_a_world_that_is_opened_when_it_is_played_gives_its_opening_and_reference_then(opened):
    benchmark = opened("opened")
    items = [item for split in (Split.TEST_PUBLIC, Split.TEST_PRIVATE) for item in benchmark.items(split, 6, SECRET)]
    assert all(item.reference is None and item.payload["opens"] == 1 for item in items)
    played = [item for item in items if item.payload["question"]["number"] != 13]
    records = play_items(benchmark, played, reference)
    assert [record.score.value for record in records] == [1.0] * len(played)
    numbers = [item.payload["question"]["number"] for item in played]
    assert [record.rollout.prompt[1].text for record in records] == [f"Now open: {number}" for number in numbers]
    assert benchmark.players().oracle(played[0], []) == json.dumps(call(numbers[0] + 1))
    world = benchmark.environment()
    broken = replace(played[0], payload={**played[0].payload, "question": {"portion": "test", "number": 13}})
    with pytest.raises(EnvironmentFailed, match="no page"):
        world.reset(broken, 0)


def test_a_set_whose_items_have_no_functions_is_one_clear_error(opened):
    with pytest.raises(BridgeFailed, match="as an item of toolless"):
        opened("toolless").items(Split.DEV, 1, None)


def test_episodes_are_loaded_by_name_and_may_be_long(opened):
    assert opened().max_turns == 9
    benchmark = load_benchmark("tau2:counters")
    assert benchmark.name == "tau2.counters" and load_benchmark("tau2.counters").version == benchmark.version


def test_a_check_plays_a_sample_of_episodes_in_one_process_unless_more_are_asked_for(opened):
    benchmark = opened()
    report = check_benchmark(benchmark, n_played=5)
    assert (report.n_played, sum(report.counts.values())) == (5, 20)
    details = {finding.name: finding.detail for finding in report.checks}
    assert details["reference answers score 1.0"] == "5 of 5"
    assert benchmark._channel.n_starts == 1
    assert check_benchmark(benchmark).n_played == EPISODES_PLAYED == 20


def show_pictures(benchmark, monkeypatch, pictures):
    """The package shows these in its opening and in each reply."""
    ask = benchmark._channel.ask

    def with_pictures(method, **arguments):
        answer = ask(method, **arguments)
        if method == "open":
            return [*answer[:-1], {**answer[-1], "pictures": pictures}]
        return {**answer, "pictures": pictures} if method == "advance" else answer

    monkeypatch.setattr(benchmark._channel, "ask", with_pictures)


def encoded_square():
    return base64.b64encode(white_square()).decode()


def test_pictures_of_a_package_are_in_the_messages_that_a_player_sees_and_in_the_rollout(opened, monkeypatch):
    benchmark = opened("opened")
    items = benchmark.items(Split.DEV, 1, None)
    show_pictures(benchmark, monkeypatch, [encoded_square()])
    seen = []

    def player(item, world, chat):
        seen.append([len(message.pictures or ()) for message in chat])
        return world.ask_expert()

    (record,) = play_items(benchmark, items, player)
    assert record.score.value == 1.0 and seen[:2] == [[0, 1], [0, 1, 0, 1]]
    assert [turn.pictures[0].width if turn.pictures else None for turn in record.rollout.turns] == [32, 32, 32, None]


def test_a_model_of_texts_gets_one_clear_error_before_anything_is_played(opened, monkeypatch):
    benchmark = opened("opened")
    (item,) = benchmark.items(Split.DEV, 1, None)
    show_pictures(benchmark, monkeypatch, [encoded_square()])
    asked = []
    sampler = ScriptedSampler(lambda chat: asked.append(chat) or "Done.")
    sampler.takes_pictures = False
    settings = PlaySettings(SamplingSettings(), max_turns=3)
    with pytest.raises(ConfigError, match="this checkpoint is asked with text alone; name a folder"):
        list(play_rollouts([Attempt(item, 0, 0)], sampler, benchmark.environment, settings))
    assert not asked


@pytest.mark.parametrize("pictures", [7, "x", ["no base64!"], ["aGVsbG8="], [7], [""], ["aGVsbG8="] * 17])
def test_pictures_that_are_none_are_a_fault_of_the_environment(opened, monkeypatch, pictures):
    benchmark = opened("opened")
    (item,) = benchmark.items(Split.DEV, 1, None)
    world = benchmark.environment()
    world.reset(item, 0)
    show_pictures(benchmark, monkeypatch, pictures)
    with pytest.raises(EnvironmentFailed, match="picture"):
        world.act(json.dumps(call(1)))
    with pytest.raises(EnvironmentFailed, match="picture"):
        benchmark.environment().reset(item, 0)


def test_an_observation_is_a_benchmark_of_its_own_and_the_tree_is_unchanged_by_it(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    install_fake_bridge("miniwob", names=["twenty"])
    names = ("twenty", "twenty-screenshot", "twenty-both")
    tree, screenshot, both = (BridgedEpisodes("miniwob", name, channel=fake_channel(tmp_path)) for name in names)
    assert tree.name == "miniwob.twenty" and screenshot.name == "miniwob.twenty-screenshot"
    assert [benchmark.takes_images for benchmark in (tree, screenshot, both)] == [False, True, True]
    assert screenshot.version != tree.version
    assert BRIDGES["miniwob"].observed("twenty") == (
        "twenty",
        BRIDGES["miniwob"],
    )
    assert load_benchmark(screenshot.name).version == load_benchmark("miniwob:twenty-screenshot").version
    with pytest.raises(ConfigError, match="twenty-tree"):
        BridgedEpisodes("miniwob", "twenty-tree", channel=fake_channel(tmp_path))
