"""Hidden tests of an own GRPO: arguments drawn from a secret, and the right values and gradients.

The program under test gets arguments alone and writes down what it makes of them; the comparison is here, outside of
its process, so nothing that it does there can pass a test but the right numbers. The reference is numpy in double
precision with gradients worked out by hand, and shares no line with the programs of the package.

A case contains the traps of its function at once (a group without spread, a completion that was cut off, a ratio
clipped on either side), and a stage is passed with all of its cases, so no part of a right function passes one.
"""

import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from agent2.records import JsonValue

Array = NDArray[np.float64]

N_CASES = 3
"""Of each stage."""
RELATIVE, ABSOLUTE = 2e-4, 2e-5
"""Largest difference that rounding in single precision explains; the program computes in it."""
CLIPS = (0.15, 0.2, 0.25)
LOG_RATIOS = (-0.5, -0.05, 0.05, 0.5)
"""Of new and old probabilities, clipped and not; `JITTER` around them never reaches a bound in `CLIPS`."""
JITTER = 0.04
SPREAD_FLOOR = 1e-4
END = 1


@dataclass(frozen=True, slots=True)
class HiddenCase:
    """One call of one function."""

    stage: str
    function: str
    tensors: Mapping[str, Array]
    """Arguments that are tensors, by name."""
    settings: Mapping[str, JsonValue]
    """The other arguments."""
    value: Array
    """What has to come out."""
    weights: Array | None = None
    """The gradient is that of the sum of the values times these; None: the function has none."""
    gradients: Mapping[str, Array] = field(default_factory=dict)
    """By argument; zero for those that are constants."""

    def question(self) -> dict[str, JsonValue]:
        """What the program under test gets."""
        tensors: dict[str, JsonValue] = {
            name: {
                "values": values.tolist(),
                "is_whole": name in WHOLE,
                "has_gradient": name in self.gradients,
            }
            for name, values in self.tensors.items()
        }
        weights = None if self.weights is None else self.weights.tolist()
        return {"function": self.function, "tensors": tensors, "settings": {**self.settings}, "weights": weights}


WHOLE = frozenset({"completion", "ids", "mask"})
"""Tensors of whole numbers."""
STAGES: Mapping[str, str] = {
    "advantages": "group_advantages",
    "masks": "completion_mask",
    "logprobs": "token_logprobs",
    "clipping": "clipped_gain",
    "kl": "kl_penalty",
    "loss": "grpo_loss",
}
"""Stage -> the function that it is about."""


@dataclass(frozen=True, slots=True)
class StageResult:
    """How a program did in one stage."""

    stage: str
    n_values: int
    """Cases with the right value."""
    n_passed: int
    """Cases with the right value and the right gradients."""
    first_fault: str
    """What was wrong in the first case that was not passed; empty where all were. Tells no right number."""

    @property
    def is_passed(self) -> bool:
        """True where every case was passed."""
        return self.n_passed == N_CASES


def draw_cases(secret: bytes, seed: int) -> list[HiddenCase]:
    """The cases of a seed, `N_CASES` of each stage, in the order of `STAGES`."""
    digest = hmac.digest(secret, f"implement-grpo {seed}".encode(), hashlib.sha256)
    rng = np.random.default_rng(int.from_bytes(digest[:16], "big"))
    draws = (_advantages, _masks, _logprobs, _clipping, _kl)
    cases = [draw(rng) for draw in draws for _ in range(N_CASES)]
    return [*cases, *(_loss(rng, is_empty=number == 0) for number in range(N_CASES))]


def judge_answers(cases: Sequence[HiddenCase], text: bytes) -> list[StageResult]:
    """The result of each stage, from what the program wrote. text: JSON, not to be trusted; empty: nothing came."""
    try:
        answers = json.loads(text) if text else None
    except (ValueError, RecursionError):
        answers = None
    listed = answers if isinstance(answers, list) and len(answers) == len(cases) else [None] * len(cases)
    results = []
    for stage in STAGES:
        pairs = [(case, answer) for case, answer in zip(cases, listed, strict=True) if case.stage == stage]
        faults = [_fault(case, answer) for case, answer in pairs]
        wrong_gradient = [fault for fault in faults if fault.startswith("gradient")]
        n_passed = faults.count("")
        first_fault = next((fault for fault in faults if fault), "")
        results.append(StageResult(stage, n_passed + len(wrong_gradient), n_passed, first_fault))
    return results


