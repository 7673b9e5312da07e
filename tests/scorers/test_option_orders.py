"""Multiple choice under every circular shift: the world, the scorer, and a declared benchmark from file to score."""

import json

import pytest

from agent2.benchmarks import load_benchmark
from agent2.environments.option_orders import OptionOrdersEnvironment, letter_at, shifted
from agent2.errors import ConfigError, EnvironmentFailed, Fault
from agent2.evaluation.check import play_items
from agent2.evaluation.engine import Attempt, PlaySettings, play
from agent2.records import Completion, Item, Rollout, RolloutStatus, SamplingSettings, Split, Usage
from agent2.scorers import load_scorer
from agent2.scorers.option_orders import mmbench_letter

OPTIONS = ["red", "blue", "green"]
PROMPT = "Which?\nA. red\nB. blue\nC. green\nAnswer with a letter."


def verdict(answers, reference="B", options=OPTIONS, rule="last"):
    item = Item("i", Split.DEV, PROMPT, reference, {"options": options})
    state = {} if answers is None else {"order_answers": answers}
    rollout = Rollout("i", 0, 0, RolloutStatus.COMPLETED, (), (), "", state, Usage())
    return load_scorer("option_orders", {"rule": rule}).score(item, rollout)


def test_every_order_is_shown_once_and_the_right_letter_moves_with_it():
    world = OptionOrdersEnvironment()
    (message,) = world.reset(Item("i", Split.DEV, PROMPT, "B", {"options": OPTIONS}), 0)
    assert message.text == PROMPT and world.max_turns == 3
    second, third, last = (world.act(letter_at("B", shift, 3)) for shift in range(3))
    assert second.observation == "Which?\nA. blue\nB. green\nC. red\nAnswer with a letter."
    assert third.observation == "Which?\nA. green\nB. red\nC. blue\nAnswer with a letter."
    assert (last.done, last.observation) == (True, None)
    assert world.state() == {"answer": "B", "order_answers": ["B", "A", "C"]}
    with pytest.raises(EnvironmentFailed, match="every order was answered"):
        world.act("A")


def test_a_prompt_that_does_not_show_its_options_cannot_be_shifted():
    for prompt in ("Which?", f"{PROMPT}\n{PROMPT}"):
        with pytest.raises(EnvironmentFailed, match="does not show its 3 options once"):
            OptionOrdersEnvironment().reset(Item("i", Split.DEV, prompt, "B", {"options": OPTIONS}), 0)


def test_only_the_right_option_in_every_order_scores():
    right = verdict(["B", "(A)", "The answer is C"])
    assert right.value == 1.0 and right.views["same_option"] == 1.0
    one_letter = verdict(["B", "B", "B"])
    assert (one_letter.value, one_letter.labels) == (0.0, ("order_dependent_choice",))
    assert one_letter.views == {
        "first_order": 1.0,
        "orders_right": pytest.approx(1 / 3),
        "answer_parsed": 1.0,
        "same_option": 0.0,
    }
    wrong = verdict(["A", "C", "B"])
    assert (wrong.labels, wrong.views["same_option"]) == (("wrong_choice",), 1.0)
    assert verdict(["", "?", "none"]).labels == ("answer_parse_fail",)
    cut_off = verdict(["B", "A"])
    assert cut_off.value == 0.0 and cut_off.views["answer_parsed"] == 0.0


def test_an_item_that_was_not_played_in_orders_is_missing_and_not_wrong():
    for score in (verdict(None), verdict(["B"], reference="D"), verdict(["B"], options=["red"])):
        assert score.value is None and score.fault is Fault.JUDGE
    with pytest.raises(ConfigError, match="rule 'first' is unknown"):
        load_scorer("option_orders", {"rule": "first"})


