from collections import Counter

import numpy as np

from agent2.benchmarks.mini.knowledge import (
    BEINGS,
    FACT_SHARE,
    FACTS,
    LETTERS,
    PROPERTIES,
    SOURCE,
    KnowledgeQuestion,
    MiniKnowledge,
    canonical,
    draw_question,
    pretraining_examples,
)
from agent2.records import Rollout, RolloutStatus, Split, Usage


def test_the_world_is_fixed_and_every_being_has_every_property():
    assert len(FACTS) == len(BEINGS) * len(PROPERTIES) == 72
    assert all(value in PROPERTIES[name] for (_, name), value in FACTS.items())
    assert FACTS["arlo", "color"] == "black"


def test_a_question_has_four_different_options_and_one_right_letter():
    rng = np.random.default_rng(0)
    for question in (draw_question(rng) for _ in range(200)):
        assert len(set(question.options)) == 4
        assert question.options[LETTERS.index(question.letter)] == FACTS[question.being, question.name]


def test_the_right_option_stands_in_every_place_equally_often():
    counts = Counter(item.reference for item in MiniKnowledge().items(Split.TRAIN, 800, None))
    assert set(counts) == set(LETTERS)
    assert max(abs(count - 200) for count in counts.values()) < 50


def test_order_and_wording_do_not_make_another_question():
    options = ("red", "blue", "green", "gold")
    question = KnowledgeQuestion("arlo", "color", options, "a {name} {being}")
    assert canonical(question) == canonical(KnowledgeQuestion("arlo", "color", options[::-1], "b {name} {being}"))
    assert canonical(question) != canonical(KnowledgeQuestion("arlo", "color", ("red", "blue", "green", "pink"), "a"))


def test_a_player_who_likes_one_letter_shows_in_the_views():
    benchmark = MiniKnowledge()
    items = benchmark.items(Split.DEV, 200, None)
    scores = [
        benchmark.scorer().score(
            item, Rollout(item.id, 0, 0, RolloutStatus.COMPLETED, (), (), "C", {"answer": "C"}, Usage())
        )
        for item in items
    ]
    assert 0.15 < np.mean([score.value for score in scores]) < 0.35
    means = {f"chose_{letter}": np.mean([score.views[f"chose_{letter}"] for score in scores]) for letter in "abcd"}
    assert means == {"chose_a": 0.0, "chose_b": 0.0, "chose_c": 1.0, "chose_d": 0.0}


def test_the_corpus_tells_every_fact_as_it_is():
    chats = pretraining_examples(np.random.default_rng(0), 3000)
    statements = {chat[0].content: chat[1].content for chat in chats if chat[0].content.startswith("Tell")}
    assert statements == {f"Tell the {name} of {being}.": value for (being, name), value in FACTS.items()}
    share = sum(chat[0].content.startswith("Tell") for chat in chats) / len(chats)
    assert abs(share - FACT_SHARE) < 0.03


def test_hidden_questions_ask_for_facts_that_can_be_known():
    facts = {(question.being, question.name) for question in SOURCE.first(Split.TEST_PRIVATE, 300, b"s" * 32)}
    assert len(facts) > 60
    assert facts <= set(FACTS)
