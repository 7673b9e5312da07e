"""Questions that are answered by likelihood: which answers are offered, and which one a model's numbers choose."""

import json

import pytest

from agent2.environments.likelihood import LikelihoodEnvironment
from agent2.errors import ConfigError
from agent2.records import Item, Split

ITEM = Item("q", Split.DEV, "Grass is", "B", {"options": ["red", "a lush green"]})


def message(*logprobs, n_tokens=None, is_greedy=None):
    n = len(logprobs)
    return json.dumps({"logprobs": logprobs, "n_tokens": n_tokens or [1] * n, "is_greedy": is_greedy or [False] * n})


def played(action, item=ITEM, **settings):
    world = LikelihoodEnvironment(**settings)
    world.reset(item, 0)
    assert world.act(action).done
    return world.state()


def offer(item=ITEM, **settings):
    world = LikelihoodEnvironment(**settings)
    world.reset(item, 0)
    return world.offered_answers()


def test_texts_letters_and_completions_are_offered_after_one_blank():
    assert offer().text == "Grass is" and list(offer().answers) == [" red", " a lush green"]
    assert list(offer(letters=True).answers) == [" A", " B"]
    completion = Item("c", Split.DEV, "Grass is\n", "green")
    assert list(offer(completion).answers) == ["green"]
    assert offer(chat=True).text is None and list(offer(chat=True).answers) == ["red", "a lush green"]


def test_examples_and_system_stand_before_the_question_as_text():
    text = offer(system="Colours.", examples=[("Sky is", "blue"), ("Snow is", "white")]).text
    assert text == "Colours.\n\nSky is blue\n\nSnow is white\n\nGrass is"


@pytest.mark.parametrize(("by", "answer"), [("sum", "A"), ("bytes", "B"), ("tokens", "A")])
def test_the_likeliest_answer_is_chosen_as_a_sum_or_by_its_length(by, answer):
    # by hand: -3 and -6 as sums; -1 and -0.5 a byte (3 and 12); -3 and -6 a token
    state = played(message(-3.0, -6.0), by=by)
    assert (state["answer"], state["by"], state["n_bytes"]) == (answer, by, [3, 12])


def test_of_equal_answers_the_first_is_chosen():
    assert played(message(-1.0, -1.0))["answer"] == "A"


@pytest.mark.parametrize("action", ["B", "", "{", '{"logprobs": [1]}', message(-1.0), message(-1.0, float("nan"))])
def test_any_other_message_is_an_answer_in_words(action):
    assert played(action) == {"answer": action}


def test_an_unknown_way_of_normalising_is_refused():
    with pytest.raises(ConfigError, match="unknown by 'byte'; did you mean 'bytes'"):
        LikelihoodEnvironment(by="byte")
