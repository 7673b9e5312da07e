"""Conversations: what a sampler keeps between turns changes its speed and nothing else."""

import numpy as np
import pytest
import torch

from agent2.models.hf import HfSampler
from agent2.records import Message, SamplingSettings
from hf_builders import CONTEXT, VOCABULARY, make_model, make_sampler, make_tokenizer, run, save

N_EPISODES, N_TURNS = 12, 5


def converse(sampler: HfSampler, n_turns: int = N_TURNS, settle_first: bool = False, **settings) -> dict:
    """Token-id conversations of several turns, each going on as soon as its turn is done; completions by turn.

    settle_first: all episodes finish a turn before any begins the next.
    """
    rng = np.random.default_rng(1)
    observations = rng.integers(3, VOCABULARY, (N_EPISODES, n_turns, 9)).tolist()
    prompts = [observations[i][0] + [4 + i] * (i % 3) for i in range(N_EPISODES)]
    turns, completions = [0] * N_EPISODES, {}

    def ask(i: int) -> None:
        sampler.submit(
            i, prompts[i], SamplingSettings(seed=100 * i + turns[i], max_tokens=1 + (i + turns[i]) % 9, **settings)
        )

    for i in range(N_EPISODES):
        ask(i)
    pending = []
    while batch := sampler.collect():
        for i, completion in batch:
            completions[i, turns[i]] = completion
            turns[i] += 1
            if turns[i] < n_turns:
                new = observations[i][turns[i]][: 1 + (3 * i + turns[i]) % 9]
                prompts[i] = [*prompts[i], *completion.token_ids, *new]
                pending.append(i)
        if not settle_first or not sampler._in_flight:
            for i in pending:
                ask(i)
            pending.clear()
    assert len(completions) == N_EPISODES * n_turns
    return completions


def forgetful(sampler: HfSampler) -> HfSampler:
    """The same sampler without anything kept."""
    collect = sampler.collect

    def collect_and_forget():
        done = collect()
        sampler.forget()
        return done

    sampler.collect = collect_and_forget
    return sampler


def assert_same(completions: dict, expected: dict) -> None:
    assert {key: list(c.token_ids) for key, c in completions.items()} == {
        key: list(c.token_ids) for key, c in expected.items()
    }
    for key, completion in completions.items():
        assert completion.logprobs == pytest.approx(expected[key].logprobs, abs=1e-4)
        assert completion.prompt_tokens == expected[key].prompt_tokens


@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3", "gpt2", "neox"])
@pytest.mark.parametrize("max_batch", [1, 5, N_EPISODES])
def test_a_conversation_is_the_same_with_and_without_what_was_kept(tmp_path, name, max_batch):
    folder = save(make_model(name), tmp_path)
    keeping = HfSampler(folder, max_batch)
    assert_same(converse(keeping), converse(forgetful(HfSampler(folder, max_batch))))


@pytest.mark.parametrize("settle_first", [False, True])
def test_only_new_tokens_are_computed_while_there_is_a_slot_for_each_conversation(settle_first):
    sampler, plain = make_sampler(max_batch=N_EPISODES), forgetful(make_sampler(max_batch=N_EPISODES))
    completions = converse(sampler, temperature=1.0, settle_first=settle_first)
    assert_same(completions, converse(plain, temperature=1.0, settle_first=settle_first))
    final = [completions[i, N_TURNS - 1].prompt_tokens for i in range(N_EPISODES)]
    n_prompt_tokens = sum(completion.prompt_tokens for completion in completions.values())
    assert plain.prefilled_tokens == n_prompt_tokens
    drawn_and_fed = sum(len(c.token_ids) - 1 for (_, turn), c in completions.items() if turn < N_TURNS - 1)
    assert sampler.prefilled_tokens == sum(final) - drawn_and_fed  # the last token of each turn was never fed


def test_slots_for_conversations_take_no_more_memory_than_their_requests_did():
    sampler, plain = make_sampler(max_batch=64), forgetful(make_sampler(max_batch=64))
    converse(sampler)
    converse(plain)
    assert sampler._cache.n_rows == plain._cache.n_rows
    assert sampler._cache.n_columns == plain._cache.n_columns
    alone = make_sampler(max_batch=64)
    for i in range(10):
        run(alone, [[4 + i] * 20])
    assert alone._cache.n_rows == 1


def test_messages_and_their_token_ids_go_on_in_the_same_slot():
    sampler = make_sampler(max_batch=2)
    opening = [Message("user", " ".join(f"w{5 + i}" for i in range(12)))]
    (answer,) = run(sampler, [opening], max_tokens=4)
    before = sampler.prefilled_tokens
    answer_text = " ".join(sampler._tokenizer.convert_ids_to_tokens(answer.token_ids))
    (second,) = run(sampler, [[*opening, Message("assistant", answer_text), Message("user", "w20 w21")]])
    # The template puts no mark before an answer, so only the prompt goes on: mark, answer, question, mark are new.
    assert second.prompt_tokens - (sampler.prefilled_tokens - before) == 12
    ids = [*range(5, 17), *answer.token_ids, 20, 21, 39]
    (by_ids,) = run(sampler, [ids])
    assert by_ids.token_ids == second.token_ids
    (fresh,) = run(make_sampler(max_batch=2), [ids])
    assert fresh.token_ids == by_ids.token_ids
    assert fresh.logprobs == pytest.approx(by_ids.logprobs, abs=1e-4)


