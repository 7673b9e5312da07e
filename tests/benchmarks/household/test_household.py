import pytest

from agent2.benchmarks import load_benchmark
from agent2.benchmarks.household import HOUSEHOLD_PLAYERS, expert, layout_key
from agent2.contract.measure_rules import number_of, parse_measure
from agent2.environments.household.game import TASK_TYPES, Game
from agent2.environments.household.world import (
    ADMISSIBLE_MARK,
    REPLIES,
    HouseholdFaultKind,
    HouseholdSettings,
    HouseholdWorld,
)
from agent2.errors import ConfigError
from agent2.evaluation.engine import Attempt, PlaySettings, play
from agent2.models.sources import ScriptedSampler
from agent2.records import HIDDEN_SPLITS, Message, RolloutStatus, Split
from household_builders import SECRET

pytestmark = pytest.mark.engine


def items_of(name, split, n):
    return load_benchmark(name).items(split, n, SECRET if split in HIDDEN_SPLITS else None)


def play_items(benchmark, items, reply, environment=None):
    settings = PlaySettings(benchmark.sampling, benchmark.max_turns)
    attempts = [Attempt(item, 0, seed) for seed, item in enumerate(items)]
    make = environment or benchmark.environment
    return list(play(attempts, ScriptedSampler(reply, capacity=1), make, benchmark.scorer(), settings))


def test_items_are_the_same_again_and_hidden_ones_need_the_secret():
    benchmark = load_benchmark("household")
    assert benchmark.items(Split.TRAIN, 5, None) == load_benchmark("household").items(Split.TRAIN, 5, None)
    with pytest.raises(ConfigError, match="needs the installation secret"):
        benchmark.items(Split.TEST_PRIVATE, 1, None)
    mine, theirs = (benchmark.items(Split.TEST_PRIVATE, 20, secret) for secret in (SECRET, b"another"))
    assert not {item.id for item in mine} & {item.id for item in theirs}


def test_no_split_has_a_layout_with_the_same_goal_as_another():
    keys = {split: {key_of(item) for item in items_of("household", split, 100)} for split in Split}
    for first in Split:
        for second in Split:
            assert first is second or not keys[first] & keys[second]


def key_of(item):
    return layout_key(Game.from_payload(item.payload["game"]))


def test_a_layout_is_known_again_by_its_game_wherever_things_lie_and_however_the_goal_is_worded():
    game = Game(
        "pick_and_place_simple", "put a mug on shelf", "(:init (receptacleType Shelf_1 ShelfType))\n(:goal (a))"
    )
    moved = Game("pick_and_place_simple", "put some mug on shelf", f"(inReceptacle x y) {game.problem}")
    assert layout_key(game) == layout_key(moved)
    assert layout_key(game) != layout_key(Game(game.task_type, game.goal, game.problem.replace("(a)", "(b)")))


@pytest.mark.parametrize(("name", "n_types"), [("household", 4), ("household_small", 6), ("household_full", 6)])
def test_every_size_has_its_task_types_and_the_expert_wins_its_games(name, n_types):
    benchmark, items = load_benchmark(name), items_of(name, Split.DEV, 40)
    assert {item.payload["task_type"] for item in items} <= set(TASK_TYPES)
    assert len({item.payload["task_type"] for item in items}) == n_types
    results = play_items(benchmark, items[:6], lambda chat: expert(None, chat))
    assert sum(scored.score.value for scored in results) >= 5


def test_the_opening_of_an_item_is_what_the_world_says_first():
    benchmark = load_benchmark("household")
    for item in items_of("household", Split.DEV, 3):
        assert [message.content for message in benchmark.environment().reset(item, 0)] == [item.prompt]


def test_a_row_of_the_workspace_can_be_played_and_holds_no_way_to_win():
    benchmark = load_benchmark("household")
    item = items_of("household", Split.TRAIN, 1)[0]
    row = benchmark.visible_row(item)
    assert set(row) == {"id", "prompt", "task_type", "game"}
    assert "walkthrough" not in str(row)
    (again,) = play_items(benchmark, [benchmark.item_of(row)], lambda chat: expert(None, chat))
    (first,) = play_items(benchmark, [item], lambda chat: expert(None, chat))
    assert again.rollout == first.rollout.__class__(**{**fields_of(first.rollout), "usage": again.rollout.usage})
    assert all(turn.action not in str(row).lower() for turn in first.rollout.turns)


def fields_of(rollout):
    return {name: getattr(rollout, name) for name in rollout.__struct_fields__}


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"id": "x"}, "has no prompt, task_type, game"),
        ({"id": "x", "prompt": "", "task_type": "", "game": 3}, "row 'x'"),
    ],
)
def test_a_row_that_is_no_game_is_refused(row, sentence):
    with pytest.raises(ConfigError, match=sentence):
        load_benchmark("household").item_of(row)


