from dataclasses import replace

import pytest
from msgspec import structs

from agent2.benchmarks import load_benchmark
from agent2.errors import ConfigError
from agent2.evaluation.check import check_benchmark, evenly_spread
from agent2.records import Split
from suite_fakes import Sums

REFERENCES = "reference answers score 1.0"


class Small(Sums):
    """Ten sums in each visible split, and no hidden ones."""

    def items(self, split, n, secret):
        if split in (Split.TEST_PUBLIC, Split.TEST_PRIVATE) or n > 10:
            raise ConfigError("no such items")
        return [self.item(f"{split}-{k}", split, k + 100 * (split is Split.TRAIN)) for k in range(n)]


class Episodes(Small):
    max_turns = 3


class WithoutReferences(Small):
    def items(self, split, n, secret):
        return [replace(item, reference=None) for item in super().items(split, n, secret)]


class Repeating(Small):
    def items(self, split, n, secret):
        return [replace(item, prompt="0 + 1", reference="1") for item in super().items(split, n, secret)]


class SameOpening(Small):
    max_turns = 3

    def items(self, split, n, secret):
        items = super().items(split, n, secret)
        return [replace(item, prompt="Help me.", payload=item.payload | {"world": item.id}) for item in items]


class SameWorld(Repeating):
    max_turns = 3


class WrongReferences(Small):
    def items(self, split, n, secret):
        items = super().items(split, n, secret)
        return [replace(item, payload={"expected": "?"}) if item.id.endswith("3") else item for item in items]

    def scorer(self):
        equal = super().scorer()
        judge = equal.score
        equal.score = lambda item, rollout: (
            judge(replace(item, reference=item.payload.get("expected")), rollout)
            if (item.payload)
            else judge(item, rollout)
        )
        return equal


def findings(benchmark):
    return {finding.name: finding for finding in check_benchmark(benchmark).checks}


def test_references_are_played_on_the_visible_items_that_there_are():
    checked = check_benchmark(Small())
    assert checked.is_sound and checked.counts["train"] == checked.counts["dev"] == 6
    by_name = {finding.name: finding for finding in checked.checks}
    assert (by_name[REFERENCES].ok, by_name[REFERENCES].detail) == (True, "12 of 12")
    assert by_name["an empty answer scores at most 0.05"].detail == "mean 0.00 of 12, 0 missing"
    assert by_name["hidden items need the installation secret"].ok is None


@pytest.mark.parametrize("benchmark", [Episodes(), WithoutReferences()])
def test_episodes_and_items_without_references_are_not_checked_and_that_is_said(benchmark):
    finding = findings(benchmark)[REFERENCES]
    assert finding.ok is None and "agent2 tasks check plays them" in finding.detail


def test_a_reference_that_the_scorer_refuses_is_named_with_its_reason():
    finding = findings(WrongReferences())[REFERENCES]
    assert finding.ok is False
    assert finding.detail == "10 of 12; train-3: compared"


def test_a_prompt_in_two_splits_is_named_with_both():
    finding = findings(Repeating())["no two items ask the same"]
    assert finding.ok is False
    assert finding.detail == "11 prompts come more than once, that of train-1 (train) in train"


def test_in_worlds_the_same_opening_may_be_another_task_and_the_same_task_is_none():
    assert findings(SameOpening())["no two items ask the same"].ok is True
    assert findings(SameWorld())["no two items ask the same"].ok is False


DATA = """\
name: numbers
version: "1.0"
files: {train: rows.jsonl}
prompt: "{question}"
answer: answer
scorer: {name: exact}
environment: "./world.py:World"
"""
WORLD = """\
from agent2.records import Message, Step


class World:
    name, version, max_turns = "two_steps", "1", 2

    def reset(self, item, seed):
        self.item, self.actions = item, []
        return [Message("user", item.prompt)]

    def act(self, action):
        self.actions.append(action)
        return Step("and now?" if len(self.actions) == 1 else None, len(self.actions) == 2)

    def state(self):
        return {"answer": self.actions[-1] if self.actions else None}
"""
EXPERT = """
    def ask_expert(self):
        return self.item.reference if self.actions else "I think"
"""


@pytest.mark.parametrize(("expert", "detail"), [(EXPERT, "20 of 20"), ("", "items are episodes")])
def test_the_expert_of_a_data_benchmarks_world_answers_where_there_is_one(tmp_path, monkeypatch, expert, detail):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    (tmp_path / "benchmark.yaml").write_text(DATA + "max_turns: 2\n")
    (tmp_path / "world.py").write_text(WORLD + expert)
    (tmp_path / "rows.jsonl").write_text(
        "".join(f'{{"question": "which number is {number}?", "answer": "{number}"}}\n' for number in range(20))
    )
    finding = findings(load_benchmark(str(tmp_path)))[REFERENCES]
    assert finding.detail.startswith(detail)
    assert finding.ok is (True if expert else None)


class Silent(Small):
    """The reference of every second item is an empty answer."""

    def items(self, split, n, secret):
        return [
            replace(item, reference="" if number % 2 else item.reference)
            for number, item in enumerate(super().items(split, n, secret))
        ]


def test_a_sample_is_spread_over_the_splits_and_said():
    report = check_benchmark(Small(), n_played=4)
    by_name = {finding.name: finding for finding in report.checks}
    assert report.n_played == 4 and sum(report.counts.values()) == 12 and report.is_sound
    assert by_name[REFERENCES].detail == "4 of 4"
    assert by_name["an empty answer scores at most 0.05"].detail == "mean 0.00 of 4, 0 missing"
    items = [item for split in (Split.TRAIN, Split.DEV) for item in Small().items(split, 6, None)]
    assert [item.id for item in evenly_spread(items, 4)] == [items[place].id for place in (0, 3, 6, 9)]
    assert evenly_spread(items, 99) == items


def test_a_sample_finds_references_that_are_wrong_and_silence_that_wins():
    assert not check_benchmark(WrongReferences(), n_played=12).is_sound
    by_name = {finding.name: finding for finding in check_benchmark(Silent(), n_played=5).checks}
    assert by_name["an empty answer scores at most 0.05"].ok is False


class HalfForSilence(Small):
    """An empty answer has half of every score."""

    def scorer(self):
        equal = super().scorer()
        judge = equal.score
        equal.score = lambda item, rollout: structs.replace(judge(item, rollout), value=1.0 if rollout.answer else 0.5)
        return equal


def test_a_sample_that_is_too_small_to_tell_lets_no_empty_answer_pass():
    name = "an empty answer scores at most 0.05"
    (one,) = (finding for finding in check_benchmark(HalfForSilence(), n_played=1).checks if finding.name == name)
    assert one.ok is None and "play more" in one.detail and one.warning
    (all_items,) = (finding for finding in check_benchmark(HalfForSilence()).checks if finding.name == name)
    assert all_items.ok is False