def _fault(case: HiddenCase, answer: object) -> str:
    """What is wrong with an answer; empty: nothing."""
    if not isinstance(answer, dict):
        return "no answer"
    if "error" in answer:
        return str(answer["error"])[:200]
    if not _is_close(answer.get("value"), case.value):
        return "values differ from the reference"
    gradients = answer.get("gradients")
    for name, expected in case.gradients.items():
        actual = gradients.get(name) if isinstance(gradients, dict) else None
        if actual is None and not expected.any():
            continue
        if not _is_close(actual, expected):
            return f"gradient in `{name}` differs from the reference" + ("" if expected.any() else ", which has none")
    return ""


def _is_close(actual: object, expected: Array) -> bool:
    if actual is None:
        return False
    try:
        numbers = np.asarray(actual, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):  # ragged, text, or a number that is no float
        return False
    return numbers.shape == expected.shape and np.allclose(numbers, expected, rtol=RELATIVE, atol=ABSOLUTE)


def group_advantages(rewards: Array, group_size: int) -> Array:
    """Reward minus mean of the group, over its standard deviation (n - 1) plus `SPREAD_FLOOR`.

    Source: Shao et al. 2024, arXiv:2402.03300, section 4.1.2.
    """
    grouped = rewards.reshape(-1, group_size)
    centred = grouped - grouped.mean(axis=1, keepdims=True)
    advantages: Array = (centred / (grouped.std(axis=1, ddof=1, keepdims=True) + SPREAD_FLOOR)).ravel()
    return advantages


def clipped_gain(logprobs: Array, old: Array, advantages: Array, low: float, high: float) -> tuple[Array, Array]:
    """The clipped objective of each token, and its derivative in `logprobs`.

    Source: Schulman et al. 2017, arXiv:1707.06347, eq. 7; two bounds: Yu et al. 2025, arXiv:2503.14476, section 3.1.
    """
    ratio, column = np.exp(logprobs - old), advantages[:, None]
    free, bound = ratio * column, np.clip(ratio, 1 - low, 1 + high) * column
    return np.minimum(free, bound), np.where(free <= bound, free, 0.0)


def kl_penalty(logprobs: Array, reference: Array) -> tuple[Array, Array]:
    """exp(d) - d - 1 with d = reference - logprobs, and its derivative in `logprobs`.

    Source: Schulman 2020, "Approximating KL divergence", the estimator k3.
    """
    gap = reference - logprobs
    return np.exp(gap) - gap - 1.0, 1.0 - np.exp(gap)


def _advantages(rng: np.random.Generator) -> HiddenCase:
    size, n_groups = int(rng.choice([3, 4, 6])), 4
    rewards = (
        rng.integers(0, 17, (n_groups, size)) / 16
    )  # sums without rounding: a group without spread has exactly none
    rewards[:, :2] = (0.0, 1.0)
    rewards[0] = rng.integers(0, 17) / 16
    rewards[1] += 10.0
    rewards = rng.permutation(rewards).ravel()
    value = group_advantages(rewards, size)
    return HiddenCase("advantages", STAGES["advantages"], {"rewards": rewards}, {"group_size": size}, value)


def _masks(rng: np.random.Generator) -> HiddenCase:
    n_tokens = int(rng.integers(6, 10))
    rows = rng.integers(END + 1, 30, (5, n_tokens))
    middle = int(rng.integers(1, n_tokens - 3))
    rows[0, middle], rows[0, middle + 1 :] = END, 0
    rows[1, 0], rows[1, 1:] = END, 0
    rows[2, -1] = END
    rows[3, [middle, middle + 2]] = END
    ends = {0: middle, 1: 0, 2: n_tokens - 1, 3: middle}  # the last row is cut off
    mask = np.array([[float(row in ends and token <= ends[row]) for token in range(n_tokens)] for row in range(5)])
    order = rng.permutation(5)
    tensors = {"completion": rows[order].astype(np.float64)}
    return HiddenCase("masks", STAGES["masks"], tensors, {"end_id": END}, mask[order])


def _logprobs(rng: np.random.Generator) -> HiddenCase:
    n_rows, length, vocabulary = 3, int(rng.integers(5, 8)), 9
    n_completion, temperature = int(rng.integers(2, 4)), float(rng.choice([0.6, 1.4]))
    logits = rng.normal(0, 2, (n_rows, length, vocabulary))
    ids = rng.integers(0, vocabulary, (n_rows, length))
    weights = rng.uniform(0.5, 1.5, (n_rows, n_completion))
    scores = logits[:, -n_completion - 1 : -1] / temperature
    scores = scores - scores.max(axis=2, keepdims=True)
    logs = scores - np.log(np.exp(scores).sum(axis=2, keepdims=True))
    drawn_ids = ids[:, -n_completion:, None]
    value = np.take_along_axis(logs, drawn_ids, axis=2)[:, :, 0]
    is_drawn = (np.arange(vocabulary) == drawn_ids).astype(np.float64)
    gradient = np.zeros_like(logits)
    gradient[:, -n_completion - 1 : -1] = weights[:, :, None] * (is_drawn - np.exp(logs)) / temperature
    settings: dict[str, JsonValue] = {"n_completion": n_completion, "temperature": temperature}
    tensors = {"logits": logits, "ids": ids.astype(np.float64)}
    return HiddenCase("logprobs", STAGES["logprobs"], tensors, settings, value, weights, {"logits": gradient})


