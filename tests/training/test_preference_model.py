"""A preference model learns a hidden judge from a few hundred verdicts, and keeps to the content of references."""

import numpy as np
import pytest

from agent2.benchmarks.replies import (
    FACTS,
    WORDINGS,
    PreferenceJudge,
    Replies,
    draw_style,
    instruction_of,
    write_reply,
)
from agent2.errors import ConfigError
from agent2.records import Item, Message, Rollout, RolloutStatus, Split, Usage
from agent2.training.preference_model import BoughtVerdict, ContentWords, PreferenceModel, fit_logistic

SECRET = b"s" * 32
ITEMS = Replies().items(Split.TRAIN, 1200, None)


def rollout(item, text):
    return Rollout(
        item.id, 0, 0, RolloutStatus.COMPLETED, [Message("user", item.prompt)], [], text, {"answer": text}, Usage()
    )


def bought(n, secret=SECRET):
    """Verdicts of the judge that errs, on true replies in random styles; every fourth one has a fact too few."""
    rng, judge, verdicts = np.random.default_rng(0), Replies().judge(secret), []
    for number, item in enumerate(ITEMS[:n]):
        request = instruction_of(item)
        stated = request.aspects[: -1 if number % 4 == 0 else None]
        text = write_reply(request, draw_style(rng), {aspect: FACTS[request.animal, aspect] for aspect in stated})
        verdicts.append(BoughtVerdict(item, text, judge.score(item, rollout(item, text)).value))
    return verdicts


@pytest.fixture(scope="module")
def model():
    return PreferenceModel(bought(600), ITEMS)


def best_of(model, item, n=16):
    """The true reply that the model likes best among some in random styles."""
    rng = np.random.default_rng(7)
    drawn = [write_reply(instruction_of(item), draw_style(rng)) for _ in range(n)]
    return max(drawn, key=lambda text: model.probability(item, text)), drawn[0]


def test_replies_that_the_model_prefers_win_with_the_judge_that_never_errs(model):
    judge, unseen = PreferenceJudge(SECRET), ITEMS[600:800]
    pairs = [best_of(model, item) for item in unseen]
    chosen, first = (
        np.mean([judge.score(item, rollout(item, pair[which])).value for item, pair in zip(unseen, pairs, strict=True)])
        for which in (0, 1)
    )
    assert chosen > 0.85 and 0.4 < first < 0.6
    elsewhere = PreferenceJudge(b"t" * 32)
    assert np.mean([elsewhere.score(i, rollout(i, p[0])).value for i, p in zip(unseen, pairs, strict=True)]) < 0.7


def test_a_fact_that_is_missing_or_stated_twice_is_never_the_better_reply(model):
    for item in ITEMS[600:650]:
        best, _ = best_of(model, item)
        request = instruction_of(item)
        sentence = WORDINGS["plain"][request.aspects[0]].format(FACTS[request.animal, request.aspects[0]])
        for worse in ("", f"{best}\n{best}", f"{sentence} {sentence}", " ".join([sentence] * 8)):
            assert model.probability(item, worse) < model.probability(item, best), worse


def test_what_no_verdict_is_about_is_bad_all_the_same():
    item = ITEMS[0]
    verdicts = [BoughtVerdict(other, other.reference, 0.5) for other in ITEMS[:50]]
    model = PreferenceModel(verdicts, ITEMS)
    assert model.probability(item, item.reference) == 0.5
    assert model.probability(item, f"{item.reference} {item.reference}") < 0.1
    assert model.probability(item, "Look here.") < 0.1


def test_content_is_what_rare_words_say_and_list_numbers_are_none():
    content = ContentWords(ITEMS)
    assert {"it", "lives", "eats"} <= content.common and not {"river", "large", "nuts"} & content.common
    assert content.differences("1. It eats nuts.\n2. It eats nuts.", "It enjoys nuts. It is red.") == {
        "missing": 1.0, "extra": 0.0, "repeated": 1.0,
    }  # fmt: skip


def test_logistic_weights_are_those_of_the_closed_case_and_stay_at_their_prior_without_data():
    ones = np.ones((4, 1))
    (weight,) = fit_logistic(ones, np.array([1.0, 1.0, 1.0, 0.0]), 1e-9, np.zeros(1))
    assert weight == pytest.approx(np.log(3), abs=1e-4)
    assert fit_logistic(np.zeros((3, 2)), np.ones(3), 1.0, np.array([-3.0, 0.5])) == pytest.approx([-3.0, 0.5])
    balanced = fit_logistic(ones, np.array([1.0, 1.0, 0.0, 0.0]), 1.0, np.zeros(1))
    assert balanced == pytest.approx([0.0])


def test_any_text_is_judged_and_no_verdict_is_no_model(model):
    for text in ("", " \n", "\ud800", "....", "- \n1. \n", "x" * 100_000):
        assert 0.0 <= model.score(ITEMS[0], rollout(ITEMS[0], text)).value < 0.5
    with pytest.raises(ConfigError, match="no verdict was given"):
        PreferenceModel([], ITEMS)
    assert PreferenceModel([BoughtVerdict(Item("a", Split.TRAIN, "p"), "b", 1.0)], [Item("a", Split.TRAIN, "p")])
