import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import agent2.arena
from agent2.arena.assignments.hidden_cases import (
    CLIPS,
    JITTER,
    LOG_RATIOS,
    N_CASES,
    STAGES,
    clipped_gain,
    draw_cases,
    group_advantages,
    judge_answers,
    kl_penalty,
)

ARENA = Path(agent2.arena.__file__).parent


def load(path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> ModuleType:
    from importlib.machinery import SourceFileLoader

    loader = SourceFileLoader(name, str(path))
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(__import__("sys").modules, name, module)
    loader.exec_module(module)
    return module


def stages_passed(trainer: ModuleType, answering: ModuleType, secret: bytes) -> list[str]:
    cases = draw_cases(secret, 0)
    answers = []
    for case in cases:
        try:
            answers.append(answering.answer(json.loads(json.dumps(case.question()))))
        except Exception as error:
            answers.append({"error": repr(error)})
    results = judge_answers(cases, json.dumps(answers).encode())
    return [result.stage for result in results if result.is_passed]


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load(ARENA / "assignments" / "grpo_program" / "answer_cases.py.txt", monkeypatch, "answer_cases")


def trainer_of(agent: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load(ARENA / "agents" / agent / "trainer.py.txt", monkeypatch, "trainer")


def test_a_right_program_passes_every_stage_whatever_the_secret(answering: ModuleType, monkeypatch: pytest.MonkeyPatch):
    oracle = trainer_of("implement-oracle", monkeypatch)
    for number in range(40):
        assert stages_passed(oracle, answering, f"secret {number}".encode()) == list(STAGES)


def test_reinforce_under_another_name_passes_the_log_probabilities_alone(
    answering: ModuleType, monkeypatch: pytest.MonkeyPatch
):
    naive = trainer_of("implement-naive", monkeypatch)
    for number in range(10):
        assert stages_passed(naive, answering, f"secret {number}".encode()) == ["logprobs"]


def test_a_skeleton_passes_nothing(answering: ModuleType, monkeypatch: pytest.MonkeyPatch):
    skeleton = load(ARENA / "assignments" / "grpo_program" / "trainer.py.txt", monkeypatch, "trainer")
    assert stages_passed(skeleton, answering, b"secret") == []


def _sample_spread(t: Any) -> None:
    t.group_advantages = lambda rewards, group_size: (
        (rewards.view(-1, group_size) - rewards.view(-1, group_size).mean(1, keepdim=True))
        / (rewards.view(-1, group_size).std(1, keepdim=True, unbiased=False) + 1e-4)
    ).flatten()


def _learns_from_cut_off(t: Any) -> None:
    t.completion_mask = lambda completion, end_id: (
        ((completion == end_id).long().cumsum(1) - (completion == end_id).long()) == 0
    ).long()


def _one_token_late(t: Any) -> None:
    right = t.token_logprobs
    t.token_logprobs = lambda logits, ids, n_completion, temperature: right(
        logits.roll(-1, 1), ids, n_completion, temperature
    )


def _without_temperature(t: Any) -> None:
    right = t.token_logprobs
    t.token_logprobs = lambda logits, ids, n_completion, temperature: right(logits, ids, n_completion, 1.0)


def _clips_one_side(t: Any) -> None:
    t.clipped_gain = lambda logprobs, old, advantages, clip_low, clip_high: (
        (logprobs - old.detach()).exp().clamp(1 - clip_low, 1 + clip_high) * advantages.detach()[:, None]
    )


def _gradient_into_old(t: Any) -> None:
    right = t.clipped_gain
    t.clipped_gain = lambda logprobs, old, advantages, clip_low, clip_high: (
        right(logprobs, old, advantages, clip_low, clip_high) + 0 * old + old - old.detach()
    )


def _values_without_gradient(t: Any) -> None:
    right = t.kl_penalty
    t.kl_penalty = lambda logprobs, reference: right(logprobs.detach(), reference)


def _turned_round(t: Any) -> None:
    right = t.kl_penalty
    t.kl_penalty = lambda logprobs, reference: right(reference, logprobs)


def _mean_of_rows(t: Any) -> None:
    def loss(logprobs: Any, old: Any, reference: Any, advantages: Any, mask: Any, settings: Any) -> Any:
        gain = t.clipped_gain(logprobs, old, advantages, settings["clip_low"], settings["clip_high"])
        per_token = settings["kl_coefficient"] * t.kl_penalty(logprobs, reference) - gain
        return ((per_token * mask).sum(1) / mask.sum(1).clamp(min=1)).mean()

    t.grpo_loss = loss


def _no_number_for_an_empty_mask(t: Any) -> None:
    right = t.grpo_loss

    def loss(logprobs: Any, old: Any, reference: Any, advantages: Any, mask: Any, settings: Any) -> Any:
        n = mask.sum()
        return right(logprobs, old, reference, advantages, mask, settings) * n / n

    t.grpo_loss = loss


@pytest.mark.parametrize(
    ("spoil", "failed"),
    [
        (_sample_spread, "advantages"),
        (_learns_from_cut_off, "masks"),
        (_one_token_late, "logprobs"),
        (_without_temperature, "logprobs"),
        (_clips_one_side, "clipping"),
        (_gradient_into_old, "clipping"),
        (_values_without_gradient, "kl"),
        (_turned_round, "kl"),
        (_mean_of_rows, "loss"),
        (_no_number_for_an_empty_mask, "loss"),
    ],
)
def test_one_mistake_fails_its_stage(spoil: Any, failed: str, answering: ModuleType, monkeypatch: pytest.MonkeyPatch):
    trainer = trainer_of("implement-oracle", monkeypatch)
    spoil(trainer)
    for number in range(5):
        assert failed not in stages_passed(trainer, answering, f"secret {number}".encode())


def test_the_reference_agrees_with_cases_worked_out_by_hand():
    np.testing.assert_allclose(group_advantages(np.array([1.0, 0.0, 0.5, 0.5]), 2), [0.7070, -0.7070, 0, 0], atol=1e-4)
    one = np.ones((1, 1))
    gain, slope = clipped_gain(np.log(2.0) * one, 0 * one, np.array([1.0]), 0.2, 0.25)
    assert (gain[0, 0], slope[0, 0]) == (1.25, 0.0)
    gain, slope = clipped_gain(np.log(2.0) * one, 0 * one, np.array([-1.0]), 0.2, 0.25)
    assert (gain[0, 0], slope[0, 0]) == pytest.approx((-2.0, -2.0))
    penalty, slope = kl_penalty(np.log(0.5) * one, 0 * one)
    assert (penalty[0, 0], slope[0, 0]) == pytest.approx((1 - np.log(2.0), -1.0))


def test_no_ratio_of_a_case_is_near_a_bound():
    for centre in LOG_RATIOS:
        for bound in (np.log(1 + sign * clip) for clip in CLIPS for sign in (-1, 1)):
            assert abs(centre - bound) > JITTER + 1e-3


def test_questions_tell_no_answer_and_differ_between_secrets_and_seeds():
    cases = draw_cases(b"secret", 0)
    assert [set(case.question()) for case in cases] == [{"function", "tensors", "settings", "weights"}] * len(cases)
    assert len(cases) == N_CASES * len(STAGES)
    texts = {
        json.dumps([case.question() for case in draw_cases(secret, seed)])
        for secret, seed in [(b"secret", 0), (b"secret", 1), (b"other", 0)]
    }
    assert len(texts) == 3


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b"[" * 100_000,
        json.dumps([{"value": 1.0}] * 18).encode(),
        json.dumps([None] * 18).encode(),
        json.dumps([{"value": [[1], [2, 3]], "gradients": []}] * 18).encode(),
        json.dumps([{"value": 10**400, "gradients": {}}] * 18).encode(),
        json.dumps([{"value": "right", "gradients": "right"}] * 18).encode(),
        b"[" + b",".join([b'{"value": NaN}'] * 18) + b"]",
    ],
)
def test_answers_that_are_none_pass_nothing(text: bytes):
    assert not any(result.n_passed for result in judge_answers(draw_cases(b"secret", 0), text))
