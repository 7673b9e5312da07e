import pytest

from agent2.errors import ConfigError, Fault, SamplerFailed
from agent2.models.sources import ScriptedSampler
from agent2.records import Completion, Message, SamplingSettings, StopReason


def ask(content):
    return [Message("user", content)]


def test_it_answers_what_the_script_says_in_the_order_asked():
    sampler = ScriptedSampler(lambda messages: messages[-1].content.upper())
    sampler.submit(7, ask("a"), SamplingSettings())
    sampler.submit(3, ask("b"), SamplingSettings())
    assert [(request, done.text) for request, done in sampler.collect()] == [(7, "A"), (3, "B")]
    assert sampler.collect() == []


def test_a_script_can_return_a_whole_completion():
    fault = Completion("", stop_reason=StopReason.FAULT, fault=Fault.MODEL, reason="NaN logits")
    sampler = ScriptedSampler(lambda messages: fault)
    sampler.submit(0, ask("a"), SamplingSettings())
    assert sampler.collect() == [(0, fault)]


def test_a_request_id_in_flight_is_refused_and_free_again_afterwards():
    sampler = ScriptedSampler(lambda messages: "x")
    sampler.submit(0, ask("a"), SamplingSettings())
    with pytest.raises(SamplerFailed, match="request 0 is in flight"):
        sampler.submit(0, ask("a"), SamplingSettings())
    sampler.collect()
    sampler.submit(0, ask("a"), SamplingSettings())
    assert len(sampler.collect()) == 1


def test_token_ids_are_refused():
    with pytest.raises(SamplerFailed, match="token ids"):
        ScriptedSampler(lambda messages: "x").submit(0, [1, 2], SamplingSettings())


def test_closing_forgets_what_was_not_collected():
    sampler = ScriptedSampler(lambda messages: "x")
    sampler.submit(0, ask("a"), SamplingSettings())
    sampler.close()
    sampler.close()
    assert sampler.collect() == []
    assert sampler.describe()["kind"] == "scripted"


def test_a_function_that_returns_no_answer_is_refused():
    sampler = ScriptedSampler(lambda messages: 3)
    with pytest.raises(ConfigError, match="returned 3; return a str or a Completion"):
        sampler.submit(1, ask("a"), SamplingSettings())
