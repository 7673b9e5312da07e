"""Texts of completions, by small tokenizers with the habits of real ones."""

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from agent2.llm.thoughts import split_thought
from agent2.models.decoding import TextDecoder


def make_tokenizer(*special):
    tokenizer = Tokenizer(models.BPE({chr(code): code for code in range(128)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in special])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def decoded(tokenizer, text, prompt="Q"):
    prompt_ids = tokenizer(prompt)["input_ids"]
    return TextDecoder(tokenizer).text_of(prompt_ids, tokenizer(text)["input_ids"])


@pytest.mark.parametrize(
    ("marks", "text"),
    [
        (("[THINK]", "[/THINK]"), "[THINK]#### 1[/THINK]#### 5"),
        (
            ("<|start|>", "<|channel|>", "<|message|>", "<|end|>"),
            "<|channel|>analysis<|message|>#### 1<|end|><|start|>assistant<|channel|>final<|message|>#### 5",
        ),
    ],
)
def test_marks_that_decoding_drops_are_kept_so_that_the_thought_is_not_scored(marks, text):
    tokenizer = make_tokenizer(*marks, "<|im_end|>")
    assert "[THINK]" not in tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True)
    assert decoded(tokenizer, text) == text
    assert split_thought(decoded(tokenizer, text + "<|im_end|>"))[1] == "#### 5"


def test_a_mark_of_another_model_stays_a_special_token():
    assert decoded(make_tokenizer("<|end|>"), "a<|end|>b") == "ab"


@pytest.mark.parametrize("special", [(), ("<think>", "</think>")])
def test_the_opening_mark_that_a_template_wrote_belongs_to_the_text_also_of_a_thought_that_was_cut_off(special):
    text = decoded(make_tokenizer(*special), "maybe #### 5", prompt="Question. Assistant: <think>\n")
    thought, answer = split_thought(text)
    assert answer == "" and thought.text == "maybe #### 5" and thought.closing is None


def test_a_prompt_that_mentions_a_mark_opens_no_thought():
    assert decoded(make_tokenizer(), "#### 5", prompt="Write <think> first. Assistant:") == "#### 5"
    assert decoded(make_tokenizer(), "#### 5", prompt="Assistant: <think>\n\n</think>\n\n") == "#### 5"