@dataclass(frozen=True, slots=True)
class _Batch:
    """What clipping, penalty and loss are computed from: rows x tokens, advantages by row."""

    logprobs: Array
    old: Array
    reference: Array
    advantages: Array
    clip_low: float
    clip_high: float


def _batch(rng: np.random.Generator) -> _Batch:
    """Every pair of a sign of the advantage and a log ratio is in it."""
    n_tokens = len(LOG_RATIOS)
    advantages = rng.permutation(np.array([1.0, -1.0, 1.0, -1.0]) * rng.uniform(0.5, 1.5, 4))
    shape = (len(advantages), n_tokens)
    old = rng.uniform(-3.0, -0.7, shape)
    log_ratios = np.array([rng.permutation(LOG_RATIOS) for _ in advantages]) + rng.uniform(-JITTER, JITTER, shape)
    reference = old + rng.uniform(-0.6, 0.6, shape)
    low, high = rng.permutation(CLIPS)[:2]
    return _Batch(old + log_ratios, old, reference, advantages, float(low), float(high))


def _clipping(rng: np.random.Generator) -> HiddenCase:
    batch = _batch(rng)
    weights = rng.uniform(0.5, 1.5, batch.old.shape)
    value, slope = clipped_gain(batch.logprobs, batch.old, batch.advantages, batch.clip_low, batch.clip_high)
    tensors = {"logprobs": batch.logprobs, "old": batch.old, "advantages": batch.advantages}
    gradients = {"logprobs": weights * slope, "old": np.zeros_like(batch.old), "advantages": np.zeros(4)}
    settings: dict[str, JsonValue] = {"clip_low": batch.clip_low, "clip_high": batch.clip_high}
    return HiddenCase("clipping", STAGES["clipping"], tensors, settings, value, weights, gradients)


def _kl(rng: np.random.Generator) -> HiddenCase:
    batch = _batch(rng)
    weights = rng.uniform(0.5, 1.5, batch.old.shape)
    value, slope = kl_penalty(batch.logprobs, batch.reference)
    gradients = {"logprobs": weights * slope, "reference": np.zeros_like(batch.reference)}
    tensors = {"logprobs": batch.logprobs, "reference": batch.reference}
    return HiddenCase("kl", STAGES["kl"], tensors, {}, value, weights, gradients)


def _loss(rng: np.random.Generator, *, is_empty: bool) -> HiddenCase:
    """is_empty: no token is learned from, as where a whole batch was cut off."""
    batch = _batch(rng)
    n_tokens = batch.old.shape[1]
    n_learned = rng.permutation([0, 1, 2, n_tokens])  # rows of unlike lengths: a mean of rows is not the mean of tokens
    mask = (np.arange(n_tokens) < (0 if is_empty else 1) * n_learned[:, None]).astype(np.float64)
    coefficient, weight = float(rng.uniform(0.2, 0.6)), float(rng.uniform(0.5, 1.5))
    gain, gain_slope = clipped_gain(batch.logprobs, batch.old, batch.advantages, batch.clip_low, batch.clip_high)
    penalty, penalty_slope = kl_penalty(batch.logprobs, batch.reference)
    share = mask / max(1.0, mask.sum())
    value = np.array(((coefficient * penalty - gain) * share).sum())
    tensors = {
        "logprobs": batch.logprobs,
        "old": batch.old,
        "reference": batch.reference,
        "advantages": batch.advantages,
        "mask": mask,
    }
    gradients = {name: np.zeros_like(tensors[name]) for name in ("old", "reference", "advantages")}
    gradients["logprobs"] = weight * share * (coefficient * penalty_slope - gain_slope)
    terms: dict[str, JsonValue] = {
        "clip_low": batch.clip_low,
        "clip_high": batch.clip_high,
        "kl_coefficient": coefficient,
    }
    return HiddenCase("loss", STAGES["loss"], tensors, {"settings": terms}, value, np.array(weight), gradients)
