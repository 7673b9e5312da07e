from collections import Counter

import numpy as np
import pytest

from agent2.benchmarks.mini import ifeval as w
from agent2.benchmarks.mini.ifeval import (
    MiniIfeval,
    Scene,
    WritingTask,
    canonical,
    careless_answer,
    draw_task,
    to_item,
)
from agent2.errors import ConfigError
from agent2.records import Split
from agent2.scorers.constraints import TYPES, read_instructions
from agent2.scorers.constraints.checks import InstructionClass

SCENE = Scene("cat", ("red", "old", "new", "small", "cold"))
RNG = np.random.default_rng(0)


def tasks(n=1500):
    rng = np.random.default_rng(5)
    return [draw_task(rng) for _ in range(n)]


def test_every_task_has_an_answer_that_follows_all_of_it():
    for task in tasks():
        to_item(task, Split.DEV)


def test_a_task_whose_answer_fails_is_refused():
    wish = w.WritingInstruction(w.KEYWORD, {"keywords": ["rain"]}, "Use the word rain.")
    broken = WritingTask(
        SCENE, (wish, w.WritingInstruction(w.FORBIDDEN, {"forbidden_words": ["rain"]}, "Do not use the word rain."))
    )
    with pytest.raises(ConfigError, match=r"fails keywords:forbidden_words .*generator is broken"):
        to_item(broken, Split.DEV)


def test_all_four_classes_and_one_or_two_instructions_occur_in_every_split():
    for split in Split:
        items = MiniIfeval().items(split, 300, b"s" * 32)
        names = [name for item in items for name in item.payload["instruction_id_list"]]
        assert {TYPES[name].kind for name in names} == set(InstructionClass)
        counts = Counter(len(item.payload["instruction_id_list"]) for item in items)
        assert set(counts) == {1, 2}
        assert min(counts.values()) > 20


def test_an_ignored_instruction_is_not_followed_by_accident():
    for task in tasks(600):
        for followed in ((), task.instructions[1:]):
            text = careless_answer(task, followed)
            names = [instruction.name for instruction in task.instructions]
            first = read_instructions(names, [instruction.arguments for instruction in task.instructions], "test")[0]
            assert not first.check(text).followed, (task.prompt, text)


def test_what_contradicts_itself_is_not_asked_for_together():
    assert not w.are_compatible(w.CAPITALS, w.LOWERCASE)
    assert not w.are_compatible(w.JSON, w.QUOTES)
    assert not w.are_compatible(w.LANGUAGE, w.KEYWORD)
    assert not w.are_compatible(w.KEYWORD, w.KEYWORD)
    assert w.are_compatible(w.KEYWORD, w.QUOTES)


def test_the_order_of_instructions_and_the_words_of_the_answer_do_not_make_another_task():
    keyword, quotes = (w.draw_instruction(RNG, name, SCENE) for name in (w.KEYWORD, w.QUOTES))
    elsewhere = Scene("cat", ("cold", "old", "new", "small", "red"))
    assert canonical(WritingTask(SCENE, (keyword, quotes))) == canonical(WritingTask(elsewhere, (quotes, keyword)))
    assert canonical(WritingTask(SCENE, (keyword,))) != canonical(
        WritingTask(Scene("dog", SCENE.adjectives), (keyword,))
    )


@pytest.mark.parametrize(
    ("names", "answer"),
    [
        ((), "the cat is red"),
        ((w.JSON,), '{"cat": "red"}'),
        ((w.TITLE, w.HIGHLIGHT), "<<cat>>\nthe cat is *red*"),
        ((w.QUOTES, w.CAPITALS), '"THE CAT IS RED"'),
    ],
)
def test_a_text_is_built_from_its_body_outwards(names, answer):
    assert WritingTask(SCENE, [w.draw_instruction(RNG, name, SCENE) for name in names]).answer == answer


def test_other_languages_are_written_with_their_own_words():
    german, spanish = (w.WritingInstruction(w.LANGUAGE, {"language": code}, "") for code in ("de", "es"))
    assert WritingTask(SCENE, (german,)).answer == "die Katze ist rot"
    assert WritingTask(Scene("house", SCENE.adjectives), (spanish,)).answer == "la casa es roja"
