"""Reads what trainers log: our JSON lines, Trainer states, TensorBoard folders and Weights & Biases exports.

The shape is told by the file, not by a flag:

    *.jsonl                     one flat object a line with `step` (ours, W&B's wandb-history.jsonl with `_step`)
    trainer_state.json          transformers and TRL: `log_history`
    *.csv                       W&B's export: a step column and one column for each run and metric
    folder with events.out.*    TensorBoard (needs the extra `tensorboard`)

Promises: a line that cannot be read is an error with its number, except a torn last line, which a running trainer
may leave and which is noted. Does NOT read W&B's binary `.wandb` files: export them first.
"""

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from agent2.errors import ConfigError
from agent2.installation import extra_words
from agent2.monitor.series import Reading, TrainingLog, assemble, canonical_name
from agent2.records import JsonValue

STEP_KEYS = ("step", "global_step", "_step", "train/global_step", "trainer/global_step", "Step")
_NOT_MEASURED = frozenset({"t", "time", "timestamp", "seconds", "epoch", "_timestamp", "_runtime", "_wandb"})
_EVENTS = "events.out.tfevents"
_CSV_SUFFIXES = ("__MIN", "__MAX")


def read_log(path: Path) -> TrainingLog:
    """The run that a file or folder holds.

    Raises ConfigError if it is of no known shape, has a line that cannot be read, or holds no number at a step.
    """
    notes: list[str] = []
    if path.is_dir():
        readings = list(_folder(path, notes))
    elif path.suffix == ".jsonl":
        readings = list(_json_lines(path, notes))
    elif path.suffix == ".json":
        readings = list(_trainer_state(path))
    elif path.suffix == ".csv":
        readings = list(_csv(path))
    else:
        raise ConfigError(
            f"{path}: no training log of a known shape; give a .jsonl, trainer_state.json, W&B .csv or a folder of "
            "TensorBoard events"
        )
    log = assemble(path.stem if path.is_file() else path.name, readings, notes)
    if not log.series:
        raise ConfigError(f"{path}: holds no number at any step; a line needs `step` and at least one measurement")
    return log


def _folder(path: Path, notes: list[str]) -> Iterator[Reading]:
    if any(path.glob(f"**/{_EVENTS}*")):
        yield from _tensorboard(path)
        return
    for name in ("train_log.jsonl", "wandb-history.jsonl"):
        if (path / name).is_file():
            yield from _json_lines(path / name, notes)
            return
    states = sorted(path.glob("**/trainer_state.json"), key=lambda state: (len(state.parts), _checkpoint_step(state)))
    if not states:
        raise ConfigError(
            f"{path}: no {_EVENTS}*, train_log.jsonl, wandb-history.jsonl or trainer_state.json below it; name the log"
        )
    yield from _trainer_state(states[-1])


def _checkpoint_step(state: Path) -> int:
    digits = state.parent.name.rpartition("-")[2]
    return int(digits) if digits.isdigit() else -1


def _json_lines(path: Path, notes: list[str]) -> Iterator[Reading]:
    lines = _text(path).split("\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            if number == len(lines):  # no newline after it: still being written
                notes.append(f"the last line ({number}) is not complete, left out")
                return
            raise ConfigError(f"{path}:{number}: is no JSON object ({error}); mend or delete the line") from error
        if not isinstance(row, dict):
            raise ConfigError(f"{path}:{number}: is a JSON {type(row).__name__}, each line must be an object")
        yield from _row(row, f"{path.name}:{number}", path)


def _trainer_state(path: Path) -> Iterator[Reading]:
    try:
        state = json.loads(_text(path))
    except ValueError as error:
        raise ConfigError(
            f"{path}: is no JSON ({error}); give the trainer_state.json that the trainer wrote"
        ) from error
    history = state.get("log_history") if isinstance(state, dict) else None
    if not isinstance(history, list):
        raise ConfigError(f"{path}: has no `log_history` list; give the trainer_state.json that the trainer wrote")
    for number, row in enumerate(history):
        if not isinstance(row, dict):
            raise ConfigError(f"{path}: log_history[{number}] is no object; restore the file")
        yield from _row(row, f"log_history[{number}]", path)


def _row(row: Mapping[str, JsonValue], where: str, path: Path) -> Iterator[Reading]:
    step = next((row[key] for key in STEP_KEYS if key in row), None)
    if isinstance(step, bool) or not isinstance(step, int | float) or not abs(step) < 2**63:
        raise ConfigError(f"{path}: {where} has no usable step (got {step!r}); each line needs a whole number `step`")
    for key, value in row.items():
        if key in STEP_KEYS or key in _NOT_MEASURED or isinstance(value, bool):
            continue
        if isinstance(value, int | float):
            yield Reading(int(step), canonical_name(key), float(value), where)
        elif isinstance(value, str) and value in ("NaN", "Infinity", "-Infinity"):  # as W&B writes them
            yield Reading(int(step), canonical_name(key), float(value.replace("Infinity", "inf")), where)


def _csv(path: Path) -> Iterator[Reading]:
    """W&B's table export: `Step`, then `<run> - <metric>` with `__MIN` and `__MAX` beside it."""
    reader = csv.DictReader(_text(path).splitlines())
    columns = reader.fieldnames or []
    step_column = next((key for key in STEP_KEYS if key in columns), None)
    if step_column is None:
        raise ConfigError(f"{path}:1: has no step column; one of {', '.join(STEP_KEYS)} is needed, got {columns}")
    metrics = [c for c in columns if c != step_column and not c.endswith(_CSV_SUFFIXES) and c not in _NOT_MEASURED]
    names = {column: canonical_name(column.rpartition(" - ")[2]) for column in metrics}
    for name in names.values():
        runs = [column for column, other in names.items() if other == name]
        if len(runs) > 1:
            raise ConfigError(f"{path}:1: holds {name!r} of {len(runs)} runs ({', '.join(runs)}); export one run")
    for number, row in enumerate(reader, start=2):
        for column, name in names.items():
            text = (row[column] or "").strip()
            if not text:
                continue
            try:
                yield Reading(int(float(row[step_column])), name, float(text), f"{path.name}:{number}")
            except ValueError as error:
                raise ConfigError(f"{path}:{number}: column {column!r} is {text!r}, a number is needed") from error


def _tensorboard(path: Path) -> Iterator[Reading]:
    try:
        from tensorboard.backend.event_processing.event_accumulator import (
            EventAccumulator,  # the extra is needed only for such folders
        )
    except ImportError as error:
        raise ConfigError(
            f"{path}: reading TensorBoard events needs tensorboard; {extra_words('tensorboard')}"
        ) from error
    for folder in sorted({file.parent for file in path.glob(f"**/{_EVENTS}*")}):
        accumulator = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
        accumulator.Reload()
        tags = accumulator.Tags()
        for tag in tags["scalars"]:
            for event in accumulator.Scalars(tag):
                yield Reading(event.step, canonical_name(tag), event.value, f"{folder.name}: {tag}")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); check the path") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 text ({error.reason} at byte {error.start})") from error
