"""What people did to a trial while its agent worked: an append-only log, written by `agent2 intervene`.

Nobody can see a person's hand from the outside: what is not reported is not known, and the report says "none was
reported". Only the agent's phase counts; before and after it nothing can help the agent.
"""

import fcntl

from agent2.arena.eventlog import EventLog, read_events
from agent2.arena.paths import TrialPaths
from agent2.errors import ConfigError

MAX_NOTE = 2_000


def record_intervention(paths: TrialPaths, note: str, by: str = "") -> None:
    """Append one intervention. Raises ConfigError if the note is empty or too long, or no agent is at work there."""
    if not note.strip() or len(note) > MAX_NOTE:
        raise ConfigError(f"--note has {len(note)} characters; say what was done in 1 to {MAX_NOTE}")
    if not paths.trial_json.is_file():
        raise ConfigError(f"{paths.root}: no trial.json there; pass the folder of a trial")
    events = read_events(paths.trial_log)
    is_at_work = events.last("agent_started") is not None and events.last("agent_ended") is None
    if not is_at_work or not _is_held(paths):
        raise ConfigError(f"{paths.root}: no agent is at work there now; interventions are recorded as they happen")
    log = EventLog(paths.interventions_log)
    try:
        log.append("intervention", note=note, by=by)
    finally:
        log.close()


def _is_held(paths: TrialPaths) -> bool:
    """Whether a harness is at the trial."""
    with paths.harness_lock.open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
