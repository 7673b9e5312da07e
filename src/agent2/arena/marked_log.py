"""Logs that are written to a finished trial: each line has a mark of the installation that wrote it.

The mark is made with the installation secret over the line's content and the id of the trial. A line without it, or
with one that does not fit, was written by somebody else (in a folder from outside) or for another trial: it is shown as
such and proves nothing here.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from agent2 import installation
from agent2.arena.trial_folder import EventLog, read_events
from agent2.errors import ConfigError
from agent2.records import canonical_json
from agent2.texts import counted

T = TypeVar("T")

NOT_MARKED = ("event", "mark", "is_own")


def append_marked(path: Path, event: str, trial_id: str, fields: Mapping[str, Any]) -> None:
    """Append one line with its mark to a log."""
    content = _content(fields)
    log = EventLog(path)
    try:
        log.append(event, **content, mark=installation.mark(_marked(trial_id, content)))
    finally:
        log.close()


def require_writable(path: Path) -> None:
    """Require that a log can be written, before a long run whose result goes there. Raises ConfigError."""
    try:
        EventLog(path).close()
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be written ({error.strerror}); the result goes there: copy the trial to a folder that you "
            "may write"
        ) from error


def read_marked(
    path: Path, trial_id: str, kind: type[T], with_owner: Callable[[T, bool], T], warnings: list[str]
) -> tuple[T, ...]:
    """The records of a log. with_owner: the record with whether this installation wrote it."""
    events = read_events(path)
    results = []
    n_damaged = events.n_torn
    for row in events.rows:
        content = _content(row)
        try:
            record = msgspec.convert(content, kind)
        except (msgspec.ValidationError, ValueError):  # ValueError: an interval that is empty
            n_damaged += 1
            continue
        is_own = installation.has_own_mark(_marked(trial_id, content), str(row.get("mark", "")))
        results.append(with_owner(record, is_own))
    if n_damaged:
        warnings.append(f"events/{path.name}: {counted(n_damaged, 'damaged line')} left out.")
    return tuple(results)


def _content(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in NOT_MARKED}


def _marked(trial_id: str, content: Mapping[str, Any]) -> bytes:
    return canonical_json([trial_id, msgspec.to_builtins(content)])
