from collections import Counter

import pytest

from agent2.arena.analysis.result import read_by_type
from agent2.arena.trial_folder import TrialPaths
from agent2.benchmarks import load_benchmark
from agent2.benchmarks.home import item_of, visible_row
from agent2.benchmarks.mixture import Mixture
from agent2.benchmarks.recipes.arithmetic import CorpusSettings
from agent2.benchmarks.recipes.mixture import MixtureCorpus, mixed_chats
from agent2.benchmarks.recipes.pyfunc import PyfuncCorpus
from agent2.cards.writer import CardWriter
from agent2.errors import ConfigError
from agent2.evaluation.engine import score_answers
from agent2.records import Item, Rollout, RolloutStatus, ScoredRollout, Split, Usage
from card_builders import make_header

SECRET = b"s" * 32


def mixture():
    return load_benchmark("arithmetic_pyfunc")


def kinds(items):
    return [item.payload["task_type"] for item in items]


def test_weights_are_shares_of_items_at_every_length():
    mixed = Mixture("uneven", {"arithmetic": 3, "pyfunc": 1})
    items = mixed.items(Split.TRAIN, 40, None)
    assert Counter(kinds(items)) == {"arithmetic": 30, "pyfunc": 10}
    assert all(abs(Counter(kinds(items[:n]))["arithmetic"] - 0.75 * n) <= 1 for n in range(41))
    assert mixed.items(Split.TRAIN, 13, None) == items[:13]
    assert len({item.id for item in items}) == 40


def test_each_item_is_scored_as_its_own_benchmark_does_and_no_other():
    items = mixture().items(Split.TRAIN, 4, None)
    assert kinds(items) == ["arithmetic", "pyfunc"] * 2
    answers = [(item, [item.reference]) for item in items]
    answers += [(items[0], [items[1].reference]), (items[1], [items[0].reference])]  # the right answer to the other
    answers += [(Item("x", Split.TRAIN, "?", "1", {"task_type": "chess"}), ["1"])]
    scores = score_answers(mixture(), answers)
    assert [score.value for score in scores] == [1.0] * 4 + [0.0, 0.0, None]
    assert "names no part" in scores[-1].reason


def test_rows_of_a_workspace_say_the_part_and_come_back_as_items():
    benchmark = mixture()
    for item in benchmark.items(Split.TRAIN, 4, None):
        assert item_of(benchmark, visible_row(benchmark, item)).payload["task_type"] == item.payload["task_type"]


@pytest.mark.parametrize(
    ("weights", "sentence"),
    [
        ({}, "give each part a share above 0"),
        ({"arithmetic": 0.0}, "give each part a share above 0"),
        ({"arithmetic": 1, "household": 1}, "only benchmarks of single answers"),
        ({"arithmetic": 1, "replies": 1}, "different temperatures"),
    ],
)
def test_what_cannot_be_mixed_is_refused(weights, sentence):
    with pytest.raises(ConfigError, match=sentence):
        Mixture("odd", weights).items(Split.TRAIN, 2, None)


def write_card(root, side, answers):
    """Plays the answers and writes the card of a side; returns the mean."""
    benchmark, paths = mixture(), TrialPaths(root)
    items = benchmark.items(Split.TEST_PRIVATE, 40, SECRET)
    card = paths.card(side, Split.TEST_PRIVATE)
    card.parent.mkdir(parents=True, exist_ok=True)
    scores = score_answers(benchmark, [(item, [answers(item)]) for item in items])
    with CardWriter(card, make_header(planned_rollouts=len(items))) as writer:
        for item, score in zip(items, scores, strict=True):
            world = benchmark.environment()
            world.reset(item, 0)
            world.act(answers(item))
            rollout = Rollout(
                item.id, 0, 0, RolloutStatus.COMPLETED, (), (), answers(item), dict(world.state()), Usage()
            )
            writer.append(ScoredRollout(rollout, score))
        writer.close()
    return sum(score.value for score in scores) / len(scores)


def test_a_part_that_collapses_while_the_mean_rises_is_shown(tmp_path):
    def of_both(item):  # does a part of either
        return item.reference if int(item.id[-1], 16) < (8 if item.payload["task_type"] == "arithmetic" else 2) else "?"

    def of_one(item):  # has learned one part and forgotten the other
        return item.reference if item.payload["task_type"] == "pyfunc" else "?"

    before, after = write_card(tmp_path, "base", of_both), write_card(tmp_path, "final", of_one)
    sums, functions = read_by_type(TrialPaths(tmp_path))
    assert after > before
    assert (sums.task_type, sums.final.value) == ("arithmetic", 0.0) and sums.base.value > 0.2
    assert (functions.task_type, functions.final.value) == ("pyfunc", 1.0) and functions.base.value < 0.5


def test_the_corpus_of_the_base_has_both_kinds_of_the_train_pool():
    settings = MixtureCorpus(CorpusSettings(n_examples=300), PyfuncCorpus(n_chats=60))
    prompts = [chat[0].content for chat in mixed_chats(settings)]
    assert sum(text.startswith("Calculate") for text in prompts) == 300
    assert sum(text.startswith("def solve") for text in prompts) == 60
    assert not set(prompts) & {item.prompt for item in mixture().items(Split.TEST_PRIVATE, 200, SECRET)}
