"""Training logs made for tests: a healthy run with realistic noise, and the ways in which one goes wrong."""

import json
from pathlib import Path

import numpy as np

N_LOGS = 80
EVERY = 5


def healthy(seed: int = 0) -> list[dict[str, float]]:
    """Reward slowly rising, KL drifting up, entropy slowly declining, length and cost about level; a nightly score."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(N_LOGS):
        done = i / N_LOGS
        row = {
            "step": float((i + 1) * EVERY),
            "reward": 0.25 + 0.4 * done + rng.normal(0, 0.03),
            "kl": max(0.001, 0.02 + 0.06 * done + rng.normal(0, 0.008)),
            "entropy": 1.2 * np.exp(-0.7 * done) * np.exp(rng.normal(0, 0.06)),
            "length": 300 * np.exp(rng.normal(0.05 * done, 0.06)),
            "cost": 1.0 * np.exp(rng.normal(0.04 * done, 0.05)),
            "loss": rng.normal(0, 0.02),
        }
        if i % 8 == 7:
            row["gsm8k_exact_match"] = 0.60 + 0.15 * done + rng.normal(0, 0.006)
        rows.append(row)
    return rows


def kl_spike(seed: int = 0) -> list[dict[str, float]]:
    """One batch throws the policy far away, and it stays there."""
    rows = healthy(seed)
    for i in range(50, N_LOGS):
        rows[i]["kl"] += 1.5 * np.exp(-(i - 50) / 10)
    return rows


def entropy_collapse(seed: int = 0) -> list[dict[str, float]]:
    """Entropy goes to nothing within a few logs."""
    rows = healthy(seed)
    for i in range(40, N_LOGS):
        rows[i]["entropy"] *= np.exp(-(i - 40) / 3.5)
    return rows


def length_inflation(seed: int = 0) -> list[dict[str, float]]:
    """Answers grow steadily to twice their length."""
    rows = healthy(seed)
    for i, row in enumerate(rows):
        row["length"] *= 1 + max(0.0, i - 20) / 60 * 1.0
    return rows


def reward_up_benchmark_down(seed: int = 0) -> list[dict[str, float]]:
    """From the middle on the nightly score falls while the reward goes on rising."""
    rows = healthy(seed)
    for i, row in enumerate(rows):
        if "gsm8k_exact_match" in row and i > 40:
            row["gsm8k_exact_match"] -= 0.006 * (i - 40)
    return rows


def cost_doubled(seed: int = 0) -> list[dict[str, float]]:
    """The agent learns to search twice as often."""
    rows = healthy(seed)
    for i, row in enumerate(rows):
        row["cost"] *= 1 + 1 / (1 + np.exp(-(i - 45) / 4))
    return rows


def write_jsonl(path: Path, rows: list[dict[str, float]]) -> Path:
    """As our own recipes log."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
