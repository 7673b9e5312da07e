import pytest

from agent2.errors import ConfigError
from agent2.llm.thoughts import read_thinking, split_thought
from agent2.records import Thought

RIGHT = "#### 5"
HARMONY = "<|channel|>analysis<|message|>maybe #### 1<|end|><|start|>assistant<|channel|>"


@pytest.mark.parametrize(
    "text",
    [
        f"<think>maybe #### 1</think>\n{RIGHT}",
        f"\n<think>\nmaybe #### 1\n</think>\n\n{RIGHT}",
        f"maybe #### 1</think>\n{RIGHT}",  # the template wrote the opening mark
        f"<thinking>maybe #### 1</thinking>{RIGHT}",
        f"<THINK>maybe #### 1</Think>{RIGHT}",
        f"[THINK]maybe #### 1[/THINK]{RIGHT}",
        f"<|START_THINKING|>maybe #### 1<|END_THINKING|><|START_RESPONSE|>{RIGHT}<|END_RESPONSE|>",
        f"{HARMONY}final<|message|>{RIGHT}<|return|>",
        f"analysismaybe #### 1assistantfinal{RIGHT}",  # a server that drops special tokens
        f"<think>one #### 1</think>\n<think>two #### 2</think>\n{RIGHT}",
        f"<think>I close with </think> now, #### 1</think>\n{RIGHT}",
        f"Well.\n<think>maybe #### 1</think>\n{RIGHT}",
        f"<think></think>\n\n{RIGHT}",
    ],
)
def test_the_answer_is_what_follows_the_thought(text):
    thought, answer = split_thought(text)
    assert answer == RIGHT
    assert thought is not None and thought.closing is not None


@pytest.mark.parametrize(
    "text",
    [
        f"<think>maybe {RIGHT}",
        f"<think>one</think>\n#### 1\n<think>two {RIGHT}",
        f"<think>one</think>\n#### 1\n<think>two {RIGHT}</think>",
        f"Well.\n<think>maybe {RIGHT}",
        f"<|channel|>analysis<|message|>maybe {RIGHT}",
    ],
)
def test_a_right_answer_inside_a_thought_is_not_read(text):
    thought, answer = split_thought(text)
    assert answer == ""
    assert RIGHT in thought.text


def test_a_thought_without_an_end_is_known_as_cut_off():
    assert split_thought("<think>maybe")[0] == Thought("maybe", "<think>", None)
    assert split_thought("<think>maybe</think>")[0].closing == "</think>"


@pytest.mark.parametrize(
    "text",
    [
        RIGHT,
        "Write `</think>` at the end.",
        're.sub(r"<think>.*?</think>", "", text)',
        "The format is:\n```\n<think>\nyour thoughts\n</think>\n```\nNothing else.",
        "[1, 2, 3]",
        "analysis of the text: none",
        "",
    ],
)
def test_a_text_without_a_thought_is_the_answer_as_it_is(text):
    assert split_thought(text) == (None, text)


@pytest.mark.parametrize(
    "text",
    [
        "<think>\n a </think>\n\n    return 1",
        "a</think> b",
        "<think>a</think>\n<think>b</think>\nc",
        f"{HARMONY}final<|message|>c",
        "<think>a",
    ],
)
def test_thought_and_answer_together_are_the_message_as_it_was_written(text):
    thought, answer = split_thought(text)
    assert thought.written + answer == text


def test_a_call_of_a_tool_in_a_channel_is_a_call_as_worlds_read_it():
    call = 'commentary to=functions.add <|constrain|>json<|message|>{"a": 1}<|call|>'
    assert split_thought(HARMONY + call)[1] == '{"name": "add", "arguments": {"a": 1}}'


def test_stated_marks_are_used_in_place_of_the_known_ones():
    assert split_thought("<r>a</r>b", "<r> </r>")[1] == "b"
    assert split_thought("<think>a</think>b", "<r> </r>") == (None, "<think>a</think>b")
    assert split_thought("<think>a</think>b", "none") == (None, "<think>a</think>b")


def test_a_stated_closing_mark_says_that_the_template_opens_every_thought():
    assert split_thought("a</think>b", "</think>")[1] == "b"
    thought, answer = split_thought(f"maybe {RIGHT}", "</think>")
    assert answer == "" and thought.closing is None


def test_the_setting_has_one_form_and_says_what_it_may_be():
    assert [read_thinking(text) for text in (" Auto", "none", "<r>  </r>", "</r>")] == [
        "auto",
        "none",
        "<r> </r>",
        "</r>",
    ]
    for wrong in ("", "on", "<a> <b> <c>", "<a> <a>", "think"):
        with pytest.raises(ConfigError, match=r"write auto, none, a pair of marks"):
            read_thinking(wrong)