def test_equal_prompts_that_start_together_are_computed_once_and_drawn_apart():
    prompt = list(range(4, 24))
    sampler, settings = make_sampler(max_batch=16), {"temperature": 1.0, "max_tokens": 12}
    together = run(sampler, [prompt] * 8 + [[30, 31, 32]] * 8, **settings)
    assert sampler.prefilled_tokens == 23
    alone = run(forgetful(make_sampler(max_batch=1)), [prompt] * 8 + [[30, 31, 32]] * 8, **settings)
    assert [c.token_ids for c in together] == [c.token_ids for c in alone]
    assert len({tuple(c.token_ids) for c in together[:8]}) > 4
    for a, b in zip(together, alone, strict=True):
        assert a.logprobs == pytest.approx(b.logprobs, abs=1e-4)


def test_a_prompt_that_shares_its_beginning_with_another_conversation_is_right():
    shared = list(range(3, 33))
    prompts = [[*shared, 30 + i, *range(5, 5 + i)] for i in range(9)]
    expected = run(forgetful(make_sampler(max_batch=1)), prompts)
    sampler = make_sampler(max_batch=3)
    completions = run(sampler, prompts)
    assert [c.token_ids for c in completions] == [c.token_ids for c in expected]
    assert sampler.prefilled_tokens < sum(len(prompt) for prompt in prompts) - 4 * len(shared)


def test_new_weights_of_a_trainers_model_drop_what_was_kept():
    model = make_model()
    sampler = make_sampler(model)
    (first,) = run(sampler, [list(range(4, 24))])
    with torch.no_grad():
        for parameter, new in zip(model.parameters(), make_model(seed=9).parameters(), strict=True):
            parameter.copy_(new)
    longer = [*range(4, 24), *first.token_ids, 7, 8]
    (second,) = run(sampler, [longer])
    (fresh,) = run(make_sampler(make_model(seed=9)), [longer])
    assert second.token_ids == fresh.token_ids
    assert second.logprobs == pytest.approx(fresh.logprobs, abs=1e-5)
    assert sampler.prefilled_tokens == 20 + len(longer)


def test_forget_is_for_changes_that_cannot_be_seen():
    sampler = make_sampler()
    prompt = list(range(4, 24))
    run(sampler, [prompt])
    run(sampler, [[*prompt, 5]])
    assert sampler.prefilled_tokens == 21
    sampler.forget()
    run(sampler, [[*prompt, 6]])
    assert sampler.prefilled_tokens == 42


def test_a_request_that_ended_in_numbers_that_are_no_numbers_leaves_nothing_behind():
    model = make_model()
    with torch.no_grad():
        model.get_input_embeddings().weight[39] = float("nan")
    sampler = make_sampler(model, max_batch=2)
    broken = [5, 6, 7, 8, 9, 10, 11, 12, 13, 39]
    (first,) = run(sampler, [broken])
    assert first.fault is not None
    assert not sampler._rows.parked().size
    healthy = [*broken[:-1], 14]
    assert run(sampler, [healthy]) == run(make_sampler(model), [healthy])


def test_a_conversation_that_reaches_the_end_of_the_context_is_right():
    sampler, plain = make_sampler(max_batch=4), forgetful(make_sampler(max_batch=4))
    for each_sampler in (sampler, plain):
        each_sampler._is_end[:] = False
    prompts = {sampler: [5, 6, 7], plain: [5, 6, 7]}
    for _ in range(40):
        answers = [run(each_sampler, [prompts[each_sampler]], max_tokens=5)[0] for each_sampler in (sampler, plain)]
        assert answers[0].token_ids == answers[1].token_ids
        assert answers[0].stop_reason == answers[1].stop_reason
        for each_sampler in (sampler, plain):
            prompts[each_sampler] = [*prompts[each_sampler], *answers[0].token_ids, 9]
        if len(prompts[sampler]) >= CONTEXT:
            return
    raise AssertionError("the context was never full")


def test_half_precision_goes_on_too(tmp_path):
    folder = save(make_model(), tmp_path)
    completions = converse(HfSampler(folder, 5, dtype="bfloat16"), temperature=1.0)
    assert all(c.fault is None and len(c.token_ids) >= 1 for c in completions.values())


def test_a_conversation_of_messages_goes_on_as_far_as_its_template_gives_the_tokens_that_were_drawn():
    tokenizer = make_tokenizer()
    tokenizer.chat_template = (
        "{% for m in messages %}{% if m.role == 'assistant' %}w38 {{ m.content }} <end> "
        "{% else %}w37 {{ m.content }} {% endif %}{% endfor %}{% if add_generation_prompt %}w38{% endif %}"
    )
    tokenizer._tokenizer.decoder = None  # words with spaces between them, as the template wants them
    sampler = HfSampler.from_model(make_model(), tokenizer, 4)
    messages, held, n_whole = [Message("user", "w5 w6 w7 w8 w9 w10")], [], 0
    for turn in range(6):
        before = sampler.prefilled_tokens
        (answer,) = run(sampler, [messages], max_tokens=6)
        ids = list(sampler._tokens_of(messages)[0])
        n_common = next((i for i, (old, new) in enumerate(zip(held, ids, strict=False)) if old != new), len(held))
        assert sampler.prefilled_tokens - before == len(ids) - n_common
        n_whole += n_common == len(held)
        held = [*ids, *answer.token_ids[:-1]]
        messages = [*messages, Message("assistant", answer.text), Message("user", f"w{11 + turn} w12")]
    assert n_whole > 2  # the others drew a padding token, which is not in the text
