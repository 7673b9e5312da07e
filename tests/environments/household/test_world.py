import random

import pytest

from agent2.environments.household.engine import NOTHING_HAPPENS
from agent2.environments.household.world import (
    ADMISSIBLE_MARK,
    MAX_FACTS,
    THOUGHT_REPLY,
    ActionProtocol,
    HouseholdFaults,
    HouseholdSettings,
    HouseholdWorld,
    command_of,
)
from agent2.errors import ConfigError, EnvironmentFailed
from agent2.records import Message
from household_games import game_item, games

pytestmark = pytest.mark.engine

CHAT = HouseholdSettings()
REACT = HouseholdSettings(protocol=ActionProtocol.REACT)


def started_world(settings=CHAT, number=0, seed=0, **payload):
    world = HouseholdWorld(settings)
    world.reset(game_item(games(number + 1)[number], **payload), seed)
    return world


def won_by_expert(world, n_turns=50):
    for _ in range(n_turns):
        step = world.act(world.ask_expert())
        if step.done:
            return True
    return False


def test_the_opening_is_one_user_message_with_room_and_task():
    opening = HouseholdWorld(CHAT).reset(game_item(games(1)[0]), 0)
    (message,) = opening
    assert message.role == "user"
    assert message.content.startswith("You are in the middle of a room. Looking quickly around you, you see a ")
    assert "\n\nYour task is to: " in message.content


def test_an_items_own_opening_takes_the_observation():
    opening = [{"role": "system", "content": "Play {x}."}, {"role": "user", "content": "Example.\n{observation}\n>"}]
    chat, react = (
        HouseholdWorld(settings).reset(game_item(games(1)[0], opening=opening), 0) for settings in (CHAT, REACT)
    )
    assert chat[0] == Message("system", "Play {x}.")
    assert chat[1].content.startswith("Example.\nYou are in the middle")
    assert "\n\nYour task" in chat[1].content and "\n\nYour task" not in react[1].content
    assert react[1].content.endswith(".\n>")


def test_expert_wins_and_the_state_says_so():
    world = started_world()
    assert won_by_expert(world)
    state = world.state()
    assert state["won"] is True and state["answer"] is None
    assert state["task_type"] == games(1)[0].task_type
    assert state["n_invalid"] == 0 and state["n_turns"] == state["n_asked"] > 0
    assert 0 < len(state["goal_facts"]) <= MAX_FACTS
    assert all("(" in fact and not fact.startswith("not_") for fact in state["goal_facts"])


def test_goal_facts_tell_where_the_target_is():
    world = started_world()
    before = world.state()["goal_facts"]
    while not (command := world.ask_expert()).startswith("take"):
        world.act(command)
    world.act(command)
    target = command.split(" from ")[0].removeprefix("take ")
    assert f"holds(agent1, {target})" in world.state()["goal_facts"]
    assert f"holds(agent1, {target})" not in before


def test_same_item_seed_and_actions_give_the_same_episode():
    def play():
        world, rng = started_world(HouseholdSettings(faults=HouseholdFaults(rate=1.0))), random.Random(5)
        return [world.act(rng.choice([*world.admissible(), "jump"])) for _ in range(20)], world.state()

    assert play() == play()


@pytest.mark.parametrize("action", ["", "   \n ", "x" * 10_000, "dance\nlook", "take", "\x00", "go to \ud800"])
def test_a_foolish_action_is_answered_and_counted(action):
    world = started_world()
    step = world.act(action)
    assert (step.observation, step.done) == (NOTHING_HAPPENS, False)
    assert (world.state()["n_invalid"], world.state()["n_turns"]) == (1, 1)


def test_case_blanks_and_further_lines_do_not_matter():
    command = next(command for command in started_world().admissible() if command.startswith("go to"))
    plain = started_world().act(command)
    for action in (f"  {command.upper()}  ", f"{command}\nand then I win", f"\n{command}"):
        assert started_world().act(action) == plain


