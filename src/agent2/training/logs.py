"""One training log for every recipe: JSON lines, written as training goes.

A line holds `phase`, `step`, `t` (Unix seconds), `seconds` (since training began) and those of `loss`,
`reward`, `reward_std`, `kl`, `entropy`, `length` (tokens of a completion), `clipped` (share of completions cut
off), `grad_norm` and `learning_rate` that the trainer measured: what it did not measure is absent, never zero.

Online training over episodes (`online_grpo`) adds: `success`; `kl_initial` (nats a token from the initial model;
`kl` is from the reference); `turns`, `length` and `action_length` (drawn tokens of an episode and of a message); of
messages `invalid_share`, `unterminated_share` (cut off), `repeated_share` (same as the one before), `stutter_share` (a
run of letters comes again at once); of episodes `capped_share`, `retried_share`, `masked_failed`, `masked_truncated`,
`masked_capped`, `masked_too_long`; `signal_share` (groups whose rewards differ); `clip_share` (tokens whose ratio was
clipped); `foreign_share` (tokens in the loss that the policy did not draw: 0 unless observations are not masked);
`logprob_gap` (largest difference between sampler and trainer on the same token); `staleness` (updates since the
episodes were played); `environment_s`, `generation_s`, `training_s`; and for a composite reward `reward_success`,
`reward_valid`, `reward_format`.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

LOG_NAME = "train_log.jsonl"
STATE_NAME = "trainer_state.json"

LogLine = dict[str, float | str]
OnLog = Callable[[LogLine], None]

_NAMES = MappingProxyType(
    {
        "loss": "loss",
        "reward": "reward",
        "reward_std": "reward_std",
        "kl": "kl",
        "entropy": "entropy",
        "completions/mean_length": "length",
        "completions/clipped_ratio": "clipped",
        "grad_norm": "grad_norm",
        "learning_rate": "learning_rate",
        "clip_ratio/region_mean": "clip_share",
    }
)
EPISODE_FIELDS = (
    "success", "kl_initial", "turns", "action_length", "invalid_share", "unterminated_share", "repeated_share",
    "stutter_share", "capped_share", "retried_share", "masked_failed", "masked_truncated", "masked_capped",
    "masked_too_long", "signal_share", "foreign_share", "logprob_gap", "staleness", "environment_s", "generation_s",
    "training_s", "reward_success", "reward_valid", "reward_format",
)  # fmt: skip
"""Logged under their own names by online training."""
_WRITTEN = MappingProxyType({**_NAMES, **{name: name for name in EPISODE_FIELDS}})


class LogWriter(TrainerCallback):  # type: ignore[misc]
    """Appends a line for every log of a trainer, and tells the caller."""

    def __init__(self, path: Path, phase: str, on_log: OnLog | None = None) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a", encoding="utf-8")
        self._phase = phase
        self._on_log = on_log
        self._started = time.monotonic()

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Write what this log measured; the summary that a trainer logs at its end has no loss or reward."""
        measured = {
            ours: float(logs[theirs]) for theirs, ours in _WRITTEN.items() if logs and logs.get(theirs) is not None
        }
        if not {"loss", "reward"} & set(measured):
            return
        line: LogLine = {
            "phase": self._phase,
            "step": state.global_step,
            "t": round(time.time(), 3),
            "seconds": round(time.monotonic() - self._started, 3),
            **measured,
        }
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()
        if self._on_log is not None:
            self._on_log(line)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Close the file."""
        self._file.close()