@pytest.mark.parametrize(
    ("answer", "letter"),
    [
        ("B", "B"),
        ("**(B)**.", "B"),
        ("B is what I would say here", None),  # not among the last four words, and no option's text
        ("A or B", None),
        ("it is blue", "B"),
        ("it is blue, not red", None),
        ("Z", None),
        ("blue " * 40, None),
    ],
)
def test_the_published_rule_reads_one_letter_near_the_end_or_one_text(answer, letter):
    assert mmbench_letter(answer, OPTIONS) == letter


class Answers:
    """A sampler that keeps what it was sent and answers by a function of the prompt."""

    capacity = 4

    def __init__(self, answer):
        self.answer, self.sent, self.queue = answer, [], []

    def submit(self, request_id, prompt, settings):
        self.sent.append([message.text for message in prompt])
        self.queue.append((request_id, Completion(self.answer(prompt[-1].text))))

    def collect(self):
        done, self.queue = self.queue, []
        return done


def benchmark(folder, rows=None, **changes):
    folder.mkdir(exist_ok=True)
    rows = rows or [
        {"question": f"Which is {place}?", "A": "red", "B": "blue", "C": "green" if place else None, "answer": "B"}
        for place in range(6)
    ]
    (folder / "test.jsonl").write_text("\n".join(map(json.dumps, rows)))
    keys = {
        "name": "orders",
        "version": "1.0",
        "files": {"all": "test.jsonl"},
        "prompt": "{question}\n{options}",
        "options": ["A", "B", "C"],
        "shuffle": False,
        "answer": "answer",
        "system": "Look closely.",
        "environment": "option_orders",
        "scorer": "option_orders",
    } | changes
    (folder / "benchmark.yaml").write_text(json.dumps({key: value for key, value in keys.items() if value is not None}))
    return load_benchmark(str(folder))


def all_items(loaded):
    secret = b"s" * 32
    return [item for split in Split for item in loaded.items(split, loaded.count(split, secret), secret)]


def test_a_declared_benchmark_asks_each_order_apart_and_scores_a_question_once(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    loaded = benchmark(tmp_path / "orders")
    sampler = Answers(lambda text: next(line[0] for line in text.splitlines() if line.endswith(". blue")))
    items = all_items(loaded)
    attempts = [Attempt(item, 0, 0) for item in items]
    settings = PlaySettings(SamplingSettings(), loaded.max_turns, context=loaded.context)
    records = list(play(attempts, sampler, loaded.environment, loaded.scorer(), settings))
    assert [record.score.value for record in records] == [1.0] * 6
    assert sorted(len(record.rollout.turns) for record in records) == [2, 3, 3, 3, 3, 3]
    assert all(sent[0] == "Look closely." and len(sent) == 2 for sent in sampler.sent), (
        "no order is read beside another"
    )
    always_b = Answers(lambda text: "B")
    records = list(
        play([Attempt(item, 0, 0) for item in items], always_b, loaded.environment, loaded.scorer(), settings)
    )
    assert [record.score.value for record in records] == [0.0] * 6
    assert all(record.score.views["first_order"] == 1.0 for record in records)


def test_its_own_players_are_right_in_every_order_or_rarely(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    loaded = benchmark(tmp_path / "orders")
    items, players = all_items(loaded), loaded.players()
    for player, values in ((players.oracle, {1.0}), (lambda item, chat: "", {0.0})):
        records = play_items(loaded, items, lambda item, world, chat, player=player: player(item, chat))
        assert {record.score.value for record in records} == values


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scorer": "choice"}, "needs both environment: option_orders and that scorer"),
        ({"environment": None}, "needs both environment: option_orders and that scorer"),
        ({"prompt": "{question} {A} {B} {C}"}, "shown in the prompt by"),
    ],
)
def test_a_file_that_cannot_be_asked_in_orders_is_refused(tmp_path, monkeypatch, changes, message):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    with pytest.raises(ConfigError, match=message):
        benchmark(tmp_path / "orders", **changes)


def test_a_shift_begins_with_the_option_at_its_place():
    assert shifted(OPTIONS, 1) == ["blue", "green", "red"]
