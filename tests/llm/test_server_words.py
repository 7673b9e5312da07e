"""Sentences in the form in which servers send them."""

import json

import pytest

from agent2.llm.server_words import is_too_long, is_unfinished, refused_fields, room_for_answer

SENT = ("temperature", "top_p", "max_tokens", "seed", "logprobs")
TOO_LONG = [
    "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
    "Your input exceeds the context window of this model. Please adjust your input and try again.",
    "Input tokens exceed the configured limit of 272000 tokens.",
    "context_length_exceeded",
    "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
    "max_tokens must be at least 1, got -904.",
    "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
    "Requested token count exceeds the model's maximum context length of 4096 tokens.",
    "the request exceeds the available context size. try increasing the context size or enable context shift",
    "request (5000 tokens) exceeds the available context size (4096 tokens), try increasing it",
    "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens and 20",
    "Input validation error: `inputs` must have less than 1024 tokens. Given: 5000",
    "prompt is too long: 210000 tokens > 200000 maximum",
    "input length and `max_tokens` exceed context limit: 199000 + 2000 > 200000, decrease input length",
    "The input token count (1100000) exceeds the maximum number of tokens allowed (1048576).",
    "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
    "too many tokens: total number of tokens in the prompt cannot exceed 4081",
    "Please reduce the length of the messages or completion.",
    "This model's maximum prompt length is 131072 but the request contains 140000 tokens.",
    "Trying to keep the first 5000 tokens when context the overflows. It has a context length of only 4096 tokens",
    "Input is too long for requested model.",
    "Prompt length (5000) exceeds maximum input length (4096). Set log level to info",
]
NOT_TOO_LONG = [
    "invalid api key",
    "Unsupported value: 'temperature' does not support 0.0 with this model.",
    "Rate limit reached: too many tokens per minute",
    "model not found in this context",
    "max_tokens is too large: 100000. This model supports at most 16384 completion tokens",
    "The response was filtered due to the prompt triggering content management policy",
]


@pytest.mark.parametrize("message", TOO_LONG)
def test_a_prompt_that_does_not_fit_is_known_in_the_words_of_each_server(message):
    assert is_too_long(400, message)
    assert not is_too_long(429, message), "a limit of the account is no limit of the model"


@pytest.mark.parametrize("message", NOT_TOO_LONG)
def test_another_error_is_not_taken_for_a_long_prompt(message):
    assert not is_too_long(400, message)


@pytest.mark.parametrize(
    ("message", "room"),
    [
        (
            "maximum context length is 2048 tokens. However, you requested 2100 tokens (100 in the messages, 2000 in",
            1948,
        ),
        ("maximum context length is 2048 tokens and your request has 100 input tokens (4096 > 2048 - 100)", 1948),
        ("You passed 3000 input tokens and requested 2000. The model's context length is only 4096 tokens", 1096),
        (
            "context length of 4096 tokens. You requested a total of 5000 tokens: 3000 tokens from the input messages",
            1096,
        ),
        ("`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 3000 `inputs` tokens and 2000", 1096),
        ("`max_tokens` exceed context limit: 199000 + 2000 > 200000", 1000),
        ("maximum context length is 10 tokens. However, your messages resulted in 20 tokens", None),
        ("prompt is too long", None),
    ],
)
def test_the_room_for_an_answer_is_read_where_both_sizes_are_stated(message, room):
    assert room_for_answer(message) == room


@pytest.mark.parametrize(
    ("message", "fields"),
    [
        ("Unsupported value: 'temperature' does not support 0.0 with this model.", ("temperature",)),
        ("`temperature` and `top_p` cannot both be specified for this model.", ("temperature", "top_p")),
        ("temperature must be strictly positive", ("temperature",)),
        ("[{'loc': ('body', 'seed'), 'msg': 'Extra inputs are not permitted'}]", ("seed",)),
        ("max_tokens is too large: 100000. This model supports at most 16384", ("max_tokens",)),
        ("top_logprobs is not supported", ()),
        ("the temperature of the room", ()),
        ("invalid api key", ()),
    ],
)
def test_the_fields_that_an_error_refuses_are_named(message, fields):
    assert refused_fields(400, b"", message, SENT) == fields
    assert refused_fields(500, b"", message, SENT) == ()


def test_a_field_that_the_error_states_counts_alone():
    body = json.dumps({"error": {"message": "no temperature, only top_p", "param": "temperature"}}).encode()
    assert refused_fields(400, body, "no temperature, only top_p", SENT) == ("temperature",)


def test_a_thought_that_used_up_the_limit_is_no_error():
    assert is_unfinished(400, "Could not finish the message because max_tokens or model output limit was reached.")
    assert not is_unfinished(400, "max_tokens is too large")