def test_a_model_that_never_ends_its_turn_loses_at_the_turn_cap():
    benchmark = load_benchmark("household")
    (scored,) = play_items(benchmark, items_of("household", Split.DEV, 1), lambda chat: "go to " * 30)
    assert scored.rollout.status is RolloutStatus.TURN_CAP
    assert scored.score.value == 0.0
    assert scored.score.views["invalid_share"] == 1.0
    assert len(scored.rollout.turns) == benchmark.max_turns


def test_the_random_player_draws_from_what_is_possible_and_hardly_ever_wins():
    benchmark = load_benchmark("household")
    items = items_of("household", Split.DEV, 30)
    player = HOUSEHOLD_PLAYERS.random(items)
    results = play_items(
        benchmark,
        items,
        lambda chat: player(items[0], chat),
        lambda: HouseholdWorld(HouseholdSettings(show_admissible=True, max_turns=benchmark.max_turns)),
    )
    assert sum(scored.score.value for scored in results) <= 3
    assert all(scored.score.views["invalid_share"] == 0.0 for scored in results)


def test_the_random_player_draws_each_listed_command_by_item_and_chat():
    items = items_of("household", Split.DEV, 2)
    player = HOUSEHOLD_PLAYERS.random(items)
    chat = [Message("user", f"a room{ADMISSIBLE_MARK}go to bed 1, look, inventory")]
    assert player(items[0], chat) == HOUSEHOLD_PLAYERS.random(items)(items[0], chat)
    commands = {player(items[0], [Message("user", str(n)), *chat]) for n in range(40)}
    assert commands == {"go to bed 1", "look", "inventory"}


RECOVERY = "ratio:tool_errors_recovered/tool_errors"


def careful(chat):
    """The expert, who after a denial or an empty reply looks around, and then goes on with what had failed."""
    if chat[-1].content in (REPLIES[HouseholdFaultKind.PERMISSION_DENIED], REPLIES[HouseholdFaultKind.EMPTY_RESULT]):
        return "look"
    if len(chat) > 3 and chat[-3].content == REPLIES[HouseholdFaultKind.PERMISSION_DENIED]:
        return chat[-4].content
    return expert(None, chat)


def stunned(chat):
    """The expert until something fails, then nothing but nonsense."""
    return "dance" if any(message.content in REPLIES.values() for message in chat) else expert(None, chat)


def measured(results, name):
    """A suite's measure over rollouts of one attempt each: sum of the numbers over sum of the wholes."""
    rule = parse_measure(name)
    pairs = [number_of(rule, scored, scored.score.value) for scored in results]
    return sum(number for number, _ in pairs) / sum(whole for _, whole in pairs)


def test_faulty_games_tell_a_player_that_recovers_from_one_that_does_not():
    benchmark, items = load_benchmark("household_faulty"), items_of("household_faulty", Split.DEV, 60)
    results = {player: play_items(benchmark, items, player) for player in (careful, stunned)}
    assert measured(results[careful], RECOVERY) == 1.0
    assert measured(results[stunned], RECOVERY) == 0.0
    assert 0.1 < measured(results[careful], "any:tool_errors") < 0.5
    assert measured(results[careful], "score") > measured(results[stunned], "score") + 0.1
    met = {turn.observation for scored in results[careful] for turn in scored.rollout.turns} & set(REPLIES.values())
    assert met == set(REPLIES.values())
    lost = [scored for scored in results[stunned] if scored.score.views["tool_errors"]]
    assert all("household_fault_no_recovery" in scored.score.labels for scored in lost)


def test_variants_play_the_same_games_under_a_protocol_of_their_own():
    names = ("household", "household_faulty", "household_listed")
    assert items_of(names[0], Split.DEV, 5) == items_of(names[1], Split.DEV, 5) == items_of(names[2], Split.DEV, 5)
    benchmarks = [load_benchmark(name) for name in names]
    assert len({benchmark.environment_version() for benchmark in benchmarks}) == 3
    assert [benchmark.tool_protocol["fault_rate"] for benchmark in benchmarks] == [0.0, 0.3, 0.0]
    assert [benchmark.tool_protocol["show_admissible"] for benchmark in benchmarks] == [False, False, True]


def test_listed_games_name_the_possible_commands_after_every_observation():
    benchmark = load_benchmark("household_listed")
    items = items_of("household_listed", Split.DEV, 10)
    player = HOUSEHOLD_PLAYERS.random(items)
    results = play_items(benchmark, items, lambda chat: player(items[0], chat))
    assert all(scored.score.views["invalid_share"] == 0.0 for scored in results)
    going_on = [turn for scored in results for turn in scored.rollout.turns[:-1]]
    assert all(ADMISSIBLE_MARK in turn.observation for turn in going_on)
