import pytest

from agent2.environments import QuestionEnvironment
from agent2.errors import EnvironmentFailed
from agent2.records import Item, Message, Split

ITEM = Item(id="q1", split=Split.DEV, prompt="Calculate 2 + 2", reference="4")
OTHER = Item(id="q2", split=Split.DEV, prompt="Calculate 3 + 3", reference="6")


def test_the_prompt_goes_in_and_the_answer_comes_out_as_written():
    world = QuestionEnvironment()
    assert world.reset(ITEM, seed=0) == [Message("user", "Calculate 2 + 2")]
    assert world.state() == {"answer": None}
    step = world.act(" 4\n")
    assert (step.done, step.observation) == (True, None)
    assert world.state() == {"answer": " 4\n"}


def test_a_world_is_used_once():
    world = QuestionEnvironment()
    world.reset(ITEM, seed=0)
    with pytest.raises(EnvironmentFailed, match=r"already used for item 'q1'"):
        world.reset(OTHER, seed=0)


def test_an_answer_before_the_question_or_after_an_answer_is_refused():
    with pytest.raises(EnvironmentFailed, match="call reset first"):
        QuestionEnvironment().act("4")
    world = QuestionEnvironment()
    world.reset(ITEM, seed=0)
    world.act("4")
    with pytest.raises(EnvironmentFailed, match="answered already"):
        world.act("5")
