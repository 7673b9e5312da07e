"""The log of a trial's reproductions: what came out when its recorded program was run again.

Each line has a mark made with the installation secret over its content and the id of the trial. A line without it, or
with one that does not fit, was written by somebody else (in a folder from outside) or for another trial: it is shown as
such and proves nothing here.
"""

from dataclasses import asdict, replace
from typing import Any

import msgspec

from agent2 import installation
from agent2.arena.evidence import Reproduction
from agent2.arena.trial_folder import EventLog, TrialPaths, read_events
from agent2.errors import ConfigError
from agent2.records import canonical_json

NOT_MARKED = ("event", "mark", "is_own")


def record_reproduction(paths: TrialPaths, trial_id: str, reproduction: Reproduction) -> Reproduction:
    """Append one result to the log of the trial whose program was run again; returns it as recorded."""
    fields = {name: value for name, value in asdict(reproduction).items() if name not in NOT_MARKED}
    log = EventLog(paths.reproductions_log)
    try:
        log.append("reproduction", **fields, mark=installation.mark(_marked(trial_id, fields)))
    finally:
        log.close()
    return replace(reproduction, is_own=True)


def require_recordable(paths: TrialPaths) -> None:
    """Require that the log can be written, before a long run whose result goes there. Raises ConfigError."""
    try:
        EventLog(paths.reproductions_log).close()
    except OSError as error:
        raise ConfigError(
            f"{paths.reproductions_log}: cannot be written ({error.strerror}); the result goes there: copy the "
            "trial to a folder that you may write"
        ) from error


def read_reproductions(paths: TrialPaths, trial_id: str, warnings: list[str]) -> tuple[Reproduction, ...]:
    """The results of a trial, each with whether this installation recorded it."""
    events = read_events(paths.reproductions_log)
    results = []
    n_damaged = events.n_torn
    for row in events.rows:
        fields = {name: value for name, value in row.items() if name not in NOT_MARKED}
        try:
            reproduction = msgspec.convert(fields, Reproduction)
        except (msgspec.ValidationError, ValueError):  # ValueError: an interval that is empty
            n_damaged += 1
            continue
        is_own = installation.has_own_mark(_marked(trial_id, fields), str(row.get("mark", "")))
        results.append(replace(reproduction, is_own=is_own))
    if n_damaged:
        warnings.append(f"events/reproductions.jsonl: {n_damaged} damaged line(s) left out.")
    return tuple(results)


def _marked(trial_id: str, fields: dict[str, Any]) -> bytes:
    return canonical_json([trial_id, msgspec.to_builtins(fields)])
