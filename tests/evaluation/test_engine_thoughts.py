"""Nothing in a thought is ever scored, acted on or sent again; everything of it is kept."""

import msgspec
import pytest

from agent2.environments import QuestionEnvironment
from agent2.evaluation.engine import Attempt, PlaySettings, play
from agent2.evaluation.scoring import score_played, score_without_scorer
from agent2.llm.thoughts import CUT_OFF
from agent2.models.sources import ScriptedSampler
from agent2.records import (
    Completion,
    Item,
    Message,
    SamplingSettings,
    Score,
    ScoringMode,
    ScoringWork,
    Split,
    Step,
    StopReason,
    Thought,
)
from agent2.scorers.answers import FinalAnswerScorer

ITEM = Item("a", Split.DEV, "2 plus 3?", "#### 5")


class Talk:
    """Answers twice; remembers what it was told."""

    def __init__(self):
        self.heard = []

    def reset(self, item, seed):
        return [Message("user", item.prompt)]

    def act(self, action):
        self.heard.append(action)
        return Step(None if len(self.heard) > 1 else "go on", len(self.heard) > 1)

    def state(self):
        return {"answer": self.heard[-1], "heard": self.heard}


class Heard:
    name, version = "heard", "1"

    def score(self, item, rollout):
        return Score(1.0, "; ".join(rollout.state["heard"]))


def played(reply, scorer=None, environment=QuestionEnvironment, **settings):
    sampler = ScriptedSampler(reply if callable(reply) else lambda messages: reply)
    plan = PlaySettings(SamplingSettings(), 4, **settings)
    return next(play([Attempt(ITEM, 0, 1)], sampler, environment, scorer or FinalAnswerScorer(), plan))


def test_the_answer_after_a_thought_is_scored_and_the_thought_is_on_the_turn():
    record = played("<think>#### 1</think>\n#### 5")
    assert record.score.value == 1.0
    assert record.rollout.answer == "#### 5"
    assert record.rollout.turns[0].action == "#### 5"
    assert record.rollout.turns[0].thought == Thought("#### 1", "<think>", "</think>\n")


def test_an_answer_inside_the_thought_only_scores_0():
    record = played("<think>It is #### 5</think>\n#### 1")
    assert record.score.value == 0.0


def test_a_thought_that_was_cut_off_is_no_answer_whatever_the_scorer_says():
    class Kind:
        name, version = "kind", "1"

        def score(self, item, rollout):
            return Score(1.0, "gives everybody a point")

    at_limit = played(lambda chat: Completion("<think>It is #### 5", stop_reason=StopReason.LENGTH), Kind())
    assert at_limit.score.value == 0.0 and at_limit.score.labels == (CUT_OFF,)
    assert "cut off at the token limit" in at_limit.score.reason
    unended = played("<think>It is #### 5", Kind())
    assert "never ended" in unended.score.reason
    assert played("", Kind()).score.value == 1.0  # an empty answer is the scorer's to judge


def test_a_judge_is_not_asked_about_a_thought_without_an_answer():
    asked = []

    class Judge:
        name, version = "judge", "1"
        work = ScoringWork(ScoringMode.BATCH, batch_size=4)

        def score_batch(self, batch):
            asked.extend(rollout.answer for _, rollout in batch)
            return [Score(1.0, "good") for _ in batch]

    rollouts = [(ITEM, played(text).rollout) for text in ("<think>a #### 5", "<think>b</think>#### 5")]
    scores = [record.score.value for record in score_played(rollouts, Judge())]
    assert scores == [0.0, 1.0]
    assert asked == ["#### 5"]


def test_a_thought_is_left_out_of_later_prompts_and_of_what_the_world_hears():
    prompts = []

    def reply(chat):
        prompts.append([message.content for message in chat])
        return f"<think>secret</think>\nmove {len(chat)}"

    record = played(reply, Heard(), Talk)
    assert record.score.reason == "move 1; move 3"
    assert prompts[1] == ["2 plus 3?", "move 1", "go on"]
    assert [turn.thought.text for turn in record.rollout.turns] == ["secret", "secret"]


def test_a_thought_that_a_server_sends_apart_is_kept_and_one_that_it_sends_twice_is_not_scored():
    apart = played(lambda chat: Completion("#### 5", thought=Thought("#### 1")))
    assert apart.score.value == 1.0 and apart.rollout.turns[0].thought.text == "#### 1"
    twice = played(lambda chat: Completion("<think>#### 1</think>#### 5", thought=Thought("#### 1")))
    assert twice.rollout.answer == "#### 5"
    stated = played(lambda chat: Completion("#### 5", thought=Thought("#### 1")), thinking="</think>")
    assert stated.score.value == 1.0


def test_the_setting_none_scores_every_word():
    record = played("<think>#### 1</think>", thinking="none")
    assert record.rollout.answer == "<think>#### 1</think>"
    assert record.rollout.turns[0].thought is msgspec.UNSET


def test_the_whole_message_can_be_put_together_again_for_training():
    text = "<think>\n#### 1\n</think>\n\n#### 5"
    assert played(text).rollout.turns[0].written == text
    assert played("#### 5").rollout.turns[0].written == "#### 5"


@pytest.mark.parametrize("thought", [None, Thought("a"), Thought("a", "<think>", None)])
def test_a_turn_is_read_back_as_it_was_stored(thought):
    turn = played(lambda chat: Completion("b", thought=thought)).rollout.turns[0]
    line = msgspec.json.encode(turn)
    assert msgspec.json.decode(line, type=type(turn)) == turn
    assert (b"thought" in line) == (thought is not None)


def test_only_the_message_that_ends_the_episode_decides_whether_there_is_an_answer():
    replies = iter(["<think>never", "<think>a</think>done"])
    record = played(lambda chat: next(replies), Heard(), Talk)
    assert record.score.value == 1.0
    assert record.rollout.turns[0].is_thought_cut_off
    assert score_without_scorer(record.rollout) is None


def test_half_a_character_in_answer_or_thought_is_replaced_before_anything_reads_it():
    record = played("<think>half \ud835</think>half \ud835 sign #### 5")
    assert record.score.value == 1.0
    assert record.rollout.answer == record.rollout.turns[0].action == "half \ufffd sign #### 5"
    assert record.rollout.turns[0].thought.text == "half \ufffd"
    apart = played(lambda chat: Completion("#### 5", thought=Thought("\ud835")))
    assert apart.rollout.turns[0].thought.text == "\ufffd"
    msgspec.json.encode([record, apart])
