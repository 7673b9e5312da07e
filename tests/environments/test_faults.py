"""One fault in any world, by seed, and what the records say became of it."""

import pytest
from msgspec import structs

from agent2.benchmarks import load_benchmark
from agent2.environments.faults import (
    ALL_FAULTS,
    FaultOutcome,
    FaultyWorld,
    fault_events,
    with_faults,
)
from agent2.environments.tools.world import CUT, LOGIN, FaultSettings, ToolFaultKind
from agent2.errors import ConfigError
from agent2.evaluation.context import context_policy
from agent2.records import Item, Message, Rollout, RolloutStatus, Split, Step, StopReason, Turn, Usage
from tool_builders import REPO_ITEM, call_text, play_with, repo_world

KINDS = list(ToolFaultKind)
ITEM = Item("i", Split.DEV, "Go.")


class Echo:
    """Repeats what is said; "end" ends it."""

    def reset(self, item, seed):
        self.said = []
        return [Message("user", item.prompt)]

    def act(self, action):
        self.said.append(action)
        return Step(None, True) if action == "end" else Step(f"you said {action}", False)

    def state(self):
        return {"said": list(self.said)}


def only(kind, position=0):
    return FaultSettings(1.0, (kind,), n_positions=position + 1)


def seed_for(settings, position):
    from agent2.environments.tools.world import plan_fault

    return next(seed for seed in range(200) if plan_fault(seed, settings).position == position)


def play(world, *actions, position=0, settings=None, status=RolloutStatus.COMPLETED, item=ITEM):
    seed = 0 if settings is None else seed_for(settings, position)
    prompt, turns = world.reset(item, seed), []
    for action in actions:
        step = world.act(action)
        turns.append(Turn(action, step.observation, StopReason.END, 0, 0))
    return Rollout(item.id, 0, seed, status, prompt, turns, None, world.state(), Usage())


def event(rollout):
    (only_event,) = fault_events(rollout)
    return only_event


@pytest.mark.parametrize("kind", [ToolFaultKind.TIMEOUT, ToolFaultKind.EMPTY_RESULT, ToolFaultKind.SCHEMA_ERROR])
def test_a_call_that_was_not_carried_out_is_recovered_by_repeating_it(kind):
    rollout = play(FaultyWorld(Echo(), only(kind)), "go north", "look", "go north", settings=only(kind))
    assert rollout.state["said"] == ["look", "go north"]
    assert rollout.turns[0].observation.startswith(f"error: {kind}")
    assert event(rollout).outcome is FaultOutcome.RECOVERED and event(rollout).n_turns == 2


def test_a_denial_lasts_until_login_and_counts_once():
    settings = only(ToolFaultKind.PERMISSION_DENIED)
    rollout = play(FaultyWorld(Echo(), settings), "go", "go", "login", "go", settings=settings)
    assert rollout.state["said"] == ["go"] and rollout.turns[2].observation == "ok"
    assert event(rollout).n_turns == 3


def test_a_truncated_reply_is_cut_in_half_and_the_action_carried_out():
    settings = only(ToolFaultKind.TRUNCATED_RESULT)
    rollout = play(FaultyWorld(Echo(), settings), "go north", settings=settings)
    assert rollout.state["said"] == ["go north"]
    assert rollout.turns[0].observation == f"you said {CUT}"
    assert event(rollout).outcome is FaultOutcome.CUT_OFF


def test_an_action_that_ends_the_episode_is_not_cut():
    settings = only(ToolFaultKind.TRUNCATED_RESULT)
    rollout = play(FaultyWorld(Echo(), settings), "end", settings=settings)
    assert rollout.turns[0].observation is None and fault_events(rollout) == []


@pytest.mark.parametrize(
    ("actions", "status", "outcome"),
    [
        (("go",), RolloutStatus.TURN_CAP, FaultOutcome.CUT_OFF),
        (("go", "login"), RolloutStatus.TURN_CAP, FaultOutcome.NOT_RECOVERED),
        (("go", "look", "end"), RolloutStatus.COMPLETED, FaultOutcome.NOT_RECOVERED),
        (("go", "go"), RolloutStatus.TURN_CAP, FaultOutcome.RECOVERED),
    ],
)
def test_an_episode_that_ends_mid_fault_is_told_from_one_that_was_not_recovered(actions, status, outcome):
    settings = only(ToolFaultKind.TIMEOUT)
    assert event(play(FaultyWorld(Echo(), settings), *actions, settings=settings, status=status)).outcome is outcome


def test_giving_up_is_an_answer_without_another_call():
    settings = only(ToolFaultKind.TIMEOUT)
    world = with_faults(repo_world(), settings)
    rollout = play(world, call_text("read", {"file": "geo.calc"}), "I give up.", settings=settings, item=REPO_ITEM)
    assert event(rollout).outcome is FaultOutcome.GAVE_UP


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_kinds_break_a_tool_world_and_any_other(kind):
    settings = only(kind)
    tools = with_faults(repo_world(), settings)
    read_call = call_text("read", {"file": "geo.calc"})
    rollout = play(tools, read_call, call_text(LOGIN), read_call, settings=settings, item=REPO_ITEM)
    other_rollout = play(FaultyWorld(Echo(), settings), "go north", "login", "go north", settings=settings)
    assert event(rollout).kind == event(other_rollout).kind == kind
    assert event(rollout).outcome is event(other_rollout).outcome is FaultOutcome.RECOVERED
    assert event(rollout).n_turns == event(other_rollout).n_turns == 2


def test_a_later_position_is_met_later_and_an_episode_may_end_before_it():
    settings = FaultSettings(1.0, (ToolFaultKind.TIMEOUT,), n_positions=3)
    rollout = play(FaultyWorld(Echo(), settings), "a", "b", "c", "c", position=2, settings=settings)
    assert event(rollout).turn == 2
    assert fault_events(play(FaultyWorld(Echo(), settings), "a", "end", position=2, settings=settings)) == []


