"""What every recipe shares: check the rows before anything is loaded, run TRL's trainer, save what came out."""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import PrinterCallback

from agent2.errors import ConfigError
from agent2.training.checkpoints import save_checkpoint
from agent2.training.logs import LOG_NAME, STATE_NAME

_log = logging.getLogger(__name__)

FIELDS = frozenset({"prompt", "answer"})


@dataclass(frozen=True, slots=True)
class TrainReport:
    """What a recipe did."""

    checkpoint: Path
    steps: int
    seconds: float
    """Loading and saving included, imports not."""
    log: Path
    stopped: str = ""
    """Why training ended before its last step; empty: it did not."""


def require_rows(recipe: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Every row has a prompt and an answer, and there is one. Raises ConfigError naming the first that has not."""
    if not rows:
        raise ConfigError(f"{recipe}: there are no rows to train on; give at least one {{'prompt', 'answer'}}")
    for index, row in enumerate(rows):
        missing = FIELDS - set(row)
        if missing:
            raise ConfigError(f"{recipe}: row {index} has no {' and no '.join(sorted(missing))}; it has {sorted(row)}")


def log_path(out_dir: Path) -> Path:
    """The training log of a run that saves to out_dir: beside it, so that the checkpoint holds nothing else."""
    return out_dir.parent / LOG_NAME


def run_and_save(trainer: Any, model_path: Path, out_dir: Path, started: float) -> TrainReport:
    """Train, write the trainer's state beside out_dir and the model into it.

    started: `time.monotonic()` when the recipe began.
    """
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    trainer.state.save_to_json(str(out_dir.parent / STATE_NAME))
    save_checkpoint(trainer.model, model_path, out_dir)
    report = TrainReport(out_dir, trainer.state.global_step, time.monotonic() - started, log_path(out_dir))
    _log.info("%s: %d steps in %.1f s", type(trainer).__name__, report.steps, report.seconds)
    return report