def test_react_actions_may_begin_with_a_prompt_sign_and_thoughts_cost_a_turn():
    world = started_world(REACT)
    assert world.act("> think: where is it?").observation == THOUGHT_REPLY
    assert world.act("Think: hm").observation == THOUGHT_REPLY
    command = next(command for command in world.admissible() if command.startswith("go to"))
    assert world.act(f" > {command}").observation.startswith("You arrive at")
    state = world.state()
    assert (state["n_turns"], state["n_thoughts"], state["n_invalid"]) == (3, 2, 0)
    chat = started_world()
    assert chat.act("think: where is it?").observation == NOTHING_HAPPENS


def test_a_command_is_the_first_line_in_lower_case():
    assert command_of(" Go To Shelf 1 \nlook", ActionProtocol.CHAT) == "go to shelf 1"
    assert command_of(">> look", ActionProtocol.REACT) == "look"
    assert command_of("> look", ActionProtocol.CHAT) == "> look"


def test_admissible_commands_are_shown_when_asked_for():
    world = HouseholdWorld(HouseholdSettings(show_admissible=True))
    (opening,) = world.reset(game_item(games(1)[0]), 0)
    for text in (opening.content, world.act("look").observation, world.act("nonsense").observation):
        listed_commands = text.split(ADMISSIBLE_MARK)[1].split(", ")
        assert tuple(listed_commands) == world.admissible()
    assert won_by_expert(world)


def test_a_world_plays_once_and_not_beyond_its_end():
    world = HouseholdWorld(CHAT)
    for call in (lambda: world.act("look"), world.ask_expert):
        with pytest.raises(EnvironmentFailed, match="not started"):
            call()
    assert world.state()["won"] is False
    item = game_item(games(1)[0])
    world.reset(item, 0)
    with pytest.raises(EnvironmentFailed, match="already used"):
        world.reset(item, 0)
    assert won_by_expert(world)
    for call in (lambda: world.act("look"), world.ask_expert):
        with pytest.raises(EnvironmentFailed, match="over"):
            call()


def test_turns_beyond_the_cap_are_refused_and_the_cap_itself_is_no_end():
    world = started_world(HouseholdSettings(max_turns=2))
    assert not world.act("look").done and not world.act("look").done
    with pytest.raises(EnvironmentFailed, match="turn 3 is beyond the cap of 2"):
        world.act("look")


def test_a_cap_of_no_turns_is_refused():
    with pytest.raises(ConfigError, match="at least 1 turn"):
        HouseholdSettings(max_turns=0)


def test_an_item_without_a_game_is_an_environment_fault():
    item = game_item(games(1)[0])
    with pytest.raises(EnvironmentFailed, match="not a record"):
        HouseholdWorld(CHAT).reset(type(item)(item.id, item.split, item.prompt), 0)


def test_every_setting_is_in_the_digest_and_scores_differ_by_protocol():
    variants = [
        CHAT,
        REACT,
        HouseholdSettings(show_admissible=True),
        HouseholdSettings(max_turns=12),
        HouseholdSettings(faults=HouseholdFaults(rate=0.5)),
    ]
    assert len({settings.digest for settings in variants}) == len(variants)
    assert CHAT.as_protocol() != REACT.as_protocol()


def test_a_random_player_rarely_wins_and_an_expert_nearly_always():
    """Floor and ceiling on tiny games with the turn cap of the benchmark."""
    n_random = n_expert = 0
    many = games(40, seed=7)
    for number, game in enumerate(many):
        rng, item = random.Random(number), game_item(game, number)
        chance, expert = HouseholdWorld(CHAT), HouseholdWorld(CHAT)
        chance.reset(item, 0)
        expert.reset(item, 0)
        n_random += any(chance.act(rng.choice(chance.admissible())).done for _ in range(12))
        n_expert += won_by_expert(expert, 12)
    assert n_random <= 0.1 * len(many)
    assert n_expert >= 0.95 * len(many)