def test_the_same_seed_breaks_the_same_call():
    plays = [play(FaultyWorld(Echo(), ALL_FAULTS), "a", "b", "c", settings=ALL_FAULTS) for _ in range(2)]
    assert plays[0] == plays[1]


def test_a_world_that_records_nothing_is_told_from_one_without_faults():
    assert fault_events(play(Echo(), "a")) is None
    assert fault_events(play(with_faults(repo_world(), FaultSettings()), "done", item=REPO_ITEM)) == []


def test_a_world_in_another_process_is_refused():
    world = Echo()
    world.begin_act = None
    with pytest.raises(ConfigError, match="another process"):
        with_faults(world, ALL_FAULTS)


def test_only_what_players_may_ask_passes_through():
    world = FaultyWorld(Echo(), ALL_FAULTS)
    with pytest.raises(AttributeError):
        _ = world.said


@pytest.mark.parametrize("name", ["mini_functions", "mini_apis", "mini_repo", "search", "shop", "dialogue"])
def test_variants_have_the_items_of_the_benchmark_and_their_own_world(name):
    plain, faulty, steady = (
        load_benchmark(variant_name) for variant_name in (name, f"{name}-faulty", f"{name}-steady")
    )
    assert faulty.items(Split.DEV, 3, None) == plain.items(Split.DEV, 3, None) == steady.items(Split.DEV, 3, None)
    versions = {benchmark.environment_version() for benchmark in (plain, faulty, steady)}
    assert len(versions) == 3
    assert (faulty.name, steady.name) == (f"{name}-faulty", f"{name}-steady")
    assert faulty.max_turns == plain.max_turns + 3 and steady.max_turns == plain.max_turns


def test_a_condensed_variant_differs_in_its_context_alone():
    plain, condensed = load_benchmark("search_faulty"), load_benchmark("search_faulty-condensed")
    assert condensed.context == "drop_observations" and condensed.name == "search_faulty-condensed"
    assert condensed.environment_version() == plain.environment_version()
    assert condensed.items(Split.DEV, 2, None) == plain.items(Split.DEV, 2, None)
    assert condensed.max_turns == plain.max_turns and context_policy(condensed.context) is not None


@pytest.mark.parametrize("name", ["mini_functions-fualty", "nothing-faulty", "-faulty", "mini_apis-faulty-faulty"])
def test_a_variant_of_nothing_is_refused(name):
    with pytest.raises(ConfigError):
        load_benchmark(name)


def test_an_oracle_gets_over_every_fault_that_it_can_answer():
    benchmark = load_benchmark("mini_apis-faulty")
    oracle = load_benchmark("mini_apis").players().oracle
    rollouts = play_with(benchmark, benchmark.items(Split.DEV, 40, None), oracle)
    events = [event for record in rollouts for event in fault_events(record.rollout)]
    by_kind = {kind: [event for event in events if event.kind == kind] for kind in KINDS}
    assert all(by_kind.values())
    for kind in KINDS:
        if kind is not ToolFaultKind.TRUNCATED_RESULT:
            assert {event.outcome for event in by_kind[kind]} == {FaultOutcome.RECOVERED}, kind
    steady = load_benchmark("mini_apis-steady")
    untouched = play_with(steady, steady.items(Split.DEV, 40, None), oracle)
    assert all(fault_events(scored.rollout) == [] for scored in untouched)
    assert all(scored.score.value == 1.0 for scored in untouched)


def test_other_words_after_a_fault_do_not_serve_its_need():
    settings = only(ToolFaultKind.TIMEOUT)
    different = play(FaultyWorld(Echo(), settings), "go to bed 1", "go to shelf 2", settings=settings)
    same = play(FaultyWorld(Echo(), settings), "go to bed 1", "look", "Go to  bed 1\nplease", settings=settings)
    assert event(different).outcome is FaultOutcome.NOT_RECOVERED
    assert (event(same).outcome, event(same).n_turns) == (FaultOutcome.RECOVERED, 2)


def test_a_refused_repetition_serves_no_need():
    benchmark, settings = load_benchmark("shop"), only(ToolFaultKind.TRUNCATED_RESULT)
    item = benchmark.items(Split.DEV, 1, None)[0]

    def outcome(*actions):
        return event(play(FaultyWorld(benchmark.environment(), settings), *actions, settings=settings, item=item))

    # the cut reply was the page of results, on which there is no search box
    assert outcome("search[lamp]", "search[lamp]").outcome is FaultOutcome.NOT_RECOVERED
    later = outcome("search[lamp]", "search[lamp]", "choose[back to search]", "search[lamp]")
    assert (later.outcome, later.n_turns) == (FaultOutcome.RECOVERED, 3)


def test_any_of_the_denied_actions_serves_the_need_of_a_denial():
    settings = only(ToolFaultKind.PERMISSION_DENIED)
    rollout = play(FaultyWorld(Echo(), settings), "go a", "go b", "login", "go b", settings=settings)
    assert event(rollout).n_turns == 3


def test_a_state_that_does_not_say_what_recovered_is_not_judged():
    rollout = play(FaultyWorld(Echo(), only(ToolFaultKind.TIMEOUT)), "go", "go", settings=only(ToolFaultKind.TIMEOUT))
    old = {"injected_faults": [{"turn": 0, "kind": "timeout", "command": "go"}]}
    assert fault_events(structs.replace(rollout, state=old)) is None
    assert fault_events(structs.replace(rollout, state={"n_faults": 1, "n_recovered": 1})) is None
    assert fault_events(structs.replace(rollout, state={"n_faults": 0, "n_recovered": 0})) == []
