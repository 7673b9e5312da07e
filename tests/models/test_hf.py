import gc
import weakref

import numpy as np
import pytest
import torch
from tokenizers import processors
from transformers.utils import logging as transformers_logging

from agent2.errors import ConfigError, Fault, SamplerFailed
from agent2.models.checkpoint import inspect_checkpoint
from agent2.models.hf import HfSampler
from agent2.records import Message, SamplingSettings, StopReason
from hf_builders import CONTEXT, END, VOCABULARY, generate, make_model, make_prompts, make_sampler, run, save


@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3", "gpt2", "neox"])
@pytest.mark.parametrize("max_batch", [1, 5])
def test_greedy_tokens_are_those_of_generate(tmp_path, name, max_batch):
    model = make_model(name)
    prompts = make_prompts(12)
    limits = [1 + (7 * i) % 45 for i in range(12)]
    sampler = HfSampler(save(model, tmp_path), max_batch)
    completions = run(sampler, prompts, max_tokens=limits)
    expected = [generate(model, prompt, limit) for prompt, limit in zip(prompts, limits, strict=True)]
    assert [list(completion.token_ids) for completion in completions] == expected
    assert len({token for tokens in expected for token in tokens}) > 10
    ends = [tokens[-1] == END for tokens in expected]
    assert [completion.stop_reason is StopReason.END for completion in completions] == ends


def test_a_model_with_eager_attention_gives_the_same_tokens():
    model = make_model()
    expected = run(make_sampler(model), make_prompts(6))
    model.set_attn_implementation("eager")
    assert [c.token_ids for c in run(make_sampler(model), make_prompts(6))] == [c.token_ids for c in expected]


def test_samples_depend_on_the_request_and_not_on_the_batch():
    model, prompts = make_model(), make_prompts(24)
    limits = [1 + (11 * i) % 40 for i in range(24)]
    alone, few, many = (
        run(make_sampler(model, size), prompts, temperature=1.0, top_p=0.9, max_tokens=limits) for size in (1, 5, 24)
    )
    assert [c.token_ids for c in alone] == [c.token_ids for c in few] == [c.token_ids for c in many]
    for a, b in zip(alone, many, strict=True):
        assert a.logprobs == pytest.approx(b.logprobs, abs=1e-4)


