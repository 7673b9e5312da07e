"""How far people confirm the scorer, checkpoint by checkpoint, as a log that `agent2 monitor` reads.

A line for each checkpoint, in the order of training steps:

    {"step": 400, "verifier_accuracy": 0.95, "n": 20}

Lines of other steps stay as they are, one of the same step is replaced.
"""

import json
from pathlib import Path
from typing import Any

from agent2.analysis.history import training_step
from agent2.analysis.rater_agreement import SpotCheckReport
from agent2.analysis.spot_check import cards_to_rate
from agent2.cards.reader import finished_header
from agent2.errors import ConfigError
from agent2.files import write_text
from agent2.foreign_files import read_limited


def log_accuracy(log: Path, folder: Path, report: SpotCheckReport) -> int:
    """Write the agreement of people with the scorer into a log, at the training step of the checkpoint; returns it.

    folder: a card or an evaluation, of which the report is. Raises ConfigError for a checkpoint without a step in its
    name, people who agree on nothing, and a file that is no such log.
    """
    names = sorted({finished_header(card).checkpoint_name for card in cards_to_rate(folder).values()})
    steps = {step for step in map(training_step, names) if step is not None}
    if len(steps) != 1:
        raise ConfigError(
            f"{folder}: the name of the checkpoint, {' and '.join(names)}, has no training step, such as "
            "checkpoint-400; write the line yourself: " + '{"step": 400, "verifier_accuracy": 0.95}'
        )
    (step,) = steps
    agreed = report.people.agreement
    if agreed is None:
        raise ConfigError(f"{folder}: nobody is sure of a rollout, so there is no accuracy; have more of them judged")
    rows = [row for row in _rows(log) if row["step"] != step]
    rows.append({"step": step, "verifier_accuracy": agreed.value, "n": agreed.n})
    rows.sort(key=lambda row: row["step"])
    write_text(log, "".join(f"{json.dumps(row)}\n" for row in rows))
    return step


def _rows(log: Path) -> list[dict[str, Any]]:
    if not log.exists():
        return []
    rows = []
    try:
        for number, line in enumerate(read_limited(log, follow=True).decode("utf-8").splitlines(), 1):
            row = json.loads(line)
            if not isinstance(row, dict) or not isinstance(row.get("step"), int):
                raise ConfigError(f"{log}:{number}: is no object with a step; name another file")
            rows.append(row)
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{log}: cannot be read as a log ({error}); name another file") from error
    return rows