def test_other_seeds_give_other_samples_and_equal_seeds_equal_ones():
    sampler, settings = make_sampler(max_batch=8), {"temperature": 1.0, "max_tokens": 12}
    for i in range(8):
        sampler.submit(i, [5, 6, 7], SamplingSettings(seed=i // 2, **settings))
    done = {}
    while batch := sampler.collect():
        done.update(batch)
    texts = [done[i].token_ids for i in range(8)]
    assert texts[::2] == texts[1::2]
    assert len(set(texts)) == 4


def test_samples_are_distributed_as_the_model_says():
    model = make_model()
    with torch.no_grad():
        expected = torch.softmax(model(torch.tensor([[5, 6, 7]])).logits[0, -1], -1).numpy()
    n = 4000
    completions = run(make_sampler(model, 256), [[5, 6, 7]] * n, temperature=1.0, max_tokens=1)
    counts = np.bincount([c.token_ids[0] for c in completions], minlength=VOCABULARY) / n
    assert np.abs(counts - expected).max() < 5 * np.sqrt(0.25 / n)
    for completion in completions[:20]:
        assert np.exp(completion.logprobs[0]) == pytest.approx(expected[completion.token_ids[0]], rel=1e-3)


def test_greedy_and_sampled_requests_share_a_batch():
    model, sampler = make_model(), make_sampler(max_batch=4)
    for i in range(4):
        sampler.submit(i, [4, 9], SamplingSettings(temperature=float(i % 2), seed=i, max_tokens=15))
    done = {}
    while batch := sampler.collect():
        done.update(batch)
    assert list(done[0].token_ids) == list(done[2].token_ids) == generate(model, [4, 9], 15)
    assert done[1].token_ids != done[3].token_ids


def test_a_finished_request_is_replaced_before_the_next_step():
    sampler = make_sampler(max_batch=2)
    settings = {"temperature": 1.0}
    model = sampler._model
    model.generation_config.eos_token_id = None
    sampler.submit(0, [4], SamplingSettings(max_tokens=30, **settings))
    sampler.submit(1, [5], SamplingSettings(max_tokens=3, **settings))
    calls: list[tuple[int, int]] = []
    model.register_forward_pre_hook(
        lambda _m, _a, kwargs: calls.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    sampler._is_end[:] = False
    assert [i for i, _ in sampler.collect()] == [1]
    sampler.submit(2, [6, 7], SamplingSettings(max_tokens=4, **settings))
    before = len(calls)
    assert [i for i, _ in sampler.collect()] == [2]
    assert calls[before:] == [(1, 2), (2, 1), (2, 1), (2, 1)]


def test_a_sampler_that_waits_for_more_prompts_admits_them_together_and_draws_the_same():
    model, prompts = make_model(), make_prompts(120)
    limits = [5 + (11 * i) % 41 for i in range(120)]
    at_once, waits = make_sampler(model, 32), make_sampler(model, 32)
    waits.patience = 16
    passes = {id(at_once): 0, id(waits): 0}
    completions = []
    for sampler in (at_once, waits):
        admit = sampler._admit

        def counted(sampler=sampler, admit=admit):
            passes[id(sampler)] += 1
            admit()

        sampler._admit = counted
        completions.append(run(sampler, prompts, temperature=1.0, max_tokens=limits))
    assert [c.token_ids for c in completions[0]] == [c.token_ids for c in completions[1]]
    assert 1 < passes[id(waits)] < passes[id(at_once)]


def test_collect_returns_nothing_only_when_nothing_is_in_flight():
    sampler = make_sampler()
    assert sampler.collect() == []
    run(sampler, make_prompts(3))
    assert sampler.collect() == []


def test_logits_that_are_no_numbers_are_a_fault_of_the_model_and_poison_nobody_else():
    model = make_model()
    with torch.no_grad():
        model.get_input_embeddings().weight[39] = float("nan")
    healthy = [[4, 5], [6], [7, 8, 9], [10], [11, 12]]
    expected = run(make_sampler(model, 5), healthy, temperature=1.0)
    sampler = make_sampler(model, max_batch=2)
    mixed = [[39, 4], *healthy]
    for i, prompt in enumerate(mixed):
        sampler.submit(i, prompt, SamplingSettings(seed=i - 1, temperature=1.0, max_tokens=20))
    done = {}
    while batch := sampler.collect():
        done.update(batch)
    assert (done[0].stop_reason, done[0].fault, done[0].text) == (StopReason.FAULT, Fault.MODEL, "")
    assert "new token 1" in done[0].reason
    assert [(done[i].token_ids, done[i].fault) for i in range(1, 6)] == [(c.token_ids, c.fault) for c in expected]
    assert any(c.fault is None for c in expected)


def test_a_completion_ends_where_the_context_ends():
    sampler = make_sampler(max_batch=3)
    sampler._is_end[:] = False
    prompts = [[5] * (CONTEXT - 3), [6] * (CONTEXT - 1), [7, 8]]
    completions = run(sampler, prompts, temperature=1.0, max_tokens=1000)
    assert [len(c.token_ids) for c in completions] == [3, 1, CONTEXT - 2]
    assert all(c.stop_reason is StopReason.LENGTH for c in completions)
    assert [c.prompt_tokens for c in completions] == [CONTEXT - 3, CONTEXT - 1, 2]


@pytest.mark.parametrize(
    ("prompt", "complaint"),
    [
        ([5] * CONTEXT, "leaves no room"),
        ([5] * (CONTEXT + 50), "has 250 tokens, the context of 200"),
        ([], "has no tokens"),
        ([5, VOCABULARY], "outside the model's vocabulary"),
        ([-1], "outside the model's vocabulary"),
    ],
)
def test_a_prompt_that_cannot_be_run_is_a_fault_with_the_reason(prompt, complaint):
    completions = run(make_sampler(), [prompt, [5, 6]])
    assert (completions[0].stop_reason, completions[0].fault) == (StopReason.FAULT, Fault.MODEL)
    assert complaint in completions[0].reason
    assert completions[1].fault is None


def test_messages_are_rendered_with_the_template_and_the_answer_has_no_end_token():
    sampler = make_sampler()
    by_message, by_tokens = run(sampler, [[Message("user", "w4 w5"), Message("user", "w6")], [4, 5, 6, 39]])
    assert by_message.token_ids == by_tokens.token_ids
    assert by_message.prompt_tokens == 4
    body = [token for token in by_message.token_ids if token > END]
    assert by_message.text == "".join(f"w{token}" for token in body)


@pytest.mark.parametrize(
    ("template", "complaint"),
    [(None, "no chat template"), ("{{ 1 / 0 }}", "ZeroDivisionError"), ("{% set a = 1 %}", "no tokens")],
)
def test_a_template_that_does_not_work_is_a_fault_of_the_model(template, complaint):
    sampler = make_sampler()
    sampler._tokenizer.chat_template = template
    (completion,) = run(sampler, [[Message("user", "w4")]])
    assert completion.fault is Fault.MODEL
    assert complaint in completion.reason


def test_an_id_in_flight_and_settings_without_sense_are_refused():
    sampler = make_sampler()
    sampler.submit(1, [4], SamplingSettings())
    with pytest.raises(SamplerFailed, match="in flight already"):
        sampler.submit(1, [4], SamplingSettings())
    for bad in ({"max_tokens": 0}, {"temperature": -1.0}, {"top_p": 0.0}, {"top_p": 1.5}):
        with pytest.raises(SamplerFailed, match="cannot be sampled"):
            sampler.submit(2, [4], SamplingSettings(**bad))
    sampler.collect()
    sampler.submit(1, [4], SamplingSettings())
    with pytest.raises(ConfigError, match="max_batch 0"):
        make_sampler(max_batch=0)


def test_a_trainers_model_keeps_its_mode_and_shows_its_new_weights():
    model = make_model()
    model.train()
    model.model.layers[0].eval()
    sampler = make_sampler(model)
    (before,) = run(sampler, [[4, 5, 6]])
    assert model.training and not model.model.layers[0].training and model.model.layers[1].training
    new_model = make_model(seed=9)
    with torch.no_grad():
        for parameter, new in zip(model.parameters(), new_model.parameters(), strict=True):
            parameter.copy_(new)
    (after,) = run(sampler, [[4, 5, 6]])
    assert list(after.token_ids) == generate(new_model, [4, 5, 6], 20) != list(before.token_ids)
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_the_lock_facts_name_model_and_template(tmp_path):
    folder = save(make_model(), tmp_path)
    facts = HfSampler(folder, max_batch=3).describe()
    assert (facts["kind"], facts["model"], facts["architecture"]) == ("hf", str(folder), "LlamaForCausalLM")
    assert (facts["dtype"], facts["device"], facts["max_batch"]) == ("float32", "cpu", 3)
    assert facts["chat_template_digest"] == inspect_checkpoint(folder).chat_template_digest


def test_close_may_be_called_twice():
    sampler = make_sampler()
    sampler.submit(0, [4], SamplingSettings())
    sampler.close()
    sampler.close()
    assert sampler.collect() == []
    with pytest.raises(SamplerFailed, match="is closed"):
        sampler.submit(0, [4], SamplingSettings())


def test_half_precision_runs(tmp_path):
    folder = save(make_model(), tmp_path)
    completions = run(HfSampler(folder, 3, dtype="bfloat16"), make_prompts(6), temperature=1.0)
    assert all(c.fault is None and len(c.token_ids) >= 1 for c in completions)


@pytest.mark.parametrize("n_steps", [5, 40])
def test_close_lets_go_of_the_weights_though_a_step_was_recorded(tmp_path, n_steps):
    sampler = HfSampler(save(make_model(), tmp_path), max_batch=1)
    sampler._is_end[:] = False
    run(sampler, [[4, 5]], max_tokens=n_steps)
    weights = [weakref.ref(weight) for weight in sampler._model.parameters()]
    sampler.close()
    gc.collect()
    assert all(w() is None or w().untyped_storage().nbytes() == 0 for w in weights)


def test_running_out_of_memory_loses_what_is_in_flight_and_nothing_after_it():
    model = make_model()
    sampler = make_sampler(model, max_batch=2)
    expected = run(sampler, [[4, 5, 6]])
    is_full = [True]

    def fail(*_: object) -> None:
        if is_full[0]:
            raise torch.OutOfMemoryError("no room")

    model.register_forward_pre_hook(fail)
    for i in range(4):
        sampler.submit(i, [4, 5], SamplingSettings())
    with pytest.raises(SamplerFailed, match="lower max_batch"):
        sampler.collect()
    assert sampler.collect() == []
    is_full[0] = False
    assert run(sampler, [[4, 5, 6]]) == expected


def test_a_broken_padding_token_spoils_no_prompt():
    model = make_model()
    with torch.no_grad():
        model.get_input_embeddings().weight[0] = float("nan")
        model.lm_head.weight[0] = 0
    completions = run(make_sampler(model, 4), [[4, 5, 6, 7], [8, 9, 10], [11, 12, 13, 14]], max_tokens=1)
    assert [c.fault for c in completions] == [None] * 3


def test_a_row_without_top_p_is_drawn_as_if_alone(tmp_path):
    model = make_model()
    alone = run(make_sampler(model, 1), [[4, 5]] * 4, temperature=1.5)
    sampler = make_sampler(model, 8)
    for i in range(8):
        settings = SamplingSettings(temperature=1.5, seed=i, max_tokens=20, top_p=1.0 if i < 4 else 0.5)
        sampler.submit(i, [4, 5], settings)
    done = {}
    while batch := sampler.collect():
        done.update(batch)
    assert [done[i].token_ids for i in range(4)] == [c.token_ids for c in alone]


def test_each_of_several_end_tokens_ends_a_completion(tmp_path):
    model = make_model()
    model.generation_config.eos_token_id = [END, 7, 9]
    model.generation_config.pad_token_id = 0
    completions = run(make_sampler(model), make_prompts(12), max_tokens=60)
    assert [list(c.token_ids) for c in completions] == [generate(model, prompt, 60) for prompt in make_prompts(12)]
    assert {c.token_ids[-1] for c in completions if c.stop_reason is StopReason.END} >= {END, 9}


@pytest.mark.parametrize("is_enabled", [True, False])
def test_loading_draws_no_progress_bar_and_leaves_the_setting_alone(tmp_path, capfd, monkeypatch, is_enabled):
    folder = save(make_model(), tmp_path)
    monkeypatch.setattr(transformers_logging, "_tqdm_active", is_enabled)
    capfd.readouterr()
    HfSampler(folder)
    assert capfd.readouterr().err == ""
    assert transformers_logging.is_progress_bar_enabled() == is_enabled


def test_a_first_token_that_template_and_tokenizer_both_add_is_there_once():
    sampler = make_sampler()
    tokenizer = sampler._tokenizer
    tokenizer.chat_template = "{{ bos_token }} " + tokenizer.chat_template
    tokenizer._tokenizer.post_processor = processors.TemplateProcessing(
        single="<bos> $A", special_tokens=[("<bos>", 1)]
    )
    assert tokenizer("w4").input_ids == [1, 4]
    by_message, by_tokens = run(sampler, [[Message("user", "w4 w5")], [1, 4, 5, 39]])
    assert (by_message.token_ids, by_message.prompt_tokens) == (by_tokens.token_ids, 4)
